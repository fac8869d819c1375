//! The statement of a question. Both databases read the same text: percentiles are the value at a rank, and months are
//! told apart by their first instants, because neither database has a word for these that the other knows.

use std::fmt::Write as _;

use tidegate_core::{GenerationId, Tenant, Timestamp, Window};

use crate::spend::{byok_nanos, credit_nanos};

use super::{Bound, Column, Filter, Question, Sense};

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Ids are made a moment before the time that a request is said to begin at; nobody takes longer between the two.
const SLACK_MS: i64 = HOUR_MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    RequestCount,
    ErrorCount,
    ErrorRate,
    PromptTokens,
    CompletionTokens,
    ReasoningTokens,
    CachedTokens,
    TotalCost,
    ByokCost,
    LatencyP50,
    LatencyP95,
    GenerationTimeP50,
    ThroughputP50,
    CacheHitRate,
    ToolCalls,
    FallbackRate,
}

impl Metric {
    pub const ALL: [Self; 16] = [
        Self::RequestCount,
        Self::ErrorCount,
        Self::ErrorRate,
        Self::PromptTokens,
        Self::CompletionTokens,
        Self::ReasoningTokens,
        Self::CachedTokens,
        Self::TotalCost,
        Self::ByokCost,
        Self::LatencyP50,
        Self::LatencyP95,
        Self::GenerationTimeP50,
        Self::ThroughputP50,
        Self::CacheHitRate,
        Self::ToolCalls,
        Self::FallbackRate,
    ];

    fn sql(self) -> &'static str {
        match self {
            Self::RequestCount => "SUM(is_request)",
            Self::ErrorCount => "SUM(is_error)",
            Self::ErrorRate => "SUM(is_error) / NULLIF(SUM(is_request), 0)",
            Self::PromptTokens => "SUM(prompt)",
            Self::CompletionTokens => "SUM(completion)",
            Self::ReasoningTokens => "SUM(reasoning)",
            Self::CachedTokens => "SUM(cached)",
            Self::TotalCost => "SUM(cost)",
            Self::ByokCost => "SUM(byok)",
            Self::LatencyP50 => "MAX(CASE WHEN latency_rank = (latency_count * 50 + 99) / 100 THEN latency END)",
            Self::LatencyP95 => "MAX(CASE WHEN latency_rank = (latency_count * 95 + 99) / 100 THEN latency END)",
            Self::GenerationTimeP50 => "MAX(CASE WHEN took_rank = (took_count * 50 + 99) / 100 THEN took END)",
            Self::ThroughputP50 => "MAX(CASE WHEN speed_rank = (speed_count * 50 + 99) / 100 THEN speed END)",
            Self::CacheHitRate => "SUM(cached) / NULLIF(SUM(prompt), 0)",
            Self::ToolCalls => "SUM(tools)",
            Self::FallbackRate => {
                "CAST(COUNT(DISTINCT CASE WHEN fell THEN request END) AS DOUBLE PRECISION) \
                 / NULLIF(COUNT(DISTINCT request), 0)"
            }
        }
    }

    /// The column whose ranks it needs.
    fn ranked(self) -> Option<&'static str> {
        match self {
            Self::LatencyP50 | Self::LatencyP95 => Some("latency"),
            Self::GenerationTimeP50 => Some("took"),
            Self::ThroughputP50 => Some("speed"),
            Self::RequestCount
            | Self::ErrorCount
            | Self::ErrorRate
            | Self::PromptTokens
            | Self::CompletionTokens
            | Self::ReasoningTokens
            | Self::CachedTokens
            | Self::TotalCost
            | Self::ByokCost
            | Self::CacheHitRate
            | Self::ToolCalls
            | Self::FallbackRate => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    Model,
    Provider,
    Key,
    User,
    Workspace,
    App,
    Origin,
    FinishReason,
    Router,
    Session,
    Country,
    IsByok,
}

impl Dimension {
    /// Its value as a text that is never NULL; an empty one is none.
    fn sql(self) -> &'static str {
        match self {
            // Until a provider was chosen the model is whatever the caller wrote.
            Self::Model => "CASE WHEN g.provider = '' THEN '' ELSE g.model END",
            Self::Provider => "g.provider",
            Self::Key => "g.key_hash",
            Self::User => {
                "COALESCE((SELECT k.creator_user_id FROM api_keys k \
                 WHERE k.organisation_id = g.organisation_id AND k.hash = g.key_hash), '')"
            }
            Self::Workspace => "g.workspace_id",
            Self::App => "COALESCE(g.title, g.referer, '')",
            Self::Origin => "COALESCE(g.referer, '')",
            Self::FinishReason => "COALESCE(g.stop_reason, '')",
            Self::Session => "COALESCE(g.session_id, '')",
            Self::IsByok => "CASE WHEN g.is_byok THEN 'true' ELSE 'false' END",
            Self::Router => "COALESCE(g.router, '')",
            // Records do not hold it.
            Self::Country => "''",
        }
    }

    /// What filters compare: keys are named by the beginning of their hash.
    fn sought(self) -> &'static str {
        if self == Self::Key { "SUBSTR(g.key_hash, 1, 13)" } else { self.sql() }
    }

    /// The name that belongs to the id in a column.
    fn label(self, column: &str) -> String {
        let (table, name, id) = match self {
            Self::Key => ("api_keys", "name", "hash"),
            Self::Workspace => ("workspaces", "name", "id"),
            Self::User => ("users", "email", "id"),
            Self::Model
            | Self::Provider
            | Self::App
            | Self::Origin
            | Self::FinishReason
            | Self::Router
            | Self::Session
            | Self::Country
            | Self::IsByok => return "CAST(NULL AS TEXT)".to_owned(),
        };
        format!("(SELECT t.{name} FROM {table} t WHERE t.organisation_id = $1 AND t.{id} = summed.{column})")
    }
}

/// Something of one request that has a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    PromptTokens,
    CompletionTokens,
    ReasoningTokens,
    CachedTokens,
    TotalCost,
    Latency,
    GenerationTime,
}

impl Measure {
    fn sql(self) -> &'static str {
        match self {
            Self::PromptTokens => PROMPT,
            Self::CompletionTokens => "CAST(g.output_tokens AS DOUBLE PRECISION)",
            Self::ReasoningTokens => "CAST(g.thinking_tokens AS DOUBLE PRECISION)",
            Self::CachedTokens => "CAST(g.cache_read_tokens AS DOUBLE PRECISION)",
            Self::TotalCost => "CAST(g.cost_nanos AS DOUBLE PRECISION) / 1000000000",
            Self::Latency => "CAST(g.first_content_ms AS DOUBLE PRECISION)",
            Self::GenerationTime => "CAST(g.duration_ms AS DOUBLE PRECISION)",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    Minute,
    Hour,
    Day,
    Week,
    Month,
}

impl Granularity {
    fn sql(self, range: (Timestamp, Timestamp)) -> String {
        let floor = |span: i64| format!("g.started_at - g.started_at % {span}");
        match self {
            Self::Minute => floor(MINUTE_MS),
            Self::Hour => floor(HOUR_MS),
            Self::Day => floor(DAY_MS),
            // Weeks begin on Mondays; the first day of all was a Thursday.
            Self::Week => format!("g.started_at - (g.started_at + {}) % {}", 3 * DAY_MS, 7 * DAY_MS),
            Self::Month => {
                let months = months(range);
                let last = months.last().copied().unwrap_or(0);
                let mut text = format!("CASE WHEN g.started_at >= {last} THEN CAST({last} AS BIGINT)");
                for pair in months.windows(2) {
                    let _ = write!(text, " WHEN g.started_at < {} THEN CAST({} AS BIGINT)", pair[1], pair[0]);
                }
                text.push_str(" END");
                text
            }
        }
    }
}

/// The first instants of all months in a span, in UTC.
fn months((start, end): (Timestamp, Timestamp)) -> Vec<i64> {
    let mut months = vec![Window::Monthly.start(start).0];
    let mut next = Window::Monthly.next(start);
    while next < end {
        months.push(next.0);
        next = Window::Monthly.next(next);
    }
    months
}

const PROMPT: &str = "(CAST(g.input_tokens AS DOUBLE PRECISION) + CAST(g.cache_read_tokens AS DOUBLE PRECISION) \
                      + CAST(g.cache_write_tokens AS DOUBLE PRECISION) \
                      + CAST(g.cache_write_1h_tokens AS DOUBLE PRECISION))";

/// What is counted of a request. Sums are of floating point: they cannot overflow, and are exact up to 2⁵³.
const COUNTED: &str = concat!(
    "\
    CAST(CASE WHEN g.parent_id IS NULL THEN 1 ELSE 0 END AS DOUBLE PRECISION) AS is_request, \
    CAST(CASE WHEN g.outcome IN ('failed', 'broken') THEN 1 ELSE 0 END AS DOUBLE PRECISION) AS is_error, \
    CAST(g.output_tokens AS DOUBLE PRECISION) AS completion, \
    CAST(g.thinking_tokens AS DOUBLE PRECISION) AS reasoning, \
    CAST(g.cache_read_tokens AS DOUBLE PRECISION) AS cached, \
    CAST(",
    credit_nanos!("g."),
    " AS DOUBLE PRECISION) AS cost, CAST(",
    byok_nanos!("g."),
    " AS DOUBLE PRECISION) AS byok, \
    CAST(CASE WHEN g.response_cache_source_id IS NULL THEN g.first_content_ms END AS DOUBLE PRECISION) AS latency, \
    CAST(CASE WHEN g.response_cache_source_id IS NULL AND g.attempts <> '[]' THEN g.duration_ms END \
    AS DOUBLE PRECISION) AS took, \
    CASE WHEN g.response_cache_source_id IS NULL AND g.streamed AND g.usage_reported \
    AND g.duration_ms > g.first_content_ms \
    THEN CAST(g.output_tokens AS DOUBLE PRECISION) * 1000 / (g.duration_ms - g.first_content_ms) END AS speed, \
    CAST(g.web_searches + g.web_fetches AS DOUBLE PRECISION) AS tools, \
    COALESCE(g.parent_id, g.id) AS request, g.attempts LIKE '%\"status\":%\"status\":%' AS fell"
);

/// A text with its values.
pub(super) struct Statement {
    pub text: String,
    pub values: Vec<Bound>,
}

impl Statement {
    pub fn of(tenant: &Tenant, question: &Question) -> Self {
        let mut values = Vec::new();
        let mut bind = |value: Bound| {
            values.push(value);
            format!("${}", values.len())
        };
        let (start, end) = question.range;
        bind(Bound::Text(tenant.organisation.0.to_string()));
        let first = GenerationId::first_at(Timestamp((start.0 - SLACK_MS).max(0)));
        let mut wanted = format!(
            "g.organisation_id = $1 AND g.id >= {} AND g.started_at >= {} AND g.started_at < {}",
            bind(Bound::Text(first.as_str().to_owned())),
            bind(Bound::Int(start.0)),
            bind(Bound::Int(end.0))
        );
        for filter in &question.filters {
            let _ = write!(wanted, " AND ({})", condition(filter, &mut bind));
        }
        let nothing = "CAST('' AS TEXT)";
        let side = |place: usize| question.dimensions.get(place).map_or(nothing, |dimension| dimension.sql());
        let label = |place: usize| {
            let column = format!("d{}", place + 1);
            let none = || "CAST(NULL AS TEXT)".to_owned();
            question.dimensions.get(place).map_or_else(none, |dimension| dimension.label(&column))
        };
        let bucket =
            question.granularity.map_or_else(|| "CAST(0 AS BIGINT)".to_owned(), |each| each.sql(question.range));
        let mut text = format!(
            "WITH base AS (SELECT {bucket} AS bucket, {} AS d1, {} AS d2, {PROMPT} AS prompt, {COUNTED} \
             FROM generations g WHERE {wanted})",
            side(0),
            side(1)
        );
        let is_grouped = question.granularity.is_some() && !question.dimensions.is_empty();
        if is_grouped {
            // What has no meaning as a sum is no reason to be shown.
            let weighs =
                question.metrics.iter().find(|metric| metric.sql().starts_with("SUM(") && !metric.sql().contains('/'));
            let weight = weighs.unwrap_or(&Metric::RequestCount).sql();
            let most = bind(Bound::Int(question.group_limit.into()));
            let _ = write!(
                text,
                ", most AS (SELECT d1, d2 FROM base GROUP BY d1, d2 ORDER BY {weight} DESC, d1, d2 LIMIT {most})"
            );
        }
        let joined = if is_grouped { " JOIN most ON most.d1 = base.d1 AND most.d2 = base.d2" } else { "" };
        let mut ranks = String::new();
        for column in ["latency", "took", "speed"] {
            if question.metrics.iter().any(|metric| metric.ranked() == Some(column)) {
                let _ = write!(
                    ranks,
                    ", ROW_NUMBER() OVER (PARTITION BY bucket, base.d1, base.d2 \
                     ORDER BY CASE WHEN {column} IS NULL THEN 1 ELSE 0 END, {column}) AS {column}_rank, \
                     COUNT({column}) OVER (PARTITION BY bucket, base.d1, base.d2) AS {column}_count"
                );
            }
        }
        let _ = write!(text, ", ranked AS (SELECT base.*{ranks} FROM base{joined})");
        let metrics = question.metrics.iter().enumerate();
        let metrics: String = metrics.map(|(place, metric)| format!(", {} AS m{place}", metric.sql())).collect();
        let _ = write!(text, ", summed AS (SELECT bucket, d1, d2{metrics} FROM ranked GROUP BY bucket, d1, d2)");
        let shown: String = (0..question.metrics.len()).map(|place| format!(", m{place}")).collect();
        let limit = bind(Bound::Int(i64::from(question.limit) + 1));
        let _ = write!(
            text,
            " SELECT bucket, d1, d2, {} AS l1, {} AS l2{shown} FROM summed ORDER BY {} LIMIT {limit}",
            label(0),
            label(1),
            order(question)
        );
        Self { text, values }
    }
}

/// By what is asked for, else by time, else by the first figure; what is equal by its sides.
fn order(question: &Question) -> String {
    let (column, is_down) = match (question.order, question.granularity) {
        (Some(order), _) => order,
        (None, Some(_)) => (Column::Time, false),
        (None, None) => (Column::Metric(0), true),
    };
    let name = match column {
        Column::Time => "bucket".to_owned(),
        Column::Dimension(place) => format!("d{}", place + 1),
        Column::Metric(place) => format!("m{place}"),
    };
    let direction = if is_down { "DESC" } else { "ASC" };
    // The databases disagree about where nothing belongs.
    format!("CASE WHEN {name} IS NULL THEN 1 ELSE 0 END, {name} {direction}, bucket, d1, d2")
}

fn condition(filter: &Filter, bind: &mut impl FnMut(Bound) -> String) -> String {
    match filter {
        Filter::Among { dimension, values, is_not, or_unset } => {
            let sought = dimension.sought();
            let places: Vec<String> = values.iter().map(|value| bind(Bound::Text(value.clone()))).collect();
            let word = if *is_not { "NOT IN" } else { "IN" };
            let unset = if *or_unset { format!(" OR {sought} = ''") } else { String::new() };
            format!("({sought} <> '' AND {sought} {word} ({})){unset}", places.join(", "))
        }
        Filter::Compared { measure, sense, value, or_unset } => {
            let sign = match sense {
                Sense::Equal => "=",
                Sense::Unequal => "<>",
                Sense::More => ">",
                Sense::MoreOrEqual => ">=",
                Sense::Less => "<",
                Sense::LessOrEqual => "<=",
            };
            let sought = measure.sql();
            let unset = if *or_unset { format!(" OR {sought} IS NULL") } else { String::new() };
            format!("{sought} {sign} {}{unset}", bind(Bound::Float(*value)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_where_the_calendar_says() {
        // 2026-01-31T23:59:59Z to 2026-03-01T00:00:00Z.
        let range = (Timestamp(1_769_903_999_000), Timestamp(1_772_323_200_000));
        assert_eq!(months(range), [1_767_225_600_000, 1_769_904_000_000]);
        let later = (range.0, Timestamp(range.1.0 + 1));
        assert_eq!(months(later), [1_767_225_600_000, 1_769_904_000_000, 1_772_323_200_000]);
    }
}
