//! Runs the calls of a turn, side by side, and puts their results behind it.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::Timestamp;
use tidegate_observe::broadcast::Used;
use tidegate_observe::metrics::ToolCall;
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Interval, interval_at, timeout_at};

use super::conduct::{Broken, Conductor};
use super::fetch;
use super::image;
use super::inner::{Bill, Desk};
use super::mcp;
use super::replay;
use super::roster::{Kind, Tool};
use super::run::{Outcome, UNCALLED, WITHHELD, failed, run, withheld};
use super::search;
use super::sink::{Gone, Sink};
use super::turn::{Call, Turn, is};
use crate::failure::Failure;
use crate::relay::{Aside, PING, Reply};

/// When a call began and when it ended.
type Times = (Timestamp, Timestamp);

impl Conductor {
    pub fn remember_names(&mut self, ours: &[Call], others: &[Call]) {
        for call in ours {
            if let Some(tool) = self.roster.called(&call.name) {
                self.tally.names.extend([tool.wire.clone(), tool.block.clone()]);
            }
        }
        self.tally.names.extend(others.iter().map(|call| call.name.clone()));
    }

    /// Searches that the vendor ran are calls by the names of the tool, too.
    pub fn remember_searches(&mut self, turn: &Turn) {
        let is_search = |block: &Value| is(block, "server_tool_use") && block.get("name") == Some(&json!(search::NAME));
        if let Some((_, _, wire)) = self.roster.native().filter(|_| turn.blocks.iter().any(is_search)) {
            self.tally.names.extend([wire.to_owned(), search::NAME.to_owned()]);
        }
    }

    /// Shows the model these tools from the next turn on.
    pub fn find(&mut self, names: Vec<String>) {
        let mut known: HashSet<String> = self.found.iter().cloned().collect();
        self.found.extend(names.into_iter().filter(|name| known.insert(name.clone())));
    }

    /// Asks for the next turn while there is time. Whoever listens is told now and then that somebody is still there.
    pub async fn ask_aloud(
        &self,
        is_last: bool,
        sink: &Sink,
    ) -> Result<Result<Result<Reply, Failure>, Elapsed>, Broken> {
        let mut asking = pin!(timeout_at(self.hard, self.ask(is_last)));
        let mut pings = self.pings();
        loop {
            tokio::select! {
                biased;
                asked = &mut asking => return Ok(asked),
                _ = pings.tick() => sink.raw(PING).await?,
            }
        }
    }

    fn pings(&self) -> Interval {
        let keep_alive = self.snapshot.settings.keep_alive.max(Duration::from_millis(1));
        interval_at(Instant::now() + keep_alive, keep_alive)
    }

    /// Runs calls side by side, the first `room` of them, and puts their results behind the turn in the order of the
    /// calls. Whether time ran out.
    pub async fn run_all(
        &mut self,
        turn: &Turn,
        calls: Vec<Call>,
        room: usize,
        sink: &mut Sink,
    ) -> Result<bool, Broken> {
        // No turn is under way that would be on record as cancelled when the client leaves.
        let leaving = Aside::open(&self.gate, &self.snapshot, &self.key, &self.inner, turn.model().unwrap_or_default());
        let (searches, fetches) = (self.roster.searches(), self.roster.fetches());
        let mut outcomes: Vec<Option<Outcome>> = vec![None; calls.len()];
        let began = self.gate.clock.now();
        let mut times = vec![(began, began); calls.len()];
        let mut running: JoinSet<(usize, Outcome, Times)> = JoinSet::new();
        let desk = self.desk(&calls, turn);
        let bills: Vec<Bill> = calls.iter().map(|_| Bill::default()).collect();
        let mut waiting = calls.iter().take(room).enumerate();
        let parallel = self.snapshot.settings.tools.parallelism.max(1);
        let mut pings = self.pings();
        let is_late = loop {
            while running.len() < parallel
                && let Some((place, call)) = waiting.next()
            {
                self.start(&mut running, Desk { bill: bills[place].clone(), ..desk.clone() }, place, call);
            }
            tokio::select! {
                joined = running.join_next() => match joined {
                    None => break false,
                    Some(Ok((place, outcome, taken))) => {
                        (outcomes[place], times[place]) = (Some(outcome), taken);
                    }
                    // One that panicked is one that failed.
                    Some(Err(_)) => {}
                },
                _ = pings.tick() => sink.raw(PING).await?,
                () = tokio::time::sleep_until(self.hard) => break true,
            }
        };
        // Waits until they are gone: what they were charged is known only then.
        running.shutdown().await;
        let mut results: Vec<Value> = Vec::with_capacity(calls.len());
        for (place, (call, outcome)) in calls.iter().zip(outcomes).enumerate() {
            let Some(tool) = self.roster.called(&call.name) else { continue };
            self.tally.steps += u64::from(outcome.is_some());
            let code = if place < room { "unavailable" } else { "max_uses_exceeded" };
            let outcome = outcome.unwrap_or_else(|| failed(tool, &call.input, code));
            self.errors += u64::from(outcome.is_error);
            let told = if outcome.is_error { "error" } else { "ok" };
            let labels = ToolCall { tool: tool.kind.name(), engine: self.roster.engine_of(tool), outcome: told };
            self.gate.metrics.tool_calls.get_or_create(&labels).inc();
            let (from, to) = times[place];
            let taken = self.gate.metrics.flow.tool_duration.get_or_create_owned(&labels);
            taken.observe(to.since(from).as_secs_f64());
            let name = tool.block.clone();
            bills[place].spent().iter().for_each(|spent| self.sums.add_inner(spent));
            let result = self.told_of(call, outcome, sink).await?;
            self.note_used(name, call, &result, times[place]);
            results.push(result);
        }
        leaving.forget();
        let missing = self.sums.reach(self.inner.cost());
        self.sums.tools = self.sums.tools.plus(missing);
        self.sums.is_used = true;
        self.sums.searches = self.roster.searches();
        self.sums.fetches = self.roster.fetches();
        self.inner.note_ran(self.sums.searches - searches, self.sums.fetches - fetches);
        self.tell_used(turn.model().unwrap_or_default());
        self.messages.push(json!({"role": "assistant", "content": turn.blocks}));
        self.messages.push(json!({"role": "user", "content": results}));
        Ok(is_late)
    }

    /// Keeps a call for those who are told of requests, as the model got to read it.
    fn note_used(&self, name: String, call: &Call, result: &Value, (started, ended): Times) {
        if !self.gate.is_told(&self.snapshot) {
            return;
        }
        self.inner.note_used(Used {
            name,
            id: call.id.clone(),
            arguments: call.input.clone(),
            result: result["content"].as_str().unwrap_or_default().to_owned(),
            is_error: result["is_error"] == true,
            started,
            ended,
        });
    }

    /// What the calls work with. Only those who ask other models need to know what was said.
    fn desk(&self, calls: &[Call], turn: &Turn) -> Desk {
        let asks = |call: &Call| self.roster.called(&call.name).is_some_and(|tool| tool.kind.asks_others());
        let asks = calls.iter().any(asks);
        let said = turn.blocks.iter().filter(|block| asks && is(block, "text")).cloned().collect();
        Desk {
            gate: self.gate.clone(),
            snapshot: self.snapshot.clone(),
            key: self.key.clone(),
            headers: self.headers.clone(),
            query: self.query.clone(),
            inner: self.inner.clone(),
            model: turn.model().unwrap_or_default().to_owned(),
            request: if asks { Arc::new(self.request.clone()) } else { Arc::default() },
            messages: if asks { Arc::new(self.messages.clone()) } else { Arc::default() },
            said: Arc::new(said),
            bill: Bill::default(),
            place: 0,
        }
    }

    fn start(&self, running: &mut JoinSet<(usize, Outcome, Times)>, desk: Desk, place: usize, call: &Call) {
        let Some(tool) = self.roster.called(&call.name) else { return };
        let tool = Tool { kind: tool.kind.begun(self.inner.shares()), ..tool.clone() };
        let (mut input, hard) = (call.input.clone(), self.hard);
        let may_run = self.gate.guardrails.of(&self.key).filter(|held| held.has_filters()).is_none_or(|held| {
            let (passed, judged) = held.scan_call(&mut input);
            self.gate.note_judged(&judged);
            passed
        });
        let shares = self.inner.shares().clone();
        running.spawn(async move {
            // All loops of a request run no more at once than one would.
            let _place = match tool.kind.lets_work() {
                true => None,
                false => timeout_at(hard, shares.running.acquire()).await.ok().and_then(Result::ok),
            };
            let limit = hard.min(Instant::now() + time_for(&tool, &input));
            let started = desk.gate.clock.now();
            if !may_run {
                let uncalled = Outcome { text: UNCALLED.to_owned(), ..failed(&tool, &Value::Null, "unavailable") };
                return (place, uncalled, (started, started));
            }
            let work = run(&desk, &tool, &input);
            let late = || failed(&tool, &input, "execution_time_exceeded");
            let outcome = timeout_at(limit, work).await.unwrap_or_else(|_| late());
            (place, outcome, (started, desk.gate.clock.now()))
        });
    }

    /// A result as the model gets to read it, shown to the client where it has a block, else remembered for its next
    /// request.
    async fn told_of(&mut self, call: &Call, outcome: Outcome, sink: &mut Sink) -> Result<Value, Gone> {
        let Outcome { mut text, mut is_error, mut shown, found, fee, mut judged } = outcome;
        if let Some(held) = self.gate.guardrails.of(&self.key).filter(|held| held.has_filters()) {
            let (passed, more) = held.scan_result(&mut text, shown.as_mut().map(|(_, content)| content));
            judged.add(more);
            self.gate.note_judged(&judged);
            if !passed {
                (text, is_error) = (WITHHELD.to_owned(), true);
                if let Some((kind, content)) = &mut shown {
                    *content = withheld(kind);
                }
            }
        }
        self.find(found);
        self.sums.add_fee(fee);
        if text.len() > self.room
            && let Some((kind, content)) = &mut shown
            && kind == fetch::BLOCK
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
            let is_advice = self.roster.called(&call.name).is_some_and(|tool| matches!(tool.kind, Kind::Advisor(_)));
            // No client gets to see the calls of a loop inside its own, so none can send them back.
            if self.line.is_none() && (shown.is_none() || (is_advice && !is_error)) {
                self.gate.results.keep(&self.key, &id, &text, self.gate.clock.now());
            }
            let name = self.roster.called(&call.name).map(|tool| tool.block.clone());
            let settings = &self.snapshot.settings;
            if shown.is_none() && settings.tools.generic_result_block {
                let kind = replay::generic(&settings.brand);
                sink.block(json!({"type": kind, "tool_use_id": id, "name": name, "content": text})).await?;
            }
            if let Some((kind, content)) = shown {
                let caller = json!({"type": "direct"});
                sink.block(json!({"type": kind, "tool_use_id": id, "caller": caller, "content": content})).await?;
            }
        }
        let mut result = json!({"type": "tool_result", "tool_use_id": call.id, "content": text});
        if is_error {
            result["is_error"] = json!(true);
        }
        Ok(result)
    }
}

/// How long a call of a tool may take.
fn time_for(tool: &Tool, input: &Value) -> Duration {
    Duration::from_secs(match &tool.kind {
        Kind::Sandbox(sandbox) => return sandbox.time_for(input),
        Kind::Fusion(_) => 600,
        Kind::Image(_) => image::LIMIT.as_secs(),
        Kind::Remote(_) => mcp::CALL.as_secs(),
        kind if kind.asks_others() => 300,
        _ => 15,
    })
}
