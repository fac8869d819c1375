//! Amazon's binary event stream: a length, headers, a payload, and a checksum over each part.

use serde_json::Value;

/// An event whose payload is JSON.
pub(crate) fn event(kind: &str, payload: &Value) -> Vec<u8> {
    frame(&[(":event-type", kind), CONTENT, (":message-type", "event")], payload.to_string().as_bytes())
}

/// An error that the service's definition names; it ends the stream.
pub(crate) fn exception(kind: &str, payload: &Value) -> Vec<u8> {
    frame(&[(":exception-type", kind), CONTENT, (":message-type", "exception")], payload.to_string().as_bytes())
}

/// An error that the definition does not name: all of it is in the headers.
pub(crate) fn error(code: &str, message: &str) -> Vec<u8> {
    frame(&[(":error-code", code), (":error-message", message), (":message-type", "error")], b"")
}

const CONTENT: (&str, &str) = (":content-type", "application/json");

/// A header's value that is a string.
const STRING: u8 = 7;

pub(crate) fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        head.extend_from_slice(name.as_bytes());
        head.push(STRING);
        // A script may have any message; one too long for its length is cut, at a character.
        let value = &value[..value.floor_char_boundary(usize::from(u16::MAX))];
        head.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        head.extend_from_slice(value.as_bytes());
    }
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    // Two lengths and two checksums of four bytes each.
    let mut out = Vec::with_capacity(16 + head.len() + payload.len());
    out.extend_from_slice(&length(16 + head.len() + payload.len()));
    out.extend_from_slice(&length(head.len()));
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out
}

/// The checksum of zip and Ethernet.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| (sum >> 8) ^ TABLE[usize::from(sum.to_le_bytes()[0] ^ byte)])
}

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    let mut start = 0;
    while at < 256 {
        let mut sum: u32 = start;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
            bit += 1;
        }
        table[at] = sum;
        at += 1;
        start += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn checksums_are_those_of_everyone() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn a_frame_is_the_one_other_encoders_make() {
        let hex: String =
            event("messageStop", &json!({"stopReason": "end_turn"})).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0000007a00000051ca2c46650b3a6576656e742d7479706507000b6d65737361676553746f700d3a636f6e74656e742d747970\
             650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576656e747b2273746f70526561\
             736f6e223a22656e645f7475726e227d5fbf09fc"
        );
    }

    #[test]
    fn a_header_too_long_is_cut_at_a_character() {
        let long = "ä".repeat(40_000);
        assert!(frame(&[(":error-message", &long)], b"").len() < 66_000);
    }
}
