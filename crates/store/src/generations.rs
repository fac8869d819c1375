//! Finished requests, as they are remembered: one row each, written once, under the id made at admission.

mod attempts;
mod list;

use std::borrow::{Borrow, Cow};
use std::sync::{Arc, LazyLock};

use sqlx::Arguments;
use tidegate_core::exchange::AttemptRecord;
use tidegate_core::{
    Api, Exchange, GenerationId, KeyHash, Money, OrganisationId, Outcome, Settlement, Tenant, Timestamp, Usage,
    WorkspaceId,
};

use crate::dialect::Shapes;
use crate::error::Unreadable;
use crate::ledger::{Lowered, lower_leases};
use crate::spend::{Days, add_days};
use crate::words::{Words, own};
use crate::{Result, Store, dialect};
pub use list::Newest;

/// Parsing a statement costs more than inserting a row. SQLite binds at most 32 766 values in one and a row has 51.
static INSERTS: Shapes<5> = Shapes::new([256, 64, 16, 4, 1]);
static PLAIN_INSERTS: Shapes<5> = Shapes::new([256, 64, 16, 4, 1]);
static SINGLE_INSERTS: Shapes<1> = Shapes::new([1]);
/// Columns that each record has a value of its own for.
const OWN: usize = 29;
/// The others. Where there is nothing special to say, as of nearly all records, they are not named: they then hold what
/// [`is_plain`] asks for by themselves, which costs nothing for each row.
const OTHERS: usize = 22;

/// Records with the same message id that are looked at, newest first: an upstream may repeat itself.
const SAME_MESSAGE: i64 = 20;

/// Turns of one loop that are looked at: more than any loop may make.
const MOST_TURNS: i64 = 1_000;

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
    /// The id of the message that the client got.
    pub message_id: Option<String>,
    /// The upstream's own, where that is another; empty where it has none.
    pub native_id: Option<String>,
    pub native_stop_reason: Option<String>,
    pub error_type: Option<String>,
    pub usage: Usage,
    pub usage_reported: bool,
    pub is_estimated: bool,
    pub is_clamped: bool,
    pub settlement: Settlement,
    pub reserved: Money,
    /// `None`: unknown, which is not zero.
    pub cost: Option<Money>,
    pub is_byok: bool,
    pub list_cost: Option<Money>,
    pub upstream_cost: Option<Money>,
    pub reported_cost: Option<Money>,
    pub cache_discount: Option<Money>,
    pub service_tier: Option<String>,
    pub session: Option<String>,
    pub user: Option<String>,
    pub user_agent: Option<String>,
    pub referer: Option<String>,
    pub title: Option<String>,
    pub attempts: Vec<AttemptRecord>,
    pub started: Timestamp,
    pub first_content_ms: Option<u32>,
    pub duration_ms: u32,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub cache_source: Option<GenerationId>,
    pub preset: Option<String>,
    pub router: Option<String>,
    /// The first turn of the loop that it is a turn of.
    pub parent: Option<GenerationId>,
    pub api: Api,
}

impl Store {
    /// Stores finished requests and adds them to what their keys, workspaces and organisations spent, all or none. One
    /// that is stored already is left as it is and counts no further, so the same batch may be sent again.
    pub async fn insert_generations(&self, exchanges: &[Exchange]) -> Result<()> {
        self.insert_once(None, exchanges).await
    }

    /// As [`Store::insert_generations`], for a node that spends from leases: what is stored now is no longer leased.
    pub async fn forward(&self, node: &str, exchanges: &[impl Borrow<Exchange>]) -> Result<()> {
        self.insert_once(Some(node), exchanges).await
    }

    async fn insert_once(&self, node: Option<&str>, exchanges: &[impl Borrow<Exchange>]) -> Result<()> {
        // Two that send the same records then wait for each other in the same order: plain ones go first.
        let mut exchanges: Vec<&Exchange> = exchanges.iter().map(Borrow::borrow).collect();
        exchanges.sort_by_cached_key(|exchange| (!is_plain(exchange), exchange.id));
        if self.insert_batch(node, &exchanges, true).await? {
            return Ok(());
        }
        // Some of it is here already: one by one it shows which.
        self.insert_batch(node, &exchanges, false).await.map(|_| ())
    }

    /// True when it is stored; false, with nothing stored, when `is_new` was promised and some of it was here already.
    /// Plain ones come first among `exchanges`.
    /// Rows are locked in the order of records, days of keys, days of accounts and slots, each of them sorted.
    async fn insert_batch(&self, node: Option<&str>, exchanges: &[&Exchange], is_new: bool) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let numbered = dialect::is_numbered(pool);
            let (mut days, mut lowered) = (Days::default(), Lowered::default());
            let plain = if is_new { exchanges.partition_point(|exchange| is_plain(exchange)) } else { 0 };
            let (plain, others) = exchanges.split_at(plain);
            let others: Vec<&[&Exchange]> = match is_new {
                true => INSERTS.cut(others).collect(),
                false => SINGLE_INSERTS.cut(others).collect(),
            };
            let pieces = PLAIN_INSERTS.cut(plain).map(|chunk| (chunk, true));
            for (chunk, is_plain) in pieces.chain(others.into_iter().map(|chunk| (chunk, false))) {
                // Room for all of them at once: a list that grows as they come is moved seven times.
                let mut arguments = Default::default();
                Arguments::reserve(&mut arguments, chunk.len() * if is_plain { OWN } else { OWN + OTHERS }, 0);
                let mut insert = sqlx::query_with(insert_text(chunk.len(), numbered, is_plain), arguments);
                let mut words = Words::default();
                for exchange in chunk {
                    let usage = &exchange.usage;
                    insert = insert
                        .bind(own(exchange.id.as_str()))
                        .bind(words.shared(&exchange.organisation.0))
                        .bind(words.shared(&exchange.workspace.0))
                        .bind(words.key(exchange.key))
                        .bind(words.shared(&exchange.model))
                        .bind(words.shared(&exchange.provider))
                        .bind(exchange.streamed)
                        .bind(exchange.stop_reason.as_deref().map(|reason| words.shared(reason)))
                        .bind(exchange.message_id.as_deref().map(own))
                        .bind(exchange.native_id.as_deref().map(own))
                        .bind(exchange.native_stop_reason.as_deref().map(|reason| words.shared(reason)))
                        .bind(stored(usage.input))
                        .bind(stored(usage.output))
                        .bind(stored(usage.cache_read))
                        .bind(stored(usage.cache_write))
                        .bind(stored(usage.thinking))
                        .bind(exchange.reserved.0)
                        .bind(exchange.cost.map(|cost| cost.0))
                        .bind(exchange.is_byok)
                        .bind(exchange.list_cost.map(|cost| cost.0))
                        .bind(exchange.upstream_cost.map(|cost| cost.0))
                        .bind(exchange.service_tier.as_deref().map(|tier| words.shared(tier)))
                        .bind(exchange.user_agent.as_deref().map(|agent| words.shared(agent)))
                        .bind(attempts::to_json(&exchange.attempts))
                        .bind(exchange.started.0)
                        .bind(exchange.first_content_ms.map(i64::from))
                        .bind(i64::from(exchange.duration_ms))
                        .bind(stored(exchange.request_bytes))
                        .bind(stored(exchange.response_bytes));
                    if is_plain {
                        continue;
                    }
                    insert = insert
                        .bind(exchange.outcome.as_str())
                        .bind(i64::from(exchange.status))
                        .bind(exchange.usage_reported)
                        .bind(exchange.settlement.as_str())
                        .bind(exchange.error_type.as_deref())
                        .bind(stored(usage.cache_write_1h))
                        .bind(stored(usage.web_searches))
                        .bind(stored(usage.web_fetches))
                        .bind(other_usage(usage))
                        .bind(exchange.is_estimated)
                        .bind(exchange.is_clamped)
                        .bind(exchange.reported_cost.map(|cost| cost.0))
                        .bind(exchange.cache_discount.map(|cost| cost.0))
                        .bind(exchange.session.as_deref().map(storable))
                        .bind(exchange.user.as_deref().map(storable))
                        .bind(exchange.referer.as_deref().map(storable))
                        .bind(exchange.title.as_deref().map(storable))
                        .bind(exchange.cache_source.as_ref().map(GenerationId::as_str))
                        .bind(exchange.preset.as_deref())
                        .bind(exchange.parent.as_ref().map(GenerationId::as_str))
                        .bind((exchange.api != Api::default()).then(|| exchange.api.as_str()))
                        .bind(exchange.router.as_deref().map(storable));
                }
                let inserted = insert.execute(&mut *transaction).await?.rows_affected();
                if inserted == chunk.len() as u64 {
                    for exchange in chunk {
                        days.add(exchange);
                        lowered.add(&exchange.postings);
                    }
                } else if is_new {
                    return Ok(false);
                }
            }
            add_days!(transaction, days, numbered);
            if let Some(node) = node {
                lower_leases!(transaction, node, lowered, numbered);
            }
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

    /// The later turns of a loop, by its first, in their order.
    pub async fn find_turns(&self, tenant: &Tenant, first: &GenerationId) -> Result<Vec<Generation>> {
        let raw: Vec<RawGeneration> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                "SELECT ",
                columns!(),
                " FROM generations WHERE parent_id = $2 AND organisation_id = $1 ORDER BY started_at, id LIMIT $3"
            ))
            .bind(&*tenant.organisation.0)
            .bind(first.as_str())
            .bind(MOST_TURNS)
            .fetch_all(pool)
            .await?)
        })?;
        raw.into_iter().map(Generation::try_from).collect()
    }

    /// The tenant's requests that were answered with this message, newest first; at most a few.
    pub async fn find_generations_of_message(&self, tenant: &Tenant, message: &str) -> Result<Vec<Generation>> {
        let raw: Vec<RawGeneration> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                "SELECT ",
                columns!(),
                // Not by id, which would invite a walk through the whole table in that order.
                " FROM generations WHERE upstream_id = $2 AND organisation_id = $1 ORDER BY started_at DESC LIMIT $3"
            ))
            .bind(&*tenant.organisation.0)
            .bind(message)
            .bind(SAME_MESSAGE)
            .fetch_all(pool)
            .await?)
        })?;
        raw.into_iter().map(Generation::try_from).collect()
    }
}

macro_rules! own_columns {
    () => {
        "id, organisation_id, workspace_id, key_hash, model, provider, streamed, stop_reason, upstream_id, \
         native_id, native_stop_reason, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, thinking_tokens, \
         reserved_nanos, cost_nanos, is_byok, list_cost_nanos, upstream_cost_nanos, service_tier, user_agent, attempts, \
         started_at, first_content_ms, duration_ms, request_bytes, response_bytes"
    };
}

macro_rules! columns {
    () => {
        concat!(
            $crate::generations::own_columns!(),
            ", outcome, status, usage_reported, settlement, error_type, cache_write_1h_tokens, web_searches, web_fetches, \
             other_usage, is_estimated, is_clamped, reported_cost_nanos, cache_discount_nanos, session_id, external_user, \
             referer, title, response_cache_source_id, preset_id, parent_id, api, router"
        )
    };
}
use columns;
pub(crate) use own_columns;

/// Whether a record has in all columns but its own what they hold when they are not named.
fn is_plain(exchange: &Exchange) -> bool {
    let usage = &exchange.usage;
    let is_usual = (exchange.outcome, exchange.settlement) == (Outcome::Complete, Settlement::Settled)
        && exchange.status == 200
        && exchange.usage_reported
        && !(exchange.is_estimated || exchange.is_clamped);
    let is_said = [&exchange.session, &exchange.user, &exchange.referer, &exchange.title, &exchange.preset]
        .into_iter()
        .any(Option::is_some);
    let is_odd = exchange.error_type.is_some()
        || exchange.cache_source.is_some()
        || exchange.parent.is_some()
        || exchange.router.is_some()
        || exchange.api != Api::default();
    let is_priced = exchange.reported_cost.is_some() || exchange.cache_discount.is_some();
    let own = Usage {
        input: usage.input,
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        thinking: usage.thinking,
        ..Usage::default()
    };
    is_usual && !(is_said || is_odd || is_priced) && *usage == own
}

/// The places of one record, of a plain one first.
static PLACES: LazyLock<[String; 2]> = LazyLock::new(|| [OWN, OWN + OTHERS].map(|places| vec!["?"; places].join(", ")));

fn insert_text(rows: usize, numbered: bool, is_plain: bool) -> &'static str {
    let [plain, full] = &*PLACES;
    let (shapes, place, columns) =
        if is_plain { (&PLAIN_INSERTS, plain, own_columns!()) } else { (&INSERTS, full, columns!()) };
    shapes.text(rows, numbered, place, |values| {
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
    /// Its name is older than that of what the upstream calls it.
    upstream_id: Option<String>,
    native_id: Option<String>,
    native_stop_reason: Option<String>,
    error_type: Option<String>,
    input_tokens: i64,
    output_tokens: i64,
    cache_read_tokens: i64,
    cache_write_tokens: i64,
    cache_write_1h_tokens: i64,
    thinking_tokens: i64,
    web_searches: i64,
    web_fetches: i64,
    other_usage: Option<String>,
    usage_reported: bool,
    is_estimated: bool,
    is_clamped: bool,
    settlement: String,
    reserved_nanos: i64,
    cost_nanos: Option<i64>,
    is_byok: bool,
    list_cost_nanos: Option<i64>,
    upstream_cost_nanos: Option<i64>,
    reported_cost_nanos: Option<i64>,
    cache_discount_nanos: Option<i64>,
    service_tier: Option<String>,
    session_id: Option<String>,
    external_user: Option<String>,
    user_agent: Option<String>,
    referer: Option<String>,
    title: Option<String>,
    attempts: String,
    started_at: i64,
    first_content_ms: Option<i64>,
    duration_ms: i64,
    request_bytes: i64,
    response_bytes: i64,
    response_cache_source_id: Option<String>,
    preset_id: Option<String>,
    router: Option<String>,
    parent_id: Option<String>,
    api: Option<String>,
}

impl Generation {
    /// This and a later turn of the same loop, told as one: everything used and paid is added, and the loop ended as its
    /// last turn did.
    #[must_use]
    pub fn with_turn(mut self, turn: Self) -> Self {
        let both = |one: Option<Money>, other: Option<Money>| match (one, other) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or(Money::ZERO).plus(other.unwrap_or(Money::ZERO))),
        };
        // The fee of a tool is money and nothing else: nobody was called, and it ended nothing.
        let is_fee = turn.attempts.is_empty() && turn.outcome == Outcome::Complete;
        self.usage = self.usage.plus(&turn.usage);
        self.usage_reported &= turn.usage_reported || is_fee;
        self.is_estimated |= turn.is_estimated;
        self.is_clamped |= turn.is_clamped;
        self.reserved = self.reserved.plus(turn.reserved);
        self.cost = both(self.cost, turn.cost);
        self.list_cost = both(self.list_cost, turn.list_cost);
        self.upstream_cost = both(self.upstream_cost, turn.upstream_cost);
        self.reported_cost = both(self.reported_cost, turn.reported_cost);
        self.cache_discount = both(self.cache_discount, turn.cache_discount);
        self.is_byok |= turn.is_byok;
        self.attempts.extend(turn.attempts);
        let over = turn.started.0.saturating_add(i64::from(turn.duration_ms)).saturating_sub(self.started.0);
        self.duration_ms = u32::try_from(over.max(0)).unwrap_or(u32::MAX).max(self.duration_ms);
        self.response_bytes = self.response_bytes.saturating_add(turn.response_bytes);
        if is_fee {
            return self;
        }
        (self.outcome, self.status) = (turn.outcome, turn.status);
        (self.stop_reason, self.native_stop_reason) = (turn.stop_reason, turn.native_stop_reason);
        self.error_type = turn.error_type;
        self
    }
}

impl TryFrom<RawGeneration> for Generation {
    type Error = crate::StoreError;

    fn try_from(raw: RawGeneration) -> Result<Self> {
        let unreadable = |column| Unreadable { table: "generations", column };
        let first_content_ms = raw.first_content_ms.map(u32::try_from).transpose();
        let other_usage: Option<Usage> =
            raw.other_usage.as_deref().map(serde_json::from_str).transpose().map_err(|_| unreadable("other_usage"))?;
        let other_usage = other_usage.unwrap_or_default();
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
            message_id: raw.upstream_id,
            native_id: raw.native_id,
            native_stop_reason: raw.native_stop_reason,
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
                ..other_usage
            },
            usage_reported: raw.usage_reported,
            is_estimated: raw.is_estimated,
            is_clamped: raw.is_clamped,
            settlement: settlement(&raw.settlement).ok_or_else(|| unreadable("settlement"))?,
            reserved: Money(raw.reserved_nanos),
            cost: raw.cost_nanos.map(Money),
            is_byok: raw.is_byok,
            list_cost: raw.list_cost_nanos.map(Money),
            upstream_cost: raw.upstream_cost_nanos.map(Money),
            reported_cost: raw.reported_cost_nanos.map(Money),
            cache_discount: raw.cache_discount_nanos.map(Money),
            service_tier: raw.service_tier,
            session: raw.session_id,
            user: raw.external_user,
            user_agent: raw.user_agent,
            referer: raw.referer,
            title: raw.title,
            attempts: attempts::from_json(&raw.attempts).ok_or_else(|| unreadable("attempts"))?,
            started: Timestamp(raw.started_at),
            first_content_ms: first_content_ms.map_err(|_| unreadable("first_content_ms"))?,
            duration_ms: u32::try_from(raw.duration_ms).map_err(|_| unreadable("duration_ms"))?,
            request_bytes: count(raw.request_bytes),
            response_bytes: count(raw.response_bytes),
            cache_source: match raw.response_cache_source_id {
                Some(id) => Some(GenerationId::parse(&id).ok_or_else(|| unreadable("response_cache_source_id"))?),
                None => None,
            },
            parent: raw.parent_id.as_deref().and_then(GenerationId::parse),
            preset: raw.preset_id,
            router: raw.router,
            api: match raw.api.as_deref() {
                None => Api::Messages,
                Some(name) => Api::parse(name).ok_or_else(|| unreadable("api"))?,
            },
        })
    }
}

/// Columns are signed. An upstream can report any count; one that does not fit is cut, not a reason to lose the record.
fn stored(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What was used beyond that which has columns of its own, where there is any: pictures, sound, what a vendor bills apart.
fn other_usage(usage: &Usage) -> Option<String> {
    let other = Usage {
        input: 0,
        output: 0,
        cache_read: 0,
        cache_write: 0,
        cache_write_1h: 0,
        thinking: 0,
        web_searches: 0,
        web_fetches: 0,
        ..*usage
    };
    (other != Usage::default()).then(|| serde_json::to_string(&other).expect("numbers are always JSON"))
}

/// PostgreSQL cannot hold the character NUL. Clients and upstreams can send it, and one such record must not hold up all
/// that wait behind it.
pub(crate) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{FFFD}").into() } else { text.into() }
}

fn count(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

fn outcome(text: &str) -> Option<Outcome> {
    let all = [Outcome::Complete, Outcome::Cancelled, Outcome::Failed, Outcome::Broken];
    all.into_iter().find(|outcome| outcome.as_str() == text)
}

fn settlement(text: &str) -> Option<Settlement> {
    Settlement::ALL.into_iter().find(|settlement| settlement.as_str() == text)
}
