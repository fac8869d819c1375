//! How a way to call is doing, learnt from its calls. Pure: time and chance are given.

pub mod breaker;
pub mod window;

use breaker::{Breaker, Permit};
use window::{Count, Spread, Tally};

use crate::live::{Group, Percentiles, Vital};

const MINUTE_MS: i64 = 60_000;
/// Fewer requests in half an hour say nothing about it.
const JUDGED: u64 = 100;
/// Without a word on how long, an endpoint that wants no more calls gets none for this long.
pub const COOL_DOWN_MS: i64 = 10_000;
/// Percentiles are not computed anew for every call.
const FRESH_MS: i64 = 1_000;

/// What one call says about the endpoint and the credential it was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    /// Broken, late or unreadable: the breaker counts it.
    Failed,
    /// It could not serve, and will not by waiting: a credential without rights or money, a model that is not there.
    Unserved,
    /// Wants fewer calls: none until then.
    Limited {
        until: i64,
    },
    /// The caller's own, or nobody's: a bad request, a client that left.
    Neither,
}

/// Shares of calls that were answered, as they are published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uptime {
    pub five_minutes: Option<f32>,
    pub half_hour: Option<f32>,
    pub day: Option<f32>,
}

/// The record of one way to call. Bounded, however often it is called.
#[derive(Clone, Debug)]
pub struct Health {
    breaker: Breaker,
    /// For quick judgement: half a minute in seconds.
    lately: Tally<30>,
    minutes: Tally<30>,
    /// A day in half hours.
    day: Tally<48>,
    latency: Spread<5>,
    throughput: Spread<5>,
    cools_until: i64,
    failed_at: i64,
    measured: Option<(i64, Percentiles, Percentiles)>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            breaker: Breaker::default(),
            lately: Tally::new(1_000),
            minutes: Tally::new(MINUTE_MS),
            day: Tally::new(30 * MINUTE_MS),
            latency: Spread::new(MINUTE_MS),
            throughput: Spread::new(MINUTE_MS),
            cools_until: i64::MIN,
            failed_at: 0,
            measured: None,
        }
    }
}

impl Health {
    /// What a call would be told now, without beginning one.
    pub fn permit(&self, now: i64) -> Permit {
        self.breaker.permit(now)
    }

    pub fn begin(&mut self, now: i64) -> Permit {
        self.breaker.begin(now)
    }

    /// A call ended. Whether that opened the breaker.
    pub fn end(&mut self, now: i64, outcome: Outcome, was_probe: bool, chance: u64) -> bool {
        let is_failure = match outcome {
            Outcome::Answered => false,
            Outcome::Failed | Outcome::Unserved => true,
            Outcome::Limited { until } => {
                self.rest(until);
                self.give_up(was_probe);
                return false;
            }
            Outcome::Neither => {
                self.give_up(was_probe);
                return false;
            }
        };
        if outcome != Outcome::Unserved {
            self.lately.add(now, is_failure);
        }
        self.minutes.add(now, is_failure);
        self.day.add(now, is_failure);
        if is_failure {
            self.failed_at = now;
        }
        match outcome {
            Outcome::Failed => self.breaker.fail(now, was_probe, chance),
            Outcome::Answered => {
                self.breaker.succeed(now, was_probe);
                false
            }
            _ => {
                self.give_up(was_probe);
                false
            }
        }
    }

    /// Wants no calls until then.
    pub fn rest(&mut self, until: i64) {
        self.cools_until = self.cools_until.max(until);
    }

    fn give_up(&mut self, was_probe: bool) {
        if was_probe {
            self.breaker.leave();
        }
    }

    /// Seconds to the first content of a stream.
    pub fn began_to_speak(&mut self, now: i64, seconds: f64) {
        self.latency.add(now, seconds);
    }

    /// Tokens per second of a whole answer, from the call to its end.
    pub fn spoke(&mut self, now: i64, tokens_per_second: f64) {
        self.throughput.add(now, tokens_per_second);
    }

    /// What the plan of a call is made with.
    pub fn vital(&mut self, now: i64) -> Vital {
        let (latency, throughput) = self.percentiles(now);
        let half_hour = self.minutes.of_all(now);
        Vital {
            group: self.group(now, half_hour),
            cools: now < self.cools_until,
            failed_at: self.failed_at,
            uptime: half_hour.share(),
            latency,
            throughput,
            tool_success: None,
        }
    }

    /// The group it is in, as a plan would see it.
    pub fn state(&mut self, now: i64) -> Group {
        let half_hour = self.minutes.of_all(now);
        self.group(now, half_hour)
    }

    fn group(&mut self, now: i64, half_hour: Count) -> Group {
        let lately = self.lately.of_all(now);
        match self.breaker.permit(now) {
            Permit::Blocked => Group::Outage,
            // Its turn has come to be tried, and by as many as are needed to trust it again.
            Permit::Probe => Group::Stable,
            // Quiet deployments never fill the breaker's window.
            Permit::Free if lately.failed >= 3 && lately.failed * 2 >= lately.calls => Group::Outage,
            Permit::Free if half_hour.calls >= JUDGED && half_hour.share() < 0.80 => Group::Down,
            Permit::Free if half_hour.calls >= JUDGED && half_hour.share() < 0.95 => Group::Degraded,
            Permit::Free => Group::Stable,
        }
    }

    /// Of latency and throughput over five minutes.
    pub fn percentiles(&mut self, now: i64) -> (Percentiles, Percentiles) {
        match self.measured {
            Some((at, latency, throughput)) if now - at < FRESH_MS => (latency, throughput),
            _ => {
                let (latency, throughput) = (self.latency.not_exceeded(now), self.throughput.reached(now));
                self.measured = Some((now, latency, throughput));
                (latency, throughput)
            }
        }
    }

    pub fn uptime(&mut self, now: i64) -> Uptime {
        let share = |count: Count| (count.calls > 0).then(|| count.share());
        Uptime {
            five_minutes: share(self.minutes.of_last(now, 5)),
            half_hour: share(self.minutes.of_all(now)),
            day: share(self.day.of_all(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(outcomes: &[(Outcome, u32)]) -> Health {
        let mut health = Health::default();
        for (outcome, times) in outcomes {
            for _ in 0..*times {
                health.end(1_000, *outcome, false, 0);
            }
        }
        health
    }

    #[test]
    fn groups_follow_uptime_once_there_are_a_hundred_requests() {
        use Outcome::{Answered, Unserved};
        // A minute later only uptime speaks: what happened lately is more than half a minute old.
        let cases = [
            (79, 20, Group::Stable),
            (80, 20, Group::Degraded),
            (79, 21, Group::Down),
            (94, 6, Group::Degraded),
            (95, 5, Group::Stable),
            (100, 0, Group::Stable),
        ];
        for (answered, unserved, group) in cases {
            let mut health = after(&[(Unserved, unserved), (Answered, answered)]);
            assert_eq!(health.vital(61_000).group, group, "{answered} of {}", answered + unserved);
        }
    }

    #[test]
    fn three_failures_that_are_half_of_what_came_lately_are_an_outage() {
        use Outcome::{Answered, Failed, Unserved};
        assert_eq!(after(&[(Failed, 2), (Unserved, 9)]).vital(1_000).group, Group::Stable);
        assert_eq!(after(&[(Failed, 3), (Answered, 3)]).vital(1_000).group, Group::Outage);
        assert_eq!(after(&[(Failed, 3), (Answered, 4)]).vital(1_000).group, Group::Stable);
        assert_eq!(after(&[(Failed, 3)]).vital(40_000).group, Group::Stable, "half a minute later it is forgotten");
    }

    #[test]
    fn ret_6_limits_cool_down_and_client_faults_count_nowhere() {
        let mut health = after(&[(Outcome::Neither, 500), (Outcome::Limited { until: 9_000 }, 500)]);
        let vital = health.vital(1_000);
        assert_eq!((vital.group, vital.uptime, vital.cools), (Group::Stable, 1.0, true));
        assert!(!health.vital(9_000).cools);
        assert_eq!(health.uptime(1_000), Uptime { five_minutes: None, half_hour: None, day: None });
    }

    #[test]
    fn an_open_breaker_is_an_outage_until_its_time_has_come() {
        let mut health = after(&[(Outcome::Failed, 5)]);
        assert_eq!(health.vital(1_001).group, Group::Outage);
        assert_eq!(health.vital(1_001).failed_at, 1_000);
        assert_eq!(health.vital(60_000).group, Group::Stable, "to be tried");
        assert_eq!(health.begin(60_000), Permit::Probe);
        assert_eq!(health.vital(60_000).group, Group::Outage, "by one at a time");
    }

    #[test]
    fn uptime_is_published_over_three_times() {
        let mut health = after(&[(Outcome::Answered, 3), (Outcome::Unserved, 1)]);
        assert_eq!(health.uptime(2_000).five_minutes, Some(0.75));
        let later = health.uptime(10 * MINUTE_MS);
        assert_eq!((later.five_minutes, later.half_hour, later.day), (None, Some(0.75), Some(0.75)));
        assert_eq!(health.uptime(25 * 60 * MINUTE_MS).day, None);
    }
}
