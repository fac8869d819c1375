//! What an answer says: from a behaviour and a request to blocks and a reason to stop.
//!
//! The same for every protocol, so that one scenario gives the same text, calls and counts on all of
//! them. Reasons to stop are in the words of the Messages protocol; the others translate them.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::quirk::Quirk;

/// What an answer needs to know of a request, in any protocol.
pub(crate) trait Ask {
    fn model(&self) -> &str;
    fn stream(&self) -> bool;
    fn max_tokens(&self) -> Option<u64>;
    fn stop_sequences(&self) -> &[String];
    fn last_user(&self) -> LastUser;
    /// The names of the tools that may be called.
    fn tools(&self) -> Vec<String>;
    /// Whether the vendor is to search the web.
    fn searches(&self) -> bool {
        false
    }
    /// How many calls one turn may hold.
    fn most_calls(&self) -> usize;
    /// The id of the call with this number.
    fn call_id(number: usize) -> String
    where
        Self: Sized;
}

/// What the last user message holds, as far as an answer refers to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastUser {
    pub text: String,
    /// The text of every tool result, in order.
    pub tool_results: Vec<String>,
    /// Blocks that are neither text nor tool results.
    pub other_blocks: usize,
}

impl LastUser {
    pub fn add_text(&mut self, text: &str) {
        join(&mut self.text, text);
    }
}

/// Texts of one message are lines.
pub(crate) fn join(to: &mut String, text: &str) {
    if !to.is_empty() {
        to.push('\n');
    }
    to.push_str(text);
}

#[derive(Clone, Debug)]
pub(crate) enum Block {
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
    /// A search of the vendor's, and what it found: addresses and titles. Protocols that tell of it do so in one piece or
    /// in two.
    Search {
        id: String,
        query: String,
        found: Vec<(String, String)>,
    },
    Found {
        id: String,
        found: Vec<(String, String)>,
    },
    /// A text that rests on a page.
    Cited {
        pieces: Vec<String>,
        url: String,
        title: String,
    },
}

impl Block {
    /// Output tokens, all and of thinking: a piece is a token.
    pub fn tokens(&self) -> (u64, u64) {
        match self {
            Block::Text(pieces) | Block::Cited { pieces, .. } => (pieces.len() as u64, 0),
            Block::Search { .. } | Block::Found { .. } => (0, 0),
            Block::Thinking { pieces, .. } => (pieces.len() as u64, pieces.len() as u64),
            Block::RedactedThinking { .. } => (1, 1),
            Block::ToolUse { input, .. } => (json_pieces(input).len() as u64, 0),
        }
    }
}

/// How an answer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
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
pub(crate) const TALE: &str =
    "The tide comes in and goes out again, twice a day, whether or not anyone waits at the gate.";

/// Characters of two, three and four bytes, in words that cuts fall into.
pub(crate) const WIDE_TALE: &str = "Høyvann i Ålesund, 満潮は正午 🌊🌊, και η άμπωτη στις έξι.";

/// Clients must return it unread; "simulated signature" keeps it recognisable in a dump.
pub(crate) const SIGNATURE: &str = "c2ltdWxhdGVkIHNpZ25hdHVyZQ==";
const SECRET: &str = "c2ltdWxhdGVkIHNlY3JldA==";

/// A text as the request allows it: up to a stop sequence, and of no more than `max_tokens` words.
pub(crate) fn text(text: &str, request: &impl Ask) -> (Vec<Block>, Ending) {
    let found = request
        .stop_sequences()
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
    let limit = request.max_tokens().map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
    if words.len() > limit {
        words.truncate(limit);
        ending = Ending::of("max_tokens");
    }
    (vec![Block::Text(words)], ending)
}

pub(crate) fn echo(request: &impl Ask) -> (Vec<Block>, Ending) {
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
pub(crate) fn tool_use<A: Ask>(request: &A, count: usize, ids: &AtomicUsize) -> (Vec<Block>, Ending) {
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
            id: A::call_id(ids.fetch_add(1, SeqCst) + 1),
            name: name.clone(),
            input: format!(r#"{{"query":{query}}}"#),
        }
    });
    (calls.collect(), Ending::of("tool_use"))
}

/// One call of this tool, or text when it is not offered or has a result to quote.
pub(crate) fn call<A: Ask>(
    request: &A,
    name: &str,
    input: &serde_json::Value,
    ids: &AtomicUsize,
) -> (Vec<Block>, Ending) {
    let last = request.last_user();
    if !last.tool_results.is_empty() {
        return text(&quoted(&last.tool_results), request);
    }
    if !request.tools().iter().any(|offered| offered == name) {
        return text("The tool is not on offer.", request);
    }
    let id = A::call_id(ids.fetch_add(1, SeqCst) + 1);
    let block = Block::ToolUse { id, name: name.to_owned(), input: input.to_string() };
    (vec![block], Ending::of("tool_use"))
}

/// A text and calls of those tools that are on offer; without any, a text that says so.
pub(crate) fn asks<A: Ask>(
    request: &A,
    said: &str,
    calls: &[(String, serde_json::Value)],
    ids: &AtomicUsize,
) -> (Vec<Block>, Ending) {
    let offered = request.tools();
    let calls = calls.iter().filter(|(name, _)| offered.contains(name));
    let made: Vec<Block> = calls
        .map(|(name, input)| {
            let id = A::call_id(ids.fetch_add(1, SeqCst) + 1);
            Block::ToolUse { id, name: name.clone(), input: input.to_string() }
        })
        .collect();
    if made.is_empty() {
        return text("Nothing can be called.", request);
    }
    let mut blocks = if said.is_empty() { Vec::new() } else { text(said, request).0 };
    blocks.extend(made);
    (blocks, Ending::of("tool_use"))
}

/// A search of the vendor's, a text that rests on it, and calls of those tools that are on offer.
pub(crate) fn searches<A: Ask>(
    request: &A,
    query: &str,
    found: &[(String, String)],
    (says, calls): (&str, &[(String, serde_json::Value)]),
    ids: &AtomicUsize,
) -> (Vec<Block>, Ending) {
    let (mut said, ending) = text(says, request);
    let mut blocks = Vec::new();
    if let (true, Some((url, title))) = (request.searches(), found.first()) {
        let (id, query) = (format!("srvtoolu_sim{:020}", ids.fetch_add(1, SeqCst) + 1), query.to_owned());
        let (url, title) = (url.clone(), title.clone());
        blocks.push(Block::Search { id: id.clone(), query, found: found.to_vec() });
        blocks.push(Block::Found { id, found: found.to_vec() });
        said = said
            .into_iter()
            .map(|block| match block {
                Block::Text(pieces) => Block::Cited { pieces, url: url.clone(), title: title.clone() },
                other => other,
            })
            .collect();
    }
    blocks.append(&mut said);
    let offered = request.tools();
    let made = calls.iter().filter(|(name, _)| offered.contains(name)).map(|(name, input)| {
        let id = A::call_id(ids.fetch_add(1, SeqCst) + 1);
        Block::ToolUse { id, name: name.clone(), input: input.to_string() }
    });
    let before = blocks.len();
    blocks.extend(made);
    let ending = if blocks.len() > before { Ending::of("tool_use") } else { ending };
    (blocks, ending)
}

/// What a quirk says: calls where there is something to call, text with long characters where not.
pub(crate) fn quirky<A: Ask>(quirk: Quirk, request: &A, ids: &AtomicUsize) -> (Vec<Block>, Ending) {
    if quirk.thinks() {
        return thinking(request);
    }
    let last = request.last_user();
    if !last.tool_results.is_empty() {
        return text(&quoted(&last.tool_results), request);
    }
    if request.tools().is_empty() {
        return text(WIDE_TALE, request);
    }
    let (mut blocks, ending) = tool_use(request, 2, ids);
    for block in &mut blocks {
        if let (Block::ToolUse { input, .. }, Quirk::NoArguments) = (block, quirk) {
            "{}".clone_into(input);
        }
    }
    match quirk {
        Quirk::ChecksSignatures => blocks.insert(0, thought()),
        Quirk::TextAfterTools => {
            blocks.insert(0, Block::Text(words("Let me look.")));
            blocks.push(Block::Text(words("One moment.")));
        }
        _ => {}
    }
    (blocks, ending)
}

fn quoted(results: &[String]) -> String {
    format!("The tool answered: {}", results.join("; "))
}

pub(crate) fn thinking(request: &impl Ask) -> (Vec<Block>, Ending) {
    let (mut blocks, ending) = text("High water is at noon.", request);
    blocks.insert(0, thought());
    (blocks, ending)
}

pub(crate) fn thought() -> Block {
    let pieces = words("Low water was at six, and the tide takes six hours to rise.");
    Block::Thinking { pieces, signature: SIGNATURE }
}

pub(crate) fn redacted_thinking(request: &impl Ask) -> (Vec<Block>, Ending) {
    let (mut blocks, ending) = text("High water is at noon.", request);
    blocks.insert(0, Block::RedactedThinking { data: SECRET });
    (blocks, ending)
}

/// A text that ends for any reason; a stop sequence is one of the request's if it has one.
pub(crate) fn stopped(reason: &str, request: &impl Ask) -> (Vec<Block>, Ending) {
    let sequence = (reason == "stop_sequence")
        .then(|| request.stop_sequences().first().cloned().unwrap_or_else(|| "STOP".to_owned()));
    let said = match reason {
        "refusal" => "I cannot help with that.",
        _ => "The tide turns.",
    };
    (vec![Block::Text(words(said))], Ending { sequence, ..Ending::of(reason) })
}

/// Words with the white space before them; they join up to the text.
pub(crate) fn words(text: &str) -> Vec<String> {
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
pub(crate) fn json_pieces(input: &str) -> Vec<&str> {
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
        let (blocks, ending) = text(said, &crate::messages::Request::read(body.as_bytes()).unwrap());
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
