//! Counting without generating. It never fails because a provider did: an estimate stands in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use tidegate_providers::{Betas, Carriage, Protocol, anthropic};
use tidegate_routing::Attempt;
use tidegate_wire::envelope::Purpose;
use tidegate_wire::json::Members;
use tokio::time::timeout;

use crate::Gateway;
use crate::failure::{self, Failure};
use crate::keys::KeyEntry;
use crate::{relay, upstream};

/// A count is worth waiting for only so long; the estimate is there at once.
const LIMIT: Duration = Duration::from_secs(10);
const LARGEST_ANSWER: usize = 64 << 10;

/// The answer to a count.
pub struct Counted {
    pub body: Bytes,
    pub estimated: bool,
}

impl Gateway {
    /// Serves `POST /messages/count_tokens` for a caller that has been let in.
    pub async fn count_tokens(
        self: &Arc<Self>,
        key: &KeyEntry,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Counted, Failure> {
        let snapshot = self.snapshot();
        let settings = &snapshot.settings;
        let envelope = relay::read(&body, settings, Purpose::Count)?;
        // A count asks an upstream as a message does, and holds as much while it waits.
        let _places = self.enter(key, settings)?;
        if let Some(failure) = relay::unsupported(&envelope, settings) {
            return Err(failure);
        }
        let requested = relay::requested(&envelope);
        let names: Vec<&str> = requested.iter().map(String::as_str).collect();
        let plan = self.plan(&snapshot, key, &names).map_err(|error| failure::from_plan(error, &names, settings))?;
        let Attempt { endpoint, credential, .. } = &plan.attempts[0];
        let provider = &snapshot.upstreams[endpoint.provider_index];
        let sent = envelope.cuts.upstream_body(&body, &endpoint.upstream_model, None);
        let credential = match credential {
            Some(own) => self.credentials.value(&key.workspace, own, provider.auth, self.clock.now()).await.ok(),
            None => provider.credential.clone(),
        };
        let forwarded = relay::forwarded(headers);
        let beta = forwarded.beta.clone().filter(|_| provider.betas == Betas::All);
        let mut head = anthropic::headers(&forwarded, provider.carriage, beta);
        if let Some(credential) = &credential {
            credential.put(&mut head, provider.auth, &endpoint.model);
        }
        let uri = snapshot.places[endpoint.place].calls.count.clone();
        let uri = uri.filter(|_| provider.protocol == Protocol::Messages && provider.carriage == Carriage::Plain);
        let asked = async {
            let response = self.upstream.send(uri.as_ref()?, head, sent.into()).await.ok()?;
            if response.status() != StatusCode::OK {
                return None;
            }
            let answer = upstream::whole(response.into_body(), LARGEST_ANSWER).await.ok()?;
            is_count(&answer).then_some(answer)
        };
        if let Ok(Some(answer)) = timeout(LIMIT, asked).await {
            return Ok(Counted { body: answer, estimated: false });
        }
        let count = estimate(&body);
        // Edits of the context are not applied to an estimate: it counts what was there before them.
        let managed = if edits_context(&body) {
            format!(r#","context_management":{{"original_input_tokens":{count}}}"#)
        } else {
            String::new()
        };
        let body = Bytes::from(format!(r#"{{"input_tokens":{count}{managed}}}"#));
        Ok(Counted { body, estimated: true })
    }
}

fn is_count(answer: &[u8]) -> bool {
    let object = serde_json::from_slice::<&RawValue>(answer).ok();
    let count = object.and_then(Members::of).and_then(|members| members.get("input_tokens")?.get().parse::<u64>().ok());
    count.is_some()
}

fn edits_context(body: &[u8]) -> bool {
    let object = serde_json::from_slice::<&RawValue>(body).ok();
    let edits = object.and_then(Members::of).and_then(|members| members.get("context_management"));
    edits.is_some_and(|edits| edits.get() != "null")
}

/// Tokens of a body when nobody can count them: 3.2 bytes each in plain text, 1.6 characters each elsewhere.
fn estimate(body: &[u8]) -> u64 {
    let ascii = body.iter().filter(|byte| byte.is_ascii()).count() as u64;
    let others = String::from_utf8_lossy(body).chars().filter(|character| !character.is_ascii()).count() as u64;
    (ascii * 10).div_ceil(32) + (others * 10).div_ceil(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_counts_bytes_of_ascii_and_characters_of_the_rest() {
        assert_eq!(estimate(&[b'a'; 32]), 10);
        assert_eq!(estimate("é".repeat(16).as_bytes()), 10);
        assert_eq!(estimate(b""), 0);
    }
}
