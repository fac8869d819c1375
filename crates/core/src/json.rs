//! Writing JSON for what is written with every call. The bytes are those that `serde_json` writes; it looks at every
//! character of every name, which costs more than all the rest.

/// A text, in quotes.
pub fn text(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    within(out, text);
    out.push(b'"');
}

/// The same without the quotes.
pub fn within(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    if must_be_escaped(bytes) {
        bytes.iter().for_each(|byte| push(out, *byte));
    } else {
        out.extend_from_slice(bytes);
    }
}

/// A whole number.
pub fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Whether a text holds anything that cannot stand in a string as it is. Texts are short and many, so eight bytes are
/// looked at in one step.
fn must_be_escaped(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [b' '; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).fold(false, |is_odd, word| is_odd | holds_odd(u64::from_le_bytes(*word)))
}

/// Whether a byte of these is below a space, a quote or a backslash. Of a byte that is less than what is taken from it, and
/// of no other below the first such, the highest bit is set by the difference and not before it.
fn holds_odd(word: u64) -> bool {
    const EACH: u64 = u64::MAX / 255;
    let is_below = |word: u64, bound: u64| word.wrapping_sub(EACH * bound) & !word;
    let is = |byte: u8| is_below(word ^ (EACH * u64::from(byte)), 1);
    (is_below(word, 0x20) | is(b'"') | is(b'\\')) & (EACH << 7) != 0
}

fn push(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        0..0x20 => {
            out.extend_from_slice(b"\\u00");
            return out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        _ => return out.push(byte),
    };
    out.extend([b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_is_told_apart_at_every_place() {
        for byte in 0..=u8::MAX {
            for place in 0..17 {
                for around in [b' ', b'!', b'a', 0x7f, 0x80, 0xff] {
                    let mut bytes = [around; 17];
                    bytes[place] = byte;
                    let expected = byte < 0x20 || byte == b'"' || byte == b'\\';
                    assert_eq!(must_be_escaped(&bytes), expected, "{byte:#x} at {place} among {around:#x}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn texts_and_numbers_are_written_as_serde_json_writes_them(
            plain in any::<String>(), odd in r#"["\\\u{0}-\u{20}\u{7f}a€]{0,40}"#, large: i64, long: u64,
        ) {
            for said in [&plain, &odd] {
                let mut out = Vec::new();
                text(&mut out, said);
                prop_assert_eq!(&out, &serde_json::to_vec(said).unwrap());
            }
            let mut out = Vec::new();
            number(&mut out, large);
            number(&mut out, long);
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{large}{long}"));
        }
    }
}
