//! What a loop does besides its turns, and what must be on record all the same: a tool that costs something, and the end
//! that a client that leaves makes of it while no turn is under way.

use std::sync::Arc;

use tidegate_core::Money;

use super::Inner;
use super::settle::Ticket;
use crate::keys::KeyEntry;
use crate::{Gateway, Snapshot};

/// A record beside the turns of a loop. Dropping it closes it as cancelled, with nothing to pay.
pub(crate) struct Aside(Ticket);

impl Aside {
    /// `model`: the one that the loop is with.
    pub fn open(
        gate: &Arc<Gateway>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        inner: &Inner,
        model: &str,
    ) -> Self {
        let mut ticket = Ticket::of(gate, snapshot, key, inner.places.clone().into(), model.into(), 0);
        if let Some(root) = inner.root.get() {
            ticket.belongs_to(*root);
        }
        Self(ticket)
    }

    /// Holds what it may cost at most; nothing when that is more than there is.
    pub async fn held(mut self, most: Money) -> Option<Self> {
        if self.0.admit_fee(most).await {
            return Some(self);
        }
        self.forget();
        None
    }

    /// Pays what it did cost, which stays paid whatever becomes of the request.
    pub async fn pay(mut self, gate: &Gateway, provider: &str, fee: Money) {
        self.0.pay(provider, fee);
        gate.settled(&mut self.0.complete()).await;
    }

    /// Nothing is to be remembered of it.
    pub fn forget(self) {
        self.0.refuse();
    }
}
