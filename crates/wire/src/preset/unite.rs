//! Lists of a preset and of a request become one: what both have is the request's, in the preset's place.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::Object;
use crate::envelope::Brand;
use crate::json::{self, Kind, Members};

/// Tools that may be there several times, told apart by the name in their parameters.
const NAMED: [&str; 2] = ["advisor", "subagent"];

/// What makes two tools the same one: its kind, and its name where that tells tools of a kind apart.
type Identity<'a> = (Cow<'a, str>, Option<Cow<'a, str>>);

/// The tools of both, the preset's first. None when one of them is no list; null in a request keeps the preset's away.
pub(super) fn tools(preset: &RawValue, request: &RawValue, brand: Brand<'_>) -> Option<String> {
    if json::kind(request) == Kind::Null {
        return Some("null".to_owned());
    }
    let theirs: Vec<_> = json::elements(request)?.into_iter().map(|tool| (identity(tool, brand), tool)).collect();
    let mut is_placed = vec![false; theirs.len()];
    let mut all: Vec<&RawValue> = Vec::with_capacity(theirs.len());
    for ours in json::elements(preset)? {
        let same = identity(ours, brand);
        let is_same = |(identity, _): &(Option<Identity<'_>>, &RawValue)| same.is_some() && *identity == same;
        match theirs.iter().position(is_same) {
            Some(place) if is_placed[place] => {}
            Some(place) => {
                is_placed[place] = true;
                all.push(theirs[place].1);
            }
            None => all.push(ours),
        }
    }
    let rest = theirs.iter().zip(&is_placed).filter(|(_, is_placed)| !**is_placed);
    all.extend(rest.map(|((_, tool), _)| *tool));
    Some(list(all.into_iter().map(RawValue::get)))
}

/// None for what is no tool: it is left for the check of the whole request.
fn identity<'a>(tool: &'a RawValue, brand: Brand<'_>) -> Option<Identity<'a>> {
    let members = Members::of(tool)?;
    let name = |members: &Members<'a>| members.get("name").and_then(json::string);
    let kind = match members.get("type").filter(|kind| json::kind(kind) != Kind::Null) {
        Some(kind) => json::string(kind)?,
        None => "custom".into(),
    };
    if kind == "custom" {
        return Some((kind, name(&members)));
    }
    // Whatever the deployment is called, the tool is the same.
    let Some(ours) = brand.tool(&kind).map(ToOwned::to_owned) else { return Some((kind, None)) };
    let parameters = members.get("parameters").filter(|_| NAMED.contains(&&*ours)).and_then(Members::of);
    Some((format!(":{ours}").into(), parameters.as_ref().and_then(name)))
}

/// The plugins of both. Of one that both have, the members of the request win one by one.
pub(super) fn plugins(preset: &RawValue, request: &RawValue) -> Option<String> {
    if json::kind(request) == Kind::Null {
        return Some("null".to_owned());
    }
    let (ours, theirs) = (json::elements(preset)?, json::elements(request)?);
    let id = |plugin: &RawValue| Members::of(plugin)?.get("id").and_then(json::string).map(Cow::into_owned);
    let named = |list: &[&RawValue], id_of: &Option<String>| {
        // Of those that stand twice the later one counts.
        list.iter().rposition(|plugin| id_of.is_some() && id(plugin) == *id_of)
    };
    let mut all: Vec<Cow<'_, str>> = Vec::new();
    for plugin in &ours {
        match named(&theirs, &id(plugin)) {
            Some(place) => all.push(one(Members::of(plugin)?, Members::of(theirs[place])?).into()),
            None => all.push(plugin.get().into()),
        }
    }
    let rest = theirs.iter().filter(|plugin| named(&ours, &id(plugin)).is_none());
    all.extend(rest.map(|plugin| Cow::Borrowed(plugin.get())));
    Some(list(all.iter().map(|plugin| &**plugin)))
}

/// The members of two objects: each was a member of its own where it came from.
pub(super) fn members(preset: &RawValue, request: &RawValue) -> Option<String> {
    if json::kind(request) == Kind::Null {
        return Some("null".to_owned());
    }
    Some(one(Members::of(preset)?, Members::of(request)?))
}

/// The preset's choice of tools, with what the request says of calls side by side; who must not call has none of those.
pub(super) fn choice(preset: &RawValue, request: &RawValue) -> Option<String> {
    const NAME: &str = "disable_parallel_tool_use";
    let (ours, theirs) = (Members::of(preset)?, Members::of(request)?);
    if ours.get("type").and_then(json::string).as_deref() == Some("none") {
        return Some(preset.get().to_owned());
    }
    let mut out = Object::default();
    for (name, value) in ours.0.iter().filter(|(name, _)| name != NAME) {
        out.add(name, value.get());
    }
    if let Some(value) = theirs.get(NAME) {
        out.add(NAME, value.get());
    }
    Some(out.closed())
}

fn one<'a>(preset: Members<'a>, request: Members<'a>) -> String {
    let mut out = Object::default();
    for (name, value) in preset.0.iter().filter(|(name, _)| request.get(name).is_none()).chain(&request.0) {
        out.add(name, value.get());
    }
    out.closed()
}

fn list<'a>(entries: impl Iterator<Item = &'a str>) -> String {
    let entries: Vec<&str> = entries.collect();
    format!("[{}]", entries.join(","))
}
