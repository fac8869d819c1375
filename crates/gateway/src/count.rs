//! Counting without generating. It never fails because a provider did: an estimate stands in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use tidegate_core::KeyHash;
use tidegate_providers::anthropic;
use tidegate_providers::count::Count;
use tidegate_providers::translate::Target;
use tidegate_providers::{Auth, Carriage, Protocol, adapter, count, estimate};
use tidegate_routing::Attempt;
use tidegate_wire::envelope::{Envelope, Purpose, Wrapped};
use tidegate_wire::json::{self, Members};
use tidegate_wire::messages::Request;
use tidegate_wire::preset::Words;
use tokio::time::timeout;

use crate::agent;
use crate::choices::Made;
use crate::failure::{self, Failure};
use crate::keys::KeyEntry;
use crate::relay::call::{self, Fit};
use crate::relay::{Wishes, foreign, translate};
use crate::tasks;
use crate::{Gateway, Snapshot, relay, upstream};

/// A count is worth waiting for only so long; the estimate is there at once.
const LIMIT: Duration = Duration::from_secs(10);
const LARGEST_ANSWER: usize = 64 << 10;
/// Of who tells every token beside their number: as many as the longest prompts have.
const LARGEST_LIST: usize = 16 << 20;
/// The same question is not asked again for this long.
const KEPT: Duration = Duration::from_secs(300);

/// The answer to a count.
pub struct Counted {
    pub body: Bytes,
    pub estimated: bool,
}

impl Gateway {
    /// Serves `POST /messages/count_tokens` for a caller that has been let in.
    pub async fn count_tokens(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Counted, Failure> {
        let snapshot = self.snapshot();
        let settings = &snapshot.settings;
        // A provider that counts reads as much as one that answers.
        let mut body = self.passed(key, body)?;
        let mut envelope = relay::read(&body, settings, Purpose::Count)?;
        if envelope.names_preset {
            let applied = Box::pin(self.presets.applied(key, settings, (&body, &envelope), Words::Own)).await?;
            drop(envelope);
            body = applied.body;
            envelope = relay::read(&body, settings, Purpose::Count)?;
        }
        if envelope.traits.own_file {
            let filled = Box::pin(self.with_files(key, &body)).await?;
            drop(envelope);
            body = self.passed(key, filled)?;
            envelope = relay::read(&body, settings, Purpose::Count)?;
        }
        foreign::check(&envelope, &snapshot, &body)?;
        self.shed_free(&snapshot, envelope.names())?;
        // A count asks others as a message does, and holds as much while it waits.
        let _places = self.enter(key, settings)?;
        let mut searchers = None;
        if let Some(turn) = Box::pin(agent::as_turn_of(self, &snapshot, key, &body, &envelope)).await? {
            drop(envelope);
            (body, searchers) = (turn.body, turn.searchers);
            envelope = relay::read(&body, settings, Purpose::Count)?;
        }
        let names: Vec<&str> = envelope.names().collect();
        let mut wishes =
            Wishes { default: self.choices.model(&key.workspace, &names, Made::Text)?, ..Wishes::to_count(&envelope) };
        wishes.needs.searchers = searchers;
        let plan = self.plan(&snapshot, key, &names, &wishes);
        let plan = plan.map_err(|error| failure::from_plan(&error, &names, settings))?;
        let attempt = &plan.attempts[0];
        let hash = KeyHash::of(&[body.as_ref(), attempt.endpoint.provider.as_bytes()].concat());
        let now = self.clock.now();
        let known = self.counts.get(&hash).filter(|(_, until)| *until > now).map(|(count, _)| count);
        let asked = match known {
            Some(count) => Some(count),
            None => timeout(LIMIT, self.ask(&snapshot, key, attempt, headers, &envelope, &body)).await.ok().flatten(),
        };
        let edits = edits_context(&body);
        if let Some(count) = asked {
            self.counts.insert(hash, (count, now.plus(KEPT)));
            return Ok(Counted { body: told(count, edits), estimated: false });
        }
        let card = &snapshot.places[attempt.endpoint.place].card;
        let count = match Request::parse(&asked_of(&envelope, &body)) {
            Ok(request) => {
                let tokens = |request: &Request| tasks::at_length(|| estimate::tokens(request, card));
                let original = tokens(&request);
                let input = translate::cleared(&request, card).map_or(original, |edited| tokens(&edited.request));
                Count { input, original: Some(original) }
            }
            Err(_) => Count { input: estimate::by_bytes(&String::from_utf8_lossy(&body)), original: None },
        };
        Ok(Counted { body: told(count, edits), estimated: true })
    }
}

/// A count as it is answered, with what there was before the edits of a context where any are asked for.
fn told(count: Count, edits: bool) -> Bytes {
    let Count { input, original } = count;
    let original = original.unwrap_or(input);
    let managed = match edits {
        true => format!(r#","context_management":{{"original_input_tokens":{original}}}"#),
        false => String::new(),
    };
    format!(r#"{{"input_tokens":{input}{managed}}}"#).into()
}

impl Gateway {
    /// The endpoint's own count of what a call would send it.
    async fn ask(
        &self,
        snapshot: &Snapshot,
        key: &KeyEntry,
        attempt: &Attempt,
        headers: &HeaderMap,
        envelope: &Envelope<'_>,
        body: &Bytes,
    ) -> Option<Count> {
        let Attempt { endpoint, credential, .. } = attempt;
        let upstream = &snapshot.upstreams[endpoint.provider_index];
        let place = &snapshot.places[endpoint.place];
        let opened = match credential {
            Some(own) => Some(self.credentials.value(&key.workspace, own, upstream.auth, self.clock.now()).await.ok()?),
            None => upstream.credential.clone(),
        };
        let (own_calls, named) = match &opened {
            Some(opened) => call::calls(opened, attempt, upstream).ok()?,
            None => (None, None),
        };
        let uri = own_calls.as_ref().unwrap_or(&place.calls).count.clone()?;
        let model = named.as_deref().unwrap_or(&endpoint.upstream_model);
        let forwarded = relay::forwarded(headers);
        let mut cleared_tokens = None;
        let (mut head, sent) = match (upstream.protocol, upstream.carriage) {
            (Protocol::Messages, carriage) => {
                let learned = self.learned.of(&endpoint.provider, &endpoint.upstream_model);
                let refused = learned.map(|learned| (*learned).clone()).unwrap_or_default();
                let wanted = Fit {
                    body,
                    cuts: &envelope.cuts,
                    traits: envelope.traits,
                    max_tokens: None,
                    cap: None,
                    purpose: Purpose::Count,
                    refused: &refused,
                    repairs: &[],
                    forwarded: &forwarded,
                    is_made: false,
                };
                let fitted = call::fit(&wanted, attempt, upstream, snapshot).ok()?;
                let (body, cuts) = fitted.parts();
                let sent = match carriage {
                    Carriage::Plain => cuts.upstream_body(body, model, None),
                    Carriage::Vertex => {
                        let version = forwarded.version.as_ref().and_then(|version| version.to_str().ok());
                        let added = anthropic::added(carriage, version, &place.card, &[]);
                        // The model stands in the body here: the address is the same for all.
                        let added = format!(r#"{added},"model":{}"#, json::quoted(model));
                        cuts.wrapped_body(body, &Wrapped { without_stream: true, added: &added }, None)
                    }
                    Carriage::BedrockInvoke => {
                        let added = anthropic::added(carriage, None, &place.card, &fitted.betas);
                        let wrapped = Wrapped { without_stream: true, added: &added };
                        // Bedrock wants a call that could be made, and a call has a limit: above what it may think.
                        let limit = envelope.max_tokens.unwrap_or(endpoint.max_output_tokens).max(1);
                        count::invoked(&cuts.wrapped_body(body, &wrapped, Some(limit)))
                    }
                };
                (anthropic::headers(&forwarded, carriage, call::beta_header(&fitted.betas)), sent)
            }
            (protocol, _) => {
                let mut request = Request::parse(&asked_of(envelope, body)).ok()?;
                if let Some(edited) = translate::cleared(&request, &place.card) {
                    cleared_tokens = Some(edited.tokens());
                    request = edited.request;
                }
                let scope = translate::scope(attempt);
                let target = Target {
                    card: &place.card,
                    model,
                    scope: &scope,
                    cache_key: None,
                    user: None,
                    stream: false,
                    is_capped: false,
                    tells_searches: false,
                    tier: None,
                    betas: &[],
                    kept: &[],
                    unsigned: false,
                };
                let outgoing = adapter::request(protocol, &request, &target).ok()?;
                let is_vertex = upstream.auth == Auth::Google;
                (translate::headers(protocol, false), count::body(protocol, model, &outgoing.body, is_vertex)?)
            }
        };
        let who = (&*endpoint.model, credential.is_none());
        let sent = call::authorise(self.authority(), upstream, opened.as_ref(), who, &uri, &mut head, sent.into());
        let sent = sent.await.ok()?;
        let response = self.upstream.send(&uri, head, sent).await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        let largest = if upstream.protocol == Protocol::Chat { LARGEST_LIST } else { LARGEST_ANSWER };
        let answer = upstream::whole(response.into_body(), largest).await.ok()?;
        let count = count::read(upstream.protocol, upstream.carriage, &answer)?;
        // Nobody counts what was not sent.
        Some(Count { original: cleared_tokens.map(|tokens| count.input + tokens).or(count.original), ..count })
    }
}

/// The body without what says nothing of its length: whatever that holds, nobody counts less for it.
fn asked_of(envelope: &Envelope<'_>, body: &Bytes) -> Bytes {
    envelope.cuts.upstream_body(body, envelope.model.as_deref().unwrap_or_default(), None)
}

fn edits_context(body: &[u8]) -> bool {
    let object = serde_json::from_slice::<&RawValue>(body).ok();
    let edits = object.and_then(Members::of).and_then(|members| members.get("context_management"));
    edits.is_some_and(|edits| edits.get() != "null")
}
