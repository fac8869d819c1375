//! What a request asks of the cache, and what makes two requests the same. No I/O.

use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use tidegate_core::{Api, KeyHash};
use tidegate_wire::json;

use crate::snapshot::Names;

const DEFAULT_TTL: u64 = 300;
const LONGEST_TTL: u64 = 86_400;

/// How a request wants its answer kept. There are none for a request that does not want that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub ttl: Duration,
    /// Whether what is kept already is to be dropped and not given.
    pub clear: bool,
}

/// What a preset says of caching.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preset {
    pub enabled: Option<bool>,
    pub ttl_seconds: Option<u64>,
}

impl Terms {
    /// A preset that forbids it has the last word, then a header that does; either may ask for it. The lifetime is the
    /// header's before the preset's.
    pub fn of(headers: &HeaderMap, names: &Names, preset: Preset) -> Option<Self> {
        let wanted = first(headers, &names.cache_headers).and_then(flag);
        let is_on = match (preset.enabled, wanted) {
            (Some(false), _) | (_, Some(false)) => false,
            (preset, header) => preset == Some(true) || header == Some(true),
        };
        if !is_on {
            return None;
        }
        let asked = first(headers, &names.cache_ttl_headers).and_then(|value| leading_number(value.as_bytes()));
        let ttl = asked.or(preset.ttl_seconds).unwrap_or(DEFAULT_TTL).clamp(1, LONGEST_TTL);
        let clear = first(headers, &names.cache_clear_headers).and_then(flag) == Some(true);
        Some(Self { ttl: Duration::from_secs(ttl), clear })
    }
}

fn first<'h>(headers: &'h HeaderMap, names: &[HeaderName]) -> Option<&'h HeaderValue> {
    names.iter().find_map(|name| headers.get(name))
}

/// Anything else than the two words is as good as nothing.
fn flag(value: &HeaderValue) -> Option<bool> {
    match value.as_bytes() {
        word if word.eq_ignore_ascii_case(b"true") => Some(true),
        word if word.eq_ignore_ascii_case(b"false") => Some(false),
        _ => None,
    }
}

/// The digits that a text begins with. A number that does not fit is the largest there is.
fn leading_number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |number, digit| {
        Some(number.unwrap_or(0_u64).saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    })
}

/// Requests with the same key get the same answer. The body is one that was read without a mistake; white space
/// between its tokens does not matter, the order of its members does. `api`: where it came in, since an answer that one
/// door tells in full may have lost something at another. `rules`: what holds for the caller that the body does not say.
pub fn key(caller: &KeyHash, api: Api, model: &str, rules: &[u8], stream: bool, body: &[u8]) -> KeyHash {
    let mut text = Vec::with_capacity(body.len() + model.len() + rules.len() + 72);
    text.extend_from_slice(&caller.0);
    // What comes before the body has a length that can be told, so that no part can pass for another.
    for part in [api.as_str().as_bytes(), model.as_bytes(), rules] {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part);
    }
    text.push(u8::from(stream));
    json::compact(body, &mut text);
    KeyHash::of(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Names, Settings};

    fn terms(pairs: &[(&'static str, &'static str)], preset: Preset) -> Option<(u64, bool)> {
        let settings = Settings { brand_aliases: vec!["openrouter".to_owned()], ..Settings::default() };
        let headers = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        Terms::of(&headers, &Names::of(&settings), preset).map(|terms| (terms.ttl.as_secs(), terms.clear))
    }

    #[test]
    fn who_may_switch_it_on_and_off() {
        let cases = [
            (None, None, false),
            (None, Some("true"), true),
            (None, Some("TRUE"), true),
            (None, Some("false"), false),
            (None, Some("1"), false),
            (None, Some(""), false),
            (Some(true), None, true),
            (Some(true), Some("true"), true),
            (Some(true), Some("false"), false),
            (Some(true), Some("maybe"), true),
            (Some(false), None, false),
            (Some(false), Some("true"), false),
        ];
        for (enabled, header, expected) in cases {
            let headers: Vec<_> = header.map(|value| ("x-tidegate-cache", value)).into_iter().collect();
            let preset = Preset { enabled, ttl_seconds: None };
            assert_eq!(terms(&headers, preset).is_some(), expected, "{enabled:?} {header:?}");
        }
    }

    #[test]
    fn a_lifetime_is_read_up_to_its_first_strange_character_and_kept_within_a_day() {
        let cases = [
            (None, None, 300),
            (Some("60"), None, 60),
            (Some("60abc"), None, 60),
            (Some("1.5"), None, 1),
            (Some("0"), None, 1),
            (Some("86400"), None, 86_400),
            (Some("86401"), None, 86_400),
            (Some("99999999999999999999999999"), None, 86_400),
            (Some("abc"), None, 300),
            (Some("-5"), None, 300),
            (Some(""), None, 300),
            (None, Some(600), 600),
            (Some("7"), Some(600), 7),
            (Some("x"), Some(600), 600),
            (None, Some(0), 1),
            (None, Some(100_000), 86_400),
        ];
        for (header, ttl_seconds, expected) in cases {
            let mut headers = vec![("x-tidegate-cache", "true")];
            headers.extend(header.map(|value| ("x-tidegate-cache-ttl", value)));
            let preset = Preset { enabled: None, ttl_seconds };
            assert_eq!(terms(&headers, preset), Some((expected, false)), "{header:?} {ttl_seconds:?}");
        }
    }

    #[test]
    fn clearing_needs_caching() {
        let clear = ("x-tidegate-cache-clear", "true");
        assert_eq!(terms(&[clear], Preset::default()), None);
        assert_eq!(terms(&[("x-tidegate-cache", "true"), clear], Preset::default()), Some((300, true)));
        let not = ("x-tidegate-cache-clear", "yes");
        assert_eq!(terms(&[("x-tidegate-cache", "true"), not], Preset::default()), Some((300, false)));
    }

    #[test]
    fn other_brands_are_read_where_our_own_is_absent() {
        let alias = ("x-openrouter-cache", "true");
        assert_eq!(terms(&[alias, ("x-openrouter-cache-ttl", "9")], Preset::default()), Some((9, false)));
        assert_eq!(terms(&[alias, ("x-tidegate-cache", "false")], Preset::default()), None);
        assert_eq!(terms(&[("x-other-cache", "true")], Preset::default()), None);
    }

    #[test]
    fn requests_are_the_same_but_for_white_space() {
        let caller = KeyHash::of(b"one");
        let under = |rules: &str, caller: &KeyHash, model: &str, stream: bool, body: &str| {
            key(caller, Api::Messages, model, rules.as_bytes(), stream, body.as_bytes())
        };
        let of = |caller: &KeyHash, model: &str, stream: bool, body: &str| under("", caller, model, stream, body);
        let body = r#"{"model":"v/m","max_tokens":8}"#;
        let known = of(&caller, "v/m", false, body);
        assert_eq!(known, of(&caller, "v/m", false, "{ \"model\": \"v/m\",\n\t\"max_tokens\" : 8 }\r\n"));
        let others = [
            of(&KeyHash::of(b"other"), "v/m", false, body),
            of(&caller, "v/n", false, body),
            under("1", &caller, "v/m", false, body),
            of(&caller, "v/m", true, body),
            of(&caller, "v/m", false, r#"{"max_tokens":8,"model":"v/m"}"#),
            of(&caller, "v/m", false, r#"{"model":"v/m","max_tokens":8,"stream":false}"#),
            of(&caller, "v/m", false, r#"{"model":"v/m","max_tokens":9}"#),
            key(&caller, Api::Chat, "v/m", b"", false, body.as_bytes()),
            key(&caller, Api::Responses, "v/m", b"", false, body.as_bytes()),
        ];
        assert!(others.iter().all(|other| *other != known));
    }
}
