//! The configuration that is being written.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};

use toml::Value;

use super::Imported;

/// One `[[providers]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provider {
    pub slug: String,
    pub protocol: Option<&'static str>,
    pub base_url: Option<String>,
    pub auth: Option<&'static str>,
    /// Where the slug is not that of the platform.
    pub platform: Option<&'static str>,
    pub api_key: Option<String>,
    pub region: Option<String>,
    pub project: Option<String>,
    pub resource: Option<String>,
}

/// One `[[models]]`.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub id: String,
    pub aliases: Vec<String>,
    pub context_length: Option<u64>,
    pub max_output_tokens: Option<u64>,
    pub input_modalities: Vec<String>,
    pub output: Option<&'static str>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    pub provider: String,
    pub model: String,
    /// Where it is not the one that is usual there.
    pub protocol: Option<&'static str>,
    /// As it is written.
    pub pricing: Option<String>,
}

/// Lengths of a model of which nobody says them.
const USUAL_CONTEXT: u64 = 128_000;
const USUAL_OUTPUT: u64 = 8_192;

#[derive(Default)]
pub struct Draft {
    pub inference_key: Option<String>,
    pub providers: Vec<Provider>,
    pub models: Vec<Model>,
    notes: Vec<String>,
    /// Variables for keys that stood in the file, by what stands for a key.
    variables: Vec<(u64, String)>,
    marks: RandomState,
}

impl Draft {
    /// Says something once.
    pub fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Somebody reads this variable already.
    pub fn take(&mut self, name: &str) {
        self.variables.push((0, name.to_owned()));
    }

    /// The variable of a key that stood in the file: the same for the same key.
    pub fn variable(&mut self, wanted: String, key: &str) -> String {
        let mark = self.marks.hash_one((&wanted, key));
        if let Some((_, known)) = self.variables.iter().find(|(known, _)| *known == mark) {
            return known.clone();
        }
        let taken = |name: &str| self.variables.iter().any(|(_, known)| known == name);
        let mut name = wanted.clone();
        for number in 2.. {
            if !taken(&name) {
                break;
            }
            name = format!("{wanted}_{number}");
        }
        self.variables.push((mark, name.clone()));
        name
    }

    /// The slug of a provider, which is added if it is new. One that is reached in another way than one of the same name
    /// gets a name of its own; `apart` then says what the name alone told before.
    pub fn provider(&mut self, wanted: Provider, apart: impl FnOnce(&mut Provider)) -> String {
        let name = wanted.slug.clone();
        let like = |known: &&Provider| Provider { slug: name.clone(), ..(*known).clone() } == wanted;
        if let Some(known) = self.providers.iter().find(|known| known.slug == name).filter(like) {
            return known.slug.clone();
        }
        let mut made = wanted;
        if self.providers.iter().any(|known| known.slug == name) {
            apart(&mut made);
            let own = |known: &&Provider| Provider { slug: name.clone(), ..(*known).clone() };
            let same = Provider { slug: name.clone(), ..made.clone() };
            if let Some(known) = self.providers.iter().find(|known| known.slug != name && own(known) == same) {
                return known.slug.clone();
            }
            let mut number = 2;
            while self.providers.iter().any(|known| known.slug == format!("{name}-{number}")) {
                number += 1;
            }
            made.slug = format!("{name}-{number}");
        }
        let slug = made.slug.clone();
        self.providers.push(made);
        slug
    }

    pub fn finish(self, from: &str) -> Imported {
        let mut out = String::new();
        let _ =
            writeln!(out, "# Made of a configuration of {from} by `tidegate import`. Try it with `tidegate check`.");
        for note in &self.notes {
            let _ = writeln!(out, "# - {}", note.replace(char::is_control, " "));
        }
        if let Some(key) = &self.inference_key {
            let _ = writeln!(out, "\n[keys]\ninference_key = {}", quoted(key));
        }
        for provider in &self.providers {
            let _ = writeln!(out, "\n[[providers]]\nslug = {}", quoted(&provider.slug));
            let members = [
                ("protocol", provider.protocol.map(str::to_owned)),
                ("base_url", provider.base_url.clone()),
                ("auth", provider.auth.map(str::to_owned)),
                ("platform", provider.platform.map(str::to_owned)),
                ("api_key", provider.api_key.clone()),
                ("region", provider.region.clone()),
                ("project", provider.project.clone()),
                ("resource", provider.resource.clone()),
            ];
            for (name, value) in members {
                if let Some(value) = value {
                    let _ = writeln!(out, "{name} = {}", quoted(&value));
                }
            }
        }
        for model in &self.models {
            write_model(model, &mut out);
        }
        Imported { text: out, providers: self.providers.len(), models: self.models.len(), notes: self.notes }
    }
}

fn write_model(model: &Model, out: &mut String) {
    let _ = writeln!(out, "\n[[models]]\nid = {}", quoted(&model.id));
    let length = |out: &mut String, name: &str, said: Option<u64>, usual: u64| {
        let _ = match said {
            Some(said) => writeln!(out, "{name} = {said}"),
            None => writeln!(out, "# Not known: a guess.\n{name} = {usual}"),
        };
    };
    length(out, "context_length", model.context_length, USUAL_CONTEXT);
    length(
        out,
        "max_output_tokens",
        model.max_output_tokens,
        model.context_length.unwrap_or(USUAL_OUTPUT).min(USUAL_OUTPUT),
    );
    if !model.input_modalities.is_empty() {
        let _ = writeln!(out, "input_modalities = {}", list(&model.input_modalities));
    }
    if let Some(output) = model.output {
        let _ = writeln!(out, "output_modalities = {}", list(&[output.to_owned()]));
    }
    if !model.aliases.is_empty() {
        let _ = writeln!(out, "aliases = {}", list(&model.aliases));
    }
    for endpoint in &model.endpoints {
        let _ = writeln!(out, "[[models.endpoints]]\nprovider = {}", quoted(&endpoint.provider));
        let _ = writeln!(out, "model = {}", quoted(&endpoint.model));
        if let Some(protocol) = endpoint.protocol {
            let _ = writeln!(out, "protocol = {}", quoted(protocol));
        }
        let _ = match &endpoint.pricing {
            Some(pricing) => writeln!(out, "pricing = {pricing}"),
            None => writeln!(out, "# Its price is not known: pricing = {{ input = 1.0, output = 2.0 }}"),
        };
    }
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

fn list(texts: &[String]) -> String {
    Value::Array(texts.iter().cloned().map(Value::String).collect()).to_string()
}
