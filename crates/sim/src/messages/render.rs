//! From blocks to bytes: the JSON of a whole answer and the events of a streamed one.
//!
//! Content is rendered apart from the frame around it (id, model, usage), which differs from call to
//! call. So a benchmark's content is rendered once and its bytes are shared by every answer.

use std::io::Write as _;

use bytes::Bytes;

use crate::content::{Block, Ending, json_pieces};
use crate::events::{Events, Run, Writer};
use crate::said::{Cache, Said};

/// What only the vendor can read of a page; "simulated page" keeps it recognisable in a dump.
const SEALED: &str = "c2ltdWxhdGVkIHBhZ2U=";

/// Rendered content, for both kinds of answer.
pub(super) struct Content {
    /// The JSON of the `content` array.
    json: Bytes,
    events: Run,
    output_tokens: u64,
    thinking_tokens: u64,
    searches: usize,
}

impl Content {
    pub fn new(blocks: &[Block]) -> Self {
        let mut json = vec![b'['];
        let mut out = Writer::default();
        let (mut output_tokens, mut thinking_tokens) = (0, 0);
        for (index, block) in blocks.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            render(block, index, &mut json, &mut out);
            let (tokens, thinking) = block.tokens();
            output_tokens += tokens;
            thinking_tokens += thinking;
        }
        json.push(b']');
        let searches = blocks.iter().filter(|block| matches!(block, Block::Search { .. })).count();
        Self { json: json.into(), events: out.done(), output_tokens, thinking_tokens, searches }
    }

    /// The body of an answer that is not streamed.
    pub fn whole(&self, said: &Said<'_>) -> Bytes {
        let mut out = Vec::with_capacity(self.json.len() + 768);
        message(&mut out, said, Some(self));
        out.into()
    }

    /// All events of a streamed answer.
    pub fn events(&self, said: &Said<'_>) -> Events {
        Events::of([self.head(said), self.events.clone(), self.tail(said)])
    }

    fn head(&self, said: &Said<'_>) -> Run {
        let mut out = Writer::default();
        out.event("message_start", |data| {
            data.extend_from_slice(br#","message":"#);
            message(data, said, None);
        });
        out.event("ping", |_| {});
        out.done()
    }

    fn tail(&self, said: &Said<'_>) -> Run {
        let mut out = Writer::default();
        out.event("message_delta", |data| {
            data.extend_from_slice(br#","delta":{"#);
            ending(data, Some(&said.ending));
            data.extend_from_slice(br#","container":null},"usage":{"#);
            counts(data, said, self.output_tokens);
            details(data, self.thinking_tokens, self.searches);
            data.push(b'}');
        });
        out.event("message_stop", |_| {});
        out.done()
    }
}

/// What every event of the protocol has: its name again as the type of its data.
trait Typed {
    fn event(&mut self, name: &str, members: impl FnOnce(&mut Vec<u8>));
    fn start(&mut self, index: usize, block: std::fmt::Arguments<'_>);
    fn delta(&mut self, index: usize, kind: &str, member: &str, text: &str);
    fn stop(&mut self, index: usize);
}

impl Typed for Writer {
    /// The closure adds the members after `type`, with a comma before each.
    fn event(&mut self, name: &str, members: impl FnOnce(&mut Vec<u8>)) {
        self.write(|out| {
            put(out, format_args!("event: {name}\ndata: {{\"type\":\"{name}\""));
            members(out);
            out.extend_from_slice(b"}\n\n");
        });
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
}

/// Writes one block in both forms.
fn render(block: &Block, index: usize, json: &mut Vec<u8>, out: &mut Writer) {
    match block {
        Block::Text(pieces) => {
            json.extend_from_slice(br#"{"type":"text","text":"#);
            string(json, &pieces.concat());
            json.extend_from_slice(br#","citations":null}"#);
            out.start(index, format_args!(r#"{{"type":"text","text":"","citations":null}}"#));
            for piece in pieces {
                out.delta(index, "text_delta", "text", piece);
            }
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
        }
        Block::RedactedThinking { data } => {
            put(json, format_args!(r#"{{"type":"redacted_thinking","data":"{data}"}}"#));
            out.start(index, format_args!(r#"{{"type":"redacted_thinking","data":"{data}"}}"#));
        }
        Block::ToolUse { id, name, input } => {
            let mut open = format!(r#"{{"type":"tool_use","id":"{id}","name":"#).into_bytes();
            string(&mut open, name);
            open.extend_from_slice(br#","input":"#);
            let open = String::from_utf8(open).expect("JSON is UTF-8");
            put(json, format_args!("{open}{input}}}"));
            out.start(index, format_args!("{open}{{}}}}"));
            for piece in json_pieces(input) {
                out.delta(index, "input_json_delta", "partial_json", piece);
            }
        }
        Block::Search { id, query, .. } => {
            let input = serde_json::json!({"query": query}).to_string();
            let open = format!(
                r#"{{"type":"server_tool_use","id":"{id}","name":"web_search","caller":{{"type":"direct"}},"input":"#
            );
            put(json, format_args!("{open}{input}}}"));
            out.start(index, format_args!("{open}{{}}}}"));
            for piece in json_pieces(&input) {
                out.delta(index, "input_json_delta", "partial_json", piece);
            }
        }
        Block::Found { id, found } => {
            let page = |(url, title): &(String, String)| {
                serde_json::json!({"type": "web_search_result", "url": url, "title": title, "page_age": null,
                    "encrypted_content": SEALED})
            };
            let block = serde_json::json!({"type": "web_search_tool_result", "tool_use_id": id,
                "caller": {"type": "direct"}, "content": found.iter().map(page).collect::<Vec<_>>()});
            put(json, format_args!("{block}"));
            out.start(index, format_args!("{block}"));
        }
        Block::Cited { pieces, url, title } => {
            let text = pieces.concat();
            let citation = serde_json::json!({"type": "web_search_result_location", "url": url, "title": title,
                "cited_text": text, "encrypted_index": SEALED});
            json.extend_from_slice(br#"{"type":"text","text":"#);
            string(json, &text);
            put(json, format_args!(r#","citations":[{citation}]}}"#));
            out.start(index, format_args!(r#"{{"type":"text","text":"","citations":[]}}"#));
            for piece in pieces {
                out.delta(index, "text_delta", "text", piece);
            }
            out.event("content_block_delta", |data| {
                put(
                    data,
                    format_args!(r#","index":{index},"delta":{{"type":"citations_delta","citation":{citation}}}"#),
                );
            });
        }
    }
    out.stop(index);
}

/// The message object: finished with content, or as it stands in `message_start`.
fn message(out: &mut Vec<u8>, said: &Said<'_>, content: Option<&Content>) {
    put(out, format_args!(r#"{{"id":"msg_sim_{}","type":"message","role":"assistant","model":"#, said.id));
    string(out, said.model);
    out.extend_from_slice(br#","content":"#);
    out.extend_from_slice(content.map_or(b"[]", |content| &content.json));
    out.push(b',');
    ending(out, content.map(|_| &said.ending));
    out.extend_from_slice(br#","container":null,"usage":{"#);
    // The vendor counts one output token before there is any.
    counts(out, said, content.map_or(1, |content| content.output_tokens));
    let Cache { write_5m, write_1h, .. } = said.cache;
    put(
        out,
        format_args!(
            r#","cache_creation":{{"ephemeral_5m_input_tokens":{write_5m},"ephemeral_1h_input_tokens":{write_1h}}}"#
        ),
    );
    details(out, content.map_or(0, |content| content.thinking_tokens), content.map_or(0, |content| content.searches));
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

fn counts(out: &mut Vec<u8>, said: &Said<'_>, output_tokens: u64) {
    let Cache { read, write_5m, write_1h } = said.cache;
    put(
        out,
        format_args!(
            r#""input_tokens":{},"output_tokens":{output_tokens},"cache_creation_input_tokens":{},"cache_read_input_tokens":{read}"#,
            said.input_tokens,
            write_5m.saturating_add(write_1h),
        ),
    );
}

fn details(out: &mut Vec<u8>, thinking_tokens: u64, searches: usize) {
    put(out, format_args!(r#","output_tokens_details":{{"thinking_tokens":{thinking_tokens}}},"server_tool_use":"#));
    match searches {
        0 => out.extend_from_slice(b"null"),
        _ => put(out, format_args!(r#"{{"web_search_requests":{searches},"web_fetch_requests":0}}"#)),
    }
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
