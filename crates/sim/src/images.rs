//! Pictures: OpenAI's call for them, and Google's models when they are told to answer with one. What is made is always the
//! same small picture; faults are those of every other call.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;
use http::header::HeaderValue;
use http::request::Parts;
use serde_json::{Value, json};

use crate::body::{Answer, ResetFlag};
use crate::failure::Failure;
use crate::openai::{CREATED, unknown};
use crate::script::Behaviour;
use crate::speak::{JSON, Speak};
use crate::state::State;
use crate::{chat, gemini, play, refuse};

/// A PNG of one pixel.
pub const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x06, 0x00, 0x00, 0x00, 0x1f, 0x15, 0xc4, 0x89, 0x00, 0x00, 0x00, 0x0d, 0x49,
    0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0x64, 0xf8, 0xcf, 0x50, 0x0f, 0x00, 0x03, 0x86, 0x01, 0x80, 0x5a, 0x34, 0x7d,
    0x6b, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

/// Tokens of a prompt and of a picture, where a script has them counted.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    input: u64,
    output: u64,
}

/// Whether a call of Google's protocol asks for this in place of text.
pub(crate) fn asks_for(modality: &str, body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let modalities = body["generationConfig"]["responseModalities"].as_array();
    modalities.is_some_and(|list| list.iter().any(|one| one == modality))
}

/// `POST /images/generations`.
pub(crate) async fn openai(state: &Arc<State>, head: &Parts, body: &Bytes, reset: ResetFlag) -> Response<Answer> {
    drawn::<chat::Request, _>(state, head, body, reset, wanted, |n, counted| {
        let picture = json!({"b64_json": STANDARD.encode(PNG)});
        let mut answer = json!({"created": CREATED, "data": vec![picture; n]});
        if let Some(Counted { input, output }) = counted {
            answer["usage"] = json!({"total_tokens": input + output, "input_tokens": input, "output_tokens": output,
                "input_tokens_details": {"text_tokens": input, "image_tokens": 0}});
        }
        answer
    })
    .await
}

/// `generateContent` that asks for a picture.
pub(crate) async fn google(state: &Arc<State>, head: &Parts, body: &Bytes, reset: ResetFlag) -> Response<Answer> {
    let read = |head: &Parts, body: &Bytes| <gemini::Request as Speak<'_>>::read(head, body).map(|_| 1);
    drawn::<gemini::Request, _>(state, head, body, reset, read, |_, counted| {
        let picture = json!({"inlineData": {"mimeType": "image/png", "data": STANDARD.encode(PNG)}});
        let content = json!({"role": "model", "parts": [{"text": "Here it is."}, picture]});
        let mut answer = json!({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]});
        if let Some(Counted { input, output }) = counted {
            answer["usageMetadata"] = json!({"promptTokenCount": input, "candidatesTokenCount": output,
                "totalTokenCount": input + output,
                "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": output}]});
        }
        answer
    })
    .await
}

/// Plays the script for a call that is answered whole: `made` of what was `read`.
pub(crate) async fn drawn<'a, S: Speak<'a>, T>(
    state: &Arc<State>,
    head: &Parts,
    body: &Bytes,
    reset: ResetFlag,
    read: impl FnOnce(&Parts, &Bytes) -> Result<T, Failure>,
    made: impl FnOnce(T, Option<Counted>) -> Value,
) -> Response<Answer> {
    played::<S, T>(state, head, body, reset, read, |read, counted| (JSON, made(read, counted).to_string().into())).await
}

/// The same for answers of any type.
pub(crate) async fn played<'a, S: Speak<'a>, T>(
    state: &Arc<State>,
    head: &Parts,
    body: &Bytes,
    reset: ResetFlag,
    read: impl FnOnce(&Parts, &Bytes) -> Result<T, Failure>,
    made: impl FnOnce(T, Option<Counted>) -> (HeaderValue, Bytes),
) -> Response<Answer> {
    let open = state.enter();
    let (active, id) = (state.active(), state.next_request());
    if !active.script.first_byte.is_zero() {
        tokio::time::sleep(active.script.first_byte).await;
    }
    let key = active.script.require_key.as_deref();
    let admitted = key.map_or(Ok(()), |key| S::admit(key, head)).and_then(|()| read(head, body));
    let answer = match (admitted, active.take()) {
        (Err(failure), _) => play::fail::<S>(id, &failure),
        // `open` lives on until the client leaves and the server drops this future.
        (Ok(_), Behaviour::HangBeforeHeaders) => std::future::pending().await,
        (Ok(_), Behaviour::Status { code, retry_after, error_type, message }) => {
            let failure = Failure {
                status: *code,
                kind: error_type.clone(),
                message: message.clone(),
                retry_after: retry_after.clone(),
                ..Failure::default()
            };
            play::fail::<S>(id, &failure)
        }
        (Ok(_), Behaviour::Raw { status, headers, body }) => play::raw(*status, headers, body),
        (Ok(n), behaviour) => match refused(behaviour, body) {
            Some(failure) => play::fail::<S>(id, &failure),
            None => {
                let counted = match behaviour {
                    Behaviour::Image { input_tokens, output_tokens } => {
                        Some(Counted { input: *input_tokens, output: *output_tokens })
                    }
                    _ => None,
                };
                let (kind, made) = made(n, counted);
                play::respond::<S>(200, kind, id, Answer::whole(made))
            }
        },
    };
    answer.map(|answer| answer.of(open, reset))
}

fn refused(behaviour: &Behaviour, body: &Bytes) -> Option<Failure> {
    let Behaviour::RefuseMember(name) = behaviour else { return None };
    refuse::member(&serde_json::from_slice(body).unwrap_or_default(), name).map(|path| unknown(&path))
}

/// How many pictures are asked for. Options are not checked: every server has its own.
fn wanted(_: &Parts, body: &Bytes) -> Result<usize, Failure> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|_| Failure::new(400, "We could not parse the JSON body of your request."))?;
    for name in ["model", "prompt"] {
        if body[name].as_str().is_none_or(str::is_empty) {
            let message = format!("Missing required parameter: '{name}'.");
            return Err(Failure::at(name, "missing_required_parameter", message));
        }
    }
    match body.get("n").map_or(Some(1), Value::as_u64) {
        Some(n @ 1..=10) => Ok(n as usize),
        _ => Err(Failure::at("n", "invalid_value", "Invalid 'n': expected an integer from 1 to 10.")),
    }
}
