//! Price sets: what one unit of each kind costs, and when which set is in force.

use tidegate_core::Timestamp;
use tidegate_core::money::{Factor, Price};

/// What is priced. Tokens are priced per million of them, pieces per million pieces, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Neither read from nor written to a cache.
    Input,
    /// With the thinking, where that has no price of its own.
    Output,
    CacheRead,
    /// Kept for five minutes, or for a time that the upstream does not name.
    CacheWrite,
    CacheWrite1h,
    Reasoning,
    InputImage,
    OutputImage,
    InputAudio,
    OutputAudio,
    /// A picture in the prompt, and one that was made.
    Image,
    ImageOut,
    /// One call, or a search unit where those are counted.
    Request,
    WebSearch,
    CodeExecHour,
    Container,
    /// A character of a text that is spoken; priced per million of them as it is written, too.
    Character,
    /// An hour of sound that is listened to.
    AudioHour,
}

impl Unit {
    pub const ALL: [Self; 18] = [
        Self::Input,
        Self::Output,
        Self::CacheRead,
        Self::CacheWrite,
        Self::CacheWrite1h,
        Self::Reasoning,
        Self::InputImage,
        Self::OutputImage,
        Self::InputAudio,
        Self::OutputAudio,
        Self::Image,
        Self::ImageOut,
        Self::Request,
        Self::WebSearch,
        Self::CodeExecHour,
        Self::Container,
        Self::Character,
        Self::AudioHour,
    ];

    /// Its key in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::CacheRead => "cache_read",
            Self::CacheWrite => "cache_write",
            Self::CacheWrite1h => "cache_write_1h",
            Self::Reasoning => "reasoning",
            Self::InputImage => "input_image",
            Self::OutputImage => "output_image",
            Self::InputAudio => "input_audio",
            Self::OutputAudio => "output_audio",
            Self::Image => "image",
            Self::ImageOut => "image_out",
            Self::Request => "request",
            Self::WebSearch => "web_search",
            Self::CodeExecHour => "code_exec_hour",
            Self::Container => "container",
            Self::Character => "character",
            Self::AudioHour => "audio_hour",
        }
    }

    /// Whether tokens are counted; all others are pieces and hours, which no tier and no place makes dearer.
    pub fn is_token(self) -> bool {
        self.otherwise().is_some() || matches!(self, Self::Input | Self::Output)
    }

    /// Whether its price is written per million.
    pub fn is_by_million(self) -> bool {
        self.is_token() || self == Self::Character
    }

    /// Whose price holds where this one has none: nothing that was used is free by accident.
    fn otherwise(self) -> Option<Self> {
        match self {
            Self::CacheRead | Self::CacheWrite | Self::InputImage | Self::InputAudio => Some(Self::Input),
            Self::CacheWrite1h => Some(Self::CacheWrite),
            Self::Reasoning | Self::OutputImage | Self::OutputAudio => Some(Self::Output),
            Self::Input | Self::Output | Self::Image | Self::ImageOut => None,
            Self::Request | Self::WebSearch | Self::CodeExecHour | Self::Container => None,
            Self::Character | Self::AudioHour => None,
        }
    }
}

/// Prices by unit, as far as they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Prices([Option<Price>; Unit::ALL.len()]);

impl Prices {
    pub fn get(&self, unit: Unit) -> Option<Price> {
        self.0[unit as usize]
    }

    pub fn set(&mut self, unit: Unit, price: Price) {
        self.0[unit as usize] = Some(price);
    }

    /// The price in force: the unit's own, or that of what it is a kind of, or nothing.
    pub fn of(&self, unit: Unit) -> Price {
        let mut unit = unit;
        loop {
            match (self.get(unit), unit.otherwise()) {
                (Some(price), _) => return Price(price.0.max(0)),
                (None, Some(other)) => unit = other,
                (None, None) => return Price(0),
            }
        }
    }

    /// These prices with those of `other` in place of them, where it names some.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = other.or(*own);
        }
        self
    }

    pub(super) fn is_free(&self) -> bool {
        self.0.iter().flatten().all(|price| price.0 <= 0)
    }

    /// Every price that is named, in the order of [`Unit::ALL`].
    pub fn named(&self) -> impl Iterator<Item = (Unit, Price)> + '_ {
        Unit::ALL.into_iter().filter_map(|unit| Some((unit, self.get(unit)?)))
    }
}

impl FromIterator<(Unit, Price)> for Prices {
    fn from_iter<T: IntoIterator<Item = (Unit, Price)>>(prices: T) -> Self {
        let mut all = Self::default();
        for (unit, price) in prices {
            all.set(unit, price);
        }
        all
    }
}

/// What a service tier costs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "few of them, made once and read often")]
pub enum Tier {
    /// So many times the price of every token.
    Times(Factor),
    /// Prices of its own: in place of the usual ones, their long-prompt sets and overrides.
    Set { prices: Prices, above: Vec<(u64, Prices)> },
}

/// Prices that hold while all conditions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Override {
    /// Prompts of at least so many tokens.
    pub min_prompt_tokens: Option<u64>,
    pub window: Option<Window>,
    pub prices: Prices,
}

impl Override {
    pub(super) fn holds(&self, prompt: u64, now: Timestamp) -> bool {
        self.min_prompt_tokens.is_none_or(|least| prompt >= least) && self.window.is_none_or(|window| window.holds(now))
    }
}

/// A part of every day, in milliseconds since midnight UTC. One that ends before it starts goes past midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub start: u32,
    pub end: u32,
}

impl Window {
    pub const DAY: u32 = 24 * 60 * 60 * 1_000;

    pub fn holds(self, now: Timestamp) -> bool {
        let now = now.0.rem_euclid(i64::from(Self::DAY));
        let (start, end) = (i64::from(self.start), i64::from(self.end));
        if start < end { start <= now && now < end } else { start <= now || now < end }
    }
}
