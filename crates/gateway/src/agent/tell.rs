//! What is told of a loop besides its blocks: how it ended, what it used, and what the tools did.

use serde_json::{Map, Value, json};

use super::conduct::Conductor;
use super::native;
use super::route;
use super::search;
use super::sink::{Gone, Sink};
use super::usage::dollars;
use crate::failure::Failure;
use crate::relay::error_frame;

impl Conductor {
    /// How all turns so far were routed, when the latest was so.
    pub fn routed(&self, latest: Value) -> Value {
        match &self.routing {
            Some(before) => route::joined(before, latest),
            None => latest,
        }
    }

    /// The routing of the request, and what the tools did.
    pub fn told(&self, mut metadata: Value) -> Value {
        let mut tools: Vec<&str> = self.roster.tools.iter().map(|tool| tool.wire.as_str()).collect();
        tools.dedup();
        let (steps, turns, natives) = (self.tally.steps, self.sums.turns(), self.sums.vendors_searches());
        let mut engines = self.roster.engines();
        if natives > 0 && self.roster.searches() == 0 && engines.get(search::NAME).is_some() {
            engines[search::NAME] = json!(native::ENGINE);
        }
        let is_native = steps == 0 && natives > 0;
        let calls = steps + natives;
        let plural = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let entry = json!({
            "type": "server_tools",
            "name": "server-tools",
            "summary": format!("{} in {}", plural(calls, "call"), plural(turns as u64, "turn")),
            "cost_usd": dollars(self.sums.tools),
            "data": {
                "mode": if is_native { native::ENGINE } else { "sdk" },
                "tools": tools,
                "calls": calls,
                "turns": turns,
                "engines": engines,
                "stopped_by": self.stopped_by,
                "errors": self.errors,
            },
        });
        if let Some(requested) = &self.requested {
            metadata["requested"] = json!(requested);
        }
        // Tools that nobody called did nothing, unless they were kept from it.
        if self.roster.tools.is_empty() || (calls == 0 && self.stopped_by.is_none()) {
            return metadata;
        }
        match metadata.get_mut("pipeline") {
            Some(Value::Array(entries)) => entries.push(entry),
            _ => metadata["pipeline"] = Value::Array(vec![entry]),
        }
        metadata
    }

    /// The end of a stream: how it ended, what it used, and how it was routed.
    pub async fn end(&self, answer: &Value, sink: &Sink) -> Result<(), Gone> {
        let member = &self.snapshot.names.metadata_member;
        let told = ["stop_reason", "stop_sequence", "stop_details", "container"];
        let delta: Map<String, Value> =
            told.iter().filter_map(|name| Some(((*name).to_owned(), answer.get(*name)?.clone()))).collect();
        let usage = answer.get("usage").cloned().unwrap_or_default();
        let mut event = json!({"type": "message_delta", "delta": delta, "usage": usage});
        if let Some(edits) = answer.get("context_management") {
            event["context_management"] = edits.clone();
        }
        sink.send("message_delta", &event).await?;
        sink.stop((member, answer.get(member))).await
    }

    /// A failure of a later turn as one of the whole request: the caller knows that by the id of the first turn, whose
    /// record leads to all others.
    pub fn failed(&self, mut failure: Failure) -> Failure {
        failure.generation = self.inner.root().copied().or(failure.generation);
        if let Some(routing) = failure.more.as_mut().and_then(|more| more.routing.as_mut())
            && let Ok(metadata) = serde_json::from_str(routing)
        {
            *routing = self.told(self.routed(metadata)).to_string();
        }
        failure
    }

    /// The same of what broke a stream.
    pub fn told_of_all(&self, mut event: Value) -> Value {
        if let Some(root) = self.inner.root() {
            event["request_id"] = json!(root.as_str());
        }
        let member = self.snapshot.names.metadata_member.as_str();
        if let Some(metadata) = event.get_mut(member).map(Value::take) {
            event[member] = self.told(self.routed(metadata));
        }
        event
    }

    /// Tells a client that has begun to hear an answer why there is no more of it.
    pub async fn fail(&self, failure: &Failure, sink: &Sink) {
        let _ = sink.raw(error_frame(failure, &self.snapshot.settings.brand)).await;
    }
}

/// How an answer ends that was ended here, after a turn that ended so. What that turn told besides still holds.
pub(super) fn ended(reason: &str, turn: &Map<String, Value>) -> Map<String, Value> {
    let mut ending = turn.clone();
    ending.insert("stop_reason".into(), json!(reason));
    ending.insert("stop_sequence".into(), Value::Null);
    ending.insert("stop_details".into(), Value::Null);
    ending
}
