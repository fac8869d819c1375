//! Which limits a call must respect: of its key, of its workspace, of its organisation.

use smallvec::SmallVec;
use tidegate_core::map::Map;
use tidegate_core::{Account, Money, OrganisationId, Slot, Timestamp, Window, WorkspaceId};
use tidegate_store::{Store, StoreError};

use super::book::Rule;
use crate::keys::KeyEntry;

pub type Rules = SmallVec<[Rule; 2]>;

/// The limits that are not part of a key, as they were last known.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Which change of the store this is.
    pub seq: i64,
    budgets: Map<WorkspaceId, Budget>,
    /// What each organisation has been given.
    balances: Map<OrganisationId, Money>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Budget {
    counts_byok: bool,
    /// Widest first.
    limits: Vec<(Option<Window>, Money)>,
}

impl Limits {
    pub async fn load(store: &Store) -> Result<Self, StoreError> {
        // The number comes first: a change in between is then seen once more, not missed.
        let seq = store.limits_seq().await?;
        let budgets = store.all_budgets().await?.into_iter().map(|(_, workspace, counts_byok, budgets)| {
            let limits = budgets.into_iter().map(|(interval, limit)| (interval.window(), limit)).collect();
            (workspace, Budget { counts_byok, limits })
        });
        let balances = store.all_grants().await?.into_iter().collect();
        Ok(Self { seq, budgets: budgets.collect(), balances })
    }

    /// Workspaces that have other budgets in one of the two.
    pub fn changed_budgets<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a WorkspaceId> {
        let both = self.budgets.keys().chain(other.budgets.keys());
        both.filter(|workspace| self.budgets.get(*workspace) != other.budgets.get(*workspace))
    }

    /// The limits of a key's calls at an instant.
    pub fn of(&self, key: &KeyEntry, is_billed: bool, now: Timestamp) -> Rules {
        let mut rules = Rules::new();
        if let Some(limit) = &key.limit {
            let slot = Slot::of(Account::Key(key.hash), limit.window, now);
            rules.push(Rule { slot, limit: limit.amount, counts_byok: limit.counts_byok });
        }
        if let Some(budget) = self.budgets.get(&key.workspace) {
            for (window, limit) in &budget.limits {
                let slot = Slot::of(Account::Workspace(key.workspace.clone()), *window, now);
                rules.push(Rule { slot, limit: *limit, counts_byok: budget.counts_byok });
            }
        }
        if is_billed {
            let limit = self.balances.get(&key.organisation).copied().unwrap_or_default();
            let slot = Slot::of(Account::Organisation(key.organisation.clone()), None, now);
            rules.push(Rule { slot, limit, counts_byok: false });
        }
        rules
    }
}
