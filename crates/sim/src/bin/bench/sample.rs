//! Requests of a given size that look like a conversation.

use bytes::Bytes;

/// The model the benchmark's gateway is configured with.
pub const MODEL: &str = "bench/m";

/// The same model behind another protocol; its name is as long.
pub const TRANSLATED: &str = "bench/t";

const SENTENCE: &str = "The tide comes in, \\\"twice a day\\\", whether or not anyone waits.\\n";

/// A Messages request of exactly `size` bytes where that is possible, and of the least possible size where not.
pub fn request(size: usize, stream: bool) -> Bytes {
    // Few turns in a small body, never more than a long conversation has.
    let turns = 1 + 2 * (size / 1500).min(20);
    let mut body = format!(
        r#"{{"model":"{MODEL}","max_tokens":1024,"stream":{stream},"system":"You keep the gate.","temperature":0.7,"messages":["#
    );
    let tail = "]}";
    for turn in 0..turns {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        let comma = if turn == 0 { "" } else { "," };
        body.push_str(&format!(r#"{comma}{{"role":"{role}","content":[{{"type":"text","text":""#));
        let closing = "\"}]}";
        let left = size.saturating_sub(body.len() + closing.len() + tail.len());
        fill(&mut body, left / (turns - turn));
        body.push_str(closing);
    }
    body.push_str(tail);
    body.into()
}

/// A request of this size that any gateway must refuse, though the upstream would answer it.
/// The request with the name of the model behind another protocol.
pub fn translated(request: &Bytes) -> Bytes {
    String::from_utf8_lossy(request).replacen(MODEL, TRANSLATED, 1).into()
}

pub fn invalid_request(size: usize) -> Bytes {
    let mut body = format!(r#"{{"model":"{MODEL}","max_tokens":1024,"messages":""#);
    let left = size.saturating_sub(body.len() + 2);
    fill(&mut body, left);
    body.push_str("\"}");
    body.into()
}

/// Appends exactly this many bytes of a JSON string's inside.
fn fill(body: &mut String, bytes: usize) {
    let end = body.len() + bytes;
    while body.len() + SENTENCE.len() <= end {
        body.push_str(SENTENCE);
    }
    // A cut sentence could end within an escape.
    while body.len() < end {
        body.push('x');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_json_of_the_size_asked_for() {
        for size in [1 << 10, 15 << 10, 1 << 20] {
            for body in [request(size, false), request(size, true), invalid_request(size)] {
                assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
                assert!(body.len().abs_diff(size) < 64, "{} for {size}", body.len());
            }
        }
        assert!(serde_json::from_slice::<serde_json::Value>(&request(0, true)).is_ok());
    }
}
