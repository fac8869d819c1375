//! What endpoints cost, as it is written: kept as text, since a price is read exactly or not at all.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tidegate_routing::price::Unit;

/// A set of prices by unit, and whatever stands beside them.
macro_rules! prices {
    ($(#[$about:meta])* $name:ident { $($(#[$said:meta])* $more:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            pub input: Option<Decimal>,
            /// With the thinking.
            pub output: Option<Decimal>,
            pub cache_read: Option<Decimal>,
            /// Kept for five minutes.
            pub cache_write: Option<Decimal>,
            pub cache_write_1h: Option<Decimal>,
            /// Where thinking does not cost what other output does.
            pub reasoning: Option<Decimal>,
            /// Tokens of pictures and of sound, where they do not cost what others do.
            pub input_image: Option<Decimal>,
            pub output_image: Option<Decimal>,
            pub input_audio: Option<Decimal>,
            pub output_audio: Option<Decimal>,
            /// Each picture in the prompt, and each that is made.
            pub image: Option<Decimal>,
            pub image_out: Option<Decimal>,
            /// Each call.
            pub request: Option<Decimal>,
            pub web_search: Option<Decimal>,
            pub code_exec_hour: Option<Decimal>,
            pub container: Option<Decimal>,
            /// A million characters of a text that is spoken.
            pub character: Option<Decimal>,
            /// An hour of sound that is listened to.
            pub audio_hour: Option<Decimal>,
            $($(#[$said])* pub $more: $kind,)*
        }

        impl $name {
            pub fn units(&self) -> [(Unit, Option<&Decimal>); Unit::ALL.len()] {
                [
                    (Unit::Input, self.input.as_ref()),
                    (Unit::Output, self.output.as_ref()),
                    (Unit::CacheRead, self.cache_read.as_ref()),
                    (Unit::CacheWrite, self.cache_write.as_ref()),
                    (Unit::CacheWrite1h, self.cache_write_1h.as_ref()),
                    (Unit::Reasoning, self.reasoning.as_ref()),
                    (Unit::InputImage, self.input_image.as_ref()),
                    (Unit::OutputImage, self.output_image.as_ref()),
                    (Unit::InputAudio, self.input_audio.as_ref()),
                    (Unit::OutputAudio, self.output_audio.as_ref()),
                    (Unit::Image, self.image.as_ref()),
                    (Unit::ImageOut, self.image_out.as_ref()),
                    (Unit::Request, self.request.as_ref()),
                    (Unit::WebSearch, self.web_search.as_ref()),
                    (Unit::CodeExecHour, self.code_exec_hour.as_ref()),
                    (Unit::Container, self.container.as_ref()),
                    (Unit::Character, self.character.as_ref()),
                    (Unit::AudioHour, self.audio_hour.as_ref()),
                ]
            }
        }
    };
}

prices! {
    /// Dollars per million tokens or characters; `image`, `image_out`, `request`, `web_search`, `code_exec_hour`,
    /// `container` and `audio_hour` in dollars each. `input` and `output` are needed.
    Pricing {
        /// Other prices for the whole of a call whose prompt has more than so many tokens: `above = { 200k = { input = 4 } }`.
        above: BTreeMap<String, PriceSet>,
        /// By the service tier that served: so many times the price of tokens, or other prices.
        tier: BTreeMap<String, TierPrice>,
        /// So many times the price of tokens, by where the model ran: `geo = { us = 1.1 }`.
        geo: BTreeMap<String, Decimal>,
        /// Other prices while all conditions hold; later ones win.
        overrides: Vec<PriceOverride>,
        /// The share of everything that is not charged: 0.25 is a quarter off.
        discount: Option<Decimal>,
    }
}
prices! {
    /// Prices that differ from the usual ones.
    PriceSet {}
}
prices! {
    /// Prices of a service tier, where they differ from the usual ones.
    TierSet {
        /// For long prompts.
        above: BTreeMap<String, PriceSet>,
    }
}
prices! {
    /// Prices that hold while all conditions do.
    PriceOverride {
        /// Prompts of at least so many tokens.
        min_prompt_tokens: Option<u64>,
        /// A part of every day, `16:30` to `00:30`, in UTC.
        utc_start: Option<String>,
        utc_end: Option<String>,
    }
}

/// What a service tier costs: `0.5`, or prices of its own.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TierPrice {
    Times(Decimal),
    Set(Box<TierSet>),
}

// By hand: a mistake inside is named with its own place, which an untagged enum loses.
impl<'de> Deserialize<'de> for TierPrice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TierVisitor;
        impl<'de> Visitor<'de> for TierVisitor {
            type Value = TierPrice;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number or prices")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                DecimalVisitor.visit_i64(number).map(TierPrice::Times)
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                DecimalVisitor.visit_f64(number).map(TierPrice::Times)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                DecimalVisitor.visit_str(text).map(TierPrice::Times)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                TierSet::deserialize(MapAccessDeserializer::new(map)).map(|set| TierPrice::Set(Box::new(set)))
            }
        }
        deserializer.deserialize_any(TierVisitor)
    }
}

/// A decimal number, kept as its text: `0.60`, `3`, or `"0.60"`.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Decimal(String);

impl Decimal {
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn text(&self) -> &str {
        &self.0
    }
}

struct DecimalVisitor;

impl Visitor<'_> for DecimalVisitor {
    type Value = Decimal;
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a decimal number")
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Decimal, E> {
        Ok(Decimal(number.to_string()))
    }
    // Only from the built-in catalogue; what an operator writes comes as its text. The shortest text of such a number is
    // the one that was written, up to 15 digits: more than any of its prices has.
    fn visit_f64<E: Error>(self, number: f64) -> Result<Decimal, E> {
        Ok(Decimal(number.to_string()))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Decimal, E> {
        Ok(Decimal(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DecimalVisitor)
    }
}

impl JsonSchema for Decimal {
    fn schema_name() -> Cow<'static, str> {
        "Decimal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "A decimal number, read from its text: `0.60`, `3`, or `\"0.60\"`.", "type": ["number", "string"]})
    }
}
