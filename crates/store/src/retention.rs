//! Records leave for their age and in no other way. What they had added to the days is written down first, so that the
//! days can still be proven ([`Store::verify_spend`]).

use std::collections::BTreeMap;

use tidegate_core::{GenerationId, Money, Spent, Timestamp, window};

use crate::dialect::Shapes;
use crate::spend::{Totals, plus_excluded};
use crate::{Result, Store, dialect};

static ARCHIVED: Shapes<3> = Shapes::new([64, 8, 1]);

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl Store {
    /// Removes at most so many records of calls that began before the day of `before`, oldest first, and answers how many
    /// went; when that is fewer than `at_most`, no more of them are left. Days are never cut: a record of the same UTC
    /// day as `before` stays. Several nodes may do this at once; each record is counted by one of them.
    ///
    /// A record that is sent again after it was removed is a new one to the store, so `before` must lie further back than
    /// a node can be away with records that it is not sure to have sent.
    pub async fn retire_generations(&self, before: Timestamp, at_most: u32) -> Result<u64> {
        let midnight = Timestamp(window::day(before).saturating_mul(DAY_MS));
        // Ids are ordered by time.
        let bound = GenerationId::first_at(midnight);
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            // Two that remove at once take turns instead of waiting for each other's rows in any order.
            sqlx::query("UPDATE sequences SET value = value + 1 WHERE name = 'retention'")
                .execute(&mut *transaction)
                .await?;
            let retired: Vec<Retired> = sqlx::query_as(
                "DELETE FROM generations WHERE id IN \
                 (SELECT id FROM generations WHERE id < $1 AND started_at < $2 ORDER BY id LIMIT $3) \
                 RETURNING key_hash, started_at, organisation_id, workspace_id, cost_nanos, is_byok, list_cost_nanos",
            )
            .bind(bound.as_str())
            .bind(midnight.0)
            .bind(i64::from(at_most))
            .fetch_all(&mut *transaction)
            .await?;
            // What was said about them goes with them.
            sqlx::query(
                "DELETE FROM generation_feedback WHERE generation_id < $1 AND NOT EXISTS \
                 (SELECT 1 FROM generations WHERE generations.id = generation_feedback.generation_id)",
            )
            .bind(bound.as_str())
            .execute(&mut *transaction)
            .await?;
            let totals = totals(&retired);
            let totals: Vec<_> = totals.iter().collect();
            for piece in ARCHIVED.cut(&totals) {
                let mut upsert = sqlx::query(archive_text(piece.len(), dialect::is_numbered(pool)));
                for (day, totals) in piece {
                    upsert = upsert
                        .bind(day.key)
                        .bind(day.number)
                        .bind(day.organisation)
                        .bind(day.workspace)
                        .bind(totals.credit.0)
                        .bind(totals.byok.0)
                        .bind(totals.requests);
                }
                upsert.execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            Ok(retired.len() as u64)
        })
    }
}

#[derive(sqlx::FromRow)]
struct Retired {
    key_hash: String,
    started_at: i64,
    organisation_id: String,
    workspace_id: String,
    cost_nanos: Option<i64>,
    is_byok: bool,
    list_cost_nanos: Option<i64>,
}

/// What a row of the archive is about.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Day<'a> {
    key: &'a str,
    number: i64,
    organisation: &'a str,
    workspace: &'a str,
}

fn totals(retired: &[Retired]) -> BTreeMap<Day<'_>, Totals> {
    let mut totals: BTreeMap<Day<'_>, Totals> = BTreeMap::new();
    for record in retired {
        let day = Day {
            key: &record.key_hash,
            number: window::day(Timestamp(record.started_at)),
            organisation: &record.organisation_id,
            workspace: &record.workspace_id,
        };
        let spent = Spent::of(record.cost_nanos.map(Money), record.is_byok, record.list_cost_nanos.map(Money));
        totals.entry(day).or_default().add(Totals::one(spent));
    }
    totals
}

fn archive_text(rows: usize, numbered: bool) -> &'static str {
    ARCHIVED.text(rows, numbered, "?, ?, ?, ?, ?, ?, ?", |values| {
        let plus = plus_excluded!("spend_archive");
        format!(
            "INSERT INTO spend_archive (key_hash, day, organisation_id, workspace_id, credit_nanos, byok_nanos, \
             requests) VALUES {values} \
             ON CONFLICT (key_hash, day, organisation_id, workspace_id) DO UPDATE SET {plus}"
        )
    })
}
