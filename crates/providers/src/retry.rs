//! How long an upstream asks us to wait, in all the spellings seen in the wild.

use std::time::Duration;

use http::HeaderMap;
use tidegate_core::Timestamp;

const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(300);

/// The hint in an answer, first match first; `None` when there is none. `delay` is the one that Google puts into the
/// body, as it writes it.
pub fn after(headers: &HeaderMap, delay: Option<&str>, message: Option<&str>, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let hint = text("retry-after-ms")
        .and_then(|ms| number(ms).map(|ms| ms / 1000.0))
        .or_else(|| text("retry-after").and_then(|value| number(value).or_else(|| date(value, now))))
        .or_else(|| delay.and_then(duration))
        .or_else(|| exhausted(headers, now))
        .or_else(|| message.and_then(from_words))?;
    Some(Duration::from_secs_f64(hint.clamp(LEAST.as_secs_f64(), MOST.as_secs_f64())))
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

/// Seconds until an HTTP date.
fn date(text: &str, now: Timestamp) -> Option<f64> {
    let then = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
    Some((then - now.0).max(0) as f64 / 1000.0)
}

/// The reset of the dimension whose remainder is zero: durations with OpenAI's headers, instants with Anthropic's.
fn exhausted(headers: &HeaderMap, now: Timestamp) -> Option<f64> {
    let text = |name: String| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    for dimension in ["requests", "tokens"] {
        if text(format!("x-ratelimit-remaining-{dimension}")) == Some("0")
            && let Some(reset) = text(format!("x-ratelimit-reset-{dimension}")).and_then(duration)
        {
            return Some(reset);
        }
    }
    for dimension in ["requests", "tokens", "input-tokens", "output-tokens"] {
        if text(format!("anthropic-ratelimit-{dimension}-remaining")) == Some("0")
            && let Some(reset) = text(format!("anthropic-ratelimit-{dimension}-reset"))
            && let Ok(instant) = reset.parse::<jiff::Timestamp>()
        {
            return Some((instant.as_millisecond() - now.0).max(0) as f64 / 1000.0);
        }
    }
    None
}

/// Seconds of `1s`, `6m0s`, `7.66s`, `120ms`, `1h2m`.
fn duration(text: &str) -> Option<f64> {
    let (mut total, mut rest) = (0.0, text);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value = number(&rest[..digits])?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        total += value
            * match &rest[..letters] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[letters..];
    }
    Some(total)
}

/// `… try again in 1.2s …`
fn from_words(message: &str) -> Option<f64> {
    let (_, rest) = message.split_once("try again in ")?;
    let word = rest.split_whitespace().next()?.trim_end_matches(['.', ',']);
    duration(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    // 2026-08-24T10:30:00Z
    const NOW: Timestamp = Timestamp(1_787_567_400_000);

    fn hint(headers: &[(&'static str, &'static str)], message: Option<&str>) -> Option<u128> {
        let map =
            headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)));
        after(&map.collect(), None, message, NOW).map(|duration| duration.as_millis())
    }

    #[test]
    fn a_delay_in_the_body_comes_after_retry_headers_and_before_limits() {
        let limited = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m2s")];
        let map = |headers: &[(&'static str, &'static str)]| -> HeaderMap {
            let pairs = headers.iter();
            pairs.map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
        };
        let seconds = |headers: &HeaderMap, delay| after(headers, delay, None, NOW).map(|wait| wait.as_secs());
        assert_eq!(seconds(&map(&limited), Some("17s")), Some(17));
        assert_eq!(seconds(&map(&limited), Some("soon")), Some(62));
        assert_eq!(seconds(&map(&[("retry-after", "5")]), Some("17s")), Some(5));
    }

    #[test]
    fn every_spelling_is_understood() {
        type Headers = &'static [(&'static str, &'static str)];
        let cases: [(Headers, Option<&str>, Option<u128>); 14] = [
            (&[], None, None),
            (&[("retry-after", "12")], None, Some(12_000)),
            (&[("retry-after", "1.5")], None, Some(1_500)),
            (&[("retry-after-ms", "250"), ("retry-after", "9")], None, Some(250)),
            (&[("retry-after", "Mon, 24 Aug 2026 10:30:07 GMT")], None, Some(7_000)),
            (&[("retry-after", "Mon, 24 Aug 2026 10:29:00 GMT")], None, Some(100)),
            (&[("retry-after", "-5")], None, None),
            (&[("retry-after", "soon")], None, None),
            (&[("retry-after", "99999")], None, Some(300_000)),
            (&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m2s")], None, Some(62_000)),
            (&[("x-ratelimit-remaining-requests", "3"), ("x-ratelimit-reset-requests", "9s")], None, None),
            (
                &[
                    ("anthropic-ratelimit-input-tokens-remaining", "0"),
                    ("anthropic-ratelimit-input-tokens-reset", "2026-08-24T10:30:20Z"),
                ],
                None,
                Some(20_000),
            ),
            (&[], Some("Rate limit reached. Please try again in 1.2s. Visit"), Some(1_200)),
            (&[], Some("Please try again in 120ms."), Some(120)),
        ];
        for (headers, message, expected) in cases {
            assert_eq!(hint(headers, message), expected, "{headers:?} {message:?}");
        }
    }
}
