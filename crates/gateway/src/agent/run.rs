//! Runs the calls of a turn. Whatever goes wrong is a result that the model gets to read; nothing here fails a request.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use tidegate_core::Money;
use tidegate_routing::Model;
use tidegate_tools::datetime;

use super::advisor;
use super::fetch;
use super::files;
use super::find;
use super::fusion;
use super::image;
use super::inner::Desk;
use super::roster::{Kind, Tool};
use super::sandbox;
use super::search;
use crate::guardrails::Judged;
use crate::keys::KeyEntry;
use crate::{Gateway, Snapshot};

/// In place of a result that a guardrail does not let through.
pub(super) const WITHHELD: &str = "The result is withheld: a content filter does not let it through.";

/// In place of the result of a call whose arguments it does not let through.
pub(super) const UNCALLED: &str = "The call was not made: a content filter does not let its arguments through.";

/// What came of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// As the model gets to read it.
    pub text: String,
    pub is_error: bool,
    /// What the client gets to see of it, for tools whose results have a block: its type and its content. What has none
    /// is remembered here for the case that the call comes back.
    pub shown: Option<(Cow<'static, str>, Value)>,
    /// Tools that the model gets to see from now on.
    pub found: Vec<String>,
    /// What it cost besides.
    pub fee: Money,
    /// What was taken out of it already.
    pub judged: Judged,
}

impl Outcome {
    pub fn of(value: &Value) -> Self {
        Self { text: value.to_string(), ..Self::default() }
    }

    /// Of a tool whose errors have no block.
    pub fn error(code: &str, message: &str) -> Self {
        let text = json!({"error": code, "message": message}).to_string();
        Self { text, is_error: true, ..Self::default() }
    }
}

/// A call that came to nothing for a reason of the loop's, as its tool tells and shows errors.
pub(super) fn failed(tool: &Tool, input: &Value, code: &'static str) -> Outcome {
    match &tool.kind {
        Kind::WebSearch(_) => search::failed(code),
        Kind::WebFetch(_) => fetch::failed(input, code),
        Kind::ToolSearch(_) => find::failed(code, reason(code)),
        Kind::Advisor(_) => advisor::failed(code),
        Kind::Fusion(_) => fusion::failed("unexpected_error"),
        Kind::Image(_) => image::failed(reason(code), Money::ZERO),
        Kind::Files => files::failed(reason(code)),
        Kind::Sandbox(sandbox) => sandbox.failed(code, reason(code)),
        Kind::Datetime { .. } | Kind::SearchModels { .. } | Kind::Subagent(_) | Kind::Remote(_) => {
            Outcome::error(code, reason(code))
        }
    }
}

/// What a client sees of a result that a guardrail does not let through.
pub(super) fn withheld(kind: &str) -> Value {
    let of_sandbox = sandbox::shown_by(kind).and_then(|_| kind.strip_suffix("_tool_result"));
    match of_sandbox {
        Some(of) => {
            json!({"type": format!("{of}_error"), "error_code": "unavailable", "error_message": WITHHELD})
        }
        None => json!({"type": format!("{kind}_error"), "error_code": "unavailable"}),
    }
}

fn reason(code: &str) -> &'static str {
    match code {
        "max_uses_exceeded" => "No further call of a tool is run in this request.",
        "execution_time_exceeded" => "The tool did not answer in time.",
        _ => "The tool could not be run.",
    }
}

/// Runs one call.
pub(super) async fn run(desk: &Desk, tool: &Tool, input: &Value) -> Outcome {
    let (gate, snapshot, key) = (&desk.gate, &desk.snapshot, &desk.key);
    match &tool.kind {
        Kind::Datetime { zone } => time(gate, zone, input),
        Kind::SearchModels { most } => models(gate, snapshot, key, *most, input),
        Kind::WebSearch(call) => search::run(desk, call, input).await,
        Kind::WebFetch(fetch) => fetch.run(gate, snapshot, input).await,
        Kind::ToolSearch(find) => find.run(input),
        Kind::Advisor(advisor) => advisor.run(desk, &tool.function, input).await,
        Kind::Subagent(subagent) => subagent.run(desk, input).await,
        Kind::Fusion(fusion) => fusion.run(desk, input).await,
        Kind::Image(image) => image.run(desk, input).await,
        Kind::Files => files::run(gate, key, input).await,
        Kind::Sandbox(sandbox) => sandbox.run(desk, input).await,
        Kind::Remote(remote) => remote.run(desk, input).await,
    }
}

fn time(gate: &Gateway, zone: &str, input: &Value) -> Outcome {
    let zone = input.get("timezone").and_then(Value::as_str).filter(|zone| !zone.is_empty()).unwrap_or(zone);
    match datetime::told(gate.clock.now(), zone) {
        Some(told) => Outcome::of(&json!({"datetime": told, "timezone": zone})),
        None => Outcome::error("invalid_tool_input", "timezone must be a name of the IANA time zone database."),
    }
}

/// The models that the caller may use and that fit all of what is asked for.
fn models(gate: &Gateway, snapshot: &Snapshot, key: &KeyEntry, most: usize, input: &Value) -> Outcome {
    let none = Map::new();
    let asked = input.as_object().unwrap_or(&none);
    let word =
        |name: &str| asked.get(name).and_then(Value::as_str).map(str::to_lowercase).filter(|word| !word.is_empty());
    let words = |name: &str| -> Vec<String> {
        let list = asked.get(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_lowercase).collect()
    };
    let (query, series) = (word("query"), word("series"));
    let (takes, gives) = (words("input_modalities"), words("output_modalities"));
    let length = asked.get("min_context_length").and_then(Value::as_u64).unwrap_or(0);
    let fits = |model: &Model| {
        let told = shown(model);
        let has = |list: &Value, wanted: &[String]| {
            let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
            wanted.iter().all(|one| list.iter().any(|known| known == one.as_str()))
        };
        let text = format!("{} {} {}", model.id, model.name, model.description).to_lowercase();
        let holds = |words: &str| words.split_whitespace().all(|word| text.contains(word));
        query.as_deref().is_none_or(holds)
            && series.as_deref().is_none_or(|series| text.contains(series))
            && told["context_length"].as_u64().unwrap_or(0) >= length
            && has(&told["input_modalities"], &takes)
            && has(&told["output_modalities"], &gives)
    };
    let listed = snapshot.catalogue.models();
    let visible = listed.iter().filter(|model| !model.hidden && gate.can_call(key, &model.id));
    let found: Vec<Value> = visible.filter(|model| fits(model)).map(|model| shown(model)).collect();
    let (total, showing) = (found.len(), found.len().min(most));
    Outcome::of(&json!({"models": &found[..showing], "total_results": total, "showing": showing}))
}

fn shown(model: &Model) -> Value {
    let series = model.id.split('/').next().unwrap_or_default();
    let length = model.endpoints.iter().map(|endpoint| endpoint.context_length).max().unwrap_or(0);
    json!({
        "id": &*model.id,
        "name": model.name,
        "description": model.description,
        "context_length": length,
        "input_modalities": model.input_modalities,
        "output_modalities": model.output_modalities,
        "series": series,
    })
}
