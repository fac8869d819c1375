//! What the written-out readers of `object!` and `tagged!` share.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{self, Deserialize, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Extra, Other, Raw};
use crate::json::{self, Reader, Text};

/// How deep kinds may nest in kinds before the rest is kept unread. Each level reads from its own text, so the parser's
/// own limit never adds up; real conversations need four.
const MAX_NESTING: usize = 24;

/// Reads the `type` of an object whose kind is fixed.
pub fn check_kind<'de, A: MapAccess<'de>>(expected: &mut Option<&'static str>, map: &mut A) -> Result<(), A::Error> {
    let Some(expected) = expected.take() else { return Err(de::Error::duplicate_field("type")) };
    let Text(kind) = map.next_value().map_err(|error| within("type", error))?;
    if kind != expected {
        return Err(within("type", de::Error::invalid_value(de::Unexpected::Str(&kind), &expected)));
    }
    Ok(())
}

/// Reads the value of a member that may stand once.
pub fn fill<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    *slot = Some(map.next_value().map_err(|error| within(name, error))?);
    Ok(())
}

/// The same for a member whose `null` means absence but is to be written back.
pub fn fill_optional<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    extra: &mut Extra,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if slot.is_some() || extra.get(name).is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    *slot = map.next_value().map_err(|error| within(name, error))?;
    if slot.is_none() {
        extra.push(name, Raw::null());
    }
    Ok(())
}

fn within<E: de::Error>(name: &str, error: E) -> E {
    E::custom(format_args!("{name}: {error}"))
}

/// The `type` of an object, found without reading the members behind it.
pub fn kind_of<'a>(raw: &'a RawValue, default: Option<&'a str>) -> serde_json::Result<Cow<'a, str>> {
    struct Find<'a, 'de>(&'a mut Option<&'de RawValue>);
    impl<'de> Visitor<'de> for Find<'_, 'de> {
        type Value = ();
        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(Text(key)) = map.next_key()? {
                if key == "type" {
                    *self.0 = Some(map.next_value()?);
                    return Ok(());
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }
    let mut found = None;
    let walk = Reader::new(raw.get()).deserialize_map(Find(&mut found));
    let Some(kind) = found else {
        // Who reads it again says what it is instead.
        if walk.is_err() {
            serde_json::Deserializer::from_str(raw.get()).deserialize_map(Find(&mut found))?;
        }
        return default.map(Cow::Borrowed).ok_or_else(|| de::Error::missing_field("type"));
    };
    // The walk stopped at the member, which the reader takes for an unfinished object: its error means nothing here.
    match (json::kind(kind), default) {
        (json::Kind::Null, Some(default)) => Ok(Cow::Borrowed(default)),
        (json::Kind::String, _) => match json::string(kind) {
            Some(kind) => Ok(kind),
            None => serde_json::from_str(kind.get()).map(Cow::Owned),
        },
        _ => Err(de::Error::custom("type: expected a string")),
    }
}

pub fn other(kind: Cow<'_, str>, raw: &RawValue) -> Other {
    Other { kind: kind.into_owned(), raw: raw.into() }
}

/// Runs `read` unless it stands too deep inside other values being read.
pub fn nested<T>(read: impl FnOnce() -> Option<T>) -> Option<T> {
    thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });
    struct Leave(usize);
    impl Drop for Leave {
        fn drop(&mut self) {
            DEPTH.set(self.0);
        }
    }
    let depth = DEPTH.get();
    if depth >= MAX_NESTING {
        return None;
    }
    let _leave = Leave(depth);
    DEPTH.set(depth + 1);
    read()
}
