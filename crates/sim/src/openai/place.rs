//! A value within a request and the way to it, so that an error can name the parameter as OpenAI does.

use serde_json::{Map, Value};

use crate::failure::Failure;

#[derive(Clone)]
pub(crate) struct Place<'v> {
    pub path: String,
    pub value: &'v Value,
}

type Checked<T> = Result<T, Failure>;

impl<'v> Place<'v> {
    pub fn root(value: &'v Value) -> Self {
        Self { path: String::new(), value }
    }

    fn inner(&self, name: &str) -> String {
        match self.path.is_empty() {
            true => name.to_owned(),
            false => format!("{}.{name}", self.path),
        }
    }

    /// A member that is there and not null: the API treats both absences alike.
    pub fn get(&self, name: &str) -> Option<Place<'v>> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(Place { path: self.inner(name), value })
    }

    pub fn need(&self, name: &str) -> Checked<Place<'v>> {
        self.get(name).ok_or_else(|| {
            let path = self.inner(name);
            let message = format!("Missing required parameter: '{path}'.");
            Failure::at(path, "missing_required_parameter", message)
        })
    }

    /// Refuses members of other names.
    pub fn only(&self, names: &[&str]) -> Checked<()> {
        let Some(stranger) = self.object()?.keys().find(|name| !names.contains(&name.as_str())) else {
            return Ok(());
        };
        let path = self.inner(stranger);
        let message = format!("Unknown parameter: '{path}'.");
        Err(Failure::at(path, "unknown_parameter", message))
    }

    pub fn object(&self) -> Checked<&'v Map<String, Value>> {
        self.value.as_object().ok_or_else(|| self.not("an object"))
    }

    pub fn text(&self) -> Checked<&'v str> {
        self.value.as_str().ok_or_else(|| self.not("a string"))
    }

    pub fn flag(&self) -> Checked<bool> {
        self.value.as_bool().ok_or_else(|| self.not("a boolean"))
    }

    pub fn items(&self) -> Checked<Vec<Place<'v>>> {
        let items = self.value.as_array().ok_or_else(|| self.not("an array"))?;
        let place = |(at, value)| Place { path: format!("{}[{at}]", self.path), value };
        Ok(items.iter().enumerate().map(place).collect())
    }

    /// Items of which there must be some.
    pub fn some_items(&self) -> Checked<Vec<Place<'v>>> {
        let items = self.items()?;
        match items.is_empty() {
            false => Ok(items),
            true => Err(self.wrong(
                "empty_array",
                &format!(
                    "Invalid '{}': empty array. Expected an array with minimum length 1, but got an empty \
                    array instead.",
                    self.path
                ),
            )),
        }
    }

    pub fn at_most(&self, most: usize, found: usize) -> Checked<()> {
        match found <= most {
            true => Ok(()),
            false => Err(self.wrong(
                "array_above_max_length",
                &format!(
                    "Invalid '{}': array too long. Expected an array with maximum length {most}, but got an \
                    array with length {found} instead.",
                    self.path
                ),
            )),
        }
    }

    pub fn integer(&self, least: u64) -> Checked<u64> {
        let found = self.value.as_i64().ok_or_else(|| self.not("an integer"))?;
        match u64::try_from(found) {
            Ok(found) if found >= least => Ok(found),
            _ => Err(self.wrong(
                "integer_below_min_value",
                &format!(
                    "Invalid '{}': integer below minimum value. Expected a value >= {least}, but got {found} instead.",
                    self.path
                ),
            )),
        }
    }

    pub fn number(&self, most: f64) -> Checked<f64> {
        let found = self.value.as_f64().ok_or_else(|| self.not("a decimal"))?;
        if (0.0..=most).contains(&found) {
            return Ok(found);
        }
        let (code, word, sign, bound) = match found < 0.0 {
            true => ("decimal_below_min_value", "below minimum", ">=", 0.0),
            false => ("decimal_above_max_value", "above maximum", "<=", most),
        };
        let path = &self.path;
        let message = format!(
            "Invalid '{path}': decimal {word} value. Expected a value {sign} {bound}, but got {found} instead."
        );
        Err(self.wrong(code, &message))
    }

    pub fn one_of(&self, values: &[&str]) -> Checked<&'v str> {
        let found = self.text()?;
        match values.contains(&found) {
            true => Ok(found),
            false => {
                let listed = values.iter().map(|value| format!("'{value}'")).collect::<Vec<_>>().join(", ");
                Err(self.wrong("invalid_value", &format!("Invalid value: '{found}'. Supported values are: {listed}.")))
            }
        }
    }

    /// An error about this value.
    pub fn wrong(&self, code: &'static str, message: &str) -> Failure {
        Failure::at(self.path.clone(), code, message)
    }

    pub fn not(&self, expected: &str) -> Failure {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(number) if number.is_f64() => "a decimal",
            Value::Number(_) => "an integer",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        let path = &self.path;
        self.wrong("invalid_type", &format!("Invalid type for '{path}': expected {expected}, but got {found} instead."))
    }
}
