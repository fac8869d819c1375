//! `moderation`: somebody judges what people wrote before anybody answers it.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::Money;
use tidegate_tools::moderation::{Verdict, pieces, shown};
use tidegate_wire::error::ErrorType;
use tidegate_wire::json::quoted;
use tokio::time::{Instant, timeout};

use super::Prepared;
use crate::Gateway;
use crate::failure::Failure;
use crate::guardrails::of_people;
use crate::relay::Purse;
use crate::snapshot::{Moderation, Settings};
use crate::upstream::whole;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(2);
const LONGEST_ANSWER: usize = 1 << 20;

/// Refuses a request whose text is flagged. `model`: as the caller wrote it.
pub(super) async fn moderate(
    (gate, purse): (&Gateway, &Purse),
    settings: &Settings,
    body: &Bytes,
    model: &str,
    made: &mut Prepared,
) -> Result<(), Failure> {
    let unset = || Failure::invalid("moderation is not configured on this deployment");
    let moderation = settings.moderation.as_deref().ok_or_else(unset)?;
    let said = of_people(body)?;
    let pieces = pieces(said.iter().map(String::as_str));
    if pieces.is_empty() {
        return Ok(());
    }
    let aside = purse.hold("moderation", moderation.price_per_call).await?;
    let began = Instant::now();
    let judged = timeout(PATIENCE, judged(gate, moderation, &pieces)).await.unwrap_or(Err("it did not answer in time"));
    let latency_ms = began.elapsed().as_millis() as u64;
    let (verdict, decision) = match judged {
        Ok(verdict) => {
            let decision = if verdict.flagged { "blocked" } else { "allowed" };
            (verdict, decision)
        }
        Err(problem) => {
            tracing::warn!(backend = moderation.backend.name(), problem, "a request could not be judged");
            if moderation.denies_on_error {
                if let Some(aside) = aside {
                    aside.pay(gate, moderation.backend.name(), Money::ZERO).await;
                }
                return Err(Failure::unavailable());
            }
            made.is_unjudged = true;
            (Verdict::default(), "unknown")
        }
    };
    // Whoever is refused, or not judged at all, is not charged for it.
    let fee = if decision == "allowed" { moderation.price_per_call } else { Money::ZERO };
    if let Some(aside) = aside {
        aside.pay(gate, moderation.backend.name(), fee).await;
    }
    made.told.fee = made.told.fee.plus(fee);
    let cost: Value = serde_json::from_str(&fee.to_string()).unwrap_or_default();
    let data = json!({
        "flagged": verdict.flagged,
        "decision": decision,
        "reasons": verdict.reasons,
        "latency_ms": latency_ms,
    });
    let entry = json!({"type": "guardrail", "name": "moderation", "cost_usd": cost, "data": data});
    made.told.entries.push(entry.to_string());
    if !verdict.flagged {
        return Ok(());
    }
    let text = format!("{model} requires moderation and the input was flagged");
    let mut failure = Failure::new(403, ErrorType::PermissionDenied, text);
    let input = pieces.get(verdict.piece).map(|piece| shown(piece)).unwrap_or_default();
    let metadata = json!({
        "reasons": verdict.reasons,
        "flagged_input": input,
        "provider_name": moderation.backend.name(),
        "model_slug": model,
    });
    failure.more_mut().metadata = Some(metadata.to_string());
    let told = format!(r#"{{"requested":{},"pipeline":[{}]}}"#, quoted(model), made.told.entries.join(","));
    failure.more_mut().routing = Some(told);
    Err(failure)
}

async fn judged(gate: &Gateway, moderation: &Moderation, pieces: &[String]) -> Result<Verdict, &'static str> {
    let Some(service) = moderation.backend.service() else { return Ok(moderation.backend.by_words(pieces)) };
    let (headers, body) = service.call(pieces).ok_or("the key cannot be sent")?;
    let sent = gate.upstream.send(&service.uri, headers, Bytes::from(body).into()).await;
    let answer = sent.map_err(|_| "it did not answer")?;
    if answer.status() != http::StatusCode::OK {
        return Err("it answered with an error");
    }
    let body = whole(answer.into_body(), LONGEST_ANSWER).await.map_err(|_| "its answer broke off or is too long")?;
    moderation.backend.read(&body).ok_or("its answer is not what its kind sends")
}
