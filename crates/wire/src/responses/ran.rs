//! Calls of tools that ran here or at a vendor, as items of an answer. An item holds the blocks of the Messages format that
//! it tells of, so that the next request can send them back: the model then sees what it has found, and nobody pays twice.

use serde_json::value::RawValue;

use crate::chat::request::Object;
use crate::envelope::Violation;
use crate::envelope::check::{self, Place};
use crate::json::{self, Members, quoted};
use crate::messages::{Block, ServerToolUse};

/// The member of an item with its blocks.
const BLOCKS: &str = "blocks";
/// Texts that items have in common with what tools are called with and with what they give.
const TEXTS: [&str; 16] = [
    "advice",
    "command",
    "datetime",
    "error",
    "file_id",
    "filename",
    "imageUrl",
    "model",
    "operation",
    "outcome",
    "prompt",
    "query",
    "task_description",
    "task_name",
    "timezone",
    "url",
];

/// What the model read of a call, by its id, where clients are not shown that.
pub type Results = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A call, and what came of it as far as clients are shown that.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub call: ServerToolUse,
    /// What it is called with, as it comes in pieces.
    pub pieces: String,
    /// A block, as JSON.
    pub result: Option<String>,
}

impl Ran {
    pub fn new(call: ServerToolUse) -> Self {
        Self { call, pieces: String::new(), result: None }
    }

    fn input(&self) -> &str {
        if self.pieces.is_empty() { self.call.input_text() } else { &self.pieces }
    }

    /// What it is called with, as JSON. One that was cut short is called with nothing.
    pub fn arguments(&self) -> &str {
        Some(self.input()).filter(|input| serde_json::from_str::<&RawValue>(input).is_ok()).unwrap_or("{}")
    }

    /// Its bytes, roughly.
    pub fn size(&self) -> usize {
        self.input().len() + self.result.as_ref().map_or(0, String::len)
    }

    pub fn item(&self, status: &str, brand: &str, results: &dyn Fn(&str) -> Option<String>) -> String {
        let name = self.call.name.as_str();
        let tool = match name {
            "web_search" | "web_fetch" | "advisor" => name,
            _ if name.starts_with("tool_search") => "tool_search",
            _ => name.split_once(':').map_or("mcp", |(_, tool)| tool),
        };
        let mut item = Object::default();
        item.set_text("type", &format!("{brand}:{tool}"));
        item.set_text("id", &self.call.id);
        item.set_text("status", status);
        let read = results(&self.call.id);
        let (input, read) = (members(self.input()), read.as_deref().map(members).unwrap_or_default());
        match tool {
            "web_search" => item.set("action", &self.searched(&input)),
            "mcp" => item.set_text("toolName", name),
            _ => {
                for name in TEXTS {
                    let texts =
                        [&read, &input].into_iter().find_map(|members| members.get(name).and_then(json::string));
                    match texts {
                        Some(text) => item.set_text(name, &text),
                        // Programs do not do without these.
                        None if tool == "datetime" && matches!(name, "datetime" | "timezone") => {
                            item.set_text(name, "")
                        }
                        None => {}
                    }
                }
            }
        }
        let blocks = [Some(self.block()), self.result.clone()];
        item.set(BLOCKS, &format!("[{}]", blocks.into_iter().flatten().collect::<Vec<_>>().join(",")));
        item.finish()
    }

    fn block(&self) -> String {
        let ServerToolUse { id, name, .. } = &self.call;
        call(&quoted(id), &quoted(name), self.arguments())
    }

    /// What was looked for, and where something was found.
    fn searched(&self, input: &Members<'_>) -> String {
        let query = input.get("query").and_then(json::string).unwrap_or_default();
        let found = self.result.as_deref().map(members).unwrap_or_default();
        let found = found.get("content").and_then(json::elements).unwrap_or_default();
        let urls = found.into_iter().filter_map(|page| Members::of(page)?.get("url").and_then(json::string));
        let sources: Vec<String> = urls.map(|url| format!(r#"{{"type":"url","url":{}}}"#, quoted(&url))).collect();
        format!(r#"{{"type":"search","query":{},"sources":[{}]}}"#, quoted(&query), sources.join(","))
    }
}

fn members(text: &str) -> Members<'_> {
    serde_json::from_str::<&RawValue>(text).ok().and_then(Members::of).unwrap_or_default()
}

/// The block of a call, of JSON.
pub(crate) fn call(id: &str, name: &str, input: &str) -> String {
    format!(r#"{{"type":"server_tool_use","id":{id},"name":{name},"input":{input}}}"#)
}

/// A block with what came of a call: the id of the call, and the block as JSON.
pub(crate) fn result(block: &Block) -> Option<(String, String)> {
    if !is_result(block.kind()) {
        return None;
    }
    let text = serde_json::to_string(block).ok()?.replace(['\n', '\r'], " ");
    let id = members(&text).get("tool_use_id").and_then(json::string)?.into_owned();
    Some((id, text))
}

/// A text that is such a block.
pub(crate) fn is_shown(text: &str) -> bool {
    members(text).get("type").and_then(json::string).is_some_and(|kind| is_result(&kind))
}

fn is_result(kind: &str) -> bool {
    kind.ends_with("_tool_result")
}

/// The blocks of an item that comes back; nothing where it has none.
pub(crate) fn blocks(place: &Place<'_>, item: &Members<'_>) -> Result<Option<Vec<String>>, Violation> {
    let Some(list) = check::present(item, BLOCKS) else { return Ok(None) };
    let place = place.member(BLOCKS);
    let mut blocks = Vec::new();
    for (index, entry) in check::entries(&place, list, 0, 2)?.into_iter().enumerate() {
        let place = place.entry(index);
        let members = check::members(&place, entry)?;
        let kind = check::text(&place.member("type"), check::required(&place, &members, "type")?)?;
        if kind != "server_tool_use" && !is_result(&kind) {
            return Err(place.member("type").is("must be server_tool_use or that of a result"));
        }
        blocks.push(entry.get().to_owned());
    }
    Ok(Some(blocks))
}
