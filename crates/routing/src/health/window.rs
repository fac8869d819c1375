//! What happened lately, in steps of time: old steps are written over, so nothing grows.

use crate::live::Percentiles;

/// A ring of steps of time. Time is in milliseconds and only moves forward; what comes late counts as now.
#[derive(Clone, Debug)]
struct Ring<T, const N: usize> {
    steps: [T; N],
    step_ms: i64,
    /// The number of the newest step.
    newest: i64,
}

impl<T: Default + Clone, const N: usize> Ring<T, N> {
    fn new(step_ms: i64) -> Self {
        Self { steps: std::array::from_fn(|_| T::default()), step_ms, newest: 0 }
    }

    /// Drops what is too old by now.
    fn turn(&mut self, now: i64) {
        let number = now / self.step_ms;
        for back in 0..self.passed(number) {
            self.steps[place::<N>(number - back as i64)] = T::default();
        }
        self.newest = self.newest.max(number);
    }

    /// What that would be.
    fn outdated(&self, now: i64) -> impl Iterator<Item = &T> {
        let number = now / self.step_ms;
        (0..self.passed(number)).map(move |back| &self.steps[place::<N>(number - back as i64)])
    }

    /// How many steps are written over until one has this number.
    fn passed(&self, number: i64) -> usize {
        usize::try_from(number.saturating_sub(self.newest)).unwrap_or(0).min(N)
    }

    fn current(&mut self, now: i64) -> &mut T {
        self.turn(now);
        &mut self.steps[place::<N>(self.newest)]
    }

    /// The newest steps, as many as are asked for.
    fn last(&self, steps: usize) -> impl Iterator<Item = &T> {
        (0..steps.min(N)).map(|back| &self.steps[place::<N>(self.newest - back as i64)])
    }
}

fn place<const N: usize>(number: i64) -> usize {
    usize::try_from(number.rem_euclid(N as i64)).unwrap_or_default()
}

/// How many calls, and how many of them went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub calls: u64,
    pub failed: u64,
}

impl Count {
    /// The share that went well; all of them where there were none.
    pub fn share(self) -> f32 {
        if self.calls == 0 { 1.0 } else { (self.calls - self.failed) as f32 / self.calls as f32 }
    }
}

/// Counts over a sliding time.
#[derive(Clone, Debug)]
pub struct Tally<const N: usize> {
    steps: Ring<Count, N>,
    /// Of all steps: every plan asks for it.
    sum: Count,
}

impl<const N: usize> Tally<N> {
    pub fn new(step_ms: i64) -> Self {
        Self { steps: Ring::new(step_ms), sum: Count::default() }
    }

    pub fn add(&mut self, now: i64, is_failure: bool) {
        self.turn(now);
        for count in [self.steps.current(now), &mut self.sum] {
            count.calls += 1;
            count.failed += u64::from(is_failure);
        }
    }

    pub fn of_all(&mut self, now: i64) -> Count {
        self.turn(now);
        self.sum
    }

    /// Over the newest steps only.
    pub fn of_last(&mut self, now: i64, steps: usize) -> Count {
        self.turn(now);
        sum(self.steps.last(steps))
    }

    pub fn clear(&mut self) {
        self.steps.steps.fill(Count::default());
        self.sum = Count::default();
    }

    fn turn(&mut self, now: i64) {
        let gone = sum(self.steps.outdated(now));
        self.sum = Count { calls: self.sum.calls - gone.calls, failed: self.sum.failed - gone.failed };
        self.steps.turn(now);
    }
}

fn sum<'a>(steps: impl Iterator<Item = &'a Count>) -> Count {
    steps.fold(Count::default(), |sum, step| Count { calls: sum.calls + step.calls, failed: sum.failed + step.failed })
}

const BUCKETS: usize = 128;
/// From one bucket to the next: a value is known to about six parts of a hundred.
const RATIO: f64 = 1.12;
const LEAST: f64 = 0.001;
/// Below this many values nothing is said.
pub const ENOUGH: u64 = 10;

/// The distribution of a measured value over a sliding time, from a thousandth to about a thousand and a half.
#[derive(Clone, Debug)]
pub struct Spread<const N: usize>(Ring<Box<[u16]>, N>);

impl<const N: usize> Spread<N> {
    pub fn new(step_ms: i64) -> Self {
        Self(Ring::new(step_ms))
    }

    pub fn add(&mut self, now: i64, value: f64) {
        let step = self.0.current(now);
        if step.is_empty() {
            // Only endpoints that are called pay for it.
            *step = vec![0; BUCKETS].into();
        }
        let number = &mut step[bucket(value)];
        *number = number.saturating_add(1);
    }

    /// Values that so many parts of a hundred do not exceed.
    pub fn not_exceeded(&mut self, now: i64) -> Percentiles {
        self.at(now, [0.50, 0.75, 0.90, 0.99])
    }

    /// Values that so many parts of a hundred reach.
    pub fn reached(&mut self, now: i64) -> Percentiles {
        self.at(now, [0.50, 0.25, 0.10, 0.01])
    }

    fn at(&mut self, now: i64, shares: [f64; 4]) -> Percentiles {
        self.0.turn(now);
        let mut sums = [0_u64; BUCKETS];
        for step in self.0.last(N) {
            for (sum, number) in sums.iter_mut().zip(step.iter()) {
                *sum += u64::from(*number);
            }
        }
        let all: u64 = sums.iter().sum();
        if all < ENOUGH {
            return Percentiles::default();
        }
        let value = |share: f64| {
            // The smallest value that at least this share does not exceed.
            let rank = ((all as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let place = sums.iter().position(|number| {
                seen += number;
                seen >= rank
            });
            place.map(|place| (LEAST * RATIO.powf(place as f64 - 0.5)) as f32)
        };
        let [p50, p75, p90, p99] = shares.map(value);
        Percentiles { p50, p75, p90, p99 }
    }
}

/// Bucket 0 holds what is too small, the last one what is too large.
fn bucket(value: f64) -> usize {
    if value <= LEAST {
        return 0;
    }
    let place = (value / LEAST).ln() / RATIO.ln();
    if place.is_finite() { (place.ceil() as usize).min(BUCKETS - 1) } else { BUCKETS - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tally_forgets_what_is_older_than_its_steps() {
        let mut tally = Tally::<3>::new(1_000);
        tally.add(10_000, true);
        tally.add(10_999, false);
        tally.add(11_000, false);
        assert_eq!(tally.of_all(12_999), Count { calls: 3, failed: 1 });
        assert_eq!(tally.of_last(12_999, 2), Count { calls: 1, failed: 0 });
        assert_eq!(tally.of_all(13_000), Count { calls: 1, failed: 0 });
        assert_eq!(tally.of_all(i64::MAX), Count::default());
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_steps(calls in prop::collection::vec((0_i64..5_000, any::<bool>(), 0..50_u8), 1..200)) {
            let mut tally = Tally::<4>::new(1_000);
            let mut now = 0;
            for (passed, is_failure, chance) in calls {
                now += passed;
                if chance == 0 {
                    tally.clear();
                }
                tally.add(now, is_failure);
                prop_assert_eq!(tally.of_all(now), tally.of_last(now, 4));
                let later = now + 700;
                prop_assert_eq!(tally.clone().of_all(later), tally.clone().of_last(later, 4));
            }
        }
    }

    #[test]
    fn time_that_goes_back_counts_as_now() {
        let mut tally = Tally::<2>::new(1_000);
        tally.add(50_000, false);
        tally.add(1_000, true);
        assert_eq!(tally.of_all(50_000), Count { calls: 2, failed: 1 });
    }

    #[test]
    fn percentiles_are_those_of_the_values_within_a_bucket() {
        let mut latency = Spread::<5>::new(60_000);
        for value in 1..=9 {
            latency.add(0, f64::from(value));
        }
        assert_eq!(latency.not_exceeded(0), Percentiles::default(), "nine values say nothing");
        let mut values = Spread::<5>::new(60_000);
        for value in 1..=100 {
            values.add(1, f64::from(value) / 10.0);
        }
        let near = |found: Option<f32>, expected: f32| {
            let found = found.expect("there are enough values");
            assert!((found / expected - 1.0).abs() < 0.07, "{found} instead of {expected}");
        };
        let most = values.not_exceeded(1);
        near(most.p50, 5.0);
        near(most.p75, 7.5);
        near(most.p90, 9.0);
        near(most.p99, 9.9);
        let least = values.reached(1);
        near(least.p50, 5.0);
        near(least.p90, 1.0);
        assert_eq!(values.not_exceeded(400_000), Percentiles::default(), "five minutes later they are gone");
    }

    #[test]
    fn absurd_values_have_a_bucket() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(bucket(value) < BUCKETS, "{value}");
        }
    }
}
