//! Writing JSON for what is written with every call. The bytes are those that `serde_json` writes; it looks at every
//! character of every name, which costs more than all the rest.

/// A text, without the quotes around it.
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

/// The same of one that is small more often than not.
pub fn count(out: &mut Vec<u8>, count: u64) {
    const PAIRS: [[u8; 2]; 100] = pairs();
    let pair = |number: u64| PAIRS[number as usize];
    match count {
        0..10 => out.push(b'0' + count as u8),
        10..100 => out.extend_from_slice(&pair(count)),
        100..10_000 => {
            let ([first, second], [third, fourth]) = (pair(count / 100), pair(count % 100));
            match first {
                b'0' => out.extend_from_slice(&[second, third, fourth]),
                _ => out.extend_from_slice(&[first, second, third, fourth]),
            }
        }
        _ => number(out, count),
    }
}

const fn pairs() -> [[u8; 2]; 100] {
    let (mut pairs, mut place) = ([[0; 2]; 100], 0);
    while place < 100 {
        pairs[place] = [b'0' + (place / 10) as u8, b'0' + (place % 10) as u8];
        place += 1;
    }
    pairs
}

fn must_be_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Whether nothing in it must be escaped. What is short is looked at in two steps, of which the second may begin within the
/// first.
fn is_plain(bytes: &[u8]) -> bool {
    // Without a way out of the loops, many are looked at in one step.
    if bytes.len() > 32 {
        return !bytes.iter().fold(false, |is_odd, byte| is_odd | must_be_escaped(*byte));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<16>(), bytes.last_chunk::<16>()) {
        let mark = |place: usize| u8::from(must_be_escaped(first[place]) | must_be_escaped(last[place]));
        return u128::from_ne_bytes(std::array::from_fn(mark)) == 0;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return odd(u64::from_ne_bytes(*first)) | odd(u64::from_ne_bytes(*last)) == 0;
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let [first, last] = [first, last].map(|half| u64::from(u32::from_ne_bytes(*half)));
        return odd(first << 32 | last) == 0;
    }
    !bytes.iter().any(|byte| must_be_escaped(*byte))
}

/// Not zero where one of eight must be escaped.
fn odd(eight: u64) -> u64 {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    // The highest bit of one that is smaller, if it has not been set before; a later one may have it, too.
    let below = |eight: u64, bound: u8| eight.wrapping_sub(EACH * u64::from(bound)) & !eight;
    let is = |byte: u8| below(eight ^ (EACH * u64::from(byte)), 1);
    (below(eight, 0x20) | is(b'"') | is(b'\\')) & (EACH << 7)
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
                let mut out = vec![b'"'];
                within(&mut out, said);
                out.push(b'"');
                prop_assert_eq!(&out, &serde_json::to_vec(said).unwrap());
            }
            let mut out = Vec::new();
            number(&mut out, large);
            number(&mut out, long);
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{large}{long}"));
        }
    }

    #[test]
    fn small_counts_are_written_as_numbers_are() {
        for number in (0..=10_100).chain([u64::MAX]) {
            let mut out = Vec::new();
            count(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
    }

    #[test]
    fn each_byte_is_seen_at_each_place() {
        for (byte, length) in (0..=0xff_u8).flat_map(|byte| (1..=40).map(move |length| (byte, length))) {
            for place in 0..length {
                for around in [b' ', b'!', b'#', 0x7f, 0x80, 0xff] {
                    let mut bytes = vec![around; length];
                    bytes[place] = byte;
                    assert_eq!(is_plain(&bytes), !must_be_escaped(byte), "{byte} at {place} of {length}");
                }
            }
        }
    }
}
