//! A stream in the Converse protocol, event by event.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;

use super::answer::{Answer, Fields, ToolUse, counted, sign, stop};
use super::citation::Citation;
use crate::fault::{Class, Fault};
use crate::translate::{Context, Decode, Stream, is_something};

/// Reads events. The usage comes after the end was named, and only then is the answer whole.
pub struct Decoder {
    context: Context,
    /// The block that thinking is going on in, and has come without a signature so far.
    unsigned: bool,
    named_end: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStart<'a> {
    #[serde(default)]
    content_block_index: Option<u32>,
    #[serde(borrow, default)]
    start: Option<Started<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Started<'a> {
    #[serde(borrow, default)]
    tool_use: Option<ToolUse<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockDelta<'a> {
    #[serde(default)]
    content_block_index: Option<u32>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_use: Option<Input<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Reasoning<'a>>,
    #[serde(borrow, default)]
    citation: Option<Citation<'a>>,
}

#[derive(Deserialize)]
struct Input<'a> {
    #[serde(borrow, default)]
    input: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reasoning<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    redacted_content: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStop {
    #[serde(default)]
    content_block_index: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageStop<'a> {
    #[serde(borrow, default)]
    stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    additional_model_response_fields: Option<Fields<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    service_tier: Option<&'a RawValue>,
}

fn parse<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(data).map_err(|_| Fault::in_answer(Class::BadResponse))
}

fn parse_owned<T: DeserializeOwned>(data: &[u8]) -> Result<T, Fault> {
    parse(data)
}

impl Decoder {
    pub fn new(context: Context, _now: Timestamp) -> Self {
        Self { context, unsigned: false, named_end: false }
    }

    fn delta(&mut self, event: BlockDelta<'_>, stream: &mut Stream) {
        let key = event.content_block_index.unwrap_or(0);
        let Some(delta) = event.delta else { return };
        if let Some(text) = delta.text.filter(|text| !text.is_empty()) {
            self.settle(stream);
            stream.encoder.text(&text);
        }
        if let Some(input) = delta.tool_use.and_then(|tool| tool.input) {
            stream.encoder.tool_arguments(key, &input);
        }
        if let Some(reasoning) = delta.reasoning_content {
            if let Some(text) = reasoning.text.filter(|text| !text.is_empty()) {
                stream.encoder.thinking(&text);
                self.unsigned = true;
            }
            if let Some(signature) = reasoning.signature {
                sign(self.unsigned, Some(&signature), &mut stream.encoder, &self.context);
                self.unsigned = false;
            }
            if let Some(data) = reasoning.redacted_content {
                self.settle(stream);
                stream.encoder.redacted(&data);
            }
        }
        if let Some(citation) = delta.citation.and_then(|citation| citation.to_json()) {
            stream.encoder.citation(citation);
        }
    }

    /// Thinking is over without a signature of its own.
    fn settle(&mut self, stream: &mut Stream) {
        if std::mem::take(&mut self.unsigned) {
            sign(true, None, &mut stream.encoder, &self.context);
        }
    }

    fn finish(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        self.settle(stream);
        is_something(&stream.encoder, &stream.counted)?;
        stream.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
    }
}

impl Decode for Decoder {
    fn feed(&mut self, name: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        if stream.is_finished() {
            return Ok(());
        }
        match name {
            // A whole answer to a streamed request.
            "" => {
                let answer: Answer<'_> = parse(data)?;
                stream.start();
                answer.read(&mut stream.encoder, &mut stream.counted, &self.context)?;
                return self.finish(stream);
            }
            "messageStart" => stream.start(),
            "contentBlockStart" => {
                stream.start();
                let event: BlockStart<'_> = parse(data)?;
                if let Some(call) = event.start.and_then(|start| start.tool_use) {
                    self.settle(stream);
                    let key = event.content_block_index.unwrap_or(0);
                    if call.is_servers() {
                        stream.encoder.warn("dropped:server_tool_use");
                    } else {
                        let name = call.name.as_deref().unwrap_or_default();
                        stream.encoder.tool_start(key, call.tool_use_id.as_deref(), name);
                    }
                }
            }
            "contentBlockDelta" => {
                stream.start();
                self.delta(parse(data)?, stream);
            }
            "contentBlockStop" => {
                let event: BlockStop = parse_owned(data)?;
                self.settle(stream);
                stream.encoder.tool_end(event.content_block_index.unwrap_or(0));
                stream.encoder.end_block();
            }
            "messageStop" => {
                stream.start();
                let event: MessageStop<'_> = parse(data)?;
                let met = event.additional_model_response_fields.and_then(|fields| fields.stop_sequence);
                stream.encoder.native.end(event.stop_reason.as_deref());
                stream.encoder.stop(stop(event.stop_reason.as_deref(), met.as_deref())?);
                self.named_end = true;
            }
            "metadata" => {
                let event: Metadata<'_> = parse(data)?;
                stream.counted.update(counted(event.usage, event.service_tier));
                if self.named_end {
                    return self.finish(stream);
                }
            }
            // Events that we do not know say nothing we could hand on.
            _ => {}
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.named_end
    }

    fn end(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        if stream.is_finished() {
            return Ok(());
        }
        // The usage may get lost on the way; the answer is whole without it.
        if self.named_end {
            return self.finish(stream);
        }
        Err(Fault::without_answer(Class::Unreachable))
    }
}
