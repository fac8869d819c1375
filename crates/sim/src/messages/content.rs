//! What an answer says: from a behaviour and a request to blocks and a reason to stop.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::request::{LastUser, Request};

pub(super) enum Block {
    Text(Vec<String>),
    Thinking {
        pieces: Vec<String>,
        signature: &'static str,
    },
    RedactedThinking {
        data: &'static str,
    },
    /// The input is JSON; its pieces join up to it.
    ToolUse {
        id: String,
        name: String,
        input: String,
    },
}

/// How an answer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// Null in an answer that never ended.
    pub reason: Option<String>,
    pub sequence: Option<String>,
    /// Gives `stop_details` of a refusal.
    pub refused: bool,
}

impl Ending {
    pub fn of(reason: &str) -> Self {
        let refused = reason == "refusal";
        Self { reason: Some(reason.to_owned()), sequence: None, refused }
    }
}

/// What faults say before they strike: long enough to be cut anywhere.
pub(super) const TALE: &str =
    "The tide comes in and goes out again, twice a day, whether or not anyone waits at the gate.";

/// A text as the request allows it: up to a stop sequence, and of no more than `max_tokens` words.
pub(super) fn text(text: &str, request: &Request<'_>) -> (Vec<Block>, Ending) {
    let found = request
        .stop_sequences
        .iter()
        .filter(|sequence| !sequence.is_empty())
        .filter_map(|sequence| text.find(sequence.as_str()).map(|at| (at, sequence)))
        .min_by_key(|(at, _)| *at);
    let (text, mut ending) = match found {
        Some((at, sequence)) => {
            let sequence = Some(sequence.clone());
            (&text[..at], Ending { sequence, ..Ending::of("stop_sequence") })
        }
        None => (text, Ending::of("end_turn")),
    };
    let mut words = words(text);
    let limit = request.max_tokens.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
    if words.len() > limit {
        words.truncate(limit);
        ending = Ending::of("max_tokens");
    }
    (vec![Block::Text(words)], ending)
}

pub(super) fn echo(request: &Request<'_>) -> (Vec<Block>, Ending) {
    let LastUser { text: said, tool_results, other_blocks } = request.last_user();
    let mut answer = match (said.is_empty(), tool_results.is_empty()) {
        (false, _) => format!("You said: {said}"),
        (true, false) => quoted(&tool_results),
        (true, true) => "You said nothing.".to_owned(),
    };
    if other_blocks > 0 {
        answer.push_str(&format!("\n(and sent {other_blocks} more content blocks)"));
    }
    text(&answer, request)
}

/// Up to `count` calls of the offered tools, or text when there is nothing to call or a result to quote.
pub(super) fn tool_use(request: &Request<'_>, count: usize, ids: &AtomicUsize) -> (Vec<Block>, Ending) {
    let last = request.last_user();
    if !last.tool_results.is_empty() {
        return text(&quoted(&last.tool_results), request);
    }
    let names = request.tools();
    if names.is_empty() || count == 0 {
        return text("There is no tool to call: offer one in tools.", request);
    }
    let calls = names.iter().cycle().take(count).enumerate().map(|(index, name)| {
        let query = match index {
            0 => last.text.clone(),
            later => format!("{} ({})", last.text, later + 1),
        };
        let query = serde_json::to_string(&query).expect("strings always serialize");
        Block::ToolUse {
            id: format!("toolu_sim_{}", ids.fetch_add(1, SeqCst) + 1),
            name: name.clone(),
            input: format!(r#"{{"query":{query}}}"#),
        }
    });
    (calls.collect(), Ending::of("tool_use"))
}

fn quoted(results: &[String]) -> String {
    format!("The tool answered: {}", results.join("; "))
}

pub(super) fn thinking(request: &Request<'_>) -> (Vec<Block>, Ending) {
    let (mut blocks, ending) = text("High water is at noon.", request);
    let pieces = words("Low water was at six, and the tide takes six hours to rise.");
    // Clients must return it unread; "simulated signature" keeps it recognisable in a dump.
    let signature = "c2ltdWxhdGVkIHNpZ25hdHVyZQ==";
    blocks.insert(0, Block::Thinking { pieces, signature });
    (blocks, ending)
}

pub(super) fn redacted_thinking(request: &Request<'_>) -> (Vec<Block>, Ending) {
    let (mut blocks, ending) = text("High water is at noon.", request);
    blocks.insert(0, Block::RedactedThinking { data: "c2ltdWxhdGVkIHNlY3JldA==" });
    (blocks, ending)
}

/// A text that ends for any reason; a stop sequence is one of the request's if it has one.
pub(super) fn stopped(reason: &str, request: &Request<'_>) -> (Vec<Block>, Ending) {
    let sequence = (reason == "stop_sequence")
        .then(|| request.stop_sequences.first().cloned().unwrap_or_else(|| "STOP".to_owned()));
    let said = match reason {
        "refusal" => "I cannot help with that.",
        _ => "The tide turns.",
    };
    (vec![Block::Text(words(said))], Ending { sequence, ..Ending::of(reason) })
}

/// Words with the white space before them; they join up to the text.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut in_word = false;
    for (at, letter) in text.char_indices() {
        if letter.is_whitespace() && in_word {
            words.push(text[start..at].to_owned());
            start = at;
        }
        in_word = !letter.is_whitespace();
    }
    if in_word || words.is_empty() && start < text.len() {
        words.push(text[start..].to_owned());
    } else if let Some(last) = words.last_mut() {
        last.push_str(&text[start..]);
    }
    words
}

/// Cuts JSON into the pieces of a streamed input; models cut anywhere, also inside a string.
pub(super) fn json_pieces(input: &str) -> Vec<&str> {
    let mut pieces = vec![""];
    let mut rest = input;
    while !rest.is_empty() {
        let cut = rest.char_indices().nth(8).map_or(rest.len(), |(at, _)| at);
        let (piece, next) = rest.split_at(cut);
        pieces.push(piece);
        rest = next;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(said: &str, rest: &str) -> (String, Ending) {
        let body = format!(r#"{{"model":"m"{rest}}}"#);
        let (blocks, ending) = text(said, &Request::parse(body.as_bytes()).unwrap());
        let [Block::Text(words)] = &blocks[..] else { panic!() };
        (words.concat(), ending)
    }

    #[test]
    fn words_join_up_to_the_text() {
        for (text, count) in [("", 0), (" ", 1), ("a", 1), ("a b", 2), (" a  b ", 2), ("ä\nö", 2), ("a \n ", 1)] {
            assert_eq!((words(text).concat().as_str(), words(text).len()), (text, count), "{text:?}");
        }
    }

    #[test]
    fn a_text_is_cut_by_whatever_comes_first() {
        let end = |text: &str, reason: &str| (text.to_owned(), Ending::of(reason));
        assert_eq!(answer("a b c", ""), end("a b c", "end_turn"));
        assert_eq!(answer("a b c", r#","max_tokens":3"#), end("a b c", "end_turn"));
        assert_eq!(answer("a b c", r#","max_tokens":2"#), end("a b", "max_tokens"));
        assert_eq!(answer("a b c", r#","max_tokens":0"#), end("", "max_tokens"));
        let stopped = |text: &str, at: &str| {
            let sequence = Some(at.to_owned());
            (text.to_owned(), Ending { sequence, ..Ending::of("stop_sequence") })
        };
        assert_eq!(answer("a b c", r#","stop_sequences":["c","b"]"#), stopped("a ", "b"));
        assert_eq!(answer("a b c", r#","max_tokens":1,"stop_sequences":["c"]"#), end("a", "max_tokens"));
    }

    #[test]
    fn pieces_of_json_join_up() {
        let input = r#"{"query":"när är högvatten?"}"#;
        assert!(json_pieces(input).len() > 3);
        assert_eq!(json_pieces(input).concat(), input);
    }
}
