//! Requests that ask for a kept answer: what they look for, what a hit sends, and what is kept of a miss.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use tidegate_core::{GenerationId, KeyHash};
use tidegate_observe::metrics::Looked;
use tidegate_routing::{Plan, Zdr};
use tidegate_wire::answer::{self, Event, Message};
use tidegate_wire::envelope::Envelope;
use tidegate_wire::sse::Splitter;

use super::attempt::INTENT;
use super::pump::{Outbox, encoded};
use super::settle::{Ticket, Told};
use super::stream::{Body, StreamBody};
use super::{Head, Reply, Wishes, reply};
use crate::cache::{self, Entry, Preset, Recording, Terms};
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::snapshot::Names;
use crate::{Gateway, Snapshot, agent, plugins};

/// What a request that may be answered from what is kept looks for.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    key: KeyHash,
    ttl: Duration,
    clear: bool,
    stream: bool,
}

impl Wish {
    /// None for a request that does not ask for it, or must not have it.
    pub fn of(
        gate: &Gateway,
        key: &KeyEntry,
        head: Head<'_>,
        snapshot: &Snapshot,
        envelope: &Envelope<'_>,
        body: &[u8],
        preset: Preset,
    ) -> Option<Self> {
        let Terms { ttl, clear } = Terms::of(head.headers, &snapshot.names, preset)?;
        // An answer that is kept is none that the upstream could go on from.
        if !gate.answers.is_on() || envelope.asked.thread {
            return None;
        }
        let (model, stream) = (envelope.model.as_deref().unwrap_or_default(), envelope.stream);
        let rules = gate.rules_for(key, snapshot, envelope);
        let key = cache::key(&key.hash, head.api, model, rules.as_bytes(), stream, body);
        Some(Self { key, ttl, clear, stream })
    }

    /// What is kept for the request, if it may have it: it is let in then, and nobody is called.
    pub(super) async fn look(
        &self,
        gate: &Gateway,
        snapshot: &Snapshot,
        key: &KeyEntry,
        ticket: &mut Ticket,
    ) -> Option<Kept> {
        let found = if self.clear {
            gate.answers.remove(&self.key);
            None
        } else {
            let entry = gate.answers.find(&self.key, gate.clock.now());
            let kept = entry.and_then(|entry| Kept::of(entry, self.stream, ticket.id()));
            kept.filter(|kept| gate.may_hear(key, snapshot, &kept.told))
        };
        let found = match found {
            Some(kept) if ticket.admit_free().await => Some(kept),
            _ => None,
        };
        let result = if found.is_some() { "hit" } else { "miss" };
        gate.metrics.response_cache.get_or_create(&Looked { result }).inc();
        found
    }

    /// The same before anything is done to a request that has its price: a hit needs nothing of it. A miss is one only when
    /// the request is planned, by the same wish.
    pub(super) async fn look_early(
        &self,
        gate: &Arc<Gateway>,
        snapshot: &Arc<Snapshot>,
        key: &KeyEntry,
        open: impl FnOnce() -> Result<Box<Ticket>, Failure>,
    ) -> Result<Option<Reply>, Failure> {
        let entry = gate.answers.find(&self.key, gate.clock.now()).filter(|_| !self.clear);
        let Some(entry) = entry else { return Ok(None) };
        let mut ticket = open()?;
        let may_have = |kept: &Kept| {
            let model = kept.told.model.as_deref().unwrap_or_default();
            // Who may not have the model any more may not have what it once said, either.
            let plan = gate.plan(snapshot, key, &[model], &Wishes::default());
            plan.is_ok_and(|plan| !gate.retains_nothing(key, &plan)) && gate.may_hear(key, snapshot, &kept.told)
        };
        match Kept::of(entry, self.stream, ticket.id()).filter(may_have) {
            Some(kept) if ticket.admit_free().await => {
                gate.metrics.response_cache.get_or_create(&Looked { result: "hit" }).inc();
                kept.give(gate, snapshot, ticket).await.map(Some)
            }
            _ => {
                ticket.refuse();
                Ok(None)
            }
        }
    }

    /// Nothing is kept for the request, or nothing that it may have.
    pub fn miss(&self, gate: &Gateway) {
        if self.clear {
            gate.answers.remove(&self.key);
        }
        gate.metrics.response_cache.get_or_create(&Looked { result: "miss" }).inc();
    }

    /// For a stream that is to be kept.
    pub fn recording(&self, gate: &Gateway, source: GenerationId, warnings: &[String]) -> Box<Recording> {
        let mut recording = Recording::new(&gate.answers, self.key, source, self.ttl);
        recording.warned(warnings);
        recording
    }

    /// Keeps a whole answer. `metadata` names the member that is for this request alone.
    pub fn keep(
        &self,
        gate: &Gateway,
        source: GenerationId,
        body: &Bytes,
        metadata: Option<&str>,
        warnings: &[String],
    ) {
        let body = metadata.map_or_else(|| body.clone(), |member| answer::without(body, member));
        let (warnings, kept) = (warnings.to_vec(), gate.clock.now());
        gate.answers.keep(self.key, Entry { body, source, warnings, kept, ttl: self.ttl });
    }

    /// What the head of an answer says that was made for this request.
    pub fn missed(&self, headers: &mut HeaderMap, names: &Names) {
        headers.insert(&names.cache_status_header, HeaderValue::from_static("MISS"));
        headers.insert(&names.cache_ttl_header, HeaderValue::from(self.ttl.as_secs()));
    }

    /// A failure was made for it as well.
    pub fn failed(&self, mut failure: Failure, names: &Names) -> Failure {
        self.missed(&mut failure.more_mut().headers, names);
        failure
    }
}

impl Gateway {
    /// What an answer depends on besides the request: whatever changes of it, what was kept before is not given after.
    fn rules_for(&self, key: &KeyEntry, snapshot: &Snapshot, envelope: &Envelope<'_>) -> String {
        let settings = &snapshot.settings;
        let standing = self.plugins.standing(&key.workspace, settings);
        // With these, other models than those of the request may have a say.
        let may_ask =
            agent::is_for(envelope, snapshot) || plugins::is_for(envelope, settings) || !standing.defaults.is_empty();
        let zdr = self.guardrails.of(key).filter(|_| may_ask).map(|held| held.guard.zdr).unwrap_or_default();
        format!("{:?} {zdr:?} {:?}", self.guardrails.change(key), standing.defaults)
    }

    /// Whether there are models of which nobody may keep what they say.
    pub(crate) fn enforces_zdr(&self, key: &KeyEntry) -> bool {
        self.guardrails.of(key).is_some_and(|held| held.guard.zdr != Zdr::default())
    }

    /// Whether nobody may keep what a model of the plan says: zero data retention is enforced for it.
    pub(super) fn retains_nothing(&self, key: &KeyEntry, plan: &Plan) -> bool {
        let zdr = self.guardrails.of(key).map(|held| held.guard.zdr).unwrap_or_default();
        plan.attempts.iter().any(|attempt| zdr.covers(&attempt.endpoint.model))
    }

    /// Whether what the models of a loop say may be kept.
    pub(super) fn may_keep(&self, snapshot: &Snapshot, key: &KeyEntry, envelope: &Envelope<'_>) -> bool {
        let names: Vec<&str> = envelope.names().collect();
        let plan = self.plan(snapshot, key, &names, &Wishes::default());
        plan.is_ok_and(|plan| !self.retains_nothing(key, &plan))
    }

    /// Whether a caller may have what a model once said at a provider: another model of the request may be all that is left.
    fn may_hear(&self, key: &KeyEntry, snapshot: &Snapshot, told: &Told) -> bool {
        let Some(held) = self.guardrails.of(key) else { return true };
        let name = told.model.as_deref().unwrap_or_default();
        let Ok(named) = snapshot.catalogue.find(name) else { return false };
        let mut spoke =
            named.model.endpoints.iter().filter(|one| Some(&*one.provider_name) == told.provider.as_deref());
        !held.guard.zdr.covers(name) && spoke.any(|one| held.guard.allows(named.model, named.variants, one))
    }
}

/// A kept answer as it is given to another request: under ids of its own, and with nothing used.
pub(super) struct Kept {
    entry: Arc<Entry>,
    told: Told,
    body: Given,
}

enum Given {
    Whole(Bytes),
    /// The frames, and the end marker.
    Stream(Outbox, Bytes),
}

impl Kept {
    /// None when it cannot be read, which does not happen: we wrote it.
    fn of(entry: Arc<Entry>, stream: bool, generation: GenerationId) -> Option<Self> {
        // As unlike any other as the generation's own.
        let id = generation.as_str().replacen("gen-", "msg_", 1);
        let (body, told) = if stream {
            let (frames, last, told) = streamed(&entry.body, id)?;
            (Given::Stream(frames, last), told)
        } else {
            let message = Message::read(&entry.body).ok()?;
            let told = Told { stop_reason: message.stop_reason(), ..told_by(&message, id) };
            (Given::Whole(message.replayed(&told.id)), told)
        };
        Some(Self { entry, told, body })
    }

    /// Sends it, for a call that was let in.
    pub async fn give(
        self,
        gate: &Arc<Gateway>,
        snapshot: &Arc<Snapshot>,
        mut ticket: Box<Ticket>,
    ) -> Result<Reply, Failure> {
        let Self { entry, told, body } = self;
        let (id, names) = (ticket.id(), &snapshot.names);
        ticket.replay(entry.source, told);
        // Nothing leaves before it is written down that the call was let in.
        if !ticket.receipt().committed(INTENT).await {
            let failure = Failure { generation: Some(id), ..Failure::unavailable() };
            ticket.fail(&failure);
            return Err(failure);
        }
        ticket.first_content();
        let (age, rest) = entry.age_and_rest(gate.clock.now());
        let mut reply = match body {
            Given::Whole(bytes) => {
                ticket.sent(bytes.len());
                ticket.overhear(&bytes);
                let mut settled = ticket.complete();
                gate.settled(&mut settled).await;
                reply(id, names, Body::full(bytes), false, &entry.warnings)
            }
            Given::Stream(frames, last) => {
                let body = StreamBody::replaying(gate.clone(), snapshot.clone(), ticket, frames, last);
                reply(id, names, Body::Stream(Box::new(body)), true, &entry.warnings)
            }
        };
        let mut say = |name: &HeaderName, value: HeaderValue| reply.headers.insert(name, value);
        say(&names.cache_status_header, HeaderValue::from_static("HIT"));
        say(&names.cache_age_header, HeaderValue::from(age));
        say(&names.cache_ttl_header, HeaderValue::from(rest));
        let source = HeaderValue::from_str(entry.source.as_str()).expect("an id is plain ASCII");
        say(&names.cache_source_header, source);
        Ok(reply)
    }
}

fn told_by(message: &Message<'_>, id: String) -> Told {
    Told { id, model: message.model(), provider: message.provider(), stop_reason: None }
}

/// The frames of a kept stream under another id, its end marker, and what it says of itself. What needs no change is a
/// piece of what is kept.
fn streamed(body: &Bytes, id: String) -> Option<(Outbox, Bytes, Told)> {
    let (mut frames, mut last) = (Outbox::default(), None);
    let mut told = Told { id, ..Told::default() };
    let mut splitter = Splitter::new(body.len());
    splitter.feed(body.clone());
    loop {
        if let Some(run) = splitter.run(|frame| !frame.starts_with(b"event: message_")) {
            frames.push(run);
        }
        let Some(frame) = splitter.next().ok()? else { break };
        match frame.event() {
            b"message_start" => {
                let data = frame.data();
                let event = Event::read(&data).ok()?;
                let message = event.message().ok()?;
                told = told_by(&message, told.id);
                frames.push(encoded("message_start", &message.started_again(&told.id)));
            }
            b"message_delta" => {
                let data = frame.data();
                let delta = Event::read(&data).ok()?.delta();
                told.stop_reason = delta.stop_reason().or(told.stop_reason);
                frames.push(encoded("message_delta", &delta.replayed()));
            }
            b"message_stop" => last = Some(frame.0),
            _ => frames.push(frame.0),
        }
    }
    Some((frames, last?, told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const STREAM: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_up\",\"model\":\"v/m\",\"provider\":\"P\",\"usage\":{\"input_tokens\":14,\"output_tokens\":1}}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"event: message_start\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\"usage\":{\"output_tokens\":9,\"cost\":0.5}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );

    /// The data of all frames, and the last one apart.
    fn replayed(stream: &'static str) -> (Vec<Value>, Bytes, Told) {
        let (frames, last, told) = streamed(&Bytes::from_static(stream.as_bytes()), "msg_new".to_owned()).unwrap();
        let mut splitter = Splitter::new(1 << 20);
        splitter.feed(frames.iter().flat_map(|bytes| bytes.to_vec()).collect());
        let mut events = Vec::new();
        while let Some(frame) = splitter.next().unwrap() {
            events.push(serde_json::from_slice(&frame.data()).unwrap());
        }
        (events, last, told)
    }

    #[test]
    fn a_stream_is_given_with_its_events_under_another_id_and_with_nothing_used() {
        let (events, last, told) = replayed(STREAM);
        let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["message_start", "ping", "content_block_delta", "message_delta"]);
        assert_eq!(events[0]["message"]["id"], "msg_new");
        assert_eq!(events[0]["message"]["usage"], json!({"input_tokens": 0, "output_tokens": 0}));
        assert_eq!(events[2]["delta"]["text"], "event: message_start");
        let usage = &events[3]["usage"];
        assert_eq!(
            (&usage["input_tokens"], &usage["output_tokens"], &usage["cost"]),
            (&json!(0), &json!(0), &json!(0))
        );
        assert_eq!(last, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
        let expected = Told {
            id: "msg_new".to_owned(),
            model: Some("v/m".to_owned()),
            provider: Some("P".to_owned()),
            stop_reason: Some("max_tokens".to_owned()),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn a_stream_without_its_end_is_not_given() {
        let end = STREAM.find("event: message_stop").unwrap();
        assert!(streamed(&Bytes::from_static(&STREAM.as_bytes()[..end]), "msg_new".to_owned()).is_none());
    }
}
