//! What upstreams have said that they do not know: sent to them no more.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use tidegate_providers::repair::Refused;

/// Facts that are kept; an upstream that refuses something new each time is hostile or broken.
const MOST: usize = 4_096;
const PER_MODEL: usize = 32;

/// Provider and its model.
type ByModel = (Arc<str>, Arc<str>);

#[derive(Default)]
pub struct Learned {
    facts: RwLock<HashMap<ByModel, Arc<BTreeSet<Refused>>>>,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fact {
    pub provider: Arc<str>,
    pub model: Arc<str>,
    pub refused: Refused,
}

impl Learned {
    /// What a model at a provider does not take; nothing for nearly all.
    pub fn of(&self, provider: &Arc<str>, model: &Arc<str>) -> Option<Arc<BTreeSet<Refused>>> {
        let facts = self.facts.read().unwrap_or_else(PoisonError::into_inner);
        if facts.is_empty() {
            return None;
        }
        facts.get(&(provider.clone(), model.clone())).cloned()
    }

    /// Whether this is news.
    pub fn note(&self, fact: Fact) -> bool {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = facts.len() >= MOST;
        let key = (fact.provider, fact.model);
        if is_full && !facts.contains_key(&key) {
            return false;
        }
        let entry = facts.entry(key).or_default();
        if entry.len() >= PER_MODEL {
            return false;
        }
        Arc::make_mut(entry).insert(fact.refused)
    }

    /// All of it, in order.
    pub fn all(&self) -> Vec<Fact> {
        let facts = self.facts.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Fact> = facts
            .iter()
            .flat_map(|((provider, model), refused)| {
                refused.iter().map(|refused| Fact {
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

    fn fact(model: &str, name: &str) -> Fact {
        Fact { provider: "p".into(), model: model.into(), refused: Refused::Member(name.to_owned()) }
    }

    #[test]
    fn a_fact_is_news_once_and_concerns_one_model() {
        let learned = Learned::default();
        assert!(learned.note(fact("m", "speed")) && !learned.note(fact("m", "speed")));
        assert!(learned.of(&"p".into(), &"m".into()).unwrap().contains(&Refused::Member("speed".to_owned())));
        assert!(learned.of(&"p".into(), &"other".into()).is_none());
        assert_eq!(learned.all(), [fact("m", "speed")]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let learned = Learned::default();
        for number in 0..100 {
            learned.note(fact("m", &format!("x{number}")));
        }
        assert_eq!(learned.all().len(), PER_MODEL);
    }
}
