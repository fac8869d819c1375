//! Checks of our own option fields: closed objects and enumerations. What routing wants of them is in `provider`.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::Violation;
use super::check::{self, Place};
use crate::chat::OPTION_NAMES;

/// Plugins of the public interface.
pub const PLUGINS: [&str; 10] = [
    "auto-router",
    "auto-beta-router",
    "moderation",
    "web",
    "web-fetch",
    "file-parser",
    "response-healing",
    "context-compression",
    "pareto-router",
    "fusion",
];

const TRACE_KEYS: [&str; 5] = ["trace_id", "trace_name", "span_name", "generation_name", "parent_span_id"];

pub(super) fn models<'a>(place: &Place<'_>, value: &'a RawValue) -> Result<Vec<Cow<'a, str>>, Violation> {
    let entries = check::entries(place, value, 0, 16)?.into_iter().enumerate();
    entries.map(|(index, model)| check::text_between(&place.entry(index), model, 1, 256)).collect()
}

pub(super) fn fallbacks<'a>(place: &Place<'_>, value: &'a RawValue) -> Result<Vec<Cow<'a, str>>, Violation> {
    let mut models = Vec::new();
    for (index, fallback) in check::entries(place, value, 0, 3)?.into_iter().enumerate() {
        let place = place.entry(index);
        let members = check::members(&place, fallback)?;
        let model = check::text_between(&place.member("model"), check::required(&place, &members, "model")?, 1, 256)?;
        if let Some((name, _)) = members.0.iter().find(|(name, _)| name != "model") {
            return Err(place.member(name).is("is not allowed"));
        }
        models.push(model);
    }
    Ok(models)
}

pub(super) fn plugins(place: &Place<'_>, value: &RawValue) -> Result<(), Violation> {
    for (index, plugin) in check::entries(place, value, 0, 64)?.into_iter().enumerate() {
        let place = place.entry(index);
        let members = check::members(&place, plugin)?;
        let id = check::text_between(&place.member("id"), check::required(&place, &members, "id")?, 1, 64)?;
        if !PLUGINS.contains(&id.as_ref()) {
            return Err(Violation { message: format!("Unknown plugin: {id}"), ..Violation::new("") });
        }
    }
    Ok(())
}

pub(super) fn trace(place: &Place<'_>, value: &RawValue) -> Result<(), Violation> {
    check::object(place, value)?;
    if value.get().len() > 32_768 {
        return Err(place.is("must be at most 32768 bytes"));
    }
    let members = check::members(place, value)?;
    if members.0.len() > 128 {
        return Err(place.is("must have at most 128 keys"));
    }
    for name in TRACE_KEYS {
        if let Some(value) = check::present(&members, name) {
            check::text_between(&place.member(name), value, 0, 512)?;
        }
    }
    Ok(())
}

/// What travels beside a request: names that are known, values that their reader judges.
pub(super) fn chat(place: &Place<'_>, value: &RawValue) -> Result<(), Violation> {
    let members = check::members(place, value)?;
    match members.0.iter().find(|(name, _)| !OPTION_NAMES.contains(&name.as_ref())) {
        Some((name, _)) => Err(place.member(name).is("is not allowed")),
        None => Ok(()),
    }
}

pub(super) fn stop_when(place: &Place<'_>, value: &RawValue) -> Result<(), Violation> {
    for (index, condition) in check::entries(place, value, 1, 16)?.into_iter().enumerate() {
        let place = place.entry(index);
        let members = check::members(&place, condition)?;
        let kinds = ["step_count_is", "has_tool_call", "max_tokens_used", "max_cost", "finish_reason_is"];
        let kind = check::one_of(&place.member("type"), check::required(&place, &members, "type")?, &kinds)?;
        let field = |name| check::required(&place, &members, name);
        match kind.as_ref() {
            "step_count_is" => drop(check::integer(&place.member("step_count"), field("step_count")?, 1)?),
            "max_tokens_used" => drop(check::integer(&place.member("max_tokens"), field("max_tokens")?, 1)?),
            "max_cost" => {
                let cost = field("max_cost_in_dollars")?;
                check::number_between(&place.member("max_cost_in_dollars"), cost, 0.0, 1e9)?;
            }
            "has_tool_call" => {
                check::text_between(&place.member("tool_name"), field("tool_name")?, 1, usize::MAX)?;
            }
            _ => {
                check::text_between(&place.member("reason"), field("reason")?, 1, usize::MAX)?;
            }
        }
    }
    Ok(())
}
