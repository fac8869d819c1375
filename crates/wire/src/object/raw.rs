//! JSON that is carried, not read.

use std::fmt;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json;

/// JSON we carry without looking into it; numbers keep their digits.
#[derive(Clone)]
pub struct Raw(Box<RawValue>);

impl Raw {
    /// Takes JSON text; the error says why it is none.
    pub fn from_text(text: impl Into<String>) -> serde_json::Result<Self> {
        RawValue::from_string(text.into()).map(Self)
    }

    /// The JSON of a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// `text` as a JSON string.
    pub fn string(text: &str) -> Self {
        Self::literal(json::quoted(text))
    }

    /// `{}`
    pub fn empty_object() -> Self {
        Self::literal("{}".to_owned())
    }

    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    pub fn get(&self) -> &str {
        self.0.get()
    }

    pub fn as_raw_value(&self) -> &RawValue {
        &self.0
    }

    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(self.get())
    }

    fn literal(text: String) -> Self {
        Self(RawValue::from_string(text).expect("our own text is JSON"))
    }
}

impl Default for Raw {
    fn default() -> Self {
        Self::null()
    }
}

impl From<&RawValue> for Raw {
    fn from(raw: &RawValue) -> Self {
        Self(raw.to_owned())
    }
}

impl From<Box<RawValue>> for Raw {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw)
    }
}

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Raw({})", self.get())
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(deserializer).map(Self)
    }
}

/// Members a type does not name, in their order; the same name may stand twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extra(pub Vec<(String, Raw)>);

impl Extra {
    pub fn get(&self, name: &str) -> Option<&Raw> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub fn push(&mut self, name: impl Into<String>, value: Raw) {
        self.0.push((name.into(), value));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An object of a kind we do not know, or of a known kind whose members do not fit it.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    pub kind: String,
    pub raw: Raw,
}

impl Other {
    /// What follows the brand in kinds such as `<brand>_shell_tool_result`.
    pub fn branded(&self, brand: &str) -> Option<&str> {
        self.kind.strip_prefix(brand)?.strip_prefix('_')
    }
}
