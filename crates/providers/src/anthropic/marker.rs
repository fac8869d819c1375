//! Cache markers on what they mark: moved, set and made plainer.

use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind, Members};

use super::edit::{Raw, is_blank, push_member};

/// The cache marker of a block that goes stays on the one before it.
pub(super) fn move_marker(block: &RawValue, made: &mut [Raw<'_>]) {
    let marker = Members::of(block).and_then(|members| members.get("cache_control"));
    let (Some(marker), Some(last)) = (marker.filter(|marker| json::kind(marker) == Kind::Object), made.last_mut())
    else {
        return;
    };
    if !last.contains("\"cache_control\"")
        && let Some(open) = last.trim_end().strip_suffix('}')
    {
        *last = format!("{open},\"cache_control\":{}}}", marker.get()).into();
    }
}

/// The messages with a cache marker on the last block that can carry one; `None` when there is no such block, or when
/// it is marked already.
pub(super) fn marked_last(messages: &str, marker: &str) -> Option<String> {
    const CARRIERS: [&str; 5] = ["text", "image", "document", "tool_use", "tool_result"];
    let messages = json::elements(serde_json::from_str(messages).ok()?)?;
    let mut made: Vec<Raw<'_>> = messages.iter().map(|message| message.get().into()).collect();
    for (place, message) in messages.iter().enumerate().rev() {
        let members = Members::of(message)?;
        let Some(content) = members.get("content") else { continue };
        let blocks: Vec<Raw<'_>> = match json::kind(content) {
            Kind::String => vec![format!(r#"{{"type":"text","text":{}}}"#, content.get()).into()],
            _ => json::elements(content)?.into_iter().map(|block| block.get().into()).collect(),
        };
        let carries = |block: &Raw<'_>| {
            let block: Option<&RawValue> = serde_json::from_str(block).ok();
            let kind = block.and_then(|block| Members::of(block)?.get("type").and_then(json::string));
            kind.is_some_and(|kind| CARRIERS.contains(&kind.as_ref())) && !block.is_some_and(is_blank)
        };
        let Some(last) = blocks.iter().rposition(carries) else { continue };
        let block: &RawValue = serde_json::from_str(&blocks[last]).ok()?;
        if Members::of(block)?.get("cache_control").is_some_and(|own| json::kind(own) == Kind::Object) {
            return None;
        }
        let mut carrier = String::from("{");
        for (name, value) in Members::of(block)?.0.iter().filter(|(name, _)| name != "cache_control") {
            push_member(&mut carrier, name, value.get());
        }
        push_member(&mut carrier, "cache_control", marker);
        carrier.push('}');
        let mut blocks = blocks.clone();
        blocks[last] = carrier.into();
        let mut out = String::from("{");
        for (name, value) in &members.0 {
            match name.as_ref() {
                "content" => push_member(&mut out, name, &format!("[{}]", blocks.join(","))),
                _ => push_member(&mut out, name, value.get()),
            }
        }
        out.push('}');
        made[place] = out.into();
        return Some(format!("[{}]", made.join(",")));
    }
    None
}

/// What a cache marker says of how long it lasts, and for whom.
pub(super) const LIFETIMES: [&str; 2] = ["ttl", "scope"];

/// Cache markers without these members. At a `depth` of 0 the value is a marker; else arrays and contents above a marker are
/// gone through, and never what is a tool's input or its schema.
pub(super) fn unmarked(value: &RawValue, depth: usize, words: &[&str]) -> String {
    match json::kind(value) {
        Kind::Array if depth > 0 => {
            let elements = json::elements(value).unwrap_or_default();
            let made: Vec<String> = elements.into_iter().map(|element| unmarked(element, depth, words)).collect();
            format!("[{}]", made.join(","))
        }
        Kind::Object => {
            let Some(members) = Members::of(value) else { return value.get().to_owned() };
            let is_marker = depth == 0;
            let mut out = String::from("{");
            for (name, value) in &members.0 {
                match name.as_ref() {
                    word if is_marker && words.contains(&word) => {}
                    "cache_control" if !is_marker => push_member(&mut out, name, &unmarked(value, 0, words)),
                    "content" if !is_marker => push_member(&mut out, name, &unmarked(value, depth, words)),
                    _ => push_member(&mut out, name, value.get()),
                }
            }
            out.push('}');
            out
        }
        _ => value.get().to_owned(),
    }
}
