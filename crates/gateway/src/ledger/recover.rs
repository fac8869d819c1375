//! Calls that nobody closed: those of a process that died, and, should it ever happen, those that were lost in this one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Exchange, GenerationId, Money, Outcome, Settlement, Spent, Timestamp};
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
    let progress = progress.unwrap_or_default();
    let cost = progress.cost.min(exchange.reserved).max(Money::ZERO);
    // The journal of an earlier release says no more than what it cost; of fees it knows nothing.
    let is_byok = exchange.is_byok;
    let known = || Spent::of(Some(cost).filter(|_| !is_byok), is_byok, Some(cost));
    let spent = progress.spent.map_or_else(known, |spent| Spent {
        credit: part(spent.credit, cost, progress.cost),
        byok: part(spent.byok, cost, progress.cost),
    });
    exchange.settlement = Settlement::Recovered;
    exchange.outcome = Outcome::Broken;
    exchange.status = 500;
    exchange.is_estimated = true;
    exchange.usage = progress.usage;
    exchange.upstream_cost = Some(cost);
    exchange.cost = exchange.cost.or_else(|| is_byok.then_some(Money::ZERO)).map(|_| spent.credit);
    if spent.byok > Money::ZERO {
        // Perhaps before a shared credential went on.
        (exchange.is_byok, exchange.list_cost) = (true, Some(spent.byok));
    }
    for posting in &mut exchange.postings {
        posting.amount = posting.amount.min(spent.counted(true));
    }
    exchange
}

/// What is left of a part of a sum of which so much is `kept`.
fn part(part: Money, kept: Money, sum: Money) -> Money {
    if kept >= sum {
        return part;
    }
    Money((i128::from(part.0) * i128::from(kept.0) / i128::from(sum.0)) as i64)
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
    use tidegate_core::{Account, KeyHash, OrganisationId, Posting, Slot, Usage, WorkspaceId};
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
        let usage = Usage { input: 3, output: 7, ..Usage::default() };
        let progress = progress.map(|cost| Progress { cost: Money(cost), usage, spent: None });
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

    #[test]
    fn led_18_what_is_spent_of_it_is_spent_after_a_death_too() {
        let spent = |credit, byok| Some(Spent { credit: Money(credit), byok: Money(byok) });
        let money = |exchange: &Exchange| (exchange.cost, exchange.list_cost, exchange.spent());
        let dies = |is_byok: bool, cost, spent| {
            let mut open = open(Some(cost));
            (open.exchange.is_byok, open.exchange.list_cost) = (is_byok, is_byok.then_some(Money::ZERO));
            open.progress = open.progress.map(|progress| Progress { spent, ..progress });
            let exchange = recovered(open);
            assert_eq!((exchange.usage.input, exchange.usage.output), (3, 7), "as it was priced");
            exchange
        };
        for (is_byok, cost, told, credit, byok) in [
            // Of a shared credential, of an own one at a fee of a tenth, and of an own one that a shared one went on for.
            (false, 40, spent(40, 0), 40, 0),
            (true, 40, spent(4, 40), 4, 40),
            (false, 40, spent(31, 10), 31, 10),
            // What is more than was held is cut, and its parts are.
            (true, 200, spent(20, 200), 10, 100),
            // An earlier release wrote nothing of it.
            (true, 40, None, 0, 40),
            (false, 40, None, 40, 0),
        ] {
            let exchange = dies(is_byok, cost, told);
            let list = (byok > 0).then_some(Money(byok));
            let expected = (Some(Money(credit)), list, Spent { credit: Money(credit), byok: Money(byok) });
            assert_eq!(money(&exchange), expected, "{is_byok} {cost} {told:?}");
        }
    }
}
