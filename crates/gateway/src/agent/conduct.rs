//! The loop itself: a turn of the model, the calls it made, their results, the next turn.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tidegate_observe::metrics::Stopped;
use tidegate_providers::translate::intent::ROOM;
use tidegate_routing::Catalogue;
use tidegate_tools::datetime;
use tidegate_wire::envelope::Brand;
use tidegate_wire::sse::Splitter;
use tokio::time::{Instant, timeout_at};

use super::inner::{LEAST_THINKING, Line};
use super::native::{self, Left};
use super::replay::{self, Foreign};
use super::roster::Roster;
use super::sandbox;
use super::search::Recall;
use super::sink::{Gone, Sink};
use super::stop::{Limits, Tally};
use super::tell::ended;
use super::turn::{Assembly, Call, Turn};
use super::usage::Sums;
use super::warned;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::{Body, Inner, PING, Reply, Searching};
use crate::{Gateway, Snapshot};

/// How often an answer that a vendor interrupted is asked to go on.
const PAUSES: u64 = 16;
/// Members of a request that decide about its loop or were decided by its first turn.
const OWN: [&str; 6] = ["tools", "tool_choice", "messages", "stop_server_tools_when", "max_tool_calls", "max_tokens"];

/// A request with server tools on its way.
pub(super) struct Conductor {
    pub gate: Arc<Gateway>,
    pub snapshot: Arc<Snapshot>,
    pub key: Arc<KeyEntry>,
    pub headers: HeaderMap,
    pub query: String,
    pub inner: Arc<Inner>,
    /// The model as the caller wrote it.
    pub requested: Option<String>,
    /// The request without its messages and tools.
    pub request: Map<String, Value>,
    pub messages: Vec<Value>,
    /// How many of them the loop began with.
    begun: usize,
    pub roster: Arc<Roster>,
    /// Tools that were looked for and found.
    pub found: Vec<String>,
    /// What of the search is left to those who serve.
    left_to: Option<Left>,
    /// What the caller wants called in the first turn.
    choice: Option<Value>,
    limits: Limits,
    /// Tokens that may still be written.
    left: Option<u64>,
    /// Where the vendor runs code for this answer.
    container: Value,
    pub sums: Sums,
    /// For a loop inside another one: what it uses is told there as it goes.
    pub line: Option<Line>,
    pub tally: Tally,
    /// How often a vendor's interruption was gone on from; each counts against the budget of calls like one of them.
    pauses: u64,
    pub errors: u64,
    /// Characters of results that may still be told.
    pub room: usize,
    pub stopped_by: Option<&'static str>,
    /// What was left out of any turn, each once.
    pub warnings: Vec<String>,
    /// How the turns so far were routed.
    pub routing: Option<Value>,
    /// When no further call is made, and when everything ends.
    soft: Instant,
    pub hard: Instant,
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
            inner: Arc::new(inner),
            requested: None,
            request,
            begun: messages.len(),
            messages,
            roster: Arc::new(roster),
            found: Vec::new(),
            left_to: None,
            choice,
            limits,
            left,
            container: Value::Null,
            sums: Sums::after(searches),
            line: None,
            tally: Tally::default(),
            pauses: 0,
            errors: 0,
            room: snapshot.settings.tools.result_budget,
            stopped_by: None,
            warnings: Vec::new(),
            routing: None,
            soft: now + whole.mul_f64(0.8),
            hard: now + whole,
            snapshot,
        }
    }

    /// Asks for the first turn; what goes wrong here has a status of its own.
    pub async fn begin(&mut self) -> Result<Reply, Failure> {
        self.left_to = Left::of(&self.roster, &self.snapshot, listed(&self.request))?;
        self.ask(false).await
    }

    /// Goes on from the first turn to the end.
    pub async fn conduct(&mut self, first: Reply, sink: &mut Sink) -> Result<Value, Broken> {
        let (mut reply, mut is_last) = (first, false);
        let mut head: Option<Turn> = None;
        loop {
            sink.turn();
            self.warn(warned(&reply.headers, &self.snapshot.names));
            let (turn, is_cut) = self.read(reply, sink, is_last, head.is_none()).await?;
            self.sums.add(&turn.usage, turn.model());
            // One that was cut short did not come to tell its price.
            self.sums.reach(self.inner.cost());
            self.tell_used(turn.model().or_else(|| head.as_ref().and_then(Turn::model)).unwrap_or_default());
            self.left = self.left.map(|left| left.saturating_sub(output(&turn)));
            if head.is_none() {
                self.settle_on(&turn);
            }
            if let Some(metadata) = turn.metadata.clone() {
                self.routing = Some(self.routed(metadata));
            }
            let (reason, mut ending) = (turn.reason().to_owned(), turn.ending.clone());
            self.keep_container(&mut ending);
            let next = match is_cut {
                true => {
                    self.stopped_by = Some("deadline");
                    Next::End("pause_turn")
                }
                false => self.follow(&turn, sink, is_last).await?,
            };
            let first = head.get_or_insert(turn);
            let told = match next {
                Next::Over => ending,
                Next::End(reason) => ended(reason, &ending),
                Next::Turn { is_last: last } => {
                    is_last = last;
                    self.fit_thinking();
                    match self.ask_aloud(is_last, sink).await? {
                        Ok(Ok(next)) => {
                            reply = next;
                            continue;
                        }
                        // It has said nothing yet, so there is nothing to lose.
                        Err(_) => {
                            self.stopped_by = self.stopped_by.or(Some("deadline"));
                            ended("pause_turn", &ending)
                        }
                        // What was said so far is the answer when there is nothing left to pay another turn with.
                        Ok(Err(failure)) if failure.is_unpaid => {
                            self.stopped_by = Some("budget");
                            ended("end_turn", &ending)
                        }
                        Ok(Err(failure)) => return Err(self.failed(failure).into()),
                    }
                }
            };
            self.gate.metrics.loop_steps.observe(self.tally.steps as f64);
            if let Some(condition) = self.stopped_by {
                self.gate.metrics.loop_stops.get_or_create(&Stopped { condition }).inc();
            }
            self.sums.reach(self.inner.cost());
            self.tell_used(first.model().unwrap_or_default());
            tracing::debug!(turns = self.sums.turns(), steps = self.tally.steps, reason, "a loop of tools ended");
            let mut answer = first.head.clone();
            answer.insert("content".into(), Value::Array(Vec::new()));
            answer.extend(told);
            answer.insert("usage".into(), self.sums.told());
            if let Some(metadata) = self.routing.clone() {
                answer.insert(self.snapshot.names.metadata_member.clone(), self.told(metadata));
            }
            return Ok(Value::Object(answer));
        }
    }

    /// Tells the loop that this one is inside of what was used so far.
    pub fn tell_used(&mut self, model: &str) {
        if let Some(line) = &mut self.line
            && let Value::Object(usage) = self.sums.told()
        {
            line.tell(model, usage);
        }
    }

    /// A container outlives the turn that told of it: later turns that say nothing of it work in the same one.
    fn keep_container(&mut self, ending: &mut Map<String, Value>) {
        match ending.get("container").filter(|container| !container.is_null()) {
            Some(container) => self.container = container.clone(),
            None => drop(ending.insert("container".into(), self.container.clone())),
        }
        ending.entry("stop_details").or_insert(Value::Null);
    }

    /// Lets what is left to be written hold the thinking of the next turn.
    fn fit_thinking(&mut self) {
        if let Some(warning) = self.left.and_then(|left| think_within(&mut self.request, left)) {
            self.warn([warning.to_owned()]);
        }
    }

    fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    /// The model that answered the first turn answers the others, too.
    fn settle_on(&mut self, turn: &Turn) {
        let settled = turn.model().map(|model| varied(model, &self.request, &self.snapshot.catalogue));
        let mut settled = settled.into_iter().flatten();
        for name in ["models", "fallbacks", "route", "preset"] {
            self.request.remove(name);
        }
        if let Some(model) = settled.next() {
            self.request.insert("model".into(), json!(model));
        }
        let others: Vec<String> = settled.collect();
        if !others.is_empty() {
            self.request.insert("models".into(), json!(others));
        }
    }

    /// Sends the conversation as it is now.
    pub(super) async fn ask(&self, is_last: bool) -> Result<Reply, Failure> {
        // A key that was taken away meanwhile asks for nothing more.
        if !self.key.may_go_on(self.gate.clock.now()) {
            return Err(Failure::invalid_key());
        }
        let tools = self.roster.upstream_with(&self.found);
        let searching = self.left_to.as_ref().map(|left| {
            let (messages, begun) = self.told_to(Foreign::Kept);
            let tools = left.tools(&tools, self.sums.vendors_searches() + self.roster.searches());
            let body = self.body(messages, tools, is_last);
            let Left { searchers, may_serve, is_alone, .. } = *left;
            Searching { body, begun, searchers, may_serve, is_alone }
        });
        let (messages, begun) = self.told_to(Foreign::Rebuilt);
        let body = self.body(messages, tools, is_last);
        let head = (&self.headers, self.query.as_str());
        self.gate.turn(&self.snapshot, &self.key, head, (body, begun, searching), &self.inner).await
    }

    /// The conversation so far, and how much of it is older than the loop. Only who sealed results of a search can read them; others get what can be told of them.
    fn told_to(&self, foreign: Foreign) -> (Vec<Value>, usize) {
        if self.roster.native().is_none() {
            return (self.messages.clone(), self.begun);
        }
        let settings = &self.snapshot.settings;
        let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
        let results = self.gate.results.of(&self.key.workspace, self.gate.clock.now());
        let memory = Recall { results, vault: &self.gate.vault, workspace: &self.key.workspace };
        let rebuilt = |messages: &[Value]| replay::rebuilt(messages.to_vec(), &self.roster, brand, &memory, foreign);
        // The first ones become as many messages whatever follows them.
        (rebuilt(&self.messages), rebuilt(&self.messages[..self.begun]).len())
    }

    fn body(&self, messages: Vec<Value>, tools: Vec<Value>, is_last: bool) -> Bytes {
        let mut body = self.request.clone();
        body.insert("messages".into(), Value::Array(messages));
        if !tools.is_empty() {
            body.insert("tools".into(), Value::Array(tools));
        }
        if let Some(left) = self.left {
            body.insert("max_tokens".into(), json!(left));
        }
        if let Some(choice) = self.chosen(is_last) {
            body.insert("tool_choice".into(), choice);
        }
        Bytes::from(Value::Object(body).to_string())
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
            ("tool", None) if self.roster.clients_bash.as_deref() == Some(name) => {
                let mut choice = choice.clone();
                choice["name"] = json!(sandbox::BASH);
                Some(choice)
            }
            ("any", _) if !is_first && !self.roster.has_others => auto(),
            _ => Some(choice.clone()),
        }
    }

    /// Reads a turn, and shows it as it comes. Whether time ran out before its end.
    async fn read(
        &mut self,
        reply: Reply,
        sink: &mut Sink,
        is_last: bool,
        is_first: bool,
    ) -> Result<(Turn, bool), Broken> {
        let member = &self.snapshot.names.metadata_member;
        let mut body = reply.body;
        if let Body::Full(bytes) = &body {
            let bytes = bytes.clone().unwrap_or_default();
            let mut turn = Turn::whole(&bytes, member).ok_or_else(Failure::internal)?;
            turn.blocks.iter_mut().for_each(|block| self.seal(block));
            sink.whole(&turn.blocks, &self.roster, is_last);
            return Ok((turn, false));
        }
        let mut splitter = Splitter::new(self.snapshot.settings.max_event_bytes);
        let mut assembly = Assembly::default();
        loop {
            // Before the first turn has begun there is no answer that could pause.
            let frame = match is_first && !assembly.has_begun() {
                true => body.frame().await,
                false => match timeout_at(self.hard, body.frame()).await {
                    Ok(frame) => frame,
                    Err(_) => {
                        drop(body);
                        if let Some(index) = assembly.open() {
                            let event = json!({"type": "content_block_stop", "index": index});
                            assembly.take("content_block_stop", &event, member);
                            let whole = assembly.block(index);
                            sink.event("content_block_stop", &event, whole, &self.roster, is_last).await?;
                        }
                        return Ok((assembly.finish(), true));
                    }
                },
            };
            let Some(frame) = frame else { break };
            let Ok(data) = frame.unwrap_or_else(|never| match never {}).into_data() else { continue };
            splitter.feed(data);
            while let Some(frame) = splitter.next().map_err(|_| Failure::internal())? {
                if frame.is_silent() {
                    // Comments are for before the beginning of an answer.
                    sink.raw(if is_first { frame.0 } else { PING }).await?;
                    continue;
                }
                let Ok(mut event) = serde_json::from_slice::<Value>(&frame.data()) else { continue };
                if let Some(block) = event.get_mut("content_block") {
                    self.seal(block);
                }
                let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
                assembly.take(&kind, &event, member);
                match kind.as_str() {
                    // One beginning and one end, however many turns there are.
                    "message_start" if !is_first => {}
                    "message_delta" | "message_stop" => {}
                    // It has said what broke it; nothing follows.
                    "error" if is_first => {
                        sink.raw(frame.0).await?;
                        return Err(Broken::Gone);
                    }
                    "error" => {
                        sink.send("error", &self.told_of_all(event)).await?;
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
        Ok((assembly.finish(), false))
    }

    /// Seals what a vendor found and left open.
    fn seal(&self, block: &mut Value) {
        if self.left_to.is_some() {
            let at = datetime::told(self.gate.clock.now(), "UTC").unwrap_or_default();
            native::seal(block, &self.gate.vault, &self.key.workspace, &at);
        }
    }

    /// Runs the calls of a turn, and says what comes after it.
    async fn follow(&mut self, turn: &Turn, sink: &mut Sink, is_last: bool) -> Result<Next, Broken> {
        let calls = turn.calls();
        let (ours, others): (Vec<Call>, Vec<Call>) =
            calls.into_iter().partition(|call| self.roster.called(&call.name).is_some());
        self.remember_names(&ours, &others);
        self.remember_searches(turn);
        let reason = turn.reason();
        if is_last {
            // A reason of its own stays; calls that were made all the same are not there.
            return Ok(if reason == "tool_use" { Next::End("end_turn") } else { Next::Over });
        }
        if reason == "pause_turn" && ours.is_empty() {
            return Ok(self.go_on(turn));
        }
        if ours.is_empty() || !matches!(reason, "tool_use" | "end_turn" | "pause_turn") {
            return Ok(Next::Over);
        }
        self.take_stock(ours.len() as u64, reason);
        let fired = self.limits.fired(&self.tally);
        let is_spent = self.limits.is_spent(&self.tally);
        let room = usize::try_from(self.limits.calls.saturating_sub(self.tally.steps)).unwrap_or(usize::MAX);
        let is_stopped = self.run_all(turn, ours, room, sink).await?;
        self.stopped_by = self.stopped_by.or(fired);
        if is_stopped {
            self.stopped_by = Some("deadline");
            return Ok(Next::End("pause_turn"));
        }
        if !others.is_empty() {
            return Ok(Next::End("tool_use"));
        }
        if self.left == Some(0) {
            return Ok(Next::End("max_tokens"));
        }
        if is_spent && self.stopped_by.is_none() {
            self.stopped_by = Some(self.limits.spent());
        }
        let is_late = Instant::now() >= self.soft;
        if is_late && self.stopped_by.is_none() {
            self.stopped_by = Some("deadline");
        }
        Ok(Next::Turn { is_last: fired.is_some() || is_spent || is_late })
    }

    /// What comes after a turn that its vendor interrupted: it is asked to go on within what the loop may do at all. No
    /// call waits, so there is nothing that a last turn would have to answer: the client gets the interruption.
    fn go_on(&mut self, turn: &Turn) -> Next {
        self.take_stock(0, turn.reason());
        let is_spent = self.tally.steps + self.pauses >= self.limits.calls;
        let is_late = Instant::now() >= self.soft;
        let stopped = self.limits.fired(&self.tally);
        let stopped = match (is_spent, is_late) {
            (true, _) => stopped.or_else(|| Some(self.limits.spent())),
            (false, true) => stopped.or(Some("deadline")),
            (false, false) => stopped,
        };
        self.stopped_by = self.stopped_by.or(stopped);
        if stopped.is_some() || self.pauses >= PAUSES {
            return Next::Over;
        }
        if self.left == Some(0) {
            return Next::End("max_tokens");
        }
        self.pauses += 1;
        self.messages.push(json!({"role": "assistant", "content": turn.blocks}));
        Next::Turn { is_last: false }
    }

    /// What has happened up to the end of a turn with so many calls to run.
    fn take_stock(&mut self, pending: u64, reason: &str) {
        self.tally = Tally {
            pending,
            tokens: self.sums.tokens(),
            cost: self.sums.cost(),
            reason: reason.to_owned(),
            ..std::mem::take(&mut self.tally)
        };
    }
}

/// The models that a request lists, as they are written there.
fn listed(request: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let lists = ["models", "fallbacks"].into_iter().filter_map(|name| request.get(name)?.as_array()).flatten();
    // Of those to fall back to, each is an object that names its model.
    let entries = request.get("model").into_iter().chain(lists);
    entries.filter_map(|entry| entry.as_str().or_else(|| entry.get("model")?.as_str()))
}

/// The model that answered, with the variants of the entries that it may have answered for.
fn varied(model: &str, request: &Map<String, Value>, catalogue: &Catalogue) -> Vec<String> {
    let known = listed(request).filter_map(|name| catalogue.find(name).ok()).filter(|named| *named.model.id == *model);
    let mut names: Vec<String> = Vec::new();
    for named in known {
        let variants = named.variants.iter().map(|variant| format!(":{}", variant.as_str()));
        let name = variants.fold(model.to_owned(), |name, variant| name + &variant);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        // A name that stands for whatever model is set for it.
        let open = listed(request).find(|name| catalogue.find(name).is_err()).and_then(|name| name.split_once(':'));
        names.push(open.map_or_else(|| model.to_owned(), |(_, variants)| format!("{model}:{variants}")));
    }
    names
}

/// What later turns may write is less than what the caller set a budget of thinking for: it leaves room to answer, as
/// wherever we set the limit. Says what became of it.
fn think_within(body: &mut Map<String, Value>, left: u64) -> Option<&'static str> {
    let Some(Value::Object(thinking)) = body.get_mut("thinking") else { return None };
    let budget = thinking.get("budget_tokens").and_then(Value::as_u64)?;
    let room = left.saturating_sub(ROOM);
    if budget <= room {
        return None;
    }
    if room < LEAST_THINKING {
        body.remove("thinking");
        return Some("dropped:thinking");
    }
    thinking.insert("budget_tokens".into(), json!(room));
    Some("clamped:budget_tokens")
}

fn output(turn: &Turn) -> u64 {
    turn.usage.get("output_tokens").and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_leaves_room_to_answer_in_what_is_left() {
        // Of what is left 1024 are for the answer, and a budget is at least 1024.
        for (budget, left, wanted, warning) in [
            (2_000, 3_024, json!({"type": "enabled", "budget_tokens": 2_000}), None),
            (2_000, 3_023, json!({"type": "enabled", "budget_tokens": 1_999}), Some("clamped:budget_tokens")),
            (2_000, 2_048, json!({"type": "enabled", "budget_tokens": 1_024}), Some("clamped:budget_tokens")),
            (2_000, 2_047, Value::Null, Some("dropped:thinking")),
            (1_024, 1, Value::Null, Some("dropped:thinking")),
        ] {
            let body = json!({"thinking": {"type": "enabled", "budget_tokens": budget}});
            let mut body = body.as_object().unwrap().clone();
            assert_eq!(think_within(&mut body, left), warning, "{left}");
            assert_eq!(body.get("thinking").cloned().unwrap_or_default(), wanted, "{left}");
        }
        let mut adaptive = json!({"thinking": {"type": "adaptive"}}).as_object().unwrap().clone();
        assert_eq!(think_within(&mut adaptive, 1), None);
        assert!(adaptive.contains_key("thinking"));
    }
}
