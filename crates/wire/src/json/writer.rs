//! Serde into a text. The bytes are those that serde_json writes; it looks at every character of every string on its own,
//! which costs more than all the rest of a translated conversation. Numbers with fractions it writes itself.

use std::fmt;

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::{Error, Result};

use super::reader::RAW;

/// The JSON of a value.
pub fn written<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    let mut out = Vec::with_capacity(128);
    write(value, &mut out)?;
    Ok(String::from_utf8(out).expect("JSON of texts is text"))
}

/// Appends the JSON of a value.
pub fn write<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<()> {
    value.serialize(Writer { out, is_raw: false })
}

/// JSON that was written, which is carried into other JSON as it stands.
#[derive(Clone, Debug)]
pub struct Written(String);

impl Written {
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        written(value).map(Self)
    }

    pub fn get(&self) -> &str {
        &self.0
    }
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        // As serde_json's own raw values say it, who would read this one again to make one of them.
        let mut raw = serializer.serialize_struct(RAW, 1)?;
        raw.serialize_field(RAW, &self.0)?;
        raw.end()
    }
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// The value is a text that is JSON already.
    is_raw: bool,
}

impl<'a> Writer<'a> {
    /// What stands around several values, with what ends it.
    fn begin(self, start: &[u8], end: &'static [u8]) -> Parts<'a> {
        self.out.extend_from_slice(start);
        Parts { out: self.out, end, is_first: true, is_raw: false }
    }

    /// A variant with something in it: an object of one member.
    fn variant(self, name: &str, start: &[u8], end: &'static [u8]) -> Parts<'a> {
        self.out.push(b'{');
        super::quote(name, self.out);
        self.out.push(b':');
        self.begin(start, end)
    }

    fn slowly<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        serde_json::to_writer(self.out, value)
    }

    fn text(self, text: impl AsRef<str>) -> Result<()> {
        self.out.extend_from_slice(text.as_ref().as_bytes());
        Ok(())
    }
}

macro_rules! as_serde_json_does {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, value: $type) -> Result<()> {
            self.slowly(&value)
        })*
    };
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Parts<'a>;
    type SerializeTuple = Parts<'a>;
    type SerializeTupleStruct = Parts<'a>;
    type SerializeTupleVariant = Parts<'a>;
    type SerializeMap = Parts<'a>;
    type SerializeStruct = Parts<'a>;
    type SerializeStructVariant = Parts<'a>;

    as_serde_json_does! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_f32: f32, serialize_f64: f64, serialize_char: char
    }

    fn serialize_bool(self, value: bool) -> Result<()> {
        self.text(if value { "true" } else { "false" })
    }

    fn serialize_str(self, value: &str) -> Result<()> {
        if self.is_raw {
            return self.text(value);
        }
        super::quote(value, self.out);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<()> {
        self.slowly(value)
    }

    fn serialize_none(self) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.text("null")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<()> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        let parts = self.variant(variant, b"", b"}");
        write(value, parts.out)?;
        parts.close()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'a>> {
        Ok(self.begin(b"[", b"]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'a>> {
        Ok(self.begin(b"[", b"]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'a>> {
        Ok(self.begin(b"[", b"]"))
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, name: &'static str, _: usize) -> Result<Parts<'a>> {
        Ok(self.variant(name, b"[", b"]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'a>> {
        Ok(self.begin(b"{", b"}"))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts<'a>> {
        if name == RAW {
            return Ok(Parts { out: self.out, end: b"", is_first: true, is_raw: true });
        }
        Ok(self.begin(b"{", b"}"))
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, name: &'static str, _: usize) -> Result<Parts<'a>> {
        Ok(self.variant(name, b"{", b"}}"))
    }

    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<()> {
        self.serialize_str(&value.to_string())
    }
}

/// The members or elements of a value that has begun.
struct Parts<'a> {
    out: &'a mut Vec<u8>,
    end: &'static [u8],
    is_first: bool,
    /// It has one member, which is a text that is JSON already and stands for the whole.
    is_raw: bool,
}

impl Parts<'_> {
    fn next(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.next();
        write(value, self.out)
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<()> {
        if self.is_raw {
            return value.serialize(Writer { out: self.out, is_raw: true });
        }
        self.next();
        super::quote(name, self.out);
        self.out.push(b':');
        write(value, self.out)
    }

    fn close(self) -> Result<()> {
        self.out.extend_from_slice(self.end);
        Ok(())
    }
}

macro_rules! parts {
    ($($trait:ident $method:ident),*) => {
        $(impl $trait for Parts<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.element(value)
            }

            fn end(self) -> Result<()> {
                self.close()
            }
        })*
    };
}

parts! {
    SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
}

impl SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, name: &T) -> Result<()> {
        self.next();
        let start = self.out.len();
        write(name, self.out)?;
        match self.out.get(start) {
            Some(b'"') => Ok(()),
            // A number or a truth value is one as a text.
            Some(b'-' | b'0'..=b'9' | b't' | b'f') => {
                self.out.insert(start, b'"');
                self.out.push(b'"');
                Ok(())
            }
            _ => Err(Error::custom("key must be a string")),
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.out.push(b':');
        write(value, self.out)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

macro_rules! fields {
    ($($trait:ident),*) => {
        $(impl $trait for Parts<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
                self.member(name, value)
            }

            fn end(self) -> Result<()> {
                self.close()
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::super::tests::value;
    use super::*;

    proptest! {
        #[test]
        fn values_are_written_as_serde_json_writes_them(value in value()) {
            prop_assert_eq!(written(&value).unwrap(), serde_json::to_string(&value).unwrap());
        }

        #[test]
        fn texts_are_written_as_serde_json_writes_them(
            text in any::<String>(), odd in r#"([a-z\u{e9} ]{0,20}["\\\n\t\u{1}-\u{1f}\u{7f}]{1,3}){0,30}"#,
        ) {
            for text in [text, odd] {
                prop_assert_eq!(written(&text).unwrap(), serde_json::to_string(&text).unwrap());
                prop_assert_eq!(super::super::quoted(&text), serde_json::to_string(&text).unwrap());
            }
        }
    }

    #[derive(Serialize)]
    enum Shape {
        Nothing,
        One(u8),
        Two(u8, char),
        Named { size: f64, name: Option<String> },
    }

    #[derive(Serialize)]
    struct Unit;

    #[derive(Serialize)]
    struct Pair(i64, bool);

    #[derive(Serialize)]
    struct Everything<'a> {
        shapes: Vec<Shape>,
        unit: Unit,
        pair: Pair,
        tuple: (u128, i128),
        by_number: BTreeMap<i32, ()>,
        by_truth: BTreeMap<bool, f32>,
        by_letter: BTreeMap<char, u64>,
        none: [u8; 0],
        raw: &'a RawValue,
        kept: Box<RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<u8>,
        #[serde(flatten)]
        rest: Value,
    }

    #[test]
    fn every_kind_is_written_as_serde_json_writes_it() {
        let raw = r#"{ "a" : 1.000000000000000000001 }"#;
        let everything = Everything {
            shapes: vec![
                Shape::Nothing,
                Shape::One(1),
                Shape::Two(2, '"'),
                Shape::Named { size: f64::NAN, name: Some("a\u{0}b".to_owned()) },
                Shape::Named { size: 1e21, name: None },
            ],
            unit: Unit,
            pair: Pair(i64::MIN, true),
            tuple: (u128::MAX, i128::MIN),
            by_number: [(-3, ()), (4, ())].into(),
            by_truth: [(true, 0.1), (false, f32::INFINITY)].into(),
            by_letter: [('"', u64::MAX), ('x', 0)].into(),
            none: [],
            raw: serde_json::from_str(raw).unwrap(),
            kept: RawValue::from_string("[ 1 ]".to_owned()).unwrap(),
            left_out: None,
            rest: serde_json::json!({"more": [{}, [], null, {"a": {"b": "c"}}]}),
        };
        assert_eq!(written(&everything).unwrap(), serde_json::to_string(&everything).unwrap());
        let by_pair = BTreeMap::from([((1, 2), 3)]);
        assert!(written(&by_pair).is_err() && serde_json::to_string(&by_pair).is_err());
    }
}
