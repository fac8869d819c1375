//! The loop itself: a turn of the model, the calls it made, their results, the next turn.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tidegate_observe::metrics::{Reason, ToolCall};
use tidegate_wire::sse::Splitter;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, timeout_at};

use super::fetch;
use super::roster::{Roster, Tool};
use super::run::{Outcome, run};
use super::sink::{Gone, Sink};
use super::stop::{Limits, Tally};
use super::turn::{Assembly, Call, Turn};
use super::usage::Sums;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::{Body, Inner, PING, Reply, error_frame};
use crate::{Gateway, Snapshot};

/// Characters of results that the model gets to read in one request.
const RESULTS: usize = 400_000;
/// How often an answer that a vendor interrupted is asked to go on.
const PAUSES: usize = 16;
/// Members of a request that decide about its loop or were decided by its first turn.
const OWN: [&str; 6] = ["tools", "tool_choice", "messages", "stop_server_tools_when", "max_tool_calls", "max_tokens"];

/// A request with server tools on its way.
pub(super) struct Conductor {
    pub gate: Arc<Gateway>,
    pub snapshot: Arc<Snapshot>,
    pub key: Arc<KeyEntry>,
    pub headers: HeaderMap,
    pub query: String,
    pub inner: Inner,
    /// The model as the caller wrote it.
    pub requested: Option<String>,
    /// The request without its messages and tools.
    request: Map<String, Value>,
    messages: Vec<Value>,
    roster: Arc<Roster>,
    /// What the caller wants called in the first turn.
    choice: Option<Value>,
    limits: Limits,
    /// Tokens that may still be written.
    left: Option<u64>,
    sums: Sums,
    tally: Tally,
    pauses: usize,
    errors: u64,
    /// Characters of results that may still be told.
    room: usize,
    stopped_by: Option<&'static str>,
    /// When no further call is made, and when everything ends.
    soft: Instant,
    hard: Instant,
}

/// Why a loop ended without an answer.
pub(super) enum Broken {
    Failure(Failure),
    Gone,
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Gone> for Broken {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// What a turn leads to.
enum Next {
    Turn {
        is_last: bool,
    },
    End(&'static str),
    /// As the model said.
    Over,
}

impl Conductor {
    #[expect(clippy::too_many_arguments, reason = "everything that a request is")]
    pub fn new(
        gate: Arc<Gateway>,
        snapshot: Arc<Snapshot>,
        key: Arc<KeyEntry>,
        (headers, query): (HeaderMap, String),
        inner: Inner,
        mut request: Map<String, Value>,
        messages: Vec<Value>,
        roster: Roster,
        limits: Limits,
    ) -> Self {
        let choice = request.get("tool_choice").filter(|choice| !choice.is_null()).cloned();
        let left = request.get("max_tokens").and_then(Value::as_u64);
        for name in OWN {
            request.remove(name);
        }
        let (now, whole) = (Instant::now(), snapshot.settings.tools.loop_deadline);
        let searches = roster.searches();
        Self {
            gate,
            key,
            headers,
            query,
            inner,
            requested: None,
            request,
            messages,
            roster: Arc::new(roster),
            choice,
            limits,
            left,
            sums: Sums::after(searches),
            tally: Tally::default(),
            pauses: 0,
            errors: 0,
            room: RESULTS,
            stopped_by: None,
            soft: now + whole.mul_f64(0.8),
            hard: now + whole,
            snapshot,
        }
    }

    /// Asks for the first turn; what goes wrong here has a status of its own.
    pub async fn begin(&mut self) -> Result<Reply, Failure> {
        self.ask(false).await
    }

    /// Goes on from the first turn to the end.
    pub async fn conduct(&mut self, first: Reply, sink: &mut Sink) -> Result<Value, Broken> {
        let (mut reply, mut is_last) = (first, false);
        let mut head: Option<Turn> = None;
        loop {
            sink.turn();
            let turn = self.read(reply, sink, is_last, head.is_none()).await?;
            self.sums.add(&turn.usage, turn.model());
            self.left = self.left.map(|left| left.saturating_sub(output(&turn)));
            if head.is_none() {
                self.settle_on(&turn);
            }
            let metadata = turn.metadata.clone();
            let (reason, ending) = (turn.reason().to_owned(), turn.ending.clone());
            let next = self.follow(&turn, sink, is_last).await?;
            let first = head.get_or_insert(turn);
            let told = match next {
                Next::Over => ending,
                Next::End(reason) => ended(reason),
                Next::Turn { is_last: last } => {
                    is_last = last;
                    match self.ask(is_last).await {
                        Ok(next) => {
                            reply = next;
                            continue;
                        }
                        // What was said so far is the answer when there is nothing left to pay another turn with.
                        Err(failure) if matches!(failure.status, 402 | 403) => {
                            self.stopped_by = Some("budget");
                            ended("end_turn")
                        }
                        Err(failure) => return Err(failure.into()),
                    }
                }
            };
            self.gate.metrics.loop_steps.observe(self.tally.steps as f64);
            if let Some(reason) = self.stopped_by {
                self.gate.metrics.loop_stops.get_or_create(&Reason { reason }).inc();
            }
            tracing::debug!(turns = self.sums.turns(), steps = self.tally.steps, reason, "a loop of tools ended");
            let mut answer = first.head.clone();
            answer.insert("content".into(), Value::Array(Vec::new()));
            answer.extend(told);
            answer.insert("usage".into(), self.sums.told());
            if let Some(metadata) = metadata {
                answer.insert(self.snapshot.names.metadata_member.clone(), self.told(metadata));
            }
            return Ok(Value::Object(answer));
        }
    }

    /// The model that answered the first turn answers the others, too.
    fn settle_on(&mut self, turn: &Turn) {
        for name in ["models", "fallbacks", "route", "preset"] {
            self.request.remove(name);
        }
        if let Some(model) = turn.model() {
            let suffix = self.request.get("model").and_then(Value::as_str).and_then(|name| name.split_once(':'));
            let variants = suffix.map(|(_, variants)| format!(":{variants}")).unwrap_or_default();
            self.request.insert("model".into(), json!(format!("{model}{variants}")));
        }
    }

    /// Sends the conversation as it is now.
    async fn ask(&self, is_last: bool) -> Result<Reply, Failure> {
        // A key that was taken away meanwhile asks for nothing more.
        if !self.key.may_go_on(self.gate.clock.now()) {
            return Err(Failure::invalid_key());
        }
        let mut body = self.request.clone();
        body.insert("messages".into(), Value::Array(self.messages.clone()));
        if !self.roster.upstream.is_empty() {
            body.insert("tools".into(), Value::Array(self.roster.upstream.clone()));
        }
        if let Some(left) = self.left {
            body.insert("max_tokens".into(), json!(left));
            think_within(&mut body, left);
        }
        if let Some(choice) = self.chosen(is_last) {
            body.insert("tool_choice".into(), choice);
        }
        let body = Bytes::from(Value::Object(body).to_string());
        self.gate.turn(&self.snapshot, &self.key, (&self.headers, &self.query), body, &self.inner).await
    }

    /// What a turn may or must call: the caller's wish counts for the first one.
    fn chosen(&self, is_last: bool) -> Option<Value> {
        if is_last {
            return Some(json!({"type": "none"}));
        }
        let choice = self.choice.as_ref()?;
        let kind = choice.get("type").and_then(Value::as_str).unwrap_or_default();
        let parallel = choice.get("disable_parallel_tool_use").filter(|value| !value.is_null());
        let auto = || {
            let mut auto = json!({"type": "auto"});
            if let Some(parallel) = parallel {
                auto["disable_parallel_tool_use"] = parallel.clone();
            }
            Some(auto)
        };
        let is_first = self.sums.turns() == 0;
        let name = choice.get("name").and_then(Value::as_str).unwrap_or_default();
        match (kind, self.roster.chosen(name).filter(|_| kind == "tool")) {
            ("tool", Some(tool)) if is_first => {
                let mut choice = choice.clone();
                choice["name"] = json!(tool.function);
                Some(choice)
            }
            ("tool", Some(_)) => auto(),
            ("any", _) if !is_first && !self.roster.has_others => auto(),
            _ => Some(choice.clone()),
        }
    }

    /// Reads a turn, and shows it as it comes.
    async fn read(&mut self, reply: Reply, sink: &mut Sink, is_last: bool, is_first: bool) -> Result<Turn, Broken> {
        let member = &self.snapshot.names.metadata_member;
        let mut body = reply.body;
        if let Body::Full(bytes) = &body {
            let bytes = bytes.clone().unwrap_or_default();
            let turn = Turn::whole(&bytes, member).ok_or_else(Failure::internal)?;
            sink.whole(&turn.blocks, &self.roster, is_last);
            return Ok(turn);
        }
        let mut splitter = Splitter::new(self.snapshot.settings.max_event_bytes);
        let mut assembly = Assembly::default();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.unwrap_or_else(|never| match never {}).into_data() else { continue };
            splitter.feed(data);
            while let Some(frame) = splitter.next().map_err(|_| Failure::internal())? {
                if frame.is_silent() {
                    sink.raw(frame.0).await?;
                    continue;
                }
                let Ok(event) = serde_json::from_slice::<Value>(&frame.data()) else { continue };
                let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
                assembly.take(&kind, &event, member);
                match kind.as_str() {
                    // One beginning and one end, however many turns there are.
                    "message_start" if !is_first => {}
                    "message_delta" | "message_stop" => {}
                    // It has said what broke it; nothing follows.
                    "error" => {
                        sink.raw(frame.0).await?;
                        return Err(Broken::Gone);
                    }
                    _ => {
                        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
                        let whole = assembly.block(usize::try_from(index).unwrap_or(usize::MAX));
                        sink.event(&kind, &event, whole, &self.roster, is_last).await?;
                    }
                }
            }
        }
        Ok(assembly.finish())
    }

    /// Runs the calls of a turn, and says what comes after it.
    async fn follow(&mut self, turn: &Turn, sink: &mut Sink, is_last: bool) -> Result<Next, Broken> {
        let calls = turn.calls();
        let (ours, others): (Vec<Call>, Vec<Call>) =
            calls.into_iter().partition(|call| self.roster.called(&call.name).is_some());
        self.remember_names(&ours, &others);
        let reason = turn.reason();
        if is_last {
            // A reason of its own stays; calls that were made all the same are not there.
            return Ok(if reason == "tool_use" { Next::End("end_turn") } else { Next::Over });
        }
        if reason == "pause_turn" && ours.is_empty() && self.pauses < PAUSES && Instant::now() < self.soft {
            self.pauses += 1;
            self.messages.push(json!({"role": "assistant", "content": turn.blocks}));
            return Ok(Next::Turn { is_last: false });
        }
        if ours.is_empty() || !matches!(reason, "tool_use" | "end_turn" | "pause_turn") {
            return Ok(Next::Over);
        }
        self.tally = Tally {
            pending: ours.len() as u64,
            tokens: self.sums.tokens(),
            cost: self.sums.cost(),
            reason: reason.to_owned(),
            ..std::mem::take(&mut self.tally)
        };
        let fired = self.limits.fired(&self.tally);
        let is_spent = self.limits.is_spent(&self.tally);
        let room = usize::try_from(self.limits.calls.saturating_sub(self.tally.steps)).unwrap_or(usize::MAX);
        let is_stopped = self.run_all(turn, ours, room, sink).await?;
        self.stopped_by = self.stopped_by.or(fired);
        if is_stopped {
            return Ok(Next::End("pause_turn"));
        }
        if !others.is_empty() {
            return Ok(Next::End("tool_use"));
        }
        if self.left == Some(0) {
            return Ok(Next::End("max_tokens"));
        }
        if is_spent && self.stopped_by.is_none() {
            self.stopped_by = Some("max_tool_calls");
        }
        let is_late = Instant::now() >= self.soft;
        if is_late && self.stopped_by.is_none() {
            self.stopped_by = Some("deadline");
        }
        Ok(Next::Turn { is_last: fired.is_some() || is_spent || is_late })
    }

    fn remember_names(&mut self, ours: &[Call], others: &[Call]) {
        for call in ours {
            if let Some(tool) = self.roster.called(&call.name) {
                self.tally.names.extend([tool.wire.clone(), tool.block.clone()]);
            }
        }
        self.tally.names.extend(others.iter().map(|call| call.name.clone()));
    }

    /// Runs calls side by side, the first `room` of them, and puts their results behind the turn in the order of the
    /// calls. Whether time ran out.
    async fn run_all(&mut self, turn: &Turn, calls: Vec<Call>, room: usize, sink: &mut Sink) -> Result<bool, Broken> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; calls.len()];
        let mut running: JoinSet<(usize, Outcome)> = JoinSet::new();
        let mut waiting = calls.iter().take(room).enumerate();
        let parallel = self.snapshot.settings.tools.parallelism.max(1);
        let keep_alive = self.snapshot.settings.keep_alive.max(Duration::from_millis(1));
        let mut pings = interval_at(Instant::now() + keep_alive, keep_alive);
        let is_late = loop {
            while running.len() < parallel
                && let Some((place, call)) = waiting.next()
            {
                self.start(&mut running, place, call);
            }
            tokio::select! {
                joined = running.join_next() => match joined {
                    None => break false,
                    Some(Ok((place, outcome))) => outcomes[place] = Some(outcome),
                    // One that panicked is one that failed.
                    Some(Err(_)) => {}
                },
                _ = pings.tick() => sink.raw(PING).await?,
                () = tokio::time::sleep_until(self.hard) => break true,
            }
        };
        running.abort_all();
        let mut results: Vec<Value> = Vec::with_capacity(calls.len());
        for (place, (call, outcome)) in calls.iter().zip(outcomes).enumerate() {
            let outcome = match outcome {
                Some(outcome) => {
                    self.tally.steps += 1;
                    outcome
                }
                None if place >= room => Outcome::one_too_many(),
                None => Outcome::error("unavailable", "The tool could not be run."),
            };
            self.errors += u64::from(outcome.is_error);
            if let Some(tool) = self.roster.called(&call.name) {
                let outcome = if outcome.is_error { "error" } else { "ok" };
                self.gate.metrics.tool_calls.get_or_create(&ToolCall { tool: tool.kind.name(), outcome }).inc();
            }
            results.push(self.told_of(call, outcome, sink).await?);
        }
        self.sums.is_used = true;
        self.sums.searches = self.roster.searches();
        self.sums.fetches = self.roster.fetches();
        self.messages.push(json!({"role": "assistant", "content": turn.blocks}));
        self.messages.push(json!({"role": "user", "content": results}));
        Ok(is_late)
    }

    fn start(&self, running: &mut JoinSet<(usize, Outcome)>, place: usize, call: &Call) {
        let Some(tool) = self.roster.called(&call.name) else { return };
        let mut tool = Tool { kind: tool.kind.begun(), ..tool.clone() };
        tool.kind.counted();
        let (gate, snapshot, key) = (self.gate.clone(), self.snapshot.clone(), self.key.clone());
        let (input, limit) = (call.input.clone(), self.hard.min(Instant::now() + time_for(&tool)));
        running.spawn(async move {
            let work = run(&gate, &snapshot, &key, &tool, &input);
            let late = || Outcome::error("execution_time_exceeded", "The tool did not answer in time.");
            (place, timeout_at(limit, work).await.unwrap_or_else(|_| late()))
        });
    }

    /// A result as the model gets to read it, shown to the client where it has a block, else remembered for its next
    /// request.
    async fn told_of(&mut self, call: &Call, outcome: Outcome, sink: &mut Sink) -> Result<Value, Gone> {
        let mut outcome = outcome.of_tool(self.roster.called(&call.name), &call.input);
        let mut text = outcome.text;
        if text.len() > self.room
            && let Some((fetch::BLOCK, content)) = &mut outcome.shown
        {
            text = fetch::within(self.room, content).unwrap_or(text);
        }
        if text.len() > self.room {
            let end = text.floor_char_boundary(self.room);
            text.truncate(end);
            text.push_str("\n[cut: the results of this request are too long]");
        }
        self.room = self.room.saturating_sub(text.len());
        if let Some(id) = sink.client_id(&call.id).map(str::to_owned) {
            let failed = |code| self.roster.called(&call.name)?.kind.failed(code);
            match outcome.shown.or_else(|| outcome.code.and_then(failed)) {
                Some((kind, content)) => {
                    let caller = json!({"type": "direct"});
                    sink.block(json!({"type": kind, "tool_use_id": id, "caller": caller, "content": content})).await?;
                }
                None => self.gate.results.keep(&self.key.workspace, &id, &text, self.gate.clock.now()),
            }
        }
        let mut result = json!({"type": "tool_result", "tool_use_id": call.id, "content": text});
        if outcome.is_error {
            result["is_error"] = json!(true);
        }
        Ok(result)
    }

    /// The routing of the last turn, and what the tools did.
    fn told(&self, mut metadata: Value) -> Value {
        let mut tools: Vec<&str> = self.roster.tools.iter().map(|tool| tool.wire.as_str()).collect();
        tools.dedup();
        let (steps, turns) = (self.tally.steps, self.sums.turns());
        let plural = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let entry = json!({
            "type": "server_tools",
            "name": "server-tools",
            "summary": format!("{} in {}", plural(steps, "call"), plural(turns as u64, "turn")),
            "cost_usd": 0,
            "data": {
                "mode": "sdk",
                "tools": tools,
                "calls": steps,
                "turns": turns,
                "engines": self.roster.engines(),
                "stopped_by": self.stopped_by,
                "errors": self.errors,
            },
        });
        if let Some(requested) = &self.requested {
            metadata["requested"] = json!(requested);
        }
        if self.roster.tools.is_empty() {
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
        sink.send("message_delta", &json!({"type": "message_delta", "delta": delta, "usage": usage})).await?;
        let mut stop = json!({"type": "message_stop"});
        if let Some(metadata) = answer.get(member) {
            stop[member.as_str()] = metadata.clone();
        }
        sink.send("message_stop", &stop).await
    }

    /// Tells a client that has begun to hear an answer why there is no more of it.
    pub async fn fail(&self, failure: &Failure, sink: &Sink) {
        let _ = sink.raw(error_frame(failure, &self.snapshot.settings.brand)).await;
    }
}

/// How long a tool may take.
fn time_for(_: &Tool) -> Duration {
    Duration::from_secs(15)
}

/// A budget of thinking must be smaller than what may be written; what is left may be less than it was set for.
fn think_within(body: &mut Map<String, Value>, left: u64) {
    const SMALLEST: u64 = 1_024;
    let Some(Value::Object(thinking)) = body.get_mut("thinking") else { return };
    let Some(budget) = thinking.get("budget_tokens").and_then(Value::as_u64) else { return };
    if budget < left {
        return;
    }
    if left > SMALLEST {
        thinking.insert("budget_tokens".into(), json!(left - 1));
    } else {
        body.remove("thinking");
    }
}

fn output(turn: &Turn) -> u64 {
    turn.usage.get("output_tokens").and_then(Value::as_u64).unwrap_or(0)
}

fn ended(reason: &str) -> Map<String, Value> {
    let mut ending = Map::new();
    ending.insert("stop_reason".into(), json!(reason));
    ending.insert("stop_sequence".into(), Value::Null);
    ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_stays_within_what_is_left() {
        for (budget, left, wanted) in [
            (2_000, 4_000, json!({"type": "enabled", "budget_tokens": 2_000})),
            (2_000, 2_000, json!({"type": "enabled", "budget_tokens": 1_999})),
            (2_000, 1_025, json!({"type": "enabled", "budget_tokens": 1_024})),
            (2_000, 1_024, Value::Null),
        ] {
            let body = json!({"thinking": {"type": "enabled", "budget_tokens": budget}});
            let mut body = body.as_object().unwrap().clone();
            think_within(&mut body, left);
            assert_eq!(body.get("thinking").cloned().unwrap_or_default(), wanted, "{left}");
        }
        let mut adaptive = json!({"thinking": {"type": "adaptive"}}).as_object().unwrap().clone();
        think_within(&mut adaptive, 1);
        assert!(adaptive.contains_key("thinking"));
    }
}
