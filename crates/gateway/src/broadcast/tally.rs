//! What became of letters in the last day, for those who ask. Each node counts its own, and forgets it when it ends: what
//! still waits is in the journal.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use tidegate_core::Timestamp;

const HOUR_MS: i64 = 60 * 60 * 1000;
const HOURS: i64 = 24;

/// How a letter ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Delivered,
    Failed,
    Dropped,
}

/// How a destination does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub delivered: u64,
    pub failed: u64,
    pub dropped: u64,
    pub last_error: Option<String>,
    pub last_success: Option<Timestamp>,
}

#[derive(Default)]
pub struct Tallies(Mutex<HashMap<String, Tally>>);

#[derive(Default)]
struct Tally {
    /// By the hour, oldest first: delivered, failed, dropped.
    hours: VecDeque<(i64, [u64; 3])>,
    last_error: Option<String>,
    last_success: Option<Timestamp>,
    /// It fails so often that it is left alone for a while.
    is_resting: bool,
}

impl Tallies {
    pub(crate) fn count(&self, destination: &str, now: Timestamp, end: End, by: u64) {
        self.with(destination, |tally| {
            let hour = now.0.div_euclid(HOUR_MS);
            if tally.hours.back().is_none_or(|(last, _)| *last < hour) {
                tally.hours.push_back((hour, [0; 3]));
                tally.hours.retain(|(known, _)| hour - known < HOURS);
            }
            if let Some((_, counts)) = tally.hours.back_mut() {
                counts[end as usize] += by;
            }
            if end == End::Delivered {
                tally.last_success = Some(now);
            }
        });
    }

    pub(crate) fn failed(&self, destination: &str, error: &str) {
        self.with(destination, |tally| tally.last_error = Some(error.to_owned()));
    }

    pub(crate) fn rest(&self, destination: &str, is_resting: bool) {
        self.with(destination, |tally| tally.is_resting = is_resting);
    }

    /// Whether nothing will be brought there soon, whatever waits.
    pub(crate) fn is_resting(&self, destination: &str) -> bool {
        self.with(destination, |tally| tally.is_resting)
    }

    /// Keeps those that are still told.
    pub(crate) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| is_known(id));
    }

    pub fn standing(&self, destination: &str, now: Timestamp) -> Standing {
        let hour = now.0.div_euclid(HOUR_MS);
        self.with(destination, |tally| {
            let recent = tally.hours.iter().filter(|(known, _)| hour - known < HOURS);
            let [delivered, failed, dropped] =
                recent.fold([0; 3], |sum, (_, counts)| [sum[0] + counts[0], sum[1] + counts[1], sum[2] + counts[2]]);
            let (last_error, last_success) = (tally.last_error.clone(), tally.last_success);
            Standing { delivered, failed, dropped, last_error, last_success }
        })
    }

    fn with<T>(&self, destination: &str, act: impl FnOnce(&mut Tally) -> T) -> T {
        let mut tallies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(tallies.entry(destination.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_later_nothing_counts_any_more() {
        let tallies = Tallies::default();
        let at = |hours: i64| Timestamp(1_790_000_000_000 + hours * HOUR_MS);
        tallies.count("d", at(0), End::Delivered, 3);
        tallies.count("d", at(0), End::Failed, 1);
        tallies.count("d", at(5), End::Delivered, 4);
        tallies.count("d", at(5), End::Dropped, 2);
        tallies.failed("d", "status 503");
        let counts = |hours| {
            let standing = tallies.standing("d", at(hours));
            (standing.delivered, standing.failed, standing.dropped)
        };
        assert_eq!(counts(5), (7, 1, 2));
        assert_eq!(counts(23), (7, 1, 2));
        assert_eq!(counts(24), (4, 0, 2), "the first hour is over");
        assert_eq!(counts(29), (0, 0, 0));
        let standing = tallies.standing("d", at(29));
        assert_eq!((standing.last_error.as_deref(), standing.last_success), (Some("status 503"), Some(at(5))));
        tallies.retain(|id| id != "d");
        assert_eq!(tallies.standing("d", at(5)), Standing::default());
    }
}
