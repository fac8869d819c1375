//! Questions about finished requests, and their answers.

use serde_json::{Value, json};

use super::answers::data;
use super::requests::described;
use super::{date_time, flag, full, list, object, text, word};
use crate::api::analytics::{DIMENSIONS, GRANULARITIES, METRICS, OPERATORS};

pub fn schemas() -> Value {
    let metrics: Vec<&str> = METRICS.iter().map(|(name, ..)| *name).collect();
    let dimensions: Vec<&str> = DIMENSIONS.iter().map(|(name, ..)| *name).collect();
    let granularities: Vec<&str> = GRANULARITIES.iter().map(|(name, ..)| *name).collect();
    let operators: Vec<&str> = OPERATORS.iter().map(|(name, ..)| *name).collect();
    let lines = || json!({"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000});
    let value = || json!({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]});
    let filter = object(
        &["field", "operator", "value"],
        json!({
            "field": described(text(1, 256), "A dimension, or a size of a request such as total_cost or latency."),
            "operator": word(&operators),
            "value": {"anyOf": [value(), list(value(), 1, 100)]},
            "include_unset": described(flag(), "Whether requests count that have no such value."),
        }),
    );
    let named = |words: &[&str]| list(full(json!({"name": word(words), "display_label": text(1, 100)})), 0, 100);
    let forms = ["number", "currency", "percent", "latency", "throughput"];
    let metric = full(json!({
        "name": word(&metrics),
        "display_label": text(1, 100),
        "is_rate": flag(),
        "display_format": word(&forms),
    }));
    let operator = full(json!({"name": word(&operators), "value_type": word(&["scalar", "array"])}));
    let mut answer = full(json!({
        "data": {"type": "array", "items": {"type": "object"}},
        "metadata": full(json!({
            "query_time_ms": {"type": "number", "minimum": 0},
            "row_count": {"type": "integer", "minimum": 0},
            "truncated": described(flag(), "Whether there are more lines than were asked for."),
        })),
    }));
    answer["properties"]["warnings"] = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "AnalyticsMeta": data(full(json!({
            "metrics": {"type": "array", "items": metric},
            "dimensions": named(&dimensions),
            "operators": {"type": "array", "items": operator},
            "granularities": named(&granularities),
        }))),
        "AnalyticsQuery": object(&["metrics"], json!({
            "metrics": list(word(&metrics), 1, 16),
            "dimensions": list(word(&dimensions), 0, 2),
            "filters": list(filter, 0, 20),
            "granularity": word(&granularities),
            "time_range": described(
                full(json!({"start": date_time(), "end": date_time()})),
                "At most 366 days, with minutes at most 24 hours; by default the last seven days.",
            ),
            "order_by": full(json!({"field": text(1, 256), "direction": word(&["asc", "desc"])})),
            "limit": lines(),
            "group_limit": described(lines(), "Of how many combinations of dimensions the course of time is told."),
        })),
        "AnalyticsAnswer": data(answer),
    })
}
