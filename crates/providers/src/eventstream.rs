//! The binary frames in which Amazon sends events (`application/vnd.amazon.eventstream`).

use aws_smithy_eventstream::frame::{read_message_from, write_message_to};
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use bytes::{Bytes, BytesMut};
use tidegate_wire::json::quoted;

/// Total length, length of the headers and their checksum.
const PRELUDE: usize = 12;
/// A frame without headers and payload.
const LEAST: usize = PRELUDE + 4;

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Message {
        name: String,
        payload: Bytes,
    },
    /// The stream has failed. Where the service names only a code and a text, the payload is made of them.
    Exception {
        kind: String,
        payload: Bytes,
    },
}

/// The stream cannot be read any further: a wrong checksum or length, or a frame beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Cuts bytes into frames, wherever they were cut on their way.
#[derive(Debug)]
pub struct Splitter {
    buffer: BytesMut,
    limit: usize,
    damaged: bool,
}

impl Splitter {
    /// No frame may be longer than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit, damaged: false }
    }

    pub fn feed(&mut self, chunk: Bytes) {
        if !self.damaged {
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// The next frame, if a whole one is there. After damage there is none.
    #[expect(clippy::should_implement_trait, reason = "more may come after a `None`, and a frame may be broken")]
    pub fn next(&mut self) -> Result<Option<Event>, Damaged> {
        if self.damaged {
            return Err(Damaged);
        }
        let next = self.read();
        if next.is_err() {
            self.damaged = true;
            self.buffer = BytesMut::new();
        }
        next
    }

    fn read(&mut self) -> Result<Option<Event>, Damaged> {
        let Some(prelude) = self.buffer.first_chunk::<PRELUDE>() else { return Ok(None) };
        let [a, b, c, d, ..] = *prelude;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        // A length beyond the limit is not waited for.
        if length < LEAST || length > self.limit {
            return Err(Damaged);
        }
        if self.buffer.len() < length {
            return Ok(None);
        }
        let frame = self.buffer.split_to(length).freeze();
        let message = read_message_from(frame).map_err(|_| Damaged)?;
        Ok(Some(event(&message)))
    }
}

fn event(message: &Message) -> Event {
    let header = |name: &str| {
        let found = message.headers().iter().find(|header| header.name().as_str() == name)?;
        found.value().as_string().ok().map(|text| text.as_str().to_owned())
    };
    let payload = message.payload().clone();
    match header(":message-type").as_deref() {
        Some("exception") => Event::Exception { kind: header(":exception-type").unwrap_or_default(), payload },
        Some("error") => {
            let words = header(":error-message").unwrap_or_default();
            let payload = Bytes::from(format!("{{\"message\":{}}}", quoted(&words)));
            Event::Exception { kind: header(":error-code").unwrap_or_default(), payload }
        }
        _ => Event::Message { name: header(":event-type").unwrap_or_default(), payload },
    }
}

/// A frame with an event of this type. Empty when a name is longer than the format can hold.
pub fn encode(event_type: &str, payload: &[u8]) -> Bytes {
    frame(":event-type", event_type, "event", payload)
}

/// A frame that says that the stream has failed.
pub fn encode_exception(exception_type: &str, payload: &[u8]) -> Bytes {
    frame(":exception-type", exception_type, "exception", payload)
}

fn frame(name: &'static str, kind: &str, message_type: &'static str, payload: &[u8]) -> Bytes {
    let text = |text: &str| HeaderValue::String(text.to_owned().into());
    let message = Message::new(Bytes::copy_from_slice(payload))
        .add_header(Header::new(name, text(kind)))
        .add_header(Header::new(":content-type", text("application/json")))
        .add_header(Header::new(":message-type", text(message_type)));
    let mut out = Vec::new();
    match write_message_to(&message, &mut out) {
        Ok(()) => out.into(),
        Err(_) => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: &str = "0000007a00000051ca2c46650b3a6576656e742d7479706507000b6d65737361676553746f700d3a636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b2273746f70526561736f6e223a22656e645f7475726e227d5fbf09fc";

    fn published() -> Vec<u8> {
        let digits = PUBLISHED.as_bytes().chunks(2);
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn all(pieces: &[&[u8]]) -> Result<Vec<Event>, Damaged> {
        let mut splitter = Splitter::new(1 << 16);
        let mut events = Vec::new();
        for piece in pieces {
            splitter.feed(Bytes::copy_from_slice(piece));
            while let Some(event) = splitter.next()? {
                events.push(event);
            }
        }
        Ok(events)
    }

    #[test]
    fn the_published_frame_is_read_and_written() {
        let payload = br#"{"stopReason":"end_turn"}"#;
        assert_eq!(published().len(), 122);
        assert_eq!(encode("messageStop", payload), published());
        let message = Event::Message { name: "messageStop".to_owned(), payload: Bytes::from_static(payload) };
        assert_eq!(all(&[&published()]), Ok(vec![message]));
    }

    #[test]
    fn p21_frames_are_the_same_however_the_bytes_are_cut() {
        let mut bytes = encode("contentBlockDelta", r#"{"delta":{"text":"潮 ⚓"}}"#.as_bytes()).to_vec();
        bytes.extend(published());
        bytes.extend(encode_exception("throttlingException", br#"{"message":"slow down"}"#));
        let whole = all(&[&bytes]).unwrap();
        assert_eq!(whole.len(), 3);
        for cut in 1..bytes.len() {
            assert_eq!(all(&[&bytes[..cut], &bytes[cut..]]).as_ref(), Ok(&whole), "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(all(&single), Ok(whole));
    }

    #[test]
    fn a_wrong_byte_anywhere_is_found_or_waited_for() {
        let good = published();
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 0x01;
            // A longer length waits for bytes that never come; everything else is found out at once.
            let found = all(&[&bad]);
            assert!(found == Err(Damaged) || (place < 4 && found == Ok(Vec::new())), "byte {place}: {found:?}");
        }
    }

    #[test]
    fn lengths_beyond_the_limit_and_below_the_least_are_refused_at_once() {
        let mut splitter = Splitter::new(100);
        splitter.feed(published()[..12].to_vec().into());
        assert_eq!(splitter.next(), Err(Damaged));
        splitter.feed(published().into());
        assert_eq!(splitter.next(), Err(Damaged), "nothing more comes after damage");
        assert_eq!(all(&[&[0; 16]]), Err(Damaged));
    }

    #[test]
    fn random_bytes_do_no_harm() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for round in 0..2_000 {
            let mut bytes: Vec<u8> = (0..64)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8
                })
                .collect();
            bytes[..4].copy_from_slice(&(16 + round % 48_u32).to_be_bytes());
            assert!(all(&[&bytes]).is_err());
        }
    }

    #[test]
    fn an_unmodelled_error_is_an_exception_with_its_words() {
        let text = |text: &str| HeaderValue::String(text.to_owned().into());
        let message = Message::new(Bytes::new())
            .add_header(Header::new(":message-type", text("error")))
            .add_header(Header::new(":error-code", text("InternalError")))
            .add_header(Header::new(":error-message", text("it \"broke\"")));
        let mut bytes = Vec::new();
        write_message_to(&message, &mut bytes).unwrap();
        let payload = Bytes::from_static(br#"{"message":"it \"broke\""}"#);
        assert_eq!(all(&[&bytes]), Ok(vec![Event::Exception { kind: "InternalError".to_owned(), payload }]));
    }
}
