//! The answer to a request for embeddings.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::GenerationId;
use tidegate_providers::Fault;
use tidegate_providers::embeddings::{Made, write};
use tidegate_wire::answer::Charge;
use tidegate_wire::envelope::embeddings::{Encoding, Request, Said};
use tidegate_wire::json::quote;

/// The vectors, as the members of an array.
pub(super) fn vectors(made: &Made<'_>, encoding: Encoding) -> Result<Vec<u8>, Fault> {
    let size: usize = made.vectors.iter().map(|vector| vector.get().len() + 64).sum();
    let mut out = Vec::with_capacity(size);
    for (place, vector) in made.vectors.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        out.extend_from_slice(format!(r#"{comma}{{"object":"embedding","index":{place},"embedding":"#).as_bytes());
        write(vector, encoding, &mut out)?;
        out.push(b'}');
    }
    Ok(out)
}

/// The answer as the interface has it.
pub(super) fn answer(vectors: &[u8], (id, model): (GenerationId, &str), tokens: u64, charge: &Charge<'_>) -> Bytes {
    let Charge { cost_json, details_json, is_byok } = charge;
    let mut out = Vec::with_capacity(vectors.len() + 512);
    out.extend_from_slice(br#"{"object":"list","data":["#);
    out.extend_from_slice(vectors);
    out.extend_from_slice(br#"],"model":"#);
    quote(model, &mut out);
    let rest = format!(
        r#","id":"{}","usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens},"cost":{cost_json},"cost_details":{details_json},"is_byok":{is_byok}}}}}"#,
        id.as_str()
    );
    out.extend_from_slice(rest.as_bytes());
    out.into()
}

/// What was asked for, as a conversation of one turn: destinations know no other form.
pub(super) fn asked(request: &Request<'_>, changed: Option<&[Cow<'_, str>]>) -> Bytes {
    let said = |text: &str| json!({"type": "text", "text": text});
    let content: Vec<Value> = match (changed, &request.input.said) {
        (Some(texts), _) => texts.iter().map(|text| said(text)).collect(),
        (None, Said::Texts(texts)) => texts.iter().map(|text| said(text)).collect(),
        (None, Said::Tokens(count)) => vec![said(&format!("[{count} tokens]"))],
        (None, Said::Parts { .. }) => vec![said(&format!("[{} inputs of several parts]", request.input.count))],
    };
    json!({"model": request.model, "messages": [{"role": "user", "content": content}]}).to_string().into()
}

/// What came back, in the same form: of vectors nothing is told but how many there were.
pub(super) fn overheard(made: &Made<'_>) -> Vec<u8> {
    let text = match made.vectors.len() {
        1 => "[1 embedding]".to_owned(),
        count => format!("[{count} embeddings]"),
    };
    json!({"content": [{"type": "text", "text": text}]}).to_string().into()
}
