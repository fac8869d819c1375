//! The object `provider`: what a caller wants of those who serve a request, read and checked.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::Violation;
use super::check::{self, Place};
use crate::json::{self, Kind};

pub const SORTS: [&str; 4] = ["price", "throughput", "latency", "exacto"];
pub const QUANTIZATIONS: [&str; 12] =
    ["int4", "int8", "fp4", "mxfp4", "nvfp4", "fp6", "fp8", "mxfp8", "fp16", "bf16", "fp32", "unknown"];

/// Routing preferences as they are written; null is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provider<'a> {
    pub order: Vec<Cow<'a, str>>,
    pub only: Vec<Cow<'a, str>>,
    pub ignore: Vec<Cow<'a, str>>,
    /// Of `QUANTIZATIONS`.
    pub quantizations: Vec<Cow<'a, str>>,
    pub allow_fallbacks: Option<bool>,
    pub require_parameters: Option<bool>,
    pub zdr: Option<bool>,
    pub enforce_distillable_text: Option<bool>,
    /// `allow` or `deny`.
    pub data_collection: Option<Cow<'a, str>>,
    /// Of `SORTS`.
    pub sort: Option<Cow<'a, str>>,
    pub partition: Option<Partition>,
    pub preferred_min_throughput: CutOffs,
    pub preferred_max_latency: CutOffs,
    pub max_price: MaxPrice<'a>,
    /// Options for single providers, by their slugs, as JSON objects; only requests for pictures have them.
    pub options: Vec<(Cow<'a, str>, &'a str)>,
}

/// What is sorted together: the endpoints of each model, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    Model,
    None,
}

/// By percentile; a bare number means the median.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CutOffs {
    pub p50: Option<f64>,
    pub p75: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
}

/// Dollars as decimal texts, so that no digit is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaxPrice<'a> {
    pub prompt: Option<Cow<'a, str>>,
    pub completion: Option<Cow<'a, str>>,
    pub request: Option<Cow<'a, str>>,
    pub image: Option<Cow<'a, str>>,
    pub audio: Option<Cow<'a, str>>,
}

pub(super) fn provider<'a>(place: &Place<'_>, value: &'a RawValue) -> Result<Provider<'a>, Violation> {
    read(place, value, false)
}

/// The same with options for single providers.
pub(super) fn with_options<'a>(place: &Place<'_>, value: &'a RawValue) -> Result<Provider<'a>, Violation> {
    read(place, value, true)
}

fn read<'a>(place: &Place<'_>, value: &'a RawValue, takes_options: bool) -> Result<Provider<'a>, Violation> {
    let mut read = Provider::default();
    for (name, value) in &check::members(place, value)?.0 {
        let place = place.member(name);
        let is_null = json::kind(value) == Kind::Null;
        match name.as_ref() {
            "order"
            | "only"
            | "ignore"
            | "quantizations"
            | "allow_fallbacks"
            | "require_parameters"
            | "zdr"
            | "enforce_distillable_text"
            | "data_collection"
            | "sort"
            | "preferred_min_throughput"
            | "preferred_max_latency"
            | "max_price"
                if is_null => {}
            "order" => read.order = texts(&place, value)?,
            "only" => read.only = texts(&place, value)?,
            "ignore" => read.ignore = texts(&place, value)?,
            "quantizations" => {
                let entries = check::entries(&place, value, 0, usize::MAX)?.into_iter().enumerate();
                let levels = entries.map(|(index, entry)| check::one_of(&place.entry(index), entry, &QUANTIZATIONS));
                read.quantizations = levels.collect::<Result<_, _>>()?;
            }
            "allow_fallbacks" => read.allow_fallbacks = Some(check::boolean(&place, value)?),
            "require_parameters" => read.require_parameters = Some(check::boolean(&place, value)?),
            "zdr" => read.zdr = Some(check::boolean(&place, value)?),
            "enforce_distillable_text" => read.enforce_distillable_text = Some(check::boolean(&place, value)?),
            "data_collection" => read.data_collection = Some(check::one_of(&place, value, &["allow", "deny"])?),
            "sort" => sort(&place, value, &mut read)?,
            "preferred_min_throughput" => read.preferred_min_throughput = cut_offs(&place, value)?,
            "preferred_max_latency" => read.preferred_max_latency = cut_offs(&place, value)?,
            "max_price" => read.max_price = max_price(&place, value)?,
            "options" if takes_options && is_null => {}
            "options" if takes_options => {
                for (slug, value) in check::members(&place, value)?.0 {
                    check::object(&place.member(&slug), value)?;
                    read.options.push((slug, value.get()));
                }
            }
            _ => return Err(place.is("is not allowed")),
        }
    }
    Ok(read)
}

fn texts<'a>(place: &Place<'_>, value: &'a RawValue) -> Result<Vec<Cow<'a, str>>, Violation> {
    let entries = check::entries(place, value, 0, usize::MAX)?.into_iter().enumerate();
    entries.map(|(index, entry)| check::text(&place.entry(index), entry)).collect()
}

fn sort<'a>(place: &Place<'_>, value: &'a RawValue, read: &mut Provider<'a>) -> Result<(), Violation> {
    if json::kind(value) == Kind::String {
        read.sort = Some(check::one_of(place, value, &SORTS)?);
        return Ok(());
    }
    check::text_or_object(place, value)?;
    for (name, value) in &check::members(place, value)?.0 {
        let place = place.member(name);
        let is_null = json::kind(value) == Kind::Null;
        match name.as_ref() {
            "by" | "partition" if is_null => {}
            "by" => read.sort = Some(check::one_of(&place, value, &SORTS)?),
            "partition" => {
                let partition = check::one_of(&place, value, &["model", "none"])?;
                read.partition = Some(if partition == "none" { Partition::None } else { Partition::Model });
            }
            _ => return Err(place.is("is not allowed")),
        }
    }
    Ok(())
}

fn cut_offs(place: &Place<'_>, value: &RawValue) -> Result<CutOffs, Violation> {
    let number = |place: &Place<'_>, value: &RawValue| {
        check::number_between(place, value, 0.0, 1e9)?;
        Ok(value.get().parse::<f64>().ok())
    };
    let mut read = CutOffs::default();
    match json::kind(value) {
        Kind::Number => read.p50 = number(place, value)?,
        Kind::Object => {
            for (name, value) in &check::members(place, value)?.0 {
                let place = place.member(name);
                let figure = match name.as_ref() {
                    "p50" => &mut read.p50,
                    "p75" => &mut read.p75,
                    "p90" => &mut read.p90,
                    "p99" => &mut read.p99,
                    _ => return Err(place.is("is not allowed")),
                };
                if json::kind(value) != Kind::Null {
                    *figure = number(&place, value)?;
                }
            }
        }
        _ => return Err(place.is("must be a number or an object")),
    }
    Ok(read)
}

fn max_price<'a>(place: &Place<'_>, value: &'a RawValue) -> Result<MaxPrice<'a>, Violation> {
    let mut read = MaxPrice::default();
    for (name, value) in &check::members(place, value)?.0 {
        let place = place.member(name);
        let price = match name.as_ref() {
            "prompt" => &mut read.prompt,
            "completion" => &mut read.completion,
            "request" => &mut read.request,
            "image" => &mut read.image,
            "audio" => &mut read.audio,
            _ => return Err(place.is("is not allowed")),
        };
        *price = match json::kind(value) {
            Kind::Null => None,
            Kind::Number => Some(Cow::Borrowed(value.get())),
            Kind::String => Some(check::text(&place, value)?),
            _ => return Err(place.is("must be a number")),
        };
        if let Some(text) = price {
            // The words for what is no number are numbers to the parser.
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
            match text.parse::<f64>() {
                Ok(number) if is_plain && number < 0.0 => return Err(place.is("must be at least 0")),
                Ok(_) if is_plain => {}
                _ => return Err(place.is("must be a number")),
            }
        }
    }
    Ok(read)
}
