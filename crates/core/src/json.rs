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
    if is_plain(bytes) {
        out.extend_from_slice(bytes);
    } else {
        escape(out, bytes);
    }
}

/// A whole number.
pub fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn must_be_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Whether nothing in it must be escaped. Whole steps are looked at at once; the last one begins within the step before it.
fn is_plain(bytes: &[u8]) -> bool {
    if let Some(last) = bytes.last_chunk::<16>() {
        let (steps, _) = bytes.as_chunks::<16>();
        return !steps.iter().fold(is_odd(last), |is, step| is | is_odd(step));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        return !(is_odd(first) | is_odd(last));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        return !(is_odd(first) | is_odd(last));
    }
    !bytes.iter().any(|byte| must_be_escaped(*byte))
}

/// Without a way out of the loop, all are looked at in one step.
fn is_odd<const N: usize>(step: &[u8; N]) -> bool {
    step.iter().fold(false, |is_odd, byte| is_odd | must_be_escaped(*byte))
}

#[cold]
fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for run in bytes.split_inclusive(|byte| must_be_escaped(*byte)) {
        if let Some((last, plain)) = run.split_last() {
            out.extend_from_slice(plain);
            push(out, *last);
        }
    }
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
            nearly in "[!#\\[\\]-~é]{0,40}", place: prop::sample::Index, one in r#"["\\\u{1f}\n!]"#,
        ) {
            let places: Vec<usize> = nearly.char_indices().map(|(place, _)| place).chain([nearly.len()]).collect();
            let mut mixed = nearly.clone();
            mixed.insert_str(*place.get(&places), &one);
            for said in [&plain, &odd, &nearly, &mixed] {
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
