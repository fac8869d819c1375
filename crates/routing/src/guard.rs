//! What a caller is held to, whatever a request asks for.

use crate::catalogue::{Endpoint, Model};
use crate::preferences;

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
    pub fn allows(&self, model: &Model, endpoint: &Endpoint) -> bool {
        let named = |list: &[String]| list.iter().any(|name| *name == *model.id);
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
