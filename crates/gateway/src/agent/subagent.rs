//! `subagent`: another model that is given a task. It sees the task and nothing else of the conversation, and may have
//! server tools of its own.

use std::sync::Arc;

use serde_json::{Value, json};

use super::inner::{self, Desk, Guide};
use super::mcp;
use super::reader::Reader;
use super::roster::Roster;
use super::run::Outcome;
use super::shares::{Share, Shares};
use super::stop::Limits;
use crate::Snapshot;
use crate::failure::Failure;
use crate::snapshot::Settings;

/// Its name behind the brand.
pub(super) const NAME: &str = "subagent";
/// What its answers are called in `usage.iterations`.
const SPENT: &str = "subagent_message";
/// Tasks of one request, of all subagents together.
const MOST: u64 = 20;
/// Calls of tools that one task may make, when the request says nothing else, and at most.
const CALLS: u64 = 10;
const MOST_CALLS: u64 = 25;

/// The tool, or one call of it.
#[derive(Clone, Debug)]
pub(super) struct Subagent {
    terms: Arc<Terms>,
    /// No further task is taken.
    is_over: bool,
}

#[derive(Debug)]
struct Terms {
    name: Option<String>,
    place: usize,
    guide: Guide,
    tools: Vec<Value>,
    calls: u64,
    /// Of its parameters.
    path: String,
}

impl PartialEq for Subagent {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.terms, &other.terms)
    }
}

impl Subagent {
    /// `others` are those before it in the same request.
    pub fn of(reader: &Reader<'_>, settings: &Settings, others: &[&Self]) -> Result<Self, Failure> {
        for name in ["inherit_functions", "inherited_function_names"] {
            if reader.get(name).is_some() {
                return Err(reader.wrong(name, "is not allowed: a subagent of this API has server tools only"));
            }
        }
        let names: Vec<Option<&str>> = others.iter().map(|other| other.terms.name.as_deref()).collect();
        let terms = Terms {
            name: inner::name(reader, &names)?,
            place: others.len(),
            guide: Guide::of(reader)?,
            tools: inner::tools(reader, settings, NAME, &[NAME, mcp::NAME])?.unwrap_or_default(),
            calls: reader.number("max_tool_calls", MOST_CALLS)?.unwrap_or(CALLS),
            path: reader.path.clone(),
        };
        Ok(Self { terms: Arc::new(terms), is_over: true })
    }

    /// Whether the models that its tools name are there.
    pub fn check(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        inner::check(&self.terms.tools, &self.terms.path, snapshot)
    }

    /// As the model calls it.
    pub fn function(&self, brand: &str) -> String {
        match self.terms.place {
            0 => format!("{brand}_{NAME}"),
            place => format!("{brand}_{NAME}__{place}"),
        }
    }

    /// A call of it, which counts.
    pub fn begun(&self, shares: &Shares) -> Self {
        Self { terms: self.terms.clone(), is_over: !shares.take(Share::Task, MOST) }
    }

    pub fn description(&self) -> (String, Value) {
        let called = self.terms.name.as_ref().map(|name| format!(" It is called {name}.")).unwrap_or_default();
        let text = format!(
            "Gives a task to another model, which works on it alone and reports.{called} It sees only the description of the \
             task, so put everything it must know into it. Call it for work that can be described and done apart; several \
             can run at once. Do simple things yourself."
        );
        let properties = json!({
            "task_name": {"type": "string", "description": "A short name"},
            "task_description": {"type": "string", "description": "What to do, with everything that must be known"},
        });
        (text, properties)
    }

    pub async fn run(&self, desk: &Desk, input: &Value) -> Outcome {
        let terms = &self.terms;
        let given = |name: &str| input.get(name).and_then(Value::as_str).map(str::trim).unwrap_or_default();
        let task = given("task_name");
        let model = terms.guide.model.as_deref().unwrap_or_else(|| desk.model());
        let failed = |error: &str| {
            let told = json!({"status": "error", "model": model, "task_name": task, "error": error});
            Outcome { text: told.to_string(), is_error: true, ..Outcome::default() }
        };
        if self.is_over {
            return failed("max_uses_exceeded: no further task is taken in this request");
        }
        let description = given("task_description");
        if description.is_empty() {
            return failed("invalid_tool_input: task_description must not be empty");
        }
        if desk.snapshot.catalogue.find(model).is_err() {
            return failed("model_not_found: there is no such model");
        }
        let request = terms.guide.request(model, vec![json!({"role": "user", "content": description})]);
        let settings = &desk.snapshot.settings;
        let answer = if terms.tools.is_empty() {
            desk.ask(request, SPENT).await
        } else {
            match Roster::of(&terms.tools, settings, false) {
                // Every task counts anew what its tools were told they may be used for; what a request may is shared.
                Ok(roster) => {
                    let limits = Limits::of(None, Some(terms.calls), settings.tools.max_steps);
                    desk.work(request, roster, limits, SPENT).await
                }
                Err(failure) => Err(failure),
            }
        };
        match answer {
            Ok(answer) => {
                let told = json!({"status": "ok", "model": answer.model, "task_name": task, "outcome": answer.text});
                Outcome { text: told.to_string(), ..Outcome::default() }
            }
            Err(failure) => failed(&format!("{}: {}", failure.error_type.as_str(), failure.message)),
        }
    }
}
