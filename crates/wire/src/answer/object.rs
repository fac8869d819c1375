//! An object of an answer: where its members lie, and where further ones go.
//!
//! The names that are asked for are known, and each has a place of its own: a name is looked at once, when it is read.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::{self, Kind, Text};
use crate::splice::Splice;

/// Names that members of an object may have.
pub trait Names: Copy + 'static {
    /// All of them, each at its own place.
    const ALL: &'static [Self];
    fn of(name: &str) -> Option<Self>;
    /// As it is written behind another member: comma, name and colon.
    fn written(self) -> &'static str;
    fn place(self) -> usize;
}

macro_rules! names {
    ($(#[$meta:meta])* $names:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum $names {
            $($variant),*
        }

        impl Names for $names {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn of(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            fn written(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!(",\"", $name, "\":")),*
                }
            }

            fn place(self) -> usize {
                self as usize
            }
        }
    };
}

names! {
    /// Of messages, of events and of what they hold.
    Name {
        Id = "id",
        Type = "type",
        Role = "role",
        Model = "model",
        Provider = "provider",
        Content = "content",
        Error = "error",
        StopReason = "stop_reason",
        StopSequence = "stop_sequence",
        StopDetails = "stop_details",
        Container = "container",
        Usage = "usage",
        Message = "message",
        Delta = "delta",
        Category = "category",
        Explanation = "explanation",
    }
}

names! {
    /// Of what was used.
    Used {
        Input = "input_tokens",
        Output = "output_tokens",
        CacheWrite = "cache_creation_input_tokens",
        CacheRead = "cache_read_input_tokens",
        CacheCreation = "cache_creation",
        InputDetails = "input_tokens_details",
        OutputDetails = "output_tokens_details",
        Billed = "billed_units",
        ServerTools = "server_tool_use",
        Iterations = "iterations",
        Geo = "inference_geo",
        Tier = "service_tier",
        Speed = "speed",
        Cost = "cost",
        CostDetails = "cost_details",
        IsByok = "is_byok",
        Clamped = "clamped",
    }
}

pub type Part<'a> = Object<'a, Name, { Name::ALL.len() }>;
pub type Usage<'a> = Object<'a, Used, { Used::ALL.len() }>;

/// One object of a text, its values unread.
pub struct Object<'a, N, const COUNT: usize> {
    pub whole: &'a str,
    /// The first member of each name that is known.
    known: [Option<&'a RawValue>; COUNT],
    /// All others, in their order.
    others: Vec<(Cow<'a, str>, &'a RawValue)>,
    /// The value that was read last.
    last: Option<&'a RawValue>,
    /// The place of its closing brace.
    pub end: usize,
    /// Nothing stands in it so far: what is added first needs no comma.
    pub is_bare: bool,
    names: PhantomData<N>,
}

impl<'a, N: Names, const COUNT: usize> Object<'a, N, COUNT> {
    /// One of which no member is known yet.
    pub fn new(whole: &'a str, end: usize) -> Self {
        Self { whole, known: [None; COUNT], others: Vec::new(), last: None, end, is_bare: true, names: PhantomData }
    }

    /// The object that a text is.
    pub fn whole(whole: &'a str) -> Option<Self> {
        let mut object = Self::new(whole, whole.rfind('}')?);
        object.read(whole).is_ok().then_some(object)
    }

    /// An object inside a text; anything else is told without the cost of a parser's error.
    pub fn within(whole: &'a str, value: &'a RawValue) -> Option<Self> {
        if json::kind(value) != Kind::Object {
            return None;
        }
        let mut object = Self::new(whole, json::span(whole, value.get()).end - 1);
        object.read(value.get()).is_ok().then_some(object)
    }

    /// Adds the members of the object that a text is.
    pub fn read(&mut self, text: &'a str) -> Result<(), json::Broken> {
        let mut reader = json::Reader::new(text);
        self.deserialize(&mut reader)?;
        reader.end()
    }

    /// Adds a member that was read.
    pub fn put(&mut self, name: Cow<'a, str>, value: &'a RawValue) {
        self.is_bare = false;
        self.last = Some(value);
        match N::of(&name).map(|name| &mut self.known[name.place()]) {
            Some(empty @ None) => *empty = Some(value),
            _ => self.others.push((name, value)),
        }
    }

    /// The place of the closing brace, for an object that has just been read: white space at most is between it and the
    /// last member. `None` where there is no member.
    fn end_behind_last(&self) -> Option<usize> {
        let behind = json::span(self.whole, self.last?.get()).end;
        self.whole.as_bytes()[behind..].iter().position(|byte| *byte == b'}').map(|place| behind + place)
    }

    pub fn get(&self, name: N) -> Option<&'a RawValue> {
        self.known[name.place()]
    }

    /// The first member of any name.
    pub fn find(&self, name: &str) -> Option<&'a RawValue> {
        match N::of(name) {
            Some(name) => self.get(name),
            None => self.others.iter().find(|(other, _)| other == name).map(|(_, value)| *value),
        }
    }

    /// The members whose names are known; those of one name in their order.
    pub fn known(&self) -> impl Iterator<Item = (N, &'a RawValue)> {
        let first = N::ALL.iter().zip(&self.known).filter_map(|(name, value)| value.map(|value| (*name, value)));
        // Here are such that came twice.
        first.chain(self.others.iter().filter_map(|(name, value)| N::of(name).map(|name| (name, *value))))
    }

    /// The members whose names are not.
    pub fn strange(&self) -> impl Iterator<Item = &'a RawValue> {
        self.others.iter().filter(|(name, _)| N::of(name).is_none()).map(|(_, value)| *value)
    }

    /// Replaces a member or adds it.
    pub fn set(&mut self, splice: &mut Splice, name: N, value: &str) {
        self.set_by(splice, name, |out| out.extend_from_slice(value.as_bytes()));
    }

    pub fn set_by(&mut self, splice: &mut Splice, name: N, write: impl FnOnce(&mut Vec<u8>)) {
        match self.get(name) {
            Some(old) => splice.replace_by(json::span(self.whole, old.get()), write),
            None => self.add_by(splice, name.written(), write),
        }
    }

    /// As [`Object::set`], for any name.
    pub fn set_any(&mut self, splice: &mut Splice, name: &str, value: &str) {
        match self.find(name) {
            Some(old) => splice.replace(json::span(self.whole, old.get()), value.as_bytes()),
            None => self.add_by(splice, &format!(",\"{name}\":"), |out| out.extend_from_slice(value.as_bytes())),
        }
    }

    /// Adds the members that the upstream left out.
    pub fn fill(&mut self, splice: &mut Splice, wanted: &[N], value: &str) {
        for name in wanted {
            if self.get(*name).is_none() {
                self.add_by(splice, name.written(), |out| out.extend_from_slice(value.as_bytes()));
            }
        }
    }

    fn add_by(&mut self, splice: &mut Splice, written: &str, write: impl FnOnce(&mut Vec<u8>)) {
        // What is written first needs no comma.
        let written = &written.as_bytes()[usize::from(std::mem::take(&mut self.is_bare))..];
        splice.append_by(self.end, |out| {
            out.extend_from_slice(written);
            write(out);
        });
    }
}

/// Adds the members of an object to what is kept: it is many bytes, and not moved for each level of a parser.
impl<'de, N: Names, const COUNT: usize> DeserializeSeed<'de> for &mut Object<'de, N, COUNT> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, N: Names, const COUNT: usize> Visitor<'de> for &mut Object<'de, N, COUNT> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            self.put(name, map.next_value()?);
        }
        Ok(())
    }
}

/// A message whose usage is an object with members, read in one pass. The error says that it is not as usual, or none.
pub struct Plain<'m, 'a> {
    pub message: &'m mut Part<'a>,
    pub usage: &'m mut Usage<'a>,
}

impl<'a> Visitor<'a> for Plain<'_, 'a> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a message")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { message, usage } = self;
        while let Some(Text(name)) = map.next_key()? {
            // The first one counts.
            if name == "usage" && usage.is_bare {
                message.is_bare = false;
                map.next_value_seed(&mut *usage)?;
                usage.end = usage.end_behind_last().ok_or_else(|| de::Error::missing_field("usage"))?;
            } else {
                message.put(name, map.next_value()?);
            }
        }
        if usage.is_bare { Err(de::Error::missing_field("usage")) } else { Ok(()) }
    }
}
