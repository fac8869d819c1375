//! Where a call goes: the path below a provider's base address. It is made from the configuration, never from a request.

use std::fmt::Write as _;

use crate::platform::{Carriage, Protocol};

/// A model's name that cannot stand in an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadModel;

impl std::fmt::Display for BadModel {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("the model's name cannot stand in an address")
    }
}

impl std::error::Error for BadModel {}

/// The path of a call that makes a message.
pub fn call(protocol: Protocol, carriage: Carriage, model: &str, stream: bool) -> Result<String, BadModel> {
    Ok(match (protocol, carriage) {
        (Protocol::Messages, Carriage::Plain) => "/v1/messages".to_owned(),
        (Protocol::Messages, Carriage::BedrockInvoke) => {
            let what = if stream { "invoke-with-response-stream" } else { "invoke" };
            format!("/model/{}/{what}", segment(model, b":")?)
        }
        (Protocol::Messages, Carriage::Vertex) => {
            let what = if stream { "streamRawPredict" } else { "rawPredict" };
            format!("/models/{}:{what}", segment(model, b"@")?)
        }
        (Protocol::Chat, _) => "/chat/completions".to_owned(),
        (Protocol::Responses, _) => "/responses".to_owned(),
        (Protocol::Gemini, _) => {
            let what = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            format!("/models/{}:{what}", segment(model, b"")?)
        }
        (Protocol::Converse, _) => {
            let what = if stream { "converse-stream" } else { "converse" };
            format!("/model/{}/{what}", segment(model, b"")?)
        }
        (Protocol::Cohere, _) => "/v2/chat".to_owned(),
    })
}

/// The path where tokens are counted, if there is one.
pub fn count(protocol: Protocol, carriage: Carriage, model: &str) -> Option<String> {
    match (protocol, carriage) {
        (Protocol::Messages, Carriage::Plain) => Some("/v1/messages/count_tokens".to_owned()),
        (Protocol::Messages, Carriage::Vertex) => Some("/models/count-tokens:rawPredict".to_owned()),
        (Protocol::Messages, Carriage::BedrockInvoke) | (Protocol::Converse, _) => {
            Some(format!("/model/{}/count-tokens", segment(foundation(model)?, b"").ok()?))
        }
        (Protocol::Responses, _) => Some("/responses/input_tokens".to_owned()),
        (Protocol::Gemini, _) => Some(format!("/models/{}:countTokens", segment(model, b"").ok()?)),
        (Protocol::Chat | Protocol::Cohere, _) => None,
    }
}

/// The address where vLLM counts the tokens of a conversation: it stands beside the API, not in it.
pub fn tokenize(base: &str) -> String {
    format!("{}/tokenize", base.strip_suffix("/v1").unwrap_or(base))
}

/// The path of a call that makes pictures, if there is one.
pub fn images(protocol: Protocol, carriage: Carriage, model: &str) -> Option<String> {
    match protocol {
        Protocol::Chat | Protocol::Responses => Some("/images/generations".to_owned()),
        Protocol::Gemini => call(protocol, carriage, model, false).ok(),
        Protocol::Messages | Protocol::Converse | Protocol::Cohere => None,
    }
}

/// The path of a call that ranks documents, if there is one.
pub fn rerank(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Chat | Protocol::Responses => Some("/rerank"),
        Protocol::Cohere => Some("/v2/rerank"),
        Protocol::Messages | Protocol::Converse | Protocol::Gemini => None,
    }
}

/// The path of a call that speaks a text, if there is one.
pub fn speech(protocol: Protocol, carriage: Carriage, model: &str) -> Option<String> {
    match protocol {
        Protocol::Chat | Protocol::Responses => Some("/audio/speech".to_owned()),
        Protocol::Gemini => call(protocol, carriage, model, false).ok(),
        Protocol::Messages | Protocol::Converse | Protocol::Cohere => None,
    }
}

/// The path of a call that writes down what is said, if there is one.
pub fn transcriptions(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Chat | Protocol::Responses => Some("/audio/transcriptions"),
        Protocol::Messages | Protocol::Converse | Protocol::Cohere | Protocol::Gemini => None,
    }
}

/// The path of a call for embeddings, if there is one.
pub fn embeddings(protocol: Protocol, model: &str) -> Option<String> {
    match protocol {
        Protocol::Chat | Protocol::Responses => Some("/embeddings".to_owned()),
        Protocol::Cohere => Some("/v2/embed".to_owned()),
        Protocol::Gemini => Some(format!("/models/{}:batchEmbedContents", segment(model, b"").ok()?)),
        Protocol::Messages | Protocol::Converse => None,
    }
}

/// The path that answers a question that costs nothing: which models there are.
pub fn models(protocol: Protocol, carriage: Carriage) -> Option<&'static str> {
    match (protocol, carriage) {
        (Protocol::Messages, Carriage::Plain) | (Protocol::Cohere, _) => Some("/v1/models"),
        (Protocol::Chat | Protocol::Responses | Protocol::Gemini, _) => Some("/models"),
        (Protocol::Messages | Protocol::Converse, _) => None,
    }
}

/// The model under a name that only says from where it is served; `None` for names that hide it.
fn foundation(model: &str) -> Option<&str> {
    if model.starts_with("arn:") {
        return None;
    }
    let regions = ["us.", "eu.", "apac.", "global."];
    Some(regions.iter().find_map(|region| model.strip_prefix(region)).unwrap_or(model))
}

/// One segment of a path. What is not plain is written as its bytes, but for `kept`.
fn segment(model: &str, kept: &[u8]) -> Result<String, BadModel> {
    if matches!(model, "" | "." | "..") || model.chars().any(char::is_control) {
        return Err(BadModel);
    }
    let mut out = String::with_capacity(model.len());
    for byte in model.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(protocol: Protocol, carriage: Carriage, model: &str) -> [String; 2] {
        [false, true].map(|stream| call(protocol, carriage, model, stream).unwrap())
    }

    #[test]
    fn every_protocol_has_its_path() {
        assert_eq!(path(Protocol::Messages, Carriage::Plain, "m"), ["/v1/messages"; 2]);
        assert_eq!(path(Protocol::Chat, Carriage::Plain, "m"), ["/chat/completions"; 2]);
        assert_eq!(path(Protocol::Responses, Carriage::Plain, "m"), ["/responses"; 2]);
        assert_eq!(path(Protocol::Cohere, Carriage::Plain, "m"), ["/v2/chat"; 2]);
        assert_eq!(
            path(Protocol::Gemini, Carriage::Plain, "gemini-3.8-flash"),
            ["/models/gemini-3.8-flash:generateContent", "/models/gemini-3.8-flash:streamGenerateContent?alt=sse"]
        );
        assert_eq!(
            path(Protocol::Messages, Carriage::BedrockInvoke, "us.anthropic.claude-sonnet-4-6"),
            [
                "/model/us.anthropic.claude-sonnet-4-6/invoke",
                "/model/us.anthropic.claude-sonnet-4-6/invoke-with-response-stream"
            ]
        );
        assert_eq!(
            path(Protocol::Messages, Carriage::Vertex, "claude-sonnet-4-6"),
            ["/models/claude-sonnet-4-6:rawPredict", "/models/claude-sonnet-4-6:streamRawPredict"]
        );
        let arn = "arn:aws:bedrock:us-east-1:111122223333:inference-profile/us.example.model-v1:0";
        assert_eq!(
            path(Protocol::Converse, Carriage::Plain, arn)[0],
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A111122223333%3Ainference-profile%2Fus.example.model-v1%3A0/converse"
        );
    }

    #[test]
    fn tokens_are_counted_at_the_model_itself() {
        let bedrock = |model: &str| count(Protocol::Converse, Carriage::Plain, model);
        assert_eq!(bedrock("us.amazon.nova-pro-v1:0").as_deref(), Some("/model/amazon.nova-pro-v1%3A0/count-tokens"));
        assert_eq!(bedrock("arn:aws:bedrock:us-east-1:1:inference-profile/x"), None);
        assert_eq!(count(Protocol::Chat, Carriage::Plain, "m"), None);
    }

    #[test]
    fn pictures_are_asked_for_where_somebody_makes_them() {
        let path = |protocol| images(protocol, Carriage::Plain, "m");
        assert_eq!(path(Protocol::Responses).as_deref(), Some("/images/generations"));
        assert_eq!(path(Protocol::Gemini).as_deref(), Some("/models/m:generateContent"));
        assert_eq!(path(Protocol::Messages), None);
    }

    #[test]
    fn embeddings_are_asked_for_where_somebody_makes_them() {
        assert_eq!(embeddings(Protocol::Chat, "m").as_deref(), Some("/embeddings"));
        assert_eq!(embeddings(Protocol::Cohere, "m").as_deref(), Some("/v2/embed"));
        assert_eq!(embeddings(Protocol::Gemini, "m").as_deref(), Some("/models/m:batchEmbedContents"));
        assert_eq!(embeddings(Protocol::Converse, "m"), None);
    }

    #[test]
    fn a_name_that_would_lead_elsewhere_is_refused() {
        for model in ["", ".", "..", "a\nb"] {
            assert_eq!(call(Protocol::Gemini, Carriage::Plain, model, false), Err(BadModel), "{model:?}");
        }
        let odd = call(Protocol::Gemini, Carriage::Plain, "../x?y#z", false).unwrap();
        assert_eq!(odd, "/models/..%2Fx%3Fy%23z:generateContent");
    }
}
