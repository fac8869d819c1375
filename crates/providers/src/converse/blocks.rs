//! The conversation as Converse's list of messages, with the places of its cache in between.

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tidegate_wire::object::Raw;

use super::documents::DocumentNames;
use super::request::cache_point;
use super::tools::raw;
use crate::translate::body::compact;
use crate::translate::card::{Card, Replay};
use crate::translate::carrier::is_ours;
use crate::translate::conversation::{
    BEGINNING, Conversation, Mark, Media, Outcome, Part, Said, Text, Turn, image_type,
};
use crate::translate::tools::{upstream_id, upstream_name};
use crate::translate::{Target, Unsupported};

const NOTHING: &str = "(no output)";
const SEE_DOCUMENT: &str = "(see document)";

type Blocks = Vec<Box<RawValue>>;

#[derive(Debug, Serialize)]
pub(super) struct Message {
    role: &'static str,
    content: Blocks,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolUse<'a> {
    tool_use: Call<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    tool_use_id: &'a str,
    name: &'a str,
    input: &'a Raw,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    tool_result: Returned<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Returned<'a> {
    tool_use_id: &'a str,
    content: Blocks,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

/// The system prompt: its texts and the places of its cache.
pub(super) fn system(texts: &[Text], card: &Card) -> Blocks {
    let mut blocks = Blocks::new();
    for text in texts {
        blocks.push(raw(&json!({"text": text.text})));
        blocks.extend(cache_point(text.mark, card).map(|point| raw(&point)));
    }
    blocks
}

/// The conversation on its way into a list.
pub(super) struct Messages<'a> {
    pub target: &'a Target<'a>,
    pub conversation: &'a Conversation,
    /// Calls and results are told as text: the request may not have tools.
    pub is_told: bool,
}

/// The blocks of one message in the making.
struct Content<'n> {
    blocks: Blocks,
    names: &'n mut DocumentNames,
    has_text: bool,
    has_document: bool,
}

impl Messages<'_> {
    pub fn list(&self) -> Result<Vec<Message>, Unsupported> {
        let card = self.target.card;
        let mut messages: Vec<Message> = Vec::with_capacity(self.conversation.turns.len());
        let mut names = DocumentNames::default();
        let last_words = self.conversation.last_words();
        let mut turns = self.conversation.turns.iter().enumerate().peekable();
        while let Some((place, turn)) = turns.next() {
            let message = match turn {
                Turn::System(text) => Message { role: "system", content: vec![raw(&json!({"text": text}))] },
                Turn::Assistant(said) => {
                    let replays = match card.replay {
                        Replay::Never => false,
                        Replay::ToolLoop => place > last_words,
                        Replay::Always => true,
                    };
                    Message { role: "assistant", content: self.said(said, replays) }
                }
                Turn::User(_) | Turn::Results(_) => {
                    let mut content =
                        Content { blocks: Blocks::new(), names: &mut names, has_text: false, has_document: false };
                    self.heard(turn, &mut content)?;
                    // Results and the words after them are one message.
                    while let Some((_, next)) =
                        turns.next_if(|(_, next)| matches!(next, Turn::User(_) | Turn::Results(_)))
                    {
                        self.heard(next, &mut content)?;
                    }
                    if content.has_document && !content.has_text {
                        content.blocks.push(raw(&json!({"text": SEE_DOCUMENT})));
                    }
                    Message { role: "user", content: content.blocks }
                }
            };
            if !message.content.is_empty() {
                append(&mut messages, message);
            }
        }
        // Instructions may come before the first words, but those are a person's.
        let first = messages.iter().position(|message| message.role != "system").unwrap_or(messages.len());
        if messages.get(first).is_none_or(|message| message.role == "assistant") {
            messages.insert(first, Message { role: "user", content: vec![raw(&json!({"text": BEGINNING}))] });
        }
        Ok(messages)
    }

    fn heard(&self, turn: &Turn, content: &mut Content<'_>) -> Result<(), Unsupported> {
        match turn {
            Turn::User(parts) => {
                for part in parts {
                    self.shown(part, content)?;
                }
                Ok(())
            }
            Turn::Results(outcomes) => self.results(outcomes, content),
            Turn::Assistant(_) | Turn::System(_) => Ok(()),
        }
    }

    fn point(&self, mark: Mark) -> Option<Box<RawValue>> {
        cache_point(mark, self.target.card).map(|point| raw(&point))
    }

    fn said(&self, said: &[Said], replays: bool) -> Blocks {
        let card = self.target.card;
        let mut blocks = Blocks::with_capacity(said.len());
        for said in said {
            match said {
                Said::Text(text) => {
                    blocks.push(raw(&json!({"text": text.text})));
                    blocks.extend(self.point(text.mark));
                }
                Said::Call { name, input, mark, .. } if self.is_told => {
                    blocks.push(raw(&json!({"text": format!("[called {name} {}]", compact(input))})));
                    blocks.extend(self.point(*mark));
                }
                Said::Call { id, name, input, mark } => {
                    let tool_use = Call {
                        tool_use_id: &upstream_id(id, card.id_rule),
                        name: &upstream_name(name, card.name_rule),
                        input,
                    };
                    blocks.push(raw(&ToolUse { tool_use }));
                    blocks.extend(self.point(*mark));
                }
                Said::Thinking { text, signature } if card.claude => {
                    // Only what Claude has signed; it goes back as it came, also without a text.
                    if let Some(signature) = signature.as_deref().filter(|known| !known.is_empty() && !is_ours(known)) {
                        let thought = json!({"text": text, "signature": signature});
                        blocks.push(raw(&json!({"reasoningContent": {"reasoningText": thought}})));
                    }
                }
                Said::Thinking { text, .. } if replays && !text.is_empty() => {
                    blocks.push(raw(&json!({"reasoningContent": {"reasoningText": {"text": text}}})));
                }
                // Other models have nobody who could read it, and Claude reads only its own.
                Said::Redacted(data) if card.claude && !is_ours(data) => {
                    blocks.push(raw(&json!({"reasoningContent": {"redactedContent": data}})));
                }
                Said::Thinking { .. } | Said::Redacted(_) => {}
            }
        }
        blocks
    }

    /// All results of a turn, and after them what cannot stand inside of one.
    fn results(&self, outcomes: &[Outcome], content: &mut Content<'_>) -> Result<(), Unsupported> {
        let card = self.target.card;
        let mut beside: Vec<Part> = Vec::new();
        for outcome in outcomes {
            let mut inner =
                Content { blocks: Blocks::new(), names: &mut *content.names, has_text: false, has_document: false };
            let mut media = 0;
            let mut is_error_said = false;
            for part in &outcome.parts {
                let kind = match part {
                    Part::Text(text) => {
                        let mut text = text.clone();
                        if outcome.is_error && !std::mem::replace(&mut is_error_said, true) {
                            self.spell_error(&mut text.text);
                        }
                        self.shown(&Part::Text(text), &mut inner)?;
                        continue;
                    }
                    Part::Image { .. } => "image",
                    Part::Document { .. } => "document",
                };
                media += 1;
                if card.images_in_results && !self.is_told {
                    self.shown(part, &mut inner)?;
                } else {
                    let label = format!("[{kind} {media} of tool_result {}]", outcome.id);
                    inner.blocks.push(raw(&json!({"text": label})));
                    beside.push(Part::Text(Text::plain(label)));
                    beside.push(part.clone());
                }
            }
            let mut blocks = inner.blocks;
            // An error without a word is still one.
            let unsaid = outcome.is_error && !is_error_said && (!card.tool_status || self.is_told);
            if blocks.is_empty() {
                let text = if unsaid { format!("Error: {NOTHING}") } else { NOTHING.to_owned() };
                blocks.push(raw(&json!({"text": text})));
            } else if unsaid {
                blocks.insert(0, raw(&json!({"text": "Error:"})));
            }
            if self.is_told {
                let name = outcome.name.as_deref().unwrap_or_default();
                content.blocks.push(raw(&json!({"text": format!("[result of {name}]")})));
                content.blocks.extend(blocks);
                content.has_text = true;
            } else {
                let status = if outcome.is_error { "error" } else { "success" };
                let tool_result = Returned {
                    tool_use_id: &upstream_id(&outcome.id, card.id_rule),
                    content: blocks,
                    status: card.tool_status.then_some(status),
                };
                content.blocks.push(raw(&ToolResult { tool_result }));
            }
            // No place of the cache may stand inside of a result.
            content.blocks.extend(self.point(outcome.mark));
        }
        for part in &beside {
            self.shown(part, content)?;
        }
        Ok(())
    }

    /// Where a result has no status, its text says that it is an error.
    fn spell_error(&self, text: &mut String) {
        if (!self.target.card.tool_status || self.is_told) && !text.to_lowercase().starts_with("error") {
            text.insert_str(0, "Error: ");
        }
    }

    fn shown(&self, part: &Part, content: &mut Content<'_>) -> Result<(), Unsupported> {
        let card = self.target.card;
        let mark = match part {
            Part::Text(text) => {
                content.blocks.push(raw(&json!({"text": text.text})));
                content.has_text = true;
                text.mark
            }
            Part::Image { path, .. } if !card.images => {
                return Err(Unsupported::new(path, "images are not supported by this model"));
            }
            Part::Image { source: Media::Base64 { media_type, data }, mark, path } => {
                let format = image_format(image_type(media_type, data))
                    .ok_or_else(|| Unsupported::new(path, "images of this type are not supported by this model"))?;
                content.blocks.push(raw(&json!({"image": {"format": format, "source": {"bytes": data}}})));
                *mark
            }
            Part::Image { path, .. } => {
                return Err(Unsupported::new(path, "images by URL are not supported by this model"));
            }
            Part::Document { source, title, context, cited, mark, path } => {
                let (format, source) = match source {
                    Media::Text(text) => ("txt", json!({"text": text})),
                    Media::Base64 { media_type, data } if card.pdf => {
                        let format = document_format(media_type)
                            .ok_or_else(|| Unsupported::new(path, "documents of this type are not supported"))?;
                        (format, json!({"bytes": data}))
                    }
                    Media::Base64 { .. } => {
                        return Err(Unsupported::new(path, "documents are not supported by this model"));
                    }
                    Media::Url(_) => {
                        return Err(Unsupported::new(path, "documents by URL are not supported by this model"));
                    }
                };
                let name = content.names.name(title.as_deref());
                let mut document = json!({"format": format, "name": name, "source": source});
                if let Some(context) = context {
                    document["context"] = context.as_str().into();
                }
                if *cited {
                    document["citations"] = json!({"enabled": true});
                }
                content.blocks.push(raw(&json!({"document": document})));
                content.has_document = true;
                *mark
            }
        };
        content.blocks.extend(self.point(mark));
        Ok(())
    }
}

/// Neighbours of one role are one message.
fn append(messages: &mut Vec<Message>, message: Message) {
    match messages.last_mut().filter(|last| last.role == message.role) {
        Some(last) => last.content.extend(message.content),
        None => messages.push(message),
    }
}

fn image_format(media_type: &str) -> Option<&'static str> {
    Some(match media_type {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpeg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        _ => return None,
    })
}

fn document_format(media_type: &str) -> Option<&'static str> {
    Some(match media_type {
        "application/pdf" => "pdf",
        "text/plain" => "txt",
        _ => return None,
    })
}
