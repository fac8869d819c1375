//! The Messages protocol, spoken natively: the body goes out as it came, so there is little to say here. What a platform
//! or a model wants otherwise is in [`edit`]; which betas get through is in [`beta`].

pub mod beta;
pub mod edit;

mod gated;
mod held;
mod invoke;
mod made;
mod marker;
mod mend;
mod merge;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, HeaderName};
use tidegate_core::{Money, Usage};
use tidegate_wire::answer::{Counts, by_lifetime};

use tidegate_wire::json::quoted;

use crate::platform::Carriage;
use crate::translate::Card;
use crate::translate::card::Sampling;

pub use invoke::InvokeDecoder;
pub use mend::{Mender, Signer, mended};

pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
pub const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const DEFAULT_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What the client sent that a native upstream gets to see; nothing else is forwarded.
#[derive(Clone, Debug, Default)]
pub struct Forwarded {
    pub version: Option<HeaderValue>,
    pub beta: Option<HeaderValue>,
    pub idempotency_key: Option<HeaderValue>,
}

/// The headers of a call, but for its credential. `beta` is what is left of the client's own values.
pub fn headers(forwarded: &Forwarded, carriage: Carriage, beta: Option<HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(CONTENT_TYPE, JSON);
    if carriage == Carriage::BedrockInvoke {
        // Version and betas stand in the body there.
        headers.insert(ACCEPT, JSON);
        return headers;
    }
    headers.insert(VERSION, forwarded.version.clone().unwrap_or(DEFAULT_VERSION));
    if let Some(beta) = beta {
        headers.insert(BETA, beta);
    }
    if let Some(key) = &forwarded.idempotency_key {
        headers.insert(IDEMPOTENCY_KEY, key.clone());
    }
    headers
}

/// The members that stand in the body where a reseller has no headers for them: the version and the betas.
pub fn added(carriage: Carriage, version: Option<&str>, card: &Card, betas: &[&str]) -> String {
    const NEW: &str = "2026-10-21";
    let is_new = version == Some(NEW);
    let version = match carriage {
        // The new version takes no sampling; older models know only the old one.
        Carriage::BedrockInvoke if is_new && card.sampling == Sampling::None => NEW,
        Carriage::BedrockInvoke => "bedrock-2023-05-31",
        Carriage::Vertex | Carriage::Plain if is_new => NEW,
        Carriage::Vertex | Carriage::Plain => "vertex-2023-10-16",
    };
    let listed = match carriage {
        Carriage::BedrockInvoke if !betas.is_empty() => {
            let list: Vec<String> = betas.iter().map(|beta| quoted(beta)).collect();
            format!(r#","anthropic_beta":[{}]"#, list.join(","))
        }
        _ => String::new(),
    };
    format!(r#""anthropic_version":"{version}"{listed}"#)
}

/// All `anthropic-beta` and `x-anthropic-beta` values: split, trimmed, each once, in order.
pub fn merged_betas(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(BETA).iter().chain(headers.get_all("x-anthropic-beta").iter());
    let mut merged: Vec<&str> = Vec::new();
    for beta in values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim) {
        if !beta.is_empty() && !merged.contains(&beta) {
            merged.push(beta);
        }
    }
    if merged.is_empty() { None } else { HeaderValue::from_maybe_shared(Bytes::from(merged.join(","))).ok() }
}

/// Counts in the Messages convention as disjoint buckets: no part is more than its whole, whatever was reported.
pub fn usage(counts: &Counts) -> Usage {
    let more = counts.more.unwrap_or_default();
    let (short, long) = by_lifetime(counts.cache_write, counts.cache_write_5m, counts.cache_write_1h);
    let (input, output) = (counts.input.unwrap_or(0), counts.output.unwrap_or(0));
    let [input_image, input_audio] = parts(input, [counts.input_image, counts.input_audio]);
    let [thinking, output_image, output_audio] =
        parts(output, [counts.thinking, counts.output_image, counts.output_audio]);
    let mut usage = Usage {
        input: input.saturating_add(more.input),
        output: output.saturating_add(more.output),
        cache_read: counts.cache_read.unwrap_or(0).saturating_add(more.cache_read),
        cache_write: short.saturating_add(more.cache_write),
        cache_write_1h: long.saturating_add(more.cache_write_1h),
        thinking,
        input_image,
        input_audio,
        output_image,
        output_audio,
        web_searches: counts.web_searches.unwrap_or(0),
        web_fetches: counts.web_fetches.unwrap_or(0),
        ..Usage::default()
    };
    usage.billed_input = counts.billed_input.map(|billed| billed.min(usage.prompt()));
    usage.billed_output = counts.billed_output.map(|billed| billed.min(usage.output));
    usage
}

/// What the upstream says that an answer cost.
pub fn reported_cost(counts: &Counts) -> Option<Money> {
    Money::parse(counts.cost.as_ref()?.as_str()).ok()
}

/// Parts of a whole, together at most that.
fn parts<const N: usize>(whole: u64, parts: [Option<u64>; N]) -> [u64; N] {
    let mut rest = whole;
    parts.map(|part| {
        let part = part.unwrap_or(0).min(rest);
        rest -= part;
        part
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire::answer::{More, Word};

    #[test]
    fn betas_of_both_headers_are_merged_in_order() {
        let mut headers = HeaderMap::new();
        headers.append(BETA, HeaderValue::from_static("a-1, b-2"));
        headers.append(BETA, HeaderValue::from_static("b-2,,c-3"));
        headers.append("x-anthropic-beta", HeaderValue::from_static("d-4,a-1"));
        assert_eq!(merged_betas(&headers).unwrap(), "a-1,b-2,c-3,d-4");
        assert_eq!(merged_betas(&HeaderMap::new()), None);
    }

    #[test]
    fn version_and_betas_travel_where_the_platform_wants_them() {
        let forwarded = Forwarded { beta: Some(HeaderValue::from_static("b")), ..Forwarded::default() };
        let native = headers(&forwarded, Carriage::Plain, forwarded.beta.clone());
        assert_eq!((&native[VERSION], &native[BETA]), (&DEFAULT_VERSION, &HeaderValue::from_static("b")));
        let bedrock = headers(&forwarded, Carriage::BedrockInvoke, forwarded.beta.clone());
        assert!(bedrock.get(VERSION).is_none() && bedrock.get(BETA).is_none() && bedrock[ACCEPT] == JSON);
    }

    #[test]
    fn cache_writes_are_split_by_lifetime() {
        let counts = Counts { cache_write: Some(10), ..Counts::default() };
        assert_eq!((usage(&counts).cache_write, usage(&counts).cache_write_1h), (10, 0));
        let counts =
            Counts { cache_write: Some(10), cache_write_5m: Some(4), cache_write_1h: Some(6), ..Counts::default() };
        assert_eq!((usage(&counts).cache_write, usage(&counts).cache_write_1h), (4, 6));
    }

    #[test]
    fn cache_writes_that_only_the_total_reports_are_not_free() {
        let counts = Counts {
            cache_write: Some(100_000),
            cache_write_5m: Some(0),
            cache_write_1h: Some(0),
            ..Counts::default()
        };
        assert_eq!((usage(&counts).cache_write, usage(&counts).cache_write_1h), (100_000, 0));
    }

    #[test]
    fn parts_are_never_more_than_their_whole() {
        let counts = Counts {
            input: Some(10),
            input_image: Some(8),
            input_audio: Some(8),
            output: Some(5),
            thinking: Some(9),
            output_audio: Some(1),
            billed_input: Some(99),
            billed_output: Some(4),
            ..Counts::default()
        };
        let usage = usage(&counts);
        assert_eq!((usage.input_image, usage.input_audio), (8, 2));
        assert_eq!((usage.thinking, usage.output_audio), (5, 0));
        assert_eq!((usage.billed_input, usage.billed_output), (Some(10), Some(4)));
    }

    #[test]
    fn turns_that_the_counts_leave_out_are_added() {
        let more = More { input: 1, output: 2, cache_read: 3, cache_write: 4, cache_write_1h: 5 };
        let counts = Counts { input: Some(10), output: Some(20), more: Some(more), ..Counts::default() };
        let usage = usage(&counts);
        assert_eq!((usage.input, usage.output, usage.prompt()), (11, 22, 23));
    }

    #[test]
    fn an_upstreams_own_cost_is_read_as_money() {
        let cost = |text| reported_cost(&Counts { cost: Word::new(text), ..Counts::default() });
        assert_eq!((cost("0.00123"), cost("1.5e-3")), (Some(Money(1_230_000)), Some(Money(1_500_000))));
        assert_eq!((cost("-1"), cost("1e99"), cost("")), (None, None, None));
    }
}
