//! Small tools on JSON text: where a piece of it lies, what kind it is, how deep it goes.

mod halves;
mod quote;
mod reader;
mod scan;
mod seen;
mod writer;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{self, Deserialize, DeserializeSeed as _, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

pub use halves::{Joiner, lone_half};
pub use quote::{quote, quoted};
pub use reader::{Reader, read, read_raw};
pub use scan::Broken;
pub use seen::Seen;
pub use writer::{Written, write, written};

/// What a JSON value is, told from its first character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

/// The kind of a value that is known to be valid JSON.
pub fn kind(raw: &RawValue) -> Kind {
    match raw.get().as_bytes().first() {
        Some(b'n') => Kind::Null,
        Some(b't' | b'f') => Kind::Boolean,
        Some(b'"') => Kind::String,
        Some(b'[') => Kind::Array,
        Some(b'{') => Kind::Object,
        _ => Kind::Number,
    }
}

/// Where `part`, a borrowed piece of `whole`, lies in it.
pub fn span(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    debug_assert!(start + part.len() <= whole.len());
    start..start + part.len()
}

/// The text of a JSON string; `None` when the value is something else or holds a lone surrogate.
pub fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inside = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    // It is valid, so only an escape makes it say something else.
    if !has_escape(inside.as_bytes()) {
        return Some(Cow::Borrowed(inside));
    }
    read_raw::<Text<'_>>(raw).ok().map(|text| text.0)
}

/// Words are short, and looked through before a search for long texts has begun.
fn has_escape(text: &[u8]) -> bool {
    if text.len() <= SHORT { any(text, |byte| byte == b'\\') } else { memchr::memchr(b'\\', text).is_some() }
}

/// Whether a text has such a byte. Without a way out of the loop, many are looked at in one step. Of a short text that
/// would leave most to be looked at one by one: its last bytes are looked at with some before them once more, or with
/// blanks behind them, which must not be such.
pub(crate) fn any(text: &[u8], is: impl Fn(u8) -> bool) -> bool {
    if text.len() > 2 * SHORT {
        return text.iter().fold(false, |found, byte| found | is(*byte));
    }
    let any_of = |block: &[u8; 16]| block.iter().fold(false, |found, byte| found | is(*byte));
    let (blocks, rest) = text.as_chunks::<16>();
    let last = text.last_chunk::<16>().copied().unwrap_or_else(|| {
        let mut block = [b' '; 16];
        block[..rest.len()].copy_from_slice(rest);
        block
    });
    blocks.iter().fold(any_of(&last), |found, block| found | any_of(block))
}

/// A string that borrows when it holds no escapes (serde's own `Cow` never borrows).
pub struct Text<'a>(pub Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E: de::Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// The members of an object in their order, values unread.
#[derive(Default)]
pub struct Members<'a>(pub SmallVec<[(Cow<'a, str>, &'a RawValue); 12]>);

impl<'a> Members<'a> {
    /// `None` when the value is no object.
    pub fn of(raw: &'a RawValue) -> Option<Self> {
        let mut members = Self::default();
        members.read(raw.get()).is_ok().then_some(members)
    }

    /// Fills in the members of the object that a text is. They are many bytes: what a parser gives back is moved more
    /// than once.
    pub fn read(&mut self, text: &'a str) -> Result<(), Broken> {
        let mut reader = Reader::new(text);
        self.deserialize(&mut reader)?;
        reader.end()
    }

    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// The first name that stands twice.
    pub fn repeated(&self) -> Option<&str> {
        let mut seen = Seen::default();
        self.0.iter().find(|(key, _)| !seen.add(key)).map(|(key, _)| key.as_ref())
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut members = Self::default();
        (&mut members).deserialize(deserializer)?;
        Ok(members)
    }
}

/// Adds the members of an object where they are kept.
impl<'de> de::DeserializeSeed<'de> for &mut Members<'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Members<'de> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key()? {
            self.0.push((key, map.next_value()?));
        }
        Ok(())
    }
}

/// The elements of an array, unread.
pub fn elements(raw: &RawValue) -> Option<Vec<&RawValue>> {
    Vec::deserialize(&mut Reader::new(raw.get())).ok()
}

/// Appends a text that is known to be valid JSON, without the white space between its tokens: what is left differs
/// wherever two texts do in anything but that.
pub fn compact(text: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let end = match byte {
            b' ' | b'\n' | b'\r' | b'\t' => {
                at += 1;
                continue;
            }
            b'"' => scan::end_of_string(text, at + 1).map_or(text.len(), |(end, _)| end + 1),
            _ => {
                let token = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b'"');
                text[at..].iter().position(token).map_or(text.len(), |length| at + length)
            }
        };
        out.extend_from_slice(&text[at..end]);
        at = end;
    }
}

/// As many bytes as a byte can count, and a compiler can split evenly.
const BLOCK: usize = 224;
/// As long as most names are.
const SHORT: usize = 32;

/// Why a body is refused before anyone reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Depth,
    Nodes,
}

/// Refuses text that nests deeper than `depth` or holds more than `nodes` values. The text need not be valid JSON.
pub fn measure(text: &[u8], depth: usize, nodes: usize) -> Result<(), Excess> {
    // Cheap bounds settle nearly every request: each level needs an opening bracket, and each value two bytes at least; but
    // the first one also needs such a bracket or a comma before it. The two brackets differ in one bit.
    let openings = counted(text, |byte| byte | 0x20 == b'{');
    if openings <= depth && (text.len().div_ceil(2) <= nodes || openings + counted(text, |byte| byte == b',') < nodes) {
        return Ok(());
    }
    let (mut open, mut values, mut at) = (0_usize, 1_usize, 0);
    // Nothing has come since the last opening bracket: it holds no value so far.
    let mut is_empty = false;
    while let Some(byte) = text.get(at) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => {}
            b'{' | b'[' => {
                open += 1;
                values += 1;
                is_empty = true;
                if open > depth {
                    return Err(Excess::Depth);
                }
            }
            b'}' | b']' => {
                open = open.saturating_sub(1);
                values -= usize::from(std::mem::take(&mut is_empty));
            }
            b',' => {
                values += 1;
                is_empty = false;
                if values > nodes {
                    return Err(Excess::Nodes);
                }
            }
            b'"' => {
                // What is no string ends the count: it is no JSON either.
                let Ok((end, _)) = scan::end_of_string(text, at + 1) else { return Ok(()) };
                at = end;
                is_empty = false;
            }
            _ => is_empty = false,
        }
        at += 1;
    }
    Ok(())
}

/// How many such bytes a text has, within strings and without. Counted in bytes of a block's own, which lets the compiler
/// compare many at a time.
fn counted(text: &[u8], is: impl Fn(u8) -> bool) -> usize {
    text.chunks(BLOCK).map(|block| usize::from(block.iter().map(|byte| u8::from(is(*byte))).sum::<u8>())).sum()
}

/// Receives a value of whatever kind it turns out to be, reading it exactly once. The default of each method skips the
/// value and reports its kind to [`Node::other`], so a node names only the kinds it wants.
pub trait Node<'de>: Sized {
    fn object<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<Text<'_>, IgnoredAny>()?.is_some() {}
        self.other(Kind::Object);
        Ok(())
    }

    fn array<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        self.other(Kind::Array);
        Ok(())
    }

    /// A string as it stands, with its quotes.
    fn string(self, _text: &'de str) {
        self.other(Kind::String);
    }

    fn other(self, kind: Kind);
}

/// Lets a [`Reader`] walk a [`Node`].
pub struct Walk<N>(pub N);

impl<'de, N: Node<'de>> de::DeserializeSeed<'de> for Walk<N> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_newtype_struct(reader::AS_IT_STANDS, self)
    }
}

impl<'de, N: Node<'de>> Visitor<'de> for Walk<N> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any value")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.0.object(map)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        self.0.array(seq)
    }
    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<(), E> {
        // What stands for half a character says nothing.
        let has_units = memchr::memmem::find(text.as_bytes(), b"\\u").is_some();
        if has_units && serde_json::from_str::<Text<'_>>(text).is_err() {
            return Err(E::custom("a lone surrogate"));
        }
        self.0.string(text);
        Ok(())
    }
    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.0.other(Kind::Boolean);
        Ok(())
    }
    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        self.0.other(Kind::Number);
        Ok(())
    }
    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        self.0.other(Kind::Number);
        Ok(())
    }
    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.0.other(Kind::Number);
        Ok(())
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.0.other(Kind::Null);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, *};
    use serde_json::Value;

    use super::*;

    /// Any value.
    pub(super) fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter("a number", |number| number.is_finite()).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[a-z\"\\\\\n]{0,600}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::hash_map("[a-zü\"]{0,6}", inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    #[test]
    fn depth_is_counted_outside_strings_only() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(measure(deep(64).as_bytes(), 64, 1000), Ok(()));
        assert_eq!(measure(deep(65).as_bytes(), 64, 1000), Err(Excess::Depth));
        let text = format!("{{\"a\":\"{}\\\"[[\",\"b\":[{}]}}", "[".repeat(100), "[],".repeat(100));
        assert_eq!(measure(text.as_bytes(), 64, 1000), Ok(()));
    }

    #[test]
    fn a_long_conversation_is_as_deep_as_its_brackets() {
        let said = "to say {\\\"[\\\\\\\"}, ".repeat(40);
        let turn = format!("{{\"content\":[{{\"text\":\"{said}\"}}]}}");
        let body = |last: &str| format!("[{}{last}]", format!("{turn},").repeat(100));
        // Each turn: an object, its list, the object in that and its text; and the outer list.
        assert_eq!(measure(body(&turn).as_bytes(), 4, 405), Ok(()));
        assert_eq!(measure(body(&turn).as_bytes(), 3, 405), Err(Excess::Depth));
        assert_eq!(measure(body("[[[[]]]]").as_bytes(), 4, 405), Err(Excess::Depth));
        assert_eq!(measure(body(&turn).as_bytes(), 4, 300), Err(Excess::Nodes));
    }

    #[test]
    fn many_values_are_refused() {
        let many = |count: usize| format!("[{}0]", "0,".repeat(count));
        assert_eq!(measure(many(100).as_bytes(), 64, 1000), Ok(()));
        assert_eq!(measure(b"[1,1]", 64, 3), Ok(()));
        assert_eq!(measure(b"[1,1]", 64, 2), Err(Excess::Nodes));
        assert_eq!(measure(many(5000).as_bytes(), 64, 1000), Err(Excess::Nodes));
    }

    #[test]
    fn an_unclosed_string_ends_the_count() {
        assert_eq!(measure(b"[[[\"\\", 2, 10), Err(Excess::Depth));
        assert_eq!(measure(b"[[[\"\\", 3, 1), Ok(()));
    }

    #[test]
    fn white_space_counts_within_strings_only() {
        let compacted = |text: &str| {
            let mut out = Vec::new();
            compact(text.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        let loose = "\n{ \"a b\" :\t[ 1 , -2.50e1,\r\n true ] , \"c\": \" \\\" \\\\\" , \"d\" : null }  ";
        assert_eq!(compacted(loose), r#"{"a b":[1,-2.50e1,true],"c":" \" \\","d":null}"#);
        assert_eq!(compacted(""), "");
        // Nothing else is made alike: order, digits and escapes stay as they were written.
        for (one, other) in [(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#), ("[1]", "[1.0]"), (r#"["\u0061"]"#, r#"["a"]"#)]
        {
            assert_ne!(compacted(one), compacted(other));
        }
    }

    #[test]
    fn repeated_names_are_found_among_few_and_many() {
        let few: Box<RawValue> = serde_json::from_str(r#"{"a":1,"b":2,"\u0061":3}"#).unwrap();
        assert_eq!(Members::of(&few).unwrap().repeated(), Some("a"));
        let names: Vec<String> = (0..200).map(|n| format!("\"k{n}\":0")).collect();
        let many: Box<RawValue> = serde_json::from_str(&format!("{{{},\"k199\":1}}", names.join(","))).unwrap();
        assert_eq!(Members::of(&many).unwrap().repeated(), Some("k199"));
    }
}
