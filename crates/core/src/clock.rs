//! Time as a value. Pure code takes a [`Timestamp`]; only the edges ask a [`Clock`].

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, UTC: the one form in which we keep and pass instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The last whole second that can be written in every offset from UTC: where the calendar's end is meant, it is this.
    pub const LAST: Self = Self(253_402_207_200_000);

    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Time from `earlier` to here; zero when the clock went back in between.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// RFC 3339 in UTC with milliseconds: the form of every instant on the wire.
impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What lies outside of the calendar is shown as its nearer end.
        let end = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let instant = jiff::Timestamp::from_millisecond(self.0.min(Self::LAST.0)).unwrap_or(end);
        write!(out, "{instant:.3}")
    }
}

/// Where time comes from; handed in, so that tests can move it.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
    /// For measuring durations only: never goes back, means nothing across processes.
    fn instant(&self) -> Instant;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "the one place that may ask the system for the time")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// A clock that stands still until told otherwise.
#[derive(Debug)]
pub struct ManualClock {
    millis: AtomicI64,
    origin: Instant,
    started: i64,
}

impl ManualClock {
    pub fn at(start: Timestamp) -> Self {
        Self { millis: AtomicI64::new(start.0), origin: SystemClock.instant(), started: start.0 }
    }

    pub fn advance(&self, by: Duration) {
        self.millis.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.millis.load(Ordering::SeqCst))
    }

    fn instant(&self) -> Instant {
        self.origin + self.now().since(Timestamp(self.started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_written_in_utc_with_milliseconds() {
        assert_eq!(Timestamp(1_787_567_400_000).to_string(), "2026-08-24T10:30:00.000Z");
        assert_eq!(Timestamp(1_787_567_400_007).to_string(), "2026-08-24T10:30:00.007Z");
    }

    #[test]
    fn an_instant_outside_of_the_calendar_is_shown_as_its_nearer_end() {
        let last = "9999-12-30T22:00:00.000Z";
        assert_eq!(Timestamp::LAST.to_string(), last);
        assert_eq!(Timestamp(Timestamp::LAST.0 + 999).to_string(), last);
        assert_eq!(Timestamp(i64::MAX).to_string(), last);
        assert!(Timestamp(i64::MIN).to_string().starts_with("-009999-01-0"), "{}", Timestamp(i64::MIN));
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_negative_duration() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    }
}
