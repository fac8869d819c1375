//! The tools of a request as functions, which is all that other protocols know.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;
use tidegate_wire::messages::{CacheControl, Request, Tool};
use tidegate_wire::object::Other;

use super::card::Card;
use super::conversation::{Conversation, Mark};
use super::schema::Strict;
use super::tools::upstream_name;
use super::{MODEL, Unsupported, schema};

/// A tool as a function.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// As the upstream knows it.
    pub name: String,
    pub description: Option<Cow<'a, str>>,
    /// The schema of its input: always of an object.
    pub schema: String,
    /// The client wants it followed to the letter, the upstream knows the word, and the schema allows it.
    pub strict: bool,
    pub mark: Mark,
}

impl Function<'_> {
    pub fn raw_schema(&self) -> Box<RawValue> {
        RawValue::from_string(self.schema.clone()).expect("a schema was read as JSON")
    }
}

/// All tools, and the client's names by ours where they differ.
#[derive(Clone, Debug, Default)]
pub struct Functions<'a> {
    pub list: Vec<Function<'a>>,
    pub originals: HashMap<String, String>,
}

impl<'a> Functions<'a> {
    pub fn of(request: &'a Request, card: &Card, conversation: &mut Conversation) -> Result<Self, Unsupported> {
        let mut made = Self::default();
        for (place, tool) in request.tools.iter().flatten().enumerate() {
            let function = function(tool, place, card, conversation)?;
            if let Some(original) = name_of(tool).filter(|original| *original != function.name) {
                made.originals.insert(function.name.clone(), original.into_owned());
            }
            made.list.push(function);
        }
        // A name in the history is shortened as well, also when the tool is offered no more.
        for name in conversation.called_names() {
            let sent = upstream_name(name, card.name_rule);
            if sent != name {
                made.originals.insert(sent.into_owned(), name.to_owned());
            }
        }
        Ok(made)
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

fn function<'a>(
    tool: &'a Tool,
    place: usize,
    card: &Card,
    conversation: &mut Conversation,
) -> Result<Function<'a>, Unsupported> {
    let known = |name: &str, description: &'static str, schema: &str, mark: Mark| Function {
        name: upstream_name(name, card.name_rule).into_owned(),
        description: Some(Cow::Borrowed(description)),
        schema: schema.to_owned(),
        strict: false,
        mark,
    };
    Ok(match tool {
        Tool::Custom(tool) => {
            let text = schema::of_tool(tool.input_schema.get()).into_owned();
            let value = serde_json::from_str(&text)
                .map_err(|_| Unsupported::new(format!("tools[{place}].input_schema"), "must be a JSON Schema"))?;
            let wanted = tool.strict.unwrap_or(false);
            let (strict, told) = match () {
                () if !wanted || !card.strict => (false, None),
                () if card.claude => match schema::claude_strict(&text) {
                    Strict::AsItIs => (true, None),
                    Strict::Told(told) => (true, Some(told)),
                    Strict::Hint => (false, None),
                },
                () => (schema::is_strict(&value), None),
            };
            if wanted && !strict {
                conversation.warn("dropped:strict");
            }
            if told.is_some() {
                conversation.warn("changed:tools.input_schema");
            }
            Function {
                name: upstream_name(&tool.name, card.name_rule).into_owned(),
                description: tool.description.as_deref().filter(|text| !text.is_empty()).map(Cow::Borrowed),
                schema: told.unwrap_or(text),
                strict,
                mark: Mark::of(tool.cache_control.as_ref()),
            }
        }
        Tool::Bash(tool) => known(&tool.name, "Run a shell command", BASH, Mark::of(tool.cache_control.as_ref())),
        Tool::TextEditor(tool) => {
            known(&tool.name, "View and edit files", EDITOR, Mark::of(tool.cache_control.as_ref()))
        }
        Tool::Other(tool) if tool.kind == "memory_20250818" => {
            known("memory", "Keep notes in files", MEMORY, mark_of(tool))
        }
        Tool::Other(tool) if tool.kind.starts_with("text_editor_") => {
            let name = name(tool).unwrap_or_else(|| "str_replace_based_edit_tool".to_owned());
            // Only the oldest editors could undo.
            let can_undo = matches!(tool.kind.as_str(), "text_editor_20241022" | "text_editor_20250124");
            let schema = if can_undo { Cow::Borrowed(EDITOR) } else { Cow::Owned(EDITOR.replace(UNDO, "")) };
            known(&name, "View and edit files", &schema, mark_of(tool))
        }
        other => {
            let path = format!("tools[{place}].type '{}'", other.kind());
            return Err(Unsupported::new(path, format!("is not supported by any endpoint of {MODEL}")));
        }
    })
}

/// The client's name of a tool.
pub(super) fn name_of(tool: &Tool) -> Option<Cow<'_, str>> {
    match tool {
        Tool::Custom(tool) => Some(Cow::Borrowed(&tool.name)),
        Tool::Bash(tool) => Some(Cow::Borrowed(&tool.name)),
        Tool::TextEditor(tool) => Some(Cow::Borrowed(&tool.name)),
        Tool::WebSearch(tool) => Some(Cow::Borrowed(&tool.name)),
        Tool::Advisor(tool) => Some(Cow::Borrowed(&tool.name)),
        Tool::ToolSearch(tool) => Some(Cow::Borrowed(&tool.name)),
        Tool::Other(tool) => name(tool).map(Cow::Owned),
    }
}

fn name(tool: &Other) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    tool.raw.parse::<Named>().ok().map(|named| named.name)
}

fn mark_of(tool: &Other) -> Mark {
    #[derive(serde::Deserialize)]
    struct Marked {
        cache_control: Option<CacheControl>,
    }
    Mark::of(tool.raw.parse::<Marked>().ok().and_then(|marked| marked.cache_control).as_ref())
}

const UNDO: &str = r#","undo_edit""#;
const BASH: &str = r#"{"type":"object","properties":{"command":{"type":"string"},"restart":{"type":"boolean"}}}"#;
const EDITOR: &str = r#"{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","undo_edit"]},"path":{"type":"string"},"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},"view_range":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2}},"required":["command","path"]}"#;
const MEMORY: &str = r#"{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},"path":{"type":"string"},"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},"old_path":{"type":"string"},"new_path":{"type":"string"},"view_range":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2}},"required":["command"]}"#;
