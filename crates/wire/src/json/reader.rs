//! Serde over a text, for those who look at a few members and carry the rest as it came. What it takes and what it makes
//! of it is what serde_json would; it only finds the end of a value much sooner (see [`super::scan`]). What must be put
//! together or converted, serde_json does.
//!
//! Three things are left out, for nobody here asks for them: names that are numbers, integers of more than 64 bits, and a
//! limit of its own to how deep a type that contains itself is read.

use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::value::RawValue;

use super::scan::{Broken, Cursor, first_escape};

/// How serde_json names a value that is to be given as it stands.
pub(super) const RAW: &str = "$serde_json::private::RawValue";

/// Asks for the next value, with a string as it stands instead of what it says.
pub(super) const AS_IT_STANDS: &str = "a value with its strings as they stand";

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("not the JSON that was expected")
    }
}

impl std::error::Error for Broken {}

impl de::Error for Broken {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// Reads one value; [`Reader::end`] says whether that was all.
pub struct Reader<'de> {
    text: &'de str,
    cursor: Cursor<'de>,
}

impl<'de> Reader<'de> {
    pub fn new(text: &'de str) -> Self {
        Self { text, cursor: Cursor::new(text) }
    }

    /// What nests deeper is not read, nor what is behind so many values, names among them.
    #[must_use]
    pub fn within(mut self, deepest: usize, most: usize) -> Self {
        (self.cursor.deepest, self.cursor.most) = (deepest, most);
        self
    }

    pub fn end(&mut self) -> Result<(), Broken> {
        self.cursor.end()
    }

    /// How many values were read at most: some names are counted with them.
    pub fn values(&self) -> usize {
        self.cursor.values
    }

    fn piece(&self, start: usize, end: usize) -> Result<&'de str, Broken> {
        self.text.get(start..end).ok_or(Broken)
    }

    /// The value that comes next, as it stands.
    fn raw(&mut self) -> Result<&'de str, Broken> {
        self.cursor.peek();
        let start = self.cursor.at;
        self.cursor.skip()?;
        self.piece(start, self.cursor.at)
    }
}

/// Reads a text that is one value.
pub fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Broken> {
    let mut reader = Reader::new(text);
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// The same of one that is known to be JSON.
pub fn read_raw<'de, T: Deserialize<'de>>(raw: &'de RawValue) -> Result<T, Broken> {
    let mut reader = Reader::new(raw.get());
    reader.cursor.is_known = true;
    T::deserialize(&mut reader)
}

/// Has serde_json read a piece that is known to be one value.
fn converted<'de, V: Visitor<'de>>(text: &'de str, visitor: V) -> Result<V::Value, Broken> {
    serde_json::Deserializer::from_str(text).deserialize_any(visitor).map_err(|_| Broken)
}

/// What a string says whose escapes are known to be valid; `None` where one of them is a number, which may be half of a
/// character.
fn unescaped(inside: &str) -> Option<String> {
    let bytes = inside.as_bytes();
    // It says less than is written.
    let mut said = vec![0; bytes.len()];
    let (mut at, mut length) = (0, 0);
    while at < bytes.len() {
        // Up to eight bytes, and the escape behind them.
        let plain = match bytes[at..].first_chunk::<8>() {
            Some(eight) => {
                said[length..length + 8].copy_from_slice(eight);
                first_escape(u64::from_le_bytes(*eight))
            }
            None => {
                said[length] = bytes[at];
                usize::from(bytes[at] != b'\\')
            }
        };
        (at, length) = (at + plain, length + plain);
        if plain == 8 || bytes.get(at) != Some(&b'\\') {
            continue;
        }
        said[length] = match bytes.get(at + 1)? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 0x08,
            b'f' => 0x0c,
            b'u' => return None,
            itself => *itself,
        };
        (at, length) = (at + 2, length + 1);
    }
    said.truncate(length);
    String::from_utf8(said).ok()
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Broken;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        match self.cursor.peek().ok_or(Broken)? {
            b'"' => self.deserialize_str(visitor),
            b'{' => self.deserialize_map(visitor),
            b'[' => self.deserialize_seq(visitor),
            _ => {
                let start = self.cursor.scalar()?;
                converted(self.piece(start, self.cursor.at)?, visitor)
            }
        }
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        let found = self.cursor.string()?;
        let inside = self.piece(found.start, found.end)?;
        if !found.is_escaped {
            return visitor.visit_borrowed_str(inside);
        }
        match unescaped(inside) {
            Some(text) => visitor.visit_string(text),
            None => converted(self.piece(found.start - 1, found.end + 1)?, visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        self.cursor.enter(b'{')?;
        let value = visitor.visit_map(Parts { reader: self, is_first: true })?;
        self.cursor.leave(b'}')?;
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        self.cursor.enter(b'[')?;
        let value = visitor.visit_seq(Parts { reader: self, is_first: true })?;
        self.cursor.leave(b']')?;
        Ok(value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Broken> {
        match name {
            RAW => visitor.visit_map(Raw { text: Some(self.raw()?) }),
            AS_IT_STANDS if self.cursor.peek() == Some(b'"') => visitor.visit_borrowed_str(self.raw()?),
            AS_IT_STANDS => self.deserialize_any(visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        if self.cursor.peek() != Some(b'n') {
            return visitor.visit_some(self);
        }
        self.cursor.scalar()?;
        visitor.visit_none()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Broken> {
        self.cursor.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Broken> {
        let mut whole = serde_json::Deserializer::from_str(self.raw()?);
        whole.deserialize_enum(name, variants, visitor).map_err(|_| Broken)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Broken> {
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf unit unit_struct tuple
        tuple_struct identifier
    }
}

/// The members or elements of a value that has begun.
struct Parts<'r, 'de> {
    reader: &'r mut Reader<'de>,
    is_first: bool,
}

impl Parts<'_, '_> {
    /// Whether another one follows.
    #[inline]
    fn has_next(&mut self, end: u8) -> Result<bool, Broken> {
        let cursor = &mut self.reader.cursor;
        match cursor.peek() {
            Some(byte) if byte == end => Ok(false),
            _ if std::mem::take(&mut self.is_first) => Ok(true),
            Some(b',') => {
                cursor.at += 1;
                Ok(true)
            }
            _ => Err(Broken),
        }
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = Broken;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Broken> {
        if !self.has_next(b'}')? {
            return Ok(None);
        }
        if self.reader.cursor.peek() != Some(b'"') {
            return Err(Broken);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Broken> {
        self.reader.cursor.take(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Broken;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Broken> {
        if !self.has_next(b']')? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

/// A value as it stands, in the form in which serde_json takes it from others.
struct Raw<'de> {
    text: Option<&'de str>,
}

impl<'de> MapAccess<'de> for Raw<'de> {
    type Error = Broken;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Broken> {
        seed.deserialize(BorrowedStrDeserializer::new(RAW)).map(Some)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Broken> {
        seed.deserialize(BorrowedStrDeserializer::new(self.text.take().ok_or(Broken)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::Value;

    use super::super::tests::value;
    use super::super::{Members, elements};
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        Blue,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Thing {
        name: String,
        colour: Colour,
        size: Option<u64>,
        #[serde(default)]
        share: f64,
        tags: Vec<String>,
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_json_reads(value in value(), is_pretty in any::<bool>(), cut in any::<prop::sample::Index>()) {
            let text = if is_pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            prop_assert_eq!(read::<Value>(&text), Ok(serde_json::from_str::<Value>(&text).unwrap()));
            let raw = read::<&RawValue>(&text).unwrap();
            prop_assert_eq!(raw.get(), &*text);
            let cut = text.floor_char_boundary(cut.index(text.len() + 1));
            prop_assert_eq!(read::<Value>(&text[..cut]).ok(), serde_json::from_str::<Value>(&text[..cut]).ok());
            prop_assert_eq!(read::<Value>(&text[cut..]).ok(), serde_json::from_str::<Value>(&text[cut..]).ok());
        }

        #[test]
        fn members_are_those_that_serde_json_finds(value in value()) {
            let text = serde_json::to_string(&value).unwrap();
            let shown = |members: Members<'_>| -> Vec<(String, String)> {
                members.0.iter().map(|(name, value)| (name.to_string(), value.get().to_owned())).collect()
            };
            let expected = serde_json::from_str::<Members<'_>>(&text).ok().map(shown);
            prop_assert_eq!(read::<Members<'_>>(&text).ok().map(shown), expected);
        }
    }

    #[test]
    fn derived_types_are_read() {
        let text =
            r#" {"name":"a\nb", "colour":"blue", "size":null, "share":1, "tags":["x","\u0079"], "more":{"a":[1]}} "#;
        let thing: Thing = read(text).unwrap();
        assert_eq!(thing, serde_json::from_str(text).unwrap());
        assert_eq!(thing.colour, Colour::Blue);
        assert_eq!(read::<Thing>(r#"{"name":"a","colour":"green","size":1,"tags":[]}"#), Err(Broken));
        assert_eq!(read::<u64>("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(read::<u64>("-1"), Err(Broken));
        assert_eq!(read::<Option<bool>>("null"), Ok(None));
    }

    #[test]
    fn raw_values_keep_their_spaces_and_lose_those_around_them() {
        let text = "{ \"a\" : [ 1 , 2 ] , \"b\":\"x\" }";
        let members = read::<Members<'_>>(text).unwrap();
        assert_eq!(members.get("a").unwrap().get(), "[ 1 , 2 ]");
        assert_eq!(elements(members.get("a").unwrap()).unwrap().len(), 2);
    }
}
