//! `require_parameters`: what a request sets is not left out for anybody. The plan knows what endpoints list; that one of them
//! does not take a value, or refuses what it lists, shows only when its call is made.

use tidegate_wire::envelope;
use tidegate_wire::json::Members;

/// Hints that change no answer, and what is also said of thinking that lies behind.
const NOT_PARAMETERS: [&str; 2] = ["cache_control", "thinking"];

/// Members of a request by other names that they have in warnings: our own, or those of a protocol.
const OTHER_NAMES: [(&str, &str); 8] = [
    ("effort", "output_config"),
    ("format", "output_config"),
    ("parallel_tool_calls", "tool_choice"),
    ("reasoning_effort", "output_config"),
    ("response_format", "output_config"),
    ("response_json_schema", "output_config"),
    ("stop", "stop_sequences"),
    ("task_budget", "output_config"),
];

/// Those of the warnings that tell of a parameter that a body sets and the call goes without.
pub(super) fn missing<'w>(body: &[u8], warnings: &'w [String]) -> Vec<&'w str> {
    let dropped = || warnings.iter().filter_map(|warning| Some((&**warning, warning.strip_prefix("dropped:")?)));
    if dropped().next().is_none() {
        return Vec::new();
    }
    let members: Members<'_> = serde_json::from_slice(body).unwrap_or_default();
    let beside = envelope::chat_options(body);
    let is_set = |name: &str| {
        let known = OTHER_NAMES.iter().find(|(other, _)| *other == name).map_or(name, |(_, member)| member);
        members.get(known).is_some() || beside.iter().any(|option| option == name)
    };
    // Of inner members the outermost may be the request's, or the innermost: `generationConfig.topK` is its `top_k`.
    let is_parameter = |name: &str| {
        let (first, last) = (name.split('.').next().unwrap_or(name), name.rsplit('.').next().unwrap_or(name));
        !NOT_PARAMETERS.contains(&name) && (is_set(first) || is_set(&snake(last)))
    };
    dropped().filter(|(_, name)| is_parameter(name)).map(|(warning, _)| warning).collect()
}

fn snake(name: &str) -> String {
    let mut made = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            made.push('_');
        }
        made.push(character.to_ascii_lowercase());
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_what_the_request_sets() {
        let body = br#"{"model":"m","temperature":0.5,"top_k":3,"service_tier":"flex","output_config":{"effort":"low"},
            "cache_control":{"type":"ephemeral"},"thinking":{"type":"disabled"},"context_management":{"edits":[]},
            "chat_options":{"logprobs":true},"messages":[]}"#;
        for (name, wanted) in [
            ("dropped:temperature", true),
            ("dropped:service_tier", true),
            ("dropped:effort", true),
            ("dropped:reasoning.effort", true),
            ("dropped:context_management.clear_thinking", true),
            ("dropped:logprobs", true),
            ("dropped:generationConfig.topK", true),
            ("clamped:temperature", false),
            ("changed:effort", false),
            ("dropped:top_p", false),
            ("dropped:reasoning.summary", false),
            ("dropped:stream_options.include_usage", false),
            ("dropped:cache_control", false),
            ("dropped:thinking", false),
            ("dropped:citations", false),
            ("dropped:connector_text", false),
        ] {
            let warnings = [name.to_owned()];
            assert_eq!(!missing(body, &warnings).is_empty(), wanted, "{name}");
        }
    }
}
