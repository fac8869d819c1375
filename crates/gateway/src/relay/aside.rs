//! What a request does besides its calls, and what must be on record all the same: a plugin or a tool that costs something,
//! and the end that a client that leaves makes of a loop while no turn is under way.

use std::sync::Arc;

use tidegate_core::{GenerationId, Money};
use tidegate_wire::error::ErrorType;

use super::Inner;
use super::admit::Places;
use super::settle::{Asker, Ticket};
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::{Gateway, Snapshot};

/// Pays for what is done to a request before it is planned. What was paid stays paid, whatever becomes of the request; its
/// records name the one that the request will have.
pub(crate) struct Purse {
    gate: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    key: Arc<KeyEntry>,
    model: Arc<str>,
    root: GenerationId,
    asker: Asker,
    places: Arc<Places>,
}

impl Purse {
    /// `model`: as `asker` wrote it. The request takes its places in the limits of requests in flight here.
    pub fn open(
        gate: &Arc<Gateway>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        (model, asker): (&str, Asker),
    ) -> Result<Self, Failure> {
        let places = Arc::new(gate.enter(key, &snapshot.settings)?);
        let root = GenerationId::new(gate.ledger.now());
        // What nobody has is counted under one name: anybody can invent others.
        let model = snapshot.catalogue.find(model).map_or_else(|_| "unknown".into(), |named| named.model.id.clone());
        let (gate, snapshot, key) = (gate.clone(), snapshot.clone(), key.clone());
        Ok(Self { gate, snapshot, key, model, root, asker, places })
    }

    /// Holds what something may cost at most; nothing is written down of what is free.
    pub async fn hold(&self, what: &str, most: Money) -> Result<Option<Aside>, Failure> {
        if most == Money::ZERO {
            return Ok(None);
        }
        let places = self.places.clone().into();
        let mut ticket = Ticket::of(&self.gate, &self.snapshot, &self.key, places, self.model.clone(), 0);
        ticket.belongs_to(self.root);
        ticket.asked_by(self.asker.clone());
        let short = || {
            let text =
                format!("Insufficient credits: {what} may cost ${most}, which the limits of this key do not cover");
            Failure::new(402, ErrorType::PaymentRequired, text)
        };
        Aside(ticket).held(most).await.map(Some).ok_or_else(short)
    }

    /// What the request will be known by.
    pub fn root(&self) -> GenerationId {
        self.root
    }

    pub fn key(&self) -> &KeyEntry {
        &self.key
    }

    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }
}

/// A record beside the calls of a request. Dropping it closes it as cancelled, with nothing to pay.
pub(crate) struct Aside(Box<Ticket>);

impl Aside {
    /// In a loop. `model`: the one that it is with.
    pub fn open(
        gate: &Arc<Gateway>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        inner: &Inner,
        model: &str,
    ) -> Self {
        let mut ticket = Ticket::of(gate, snapshot, key, inner.places.clone().into(), model.into(), 0);
        let id = inner.next(ticket.id());
        ticket.known_as(id);
        if let Some(root) = inner.root.get() {
            ticket.belongs_to(*root);
        }
        if let Some(asker) = inner.asker.get() {
            ticket.asked_by(asker.clone());
        }
        ticket.metered(inner);
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

    /// The same where nobody is there who could wait for it to be written.
    pub fn pay_anyway(mut self, provider: &str, fee: Money) {
        self.0.pay(provider, fee);
        self.0.complete();
    }

    /// Nothing is to be remembered of it. Not for one that holds something: what it did not cost is paid with nothing.
    pub fn forget(self) {
        self.0.refuse();
    }
}
