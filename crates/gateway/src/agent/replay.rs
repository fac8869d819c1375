//! Earlier calls of server tools, as clients send them back: in one message of the assistant stand the calls and the
//! results of several turns. The model gets them as the calls and results that they were.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};
use tidegate_core::RequestId;
use tidegate_wire::envelope::Brand;

use super::roster::{Kind, Named, Roster, Tool};
use super::turn::is;
use super::{advisor, fetch, find, native, sandbox, search};

/// What a client's id of a call begins with, and what a model's does.
const OURS: &str = "srvtoolu_";
const THEIRS: &str = "toolu_";

/// The id that a client gets for a call. It keeps what the model called it, so that a prompt that is sent again is the
/// same to the letter.
pub(super) fn client_id(upstream: &str) -> String {
    let plain = upstream.strip_prefix(THEIRS).filter(|rest| rest.len() >= 8 && rest.bytes().all(is_plain));
    match plain {
        Some(rest) => format!("{OURS}{rest}"),
        None => format!("{OURS}{}", &RequestId::new().as_str()[4..]),
    }
}

pub(super) fn upstream_id(client: &str) -> String {
    client.strip_prefix(OURS).map_or_else(|| client.to_owned(), |rest| format!("{THEIRS}{rest}"))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// The kind of a block that shows what any tool of ours gave.
pub(super) fn generic(brand: &str) -> String {
    format!("{brand}_tool_result")
}

/// The kinds of such blocks, by all of the deployment's names.
pub(super) fn generics(brand: Brand<'_>) -> Vec<String> {
    std::iter::once(brand.name).chain(brand.aliases.iter().map(String::as_str)).map(generic).collect()
}

/// What the model read of a result that such a block shows.
pub(super) fn shown_text(content: &Value) -> String {
    content.as_str().map_or_else(|| content.to_string(), str::to_owned)
}

/// What is known of results that clients do not get to see.
pub(super) trait Memory {
    /// The text of a result, by the id that the client knows its call by.
    fn result(&self, id: &str) -> Option<String>;

    /// What was sealed for the client to keep; nothing when somebody else sealed it.
    fn opened(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
}

/// What becomes of searches whose results somebody else sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// They stay, for him who can read them.
    Kept,
    /// They are told as far as anybody can read them.
    Rebuilt,
}

/// The messages with every call of ours as a call and its result as a result.
pub(super) fn rebuilt(
    messages: Vec<Value>,
    roster: &Roster,
    brand: Brand<'_>,
    memory: &dyn Memory,
    foreign: Foreign,
) -> Vec<Value> {
    let mut made: Vec<Value> = Vec::with_capacity(messages.len());
    let paused = paused(&messages, memory).filter(|_| foreign == Foreign::Kept);
    let mut waiting: Vec<Value> = Vec::new();
    let named = roster.named(brand);
    for message in messages {
        let is_assistant = message.get("role").and_then(Value::as_str) == Some("assistant");
        let blocks = message.get("content").and_then(Value::as_array);
        let ours = Ours::of(blocks.filter(|_| is_assistant), &named, (foreign, paused.as_deref()));
        if !waiting.is_empty() {
            let joins = message.get("role").and_then(Value::as_str) == Some("user");
            if joins {
                made.push(joined(std::mem::take(&mut waiting), message));
                continue;
            }
            made.push(json!({"role": "user", "content": std::mem::take(&mut waiting)}));
        }
        match (!ours.0.is_empty(), message) {
            (true, Value::Object(mut message)) => {
                let Some(Value::Array(blocks)) = message.remove("content") else { continue };
                waiting = turns(blocks, &message, &mut made, (roster, &named, &ours), memory);
            }
            (_, message) => made.push(message),
        }
    }
    if !waiting.is_empty() {
        made.push(json!({"role": "user", "content": waiting}));
    }
    made
}

/// A search that a vendor broke off to be asked to go on with it: the last thing that was said, and nobody knows what came
/// of it.
fn paused(messages: &[Value], memory: &dyn Memory) -> Option<String> {
    let last = messages.last().filter(|message| message.get("role") == Some(&json!("assistant")))?;
    let block = last.get("content")?.as_array()?.last().filter(|block| is(block, "server_tool_use"))?;
    let id = id(block, "id").filter(|_| block.get("name") == Some(&json!(search::NAME)))?;
    memory.result(&id).is_none().then_some(id)
}

/// The calls of ours whose results are not in memory and do not stand in the message, or not all of them.
pub(super) fn sought(messages: &[Value], roster: &Roster, brand: Brand<'_>, memory: &dyn Memory) -> Vec<String> {
    let (mut sought, mut seen) = (Vec::new(), HashSet::new());
    let named = roster.named(brand);
    let of_assistant = messages.iter().filter(|message| message.get("role") == Some(&json!("assistant")));
    for blocks in of_assistant.filter_map(|message| message.get("content")?.as_array()) {
        // Looked up, not looked for: a message may hold very many calls.
        let results = blocks.iter().filter(|block| is_result(block));
        let shown: HashSet<&str> = results.filter_map(|block| text(block, "tool_use_id")).collect();
        for block in blocks.iter().filter(|block| is(block, "server_tool_use")) {
            let (Some(of), Some(tool)) = (text(block, "id"), tool_of(block, &named)) else { continue };
            if (is_advice(tool) || !shown.contains(of)) && seen.insert(of) && memory.result(of).is_none() {
                sought.push(of.to_owned());
            }
        }
    }
    sought
}

fn is_advice(tool: &Tool) -> bool {
    matches!(tool.kind, Kind::Advisor(_))
}

/// The ids of the calls of a message that are taken apart.
struct Ours(HashSet<String>);

impl Ours {
    fn of(blocks: Option<&Vec<Value>>, named: &Named<'_>, (foreign, paused): (Foreign, Option<&str>)) -> Self {
        let blocks = blocks.map_or(&[][..], Vec::as_slice);
        let calls = blocks.iter().filter(|block| is(block, "server_tool_use") && tool_of(block, named).is_some());
        // Of several results of one call the first counts.
        let mut results: HashMap<&str, &Value> = HashMap::new();
        if foreign == Foreign::Kept {
            let all = blocks.iter().rev();
            results.extend(all.filter_map(|block| Some((text(block, "tool_use_id")?, block))));
        }
        let is_kept =
            |of: &str| results.get(of).is_some_and(|result| native::is_sealed_elsewhere(result)) || paused == Some(of);
        Self(calls.filter_map(|block| text(block, "id")).filter(|of| !is_kept(of)).map(str::to_owned).collect())
    }

    fn holds(&self, block: &Value) -> bool {
        is(block, "server_tool_use") && text(block, "id").is_some_and(|of| self.0.contains(of))
    }
}

fn tool_of<'r>(block: &Value, named: &Named<'r>) -> Option<&'r Tool> {
    named.told(text(block, "name")?)
}

/// Takes one message of the assistant apart. Gives back the results at its end, which wait for the next message.
fn turns(
    blocks: Vec<Value>,
    message: &Map<String, Value>,
    made: &mut Vec<Value>,
    (roster, named, ours): (&Roster, &Named<'_>, &Ours),
    memory: &dyn Memory,
) -> Vec<Value> {
    let mut said: Vec<Value> = Vec::new();
    let mut results: Vec<Value> = Vec::new();
    // Results that stand in the message, by the id of their call.
    let told: HashMap<String, Value> = blocks.iter().rev().filter_map(result_of).collect();
    for block in blocks {
        if let Some(of) = text(&block, "tool_use_id").filter(|_| is_result(&block))
            && ours.0.contains(of)
        {
            // It has been put behind its call already; what follows it is the next turn.
            flush(&mut said, &mut results, message, made);
            continue;
        }
        // A call whose result is not shown ends its turn where something else than a call follows.
        let is_ours = ours.holds(&block);
        if !results.is_empty() && !is_ours && !is(&block, "tool_use") {
            flush(&mut said, &mut results, message, made);
        }
        if !is_ours {
            said.push(block);
            continue;
        }
        let (Some(of), Some(tool)) = (id(&block, "id"), tool_of(&block, named)) else { continue };
        let input = block.get("input").cloned().unwrap_or_else(|| json!({}));
        let shown = told.get(&of);
        // Of several advisors it is the one that the result names.
        let advised = shown.and_then(|content| content.get("name")?.as_str()).filter(|_| is_advice(tool));
        let tool = advised.and_then(|name| roster.advisor(name)).unwrap_or(tool);
        // A block of advice does not hold all that the model read.
        let exact = memory.result(&of).filter(|_| is_advice(tool)).map(|text| (text, false));
        let shown = exact.or_else(|| shown.map(|content| retold(&tool.kind, &input, content, memory)));
        // What nobody remembers is left out, call and all.
        let Some((text, is_error)) = shown.or_else(|| Some((memory.result(&of)?, false))) else { continue };
        let upstream = upstream_id(&of);
        said.push(json!({"type": "tool_use", "id": upstream, "name": tool.function, "input": input}));
        let mut result = json!({"type": "tool_result", "tool_use_id": upstream, "content": text});
        if is_error {
            result["is_error"] = json!(true);
        }
        results.push(result);
    }
    if results.is_empty() {
        if !said.is_empty() {
            made.push(spoken(said, message));
        }
        return Vec::new();
    }
    made.push(spoken(said, message));
    results
}

/// Ends a turn: what was said, and what came back.
fn flush(said: &mut Vec<Value>, results: &mut Vec<Value>, message: &Map<String, Value>, made: &mut Vec<Value>) {
    if results.is_empty() {
        return;
    }
    made.push(spoken(std::mem::take(said), message));
    made.push(json!({"role": "user", "content": std::mem::take(results)}));
}

fn spoken(said: Vec<Value>, message: &Map<String, Value>) -> Value {
    let mut message = message.clone();
    message.insert("content".into(), Value::Array(said));
    Value::Object(message)
}

pub(super) fn id(block: &Value, name: &str) -> Option<String> {
    text(block, name).map(str::to_owned)
}

pub(super) fn text<'b>(block: &'b Value, name: &str) -> Option<&'b str> {
    block.get(name).and_then(Value::as_str)
}

/// What the model read of a result that the client was shown, and whether it was an error.
fn retold(kind: &Kind, input: &Value, content: &Value, memory: &dyn Memory) -> (String, bool) {
    match kind {
        Kind::WebFetch(_) => fetch::told(input.get("url").and_then(Value::as_str).unwrap_or_default(), content),
        Kind::WebSearch(_) => search::retold(content, memory),
        Kind::ToolSearch(_) => find::told(content),
        Kind::Advisor(_) => advisor::told(content),
        Kind::Sandbox(_) => sandbox::told(content),
        Kind::Datetime { .. }
        | Kind::SearchModels { .. }
        | Kind::Subagent(_)
        | Kind::Fusion(_)
        | Kind::Image(_)
        | Kind::Files
        | Kind::Remote(_) => (shown_text(content), false),
    }
}

/// The id and the content of a result block.
fn result_of(block: &Value) -> Option<(String, Value)> {
    let content = block.get("content").filter(|_| is_result(block))?;
    Some((id(block, "tool_use_id")?, content.clone()))
}

fn is_result(block: &Value) -> bool {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
    kind.ends_with("_tool_result") && kind != "tool_result" && block.get("content").is_some()
}

/// A user's message with results in front of what it holds.
fn joined(mut results: Vec<Value>, message: Value) -> Value {
    let Value::Object(mut message) = message else { return message };
    match message.remove("content") {
        Some(Value::Array(blocks)) => results.extend(blocks),
        Some(Value::String(text)) => results.push(json!({"type": "text", "text": text})),
        _ => {}
    }
    message.insert("content".into(), Value::Array(results));
    Value::Object(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Settings;

    struct Known;

    impl Memory for Known {
        fn result(&self, id: &str) -> Option<String> {
            id.starts_with("srvtoolu_known").then(|| format!("result of {id}"))
        }
    }

    fn run(messages: Value) -> Value {
        let settings = Settings::default();
        let tools = json!([{"type": "tidegate:datetime"}]);
        let roster = Roster::of(tools.as_array().unwrap(), &settings, false).unwrap();
        let brand = Brand { name: "tidegate", aliases: &[] };
        Value::Array(rebuilt(messages.as_array().unwrap().clone(), &roster, brand, &Known, Foreign::Rebuilt))
    }

    fn server(id: &str) -> Value {
        json!({"type": "server_tool_use", "id": format!("srvtoolu_{id}"), "name": "tidegate:datetime", "input": {"a": 1}})
    }

    fn call(id: &str) -> Value {
        json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": "tidegate_datetime", "input": {"a": 1}})
    }

    fn result(id: &str) -> Value {
        json!({"type": "tool_result", "tool_use_id": format!("toolu_{id}"), "content": format!("result of srvtoolu_{id}")})
    }

    fn words(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    fn user(content: Value) -> Value {
        json!({"role": "user", "content": content})
    }

    fn model(content: Value) -> Value {
        json!({"role": "assistant", "content": content})
    }

    #[test]
    fn turns_are_what_they_were() {
        let given = json!([
            user(json!("hi")),
            model(json!([
                words("let me see"),
                server("known1"),
                server("known2"),
                words("then"),
                server("known3"),
                words("so")
            ])),
            user(json!("and?")),
        ]);
        let wanted = json!([
            user(json!("hi")),
            model(json!([words("let me see"), call("known1"), call("known2")])),
            user(json!([result("known1"), result("known2")])),
            model(json!([words("then"), call("known3")])),
            user(json!([result("known3")])),
            model(json!([words("so")])),
            user(json!("and?")),
        ]);
        assert_eq!(run(given), wanted);
    }

    #[test]
    fn a_mixed_turn_is_one_turn_with_the_clients_own_results() {
        let own = json!({"type": "tool_use", "id": "t9", "name": "get_price", "input": {}});
        let answer = json!({"type": "tool_result", "tool_use_id": "t9", "content": "9"});
        let given = json!([user(json!("hi")), model(json!([server("known1"), own])), user(json!([answer]))]);
        let wanted =
            json!([user(json!("hi")), model(json!([call("known1"), own])), user(json!([result("known1"), answer]))]);
        assert_eq!(run(given), wanted);
    }

    #[test]
    fn what_nobody_remembers_is_left_out_and_what_is_not_ours_stays() {
        let foreign = json!({"type": "server_tool_use", "id": "srvtoolu_x", "name": "code_execution", "input": {}});
        let given = json!([
            user(json!("hi")),
            model(json!([words("a"), server("lost"), words("b"), foreign])),
            user(json!("c"))
        ]);
        let wanted = json!([user(json!("hi")), model(json!([words("a"), words("b"), foreign])), user(json!("c"))]);
        assert_eq!(run(given), wanted);
        let plain = json!([user(json!("hi")), model(json!("text")), user(json!("c"))]);
        assert_eq!(run(plain.clone()), plain);
    }

    #[test]
    fn only_what_is_not_known_is_sought() {
        let settings = Settings::default();
        let tools = json!([{"type": "tidegate:datetime"}]);
        let roster = Roster::of(tools.as_array().unwrap(), &settings, false).unwrap();
        let brand = Brand { name: "tidegate", aliases: &[] };
        let foreign = json!({"type": "server_tool_use", "id": "srvtoolu_x", "name": "code_execution", "input": {}});
        let shown = json!({"type": "tidegate_tool_result", "tool_use_id": "srvtoolu_shown", "content": {}});
        let blocks = json!([server("known1"), server("lost"), server("lost"), server("shown"), shown, foreign]);
        let messages = [user(json!([server("users")])), model(blocks), model(json!("text"))];
        assert_eq!(sought(&messages, &roster, brand, &Known), ["srvtoolu_lost"]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
    fn a_message_may_hold_very_many_calls() {
        let settings = Settings::default();
        let tools = json!([{"type": "tidegate:datetime"}]);
        let roster = Roster::of(tools.as_array().unwrap(), &settings, false).unwrap();
        let brand = Brand { name: "tidegate", aliases: &[] };
        const MANY: usize = 40_000;
        let mut blocks: Vec<Value> = (0..MANY).map(|number| server(&format!("lost{number}"))).collect();
        let ids: Vec<Value> = blocks.iter().map(|block| block["id"].clone()).collect();
        let began = std::time::Instant::now();
        assert_eq!(sought(&[model(json!(blocks))], &roster, brand, &Known).len(), MANY);
        blocks.extend(ids.iter().map(|id| json!({"type": "tidegate_tool_result", "tool_use_id": id, "content": "x"})));
        let made = rebuilt(vec![model(json!(blocks))], &roster, brand, &Known, Foreign::Kept);
        assert_eq!(made[1]["content"].as_array().unwrap().len(), MANY);
        // Each is looked up once; looking through all of them for each takes minutes.
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }

    #[test]
    fn ids_keep_what_the_model_called_a_call() {
        assert_eq!(client_id("toolu_01AbCdEfGh"), "srvtoolu_01AbCdEfGh");
        let made = client_id("call 1");
        assert_eq!((made.len(), made.starts_with("srvtoolu_")), (33, true));
        assert_eq!(upstream_id("srvtoolu_01AbCdEfGh"), "toolu_01AbCdEfGh");
    }
}
