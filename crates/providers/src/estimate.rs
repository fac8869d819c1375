//! How many tokens a request has, where nobody counts them. An estimate errs on the high side: a client that compacts a
//! little early is better off than one that is refused.

mod picture;
pub mod sound;
mod vocabulary;

use tidegate_wire::messages::{Block, Content, Message, Request, Source, Tool};

use crate::translate::card::{Card, Tokenizer};
use crate::translate::conversation::beginning;

pub use picture::{dimensions, tokens as picture_tokens};

/// Beyond this many bytes of text, bytes are counted instead of tokens.
const LARGEST_TEXT: usize = 2 << 20;
const PER_MESSAGE: u64 = 3;
const PER_BLOCK: u64 = 4;
const PER_TOOL: u64 = 8;
const PER_REQUEST: u64 = 16;

/// The tokens of a whole request as the model of this card counts them.
pub fn tokens(request: &Request, card: &Card) -> u64 {
    let exact = Sum::of(request, card, true);
    if exact.bytes > LARGEST_TEXT { rough(request, card) } else { exact.total() }
}

/// The same from bytes alone: cheap enough for every request.
pub fn rough(request: &Request, card: &Card) -> u64 {
    Sum::of(request, card, false).total()
}

/// Whether it points at documents that are not in it: nobody here knows how many pages they have.
pub fn has_unseen(request: &Request) -> bool {
    Sum::of(request, &Card::default(), false).is_unseen
}

/// Pictures that a model is shown.
pub fn pictures(request: &Request) -> u64 {
    Sum::of(request, &Card::default(), false).pictures
}

/// Tokens of a text by bytes: 3.2 bytes each in plain text, 1.6 characters each elsewhere.
pub fn by_bytes(text: &str) -> u64 {
    // Nearly every text, and the quickest question there is.
    if text.is_ascii() {
        return (text.len() as u64 * 10).div_ceil(32);
    }
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    let others = text.chars().filter(|character| !character.is_ascii()).count() as u64;
    (ascii * 10).div_ceil(32) + (others * 10).div_ceil(16)
}

/// Counts the parts of a request one by one. Rounded up each, so that together they are no less than the whole.
pub struct Meter<'a> {
    card: &'a Card,
    exact: bool,
}

impl<'a> Meter<'a> {
    /// For a request of this size: beyond a certain one bytes are counted.
    pub fn of(request: &Request, card: &'a Card) -> Self {
        let bytes = Sum::of(request, card, false).bytes;
        Self { card, exact: bytes <= LARGEST_TEXT }
    }

    fn sum(&self, fixed: u64, add: impl FnOnce(&mut Sum<'a>)) -> u64 {
        let mut sum =
            Sum { card: self.card, texts: 0, fixed, bytes: 0, exact: self.exact, is_unseen: false, pictures: 0 };
        add(&mut sum);
        sum.total()
    }

    pub fn text(&self, text: &str) -> u64 {
        self.sum(0, |sum| sum.text(text))
    }

    pub fn message(&self, message: &Message) -> u64 {
        self.sum(PER_MESSAGE, |sum| sum.content(&message.content))
    }

    /// Everything but the messages.
    pub fn around(&self, request: &Request) -> u64 {
        self.sum(PER_REQUEST, |sum| sum.around(request))
    }
}

struct Sum<'a> {
    card: &'a Card,
    /// Tokens of texts before the factor of the family.
    texts: u64,
    /// Tokens that no factor applies to.
    fixed: u64,
    bytes: usize,
    exact: bool,
    is_unseen: bool,
    pictures: u64,
}

impl<'a> Sum<'a> {
    fn of(request: &Request, card: &'a Card, exact: bool) -> Self {
        let mut sum = Self { card, texts: 0, fixed: PER_REQUEST, bytes: 0, exact, is_unseen: false, pictures: 0 };
        sum.request(request);
        sum
    }

    fn total(&self) -> u64 {
        let hundredths = match self.card.tokenizer {
            _ if !self.exact => 100,
            Tokenizer::Bytes | Tokenizer::Openai => 100,
            Tokenizer::Claude => 125,
            Tokenizer::ClaudeNew => 175,
            Tokenizer::Gemini => 105,
            Tokenizer::Open => 115,
        };
        (self.texts * hundredths).div_ceil(100) + self.fixed
    }

    fn text(&mut self, text: &str) {
        self.bytes += text.len();
        // Once there is too much of it, the rest need not be looked at: all of it will be counted by bytes.
        if self.exact && self.bytes > LARGEST_TEXT {
            return;
        }
        let counted = match self.card.tokenizer {
            Tokenizer::Bytes => by_bytes(text),
            _ if !self.exact => by_bytes(text),
            // The newer vocabulary counts a few less, and is twice as large.
            _ => vocabulary::count(text),
        };
        self.texts += counted;
    }

    fn request(&mut self, request: &Request) {
        self.around(request);
        // What a summary stands for is read by nobody.
        let (first, block) = beginning(request);
        for (place, message) in request.messages.iter().enumerate().skip(first) {
            self.fixed += PER_MESSAGE;
            match &message.content {
                Content::Blocks(blocks) if place == first => blocks[block..].iter().for_each(|block| self.block(block)),
                content => self.content(content),
            }
        }
    }

    fn around(&mut self, request: &Request) {
        if let Some(system) = &request.system {
            self.content(system);
        }
        for tool in request.tools.iter().flatten() {
            self.fixed += PER_TOOL;
            match tool {
                Tool::Custom(tool) => {
                    self.text(&tool.name);
                    self.text(tool.description.as_deref().unwrap_or_default());
                    self.text(&crate::translate::body::compact(&tool.input_schema));
                }
                other => self.text(other.kind()),
            }
        }
    }

    fn content(&mut self, content: &Content) {
        match content {
            Content::Text(text) => self.text(text),
            Content::Blocks(blocks) => blocks.iter().for_each(|block| self.block(block)),
        }
    }

    fn block(&mut self, block: &Block) {
        self.fixed += PER_BLOCK;
        match block {
            Block::Text(block) => self.text(&block.text),
            Block::Thinking(block) => self.text(&block.thinking),
            Block::ToolUse(block) => {
                self.text(&block.name);
                self.text(block.input_text());
            }
            Block::ToolResult(block) => {
                if let Some(content) = &block.content {
                    self.content(content);
                }
            }
            Block::Image(block) => {
                self.pictures += 1;
                self.fixed += picture::of_source(&block.source, self.card.tokenizer);
            }
            Block::Document(block) => match &block.source {
                Source::Text(source) => self.text(&source.data),
                Source::Content(source) => self.content(&source.content),
                Source::Base64(source) => self.fixed += picture::of_pdf(&source.data, self.card.tokenizer),
                _ => {
                    self.is_unseen = true;
                    self.fixed += picture::page(self.card.tokenizer);
                }
            },
            Block::Compaction(block) => self.text(block.content.as_deref().unwrap_or_default()),
            Block::SearchResult(block) => {
                self.text(&block.title);
                block.content.iter().for_each(|block| self.block(block));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(body: serde_json::Value) -> Request {
        Request::parse(body.to_string().as_bytes()).unwrap()
    }

    fn card(tokenizer: Tokenizer) -> Card {
        Card { tokenizer, ..Card::default() }
    }

    #[test]
    fn p77_everything_that_is_sent_is_counted() {
        let bare = request(json!({"model": "m", "messages": [{"role": "user", "content": "hello world"}]}));
        // "hello world" is two tokens of the OpenAI family.
        assert_eq!(tokens(&bare, &card(Tokenizer::Openai)), 2 + 3 + 16);
        let more = request(json!({
            "model": "m", "system": "hello world",
            "tools": [{"name": "f", "description": "hello world", "input_schema": {}}],
            "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "hello world"}]}],
        }));
        assert!(tokens(&more, &card(Tokenizer::Openai)) >= 2 * 3 + 8 + 3 + 4 + 16);
    }

    #[test]
    fn what_a_summary_stands_for_is_not_counted() {
        let summary = json!({"role": "assistant", "content": [
            {"type": "text", "text": "hello world"}, {"type": "compaction", "content": "hello world"}]});
        let last = json!({"role": "user", "content": "hello world"});
        let long = json!({"role": "user", "content": "hello world ".repeat(1000)});
        let body = request(json!({"model": "m", "messages": [long, summary, last]}));
        // Two messages, one block, and two times two words.
        assert_eq!(tokens(&body, &card(Tokenizer::Openai)), 16 + 2 * 3 + 4 + 2 * 2);
        let sealed = json!({"role": "assistant", "content": [{"type": "compaction", "content": null}]});
        let body = request(json!({"model": "m", "messages": [long, sealed, last]}));
        assert!(tokens(&body, &card(Tokenizer::Openai)) > 2000, "one that nobody can read stands for nothing");
    }

    #[test]
    fn p78_families_whose_tokens_are_smaller_count_more() {
        let long =
            request(json!({"model": "m", "messages": [{"role": "user", "content": "hello world ".repeat(100)}]}));
        let count = |tokenizer| tokens(&long, &card(tokenizer)) - 19;
        let base = count(Tokenizer::Openai);
        assert_eq!(count(Tokenizer::Claude), (base * 125).div_ceil(100));
        assert_eq!(count(Tokenizer::ClaudeNew), (base * 175).div_ceil(100));
        assert_eq!(count(Tokenizer::Open), (base * 115).div_ceil(100));
    }

    #[test]
    fn bytes_are_counted_where_nothing_else_is_known() {
        assert_eq!(by_bytes(&"a".repeat(32)), 10);
        assert_eq!(by_bytes(&"é".repeat(16)), 10);
        assert_eq!(by_bytes(""), 0);
        let huge = request(json!({"model": "m", "messages": [{"role": "user", "content": "a".repeat(3 << 20)}]}));
        assert_eq!(tokens(&huge, &card(Tokenizer::ClaudeNew)), by_bytes(&"a".repeat(3 << 20)) + 19);
    }

    #[test]
    fn p27_a_picture_costs_what_it_shows_and_not_what_it_weighs() {
        let data = "iVBORw0KGgo".to_owned() + &"A".repeat(400_000);
        let picture = request(json!({"model": "m", "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]}]}));
        for tokenizer in [Tokenizer::Bytes, Tokenizer::Claude, Tokenizer::Openai, Tokenizer::Gemini] {
            assert!(tokens(&picture, &card(tokenizer)) < 5_000, "{tokenizer:?}");
            assert!(rough(&picture, &card(tokenizer)) < 5_000, "{tokenizer:?}");
        }
    }
}
