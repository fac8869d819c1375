//! What was spent: one row per key and UTC day, written with the records it sums, so that a window is a few rows instead
//! of every request since its start. All windows begin at midnight, so days lose nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use tidegate_core::{
    Account, Exchange, KeyHash, Money, OrganisationId, Spent, Tenant, Timestamp, Window, WorkspaceId, window,
};

use crate::activity::Activities;
use crate::dialect::Shapes;
use crate::error::Unreadable;
use crate::{Result, Store, dialect};

pub(crate) static KEY_DAYS: Shapes<4> = Shapes::new([64, 16, 4, 1]);
pub(crate) static ACCOUNT_DAYS: Shapes<3> = Shapes::new([16, 4, 1]);

/// Keys asked for at a time: a page of them, or one.
const ASKED: [usize; 2] = [100, 1];

const NANOS: i64 = 1_000_000_000;

/// An amount in each window that a moment is in, and since ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub all: Money,
    pub day: Money,
    pub week: Money,
    pub month: Money,
}

impl Amounts {
    /// The amount that a limit with this window looks at.
    pub fn within(&self, window: Option<Window>) -> Money {
        match window {
            None => self.all,
            Some(Window::Daily) => self.day,
            Some(Window::Weekly) => self.week,
            Some(Window::Monthly) => self.month,
        }
    }
}

/// What a key or workspace spent, as far as its records have arrived here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spend {
    pub credit: Amounts,
    /// Through credentials of the customer's own, at list price.
    pub byok: Amounts,
    pub last_used: Option<Timestamp>,
}

impl Spend {
    /// What counts towards a limit with this window.
    pub fn counted(&self, window: Option<Window>, include_byok: bool) -> Money {
        let byok = if include_byok { self.byok.within(window) } else { Money::ZERO };
        Money(self.credit.within(window).0.saturating_add(byok.0))
    }

    fn add(&mut self, part: &Part) {
        let each = |amounts: &mut Amounts, amount: i64| {
            let windows = [
                (&mut amounts.all, true),
                (&mut amounts.day, part.in_day),
                (&mut amounts.week, part.in_week),
                (&mut amounts.month, part.in_month),
            ];
            for (sum, _) in windows.into_iter().filter(|(_, counts)| *counts) {
                sum.0 = sum.0.saturating_add(amount);
            }
        };
        each(&mut self.credit, nanos(part.credit_dollars, part.credit_rest));
        each(&mut self.byok, nanos(part.byok_dollars, part.byok_rest));
        self.last_used = self.last_used.max(Some(Timestamp(part.last_used_at)));
    }
}

impl Store {
    /// What each of these keys spent in the windows that `now` is in; a key without a record is left out.
    pub async fn key_spend(
        &self,
        tenant: &Tenant,
        keys: &[KeyHash],
        now: Timestamp,
    ) -> Result<HashMap<KeyHash, Spend>> {
        let mut spends: HashMap<KeyHash, Spend> = HashMap::with_capacity(keys.len());
        let most = ASKED[0];
        for keys in keys.chunks(most) {
            let shape = if keys.len() == 1 { 1 } else { most };
            let parts: Vec<Part> = on_reader!(self, pool => {
                let mut query = sqlx::query_as(key_spend_text(shape, dialect::is_numbered(pool)))
                    .bind(Window::Daily.first_day(now))
                    .bind(Window::Weekly.first_day(now))
                    .bind(Window::Monthly.first_day(now))
                    .bind(&*tenant.organisation.0);
                for place in 0..shape {
                    // The places that are left over ask for a key that nobody has.
                    query = query.bind(keys.get(place).map(|key| key.to_hex()).unwrap_or_default());
                }
                Ok(query.fetch_all(pool).await?)
            })?;
            for part in &parts {
                let key = KeyHash::parse(&part.key_hash);
                let key = key.ok_or(Unreadable { table: "key_days", column: "key_hash" })?;
                spends.entry(key).or_default().add(part);
            }
        }
        Ok(spends)
    }

    /// What all keys of a workspace spent in the windows that `now` is in, those that were deleted too.
    pub async fn workspace_spend(&self, tenant: &Tenant, workspace: &WorkspaceId, now: Timestamp) -> Result<Spend> {
        let parts: Vec<Part> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                "SELECT workspace_id AS key_hash, ",
                sums!("$1", "$2", "$3"),
                " FROM key_days WHERE organisation_id = $4 AND workspace_id = $5 GROUP BY 1, 2, 3, 4"
            ))
            .bind(Window::Daily.first_day(now))
            .bind(Window::Weekly.first_day(now))
            .bind(Window::Monthly.first_day(now))
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .fetch_all(pool)
            .await?)
        })?;
        let mut spend = Spend::default();
        parts.iter().for_each(|part| spend.add(part));
        Ok(spend)
    }

    /// What a member spent with all keys that were ever theirs, in the windows that `now` is in.
    pub async fn member_spend(&self, tenant: &Tenant, member: &str, now: Timestamp) -> Result<Spend> {
        let parts: Vec<Part> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                "SELECT '' AS key_hash, ",
                sums!("$1", "$2", "$3"),
                " FROM key_days WHERE organisation_id = $4 AND key_hash IN ",
                "(SELECT hash FROM api_keys WHERE organisation_id = $4 AND creator_user_id = $5) GROUP BY 1, 2, 3, 4"
            ))
            .bind(Window::Daily.first_day(now))
            .bind(Window::Weekly.first_day(now))
            .bind(Window::Monthly.first_day(now))
            .bind(&*tenant.organisation.0)
            .bind(member)
            .fetch_all(pool)
            .await?)
        })?;
        let mut spend = Spend::default();
        parts.iter().for_each(|part| spend.add(part));
        Ok(spend)
    }

    /// All that the tenant ever spent, without what went through credentials of its own.
    pub async fn total_usage(&self, tenant: &Tenant) -> Result<Money> {
        let (dollars, rest): (i64, i64) = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT CAST(COALESCE(SUM(credit_nanos / 1000000000), 0) AS BIGINT), \
                 CAST(COALESCE(SUM(credit_nanos % 1000000000), 0) AS BIGINT) \
                 FROM key_days WHERE organisation_id = $1",
            )
            .bind(&*tenant.organisation.0)
            .fetch_one(pool)
            .await?)
        })?;
        Ok(Money(nanos(dollars, rest)))
    }
}

/// Sums of the days that are in the same windows. Dollars and what is below them are summed apart: an upstream can
/// report any usage, and a sum that does not fit must not become an error of every answer that shows it.
macro_rules! sums {
    ($day:literal, $week:literal, $month:literal) => {
        concat!(
            "day >= ",
            $day,
            " AS in_day, day >= ",
            $week,
            " AS in_week, day >= ",
            $month,
            " AS in_month, \
             CAST(SUM(credit_nanos / 1000000000) AS BIGINT) AS credit_dollars, \
             CAST(SUM(credit_nanos % 1000000000) AS BIGINT) AS credit_rest, \
             CAST(SUM(byok_nanos / 1000000000) AS BIGINT) AS byok_dollars, \
             CAST(SUM(byok_nanos % 1000000000) AS BIGINT) AS byok_rest, \
             MAX(last_used_at) AS last_used_at"
        )
    };
}
use sums;

#[derive(sqlx::FromRow)]
struct Part {
    key_hash: String,
    in_day: bool,
    in_week: bool,
    in_month: bool,
    credit_dollars: i64,
    credit_rest: i64,
    byok_dollars: i64,
    byok_rest: i64,
    last_used_at: i64,
}

pub(crate) fn nanos(dollars: i64, rest: i64) -> i64 {
    dollars.saturating_mul(NANOS).saturating_add(rest)
}

/// The statement for one of the numbers of [`ASKED`] keys, made once.
fn key_spend_text(keys: usize, numbered: bool) -> &'static str {
    static TEXTS: [[OnceLock<String>; ASKED.len()]; 2] = [const { [const { OnceLock::new() }; ASKED.len()] }; 2];
    let shape = ASKED.iter().position(|shape| *shape == keys).expect("only these numbers are asked for");
    TEXTS[usize::from(numbered)][shape].get_or_init(|| {
        let sums = if numbered { sums!("$1", "$2", "$3") } else { sums!("?", "?", "?") };
        let place = |place: usize| if numbered { format!("${place}") } else { "?".to_owned() };
        let places: Vec<String> = (5..5 + keys).map(place).collect();
        let (organisation, places) = (place(4), places.join(", "));
        format!(
            "SELECT key_hash, {sums} FROM key_days WHERE organisation_id = {organisation} AND key_hash IN ({places}) \
             GROUP BY 1, 2, 3, 4"
        )
    })
}

/// What [`Spent::of`] says of a row of `generations`, for statements that read many.
macro_rules! credit_nanos {
    ($row:literal) => {
        concat!("CASE WHEN ", $row, "cost_nanos > 0 THEN ", $row, "cost_nanos ELSE 0 END")
    };
}
pub(crate) use credit_nanos;

macro_rules! byok_nanos {
    ($row:literal) => {
        concat!(
            "CASE WHEN ",
            $row,
            "is_byok AND ",
            $row,
            "list_cost_nanos > 0 THEN ",
            $row,
            "list_cost_nanos ELSE 0 END"
        )
    };
}
pub(crate) use byok_nanos;

/// A sum of what records added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub credit: Money,
    /// Through credentials of the customer's own, at list price.
    pub byok: Money,
    pub requests: i64,
}

impl Totals {
    /// Of one record.
    pub(crate) fn one(spent: Spent) -> Self {
        Self { credit: spent.credit, byok: spent.byok, requests: 1 }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.credit = self.credit.plus(other.credit);
        self.byok = self.byok.plus(other.byok);
        self.requests = self.requests.saturating_add(other.requests);
    }
}

/// What a batch of records adds to the days of keys and of what they belong to, in a fixed order: two that write at once
/// then wait for each other in the same order.
#[derive(Default)]
pub(crate) struct Days {
    pub keys: BTreeMap<(KeyHash, i64), KeyDay>,
    pub accounts: BTreeMap<(Account, i64), (OrganisationId, Totals)>,
    pub activity: Activities,
}

pub(crate) struct KeyDay {
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub totals: Totals,
    pub last_used: Timestamp,
}

impl Days {
    /// A request belongs to the day of its admission.
    pub fn add(&mut self, exchange: &Exchange) {
        let totals = Totals::one(exchange.spent());
        let number = window::day(exchange.started);
        self.activity.add(exchange, number, totals);
        let day = self.keys.entry((exchange.key, number)).or_insert_with(|| KeyDay {
            organisation: exchange.organisation.clone(),
            workspace: exchange.workspace.clone(),
            totals: Totals::default(),
            last_used: exchange.started,
        });
        day.totals.add(totals);
        day.last_used = day.last_used.max(exchange.started);
        let accounts =
            [Account::Workspace(exchange.workspace.clone()), Account::Organisation(exchange.organisation.clone())];
        for account in accounts {
            let day = self.accounts.entry((account, number));
            day.or_insert_with(|| (exchange.organisation.clone(), Totals::default())).1.add(totals);
        }
    }
}

/// Adds to the days, in the transaction that stores the records.
macro_rules! add_days {
    ($transaction:ident, $days:expr, $numbered:expr) => {
        let keys: Vec<_> = $days.keys.iter().collect();
        for piece in $crate::spend::KEY_DAYS.cut(&keys) {
            let mut upsert = sqlx::query($crate::spend::key_days_text(piece.len(), $numbered));
            for ((key, number), day) in piece {
                upsert = upsert
                    .bind(key.to_hex())
                    .bind(number)
                    .bind(&*day.organisation.0)
                    .bind(&*day.workspace.0)
                    .bind(day.totals.credit.0)
                    .bind(day.totals.byok.0)
                    .bind(day.totals.requests)
                    .bind(day.last_used.0);
            }
            upsert.execute(&mut *$transaction).await?;
        }
        let accounts: Vec<_> = $days.accounts.iter().collect();
        for piece in $crate::spend::ACCOUNT_DAYS.cut(&accounts) {
            let mut upsert = sqlx::query($crate::spend::account_days_text(piece.len(), $numbered));
            for ((account, number), (organisation, totals)) in piece {
                upsert = upsert
                    .bind(account.to_string())
                    .bind(number)
                    .bind(&*organisation.0)
                    .bind(totals.credit.0)
                    .bind(totals.byok.0)
                    .bind(totals.requests);
            }
            upsert.execute(&mut *$transaction).await?;
        }
        $crate::activity::add_activity!($transaction, $days.activity, $numbered);
    };
}
pub(crate) use add_days;

/// How a row takes up another one of the same day. Sums stay below what a column can hold.
macro_rules! plus_excluded {
    ($table:literal) => {
        concat!(
            "credit_nanos = CASE WHEN ",
            $table,
            ".credit_nanos > 9223372036854775807 - excluded.credit_nanos THEN 9223372036854775807 ELSE ",
            $table,
            ".credit_nanos + excluded.credit_nanos END, byok_nanos = CASE WHEN ",
            $table,
            ".byok_nanos > 9223372036854775807 - excluded.byok_nanos THEN 9223372036854775807 ELSE ",
            $table,
            ".byok_nanos + excluded.byok_nanos END, requests = ",
            $table,
            ".requests + excluded.requests"
        )
    };
}

pub(crate) use plus_excluded;

pub(crate) fn key_days_text(rows: usize, numbered: bool) -> &'static str {
    KEY_DAYS.text(rows, numbered, "?, ?, ?, ?, ?, ?, ?, ?", |values| {
        let plus = plus_excluded!("key_days");
        format!(
            "INSERT INTO key_days (key_hash, day, organisation_id, workspace_id, credit_nanos, byok_nanos, requests, \
             last_used_at) VALUES {values} \
             ON CONFLICT (key_hash, day) DO UPDATE SET {plus}, \
             last_used_at = CASE WHEN excluded.last_used_at > key_days.last_used_at \
             THEN excluded.last_used_at ELSE key_days.last_used_at END"
        )
    })
}

pub(crate) fn account_days_text(rows: usize, numbered: bool) -> &'static str {
    ACCOUNT_DAYS.text(rows, numbered, "?, ?, ?, ?, ?, ?", |values| {
        let plus = plus_excluded!("account_days");
        format!(
            "INSERT INTO account_days (account, day, organisation_id, credit_nanos, byok_nanos, requests) \
             VALUES {values} ON CONFLICT (account, day) DO UPDATE SET {plus}"
        )
    })
}
