//! The conversation as the Responses protocol takes it: a list of items.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::PROTOCOL;
use crate::translate::body::compact;
use crate::translate::card::Cache;
use crate::translate::carrier::Carrier;
use crate::translate::conversation::{Conversation, Mark, Media, Outcome, Part, Said, Text, Turn, image_type};
use crate::translate::marks::MOST_MARKS;
use crate::translate::results::{self, Shown};
use crate::translate::tools::{upstream_id, upstream_name};
use crate::translate::{Target, Unsupported};

const MARKER: &str = "prompt_cache_breakpoint";

/// The list `input`, item by item.
pub(super) struct Input<'a> {
    target: &'a Target<'a>,
    pub items: Vec<Value>,
    /// A cache marker stood on something that cannot carry one; the next part that can gets it.
    pub waiting: bool,
    /// Ids of reasoning that was sent back: each goes once.
    replayed: HashSet<String>,
}

impl<'a> Input<'a> {
    /// `is_marked`: whether a cache marker stands on something before the input.
    pub fn new(target: &'a Target<'a>, is_marked: bool) -> Self {
        Self { target, items: Vec::new(), waiting: is_marked, replayed: HashSet::new() }
    }

    /// The instructions. Those with a cache marker are the first item instead: nothing else can carry the marker. And so are
    /// those beside a wish for JSON: the vendor wants that named in the input, and does not look for it anywhere else.
    pub fn system(&mut self, conversation: &Conversation, is_json: bool) -> Option<String> {
        if conversation.system.is_empty() {
            return None;
        }
        let has_marks = self.waiting || conversation.system.iter().any(|text| text.mark.is_set());
        if is_json || (has_marks && self.target.card.cache == Cache::Breakpoints) {
            let parts: Vec<Value> = conversation.system.iter().map(|text| self.text(text)).collect();
            self.message("developer", parts);
            return None;
        }
        let texts: Vec<&str> = conversation.system.iter().map(|text| text.text.as_str()).collect();
        Some(texts.join("\n\n"))
    }

    pub fn turns(&mut self, conversation: &Conversation) -> Result<(), Unsupported> {
        let mut hoisted: Vec<Part> = Vec::new();
        for turn in &conversation.turns {
            if !hoisted.is_empty() && !matches!(turn, Turn::User(_) | Turn::Results(_)) {
                let parts = self.parts(&std::mem::take(&mut hoisted))?;
                self.message("user", parts);
            }
            match turn {
                Turn::System(text) => {
                    let parts = vec![self.text(&Text::plain(text.as_str()))];
                    self.message("developer", parts);
                }
                Turn::User(parts) => {
                    let parts: Vec<Part> = parts.iter().cloned().chain(hoisted.drain(..)).collect();
                    let parts = self.parts(&parts)?;
                    self.message("user", parts);
                }
                Turn::Assistant(said) => self.assistant(said),
                Turn::Results(outcomes) => {
                    for outcome in outcomes {
                        self.result(outcome, &mut hoisted)?;
                    }
                }
            }
        }
        if !hoisted.is_empty() {
            let parts = self.parts(&hoisted)?;
            self.message("user", parts);
        }
        Ok(())
    }

    fn message(&mut self, role: &str, content: Vec<Value>) {
        self.items.push(json!({"type": "message", "role": role, "content": content}));
    }

    fn assistant(&mut self, said: &[Said]) {
        let card = self.target.card;
        // Reasoning goes right before what it led to; without that the API refuses it.
        let mut thought: Vec<Value> = Vec::new();
        let mut texts: Vec<Value> = Vec::new();
        for (place, piece) in said.iter().enumerate() {
            match piece {
                Said::Text(text) => {
                    self.items.append(&mut thought);
                    texts.push(json!({"type": "output_text", "text": text.text, "annotations": []}));
                    self.waiting |= text.mark.is_set();
                    if matches!(said.get(place + 1), Some(Said::Text(_))) {
                        continue;
                    }
                    let content = std::mem::take(&mut texts);
                    let mut message = json!({"type": "message", "role": "assistant", "content": content});
                    if card.phase {
                        let leads = said.iter().skip(place).any(|later| matches!(later, Said::Call { .. }));
                        message["phase"] = if leads { "commentary" } else { "final_answer" }.into();
                    }
                    self.items.push(message);
                }
                Said::Call { id, name, input, mark } => {
                    self.items.append(&mut thought);
                    let (id, name) = (upstream_id(id, card.id_rule), upstream_name(name, card.name_rule));
                    self.items.push(
                        json!({"type": "function_call", "call_id": id, "name": name, "arguments": compact(input)}),
                    );
                    self.waiting |= mark.is_set();
                }
                Said::Thinking { signature, .. } => thought.extend(self.replay(signature.as_deref())),
                Said::Redacted(_) => {}
            }
        }
    }

    /// Reasoning of this very upstream and family of models: a model that does not reason refuses the whole request for
    /// it. Its text is not repeated, and it must have no `content`.
    fn replay(&mut self, signature: Option<&str>) -> Option<Value> {
        #[derive(Deserialize)]
        struct Item {
            id: String,
            encrypted_content: String,
        }
        let carrier = signature.and_then(Carrier::read)?;
        let is_taken = self.target.card.signed_reasoning && carrier.fits(PROTOCOL, self.target);
        if !is_taken || carrier.kind != "openai_item" {
            return None;
        }
        let item: Item = serde_json::from_str(carrier.data.get()).ok()?;
        if !self.replayed.insert(item.id.clone()) {
            return None;
        }
        let (id, content) = (item.id, item.encrypted_content);
        Some(json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": content}))
    }

    fn result(&mut self, outcome: &Outcome, hoisted: &mut Vec<Part>) -> Result<(), Unsupported> {
        let card = self.target.card;
        let output = match results::shown(outcome, card.images_in_results, hoisted) {
            Shown::Text(text) => Value::from(text),
            Shown::Parts(parts) => {
                // A marker inside of a result goes to the next part of a message.
                let waiting = std::mem::take(&mut self.waiting);
                let parts: Vec<Part> = parts.into_iter().map(unmarked).collect();
                let parts = self.parts(&parts)?;
                self.waiting = waiting;
                Value::Array(parts)
            }
        };
        let id = upstream_id(&outcome.id, card.id_rule);
        self.items.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
        let inside = outcome.parts.iter().any(|part| match part {
            Part::Text(text) => text.mark.is_set(),
            Part::Image { mark, .. } | Part::Document { mark, .. } => mark.is_set(),
        });
        self.waiting |= outcome.mark.is_set() || (inside && hoisted.is_empty());
        Ok(())
    }

    fn text(&mut self, text: &Text) -> Value {
        self.marked(json!({"type": "input_text", "text": text.text}), text.mark)
    }

    fn marked(&mut self, mut part: Value, mark: Mark) -> Value {
        if self.target.card.cache == Cache::Breakpoints && (std::mem::take(&mut self.waiting) || mark.is_set()) {
            part[MARKER] = json!({"mode": "explicit"});
        }
        part
    }

    fn parts(&mut self, parts: &[Part]) -> Result<Vec<Value>, Unsupported> {
        let card = self.target.card;
        let mut documents = 0;
        let mut made = Vec::with_capacity(parts.len());
        for part in parts {
            let (part, mark) = match part {
                Part::Text(text) => (json!({"type": "input_text", "text": text.text}), text.mark),
                Part::Image { path, .. } if !card.images => {
                    return Err(Unsupported::new(path, "images are not supported by this model"));
                }
                Part::Image { source: Media::Url(_), path, .. } if !card.image_url => {
                    return Err(Unsupported::new(path, "images by URL are not supported by this model"));
                }
                Part::Image { source, mark, path } => {
                    let url = match source {
                        Media::Base64 { media_type, data } => {
                            format!("data:{};base64,{data}", image_type(media_type, data))
                        }
                        Media::Url(url) => url.clone(),
                        Media::Text(_) => return Err(Unsupported::new(path, "an image is not a text")),
                    };
                    (json!({"type": "input_image", "detail": "auto", "image_url": url}), *mark)
                }
                // A text that was not told apart from the others reads as one.
                Part::Document { source: Media::Text(text), mark, .. } => {
                    (json!({"type": "input_text", "text": text}), *mark)
                }
                Part::Document { path, .. } if !card.pdf => {
                    return Err(Unsupported::new(path, "documents are not supported by this model"));
                }
                Part::Document { source: Media::Url(_), path, .. } if !card.pdf_url => {
                    return Err(Unsupported::new(path, "documents by URL are not supported by this model"));
                }
                Part::Document { source: Media::Url(url), mark, .. } => {
                    (json!({"type": "input_file", "file_url": url}), *mark)
                }
                Part::Document { source: Media::Base64 { media_type, data }, title, mark, .. } => {
                    documents += 1;
                    let name = title.clone().unwrap_or_else(|| format!("document-{documents}"));
                    let name = if name.ends_with(".pdf") { name } else { format!("{name}.pdf") };
                    let data = format!("data:{media_type};base64,{data}");
                    (json!({"type": "input_file", "filename": name, "file_data": data}), *mark)
                }
            };
            made.push(self.marked(part, mark));
        }
        Ok(made)
    }

    /// Takes away all markers but the last few, and says how many are left.
    pub fn limit_markers(&mut self) -> usize {
        let contents = self.items.iter_mut().filter_map(|item| item.get_mut("content")?.as_array_mut());
        let mut marked: Vec<&mut Value> = contents.flatten().filter(|part| part.get(MARKER).is_some()).collect();
        let excess = marked.len().saturating_sub(MOST_MARKS);
        for part in marked.iter_mut().take(excess) {
            if let Some(members) = part.as_object_mut() {
                members.remove(MARKER);
            }
        }
        marked.len() - excess
    }
}

fn unmarked(mut part: Part) -> Part {
    match &mut part {
        Part::Text(text) => text.mark = Mark::None,
        Part::Image { mark, .. } | Part::Document { mark, .. } => *mark = Mark::None,
    }
    part
}
