//! What the calls of a loop have cost, whether anybody heard their answers or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tidegate_core::Money;

/// Counts what is settled for a loop and for the loops inside it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    nanos: AtomicI64,
    /// The loop that this one is inside of.
    outer: Option<Arc<Meter>>,
}

impl Meter {
    /// Of a loop for which so much was paid before its first turn.
    pub fn of(before: Money) -> Arc<Self> {
        Arc::new(Self { nanos: AtomicI64::new(before.0), outer: None })
    }

    /// Of a loop inside another one.
    pub fn inside(outer: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { nanos: AtomicI64::new(0), outer: Some(outer.clone()) })
    }

    pub fn add(&self, cost: Money) {
        let mut meter = Some(self);
        while let Some(one) = meter {
            one.nanos.fetch_add(cost.0, Ordering::SeqCst);
            meter = one.outer.as_deref();
        }
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
    }
}
