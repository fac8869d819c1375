//! A request as every translation starts from it: turns that alternate, results beside their calls, nothing empty. What
//! had to be changed for that is noted, so that nothing is lost without a word.

mod pairs;
mod turns;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use tidegate_wire::messages::{Block, Compaction, Content, Message, Request, Role, Source, ToolResult};
use tidegate_wire::object::Raw;

use super::body::compact;
use super::tools::{NameRule, upstream_name};
use super::{NOTHING_SAID, Unsupported, search};
use pairs::{append_heard, append_said, call_ids, paired};
pub use turns::{Mark, Media, Outcome, Part, Said, Text, Turn, image_type};

/// The first words are a person's in some protocols; a conversation that begins otherwise gets these. So does one whose
/// last words are a person's and say nothing: without them the model would go on with its own.
pub const BEGINNING: &str = ".";
const BILLING_LINE: &str = "x-anthropic-billing-header:";

/// More are not told: they are read by people.
const MOST_WARNINGS: usize = 64;

/// The normalised conversation.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    pub system: Vec<Text>,
    pub turns: Vec<Turn>,
    /// `verb:field` of everything that was left out or changed.
    pub warnings: Vec<String>,
    /// Ids of all calls, so that an answer's do not repeat them.
    pub ids: HashSet<String>,
    /// Documents of plain text stay documents.
    keeps_documents: bool,
}

impl Conversation {
    /// `mid_system`: whether the upstream takes instructions between turns.
    pub fn of(request: &Request, mid_system: bool) -> Result<Self, Unsupported> {
        Self::default().read(request, mid_system)
    }

    /// The same for an upstream that takes documents of plain text as such.
    pub fn with_documents(request: &Request, mid_system: bool) -> Result<Self, Unsupported> {
        Self { keeps_documents: true, ..Self::default() }.read(request, mid_system)
    }

    fn read(self, request: &Request, mid_system: bool) -> Result<Self, Unsupported> {
        let mut made = self;
        made.system(request);
        let mut turns: Vec<Turn> = Vec::new();
        let (start, first) = beginning(request);
        for (place, message) in request.messages.iter().enumerate().skip(start) {
            let blocks = message.content.clone().into_blocks();
            let first = if place == start { first } else { 0 };
            match &message.role {
                Role::Assistant => {
                    made.said(blocks, first, &mut turns);
                }
                Role::System => made.note(&mut turns, &message.content, mid_system, is_cleared(request, place)),
                _ => {
                    let (outcomes, parts) = made.heard(blocks, first, format_args!("messages[{place}]"))?;
                    append_heard(&mut turns, outcomes, parts);
                }
            }
        }
        let asks = request.messages.last().is_some_and(|message| message.role == Role::User);
        if asks && matches!(turns.last(), Some(Turn::Assistant(said)) if !said.iter().any(|said| said.id().is_some())) {
            turns.push(Turn::User(vec![Part::Text(Text::plain(BEGINNING.to_owned()))]));
            made.warn("changed:messages");
        }
        made.turns = paired(turns, &mut made.warnings);
        made.mark_last(Mark::of(request.cache_control.as_ref()));
        made.ids = made.calls().filter_map(Said::id).map(ToOwned::to_owned).collect();
        if made.turns.is_empty() {
            return Err(Unsupported::new("messages", NOTHING_SAID));
        }
        Ok(made)
    }

    pub fn warn(&mut self, warning: impl Into<String>) {
        let warning = warning.into();
        if self.warnings.len() < MOST_WARNINGS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// A document that was to be cited reads like any other text.
    fn warn_uncited(&mut self, cited: bool) {
        if cited {
            self.warn("dropped:citations");
        }
    }

    /// Names what is said of documents and cannot be told where they are files; `takes_title` says whose names go along.
    pub fn warn_of_documents(&mut self, takes_title: fn(&Media) -> bool) {
        let parts = self.turns.iter().flat_map(|turn| match turn {
            Turn::User(parts) => vec![parts],
            Turn::Results(outcomes) => outcomes.iter().map(|outcome| &outcome.parts).collect(),
            Turn::Assistant(_) | Turn::System(_) => Vec::new(),
        });
        let (mut titles, mut contexts, mut citations) = (false, false, false);
        for part in parts.flatten() {
            if let Part::Document { source, title, context, cited, .. } = part {
                titles |= title.is_some() && !takes_title(source);
                contexts |= context.is_some();
                citations |= *cited;
            }
        }
        for (is_lost, what) in [(titles, "document.title"), (contexts, "document.context"), (citations, "citations")] {
            if is_lost {
                self.warn(format!("dropped:{what}"));
            }
        }
    }

    /// Whether the model is to go on with words that were put into its mouth.
    pub fn is_prefilled(&self) -> bool {
        matches!(self.turns.last(), Some(Turn::Assistant(said)) if !said.iter().any(|said| matches!(said, Said::Call { .. })))
    }

    /// The words that were put into the model's mouth.
    pub fn prefill(&self) -> Option<String> {
        let Some(Turn::Assistant(said)) = self.turns.last().filter(|_| self.is_prefilled()) else { return None };
        let texts = said.iter().filter_map(|said| match said {
            Said::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        Some(texts.collect())
    }

    /// Gives every call the id that its place in the conversation makes: `functions.NAME:N`, with the name that goes out.
    pub fn number_calls(&mut self, rule: NameRule) {
        let mut renamed: HashMap<String, String> = HashMap::new();
        for turn in &mut self.turns {
            match turn {
                Turn::Assistant(said) => {
                    for said in said {
                        if let Said::Call { id, name, .. } = said {
                            let made = format!("functions.{}:{}", upstream_name(name, rule), renamed.len());
                            renamed.insert(std::mem::replace(id, made.clone()), made);
                        }
                    }
                }
                Turn::Results(outcomes) => {
                    for outcome in outcomes {
                        if let Some(made) = renamed.get(&outcome.id) {
                            outcome.id.clone_from(made);
                        }
                    }
                }
                Turn::User(_) | Turn::System(_) => {}
            }
        }
    }

    /// Names of all tools that were called, each once.
    pub fn called_names(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        let names = self.calls().filter_map(|call| match call {
            Said::Call { name, .. } => Some(name.as_str()),
            _ => None,
        });
        names.filter(|name| seen.insert(*name)).collect()
    }

    /// The place of the last words of a person: a loop of calls goes on since then.
    pub fn last_words(&self) -> usize {
        self.turns.iter().rposition(|turn| matches!(turn, Turn::User(_))).unwrap_or(0)
    }

    /// Whether a call stands in a turn without the thinking that led to it.
    pub fn has_unthought_calls(&self) -> bool {
        let is_thought = |said: &Said| matches!(said, Said::Thinking { text, .. } if !text.is_empty());
        self.turns.iter().any(|turn| match turn {
            Turn::Assistant(said) => call_ids(turn).next().is_some() && !said.iter().any(is_thought),
            Turn::User(_) | Turn::Results(_) | Turn::System(_) => false,
        })
    }

    /// What the model said, turn by turn.
    pub fn assistant_turns(&mut self) -> impl Iterator<Item = &mut Vec<Said>> {
        self.turns.iter_mut().filter_map(|turn| match turn {
            Turn::Assistant(said) => Some(said),
            Turn::User(_) | Turn::Results(_) | Turn::System(_) => None,
        })
    }

    /// Whether a tool was called between the words of a person before this turn and those after it.
    pub fn is_in_loop(&self, place: usize) -> bool {
        let is_between = |turn: &&Turn| !matches!(turn, Turn::User(_));
        let (before, after) = self.turns.split_at(place);
        let mut around = after.iter().take_while(is_between).chain(before.iter().rev().take_while(is_between));
        around.any(|turn| call_ids(turn).next().is_some())
    }

    fn calls(&self) -> impl Iterator<Item = &Said> {
        let said = self.turns.iter().filter_map(|turn| match turn {
            Turn::Assistant(said) => Some(said),
            _ => None,
        });
        said.flatten().filter(|said| matches!(said, Said::Call { .. }))
    }

    fn system(&mut self, request: &Request) {
        let blocks = request.system.clone().map(Content::into_blocks).unwrap_or_default();
        for (place, block) in blocks.into_iter().enumerate() {
            let Block::Text(block) = block else {
                self.warn("dropped:system_block");
                continue;
            };
            let mut text = block.text;
            // It changes with every request and would spoil every cache of the prefix.
            if place == 0 && text.trim_start().starts_with(BILLING_LINE) {
                text = text.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
            }
            let mark = Mark::of(block.cache_control.as_ref());
            if text.trim().is_empty() {
                if let Some(before) = self.system.last_mut().filter(|_| mark.is_set()) {
                    before.mark = mark;
                }
                continue;
            }
            self.system.push(Text { text, mark });
        }
    }

    /// `first`: the place of the first block that counts.
    fn said(&mut self, blocks: Vec<Block>, first: usize, turns: &mut Vec<Turn>) {
        let mut said: Vec<Said> = Vec::with_capacity(blocks.len());
        let mut is_line = false;
        let found = search::told(&blocks);
        for block in blocks.into_iter().skip(first) {
            match block {
                Block::Text(block) if block.text.trim().is_empty() => {
                    mark_said(said.last_mut(), Mark::of(block.cache_control.as_ref()));
                }
                Block::Text(block) => {
                    let mark = Mark::of(block.cache_control.as_ref());
                    if let Some(line) = last_text(&mut said).filter(|_| std::mem::take(&mut is_line)) {
                        line.text.push('\n');
                    }
                    said.push(Said::Text(Text { text: block.text, mark }));
                }
                Block::ToolUse(block) => said.push(Said::Call {
                    input: object_input(block.input_text()),
                    mark: Mark::of(block.cache_control.as_ref()),
                    id: block.id,
                    name: block.name,
                }),
                Block::Thinking(block) => {
                    said.push(Said::Thinking { text: block.thinking, signature: block.signature });
                }
                Block::RedactedThinking(block) => said.push(Said::Redacted(block.data)),
                Block::ServerToolUse(block) if found.contains_key(&block.id) => {
                    push_line(&mut said, Text::plain(found[&block.id].clone()));
                    is_line = true;
                }
                Block::WebSearchResult(block) if found.contains_key(&block.tool_use_id) => {}
                Block::ServerToolUse(block) => {
                    let input = block.input.as_ref().map_or_else(|| "{}".to_owned(), compact);
                    push_line(&mut said, Text::plain(format!("[{} {input}]", block.name)));
                    is_line = true;
                }
                // What replaces the conversation so far is told to the model, not said by it.
                Block::Compaction(block) => {
                    append_said(turns, std::mem::take(&mut said));
                    append_heard(turns, Vec::new(), compacted(&block).into_iter().collect());
                }
                block if is_nothing_to_others(block.kind()) => self.warn(format!("dropped:{}", block.kind())),
                other => {
                    push_line(&mut said, self.omitted(&other));
                    is_line = true;
                }
            }
        }
        append_said(turns, said);
    }

    /// What stands for a block that nobody else can read.
    fn omitted(&mut self, block: &Block) -> Text {
        // A name that somebody made up is said only if it is one.
        let is_name = |kind: &&str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
            (1..=64).contains(&kind.len()) && kind.bytes().all(fits)
        };
        let kind = Some(block.kind()).filter(is_name).unwrap_or("block");
        self.warn(format!("dropped:{kind}"));
        Text::plain(format!("[{kind} omitted]"))
    }

    /// Results first, the rest after them, each in its own order. `first`: the place of the first block that counts.
    fn heard(
        &mut self,
        blocks: Vec<Block>,
        first: usize,
        path: fmt::Arguments<'_>,
    ) -> Result<(Vec<Outcome>, Vec<Part>), Unsupported> {
        let (mut outcomes, mut parts) = (Vec::new(), Vec::new());
        for (place, block) in blocks.into_iter().enumerate().skip(first) {
            // Written out only for those of whom something may be said.
            let path = format_args!("{path}.content[{place}]");
            match block {
                Block::ToolResult(result) => outcomes.push(self.outcome(result, path)?),
                block => self.part(block, path, &mut parts)?,
            }
        }
        Ok((outcomes, parts))
    }

    fn outcome(&mut self, result: ToolResult, path: fmt::Arguments<'_>) -> Result<Outcome, Unsupported> {
        let mut parts = Vec::new();
        let blocks = result.content.map(Content::into_blocks).unwrap_or_default();
        for (place, block) in blocks.into_iter().enumerate() {
            self.part(block, format_args!("{path}.content[{place}]"), &mut parts)?;
        }
        Ok(Outcome {
            id: result.tool_use_id,
            name: None,
            parts,
            is_error: result.is_error.unwrap_or(false),
            mark: Mark::of(result.cache_control.as_ref()),
        })
    }

    fn part(&mut self, block: Block, path: fmt::Arguments<'_>, parts: &mut Vec<Part>) -> Result<(), Unsupported> {
        match block {
            Block::Text(block) if block.text.trim().is_empty() => {
                mark_part(parts.last_mut(), Mark::of(block.cache_control.as_ref()));
            }
            Block::Text(block) => {
                let mark = Mark::of(block.cache_control.as_ref());
                parts.push(Part::Text(Text { text: block.text, mark }));
            }
            Block::Image(block) => {
                let mark = Mark::of(block.cache_control.as_ref());
                let mut source = media(block.source, path)?;
                if let Media::Base64 { media_type, data } = &mut source {
                    let known = image_type(media_type, data);
                    if known != media_type {
                        *media_type = known.to_owned();
                    }
                }
                parts.push(Part::Image { source, mark, path: path.to_string() });
            }
            Block::Document(block) => {
                let (title, mark) = (block.title.flatten(), Mark::of(block.cache_control.as_ref()));
                let cited = block.citations.flatten().and_then(|citations| citations.enabled).unwrap_or(false);
                match block.source {
                    Source::Text(source) if self.keeps_documents => {
                        let (source, context, path) = (Media::Text(source.data), block.context, path.to_string());
                        parts.push(Part::Document { source, title, context, cited, mark, path });
                    }
                    Source::Text(source) => {
                        self.warn_uncited(cited);
                        let text = document_text(title.as_deref(), block.context.as_deref(), &source.data);
                        parts.push(Part::Text(Text { text, mark }));
                    }
                    Source::Content(source) => {
                        self.warn_uncited(cited);
                        parts.push(Part::Text(Text::plain(opening(title.as_deref(), block.context.as_deref()))));
                        for (place, inner) in source.content.into_blocks().into_iter().enumerate() {
                            self.part(inner, format_args!("{path}.source.content[{place}]"), parts)?;
                        }
                        parts.push(Part::Text(Text { text: "</document>".to_owned(), mark }));
                    }
                    source => {
                        let (source, context, path) = (media(source, path)?, block.context, path.to_string());
                        parts.push(Part::Document { source, title, context, cited, mark, path });
                    }
                }
            }
            Block::SearchResult(block) => {
                for other in block.content.iter().filter(|block| !matches!(block, Block::Text(_))) {
                    self.warn(format!("dropped:{}", other.kind()));
                }
                let texts = block.content.iter().filter_map(|block| match block {
                    Block::Text(text) => Some(text.text.as_str()),
                    _ => None,
                });
                let text = format!(
                    "<search_result source=\"{}\" title=\"{}\">{}</search_result>",
                    escaped(&block.source),
                    escaped(&block.title),
                    texts.collect::<Vec<_>>().join("\n")
                );
                parts.push(Part::Text(Text { text, mark: Mark::of(block.cache_control.as_ref()) }));
            }
            Block::ToolReference(block) => {
                parts.push(Part::Text(Text::plain(format!("[tool available: {}]", block.tool_name))));
            }
            Block::Compaction(block) => parts.extend(compacted(&block)),
            block if is_nothing_to_others(block.kind()) => self.warn(format!("dropped:{}", block.kind())),
            other => {
                let text = self.omitted(&other);
                parts.push(Part::Text(text));
            }
        }
        Ok(())
    }

    /// An instruction between turns: where it stands, or as a note in the neighbouring words of the user.
    fn note(&mut self, turns: &mut Vec<Turn>, content: &Content, mid_system: bool, cleared: bool) {
        let text: Vec<String> = content
            .clone()
            .into_blocks()
            .into_iter()
            .filter_map(|block| match block {
                Block::Text(block) => Some(block.text).filter(|text| !text.trim().is_empty()),
                // The list of tools says it.
                Block::ToolAddition(_) | Block::ToolRemoval(_) => None,
                _ => {
                    self.warn("dropped:system_block");
                    None
                }
            })
            .collect();
        if text.is_empty() || cleared {
            return;
        }
        let text = text.join("\n\n");
        if mid_system {
            turns.push(Turn::System(text));
        } else {
            append_heard(turns, Vec::new(), vec![Part::Text(Text::plain(format!("[system note] {text}")))]);
        }
    }
}

/// Where the conversation begins for the model, as the place of a message and of a block in it: at the last summary,
/// which stands for everything before it. One that only its maker can read stands for nothing here.
pub(crate) fn beginning(request: &Request) -> (usize, usize) {
    let summary = |block: &Block| matches!(block, Block::Compaction(block) if told(block).is_some());
    let mut messages = request.messages.iter().enumerate().rev();
    let last = messages.find_map(|(place, message)| match &message.content {
        Content::Blocks(blocks) => Some((place, blocks.iter().rposition(summary)?)),
        Content::Text(_) => None,
    });
    last.unwrap_or_default()
}

/// The request from its last summary on.
pub(crate) fn since_summary(request: &Request) -> Cow<'_, Request> {
    let (first, block) = beginning(request);
    if (first, block) == (0, 0) {
        return Cow::Borrowed(request);
    }
    let mut made = request.clone();
    made.messages.drain(..first);
    if let Some(Message { content: Content::Blocks(blocks), .. }) = made.messages.first_mut() {
        blocks.drain(..block);
    }
    Cow::Owned(made)
}

/// The text of a summary, where it has one.
fn told(block: &Compaction) -> Option<&str> {
    block.content.as_deref().filter(|text| !text.trim().is_empty())
}

/// `clear_at: "next_user_message"` on an instruction that a later message of the user has made void.
fn is_cleared(request: &Request, place: usize) -> bool {
    let clears = request.messages[place].extra.get("clear_at").is_some_and(|raw| raw.get() == "\"next_user_message\"");
    clears && request.messages[place + 1..].iter().any(|message| message.role == Role::User)
}

/// Whether blocks of this kind mean nothing to anyone but who made them.
fn is_nothing_to_others(kind: &str) -> bool {
    matches!(kind, "fallback" | "container_upload") || kind.starts_with("mcp_")
}

/// The summary that stands for everything before it.
fn compacted(block: &Compaction) -> Option<Part> {
    let text = told(block)?.to_owned();
    Some(Part::Text(Text { text, mark: Mark::of(block.cache_control.as_ref()) }))
}

fn mark_said(said: Option<&mut Said>, mark: Mark) {
    if mark.is_set()
        && let Some(on) = said.and_then(Said::mark)
    {
        *on = mark;
    }
}

fn mark_part(part: Option<&mut Part>, mark: Mark) {
    if mark.is_set()
        && let Some(part) = part
    {
        *part.mark() = mark;
    }
}

/// The input of a call is an object; something else, which a client may have stored after an answer was cut short, is
/// kept inside one.
fn object_input(text: &str) -> Raw {
    if text.trim_start().starts_with('{') {
        return Raw::from_text(text).unwrap_or_else(|_| Raw::empty_object());
    }
    Raw::from_text(format!("{{\"_raw\":{text}}}")).unwrap_or_else(|_| Raw::empty_object())
}

fn opening(title: Option<&str>, context: Option<&str>) -> String {
    let attribute = |name: &str, value: Option<&str>| {
        value.map(|value| format!(" {name}=\"{}\"", escaped(value))).unwrap_or_default()
    };
    format!("<document{}{}>", attribute("title", title), attribute("context", context))
}

/// A text within the quotes of a tag: it must not end them.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn document_text(title: Option<&str>, context: Option<&str>, text: &str) -> String {
    format!("{}\n{text}\n</document>", opening(title, context))
}

fn media(source: Source, path: fmt::Arguments<'_>) -> Result<Media, Unsupported> {
    match source {
        Source::Base64(source) => Ok(Media::Base64 { media_type: source.media_type, data: bare(source.data) }),
        Source::Url(source) => Ok(Media::Url(source.url)),
        other => {
            Err(Unsupported::new(path.to_string(), format!("sources of type {} are not supported here", other.kind())))
        }
    }
}

/// Base64 without what does not belong to it: the head of a data URL, line breaks.
pub(crate) fn bare(data: String) -> String {
    let body = match data.strip_prefix("data:") {
        Some(rest) => rest.split_once(',').map_or(rest, |(_, body)| body),
        None => &data,
    };
    if body.len() == data.len() && !body.contains(['\n', '\r', ' ']) {
        return data;
    }
    body.chars().filter(|character| !character.is_ascii_whitespace()).collect()
}

/// The last words of a turn so far.
fn last_text(said: &mut [Said]) -> Option<&mut Text> {
    said.iter_mut().rev().find_map(|said| match said {
        Said::Text(text) => Some(text),
        Said::Call { .. } | Said::Thinking { .. } | Said::Redacted(_) => None,
    })
}

/// What stands for a block is a line of its own, also where the texts of a turn become one.
fn push_line(said: &mut Vec<Said>, line: Text) {
    if let Some(before) = last_text(said).filter(|before| !before.text.ends_with('\n')) {
        before.text.push('\n');
    }
    said.push(Said::Text(line));
}
