//! What a call can cost at most, before it is made.

use smallvec::{SmallVec, smallvec};
use tidegate_core::money::Money;
use tidegate_core::{Factor, Timestamp};

use super::set::{Prices, Tier, Unit};
use super::{Pricing, Scale, Sum};

/// A call that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ask<'a> {
    /// Tokens of the prompt at most.
    pub prompt: u64,
    /// Tokens of the answer at most.
    pub output: u64,
    /// Whether something is marked to be written to a cache, and whether for an hour.
    pub cache_marked: bool,
    pub cache_1h: bool,
    /// The service tier that is asked for. What is asked for need not be what serves: the usual prices count, too.
    pub tier: Option<&'a str>,
    /// Pictures in the prompt, and those that are to be made.
    pub images: u64,
    pub images_out: u64,
    /// Search units at most, where those are counted in place of calls.
    pub search_units: u64,
    /// Characters to be spoken, and milliseconds of sound to be listened to.
    pub characters: u64,
    pub audio_ms: u64,
    /// When the request came: what it costs is decided by the same instant.
    pub now: Timestamp,
}

impl Pricing {
    /// The most that any usage within these bounds can cost, rounded up. Searches, code execution and
    /// containers come on top: nobody knows before how many there will be.
    pub fn most(&self, ask: &Ask<'_>) -> Money {
        let most = |tier: Option<&str>| self.most_in(ask, tier.and_then(|tier| self.tier(tier)));
        let (first, second) = served(ask.tier);
        let others = first.into_iter().chain(second).filter(|tier| self.tier(tier).is_some());
        others.map(|tier| most(Some(tier))).fold(most(None), Money::max)
    }

    /// The longest answer, of at most the one asked for, that can be paid by what its call may cost at most. None when not even
    /// the prompt can be.
    pub fn longest(&self, ask: &Ask<'_>, is_paid: impl Fn(Money) -> bool) -> Option<u64> {
        let fits = |output: u64| is_paid(self.most(&Ask { output, ..*ask }));
        if fits(ask.output) {
            return Some(ask.output);
        }
        if !fits(0) {
            return None;
        }
        // A longer answer never costs less, so the edge is found by halving.
        let (mut fitting, mut too_long) = (0, ask.output);
        while too_long - fitting > 1 {
            let middle = fitting + (too_long - fitting) / 2;
            if fits(middle) { fitting = middle } else { too_long = middle }
        }
        Some(fitting)
    }

    fn most_in(&self, ask: &Ask<'_>, tier: Option<&Tier>) -> Money {
        // Prices change where a set begins to hold; in between they are the same, and the longest prompt is the dearest.
        let own = match tier {
            Some(Tier::Set { above, .. }) => (above, [].as_slice()),
            Some(Tier::Times(_)) | None => (&self.above, self.overrides.as_slice()),
        };
        let mut starts: SmallVec<[u64; 8]> = smallvec![0];
        starts.extend(own.0.iter().filter_map(|(longest, _)| longest.checked_add(1)));
        starts.extend(own.1.iter().filter_map(|entry| entry.min_prompt_tokens));
        starts.retain(|start| *start <= ask.prompt);
        starts.sort_unstable();
        let ends = starts.iter().skip(1).map(|next| next.saturating_sub(1)).chain([ask.prompt]);
        let geo = self.geo.iter().map(|(_, factor)| *factor).fold(Factor::ONE, Factor::max);
        let each = starts.iter().zip(ends).map(|(start, end)| {
            let (prices, times) = self.in_force(*start, tier, ask.now);
            let scale = Scale { tier: times, geo, rest: self.rest() };
            dearest(&prices, ask, end).rounded_up(&scale)
        });
        each.fold(Money::ZERO, Money::max)
    }
}

fn dearest(prices: &Prices, ask: &Ask<'_>, prompt: u64) -> Sum {
    let among = |units: &[Unit]| units.iter().map(|unit| prices.of(*unit)).max().unwrap_or_default();
    let mut input = among(&[Unit::Input, Unit::InputImage, Unit::InputAudio, Unit::CacheRead]);
    if ask.cache_marked {
        input = input.max(prices.of(Unit::CacheWrite));
        if ask.cache_1h {
            input = input.max(prices.of(Unit::CacheWrite1h));
        }
    }
    let output = among(&[Unit::Output, Unit::Reasoning, Unit::OutputImage, Unit::OutputAudio]);
    let mut sum = Sum::default();
    sum.tokens(input, prompt);
    sum.tokens(output, ask.output);
    sum.pieces(prices.of(Unit::Image), ask.images);
    sum.pieces(prices.of(Unit::ImageOut), ask.images_out);
    sum.pieces(prices.of(Unit::Request), ask.search_units.max(1));
    sum.pieces(prices.of(Unit::Character), ask.characters);
    sum.milliseconds(prices.of(Unit::AudioHour), ask.audio_ms);
    sum
}

/// The tiers that may serve besides the usual one, by what was asked for.
fn served(asked: Option<&str>) -> (Option<&str>, Option<&str>) {
    match asked {
        None | Some("standard" | "standard_only" | "default" | "on_demand") => (None, None),
        // A fast answer is a tier of its own with some, and called priority by others.
        Some("fast" | "priority") => (Some("fast"), Some("priority")),
        Some("auto") => (Some("priority"), None),
        Some(other) => (Some(other), None),
    }
}
