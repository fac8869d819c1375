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
pub trait Names: Copy {
    const ALL: &'static [&'static str];
    /// The place of a name among all.
    fn place(name: &str) -> Option<usize>;
    fn index(self) -> usize;
}

macro_rules! names {
    ($(#[$meta:meta])* $names:ident { $($variant:ident = $name:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub enum $names {
            $($variant),*
        }

        impl $names {
            pub const COUNT: usize = <Self as Names>::ALL.len();
        }

        impl Names for $names {
            const ALL: &'static [&'static str] = &[$($name),*];

            fn place(name: &str) -> Option<usize> {
                match name {
                    $($name => Some(Self::$variant as usize),)*
                    _ => None,
                }
            }

            fn index(self) -> usize {
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
    }
}

pub type Part<'a> = Object<'a, Name, { Name::COUNT }>;
pub type Usage<'a> = Object<'a, Used, { Used::COUNT }>;

/// One object of a text, its values unread.
pub struct Object<'a, N, const COUNT: usize> {
    pub whole: &'a str,
    /// The first member of each name that is known.
    known: [Option<&'a RawValue>; COUNT],
    /// All others, in their order.
    others: Vec<(Cow<'a, str>, &'a RawValue)>,
    /// The place of its closing brace.
    pub end: usize,
    /// Nothing stands in it so far: what is added first needs no comma.
    pub is_bare: bool,
    names: PhantomData<N>,
}

impl<'a, N: Names, const COUNT: usize> Object<'a, N, COUNT> {
    /// One of which no member is known yet.
    pub fn new(whole: &'a str, end: usize) -> Self {
        Self { whole, known: [None; COUNT], others: Vec::new(), end, is_bare: true, names: PhantomData }
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
    pub fn read(&mut self, text: &'a str) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        self.deserialize(&mut deserializer)?;
        deserializer.end()
    }

    /// Adds a member that was read.
    pub fn put(&mut self, name: Cow<'a, str>, value: &'a RawValue) {
        self.is_bare = false;
        match N::place(&name).map(|place| &mut self.known[place]) {
            Some(empty @ None) => *empty = Some(value),
            _ => self.others.push((name, value)),
        }
    }

    pub fn get(&self, name: N) -> Option<&'a RawValue> {
        self.known[name.index()]
    }

    /// The first member of any name.
    pub fn find(&self, name: &str) -> Option<&'a RawValue> {
        match N::place(name) {
            Some(place) => self.known[place],
            None => self.others.iter().find(|(other, _)| other == name).map(|(_, value)| *value),
        }
    }

    /// All members; those of one name in their order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        let known = N::ALL.iter().zip(self.known).filter_map(|(name, value)| value.map(|value| (*name, value)));
        known.chain(self.others.iter().map(|(name, value)| (name.as_ref(), *value)))
    }

    /// Replaces a member or adds it.
    pub fn set(&mut self, splice: &mut Splice, name: N, value: &str) {
        self.set_by(splice, name, |out| out.extend_from_slice(value.as_bytes()));
    }

    pub fn set_by(&mut self, splice: &mut Splice, name: N, write: impl FnOnce(&mut Vec<u8>)) {
        match self.get(name) {
            Some(old) => splice.replace_by(json::span(self.whole, old.get()), write),
            None => self.add_by(splice, N::ALL[name.index()], write),
        }
    }

    /// As [`Object::set`], for any name.
    pub fn set_any(&mut self, splice: &mut Splice, name: &str, value: &str) {
        match self.find(name) {
            Some(old) => splice.replace(json::span(self.whole, old.get()), value.as_bytes()),
            None => self.add_by(splice, name, |out| out.extend_from_slice(value.as_bytes())),
        }
    }

    /// Adds the members that the upstream left out, given as they are written behind others.
    pub fn fill(&mut self, splice: &mut Splice, wanted: &[(N, &str)]) {
        for (name, text) in wanted {
            if self.get(*name).is_none() {
                let text = &text.as_bytes()[usize::from(std::mem::take(&mut self.is_bare))..];
                splice.append_by(self.end, |out| out.extend_from_slice(text));
            }
        }
    }

    pub fn add_by(&mut self, splice: &mut Splice, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let is_bare = std::mem::take(&mut self.is_bare);
        splice.append_by(self.end, |out| {
            out.reserve(name.len() + 4);
            if !is_bare {
                out.push(b',');
            }
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
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
                usage.end = end_of(usage).ok_or_else(|| de::Error::missing_field("usage"))?;
            } else {
                message.put(name, map.next_value()?);
            }
        }
        if usage.is_bare { Err(de::Error::missing_field("usage")) } else { Ok(()) }
    }
}

/// The place of the closing brace: white space at most is between it and the last member.
fn end_of(usage: &Usage<'_>) -> Option<usize> {
    let last = usage.members().map(|(_, value)| json::span(usage.whole, value.get()).end).max()?;
    usage.whole.as_bytes()[last..].iter().position(|byte| *byte == b'}').map(|behind| last + behind)
}
