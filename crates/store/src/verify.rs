//! Proof of what is stored as spent: every day of every account is added up again from the records, and from what
//! records that are gone had added, and compared. What is posted in a slot is always summed from these days, so a slot
//! has nothing of its own that could be wrong but its leases.

use std::fmt;
use std::time::Duration;

use tidegate_core::{Money, Timestamp};

use crate::spend::{Totals, byok_nanos, credit_nanos, nanos};
use crate::{Result, Store};

/// Differences that are told; who finds more than that has found enough.
const TOLD: usize = 100;
/// How long the whole may take: it reads every record there is.
const LIMIT: Duration = Duration::from_secs(600);

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What was looked at and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub generations: u64,
    /// Records that were removed for their age and count through the archive.
    pub archived: u64,
    pub accounts: u64,
    /// Days of accounts that were compared.
    pub days: u64,
    pub leases: u64,
    /// At most a hundred.
    pub differences: Vec<Difference>,
    /// Whether there are more.
    pub is_cut: bool,
}

impl Verified {
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A day of an account is not what its records add up to.
    Day {
        /// `key:…`, `workspace:…` or `organisation:…`.
        account: String,
        organisation: String,
        day: i64,
        stored: Totals,
        recorded: Totals,
    },
    /// A lease that nobody can have been given.
    Lease { slot: String, node: String, amount: Money, reason: LeaseFault },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseFault {
    Negative,
    /// The row that whoever changes the lease must hold is not there.
    WithoutSlot,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day { account, organisation, day, stored, recorded } => {
                let instant = Timestamp(day.saturating_mul(DAY_MS)).to_string();
                let date = instant.split('T').next().unwrap_or_default();
                write!(
                    out,
                    "{account} of {organisation} on {date}: stored {}, its records add up to {}",
                    Shown(stored),
                    Shown(recorded)
                )
            }
            Self::Lease { slot, node, amount, reason: LeaseFault::Negative } => {
                write!(out, "lease of {node} on {slot}: ${amount} is less than nothing")
            }
            Self::Lease { slot, node, amount, reason: LeaseFault::WithoutSlot } => {
                write!(out, "lease of {node} on {slot}: ${amount} of a slot that does not exist")
            }
        }
    }
}

struct Shown<'a>(&'a Totals);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { credit, byok, requests } = self.0;
        write!(out, "${credit} and ${byok} through own credentials in {requests} requests")
    }
}

impl Store {
    /// Adds everything up again and compares, in one consistent view: writers may go on meanwhile.
    pub async fn verify_spend(&self) -> Result<Verified> {
        on_snapshot!(self, LIMIT, transaction => {
            let (generations, archived, leases): (i64, i64, i64) = sqlx::query_as(
                "SELECT (SELECT COUNT(*) FROM generations), \
                 (SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) FROM spend_archive), \
                 (SELECT COUNT(*) FROM ledger_leases)",
            )
            .fetch_one(&mut *transaction)
            .await?;
            let (days_of_keys, keys, days_of_accounts, accounts): (i64, i64, i64, i64) = sqlx::query_as(
                "SELECT (SELECT COUNT(*) FROM key_days), (SELECT COUNT(DISTINCT key_hash) FROM key_days), \
                 (SELECT COUNT(*) FROM account_days), (SELECT COUNT(DISTINCT account) FROM account_days)",
            )
            .fetch_one(&mut *transaction)
            .await?;
            // One more than is told says whether there are more.
            let most = TOLD as i64 + 1;
            let days: Vec<RawDay> = sqlx::query_as(DIFFERENT_DAYS).bind(most).fetch_all(&mut *transaction).await?;
            let wrong_leases: Vec<RawLease> =
                sqlx::query_as(WRONG_LEASES).bind(most).fetch_all(&mut *transaction).await?;

            let mut differences: Vec<Difference> = days.into_iter().map(Difference::from).collect();
            differences.extend(wrong_leases.into_iter().map(Difference::from));
            let is_cut = differences.len() > TOLD;
            differences.truncate(TOLD);
            let count = |number: i64| u64::try_from(number).unwrap_or(0);
            Ok(Verified {
                generations: count(generations),
                archived: count(archived),
                accounts: count(keys + accounts),
                days: count(days_of_keys + days_of_accounts),
                leases: count(leases),
                differences,
                is_cut,
            })
        })
    }
}

/// Both sides of every day, and those that are not equal. Dollars and what is below them are summed apart, as everywhere;
/// what is beyond measure is stored as the largest there is, so two such amounts count as equal. A day that is there on
/// one side only is a difference too, also when nothing was spent on it. What people see by model (`activity:`) is compared
/// in dollars alone: the fee of a tool is a record, and there no request. Of days that were archived before that was kept there
/// is nothing to compare.
const DIFFERENT_DAYS: &str = concat!(
    "WITH records AS MATERIALIZED ( \
     SELECT key_hash, day, organisation_id, workspace_id, \
     CAST(SUM(credit_nanos / 1000000000) AS BIGINT) AS credit_dollars, \
     CAST(SUM(credit_nanos % 1000000000) AS BIGINT) AS credit_rest, \
     CAST(SUM(byok_nanos / 1000000000) AS BIGINT) AS byok_dollars, \
     CAST(SUM(byok_nanos % 1000000000) AS BIGINT) AS byok_rest, CAST(SUM(requests) AS BIGINT) AS requests \
     FROM (SELECT key_hash, started_at / 86400000 AS day, organisation_id, workspace_id, \
     ",
    credit_nanos!(""),
    " AS credit_nanos, ",
    byok_nanos!(""),
    " AS byok_nanos, 1 AS requests \
     FROM generations \
     UNION ALL \
     SELECT key_hash, day, organisation_id, workspace_id, credit_nanos, byok_nanos, requests FROM spend_archive \
     ) AS each_record GROUP BY key_hash, day, organisation_id, workspace_id \
     ), sides AS ( \
     SELECT 'key:' || key_hash AS account, day, organisation_id, workspace_id, 0 AS stored, 1 AS recorded, \
     credit_dollars, credit_rest, byok_dollars, byok_rest, requests FROM records \
     UNION ALL \
     SELECT 'workspace:' || workspace_id, day, organisation_id, '', 0, 1, \
     credit_dollars, credit_rest, byok_dollars, byok_rest, requests FROM records \
     UNION ALL \
     SELECT 'organisation:' || organisation_id, day, organisation_id, '', 0, 1, \
     credit_dollars, credit_rest, byok_dollars, byok_rest, requests FROM records \
     UNION ALL \
     SELECT 'key:' || key_hash, day, organisation_id, workspace_id, 1, 0, credit_nanos / 1000000000, \
     credit_nanos % 1000000000, byok_nanos / 1000000000, byok_nanos % 1000000000, requests FROM key_days \
     UNION ALL \
     SELECT account, day, organisation_id, '', 1, 0, credit_nanos / 1000000000, \
     credit_nanos % 1000000000, byok_nanos / 1000000000, byok_nanos % 1000000000, requests FROM account_days \
     UNION ALL \
     SELECT 'activity:' || key_hash, day, organisation_id, workspace_id, 0, 1, \
     credit_dollars, credit_rest, byok_dollars, byok_rest, 0 FROM records WHERE EXISTS (SELECT 1 FROM activity_days \
     WHERE activity_days.organisation_id = records.organisation_id AND activity_days.day = records.day \
     AND activity_days.workspace_id = records.workspace_id AND activity_days.key_hash = records.key_hash) \
     OR NOT EXISTS (SELECT 1 FROM spend_archive WHERE spend_archive.key_hash = records.key_hash \
     AND spend_archive.day = records.day) \
     UNION ALL \
     SELECT 'activity:' || key_hash, day, organisation_id, workspace_id, 1, 0, credit_nanos / 1000000000, \
     credit_nanos % 1000000000, byok_nanos / 1000000000, byok_nanos % 1000000000, 0 FROM activity_days \
     ), sums AS ( \
     SELECT account, day, organisation_id, workspace_id, MAX(stored) AS is_stored, MAX(recorded) AS is_recorded, \
     CAST(SUM(stored * credit_dollars) AS BIGINT) AS stored_credit_dollars, \
     CAST(SUM(stored * credit_rest) AS BIGINT) AS stored_credit_rest, \
     CAST(SUM(stored * byok_dollars) AS BIGINT) AS stored_byok_dollars, \
     CAST(SUM(stored * byok_rest) AS BIGINT) AS stored_byok_rest, \
     CAST(SUM(stored * requests) AS BIGINT) AS stored_requests, \
     CAST(SUM(recorded * credit_dollars) AS BIGINT) AS credit_dollars, \
     CAST(SUM(recorded * credit_rest) AS BIGINT) AS credit_rest, \
     CAST(SUM(recorded * byok_dollars) AS BIGINT) AS byok_dollars, \
     CAST(SUM(recorded * byok_rest) AS BIGINT) AS byok_rest, \
     CAST(SUM(recorded * requests) AS BIGINT) AS requests \
     FROM sides GROUP BY account, day, organisation_id, workspace_id \
     ), carried AS ( \
     SELECT account, day, organisation_id, workspace_id, is_stored, is_recorded, stored_requests, requests, \
     stored_credit_dollars + stored_credit_rest / 1000000000 AS stored_credit_dollars, \
     stored_credit_rest % 1000000000 AS stored_credit_rest, \
     stored_byok_dollars + stored_byok_rest / 1000000000 AS stored_byok_dollars, \
     stored_byok_rest % 1000000000 AS stored_byok_rest, \
     credit_dollars + credit_rest / 1000000000 AS credit_dollars, credit_rest % 1000000000 AS credit_rest, \
     byok_dollars + byok_rest / 1000000000 AS byok_dollars, byok_rest % 1000000000 AS byok_rest FROM sums \
     ) \
     SELECT account, day, organisation_id, stored_credit_dollars, stored_credit_rest, stored_byok_dollars, \
     stored_byok_rest, stored_requests, credit_dollars, credit_rest, byok_dollars, byok_rest, requests FROM carried \
     WHERE is_stored <> is_recorded OR stored_requests <> requests \
     OR ((stored_credit_dollars <> credit_dollars OR stored_credit_rest <> credit_rest) \
     AND (stored_credit_dollars < 9223372036 OR credit_dollars < 9223372036)) \
     OR ((stored_byok_dollars <> byok_dollars OR stored_byok_rest <> byok_rest) \
     AND (stored_byok_dollars < 9223372036 OR byok_dollars < 9223372036)) \
     ORDER BY day, account, organisation_id, workspace_id LIMIT $1"
);

const WRONG_LEASES: &str = "SELECT l.slot, l.node_id, l.amount, s.slot IS NOT NULL AS has_slot FROM ledger_leases l \
     LEFT JOIN ledger_slots s ON s.slot = l.slot WHERE l.amount < 0 OR s.slot IS NULL \
     ORDER BY l.slot, l.node_id LIMIT $1";

#[derive(sqlx::FromRow)]
struct RawDay {
    account: String,
    day: i64,
    organisation_id: String,
    stored_credit_dollars: i64,
    stored_credit_rest: i64,
    stored_byok_dollars: i64,
    stored_byok_rest: i64,
    stored_requests: i64,
    credit_dollars: i64,
    credit_rest: i64,
    byok_dollars: i64,
    byok_rest: i64,
    requests: i64,
}

impl From<RawDay> for Difference {
    fn from(raw: RawDay) -> Self {
        Self::Day {
            account: raw.account,
            organisation: raw.organisation_id,
            day: raw.day,
            stored: Totals {
                credit: Money(nanos(raw.stored_credit_dollars, raw.stored_credit_rest)),
                byok: Money(nanos(raw.stored_byok_dollars, raw.stored_byok_rest)),
                requests: raw.stored_requests,
            },
            recorded: Totals {
                credit: Money(nanos(raw.credit_dollars, raw.credit_rest)),
                byok: Money(nanos(raw.byok_dollars, raw.byok_rest)),
                requests: raw.requests,
            },
        }
    }
}

#[derive(sqlx::FromRow)]
struct RawLease {
    slot: String,
    node_id: String,
    amount: i64,
    has_slot: bool,
}

impl From<RawLease> for Difference {
    fn from(raw: RawLease) -> Self {
        let reason = if raw.has_slot { LeaseFault::Negative } else { LeaseFault::WithoutSlot };
        Self::Lease { slot: raw.slot, node: raw.node_id, amount: Money(raw.amount), reason }
    }
}
