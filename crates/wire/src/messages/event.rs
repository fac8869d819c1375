//! The events of a streamed answer, and errors, which are events and bodies alike.

use bytes::BytesMut;

use super::{AppliedEdits, Block, Citation, Container, Response, StopDetails, StopReason, Usage};
use crate::object::{Raw, object, tagged};
use crate::sse;

tagged! {
    /// One event of a streamed answer.
    pub enum Event {
        "message_start" => MessageStart(Box<MessageStart>),
        "content_block_start" => BlockStart(Box<BlockStart>),
        "content_block_delta" => BlockDelta(BlockDelta),
        "content_block_stop" => BlockStop(BlockStop),
        "message_delta" => MessageDelta(Box<MessageDelta>),
        "message_stop" => MessageStop(MessageStop),
        "ping" => Ping(Ping),
        "error" => Error(ErrorBody),
    }
}

impl Event {
    pub fn parse(data: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(data)
    }

    pub fn message_start(message: Response) -> Self {
        Self::MessageStart(Box::new(MessageStart::new(message)))
    }

    pub fn block_start(index: usize, block: Block) -> Self {
        Self::BlockStart(Box::new(BlockStart::new(index, block)))
    }

    pub fn block_delta(index: usize, delta: Delta) -> Self {
        Self::BlockDelta(BlockDelta::new(index, delta))
    }

    pub fn block_stop(index: usize) -> Self {
        Self::BlockStop(BlockStop::new(index))
    }

    /// How the answer ended. `usage` gets the members every such event has.
    pub fn message_delta(delta: MessageEnd, mut usage: Usage) -> Self {
        usage.complete_delta();
        Self::MessageDelta(Box::new(MessageDelta { usage: Some(usage), ..MessageDelta::new(delta) }))
    }

    pub fn message_stop() -> Self {
        Self::MessageStop(MessageStop::default())
    }

    pub fn ping() -> Self {
        Self::Ping(Ping::default())
    }

    /// Writes the event as one frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut data = serde_json::to_vec(self).expect("names are strings and numbers finite, so this is always JSON");
        // Raw parts may be pretty-printed. Inside strings line breaks are escaped, so these are mere white space.
        for byte in &mut data {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        sse::encode(out, self.kind(), &data);
    }
}

object! {
    pub struct MessageStart as "message_start" {
        required { message: Response }
    }
}

object! {
    pub struct BlockStart as "content_block_start" {
        required { index: usize, content_block: Block }
    }
}

object! {
    pub struct BlockDelta as "content_block_delta" {
        required { index: usize, delta: Delta }
    }
}

object! {
    pub struct BlockStop as "content_block_stop" {
        required { index: usize }
    }
}

tagged! {
    /// What is added to the open block.
    pub enum Delta {
        "text_delta" => Text(TextDelta),
        "input_json_delta" => InputJson(InputJsonDelta),
        "citations_delta" => Citation(CitationDelta),
        "thinking_delta" => Thinking(ThinkingDelta),
        "signature_delta" => Signature(SignatureDelta),
        "compaction_delta" => Compaction(CompactionDelta),
    }
}

object! {
    pub struct TextDelta as "text_delta" {
        required { text: String }
    }
}

object! {
    /// A piece of the text of `input`; pieces end anywhere, even within an escape.
    pub struct InputJsonDelta as "input_json_delta" {
        required { partial_json: String }
    }
}

object! {
    pub struct CitationDelta as "citations_delta" {
        required { citation: Citation }
    }
}

object! {
    pub struct ThinkingDelta as "thinking_delta" {
        required { thinking: String }
    }
}

object! {
    pub struct SignatureDelta as "signature_delta" {
        required { signature: String }
    }
}

object! {
    pub struct CompactionDelta as "compaction_delta" {
        required { content: Option<String> }
        nullable { encrypted_content: String }
    }
}

object! {
    pub struct MessageDelta as "message_delta" {
        required { delta: MessageEnd }
        optional { usage: Usage }
        nullable { context_management: AppliedEdits }
    }
}

object! {
    /// What the open answer gets at its end.
    pub struct MessageEnd {
        nullable {
            stop_reason: StopReason,
            stop_sequence: String,
            stop_details: StopDetails,
            container: Container,
        }
    }
}

impl MessageEnd {
    /// An end with every member written.
    pub fn of(stop_reason: StopReason) -> Self {
        Self {
            stop_reason: Some(Some(stop_reason)),
            stop_sequence: Some(None),
            stop_details: Some(None),
            container: Some(None),
            ..Self::default()
        }
    }
}

object! {
    /// The last event. Routing metadata, whose name carries the brand, is in `extra`.
    pub struct MessageStop as "message_stop" {}
}

object! {
    pub struct Ping as "ping" {}
}

object! {
    /// An error: the last event of a stream, or a body.
    pub struct ErrorBody as "error" {
        required { error: ErrorDetail }
        optional { metadata: Raw }
        nullable { request_id: String }
    }
}

object! {
    pub struct ErrorDetail {
        required { kind as "type": String, message: String }
        optional {
            /// Ours; upstreams do not send it.
            error_type: String,
            availability: String,
            details: Raw,
        }
    }
}
