//! What the calls of a loop have cost, whether anybody heard their answers or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tidegate_core::Money;

/// Counts what is settled for a loop and for the loops inside it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    nanos: AtomicI64,
    /// What tools were paid since the last turn.
    fees: AtomicI64,
    /// The loop that this one is inside of.
    outer: Option<Arc<Meter>>,
}

impl Meter {
    /// Of a loop for which so much was paid before its first turn.
    pub fn of(before: Money) -> Arc<Self> {
        Arc::new(Self { nanos: AtomicI64::new(before.0), ..Self::default() })
    }

    /// Of a loop inside another one.
    pub fn inside(outer: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { outer: Some(outer.clone()), ..Self::default() })
    }

    pub fn add(&self, cost: Money) {
        let mut meter = Some(self);
        while let Some(one) = meter {
            one.nanos.fetch_add(cost.0, Ordering::SeqCst);
            meter = one.outer.as_deref();
        }
    }

    /// Of what was added, so much is the fee of a tool.
    pub fn paid(&self, fee: Money) {
        self.fees.fetch_add(fee.0, Ordering::SeqCst);
    }

    /// What tools were paid since this was last asked.
    pub fn fees(&self) -> Money {
        Money(self.fees.swap(0, Ordering::SeqCst))
    }

    pub fn cost(&self) -> Money {
        Money(self.nanos.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_settled_inside_counts_outside_too() {
        let outer = Meter::of(Money(5));
        let (one, other) = (Meter::inside(&outer), Meter::inside(&outer));
        Meter::inside(&one).add(Money(7));
        other.add(Money(2));
        assert_eq!([&outer, &one, &other].map(|meter| meter.cost()), [Money(14), Money(7), Money(2)]);
        // The turn that comes next tells of fees, and no other.
        one.paid(Money(3));
        assert_eq!([&outer, &one, &one].map(|meter| meter.fees()), [Money(0), Money(3), Money(0)]);
    }
}
