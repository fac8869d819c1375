//! Where JSON values end. Bodies are mostly long strings, and long strings are full of escapes: what they hold is checked
//! many bytes at a time, and nothing of it is put together.

use smallvec::SmallVec;

use super::BLOCK;

/// The text is not JSON, or not what was wanted. There is nothing more to say of it: who wants to know reads it with
/// serde_json.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

type Result<T> = std::result::Result<T, Broken>;

/// Pieces of eight bytes of a string that are looked at before it is taken for a long one.
const WORDS: usize = 4;

/// What is being read when a value ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Array,
    Object,
}

/// A place in a text.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    text: &'a [u8],
    pub at: usize,
    /// Values that have begun, names among them, and how many there may be.
    pub values: usize,
    pub most: usize,
    /// Objects and arrays around this place, and how many there may be.
    pub depth: usize,
    pub deepest: usize,
    /// That it is JSON has been seen: no character in a string is looked at again.
    pub is_known: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Self {
        Self {
            text: text.as_bytes(),
            at: 0,
            values: 0,
            most: usize::MAX,
            depth: 0,
            deepest: usize::MAX,
            is_known: false,
        }
    }

    /// The next byte that is no white space, which is not taken.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                byte => return byte.copied(),
            }
        }
    }

    /// Takes the next byte, which must be this one.
    #[inline]
    pub fn take(&mut self, wanted: u8) -> Result<()> {
        if self.peek() != Some(wanted) {
            return Err(Broken);
        }
        self.at += 1;
        Ok(())
    }

    /// A value begins.
    #[inline]
    fn count(&mut self) -> Result<()> {
        self.values += 1;
        if self.values > self.most { Err(Broken) } else { Ok(()) }
    }

    /// Goes into an object or an array.
    #[inline]
    pub fn enter(&mut self, bracket: u8) -> Result<()> {
        self.take(bracket)?;
        self.count()?;
        self.depth += 1;
        if self.depth > self.deepest { Err(Broken) } else { Ok(()) }
    }

    /// And out of it.
    #[inline]
    pub fn leave(&mut self, bracket: u8) -> Result<()> {
        self.depth -= 1;
        self.take(bracket)
    }

    /// Nothing is left.
    pub fn end(&mut self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(Broken) }
    }

    /// Goes behind the value that comes next, whatever it is.
    #[inline]
    pub fn skip(&mut self) -> Result<()> {
        match self.peek().ok_or(Broken)? {
            b'"' => self.string().map(drop),
            b'{' | b'[' => self.skip_nested(),
            _ => self.scalar().map(drop),
        }
    }

    fn skip_nested(&mut self) -> Result<()> {
        // What nests, from the outside in.
        let mut around: SmallVec<[Within; 64]> = SmallVec::new();
        loop {
            match self.peek().ok_or(Broken)? {
                b'"' => drop(self.string()?),
                b'{' => {
                    self.enter(b'{')?;
                    if self.peek() != Some(b'}') {
                        self.name()?;
                        around.push(Within::Object);
                        continue;
                    }
                    self.leave(b'}')?;
                }
                b'[' => {
                    self.enter(b'[')?;
                    if self.peek() != Some(b']') {
                        around.push(Within::Array);
                        continue;
                    }
                    self.leave(b']')?;
                }
                _ => drop(self.scalar()?),
            }
            // A value has ended, and perhaps those around it with it.
            loop {
                let Some(within) = around.last() else { return Ok(()) };
                match (self.peek(), within) {
                    (Some(b','), Within::Array) => self.at += 1,
                    (Some(b','), Within::Object) => {
                        self.at += 1;
                        self.name()?;
                    }
                    (Some(end @ b']'), Within::Array) | (Some(end @ b'}'), Within::Object) => {
                        self.leave(end)?;
                        around.pop();
                        continue;
                    }
                    _ => return Err(Broken),
                }
                break;
            }
        }
    }

    /// Goes behind the name of a member and the colon that follows it.
    fn name(&mut self) -> Result<()> {
        self.string()?;
        self.take(b':')
    }

    /// Goes behind a number, `true`, `false` or `null`, and says where it began.
    pub fn scalar(&mut self) -> Result<usize> {
        let first = self.peek().ok_or(Broken)?;
        self.count()?;
        let start = self.at;
        let word: &[u8] = match first {
            b't' => b"true",
            b'f' => b"false",
            b'n' => b"null",
            b'-' | b'0'..=b'9' => {
                self.number()?;
                return Ok(start);
            }
            _ => return Err(Broken),
        };
        if !self.text[start..].starts_with(word) {
            return Err(Broken);
        }
        self.at += word.len();
        Ok(start)
    }

    fn number(&mut self) -> Result<()> {
        // Counts are short, and most of them nothing.
        if let [b'0'..=b'9', b',' | b'}' | b']', ..] = self.text[self.at..] {
            self.at += 1;
            return Ok(());
        }
        self.at += usize::from(self.text[self.at] == b'-');
        let whole = self.digits()?;
        if whole > 1 && self.text[self.at - whole] == b'0' {
            return Err(Broken);
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            self.at += usize::from(matches!(self.text.get(self.at), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(())
    }

    /// Goes behind some digits, of which there must be one, and says how many they were.
    fn digits(&mut self) -> Result<usize> {
        let rest = &self.text[self.at..];
        let count = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        self.at += count;
        if count == 0 { Err(Broken) } else { Ok(count) }
    }

    /// Goes behind a string. Where it begins and ends without its quotes, and whether something in it is escaped.
    pub fn string(&mut self) -> Result<Quoted> {
        self.take(b'"')?;
        self.count()?;
        let start = self.at;
        if let Some(end) = end_of_word(self.text, start) {
            self.at = end + 1;
            return Ok(Quoted { start, end, is_escaped: false });
        }
        let (end, is_escaped) = end_of_string(self.text, start)?;
        if !self.is_known && super::any(&self.text[start..end], |byte| byte < b' ') {
            return Err(Broken);
        }
        self.at = end + 1;
        Ok(Quoted { start, end, is_escaped })
    }
}

/// A string without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    pub start: usize,
    pub end: usize,
    pub is_escaped: bool,
}

/// The closing quote of a short and plain string, as most names and words are.
#[inline]
fn end_of_word(text: &[u8], start: usize) -> Option<usize> {
    let (words, _) = text.get(start..)?.as_chunks::<8>();
    for (place, word) in words.iter().take(WORDS).enumerate() {
        if let Some(found) = first_odd(u64::from_le_bytes(*word)) {
            let at = start + place * 8 + found;
            return (text[at] == b'"').then_some(at);
        }
    }
    None
}

/// The first of eight bytes that cannot stand in a string as it is. They come with the first one lowest.
#[inline]
pub(super) fn first_odd(bytes: u64) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    // The highest bit of each byte that is not as it should be; those behind the first one may be wrong.
    let is = |wanted: u8| {
        let other = bytes ^ (ONES * u64::from(wanted));
        other.wrapping_sub(ONES) & !other
    };
    let is_control = bytes.wrapping_sub(ONES * u64::from(b' ')) & !bytes;
    let found = (is(b'"') | is(b'\\') | is_control) & (ONES << 7);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// How many of eight bytes stand before the first one that escapes another. They come with the first one lowest.
#[inline]
pub(super) fn first_escape(bytes: u64) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let other = bytes ^ (ONES * u64::from(b'\\'));
    let found = other.wrapping_sub(ONES) & !other & (ONES << 7);
    found.trailing_zeros() as usize / 8
}

/// The closing quote of the string that begins here, and whether something in it is escaped. All escapes are looked at.
pub(super) fn end_of_string(text: &[u8], start: usize) -> Result<(usize, bool)> {
    let next = |from: usize| memchr::memchr2(b'"', b'\\', &text[from..]).map(|found| from + found).ok_or(Broken);
    let found = next(start)?;
    if text[found] == b'"' {
        return Ok((found, false));
    }
    // Where one is escaped, others are: as long as only single characters are, they need not be looked at one by one.
    let mut from = found;
    loop {
        while let Some(behind) = behind_plain_block(text, from) {
            from = behind;
        }
        // Something else stands in the next block, or there is none.
        let edge = from + BLOCK;
        while from < edge {
            let found = next(from)?;
            if text[found] == b'"' {
                return Ok((found, true));
            }
            from = behind_escape(text, found)?;
        }
    }
}

/// Behind the next block of a string, where nothing stands in it but plain characters and the usual ones that are escaped.
/// `from` is no escaped character.
fn behind_plain_block(text: &[u8], from: usize) -> Option<usize> {
    // Each one with the one behind it, as many as a compiler can look at without a rest.
    let block: &[u8; BLOCK + 1] = text.get(from..)?.first_chunk()?;
    let (before, bytes): (&[u8; BLOCK], &[u8; BLOCK]) = (block.first_chunk()?, block.last_chunk()?);
    let mut odd = u8::from(before[0] == b'"');
    for (before, byte) in before.iter().zip(bytes) {
        let (is_escaped, is_quote) = (*before == b'\\', *byte == b'"');
        let is_usual = is_quote | (*byte == b'n') | (*byte == b't') | (*byte == b'r');
        // A backslash behind another may or may not begin an escape of its own: that is looked at one by one.
        odd |= u8::from(if is_escaped { !is_usual } else { is_quote });
    }
    if odd != 0 {
        return None;
    }
    // The last one is looked at again, unless it is escaped.
    Some(from + BLOCK + usize::from(before[BLOCK - 1] == b'\\'))
}

/// Behind the escape that begins here.
fn behind_escape(text: &[u8], at: usize) -> Result<usize> {
    match text.get(at + 1).ok_or(Broken)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(at + 2),
        b'u' => {
            let digits = text.get(at + 2..at + 6).ok_or(Broken)?;
            if digits.iter().all(u8::is_ascii_hexdigit) { Ok(at + 6) } else { Err(Broken) }
        }
        _ => Err(Broken),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    fn is_json(text: &str) -> bool {
        let mut cursor = Cursor::new(text);
        cursor.skip().and_then(|()| cursor.end()).is_ok()
    }

    /// What stands in JSON, valid or not, in any order.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[a-z ü😀]{0,40}",
            1 => "[a-z]{200,600}",
            4 => r#"\\["\\/bfnrtux0]"#,
            1 => r"\\u[0-9a-fA-Fx]{1,5}",
            2 => r"(\\n|\\t| |x){100,400}",
            3 => r#"[\[\]{},:"]"#,
            2 => "-?[0-9]{0,3}(\\.[0-9]{0,2})?([eE][+-]?[0-9]{0,2})?",
            1 => "true|false|null|nul|True",
            1 => "[\u{0}-\u{20}]",
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn what_is_json_is_what_serde_says(text in pieces()) {
            for text in [text.clone(), format!("\"{text}\""), format!("[\"{text}\", 1]"), format!("{{\"a\":{text}}}")] {
                prop_assert_eq!(is_json(&text), serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{}", text);
            }
        }

        #[test]
        fn a_string_ends_where_serde_ends_it(text in any::<String>(), escapes in r#"(\\n|\\"|\\\\|[a-z]){0,700}"#) {
            let inside = serde_json::to_string(&text).unwrap();
            let whole = format!("\"{escapes}{}  , 1", &inside[1..]);
            let mut cursor = Cursor::new(&whole);
            let found = cursor.string().unwrap();
            prop_assert_eq!(cursor.at, whole.len() - "  , 1".len());
            prop_assert_eq!(found.is_escaped, whole[found.start..found.end].contains('\\'));
        }
    }

    proptest! {
        #[test]
        fn the_end_of_a_string_is_where_the_first_free_quote_stands(
            pieces in proptest::collection::vec(("[a-z{},\\[]{0,90}", r#"(\\\\){0,3}(\\")?"#), 0..24),
            rest in r#"("[a-z"]{0,20})?"#,
        ) {
            let inside: String = pieces.iter().flat_map(|(plain, escapes)| [plain.as_str(), escapes]).collect();
            let text = format!("[\"{inside}{rest}");
            let mut is_escaped = false;
            let mut is_end = |byte: u8| {
                let is_free = !std::mem::take(&mut is_escaped);
                is_escaped = is_free && byte == b'\\';
                is_free && byte == b'"'
            };
            let expected = text.bytes().skip(2).position(&mut is_end).map(|place| place + 2);
            prop_assert_eq!(end_of_string(text.as_bytes(), 2).ok().map(|(end, _)| end), expected);
        }
    }

    #[test]
    fn values_of_every_kind_are_passed_over() {
        let values = [
            "0",
            "-0",
            "12",
            "-1.5",
            "1e9",
            "2E-3",
            "0.0e+0",
            "true",
            "false",
            "null",
            r#""""#,
            "[]",
            "{}",
            "[ ]",
            "{ }",
            r#"[1,[2,{"a":[]}],"x"]"#,
            r#" { "a" : { "b" : [ ] } , "c" : null } "#,
            r#""\u00e9\ud83d\ude00\uD800""#,
        ];
        for text in values {
            assert!(is_json(text), "{text}");
        }
        let broken = [
            "",
            " ",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "tru",
            "truex",
            "nulll",
            "\"",
            "\"\\",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\u{1}\"",
            "[",
            "]",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "{",
            "}",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,}",
            "{a:1}",
            "{1:1}",
            "[1}",
            "{\"a\":1]",
            "1 2",
            "[] []",
        ];
        for text in broken {
            assert!(!is_json(text), "{text}");
        }
    }

    #[test]
    fn values_and_depth_are_limited() {
        let walked = |text: &str, deepest: usize| {
            let mut cursor = Cursor { deepest, ..Cursor::new(text) };
            cursor.skip().map(|()| (cursor.values, cursor.depth))
        };
        // Names are counted, too.
        assert_eq!(walked(r#"{"a":[1,{},[]],"b":"c"}"#, 3), Ok((8, 0)));
        assert_eq!(walked("[[[1]]]", 3), Ok((4, 0)));
        assert_eq!(walked("[[[1]]]", 2), Err(Broken));
        assert_eq!(walked("[[],[[]]]", 2), Err(Broken));
        for most in 1..8 {
            let mut cursor = Cursor { most, ..Cursor::new(r#"{"a":[1,{},[]],"b":"c"}"#) };
            assert_eq!(cursor.skip(), Err(Broken));
            assert_eq!(cursor.values, most + 1, "nothing is looked at beyond it");
        }
    }

    #[test]
    fn depth_has_no_end_of_its_own() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(is_json(&deep));
        assert!(!is_json(&deep[1..]));
    }
}
