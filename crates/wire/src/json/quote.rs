//! Texts as JSON strings.

use bytes::BufMut;

use super::{any, scan};

/// `text` as a JSON string, quotes included.
pub fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    quote(text, &mut out);
    String::from_utf8(out).expect("nothing but ASCII was put in")
}

/// Appends `text` as a JSON string, quotes included.
pub fn quote(text: &str, out: &mut impl BufMut) {
    out.put_u8(b'"');
    if is_plain(text) {
        out.put_slice(text.as_bytes());
    } else {
        escape(text.as_bytes(), out);
    }
    out.put_u8(b'"');
}

/// Whether a text stands in JSON as it is.
fn is_plain(text: &str) -> bool {
    !any(text.as_bytes(), must_be_escaped)
}

fn must_be_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Eight bytes are looked at in one step: conversations are full of quotes and ends of lines.
fn escape(bytes: &[u8], out: &mut impl BufMut) {
    let (mut plain, mut at) = (0, 0);
    while at < bytes.len() {
        let found = match bytes[at..].first_chunk() {
            Some(eight) => scan::first_odd(u64::from_le_bytes(*eight)),
            None => bytes[at..].iter().position(|byte| must_be_escaped(*byte)),
        };
        let Some(found) = found else {
            at += 8;
            continue;
        };
        at += found;
        out.put_slice(&bytes[plain..at]);
        push(bytes[at], out);
        at += 1;
        plain = at;
    }
    out.put_slice(&bytes[plain..]);
}

fn push(byte: u8, out: &mut impl BufMut) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'\n' => b'n',
        b'\t' => b't',
        b'\r' => b'r',
        0x08 => b'b',
        0x0c => b'f',
        0..0x20 => {
            let [high, low] = [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
            return out.put_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        }
        _ => byte,
    };
    out.put_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_quoted_as_a_writer_of_json_would(text in r#"[a-z\\"\n\x7fé]{0,40}"#) {
            let expected = serde_json::to_string(&text).unwrap();
            let mut out = b"[".to_vec();
            quote(&text, &mut out);
            prop_assert_eq!(out, format!("[{expected}").into_bytes());
            prop_assert_eq!(quoted(&text), expected);
        }
    }

    #[test]
    fn each_byte_is_seen_at_each_place() {
        for byte in 0..0x80_u8 {
            for (before, behind) in (0..20).flat_map(|before| [0, 1, 7, 8, 30].map(|behind| (before, behind))) {
                let text = format!("{}{}{}", "é".repeat(before), char::from(byte), "x".repeat(behind));
                assert_eq!(quoted(&text), serde_json::to_string(&text).unwrap());
            }
        }
    }
}
