//! `web`: one search before the first turn, whose results stand in front of the last user message. Where somebody who
//! could serve searches for itself, it is given the vendor's tool instead.

use serde_json::{Map, Value, json};
use tidegate_core::Money;
use tidegate_tools::datetime;
use tidegate_tools::search::Found;

use super::Prepared;
use super::options::Plugins;
use super::route::last_words;
use crate::agent::{self, Before, Search};
use crate::failure::Failure;
use crate::relay::Purse;
use crate::snapshot::Settings;
use crate::{Gateway, Snapshot, request};

/// Characters of the last user message that are searched for.
const QUERY: usize = 400;
/// What stands before the results where the request does not say it.
const PROMPT: &str = "Web results retrieved on {date} follow. Use them where they help, and cite each one you use as a \
                      Markdown link whose text is the site's domain.";
/// The vendor's tool.
const NATIVE: &str = "web_search_20250305";

/// Whether the name of a model asks for a search.
pub(super) fn is_online(name: &str) -> bool {
    name.split(':').skip(1).any(|variant| variant.trim() == "online")
}

/// Whether a request has a tool that searches the web, ours or a vendor's: then the model decides what is looked for. A
/// function of the client's own is none whatever its name, but stands in the way of a vendor's tool of that name.
pub(super) fn has_search(request: &Map<String, Value>, settings: &Settings, is_native: bool) -> bool {
    let is_search = |tool: &Value| {
        let text = |name: &str| tool.get(name).and_then(Value::as_str).unwrap_or_default();
        let kind = text("type");
        super::brand(settings).tool(kind) == Some("web_search")
            || kind.starts_with("web_search_20")
            || (is_native && text("name") == "web_search")
    };
    request.get("tools").and_then(Value::as_array).is_some_and(|tools| tools.iter().any(is_search))
}

/// A search that is to be made.
pub(super) enum Wanted {
    /// By whoever serves, with the tool that is to be added.
    Native(Value),
    Here {
        search: Search,
        prompt: String,
    },
}

/// What a request asks for, by its plugins or by the name of its model.
pub(super) fn wanted(plugins: &Plugins, name: &str, snapshot: &Snapshot) -> Result<Option<Wanted>, Failure> {
    let none = (Map::new(), 0);
    let (members, index) = match &plugins.web {
        Some(Some((members, index))) => (members, *index),
        None if is_online(name) => (&none.0, none.1),
        Some(None) | None => return Ok(None),
    };
    let wrong =
        |member: &str, problem: &str| Failure::invalid(format!("Invalid request: plugins[{index}].{member} {problem}"));
    // Whoever searches: what a vendor would ignore or refuse in its own words is told in ours.
    agent::check_search(members, index)?;
    let prompt = members.get("search_prompt").and_then(Value::as_str).unwrap_or(PROMPT);
    let engine = members.get("engine").and_then(Value::as_str);
    let is_native = agent::searches_natively(name, members, snapshot);
    match engine {
        Some("native") if !is_native => {
            Err(wrong("engine", &format!("is native, but nobody who serves {name} searches for itself: leave it out")))
        }
        Some("native") | None if is_native => Ok(Some(Wanted::Native(tool(members)))),
        _ => {
            let search = Search::of_plugin(members, index, &snapshot.settings)?;
            Ok(Some(Wanted::Here { search, prompt: prompt.to_owned() }))
        }
    }
}

/// The vendor's tool with what it knows of the plugin's members.
fn tool(members: &Map<String, Value>) -> Value {
    let mut tool = json!({"type": NATIVE, "name": "web_search"});
    let names = [
        ("max_uses", "max_uses"),
        ("include_domains", "allowed_domains"),
        ("exclude_domains", "blocked_domains"),
        ("user_location", "user_location"),
    ];
    for (ours, theirs) in names {
        if let Some(value) = members.get(ours).filter(|value| !value.is_null()) {
            tool[theirs] = value.clone();
        }
    }
    if let Some(Value::Object(place)) = tool.get_mut("user_location") {
        // The vendor does not do without it.
        place.insert("type".to_owned(), json!("approximate"));
    }
    tool
}

impl Wanted {
    /// Does it; whether the request was changed.
    pub async fn run(
        self,
        gate: &Gateway,
        purse: &Purse,
        request: &mut Map<String, Value>,
        made: &mut Prepared,
    ) -> Result<bool, Failure> {
        made.is_online = true;
        let entry = |engine: &str, results: Option<usize>, cost: Money| {
            let cost: serde_json::Number = serde_json::from_str(&cost.to_string()).unwrap_or_else(|_| 0.into());
            let data = json!({"engine": engine, "results": results, "native": results.is_none()});
            json!({"type": "plugin", "name": "web-search", "cost_usd": cost, "data": data}).to_string()
        };
        match self {
            Self::Native(tool) => {
                let Some(tools) = request::tools(request) else { return Ok(false) };
                tools.push(tool);
                made.told.entries.push(entry("native", None, Money::ZERO));
                Ok(true)
            }
            Self::Here { search, prompt } => {
                let words = last_words(request);
                let query: String = words.trim().chars().take(QUERY).collect();
                if query.is_empty() {
                    return Ok(false);
                }
                let aside = purse.hold("a web search", search.most()).await?;
                let engine = search.engine().to_owned();
                let Some(before) = Before::search(gate, purse.key(), search, &query).await else {
                    if let Some(aside) = aside {
                        aside.pay(gate, &engine, Money::ZERO).await;
                    }
                    made.warnings.push("dropped:plugins.web".to_owned());
                    return Ok(false);
                };
                if let Some(aside) = aside {
                    aside.pay(gate, &engine, before.fee()).await;
                }
                let now = datetime::told(gate.clock.now(), "UTC").unwrap_or_default();
                let date = now.split('T').next().unwrap_or_default();
                // The prompt alone would make results of what the user says.
                let has_found = !before.found.is_empty();
                if has_found {
                    insert(request, &told(&prompt.replace("{date}", date), &before.found));
                }
                let fee = before.fee();
                made.told.fee = made.told.fee.plus(fee);
                made.told.searches += 1;
                made.told.entries.push(entry(before.engine(), Some(before.found.len()), fee));
                made.searched = Some(before);
                Ok(has_found)
            }
        }
    }
}

fn told(prompt: &str, found: &[Found]) -> String {
    let mut text = prompt.to_owned();
    for (place, one) in found.iter().enumerate() {
        text.push_str(&format!("\n\n{}. {} — {}\n{}", place + 1, one.title, one.url, one.content.trim()));
    }
    text
}

/// Puts a text in front of what the last user message says; results of tools must stay first.
fn insert(request: &mut Map<String, Value>, text: &str) {
    let Some(Value::Array(messages)) = request.get_mut("messages") else { return };
    let is_user = |message: &&mut Value| message.get("role").and_then(Value::as_str) == Some("user");
    let Some(content) = messages.iter_mut().rev().find(is_user).and_then(|message| message.get_mut("content")) else {
        return;
    };
    let block = json!({"type": "text", "text": text});
    match content {
        Value::Array(blocks) => {
            let is_result = |block: &Value| block.get("type").and_then(Value::as_str) == Some("tool_result");
            let place = blocks.iter().rposition(is_result).map_or(0, |place| place + 1);
            blocks.insert(place, block);
        }
        said => *said = json!([block, {"type": "text", "text": said.take()}]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_before_what_was_said_and_behind_results_of_tools() {
        let of = |messages: Value| {
            let mut request = json!({"messages": messages}).as_object().unwrap().clone();
            insert(&mut request, "R");
            request["messages"].clone()
        };
        let result = json!({"type": "text", "text": "R"});
        let said = json!({"type": "text", "text": "hi"});
        assert_eq!(
            of(json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "so"}]))[0]["content"],
            json!([result, said])
        );
        let tool = json!({"type": "tool_result", "tool_use_id": "t"});
        assert_eq!(of(json!([{"role": "user", "content": [tool, said]}]))[0]["content"], json!([tool, result, said]));
    }

    #[test]
    fn a_search_among_the_tools_is_one_by_its_type() {
        let settings = Settings { brand: "acme".into(), brand_aliases: vec!["old".into()], ..Settings::default() };
        for (tools, here, native) in [
            (json!([{"type": "acme:web_search"}]), true, true),
            (json!([{"name": "f"}, {"type": "old:web_search", "parameters": {}}]), true, true),
            (json!([{"type": "web_search_20250305", "name": "web_search"}]), true, true),
            (json!([{"type": "web_search_20260209"}]), true, true),
            (json!([{"name": "web_search", "input_schema": {}}]), false, true),
            (json!([{"type": "acme:web_fetch"}, {"name": "search"}]), false, false),
            (Value::Null, false, false),
        ] {
            let request = json!({"tools": tools}).as_object().unwrap().clone();
            let found = [false, true].map(|is_native| has_search(&request, &settings, is_native));
            assert_eq!(found, [here, native], "{tools}");
        }
    }

    #[test]
    fn a_variant_asks_for_a_search_wherever_it_stands() {
        for (name, wanted) in
            [("a/m:online", true), ("a/m:free:online", true), ("a/online", false), ("a/m:onlines", false)]
        {
            assert_eq!(is_online(name), wanted, "{name}");
        }
    }
}
