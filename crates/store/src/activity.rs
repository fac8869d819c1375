//! What was asked for and spent, by UTC day, key, model and provider. It is written with the records that it sums and stays
//! when they leave for their age.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::{Exchange, KeyHash, Money, OrganisationId, Tenant, WorkspaceId};

use crate::dialect::Shapes;
use crate::spend::{Totals, plus_excluded};
use crate::{Result, Store};

pub(crate) static ACTIVITY_DAYS: Shapes<4> = Shapes::new([64, 16, 4, 1]);

/// More than any call can use: what an upstream claims beyond it must not make a sum that no column holds.
const MOST_TOKENS: u64 = 1_000_000_000_000;

/// For requests that nobody answered.
const UNKNOWN: &str = "unknown";

/// What a batch of records adds, in a fixed order.
#[derive(Default)]
pub(crate) struct Activities(pub BTreeMap<Place, Activity>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub organisation: OrganisationId,
    pub day: i64,
    pub workspace: WorkspaceId,
    pub key: KeyHash,
    pub model: Arc<str>,
    pub provider: Arc<str>,
}

#[derive(Default)]
pub(crate) struct Activity {
    pub totals: Totals,
    pub prompt: i64,
    pub completion: i64,
    pub reasoning: i64,
    pub cached: i64,
}

impl Activities {
    pub fn add(&mut self, exchange: &Exchange, day: i64, totals: Totals) {
        let place = Place {
            organisation: exchange.organisation.clone(),
            day,
            workspace: exchange.workspace.clone(),
            key: exchange.key,
            // Until a provider was chosen the model is whatever the caller wrote, and anybody can write anything.
            model: if exchange.provider.is_empty() { UNKNOWN.into() } else { exchange.model.clone() },
            provider: exchange.provider.clone(),
        };
        let tokens = |count: u64| i64::try_from(count.min(MOST_TOKENS)).unwrap_or(i64::MAX);
        let activity = self.0.entry(place).or_default();
        // The fee of a tool belongs to a request that is counted already, and so do the turns behind a first one. Days of
        // accounts count them: they are proved by their records, of which each is one.
        let requests = if exchange.is_fee() || exchange.parent.is_some() { 0 } else { totals.requests };
        activity.totals.add(Totals { requests, ..totals });
        for (sum, count) in [
            (&mut activity.prompt, exchange.usage.prompt()),
            (&mut activity.completion, exchange.usage.output),
            (&mut activity.reasoning, exchange.usage.thinking),
            (&mut activity.cached, exchange.usage.cache_read),
        ] {
            *sum = sum.saturating_add(tokens(count));
        }
    }
}

/// Adds to the days, in the transaction that stores the records.
macro_rules! add_activity {
    ($transaction:ident, $activity:expr, $numbered:expr) => {
        let activity: Vec<_> = $activity.0.iter().collect();
        for piece in $crate::activity::ACTIVITY_DAYS.cut(&activity) {
            let mut upsert = sqlx::query($crate::activity::activity_text(piece.len(), $numbered));
            for (place, activity) in piece {
                upsert = upsert
                    .bind(&*place.organisation.0)
                    .bind(place.day)
                    .bind(&*place.workspace.0)
                    .bind(place.key.to_hex())
                    .bind($crate::generations::storable(&place.model))
                    .bind($crate::generations::storable(&place.provider))
                    .bind(activity.totals.credit.0)
                    .bind(activity.totals.byok.0)
                    .bind(activity.totals.requests)
                    .bind(activity.prompt)
                    .bind(activity.completion)
                    .bind(activity.reasoning)
                    .bind(activity.cached);
            }
            upsert.execute(&mut *$transaction).await?;
        }
    };
}
pub(crate) use add_activity;

pub(crate) fn activity_text(rows: usize, numbered: bool) -> &'static str {
    ACTIVITY_DAYS.text(rows, numbered, "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?", |values| {
        let plus = plus_excluded!("activity_days");
        format!(
            "INSERT INTO activity_days (organisation_id, day, workspace_id, key_hash, model, provider, credit_nanos, \
             byok_nanos, requests, prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens) \
             VALUES {values} \
             ON CONFLICT (organisation_id, day, workspace_id, key_hash, model, provider) DO UPDATE SET {plus}, \
             prompt_tokens = activity_days.prompt_tokens + excluded.prompt_tokens, \
             completion_tokens = activity_days.completion_tokens + excluded.completion_tokens, \
             reasoning_tokens = activity_days.reasoning_tokens + excluded.reasoning_tokens, \
             cached_tokens = activity_days.cached_tokens + excluded.cached_tokens"
        )
    })
}

/// Whose activity is asked for; what is not said is not looked at.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The first and the last day, as [`tidegate_core::window::day`] counts.
    pub days: (i64, i64),
    pub key: Option<KeyHash>,
    /// The member who made the key.
    pub user: Option<String>,
    pub workspace: Option<String>,
    pub by_workspace: bool,
    pub by_key: bool,
}

/// A sum over one day, model and provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayOfModel {
    pub day: i64,
    pub model: String,
    pub provider: String,
    /// Where it was asked for by workspace.
    pub workspace: Option<String>,
    /// The hash of the key, where it was asked for by key.
    pub key: Option<String>,
    pub credit: Money,
    pub byok: Money,
    pub requests: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub reasoning_tokens: u64,
    pub cached_tokens: u64,
}

#[derive(sqlx::FromRow)]
struct Row {
    day: i64,
    model: String,
    provider: String,
    workspace_id: String,
    key_hash: String,
    credit_nanos: i64,
    byok_nanos: i64,
    requests: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
    reasoning_tokens: i64,
    cached_tokens: i64,
}

impl Store {
    /// Sums by day, model and provider, newest day first.
    pub async fn activity(&self, tenant: &Tenant, asked: &Asked) -> Result<Vec<DayOfModel>> {
        let rows: Vec<Row> = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT day, model, provider, workspace_id, key_hash, credit_nanos, byok_nanos, requests, prompt_tokens, \
                 completion_tokens, reasoning_tokens, cached_tokens FROM activity_days \
                 WHERE organisation_id = $1 AND day >= $2 AND day <= $3 AND ($4 = '' OR key_hash = $4) \
                 AND ($5 = '' OR workspace_id = $5) \
                 AND ($6 = '' OR key_hash IN (SELECT hash FROM api_keys WHERE organisation_id = $1 AND creator_user_id = $6)) \
                 ORDER BY day DESC, model, provider, workspace_id",
            )
            .bind(&*tenant.organisation.0)
            .bind(asked.days.0)
            .bind(asked.days.1)
            .bind(asked.key.map(|key| key.to_hex()).unwrap_or_default())
            .bind(asked.workspace.as_deref().unwrap_or_default())
            .bind(asked.user.as_deref().unwrap_or_default())
            .fetch_all(pool)
            .await?)
        })?;
        // Summed here, where a sum that is too large stays the largest there is.
        let mut sums: BTreeMap<_, DayOfModel> = BTreeMap::new();
        for row in rows {
            let workspace = asked.by_workspace.then_some(row.workspace_id);
            let key = asked.by_key.then_some(row.key_hash);
            let place = (-row.day, row.model.clone(), row.provider.clone(), workspace.clone(), key.clone());
            let sum = sums.entry(place).or_insert_with(|| DayOfModel {
                day: row.day,
                model: row.model,
                provider: row.provider,
                workspace,
                key,
                credit: Money::ZERO,
                byok: Money::ZERO,
                requests: 0,
                prompt_tokens: 0,
                completion_tokens: 0,
                reasoning_tokens: 0,
                cached_tokens: 0,
            });
            (sum.credit, sum.byok) = (sum.credit.plus(Money(row.credit_nanos)), sum.byok.plus(Money(row.byok_nanos)));
            for (sum, count) in [
                (&mut sum.requests, row.requests),
                (&mut sum.prompt_tokens, row.prompt_tokens),
                (&mut sum.completion_tokens, row.completion_tokens),
                (&mut sum.reasoning_tokens, row.reasoning_tokens),
                (&mut sum.cached_tokens, row.cached_tokens),
            ] {
                *sum = sum.saturating_add(u64::try_from(count).unwrap_or(0));
            }
        }
        Ok(sums.into_values().collect())
    }
}
