//! `advisor`: another model that is asked for advice. It remembers what it was asked before in the same conversation, and
//! has no tools.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tidegate_wire::error::ErrorType;

use super::inner::{self, Desk, Guide};
use super::reader::Reader;
use super::run::Outcome;
use super::shares::{Share, Shares};
use super::turn::is;
use crate::failure::Failure;

/// Its name behind the brand, and as the model calls the first one.
pub(super) const NAME: &str = "advisor";
const BLOCK: &str = "advisor_tool_result";
/// What its answers are called in `usage.iterations`.
const SPENT: &str = "advisor_message";
/// Consultations of one request, of all advisors together.
const MOST: u64 = 10;
/// Characters of earlier consultations that are told again.
const MEMORY: usize = 100_000;

/// The tool, or one call of it.
#[derive(Clone, Debug)]
pub(super) struct Advisor {
    terms: Arc<Terms>,
    /// Nothing further may be asked.
    is_over: bool,
}

#[derive(Debug)]
struct Terms {
    name: Option<String>,
    /// How many there are before it.
    place: usize,
    guide: Guide,
    forwards: bool,
    most: u64,
    uses: AtomicU64,
}

/// The terms count what a request uses, so they are equal only to themselves.
impl PartialEq for Advisor {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.terms, &other.terms)
    }
}

/// Whether it is the type of Anthropic's own.
pub(super) fn is_vendors(wire: &str) -> bool {
    wire.starts_with("advisor_20")
}

impl Advisor {
    /// `others` are those before it in the same request.
    pub fn of(reader: &Reader<'_>, is_vendors: bool, others: &[&Self]) -> Result<Self, Failure> {
        let names: Vec<Option<&str>> = others.iter().map(|other| other.name()).collect();
        let (name, guide, forwards, most) = if is_vendors {
            if names.contains(&None) {
                return Err(reader.wrong("type", "is used more than once"));
            }
            let model = inner::model(reader)?.ok_or_else(|| reader.wrong("model", "is required"))?;
            let most = reader.number("max_uses", u64::MAX)?.unwrap_or(MOST);
            (None, Guide::to(model), false, most)
        } else {
            reader.flag("stream")?;
            let forwards = reader.flag("forward_transcript")?.unwrap_or(false);
            (inner::name(reader, &names)?, Guide::of(reader)?, forwards, MOST)
        };
        let terms = Terms { name, place: others.len(), guide, forwards, most, uses: AtomicU64::new(0) };
        Ok(Self { terms: Arc::new(terms), is_over: true })
    }

    pub fn name(&self) -> Option<&str> {
        self.terms.name.as_deref()
    }

    /// As the model calls it.
    pub fn function(&self, brand: &str) -> String {
        match self.terms.place {
            0 => NAME.to_owned(),
            place => format!("{brand}_{NAME}__{place}"),
        }
    }

    /// A call of it, which counts.
    pub fn begun(&self, shares: &Shares) -> Self {
        let terms = &self.terms;
        let own = terms.uses.fetch_add(1, Ordering::SeqCst) >= terms.most;
        Self { terms: terms.clone(), is_over: own || !shares.take(Share::Advice, MOST) }
    }

    #[cfg(test)]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    pub fn required(&self) -> &'static [&'static str] {
        if self.terms.forwards { &[] } else { &["prompt"] }
    }

    pub fn description(&self) -> (String, Value) {
        let called = self.name().map(|name| format!(" It is called {name}.")).unwrap_or_default();
        let sees = match self.terms.forwards {
            true => "It reads the whole conversation.",
            false => "It reads only the prompt, so put everything it must know into it.",
        };
        let text = format!(
            "Asks another model for advice.{called} {sees} Call it before a hard or far-reaching decision, or when stuck; not \
             for what is simple. It cannot act: use what it says, and answer yourself."
        );
        let mut properties = json!({"prompt": {"type": "string", "description": "The question"}});
        if self.terms.guide.model.is_none() {
            properties["model"] =
                json!({"type": "string", "description": "The id of the model to ask; usually left out"});
        }
        (text, properties)
    }

    pub async fn run(&self, desk: &Desk, function: &str, input: &Value) -> Outcome {
        if self.is_over {
            return failed("max_uses_exceeded");
        }
        let terms = &self.terms;
        let given = |name: &str| input.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        // Without a question, as the vendor's own form has it, the conversation is the question.
        let messages = match given("prompt").filter(|_| !terms.forwards) {
            Some(prompt) => remembered(&desk.messages, function, prompt),
            None => {
                let prompt = given("prompt").unwrap_or("Give your advice on the conversation so far.");
                let asked = json!([{"type": "text", "text": prompt}]);
                said(transcript(&desk.messages, &desk.said), "user", asked)
            }
        };
        let model = terms.guide.model.as_deref().or_else(|| given("model")).unwrap_or_else(|| desk.model());
        if desk.snapshot.catalogue.find(model).is_err() {
            return failed("model_not_found");
        }
        match desk.ask(terms.guide.request(model, messages), SPENT).await {
            Ok(answer) => {
                let text = json!({"status": "ok", "model": answer.model, "advice": answer.text}).to_string();
                let mut content = json!({"type": "advisor_result", "text": answer.text, "stop_reason": answer.reason});
                if let Some(name) = self.name() {
                    // Which of several it was, for the case that it comes back.
                    content["name"] = json!(name);
                }
                Outcome { text, shown: Some((BLOCK.into(), content)), ..Outcome::default() }
            }
            Err(failure) => failed(code_of(&failure)),
        }
    }
}

fn code_of(failure: &Failure) -> &'static str {
    match (failure.error_type, failure.status) {
        (ErrorType::ContextLengthExceeded | ErrorType::StringTooLong | ErrorType::PayloadTooLarge, _) => {
            "prompt_too_long"
        }
        (ErrorType::RateLimitExceeded, _) => "too_many_requests",
        (ErrorType::NotFound, _) => "model_not_found",
        (ErrorType::ProviderOverloaded, _) | (_, 503 | 529) => "overloaded",
        (ErrorType::Timeout, _) => "execution_time_exceeded",
        _ => "unavailable",
    }
}

/// Advice that did not come, for the model and for the client.
pub(super) fn failed(code: &str) -> Outcome {
    let content = json!({"type": "advisor_tool_result_error", "error_code": code});
    Outcome { text: told(&content).0, is_error: true, shown: Some((BLOCK.into(), content)), ..Outcome::default() }
}

/// What the model reads of a result that comes back, and whether it is an error.
pub(super) fn told(content: &Value) -> (String, bool) {
    let text = |name: &str| content.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "advisor_result" => (json!({"status": "ok", "advice": text("text")}).to_string(), false),
        "advisor_tool_result_error" => {
            let reason = match text("error_code") {
                "max_uses_exceeded" => "No further advice is given in this request. Decide with what is known.",
                "prompt_too_long" => "The question is too long for the advisor.",
                "model_not_found" => "There is no such model to ask.",
                _ => "The advisor does not answer now. Decide with what is known.",
            };
            (json!({"status": "error", "error": reason}).to_string(), true)
        }
        _ => (json!({"status": "ok", "advice": "[advice that cannot be shown again]"}).to_string(), false),
    }
}

/// Earlier questions to the same advisor with its answers, and the new one.
fn remembered(messages: &[Value], function: &str, prompt: &str) -> Vec<Value> {
    let blocks = || messages.iter().filter_map(|message| message.get("content")?.as_array()).flatten();
    let text = |block: &Value, name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    // Looked up, not looked for: a conversation may hold very many of them. Of several the first counts.
    let mut results: HashMap<&str, &Value> = HashMap::new();
    for block in blocks().filter(|block| is(block, "tool_result")) {
        results.entry(block.get("tool_use_id").and_then(Value::as_str).unwrap_or_default()).or_insert(block);
    }
    let answer = |id: &str| {
        let result = *results.get(id)?;
        let told: Value = serde_json::from_str(&text(result, "content")).ok()?;
        Some(told.get("advice")?.as_str()?.to_owned())
    };
    let calls = blocks().filter(|block| is(block, "tool_use") && text(block, "name") == function);
    let mut pairs: Vec<(String, String)> = calls
        .filter_map(|call| {
            let asked = call.get("input").map(|input| text(input, "prompt")).filter(|asked| !asked.is_empty())?;
            let answer = answer(&text(call, "id")).filter(|answer| !answer.is_empty())?;
            Some((asked, answer))
        })
        .collect();
    // What lies in the middle is missed least.
    let size = |(asked, answer): &(String, String)| asked.len() + answer.len();
    let mut whole: usize = pairs.iter().map(size).sum();
    let mut later: VecDeque<(String, String)> = pairs.split_off(pairs.len() / 2).into();
    while whole > MEMORY {
        let middle = (pairs.len() + later.len()) / 2;
        let Some(gone) = (if middle < pairs.len() { pairs.pop() } else { later.pop_front() }) else { break };
        whole -= size(&gone);
    }
    let turns = pairs.into_iter().chain(later).flat_map(|(asked, answer)| {
        [json!({"role": "user", "content": asked}), json!({"role": "assistant", "content": answer})]
    });
    turns.chain([json!({"role": "user", "content": prompt})]).collect()
}

/// The conversation without calls, which another model has no tools for: they are told as text. `last` is what the model
/// says while it asks; that it asks goes without saying.
fn transcript(messages: &[Value], last: &[Value]) -> Vec<Value> {
    let mut made = Vec::new();
    for message in messages {
        let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
        let blocks: Vec<Value> = match message.get("content") {
            Some(Value::String(text)) if !text.is_empty() => vec![json!({"type": "text", "text": text})],
            Some(Value::Array(blocks)) => blocks.iter().filter_map(plain).collect(),
            _ => continue,
        };
        if !blocks.is_empty() {
            made = said(made, role, Value::Array(blocks));
        }
    }
    let last: Vec<Value> = last.iter().filter_map(plain).collect();
    if last.is_empty() { made } else { said(made, "assistant", Value::Array(last)) }
}

fn plain(block: &Value) -> Option<Value> {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    let told = match text("type") {
        "text" if text("text").trim().is_empty() => return None,
        "text" => return Some(json!({"type": "text", "text": text("text")})),
        "image" | "document" => return Some(block.clone()),
        "tool_use" => format!("[called {} with {}]", text("name"), block.get("input").cloned().unwrap_or_default()),
        "tool_result" => match block.get("content") {
            Some(Value::String(text)) => format!("[result: {text}]"),
            content => format!("[result: {}]", content.cloned().unwrap_or_default()),
        },
        _ => return None,
    };
    Some(json!({"type": "text", "text": told}))
}

/// Adds to what was said last by the same.
fn said(mut messages: Vec<Value>, role: &str, blocks: Value) -> Vec<Value> {
    match (messages.last_mut(), blocks) {
        (Some(last), Value::Array(blocks)) if last["role"] == role => {
            if let Some(known) = last["content"].as_array_mut() {
                known.extend(blocks);
            }
        }
        (_, blocks) => messages.push(json!({"role": role, "content": blocks})),
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, function: &str, prompt: &str) -> Value {
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": function, "input": {"prompt": prompt}}]})
    }

    fn result(id: &str, text: Value) -> Value {
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text.to_string()}]})
    }

    #[test]
    fn an_advisor_remembers_its_own_answers_and_nothing_else() {
        let messages = [
            json!({"role": "user", "content": "hi"}),
            call("1", "advisor", "one?"),
            result("1", json!({"status": "ok", "model": "v/m", "advice": "One."})),
            call("2", "tidegate_advisor__1", "two?"),
            result("2", json!({"status": "ok", "advice": "Two."})),
            call("3", "advisor", "three?"),
            result("3", json!({"status": "error", "error": "none"})),
        ];
        let turns = |pairs: &[(&str, &str)]| -> Vec<Value> {
            pairs.iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
        };
        let wanted = turns(&[("user", "one?"), ("assistant", "One."), ("user", "new?")]);
        assert_eq!(remembered(&messages, "advisor", "new?"), wanted);
        let long = "x".repeat(60_000);
        let messages: Vec<Value> = (0..3)
            .flat_map(|id| {
                let id = id.to_string();
                [call(&id, "advisor", &id), result(&id, json!({"advice": if id == "1" { &long } else { "short" }}))]
            })
            .chain([call("9", "advisor", "9"), result("9", json!({"advice": long}))])
            .collect();
        let made = remembered(&messages, "advisor", "new?");
        let asked: Vec<&str> = made.iter().step_by(2).filter_map(|turn| turn["content"].as_str()).collect();
        // Of four the middle ones go first, until the rest fits.
        assert_eq!(asked, ["0", "9", "new?"]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
    fn a_conversation_may_hold_very_many_consultations() {
        let ids: Vec<String> = (0..40_000).map(|id| id.to_string()).collect();
        let advice = json!({"advice": "yes"});
        let calls = ids.iter().map(|id| call(id, "advisor", "sure?"));
        let messages: Vec<Value> = calls.chain(ids.iter().map(|id| result(id, advice.clone()))).collect();
        let began = std::time::Instant::now();
        // Eight characters each.
        assert_eq!(remembered(&messages, "advisor", "new?").len(), 2 * MEMORY / 8 + 1);
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }

    #[test]
    fn a_transcript_tells_calls_as_text() {
        let messages = [
            json!({"role": "user", "content": "hi"}),
            json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "six"}]}),
        ];
        let made = said(transcript(&messages, &[]), "user", json!([{"type": "text", "text": "well?"}]));
        let text = |text: &str| json!({"type": "text", "text": text});
        let wanted = [
            json!({"role": "user", "content": [text("hi")]}),
            json!({"role": "assistant", "content": [text("[called f with {\"a\":1}]")]}),
            json!({"role": "user", "content": [text("[result: six]"), text("well?")]}),
        ];
        assert_eq!(made, wanted);
    }
}
