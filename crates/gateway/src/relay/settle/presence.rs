//! Whether somebody waits for an answer.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the client is still there, and whether its leaving changes what is charged.
#[derive(Debug, Default)]
pub(in crate::relay) struct Presence {
    gone: AtomicBool,
    /// The upstream that was called charges for the whole answer, whoever hears it.
    bills_anyway: AtomicBool,
    /// It was sent away by us.
    ended: AtomicBool,
}

impl Presence {
    pub fn bills_anyway(&self) -> bool {
        self.bills_anyway.load(Ordering::Relaxed)
    }

    pub(super) fn bill_anyway(&self, bills_anyway: bool) {
        self.bills_anyway.store(bills_anyway, Ordering::Relaxed);
    }

    pub fn leave(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// The client gets an error of ours: that is not charged.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.bills_anyway.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}
