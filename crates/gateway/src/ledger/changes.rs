//! Limits that change. What is leased under a limit is lowered by calls that know it; calls that were let in while it was
//! another one, or none, know nothing of it.

use std::sync::atomic::Ordering;

use tidegate_core::{Account, OrganisationId, Slot, Window};

use super::book::Rule;
use super::{Ledger, locked};

/// For so long after a change there may be calls on their way to the store that what is left does not know of.
const UNSETTLED_MS: i64 = 5_000;

impl Ledger {
    /// How often limits have changed that are not a key's own.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// To be called once others can see the new limits.
    pub fn note_change(&self) {
        self.changed.store(self.steady(), Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether limits have changed a moment ago.
    pub(super) fn has_changed(&self) -> bool {
        self.steady().saturating_sub(self.changed.load(Ordering::Relaxed)) < UNSETTLED_MS
    }

    /// The limit of an account changes: the store is asked before anybody spends from it again. To be called before others
    /// can see the new one.
    pub fn doubt(&self, account: &Account) {
        let now = self.now();
        let windows = Window::ALL.map(Some).into_iter().chain([None]);
        let slots: Vec<Slot> = windows.map(|window| Slot::of(account.clone(), window, now)).collect();
        for book in self.books.pin().values() {
            let mut book = locked(book);
            slots.iter().for_each(|slot| book.doubt(slot));
        }
    }

    /// The same of all guardrails.
    pub fn doubt_guardrails(&self) {
        self.books.pin().values().for_each(|book| locked(book).doubt_guardrails());
    }

    /// The same of the balances of all organisations.
    pub fn doubt_balances(&self) {
        let organisations: Vec<OrganisationId> = self.books.pin().keys().cloned().collect();
        organisations.into_iter().for_each(|organisation| self.doubt(&Account::Organisation(organisation)));
    }

    /// A call was charged to limits that it had not held anything in. Other nodes may hold what it cost.
    pub fn charged_unheld(&self, organisation: &OrganisationId, rules: impl IntoIterator<Item = Rule>) {
        if self.share() > 1 {
            let rules = rules.into_iter().map(|rule| (organisation.clone(), rule));
            self.unheld.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(rules);
        }
    }
}
