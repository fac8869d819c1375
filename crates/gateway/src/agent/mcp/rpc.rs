//! The messages of the Model Context Protocol: JSON-RPC, whole or as events of a stream. Pure.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_wire::sse::Splitter;

/// Header names of the transport.
pub const SESSION: &str = "mcp-session-id";
pub const PROTOCOL: &str = "mcp-protocol-version";
/// Bytes of one event.
const LARGEST: usize = 4 << 20;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Nobody is there, or does not speak the protocol.
    Unreachable,
    /// The server says what is wrong.
    Said(String),
}

/// `id`: used once in a session, since several questions may be on their way.
pub fn request(id: u64, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

pub fn notification(method: &str) -> String {
    json!({"jsonrpc": "2.0", "method": method}).to_string()
}

/// The result in the answer to a question.
pub fn answer(id: u64, body: &[u8], is_stream: bool) -> Result<Value, Problem> {
    let messages = if is_stream { events(body) } else { serde_json::from_slice(body).into_iter().collect() };
    let answer = messages.into_iter().find(|message| is_ours(id, message)).ok_or(Problem::Unreachable)?;
    match (answer.get("result"), answer.get("error")) {
        (Some(result), _) => Ok(result.clone()),
        (None, Some(error)) => {
            Err(Problem::Said(error.get("message").and_then(Value::as_str).unwrap_or("The call failed.").to_owned()))
        }
        (None, None) => Err(Problem::Unreachable),
    }
}

/// Looks for the answer in a stream that may stay open behind it.
pub struct Watch {
    id: u64,
    splitter: Splitter,
}

impl Watch {
    pub fn new(id: u64) -> Self {
        Self { id, splitter: Splitter::new(LARGEST) }
    }

    /// Whether the answer is there, with the next bytes.
    pub fn sees(&mut self, chunk: &Bytes) -> bool {
        self.splitter.feed(chunk.clone());
        let mut is_there = false;
        while let Ok(Some(frame)) = self.splitter.next() {
            is_there |= serde_json::from_slice::<Value>(&frame.data()).is_ok_and(|message| is_ours(self.id, &message));
        }
        is_there
    }
}

fn is_ours(id: u64, message: &Value) -> bool {
    message.get("id") == Some(&json!(id)) && message.get("method").is_none()
}

fn events(body: &[u8]) -> Vec<Value> {
    let mut splitter = Splitter::new(LARGEST);
    splitter.feed(Bytes::copy_from_slice(body));
    let mut found = Vec::new();
    while let Ok(Some(frame)) = splitter.next() {
        found.extend(serde_json::from_slice::<Value>(&frame.data()).ok());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_whole_or_among_events() {
        let whole = br#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#;
        assert_eq!(answer(1, whole, false), Ok(json!({"a": 1})));
        let stream = b"event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n: calm\n\n\
                       event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":2}}\n\n";
        assert_eq!(answer(1, stream, true), Ok(json!({"a": 2})));
        for cut in 0..stream.len() {
            let mut watch = Watch::new(1);
            let (first, rest) = (Bytes::copy_from_slice(&stream[..cut]), Bytes::copy_from_slice(&stream[cut..]));
            assert!(!watch.sees(&first) && watch.sees(&rest), "cut at {cut}");
        }
        assert_eq!(answer(2, whole, false), Err(Problem::Unreachable), "it answers somebody else");
        assert!(!Watch::new(1).sees(&Bytes::from_static(whole)), "what is no stream ends by itself");
    }

    #[test]
    fn an_error_is_told_and_something_else_is_nobody() {
        let refused = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such tool"}}"#;
        assert_eq!(answer(1, refused, false), Err(Problem::Said("no such tool".to_owned())));
        // A question of the server's own has an id, too.
        let asks = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        for body in [&b"<html>"[..], b"", br#"{"id":2,"result":{}}"#, br#"{"id":1}"#, asks] {
            assert_eq!(answer(1, body, false), Err(Problem::Unreachable));
        }
    }
}
