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
    // Without a way out of the loop, many are looked at in one step.
    if bytes.iter().fold(false, |is_odd, byte| is_odd | must_be_escaped(*byte)) {
        bytes.iter().for_each(|byte| push(out, *byte));
    } else {
        out.extend_from_slice(bytes);
    }
}

/// A whole number.
pub fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn must_be_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
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
