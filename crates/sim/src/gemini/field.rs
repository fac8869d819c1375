//! A value within a request and the way to it, with the errors of a server that reads JSON as protobuf.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::Value;

use crate::failure::Failure;

#[derive(Clone)]
pub(super) struct Field<'v> {
    pub path: String,
    pub value: &'v Value,
}

type Checked<T> = Result<T, Failure>;

impl<'v> Field<'v> {
    pub fn root(value: &'v Value) -> Self {
        Self { path: String::new(), value }
    }

    /// Errors name members as the service's definition does, in snake case.
    fn inner(&self, name: &str) -> String {
        match self.path.is_empty() {
            true => snake(name),
            false => format!("{}.{}", self.path, snake(name)),
        }
    }

    /// A member under its JSON name or the definition's: the service reads both, and its own client mixes them.
    pub fn get(&self, name: &str) -> Option<Field<'v>> {
        let value = self.value.get(name).or_else(|| self.value.get(snake(name)));
        Some(Field { path: self.inner(name), value: value.filter(|value| !value.is_null())? })
    }

    pub fn need(&self, name: &str) -> Checked<Field<'v>> {
        self.get(name).ok_or_else(|| {
            let path = self.inner(name);
            let message = format!("* GenerateContentRequest.{path}: {name} is not specified");
            Failure { param: Some(path), ..Failure::new(400, message) }
        })
    }

    /// Refuses members of other names than these, which are separated by spaces.
    pub fn only(&self, names: &str) -> Checked<()> {
        let object = self.value.as_object().ok_or_else(|| self.invalid("an object"))?;
        match object.keys().find(|name| !names.split(' ').any(|known| known == *name || snake(known) == **name)) {
            None => Ok(()),
            Some(name) => Err(stranger(&self.path, name)),
        }
    }

    pub fn text(&self) -> Checked<&'v str> {
        self.value.as_str().ok_or_else(|| self.invalid("TYPE_STRING"))
    }

    pub fn flag(&self) -> Checked<bool> {
        self.value.as_bool().ok_or_else(|| self.invalid("TYPE_BOOL"))
    }

    pub fn number(&self) -> Checked<f64> {
        self.value.as_f64().ok_or_else(|| self.invalid("TYPE_FLOAT"))
    }

    pub fn integer(&self, least: i64) -> Checked<i64> {
        match self.value.as_i64().ok_or_else(|| self.invalid("TYPE_INT32"))? {
            found if found >= least => Ok(found),
            _ => Err(self.wrong(&format!("* GenerateContentRequest.{}: must be at least {least}", self.path))),
        }
    }

    pub fn object(&self) -> Checked<()> {
        match self.value.is_object() {
            true => Ok(()),
            false => Err(self.invalid("type.googleapis.com/google.protobuf.Struct")),
        }
    }

    pub fn items(&self) -> Checked<Vec<Field<'v>>> {
        let Some(items) = self.value.as_array() else {
            let message =
                format!("Invalid JSON payload received. '{}' is not repeating, cannot start list.", self.path);
            return Err(self.wrong(&message));
        };
        let field = |(at, value)| Field { path: format!("{}[{at}]", self.path), value };
        Ok(items.iter().enumerate().map(field).collect())
    }

    pub fn one_of(&self, values: &str) -> Checked<&'v str> {
        let found = self.text()?;
        match values.split(' ').any(|value| value == found) {
            true => Ok(found),
            false => Err(self.invalid("TYPE_ENUM")),
        }
    }

    /// Either alphabet is read, nothing around the data is.
    pub fn bytes(&self) -> Checked<()> {
        let text = self.text()?;
        let engines = [STANDARD.decode(text), URL_SAFE.decode(text), URL_SAFE_NO_PAD.decode(text)];
        match engines.iter().any(Result::is_ok) {
            true => Ok(()),
            false => Err(self.wrong(&format!("Invalid value at '{}' (TYPE_BYTES), Base64 decoding failed", self.path))),
        }
    }

    pub fn wrong(&self, message: &str) -> Failure {
        Failure { param: Some(self.path.clone()), ..Failure::new(400, message) }
    }

    fn invalid(&self, expected: &str) -> Failure {
        self.wrong(&format!("Invalid value at '{}' ({expected}), {}", self.path, self.value))
    }
}

/// A member that the service does not know.
pub(super) fn stranger(path: &str, name: &str) -> Failure {
    let place = if path.is_empty() { String::new() } else { format!(" at '{path}'") };
    let message = format!("Invalid JSON payload received. Unknown name \"{name}\"{place}: Cannot find field.");
    Failure { param: Some(path.to_owned()), ..Failure::new(400, message) }
}

pub(super) fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}
