//! Answers that are kept to be given once more to the same request of the same key. Only those who ask for it get that;
//! without the header nothing here is done but looking for it.
//!
//! Start with [`Terms`], what a request asks for. What a hit sends is made in `relay::replay`.

mod recording;
mod terms;

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lru::LruCache;
use tidegate_core::{GenerationId, KeyHash, Timestamp};

pub use recording::Recording;
pub use terms::{Preset, Terms, key};

use crate::keys::DigestHasher;

/// Longer answers are not kept.
pub const LARGEST: usize = 8 << 20;
/// What an entry takes besides its bytes, roughly.
const OVERHEAD: usize = 512;
/// How often what has expired is let go, whether or not its room is needed.
const SWEEP: Duration = Duration::from_secs(10);

/// An answer as it went out, routing metadata apart.
#[derive(Debug)]
pub struct Entry {
    /// A whole answer, or all frames of a stream.
    pub body: Bytes,
    /// The request it was made for.
    pub source: GenerationId,
    /// What had to be left out on the way to it.
    pub warnings: Vec<String>,
    pub kept: Timestamp,
    pub ttl: Duration,
}

impl Entry {
    fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.kept.plus(self.ttl)
    }

    /// Whole seconds since it was kept, and until it expires: together its lifetime.
    pub fn age_and_rest(&self, now: Timestamp) -> (u64, u64) {
        let age = now.since(self.kept).as_secs();
        (age, self.ttl.as_secs().saturating_sub(age))
    }

    fn weight(&self) -> usize {
        self.body.len() + self.warnings.iter().map(String::len).sum::<usize>() + OVERHEAD
    }
}

/// The answers of this process, within their room.
pub struct Answers {
    entries: Mutex<Entries>,
    room: AtomicUsize,
    /// Bytes of streams that are being recorded.
    recording: AtomicUsize,
    swept: AtomicI64,
}

/// The order of use is the crate's; what all of them weigh is ours to know.
struct Entries {
    kept: LruCache<KeyHash, Arc<Entry>, BuildHasherDefault<DigestHasher>>,
    weight: usize,
}

impl Entries {
    fn remove(&mut self, key: &KeyHash) {
        if let Some(entry) = self.kept.pop(key) {
            self.weight -= entry.weight();
        }
    }

    /// Those that were not used for longest go, until the others fit.
    fn fit(&mut self, room: usize) {
        while self.weight > room
            && let Some((_, entry)) = self.kept.pop_lru()
        {
            self.weight -= entry.weight();
        }
    }
}

impl Answers {
    /// None are kept in a room of 0 bytes.
    pub fn new(room: usize) -> Arc<Self> {
        let kept = LruCache::unbounded_with_hasher(BuildHasherDefault::default());
        let entries = Mutex::new(Entries { kept, weight: 0 });
        let (room, recording, swept) = (AtomicUsize::new(room), AtomicUsize::new(0), AtomicI64::new(0));
        Arc::new(Self { entries, room, recording, swept })
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn resize(&self, room: usize) {
        // Under the lock: nothing is added by the old measure after this.
        let mut entries = self.entries();
        self.room.store(room, Ordering::Relaxed);
        entries.fit(room);
    }

    fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    pub fn is_on(&self) -> bool {
        self.room() > 0
    }

    /// What is kept for a request and has not expired.
    pub fn find(&self, key: &KeyHash, now: Timestamp) -> Option<Arc<Entry>> {
        let mut entries = self.entries();
        let entry = entries.kept.get(key)?.clone();
        if !entry.is_fresh(now) {
            entries.remove(key);
            return None;
        }
        Some(entry)
    }

    /// Keeps an answer in place of the one that was kept for the same request; one that is too large is left.
    pub fn keep(&self, key: KeyHash, entry: Entry) {
        let mut entries = self.entries();
        let (weight, room) = (entry.weight(), self.room());
        if entry.body.len() > LARGEST || weight > room {
            return;
        }
        entries.remove(&key);
        // First, so that the room is not exceeded for a moment.
        entries.fit(room - weight);
        entries.weight += weight;
        entries.kept.put(key, Arc::new(entry));
    }

    pub fn remove(&self, key: &KeyHash) {
        self.entries().remove(key);
    }

    /// Lets go what has expired, now and then.
    pub fn sweep(&self, now: Timestamp) {
        if now.since(Timestamp(self.swept.load(Ordering::Relaxed))) < SWEEP {
            return;
        }
        self.swept.store(now.0, Ordering::Relaxed);
        let mut entries = self.entries();
        let over = entries.kept.iter().filter(|(_, entry)| !entry.is_fresh(now)).map(|(key, _)| *key);
        let over: Vec<KeyHash> = over.collect();
        over.iter().for_each(|key| entries.remove(key));
    }

    pub fn bytes_held(&self) -> usize {
        self.entries().weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    fn entry(bytes: usize, ttl: u64) -> Entry {
        let (body, source) = (Bytes::from(vec![b'x'; bytes]), GenerationId::new(NOW));
        Entry { body, source, warnings: Vec::new(), kept: NOW, ttl: Duration::from_secs(ttl) }
    }

    fn number(number: usize) -> KeyHash {
        KeyHash::of(&number.to_le_bytes())
    }

    fn after(millis: i64) -> Timestamp {
        Timestamp(NOW.0 + millis)
    }

    #[test]
    fn an_answer_lives_as_long_as_was_asked_and_no_longer() {
        let answers = Answers::new(1 << 20);
        answers.keep(number(1), entry(10, 60));
        let found = answers.find(&number(1), after(59_999)).expect("it is fresh");
        assert_eq!(found.age_and_rest(after(59_999)), (59, 1));
        assert_eq!(found.age_and_rest(NOW), (0, 60));
        assert!(answers.find(&number(2), NOW).is_none());
        assert!(answers.find(&number(1), after(60_000)).is_none());
        assert_eq!(answers.bytes_held(), 0, "what has expired is let go");
    }

    #[test]
    fn what_has_expired_goes_without_being_asked_for() {
        let answers = Answers::new(1 << 20);
        answers.keep(number(1), entry(10, 5));
        answers.keep(number(2), entry(10, 60));
        answers.sweep(after(4_000));
        answers.sweep(after(6_000));
        assert!(answers.bytes_held() > 2 * OVERHEAD, "not looked at again so soon");
        answers.sweep(after(14_000));
        assert_eq!(answers.bytes_held(), 10 + OVERHEAD);
    }

    #[test]
    fn the_room_is_never_exceeded_and_what_was_not_used_for_longest_goes_first() {
        // Room for three.
        let weight = 1_000 + OVERHEAD;
        let answers = Answers::new(3 * weight);
        let kept = |numbers: &[usize]| numbers.iter().all(|count| answers.find(&number(*count), NOW).is_some());
        for count in 1..=3 {
            answers.keep(number(count), entry(1_000, 60));
        }
        assert_eq!(answers.bytes_held(), 3 * weight);
        assert!(kept(&[1]), "used");
        answers.keep(number(4), entry(1_000, 60));
        assert!(answers.find(&number(2), NOW).is_none() && kept(&[3, 1, 4]));
        answers.keep(number(3), entry(500, 60));
        assert_eq!(answers.bytes_held(), 3 * weight - 500, "one takes the place of another");
        answers.keep(number(5), entry(2_000, 60));
        assert!(answers.bytes_held() <= 3 * weight && kept(&[3, 5]));
        assert!(answers.find(&number(1), NOW).is_none() && answers.find(&number(4), NOW).is_none());
        answers.resize(weight);
        assert!(answers.bytes_held() <= weight && answers.find(&number(5), NOW).is_none());
        answers.keep(number(6), entry(1_001, 60));
        assert!(answers.find(&number(6), NOW).is_none(), "larger than the room");
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let answers = Answers::new(64 << 20);
        answers.keep(number(1), entry(LARGEST, 60));
        answers.keep(number(2), entry(LARGEST + 1, 60));
        assert!(answers.find(&number(1), NOW).is_some() && answers.find(&number(2), NOW).is_none());
        let none = Answers::new(0);
        none.keep(number(1), entry(1, 60));
        assert!(!none.is_on() && none.find(&number(1), NOW).is_none());
    }
}
