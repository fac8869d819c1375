//! Time as a value. Pure code takes a [`Timestamp`]; only the edges ask a [`Clock`].

use std::cell::Cell;
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

/// The machine's own clock. Asking a machine costs some fifty nanoseconds, on many virtual ones far more, and a request
/// wants to know twenty times: within [`step`] it is asked once.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "the one place that may ask the system for the time")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let ask = || {
            let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Timestamp(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
        };
        known(ask, |step| &mut step.now)
    }

    fn instant(&self) -> Instant {
        known(Instant::now, |step| &mut step.instant)
    }
}

/// What the clock said in this step of this thread's work.
#[derive(Clone, Copy, Default)]
struct Step {
    now: Option<Timestamp>,
    instant: Option<Instant>,
}

thread_local! {
    static STEP: Cell<Option<Step>> = const { Cell::new(None) };
}

fn known<T: Copy>(ask: impl FnOnce() -> T, place: impl FnOnce(&mut Step) -> &mut Option<T>) -> T {
    let Some(mut step) = STEP.get() else { return ask() };
    let time = *place(&mut step).get_or_insert_with(ask);
    STEP.set(Some(step));
    time
}

/// Does work for which time stands still: from one wait of a task to its next, which is over before anybody could tell.
/// What takes longer says [`time_passes`].
pub fn step<T>(work: impl FnOnce() -> T) -> T {
    struct Leave(Option<Step>);

    impl Drop for Leave {
        fn drop(&mut self) {
            STEP.set(self.0);
        }
    }

    let _leave = Leave(STEP.replace(Some(Step::default())));
    work()
}

/// The system is asked again, by who wants to know how long a step has taken so far.
pub fn time_passes() {
    if STEP.get().is_some() {
        STEP.set(Some(Step::default()));
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
    fn time_stands_still_within_a_step_until_it_is_said_to_pass() {
        let clock = SystemClock;
        // A step of its own asks anew.
        let passes = || {
            let (begun, now) = step(|| (clock.instant(), clock.now()));
            while step(|| clock.instant() == begun || clock.now() == now) {}
        };
        step(|| {
            let (begun, now) = (clock.instant(), clock.now());
            passes();
            assert_eq!((clock.instant(), clock.now()), (begun, now));
            time_passes();
            assert!(clock.instant() > begun && clock.now() > now);
        });
        let begun = clock.instant();
        passes();
        assert!(clock.instant() > begun, "outside of a step it never stands still");
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_negative_duration() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    }
}
