//! The content of an answer as blocks, written in one of two forms: frames of a stream, or the array of a whole answer.

use bytes::{BufMut as _, BytesMut};
use serde_json::value::RawValue;
use tidegate_wire::answer::DECLINES;
use tidegate_wire::json::quote;

use super::search::Searched;

/// The end of a call: the model itself made it, not a program that it wrote.
const CALLER: &[u8] = b",\"caller\":{\"type\":\"direct\"}}";

/// Where blocks go. Exactly one is open at a time; the encoder sees to that.
pub trait Blocks {
    fn open_text(&mut self);
    /// A text block with the words in which the model declines.
    fn open_refusal(&mut self);
    fn text(&mut self, text: &str);
    /// A citation of the open text block, as JSON.
    fn citation(&mut self, citation: &str);
    fn open_thinking(&mut self);
    fn thinking(&mut self, text: &str);
    fn signature(&mut self, signature: &str);
    /// A whole block of thinking that only its issuer can read.
    fn redacted(&mut self, data: &str);
    fn open_tool(&mut self, id: &str, name: &str);
    /// A piece of the JSON of the open call's input.
    fn input(&mut self, piece: &str);
    /// A search that the vendor ran: a call and its result, two whole blocks.
    fn search(&mut self, id: &str, search: &Searched);
    /// Ends the open block.
    fn close(&mut self);
}

/// Frames of a stream in the Messages format.
#[derive(Debug, Default)]
pub struct Frames {
    pub out: BytesMut,
    index: usize,
}

impl Frames {
    fn start(&mut self, block: &str) {
        self.out.put_slice(b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":");
        put_number(&mut self.out, self.index);
        self.out.put_slice(b",\"content_block\":");
        self.out.put_slice(block.as_bytes());
        self.out.put_slice(b"}\n\n");
    }

    /// One delta: the part of it before its text, and the text, which is quoted here.
    fn delta(&mut self, head: &[u8], text: &str) {
        self.out.put_slice(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
        put_number(&mut self.out, self.index);
        self.out.put_slice(b",\"delta\":{\"type\":");
        self.out.put_slice(head);
        quote(text, &mut self.out);
        self.out.put_slice(b"}}\n\n");
    }
}

impl Blocks for Frames {
    fn open_text(&mut self) {
        self.start(r#"{"type":"text","text":"","citations":null}"#);
    }

    fn open_refusal(&mut self) {
        self.open_text();
        // Into the same frame, before the blank line that ends it.
        self.out.truncate(self.out.len() - 1);
        self.out.put_slice(DECLINES.as_bytes());
        self.out.put_slice(b"\n");
    }

    fn text(&mut self, text: &str) {
        self.delta(b"\"text_delta\",\"text\":", text);
    }

    fn citation(&mut self, citation: &str) {
        self.out.put_slice(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
        put_number(&mut self.out, self.index);
        self.out.put_slice(b",\"delta\":{\"type\":\"citations_delta\",\"citation\":");
        self.out.put_slice(citation.as_bytes());
        self.out.put_slice(b"}}\n\n");
    }

    fn open_thinking(&mut self) {
        self.start(r#"{"type":"thinking","thinking":"","signature":""}"#);
    }

    fn thinking(&mut self, text: &str) {
        self.delta(b"\"thinking_delta\",\"thinking\":", text);
    }

    fn signature(&mut self, signature: &str) {
        self.delta(b"\"signature_delta\",\"signature\":", signature);
    }

    fn redacted(&mut self, data: &str) {
        let mut block = BytesMut::from(&b"{\"type\":\"redacted_thinking\",\"data\":"[..]);
        quote(data, &mut block);
        block.put_u8(b'}');
        self.start(std::str::from_utf8(&block).expect("made of JSON text"));
        self.close();
    }

    fn open_tool(&mut self, id: &str, name: &str) {
        let mut block = BytesMut::from(&b"{\"type\":\"tool_use\",\"id\":"[..]);
        quote(id, &mut block);
        block.put_slice(b",\"name\":");
        quote(name, &mut block);
        block.put_slice(b",\"input\":{}");
        block.put_slice(CALLER);
        self.start(std::str::from_utf8(&block).expect("made of JSON text"));
    }

    fn input(&mut self, piece: &str) {
        self.delta(b"\"input_json_delta\",\"partial_json\":", piece);
    }

    fn search(&mut self, id: &str, search: &Searched) {
        self.start(&search.call(id, "{}"));
        self.input(&search.input());
        self.close();
        self.start(&search.result(id));
        self.close();
    }

    fn close(&mut self) {
        self.out.put_slice(b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":");
        put_number(&mut self.out, self.index);
        self.out.put_slice(b"}\n\n");
        self.index += 1;
    }
}

/// The blocks of a whole answer.
#[derive(Debug, Default)]
pub struct Collected {
    pub blocks: Vec<Block>,
}

/// A finished block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Citations are JSON texts.
    Text {
        text: String,
        citations: Vec<String>,
    },
    Thinking {
        text: String,
        signature: String,
    },
    Redacted(String),
    /// One that came whole, as JSON.
    Whole(String),
    Tool {
        id: String,
        name: String,
        input: String,
    },
}

impl Blocks for Collected {
    fn open_text(&mut self) {
        self.blocks.push(Block::Text { text: String::new(), citations: Vec::new() });
    }

    fn open_refusal(&mut self) {
        self.open_text();
    }

    fn text(&mut self, piece: &str) {
        if let Some(Block::Text { text, .. }) = self.blocks.last_mut() {
            text.push_str(piece);
        }
    }

    fn citation(&mut self, citation: &str) {
        if let Some(Block::Text { citations, .. }) = self.blocks.last_mut() {
            citations.push(citation.to_owned());
        }
    }

    fn open_thinking(&mut self) {
        self.blocks.push(Block::Thinking { text: String::new(), signature: String::new() });
    }

    fn thinking(&mut self, piece: &str) {
        if let Some(Block::Thinking { text, .. }) = self.blocks.last_mut() {
            text.push_str(piece);
        }
    }

    fn signature(&mut self, piece: &str) {
        if let Some(Block::Thinking { signature, .. }) = self.blocks.last_mut() {
            signature.push_str(piece);
        }
    }

    fn redacted(&mut self, data: &str) {
        self.blocks.push(Block::Redacted(data.to_owned()));
    }

    fn open_tool(&mut self, id: &str, name: &str) {
        self.blocks.push(Block::Tool { id: id.to_owned(), name: name.to_owned(), input: String::new() });
    }

    fn input(&mut self, piece: &str) {
        if let Some(Block::Tool { input, .. }) = self.blocks.last_mut() {
            input.push_str(piece);
        }
    }

    fn search(&mut self, id: &str, search: &Searched) {
        self.blocks.push(Block::Whole(search.call(id, &search.input())));
        self.blocks.push(Block::Whole(search.result(id)));
    }

    fn close(&mut self) {}
}

impl Collected {
    /// The array `content` of an answer, as JSON.
    pub fn to_json(&self) -> String {
        let mut out = BytesMut::from(&b"["[..]);
        for (place, block) in self.blocks.iter().enumerate() {
            if place > 0 {
                out.put_u8(b',');
            }
            match block {
                Block::Text { text, citations } => {
                    out.put_slice(b"{\"type\":\"text\",\"text\":");
                    quote(text, &mut out);
                    if citations.is_empty() {
                        out.put_slice(b",\"citations\":null}");
                    } else {
                        out.put_slice(format!(",\"citations\":[{}]}}", citations.join(",")).as_bytes());
                    }
                }
                Block::Thinking { text, signature } => {
                    out.put_slice(b"{\"type\":\"thinking\",\"thinking\":");
                    quote(text, &mut out);
                    out.put_slice(b",\"signature\":");
                    quote(signature, &mut out);
                    out.put_u8(b'}');
                }
                Block::Redacted(data) => {
                    out.put_slice(b"{\"type\":\"redacted_thinking\",\"data\":");
                    quote(data, &mut out);
                    out.put_u8(b'}');
                }
                Block::Whole(block) => out.put_slice(block.as_bytes()),
                Block::Tool { id, name, input } => {
                    out.put_slice(b"{\"type\":\"tool_use\",\"id\":");
                    quote(id, &mut out);
                    out.put_slice(b",\"name\":");
                    quote(name, &mut out);
                    out.put_slice(b",\"input\":");
                    // An input that was cut short is no JSON; the answer says why it ended.
                    out.put_slice(if is_object(input) { input.as_bytes() } else { b"{}" });
                    out.put_slice(CALLER);
                }
            }
        }
        out.put_u8(b']');
        String::from_utf8(out.to_vec()).expect("made of JSON text")
    }
}

/// `text` as a JSON string.
pub(crate) fn put_number(out: &mut BytesMut, number: usize) {
    let mut digits = [0; 20];
    let (mut place, mut rest) = (digits.len(), number);
    loop {
        place -= 1;
        digits[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.put_slice(&digits[place..]);
}

/// Whether a text is one whole JSON object.
pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}
