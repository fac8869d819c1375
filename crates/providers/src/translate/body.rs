//! The body of an upstream's request, member by member.

use serde::Serialize;
use serde::ser::SerializeMap as _;
use tidegate_wire::json::{self, Written};
use tidegate_wire::object::Raw;

/// The members of a body, in the order in which they are written. They are JSON texts: what the client wrote goes out
/// with its own order of members, which caches of the prefix depend on.
#[derive(Debug, Default)]
pub struct Body(Vec<(String, Written)>);

impl Body {
    pub fn set(&mut self, name: &str, value: impl Serialize) {
        let value = Written::of(&value).expect("texts, numbers and JSON are always JSON");
        self.0.push((name.to_owned(), value));
    }

    /// The member if there is something to say.
    pub fn set_some(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let long: usize = self.0.iter().map(|(name, value)| name.len() + value.get().len() + "\"\":,".len()).sum();
        let mut out = Vec::with_capacity(long + "{}".len());
        json::write(self, &mut out).expect("names and JSON are always JSON");
        out
    }
}

/// An object inside of a body is written like the body.
impl Serialize for Body {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// JSON without the white space between its parts. Numbers keep their digits.
pub fn compact(raw: &Raw) -> String {
    let mut out = String::with_capacity(raw.get().len());
    let (mut inside, mut escaped) = (false, false);
    for character in raw.get().chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            _ if !inside && character.is_ascii_whitespace() => continue,
            _ => {}
        }
        out.push(character);
    }
    out
}
