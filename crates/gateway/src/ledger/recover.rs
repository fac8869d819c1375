//! Calls that nobody closed: those of a process that died, and, should it ever happen, those that were lost in this one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Exchange, GenerationId, Money, Outcome, Settlement, Timestamp};
use tidegate_store::journal::{Entry, Journal, JournalError, JournalReader, Letter, Open};

use super::Ledger;

/// How often it is looked for calls that should be over.
const LOOK: Duration = Duration::from_secs(30);
/// How long after the longest time that a call may take.
const GRACE: Duration = Duration::from_secs(60);

/// What earlier epochs left open, as it is to be closed. To be called before anything else is written.
pub async fn left(journal: &Journal) -> Result<Vec<Exchange>, JournalError> {
    let left = journal.reader().left_open(journal.node().epoch).await?;
    Ok(left.into_iter().map(recovered).collect())
}

/// Closes it, and leaves what destinations are to be told of it.
pub async fn close(journal: &mut Journal, left: &[Exchange], letters: &[Letter]) -> Result<(), JournalError> {
    if left.is_empty() {
        return Ok(());
    }
    let text = |exchange: &Exchange| serde_json::to_string(exchange).expect("texts and numbers are always JSON");
    let texts: Vec<String> = left.iter().map(text).collect();
    let entries: Vec<Entry<'_>> =
        left.iter().zip(&texts).map(|(exchange, text)| Entry::Settle(exchange.id, text)).collect();
    journal.write_with(&entries, letters, true).await?;
    Ok(())
}

/// What is charged for a call that nobody closed: what it was known to have cost, and never more than was held for it.
fn recovered(open: Open) -> Exchange {
    let Open { mut exchange, progress, .. } = open;
    let cost = progress.map_or(Money::ZERO, |progress| progress.cost.min(exchange.reserved).max(Money::ZERO));
    exchange.settlement = Settlement::Recovered;
    exchange.outcome = Outcome::Broken;
    exchange.status = 500;
    exchange.is_estimated = true;
    exchange.usage.output = progress.map_or(0, |progress| progress.output_tokens);
    exchange.upstream_cost = Some(cost);
    if exchange.is_byok {
        exchange.list_cost = exchange.list_cost.map(|_| cost);
        exchange.cost = Some(Money::ZERO);
    } else {
        exchange.cost = exchange.cost.map(|_| cost);
    }
    for posting in &mut exchange.postings {
        posting.amount = posting.amount.min(cost);
    }
    exchange
}

/// Closes calls that are older than any call can be. There are none, unless something is wrong with us. The time of day
/// only says which ones to look at: it may have jumped.
pub async fn reap(ledger: Arc<Ledger>, journal: JournalReader, longest_call: Duration) {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut suspects: HashMap<GenerationId, Timestamp> = HashMap::new();
    let age = i64::try_from((longest_call + GRACE).as_millis()).unwrap_or(i64::MAX);
    loop {
        ticks.tick().await;
        let overdue = match journal.overdue(Timestamp(ledger.now().0.saturating_sub(age))).await {
            Ok(overdue) => overdue,
            Err(error) => {
                tracing::warn!(%error, "calls that should be over could not be looked for");
                continue;
            }
        };
        suspects.retain(|id, _| overdue.iter().any(|open| open.exchange.id == *id));
        for open in overdue {
            let seen = *suspects.entry(open.exchange.id).or_insert_with(|| ledger.tick());
            if ledger.tick().0.saturating_sub(seen.0) < age {
                continue;
            }
            let exchange = recovered(open);
            tracing::error!(generation_id = %exchange.id, "a call was never closed: it is closed now");
            ledger.metrics.ledger_reaped.inc();
            ledger.reaped(exchange.id);
            ledger.settle_lost(Box::new(exchange));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Account, KeyHash, OrganisationId, Posting, Slot, WorkspaceId};
    use tidegate_store::journal::Progress;

    fn open(progress: Option<i64>) -> Open {
        let started = Timestamp(1_790_000_000_000);
        let key = KeyHash::of(b"k");
        let (organisation, workspace) = (OrganisationId("o".into()), WorkspaceId("w".into()));
        let mut exchange =
            Exchange::new(GenerationId::new(started), organisation, workspace, key, "v/m".into(), started);
        exchange.reserved = Money(100);
        exchange.cost = Some(Money::ZERO);
        exchange.postings.push(Posting { slot: Slot::of(Account::Key(key), None, started), amount: Money(100) });
        let progress = progress.map(|cost| Progress { cost: Money(cost), output_tokens: 7 });
        Open { exchange, progress, epoch: 1 }
    }

    #[test]
    fn led_18_a_call_of_a_dead_process_costs_what_was_known_of_it_and_never_more_than_was_held() {
        for (progress, cost) in [(None, 0), (Some(40), 40), (Some(100), 100), (Some(250), 100), (Some(-5), 0)] {
            let exchange = recovered(open(progress));
            assert_eq!(exchange.cost, Some(Money(cost)), "{progress:?}");
            assert_eq!(exchange.postings[0].amount, Money(cost));
            assert_eq!((exchange.settlement, exchange.is_estimated), (Settlement::Recovered, true));
        }
        let unpriced = Open { exchange: Exchange { cost: None, ..open(None).exchange }, ..open(None) };
        assert_eq!(recovered(unpriced).cost, None, "unknown stays unknown");
    }
}
