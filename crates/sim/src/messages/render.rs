//! From blocks to bytes: the JSON of a whole answer and the events of a streamed one.
//!
//! Content is rendered apart from the frame around it (id, model, usage), which differs from call to
//! call. So a benchmark's content is rendered once and its bytes are shared by every answer.

use std::io::Write as _;

use bytes::{Bytes, BytesMut};

use super::content::{Block, Ending, json_pieces};
use crate::body::Part;

/// Rendered content, for both kinds of answer.
pub(super) struct Content {
    /// The JSON of the `content` array.
    json: Bytes,
    events: Events,
    output_tokens: u64,
    thinking_tokens: u64,
}

/// Rendered events and where each one ends.
#[derive(Default)]
struct Events {
    bytes: Bytes,
    ends: Vec<usize>,
}

/// What differs between two answers with the same content.
pub(super) struct Frame<'a> {
    pub id: usize,
    pub model: &'a str,
    pub ending: &'a Ending,
    pub input_tokens: u64,
    pub cache: Cache,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Cache {
    pub read: u64,
    pub write_5m: u64,
    pub write_1h: u64,
}

/// Events are gathered into writes of about this size when nothing asks for them one by one.
const WRITE: usize = 16 << 10;

impl Content {
    pub fn new(blocks: &[Block]) -> Self {
        let mut json = vec![b'['];
        let mut out = Writer::default();
        let (mut output_tokens, mut thinking_tokens) = (0, 0);
        for (index, block) in blocks.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            let (tokens, thinking) = render(block, index, &mut json, &mut out);
            output_tokens += tokens;
            thinking_tokens += thinking;
        }
        json.push(b']');
        Self { json: json.into(), events: out.done(), output_tokens, thinking_tokens }
    }

    /// The body of an answer that is not streamed.
    pub fn whole(&self, frame: &Frame<'_>) -> Bytes {
        let mut out = Vec::with_capacity(self.json.len() + 768);
        message(&mut out, frame, Some(self));
        out.into()
    }

    /// All events of a streamed answer, each on its own.
    pub fn events(&self, frame: &Frame<'_>) -> Vec<Bytes> {
        let (head, tail) = (self.head(frame), self.tail(frame));
        let all = [&head, &self.events, &tail];
        all.into_iter().flat_map(Events::each).collect()
    }

    /// All events in few writes, cut between events.
    pub fn writes(&self, frame: &Frame<'_>) -> Vec<Part> {
        let (head, tail) = (self.head(frame), self.tail(frame));
        let middle = &self.events;
        let mut parts = Vec::with_capacity(3 + middle.bytes.len() / WRITE);
        parts.push(Part::Bytes(head.bytes));
        let mut start = 0;
        for pair in middle.ends.windows(2) {
            if pair[1] - start > WRITE && pair[0] > start {
                parts.push(Part::Bytes(middle.bytes.slice(start..pair[0])));
                start = pair[0];
            }
        }
        parts.push(Part::Bytes(middle.bytes.slice(start..)));
        parts.push(Part::Bytes(tail.bytes));
        parts
    }

    fn head(&self, frame: &Frame<'_>) -> Events {
        let mut out = Writer::default();
        out.event("message_start", |data| {
            data.extend_from_slice(br#","message":"#);
            message(data, frame, None);
        });
        out.event("ping", |_| {});
        out.done()
    }

    fn tail(&self, frame: &Frame<'_>) -> Events {
        let mut out = Writer::default();
        out.event("message_delta", |data| {
            data.extend_from_slice(br#","delta":{"#);
            ending(data, Some(frame.ending));
            data.extend_from_slice(br#","container":null},"usage":{"#);
            counts(data, frame, self.output_tokens);
            details(data, self.thinking_tokens);
            data.push(b'}');
        });
        out.event("message_stop", |_| {});
        out.done()
    }
}

/// One event whose data is given whole.
pub(super) fn event(name: &str, data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(name.len() + data.len() + 16);
    for part in [b"event: ", name.as_bytes(), b"\ndata: ", data, b"\n\n"] {
        out.extend_from_slice(part);
    }
    out.freeze()
}

impl Events {
    fn each(&self) -> impl Iterator<Item = Bytes> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.bytes.slice(start..*end))
    }
}

#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Writer {
    /// Writes an event; the closure adds the members after `type`, with a comma before each.
    fn event(&mut self, name: &str, members: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.bytes, format_args!("event: {name}\ndata: {{\"type\":\"{name}\""));
        members(&mut self.bytes);
        self.bytes.extend_from_slice(b"}\n\n");
        self.ends.push(self.bytes.len());
    }

    fn start(&mut self, index: usize, block: std::fmt::Arguments<'_>) {
        self.event("content_block_start", |data| {
            put(data, format_args!(r#","index":{index},"content_block":{block}"#));
        });
    }

    fn delta(&mut self, index: usize, kind: &str, member: &str, text: &str) {
        self.event("content_block_delta", |data| {
            put(data, format_args!(r#","index":{index},"delta":{{"type":"{kind}","{member}":"#));
            string(data, text);
            data.push(b'}');
        });
    }

    fn stop(&mut self, index: usize) {
        self.event("content_block_stop", |data| put(data, format_args!(r#","index":{index}"#)));
    }

    fn done(self) -> Events {
        Events { bytes: self.bytes.into(), ends: self.ends }
    }
}

/// Writes one block in both forms and returns its output tokens, all and of thinking.
fn render(block: &Block, index: usize, json: &mut Vec<u8>, out: &mut Writer) -> (u64, u64) {
    let tokens = match block {
        Block::Text(pieces) => {
            json.extend_from_slice(br#"{"type":"text","text":"#);
            string(json, &pieces.concat());
            json.extend_from_slice(br#","citations":null}"#);
            out.start(index, format_args!(r#"{{"type":"text","text":"","citations":null}}"#));
            for piece in pieces {
                out.delta(index, "text_delta", "text", piece);
            }
            (pieces.len() as u64, 0)
        }
        Block::Thinking { pieces, signature } => {
            json.extend_from_slice(br#"{"type":"thinking","thinking":"#);
            string(json, &pieces.concat());
            put(json, format_args!(r#","signature":"{signature}"}}"#));
            out.start(index, format_args!(r#"{{"type":"thinking","thinking":"","signature":""}}"#));
            for piece in pieces {
                out.delta(index, "thinking_delta", "thinking", piece);
            }
            out.delta(index, "signature_delta", "signature", signature);
            (pieces.len() as u64, pieces.len() as u64)
        }
        Block::RedactedThinking { data } => {
            put(json, format_args!(r#"{{"type":"redacted_thinking","data":"{data}"}}"#));
            out.start(index, format_args!(r#"{{"type":"redacted_thinking","data":"{data}"}}"#));
            (1, 1)
        }
        Block::ToolUse { id, name, input } => {
            let mut open = format!(r#"{{"type":"tool_use","id":"{id}","name":"#).into_bytes();
            string(&mut open, name);
            open.extend_from_slice(br#","input":"#);
            let open = String::from_utf8(open).expect("JSON is UTF-8");
            put(json, format_args!("{open}{input}}}"));
            out.start(index, format_args!("{open}{{}}}}"));
            let pieces = json_pieces(input);
            for piece in &pieces {
                out.delta(index, "input_json_delta", "partial_json", piece);
            }
            (pieces.len() as u64, 0)
        }
    };
    out.stop(index);
    tokens
}

/// The message object: finished with content, or as it stands in `message_start`.
fn message(out: &mut Vec<u8>, frame: &Frame<'_>, content: Option<&Content>) {
    put(out, format_args!(r#"{{"id":"msg_sim_{}","type":"message","role":"assistant","model":"#, frame.id));
    string(out, frame.model);
    out.extend_from_slice(br#","content":"#);
    out.extend_from_slice(content.map_or(b"[]", |content| &content.json));
    out.push(b',');
    ending(out, content.map(|_| frame.ending));
    out.extend_from_slice(br#","container":null,"usage":{"#);
    // The vendor counts one output token before there is any.
    counts(out, frame, content.map_or(1, |content| content.output_tokens));
    let Cache { write_5m, write_1h, .. } = frame.cache;
    put(
        out,
        format_args!(
            r#","cache_creation":{{"ephemeral_5m_input_tokens":{write_5m},"ephemeral_1h_input_tokens":{write_1h}}}"#
        ),
    );
    details(out, content.map_or(0, |content| content.thinking_tokens));
    out.extend_from_slice(br#","inference_geo":null,"service_tier":"standard"}}"#);
}

fn ending(out: &mut Vec<u8>, ending: Option<&Ending>) {
    out.extend_from_slice(br#""stop_reason":"#);
    optional_string(out, ending.and_then(|ending| ending.reason.as_deref()));
    out.extend_from_slice(br#","stop_sequence":"#);
    optional_string(out, ending.and_then(|ending| ending.sequence.as_deref()));
    out.extend_from_slice(br#","stop_details":"#);
    out.extend_from_slice(match ending {
        Some(ending) if ending.refused => {
            br#"{"type":"refusal","category":"cyber","explanation":"Simulated refusal."}"#
        }
        _ => b"null",
    });
}

fn counts(out: &mut Vec<u8>, frame: &Frame<'_>, output_tokens: u64) {
    let Cache { read, write_5m, write_1h } = frame.cache;
    put(
        out,
        format_args!(
            r#""input_tokens":{},"output_tokens":{output_tokens},"cache_creation_input_tokens":{},"cache_read_input_tokens":{read}"#,
            frame.input_tokens,
            write_5m.saturating_add(write_1h),
        ),
    );
}

fn details(out: &mut Vec<u8>, thinking_tokens: u64) {
    put(
        out,
        format_args!(r#","output_tokens_details":{{"thinking_tokens":{thinking_tokens}}},"server_tool_use":null"#),
    );
}

fn optional_string(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("memory accepts every write and strings always serialize");
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("memory accepts every write");
}
