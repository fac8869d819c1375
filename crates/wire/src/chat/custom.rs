//! Tools that take a text and no object, which both of OpenAI's formats have: functions with one member.

use serde_json::value::RawValue;

use crate::envelope::Violation;
use crate::envelope::check::{self, Place};
use crate::json::{self, Members};

use super::request::Object;

const TAKES_TEXT: &str = r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}"#;

/// The function that stands for a tool; its name is noted among those of such tools.
pub(crate) fn tool(place: &Place<'_>, tool: &Members<'_>, names: &mut Vec<String>) -> Result<Object, Violation> {
    let name = check::required(place, tool, "name")?;
    names.push(check::text_between(&place.member("name"), name, 1, 128)?.into_owned());
    let mut function = Object::default();
    function.set("name", name.get());
    function.set_some("description", check::present(tool, "description"));
    function.set("input_schema", TAKES_TEXT);
    Ok(function)
}

/// What such a function is called with, of a text that is JSON already.
pub(crate) fn object_of(text: &RawValue) -> String {
    format!(r#"{{"input":{}}}"#, text.get())
}

/// The text that it is called with; all of the arguments where they are something else.
pub(crate) fn text_of(arguments: &str) -> String {
    let members = serde_json::from_str::<&RawValue>(arguments).ok().and_then(Members::of);
    let text = members.as_ref().and_then(|members| members.get("input")).and_then(json::string);
    text.map_or_else(|| arguments.to_owned(), |text| text.into_owned())
}
