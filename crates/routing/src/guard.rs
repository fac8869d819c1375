//! What a caller is held to, whatever a request asks for.

use crate::catalogue::{Endpoint, Model, Named, STATIC};
use crate::preferences;
use crate::set::{Variant, Variants};

/// The rules of all guardrails that a caller is under, taken together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Every one of these lists must name the model.
    pub allowed_models: Vec<Vec<String>>,
    pub ignored_models: Vec<String>,
    /// Every one of these lists must name the provider.
    pub allowed_providers: Vec<Vec<String>>,
    pub ignored_providers: Vec<String>,
    pub zdr: Zdr,
    /// Whether free endpoints may learn from what they are sent.
    pub denies_free_training: bool,
    pub denies_paid_training: bool,
}

/// Whose models may only be asked where nothing is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zdr {
    pub anthropic: bool,
    pub google: bool,
    pub openai: bool,
    pub xai: bool,
    pub other: bool,
}

impl Zdr {
    /// Whether it holds for the model with this id.
    pub fn covers(self, model: &str) -> bool {
        let author = model.split('/').next().unwrap_or_default().trim_start_matches('~');
        match author {
            "anthropic" => self.anthropic,
            "google" => self.google,
            "openai" => self.openai,
            "x-ai" => self.xai,
            _ => self.other,
        }
    }
}

impl Guard {
    /// Whether an endpoint may serve a model that was asked for with these variants behind its name.
    pub fn allows(&self, model: &Model, variants: Variants, endpoint: &Endpoint) -> bool {
        let named = |list: &[String]| list.iter().any(|entry| names(entry, model, variants));
        let provided = |list: &[String]| list.iter().any(|entry| preferences::names(entry, endpoint).is_some());
        self.allowed_models.iter().all(|list| named(list))
            && !named(&self.ignored_models)
            && self.allowed_providers.iter().all(|list| provided(list))
            && !provided(&self.ignored_providers)
    }

    pub fn may_train(&self, endpoint: &Endpoint) -> bool {
        let is_free = endpoint.pricing.as_ref().is_some_and(|pricing| pricing.is_free());
        let denied = if is_free { self.denies_free_training } else { self.denies_paid_training };
        !endpoint.policy.trains || !denied
    }
}

/// How a list of models keeps one that was named: by its id, and with those variants that say what is served. One that only
/// says in which order is no part of what is allowed.
pub fn entry(named: &Named<'_>) -> String {
    let kept = STATIC.iter().filter(|variant| named.variants.contains(**variant));
    kept.fold(named.model.id.to_string(), |entry, variant| entry + ":" + variant.as_str())
}

/// Whether an entry of a list is meant: the model, or the model with a variant that was asked for.
fn names(entry: &str, model: &Model, variants: Variants) -> bool {
    let Some(rest) = entry.strip_prefix(&*model.id) else { return false };
    let is_asked = |word: &str| Variant::parse(word).is_some_and(|variant| variants.contains(variant));
    rest.is_empty() || rest.strip_prefix(':').is_some_and(|rest| rest.split(':').all(is_asked))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Catalogue;

    /// What a list with this entry covers of the names that are asked for.
    fn covered<'n>(catalogue: &Catalogue, entry: &str, asked: &[&'n str]) -> Vec<&'n str> {
        let guard = Guard { allowed_models: vec![vec![entry.to_owned()]], ..Guard::default() };
        let is_allowed = |name: &&&str| {
            let named = catalogue.find(name).unwrap();
            guard.allows(named.model, named.variants, &named.model.endpoints[0])
        };
        asked.iter().filter(is_allowed).copied().collect()
    }

    #[test]
    fn an_entry_covers_what_it_names_whatever_else_the_catalogue_has() {
        let model = |id: &str| Model::new(id, vec![Arc::new(Endpoint::new(id, "p"))]);
        let aliases = [("cheap".to_owned(), "v/a:free".to_owned()), ("fast".to_owned(), "v/a:nitro".to_owned())];
        let without = Catalogue::new(vec![model("v/a"), model("v/ab")], aliases.clone());
        let with = Catalogue::new(vec![model("v/a"), model("v/a:free"), model("v/ab")], aliases);
        let asked = ["v/a", "v/a:free", "v/a:thinking", "v/a:nitro", "v/ab"];
        for (written, kept, expected) in [
            ("v/a", "v/a", &["v/a", "v/a:free", "v/a:thinking", "v/a:nitro"][..]),
            ("v/a:free", "v/a:free", &["v/a:free"]),
            ("cheap", "v/a:free", &["v/a:free"]),
            ("v/a:thinking", "v/a:thinking", &["v/a:thinking"]),
            ("v/a:nitro", "v/a", &["v/a", "v/a:free", "v/a:thinking", "v/a:nitro"]),
            ("fast", "v/a", &["v/a", "v/a:free", "v/a:thinking", "v/a:nitro"]),
            ("v/a:free:floor", "v/a:free", &["v/a:free"]),
        ] {
            for catalogue in [&without, &with] {
                let entry = entry(&catalogue.find(written).unwrap());
                assert_eq!(entry, kept, "{written}");
                let has_free = catalogue.resolve("v/a:free").is_some();
                // A free variant that the catalogue has is a model of its own.
                let is_own = |name: &&str| has_free && kept == "v/a" && **name == *"v/a:free";
                let expected: Vec<_> = expected.iter().copied().filter(|name| !is_own(name)).collect();
                assert_eq!(covered(catalogue, &entry, &asked), expected, "{written}");
            }
        }
    }
}
