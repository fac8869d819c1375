//! Why there is no plan, in the words that a caller is told.

use std::sync::Arc;

use super::filter::{self, Filter, Removed, Sieve};
use super::{Attempt, Plan, Request, Strategy, Wanted};
use crate::catalogue::Endpoint;
use crate::price::Unit;
use crate::set::{Parameter, Variants};

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    ModelNotFound,
    NoEndpoints,
    PrivacyRestricted,
    ConstraintFiltered,
    FreeVariantEnded,
    /// A guardrail of the caller forbids it.
    Guarded,
    /// The prompt is too long for every model of the list.
    ContextLength,
    /// The request holds what no endpoint takes and what cannot be left out.
    Unsupported,
}

impl Code {
    /// Its name among the codes of availability, where it has one.
    pub fn as_str(self) -> Option<&'static str> {
        match self {
            Self::ModelNotFound => Some("model_not_found"),
            Self::NoEndpoints => Some("no_endpoints"),
            Self::PrivacyRestricted => Some("privacy_restricted"),
            Self::ConstraintFiltered => Some("constraint_filtered"),
            Self::FreeVariantEnded => Some("free_variant_ended"),
            Self::Guarded | Self::ContextLength | Self::Unsupported => None,
        }
    }

    pub fn status(self) -> u16 {
        match self {
            Self::ModelNotFound | Self::ContextLength | Self::Unsupported => 400,
            Self::Guarded => 403,
            Self::NoEndpoints | Self::PrivacyRestricted | Self::ConstraintFiltered | Self::FreeVariantEnded => 404,
        }
    }
}

/// What nobody satisfies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    pub field: &'static str,
    pub detail: String,
}

/// No attempt can be planned.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    pub code: Code,
    pub message: String,
    /// The filters that took something out, in the public vocabulary.
    pub excluded_by: Vec<&'static str>,
    /// Slugs of those who were taken out.
    pub affected_providers: Vec<Arc<str>>,
    pub constraint: Option<Constraint>,
    /// Models that could be asked instead.
    pub fallback_models: Vec<String>,
    /// Of a prompt that is too long: the tokens it needs, and the most there is.
    pub tokens: Option<(u64, u64)>,
    /// What the request cannot do without and nobody has.
    pub lacks: Option<Parameter>,
    /// What routing metadata tells: how the first model was found, how many endpoints there were before the filters, and
    /// which were left before the last of them.
    pub strategy: Strategy,
    pub total: usize,
    pub available: Vec<Arc<Endpoint>>,
}

impl PlanError {
    fn new(code: Code, message: String) -> Box<Self> {
        Box::new(Self {
            code,
            message,
            excluded_by: Vec::new(),
            affected_providers: Vec::new(),
            constraint: None,
            fallback_models: Vec::new(),
            tokens: None,
            lacks: None,
            strategy: Strategy::Direct,
            total: 0,
            available: Vec::new(),
        })
    }

    /// The plan that the last filter emptied, for routing metadata. None where nothing was planned: the request itself is
    /// wrong then.
    pub fn before_last(&self) -> Option<Plan> {
        if matches!(self.code, Code::ModelNotFound | Code::Unsupported) {
            return None;
        }
        let attempt = |endpoint: &Arc<Endpoint>| Attempt {
            endpoint: endpoint.clone(),
            credential: None,
            model: 0,
            strategy: self.strategy,
            variants: Variants::NONE,
        };
        let attempts = self.available.iter().map(attempt).collect();
        Some(Plan { attempts, total: self.total, too_short: 0, strategy: self.strategy })
    }

    pub(super) fn unknown_model(name: &str) -> Box<Self> {
        Self::new(Code::ModelNotFound, format!("{name} is not a valid model ID"))
    }

    pub(super) fn no_endpoints(name: &str) -> Box<Self> {
        Self::new(Code::NoEndpoints, format!("No endpoints found for {name}"))
    }
}

/// Every model of the list is without endpoints, be it that it never had any.
pub(super) fn emptied(request: &Request<'_>, wanted: &[Wanted<'_>], sieve: &Sieve<'_>) -> Box<PlanError> {
    let of = |index: usize| sieve.removed.iter().filter(move |removed| removed.wanted == index);
    // Whoever took out the last endpoint of a model emptied it.
    let emptier = |index: usize| of(index).next_back().map(|removed| removed.filter);
    let codes = (0..wanted.len()).map(|index| emptier(index).map_or(Code::NoEndpoints, Filter::code));
    let first = &wanted[0];
    let code = emptier(0).map_or(Code::NoEndpoints, Filter::code);
    // Different reasons have no better name in common.
    let code = if codes.into_iter().all(|other| other == code) { code } else { Code::ConstraintFiltered };
    let mut error = match (emptier(0), code) {
        (Some(filter), Code::ConstraintFiltered) => constrained(filter, request, first, of(0)),
        (Some(Filter::Providers), Code::NoEndpoints) => {
            let served = of(0).filter(|removed| removed.filter == Filter::Providers);
            let (served, allowed) = (listed(served.map(|removed| &*removed.endpoint.provider)), allowed(request));
            let text = format!("No allowed providers for {}. Served by: {served}. Allowed: {allowed}", first.name);
            PlanError::new(code, text)
        }
        (Some(filter), Code::PrivacyRestricted) => {
            let policy = if filter == Filter::Zdr { "zero data retention" } else { "no training" };
            PlanError::new(code, format!("No endpoints for {} match your data policy ({policy})", first.name))
        }
        (_, Code::Guarded) => PlanError::new(code, format!("{} is not allowed by a guardrail", first.name)),
        (_, Code::ContextLength) => too_long(request, sieve),
        (_, Code::FreeVariantEnded) => {
            let mut error = PlanError::new(code, format!("{} is no longer free", first.name));
            error.fallback_models.push(first.model.id.to_string());
            error
        }
        (Some(Filter::Search), Code::Unsupported) => {
            let text = format!("Invalid request: no endpoint of {} can search the web as tools want it", first.name);
            PlanError::new(code, text)
        }
        (_, Code::Unsupported) => {
            let lacks = |parameter: &Parameter| {
                let last = of(0).next_back().map(|removed| filter::lacking(removed.endpoint, request));
                last.is_some_and(|lacks| lacks.contains(*parameter))
            };
            let lacks = filter::NATIVE_ONLY.into_iter().find(lacks);
            let name = lacks.map_or("a member", Parameter::as_str);
            let text = format!("Invalid request: {name} is not supported by any endpoint of {}", first.name);
            let mut error = PlanError::new(code, text);
            error.lacks = lacks;
            error
        }
        (None, Code::ConstraintFiltered) => {
            let mut error = PlanError::new(
                code,
                format!("No endpoints for {} satisfy {}", first.name, Filter::Unreachable.field()),
            );
            error.constraint =
                Some(Constraint { field: Filter::Unreachable.field(), detail: "there are none".to_owned() });
            error
        }
        _ => PlanError::no_endpoints(first.name),
    };
    for removed in &sieve.removed {
        if let Some(word) = removed.filter.excluded_by().filter(|word| !error.excluded_by.contains(word)) {
            error.excluded_by.push(word);
        }
        let is_reached = removed.filter != Filter::Unreachable && removed.filter != Filter::Tier;
        if is_reached && !error.affected_providers.contains(&removed.endpoint.provider) {
            error.affected_providers.push(removed.endpoint.provider.clone());
        }
        if is_reached && emptier(removed.wanted) == Some(removed.filter) {
            error.available.push(removed.endpoint.clone());
        }
    }
    error.total = sieve.total;
    error.strategy = first.strategy;
    error
}

fn constrained<'c, 's: 'c>(
    filter: Filter,
    request: &Request<'_>,
    model: &Wanted<'_>,
    removed: impl Iterator<Item = &'c Removed<'s>> + Clone,
) -> Box<PlanError> {
    let last = || removed.clone().filter(|removed| removed.filter == filter).map(|removed| removed.endpoint);
    let detail = match filter {
        Filter::Modality => {
            let lacks = |endpoint: &Arc<Endpoint>| request.needs.modalities.less(endpoint.modalities);
            listed(last().flat_map(|endpoint| lacks(endpoint).iter()).map(|modality| modality.as_str()))
        }
        Filter::Quantization => {
            format!("available: {}", listed(last().map(|endpoint| endpoint.quantization.as_str())))
        }
        Filter::Parameters => {
            let lacks = last().flat_map(|endpoint| filter::lacking(endpoint, request).iter());
            format!("not supported: {}", listed(lacks.map(|parameter| parameter.as_str())))
        }
        Filter::MaxPrice => {
            let prices = last().filter_map(|endpoint| {
                let pricing = endpoint.pricing.as_ref()?;
                let quote = pricing.quote(request.needs.input_tokens, endpoint.tier.name(), request.now);
                Some((quote.dollars(Unit::Input), quote.dollars(Unit::Output)))
            });
            match prices.min_by(|one, other| (one.0 + one.1).total_cmp(&(other.0 + other.1))) {
                Some((prompt, completion)) => format!("cheapest: prompt {prompt}, completion {completion}"),
                None => "no price is known".to_owned(),
            }
        }
        Filter::Tools => "no endpoint takes tools".to_owned(),
        Filter::Distillable => "the author does not allow distillation".to_owned(),
        filter => format!("taken out by {}", filter.field()),
    };
    let field = filter.field();
    let mut error =
        PlanError::new(Code::ConstraintFiltered, format!("No endpoints for {} satisfy {field}", model.name));
    error.constraint = Some(Constraint { field, detail });
    error
}

/// The endpoint that came nearest decides about the numbers.
fn too_long(request: &Request<'_>, sieve: &Sieve<'_>) -> Box<PlanError> {
    let too_short = sieve.removed.iter().filter(|removed| removed.filter == Filter::ContextLength);
    let largest = too_short.max_by_key(|removed| removed.endpoint.context_length);
    let (needed, most) =
        largest.map_or((0, 0), |removed| (filter::needed(removed.endpoint, request), removed.endpoint.context_length));
    let mut error =
        PlanError::new(Code::ContextLength, format!("prompt is too long: {needed} tokens > {most} maximum"));
    error.tokens = Some((needed, most));
    error
}

/// Whom the caller's lists allow, in the caller's words.
fn allowed(request: &Request<'_>) -> String {
    let preferences = request.preferences;
    let list = match (preferences.only.is_empty(), preferences.allow_fallbacks) {
        (false, _) => &preferences.only,
        (true, false) => &preferences.order,
        (true, true) => return "none".to_owned(),
    };
    let kept = list.iter().filter(|entry| !preferences.ignore.contains(entry));
    match listed(kept.map(|entry| &**entry)) {
        text if text.is_empty() => "none".to_owned(),
        text => text,
    }
}

/// Each once, in their order.
fn listed<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    let mut list: Vec<&str> = Vec::new();
    for text in texts {
        if !list.contains(&text) {
            list.push(text);
        }
    }
    list.join(", ")
}
