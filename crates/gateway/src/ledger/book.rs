//! The book of one organisation: what may be spent here, what is held for calls under way, what was spent. A plain state
//! machine without I/O; time is an argument. It is the only authority for admission on a node.
//!
//! What may be spent is a lease that the store gave: `available = leased - posted - pending`. What was posted leaves the
//! book, together with the part of the lease that it used up, when the store has it.

use smallvec::SmallVec;
use tidegate_core::map::Map;
use tidegate_core::{Account, GenerationId, Money, Posting, Slot, Timestamp};

/// A limit that a call must respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub slot: Slot,
    pub limit: Money,
    /// Whether what goes through credentials of the customer's own counts, at list price.
    pub counts_byok: bool,
}

/// A limit, and what a call may take of it at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub rule: Rule,
    pub amount: Money,
}

pub type Demands = SmallVec<[Demand; 2]>;

/// Why a limit does not let a call in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    pub demand: Demand,
    /// What could still be taken here.
    pub available: Money,
    /// What other calls hold, and other nodes: most of it comes back.
    pub held: Money,
    /// The store was asked a moment ago and had nothing to give, and no other node had anything.
    pub is_final: bool,
}

/// What closing a call found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// By how much it cost more than was held for it, where that is most.
    pub overshoot: Money,
}

/// How a slot stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub available: Money,
    /// What is held here was given under another limit: it must go back first.
    pub is_stale: bool,
    pub is_refused: bool,
    pub elsewhere: Money,
}

#[derive(Debug, Default)]
pub struct Book {
    slots: Map<Slot, Balance>,
    open: Map<GenerationId, SmallVec<[Posting; 2]>>,
}

#[derive(Clone, Debug, Default)]
struct Balance {
    limit: Money,
    counts_byok: bool,
    leased: Money,
    posted: Money,
    pending: Money,
    used: Timestamp,
    /// Until when the store need not be asked again.
    refused_until: Option<Timestamp>,
    /// More was spent than the limit allows, when the store was last asked; or than was leased, and it has not been asked
    /// since.
    is_overdrawn: bool,
    /// What other nodes held when the store was last asked.
    elsewhere: Money,
    /// What was taken at the last grant, for knowing when half of it is gone.
    granted: Money,
    /// The limit was another one since the store was asked: what was spent then was not taken from what is leased.
    is_doubted: bool,
}

impl Balance {
    /// Whether the limit was changed since the store was asked.
    fn is_stale(&self, rule: &Rule) -> bool {
        self.is_doubted || (self.limit, self.counts_byok) != (rule.limit, rule.counts_byok)
    }

    fn available(&self) -> Money {
        self.leased.minus(self.posted).minus(self.pending)
    }
}

impl Book {
    /// Holds what a call may cost in all of its slots, or in none. A call that has been let in stays so.
    pub fn reserve(&mut self, id: GenerationId, demands: &[Demand], now: Timestamp) -> Result<(), Vec<Short>> {
        if self.open.contains_key(&id) {
            return Ok(());
        }
        self.hold(demands, now, false)?;
        let parts = demands.iter().map(|demand| Posting { slot: demand.rule.slot.clone(), amount: demand.amount });
        self.open.insert(id, parts.collect());
        Ok(())
    }

    /// Holds more for a call that is open: for each slot as much as is missing to these amounts. A limit that was changed
    /// since it was let in does not concern it. One that is not open is let in.
    pub fn top_up(&mut self, id: GenerationId, demands: &[Demand], now: Timestamp) -> Result<(), Vec<Short>> {
        let Some(parts) = self.open.get(&id) else { return self.reserve(id, demands, now) };
        let missing = missing(parts, demands);
        self.hold(&missing, now, true)?;
        let Some(parts) = self.open.get_mut(&id) else { return Ok(()) };
        for Demand { rule, amount } in missing {
            match parts.iter_mut().find(|part| part.slot == rule.slot) {
                Some(part) => part.amount = part.amount.plus(amount),
                None => parts.push(Posting { slot: rule.slot, amount }),
            }
        }
        Ok(())
    }

    /// Whether [`Self::top_up`] would hold these amounts.
    pub fn reaches(&self, id: GenerationId, demands: &[Demand], now: Timestamp) -> Result<(), Vec<Short>> {
        match self.open.get(&id) {
            Some(parts) => self.all_reach(&missing(parts, demands), now, true),
            None => self.all_reach(demands, now, false),
        }
    }

    fn all_reach(&self, demands: &[Demand], now: Timestamp, is_open: bool) -> Result<(), Vec<Short>> {
        let short: Vec<Short> = demands.iter().filter_map(|demand| self.shortage(demand, now, is_open)).collect();
        if short.is_empty() { Ok(()) } else { Err(short) }
    }

    fn hold(&mut self, demands: &[Demand], now: Timestamp, is_open: bool) -> Result<(), Vec<Short>> {
        self.all_reach(demands, now, is_open)?;
        for Demand { rule, amount } in demands {
            if let Some(balance) = self.slots.get_mut(&rule.slot) {
                balance.pending = balance.pending.plus(*amount);
                balance.used = now;
            }
        }
        Ok(())
    }

    fn shortage(&self, demand: &Demand, now: Timestamp, is_open: bool) -> Option<Short> {
        let known = self.slots.get(&demand.rule.slot);
        let short = |(available, held), is_final| Some(Short { demand: demand.clone(), available, held, is_final });
        let Some(balance) = known else { return short((Money::ZERO, Money::ZERO), false) };
        let stands = (balance.available(), balance.pending.plus(balance.elsewhere));
        if !is_open && balance.is_stale(&demand.rule) {
            return short(stands, false);
        }
        // A free call is let in as long as nothing is overdrawn.
        let is_free = demand.amount == Money::ZERO;
        if balance.available() >= demand.amount && !(is_free && balance.is_overdrawn) {
            return None;
        }
        let is_refused = balance.refused_until.is_some_and(|until| until > now);
        short(stands, is_refused && balance.elsewhere == Money::ZERO)
    }

    /// Closes a call: what was held is free again and what it cost is posted. A call that is not open stays as it is.
    pub fn settle(&mut self, id: GenerationId, actual: &[Posting], now: Timestamp) -> Option<Closed> {
        let parts = self.open.remove(&id)?;
        let mut closed = Closed::default();
        for part in &parts {
            let cost =
                actual.iter().find(|actual| actual.slot == part.slot).map_or(Money::ZERO, |actual| actual.amount);
            let Some(balance) = self.slots.get_mut(&part.slot) else { continue };
            balance.pending = balance.pending.minus(part.amount);
            balance.posted = balance.posted.plus(cost);
            balance.used = now;
            closed.overshoot = closed.overshoot.max(cost.minus(part.amount));
        }
        Some(closed)
    }

    /// Counts what a call costs in slots in which nothing was held for it: limits that it did not know when it was let in.
    /// To be called before it is closed.
    pub fn post_unheld(&mut self, id: GenerationId, actual: &[Posting], now: Timestamp) {
        let parts = self.open.get(&id).map(|parts| &parts[..]).unwrap_or_default();
        for posting in actual.iter().filter(|posting| !parts.iter().any(|part| part.slot == posting.slot)) {
            let Some(balance) = self.slots.get_mut(&posting.slot) else { continue };
            balance.posted = balance.posted.plus(posting.amount);
            balance.used = now;
        }
    }

    /// What is leased in a slot was given before its limit changed: the store is to be asked anew.
    pub fn doubt(&mut self, slot: &Slot) {
        if let Some(balance) = self.slots.get_mut(slot) {
            balance.is_doubted = true;
        }
    }

    /// The same of all slots of guardrails.
    pub fn doubt_guardrails(&mut self) {
        let of_guardrails = self.slots.iter_mut().filter(|(slot, _)| matches!(slot.account, Account::Guardrail(_)));
        of_guardrails.for_each(|(_, balance)| balance.is_doubted = true);
    }

    /// Closes a call that costs nothing.
    pub fn release(&mut self, id: GenerationId, now: Timestamp) -> Option<Closed> {
        self.settle(id, &[], now)
    }

    /// What is held for a call; nothing when it is not open.
    pub fn held(&self, id: GenerationId) -> Option<&[Posting]> {
        self.open.get(&id).map(|parts| &parts[..])
    }

    /// Takes over what the store gave.
    pub fn granted(&mut self, rule: &Rule, amount: Money, now: Timestamp) {
        let balance = self.slots.entry(rule.slot.clone()).or_default();
        (balance.limit, balance.counts_byok) = (rule.limit, rule.counts_byok);
        balance.leased = balance.leased.plus(amount);
        balance.granted = amount;
        balance.used = now;
        balance.refused_until = None;
        balance.is_overdrawn = false;
        balance.is_doubted = false;
    }

    /// The store has nothing to give, so much is left there, and other nodes have so much; it need not be asked again before
    /// `until`.
    pub fn refused(&mut self, rule: &Rule, (remaining, elsewhere): (Money, Money), now: Timestamp, until: Timestamp) {
        let balance = self.slots.entry(rule.slot.clone()).or_default();
        (balance.limit, balance.counts_byok) = (rule.limit, rule.counts_byok);
        balance.refused_until = Some(until);
        balance.is_overdrawn = remaining < Money::ZERO;
        balance.is_doubted = false;
        balance.elsewhere = elsewhere;
        balance.used = now;
    }

    /// How a slot stands; nothing when nothing is known of it.
    pub fn state(&self, rule: &Rule, now: Timestamp) -> Option<State> {
        self.slots.get(&rule.slot).map(|balance| State {
            available: balance.available(),
            is_stale: balance.is_stale(rule),
            is_refused: balance.refused_until.is_some_and(|until| until > now),
            elsewhere: balance.elsewhere,
        })
    }

    /// Sets what is leased in each slot to what the store says; what the store has and the book has no use for is left
    /// in `leases`.
    pub fn agree(&mut self, leases: &mut Map<Slot, Money>) {
        for (slot, balance) in &mut self.slots {
            balance.leased = leases.remove(slot).unwrap_or_default();
        }
    }

    /// The store has these: they are posted there, and the lease is less by as much.
    pub fn forwarded(&mut self, postings: &[Posting]) {
        let mut sums: Map<&Slot, Money> = Map::default();
        for posting in postings {
            let sum = sums.entry(&posting.slot).or_default();
            *sum = sum.plus(posting.amount);
        }
        for (slot, sum) in sums {
            let Some(balance) = self.slots.get_mut(slot) else { continue };
            // What is missing is known to the store alone from here on.
            balance.is_overdrawn |= balance.leased < sum;
            balance.leased = balance.leased.minus(sum).max(Money::ZERO);
            balance.posted = balance.posted.minus(sum).max(Money::ZERO);
        }
    }

    /// Takes what is free in a slot out of the book, to be given back to the store.
    pub fn surplus(&mut self, slot: &Slot) -> Money {
        let Some(balance) = self.slots.get_mut(slot) else { return Money::ZERO };
        let free = balance.available().max(Money::ZERO);
        balance.leased = balance.leased.minus(free);
        if free > Money::ZERO {
            // What the store had nothing to give beside has gone there, and maybe on to another node.
            balance.refused_until = None;
        }
        free
    }

    /// Slots that nobody has used since `before`: what is free in them, taken out. Those that hold nothing are forgotten.
    pub fn idle(&mut self, before: Timestamp) -> Vec<(Slot, Money)> {
        let unused: Vec<Slot> =
            self.slots.iter().filter(|(_, balance)| balance.used < before).map(|(slot, _)| slot.clone()).collect();
        let mut free = Vec::new();
        for slot in unused {
            let amount = self.surplus(&slot);
            if amount > Money::ZERO {
                free.push((slot.clone(), amount));
            }
            let is_empty = |balance: &Balance| balance.pending == Money::ZERO && balance.posted == Money::ZERO;
            if self.slots.get(&slot).is_some_and(is_empty) {
                self.slots.remove(&slot);
            }
        }
        free
    }

    /// Whether less than half of what was last given is left: time to ask for more before somebody has to wait.
    pub fn is_low(&self, slot: &Slot, now: Timestamp) -> bool {
        self.slots.get(slot).is_some_and(|balance| {
            balance.refused_until.is_none_or(|until| until <= now) && balance.available().0 < balance.granted.0 / 2
        })
    }

    /// Forgets every lease: the store has taken them back. What is posted or pending stays counted.
    pub fn forget_leases(&mut self) {
        for balance in self.slots.values_mut() {
            balance.leased = Money::ZERO;
            balance.granted = Money::ZERO;
        }
        self.slots.retain(|_, balance| balance.pending != Money::ZERO || balance.posted != Money::ZERO);
    }

    pub fn open_calls(&self) -> usize {
        self.open.len()
    }
}

/// What of these amounts is not held yet.
fn missing(parts: &[Posting], demands: &[Demand]) -> Demands {
    let held = |slot: &Slot| parts.iter().find(|part| part.slot == *slot).map_or(Money::ZERO, |part| part.amount);
    demands
        .iter()
        .map(|demand| Demand { amount: demand.amount.minus(held(&demand.rule.slot)), ..demand.clone() })
        .filter(|demand| demand.amount > Money::ZERO)
        .collect()
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
