//! The gateway's own spans: a request, what it took to find who serves it, and each call of an upstream. They are made of
//! the record of a finished request, so they hold nothing of what was said.

use serde_json::{Value, json};
use tidegate_core::{Exchange, GenerationId};

use crate::broadcast::span::{error, hash, trace_of};
use crate::broadcast::{Attribute, Part, Service, Span, SpanKind, otlp};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// A request of export with these requests, as JSON or as protobuf.
pub fn exported(exchanges: &[Exchange], service: &Service, is_json: bool) -> Vec<u8> {
    let all = exchanges.iter().map(|exchange| otlp::resource_spans(spans(exchange), service, &[]));
    if is_json {
        let texts = all.filter_map(|spans| String::from_utf8(otlp::json(&spans)).ok());
        let texts: Vec<String> = texts.collect();
        return otlp::export(texts.iter().map(String::as_bytes));
    }
    // Lists of protobuf may follow each other.
    all.flat_map(otlp::protobuf).collect()
}

/// The same for the same request, and no other span's.
fn span_id(id: &GenerationId, part: &str) -> String {
    hash(&format!("{}|{part}", id.as_str()), 8)
}

pub fn spans(exchange: &Exchange) -> Vec<Span> {
    let root = exchange.parent.as_ref().unwrap_or(&exchange.id);
    let trace = trace_of(root);
    let nanos = |millis: u64| {
        let millis = exchange.started.0.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX));
        millis.saturating_mul(NANOS_PER_MILLI)
    };
    let total = u64::from(exchange.duration_ms);
    let called: u64 = exchange.attempts.iter().map(|attempt| u64::from(attempt.duration_ms)).sum();
    // Until the first content all time that no upstream took is ours.
    let own = exchange.first_content_ms.map_or(total, u64::from).saturating_sub(called).min(total);
    let request = span_id(&exchange.id, "request");
    let span = |part: &str, parent: Option<String>, name: String, kind: SpanKind, from: u64, to: u64| Span {
        trace: trace.clone(),
        id: span_id(&exchange.id, part),
        parent,
        name,
        part: Part::Around,
        kind,
        start_nanos: nanos(from),
        end_nanos: nanos(to.max(from)),
        attributes: Vec::new(),
        error: None,
        events: Vec::new(),
    };
    let route = exchange.api.route();
    let (parent, name, kind) = match exchange.parent {
        None => (None, format!("POST {route}"), SpanKind::Server),
        Some(root) => (Some(span_id(&root, "request")), "turn".to_owned(), SpanKind::Internal),
    };
    let mut whole = span("request", parent, name, kind, 0, total);
    whole.attributes = attributes([
        ("http.request.method", json!("POST")),
        ("http.route", json!(route)),
        ("http.response.status_code", json!(exchange.status)),
        ("gateway.generation_id", json!(exchange.id.as_str())),
        ("gateway.outcome", json!(exchange.outcome.as_str())),
        ("gateway.streamed", json!(exchange.streamed)),
        ("error.type", json!(exchange.error_type.as_deref())),
    ]);
    whole.error = error(exchange).map(str::to_owned);
    let mut routing = span("routing", Some(request.clone()), "routing".to_owned(), SpanKind::Internal, 0, own);
    routing.attributes = attributes([("gateway.attempts", json!(exchange.attempts.len()))]);
    let mut spans = vec![whole, routing];
    let mut from = own;
    for (place, attempt) in exchange.attempts.iter().enumerate() {
        let is_last = place + 1 == exchange.attempts.len();
        // Between two of them nobody may have been called.
        from = attempt.after_ms.map_or(from, u64::from);
        let ended = from.saturating_add(attempt.duration_ms.into());
        let is_answer = attempt.status == 200;
        // The answer goes on until the request ends.
        let to = if is_last && is_answer { total.max(ended) } else { ended };
        let name = format!("{} {}", attempt.provider, attempt.model);
        let mut call = span(&format!("attempt {place}"), Some(request.clone()), name, SpanKind::Client, from, to);
        call.attributes = attributes([
            ("gen_ai.provider.name", json!(attempt.slug())),
            ("gen_ai.request.model", json!(&*attempt.model)),
            ("http.response.status_code", if attempt.status == 0 { Value::Null } else { json!(attempt.status) }),
            ("gateway.attempt", json!(place + 1)),
            ("gateway.is_byok", json!(attempt.is_byok)),
        ]);
        call.error = (!is_answer).then(|| match attempt.status {
            0 => "no answer".to_owned(),
            status => format!("status {status}"),
        });
        spans.push(call);
        from = ended;
    }
    spans
}

/// Those that have a value.
fn attributes<const N: usize>(named: [(&'static str, Value); N]) -> Vec<Attribute> {
    let known = named.into_iter().filter(|(_, value)| !value.is_null());
    known.map(|(name, value)| Attribute { name: name.into(), value }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::exchange::AttemptRecord;
    use tidegate_core::{Api, KeyHash, OrganisationId, Outcome, Timestamp, WorkspaceId};

    fn attempt(provider: &str, status: u16, duration_ms: u32) -> AttemptRecord {
        let (provider, model) = (provider.into(), "v/m".into());
        AttemptRecord { provider, model, status, duration_ms, ..AttemptRecord::default() }
    }

    fn exchange() -> Exchange {
        let now = Timestamp(1_790_000_000_000);
        let (organisation, workspace) = (OrganisationId("o".into()), WorkspaceId("w".into()));
        let key = KeyHash::of(b"k");
        Exchange {
            outcome: Outcome::Complete,
            status: 200,
            streamed: true,
            attempts: vec![attempt("P0", 529, 40), attempt("P1", 200, 150)],
            // 10 ms of it are ours.
            first_content_ms: Some(200),
            duration_ms: 1_000,
            ..Exchange::new(GenerationId::new(now), organisation, workspace, key, "v/m".into(), now)
        }
    }

    #[test]
    fn a_request_is_a_span_with_its_routing_and_its_attempts_below() {
        let exchange = exchange();
        let spans = spans(&exchange);
        let start = exchange.started.0 * NANOS_PER_MILLI;
        let millis = |nanos: i64| (nanos - start) / NANOS_PER_MILLI;
        let told: Vec<_> = spans
            .iter()
            .map(|span| (span.name.as_str(), millis(span.start_nanos), millis(span.end_nanos), span.error.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                ("POST /messages", 0, 1_000, None),
                ("routing", 0, 10, None),
                ("P0 v/m", 10, 50, Some("status 529")),
                ("P1 v/m", 50, 1_000, None),
            ]
        );
        assert!(spans[1..].iter().all(|span| span.parent.as_ref() == Some(&spans[0].id)));
        assert!(spans.iter().all(|span| span.trace == spans[0].trace && span.id.len() == 16 && span.trace.len() == 32));
        assert_eq!(spans[0].parent, None);
    }

    #[test]
    fn an_attempt_is_where_it_was_and_has_the_slug_of_its_provider() {
        let mut exchange = exchange();
        for (attempt, after) in exchange.attempts.iter_mut().zip([5, 120]) {
            (attempt.after_ms, attempt.slug) = (Some(after), attempt.provider.to_lowercase().into());
        }
        let spans = spans(&exchange);
        let start = exchange.started.0 * NANOS_PER_MILLI;
        let millis = |nanos: i64| (nanos - start) / NANOS_PER_MILLI;
        let times: Vec<_> = spans[2..].iter().map(|span| (millis(span.start_nanos), millis(span.end_nanos))).collect();
        assert_eq!(times, [(5, 45), (120, 1_000)]);
        for (span, slug) in spans[2..].iter().zip(["p0", "p1"]) {
            assert!(
                span.attributes.iter().any(|one| one.name == "gen_ai.provider.name" && one.value == slug),
                "{span:?}"
            );
        }
    }

    #[test]
    fn a_request_whose_client_left_has_an_error() {
        let left = Exchange { outcome: Outcome::Cancelled, status: 499, ..exchange() };
        assert_eq!(spans(&left)[0].error.as_deref(), Some("cancelled"));
    }

    #[test]
    fn a_request_for_pictures_is_told_by_its_own_route() {
        let root = spans(&Exchange { api: Api::Images, ..exchange() }).remove(0);
        assert_eq!(root.name, "POST /images");
        assert!(root.attributes.iter().any(|one| one.name == "http.route" && one.value == "/images"), "{root:?}");
    }

    #[test]
    fn a_turn_hangs_under_the_first_of_its_loop() {
        let first = exchange();
        let later = Exchange { parent: Some(first.id), ..exchange() };
        let (first, later) = (spans(&first), spans(&later));
        assert_eq!((later[0].parent.as_ref(), &later[0].trace), (Some(&first[0].id), &first[0].trace));
        assert_ne!(later[0].id, first[0].id);
    }

    #[test]
    fn a_request_that_nobody_took_is_all_ours() {
        let failed = Exchange {
            outcome: Outcome::Failed,
            status: 404,
            error_type: Some("not_found".into()),
            attempts: Vec::new(),
            first_content_ms: None,
            ..exchange()
        };
        let spans = spans(&failed);
        assert_eq!((spans.len(), spans[0].error.as_deref()), (2, Some("not_found")));
        assert_eq!(spans[1].end_nanos, spans[0].end_nanos);
    }
}
