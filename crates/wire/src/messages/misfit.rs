//! What a request holds that can be told to nobody but an upstream of its own format: blocks of kinds we know whose
//! members do not fit, and files that are not kept here. Reading is lenient, so that such blocks go as they came where
//! they can; who has to translate them asks here first, because what is left out silently is missed by nobody.

use super::{Block, Content, Request, Source};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The member and what is wrong with it.
    Member(String),
    /// A file by its id.
    File(String),
}

impl Misfit {
    /// The first of a request. Instructions come first, wherever they stand.
    pub fn of(request: &Request) -> Option<Self> {
        let system = request.system.as_ref().and_then(|system| in_content(system).map(|misfit| misfit.under("system")));
        system.or_else(|| {
            request.messages.iter().enumerate().find_map(|(place, message)| {
                in_content(&message.content).map(|misfit| misfit.under(&format!("messages[{place}].content")))
            })
        })
    }

    fn under(self, place: &str) -> Self {
        match self {
            Self::Member(rest) => Self::Member(format!("{place}{rest}")),
            file @ Self::File(_) => file,
        }
    }
}

fn in_content(content: &Content) -> Option<Misfit> {
    match content {
        Content::Text(_) => None,
        Content::Blocks(blocks) => in_blocks(blocks),
    }
}

fn in_blocks(blocks: &[Block]) -> Option<Misfit> {
    let mut blocks = blocks.iter().enumerate();
    blocks.find_map(|(place, block)| in_block(block).map(|misfit| misfit.under(&format!("[{place}]"))))
}

fn in_block(block: &Block) -> Option<Misfit> {
    match block {
        Block::Image(image) => in_source(&image.source),
        Block::Document(document) => in_source(&document.source),
        Block::SearchResult(result) => in_blocks(&result.content).map(|misfit| misfit.under(".content")),
        Block::ToolResult(result) => {
            result.content.as_ref().and_then(in_content).map(|misfit| misfit.under(".content"))
        }
        // Of a kind that nobody knows it has nothing to say.
        Block::Other(other) => {
            Block::parse_strict(other.raw.get()).err().map(|error| Misfit::Member(said(&error.to_string())))
        }
        _ => None,
    }
}

fn in_source(source: &Source) -> Option<Misfit> {
    let misfit = match source {
        Source::Content(source) => in_content(&source.content)?.under(".content"),
        Source::File(source) => Misfit::File(source.file_id.clone()),
        Source::Other(other) => Misfit::Member(said(&Source::parse_strict(other.raw.get()).err()?.to_string())),
        Source::Base64(_) | Source::Url(_) | Source::Text(_) => return None,
    };
    Some(misfit.under(".source"))
}

/// What a reader complains of, as it is told where a request is checked: the path, and never the value.
fn said(complaint: &str) -> String {
    let mut complaint = complaint.rsplit_once(" at line ").map_or(complaint, |(complaint, _)| complaint);
    let mut path = String::new();
    // Each reader that an error comes through puts its member in front.
    while let Some((member, rest)) = complaint.split_once(": ") {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_[]".contains(&byte);
        if !member.bytes().all(is_name) {
            break;
        }
        if !member.starts_with('[') {
            path.push('.');
        }
        path.push_str(member);
        complaint = rest;
    }
    let named = |what: &str| complaint.strip_prefix(what).map(|name| name.trim_matches('`'));
    if let Some(name) = named("missing field ") {
        return format!("{path}.{name} is required");
    }
    if let Some(name) = named("duplicate field ") {
        return format!("{path}.{name} appears more than once");
    }
    match complaint.rsplit_once("expected ") {
        Some(("invalid type: null, ", _)) => format!("{path} is required"),
        // Only words are bound to a value.
        Some((given, word)) if given.starts_with("invalid value: string ") => format!("{path} must be one of {word}"),
        Some((_, wanted)) => format!("{path} must be {}", in_words(wanted)),
        None => format!("{path} cannot be read"),
    }
}

fn in_words(wanted: &str) -> String {
    match wanted {
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        "u64" | "i64" => "an integer".to_owned(),
        "a string or an array of blocks" => "a string or an array".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(block: &Value) -> Option<Misfit> {
        let body = json!({"messages": [
            {"role": "user", "content": "hi"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, block]},
        ]});
        Misfit::of(&Request::parse(body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn a_member_of_a_known_kind_that_does_not_fit_is_named() {
        let result = |name: &str, value: Value| {
            let mut block = json!({"type": "tool_result", "tool_use_id": "a"});
            block[name] = value;
            block
        };
        let text = |name: &str, value: Value| {
            let mut block = json!({"type": "text", "text": "secret, expected a string"});
            block[name] = value;
            block
        };
        let image = |source: Value| json!({"type": "image", "source": source});
        let titled = json!({"type": "document", "title": 5, "source": {"type": "url", "url": "https://x"}});
        for (block, expected) in [
            (result("is_error", json!("yes")), ".is_error must be a boolean"),
            (result("is_error", json!("secret: expected")), ".is_error must be a boolean"),
            (result("content", json!(5)), ".content must be a string or an array"),
            (result("content", json!(["R"])), ".content[0] must be an object"),
            (
                result("content", json!([text("text", json!("a")), text("text", json!(5))])),
                ".content[1].text must be a string",
            ),
            (result("content", json!([image(json!({"type": "url"}))])), ".content[0].source.url is required"),
            (result("cache_control", json!({"type": "secret"})), ".cache_control.type must be one of ephemeral"),
            (text("citations", json!(5)), ".citations must be an array"),
            (text("text", Value::Null), ".text is required"),
            (titled, ".title must be a string"),
            (image(json!({})), ".source.type is required"),
            (image(json!({"type": "base64", "media_type": "image/png"})), ".source.data is required"),
            (json!({"type": "redacted_thinking"}), ".data is required"),
        ] {
            let found = of(&block);
            assert_eq!(found, Some(Misfit::Member(format!("messages[1].content[1]{expected}"))), "{block}");
        }
        let body = r#"{"messages":[],"system":[{"type":"text","text":"a","text":"b"}]}"#;
        let found = Misfit::of(&Request::parse(body.as_bytes()).unwrap());
        assert_eq!(found, Some(Misfit::Member("system[0].text appears more than once".to_owned())));
    }

    #[test]
    fn a_file_is_named_wherever_it_stands() {
        let file = json!({"type": "document", "source": {"type": "file", "file_id": "file_nope"}});
        let held = json!({"type": "tool_result", "tool_use_id": "a", "content": [file]});
        for block in [file, held] {
            assert_eq!(of(&block), Some(Misfit::File("file_nope".to_owned())));
        }
    }

    #[test]
    fn what_fits_and_what_nobody_knows_is_left_alone() {
        for block in [
            json!({"type": "from_the_future", "text": 5}),
            json!({"type": "mcp_tool_use", "id": 5}),
            json!({"type": "tool_use", "id": "a", "name": "f"}),
            json!({"type": "tool_result", "tool_use_id": "a", "content": null, "is_error": null}),
            json!({"type": "image", "source": {"type": "from_the_future"}}),
        ] {
            assert_eq!(of(&block), None, "{block}");
        }
    }
}
