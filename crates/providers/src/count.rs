//! Counting tokens without generating: what is asked, made from the call that it stands for, and what is answered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use tidegate_wire::json::{Members, quoted};

use crate::platform::{Carriage, Protocol};

/// The members of a call that a count takes, too.
const RESPONSES: [&str; 8] =
    ["model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"];
/// vLLM's own call: what else it takes shapes no prompt.
const CHAT: [&str; 4] = ["model", "messages", "tools", "chat_template_kwargs"];
const CONVERSE: [&str; 4] = ["messages", "system", "toolConfig", "additionalModelRequestFields"];
const GEMINI: [&str; 5] = ["contents", "systemInstruction", "tools", "toolConfig", "generationConfig"];

/// The body of a count, from that of a translated call. `is_vertex`: whether Google's cloud is asked, which wants the
/// call's members as they are.
pub fn body(protocol: Protocol, model: &str, call: &[u8], is_vertex: bool) -> Option<Bytes> {
    let members: Members<'_> = serde_json::from_slice(call).ok()?;
    let object = |names: &[&str], first: Option<String>| {
        let kept = members.0.iter().filter(|(name, _)| names.contains(&name.as_ref()));
        let written = kept.map(|(name, value)| format!("{}:{}", quoted(name), value.get()));
        format!("{{{}}}", first.into_iter().chain(written).collect::<Vec<_>>().join(","))
    };
    Some(match protocol {
        Protocol::Responses => object(&RESPONSES, None).into(),
        Protocol::Gemini if is_vertex => object(&GEMINI, None).into(),
        Protocol::Gemini => {
            let named = format!("\"model\":{}", quoted(&format!("models/{model}")));
            format!("{{\"generateContentRequest\":{}}}", object(&GEMINI, Some(named))).into()
        }
        Protocol::Converse => format!("{{\"input\":{{\"converse\":{}}}}}", object(&CONVERSE, None)).into(),
        Protocol::Chat => object(&CHAT, None).into(),
        Protocol::Messages | Protocol::Cohere => return None,
    })
}

/// The body of a count at Bedrock, from that of a call that goes there in the Messages format.
pub fn invoked(call: &[u8]) -> Bytes {
    format!(r#"{{"input":{{"invokeModel":{{"body":"{}"}}}}}}"#, STANDARD.encode(call)).into()
}

/// A count of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub input: u64,
    /// Before edits of the context, where the upstream did any.
    pub original: Option<u64>,
}

/// The number in an answer.
pub fn read(protocol: Protocol, carriage: Carriage, answer: &[u8]) -> Option<Count> {
    #[derive(Deserialize)]
    struct Managed {
        original_input_tokens: Option<u64>,
    }
    #[derive(Deserialize)]
    struct Counted {
        context_management: Option<Managed>,
        input_tokens: Option<u64>,
        #[serde(rename = "inputTokens")]
        amazon: Option<u64>,
        #[serde(rename = "totalTokens")]
        google: Option<u64>,
        /// vLLM's.
        count: Option<u64>,
    }
    let counted: Counted = serde_json::from_slice(answer).ok()?;
    let input = match (protocol, carriage) {
        (Protocol::Messages, Carriage::BedrockInvoke) | (Protocol::Converse, _) => counted.amazon,
        (Protocol::Gemini, _) => counted.google,
        (Protocol::Chat, _) => counted.count,
        _ => counted.input_tokens,
    };
    let original = counted.context_management.and_then(|managed| managed.original_input_tokens);
    input.map(|input| Count { input, original })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn made(protocol: Protocol, call: &Value, is_vertex: bool) -> Value {
        serde_json::from_slice(&body(protocol, "m", call.to_string().as_bytes(), is_vertex).unwrap()).unwrap()
    }

    #[test]
    fn p77_a_count_asks_for_what_the_call_would_send() {
        let call = json!({"model": "m", "input": [], "instructions": "s", "max_output_tokens": 9, "store": false});
        assert_eq!(made(Protocol::Responses, &call, false), json!({"model": "m", "input": [], "instructions": "s"}));
        let call = json!({"contents": [1], "systemInstruction": {}, "serviceTier": "x"});
        let inner = json!({"model": "models/m", "contents": [1], "systemInstruction": {}});
        assert_eq!(made(Protocol::Gemini, &call, false), json!({"generateContentRequest": inner}));
        assert_eq!(made(Protocol::Gemini, &call, true), json!({"contents": [1], "systemInstruction": {}}));
        let call = json!({"model": "m", "max_tokens": 9, "messages": [], "tools": [], "stop": ["x"]});
        assert_eq!(made(Protocol::Chat, &call, false), json!({"model": "m", "messages": [], "tools": []}));
        let call = json!({"messages": [], "system": [], "inferenceConfig": {}, "toolConfig": {}});
        assert_eq!(
            made(Protocol::Converse, &call, false),
            json!({"input": {"converse": {"messages": [], "system": [], "toolConfig": {}}}})
        );
    }

    #[test]
    fn every_answer_has_its_own_word_for_the_number() {
        let (plain, seven) = (Carriage::Plain, Count { input: 7, original: None });
        assert_eq!(read(Protocol::Messages, plain, br#"{"input_tokens":7}"#), Some(seven));
        assert_eq!(read(Protocol::Responses, plain, br#"{"object":"x","input_tokens":7}"#), Some(seven));
        assert_eq!(read(Protocol::Gemini, plain, br#"{"totalTokens":7}"#), Some(seven));
        assert_eq!(read(Protocol::Chat, plain, br#"{"count":7,"max_model_len":8192,"tokens":[1]}"#), Some(seven));
        assert_eq!(read(Protocol::Converse, plain, br#"{"inputTokens":7}"#), Some(seven));
        assert_eq!(read(Protocol::Messages, Carriage::BedrockInvoke, br#"{"inputTokens":7}"#), Some(seven));
        assert_eq!(read(Protocol::Gemini, plain, br#"{"input_tokens":7}"#), None);
        assert_eq!(read(Protocol::Messages, plain, b"<html>"), None);
        let edited = br#"{"input_tokens":7,"context_management":{"original_input_tokens":9}}"#;
        assert_eq!(read(Protocol::Messages, plain, edited), Some(Count { input: 7, original: Some(9) }));
    }
}
