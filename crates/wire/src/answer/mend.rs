//! Usage that cannot be true, as the client is told it: with the counts that it is charged by, where the upstream's are
//! none. Beside our cost a negative count would look like our own.

use serde_json::value::RawValue;

use super::counts::count;
use super::object::{Usage, Used};
use crate::json::{self, Kind, Members};
use crate::splice::Splice;

/// How far inside a usage numbers are looked for: entries of a list hold counts, and objects of such.
const DEEPEST: usize = 3;

/// Puts counts in the place of what is none.
#[cold]
pub fn mend(usage: &Usage<'_>, splice: &mut Splice) {
    for (name, value) in usage.known() {
        match name {
            Used::Input | Used::Output => number(usage.whole, value, "0", splice),
            Used::CacheWrite | Used::CacheRead => number(usage.whole, value, "null", splice),
            Used::CacheCreation | Used::InputDetails | Used::OutputDetails | Used::ServerTools | Used::Iterations => {
                numbers(usage.whole, value, 0, splice)
            }
            // What is for us alone is taken out.
            Used::Billed if super::billed_to_us(usage, value).is_some() => {}
            Used::Billed => numbers(usage.whole, value, 0, splice),
            Used::Geo | Used::Tier | Used::Speed | Used::Cost | Used::CostDetails | Used::IsByok | Used::Clamped => {}
        }
    }
}

/// The nearest count, or `otherwise` where there is none near.
fn number(whole: &str, value: &RawValue, otherwise: &str, splice: &mut Splice) {
    let mut is_bad = false;
    let near = count(Some(value), &mut is_bad);
    if is_bad {
        let near = near.map_or_else(|| otherwise.to_owned(), |near| near.to_string());
        splice.replace(json::span(whole, value.get()), near.as_bytes());
    }
}

/// The numbers inside a value. An upstream's nesting has no bound, and each level is read on the stack and once more for
/// every level above it.
fn numbers(whole: &str, value: &RawValue, depth: usize, splice: &mut Splice) {
    if depth > DEEPEST {
        return;
    }
    match json::kind(value) {
        Kind::Number => number(whole, value, "0", splice),
        Kind::Object => {
            let members = Members::of(value).map(|members| members.0).unwrap_or_default();
            members.iter().for_each(|(_, value)| numbers(whole, value, depth + 1, splice));
        }
        Kind::Array => {
            let entries = json::elements(value).unwrap_or_default();
            entries.into_iter().for_each(|value| numbers(whole, value, depth + 1, splice));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let mut splice = Splice::default();
        mend(&Usage::whole(text).unwrap(), &mut splice);
        String::from_utf8(splice.apply(text.as_bytes()).to_vec()).unwrap()
    }

    #[test]
    fn what_is_no_count_is_told_as_the_nearest_one() {
        let text = r#"{"input_tokens":-5, "output_tokens":1e99,"x":-1,"cache_read_input_tokens":2.6,"cache_creation_input_tokens":"9","output_tokens_details":{"thinking_tokens":-3,"y":"z"},"iterations":[{"type":"compaction","input_tokens":-7}],"output_tokens":-1}"#;
        let expected = r#"{"input_tokens":0, "output_tokens":1000000000000,"x":-1,"cache_read_input_tokens":3,"cache_creation_input_tokens":null,"output_tokens_details":{"thinking_tokens":0,"y":"z"},"iterations":[{"type":"compaction","input_tokens":0}],"output_tokens":0}"#;
        assert_eq!(told(text), expected);
        assert_eq!(told(r#"{"input_tokens":[],"output_tokens":"many"}"#), r#"{"input_tokens":0,"output_tokens":0}"#);
    }

    #[test]
    fn counts_of_iterations_are_reached_and_an_abyss_is_not() {
        let text = r#"{"input_tokens":1,"iterations":[{"cache_creation":{"ephemeral_1h_input_tokens":-2}}],"output_tokens":-1}"#;
        let expected =
            r#"{"input_tokens":1,"iterations":[{"cache_creation":{"ephemeral_1h_input_tokens":0}}],"output_tokens":0}"#;
        assert_eq!(told(text), expected);
        let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
        let deep = |output: &str| {
            format!(
                r#"{{"iterations":{open}-1{close},"cache_creation":{{"a":{open}{close}}},"output_tokens":{output}}}"#
            )
        };
        assert_eq!(told(&deep("-1")), deep("0"));
    }

    #[test]
    fn what_is_sound_is_told_to_the_byte() {
        for text in [
            "{}",
            r#"{ "input_tokens" : 14.0,"output_tokens":9,"cache_creation":{"ephemeral_1h_input_tokens":0}, "z":-1.5 }"#,
            r#"{"input_tokens":null,"output_tokens":1000000000000,"output_tokens_details":null,"cost":-1}"#,
        ] {
            assert_eq!(told(text), text);
        }
    }
}
