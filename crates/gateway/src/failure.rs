//! What a client is told when there is no answer: status, stable type, exact text. Nothing else turns causes into words.

mod decisive;

use std::borrow::Cow;
use std::fmt::Write as _;

use http::HeaderMap;
use tidegate_core::{GenerationId, Timestamp};
use tidegate_providers::translate::MODEL;
use tidegate_providers::translate::intent::NO_PREFILL;
use tidegate_providers::{Class, Fault};
use tidegate_routing::plan::Code;
use tidegate_routing::{Parameter, Plan, PlanError};
use tidegate_wire::envelope::Violation;
use tidegate_wire::error::{ErrorType, InferenceError, MessagesError};
use tidegate_wire::json::quoted;

use crate::snapshot::Settings;
use decisive::{decisive, latest};

/// A refused or failed request.
#[derive(Clone, Debug)]
pub struct Failure {
    pub status: u16,
    pub error_type: ErrorType,
    pub message: Cow<'static, str>,
    /// Seconds.
    pub retry_after: Option<u64>,
    /// Only when it was a limit of ours that refused, never for what providers could not take.
    pub limited: Option<Limited>,
    /// Whether an account, a limit or a budget of ours does not reach. A provider who wants money is something else.
    pub is_unpaid: bool,
    /// What calls under way hold would do, and most of it comes back: another try may go through.
    pub is_held: bool,
    /// Output that could be paid for, where that is why.
    pub affordable: u64,
    pub generation: Option<GenerationId>,
    /// What only failures of upstreams and plans have.
    pub more: Option<Box<More>>,
}

/// The limit of ours that a request ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    pub limit: u64,
    /// When another try may go through.
    pub reset: Timestamp,
}

/// Further members of an error body, as JSON texts.
#[derive(Clone, Debug, Default)]
pub struct More {
    pub availability: Option<String>,
    pub details: Option<String>,
    pub metadata: Option<String>,
    pub routing: Option<String>,
    /// What the head of the answer says besides.
    pub headers: HeaderMap,
}

impl Failure {
    pub fn new(status: u16, error_type: ErrorType, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self {
            status,
            error_type,
            message,
            retry_after: None,
            limited: None,
            is_unpaid: false,
            is_held: false,
            affordable: 0,
            generation: None,
            more: None,
        }
    }

    pub fn more_mut(&mut self) -> &mut More {
        self.more.get_or_insert_with(Box::default)
    }

    pub fn metadata(&self) -> Option<&str> {
        self.more.as_ref()?.metadata.as_deref()
    }

    fn with_availability(mut self, availability: String) -> Self {
        self.more_mut().availability = Some(availability);
        self
    }

    /// Said in Anthropic's own words: its client then goes on without the thread and sends all that was said. `what` is
    /// what does not go together with one.
    fn with_thread(mut self, what: &str) -> Self {
        let details = format!(r#"{{"error_code":"thread_unsupported_request","unsupported":["{what}"]}}"#);
        self.more_mut().details = Some(details);
        self
    }

    /// A thread is wanted where the gateway itself runs tools: the upstream would hold turns that the client never sees.
    pub fn thread_with_tools() -> Self {
        Self::invalid("Invalid request: thread cannot be combined with tools that the gateway runs")
            .with_thread("tools")
    }

    pub fn missing_credential() -> Self {
        Self::new(401, ErrorType::Authentication, "Missing Authentication header")
    }

    pub fn invalid_key() -> Self {
        Self::new(401, ErrorType::Authentication, "Invalid API key")
    }

    pub fn not_for_inference() -> Self {
        Self::new(403, ErrorType::PermissionDenied, "Management keys cannot be used for inference")
    }

    pub fn management_only() -> Self {
        Self::new(403, ErrorType::PermissionDenied, "Only management keys can perform this operation")
    }

    /// Refused by a limit of ours that is free again at `reset`.
    pub fn rate_limited(limit: u64, reset: Timestamp, now: Timestamp) -> Self {
        let wait = reset.since(now).as_millis().div_ceil(1000).max(1);
        Self {
            retry_after: Some(u64::try_from(wait).unwrap_or(u64::MAX)),
            limited: Some(Limited { limit, reset }),
            ..Self::new(429, ErrorType::RateLimitExceeded, "Rate limit exceeded")
        }
    }

    /// Our own fault or our own protection, never the caller's mistake.
    pub fn unavailable() -> Self {
        let message = "Service temporarily unavailable";
        Self { retry_after: Some(1), ..Self::new(503, ErrorType::ProviderOverloaded, message) }
    }

    /// What a stream ends with that costs more than there is.
    pub fn exhausted() -> Self {
        Self::new(402, ErrorType::PaymentRequired, "Insufficient credits")
    }

    pub fn internal() -> Self {
        Self::new(500, ErrorType::Server, "Internal server error")
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, ErrorType::InvalidRequest, message.into())
    }

    pub fn too_large() -> Self {
        Self::new(413, ErrorType::PayloadTooLarge, "Request payload too large")
    }

    pub fn too_slow() -> Self {
        Self::new(408, ErrorType::Timeout, "Operation timed out. Please try again later.")
    }

    /// The Messages envelope. `brand` names the routing metadata.
    pub fn messages_json(&self, brand: &str) -> String {
        let member = format!("{brand}_metadata");
        let more = self.more.as_deref();
        MessagesError {
            error_type: self.error_type,
            message: &self.message,
            availability: more.and_then(|more| more.availability.as_deref()),
            details: more.and_then(|more| more.details.as_deref()),
            request_id: self.generation.as_ref().map(GenerationId::as_str),
            metadata: more.and_then(|more| more.metadata.as_deref()),
            routing: more.and_then(|more| more.routing.as_deref()).map(|routing| (member.as_str(), routing)),
        }
        .to_json()
    }

    /// The general envelope of what calls a model.
    pub fn inference_json(&self, brand: &str) -> String {
        let member = format!("{brand}_metadata");
        let more = self.more.as_deref();
        InferenceError {
            code: self.status,
            error_type: self.error_type,
            message: self.general_message(),
            metadata: self.metadata(),
            availability: more.and_then(|more| more.availability.as_deref()),
            routing: more.and_then(|more| more.routing.as_deref()).map(|routing| (member.as_str(), routing)),
        }
        .to_json()
    }

    /// The same text as on the Messages surface but for the capitals of one.
    pub fn general_message(&self) -> &str {
        if self.status == 500 { "Internal Server Error" } else { &self.message }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::new(400, violation.error_type, violation.message)
    }
}

/// No attempt could be planned.
pub fn from_plan(error: &PlanError, requested: &[&str], settings: &Settings) -> Failure {
    let error_type = match error.code {
        Code::ModelNotFound | Code::Unsupported => ErrorType::InvalidRequest,
        Code::ContextLength => ErrorType::ContextLengthExceeded,
        Code::Guarded => ErrorType::PermissionDenied,
        Code::NoEndpoints | Code::PrivacyRestricted | Code::ConstraintFiltered | Code::FreeVariantEnded => {
            ErrorType::NotFound
        }
    };
    let mut failure = Failure::new(error.code.status(), error_type, error.message.clone());
    if let Some(code) = error.code.as_str() {
        let providers: Vec<&str> = error.affected_providers.iter().map(|slug| &**slug).collect();
        let models: Vec<&str> = error.fallback_models.iter().map(String::as_str).collect();
        let constraint = error.constraint.as_ref().map(|constraint| (constraint.field, constraint.detail.as_str()));
        let why = Why { providers: &providers, excluded_by: &error.excluded_by, fallback_models: &models, constraint };
        failure = failure.with_availability(availability(code, false, None, requested, &why, settings));
    }
    if error.lacks == Some(Parameter::Thread) {
        failure = failure.with_thread("model");
    }
    if let Some((needed, most)) = error.tokens {
        let model = quoted(requested.first().copied().unwrap_or_default());
        let metadata = format!(r#"{{"needed_tokens":{needed},"max_tokens":{most},"model_slug":{model}}}"#);
        failure.more_mut().metadata = Some(metadata);
    }
    failure
}

/// The model is of another kind than the operation makes something with; `detail` says what it does not do.
pub fn wrong_endpoint(model: &str, detail: &str, settings: &Settings) -> Failure {
    let why = Why { constraint: Some(("model", detail)), ..Why::default() };
    let text = format!("{model} is not available on this endpoint");
    let failure = Failure::new(400, ErrorType::InvalidRequest, text);
    failure.with_availability(availability("wrong_endpoint", false, None, &[model], &why, settings))
}

/// Said of a file that is not there for who names it.
pub fn file_not_found(id: &str) -> String {
    format!("File not found: {id}")
}

/// All attempts failed: the most useful of their stories.
pub fn from_attempts(failed: &[(usize, Fault)], plan: &Plan, requested: &[&str], settings: &Settings) -> Failure {
    let faults = &latest(failed)[..];
    let Some((index, last)) = decisive(faults, plan) else { return Failure::internal() };
    let endpoint = &plan.attempts[*index].endpoint;
    let is_byok = plan.attempts[*index].credential.is_some();
    let provider = &endpoint.provider_name;
    let model = requested.first().copied().unwrap_or_default();
    let retry_after = faults
        .iter()
        .filter_map(|(_, fault)| fault.retry_after)
        .min()
        .map(|wait| wait.as_secs_f64().ceil().max(1.0) as u64);
    let mut providers: Vec<&str> = Vec::new();
    for (index, _) in faults {
        let slug = &*plan.attempts[*index].endpoint.provider;
        if !providers.contains(&slug) {
            providers.push(slug);
        }
    }
    let why = Why { providers: &providers, ..Why::default() };
    let availability = |code, retryable| availability(code, retryable, retry_after, requested, &why, settings);
    let all = |class: Class| faults.iter().all(|(_, fault)| fault.class == class);
    let mut failure = match last.class {
        Class::ContextLength | Class::InvalidRequest | Class::ContentFilter | Class::TooLarge => mistake(last),
        // Ours, not the provider's: it names what to change.
        Class::Unsupported => {
            let is = |kind: ErrorType| last.code.as_deref() == Some(kind.as_str());
            let kind = if is(ErrorType::InvalidPrompt) { ErrorType::InvalidPrompt } else { ErrorType::InvalidRequest };
            // Programs know these texts as they are.
            match words(last) {
                words if is(ErrorType::NotFound) => Failure::new(404, ErrorType::NotFound, words),
                words if words == NO_PREFILL => Failure::new(400, kind, words),
                words => Failure::new(400, kind, format!("Invalid request: {}", words.replace(MODEL, model))),
            }
        }
        // One text for every cause: who asks must not learn what is behind our wall.
        Class::Media => Failure::new(400, ErrorType::ImageDownloadFailed, words(last)),
        // The customer's own credential: they can mend it. Not 401, which would look like the key they called with.
        Class::Credential if is_byok && is_gone(last) => {
            // Taken away between plan and call, and there is nothing else.
            Failure::new(404, ErrorType::NotFound, format!("No endpoints found for {model}"))
                .with_availability(availability("no_endpoints", false))
        }
        Class::Credential if is_byok => {
            let text = match &last.message {
                Some(flaw) if last.status == 0 => format!("The {provider} credential cannot be used: {flaw}"),
                _ => format!("The {provider} credential was rejected by the provider (HTTP {})", last.status),
            };
            Failure::new(403, ErrorType::PermissionDenied, text)
        }
        Class::Own => Failure::unavailable(),
        Class::Sealed => {
            let message = format!("The stored {provider} credential cannot be opened at the moment");
            Failure { message: message.into(), ..Failure::unavailable() }
        }
        Class::Billing if is_byok => {
            Failure::new(402, ErrorType::PaymentRequired, format!("The {provider} account has insufficient credits"))
        }
        _ if all(Class::RateLimit) => {
            let wait = retry_after.map(|seconds| format!(", retry after {seconds} s")).unwrap_or_default();
            let text = format!("{model}: no provider has capacity{wait}");
            Failure::new(429, ErrorType::RateLimitExceeded, text)
                .with_availability(availability("capacity_exhausted", true))
        }
        _ if all(Class::NotFound) => {
            let text = format!("{model} was not found at any provider");
            Failure::new(404, ErrorType::NotFound, text)
                .with_availability(availability("model_unavailable_upstream", false))
        }
        // Trying again later helps only where at least one of them failed for a reason that passes.
        _ if faults.len() > 1 && faults.iter().any(|(_, fault)| fault.class.is_passing()) => {
            let text = format!("{model}: no provider is reachable at the moment");
            Failure::new(503, ErrorType::ProviderOverloaded, text)
                .with_availability(availability("temporarily_unavailable", true))
        }
        Class::Overloaded => {
            // One candidate: its own overload is handed through.
            let status = if last.status == 529 { 529 } else { 503 };
            Failure::new(status, ErrorType::ProviderOverloaded, "Provider is temporarily overloaded")
        }
        Class::Timeout => Failure::new(504, ErrorType::Timeout, "Timed out waiting for the provider"),
        Class::Unmapped => Failure::new(500, ErrorType::Unmapped, "Internal server error"),
        Class::RateLimit
        | Class::NotFound
        | Class::Credential
        | Class::Billing
        | Class::Server
        | Class::BadResponse
        | Class::EmptyCompletion
        | Class::ToolGeneration
        | Class::Unreachable => Failure::new(502, ErrorType::ProviderUnavailable, "Provider returned error"),
    };
    failure.retry_after =
        failure.retry_after.or_else(|| retry_after.filter(|_| matches!(failure.status, 429 | 503 | 529)));
    if failure.status != 500 {
        // A masked failure keeps the provider's details to itself as well.
        if failure.status < 500 {
            failure.more_mut().details.clone_from(&last.details);
        }
        failure.more_mut().metadata = Some(metadata(failed, plan, last, &endpoint.provider_name));
    }
    failure
}

/// Whether a credential was not used because it is there no more; of one that cannot be used something is said.
fn is_gone(fault: &Fault) -> bool {
    fault.status == 0 && fault.message.is_none()
}

/// What the provider said of the request, in its own words.
fn mistake(fault: &Fault) -> Failure {
    let told = |words: &str| format!("Provider returned error: {words}");
    match fault.class {
        Class::ContextLength => {
            let words = words(fault);
            let text =
                if words.starts_with("prompt is too long: ") { words } else { format!("prompt is too long: {words}") };
            Failure::new(400, ErrorType::ContextLengthExceeded, text)
        }
        Class::ContentFilter => {
            let words = fault.message.as_deref().unwrap_or("content policy");
            Failure::new(400, ErrorType::ContentPolicyViolation, told(words))
        }
        Class::TooLarge => Failure::too_large(),
        _ if fault.status == 422 => Failure::new(422, ErrorType::Unprocessable, told(&words(fault))),
        _ => Failure::new(400, ErrorType::InvalidRequest, told(&words(fault))),
    }
}

fn words(fault: &Fault) -> String {
    fault.message.clone().unwrap_or_else(|| "the request was rejected".to_owned())
}

/// A break after content: the in-band error.
pub fn in_stream(fault: &Fault, provider: &str) -> Failure {
    let error_type = fault.class.error_type();
    let mut failure = match fault.class {
        Class::ContextLength | Class::InvalidRequest | Class::ContentFilter | Class::TooLarge => mistake(fault),
        Class::Overloaded => Failure::new(529, error_type, "Provider is temporarily overloaded"),
        Class::Timeout => Failure::new(504, error_type, "Timed out waiting for the provider"),
        Class::RateLimit => Failure::new(429, error_type, "Rate limit exceeded"),
        _ => Failure::new(502, error_type, "Provider returned error"),
    };
    let more = failure.more_mut();
    more.details.clone_from(&fault.details);
    // What nobody can name keeps its code to itself.
    if fault.class != Class::Unmapped {
        more.metadata = Some(named(provider, fault) + "}");
    }
    failure
}

/// Who failed, and the code that it gave; the object is open.
fn named(provider: &str, fault: &Fault) -> String {
    let code = fault.code.as_deref().map(|code| format!(r#","provider_code":{}"#, quoted(code))).unwrap_or_default();
    format!(r#"{{"provider_name":{}{code}"#, quoted(provider))
}

fn metadata(faults: &[(usize, Fault)], plan: &Plan, last: &Fault, provider: &str) -> String {
    let mut out = named(provider, last);
    if faults.len() > 1 {
        let errors: Vec<String> = faults
            .iter()
            .map(|(index, fault)| {
                let slug = quoted(&plan.attempts[*index].endpoint.provider);
                format!(r#"{{"provider":{slug},"code":"{}","status":{}}}"#, code_of(fault), fault.status)
            })
            .collect();
        let _ = write!(out, r#","previous_errors":[{}]"#, errors.join(","));
    }
    out.push('}');
    out
}

/// An availability code where one fits, else the error type.
fn code_of(fault: &Fault) -> &'static str {
    match fault.class {
        Class::RateLimit => "capacity_exhausted",
        Class::NotFound => "model_unavailable_upstream",
        class => class.error_type().as_str(),
    }
}

/// What an availability object says besides its code.
#[derive(Default)]
struct Why<'a> {
    /// Who was tried or taken out.
    providers: &'a [&'a str],
    excluded_by: &'a [&'a str],
    fallback_models: &'a [&'a str],
    constraint: Option<(&'a str, &'a str)>,
}

fn availability(
    code: &str,
    retryable: bool,
    retry_after: Option<u64>,
    requested: &[&str],
    why: &Why<'_>,
    settings: &Settings,
) -> String {
    let list = |items: &[&str]| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(",");
    let mut out = format!(r#"{{"code":"{code}","retryable":{retryable}"#);
    // Nobody is to wait for what another try does not change.
    if let Some(seconds) = retry_after.filter(|_| retryable) {
        let _ = write!(out, r#","retry_after":{seconds}"#);
    }
    let lists = [
        ("affected_providers", why.providers),
        ("excluded_by", why.excluded_by),
        ("fallback_models", why.fallback_models),
    ];
    let _ = write!(out, r#","requested_models":[{}]"#, list(requested));
    for (name, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
        let _ = write!(out, r#","{name}":[{}]"#, list(items));
    }
    if let Some((field, detail)) = why.constraint {
        let _ = write!(out, r#","constraint":{{"field":{},"detail":{}}}"#, quoted(field), quoted(detail));
    }
    let _ = write!(out, r#","docs_url":{}}}"#, quoted(&format!("{}/errors#{code}", settings.docs_url)));
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tidegate_routing::{Attempt, Credential, Endpoint, Strategy, Variants};

    /// What a customer is told whose own credential failed so, and nobody else is there.
    fn told(fault: Fault) -> (u16, String) {
        let endpoint = Endpoint { provider_name: "Google Vertex".into(), ..Endpoint::new("google/m", "google-vertex") };
        let attempt = Attempt {
            endpoint: Arc::new(endpoint),
            credential: Some(Arc::new(Credential::new("c", "google-vertex"))),
            model: 0,
            strategy: Strategy::Direct,
            variants: Variants::NONE,
        };
        let plan = Plan { attempts: vec![attempt], total: 1, too_short: 0, strategy: Strategy::Direct };
        let failure = from_attempts(&[(0, fault)], &plan, &["google/m"], &Settings::default());
        (failure.status, failure.message.into_owned())
    }

    #[test]
    fn a_credential_that_was_refused_is_told_apart_from_one_that_is_gone() {
        let refused = |status| Fault { status, ..Fault::without_answer(Class::Credential) };
        for status in [400, 401, 403] {
            let text = format!("The Google Vertex credential was rejected by the provider (HTTP {status})");
            assert_eq!(told(refused(status)), (403, text));
        }
        let flawed = Fault { message: Some("rotate it".to_owned()), ..refused(0) };
        let text = "The Google Vertex credential cannot be used: rotate it".to_owned();
        assert_eq!(told(flawed), (403, text));
        assert_eq!(told(refused(0)), (404, "No endpoints found for google/m".to_owned()));
    }

    #[test]
    fn a_limit_of_ours_says_when_it_is_free_again_in_whole_seconds_from_one() {
        let now = Timestamp(1_790_000_000_000);
        let wait = |ms: i64| Failure::rate_limited(10, Timestamp(now.0 + ms), now).retry_after;
        assert_eq!(
            [wait(-5), wait(0), wait(1), wait(1_000), wait(1_001), wait(60_000)].map(Option::unwrap),
            [1, 1, 1, 1, 2, 60]
        );
    }
}
