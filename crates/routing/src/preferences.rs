//! What a caller wants of those who serve the request.

use std::borrow::Cow;

use tidegate_core::money::Price;

use crate::catalogue::Endpoint;
use crate::live::Percentiles;
use crate::set::Quantizations;

/// The caller's wishes. The default wishes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Preferences<'a> {
    /// These first, in this order. Empty lists say nothing, here and below.
    pub order: Vec<Cow<'a, str>>,
    /// These and nobody else.
    pub only: Vec<Cow<'a, str>>,
    /// Anybody but these.
    pub ignore: Vec<Cow<'a, str>>,
    pub allow_fallbacks: bool,
    pub require_parameters: bool,
    /// Nobody who keeps what was said, or learns from it.
    pub deny_collection: bool,
    /// Nobody who keeps what was said.
    pub zdr: bool,
    pub distillable: bool,
    /// Empty: any.
    pub quantizations: Quantizations,
    pub sort: Option<Sort>,
    pub partition: Partition,
    pub min_throughput: Threshold,
    pub max_latency: Threshold,
    pub max_price: MaxPrice,
}

impl Default for Preferences<'_> {
    fn default() -> Self {
        Self {
            order: Vec::new(),
            only: Vec::new(),
            ignore: Vec::new(),
            allow_fallbacks: true,
            require_parameters: false,
            deny_collection: false,
            zdr: false,
            distillable: false,
            quantizations: Quantizations::NONE,
            sort: None,
            partition: Partition::Model,
            min_throughput: Threshold::default(),
            max_latency: Threshold::default(),
            max_price: MaxPrice::default(),
        }
    }
}

/// An order that leaves nothing to chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Price,
    Throughput,
    Latency,
    /// By how well tools are called.
    Exacto,
}

impl Sort {
    pub const NAMES: [&str; 4] = ["price", "throughput", "latency", "exacto"];

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "price" => Some(Self::Price),
            "throughput" => Some(Self::Throughput),
            "latency" => Some(Self::Latency),
            "exacto" => Some(Self::Exacto),
            _ => None,
        }
    }
}

/// What is ordered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Partition {
    /// The endpoints of each model; models stay in the order of the request.
    #[default]
    Model,
    /// All endpoints of all models.
    None,
}

/// Cut-offs by percentile; all that are given must hold.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Threshold {
    pub p50: Option<f32>,
    pub p75: Option<f32>,
    pub p90: Option<f32>,
    pub p99: Option<f32>,
}

impl Threshold {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the figures hold every cut-off by `keeps(figure, cut_off)`; nothing where that cannot be said.
    pub fn holds(&self, figures: &Percentiles, keeps: fn(f32, f32) -> bool) -> Option<bool> {
        let pairs =
            [(self.p50, figures.p50), (self.p75, figures.p75), (self.p90, figures.p90), (self.p99, figures.p99)];
        let mut known = Some(true);
        for (cut_off, figure) in pairs {
            let Some(cut_off) = cut_off else { continue };
            match figure {
                Some(figure) if !keeps(figure, cut_off) => return Some(false),
                Some(_) => {}
                None => known = None,
            }
        }
        known
    }
}

/// The dearest that is still acceptable: per million tokens, and per million pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MaxPrice {
    pub prompt: Option<Price>,
    pub completion: Option<Price>,
    pub request: Option<Price>,
    pub image: Option<Price>,
    pub audio: Option<Price>,
}

impl MaxPrice {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How an entry of a list of providers names an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// By its provider.
    Provider,
    /// This one and no other.
    Exact,
}

/// Whether and how an entry names an endpoint: by its provider's slug or shown name, or by its own tag. Naming a provider
/// does not ask for those of its endpoints that are faster or slower for another price.
pub fn names(entry: &str, endpoint: &Endpoint) -> Option<Match> {
    let suffix = endpoint.tag.strip_prefix(&*endpoint.provider).and_then(|rest| rest.strip_prefix('/'));
    if let Some(suffix) = suffix {
        let shown = || folded(&endpoint.provider_name).chain(Some('/')).chain(folded(suffix));
        if folded(entry).eq(folded(&endpoint.tag)) || folded(entry).eq(shown()) {
            return Some(Match::Exact);
        }
    }
    let is_provider = folded(entry).eq(folded(&endpoint.provider)) || folded(entry).eq(folded(&endpoint.provider_name));
    is_provider.then_some(Match::Provider)
}

/// Letters as they are compared: `Z.AI` is `z-ai`.
fn folded(text: &str) -> impl Iterator<Item = char> + '_ {
    text.trim().chars().map(|letter| match letter {
        ' ' | '.' => '-',
        letter => letter.to_ascii_lowercase(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_found_by_slug_by_shown_name_and_by_tag() {
        let of = |slug: &str, name: &str, suffix: &str| Endpoint {
            provider_name: name.into(),
            tag: format!("{slug}{suffix}").into(),
            ..Endpoint::new("a/m", slug)
        };
        let vertex = of("google-vertex", "Google", "/us-east5");
        let zai = of("z-ai", "Z.AI", "");
        for (entry, endpoint, expected) in [
            ("google-vertex", &vertex, Some(Match::Provider)),
            ("Google-Vertex", &vertex, Some(Match::Provider)),
            ("google", &vertex, Some(Match::Provider)),
            (" GOOGLE ", &vertex, Some(Match::Provider)),
            ("google-vertex/us-east5", &vertex, Some(Match::Exact)),
            ("Google/US-EAST5", &vertex, Some(Match::Exact)),
            ("google-vertex/us-east4", &vertex, None),
            ("google-vertex/", &vertex, None),
            ("us-east5", &vertex, None),
            ("", &vertex, None),
            ("Z.AI", &zai, Some(Match::Provider)),
            ("z ai", &zai, Some(Match::Provider)),
            ("z-ai", &zai, Some(Match::Provider)),
            ("zai", &zai, None),
        ] {
            assert_eq!(names(entry, endpoint), expected, "{entry}");
        }
    }

    #[test]
    fn all_cut_offs_must_hold_and_one_that_is_missed_decides() {
        let figures = Percentiles { p50: Some(1.0), p90: Some(4.0), ..Percentiles::default() };
        let at_most = |figure, cut_off| figure <= cut_off;
        let of = |p50, p90, p99| Threshold { p50, p75: None, p90, p99 };
        for (threshold, holds) in [
            (of(Some(1.0), None, None), Some(true)),
            (of(Some(1.0), Some(4.0), None), Some(true)),
            (of(Some(1.0), Some(3.0), None), Some(false)),
            (of(Some(1.0), None, Some(9.0)), None),
            (of(Some(0.5), None, Some(9.0)), Some(false)),
            (Threshold::default(), Some(true)),
        ] {
            assert_eq!(threshold.holds(&figures, at_most), holds, "{threshold:?}");
        }
    }
}
