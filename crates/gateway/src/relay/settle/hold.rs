//! What is held for a call before it is made.

use std::time::{Duration, Instant};

use tidegate_core::{Money, Posting, Slot};

use super::Ticket;
use crate::failure::Failure;
use crate::ledger::book::Demands;
use crate::ledger::{PATIENCE, Refusal, Shared, fail};

impl Ticket {
    /// Holds these amounts for the call, in all of its accounts or in none; waits for a lease where there is none.
    pub async fn hold(&mut self, demands: &Demands) -> Result<(), Refusal> {
        let terms = self.terms();
        let (organisation, ledger) = (&self.key.organisation, &self.gate.ledger);
        ledger.hold(organisation, self.id(), demands, terms).await
    }

    /// Whether these amounts could be held.
    pub async fn reaches(&mut self, demands: &Demands) -> Result<(), Refusal> {
        let terms = self.terms();
        let (organisation, ledger) = (&self.key.organisation, &self.gate.ledger);
        ledger.reaches(organisation, self.id(), demands, terms).await
    }

    fn terms(&mut self) -> (Duration, Instant) {
        let now = self.gate.clock.instant();
        let patience = *self.patience.get_or_insert(now + PATIENCE);
        (self.snapshot.settings.ledger.lease_hold, patience)
    }

    /// From here on reservations wait anew.
    pub fn be_patient(&mut self) {
        self.patience = None;
    }

    /// What is held for the call in an account.
    pub fn held(&self, slot: &Slot) -> Money {
        let held = self.gate.ledger.held(&self.key.organisation, self.id());
        held.iter().find(|held| held.slot == *slot).map_or(Money::ZERO, |held| held.amount)
    }

    /// Whether nobody waits for an answer any more.
    pub fn is_left(&self) -> bool {
        self.presence.is_gone()
    }

    /// The amounts are held: lets the call in and tells the journal.
    pub fn admit(&mut self, amount: Money, bound: Money, demands: &Demands) -> Result<(), Failure> {
        let (gate, snapshot) = (self.gate.clone(), self.snapshot.clone());
        let is_more = amount > self.open_exchange().reserved;
        self.bound = self.bound.max(bound);
        let exchange = self.edit();
        if is_more || exchange.postings.is_empty() {
            exchange.reserved = exchange.reserved.max(amount);
            exchange.postings =
                demands.iter().map(|held| Posting { slot: held.rule.slot.clone(), amount: held.amount }).collect();
        }
        if self.is_admitted {
            gate.ledger.amend(self.open_exchange());
            return Ok(());
        }
        match gate.ledger.intent(self.open_exchange(), &snapshot.settings.ledger) {
            Ok(receipt) => {
                self.is_admitted = true;
                self.has_place = receipt.is_some();
                self.receipt = receipt.map_or(Shared::DONE, Shared::new);
                fail::point("intent.queued");
                Ok(())
            }
            Err(_) => {
                if !demands.is_empty() {
                    gate.ledger.release(&self.key.organisation, self.id());
                }
                Err(Failure::unavailable())
            }
        }
    }

    /// Lets a call in for which nobody is called. False when a limit is used up or cannot be asked: then it goes the way of
    /// all others, which knows what to say.
    pub async fn admit_free(&mut self) -> bool {
        self.edit().cost = Some(Money::ZERO);
        // The least there is: what is used up cannot pay even that.
        let is_held = self.hold(&self.demands(Money(1), false)).await.is_ok();
        is_held && self.admit(Money::ZERO, Money::ZERO, &self.demands(Money::ZERO, false)).is_ok()
    }

    /// Lets in something that costs a fee of at most so much, and calls nobody. False when that is more than there is.
    pub async fn admit_fee(&mut self, most: Money) -> bool {
        self.edit().cost = Some(Money::ZERO);
        let demands = self.demands(most, false);
        self.hold(&demands).await.is_ok() && self.admit(most, most, &demands).is_ok()
    }

    /// Notes to whom a fee is due, and how much it is.
    pub fn pay(&mut self, provider: &str, fee: Money) {
        let exchange = self.edit();
        exchange.provider = provider.into();
        exchange.cost = Some(fee);
    }
}
