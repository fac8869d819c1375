//! `/analytics/meta` and `/analytics/query`: figures about finished requests, asked by hand.

use std::time::Duration;

use http::StatusCode;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tidegate_core::{KeyHash, Money, Timestamp};
use tidegate_gateway::Failure;
use tidegate_store::analytics::{Column, Dimension, Filter, Granularity, Line, Measure, Metric, Question, Sense, Side};
use tidegate_wire::json as text;
use tokio::time::timeout;

use super::account::{Answering, Dollars, Request, data, internal};
use super::form::{Form, Reader};
use super::time;
use crate::router::Call;

/// How long an answer is waited for.
const LONGEST: Duration = Duration::from_secs(10);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const MOST_DAYS: i64 = 366;
const USUAL_DAYS: i64 = 7;
const MOST_FILTERS: usize = 20;
const MOST_VALUES: usize = 100;
const LONGEST_VALUE: usize = 256;
const MOST_LINES: i64 = 10_000;
const USUAL_LINES: u32 = 1_000;

/// How a metric is shown: its name, its label, and in which form.
pub const METRICS: [(&str, &str, &str, Metric); 16] = [
    ("request_count", "Requests", "number", Metric::RequestCount),
    ("error_count", "Errors", "number", Metric::ErrorCount),
    ("error_rate", "Error rate", "percent", Metric::ErrorRate),
    ("prompt_tokens", "Prompt tokens", "number", Metric::PromptTokens),
    ("completion_tokens", "Completion tokens", "number", Metric::CompletionTokens),
    ("reasoning_tokens", "Reasoning tokens", "number", Metric::ReasoningTokens),
    ("cached_tokens", "Cached prompt tokens", "number", Metric::CachedTokens),
    ("total_cost", "Cost", "currency", Metric::TotalCost),
    ("byok_cost", "Cost of own credentials", "currency", Metric::ByokCost),
    ("latency_p50", "Time to first token, median", "latency", Metric::LatencyP50),
    ("latency_p95", "Time to first token, 95th percentile", "latency", Metric::LatencyP95),
    ("generation_time_p50", "Duration, median", "latency", Metric::GenerationTimeP50),
    ("throughput_p50", "Tokens a second, median", "throughput", Metric::ThroughputP50),
    ("cache_hit_rate", "Prompt tokens read from caches", "percent", Metric::CacheHitRate),
    ("tool_calls", "Web searches and fetches", "number", Metric::ToolCalls),
    ("fallback_rate", "Requests with more than one attempt", "percent", Metric::FallbackRate),
];

pub const DIMENSIONS: [(&str, &str, Dimension); 12] = [
    ("model", "Model", Dimension::Model),
    ("provider", "Provider", Dimension::Provider),
    ("api_key_id", "Key", Dimension::Key),
    ("user", "Member", Dimension::User),
    ("workspace", "Workspace", Dimension::Workspace),
    ("app", "Application", Dimension::App),
    ("origin", "Origin", Dimension::Origin),
    ("finish_reason", "Finish reason", Dimension::FinishReason),
    ("router", "Router", Dimension::Router),
    ("session", "Session", Dimension::Session),
    ("country", "Country", Dimension::Country),
    ("is_byok", "Own credential", Dimension::IsByok),
];

pub const GRANULARITIES: [(&str, &str, Granularity); 5] = [
    ("minute", "Minute", Granularity::Minute),
    ("hour", "Hour", Granularity::Hour),
    ("day", "Day", Granularity::Day),
    ("week", "Week", Granularity::Week),
    ("month", "Month", Granularity::Month),
];

/// What filters may compare beside dimensions.
const MEASURES: [(&str, Measure); 7] = [
    ("prompt_tokens", Measure::PromptTokens),
    ("completion_tokens", Measure::CompletionTokens),
    ("reasoning_tokens", Measure::ReasoningTokens),
    ("cached_tokens", Measure::CachedTokens),
    ("total_cost", Measure::TotalCost),
    ("latency", Measure::Latency),
    ("generation_time", Measure::GenerationTime),
];

pub const OPERATORS: [(&str, &str, Operator); 8] = [
    ("eq", "scalar", Operator::Sense(Sense::Equal)),
    ("neq", "scalar", Operator::Sense(Sense::Unequal)),
    ("gt", "scalar", Operator::Sense(Sense::More)),
    ("gte", "scalar", Operator::Sense(Sense::MoreOrEqual)),
    ("lt", "scalar", Operator::Sense(Sense::Less)),
    ("lte", "scalar", Operator::Sense(Sense::LessOrEqual)),
    ("in", "array", Operator::Among),
    ("not_in", "array", Operator::NotAmong),
];

#[derive(Clone, Copy, Debug)]
pub enum Operator {
    Sense(Sense),
    Among,
    NotAmong,
}

#[derive(Clone, Copy)]
enum Field {
    Dimension(Dimension),
    Measure(Measure),
}

pub fn meta(call: Call) -> Answering {
    Box::pin(async move {
        Request::of(call)?;
        let metric = |(name, label, format, _): (&str, &str, &str, Metric)| {
            let is_rate = matches!(format, "percent" | "throughput");
            json!({"name": name, "display_label": label, "display_format": format, "is_rate": is_rate})
        };
        let named = |name: &str, label: &str| json!({"name": name, "display_label": label});
        let told = json!({
            "metrics": METRICS.map(metric),
            "dimensions": DIMENSIONS.map(|(name, label, _)| named(name, label)),
            "operators": OPERATORS.map(|(name, kind, _)| json!({"name": name, "value_type": kind})),
            "granularities": GRANULARITIES.map(|(name, label, _)| named(name, label)),
        });
        Ok(data(StatusCode::OK, &told))
    })
}

pub fn query(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let mut asked = read(&body, request.now())?;
        let mut warnings = asked.warnings.split_off(0);
        for hash in &asked.hashes {
            let known = request.app.store.find_tenant_key(&request.tenant, hash, None).await.map_err(internal)?;
            if known.is_none() {
                warnings.push(format!("api_key_id: no live key has the hash {}…", &hash.to_hex()[..8]));
            }
        }
        // Everything that was settled before this call is in the store.
        request.settled().await;
        let clock = &request.app.gateway.clock;
        let began = clock.instant();
        let answered = timeout(LONGEST, async {
            // A few at a time: others want to read, too.
            let _turn = request.app.analytics.acquire().await;
            request.app.store.analytics(&request.tenant, &asked.question, LONGEST).await
        });
        let lines = match answered.await {
            Ok(answered) => answered.map_err(internal)?,
            Err(_) => None,
        };
        let mut lines = lines.ok_or_else(Failure::too_slow)?;
        let taken = clock.instant().saturating_duration_since(began);
        let most = asked.question.limit as usize;
        let truncated = lines.len() > most;
        lines.truncate(most);
        let rows: Vec<Value> = lines.iter().map(|line| asked.row(line)).collect();
        let mut answer = json!({
            "data": rows,
            "metadata": {"query_time_ms": taken.as_millis() as u64, "row_count": rows.len(), "truncated": truncated},
        });
        if !warnings.is_empty() {
            answer["warnings"] = json!(warnings);
        }
        Ok(data(StatusCode::OK, &answer))
    })
}

/// A question and the names that its answer is told in.
struct Asked {
    question: Question,
    metrics: Vec<&'static str>,
    dimensions: Vec<&'static str>,
    time: Option<String>,
    warnings: Vec<String>,
    /// Keys that filters name by their hash.
    hashes: Vec<KeyHash>,
}

impl Asked {
    fn row(&self, line: &Line) -> Value {
        let mut row = Map::new();
        if let (Some(name), Some(granularity)) = (&self.time, self.question.granularity) {
            row.insert(name.clone(), json!(instant(line.at, granularity)));
        }
        for ((name, dimension), value) in self.dimensions.iter().zip(&self.question.dimensions).zip(&line.values) {
            let shown = value.as_ref().map(|side| side.label.as_ref().unwrap_or(&side.id));
            row.insert((*name).to_owned(), json!(shown));
            if let Some(id) = value.as_ref().and_then(|side| id(*dimension, side)) {
                row.insert(format!("{name}__id"), id);
            }
        }
        for ((name, metric), figure) in self.metrics.iter().zip(&self.question.metrics).zip(&line.figures) {
            row.insert((*name).to_owned(), figure.map_or(Value::Null, |figure| shown(*metric, figure)));
        }
        Value::Object(row)
    }
}

/// What a filter takes, where that is not what is shown.
fn id(dimension: Dimension, side: &Side) -> Option<Value> {
    match dimension {
        Dimension::Key => KeyHash::parse(&side.id).map(|hash| json!(hash.number())),
        Dimension::User | Dimension::Workspace => Some(json!(side.id)),
        Dimension::Model
        | Dimension::Provider
        | Dimension::App
        | Dimension::Origin
        | Dimension::FinishReason
        | Dimension::Router
        | Dimension::Session
        | Dimension::Country
        | Dimension::IsByok => None,
    }
}

fn shown(metric: Metric, figure: f64) -> Value {
    match metric {
        Metric::TotalCost | Metric::ByokCost => json!(Dollars(Money(figure as i64))),
        _ if figure.fract() == 0.0 && figure.abs() < 2_f64.powi(53) => json!(figure as i64),
        _ => json!(figure),
    }
}

/// Days and what is longer by their first day, shorter parts by their first instant.
fn instant(at: Timestamp, granularity: Granularity) -> String {
    let text = at.to_string();
    match granularity {
        Granularity::Minute | Granularity::Hour => format!("{}Z", text.get(..19).unwrap_or(&text)),
        Granularity::Day | Granularity::Week | Granularity::Month => text.get(..10).unwrap_or(&text).to_owned(),
    }
}

fn read(body: &bytes::Bytes, now: Timestamp) -> Result<Asked, Failure> {
    let mut form = Form::read(body)?;
    for name in ["classifier_dimensions", "classifier_filters"] {
        if form.nullable(name, |_, _| Some(())).flatten().is_some() {
            form.issues.add(name, "cannot be used: there are no classifiers here");
        }
    }
    let words = METRICS.map(|(name, .., metric)| (name, (name, metric)));
    let metrics = form.value("metrics", |reader, raw| listed(reader, raw, 1..=METRICS.len(), &words));
    let metrics = form.require("metrics", metrics).unwrap_or_default();
    let words = DIMENSIONS.map(|(name, _, dimension)| (name, (name, dimension)));
    let dimensions = form.value("dimensions", |reader, raw| listed(reader, raw, 0..=2, &words)).unwrap_or_default();
    let granularity = form.word("granularity", &GRANULARITIES.map(|(name, _, each)| (name, (name, each))));
    let time = granularity.map(|(name, _)| format!("date__{name}"));
    let granularity = granularity.map(|(_, granularity)| granularity);
    let mut hashes = Vec::new();
    let filters = form.value("filters", |reader, raw| filters(reader, raw, &mut hashes)).unwrap_or_default();
    let range = form.value("time_range", |reader, raw| range(reader, raw, granularity));
    let range = range.unwrap_or_else(|| {
        let days = if granularity == Some(Granularity::Minute) { 1 } else { USUAL_DAYS };
        // What is settled in this very millisecond counts.
        (Timestamp(now.0 - days * DAY_MS + 1), Timestamp(now.0 + 1))
    });
    let order = form.value("order_by", |reader, raw| {
        reader.form(raw, |form| {
            let field = form.text("field", 1..=LONGEST_VALUE);
            let field = form.require("field", field);
            let direction = form.word("direction", &[("asc", false), ("desc", true)]);
            let (field, is_down) = (field?, form.require("direction", direction)?);
            let metric = metrics.iter().position(|(name, _)| *name == field).map(Column::Metric);
            let dimension = || dimensions.iter().position(|(name, _)| *name == field).map(Column::Dimension);
            let column =
                metric.or_else(dimension).or_else(|| (time.as_deref() == Some(&field)).then_some(Column::Time));
            if column.is_none() {
                form.issues
                    .add("field", "must be one of the metrics, the dimensions or the time column that are asked for");
            }
            Some((column?, is_down))
        })
    });
    let lines = |reader: &mut Reader<'_>, raw: &RawValue| reader.integer(raw, 1..=MOST_LINES);
    let limit = form.value("limit", lines);
    let group_limit = form.value("group_limit", lines);
    form.finish()?;
    let most = |limit: Option<i64>| limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(USUAL_LINES);
    let mut warnings = Vec::new();
    for (name, dimension) in &dimensions {
        if matches!(dimension, Dimension::Country) {
            warnings.push(format!("{name}: records do not hold it, so it is null"));
        }
    }
    let (limit, group_limit) = (most(limit), most(group_limit));
    // Without time the groups are the lines.
    let limit = if granularity.is_none() && !dimensions.is_empty() { limit.min(group_limit.max(1)) } else { limit };
    Ok(Asked {
        question: Question {
            metrics: metrics.iter().map(|(_, metric)| *metric).collect(),
            dimensions: dimensions.iter().map(|(_, dimension)| *dimension).collect(),
            filters,
            granularity,
            range,
            order,
            limit,
            group_limit,
        },
        metrics: metrics.into_iter().map(|(name, _)| name).collect(),
        dimensions: dimensions.into_iter().map(|(name, _)| name).collect(),
        time,
        warnings,
        hashes,
    })
}

/// A list of words, each once.
fn listed<T: Copy>(
    reader: &mut Reader<'_>,
    raw: &RawValue,
    count: std::ops::RangeInclusive<usize>,
    words: &[(&'static str, (&'static str, T))],
) -> Option<Vec<(&'static str, T)>> {
    let places: Vec<(&str, usize)> = words.iter().enumerate().map(|(place, (name, _))| (*name, place)).collect();
    let places = reader.list(raw, count, |reader, raw| reader.word(raw, &places))?;
    Some(places.into_iter().map(|place| words[place].1).collect())
}

fn range(reader: &mut Reader<'_>, raw: &RawValue, granularity: Option<Granularity>) -> Option<(Timestamp, Timestamp)> {
    let (start, end) = reader.form(raw, |form| {
        let mut instant = |name: &str| {
            let read = form.value(name, |reader, raw| {
                let parsed = text::string(raw).and_then(|text| time::instant(&text));
                parsed.or_else(|| reader.refuse("must be a time such as 2027-01-31T00:00:00Z"))
            });
            form.require(name, read)
        };
        let (start, end) = (instant("start"), instant("end"));
        Some((start?, end?))
    })?;
    let days = match granularity {
        Some(Granularity::Minute) => 1,
        _ => MOST_DAYS,
    };
    if end <= start {
        return reader.refuse("must end after its start");
    }
    if end.0.saturating_sub(start.0) > days * DAY_MS {
        let unit = if days == 1 { "24 hours with minutes".to_owned() } else { format!("{days} days") };
        return reader.refuse(format!("must not be longer than {unit}"));
    }
    if start.0 < 0 {
        return reader.refuse("must begin in 1970 or later");
    }
    Some((start, end))
}

fn filters(reader: &mut Reader<'_>, raw: &RawValue, hashes: &mut Vec<KeyHash>) -> Option<Vec<Filter>> {
    let mut read = Vec::new();
    let mut place = 0_usize;
    // Filters are not counted as equal: two of them are two conditions.
    reader.list(raw, 0..=MOST_FILTERS, |reader, raw| {
        place += 1;
        let filter = reader.form(raw, |form| filter(form, hashes))?;
        read.push(filter);
        Some(place)
    })?;
    Some(read)
}

fn filter(form: &mut Form<'_>, hashes: &mut Vec<KeyHash>) -> Option<Filter> {
    let dimensions = DIMENSIONS.iter().map(|(name, _, dimension)| (*name, Field::Dimension(*dimension)));
    let fields: Vec<(&str, Field)> =
        dimensions.chain(MEASURES.iter().map(|(name, measure)| (*name, Field::Measure(*measure)))).collect();
    let field = form.word("field", &fields);
    let field = form.require("field", field);
    let operator = form.word("operator", &OPERATORS.map(|(name, _, operator)| (name, operator)));
    let operator = form.require("operator", operator);
    let or_unset = form.flag("include_unset").unwrap_or(false);
    let (field, operator) = (field?, operator?);
    match (field, operator) {
        (Field::Dimension(dimension), Operator::Among | Operator::NotAmong) => {
            let values = form.value("value", |reader, raw| {
                reader.list(raw, 1..=MOST_VALUES, |reader, raw| value(reader, raw, dimension, hashes))
            });
            let is_not = matches!(operator, Operator::NotAmong);
            Some(Filter::Among { dimension, values: form.require("value", values)?, is_not, or_unset })
        }
        (Field::Dimension(dimension), Operator::Sense(sense @ (Sense::Equal | Sense::Unequal))) => {
            let one = form.value("value", |reader, raw| value(reader, raw, dimension, hashes));
            let is_not = sense == Sense::Unequal;
            Some(Filter::Among { dimension, values: vec![form.require("value", one)?], is_not, or_unset })
        }
        (Field::Measure(measure), Operator::Sense(sense)) => {
            let figure = form.value("value", |reader, raw| reader.number(raw, f64::MIN..=f64::MAX));
            Some(Filter::Compared { measure, sense, value: form.require("value", figure)?, or_unset })
        }
        (Field::Dimension(_), Operator::Sense(_)) => {
            form.issues.add("operator", "must be one of eq, neq, in, not_in for this field");
            None
        }
        (Field::Measure(_), Operator::Among | Operator::NotAmong) => {
            form.issues.add("operator", "must be one of eq, neq, gt, gte, lt, lte for this field");
            None
        }
    }
}

/// One value of a dimension, as it stands in records.
fn value(reader: &mut Reader<'_>, raw: &RawValue, dimension: Dimension, hashes: &mut Vec<KeyHash>) -> Option<String> {
    match dimension {
        Dimension::Key => {
            if let Some(number) = raw.get().parse::<i64>().ok().filter(|number| (0..1 << 52).contains(number)) {
                return Some(format!("{number:013x}"));
            }
            let Some(hash) = text::string(raw).and_then(|text| KeyHash::parse(&text)) else {
                return reader.refuse("must be the number of a key or its hash");
            };
            hashes.push(hash);
            Some(hash.to_hex()[..13].to_owned())
        }
        Dimension::IsByok if matches!(raw.get(), "true" | "false") => Some(raw.get().to_owned()),
        Dimension::IsByok => reader.word(raw, &[("true", "true"), ("false", "false")]).map(ToOwned::to_owned),
        _ => reader.text(raw, 1..=LONGEST_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_line_is_told_in_its_own_measure() {
        // 2026-02-01T10:20:30.400Z
        let at = Timestamp(1_769_941_230_400);
        assert_eq!(instant(at, Granularity::Minute), "2026-02-01T10:20:30Z");
        assert_eq!(instant(at, Granularity::Month), "2026-02-01");
    }

    #[test]
    fn every_metric_is_listed_once() {
        for metric in Metric::ALL {
            assert_eq!(METRICS.iter().filter(|(.., known)| *known == metric).count(), 1, "{metric:?}");
        }
    }

    #[test]
    fn money_is_told_to_the_last_digit_and_counts_without_one() {
        assert_eq!(shown(Metric::TotalCost, 207_000.0).to_string(), "0.000207");
        assert_eq!(shown(Metric::RequestCount, 3.0).to_string(), "3");
        assert_eq!(shown(Metric::ErrorRate, 0.5).to_string(), "0.5");
    }
}
