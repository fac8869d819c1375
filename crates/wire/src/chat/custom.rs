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

/// The text that it is called with; all of the arguments where they are something else. Of an object that was cut short it is
/// what there is of it.
pub(crate) fn text_of(arguments: &str) -> String {
    let members = serde_json::from_str::<&RawValue>(arguments).ok().and_then(Members::of);
    match members {
        Some(members) if members.0.is_empty() => String::new(),
        Some(members) => {
            let text = members.get("input").and_then(json::string);
            text.map_or_else(|| arguments.to_owned(), |text| text.into_owned())
        }
        None => begun(arguments).unwrap_or_else(|| arguments.to_owned()),
    }
}

/// The beginning of a text whose object ends in the middle of it, or before it.
fn begun(arguments: &str) -> Option<String> {
    let inside = arguments.trim_start().strip_prefix('{').map(str::trim_start);
    let Some(inside) = inside.and_then(|inside| inside.strip_prefix("\"input\"")) else {
        return "{\"input\"".starts_with(arguments.trim()).then(String::new);
    };
    let value = inside.trim_start().strip_prefix(':').unwrap_or_default().trim_start();
    let Some(text) = value.strip_prefix('"') else { return value.is_empty().then(String::new) };
    // What is cut may end within an escape, of which the longest has twelve characters.
    let ends = (0..=12).filter_map(|less| text.len().checked_sub(less)).filter(|end| text.is_char_boundary(*end));
    ends.filter_map(|end| serde_json::from_str::<String>(&format!("\"{}\"", &text[..end])).ok()).next()
}

#[cfg(test)]
mod tests {
    use super::text_of;

    #[test]
    fn a_text_is_found_also_where_its_object_was_cut() {
        for (arguments, text) in [
            (r#"{"input":"a\nb"}"#, "a\nb"),
            (r#"{"input":"rm -rf /tmp/x"#, "rm -rf /tmp/x"),
            (r#"{ "input" : "a\"#, "a"),
            (r#"{"input":"a\ud83d\ude"#, "a"),
            (r#"{"input":"#, ""),
            (r#"{"inp"#, ""),
            ("{}", ""),
            ("", ""),
            (r#"{"other":1}"#, r#"{"other":1}"#),
            ("plain", "plain"),
        ] {
            assert_eq!(text_of(arguments), text, "{arguments}");
        }
    }
}
