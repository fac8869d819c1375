//! Scenarios of a server that is older or stricter than the request: what in it they refuse, and where it is.

use serde_json::Value;

/// The way to a member: names, and numbers of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<String>);

impl Path {
    /// `tools.0.strict`
    pub fn dotted(&self) -> String {
        self.0.join(".")
    }

    /// `tools[0].strict`
    pub fn bracketed(&self) -> String {
        let mut out = String::new();
        for step in &self.0 {
            match step.parse::<usize>() {
                Ok(at) => out.push_str(&format!("[{at}]")),
                Err(_) if out.is_empty() => out.push_str(step),
                Err(_) => out.push_str(&format!(".{step}")),
            }
        }
        out
    }

    /// The last name, and the way to what holds it.
    pub fn split_last(&self) -> (&str, Path) {
        match self.0.split_last() {
            Some((last, outer)) => (last, Path(outer.to_vec())),
            None => ("", Path::default()),
        }
    }

    /// The way to the item of a list that holds the member.
    pub fn block(&self) -> Path {
        let last = self.0.iter().rposition(|step| step.parse::<usize>().is_ok());
        Path(self.0[..last.map_or(0, |last| last + 1)].to_vec())
    }

    fn with(&self, step: &str) -> Path {
        let mut steps = self.0.clone();
        steps.push(step.to_owned());
        Path(steps)
    }
}

/// Members whose content is the caller's own: a name in it is nobody's parameter.
const FOREIGN: &[&str] = &[
    "input_schema",
    "inputSchema",
    "parameters",
    "parametersJsonSchema",
    "input",
    "args",
    "arguments",
    "json",
    "response",
];

/// Where the body has a member of this name: the outermost first. A name with dots is a way from the root, through
/// all items of lists.
pub(crate) fn member(body: &Value, name: &str) -> Option<Path> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    if let Some(rest) = rest {
        return along(body.get(first)?, rest, &Path::default().with(first));
    }
    let mut level = vec![(Path::default(), body)];
    while !level.is_empty() {
        let mut next = Vec::new();
        for (path, value) in level {
            if value.get(name).is_some() {
                return Some(path.with(name));
            }
            next.extend(inner(&path, value));
        }
        level = next;
    }
    None
}

fn along(value: &Value, way: &str, path: &Path) -> Option<Path> {
    if let Some(items) = value.as_array() {
        return items.iter().enumerate().find_map(|(at, item)| along(item, way, &path.with(&at.to_string())));
    }
    match way.split_once('.') {
        None => value.get(way).map(|_| path.with(way)),
        Some((first, rest)) => along(value.get(first)?, rest, &path.with(first)),
    }
}

/// Where the body carries reasoning that someone signed or sealed. The word that stands for a signature made
/// elsewhere is none.
pub(crate) fn signature(body: &Value) -> Option<Path> {
    const NAMES: &[&str] =
        &["signature", "encrypted_content", "thoughtSignature", "thought_signature", "redactedContent"];
    const DUMMY: &str = "skip_thought_signature_validator";
    let mut level = vec![(Path::default(), body)];
    while !level.is_empty() {
        let mut next = Vec::new();
        for (path, value) in level {
            let signed = |name: &&&str| value[**name].as_str().is_some_and(|text| !text.is_empty() && text != DUMMY);
            if let Some(name) = NAMES.iter().find(signed) {
                return Some(path.with(name));
            }
            if value["type"] == "redacted_thinking" {
                return Some(path.with("data"));
            }
            next.extend(inner(&path, value));
        }
        level = next;
    }
    None
}

/// The values within a value.
fn inner<'v>(path: &Path, value: &'v Value) -> Vec<(Path, &'v Value)> {
    match value {
        Value::Object(object) => object
            .iter()
            .filter(|(name, _)| !FOREIGN.contains(&name.as_str()) || path.0.is_empty())
            .map(|(name, value)| (path.with(name), value))
            .collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (path.with(&at.to_string()), item)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_is_found_wherever_it_is() {
        let body = json!({"model": "m", "tools": [{"name": "a", "input_schema": {"future": 1}}, {"strict": true}],
            "output_config": {"effort": "low", "model": 1}});
        let found = |name: &str| member(&body, name).map(|path| path.bracketed());
        assert_eq!(found("model").as_deref(), Some("model"));
        assert_eq!(found("strict").as_deref(), Some("tools[1].strict"));
        assert_eq!(found("effort").as_deref(), Some("output_config.effort"));
        assert_eq!(found("output_config.effort").as_deref(), Some("output_config.effort"));
        assert_eq!(found("tools.strict").as_deref(), Some("tools[1].strict"));
        assert_eq!(found("future"), None);
        assert_eq!(found("output_config.other"), None);
        assert_eq!(found(""), None);
        assert_eq!(member(&body, "strict").unwrap().dotted(), "tools.1.strict");
    }

    #[test]
    fn signatures_are_those_of_reasoning() {
        let found = |body: Value| signature(&body).map(|path| path.dotted());
        let said = |block: Value| json!({"messages": [{"role": "assistant", "content": [block]}]});
        let place = "messages.0.content.0";
        assert_eq!(found(said(json!({"type": "thinking", "signature": "s"}))), Some(format!("{place}.signature")));
        assert_eq!(found(said(json!({"type": "redacted_thinking", "data": "s"}))), Some(format!("{place}.data")));
        assert_eq!(found(said(json!({"type": "thinking", "signature": ""}))), None);
        assert_eq!(found(said(json!({"type": "tool_use", "input": {"signature": "mine"}}))), None);
        let part = |signature: &str| json!({"contents": [{"parts": [{"text": "a", "thoughtSignature": signature}]}]});
        assert!(found(part("c2ln")).is_some());
        assert_eq!(found(part("skip_thought_signature_validator")), None);
        let item = json!({"input": [{"type": "reasoning", "encrypted_content": "e"}]});
        assert_eq!(found(item).as_deref(), Some("input.0.encrypted_content"));
    }

    #[test]
    fn a_block_is_the_innermost_item() {
        let path = Path(["messages", "1", "content", "0", "reasoningContent", "signature"].map(str::to_owned).to_vec());
        assert_eq!(path.block().dotted(), "messages.1.content.0");
        assert_eq!(path.split_last().0, "signature");
    }
}
