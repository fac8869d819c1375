//! The items of an answer: what was thought, said and called, each with an id of its own.

use serde_json::value::RawValue;

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

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub id: String,
    pub name: String,
    pub arguments: String,
    /// It takes a text and no object.
    pub is_custom: bool,
}

impl Call {
    pub fn new(id: &str, name: &str, arguments: &str, form: &Form) -> Self {
        let is_custom = form.custom.iter().any(|custom| custom == name);
        Self { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned(), is_custom }
    }

    /// What it is called with: the text, or the object as a text.
    pub fn input(&self) -> String {
        match self.is_custom {
            true => custom::text_of(&self.arguments),
            // One without any is called with none.
            false if self.arguments.is_empty() => "{}".to_owned(),
            false => self.arguments.clone(),
        }
    }

    /// Whether it was cut short.
    pub fn status(&self) -> &'static str {
        let is_whole = self.arguments.is_empty() || serde_json::from_str::<&RawValue>(&self.arguments).is_ok();
        if is_whole { "completed" } else { "incomplete" }
    }

    pub fn item(&self, id: &str, status: &str, input: &str) -> String {
        let (call, name, input) = (quoted(&self.id), quoted(&self.name), quoted(input));
        match self.is_custom {
            true => format!(
                r#"{{"type":"custom_tool_call","id":"{id}","call_id":{call},"name":{name},"input":{input},"status":"{status}"}}"#
            ),
            false => format!(
                r#"{{"type":"function_call","id":"{id}","call_id":{call},"name":{name},"arguments":{input},"status":"{status}"}}"#
            ),
        }
    }
}

/// The id of an item of an answer, by its place.
pub(super) fn id(prefix: &str, answer: &str, place: usize) -> String {
    let answer = answer.strip_prefix("gen-").unwrap_or(answer);
    format!("{prefix}_{answer}_{place}")
}
