//! Limits that change. What is leased under a limit is lowered by calls that know it; calls that were let in while it was
//! another one, or none, know nothing of it.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tidegate_core::{Account, GenerationId, OrganisationId, Slot, Window};

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
    /// can see the new one. Whose account it is need not be known.
    pub fn doubt(&self, organisation: Option<&OrganisationId>, account: &Account) {
        let now = self.now();
        let windows = Window::ALL.map(Some).into_iter().chain([None]);
        let slots: Vec<Slot> = windows.map(|window| Slot::of(account.clone(), window, now)).collect();
        for (whose, book) in &self.books.pin() {
            if organisation.is_none_or(|organisation| organisation == whose) {
                let mut book = locked(book);
                slots.iter().for_each(|slot| book.doubt(slot));
            }
        }
    }

    /// The same of all guardrails.
    pub fn doubt_guardrails(&self) {
        self.books.pin().values().for_each(|book| locked(book).doubt_guardrails());
    }

    /// The same of the balances of all organisations.
    pub fn doubt_balances(&self) {
        let now = self.now();
        for (organisation, book) in &self.books.pin() {
            locked(book).doubt(&Slot::of(Account::Organisation(organisation.clone()), None, now));
        }
    }

    /// A call is charged to limits that it had not held anything in. Other nodes may hold what it cost: they are asked for it
    /// once the store has the call.
    pub fn charged_unheld(&self, call: GenerationId, rules: Vec<Rule>) {
        if self.share() > 1 && !rules.is_empty() {
            self.unheld.lock().unwrap_or_else(PoisonError::into_inner).insert(call, rules);
        }
    }
}
