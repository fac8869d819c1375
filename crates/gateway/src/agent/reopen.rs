//! Results of earlier calls that come back in a request that has no such tool. Searches that we sealed and commands are told
//! as text, to whoever serves; calls whose names no vendor knows as calls of a function, or as text where the request has no
//! tools at all: a vendor may refuse calls then. What others sealed stays as it is.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use tidegate_wire::envelope::Brand;

use super::replay::{self, Memory, generics, text, upstream_id};
use super::sandbox;
use super::search::{self, SEALED};
use super::turn::is;

/// What a request is told again with.
pub(super) struct Terms<'a> {
    pub brand: Brand<'a>,
    /// Whether it has a tool, by the name behind the brand or by that of its calls.
    pub has: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether it has any tools.
    pub has_tools: bool,
}

/// A call of ours whose tool the request lacks.
struct Ours {
    id: String,
    tool: Cow<'static, str>,
    is_named_by_us: bool,
}

/// The ids of calls whose results may have to be remembered.
pub(super) fn sought(messages: &[Value], terms: &Terms<'_>) -> Vec<String> {
    let of_assistant = messages.iter().filter(|message| is_assistants(message));
    let named = of_assistant.flat_map(|message| ours(message, terms)).filter(|call| call.is_named_by_us);
    named.map(|call| call.id).collect()
}

fn is_assistants(message: &Value) -> bool {
    message.get("role").and_then(Value::as_str) == Some("assistant")
}

/// The messages with every such call as what was said and heard.
pub(super) fn retold(messages: Vec<Value>, memory: &dyn Memory, terms: &Terms<'_>) -> Vec<Value> {
    let mut made: Vec<Value> = Vec::with_capacity(messages.len());
    let mut heard: Vec<Value> = Vec::new();
    let generics = generics(terms.brand);
    let is_generic = |block: &Value| generics.iter().any(|kind| is(block, kind));
    for message in messages {
        let is_users = message.get("role").and_then(Value::as_str) == Some("user");
        if is_users && !heard.is_empty() {
            match message.get("content") {
                Some(Value::String(text)) => heard.push(json!({"type": "text", "text": text})),
                Some(Value::Array(blocks)) => heard.extend(blocks.iter().cloned()),
                _ => {}
            }
            made.push(told(&mut heard));
            continue;
        }
        let blocks = message.get("content").and_then(Value::as_array).filter(|_| is_assistants(&message));
        let ours = if blocks.is_some() { ours(&message, terms) } else { Vec::new() };
        let holds_generic = blocks.is_some_and(|blocks| blocks.iter().any(is_generic));
        if ours.is_empty() && !holds_generic {
            made.push(message);
            continue;
        }
        let blocks = blocks.cloned().unwrap_or_default();
        // Looked up, not looked for: a message may hold very many calls. Of several the first counts.
        let known: HashMap<&str, &Ours> = ours.iter().rev().map(|call| (call.id.as_str(), call)).collect();
        let shown: HashMap<&str, &Value> =
            blocks.iter().rev().filter(|block| is_generic(block)).filter_map(of_call).collect();
        let calls = blocks.iter().filter(|block| is(block, "server_tool_use"));
        let calls: HashSet<&str> = calls.filter_map(|call| text(call, "id")).collect();
        // Whether a result belongs to a call of the message that stays as it is.
        let belongs = |result: &Value| {
            text(result, "tool_use_id").is_some_and(|of| calls.contains(of) && !known.contains_key(of))
        };
        let mut said: Vec<Value> = Vec::new();
        for block in &blocks {
            let of = |name: &str| text(block, name).and_then(|id| known.get(id));
            if let Some(call) = of("id").filter(|_| is(block, "server_tool_use")) {
                let input = block.get("input").cloned().unwrap_or_else(|| json!({}));
                if call.is_named_by_us {
                    // What nobody remembers is left out, call and all.
                    let shown =
                        shown.get(call.id.as_str()).and_then(|block| block.get("content")).map(replay::shown_text);
                    let Some(text) = shown.or_else(|| memory.result(&call.id)) else { continue };
                    let (call, result) = call.told(&input, text, terms.has_tools);
                    said.push(call);
                    heard.push(result);
                } else {
                    said.push(json!({"type": "text", "text": format!("[{} {input}]", call.tool)}));
                }
            } else if let Some(call) = of("tool_use_id").filter(|call| !call.is_named_by_us) {
                let content = block.get("content").cloned().unwrap_or_default();
                let text = match &*call.tool {
                    search::NAME => search::retold(&content, memory).0,
                    _ => sandbox::told(&content).0,
                };
                heard.push(json!({"type": "text", "text": text}));
            } else if is_generic(block) && !belongs(block) {
                // It stands behind its call, or has none.
            } else {
                // A call of the client's own belongs to the same turn.
                if !heard.is_empty() && !is(block, "tool_use") {
                    if !said.is_empty() {
                        made.push(json!({"role": "assistant", "content": std::mem::take(&mut said)}));
                    }
                    made.push(told(&mut heard));
                }
                said.push(block.clone());
            }
        }
        if !said.is_empty() {
            made.push(json!({"role": "assistant", "content": said}));
        }
    }
    if !heard.is_empty() {
        made.push(told(&mut heard));
    }
    made
}

/// What was heard, as a message: results come before all else.
fn told(heard: &mut Vec<Value>) -> Value {
    let mut heard = std::mem::take(heard);
    heard.sort_by_key(|block| !is(block, "tool_result"));
    json!({"role": "user", "content": heard})
}

/// A result by the id of its call.
fn of_call(block: &Value) -> Option<(&str, &Value)> {
    Some((text(block, "tool_use_id")?, block))
}

impl Ours {
    /// The call and its result.
    fn told(&self, input: &Value, text: String, has_tools: bool) -> (Value, Value) {
        if !has_tools {
            let call = json!({"type": "text", "text": format!("[{} {input}]", self.tool)});
            return (call, json!({"type": "text", "text": text}));
        }
        let plain = |byte: char| if byte.is_ascii_alphanumeric() || byte == '-' { byte } else { '_' };
        let mut name: String = self.tool.chars().map(plain).collect();
        name.truncate(64);
        let id = upstream_id(&self.id);
        let call = json!({"type": "tool_use", "id": id, "name": name, "input": input});
        (call, json!({"type": "tool_result", "tool_use_id": id, "content": text}))
    }
}

/// The calls that only we can tell of, and whose tools the request lacks.
fn ours(message: &Value, terms: &Terms<'_>) -> Vec<Ours> {
    let blocks = message.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let tool_of = |block: &Value| {
        let results = block.get("content").and_then(Value::as_array).into_iter().flatten();
        let mut sealed = results.filter_map(|result| result.get("encrypted_content")?.as_str());
        if is(block, search::BLOCK) {
            return sealed.any(|sealed| sealed.starts_with(SEALED)).then_some(search::NAME);
        }
        sandbox::shown_by(block.get("type")?.as_str()?)
    };
    let shown = |block: &Value| {
        let tool = tool_of(block).filter(|tool| !(terms.has)(tool))?;
        Some(Ours { id: text(block, "tool_use_id")?.to_owned(), tool: tool.into(), is_named_by_us: false })
    };
    let mut ours: Vec<Ours> = blocks.iter().filter_map(shown).collect();
    let with_block: HashSet<&str> =
        blocks.iter().filter(|block| tool_of(block).is_some()).filter_map(|block| text(block, "tool_use_id")).collect();
    for block in blocks.iter().filter(|block| is(block, "server_tool_use")) {
        let (Some(id), Some(name)) = (text(block, "id"), text(block, "name")) else { continue };
        let bare = terms.brand.tool(name);
        let is_ours = bare.is_some() || name.starts_with("mcp__");
        let is_there = (terms.has)(bare.unwrap_or(name)) || (terms.has)(name);
        if is_ours && !is_there && !with_block.contains(id) {
            ours.push(Ours { id: id.to_owned(), tool: name.to_owned().into(), is_named_by_us: true });
        }
    }
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Open;

    impl Memory for Open {
        fn result(&self, id: &str) -> Option<String> {
            (id == "srvtoolu_known").then(|| "noon".to_owned())
        }

        fn opened(&self, blob: &str) -> Option<Vec<u8>> {
            let kept = json!({"url": "https://a.example/", "title": "A", "content": "Six.", "published_at": null,
                "engine": "e", "retrieved_at": "2026-08-24T10:30:00.000+00:00"});
            (blob == "tg1.x").then(|| kept.to_string().into_bytes())
        }
    }

    fn again(messages: Vec<Value>, has: impl Fn(&str) -> bool + Sync, has_tools: bool) -> Vec<Value> {
        let brand = Brand { name: "tidegate", aliases: &[] };
        retold(messages, &Open, &Terms { brand, has: &has, has_tools })
    }

    fn searched(id: &str, sealed: &str) -> [Value; 2] {
        [
            json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}),
            json!({"type": "web_search_tool_result", "tool_use_id": id, "content": [
                {"type": "web_search_result", "url": "https://a.example/", "title": "A", "encrypted_content": sealed}]}),
        ]
    }

    #[test]
    fn our_searches_are_told_and_those_of_others_stay() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let ([call, result], [other, others]) = (searched("1", "tg1.x"), searched("2", "Eqg="));
        let given = vec![
            json!({"role": "user", "content": "hi"}),
            json!({"role": "assistant", "content": [text("a"), call, result, text("b"), other, others]}),
            json!({"role": "user", "content": "and?"}),
        ];
        let made = again(given.clone(), |_| false, false);
        assert_eq!(made.len(), 5, "{made:?}");
        assert_eq!((&made[0], &made[4]), (&given[0], &given[2]));
        assert_eq!(made[1]["content"], json!([text("a"), text("[web_search {\"query\":\"q\"}]")]));
        assert_eq!(made[2]["role"], "user");
        let told = made[2]["content"][0]["text"].as_str().unwrap();
        assert!(told.contains("Six.") && told.contains("https://a.example/"), "{told}");
        assert_eq!(made[3]["content"], json!([text("b"), other, others]));

        // At the end of a message the results come before what the user says next.
        let [call, result] = searched("1", "tg1.x");
        let given =
            vec![json!({"role": "assistant", "content": [call, result]}), json!({"role": "user", "content": "and?"})];
        let made = again(given, |_| false, false);
        assert_eq!((made.len(), &made[1]["content"][1]), (2, &text("and?")));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
    fn a_message_may_hold_very_many_calls() {
        const MANY: usize = 40_000;
        let call = |id: &str| json!({"type": "server_tool_use", "id": id, "name": "tidegate:datetime", "input": {}});
        let shown = |id: &str| json!({"type": "tidegate_tool_result", "tool_use_id": id, "content": "six"});
        let ids: Vec<String> = (0..MANY).map(|number| format!("srvtoolu_{number}")).collect();
        let blocks: Vec<Value> = ids.iter().map(|id| call(id)).chain(ids.iter().map(|id| shown(id))).collect();
        let began = std::time::Instant::now();
        let made = again(vec![json!({"role": "assistant", "content": blocks})], |_| false, true);
        assert_eq!(made[1]["content"].as_array().unwrap().len(), MANY);
        // Each is looked up once; looking through all of them for each takes minutes.
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }

    #[test]
    fn commands_are_told_where_the_request_has_no_such_tool() {
        let call = json!({"type": "server_tool_use", "id": "1", "name": "tidegate:bash", "input": {"command": "ls"}});
        let content =
            json!({"type": "tidegate_bash_result", "command": "ls", "stdout": "a", "stderr": "", "exit_code": 0});
        let result = json!({"type": "tidegate_bash_tool_result", "tool_use_id": "1", "content": content});
        let given = vec![json!({"role": "assistant", "content": [call, result]})];
        assert_eq!(again(given.clone(), |tool| tool == "bash", false), given);
        let made = again(given, |tool| tool == "shell", false);
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        assert_eq!(made[0]["content"], text(r#"[bash {"command":"ls"}]"#));
        let told = r#"{"command":"ls","stdout":"a","stderr":"","exitCode":0}"#;
        assert_eq!((&made[1]["role"], &made[1]["content"]), (&json!("user"), &text(told)));
    }

    #[test]
    fn calls_whose_names_no_vendor_knows_are_calls_of_a_function_or_words() {
        let call =
            |id: &str| json!({"type": "server_tool_use", "id": id, "name": "tidegate:datetime", "input": {"a": 1}});
        let text = |text: &str| json!({"type": "text", "text": text});
        let shown = json!({"type": "tidegate_tool_result", "tool_use_id": "srvtoolu_shown", "name": "tidegate:datetime", "content": "six"});
        let own = json!({"type": "tool_use", "id": "t9", "name": "get_price", "input": {}});
        let answer = json!({"type": "tool_result", "tool_use_id": "t9", "content": "9"});
        let given = vec![
            json!({"role": "assistant", "content": [text("a"), call("srvtoolu_known"), own]}),
            json!({"role": "user", "content": [answer]}),
            json!({"role": "assistant", "content": [call("srvtoolu_lost"), call("srvtoolu_shown"), shown, text("b")]}),
        ];
        let used = |id: &str| json!({"type": "tool_use", "id": id, "name": "tidegate_datetime", "input": {"a": 1}});
        let result = |id: &str, text: &str| json!({"type": "tool_result", "tool_use_id": id, "content": text});
        let wanted = [
            json!({"role": "assistant", "content": [text("a"), used("toolu_known"), own]}),
            json!({"role": "user", "content": [result("toolu_known", "noon"), answer]}),
            json!({"role": "assistant", "content": [used("toolu_shown")]}),
            json!({"role": "user", "content": [result("toolu_shown", "six")]}),
            json!({"role": "assistant", "content": [text("b")]}),
        ];
        assert_eq!(again(given.clone(), |_| false, true), wanted);
        let made = again(given.clone(), |_| false, false);
        assert_eq!(made[0]["content"][1], text(r#"[tidegate:datetime {"a":1}]"#));
        assert_eq!(made[1]["content"], json!([answer, text("noon")]), "results come before words");
        assert_eq!(again(given.clone(), |tool| tool == "datetime", true), given, "the tool itself tells of them");
        let orphan = vec![json!({"role": "assistant", "content": [shown, text("b")]})];
        assert_eq!(again(orphan, |_| false, true)[0]["content"], json!([text("b")]));
        let remote = json!({"type": "server_tool_use", "id": "srvtoolu_known", "name": "mcp__notes__add", "input": {}});
        let made = again(vec![json!({"role": "assistant", "content": [remote]})], |_| false, true);
        assert_eq!(made[0]["content"][0]["name"], "mcp__notes__add");
        let brand = Brand { name: "tidegate", aliases: &[] };
        let terms = Terms { brand, has: &|_| false, has_tools: true };
        assert_eq!(sought(&given, &terms), ["srvtoolu_known", "srvtoolu_lost", "srvtoolu_shown"]);
    }
}
