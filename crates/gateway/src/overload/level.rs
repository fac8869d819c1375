//! How much is refused, decided from measurements. Pure: what is measured and the time come as arguments.

use std::time::Duration;

/// Nothing that was refused is taken again before the cause has been away for this long.
const REST: Duration = Duration::from_secs(10);
/// A look that comes this late counts as all there is. A loop that is as slow answers nobody in time.
const LATEST: Duration = Duration::from_secs(1);
/// A store that takes this long counts as all there is: who waits for a lock of it is given up after that.
const SLOWEST: Duration = Duration::from_secs(2);
/// Looks that must agree before lateness counts: a machine that was stopped for a moment is not overloaded.
const LATE_LOOKS: usize = 3;

/// What is refused, each level with all that stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    #[default]
    Nothing,
    /// Lists, of models too.
    Reads,
    /// Calls of models that cost nothing.
    Free,
    /// New calls of keys that have more under way than the others.
    Greedy,
    /// All new inference.
    Inference,
}

impl Level {
    pub const ALL: [Self; 5] = [Self::Nothing, Self::Reads, Self::Free, Self::Greedy, Self::Inference];

    /// What is refused when so much of something is used.
    fn at(share: Share) -> Self {
        match share.0 {
            950.. => Self::Inference,
            930.. => Self::Greedy,
            900.. => Self::Free,
            800.. => Self::Reads,
            _ => Self::Nothing,
        }
    }

    /// The level of a number; what is no level refuses nothing.
    pub fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    fn lower(self) -> Self {
        Self::of((self as u8).saturating_sub(1))
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Reads => "reads",
            Self::Free => "free",
            Self::Greedy => "fair_share",
            Self::Inference => "inference",
        }
    }
}

/// How much of something is used, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Share(pub u32);

impl Share {
    /// Nothing where there is no limit.
    pub fn of(used: u64, limit: u64) -> Self {
        let thousandths = u128::from(used) * 1000 / u128::from(limit.max(1));
        if limit == 0 { Self(0) } else { Self(u32::try_from(thousandths).unwrap_or(u32::MAX)) }
    }

    fn of_time(taken: Duration, limit: Duration) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self::of(millis(taken), millis(limit))
    }

    pub fn ratio(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

/// What can run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Memory,
    /// The time of the threads that serve.
    Loop,
    /// Places in the queue to the journal.
    Ledger,
    Descriptors,
    Store,
}

impl Resource {
    pub const ALL: [Self; 5] = [Self::Memory, Self::Loop, Self::Ledger, Self::Descriptors, Self::Store];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Loop => "loop",
            Self::Ledger => "ledger",
            Self::Descriptors => "descriptors",
            Self::Store => "store",
        }
    }

    /// The most that is refused for it. Calls of known keys do without the store, so a slow one must not stop them.
    fn most(self) -> Level {
        match self {
            Self::Store => Level::Reads,
            Self::Memory | Self::Loop | Self::Ledger | Self::Descriptors => Level::Inference,
        }
    }
}

/// One look at everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Readings([Share; 5]);

impl Readings {
    pub fn set(&mut self, resource: Resource, share: Share) {
        self.0[resource as usize] = share;
    }

    pub fn late(&mut self, by: Duration) {
        self.set(Resource::Loop, Share::of_time(by, LATEST));
    }

    pub fn store_took(&mut self, time: Duration) {
        self.set(Resource::Store, Share::of_time(time, SLOWEST));
    }

    pub fn of(&self, resource: Resource) -> Share {
        self.0[resource as usize]
    }

    /// What the worst of them asks for, and which that is.
    pub fn worst(&self) -> (Level, Resource) {
        let asked = |resource: Resource| (Level::at(self.of(resource)).min(resource.most()), self.of(resource));
        let worst = Resource::ALL.into_iter().max_by_key(|resource| asked(*resource));
        let worst = worst.unwrap_or(Resource::Memory);
        (asked(worst).0, worst)
    }
}

/// How late looks come for some time: the least of the last few.
#[derive(Debug, Default)]
pub struct Lateness {
    last: [Duration; LATE_LOOKS],
    next: usize,
}

impl Lateness {
    pub fn note(&mut self, late: Duration) -> Duration {
        self.last[self.next] = late;
        self.next = (self.next + 1) % LATE_LOOKS;
        self.last.into_iter().min().unwrap_or_default()
    }
}

/// The level as it is kept: up at once, down one step at a time and only after a rest.
#[derive(Debug, Default)]
pub struct Ladder {
    level: Level,
    /// Since when less is asked for.
    calm_since: Option<Duration>,
}

impl Ladder {
    /// The level after a look that asks for one. `now` only runs forward.
    pub fn look(&mut self, asked: Level, now: Duration) -> Level {
        if asked >= self.level {
            self.level = asked;
            self.calm_since = None;
        } else if now.saturating_sub(*self.calm_since.get_or_insert(now)) >= REST {
            self.level = self.level.lower();
            self.calm_since = Some(now);
        }
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Level; 5] = Level::ALL;

    type Set<'a> = &'a [(Resource, u32)];

    fn readings(set: Set<'_>) -> Readings {
        let mut readings = Readings::default();
        set.iter().for_each(|(resource, share)| readings.set(*resource, Share(*share)));
        readings
    }

    #[test]
    fn ovl_2_levels_begin_at_80_90_93_and_95_percent() {
        let cases = [
            (0, Level::Nothing),
            (799, Level::Nothing),
            (800, Level::Reads),
            (899, Level::Reads),
            (900, Level::Free),
            (929, Level::Free),
            (930, Level::Greedy),
            (949, Level::Greedy),
            (950, Level::Inference),
            (1_000, Level::Inference),
            (u32::MAX, Level::Inference),
        ];
        for (share, level) in cases {
            assert_eq!(Level::at(Share(share)), level, "{share}");
        }
    }

    #[test]
    fn shares_are_rounded_down_and_no_limit_is_never_used_up() {
        let cases = [(0, 100, 0), (80, 100, 800), (799, 1_000, 799), (7_999, 10_000, 799), (3, 2, 1_500), (9, 0, 0)];
        for (used, limit, share) in cases {
            assert_eq!(Share::of(used, limit), Share(share), "{used} of {limit}");
        }
        assert_eq!(Share::of(u64::MAX, 1), Share(u32::MAX));
    }

    #[test]
    fn ovl_1_the_worst_counts() {
        use Resource::{Descriptors, Ledger, Loop, Memory, Store};
        let cases: [(Set<'_>, (Level, Resource)); 6] = [
            (&[(Memory, 810), (Descriptors, 931)], (Level::Greedy, Descriptors)),
            (&[(Memory, 951), (Descriptors, 931)], (Level::Inference, Memory)),
            (&[(Ledger, 900), (Loop, 899)], (Level::Free, Ledger)),
            (&[(Loop, 2_000)], (Level::Inference, Loop)),
            // A store that does not answer is no reason to refuse calls that do not need it.
            (&[(Store, 5_000)], (Level::Reads, Store)),
            (&[(Store, 5_000), (Memory, 900)], (Level::Free, Memory)),
        ];
        for (set, expected) in cases {
            assert_eq!(readings(set).worst(), expected, "{set:?}");
        }
        assert_eq!(Readings::default().worst().0, Level::Nothing);
    }

    #[test]
    fn times_are_measured_against_a_second_for_the_loop_and_two_for_the_store() {
        let mut readings = Readings::default();
        readings.late(Duration::from_millis(930));
        readings.store_took(Duration::from_millis(1_600));
        assert_eq!((readings.of(Resource::Loop), readings.of(Resource::Store)), (Share(930), Share(800)));
    }

    #[test]
    fn one_late_look_is_not_a_slow_loop() {
        let mut lateness = Lateness::default();
        let late = [0, 9_000, 0, 0, 950, 960, 970, 980, 10].map(|late| lateness.note(Duration::from_millis(late)));
        assert_eq!(late.map(|late| late.as_millis()), [0, 0, 0, 0, 0, 0, 950, 960, 10]);
    }

    #[test]
    fn ovl_2_the_way_down_takes_ten_seconds_a_step() {
        let mut ladder = Ladder::default();
        let mut look = |asked: u8, ms: u64| ladder.look(Level::of(asked), Duration::from_millis(ms)) as u8;
        assert_eq!([look(0, 0), look(3, 250), look(4, 500)], [0, 3, 4], "up at once");
        assert_eq!([look(2, 1_000), look(0, 10_999), look(0, 11_000)], [4, 4, 3]);
        assert_eq!([look(2, 11_250), look(2, 20_999), look(2, 21_000)], [3, 3, 2]);
        // What is asked for again holds it there, and the rest begins anew.
        assert_eq!([look(0, 30_000), look(2, 30_900), look(0, 31_000), look(0, 40_999)], [2, 2, 2, 2]);
        assert_eq!([look(0, 41_000), look(0, 51_000), look(0, 61_000)], [1, 0, 0]);
    }

    proptest! {
        #[test]
        fn ovl_2_a_level_goes_down_only_after_ten_seconds_below_it(
            looks in prop::collection::vec((0_u8..5, 0_u64..4_000), 1..200),
        ) {
            let mut ladder = Ladder::default();
            let mut now = Duration::ZERO;
            let mut seen: Vec<(Duration, Level, Level)> = Vec::new();
            for (asked, after) in looks {
                now += Duration::from_millis(after);
                let before = seen.last().map_or(Level::Nothing, |(.., level)| *level);
                let asked = ALL[usize::from(asked)];
                let level = ladder.look(asked, now);
                prop_assert!(level >= asked, "never less than what is asked for");
                prop_assert!(level <= before.max(asked), "never more than what was asked for");
                seen.push((now, asked, level));
                if level < before {
                    prop_assert_eq!(level as u8 + 1, before as u8, "one step");
                    let from = now.saturating_sub(REST);
                    // Every look of the last ten seconds asked for less than the level that ends, and it was held.
                    let recent = seen.iter().filter(|(at, ..)| *at > from);
                    for (at, asked, held) in recent.take_while(|(at, ..)| *at < now) {
                        prop_assert!(*asked < before && *held == before, "{:?} at {:?}", asked, at);
                    }
                    prop_assert!(seen.iter().any(|(at, ..)| *at <= from), "somebody looked ten seconds ago");
                }
            }
        }
    }
}
