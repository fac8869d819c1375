//! What was spent: one row per key and UTC day, written with the records it sums, so that a window is a few rows instead
//! of every request since its start. All windows begin at midnight, so days lose nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use tidegate_core::{Exchange, KeyHash, Money, OrganisationId, Tenant, Timestamp, Window, WorkspaceId, window};

use crate::error::Unreadable;
use crate::{Result, Store, dialect};

/// Rows per statement, largest first: few shapes, as for the records themselves.
const SHAPES: [usize; 4] = [64, 16, 4, 1];
const COLUMNS: usize = 8;

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

fn nanos(dollars: i64, rest: i64) -> i64 {
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

/// What a batch of records adds to the days of its keys, in the order of key and day: two that write at once then wait
/// for each other in the same order.
#[derive(Default)]
pub(crate) struct Days(BTreeMap<(KeyHash, i64), Day>);

pub(crate) struct Day {
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub credit: i64,
    pub byok: i64,
    pub requests: i64,
    pub last_used: Timestamp,
}

/// One row to be added: its key and day, and what is added.
pub(crate) type Added<'a> = ((KeyHash, i64), &'a Day);

impl Days {
    /// A request belongs to the day of its admission.
    pub fn add(&mut self, exchange: &Exchange) {
        let amount = |money: Option<Money>| money.map_or(0, |money| money.0.max(0));
        let (credit, byok) =
            if exchange.is_byok { (0, amount(exchange.list_cost)) } else { (amount(exchange.cost), 0) };
        let day = self.0.entry((exchange.key, window::day(exchange.started))).or_insert_with(|| Day {
            organisation: exchange.organisation.clone(),
            workspace: exchange.workspace.clone(),
            credit: 0,
            byok: 0,
            requests: 0,
            last_used: exchange.started,
        });
        day.credit = day.credit.saturating_add(credit);
        day.byok = day.byok.saturating_add(byok);
        day.requests += 1;
        day.last_used = day.last_used.max(exchange.started);
    }

    /// The rows, cut into pieces of the known shapes.
    pub fn shaped(&self) -> Vec<Vec<Added<'_>>> {
        let rows: Vec<Added<'_>> = self.0.iter().map(|(key, day)| (*key, day)).collect();
        let mut rest = &rows[..];
        let mut pieces = Vec::new();
        while let Some(size) = SHAPES.into_iter().find(|size| *size <= rest.len()) {
            let (piece, left) = rest.split_at(size);
            pieces.push(piece.to_vec());
            rest = left;
        }
        pieces
    }
}

/// Adds to the days of keys, in the transaction that stores the records.
macro_rules! add_days {
    ($transaction:ident, $days:expr, $numbered:expr) => {
        for piece in $days.shaped() {
            let mut upsert = sqlx::query($crate::spend::add_text(piece.len(), $numbered));
            for ((key, number), day) in piece {
                upsert = upsert
                    .bind(key.to_hex())
                    .bind(number)
                    .bind(&*day.organisation.0)
                    .bind(&*day.workspace.0)
                    .bind(day.credit)
                    .bind(day.byok)
                    .bind(day.requests)
                    .bind(day.last_used.0);
            }
            upsert.execute(&mut *$transaction).await?;
        }
    };
}
pub(crate) use add_days;

/// The statement for one of the [`SHAPES`], made once. Sums stay below what a column can hold.
pub(crate) fn add_text(rows: usize, numbered: bool) -> &'static str {
    static TEXTS: [[OnceLock<String>; SHAPES.len()]; 2] = [const { [const { OnceLock::new() }; SHAPES.len()] }; 2];
    let shape = SHAPES.iter().position(|shape| *shape == rows).expect("rows are cut into these shapes");
    TEXTS[usize::from(numbered)][shape].get_or_init(|| {
        let place = |place: usize| if numbered { format!("${place}") } else { "?".to_owned() };
        let row = |row: usize| {
            let places: Vec<String> = (1..=COLUMNS).map(|column| place(row * COLUMNS + column)).collect();
            format!("({})", places.join(", "))
        };
        let values: Vec<String> = (0..rows).map(row).collect();
        let values = values.join(", ");
        format!(
            "INSERT INTO key_days (key_hash, day, organisation_id, workspace_id, credit_nanos, byok_nanos, requests, \
             last_used_at) VALUES {values} \
             ON CONFLICT (key_hash, day) DO UPDATE SET \
             credit_nanos = CASE WHEN key_days.credit_nanos > 9223372036854775807 - excluded.credit_nanos \
             THEN 9223372036854775807 ELSE key_days.credit_nanos + excluded.credit_nanos END, \
             byok_nanos = CASE WHEN key_days.byok_nanos > 9223372036854775807 - excluded.byok_nanos \
             THEN 9223372036854775807 ELSE key_days.byok_nanos + excluded.byok_nanos END, \
             requests = key_days.requests + excluded.requests, \
             last_used_at = CASE WHEN excluded.last_used_at > key_days.last_used_at \
             THEN excluded.last_used_at ELSE key_days.last_used_at END"
        )
    })
}
