//! Configuration: file, then environment, then command line; parsed into raw structs, then checked into the types the
//! program uses. A mistake is named with its place and the nearest right word.

mod check;
mod destinations;
mod documents;
mod facts;
pub mod generate;
mod lines;
mod moderation;
mod plugins;
mod prices;
mod providers;
pub mod raw;
mod sandbox;
mod search;
mod secret;
mod traces;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;

pub use check::{Checked, Oauth};
use lines::Lines;

/// Variables `TIDEGATE__SECTION__FIELD` override the file.
const ENVIRONMENT: &str = "TIDEGATE__";
/// Settings that hold secrets; what is written there is never repeated.
const SECRETS: [&str; 5] = ["api_key", "management_key", "inference_key", "master_key", "redis_url"];
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
        let (config, lines) = self.raw()?;
        check::check(config, lines, self)
    }

    fn raw(&self) -> anyhow::Result<(raw::Config, Lines)> {
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
                lines.forget(path.to_lowercase().replace("__", "."));
            }
        }
        let mut config: raw::Config = parse(table, &lines)?;
        if let Some(listen) = &self.listen {
            config.service.listen.clone_from(listen);
        }
        Ok((config, lines))
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
fn built_in() -> Vec<raw::Model> {
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

fn parse<T: DeserializeOwned>(table: toml::Table, lines: &Lines) -> anyhow::Result<T> {
    serde_path_to_error::deserialize(toml::Value::Table(table)).map_err(|error| {
        let path = error.path().to_string();
        let is_secret = SECRETS.iter().any(|name| path.ends_with(name));
        let message = if is_secret { "must be a text" } else { error.inner().message().trim() }.to_owned();
        lines.named(&path, anyhow::anyhow!("{}", explained(&path, &message)))
    })
}

/// `unknown field `lisen`, expected one of …` becomes a sentence that names the nearest key.
fn explained(path: &str, message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let (true, [unknown, known @ ..]) = (message.starts_with("unknown field"), quoted.as_slice()) {
        let place = match path.rsplit_once('.') {
            Some((section, field)) if field == *unknown => format!("{section}.{unknown}"),
            _ if path == *unknown || path == "." || path.is_empty() => (*unknown).to_owned(),
            _ => format!("{path}.{unknown}"),
        };
        return match nearest(unknown, known) {
            Some(key) => format!("{place} is not a setting; did you mean {key}?"),
            None => format!("{place} is not a setting; known here: {}", known.join(", ")),
        };
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
