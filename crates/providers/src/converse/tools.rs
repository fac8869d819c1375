//! Tools in the Converse protocol. It has no word for "none" and none for "one at a time"; Claude's own do.

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tidegate_wire::json::Members;
use tidegate_wire::messages::{Request, ToolChoice};

use super::request::cache_point;
use crate::translate::body::Body;
use crate::translate::card::{Cache, Card};
use crate::translate::conversation::Conversation;
use crate::translate::functions::{Function, Functions};
use crate::translate::tools::upstream_name;

/// Why no tools are sent although the conversation may know some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forbidden {
    /// No call may be made, and none was.
    Unused,
    /// No call may be made; those of the past are told as text.
    Told,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    tool_spec: Tool<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    input_schema: Schema,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

#[derive(Serialize)]
struct Schema {
    json: Box<RawValue>,
}

/// Anything as JSON that is carried.
pub(super) fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("texts, numbers and JSON are always JSON")
}

/// The schema of a tool; some models do not see tools whose schema says more beside its properties.
fn schema_of(function: &Function<'_>, card: &Card) -> Box<RawValue> {
    let whole = function.raw_schema();
    let Some(members) = Members::of(&whole).filter(|_| card.plain_schemas) else { return whole };
    // What properties point to has to be there.
    let is_kept = |name: &str| match name {
        "type" | "properties" | "required" => true,
        name => whole.get().contains(&format!("\"#/{name}/")),
    };
    let mut plain = Body::default();
    for (name, value) in members.0.iter().filter(|(name, _)| is_kept(name)) {
        plain.set(name, value);
    }
    RawValue::from_string(String::from_utf8_lossy(&plain.to_bytes()).into_owned()).unwrap_or_else(|_| whole.clone())
}

/// The member `toolConfig`, if there is one. What only Claude takes goes to `additional`.
pub(super) fn tools(
    request: &Request,
    card: &Card,
    functions: &Functions<'_>,
    conversation: &mut Conversation,
    additional: &mut Body,
) -> Result<Option<Body>, Forbidden> {
    let called: Vec<String> =
        conversation.called_names().into_iter().map(|name| upstream_name(name, card.name_rule).into_owned()).collect();
    let choice = request.tool_choice.as_ref();
    if matches!(choice, Some(ToolChoice::None(_))) {
        if called.is_empty() {
            return Err(Forbidden::Unused);
        }
        if !card.claude {
            conversation.warn("changed:tool_use");
            return Err(Forbidden::Told);
        }
        additional.set("tool_choice", json!({"type": "none"}));
    }
    let mut list: Vec<Box<RawValue>> = Vec::new();
    for function in &functions.list {
        let tool_spec = Tool {
            name: &function.name,
            description: function.description.as_deref(),
            input_schema: Schema { json: schema_of(function, card) },
            strict: function.strict.then_some(true),
        };
        list.push(raw(&Spec { tool_spec }));
        if card.cache != Cache::PointsBesideTools {
            list.extend(cache_point(function.mark, card).map(|point| raw(&point)));
        }
    }
    // Calls in the past need a tool of their name, also when none is offered any more.
    if functions.is_empty() {
        for name in &called {
            list.push(raw(&json!({"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}})));
        }
    }
    if list.is_empty() {
        return Ok(None);
    }
    let mut config = Body::default();
    config.set("tools", list);
    if let Some(choice) = choice.filter(|_| !functions.is_empty()) {
        config.set_some("toolChoice", chosen(choice, card, conversation, additional));
    }
    Ok(Some(config))
}

/// The protocol's own choice. Claude's member beside it would be refused, so it is one or the other.
fn chosen(
    choice: &ToolChoice,
    card: &Card,
    conversation: &mut Conversation,
    additional: &mut Body,
) -> Option<serde_json::Value> {
    let is_forced = matches!(choice, ToolChoice::Any(_) | ToolChoice::Tool(_));
    let degraded = is_forced && !card.forced_choice;
    if degraded {
        conversation.warn("changed:tool_choice");
    }
    let is_serial = card.claude && choice.is_serial();
    let plain = |kind: &str| {
        if is_serial { json!({"type": kind, "disable_parallel_tool_use": true}) } else { json!({kind: {}}) }
    };
    let made = match choice {
        ToolChoice::None(_) | ToolChoice::Other(_) => return None,
        ToolChoice::Auto(_) => plain("auto"),
        ToolChoice::Any(_) | ToolChoice::Tool(_) if degraded => plain("auto"),
        ToolChoice::Any(_) => plain("any"),
        ToolChoice::Tool(choice) => {
            let name = upstream_name(&choice.name, card.name_rule);
            if is_serial {
                json!({"type": "tool", "name": name, "disable_parallel_tool_use": true})
            } else {
                json!({"tool": {"name": name}})
            }
        }
    };
    if is_serial {
        additional.set("tool_choice", made);
        return None;
    }
    Some(made)
}
