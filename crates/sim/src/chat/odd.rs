//! Errors in the shapes of servers that are not OpenAI, some of them under status 200.

use serde_json::{Value, json};

use super::request::Request;
use crate::content::{Ask as _, Block, words};
use crate::events::{Events, Writer};
use crate::quirk::Quirk;
use crate::said::{Body, Said};
use crate::speak::{Odd, Speak as _};

pub(super) fn answer(request: &Request, quirk: Quirk, said: &Said<'_>) -> Option<(u16, Odd)> {
    let whole = |status: u16, body: &Value| Some((status, Odd::Whole(body.to_string().into_bytes())));
    // OpenRouter: the code is a number.
    let error = json!({"code": 502, "message": "Provider returned error", "metadata": {"provider_name": "Upstream",
        "raw": "bad gateway"}});
    match quirk {
        Quirk::ErrorIn200 if request.stream() => {
            let mut out = Writer::default();
            out.data(&json!({"error": error}));
            Some((200, Odd::Events(out.events())))
        }
        Quirk::ErrorIn200 => whole(200, &json!({"error": error})),
        Quirk::ErrorFinish if request.stream() => Some((200, Odd::Events(failing(request, said, &error)))),
        Quirk::ErrorFinish => {
            let mut body = super::render::whole(said);
            body["choices"][0]["finish_reason"] = json!("error");
            body["choices"][0]["error"] = error;
            whole(200, &body)
        }
        Quirk::ErrorString => whole(500, &json!({"error": "upstream exploded"})),
        Quirk::ErrorDetail => {
            let detail = json!([{"loc": ["body", "messages", 0, "content"], "msg": "str type expected",
                "type": "type_error.str"}]);
            whole(422, &json!({"detail": detail}))
        }
        Quirk::ErrorObject => whole(
            400,
            &json!({"object": "error", "message": "The request is invalid.", "type": "BadRequestError",
                "param": null, "code": 400}),
        ),
        Quirk::IdsNine => {
            let id = request.other_id.as_deref()?;
            let message = format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.");
            whole(
                400,
                &json!({"object": "error", "message": message, "type": "invalid_function_call", "param": null,
                    "code": "3280"}),
            )
        }
        Quirk::PrefixRepeated => {
            let said = prefixed(said, request.prefix.as_deref()?);
            match request.stream() {
                true => Some((200, Odd::Events(request.events(&said)))),
                false => whole(200, &super::render::whole(&said)),
            }
        }
        Quirk::ToolUseFailed => {
            let name = request.tools().into_iter().next().unwrap_or_else(|| "tool".into());
            let failed = format!("<function={name}>{{\"query\": \"hi\"}}</function>");
            let message =
                "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.";
            whole(
                400,
                &json!({"error": {"message": message, "type": "invalid_request_error", "code": "tool_use_failed",
                    "failed_generation": failed}}),
            )
        }
        _ => None,
    }
}

/// The same answer after a start that the caller wrote.
fn prefixed<'s>(said: &Said<'s>, prefix: &str) -> Said<'s> {
    let mut blocks = said.blocks().into_owned();
    if let Some(Block::Text(pieces)) = blocks.first_mut() {
        pieces.splice(0..0, words(prefix));
    }
    Said { body: Body::Blocks(blocks), ending: said.ending.clone(), ..*said }
}

/// The first chunks of an answer, then one with the error.
fn failing(request: &Request, said: &Said<'_>, error: &Value) -> Events {
    let mut out = Writer::default();
    for event in request.events(said).each().iter().take(3) {
        out.write(|bytes| bytes.extend_from_slice(event));
    }
    out.data(&json!({
        "id": format!("chatcmpl-sim-{}", said.id), "object": "chat.completion.chunk", "created": 0,
            "model": said.model,
        "error": error, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
    }));
    out.write(|bytes| bytes.extend_from_slice(b"data: [DONE]\n\n"));
    out.events()
}
