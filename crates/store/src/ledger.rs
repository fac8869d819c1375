//! What nodes may spend without asking. A node takes leases on slots, an account in one of its windows, and admits calls
//! from them in memory; what it spent comes here with the records ([`Store::forward`]). What is posted in a slot is
//! always summed from days, so it cannot drift, and a limit that is set later sees what was spent before.
//!
//! For every slot: posted + leased never passes the limit through a lease. Whoever changes a lease holds the row of its
//! slot first; who needs several takes them sorted.

mod nodes;

use std::collections::BTreeMap;

use tidegate_core::{Account, Guarded, Money, Posting, Slot, Timestamp, window};

use crate::dialect::Shapes;
use crate::error::Unreadable;
use crate::spend::nanos;
use crate::{Result, Store, StoreError, dialect};

/// How long others are asked to give back after a node was refused. It asks again with its next call.
const WANTED_MS: i64 = 10_000;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Nodes look at this number to learn whether their copy of the limits is old.
pub(crate) const LIMITS_CHANGED: &str = "UPDATE sequences SET value = value + 1 WHERE name = 'limits'";

pub(crate) static HELD: Shapes<4> = Shapes::new([64, 16, 4, 1]);
pub(crate) static LOWERED: Shapes<4> = Shapes::new([64, 16, 4, 1]);

/// A lease to be taken.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub slot: &'a Slot,
    pub limit: Money,
    /// Whether spending through credentials of the customer's own counts towards the limit.
    pub counts_byok: bool,
    /// Less than this is of no use.
    pub least: Money,
    /// The number of nodes that spend from the slot.
    pub share: u32,
    /// Nothing is to be taken: other nodes are to give back theirs, if more is spent and leased than may be.
    pub only_recalls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// So much more may be spent.
    Leased(Money),
    /// Nothing is left, and nothing had to be. Other nodes hold so much; they are asked for nothing.
    Nothing { elsewhere: Money },
    /// Less than the least is left. `elsewhere` is what other nodes hold; they are asked to give it back.
    Refused { remaining: Money, elsewhere: Money },
}

impl Store {
    /// Takes more of a slot for a node. What a guardrail counts is summed from the days of keys; members by themselves have no
    /// limits and so no leases.
    pub async fn lease(&self, node: &str, wanted: &Wanted<'_>) -> Result<Granted> {
        let (posted, account) = match &wanted.slot.account {
            Account::Key(hash) => (POSTED_BY_KEY, hash.to_hex()),
            account @ (Account::Workspace(_) | Account::Organisation(_)) => (POSTED_BY_ACCOUNT, account.to_string()),
            account @ Account::Guardrail(_) => match account.whom() {
                Some(Guarded::Key(hash)) => (POSTED_BY_KEY, hash.to_hex()),
                Some(Guarded::Member(user)) => (POSTED_BY_MEMBER, user.to_owned()),
                None => return Err(StoreError::Missing),
            },
            Account::Member(_) => return Err(StoreError::Missing),
        };
        let (slot, (first, next)) = (wanted.slot.to_string(), days(wanted.slot));
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let now: i64 = sqlx::query_scalar(dialect::now(pool)).fetch_one(&mut *transaction).await?;
            sqlx::query(
                "INSERT INTO ledger_nodes (id, epoch, beat_at, started_at) VALUES ($1, 0, $2, $2) \
                 ON CONFLICT (id) DO NOTHING",
            )
            .bind(node)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
            let wanted_by: Option<String> = sqlx::query_scalar(
                "INSERT INTO ledger_slots (slot) VALUES ($1) \
                 ON CONFLICT (slot) DO UPDATE SET wanted_at = ledger_slots.wanted_at RETURNING wanted_by",
            )
            .bind(&slot)
            .fetch_one(&mut *transaction)
            .await?;
            // Only now: what was committed while this waited for the row has to be seen.
            let posted: Posted = sqlx::query_as(posted)
                .bind(&account)
                .bind(first)
                .bind(next)
                .fetch_one(&mut *transaction)
                .await?;
            let leased: Leased = sqlx::query_as(LEASED).bind(&slot).bind(node).fetch_one(&mut *transaction).await?;
            let granted = grant(wanted, &posted, &leased);
            match granted {
                Granted::Refused { elsewhere: Money::ZERO, .. } | Granted::Nothing { .. } => {}
                Granted::Refused { .. } => {
                    sqlx::query("UPDATE ledger_slots SET wanted_at = $2, wanted_by = $3 WHERE slot = $1")
                        .bind(&slot)
                        .bind(now)
                        .bind(node)
                        .execute(&mut *transaction)
                        .await?;
                }
                Granted::Leased(amount) => {
                    sqlx::query(
                        "INSERT INTO ledger_leases (slot, node_id, amount) VALUES ($1, $2, $3) \
                         ON CONFLICT (slot, node_id) DO UPDATE SET amount = ledger_leases.amount + excluded.amount",
                    )
                    .bind(&slot)
                    .bind(node)
                    .bind(amount.0)
                    .execute(&mut *transaction)
                    .await?;
                    if wanted_by.as_deref() == Some(node) {
                        sqlx::query("UPDATE ledger_slots SET wanted_at = NULL, wanted_by = NULL WHERE slot = $1")
                            .bind(&slot)
                            .execute(&mut *transaction)
                            .await?;
                    }
                }
            }
            transaction.commit().await?;
            Ok(granted)
        })
    }

    /// Lowers the node's leases by what it no longer needs.
    pub async fn give_back(&self, node: &str, amounts: &[(Slot, Money)]) -> Result<()> {
        let mut lowered = Lowered::default();
        amounts.iter().for_each(|(slot, amount)| lowered.lower(slot, *amount));
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            lower_leases!(transaction, node, lowered, dialect::is_numbered(pool));
            transaction.commit().await?;
            Ok(())
        })
    }

    /// Everything that the node holds.
    pub async fn leases_of(&self, node: &str) -> Result<Vec<(Slot, Money)>> {
        let leases: Vec<(String, i64)> = on_writer!(self, pool => {
            // Locked, so that a change whose outcome nobody knows is over before it is read.
            Ok(sqlx::query_as("UPDATE ledger_leases SET amount = amount WHERE node_id = $1 RETURNING slot, amount")
                .bind(node)
                .fetch_all(pool)
                .await?)
        })?;
        let lease = |(slot, amount): (String, i64)| Ok((Slot::parse(&slot).ok_or(UNREADABLE_SLOT)?, Money(amount)));
        leases.into_iter().map(lease).collect()
    }

    /// The slots in which the node holds a lease and another node was refused just now.
    pub async fn called_for(&self, node: &str) -> Result<Vec<Slot>> {
        let slots: Vec<String> = on_reader!(self, pool => {
            let now: i64 = sqlx::query_scalar(dialect::now(pool)).fetch_one(pool).await?;
            Ok(sqlx::query_scalar(
                "SELECT l.slot FROM ledger_leases l JOIN ledger_slots s ON s.slot = l.slot \
                 WHERE l.node_id = $1 AND s.wanted_by <> $1 AND s.wanted_at > $2 ORDER BY l.slot",
            )
            .bind(node)
            .bind(now - WANTED_MS)
            .fetch_all(pool)
            .await?)
        })?;
        slots.iter().map(|slot| Ok(Slot::parse(slot).ok_or(UNREADABLE_SLOT)?)).collect()
    }

    /// A number that changes with every change of a budget or a grant.
    pub async fn limits_seq(&self) -> Result<i64> {
        on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT value FROM sequences WHERE name = 'limits'").fetch_one(pool).await?)
        })
    }
}

const UNREADABLE_SLOT: Unreadable = Unreadable { table: "ledger_leases", column: "slot" };

/// What is posted in a range of days. Dollars and what is below them are summed apart: see `spend`.
macro_rules! posted {
    ($from:literal) => {
        concat!(
            "SELECT CAST(COALESCE(SUM(credit_nanos / 1000000000), 0) AS BIGINT) AS credit_dollars, \
             CAST(COALESCE(SUM(credit_nanos % 1000000000), 0) AS BIGINT) AS credit_rest, \
             CAST(COALESCE(SUM(byok_nanos / 1000000000), 0) AS BIGINT) AS byok_dollars, \
             CAST(COALESCE(SUM(byok_nanos % 1000000000), 0) AS BIGINT) AS byok_rest FROM ",
            $from,
            " AND day >= $2 AND day < $3"
        )
    };
}

const POSTED_BY_KEY: &str = posted!("key_days WHERE key_hash = $1");
const POSTED_BY_ACCOUNT: &str = posted!("account_days WHERE account = $1");
/// Deleted keys keep their rows, so what a member spent with them still counts.
const POSTED_BY_MEMBER: &str =
    posted!("key_days WHERE key_hash IN (SELECT hash FROM api_keys WHERE creator_user_id = $1)");

const LEASED: &str = "SELECT \
     CAST(COALESCE(SUM(CASE WHEN node_id = $2 THEN amount / 1000000000 END), 0) AS BIGINT) AS own_dollars, \
     CAST(COALESCE(SUM(CASE WHEN node_id = $2 THEN amount % 1000000000 END), 0) AS BIGINT) AS own_rest, \
     CAST(COALESCE(SUM(CASE WHEN node_id <> $2 THEN amount / 1000000000 END), 0) AS BIGINT) AS elsewhere_dollars, \
     CAST(COALESCE(SUM(CASE WHEN node_id <> $2 THEN amount % 1000000000 END), 0) AS BIGINT) AS elsewhere_rest \
     FROM ledger_leases WHERE slot = $1";

#[derive(sqlx::FromRow)]
struct Posted {
    credit_dollars: i64,
    credit_rest: i64,
    byok_dollars: i64,
    byok_rest: i64,
}

#[derive(sqlx::FromRow)]
struct Leased {
    own_dollars: i64,
    own_rest: i64,
    elsewhere_dollars: i64,
    elsewhere_rest: i64,
}

fn grant(wanted: &Wanted<'_>, posted: &Posted, leased: &Leased) -> Granted {
    let credit = Money(nanos(posted.credit_dollars, posted.credit_rest));
    let byok = if wanted.counts_byok { Money(nanos(posted.byok_dollars, posted.byok_rest)) } else { Money::ZERO };
    let own = Money(nanos(leased.own_dollars, leased.own_rest));
    let elsewhere = Money(nanos(leased.elsewhere_dollars, leased.elsewhere_rest));
    let remaining = wanted.limit.minus(credit).minus(byok).minus(own).minus(elsewhere);
    let least = wanted.least.max(Money::ZERO);
    if remaining < least {
        return Granted::Refused { remaining, elsewhere };
    }
    if remaining == Money::ZERO || wanted.only_recalls {
        return Granted::Nothing { elsewhere };
    }
    if wanted.share <= 1 {
        return Granted::Leased(remaining);
    }
    let part = Money(remaining.0 / (4 * i64::from(wanted.share)));
    Granted::Leased(part.clamp(least.max(Money(1)), remaining))
}

/// The days of a slot: the first one, and the first one that is no longer in it.
fn days(slot: &Slot) -> (i64, i64) {
    let Some(window) = slot.window else { return (i64::MIN, i64::MAX) };
    let start = Timestamp(slot.first_day.saturating_mul(DAY_MS));
    (slot.first_day, window::day(window.next(start)))
}

/// What leases are lowered by, in the order in which their slots are locked.
#[derive(Default)]
pub(crate) struct Lowered<'a>(BTreeMap<&'a Slot, i64>);

impl<'a> Lowered<'a> {
    pub fn add(&mut self, postings: &'a [Posting]) {
        postings.iter().for_each(|posting| self.lower(&posting.slot, posting.amount));
    }

    fn lower(&mut self, slot: &'a Slot, amount: Money) {
        // Nothing raises a lease but another lease.
        if amount > Money::ZERO {
            let sum = self.0.entry(slot).or_insert(0);
            *sum = sum.saturating_add(amount.0);
        }
    }

    pub fn rows(&self) -> Vec<(String, i64)> {
        self.0.iter().map(|(slot, amount)| (slot.to_string(), *amount)).collect()
    }
}

/// Lowers leases of a node inside a transaction: the rows of all slots first, then the leases.
macro_rules! lower_leases {
    ($transaction:ident, $node:expr, $lowered:expr, $numbered:expr) => {
        let rows = $lowered.rows();
        for piece in $crate::ledger::HELD.cut(&rows) {
            let mut hold = sqlx::query($crate::ledger::hold_text(piece.len(), $numbered));
            for (slot, _) in piece {
                hold = hold.bind(slot);
            }
            hold.execute(&mut *$transaction).await?;
        }
        for piece in $crate::ledger::LOWERED.cut(&rows) {
            let mut lower = sqlx::query($crate::ledger::lower_text(piece.len(), $numbered));
            for (slot, amount) in piece {
                lower = lower.bind($node).bind(slot).bind(amount);
            }
            lower.execute(&mut *$transaction).await?;
        }
        if !rows.is_empty() {
            sqlx::query("DELETE FROM ledger_leases WHERE node_id = $1 AND amount <= 0")
                .bind($node)
                .execute(&mut *$transaction)
                .await?;
        }
    };
}
pub(crate) use lower_leases;

/// Takes the rows of slots in the order in which they are written.
pub(crate) fn hold_text(rows: usize, numbered: bool) -> &'static str {
    HELD.text(rows, numbered, "?", |values| {
        format!(
            "INSERT INTO ledger_slots (slot) VALUES {values} \
             ON CONFLICT (slot) DO UPDATE SET wanted_at = ledger_slots.wanted_at"
        )
    })
}

pub(crate) fn lower_text(rows: usize, numbered: bool) -> &'static str {
    LOWERED.text(rows, numbered, "?, ?, CAST(? AS BIGINT)", |values| {
        format!(
            "UPDATE ledger_leases SET amount = CASE WHEN ledger_leases.amount > lowered.column3 \
             THEN ledger_leases.amount - lowered.column3 ELSE 0 END \
             FROM (VALUES {values}) AS lowered \
             WHERE ledger_leases.node_id = lowered.column1 AND ledger_leases.slot = lowered.column2"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{OrganisationId, Window};

    fn slot(window: Option<Window>, first_day: i64) -> Slot {
        Slot { account: Account::Organisation(OrganisationId("o".into())), window, first_day }
    }

    #[test]
    fn a_slot_ends_where_the_next_one_begins() {
        // Day 20 665 is Friday, 31 July 2026.
        assert_eq!(days(&slot(Some(Window::Daily), 20_665)), (20_665, 20_666));
        assert_eq!(days(&slot(Some(Window::Weekly), 20_661)), (20_661, 20_668));
        assert_eq!(days(&slot(Some(Window::Monthly), 20_635)), (20_635, 20_666));
        assert_eq!(days(&slot(None, 0)), (i64::MIN, i64::MAX));
    }

    #[test]
    fn a_lease_is_a_part_of_what_is_left_and_at_least_what_is_needed() {
        let slot = slot(None, 0);
        let granted = |limit, least, share, posted, own, elsewhere| {
            let wanted = Wanted {
                slot: &slot,
                limit: Money(limit),
                counts_byok: false,
                least: Money(least),
                share,
                only_recalls: false,
            };
            let posted = Posted { credit_dollars: 0, credit_rest: posted, byok_dollars: 9, byok_rest: 0 };
            let leased = Leased { own_dollars: 0, own_rest: own, elsewhere_dollars: 0, elsewhere_rest: elsewhere };
            grant(&wanted, &posted, &leased)
        };
        let (leased, refused) = (
            |amount| Granted::Leased(Money(amount)),
            |remaining, elsewhere| Granted::Refused { remaining: Money(remaining), elsewhere: Money(elsewhere) },
        );
        assert_eq!(granted(100, 10, 1, 20, 30, 0), leased(50));
        assert_eq!(granted(1_000, 10, 2, 0, 0, 200), leased(100));
        assert_eq!(granted(1_000, 300, 2, 0, 0, 200), leased(300));
        assert_eq!(granted(1_000, 801, 2, 0, 0, 200), refused(800, 200));
        assert_eq!(granted(100, 0, 1, 150, 0, 0), refused(-50, 0));
        assert_eq!(granted(100, 0, 3, 100, 0, 0), Granted::Nothing { elsewhere: Money::ZERO });
        assert_eq!(granted(100, 0, 1, 20, 30, 50), Granted::Nothing { elsewhere: Money(50) });
        assert_eq!(granted(100, 0, 3, 95, 0, 0), leased(1), "however little is left");
        assert_eq!(granted(i64::MAX, 1, 1, 0, 0, 0), leased(i64::MAX));
        let recalled = |limit| {
            let wanted = Wanted {
                slot: &slot,
                limit: Money(limit),
                counts_byok: false,
                least: Money::ZERO,
                share: 1,
                only_recalls: true,
            };
            let posted = Posted { credit_dollars: 0, credit_rest: 60, byok_dollars: 0, byok_rest: 0 };
            let leased = Leased { own_dollars: 0, own_rest: 0, elsewhere_dollars: 0, elsewhere_rest: 50 };
            grant(&wanted, &posted, &leased)
        };
        assert_eq!((recalled(100), recalled(200)), (refused(-10, 50), Granted::Nothing { elsewhere: Money(50) }));
    }
}
