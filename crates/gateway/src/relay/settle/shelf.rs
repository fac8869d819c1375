//! What an attempt used whose answer may be given later, after others were made.

use std::sync::Arc;

use tidegate_core::{Exchange, Money};
use tidegate_routing::{Credential, Endpoint};
use tidegate_wire::answer::Counts;

use super::Ticket;

/// The account of one attempt, set aside.
pub(in crate::relay) struct Shelved {
    exchange: Exchange,
    endpoint: Option<Arc<Endpoint>>,
    own: Option<Arc<Credential>>,
    model: usize,
    strategy: Option<&'static str>,
    parts: Option<(Money, Money)>,
    is_final: bool,
    is_charged: bool,
    counts: Counts,
    shown: u64,
    heard: u64,
    searched: Option<u64>,
    compressed: Option<Box<str>>,
}

impl Ticket {
    /// Sets aside what stands here of the attempt that was made last.
    pub fn shelved(&self) -> Box<Shelved> {
        Box::new(Shelved {
            exchange: self.open_exchange().clone(),
            endpoint: self.endpoint.clone(),
            own: self.own.clone(),
            model: self.model,
            strategy: self.strategy,
            parts: self.parts,
            is_final: self.is_final,
            is_charged: self.is_charged,
            counts: self.counts,
            shown: self.shown,
            heard: self.heard,
            searched: self.searched,
            compressed: self.compressed.clone(),
        })
    }

    /// Goes on as if that attempt had been the last one. Which ones were made, and what is held for them, stays.
    pub fn take_up(&mut self, shelved: Box<Shelved>) {
        let Shelved { exchange, endpoint, own, model, is_final, is_charged, .. } = *shelved;
        let Shelved { strategy, parts, counts, shown, heard, searched, compressed, .. } = *shelved;
        (self.endpoint, self.own, self.model) = (endpoint, own, model);
        (self.strategy, self.parts) = (strategy, parts);
        (self.is_called, self.is_final, self.is_charged) = (true, is_final, is_charged);
        (self.counts, self.shown, self.heard) = (counts, shown, heard);
        (self.searched, self.compressed) = (searched, compressed);
        let since = self.edit();
        let (attempts, postings) = (std::mem::take(&mut since.attempts), std::mem::take(&mut since.postings));
        *since = Exchange { attempts, postings, reserved: since.reserved, ..exchange };
    }
}
