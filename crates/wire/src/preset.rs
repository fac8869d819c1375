//! Presets: settings that are kept of one request and merged into others. A request names one in `model` or `preset`.

mod unite;

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::chat;
use crate::envelope::{Brand, Envelope, Violation};
use crate::json::{self, Kind, Members};

/// Between the name of a model and the slug of a preset.
const MARK: &str = "@preset/";

/// What is kept of a request. The conversation is not, nor who leads it; and what may hold somebody's secret, such as
/// `mcp_servers`, has no place in a preset.
const KEPT: [&str; 22] = [
    "model",
    "models",
    "fallbacks",
    "provider",
    "route",
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "stop_sequences",
    "thinking",
    "output_config",
    "plugins",
    "tools",
    "tool_choice",
    "service_tier",
    "speed",
    "stop_server_tools_when",
    "cache_control",
    chat::OPTIONS,
    CACHE_ENABLED,
    CACHE_TTL_SECONDS,
];

/// These two are for the response cache and are never part of a request.
const CACHE_ENABLED: &str = "cache_enabled";
const CACHE_TTL_SECONDS: &str = "cache_ttl_seconds";

/// The settings of a request, as JSON texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// An object.
    pub config: String,
    /// A text, or an array of blocks.
    pub system: Option<String>,
}

impl Kept {
    /// What is kept of a body; it was read for [`Purpose::Keep`](crate::envelope::Purpose::Keep) without a mistake.
    pub fn of(body: &[u8]) -> Option<Self> {
        let members: Members<'_> = serde_json::from_slice(body).ok()?;
        let present = |value: &RawValue| json::kind(value) != Kind::Null;
        let mut config = Object::default();
        for (name, value) in members.0.iter().filter(|(name, value)| KEPT.contains(&&**name) && present(value)) {
            config.add(name, &compacted(value));
        }
        let system = members.get("system").filter(|system| present(system)).map(compacted);
        Some(Self { config: config.closed(), system })
    }

    pub fn size_bytes(&self) -> usize {
        self.config.len() + self.system.as_ref().map_or(0, String::len)
    }
}

/// A kept system prompt as one text: its blocks are paragraphs.
pub fn system_text(system: &str) -> Option<String> {
    let raw: &RawValue = serde_json::from_str(system).ok()?;
    if let Some(text) = json::string(raw) {
        return Some(text.into_owned());
    }
    let blocks = json::elements(raw)?;
    let texts = blocks.into_iter().filter_map(|block| Members::of(block)?.get("text").and_then(json::string));
    Some(texts.collect::<Vec<_>>().join("\n\n"))
}

/// The preset that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference<'a> {
    pub slug: &'a str,
    /// The model that the request names beside it, which comes before the preset's.
    pub model: Option<&'a str>,
}

impl<'a> Reference<'a> {
    /// None for a request that names no preset.
    pub fn of(envelope: &'a Envelope<'_>) -> Result<Option<Self>, Violation> {
        if !envelope.names_preset {
            return Ok(None);
        }
        let model = envelope.model.as_deref();
        let marked = model.and_then(|model| model.split_once(MARK));
        let slug = match (marked, envelope.preset.as_deref()) {
            (Some((_, slug)), Some(other)) if slug.trim() != other.trim() => {
                return Err(Violation::new("preset must be the one that model names"));
            }
            (Some((_, slug)), _) | (None, Some(slug)) => slug.trim(),
            (None, None) => return Ok(None),
        };
        let model = marked.map_or(model, |(model, _)| Some(model)).map(str::trim);
        Ok(Some(Self { slug, model: model.filter(|model| !model.is_empty()) }))
    }
}

/// Whether the name of a model has that of a preset in it.
pub(crate) fn is_named_in(model: &str) -> bool {
    // Hardly any name has such a character.
    json::any(model.as_bytes(), |byte| byte == b'@') && model.contains(MARK)
}

/// A preset cannot be made of another: what it says would change with the other.
pub(crate) fn names_none(envelope: &Envelope<'_>) -> Result<(), Violation> {
    if envelope.preset.is_some() {
        return Err(Violation::new("preset is not allowed in a preset"));
    }
    let place = |names: &Option<Vec<Cow<'_, str>>>| names.iter().flatten().position(|name| is_named_in(name));
    let path = if envelope.model.as_deref().is_some_and(is_named_in) {
        "model".to_owned()
    } else if let Some(place) = place(&envelope.models) {
        format!("models[{place}]")
    } else if let Some(place) = place(&envelope.fallbacks) {
        format!("fallbacks[{place}].model")
    } else {
        return Ok(());
    };
    Err(Violation::new(format!("{path} must not name a preset")))
}

/// Whose words a request was said in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    Own,
    /// Another format's: what is one member here was several there.
    Others {
        /// Of the choice of tools it was only said whether calls may come side by side.
        only_parallel: bool,
    },
}

/// A version of a preset, ready to be merged into requests.
#[derive(Debug)]
pub struct Preset {
    /// In their order, without those of the response cache.
    members: Vec<(Box<str>, Box<RawValue>)>,
    system: Option<Box<RawValue>>,
    pub cache_enabled: Option<bool>,
    pub cache_ttl_seconds: Option<u64>,
}

impl Preset {
    /// None for what [`Kept`] did not write.
    pub fn read(config: &str, system: Option<&str>) -> Option<Self> {
        let all: Members<'_> = serde_json::from_str(config).ok()?;
        let number = |raw: &RawValue| raw.get().parse().ok();
        let is_of_cache = |name: &str| name == CACHE_ENABLED || name == CACHE_TTL_SECONDS;
        let members = all.0.iter().filter(|(name, _)| !is_of_cache(name));
        Some(Self {
            members: members.map(|(name, value)| (name.as_ref().into(), (*value).to_owned())).collect(),
            system: system.map(|system| RawValue::from_string(system.to_owned())).transpose().ok()?,
            cache_enabled: all.get(CACHE_ENABLED).map(|enabled| enabled.get() == "true"),
            cache_ttl_seconds: all.get(CACHE_TTL_SECONDS).and_then(number),
        })
    }

    /// What it takes in memory, roughly.
    pub fn size_bytes(&self) -> usize {
        let members = self.members.iter().map(|(name, value)| name.len() + value.get().len() + 64);
        members.sum::<usize>() + self.system.as_ref().map_or(0, |system| system.get().len()) + 64
    }

    fn get(&self, name: &str) -> Option<&RawValue> {
        self.members.iter().find(|(known, _)| &**known == name).map(|(_, value)| &**value)
    }

    /// The body with what the preset adds to it. The request's own members win, and one that is null keeps the preset's
    /// away. Tools and plugins are united, and so is what several members of another format became. `model` is the one that
    /// the request names beside the preset.
    ///
    /// None for a body that is no object.
    pub fn merged(&self, body: &[u8], model: Option<&str>, brand: Brand<'_>, words: Words) -> Option<Bytes> {
        let request: Members<'_> = serde_json::from_slice(body).ok()?;
        let mut out =
            Object::with_room(body.len() + self.members.iter().map(|(_, value)| value.get().len() + 32).sum::<usize>());
        match (model, self.get("model")) {
            (Some(model), _) => out.add("model", &json::quoted(model)),
            (None, Some(model)) => out.add("model", model.get()),
            (None, None) => {}
        }
        for (name, value) in &request.0 {
            match (&**name, self.get(name)) {
                ("model" | "preset", _) => {}
                ("tools", Some(ours)) => out.add(name, &unite::tools(ours, value, brand)?),
                ("plugins", Some(ours)) => out.add(name, &unite::plugins(ours, value)?),
                (chat::OPTIONS, Some(ours)) => out.add(name, &unite::members(ours, value)?),
                ("output_config", Some(ours)) if words != Words::Own => out.add(name, &unite::members(ours, value)?),
                ("tool_choice", Some(ours)) if words == (Words::Others { only_parallel: true }) => {
                    out.add(name, &unite::choice(ours, value)?);
                }
                _ => out.add(name, value.get()),
            }
        }
        // Both say which models come after the first; together they are refused.
        let is_listed =
            ["models", "fallbacks"].iter().any(|name| request.get(name).is_some_and(|list| list.get() != "null"));
        let is_kept_away = |name: &str| {
            name == "model" || request.get(name).is_some() || (is_listed && matches!(name, "models" | "fallbacks"))
        };
        for (name, value) in self.members.iter().filter(|(name, _)| !is_kept_away(name)) {
            out.add(name, value.get());
        }
        if let Some(system) = self.system.as_deref().filter(|_| !is_kept_away("system")) {
            out.add("system", system.get());
        }
        Some(Bytes::from(out.closed()))
    }
}

/// An object being written.
#[derive(Default)]
struct Object(String);

impl Object {
    fn with_room(size_bytes: usize) -> Self {
        Self(String::with_capacity(size_bytes))
    }

    fn add(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&json::quoted(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    fn closed(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }
}

fn compacted(value: &RawValue) -> String {
    let mut out = Vec::with_capacity(value.get().len());
    json::compact(value.get().as_bytes(), &mut out);
    String::from_utf8(out).expect("a text without some of its white space is a text")
}

#[cfg(test)]
mod tests;
