//! Counters that refuse: requests in flight, a rate (GCRA) per source, and so many a day.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use quick_cache::sync::Cache;
use tidegate_core::Timestamp;

/// Sources remembered; the oldest go first.
const SOURCES: usize = 100_000;

/// How many are under way.
#[derive(Debug, Default)]
pub struct Count(AtomicUsize);

impl Count {
    pub fn current(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes a place, or none when `limit` are taken.
    pub fn enter(self: &Arc<Self>, limit: usize) -> Option<Place> {
        self.take(limit, None)
    }

    /// The same; `busy` counts those that have a place taken.
    pub fn enter_among(self: &Arc<Self>, limit: usize, busy: &Arc<Self>) -> Option<Place> {
        self.take(limit, Some(busy))
    }

    fn take(self: &Arc<Self>, limit: usize, busy: Option<&Arc<Self>>) -> Option<Place> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if let Some(busy) = busy.filter(|_| before == 0) {
            busy.0.fetch_add(1, Ordering::Relaxed);
        }
        let place = Place { count: self.clone(), busy: busy.cloned() };
        // Dropped where there is none left: the one before it may have gone meanwhile, and somebody must notice.
        (before < limit).then_some(place)
    }
}

/// A place taken; dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    count: Arc<Count>,
    busy: Option<Arc<Count>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let before = self.count.0.fetch_sub(1, Ordering::Relaxed);
        if let Some(busy) = self.busy.as_ref().filter(|_| before == 1) {
            busy.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A generic cell rate algorithm: `burst` at once, then one per `interval`. Time is an argument.
#[derive(Debug, Default)]
pub struct Rate(AtomicI64);

impl Rate {
    /// Counts one event, or says when the next one is free. An event over the rate is not counted.
    pub fn admit(&self, now: Timestamp, interval_ms: i64, burst: i64) -> Result<(), Timestamp> {
        let mut due = self.0.load(Ordering::Relaxed);
        loop {
            let start = Self::start(due, now, interval_ms, burst)?;
            match self.0.compare_exchange_weak(due, start + interval_ms, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(current) => due = current,
            }
        }
    }

    /// The same answer without counting anything.
    pub fn check(&self, now: Timestamp, interval_ms: i64, burst: i64) -> Result<(), Timestamp> {
        Self::start(self.0.load(Ordering::Relaxed), now, interval_ms, burst).map(|_| ())
    }

    /// As [`Rate::admit`] for so many a minute, or as [`Rate::check`] when `counts` is false; 0 is no limit.
    pub fn per_minute(&self, now: Timestamp, per_minute: u32, counts: bool) -> Result<(), Timestamp> {
        let (interval_ms, burst) = pace(per_minute);
        match (per_minute, counts) {
            (0, _) => Ok(()),
            (_, true) => self.admit(now, interval_ms, burst),
            (_, false) => self.check(now, interval_ms, burst),
        }
    }

    fn start(due: i64, now: Timestamp, interval_ms: i64, burst: i64) -> Result<i64, Timestamp> {
        let tolerance = interval_ms * (burst - 1).max(0);
        // Nothing is ever due later than that: the clock was set back, and nobody waits until it is where it was.
        let due = if due - now.0 > tolerance + interval_ms { now.0 } else { due };
        let start = due.max(now.0);
        if start - now.0 > tolerance { Err(Timestamp(start - tolerance)) } else { Ok(start) }
    }
}

/// Something counted per source address: failed authentications, exchanges of codes.
pub struct PerSource(Cache<IpAddr, Arc<Rate>>);

impl Default for PerSource {
    fn default() -> Self {
        Self(Cache::new(SOURCES))
    }
}

impl PerSource {
    /// Counts one. An error says that the source has had its share, and when its next one is free.
    pub fn note(&self, source: IpAddr, now: Timestamp, per_minute: u32) -> Result<(), Timestamp> {
        let source = counted_as(source);
        let rate = self.0.get(&source).unwrap_or_else(|| {
            let rate = Arc::new(Rate::default());
            self.0.insert(source, rate.clone());
            rate
        });
        let (interval_ms, burst) = pace(per_minute);
        rate.admit(now, interval_ms, burst)
    }

    /// Whether one more would be too many; counts nothing.
    pub fn check(&self, source: IpAddr, now: Timestamp, per_minute: u32) -> Result<(), Timestamp> {
        let Some(rate) = self.0.get(&counted_as(source)) else { return Ok(()) };
        let (interval_ms, burst) = pace(per_minute);
        rate.check(now, interval_ms, burst)
    }
}

/// So many in a day of UTC. The day and the count are one number: a new day counts from nothing.
#[derive(Debug, Default)]
pub struct Daily(AtomicU64);

impl Daily {
    const DAY_MS: i64 = 86_400_000;

    /// How many of today are counted.
    pub fn used(&self, now: Timestamp) -> u32 {
        let counted = self.0.load(Ordering::Relaxed);
        if counted >> 32 == Self::day(now) { counted as u32 } else { 0 }
    }

    /// Counts one, or says when the next one is free; 0 is no limit, and is counted all the same.
    pub fn admit(&self, now: Timestamp, limit: u32) -> Result<(), Timestamp> {
        let today = Self::day(now);
        let count = |counted: u64| {
            let used = if counted >> 32 == today { counted as u32 } else { 0 };
            (limit == 0 || used < limit).then(|| today << 32 | u64::from(used.saturating_add(1)))
        };
        let counted = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        counted.map(|_| ()).map_err(|_| Timestamp((now.0.div_euclid(Self::DAY_MS) + 1) * Self::DAY_MS))
    }

    fn day(now: Timestamp) -> u64 {
        now.0.div_euclid(Self::DAY_MS).unsigned_abs() & u64::from(u32::MAX)
    }
}

/// One customer of a network gets 2⁶⁴ addresses of IPv6: they count as one source.
pub(crate) fn counted_as(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

/// The interval in milliseconds and the burst of so many a minute.
pub(crate) fn pace(per_minute: u32) -> (i64, i64) {
    let per_minute = i64::from(per_minute.max(1));
    ((60_000 / per_minute).max(1), per_minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_8_addresses_of_one_network_are_one_source() {
        let counted = |text: &str| counted_as(text.parse().unwrap()).to_string();
        assert_eq!(counted("2001:db8:1:2:3:4:5:6"), counted("2001:db8:1:2:ffff::1"));
        assert_ne!(counted("2001:db8:1:2::1"), counted("2001:db8:1:3::1"));
        assert_eq!(counted("::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn places_are_limited_and_given_back() {
        let count = Arc::new(Count::default());
        let places: Vec<_> = (0..3).map(|_| count.enter(2)).collect();
        assert_eq!(places.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
        drop(places);
        assert_eq!(count.current(), 0);
    }

    #[test]
    fn those_who_have_a_place_are_counted_once_each() {
        let (busy, one, other) = (Arc::new(Count::default()), Arc::new(Count::default()), Arc::new(Count::default()));
        let first = one.enter_among(2, &busy);
        let second = one.enter_among(2, &busy);
        assert!(one.enter_among(2, &busy).is_none());
        assert_eq!(busy.current(), 1);
        let third = other.enter_among(2, &busy);
        assert_eq!(busy.current(), 2);
        drop(first);
        assert_eq!(busy.current(), 2, "it has another one");
        drop((second, third));
        assert_eq!((busy.current(), one.current(), other.current()), (0, 0, 0));
    }

    #[test]
    fn key_8_ten_failures_a_minute_are_free_and_then_one_every_six_seconds() {
        let failures = PerSource::default();
        let source = IpAddr::from([127, 0, 0, 1]);
        let other = IpAddr::from([127, 0, 0, 2]);
        let note = |source, ms: i64| failures.note(source, Timestamp(1_000_000 + ms), 10);
        let free_at = |ms: i64| Err(Timestamp(1_000_000 + ms));
        assert!((0..10).all(|_| note(source, 0).is_ok()));
        assert_eq!(note(source, 0), free_at(6_000));
        assert_eq!(note(source, 5_999), free_at(6_000));
        assert_eq!(note(source, 6_000), Ok(()));
        assert_eq!(note(source, 6_000), free_at(12_000));
        assert_eq!(note(other, 6_000), Ok(()));
    }

    #[test]
    fn a_clock_that_is_set_back_locks_nobody_out() {
        let rate = Rate::default();
        let (interval_ms, burst) = pace(2);
        let hour = 3_600_000;
        assert!((0..2).all(|_| rate.admit(Timestamp(hour), interval_ms, burst).is_ok()));
        assert_eq!(rate.admit(Timestamp(hour), interval_ms, burst), Err(Timestamp(hour + 30_000)));
        assert!((0..2).all(|_| rate.admit(Timestamp(0), interval_ms, burst).is_ok()));
        assert_eq!(rate.admit(Timestamp(0), interval_ms, burst), Err(Timestamp(30_000)), "it counts anew");
    }

    #[test]
    fn a_day_is_one_of_utc_and_counts_from_nothing() {
        let (daily, day) = (Daily::default(), 86_400_000);
        let at = |ms: i64| Timestamp(20_000 * day + ms);
        assert!((0..2).all(|_| daily.admit(at(0), 2).is_ok()));
        assert_eq!(daily.admit(at(day - 1), 2), Err(at(day)), "free again at midnight");
        assert_eq!(daily.used(at(day - 1)), 2, "what was refused is not counted");
        assert_eq!((daily.used(at(day)), daily.admit(at(day), 2), daily.used(at(day))), (0, Ok(()), 1));
        assert!((0..10).all(|_| daily.admit(at(day), 0).is_ok()), "no limit");
        assert_eq!(daily.used(at(day)), 11);
    }

    #[test]
    fn key_8_a_look_at_the_limit_counts_nothing() {
        let failures = PerSource::default();
        let source = IpAddr::from([127, 0, 0, 1]);
        let now = Timestamp(1_000_000);
        assert!((0..5).all(|_| failures.check(source, now, 2).is_ok()), "a source nobody knows");
        assert_eq!(failures.note(source, now, 2), Ok(()));
        assert!((0..5).all(|_| failures.check(source, now, 2).is_ok()));
        assert_eq!(failures.note(source, now, 2), Ok(()));
        assert_eq!(failures.check(source, now, 2), Err(Timestamp(1_030_000)));
        assert_eq!(failures.check(source, Timestamp(1_030_000), 2), Ok(()));
    }
}
