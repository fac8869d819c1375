//! Configuration: file, then environment, then command line; parsed into raw structs, then checked into the types the
//! program uses. A mistake is named with its place and the nearest right word.

mod at_start;
mod check;
mod destinations;
mod documents;
mod facts;
pub mod generate;
pub mod keys;
mod lines;
mod mistakes;
mod moderation;
mod oidc;
mod plugins;
mod prices;
mod providers;
pub mod raw;
mod sandbox;
mod search;
mod secret;
pub mod tls;
mod traces;
mod web;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;

pub use at_start::AtStart;
pub use check::{Checked, Oauth};
use lines::Lines;
use mistakes::Mistakes;
pub use oidc::{Oidc, is_private_address};

/// Variables `TIDEGATE__SECTION__FIELD` override the file.
const ENVIRONMENT: &str = "TIDEGATE__";
/// Settings that hold secrets; what is written there is never repeated.
const SECRETS: [&str; 8] = [
    "api_key",
    "management_key",
    "inference_key",
    "master_key",
    "redis_url",
    "client_secret",
    "tls_key",
    "webhook_secret",
];
/// Models that are known without a configuration, by vendor.
const CATALOGUE: [&str; 12] = [
    include_str!("../../../../catalogue/amazon.toml"),
    include_str!("../../../../catalogue/anthropic.toml"),
    include_str!("../../../../catalogue/cohere.toml"),
    include_str!("../../../../catalogue/deepseek.toml"),
    include_str!("../../../../catalogue/google.toml"),
    include_str!("../../../../catalogue/minimax.toml"),
    include_str!("../../../../catalogue/mistral.toml"),
    include_str!("../../../../catalogue/moonshotai.toml"),
    include_str!("../../../../catalogue/open-weights.toml"),
    include_str!("../../../../catalogue/openai.toml"),
    include_str!("../../../../catalogue/xai.toml"),
    include_str!("../../../../catalogue/z-ai.toml"),
];

/// Where the configuration comes from; kept for reloads.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub file: Option<PathBuf>,
    pub listen: Option<String>,
    pub data_dir: PathBuf,
    pub environment: Vec<(String, String)>,
}

impl Source {
    /// With the environment of this process.
    pub fn new(file: Option<PathBuf>, listen: Option<String>, data_dir: PathBuf) -> Self {
        Self { file, listen, data_dir, environment: variables() }
    }

    /// Reads and checks everything; called again for every reload.
    pub fn read(&self) -> anyhow::Result<Checked> {
        let (config, lines, mistakes) = self.raw()?;
        check::check(config, lines, self, mistakes)
    }

    /// What was written, without what could not be read, and the mistakes in that.
    fn raw(&self) -> anyhow::Result<(raw::Config, Lines, Mistakes)> {
        let (mut table, mut lines) = match &self.file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                lines::read(file, &text.with_context(|| format!("configuration file {}", file.display()))?)?
            }
            None => Default::default(),
        };
        for (name, value) in &self.environment {
            if let Some(path) = name.strip_prefix(ENVIRONMENT) {
                overlay(&mut table, path, value).with_context(|| format!("environment variable {name}"))?;
                lines.overridden(path.to_lowercase().replace("__", "."), name);
            }
        }
        let (mut config, mistakes): (raw::Config, _) = parse(table, &lines)?;
        if let Some(listen) = &self.listen {
            config.service.listen.clone_from(listen);
        }
        Ok((config, lines, mistakes))
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// The environment as far as it is text; a variable that is not cannot be one of ours.
fn variables() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The models that are compiled in.
pub fn built_in() -> Vec<raw::Model> {
    #[derive(serde::Deserialize)]
    struct Catalogue {
        models: Vec<raw::Model>,
    }
    let read = |text| toml::from_str::<Catalogue>(text).expect("a test reads the built-in catalogue").models;
    CATALOGUE.into_iter().flat_map(read).collect()
}

/// Sets one value of the table. What reads as TOML is taken as such, everything else as text.
fn overlay(table: &mut toml::Table, path: &str, value: &str) -> anyhow::Result<()> {
    let mut names: Vec<String> = path.split("__").map(str::to_lowercase).collect();
    let Some(field) = names.pop().filter(|field| !field.is_empty() && !names.is_empty()) else {
        bail!("must look like {ENVIRONMENT}SECTION__FIELD");
    };
    let is_amount = names.iter().any(|name| lines::AMOUNTS.contains(&name.as_str()));
    let mut section = table;
    for name in names {
        let entry = section.entry(name.clone()).or_insert_with(|| toml::Table::new().into());
        let Some(next) = entry.as_table_mut() else { bail!("{name} is not a section") };
        section = next;
    }
    if SECRETS.contains(&field.as_str()) {
        // Always text, whatever it looks like: a number would be quoted in the error about it.
        section.insert(field, value.into());
        return Ok(());
    }
    let parsed =
        toml::from_str::<toml::Table>(&format!("value = {value}")).ok().and_then(|mut read| read.remove("value"));
    // An amount keeps its digits.
    let parsed = parsed.filter(|parsed| !(is_amount && parsed.is_float()));
    section.insert(field, parsed.unwrap_or_else(|| if is_amount { value.trim() } else { value }.into()));
    Ok(())
}

/// Reads a table. What is wrong is taken out and noted, and the rest read again, until nothing is or it cannot be done
/// without it.
fn parse<T: DeserializeOwned>(mut table: toml::Table, lines: &Lines) -> anyhow::Result<(T, Mistakes)> {
    let (mut mistakes, mut removed) = (Mistakes::default(), Vec::<String>::new());
    loop {
        let error = match serde_path_to_error::deserialize(toml::Value::Table(table.clone())) {
            Ok(read) => return Ok((read, mistakes)),
            Err(error) => error,
        };
        let path = error.path().to_string();
        let message = if is_secret(&path) { "must be a text" } else { error.inner().message().trim() }.to_owned();
        let place = unknown(&path, &message).map_or_else(|| path.clone(), |(place, ..)| place);
        // What is missing where something was taken out may be what that was meant to be.
        let follows = message.starts_with("missing field") && removed.iter().any(|gone| parent(gone) == path);
        if !follows {
            let mistake = lines.named(&path, anyhow::anyhow!("{}", explained(&path, &message)));
            mistakes.note::<()>(Err(mistake));
        }
        if message.starts_with("missing field") || !remove(&mut table, &place) {
            mistakes.check()?;
            bail!("the configuration cannot be read");
        }
        removed.push(place);
    }
}

/// Whether what is written at a path is never repeated. Of a destination that is all that it is reached with.
fn is_secret(path: &str) -> bool {
    let of_destination = path.strip_prefix("destinations[").and_then(|rest| rest.split_once("]."));
    let is_reach =
        of_destination.is_some_and(|(_, member)| matches!(member.split('.').next(), Some("config" | "headers")));
    is_reach || SECRETS.iter().any(|name| path.ends_with(name))
}

/// What a setting stands in.
fn parent(path: &str) -> &str {
    path.rsplit_once('.').map_or(".", |(parent, _)| parent)
}

/// Takes a setting out of a table, by a path such as `models[0].endpoints[1].tag`; whether it was there.
fn remove(table: &mut toml::Table, path: &str) -> bool {
    let (above, name) = path.rsplit_once('.').map_or(("", path), |(above, name)| (above, name));
    let mut section = table;
    for step in above.split('.').filter(|step| !step.is_empty()) {
        let (key, places) = step.split_once('[').map_or((step, ""), |(key, places)| (key, places));
        let mut value = section.get_mut(key);
        for place in places.split('[').filter(|place| !place.is_empty()) {
            let place = place.trim_end_matches(']').parse::<usize>().ok();
            value = place.and_then(|place| value?.as_array_mut()?.get_mut(place));
        }
        let Some(next) = value.and_then(toml::Value::as_table_mut) else { return false };
        section = next;
    }
    // Of a list all goes: without one of its entries the others would have other places.
    section.remove(name.split_once('[').map_or(name, |(key, _)| key)).is_some()
}

/// Of a message about a setting that there is not: its place, its name, and those that there are.
fn unknown<'m>(path: &str, message: &'m str) -> Option<(String, &'m str, Vec<&'m str>)> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = quoted.next().filter(|_| message.starts_with("unknown field"))?;
    let place = match path.rsplit_once('.') {
        Some((section, field)) if field == unknown => format!("{section}.{unknown}"),
        _ if path == unknown || path == "." || path.is_empty() => unknown.to_owned(),
        _ => format!("{path}.{unknown}"),
    };
    Some((place, unknown, quoted.collect()))
}

/// `unknown field `lisen`, expected one of …` becomes a sentence that names the nearest key.
fn explained(path: &str, message: &str) -> String {
    if let Some((place, unknown, known)) = unknown(path, message) {
        return match nearest(unknown, &known) {
            Some(key) => format!("{place} is not a setting; did you mean {key}?"),
            None => format!("{place} is not a setting; known here: {}", known.join(", ")),
        };
    }
    if message.ends_with("expected a sequence") {
        return format!("{path}: must be a list such as [\"a\", \"b\"]");
    }
    if path == "." || path.is_empty() { message.to_owned() } else { format!("{path}: {message}") }
}

/// The candidate that is closest to `word`, if any is close enough to have been meant.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let scored = candidates.iter().map(|candidate| (strsim::damerau_levenshtein(word, candidate), *candidate));
    let best = scored.min_by_key(|(distance, _)| *distance);
    best.filter(|(distance, candidate)| *distance <= (candidate.len().max(word.len()) / 3).max(1))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests;
