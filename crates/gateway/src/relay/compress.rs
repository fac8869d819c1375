//! `context-compression`: a conversation that is too long for an endpoint's window loses its middle, for that attempt alone.
//! The next one begins with the whole of it again.

use serde_json::json;
use tidegate_observe::metrics::Plugin;
use tidegate_providers::compress::{self, Compressed};
use tidegate_providers::{Class, Fault};
use tidegate_routing::{Attempt, Endpoint};
use tidegate_wire::messages::Request;

use super::job::Job;
use super::{prefer, translate};
use crate::tasks;

/// The request as the window of an attempt's endpoint takes it; nothing where it fits, or must fit as it is. `changed`
/// stands for the body where something else had to be done to it.
pub(super) fn compressed(
    job: &mut Job,
    attempt: &Attempt,
    changed: Option<&Request>,
) -> Result<Option<Box<Request>>, Fault> {
    job.ticket.compressed(None);
    let endpoint = &attempt.endpoint;
    if !job.compression.is_for(endpoint) {
        return Ok(None);
    }
    let snapshot = job.snapshot.clone();
    let card = &snapshot.places[endpoint.place].card;
    let budget = budget(endpoint, job.max_tokens);
    // Nearly every prompt is so short that nobody has to count.
    if prefer::at_most(job.body.len(), job.shown) <= budget && card.max_messages.is_none() {
        return Ok(None);
    }
    let request = changed.map_or_else(|| translate::typed(&job.typed, &job.body), Ok);
    let Ok(request) = request else { return Ok(None) };
    let (made, tokens) = tasks::at_length(|| {
        let made = compress::middle_out(request, card, budget, card.max_messages);
        let tokens = made.as_ref().map_or_else(|| compress::tokens(request, card), |made| made.compressed.1);
        (made, tokens)
    });
    // An estimate that refuses must be on the safe side.
    if tokens.saturating_mul(100) / 105 > endpoint.context_length {
        let message = format!("prompt is too long: about {tokens} tokens > {} maximum", endpoint.context_length);
        return Err(Fault { message: Some(message), status: 400, ..Fault::without_answer(Class::ContextLength) });
    }
    let Some(made) = made else { return Ok(None) };
    job.gate.metrics.plugin_runs.get_or_create(&Plugin { plugin: "context-compression", outcome: "ok" }).inc();
    job.ticket.compressed(Some(entry(&made)));
    Ok(Some(Box::new(made.request)))
}

/// What a prompt may have: the window without the answer and a fiftieth. Who sets no limit to the answer gets room for a
/// quarter of the window.
fn budget(endpoint: &Endpoint, max_tokens: Option<u64>) -> u64 {
    let window = endpoint.context_length;
    let most = if endpoint.max_output_tokens > 0 { endpoint.max_output_tokens } else { u64::MAX };
    let answer = max_tokens.unwrap_or(window / 4).min(most);
    window.saturating_sub(answer).saturating_sub(window / 50)
}

fn entry(made: &Compressed) -> String {
    let ((messages, tokens), (left, fewer)) = (made.original, made.compressed);
    let entry = json!({
        "type": "context_compression",
        "name": "context-compression",
        "summary": format!("{tokens} tokens became {fewer}"),
        "cost_usd": 0,
        "data": {
            "engine": "middle-out",
            "input_type": "messages",
            "original_count": messages,
            "compressed_count": left,
            "original_tokens": tokens,
            "compressed_tokens": fewer,
        },
    });
    entry.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_and_a_fiftieth_of_the_window_are_kept_free() {
        let endpoint = |context_length, max_output_tokens| Endpoint {
            context_length,
            max_output_tokens,
            ..Endpoint::new("m", "p")
        };
        assert_eq!(budget(&endpoint(8_000, 1_000), Some(500)), 8_000 - 500 - 160);
        assert_eq!(budget(&endpoint(8_000, 1_000), Some(5_000)), 8_000 - 1_000 - 160, "no more than it can write");
        assert_eq!(budget(&endpoint(8_000, 0), None), 8_000 - 2_000 - 160);
        assert_eq!(budget(&endpoint(1_000, 0), Some(2_000)), 0);
    }
}
