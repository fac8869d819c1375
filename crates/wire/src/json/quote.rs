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

/// Eight bytes are looked at and taken in one step: conversations are full of quotes and ends of lines.
fn escape(bytes: &[u8], out: &mut impl BufMut) {
    let mut piece = Piece { bytes: [0; PIECE], length: 0 };
    let mut rest = bytes;
    while let Some(eight) = rest.first_chunk::<8>() {
        if piece.length > PIECE - ROOM {
            piece.flush(out);
        }
        let found = scan::first_odd(u64::from_le_bytes(*eight));
        piece.put(*eight, found.unwrap_or(8));
        let taken = match found {
            Some(at) => {
                piece.escape(eight[at]);
                at + 1
            }
            None => 8,
        };
        rest = &rest[taken..];
    }
    piece.flush(out);
    for byte in rest {
        if must_be_escaped(*byte) {
            piece.escape(*byte);
        } else {
            piece.put([*byte; 8], 1);
        }
    }
    piece.flush(out);
}

/// Bytes that are handed on together.
const PIECE: usize = 128;
/// What one step may add to them: eight bytes, and another that is escaped with six.
const ROOM: usize = 8 + 6 + 8;

struct Piece {
    bytes: [u8; PIECE],
    length: usize,
}

impl Piece {
    /// The first few of eight.
    #[inline]
    fn put(&mut self, eight: [u8; 8], count: usize) {
        self.bytes[self.length..self.length + 8].copy_from_slice(&eight);
        self.length += count;
    }

    #[inline]
    fn escape(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\t' => b't',
            b'\r' => b'r',
            0x08 => b'b',
            0x0c => b'f',
            _ => {
                let [high, low] = [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
                return self.put([b'\\', b'u', b'0', b'0', high, low, 0, 0], 6);
            }
        };
        self.put([b'\\', short, 0, 0, 0, 0, 0, 0], 2);
    }

    fn flush(&mut self, out: &mut impl BufMut) {
        out.put_slice(&self.bytes[..self.length]);
        self.length = 0;
    }
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
