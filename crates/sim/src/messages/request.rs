//! The few members of a request that change an answer. The rest of the body is skipped, not parsed:
//! under load, reading requests is most of what this server does.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::content::{Ask, LastUser, join};
use crate::failure::Failure;

#[derive(Deserialize)]
pub(crate) struct Request<'a> {
    /// Platforms that have it in their path leave it out.
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    stream: bool,
    max_tokens: Option<u64>,
    #[serde(default)]
    stop_sequences: Vec<String>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_choice: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Turn<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
}

impl Tool {
    /// Whether the vendor runs it.
    fn is_search(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| kind.starts_with("web_search_"))
    }
}

impl<'a> Request<'a> {
    pub fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let request: Self = serde_json::from_slice(body).map_err(|error| Failure::new(400, error.to_string()))?;
        match request.model {
            Some(_) => Ok(request),
            None => Err(Failure::new(400, "model: Field required")),
        }
    }

    /// A request to a platform whose path has the model, or none but the body's, and says whether it streams.
    pub fn hosted(body: &'a [u8], model: Option<String>, stream: bool) -> Result<Self, Failure> {
        let mut request: Self = serde_json::from_slice(body).map_err(|error| Failure::new(400, error.to_string()))?;
        request.model = model.map(Cow::Owned).or(request.model);
        request.stream = stream;
        Ok(request)
    }
}

impl Request<'_> {
    /// The tools that may be used.
    fn offered(&self) -> Vec<Tool> {
        let choice = self.tool_choice.and_then(|raw| serde_json::from_str::<serde_json::Value>(raw.get()).ok());
        if choice.is_some_and(|choice| choice["type"] == "none") {
            return Vec::new();
        }
        let tools = self.tools.and_then(|raw| serde_json::from_str::<Vec<Tool>>(raw.get()).ok());
        tools.unwrap_or_default()
    }
}

impl Ask for Request<'_> {
    fn model(&self) -> &str {
        self.model.as_deref().unwrap_or_default()
    }

    fn stream(&self) -> bool {
        self.stream
    }

    fn max_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    fn stop_sequences(&self) -> &[String] {
        &self.stop_sequences
    }

    /// Empty where the messages have another form than the protocol's: no script depends on it.
    fn last_user(&self) -> LastUser {
        let turns = self.messages.and_then(|raw| serde_json::from_str::<Vec<Turn<'_>>>(raw.get()).ok());
        let turn = turns.into_iter().flatten().rfind(|turn| turn.role == "user");
        let mut last = LastUser::default();
        for block in turn.and_then(|turn| turn.content).map(blocks).unwrap_or_default() {
            match (&*block.kind, block.text) {
                ("text", Some(text)) => last.add_text(&text),
                ("tool_result", _) => {
                    let mut result = String::new();
                    for inner in block.content.map(blocks).unwrap_or_default() {
                        join(&mut result, inner.text.as_deref().unwrap_or_default());
                    }
                    last.tool_results.push(result);
                }
                _ => last.other_blocks += 1,
            }
        }
        last
    }

    fn tools(&self) -> Vec<String> {
        self.offered().into_iter().filter(|tool| !tool.is_search()).filter_map(|tool| tool.name).collect()
    }

    fn searches(&self) -> bool {
        self.offered().iter().any(Tool::is_search)
    }

    fn most_calls(&self) -> usize {
        usize::MAX
    }

    fn call_id(number: usize) -> String {
        format!("toolu_sim_{number}")
    }
}

/// Content is a string or a list of blocks; a string is one text block.
fn blocks(raw: &RawValue) -> Vec<Block<'_>> {
    if raw.get().starts_with('"') {
        let text = serde_json::from_str::<String>(raw.get()).ok().map(Cow::Owned);
        return vec![Block { kind: Cow::Borrowed("text"), text, content: None }];
    }
    serde_json::from_str(raw.get()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(body: &str) -> LastUser {
        Request::read(body.as_bytes()).unwrap().last_user()
    }

    #[test]
    fn the_last_user_message_counts() {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"a"},
            {"role":"assistant","content":"b"},{"role":"user","content":[{"type":"text","text":"c"},
            {"type":"image","source":{}},{"type":"text","text":"d"}]}]}"#;
        let expected = LastUser { text: "c\nd".into(), tool_results: vec![], other_blocks: 1 };
        assert_eq!(last(body), expected);
    }

    #[test]
    fn tool_results_are_text_or_blocks() {
        let body = r#"{"model":"m","messages":[{"role":"user","content":[
            {"type":"tool_result","tool_use_id":"x","content":"4 m"},
            {"type":"tool_result","tool_use_id":"y","content":[{"type":"text","text":"5 \"m\""}]},
            {"type":"tool_result","tool_use_id":"z"}]}]}"#;
        assert_eq!(last(body).tool_results, ["4 m", "5 \"m\"", ""]);
    }

    #[test]
    fn messages_of_another_form_are_empty() {
        for messages in ["null", "7", "[]", r#"[{"role":"user"}]"#, r#"[{"role":"user","content":[1]}]"#] {
            let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
            assert_eq!(last(&body), LastUser::default(), "{messages}");
        }
    }
}
