//! The answer to a request to rank documents.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::{GenerationId, Usage};
use tidegate_providers::rerank::Made;
use tidegate_wire::answer::Charge;
use tidegate_wire::envelope::rerank::{Request, Said};
use tidegate_wire::json::{Kind, kind, quote};

/// The answer as the interface has it. Documents are told as they came, whatever a filter has made of them.
pub(super) fn answer(
    (made, asked): (&Made<'_>, &Request<'_>),
    (id, model, provider): (GenerationId, &str, &str),
    usage: &Usage,
    charge: &Charge<'_>,
) -> Bytes {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(format!(r#"{{"id":"{}","model":"#, id.as_str()).as_bytes());
    quote(model, &mut out);
    out.extend_from_slice(br#","provider":"#);
    quote(provider, &mut out);
    out.extend_from_slice(br#","results":["#);
    for (place, ranked) in made.ranked.iter().enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let head = format!(r#"{comma}{{"index":{},"relevance_score":{},"document":"#, ranked.index, ranked.score.get());
        out.extend_from_slice(head.as_bytes());
        let document = asked.documents.each[ranked.index];
        let is_text = kind(document) == Kind::String;
        out.extend_from_slice(if is_text { br#"{"text":"# } else { b"" });
        out.extend_from_slice(document.get().as_bytes());
        out.extend_from_slice(if is_text { b"}}" } else { b"}" });
    }
    out.extend_from_slice(br#"],"usage":{"#);
    let Charge { cost_json, details_json, is_byok } = charge;
    for (name, count) in [("search_units", usage.search_units), ("total_tokens", usage.input)] {
        if count > 0 {
            out.extend_from_slice(format!(r#""{name}":{count},"#).as_bytes());
        }
    }
    let rest = format!(r#""cost":{cost_json},"cost_details":{details_json},"is_byok":{is_byok}}}}}"#);
    out.extend_from_slice(rest.as_bytes());
    out.into()
}

/// What was asked for, as a conversation of one turn: destinations know no other form. The query comes first.
pub(super) fn asked(request: &Request<'_>, changed: Option<&[Cow<'_, str>]>) -> Bytes {
    let said = |text: &str| json!({"type": "text", "text": text});
    let (query, texts) = match changed {
        Some([query, texts @ ..]) => (&**query, Some(texts)),
        _ => (&*request.query, None),
    };
    let mut content: Vec<Value> = vec![said(query)];
    match (&request.documents.said, texts) {
        (Said::Texts(_), Some(texts)) => content.extend(texts.iter().map(|text| said(text))),
        (Said::Texts(texts), None) => content.extend(texts.iter().map(|text| said(text))),
        (Said::Pictures { .. }, _) => {
            content.push(said(&format!("[{} documents with images]", request.documents.each.len())));
        }
    }
    json!({"model": request.model, "messages": [{"role": "user", "content": content}]}).to_string().into()
}

/// What came back, in the same form.
pub(super) fn overheard(made: &Made<'_>, count: usize) -> Vec<u8> {
    let places: Vec<String> = made.ranked.iter().map(|one| format!("{} ({})", one.index, one.score.get())).collect();
    let text = format!("[of {count} documents: {}]", places.join(", "));
    json!({"content": [{"type": "text", "text": text}]}).to_string().into()
}
