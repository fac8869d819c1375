//! What the bytes of a body say of what its call takes and may cost. Looked for rather than read: bodies may be large, and most say
//! nothing of the kind. What is found may be a word that a user wrote; what is said is always found, however it is spelled.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use tidegate_wire::json;

/// To make a finder costs as much as to look through a small body.
macro_rules! finders {
    ($($name:ident = $text:literal;)*) => {
        $(static $name: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new($text));)*
    };
}

finders! {
    SOURCE = "\"source\"";
    URL = "\"url\"";
    CACHED = "\"cache_control\"";
    CACHED_1H = "\"1h\"";
    SEARCH = "\"web_search_";
    FETCH = "\"web_fetch_";
    CODE = "\"code_execution_";
    SERVERS = "\"mcp_servers\"";
    ESCAPE = r"\u00";
}

/// A body, to be asked what it says.
pub(super) struct Signs<'a>(Cow<'a, [u8]>);

impl<'a> Signs<'a> {
    pub fn of(body: &'a [u8]) -> Self {
        Self(plainly_spelled(body))
    }

    fn says(&self, word: &Finder<'_>) -> bool {
        word.find(&self.0).is_some()
    }

    /// Pictures or documents, in it or elsewhere.
    pub fn has_sources(&self) -> bool {
        self.says(&SOURCE)
    }

    /// Something that is not in it: a picture or a document under an address.
    pub fn points_elsewhere(&self) -> bool {
        self.says(&URL)
    }

    /// What is to be kept for later requests.
    pub fn is_cached(&self) -> bool {
        self.says(&CACHED)
    }

    pub fn is_cached_for_an_hour(&self) -> bool {
        self.says(&CACHED_1H)
    }

    /// A search that the vendor of a model runs.
    pub fn searches(&self) -> bool {
        self.says(&SEARCH) && self.has_tool("web_search_")
    }

    /// Tools that the vendor runs: what they print is read by the model, and is not in the body.
    pub fn runs_tools(&self) -> bool {
        self.searches()
            || (self.says(&FETCH) && self.has_tool("web_fetch_"))
            || (self.says(&CODE) && self.has_tool("code_execution_"))
            || self.says(&SERVERS)
    }

    /// Whether there is a tool whose type begins so. A client's own tool may be called what it likes.
    fn has_tool(&self, kind: &str) -> bool {
        let Ok(text) = std::str::from_utf8(&self.0) else { return true };
        let Ok(Tools { tools }) = json::read::<Tools<'_>>(text) else { return true };
        tools.iter().flatten().any(|tool| tool.kind.as_ref().is_some_and(|named| named.starts_with(kind)))
    }
}

#[derive(Deserialize)]
struct Tools<'a> {
    #[serde(borrow)]
    tools: Option<Vec<Tool<'a>>>,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

/// With every letter, digit and underline as itself: JSON may spell any of them by its number, and whoever reads the body
/// reads the same. What else is spelled so stays, and so do quotes: no word begins or ends elsewhere.
fn plainly_spelled(body: &[u8]) -> Cow<'_, [u8]> {
    let letter = |at: usize| {
        let digits = std::str::from_utf8(body.get(at + ESCAPE.needle().len()..at + 6)?).ok()?;
        let code = u8::from_str_radix(digits, 16).ok()?;
        (code.is_ascii_alphanumeric() || code == b'_').then_some((at, code))
    };
    let mut letters = ESCAPE.find_iter(body).filter_map(letter).peekable();
    if letters.peek().is_none() {
        return Cow::Borrowed(body);
    }
    let (mut plain, mut from) = (Vec::with_capacity(body.len()), 0);
    for (at, letter) in letters {
        plain.extend_from_slice(&body[from..at]);
        plain.push(letter);
        from = at + 6;
    }
    plain.extend_from_slice(&body[from..]);
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// The text with some of its characters spelled by their numbers.
    fn spelled(text: &str, mask: &[bool]) -> String {
        let mut mask = mask.iter().cycle();
        let spell = |letter: char| match mask.next() {
            Some(true) => format!("\\u{:04x}", u32::from(letter)),
            _ => letter.to_string(),
        };
        text.chars().map(spell).collect()
    }

    fn asked(tool: Value) -> String {
        json!({"model": "m", "tools": [tool], "messages": [{"role": "user", "content": "hello"}]}).to_string()
    }

    proptest! {
        #[test]
        fn what_is_said_is_found_however_it_is_spelled(mask in proptest::collection::vec(any::<bool>(), 1..12)) {
            let says = |word: &str| format!("{{\"{}\":\"{}\"}}", spelled(word, &mask), spelled("1h", &mask));
            prop_assert!(Signs::of(says("source").as_bytes()).has_sources());
            prop_assert!(Signs::of(says("url").as_bytes()).points_elsewhere());
            prop_assert!(Signs::of(says("cache_control").as_bytes()).is_cached());
            prop_assert!(Signs::of(says("cache_control").as_bytes()).is_cached_for_an_hour());
            prop_assert!(Signs::of(says("mcp_servers").as_bytes()).runs_tools());
            for kind in ["web_search_20250305", "web_fetch_20250910", "code_execution_20250825"] {
                let body = asked(json!({"type": "@", "name": "n"})).replace('@', &spelled(kind, &mask));
                let signs = Signs::of(body.as_bytes());
                prop_assert!(signs.runs_tools(), "{}", body);
                prop_assert_eq!(signs.searches(), kind.starts_with("web_search"), "{}", body);
            }
        }

        #[test]
        fn what_is_spelled_plainly_says_the_same(text in "[ -~é中]{0,40}", mask in proptest::collection::vec(any::<bool>(), 1..12)) {
            let inside = text.replace(['"', '\\'], "");
            let body = format!("[\"{}\"]", spelled(&inside, &mask));
            let plain = plainly_spelled(body.as_bytes());
            prop_assert_eq!(serde_json::from_slice::<Value>(&plain).unwrap(), json!([inside]));
        }
    }

    #[test]
    fn a_clients_own_tool_may_be_called_what_it_likes() {
        for tool in [
            json!({"name": "web_search_docs", "input_schema": {"type": "object"}}),
            json!({"type": "custom", "name": "code_execution_box", "input_schema": {"web_fetch_url": {}}}),
        ] {
            let body = asked(tool);
            let signs = Signs::of(body.as_bytes());
            assert!(!signs.searches() && !signs.runs_tools(), "{body}");
        }
        let body = r#"{"tools": {"type": "web_search_20250305"}}"#;
        assert!(Signs::of(body.as_bytes()).searches(), "what cannot be read may be anything");
    }

    #[test]
    fn most_bodies_are_looked_at_as_they_are() {
        let plain = |body: &str| matches!(plainly_spelled(body.as_bytes()), Cow::Borrowed(_));
        assert!(plain(r#"{"content": "\u4e2d\u6587 \u00e9 \n \u0022"}"#), "nothing in it is a letter of a name");
        assert!(!plain(r#"{"sourc\u0065": 1}"#));
        assert!(plain(r#"{"cut": "\u00"#));
    }
}
