//! What an answer used, in the convention of the Messages format: input without what was read from or written to a cache,
//! output with the thinking. Numbers come from outside: none is believed beyond what it can be, and that one was not is
//! told to those who ask for the price.

use std::cell::Cell;
use std::fmt::Write as _;

use serde_json::value::RawValue;
use tidegate_wire::answer::{self, Word};
use tidegate_wire::json::{self, Kind, Members};

/// What a token of an answer is thought to take, where its upstream counts nothing.
pub(super) const BYTES_PER_TOKEN: u64 = 4;

/// The usage that an upstream wrote, read member by member: one that is no number spoils neither the others nor the answer.
pub struct Told<'a> {
    members: Option<Members<'a>>,
    odd: &'a Cell<bool>,
}

impl<'a> Told<'a> {
    /// None for anything but an object. `odd` is set when a number turns out to be none, or beyond all bounds.
    pub fn of(raw: &'a RawValue, odd: &'a Cell<bool>) -> Option<Self> {
        Some(Self { members: Some(Members::of(raw)?), odd })
    }

    /// An object inside; empty where there is none.
    pub fn within(&self, name: &str) -> Self {
        let raw = self.raw(name);
        let members = raw.and_then(Members::of);
        if members.is_none() && raw.is_some() {
            self.odd.set(true);
        }
        Self { members, odd: self.odd }
    }

    /// The objects of a list inside.
    pub fn list(&self, name: &str) -> Vec<Self> {
        let elements = self.raw(name).and_then(json::elements).unwrap_or_default();
        elements.into_iter().filter_map(|raw| Self::of(raw, self.odd)).collect()
    }

    pub fn count(&self, name: &str) -> Option<u64> {
        let mut odd = false;
        let count = answer::count(self.raw(name), &mut odd);
        if odd {
            self.odd.set(true);
        }
        count
    }

    /// The first of these that is a count.
    pub fn first(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| self.count(name))
    }

    pub fn text(&self, name: &str) -> Option<String> {
        Some(json::string(self.raw(name)?)?.into_owned())
    }

    /// What the upstream says that it costs, in dollars: a number, or an object with the total of several.
    pub fn cost(&self) -> Option<Word> {
        let raw = self.raw("cost")?;
        let parts = Members::of(raw);
        let raw = match &parts {
            Some(parts) => parts.get("total_cost")?,
            None => raw,
        };
        if json::kind(raw) == Kind::Number { Word::new(raw.get()) } else { None }
    }

    /// Tokens of pictures and of sound.
    pub fn media(&self) -> [Option<u64>; 2] {
        ["image_tokens", "audio_tokens"].map(|name| self.count(name))
    }

    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.members.as_ref()?.get(name).filter(|raw| json::kind(raw) != Kind::Null)
    }
}

/// A service tier in the words of the Messages format; none for one that was only asked for.
pub fn tier(word: &str) -> Option<Word> {
    match word {
        "default" | "standard" | "on_demand" => Word::new("standard"),
        "priority" | "fast" => Word::new("priority"),
        "auto" => None,
        other => Word::new(other),
    }
}

/// Tokens of an answer, as far as the upstream has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub input: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// How much of what was written is kept for an hour, where the upstream tells.
    pub cache_write_1h: Option<u64>,
    pub output: u64,
    pub thinking: Option<u64>,
    /// Tokens of pictures and of sound: parts of the input and of the output.
    input_media: [u64; 2],
    output_media: [u64; 2],
    /// What the vendor bills in place of the prompt and of the output.
    pub billed: [Option<u64>; 2],
    /// Searches that the upstream ran by itself.
    pub web_searches: Option<u64>,
    /// The service tier that the upstream says it used.
    pub tier: Option<Word>,
    /// What the upstream says that it costs.
    pub cost: Option<Word>,
    /// Some number could not be true.
    pub is_odd: bool,
    known: bool,
}

impl Counted {
    /// Until the upstream tells.
    pub fn estimated(input: u64) -> Self {
        Self { input, ..Self::default() }
    }

    /// What the upstream told, or what it must have been when it told nothing: an answer without usage breaks clients.
    pub fn or_estimated(self, input: u64, said: u64) -> Self {
        if self.is_told(said) {
            return self;
        }
        let Self { web_searches, tier, cost, .. } = self;
        Self { input, output: said.div_ceil(BYTES_PER_TOKEN), web_searches, tier, cost, ..Self::default() }
    }

    /// Whether the upstream has told what so many bytes took. Zeros all over are a form that nobody has filled in, unless
    /// nothing was said.
    pub fn is_told(&self, said: u64) -> bool {
        self.known && (said == 0 || !self.is_zero())
    }

    fn is_zero(&self) -> bool {
        [self.input, self.cache_read, self.cache_write, self.output] == [0; 4]
    }

    /// As far as it is told before there is an answer: what a later report may leave out would stay in force.
    pub fn at_start(self) -> Self {
        let Self { input, cache_read, cache_write, output, tier, .. } = self;
        Self { input, cache_read, cache_write, output, tier, ..Self::default() }
    }

    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Takes over a later report, where it is one. Tier and searches are told elsewhere, too, and stay where it leaves them out.
    pub fn update(&mut self, later: Self) {
        let (tier, web_searches) = (later.tier.or(self.tier), later.web_searches.or(self.web_searches));
        let is_report = later.known && !(self.known && later.is_zero());
        let told = if is_report { later } else { *self };
        *self = Self { tier, web_searches, ..told };
    }

    /// From an upstream whose prompt counts what was cached, too; nearly all do. `total` finds out those who leave the
    /// reasoning out of the output.
    pub fn inclusive(
        prompt: u64,
        read: u64,
        write: u64,
        output: u64,
        thinking: Option<u64>,
        total: Option<u64>,
    ) -> Self {
        // More read than there was: this upstream leaves the cached part out of the prompt already.
        let is_exclusive = read > prompt;
        let cached = read.saturating_add(write);
        let input = if is_exclusive { prompt } else { prompt.saturating_sub(cached) };
        // Numbers come from outside and may be of any size.
        let said = prompt.saturating_add(output);
        let left_out = thinking
            .filter(|thinking| *thinking > 0 && total == Some(said.saturating_add(*thinking)) && total != Some(said));
        let output = output.saturating_add(left_out.unwrap_or(0));
        Self {
            input,
            cache_read: read,
            cache_write: write,
            output,
            thinking: thinking.map(|thinking| thinking.min(output)),
            is_odd: (!is_exclusive && cached > prompt) || thinking.is_some_and(|thinking| thinking > output),
            known: true,
            ..Self::default()
        }
    }

    /// From an upstream whose input leaves the cached part out.
    pub fn exclusive(input: u64, read: u64, write: u64, output: u64) -> Self {
        Self { input, cache_read: read, cache_write: write, output, known: true, ..Self::default() }
    }

    /// Of these, so many tokens are pictures and sound. Of a prompt, some of them may have been cached and are priced as
    /// such: only what is left of the input can be theirs.
    #[must_use]
    pub fn with_media(mut self, input: [Option<u64>; 2], output: [Option<u64>; 2]) -> Self {
        let sum = |parts: [Option<u64>; 2]| parts.into_iter().flatten().fold(0, u64::saturating_add);
        let prompt = [self.cache_read, self.cache_write].into_iter().fold(self.input, u64::saturating_add);
        let rest = self.output.saturating_sub(self.thinking.unwrap_or(0));
        self.is_odd |= sum(input) > prompt || sum(output) > rest;
        self.input_media = within(self.input, input);
        self.output_media = within(rest, output);
        self
    }

    /// With how much of what was written is kept for an hour.
    #[must_use]
    pub fn with_long_writes(mut self, long: Option<u64>) -> Self {
        self.is_odd |= long.is_some_and(|long| long > self.cache_write);
        self.cache_write_1h = long.map(|long| long.min(self.cache_write));
        self
    }

    /// The usage of an answer. What only the price needs has names of its own, which clients do not know.
    pub fn to_json(self) -> String {
        let Self { input, cache_write, cache_read, output, .. } = self;
        let mut out = format!(
            r#"{{"input_tokens":{input},"cache_creation_input_tokens":{cache_write},"cache_read_input_tokens":{cache_read},"output_tokens":{output}"#
        );
        let some = |count: u64| Some(count).filter(|count| *count > 0);
        let [seen, heard] = self.input_media.map(some);
        let [drawn, spoken] = self.output_media.map(some);
        let details = [("thinking_tokens", self.thinking), ("image_tokens", drawn), ("audio_tokens", spoken)];
        put(&mut out, "output_tokens_details", &details);
        if let Some(long) = self.cache_write_1h {
            let short = cache_write.saturating_sub(long);
            let written = [("ephemeral_5m_input_tokens", Some(short)), ("ephemeral_1h_input_tokens", Some(long))];
            put(&mut out, "cache_creation", &written);
        }
        if let Some(searches) = self.web_searches {
            let used = [("web_search_requests", Some(searches)), ("web_fetch_requests", Some(0))];
            put(&mut out, "server_tool_use", &used);
        }
        put(&mut out, "input_tokens_details", &[("image_tokens", seen), ("audio_tokens", heard)]);
        put(&mut out, "billed_units", &[("input_tokens", self.billed[0]), ("output_tokens", self.billed[1])]);
        if let Some(tier) = &self.tier {
            let _ = write!(out, r#","service_tier":"{}""#, tier.as_str());
        }
        if let Some(cost) = &self.cost {
            let _ = write!(out, r#","cost":{}"#, cost.as_str());
        }
        if self.is_odd {
            out.push_str(r#","clamped":true"#);
        }
        out.push('}');
        out
    }
}

/// Parts of a whole, together at most that.
fn within(whole: u64, parts: [Option<u64>; 2]) -> [u64; 2] {
    let mut rest = whole;
    parts.map(|part| {
        let part = part.unwrap_or(0).min(rest);
        rest -= part;
        part
    })
}

/// An object of counts, where there are any.
fn put(out: &mut String, name: &str, counts: &[(&str, Option<u64>)]) {
    let mut opening = format!(r#","{name}":{{"#);
    for (name, count) in counts.iter().filter_map(|(name, count)| Some((name, (*count)?))) {
        let _ = write!(out, r#"{opening}"{name}":{count}"#);
        opening = ",".to_owned();
    }
    if opening == "," {
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p71_cached_tokens_are_counted_once() {
        let counted = Counted::inclusive(120, 100, 0, 30, Some(18), Some(150));
        assert_eq!((counted.input, counted.cache_read, counted.output), (20, 100, 30));
        let written = Counted::inclusive(100, 20, 30, 5, None, None);
        assert_eq!((written.input, written.cache_read, written.cache_write), (50, 20, 30));
        let exclusive = Counted::inclusive(10, 90, 0, 5, None, None);
        assert_eq!((exclusive.input, exclusive.cache_read, exclusive.is_odd), (10, 90, false));
        let impossible = Counted::inclusive(10, 9, 5, 5, None, None);
        assert_eq!((impossible.input, impossible.is_odd), (0, true));
    }

    #[test]
    fn numbers_of_any_size_are_taken() {
        let most = u64::MAX;
        let counted = Counted::inclusive(most, most, most, most, Some(most), Some(most));
        assert_eq!((counted.input, counted.output), (0, most));
        let media = counted.with_media([Some(most); 2], [Some(most); 2]);
        assert_eq!((media.input_media, media.output_media, media.is_odd), ([0, 0], [0, 0], true));
    }

    #[test]
    fn p72_reasoning_that_was_left_out_of_the_output_is_added() {
        assert_eq!(Counted::inclusive(10, 0, 0, 5, Some(7), Some(22)).output, 12);
        assert_eq!(Counted::inclusive(10, 0, 0, 12, Some(7), Some(22)).output, 12);
        assert_eq!(Counted::inclusive(10, 0, 0, 12, Some(7), None).output, 12);
    }

    #[test]
    fn pictures_and_sound_are_parts_of_what_was_not_cached() {
        // 100 tokens, 60 of them sound; 90 were cached, so at most 10 of the rest are sound.
        let counted =
            Counted::inclusive(100, 90, 0, 20, Some(5), None).with_media([None, Some(60)], [Some(4), Some(3)]);
        assert_eq!((counted.input_media, counted.output_media, counted.is_odd), ([0, 10], [4, 3], false));
        assert!(Counted::exclusive(5, 0, 0, 5).with_media([Some(3), Some(3)], [None, None]).is_odd);
        assert!(Counted::exclusive(5, 0, 0, 5).with_media([None, None], [None, Some(6)]).is_odd);
    }

    #[test]
    fn what_only_some_upstreams_tell_is_written_only_then() {
        let plain = Counted::exclusive(5, 1, 30, 2);
        assert_eq!(
            plain.to_json(),
            r#"{"input_tokens":5,"cache_creation_input_tokens":30,"cache_read_input_tokens":1,"output_tokens":2}"#
        );
        let told = Counted {
            web_searches: Some(3),
            billed: [Some(4), None],
            tier: tier("fast"),
            cost: Word::new("1.5e-3"),
            is_odd: true,
            ..plain
        };
        let told = told.with_long_writes(Some(20)).with_media([Some(2), Some(0)], [None, Some(1)]);
        let told: serde_json::Value = serde_json::from_str(&told.to_json()).unwrap();
        let expected = serde_json::json!({
            "input_tokens": 5, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 1, "output_tokens": 2,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
            // Clients read both.
            "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 0},
            "input_tokens_details": {"image_tokens": 2}, "output_tokens_details": {"audio_tokens": 1},
            "billed_units": {"input_tokens": 4}, "service_tier": "priority", "cost": 1.5e-3, "clamped": true,
        });
        assert_eq!(told, expected);
        let searched = Counted { web_searches: Some(1), ..Counted::default() }.or_estimated(9, 8);
        assert_eq!((searched.input, searched.output, searched.web_searches), (9, 2, Some(1)));
    }

    #[test]
    fn p16_zeros_are_no_report_of_something_that_was_said() {
        let zeros = Counted::inclusive(0, 0, 0, 0, None, Some(0));
        let estimated = zeros.or_estimated(9, 8);
        assert_eq!((estimated.input, estimated.output, zeros.is_told(8)), (9, 2, false));
        // A prompt that was refused may well have cost nothing.
        assert_eq!((zeros.or_estimated(9, 0).input, zeros.is_told(0)), (0, true));
        let mut counted = Counted::inclusive(5, 0, 0, 3, None, None);
        counted.update(zeros);
        assert_eq!((counted.input, counted.output), (5, 3));
    }

    #[test]
    fn a_tier_keeps_its_name_where_it_has_one_of_its_own() {
        let named = |word| tier(word).map(|word| word.as_str().to_owned());
        for (word, expected) in [
            ("default", Some("standard")),
            ("on_demand", Some("standard")),
            ("fast", Some("priority")),
            ("flex", Some("flex")),
            ("reserved", Some("reserved")),
            ("auto", None),
            ("", None),
            ("no \"word\"", None),
        ] {
            assert_eq!(named(word).as_deref(), expected, "{word}");
        }
    }
}
