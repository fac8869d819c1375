//! Finished requests, as they are remembered: one row each, written once, under the id made at admission.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use tidegate_core::exchange::AttemptRecord;
use tidegate_core::{
    Exchange, GenerationId, KeyHash, Money, OrganisationId, Outcome, Tenant, Timestamp, Usage, WorkspaceId,
};

use crate::error::Unreadable;
use crate::spend::{Days, add_days};
use crate::{Result, Store, dialect};

/// Rows per statement, largest first. Few shapes, so that each is parsed once and then kept as a prepared statement;
/// parsing costs more than inserting. SQLite binds at most 32 766 values in one statement and a row has 32.
const SHAPES: [usize; 5] = [256, 64, 16, 4, 1];
const COLUMNS: usize = 32;

/// A finished request read back: an [`Exchange`] whose texts are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    pub id: GenerationId,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub key: KeyHash,
    pub model: String,
    pub provider: String,
    pub outcome: Outcome,
    pub status: u16,
    pub streamed: bool,
    pub stop_reason: Option<String>,
    pub upstream_id: Option<String>,
    pub error_type: Option<String>,
    pub usage: Usage,
    pub usage_reported: bool,
    /// `None`: unknown, which is not zero.
    pub cost: Option<Money>,
    pub is_byok: bool,
    pub list_cost: Option<Money>,
    pub session: Option<String>,
    pub user: Option<String>,
    pub attempts: Vec<AttemptRecord>,
    pub started: Timestamp,
    pub first_content_ms: Option<u32>,
    pub duration_ms: u32,
    pub request_bytes: u64,
    pub response_bytes: u64,
}

impl Store {
    /// Stores finished requests and adds them to what their keys spent, all or none. One that is stored already is left
    /// as it is and counts no further, so the same batch may be sent again.
    pub async fn insert_generations(&self, exchanges: &[Exchange]) -> Result<()> {
        if self.insert_batch(exchanges, true).await? {
            return Ok(());
        }
        // Some of it is here already: one by one it shows which.
        self.insert_batch(exchanges, false).await.map(|_| ())
    }

    /// True when it is stored; false, with nothing stored, when `is_new` was promised and some of it was here already.
    async fn insert_batch(&self, exchanges: &[Exchange], is_new: bool) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let numbered = dialect::is_numbered(pool);
            let mut days = Days::default();
            for chunk in shaped(exchanges, if is_new { &SHAPES } else { &[1] }) {
                let mut insert = sqlx::query(insert_text(chunk.len(), numbered));
                for exchange in chunk {
                    let usage = &exchange.usage;
                    insert = insert
                        .bind(exchange.id.as_str())
                        .bind(&*exchange.organisation.0)
                        .bind(&*exchange.workspace.0)
                        .bind(exchange.key.to_hex())
                        .bind(storable(&exchange.model))
                        .bind(storable(&exchange.provider))
                        .bind(exchange.outcome.as_str())
                        .bind(i64::from(exchange.status))
                        .bind(exchange.streamed)
                        .bind(exchange.stop_reason.as_deref().map(storable))
                        .bind(exchange.upstream_id.as_deref().map(storable))
                        .bind(exchange.error_type)
                        .bind(stored(usage.input))
                        .bind(stored(usage.output))
                        .bind(stored(usage.cache_read))
                        .bind(stored(usage.cache_write))
                        .bind(stored(usage.cache_write_1h))
                        .bind(stored(usage.thinking))
                        .bind(stored(usage.web_searches))
                        .bind(stored(usage.web_fetches))
                        .bind(exchange.usage_reported)
                        .bind(exchange.cost.map(|cost| cost.0))
                        .bind(exchange.is_byok)
                        .bind(exchange.list_cost.map(|cost| cost.0))
                        .bind(exchange.session.as_deref().map(storable))
                        .bind(exchange.user.as_deref().map(storable))
                        .bind(attempts_to_json(&exchange.attempts))
                        .bind(exchange.started.0)
                        .bind(exchange.first_content_ms.map(i64::from))
                        .bind(i64::from(exchange.duration_ms))
                        .bind(stored(exchange.request_bytes))
                        .bind(stored(exchange.response_bytes));
                }
                let inserted = insert.execute(&mut *transaction).await?.rows_affected();
                if inserted == chunk.len() as u64 {
                    chunk.iter().for_each(|exchange| days.add(exchange));
                } else if is_new {
                    return Ok(false);
                }
            }
            add_days!(transaction, days, numbered);
            transaction.commit().await?;
            Ok(true)
        })
    }

    pub async fn find_generation(&self, tenant: &Tenant, id: &GenerationId) -> Result<Option<Generation>> {
        let raw: Option<RawGeneration> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                "SELECT ",
                columns!(),
                " FROM generations WHERE organisation_id = $1 AND id = $2"
            ))
            .bind(&*tenant.organisation.0)
            .bind(id.as_str())
            .fetch_optional(pool)
            .await?)
        })?;
        raw.map(Generation::try_from).transpose()
    }
}

macro_rules! columns {
    () => {
        "id, organisation_id, workspace_id, key_hash, model, provider, outcome, status, streamed, stop_reason, \
         upstream_id, error_type, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, \
         cache_write_1h_tokens, thinking_tokens, web_searches, web_fetches, usage_reported, cost_nanos, is_byok, \
         list_cost_nanos, session_id, external_user, attempts, started_at, first_content_ms, duration_ms, \
         request_bytes, response_bytes"
    };
}
use columns;

/// Cuts a batch into pieces of these shapes, largest first.
fn shaped<'a>(exchanges: &'a [Exchange], shapes: &'static [usize]) -> impl Iterator<Item = &'a [Exchange]> {
    let mut rest = exchanges;
    std::iter::from_fn(move || {
        let rows = *shapes.iter().find(|rows| **rows <= rest.len())?;
        let (chunk, left) = rest.split_at(rows);
        rest = left;
        Some(chunk)
    })
}

/// The statement for one of the [`SHAPES`], made once: writing thousands of placeholders costs more than filling them.
fn insert_text(rows: usize, numbered: bool) -> &'static str {
    static TEXTS: [[OnceLock<String>; SHAPES.len()]; 2] = [const { [const { OnceLock::new() }; SHAPES.len()] }; 2];
    let shape = SHAPES.iter().position(|shape| *shape == rows).expect("batches are cut into these shapes");
    TEXTS[usize::from(numbered)][shape].get_or_init(|| {
        let place = |place: usize| if numbered { format!("${place}") } else { "?".to_owned() };
        let row = |row: usize| {
            let places: Vec<String> = (1..=COLUMNS).map(|column| place(row * COLUMNS + column)).collect();
            format!("({})", places.join(", "))
        };
        let values: Vec<String> = (0..rows).map(row).collect();
        let (columns, values) = (columns!(), values.join(", "));
        format!("INSERT INTO generations ({columns}) VALUES {values} ON CONFLICT (id) DO NOTHING")
    })
}

#[derive(sqlx::FromRow)]
struct RawGeneration {
    id: String,
    organisation_id: String,
    workspace_id: String,
    key_hash: String,
    model: String,
    provider: String,
    outcome: String,
    status: i64,
    streamed: bool,
    stop_reason: Option<String>,
    upstream_id: Option<String>,
    error_type: Option<String>,
    input_tokens: i64,
    output_tokens: i64,
    cache_read_tokens: i64,
    cache_write_tokens: i64,
    cache_write_1h_tokens: i64,
    thinking_tokens: i64,
    web_searches: i64,
    web_fetches: i64,
    usage_reported: bool,
    cost_nanos: Option<i64>,
    is_byok: bool,
    list_cost_nanos: Option<i64>,
    session_id: Option<String>,
    external_user: Option<String>,
    attempts: String,
    started_at: i64,
    first_content_ms: Option<i64>,
    duration_ms: i64,
    request_bytes: i64,
    response_bytes: i64,
}

impl TryFrom<RawGeneration> for Generation {
    type Error = crate::StoreError;

    fn try_from(raw: RawGeneration) -> Result<Self> {
        let unreadable = |column| Unreadable { table: "generations", column };
        let first_content_ms = raw.first_content_ms.map(u32::try_from).transpose();
        Ok(Self {
            id: GenerationId::parse(&raw.id).ok_or_else(|| unreadable("id"))?,
            organisation: OrganisationId(Arc::from(raw.organisation_id)),
            workspace: WorkspaceId(Arc::from(raw.workspace_id)),
            key: KeyHash::parse(&raw.key_hash).ok_or_else(|| unreadable("key_hash"))?,
            model: raw.model,
            provider: raw.provider,
            outcome: outcome(&raw.outcome).ok_or_else(|| unreadable("outcome"))?,
            status: u16::try_from(raw.status).map_err(|_| unreadable("status"))?,
            streamed: raw.streamed,
            stop_reason: raw.stop_reason,
            upstream_id: raw.upstream_id,
            error_type: raw.error_type,
            usage: Usage {
                input: count(raw.input_tokens),
                output: count(raw.output_tokens),
                cache_read: count(raw.cache_read_tokens),
                cache_write: count(raw.cache_write_tokens),
                cache_write_1h: count(raw.cache_write_1h_tokens),
                thinking: count(raw.thinking_tokens),
                web_searches: count(raw.web_searches),
                web_fetches: count(raw.web_fetches),
            },
            usage_reported: raw.usage_reported,
            cost: raw.cost_nanos.map(Money),
            is_byok: raw.is_byok,
            list_cost: raw.list_cost_nanos.map(Money),
            session: raw.session_id,
            user: raw.external_user,
            attempts: attempts_from_json(&raw.attempts).ok_or_else(|| unreadable("attempts"))?,
            started: Timestamp(raw.started_at),
            first_content_ms: first_content_ms.map_err(|_| unreadable("first_content_ms"))?,
            duration_ms: u32::try_from(raw.duration_ms).map_err(|_| unreadable("duration_ms"))?,
            request_bytes: count(raw.request_bytes),
            response_bytes: count(raw.response_bytes),
        })
    }
}

/// Columns are signed. An upstream can report any count; one that does not fit is cut, not a reason to lose the record.
fn stored(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// PostgreSQL cannot hold the character NUL. Clients and upstreams can send it, and one such record must not hold up all
/// that wait behind it.
fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{FFFD}").into() } else { text.into() }
}

fn count(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

fn outcome(text: &str) -> Option<Outcome> {
    let all = [Outcome::Complete, Outcome::Cancelled, Outcome::Failed, Outcome::Broken];
    all.into_iter().find(|outcome| outcome.as_str() == text)
}

/// One attempt inside the column `attempts`.
#[derive(Serialize, Deserialize)]
struct Attempt<'a> {
    provider: Cow<'a, str>,
    model: Cow<'a, str>,
    status: u16,
    duration_ms: u32,
}

fn attempts_to_json(attempts: &[AttemptRecord]) -> String {
    let attempts: Vec<Attempt<'_>> = attempts
        .iter()
        .map(|attempt| Attempt {
            provider: (&*attempt.provider).into(),
            model: (&*attempt.model).into(),
            status: attempt.status,
            duration_ms: attempt.duration_ms,
        })
        .collect();
    serde_json::to_string(&attempts).expect("texts and numbers are always JSON")
}

fn attempts_from_json(json: &str) -> Option<Vec<AttemptRecord>> {
    let attempts: Vec<Attempt<'_>> = serde_json::from_str(json).ok()?;
    let record = |attempt: Attempt<'_>| AttemptRecord {
        provider: attempt.provider.into(),
        model: attempt.model.into(),
        status: attempt.status,
        duration_ms: attempt.duration_ms,
    };
    Some(attempts.into_iter().map(record).collect())
}
