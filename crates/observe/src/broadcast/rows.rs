//! One row per span, in a table of ClickHouse. Snowflake gets the same rows.

use serde_json::{Map, Value, json};

use super::object::encode;
use super::record::Trace;
use super::span::{Part, Span};

/// Rows of one insert at most.
pub(super) const MOST_ROWS: usize = 1_000;

/// Names and types of the columns, in their order.
pub const COLUMNS: [(&str, &str); 32] = [
    ("TIMESTAMP", "DateTime64(3,'UTC')"),
    ("TRACE_ID", "String"),
    ("SPAN_ID", "String"),
    ("PARENT_SPAN_ID", "String"),
    ("SPAN_TYPE", "LowCardinality(String)"),
    ("SPAN_NAME", "String"),
    ("MODEL", "String"),
    ("PROVIDER_NAME", "String"),
    ("GENERATION_ID", "String"),
    ("REQUEST_ID", "String"),
    ("USER_ID", "String"),
    ("SESSION_ID", "String"),
    ("API_KEY_NAME", "String"),
    ("WORKSPACE_ID", "String"),
    ("PROMPT_TOKENS", "UInt64"),
    ("COMPLETION_TOKENS", "UInt64"),
    ("TOTAL_TOKENS", "UInt64"),
    ("CACHED_TOKENS", "UInt64"),
    ("REASONING_TOKENS", "UInt64"),
    ("PROMPT_COST", "Float64"),
    ("COMPLETION_COST", "Float64"),
    ("TOTAL_COST", "Float64"),
    ("DURATION_MS", "Float64"),
    ("TTFT_MS", "Float64"),
    ("STATUS", "LowCardinality(String)"),
    ("LEVEL", "LowCardinality(String)"),
    ("FINISH_REASON", "LowCardinality(String)"),
    ("INPUT", "String"),
    ("OUTPUT", "String"),
    ("METADATA", "String"),
    ("ATTRIBUTES", "String"),
    ("MODEL_PARAMETERS", "String"),
];

/// The table, as queries name it.
pub struct Table {
    database: String,
    name: String,
}

impl Table {
    pub(super) fn read(text: &impl Fn(&str) -> String) -> Result<Self, (&'static str, &'static str)> {
        let name = text("table");
        if !is_table(&name) {
            return Err(("table", "must be a name of letters, digits and _ that does not begin with a digit"));
        }
        if text("host").contains(['?', '#']) {
            return Err(("host", "must be an address without a query"));
        }
        Ok(Self { database: text("database"), name })
    }

    fn query(&self, statement: Option<&str>) -> String {
        let mut query = "?database=".to_owned();
        encode(&self.database, &mut query);
        if let Some(statement) = statement {
            // The server answers when the rows are kept, not when it has heard them.
            query.push_str("&async_insert=1&wait_for_async_insert=1&query=");
            encode(statement, &mut query);
        }
        query
    }

    /// The query of an insert; its rows are the body.
    pub(super) fn insert(&self) -> String {
        self.query(Some(&format!("INSERT INTO {} FORMAT JSONEachRow", self.name)))
    }

    /// The query and the body of what makes the table where it is not there. A row that comes twice has the same key, by its
    /// ids, and only one of the two stays.
    pub(super) fn create(&self) -> (String, String) {
        let columns: Vec<String> = COLUMNS.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
        let statement = format!(
            "CREATE TABLE IF NOT EXISTS {} ({}) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(TIMESTAMP) \
             PRIMARY KEY (toDate(TIMESTAMP), MODEL, TIMESTAMP) \
             ORDER BY (toDate(TIMESTAMP), MODEL, TIMESTAMP, TRACE_ID, SPAN_ID)",
            self.name,
            columns.join(", ")
        );
        (self.query(None), statement)
    }
}

/// Whether a name can stand in a statement as it is.
pub(super) fn is_table(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    begins && name.len() <= 128 && name.bytes().all(is_word)
}

/// The rows of a request, a line each.
pub(super) fn told(trace: &Trace<'_>) -> Vec<u8> {
    let lines: Vec<String> = trace.spans.iter().map(|span| Value::Object(row(trace, span)).to_string()).collect();
    lines.join("\n").into_bytes()
}

/// Column by column: texts where nothing is known are empty, numbers are zero.
fn row(trace: &Trace<'_>, span: &Span) -> Map<String, Value> {
    let (exchange, brand) = (trace.exchange, &trace.maker.service.brand);
    let is_generation = span.part == Part::Generation;
    let count = |name: &str| json!(span.count(&format!("gen_ai.usage.{name}")));
    let packed = |value: Option<Value>| json!(value.map(|value| value.to_string()).unwrap_or_default());
    let seconds = span.get("gen_ai.response.time_to_first_chunk").and_then(Value::as_f64).unwrap_or(0.0);
    let dollars = |name: &str| json!(span.get(&format!("{brand}.{name}")).and_then(Value::as_f64).unwrap_or(0.0));
    let total = span.count("gen_ai.usage.input_tokens") + span.count("gen_ai.usage.output_tokens");
    let parameters = span.parameters();
    let values = [
        json!(span.started().to_string().replace('T', " ").trim_end_matches('Z')),
        json!(span.trace),
        json!(span.id),
        json!(span.parent.as_deref().unwrap_or_default()),
        json!(span.part.as_str()),
        json!(span.name),
        json!(if is_generation { &*exchange.model } else { "" }),
        json!(if is_generation { &*exchange.provider } else { "" }),
        json!(exchange.id.as_str()),
        json!(exchange.parent.as_ref().unwrap_or(&exchange.id).as_str()),
        json!(exchange.user.as_deref().unwrap_or_default()),
        json!(exchange.session.as_deref().unwrap_or_default()),
        json!(span.ours(brand, "identity.key_name")),
        json!(span.ours(brand, "identity.workspace_id")),
        count("input_tokens"),
        count("output_tokens"),
        json!(total),
        count("cache_read.input_tokens"),
        count("reasoning.output_tokens"),
        dollars("cost.prompt"),
        dollars("cost.completion"),
        json!(span.get("gen_ai.usage.cost").and_then(Value::as_f64).unwrap_or(0.0)),
        json!(span.millis()),
        json!(seconds * 1_000.0),
        json!(span.status()),
        json!(span.level()),
        json!(span.text("gen_ai.response.finish_reason")),
        packed(span.input()),
        packed(span.output()),
        packed(Some(Value::Object(trace.metadata()))),
        packed(Some(Value::Object(span.plain()))),
        packed(Some(Value::Object(parameters))),
    ];
    COLUMNS.iter().zip(values).map(|((name, _), value)| ((*name).to_owned(), value)).collect()
}
