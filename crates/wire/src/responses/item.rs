//! The items of an answer: what was thought, said and called, each with an id of its own.

use serde_json::value::RawValue;

use super::tools::FINDS;
use super::{Form, SEALED, SIGNED};
use crate::chat::cited::Place;
use crate::chat::custom;
use crate::json::quoted;
use crate::messages::WebSearchLocation;

/// What the model says, or has said: blocks of text in a row are one item.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    pub text: String,
    /// Characters of it.
    pub length: usize,
    /// The model declines with them.
    pub declines: bool,
    annotations: Vec<String>,
}

impl Words {
    pub fn new(declines: bool) -> Self {
        Self { declines, ..Self::default() }
    }

    pub fn add(&mut self, text: &str) {
        self.text.push_str(text);
        self.length += text.chars().count();
    }

    /// Notes a page that a passage of a block rests on, which has so many characters before it; what is new is given back.
    pub fn cite(&mut self, found: &WebSearchLocation, (start, end): Place, before: usize) -> Option<&str> {
        let (url, title) = (quoted(&found.url), quoted(found.title.as_deref().unwrap_or_default()));
        let (start, end) = (before + start, before + end);
        self.annotations.push(format!(
            r#"{{"type":"url_citation","start_index":{start},"end_index":{end},"url":{url},"title":{title}}}"#
        ));
        self.annotations.last().map(String::as_str)
    }

    pub fn annotations(&self) -> usize {
        self.annotations.len()
    }

    /// The part of the item that holds the text.
    pub fn part(&self) -> String {
        let (text, annotations) = (quoted(&self.text), self.annotations.join(","));
        if self.declines {
            return format!(r#"{{"type":"refusal","refusal":{text}}}"#);
        }
        format!(r#"{{"type":"output_text","text":{text},"annotations":[{annotations}],"logprobs":[]}}"#)
    }

    pub fn item(&self, id: &str, status: &str) -> String {
        message(id, status, &self.part())
    }
}

/// A message, with its parts or without.
pub(super) fn message(id: &str, status: &str, parts: &str) -> String {
    format!(r#"{{"type":"message","id":"{id}","status":"{status}","role":"assistant","content":[{parts}]}}"#)
}

/// A thought: its text, and what proves or is it, which goes back as it came.
#[derive(Clone, Debug, Default)]
pub(super) struct Thought {
    pub text: String,
    pub signature: String,
    pub sealed: Option<String>,
}

impl Thought {
    pub fn item(&self, id: &str) -> String {
        let summary = match self.text.is_empty() {
            true => String::new(),
            false => format!(r#"{{"type":"summary_text","text":{}}}"#, quoted(&self.text)),
        };
        let kept = match (&self.sealed, self.signature.is_empty()) {
            (Some(data), _) => quoted(&format!("{SEALED}{data}")),
            (None, false) => quoted(&format!("{SIGNED}{}", self.signature)),
            (None, true) => "null".to_owned(),
        };
        format!(r#"{{"type":"reasoning","id":"{id}","summary":[{summary}],"encrypted_content":{kept}}}"#)
    }
}

/// What a call is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    /// A tool that takes a text and no object.
    Custom,
    /// The client's own search for tools.
    Search,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub id: String,
    pub name: String,
    /// The group of the tool.
    group: Option<String>,
    pub arguments: String,
    pub kind: Kind,
}

impl Call {
    pub fn new(id: &str, name: &str, arguments: &str, form: &Form) -> Self {
        let kind = match name {
            FINDS if form.finds => Kind::Search,
            name if form.custom.iter().any(|custom| custom == name) => Kind::Custom,
            _ => Kind::Function,
        };
        let (group, name) = match form.grouped.iter().find(|tool| tool.called == name) {
            Some(tool) => (Some(tool.group.clone()), tool.name.clone()),
            None => (None, name.to_owned()),
        };
        Self { id: id.to_owned(), name, group, arguments: arguments.to_owned(), kind }
    }

    /// What it is called with: the text, or the object as a text.
    pub fn input(&self) -> String {
        match self.kind {
            Kind::Custom => custom::text_of(&self.arguments),
            // One without any is called with none.
            Kind::Function | Kind::Search if self.arguments.is_empty() => "{}".to_owned(),
            Kind::Function | Kind::Search => self.arguments.clone(),
        }
    }

    /// Whether what it is called with is told in pieces: a text is in the middle of an object, and told when that is whole.
    pub fn is_told_in_pieces(&self) -> bool {
        self.kind == Kind::Function
    }

    /// Whether it was cut short.
    pub fn status(&self) -> &'static str {
        if self.arguments.is_empty() || is_json(&self.arguments) { "completed" } else { "incomplete" }
    }

    /// What the ids of its items begin with.
    pub fn prefix(&self) -> &'static str {
        match self.kind {
            Kind::Function => "fc",
            Kind::Custom => "ctc",
            Kind::Search => "tsc",
        }
    }

    pub fn item(&self, id: &str, status: &str, input: &str) -> String {
        let (call, name) = (quoted(&self.id), quoted(&self.name));
        let group = self.group.as_deref().map(|group| format!(r#""namespace":{},"#, quoted(group))).unwrap_or_default();
        match self.kind {
            Kind::Custom => format!(
                r#"{{"type":"custom_tool_call","id":"{id}","call_id":{call},{group}"name":{name},"input":{},"status":"{status}"}}"#,
                quoted(input)
            ),
            Kind::Function => format!(
                r#"{{"type":"function_call","id":"{id}","call_id":{call},{group}"name":{name},"arguments":{},"status":"{status}"}}"#,
                quoted(input)
            ),
            Kind::Search => format!(
                r#"{{"type":"tool_search_call","id":"{id}","call_id":{call},"execution":"client","arguments":{},"status":"{status}"}}"#,
                if is_json(input) { input } else { "{}" }
            ),
        }
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// The id of an item of an answer, by its place.
pub(super) fn id(prefix: &str, answer: &str, place: usize) -> String {
    let answer = answer.strip_prefix("gen-").unwrap_or(answer);
    format!("{prefix}_{answer}_{place}")
}
