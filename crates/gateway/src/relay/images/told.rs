//! The answer to a request for pictures, whole or as a stream of finished ones.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidegate_core::{Timestamp, Usage};
use tidegate_providers::images::Made;
use tidegate_wire::answer::Charge;
use tidegate_wire::envelope::images::{Form, Request};
use tidegate_wire::json::quoted;

use crate::failure::Failure;

/// The answer as the interface has it. The data is plain Base64 and needs no escapes.
pub(super) fn answer(made: &Made<'_>, usage: &Usage, charge: &Charge<'_>, form: Form, now: Timestamp) -> Bytes {
    let size: usize = made.pictures.iter().map(|picture| picture.data.len() + 128).sum();
    let mut out = String::with_capacity(size + 512);
    let created = made.created.unwrap_or_else(|| u64::try_from(now.0 / 1_000).unwrap_or(0));
    let _ = write!(out, r#"{{"created":{created},"data":["#);
    for (place, picture) in made.pictures.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let _ = write!(out, r#"{comma}{{"b64_json":"{}""#, picture.data);
        if let Some(kind) = picture.kind {
            let _ = write!(out, r#","media_type":"{kind}""#);
        }
        if let Some(prompt) = &picture.revised_prompt {
            let _ = write!(out, r#","revised_prompt":{}"#, quoted(prompt));
        }
        out.push('}');
    }
    let (prompt, completion) = (usage.prompt(), usage.output);
    let _ = write!(
        out,
        r#"],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{}"#,
        prompt.saturating_add(completion)
    );
    if form == Form::Openai {
        // As OpenAI's own clients know it.
        let _ = write!(out, r#","input_tokens":{prompt},"output_tokens":{completion}"#);
    }
    let Charge { cost_json, details_json, is_byok } = charge;
    let _ = write!(
        out,
        r#","prompt_tokens_details":{{"cached_tokens":{}}},"completion_tokens_details":{{"image_tokens":{},"reasoning_tokens":{}}},"cost":{cost_json},"cost_details":{details_json},"is_byok":{is_byok}}}}}"#,
        usage.cache_read, usage.output_image, usage.thinking
    );
    out.into()
}

/// What was asked for, as a conversation of one turn: destinations know no other form. Of pictures nothing is told but that
/// they were there.
pub(super) fn asked(request: &Request<'_>, prompt: Option<&str>) -> Bytes {
    let mut content = vec![json!({"type": "text", "text": prompt.unwrap_or(&request.prompt)})];
    content.extend(request.references.iter().map(|reference| {
        let inside = reference.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        picture(inside.map_or(("by reference", ""), |(kind, data)| (kind, data)))
    }));
    let body = json!({
        "model": request.model,
        "stream": request.stream,
        "messages": [{"role": "user", "content": content}],
    });
    body.to_string().into()
}

/// What came back, in the same form.
pub(super) fn overheard(made: &Made<'_>) -> Vec<u8> {
    let told = made.pictures.iter().flat_map(|made| {
        let revised = made.revised_prompt.as_ref().map(|prompt| json!({"type": "text", "text": prompt}));
        [Some(picture((made.kind.unwrap_or("image"), &made.data))), revised].into_iter().flatten()
    });
    json!({"content": told.collect::<Vec<Value>>()}).to_string().into()
}

/// A picture, by its kind and its length alone.
fn picture((kind, data): (&str, &str)) -> Value {
    // Base64: four letters for three bytes.
    let bytes = data.trim_end_matches('=').len() * 3 / 4;
    json!({"type": "text", "text": format!("[image {kind}, {bytes} bytes]")})
}

/// As much of an answer of ours as is told again.
#[derive(Deserialize)]
struct Answer<'a> {
    created: u64,
    #[serde(borrow)]
    data: Vec<Picture<'a>>,
    #[serde(borrow)]
    usage: &'a RawValue,
}

#[derive(Deserialize)]
struct Picture<'a> {
    #[serde(borrow)]
    b64_json: Cow<'a, str>,
    #[serde(borrow, default)]
    media_type: Option<Cow<'a, str>>,
}

/// The same as a stream: one event for each picture, the last with what all of them used.
pub(super) fn as_stream(answer: &[u8]) -> Result<Bytes, Failure> {
    let Answer { created, data, usage } = serde_json::from_slice(answer).map_err(|_| Failure::internal())?;
    let mut out = String::with_capacity(answer.len() + 256 * data.len());
    let last = data.len().saturating_sub(1);
    for (place, picture) in data.iter().enumerate() {
        let _ = write!(
            out,
            "event: image_generation.completed\ndata: {{\"type\":\"image_generation.completed\",\"b64_json\":\"{}\",\"created\":{created}",
            picture.b64_json
        );
        if let Some(kind) = &picture.media_type {
            let _ = write!(out, r#","media_type":{}"#, quoted(kind));
        }
        if place == last {
            let _ = write!(out, r#","usage":{}"#, usage.get());
        }
        out.push_str("}\n\n");
    }
    out.push_str("data: [DONE]\n\n");
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use tidegate_providers::images::Picture;

    use super::*;

    fn made(form: Form) -> Bytes {
        let picture = |revised_prompt| Picture { data: "AAAA".into(), kind: Some("image/png"), revised_prompt };
        let made = Made {
            pictures: vec![picture(None), picture(Some("a \"ship\"".into()))],
            created: None,
            usage: Usage::default(),
            is_counted: true,
        };
        let usage = Usage { input: 10, output: 30, output_image: 20, ..Usage::default() };
        let charge = Charge { cost_json: "0.5", details_json: "null", is_byok: false };
        answer(&made, &usage, &charge, form, Timestamp(12_345))
    }

    #[test]
    fn an_answer_is_what_the_interface_says() {
        let told: Value = serde_json::from_slice(&made(Form::Ours)).unwrap();
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 30, "total_tokens": 40,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"image_tokens": 20, "reasoning_tokens": 0},
            "cost": 0.5, "cost_details": null, "is_byok": false});
        let data = json!([{"b64_json": "AAAA", "media_type": "image/png"},
            {"b64_json": "AAAA", "media_type": "image/png", "revised_prompt": "a \"ship\""}]);
        assert_eq!(told, json!({"created": 12, "data": data, "usage": usage}));
        let told: Value = serde_json::from_slice(&made(Form::Openai)).unwrap();
        assert_eq!((&told["usage"]["input_tokens"], &told["usage"]["output_tokens"]), (&json!(10), &json!(30)));
    }

    #[test]
    fn a_stream_holds_finished_pictures() {
        let text = as_stream(&made(Form::Ours)).unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!((data.len(), data[2]), (3, "[DONE]"));
        let events: Vec<Value> = data[..2].iter().map(|data| serde_json::from_str(data).unwrap()).collect();
        assert_eq!((events[0].get("usage"), &events[1]["usage"]["cost"]), (None, &json!(0.5)));
        assert_eq!((&events[0]["type"], &events[0]["created"]), (&json!("image_generation.completed"), &json!(12)));
    }
}
