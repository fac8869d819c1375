//! Calls that a tool makes of other models: as the calling key and on the way of a turn, with a reservation and a record of
//! their own that name the loop they belong to.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value, json};
use tidegate_wire::envelope::{Brand, Opening};

use super::conduct::{Broken, Conductor};
use super::reader::Reader;
use super::roster::Roster;
use super::sink::Sink;
use super::stop::Limits;
use super::turn::{Turn, is};
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::{Body, Inner};
use crate::snapshot::Settings;
use crate::sticky::Conversation;
use crate::{Gateway, Snapshot};

/// What of the caller's `provider` holds for every model that its request leads to.
const POLICY: [&str; 2] = ["zdr", "data_collection"];
/// Efforts that a tool can be given, and the word that a message has for each; none where it says not to think.
const EFFORTS: [(&str, Option<&str>); 7] = [
    ("none", None),
    ("minimal", Some("low")),
    ("low", Some("low")),
    ("medium", Some("medium")),
    ("high", Some("high")),
    ("xhigh", Some("xhigh")),
    ("max", Some("max")),
];
/// A budget of thinking below this is refused by those who have one.
pub(super) const LEAST_THINKING: u64 = 1_024;

/// Everything that a call of a tool works with.
#[derive(Clone)]
pub(super) struct Desk {
    pub gate: Arc<Gateway>,
    pub snapshot: Arc<Snapshot>,
    pub key: Arc<KeyEntry>,
    pub headers: HeaderMap,
    pub query: String,
    pub inner: Arc<Inner>,
    /// The model that made the call.
    pub model: String,
    /// The request of the loop without its messages and tools.
    pub request: Arc<Map<String, Value>>,
    /// The conversation up to the turn that made the call, and what the model says in that turn.
    pub messages: Arc<Vec<Value>>,
    pub said: Arc<Vec<Value>>,
    /// What the call uses of other models, and the place in it of what is asked next.
    pub bill: Bill,
    pub place: usize,
}

/// What a call used of other models so far. It outlives the call: what was used is due, whatever became of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Bill(Arc<Mutex<Vec<(usize, Spent)>>>);

impl Bill {
    fn add(&self, place: usize, spent: Spent) -> usize {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.push((place, spent));
        list.len() - 1
    }

    /// All of it, by the places.
    pub fn spent(&self) -> Vec<Spent> {
        let mut list = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        list.sort_by_key(|(place, _)| *place);
        list.into_iter().map(|(_, spent)| spent).collect()
    }
}

/// Where a loop of another model tells what it has used so far.
#[derive(Debug)]
pub(super) struct Line {
    bill: Bill,
    place: usize,
    kind: &'static str,
    entry: Option<usize>,
}

impl Line {
    pub fn tell(&mut self, model: &str, usage: Map<String, Value>) {
        let spent = Spent { kind: self.kind, model: model.to_owned(), usage };
        let Some(entry) = self.entry else {
            self.entry = Some(self.bill.add(self.place, spent));
            return;
        };
        if let Some(known) = self.bill.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(entry) {
            known.1 = spent;
        }
    }
}

/// What another model's answer used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spent {
    /// What it is called in `usage.iterations`.
    pub kind: &'static str,
    pub model: String,
    pub usage: Map<String, Value>,
}

/// Another model's answer.
pub(super) struct Answer {
    pub text: String,
    pub reason: String,
    pub model: String,
}

impl Desk {
    /// The model of the loop, as it is asked for.
    pub fn model(&self) -> &str {
        self.request.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// Asks another model once. `kind` is what its usage is called.
    pub async fn ask(&self, mut body: Map<String, Value>, kind: &'static str) -> Result<Answer, Failure> {
        self.add_policy(&mut body);
        let inner = self.beside(&body, kind);
        let body = Bytes::from(Value::Object(body).to_string());
        let head = (&self.headers, self.query.as_str());
        let reply = self.gate.turn(&self.snapshot, &self.key, head, (body, usize::MAX, None), &inner).await?;
        let Body::Full(bytes) = &reply.body else { return Err(Failure::internal()) };
        let member = &self.snapshot.names.metadata_member;
        let turn = Turn::whole(&bytes.clone().unwrap_or_default(), member).ok_or_else(Failure::internal)?;
        let model = turn.model().unwrap_or_default().to_owned();
        let reason = turn.reason().to_owned();
        self.bill.add(self.place, Spent { kind, model: model.clone(), usage: turn.usage });
        Ok(Answer { text: said(&turn.blocks), reason, model })
    }

    /// Lets another model work with tools of its own. In a box, because its loop may lead here again.
    pub fn work(
        &self,
        mut body: Map<String, Value>,
        roster: Roster,
        limits: Limits,
        kind: &'static str,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>> {
        self.add_policy(&mut body);
        let desk = self.clone();
        Box::pin(async move {
            let inner = desk.beside(&body, kind);
            let Some(Value::Array(messages)) = body.remove("messages") else { return Err(Failure::internal()) };
            let Desk { gate, snapshot, key, headers, query, bill, place, .. } = desk;
            let head = (headers, query);
            let mut conductor = Conductor::new(gate, snapshot, key, head, inner, body, messages, roster, limits);
            conductor.line = Some(Line { bill, place, kind, entry: None });
            let first = conductor.begin().await?;
            let mut sink = Sink::new(None);
            let answer = match conductor.conduct(first, &mut sink).await {
                Ok(answer) => answer,
                Err(Broken::Failure(failure)) => return Err(failure),
                Err(Broken::Gone) => return Err(Failure::internal()),
            };
            let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            Ok(Answer { text: said(&sink.content), reason: text("stop_reason"), model: text("model") })
        })
    }

    /// What the caller wants of everybody who reads its data, it wants of those whom a tool asks, too.
    fn add_policy(&self, body: &mut Map<String, Value>) {
        let policy = self.policy();
        if !policy.is_empty() {
            body.insert("provider".into(), Value::Object(policy));
        }
        if let Some(user) = self.request.get("user") {
            body.insert("user".into(), user.clone());
        }
    }

    /// What that is, as members of `provider`.
    pub fn policy(&self) -> Map<String, Value> {
        let given = self.request.get("provider").and_then(Value::as_object).into_iter().flatten();
        let kept = given.filter(|(name, _)| POLICY.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Of a conversation of its own: who serves the loop is not changed by whom a tool asks.
    fn beside(&self, body: &Map<String, Value>, kind: &str) -> Inner {
        let model = body.get("model").and_then(Value::as_str).unwrap_or_default();
        let root = self.inner.root().map(|root| root.as_str().to_owned()).unwrap_or_default();
        let session = format!("{kind} {root}");
        self.inner.beside(Conversation::of(&self.key.workspace, model, Some(&session), &Opening::default()))
    }
}

/// The text of an answer.
fn said(blocks: &[Value]) -> String {
    let texts = blocks.iter().filter(|block| is(block, "text")).filter_map(|block| block.get("text")?.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// How another model is to answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Guide {
    pub model: Option<String>,
    instructions: Option<String>,
    max_tokens: Option<u64>,
    temperature: Option<Value>,
    effort: Option<&'static str>,
    thinking: Option<u64>,
    /// It is to answer without any thinking.
    is_thoughtless: bool,
}

impl Guide {
    /// Nothing but whom to ask.
    pub fn to(model: String) -> Self {
        Self { model: Some(model), ..Self::default() }
    }

    pub fn of(reader: &Reader<'_>) -> Result<Self, Failure> {
        let model = model(reader)?;
        let temperature = reader.get("temperature");
        if let Some(value) = temperature
            && !value.as_f64().is_some_and(|value| (0.0..=2.0).contains(&value))
        {
            return Err(reader.wrong("temperature", "must be a number from 0 to 2"));
        }
        let mut guide = Self {
            model,
            instructions: reader.text("instructions")?.map(str::to_owned),
            max_tokens: reader.number("max_completion_tokens", u64::MAX)?,
            temperature: temperature.cloned(),
            ..Self::default()
        };
        if let Some(reasoning) = reader.object("reasoning")? {
            if let Some(effort) = reasoning.text("effort")? {
                match EFFORTS.iter().find(|(known, _)| *known == effort) {
                    Some((_, told)) => (guide.effort, guide.is_thoughtless) = (*told, told.is_none()),
                    None => {
                        let known: Vec<&str> = EFFORTS.iter().map(|(known, _)| *known).collect();
                        return Err(reasoning.wrong("effort", &format!("must be one of {}", known.join(", "))));
                    }
                }
            }
            guide.thinking = reasoning.number("max_tokens", u64::MAX)?;
            if guide.thinking.is_some_and(|budget| budget < LEAST_THINKING) {
                return Err(reasoning.wrong("max_tokens", &format!("must be at least {LEAST_THINKING}")));
            }
            if guide.thinking.zip(guide.max_tokens).is_some_and(|(budget, most)| budget >= most) {
                return Err(reasoning.wrong("max_tokens", "must be less than max_completion_tokens"));
            }
        }
        Ok(guide)
    }

    /// For the members of a panel, who are told nothing but the question.
    pub fn for_panel(self, most: u64) -> Self {
        Self { model: None, instructions: None, max_tokens: self.max_tokens.or(Some(most)), ..self }
    }

    /// For somebody who compares and invents nothing.
    pub fn analyst(instructions: &str, most: u64) -> Self {
        Self {
            instructions: Some(instructions.to_owned()),
            max_tokens: Some(most),
            temperature: Some(json!(0)),
            ..Self::default()
        }
    }

    /// A request for this model that follows it.
    pub fn request(&self, model: &str, messages: Vec<Value>) -> Map<String, Value> {
        let mut body = Map::new();
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        add("model", Some(json!(model)));
        add("max_tokens", self.max_tokens.map(|most| json!(most)));
        add("system", self.instructions.as_ref().map(|text| json!(text)));
        add("temperature", self.temperature.clone());
        add("output_config", self.effort.map(|effort| json!({"effort": effort})));
        let thinking = self.thinking.map(|budget| json!({"type": "enabled", "budget_tokens": budget}));
        add("thinking", if self.is_thoughtless { Some(json!({"type": "disabled"})) } else { thinking });
        add("messages", Some(Value::Array(messages)));
        body
    }
}

/// The model that a tool names for good.
pub(super) fn model(reader: &Reader<'_>) -> Result<Option<String>, Failure> {
    match reader.text("model")? {
        Some("") => Err(reader.wrong("model", "must be at least 1 characters")),
        model => Ok(model.map(str::to_owned)),
    }
}

/// The name of a tool that there may be several of; `others` are the names of those before it.
pub(super) fn name(reader: &Reader<'_>, others: &[Option<&str>]) -> Result<Option<String>, Failure> {
    let Some(name) = reader.text("name")?.map(str::trim) else {
        return match others.contains(&None) {
            true => Err(reader.wrong("name", "is required: another one has none")),
            false => Ok(None),
        };
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " _-".contains(c);
    if !(1..=64).contains(&name.len()) || !name.chars().all(is_plain) {
        return Err(reader.wrong("name", "must be 1 to 64 letters, digits, spaces, _ or -"));
    }
    if others.contains(&Some(name)) {
        return Err(reader.wrong("name", &format!("'{name}' is used more than once")));
    }
    Ok(Some(name.to_owned()))
}

/// The server tools that another model is given; `who` it is, and which of them it cannot have.
pub(super) fn tools(
    reader: &Reader<'_>,
    settings: &Settings,
    who: &str,
    forbidden: &[&str],
) -> Result<Option<Vec<Value>>, Failure> {
    let list = match reader.get("tools") {
        None => return Ok(None),
        Some(Value::Array(list)) => list.clone(),
        Some(_) => return Err(reader.wrong("tools", "must be an array")),
    };
    let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
    for (place, tool) in list.iter().enumerate() {
        let name = brand.tool(tool.get("type").and_then(Value::as_str).unwrap_or_default());
        let problem = match name {
            None => format!("must be a server tool ({}:…): a {who} cannot call functions", settings.brand),
            Some(name) if forbidden.contains(&name) => format!("cannot be a {name}: a {who} has none of its own"),
            Some(_) => continue,
        };
        return Err(reader.wrong(&format!("tools[{place}]"), &problem));
    }
    Roster::of(&list, settings, false).map_err(|failure| inside(&reader.path, failure))?;
    Ok(Some(list))
}

/// Looks whether the models that such tools name are there; `path`: that of the tool that they are given by.
pub(super) fn check(tools: &[Value], path: &str, snapshot: &Snapshot) -> Result<(), Failure> {
    let checked = Roster::of(tools, &snapshot.settings, false).and_then(|roster| roster.check(snapshot));
    checked.map_err(|failure| inside(path, failure))
}

/// What is wrong with one of them is said by its path in the whole request.
fn inside(path: &str, failure: Failure) -> Failure {
    let message = failure.message.replace("Invalid request: tools[", &format!("Invalid request: {path}.tools["));
    Failure { message: message.into(), ..failure }
}
