//! What a Messages upstream says that an answer used, and how it was served. Numbers come from outside: none of them is
//! taken for more than it can be, and one that cannot be true is remembered as such.

use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::object::{Usage, Used};
use crate::json::{self, Kind, Members, Text};

/// More than any answer can have used: what claims more is cut to it, and sums of such numbers stay numbers.
pub const MOST: u64 = 1_000_000_000_000;

/// Token counts as a Messages upstream reports them. In a stream later reports complete earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub cache_read: Option<u64>,
    pub cache_write: Option<u64>,
    pub cache_write_5m: Option<u64>,
    pub cache_write_1h: Option<u64>,
    pub thinking: Option<u64>,
    /// Tokens of pictures and of sound: parts of the input and of the output.
    pub input_image: Option<u64>,
    pub input_audio: Option<u64>,
    pub output_image: Option<u64>,
    pub output_audio: Option<u64>,
    /// What the vendor bills in place of the prompt and of the output.
    pub billed_input: Option<u64>,
    pub billed_output: Option<u64>,
    pub web_searches: Option<u64>,
    pub web_fetches: Option<u64>,
    /// Turns that the other counts leave out.
    pub more: Option<More>,
    pub service_tier: Option<Word>,
    pub speed: Option<Word>,
    pub inference_geo: Option<Word>,
    /// What the upstream says that it costs: a decimal number, in dollars.
    pub cost: Option<Word>,
    /// Some number was none, or below nothing, or beyond all bounds.
    pub is_bad: bool,
}

/// What compactions and advisors used in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct More {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub cache_write_1h: u64,
}

impl Counts {
    pub(super) fn of(usage: &Usage<'_>) -> Self {
        let mut counts = Self::default();
        let mut is_bad = false;
        let bad = &mut is_bad;
        for (name, value) in usage.known() {
            match name {
                Used::Input => counts.input = count(Some(value), bad),
                Used::Output => counts.output = count(Some(value), bad),
                Used::CacheRead => counts.cache_read = count(Some(value), bad),
                Used::CacheWrite => counts.cache_write = count(Some(value), bad),
                Used::CacheCreation => {
                    [counts.cache_write_5m, counts.cache_write_1h] =
                        within(value, ["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"], bad);
                }
                Used::InputDetails => {
                    [counts.input_image, counts.input_audio] = within(value, ["image_tokens", "audio_tokens"], bad);
                }
                Used::OutputDetails => {
                    [counts.thinking, counts.output_image, counts.output_audio] =
                        within(value, ["thinking_tokens", "image_tokens", "audio_tokens"], bad);
                }
                Used::Billed => {
                    [counts.billed_input, counts.billed_output] = within(value, ["input_tokens", "output_tokens"], bad);
                }
                Used::ServerTools => {
                    [counts.web_searches, counts.web_fetches] =
                        within(value, ["web_search_requests", "web_fetch_requests"], bad);
                }
                Used::Iterations => counts.more = More::of(value, bad),
                Used::Tier => counts.service_tier = word(value),
                Used::Speed => counts.speed = word(value),
                Used::Geo => counts.inference_geo = word(value),
                Used::Cost if json::kind(value) == Kind::Number => counts.cost = Word::new(value.get()),
                // Said by our own translation, which has seen the upstream's numbers.
                Used::Clamped => *bad |= value.get() == "true",
                Used::Cost | Used::CostDetails | Used::IsByok => {}
            }
        }
        counts.is_bad = is_bad;
        counts
    }

    /// Takes over what a later report says; what it leaves out stays.
    pub fn update(&mut self, later: Self) {
        let fields = [
            (&mut self.input, later.input),
            (&mut self.output, later.output),
            (&mut self.cache_read, later.cache_read),
            (&mut self.cache_write, later.cache_write),
            (&mut self.cache_write_5m, later.cache_write_5m),
            (&mut self.cache_write_1h, later.cache_write_1h),
            (&mut self.thinking, later.thinking),
            (&mut self.input_image, later.input_image),
            (&mut self.input_audio, later.input_audio),
            (&mut self.output_image, later.output_image),
            (&mut self.output_audio, later.output_audio),
            (&mut self.billed_input, later.billed_input),
            (&mut self.billed_output, later.billed_output),
            (&mut self.web_searches, later.web_searches),
            (&mut self.web_fetches, later.web_fetches),
        ];
        for (field, later) in fields {
            *field = later.or(*field);
        }
        let words = [
            (&mut self.service_tier, later.service_tier),
            (&mut self.speed, later.speed),
            (&mut self.inference_geo, later.inference_geo),
            (&mut self.cost, later.cost),
        ];
        for (field, later) in words {
            *field = later.or(*field);
        }
        self.more = later.more.or(self.more);
        self.is_bad |= later.is_bad;
    }

    /// The service tier that a price is looked up by: the speed, where that is a special one.
    pub fn tier(&self) -> Option<&str> {
        let speed = self.speed.as_ref().map(Word::as_str).filter(|speed| *speed != "standard");
        speed.or_else(|| self.service_tier.as_ref().map(Word::as_str))
    }

    /// Where the model ran.
    pub fn geo(&self) -> Option<&str> {
        self.inference_geo.as_ref().map(Word::as_str)
    }

    /// Whether the numbers cannot all be true: some is none, or parts are more than their whole.
    pub fn is_odd(&self) -> bool {
        let sum = |parts: &[Option<u64>]| parts.iter().flatten().fold(0_u64, |sum, part| sum.saturating_add(*part));
        let is_more = |parts: &[Option<u64>], whole: Option<u64>| whole.is_some_and(|whole| sum(parts) > whole);
        let prompt = self.input.map(|_| sum(&[self.input, self.cache_read, self.cache_write]));
        self.is_bad
            || is_more(&[self.thinking, self.output_image, self.output_audio], self.output)
            || is_more(&[self.input_image, self.input_audio], self.input)
            || is_more(&[self.cache_write_5m, self.cache_write_1h], self.cache_write)
            || is_more(&[self.billed_input], prompt)
            || is_more(&[self.billed_output], self.output)
    }
}

impl More {
    fn of(value: &RawValue, bad: &mut bool) -> Option<Self> {
        if json::kind(value) != Kind::Array {
            *bad |= json::kind(value) != Kind::Null;
            return None;
        }
        let mut more: Option<Self> = None;
        for turn in json::elements(value)? {
            if json::kind(turn) != Kind::Object {
                continue;
            }
            let Some(turn) = Members::of(turn) else { continue };
            let kind = turn.get("type").and_then(json::string);
            // The turns of the answer itself are in the other counts.
            if !kind.is_some_and(|kind| kind == "compaction" || kind.starts_with("advisor")) {
                continue;
            }
            let mut number = |name: &str| count(turn.get(name), bad).unwrap_or(0);
            let (input, output) = (number("input_tokens"), number("output_tokens"));
            let (read, written) = (number("cache_read_input_tokens"), number("cache_creation_input_tokens"));
            let names = ["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"];
            let [short, long] = turn.get("cache_creation").map_or([None; 2], |value| within(value, names, bad));
            let (short, long) = by_lifetime(Some(written), short, long);
            let more = more.get_or_insert_default();
            let parts = [
                (&mut more.input, input),
                (&mut more.output, output),
                (&mut more.cache_read, read),
                (&mut more.cache_write, short),
                (&mut more.cache_write_1h, long),
            ];
            for (sum, part) in parts {
                *sum = sum.saturating_add(part);
            }
        }
        more
    }
}

/// What was written to a cache for a short and for a long time. One whose time the upstream does not name counts as short:
/// the total may have grown since the split was reported, or the split may be all zeros, and nothing written goes unpaid.
pub fn by_lifetime(total: Option<u64>, short: Option<u64>, long: Option<u64>) -> (u64, u64) {
    let long = long.unwrap_or(0);
    (short.unwrap_or(0).max(total.unwrap_or(0).saturating_sub(long)), long)
}

/// Counts inside an object that may be left out.
fn within<const N: usize>(value: &RawValue, names: [&str; N], bad: &mut bool) -> [Option<u64>; N] {
    if json::kind(value) != Kind::Object {
        *bad |= json::kind(value) != Kind::Null;
        return [None; N];
    }
    let mut found = [None; N];
    let mut reader = json::Reader::new(value.get());
    if reader.deserialize_map(Few { names, found: &mut found }).is_err() {
        *bad = true;
        return [None; N];
    }
    found.map(|value| count(value, bad))
}

/// The first member of each of a few names.
struct Few<'f, 'a, const N: usize> {
    names: [&'f str; N],
    found: &'f mut [Option<&'a RawValue>; N],
}

impl<'a, const N: usize> Visitor<'a> for Few<'_, 'a, N> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            let value = map.next_value()?;
            if let Some(place) = self.names.iter().position(|known| *known == name) {
                self.found[place].get_or_insert(value);
            }
        }
        Ok(())
    }
}

/// A count that an upstream wrote: a whole number from 0 upwards. What is left out is no bad one.
pub fn count(value: Option<&RawValue>, bad: &mut bool) -> Option<u64> {
    let value = value?;
    if let Ok(number) = value.get().parse::<u64>() {
        *bad |= number > MOST;
        return Some(number.min(MOST));
    }
    match json::kind(value) {
        Kind::Null => None,
        Kind::Number => {
            let (number, is_bad) = whole(value.get().parse().unwrap_or(-1.0));
            *bad |= is_bad;
            Some(number)
        }
        _ => {
            *bad = true;
            None
        }
    }
}

/// The count that is nearest to a number, and whether the number was none.
pub fn whole(number: f64) -> (u64, bool) {
    let near = number.round().clamp(0.0, MOST as f64);
    (near as u64, near != number)
}

fn word(value: &RawValue) -> Option<Word> {
    if json::kind(value) == Kind::String { json::string(value).and_then(|text| Word::new(&text)) } else { None }
}

/// A short plain word or number, kept in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word {
    length: u8,
    bytes: [u8; 31],
}

impl Word {
    /// Letters, digits and what stands in names and numbers; none for anything else, or for nothing.
    pub fn new(text: &str) -> Option<Self> {
        let is_plain =
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'+' | b'-'));
        let mut bytes = [0; 31];
        if text.is_empty() || !is_plain || text.len() > bytes.len() {
            return None;
        }
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self { length: text.len() as u8, bytes })
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("made of ASCII characters")
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Counts {
        Counts::of(&Usage::whole(text).unwrap())
    }

    #[test]
    fn later_counts_complete_earlier_ones() {
        let mut counts = Counts { input: Some(10), output: Some(1), cache_read: Some(3), ..Counts::default() };
        counts.update(Counts { output: Some(58), input: None, ..Counts::default() });
        assert_eq!(counts, Counts { input: Some(10), output: Some(58), cache_read: Some(3), ..Counts::default() });
        let mut counts = read(
            r#"{"service_tier":"priority","inference_geo":"us","iterations":[{"type":"compaction","input_tokens":1}]}"#,
        );
        counts.update(read(r#"{"output_tokens":2,"service_tier":null,"inference_geo":null}"#));
        assert_eq!((counts.tier(), counts.geo(), counts.more.unwrap().input), (Some("priority"), Some("us"), 1));
    }

    #[test]
    fn a_bad_count_is_cut_and_flagged_and_a_missing_one_is_not() {
        let counts = read(
            r#"{"input_tokens":-5,"output_tokens":"9","cache_read_input_tokens":1e99,"cache_creation_input_tokens":2.5}"#,
        );
        assert_eq!(
            (counts.input, counts.output, counts.cache_read, counts.cache_write),
            (Some(0), None, Some(MOST), Some(3))
        );
        assert!(counts.is_odd());
        for missing in [r#"{}"#, r#"{"input_tokens":null,"cache_creation":null}"#, r#"{"input_tokens":9.0,"x":-1}"#] {
            assert!(!read(missing).is_odd(), "{missing}");
        }
        let bad = ["-1", "0.5", "1e13", "18446744073709551615", "99999999999999999999", "true", "[]", "{}", "\"1\""];
        for bad in bad {
            assert!(read(&format!(r#"{{"output_tokens":{bad}}}"#)).is_odd(), "{bad}");
        }
        assert!(read(r#"{"cache_creation":7}"#).is_odd() && read(r#"{"clamped":true}"#).is_odd());
    }

    #[test]
    fn parts_that_are_more_than_their_whole_are_odd() {
        let odd = [
            r#"{"output_tokens":5,"output_tokens_details":{"thinking_tokens":6}}"#,
            r#"{"input_tokens":5,"input_tokens_details":{"image_tokens":3,"audio_tokens":3}}"#,
            r#"{"cache_creation_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":3}}"#,
            r#"{"input_tokens":5,"cache_read_input_tokens":2,"billed_units":{"input_tokens":8}}"#,
        ];
        for odd in odd {
            assert!(read(odd).is_odd(), "{odd}");
        }
        assert!(!read(r#"{"output_tokens":5,"output_tokens_details":{"thinking_tokens":5}}"#).is_odd());
    }

    #[test]
    fn turns_of_compactions_and_advisors_come_in_addition() {
        let counts = read(
            r#"{"input_tokens":1,"iterations":[
                {"type":"message","input_tokens":1,"output_tokens":2},
                {"type":"compaction","input_tokens":10,"output_tokens":20,"cache_read_input_tokens":30,"cache_creation_input_tokens":9,
                 "cache_creation":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":4}},
                {"type":"advisor_message","model":"m","input_tokens":100,"output_tokens":200},null,7]}"#,
        );
        let more = More { input: 110, output: 220, cache_read: 30, cache_write: 5, cache_write_1h: 4 };
        assert_eq!((counts.input, counts.more), (Some(1), Some(more)));
        assert_eq!(read(r#"{"iterations":[{"type":"message","input_tokens":1}]}"#).more, None);
    }

    #[test]
    fn how_it_was_served_and_what_the_upstream_says_it_costs() {
        let counts = read(r#"{"service_tier":"standard","speed":"fast","inference_geo":"us","cost":0.00123}"#);
        assert_eq!((counts.tier(), counts.geo()), (Some("fast"), Some("us")));
        assert_eq!(counts.cost.unwrap().as_str(), "0.00123");
        let counts = read(r#"{"service_tier":"batch","speed":"standard","cost":{"total":1}}"#);
        assert_eq!((counts.tier(), counts.geo(), counts.cost), (Some("batch"), None, None));
        for strange in ["\"\"", "\"a b\"", "7", "\"0123456789012345678901234567890123456789\""] {
            assert_eq!(read(&format!(r#"{{"service_tier":{strange}}}"#)).tier(), None, "{strange}");
        }
    }
}
