//! From the names in a request to an ordered list of attempts.

use std::sync::Arc;

use crate::byok::{self, Credential, Own};
use crate::catalogue::{Catalogue, Endpoint};

/// Attempts per model and per call (RET-3). A credential that was refused does not count against its model: that is no
/// word about the model at all.
pub const PER_MODEL: usize = 3;
pub const PER_CALL: usize = 6;

/// How the model was found, as routing metadata tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Direct,
    Alias,
    Fallback,
}

impl Strategy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Alias => "alias",
            Self::Fallback => "fallback",
        }
    }
}

/// One upstream call to be tried.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub endpoint: Arc<Endpoint>,
    /// The customer's credential; `None`: the operator's own.
    pub credential: Option<Arc<Credential>>,
    /// Place of its model in the request's list.
    pub model: usize,
    pub strategy: Strategy,
}

/// The fallback policy of one request, written out.
#[derive(Clone, Debug)]
pub struct Plan {
    pub attempts: Vec<Attempt>,
    /// Endpoints of all models of the list.
    pub total: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("{0} is not a valid model ID")]
    UnknownModel(String),
    #[error("No endpoints found for {0}")]
    NoEndpoints(String),
}

/// Endpoints of the named models in order; an unknown name anywhere in the list is the caller's mistake. Models come in
/// the order of the request, endpoints in the order of the catalogue.
pub fn plan<'a>(
    catalogue: &Catalogue,
    names: impl IntoIterator<Item = &'a str>,
    own: Option<Own<'_>>,
) -> Result<Plan, PlanError> {
    let mut plan = Plan { attempts: Vec::with_capacity(2), total: 0 };
    let mut seen: Vec<Arc<str>> = Vec::with_capacity(1);
    let mut without_endpoints = None;
    for (place, name) in names.into_iter().enumerate() {
        let (model, is_alias) = catalogue.resolve(name).ok_or_else(|| PlanError::UnknownModel(name.to_owned()))?;
        if seen.contains(&model.id) {
            continue;
        }
        seen.push(model.id.clone());
        let strategy = match (place, is_alias) {
            (0, false) => Strategy::Direct,
            (0, true) => Strategy::Alias,
            _ => Strategy::Fallback,
        };
        let attempts = byok::candidates(&model.endpoints, own);
        let before = plan.attempts.len();
        plan.attempts.extend(attempts.map(|(endpoint, credential)| Attempt {
            endpoint: endpoint.clone(),
            credential: credential.cloned(),
            model: place,
            strategy,
        }));
        let listed = &plan.attempts[before..];
        let is_listed = |endpoint: &&Arc<Endpoint>| {
            endpoint.shared || listed.iter().any(|attempt| Arc::ptr_eq(&attempt.endpoint, endpoint))
        };
        plan.total += model.endpoints.iter().filter(is_listed).count();
        if listed.is_empty() {
            without_endpoints.get_or_insert_with(|| model.id.to_string());
        }
    }
    if plan.attempts.is_empty() {
        // An empty list names nothing; whoever calls with one has a model that is not there.
        return Err(without_endpoints.map_or_else(|| PlanError::UnknownModel(String::new()), PlanError::NoEndpoints));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Model;

    fn catalogue() -> Catalogue {
        let model = |id: &str, providers: &[&str]| Model {
            id: id.into(),
            name: id.to_owned(),
            description: String::new(),
            input_modalities: Vec::new(),
            aliases: Vec::new(),
            endpoints: providers
                .iter()
                .enumerate()
                .map(|(provider_index, provider)| {
                    Arc::new(Endpoint {
                        model: id.into(),
                        provider: (*provider).into(),
                        provider_index,
                        provider_name: (*provider).into(),
                        origin: "https://x".into(),
                        upstream_model: id.into(),
                        context_length: 1,
                        max_output_tokens: 1,
                        pricing: None,
                        place: 0,
                        shared: true,
                    })
                })
                .collect(),
        };
        let models = vec![model("a/one", &["p", "q", "r", "s"]), model("a/two", &["p"]), model("a/none", &[])];
        Catalogue::new(models, [])
    }

    fn story(names: &[&str]) -> Result<Vec<String>, PlanError> {
        plan(&catalogue(), names.iter().copied(), None).map(|plan| {
            plan.attempts
                .iter()
                .map(|a| format!("{} {} {}", a.endpoint.model, a.endpoint.provider, a.strategy.as_str()))
                .collect()
        })
    }

    #[test]
    fn endpoints_follow_the_order_of_models_and_of_the_catalogue() {
        let expected =
            ["a/two p direct", "a/one p fallback", "a/one q fallback", "a/one r fallback", "a/one s fallback"];
        assert_eq!(story(&["a/two", "a/one", "a/two"]).unwrap(), expected);
        assert_eq!(story(&["one"]).unwrap(), ["a/one p alias", "a/one q alias", "a/one r alias", "a/one s alias"]);
    }

    #[test]
    fn what_cannot_be_planned_says_why() {
        assert_eq!(story(&["a/nix"]), Err(PlanError::UnknownModel("a/nix".to_owned())));
        assert_eq!(story(&["a/two", "a/nix"]), Err(PlanError::UnknownModel("a/nix".to_owned())));
        assert_eq!(story(&["a/none"]), Err(PlanError::NoEndpoints("a/none".to_owned())));
        assert_eq!(story(&[]), Err(PlanError::UnknownModel(String::new())));
        assert_eq!(story(&["a/none", "a/two"]).unwrap(), ["a/two p fallback"]);
    }
}
