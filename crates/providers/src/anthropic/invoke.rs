//! The stream of Bedrock's invoke call: each frame holds one event of the Messages format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::borrow::Cow;

use crate::fault::{Class, Fault};
use crate::translate::{Decode, Stream};

/// Unwraps events and gives them the name that the event stream has no place for.
#[derive(Debug, Default)]
pub struct InvokeDecoder {
    ended: bool,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    bytes: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

impl Decode for InvokeDecoder {
    fn feed(&mut self, name: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        if name != "chunk" {
            return Ok(());
        }
        let broken = || Fault::in_answer(Class::BadResponse);
        let chunk: Chunk<'_> = serde_json::from_slice(data).map_err(|_| broken())?;
        let Some(encoded) = chunk.bytes else { return Ok(()) };
        let mut event = STANDARD.decode(encoded.as_bytes()).map_err(|_| broken())?;
        // A line break in JSON stands between its tokens; here it would end the line.
        event.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        let typed: Typed<'_> = serde_json::from_slice(&event).map_err(|_| broken())?;
        if typed.kind.contains(['\n', '\r']) {
            return Err(broken());
        }
        self.ended |= matches!(typed.kind.as_ref(), "message_stop" | "error");
        let kind = typed.kind.into_owned();
        stream.verbatim(&kind, &event);
        Ok(())
    }

    fn end(&mut self, _: &mut Stream) -> Result<(), Fault> {
        if self.ended { Ok(()) } else { Err(Fault::without_answer(Class::Unreachable)) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{adapter, eventstream};

    fn frame(event: &str) -> Bytes {
        eventstream::encode("chunk", format!(r#"{{"bytes":"{}","p":"abc"}}"#, STANDARD.encode(event)).as_bytes())
    }

    #[test]
    fn events_come_out_verbatim_with_their_names() {
        let events =
            [r#"{"type":"message_start","x":1.0}"#, r#"{"type":"new_kind","t":"潮"}"#, r#"{"type":"message_stop"}"#];
        let bytes: Vec<u8> = events.iter().flat_map(|event| frame(event).to_vec()).collect();
        let wanted = "event: message_start\ndata: {\"type\":\"message_start\",\"x\":1.0}\n\nevent: new_kind\ndata: {\"type\":\"new_kind\",\"t\":\"潮\"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        for cut in 1..bytes.len() {
            let mut translator = adapter::invoke_translator(1 << 16);
            let mut out = translator.feed(Bytes::copy_from_slice(&bytes[..cut])).to_vec();
            out.extend_from_slice(&translator.feed(Bytes::copy_from_slice(&bytes[cut..])));
            out.extend_from_slice(&translator.end());
            assert_eq!(String::from_utf8(out).unwrap(), wanted, "cut at {cut}");
            assert_eq!(translator.fault(), None);
            assert!(!translator.is_estimated() && !translator.is_settled());
        }
    }

    #[test]
    fn a_cut_stream_and_an_exception_are_faults() {
        let mut cut = adapter::invoke_translator(1 << 16);
        cut.feed(frame(r#"{"type":"message_start"}"#));
        cut.end();
        assert_eq!(cut.fault().unwrap().class, Class::Unreachable);
        let mut failed = adapter::invoke_translator(1 << 16);
        failed.feed(eventstream::encode_exception("throttlingException", br#"{"message":"x"}"#));
        assert_eq!(failed.fault().unwrap().class, Class::RateLimit);
        let mut broken = adapter::invoke_translator(1 << 16);
        broken.feed(eventstream::encode("chunk", br#"{"bytes":"!"}"#));
        assert_eq!(broken.fault().unwrap().class, Class::BadResponse);
    }
}
