//! The body of an error, in whichever shape its author gave it.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_wire::json::{self, Members};

use super::short_type;

/// The members of an error body, wherever its author put them.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub message: Option<String>,
    pub kind: Option<String>,
    pub code: Option<String>,
    pub details: Option<String>,
    /// The code of the failure behind this one: Azure, OpenRouter. Empty where there is none.
    pub inner: String,
    /// Anthropic's and Google's word for what is behind it. Empty where there is none.
    pub reason: String,
    /// How long Google asks to wait, as it writes it: `17s`.
    pub delay: Option<String>,
    /// It is no JSON but HTML.
    pub is_page: bool,
}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow, rename = "Message")]
    capital: Option<&'a RawValue>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
    #[serde(borrow)]
    msg: Option<&'a RawValue>,
    /// Cloudflare lists them.
    #[serde(borrow)]
    errors: Option<&'a RawValue>,
    /// Amazon's `__type` names the same thing.
    #[serde(borrow, rename = "__type")]
    amazon_type: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Inner<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    details: Option<&'a RawValue>,
    #[serde(borrow)]
    innererror: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl Body {
    pub fn read(body: &[u8]) -> Self {
        // Google wraps the error of a stream in a list of one.
        let listed: Option<Vec<&RawValue>> = serde_json::from_slice(body).ok();
        let body = listed.as_ref().and_then(|list| list.first()).map_or(body, |first| first.get().as_bytes());
        let Ok(outer) = serde_json::from_slice::<Outer<'_>>(body) else {
            return Self::unstructured(body.trim_ascii());
        };
        let inner = outer.error.and_then(|error| serde_json::from_str::<Inner<'_>>(error.get()).ok());
        match inner {
            Some(inner) => Self {
                message: text(inner.message).or_else(|| text(outer.message)),
                kind: text(inner.kind).or_else(|| text(inner.status)),
                code: text(inner.code),
                inner: named(inner.innererror, &["code"])
                    .or_else(|| named(inner.metadata, &["error_type", "provider_code"]))
                    .unwrap_or_default(),
                reason: inner.details.and_then(reason).unwrap_or_default(),
                delay: inner.details.and_then(delay),
                is_page: false,
                details: inner
                    .details
                    .filter(|details| details.get() != "null")
                    .map(|details| details.get().to_owned()),
            },
            None => Self {
                message: text(outer.error)
                    .or_else(|| text(outer.message))
                    .or_else(|| text(outer.capital))
                    .or_else(|| text(outer.detail))
                    .or_else(|| outer.detail.and_then(complaints))
                    .or_else(|| text(outer.msg))
                    .or_else(|| outer.errors.and_then(first)),
                kind: text(outer.kind).or_else(|| text(outer.amazon_type).map(|kind| short_type(&kind).to_owned())),
                code: text(outer.code),
                ..Self::default()
            },
        }
    }

    /// Of a body that is no object: a page, words as they are or in quotes, or something that broke off.
    fn unstructured(body: &[u8]) -> Self {
        let quoted = || serde_json::from_slice::<String>(body).ok();
        let words = match body.first() {
            Some(b'<') => return Self { is_page: true, ..Self::default() },
            Some(b'{' | b'[') | None => None,
            Some(b'"') => quoted(),
            Some(_) => std::str::from_utf8(body).ok().map(str::to_owned),
        };
        let is_binary = |words: &str| words.chars().any(|one| one.is_control() && !one.is_whitespace());
        Self { message: words.filter(|words| !words.trim().is_empty() && !is_binary(words)), ..Self::default() }
    }
}

/// The first of several errors: `[{"message":"…","code":5006}]`, or its words alone.
fn first(errors: &RawValue) -> Option<String> {
    let first = json::elements(errors)?.into_iter().next()?;
    text(Some(first)).or_else(|| named(Some(first), &["message"]))
}

/// The first of these members that is a text.
fn named(raw: Option<&RawValue>, names: &[&str]) -> Option<String> {
    let members = Members::of(raw?)?;
    names.iter().find_map(|name| text(members.get(name)))
}

/// Google's is in one of several details.
fn reason(details: &RawValue) -> Option<String> {
    let listed = || json::elements(details)?.into_iter().find_map(|detail| named(Some(detail), &["reason"]));
    named(Some(details), &["error_code"]).or_else(listed)
}

/// Google's hint is one of several details.
fn delay(details: &RawValue) -> Option<String> {
    let list = json::elements(details)?;
    list.into_iter().find_map(|detail| named(Some(detail), &["retryDelay"]))
}

/// What FastAPI says about each member it did not like: `[{"loc":["body","max_tokens"],"msg":"…","type":"…"}]`.
fn complaints(detail: &RawValue) -> Option<String> {
    let list = json::elements(detail)?;
    let said = list.into_iter().filter_map(|complaint| {
        let members = Members::of(complaint)?;
        let words = text(members.get("msg"))?;
        let place = members.get("loc").and_then(json::elements).unwrap_or_default();
        let place: Vec<&str> = place.into_iter().map(|step| step.get().trim_matches('"')).collect();
        Some(if place.is_empty() { words } else { format!("{}: {words}", place.join(".")) })
    });
    let said: Vec<String> = said.collect();
    if said.is_empty() { None } else { Some(said.join("; ")) }
}

/// Words that say something.
fn text(value: Option<&RawValue>) -> Option<String> {
    value.and_then(json::string).filter(|words| !words.trim().is_empty()).map(Into::into)
}
