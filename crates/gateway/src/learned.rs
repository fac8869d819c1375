//! What upstreams have said that they do not know: sent to them no more.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_observe::metrics::Refusal;
use tidegate_providers::repair::Refused;
use tidegate_store::Store;
use tidegate_store::learned::LearnedRow;

/// How long something that an upstream did not take is believed: upstreams change, and what they say may depend on the
/// rest of the call.
pub const BELIEVED: Duration = Duration::from_secs(24 * 60 * 60);

/// Facts that are kept; an upstream that refuses something new each time is hostile or broken.
const MOST: usize = 4_096;
const PER_MODEL: usize = 32;

/// Provider and its model.
type ByModel = (Arc<str>, Arc<str>);

#[derive(Default)]
pub struct Learned {
    facts: RwLock<HashMap<ByModel, Known>>,
}

/// What is known of a model.
#[derive(Default)]
struct Known {
    refused: Arc<BTreeSet<Refused>>,
    /// The same in the order in which it was learnt, and when that was.
    order: VecDeque<(Timestamp, Refused)>,
}

/// What a fact came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It was known.
    Known,
    /// It is kept, in the place of another where there was no room.
    New { instead_of: Option<Refused> },
    /// There is no room for anything of this model.
    Unkept,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fact {
    pub provider: Arc<str>,
    pub model: Arc<str>,
    pub refused: Refused,
}

impl Fact {
    /// As the store keeps it.
    pub(crate) fn row(&self, learned: Timestamp) -> LearnedRow {
        LearnedRow {
            provider: self.provider.to_string(),
            model: self.model.to_string(),
            kind: self.refused.kind().to_owned(),
            name: self.refused.name().to_owned(),
            learned,
        }
    }

    /// As it is counted.
    pub(crate) fn label(&self) -> Refusal {
        Refusal {
            provider: self.provider.to_string(),
            model: self.model.to_string(),
            kind: self.refused.kind(),
            name: self.refused.name().to_owned(),
        }
    }
}

/// Has the store keep facts no longer.
pub(crate) async fn forget(store: &Store, rows: impl IntoIterator<Item = LearnedRow>) {
    for row in rows {
        if let Err(error) = store.forget_learned(&row).await {
            tracing::warn!(%error, "what an upstream was found not to take is kept for longer than it is known");
        }
    }
}

impl Learned {
    /// What a model at a provider does not take; nothing for nearly all.
    pub fn of(&self, provider: &Arc<str>, model: &Arc<str>) -> Option<Arc<BTreeSet<Refused>>> {
        let facts = self.facts.read().unwrap_or_else(PoisonError::into_inner);
        if facts.is_empty() {
            return None;
        }
        facts.get(&(provider.clone(), model.clone())).map(|known| known.refused.clone())
    }

    /// Notes a fact. Callers decide what is sent, so whoever names many members must not keep others from being learnt:
    /// the oldest goes, and is learnt again when it matters.
    pub fn note(&self, fact: Fact, now: Timestamp) -> Noted {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = facts.len() >= MOST;
        let key = (fact.provider, fact.model);
        if is_full && !facts.contains_key(&key) {
            return Noted::Unkept;
        }
        let Known { refused, order } = facts.entry(key).or_default();
        if refused.contains(&fact.refused) {
            return Noted::Known;
        }
        let refused = Arc::make_mut(refused);
        let oldest = if order.len() >= PER_MODEL { order.pop_front().map(|(_, oldest)| oldest) } else { None };
        if let Some(oldest) = &oldest {
            refused.remove(oldest);
        }
        refused.insert(fact.refused.clone());
        order.push_back((now, fact.refused));
        Noted::New { instead_of: oldest }
    }

    /// Gives up what has been believed for long enough.
    pub fn forget(&self, now: Timestamp) -> Vec<Fact> {
        let is_old = |known: &Known| known.order.front().is_some_and(|(since, _)| now.since(*since) >= BELIEVED);
        if !self.facts.read().unwrap_or_else(PoisonError::into_inner).values().any(is_old) {
            return Vec::new();
        }
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let mut forgotten = Vec::new();
        for ((provider, model), known) in facts.iter_mut() {
            while is_old(known) {
                let Some((_, refused)) = known.order.pop_front() else { break };
                Arc::make_mut(&mut known.refused).remove(&refused);
                forgotten.push(Fact { provider: provider.clone(), model: model.clone(), refused });
            }
        }
        facts.retain(|_, known| !known.order.is_empty());
        forgotten
    }

    /// All of it, in order.
    pub fn all(&self) -> Vec<Fact> {
        let facts = self.facts.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Fact> = facts
            .iter()
            .flat_map(|((provider, model), known)| {
                known.refused.iter().map(|refused| Fact {
                    provider: provider.clone(),
                    model: model.clone(),
                    refused: refused.clone(),
                })
            })
            .collect();
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn fact(model: &str, name: &str) -> Fact {
        Fact { provider: "p".into(), model: model.into(), refused: Refused::Member(name.to_owned()) }
    }

    #[test]
    fn a_fact_is_news_once_and_concerns_one_model() {
        let learned = Learned::default();
        assert_eq!(learned.note(fact("m", "speed"), NOW), Noted::New { instead_of: None });
        assert_eq!(learned.note(fact("m", "speed"), NOW), Noted::Known);
        assert!(learned.of(&"p".into(), &"m".into()).unwrap().contains(&Refused::Member("speed".to_owned())));
        assert!(learned.of(&"p".into(), &"other".into()).is_none());
        assert_eq!(learned.all(), [fact("m", "speed")]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let learned = Learned::default();
        for number in 0..100 {
            learned.note(fact("m", &format!("x{number}")), NOW);
        }
        assert_eq!(learned.all().len(), PER_MODEL);
        let oldest = Refused::Member(format!("x{}", 100 - PER_MODEL));
        let noted = learned.note(fact("m", "speed"), NOW);
        assert_eq!(noted, Noted::New { instead_of: Some(oldest) }, "the oldest makes room");
        let known = learned.of(&"p".into(), &"m".into()).unwrap();
        assert!(known.contains(&Refused::Member("speed".to_owned())) && known.len() == PER_MODEL);
        for number in 0..MOST {
            learned.note(fact(&format!("m{number}"), "x"), NOW);
        }
        assert_eq!(learned.note(fact("another", "x"), NOW), Noted::Unkept);
    }

    #[test]
    fn a_fact_is_believed_for_a_day() {
        let learned = Learned::default();
        let later = NOW.plus(Duration::from_secs(60));
        learned.note(fact("m", "speed"), NOW);
        learned.note(fact("m", "seed"), later);
        learned.note(fact("n", "speed"), NOW);
        assert_eq!(learned.forget(NOW.plus(BELIEVED - Duration::from_millis(1))), []);
        let mut forgotten = learned.forget(NOW.plus(BELIEVED));
        forgotten.sort();
        assert_eq!(forgotten, [fact("m", "speed"), fact("n", "speed")]);
        assert_eq!(learned.all(), [fact("m", "seed")]);
        assert!(learned.of(&"p".into(), &"n".into()).is_none());
        assert_eq!(learned.note(fact("m", "speed"), later), Noted::New { instead_of: None }, "it is learnt anew");
        assert_eq!(learned.forget(later.plus(BELIEVED)).len(), 2);
        assert!(learned.all().is_empty());
    }
}
