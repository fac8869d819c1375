//! Letters that were written a moment ago, as they were before they were sealed: nearly all are delivered at once, and
//! need not be read back from the file for that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::GenerationId;
use tidegate_core::map::Map;

/// What is kept at most, in bytes; what came first goes first.
const MOST_BYTES: usize = 8 << 20;

/// Rows that are gone and still in the list, beside as many as are there.
const SPARE: usize = 64;

/// The letters of one row, none of which was tried yet.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    pub at: i64,
    pub letters: Vec<(GenerationId, Arc<[u8]>)>,
}

impl Fresh {
    fn bytes(&self) -> usize {
        self.letters.iter().map(|(_, told)| told.len()).sum()
    }
}

#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rows: Map<i64, Fresh>,
    /// In the order in which they came; some of them may be gone.
    order: VecDeque<i64>,
    bytes: usize,
}

impl Inner {
    fn remove(&mut self, row: i64) {
        if let Some(fresh) = self.rows.remove(&row) {
            self.bytes -= fresh.bytes();
        }
    }
}

impl Recent {
    pub fn keep(&self, row: i64, fresh: Fresh) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.bytes += fresh.bytes();
        inner.rows.insert(row, fresh);
        inner.order.push_back(row);
        // One that nobody ever comes for must not hold those behind it.
        let Inner { rows, order, .. } = &mut *inner;
        if order.len() > 2 * rows.len() + SPARE {
            order.retain(|row| rows.contains_key(row));
        }
        while inner.bytes > MOST_BYTES
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.remove(oldest);
        }
    }

    /// The row is not what it was any more.
    pub fn forget(&self, rows: impl IntoIterator<Item = i64>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.into_iter().for_each(|row| inner.remove(row));
        while inner.order.front().is_some_and(|row| !inner.rows.contains_key(row)) {
            inner.order.pop_front();
        }
    }

    pub fn find(&self, row: i64) -> Option<Fresh> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).rows.get(&row).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::Timestamp;

    fn fresh(bytes: usize) -> Fresh {
        Fresh { at: 1, letters: vec![(GenerationId::new(Timestamp(1)), vec![0; bytes].into())] }
    }

    #[test]
    fn what_came_first_goes_first_when_there_is_too_much() {
        let recent = Recent::default();
        for row in 1..=9 {
            recent.keep(row, fresh(1 << 20));
        }
        assert!(recent.find(1).is_none(), "nine do not fit");
        assert!((2..=9).all(|row| recent.find(row).is_some()));
        recent.forget([2, 4, 77]);
        assert!(recent.find(2).is_none() && recent.find(4).is_none());
        recent.keep(10, fresh(2 << 20));
        assert!((5..=10).all(|row| recent.find(row).is_some()), "there is room again");
        recent.keep(11, fresh(9 << 20));
        assert!((1..=11).all(|row| recent.find(row).is_none()), "it does not fit at all");
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind() {
        let recent = Recent::default();
        for row in 0..1_000 {
            recent.keep(row, fresh(10));
            recent.forget([row]);
        }
        let inner = recent.0.lock().unwrap();
        assert_eq!((inner.rows.len(), inner.order.len(), inner.bytes), (0, 0, 0));
        drop(inner);
        recent.keep(0, fresh(10));
        for row in 1..10_000 {
            recent.keep(row, fresh(10));
            recent.forget([row]);
        }
        let inner = recent.0.lock().unwrap();
        assert_eq!((inner.rows.len(), inner.bytes), (1, 10), "nobody comes for the first");
        assert!(inner.order.len() <= 2 + SPARE, "{}", inner.order.len());
    }
}
