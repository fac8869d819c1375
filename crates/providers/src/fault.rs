//! What an upstream's failure means: a class the attempt loop can act on, and what may be told to the client.

mod body;

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_core::secret::{KEY_STARTS, is_access_key_id};
use tidegate_wire::error::ErrorType;

use self::body::Body;
use crate::repair::behind_litellm;
use crate::retry;

/// Longest piece of a provider's own words that is handed on.
const LONGEST_MESSAGE: usize = 2_000;
/// What stands in the place of something that is not handed on.
pub(crate) const REMOVED: &str = "[removed]";

/// The kinds of failure that differ in what is done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    ContextLength,
    InvalidRequest,
    /// The request holds something that this endpoint has no form for.
    Unsupported,
    /// The request points at something that this endpoint needs the bytes of, and they could not be fetched.
    Media,
    ContentFilter,
    Credential,
    Billing,
    RateLimit,
    Overloaded,
    Timeout,
    Server,
    NotFound,
    TooLarge,
    /// A 200 that holds no message: HTML, nothing, broken JSON, an oversized event.
    BadResponse,
    EmptyCompletion,
    /// The model wrote a call that its server could not read, and neither can we.
    ToolGeneration,
    /// The connection could not be made or broke.
    Unreachable,
    /// Something of ours failed before the upstream was asked.
    Own,
    /// A customer's credential is stored and we cannot open it: nobody was asked.
    Sealed,
    Unmapped,
}

/// What the attempt loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    AnotherEndpoint,
    LargerEndpoint,
    AnotherModel,
}

/// An attempt's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub class: Class,
    /// The upstream's status; 0 when there was none.
    pub status: u16,
    /// The provider's own words, cut and cleaned of anything that looks like a credential or an address.
    pub message: Option<String>,
    /// The provider's own code.
    pub code: Option<String>,
    /// The provider's `error.details` as JSON text.
    pub details: Option<String>,
    pub retry_after: Option<Duration>,
    /// The upstream's own word on whether the same call is worth repeating.
    pub again: Option<bool>,
}

impl Class {
    pub fn next(self) -> Next {
        match self {
            Self::Unsupported
            | Self::Media
            | Self::Credential
            | Self::Billing
            | Self::RateLimit
            | Self::Overloaded
            | Self::Timeout
            | Self::Server
            | Self::NotFound
            | Self::BadResponse
            | Self::EmptyCompletion
            | Self::ToolGeneration
            | Self::Unreachable
            | Self::Own
            | Self::Sealed
            | Self::Unmapped => Next::AnotherEndpoint,
            Self::ContextLength | Self::TooLarge => Next::LargerEndpoint,
            Self::InvalidRequest | Self::ContentFilter => Next::AnotherModel,
        }
    }

    /// Whether the same call may well succeed a little later.
    pub fn is_passing(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Overloaded
            | Self::Timeout
            | Self::Server
            | Self::BadResponse
            | Self::EmptyCompletion
            | Self::ToolGeneration
            | Self::Own
            | Self::Sealed
            | Self::Unreachable => true,
            Self::ContextLength
            | Self::InvalidRequest
            | Self::Unsupported
            | Self::Media
            | Self::ContentFilter
            | Self::Credential
            | Self::Billing
            | Self::NotFound
            | Self::TooLarge
            | Self::Unmapped => false,
        }
    }

    /// The stable type of the class when the operator's own credential was used.
    pub fn error_type(self) -> ErrorType {
        match self {
            Self::ContextLength => ErrorType::ContextLengthExceeded,
            Self::InvalidRequest | Self::Unsupported => ErrorType::InvalidRequest,
            Self::Media => ErrorType::ImageDownloadFailed,
            Self::ContentFilter => ErrorType::ContentPolicyViolation,
            Self::RateLimit => ErrorType::RateLimitExceeded,
            Self::Overloaded => ErrorType::ProviderOverloaded,
            Self::Timeout => ErrorType::Timeout,
            Self::NotFound => ErrorType::NotFound,
            Self::TooLarge => ErrorType::PayloadTooLarge,
            Self::Credential
            | Self::Billing
            | Self::Server
            | Self::BadResponse
            | Self::EmptyCompletion
            | Self::ToolGeneration
            | Self::Unreachable => ErrorType::ProviderUnavailable,
            Self::Own | Self::Sealed => ErrorType::ProviderOverloaded,
            Self::Unmapped => ErrorType::Unmapped,
        }
    }
}

impl Fault {
    /// A failure without an answer.
    pub fn without_answer(class: Class) -> Self {
        let status = if class == Class::Timeout { 408 } else { 0 };
        Self { class, status, message: None, code: None, details: None, retry_after: None, again: None }
    }

    /// A failure of a 200 answer.
    pub fn in_answer(class: Class) -> Self {
        Self { status: 200, ..Self::without_answer(class) }
    }
}

/// Reads an error answer of a Messages upstream (and of the many servers that only resemble one).
pub fn classify(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Fault {
    let mut body = Body::read(body);
    // Amazon names the error here, with an address behind it.
    if let Some(kind) = headers.get("x-amzn-errortype").and_then(|kind| kind.to_str().ok()) {
        body.kind = Some(short_type(kind).to_owned());
    }
    let class = class(status.as_u16(), &body);
    Fault {
        class,
        status: status.as_u16(),
        retry_after: retry::after(headers, body.delay.as_deref(), body.message.as_deref(), now),
        again: match headers.get("x-should-retry").map(HeaderValue::as_bytes) {
            Some(b"true") => Some(true),
            Some(b"false") => Some(false),
            _ => None,
        },
        message: body.message.as_deref().map(cleaned),
        code: body.code.or(body.kind).filter(|code| is_code(code)),
        details: body.details.and_then(|details| harmless(&details)),
    }
}

/// Reads an `error` event inside a stream; `error` is the JSON of its error object.
pub fn classify_event(error: Option<&RawValue>, now: Timestamp) -> Fault {
    let text = error.map_or_else(|| "{}".to_owned(), |error| format!("{{\"error\":{}}}", error.get()));
    let body = Body::read(text.as_bytes());
    // The type stands in for the status that can no longer change; servers that only hand on what others say have a number.
    let by_type = || match body.kind.as_deref() {
        Some("invalid_request_error") => 400,
        Some("authentication_error") => 401,
        Some("billing_error") => 402,
        Some("permission_error") => 403,
        Some("not_found_error") => 404,
        Some("request_too_large") => 413,
        Some("rate_limit_error") => 429,
        Some("timeout_error") => 504,
        Some("overloaded_error") => 529,
        _ => 500,
    };
    let status = error.and_then(number).unwrap_or_else(by_type);
    let class = class(status, &body);
    Fault {
        class,
        status,
        retry_after: retry::after(&HeaderMap::new(), body.delay.as_deref(), body.message.as_deref(), now),
        again: None,
        message: body.message.as_deref().map(cleaned),
        code: body.code.or(body.kind).filter(|code| is_code(code)),
        details: body.details.and_then(|details| harmless(&details)),
    }
}

/// Reads an error object that came with a 200, in an answer or in a stream: its own number or word stands in for the
/// status.
pub fn classify_error(error: &RawValue, now: Timestamp) -> Fault {
    let number = number(error);
    let body = Body::read(format!("{{\"error\":{}}}", error.get()).as_bytes());
    let words = [body.code.as_deref(), body.kind.as_deref()];
    let says = |part: &str| words.iter().flatten().any(|word| word.to_lowercase().contains(part));
    let status = match number {
        Some(number) => number,
        // A store of theirs that timed out is a failure of theirs: no limit of this call ran out.
        _ if says("vector_store_timeout") => 500,
        _ if says("rate_limit") || says("resource_exhausted") => 429,
        _ if says("overloaded") || says("unavailable") => 503,
        _ if says("invalid_request") || says("invalid_prompt") || says("invalid_argument") => 400,
        // The Responses protocol has a code for each way in which an image can be wrong.
        _ if says("image") => 400,
        _ if says("authentication") || says("invalid_api_key") => 401,
        _ if says("timeout") || says("deadline") => 504,
        _ => 500,
    };
    let class = class(status, &body);
    Fault {
        class,
        status,
        retry_after: retry::after(&HeaderMap::new(), body.delay.as_deref(), body.message.as_deref(), now),
        again: None,
        message: body.message.as_deref().map(cleaned),
        code: body.code.or(body.kind).filter(|code| is_code(code)),
        details: None,
    }
}

/// Reads MiniMax's word on an answer, which may come with a 200 and stand for it: none where all went well.
pub fn classify_base(base: &RawValue, now: Timestamp) -> Option<Fault> {
    #[derive(Deserialize)]
    struct Base {
        status_code: u32,
        status_msg: Option<String>,
    }
    let Base { status_code, status_msg } =
        serde_json::from_str(base.get()).ok().filter(|base: &Base| base.status_code != 0)?;
    let (status, code) = match status_code {
        1002 => (429, None),
        1004 => (401, None),
        1008 => (402, None),
        // What came in, and what was to go out.
        1026 | 1027 => (400, Some("content_filter".to_owned())),
        _ => (500, None),
    };
    let body = Body { message: status_msg, code, ..Body::default() };
    let message = body.message.as_deref().map(cleaned);
    let retry_after = retry::after(&HeaderMap::new(), None, body.message.as_deref(), now);
    let code = Some(status_code.to_string());
    Some(Fault { class: class(status, &body), status, message, code, retry_after, ..Fault::in_answer(Class::Server) })
}

/// The status that an error object names itself.
fn number(error: &RawValue) -> Option<u16> {
    #[derive(Deserialize)]
    struct Numbered<'a> {
        #[serde(borrow, default)]
        code: Option<&'a RawValue>,
        #[serde(borrow, default)]
        status: Option<&'a RawValue>,
        #[serde(borrow, default)]
        status_code: Option<&'a RawValue>,
    }
    let numbered: Numbered<'_> = serde_json::from_str(error.get()).ok()?;
    let parse = |raw: Option<&RawValue>| raw?.get().trim_matches('"').parse::<u16>().ok();
    let number = parse(numbered.code).or_else(|| parse(numbered.status)).or_else(|| parse(numbered.status_code))?;
    (400..=599).contains(&number).then_some(number)
}

/// Reads an exception inside a binary stream: its name stands in for the status.
pub fn classify_exception(kind: &str, payload: &[u8]) -> Fault {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Original {
        original_status_code: Option<f64>,
        original_message: Option<String>,
    }
    let mut body = Body::read(payload);
    body.kind = Some(short_type(kind).to_owned());
    let original: Original = serde_json::from_slice(payload).unwrap_or_default();
    let named = amazon(short_type(kind));
    let status = match original.original_status_code {
        Some(status) if (400.0..600.0).contains(&status) => status as u16,
        _ => named.map_or(500, |(status, _)| status),
    };
    // The model's own failure tells more than the service that hands it on.
    if original.original_status_code.is_some() {
        body.message = original.original_message.or(body.message);
        body.kind = None;
    }
    Fault {
        class: class(status, &body),
        status,
        message: body.message.as_deref().map(cleaned),
        code: Some(short_type(kind).to_owned()).filter(|code| is_code(code)),
        ..Fault::in_answer(Class::Server)
    }
}

/// The name of an error without the address behind it and the namespace before it.
fn short_type(kind: &str) -> &str {
    let kind = kind.split(':').next().unwrap_or_default();
    kind.rsplit('#').next().unwrap_or_default().trim()
}

/// What Amazon's names mean, with the status they come with. Streams write them with a small letter.
fn amazon(kind: &str) -> Option<(u16, Class)> {
    let kind = kind.to_ascii_lowercase();
    Some(match kind.strip_suffix("exception").unwrap_or(&kind) {
        "validation" => (400, Class::InvalidRequest),
        "servicequotaexceeded" => (400, Class::Billing),
        "accessdenied"
        | "unrecognizedclient"
        | "expiredtoken"
        | "invalidsignature"
        | "missingauthenticationtoken"
        | "incompletesignature"
        | "requesttimetooskewed" => (403, Class::Credential),
        "resourcenotfound" => (404, Class::NotFound),
        "modeltimeout" => (408, Class::Timeout),
        "modelerror" | "modelstreamerror" => (424, Class::Server),
        "throttling" | "modelnotready" | "toomanyrequests" => (429, Class::RateLimit),
        "internalserver" | "internalfailure" | "internalerror" => (500, Class::Server),
        "serviceunavailable" => (503, Class::Overloaded),
        _ => return None,
    })
}

/// What Anthropic's 400 begins with when an account has nothing left, or may spend no more. Anywhere else they may be words
/// of the caller's, who must not put a credential to rest that others use.
const SPENT: [&str; 2] = ["your credit balance is too low", "you have reached your specified api usage limits"];

fn class(status: u16, body: &Body) -> Class {
    let words = body.message.as_deref().unwrap_or_default().to_lowercase();
    let code = body.code.as_deref().unwrap_or_default();
    let kind = body.kind.as_deref().unwrap_or_default();
    if matches!(status, 400 | 413 | 422 | 500) && is_context_length(&words, code, kind) {
        return Class::ContextLength;
    }
    let filtered = [
        "content_filter",
        "content_policy_violation",
        "ResponsibleAIPolicyViolation",
        "invalid_prompt",
        "bio_policy",
        "image_content_policy_violation",
        "moderation_blocked",
    ];
    let says = |word: &str| [code, kind, body.inner.as_str()].contains(&word);
    // The second and third are xAI's words.
    let moderation = ["moderation", "violates usage guidelines", "safety_check_type"];
    let moderated = status == 403 && (body.inner == "moderation" || moderation.iter().any(|said| words.contains(said)));
    if filtered.into_iter().any(says) || moderated || words.contains("rejected as a result of our safety system") {
        return Class::ContentFilter;
    }
    if let Some((_, class)) = amazon(kind) {
        return class;
    }
    if status == 400 && body.reason == "API_KEY_INVALID" {
        return Class::Credential;
    }
    // Google's words; the status says the same unless someone on the way has changed it.
    match kind {
        "RESOURCE_EXHAUSTED" => return Class::RateLimit,
        "UNAVAILABLE" => return Class::Overloaded,
        "UNAUTHENTICATED" | "PERMISSION_DENIED" => return Class::Credential,
        "DEADLINE_EXCEEDED" => return Class::Timeout,
        _ => {}
    }
    let own_words = behind_litellm(body.message.as_deref().unwrap_or_default()).to_lowercase();
    let spent = code == "insufficient_quota"
        || kind == "insufficient_quota"
        || body.reason == "enforced_spend_limit_reached"
        || (status == 400 && SPENT.iter().any(|said| own_words.starts_with(said)));
    if spent {
        return Class::Billing;
    }
    if status == 400 && code == "tool_use_failed" {
        return Class::ToolGeneration;
    }
    match status {
        // A page is what a wall on the way says; whose key it was plays no part.
        403 if body.is_page => Class::Server,
        401 | 403 | 498 => Class::Credential,
        402 => Class::Billing,
        404 => Class::NotFound,
        413 if code == "rate_limit_exceeded" => Class::RateLimit,
        413 => Class::TooLarge,
        429 => Class::RateLimit,
        503 | 529 => Class::Overloaded,
        408 | 499 | 504 | 524 => Class::Timeout,
        409 | 424 | 425 | 500..=502 | 520..=523 | 525 | 526 => Class::Server,
        400 | 422 => Class::InvalidRequest,
        _ => Class::Unmapped,
    }
}

fn is_context_length(words: &str, code: &str, kind: &str) -> bool {
    const SIGNATURES: [&str; 24] = [
        "tokens + `max_new_tokens` must be",
        "prompt is too long",
        "exceed context limit",
        "context_length_exceeded",
        "maximum context length",
        "exceeds the context window",
        "maximum prompt length",
        "model_max_prompt_tokens_exceeded",
        "exceeds the maximum number of tokens allowed",
        "input is too long for requested model",
        "too many input tokens",
        "expected maxlength",
        "exceed model maximum",
        "exceeds the available context size",
        "while limit is",
        "too large for model with",
        "too many tokens",
        "maximum input length is",
        // Moonshot, Together, MiniMax, LM Studio, DashScope, Ollama.
        "exceeded model token limit",
        "is longer than the model's context length",
        "context window exceeds limit",
        "greater than the context length",
        "range of input length should be",
        "exceeded max context length",
    ];
    if words.contains("string_above_max_length")
        || code == "string_above_max_length"
        || words.contains("tokens per minute")
    {
        return false;
    }
    code == "context_length_exceeded"
        || kind == "exceed_context_size_error"
        || SIGNATURES.iter().any(|signature| words.contains(signature))
}

/// A provider's code is a short word; anything else is not handed on.
pub(crate) fn is_code(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
        && !is_sensitive(text)
}

/// Details on one line, or nothing when any part of them looks like a credential or an address: they are JSON, so a
/// part cannot simply be blotted out.
fn harmless(details: &str) -> Option<String> {
    if details.len() > LONGEST_MESSAGE || details.contains("://") {
        return None;
    }
    let mut words = details.split(|c: char| !(c.is_ascii_alphanumeric() || "-_.+/=".contains(c)));
    if words.any(is_sensitive) {
        return None;
    }
    // A line break in JSON text can only stand between its tokens.
    Some(details.replace(['\n', '\r'], " "))
}

/// The provider's words as a client may see them.
pub(crate) fn cleaned(message: &str) -> String {
    let mut out = String::with_capacity(message.len().min(LONGEST_MESSAGE));
    let mut after_bearer = false;
    for part in message.split_inclusive(char::is_whitespace) {
        let word = part.trim_end();
        let is_token = std::mem::replace(&mut after_bearer, bare(word).eq_ignore_ascii_case("bearer"));
        if !word.is_empty() && (is_token || is_sensitive(word)) {
            out.push_str(REMOVED);
            out.push_str(&part[word.len()..]);
        } else {
            out.push_str(part);
        }
    }
    if let Some((cut, _)) = out.char_indices().nth(LONGEST_MESSAGE) {
        out.truncate(cut);
    }
    out
}

/// Keys, bearer tokens and addresses of machines, alone or inside of `name=value` and quotes.
fn is_sensitive(word: &str) -> bool {
    let is_secret = |piece: &str| {
        let piece = bare(piece);
        let looks_like_key = KEY_STARTS.iter().any(|start| piece.starts_with(start)) && piece.len() >= 12;
        let is_long =
            piece.len() >= 40 && piece.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+/=".contains(&byte));
        looks_like_key || (is_long && !is_named(piece)) || is_access_key_id(piece)
    };
    word.contains("://") || is_secret(word) || word.split(|c: char| "=:,;\"'`()[]{}<>".contains(c)).any(is_secret)
}

/// Whether this is made of words, as paths of a request and names of tools and models are: `tools.0.custom.input_schema`. What
/// was drawn at random has digits between its letters, or capitals beside each other.
fn is_named(piece: &str) -> bool {
    /// The digits of a day, as in names of models.
    const DAY: usize = 8;
    let count = |is: fn(&u8) -> bool| piece.bytes().filter(is).count();
    let (digits, letters) = (count(u8::is_ascii_digit), count(u8::is_ascii_alphabetic));
    let capitals = count(u8::is_ascii_uppercase);
    let is_part = |part: &str| {
        let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
        // As in gpt-4o and llama-70b.
        let size = part.strip_suffix(|c: char| c.is_ascii_lowercase());
        (part.len() - name.len() <= DAY && is_worded(name))
            || size.is_some_and(|size| size.len() <= 3 && size.bytes().all(|byte| byte.is_ascii_digit()))
    };
    !piece.contains('+')
        && digits * 2 <= letters
        && (capitals * 4 <= letters || capitals == letters)
        && piece.split(|c: char| !c.is_ascii_alphanumeric()).all(is_part)
}

/// `schema`, `SCHEMA`, or `inputSchema`.
fn is_worded(name: &str) -> bool {
    const LONGEST: usize = 20;
    let is_capital = |byte: &u8| byte.is_ascii_uppercase();
    let (bytes, capitals) = (name.as_bytes(), name.bytes().filter(u8::is_ascii_uppercase).count());
    let is_camel = capitals * 3 <= bytes.len()
        && !bytes.windows(2).any(|pair| pair.iter().all(is_capital))
        && bytes.split(is_capital).all(|rest| rest.len() <= LONGEST);
    bytes.iter().all(u8::is_ascii_alphabetic) && (is_camel || (capitals == bytes.len() && capitals <= LONGEST))
}

fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests;
