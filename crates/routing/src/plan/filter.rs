//! Who may not serve a request. Filters act one after the other, model by model, and remember whom they took out.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::error::Code;
use super::{Request, ServiceTier, Wanted};
use crate::byok;
use crate::catalogue::{Endpoint, Model, Tier};
use crate::preferences::{self, Match, MaxPrice};
use crate::price::Unit;
use crate::set::{Parameter, Parameters, Quantizations, Searcher, Variant};

pub(super) type Kept<'c> = SmallVec<[&'c Arc<Endpoint>; 4]>;

/// Parameters without which the answer would be wrong: they are never left out.
pub(super) const NATIVE_ONLY: [Parameter; 3] = [Parameter::Container, Parameter::McpServers, Parameter::Thread];

/// What takes an endpoint out, in the order in which it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter {
    /// Neither the operator nor the caller has a credential for it.
    Unreachable,
    /// A guardrail of the caller does not allow the model or the provider.
    Guardrail,
    /// Faster or slower than usual, and nobody asked for that; or the usual one where only slow ones are wanted.
    Tier,
    /// Costs something, and the name of the model says `:free`.
    Free,
    /// Has a shorter context than others, and the name of the model says `:extended`.
    Extended,
    Modality,
    Providers,
    Zdr,
    Training,
    Distillable,
    Quantization,
    ContextLength,
    OutputLimit,
    Parameters,
    MaxPrice,
    /// Takes no tools.
    Tools,
    /// Cannot search the web as the request wants it, and nobody does it in its place.
    Search,
    /// Lacks what a request cannot do without.
    NativeOnly,
    /// Does not take what others of the model take.
    Preferred,
}

impl Filter {
    /// Its word in the public vocabulary.
    pub fn excluded_by(self) -> Option<&'static str> {
        match self {
            Self::Providers => Some("allowed_providers"),
            Self::Zdr => Some("data_policy:zdr"),
            Self::Training => Some("data_policy:training"),
            Self::Quantization => Some("quantization"),
            Self::ContextLength => Some("context_length"),
            Self::Parameters | Self::Tools | Self::Search | Self::NativeOnly => Some("require_parameters"),
            Self::MaxPrice => Some("max_price"),
            Self::Unreachable | Self::Guardrail | Self::Tier | Self::Free | Self::Extended | Self::Modality => None,
            Self::Distillable | Self::OutputLimit | Self::Preferred => None,
        }
    }

    /// Its name: that of the public vocabulary where it has one.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "credential",
            Self::Guardrail => "guardrail",
            Self::Preferred => "supported_parameters",
            Self::OutputLimit => "max_tokens",
            Self::Tools => "tools",
            Self::NativeOnly => "native_only",
            Self::Search => "web_search",
            filter => filter.excluded_by().unwrap_or_else(|| filter.field()),
        }
    }

    /// Why it takes an endpoint out, said of that endpoint.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unreachable => "there is no credential to call it with",
            Self::Guardrail => "a guardrail does not allow it",
            Self::Tier => "its service tier was not asked for",
            Self::Free => "it is not free",
            Self::Extended => "another has a longer context",
            Self::Modality => "it does not take all kinds of input in the request",
            Self::Providers => "only, ignore or order leave it out",
            Self::Zdr => "it keeps data, and zero retention is asked for",
            Self::Training => "it may keep or train on data, and that is denied",
            Self::Distillable => "the model's author does not allow distillation",
            Self::Quantization => "its quantization is not among those asked for",
            Self::ContextLength => "the prompt and the answer are too long for it",
            Self::OutputLimit => "others can write a longer answer",
            Self::Parameters => "it lacks a parameter of the request",
            Self::MaxPrice => "it costs more than the request allows",
            Self::Tools => "it takes no tools",
            Self::Search => "it cannot search the web as the request wants it",
            Self::NativeOnly => "it lacks what the request cannot do without",
            Self::Preferred => "others take a parameter that it does not",
        }
    }

    /// What is said when it leaves nothing.
    pub(super) fn code(self) -> Code {
        match self {
            Self::Unreachable | Self::Tier | Self::Extended | Self::Providers => Code::NoEndpoints,
            Self::OutputLimit | Self::Preferred => Code::NoEndpoints,
            Self::Guardrail => Code::Guarded,
            Self::Free => Code::FreeVariantEnded,
            Self::Zdr | Self::Training => Code::PrivacyRestricted,
            Self::Modality | Self::Distillable | Self::Quantization => Code::ConstraintFiltered,
            Self::Parameters | Self::MaxPrice | Self::Tools => Code::ConstraintFiltered,
            Self::ContextLength => Code::ContextLength,
            Self::NativeOnly | Self::Search => Code::Unsupported,
        }
    }

    /// What of the request nobody satisfies.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Unreachable | Self::Guardrail | Self::OutputLimit | Self::Preferred => "model",
            Self::Tier => "service_tier",
            Self::Free => "free",
            Self::Extended => "extended",
            Self::Modality => "input_modalities",
            Self::Providers => "allowed_providers",
            Self::Zdr => "zdr",
            Self::Training => "data_collection",
            Self::Distillable => "enforce_distillable_text",
            Self::Quantization => "quantizations",
            Self::ContextLength => "context_length",
            Self::Parameters | Self::Search | Self::NativeOnly => "require_parameters",
            Self::MaxPrice => "max_price",
            Self::Tools => "tools",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Removed<'c> {
    /// Which of the wanted models it would have served.
    pub wanted: usize,
    pub filter: Filter,
    pub endpoint: &'c Arc<Endpoint>,
}

/// What was taken out, and how many there were before.
#[derive(Debug, Default)]
pub(super) struct Sieve<'c> {
    pub removed: SmallVec<[Removed<'c>; 4]>,
    pub total: usize,
}

/// The endpoints of a model that may serve the request.
pub(super) fn filter<'c>(request: &Request<'_>, wanted: usize, model: &Wanted<'c>, sieve: &mut Sieve<'c>) -> Kept<'c> {
    let (preferences, needs) = (request.preferences, &request.needs);
    let mut pass = Pass { wanted, kept: model.model.endpoints.iter().collect(), sieve };
    pass.keep(Filter::Unreachable, |endpoint| byok::is_reachable(endpoint, request.own));
    pass.sieve.total += pass.kept.len();
    if let Some(guard) = request.guard {
        pass.keep(Filter::Guardrail, |endpoint| guard.allows(model.model, model.variants, endpoint));
        if guard.zdr.covers(&model.model.id) {
            pass.keep(Filter::Zdr, |endpoint| byok::can_forget(endpoint, request.own));
        }
        pass.keep(Filter::Training, |endpoint| guard.may_train(endpoint));
    }
    // What nobody asked for is not there for this request: it must not hide why the others were taken out.
    pass.keep(Filter::Tier, |endpoint| is_admitted(endpoint, request, model));
    if model.variants.contains(Variant::Free) {
        pass.keep(Filter::Free, |endpoint| endpoint.pricing.as_ref().is_some_and(|pricing| pricing.is_free()));
    }
    if model.variants.contains(Variant::Extended) {
        let longest = pass.kept.iter().map(|endpoint| endpoint.context_length).max();
        pass.keep(Filter::Extended, |endpoint| Some(endpoint.context_length) == longest);
    }
    if !needs.modalities.is_empty() {
        pass.keep(Filter::Modality, |endpoint| endpoint.modalities.contains_all(needs.modalities));
    }
    if !(preferences.only.is_empty() && preferences.ignore.is_empty() && preferences.order.is_empty()) {
        pass.keep(Filter::Providers, |endpoint| is_allowed(endpoint, request));
    }
    if preferences.zdr {
        pass.keep(Filter::Zdr, |endpoint| byok::can_forget(endpoint, request.own));
    }
    if preferences.deny_collection {
        pass.keep(Filter::Training, |endpoint| byok::can_forget(endpoint, request.own) && !endpoint.policy.trains);
    }
    if preferences.distillable {
        pass.keep(Filter::Distillable, |_| model.model.distillable);
    }
    if preferences.quantizations != Quantizations::NONE {
        pass.keep(Filter::Quantization, |endpoint| preferences.quantizations.contains(endpoint.quantization));
    }
    pass.keep(Filter::ContextLength, |endpoint| {
        let needed = needed(endpoint, request);
        // What is made shorter should not lose more than half.
        let halved = needs.compression.is_for(endpoint) && needed <= length_of(endpoint).saturating_mul(2);
        halved || needed <= length_of(endpoint)
    });
    if let Some(asked) = needs.max_tokens {
        // Where nobody can write so much, those are left who can write most: the limit is lowered to theirs.
        let most = pass.kept.iter().map(|endpoint| limit_of(endpoint)).max().unwrap_or(u64::MAX);
        pass.keep(Filter::OutputLimit, |endpoint| limit_of(endpoint) >= asked.min(most));
    }
    if preferences.require_parameters {
        // Who holds no conversations is taken out further down, with an error that clients know what to do with.
        let required = needs.parameters.without(Parameter::Thread);
        pass.keep(Filter::Parameters, |endpoint| endpoint.parameters.contains_all(required));
    }
    if !preferences.max_price.is_empty() {
        pass.keep(Filter::MaxPrice, |endpoint| is_affordable(endpoint, request));
    }
    if needs.service_tier == ServiceTier::Flex && pass.kept.iter().any(|endpoint| endpoint.tier == Tier::Flex) {
        pass.keep(Filter::Tier, |endpoint| endpoint.tier == Tier::Flex || is_named(endpoint, request));
    }
    if needs.has_tools {
        pass.keep(Filter::Tools, |endpoint| {
            let is_told_nothing = needs.only_searches && endpoint.searcher == Searcher::Itself;
            is_told_nothing || endpoint.parameters.contains(Parameter::Tools)
        });
    }
    if let Some(searchers) = needs.searchers {
        pass.keep(Filter::Search, |endpoint| searchers.contains(endpoint.searcher));
    }
    for parameter in NATIVE_ONLY {
        if needs.parameters.contains(parameter) {
            pass.keep(Filter::NativeOnly, |endpoint| endpoint.parameters.contains(parameter));
        }
    }
    if needs.structured {
        pass.prefer(Parameter::StructuredOutputs);
    }
    if needs.parameters.contains(Parameter::Verbosity) {
        pass.prefer(Parameter::Verbosity);
    }
    pass.kept
}

/// Whether only those may serve a model who keep nothing of it.
pub(super) fn must_forget(request: &Request<'_>, model: &Model) -> bool {
    let wishes = request.preferences;
    wishes.zdr || wishes.deny_collection || request.guard.is_some_and(|guard| guard.zdr.covers(&model.id))
}

struct Pass<'p, 'c> {
    wanted: usize,
    kept: Kept<'c>,
    sieve: &'p mut Sieve<'c>,
}

impl Pass<'_, '_> {
    fn keep(&mut self, filter: Filter, stays: impl Fn(&Endpoint) -> bool) {
        let Self { wanted, kept, sieve } = self;
        kept.retain(|endpoint| {
            let stays = stays(endpoint);
            if !stays {
                sieve.removed.push(Removed { wanted: *wanted, filter, endpoint });
            }
            stays
        });
    }

    /// Leaves those who take a parameter, if there are any.
    fn prefer(&mut self, parameter: Parameter) {
        if self.kept.iter().any(|endpoint| endpoint.parameters.contains(parameter)) {
            self.keep(Filter::Preferred, |endpoint| endpoint.parameters.contains(parameter));
        }
    }
}

/// Whether an endpoint of another tier was asked for.
fn is_admitted(endpoint: &Endpoint, request: &Request<'_>, model: &Wanted<'_>) -> bool {
    let asked = request.needs.service_tier;
    // A variant sorts; where the caller gives the order, it does nothing at all.
    let by_variant = |variant: Variant| {
        model.variants.contains(variant) && request.preferences.order.is_empty() && asked != ServiceTier::Default
    };
    match endpoint.tier {
        Tier::Default => true,
        Tier::Priority => asked == ServiceTier::Priority || by_variant(Variant::Nitro) || is_named(endpoint, request),
        Tier::Flex => asked == ServiceTier::Flex || by_variant(Variant::Floor) || is_named(endpoint, request),
    }
}

/// Whether an endpoint is asked for by its own tag.
fn is_named(endpoint: &Endpoint, request: &Request<'_>) -> bool {
    let lists = request.preferences.only.iter().chain(&request.preferences.order);
    lists.into_iter().any(|entry| preferences::names(entry, endpoint) == Some(Match::Exact))
}

fn is_allowed(endpoint: &Endpoint, request: &Request<'_>) -> bool {
    let preferences = request.preferences;
    // Of what is left, an endpoint of another tier was asked for: here it belongs to its provider like all others.
    let lists = |list: &[Cow<'_, str>]| list.iter().any(|entry| preferences::names(entry, endpoint).is_some());
    (preferences.only.is_empty() || lists(&preferences.only))
        && !lists(&preferences.ignore)
        && (preferences.order.is_empty() || preferences.allow_fallbacks || lists(&preferences.order))
}

/// The tokens that must fit: the prompt, and the answer as far as the endpoint can write it.
pub(super) fn needed(endpoint: &Endpoint, request: &Request<'_>) -> u64 {
    let answer = request.needs.max_tokens.unwrap_or(1).min(limit_of(endpoint)).max(1);
    request.needs.input_tokens.saturating_add(answer)
}

fn length_of(endpoint: &Endpoint) -> u64 {
    if endpoint.context_length == 0 { u64::MAX } else { endpoint.context_length }
}

fn limit_of(endpoint: &Endpoint) -> u64 {
    if endpoint.max_output_tokens == 0 { u64::MAX } else { endpoint.max_output_tokens }
}

/// Whether nothing that is limited costs more. What has no known price may cost anything.
fn is_affordable(endpoint: &Endpoint, request: &Request<'_>) -> bool {
    let Some(pricing) = &endpoint.pricing else { return false };
    let quote = pricing.quote(request.needs.input_tokens, endpoint.tier.name(), request.now);
    let MaxPrice { prompt, completion, request, image, audio } = request.preferences.max_price;
    let limits = [
        (Unit::Input, prompt),
        (Unit::Output, completion),
        (Unit::Request, request),
        (Unit::Image, image),
        (Unit::InputAudio, audio),
    ];
    limits.into_iter().all(|(unit, most)| most.is_none_or(|most| !quote.exceeds(unit, most)))
}

/// The parameters that an endpoint lacks for the request.
pub(super) fn lacking(endpoint: &Endpoint, request: &Request<'_>) -> Parameters {
    request.needs.parameters.less(endpoint.parameters)
}
