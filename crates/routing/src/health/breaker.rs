//! When a way to call is left alone for a while, and when it is tried again.

use super::window::Tally;

/// Failures in a row that open it.
const IN_A_ROW: u32 = 5;
/// So many calls within half a minute, half of which failed, open it too.
const CALLS: u64 = 20;
const OPEN_MS: i64 = 30_000;
const LONGEST_MS: i64 = 300_000;
/// Successes that close it again.
const CLOSING: u8 = 3;
/// A probe that was never heard of again does not keep others from trying.
const PROBE_MS: i64 = 120_000;

/// Whether it may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    Free,
    /// As the one that finds out whether it is well again.
    Probe,
    Blocked,
}

#[derive(Clone, Debug)]
enum State {
    Closed { since: i64 },
    Open { until: i64 },
    HalfOpen { probing_since: Option<i64>, successes: u8 },
}

/// Counts failures; its owner says what one is. Time is in milliseconds.
#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    in_a_row: u32,
    recent: Tally<30>,
    /// How often it opened, less what was forgiven since.
    opened: u32,
    last_open_ms: i64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: State::Closed { since: 0 },
            in_a_row: 0,
            recent: Tally::new(1_000),
            opened: 0,
            last_open_ms: OPEN_MS,
        }
    }
}

impl Breaker {
    /// What a call would be told now.
    pub fn permit(&self, now: i64) -> Permit {
        match self.state {
            State::Closed { .. } => Permit::Free,
            State::Open { until } if now < until => Permit::Blocked,
            State::Open { .. } | State::HalfOpen { probing_since: None, .. } => Permit::Probe,
            State::HalfOpen { probing_since: Some(since), .. } if now - since > PROBE_MS => Permit::Probe,
            State::HalfOpen { probing_since: Some(_), .. } => Permit::Blocked,
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// A call begins, as the permit said.
    pub fn begin(&mut self, now: i64) -> Permit {
        let permit = self.permit(now);
        if permit == Permit::Probe {
            let successes = if let State::HalfOpen { successes, .. } = self.state { successes } else { 0 };
            self.state = State::HalfOpen { probing_since: Some(now), successes };
        }
        permit
    }

    /// A probe ended without a word on how the upstream is.
    pub fn leave(&mut self) {
        if let State::HalfOpen { probing_since, .. } = &mut self.state {
            *probing_since = None;
        }
    }

    pub fn succeed(&mut self, now: i64, was_probe: bool) {
        self.in_a_row = 0;
        self.recent.add(now, false);
        if let (State::HalfOpen { successes, .. }, true) = (&self.state, was_probe) {
            let successes = successes + 1;
            self.state = if successes >= CLOSING {
                self.recent.clear();
                State::Closed { since: now }
            } else {
                State::HalfOpen { probing_since: None, successes }
            };
        }
    }

    /// Whether this opened it. `chance` is any number: it spreads the times at which many of these try again.
    pub fn fail(&mut self, now: i64, was_probe: bool, chance: u64) -> bool {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.recent.add(now, true);
        let recent = self.recent.of_all(now);
        let is_too_much = self.in_a_row >= IN_A_ROW || (recent.calls >= CALLS && recent.failed * 2 >= recent.calls);
        let opens = match self.state {
            State::Closed { .. } => is_too_much,
            // Stragglers of before it opened say nothing new.
            State::HalfOpen { .. } => was_probe,
            State::Open { .. } => false,
        };
        if opens {
            self.open(now, chance);
        }
        opens
    }

    fn open(&mut self, now: i64, chance: u64) {
        if let State::Closed { since } = self.state {
            let forgiven = (now - since).max(0) / self.last_open_ms.max(1);
            self.opened = self.opened.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
        }
        self.opened = self.opened.saturating_add(1);
        let time = (OPEN_MS * i64::from(self.opened)).min(LONGEST_MS);
        self.last_open_ms = time;
        // A fifth more or less.
        let spread = time / 5;
        let jitter = i64::try_from(chance % u64::try_from(2 * spread + 1).unwrap_or(1)).unwrap_or(0) - spread;
        self.state = State::Open { until: now + time + jitter };
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The middle of the jitter: exactly the open time.
    fn middle(time: i64) -> u64 {
        u64::try_from(time / 5).unwrap()
    }

    fn opened(at: i64) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..4 {
            assert!(!breaker.fail(at, false, middle(OPEN_MS)));
        }
        assert!(breaker.fail(at, false, middle(OPEN_MS)));
        breaker
    }

    #[test]
    fn ret_6_five_failures_in_a_row_open_it_for_half_a_minute() {
        let mut breaker = Breaker::default();
        for _ in 0..4 {
            breaker.fail(0, false, 0);
        }
        breaker.succeed(0, false);
        for _ in 0..4 {
            assert!(!breaker.fail(0, false, 0));
        }
        assert_eq!(breaker.permit(0), Permit::Free, "a success in between starts the count anew");
        let breaker = opened(1_000);
        assert_eq!(breaker.permit(30_999), Permit::Blocked);
        assert_eq!(breaker.permit(31_000), Permit::Probe);
    }

    #[test]
    fn ret_6_half_of_twenty_calls_within_half_a_minute_open_it() {
        let mut breaker = Breaker::default();
        for call in 0..19 {
            if call % 2 == 0 {
                breaker.succeed(call * 1_000, false)
            } else {
                assert!(!breaker.fail(call * 1_000, false, 0))
            }
        }
        assert!(breaker.fail(19_000, false, 0), "10 of 20");
        let mut slow = Breaker::default();
        for call in 0..60 {
            if call % 2 == 0 { slow.succeed(call * 2_000, false) } else { assert!(!slow.fail(call * 2_000, false, 0)) }
        }
    }

    #[test]
    fn ret_6_one_probe_at_a_time_and_three_successes_close_it() {
        let mut breaker = opened(0);
        for success in 0..3 {
            assert_eq!(breaker.begin(30_000), Permit::Probe, "{success}");
            assert_eq!(breaker.begin(30_000), Permit::Blocked, "{success}");
            breaker.succeed(30_001, true);
        }
        assert_eq!(breaker.permit(30_001), Permit::Free);
        assert!(breaker.is_closed());
    }

    #[test]
    fn ret_6_a_failed_probe_opens_it_for_longer_each_time_up_to_five_minutes() {
        let mut breaker = opened(0);
        let mut now = 30_000;
        for times in 2..15_i64 {
            let time = (30_000 * times).min(300_000);
            assert_eq!(breaker.begin(now), Permit::Probe);
            assert!(breaker.fail(now, true, middle(time)));
            assert_eq!(breaker.permit(now + time - 1), Permit::Blocked, "{times}");
            assert_eq!(breaker.permit(now + time), Permit::Probe, "{times}");
            now += time;
        }
    }

    #[test]
    fn ret_6_each_clean_open_time_forgives_one_opening() {
        let mut breaker = opened(0);
        breaker.begin(30_000);
        breaker.fail(30_000, true, middle(60_000));
        for _ in 0..3 {
            breaker.begin(90_000);
            breaker.succeed(90_000, true);
        }
        // Opened twice, and clean for one open time (60 s) since: the next one is the second again, not the third.
        let again = 90_000 + 60_000;
        for _ in 0..5 {
            breaker.fail(again, false, middle(60_000));
        }
        assert_eq!(breaker.permit(again + 59_999), Permit::Blocked);
        assert_eq!(breaker.permit(again + 60_000), Permit::Probe);
    }

    #[test]
    fn the_open_time_is_spread_by_a_fifth() {
        for chance in [0, 1, 5_999, 12_000, 12_001, u64::MAX] {
            let mut breaker = Breaker::default();
            for _ in 0..5 {
                breaker.fail(0, false, chance);
            }
            assert_eq!(breaker.permit(23_999), Permit::Blocked, "{chance}");
            assert_eq!(breaker.permit(36_000), Permit::Probe, "{chance}");
        }
    }

    #[test]
    fn a_probe_that_is_given_up_lets_the_next_one_try() {
        let mut breaker = opened(0);
        assert_eq!(breaker.begin(30_000), Permit::Probe);
        breaker.leave();
        assert_eq!(breaker.begin(30_000), Permit::Probe);
        assert_eq!(breaker.permit(150_001), Permit::Probe, "one that is lost does not block for ever");
    }

    #[test]
    fn stragglers_of_before_it_opened_change_nothing() {
        let mut breaker = opened(0);
        assert!(!breaker.fail(10, false, 0));
        breaker.succeed(10, false);
        assert_eq!(breaker.permit(20), Permit::Blocked);
        breaker.begin(30_000);
        assert!(!breaker.fail(30_001, false, 0));
        breaker.succeed(30_001, false);
        assert_eq!(breaker.permit(30_001), Permit::Blocked, "its probe is still out");
    }
}
