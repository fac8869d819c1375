//! Identifiers we make ourselves. All of them come from the system's random source.

use std::cell::RefCell;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clock::Timestamp;

const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// What each character of an id stands for.
const PLACES: [u8; 256] = {
    let mut places = [0; 256];
    let mut place = 0;
    while place < CROCKFORD.len() {
        places[CROCKFORD[place] as usize] = place as u8;
        place += 1;
    }
    places
};

/// One admitted request or turn: `gen-` and 26 Crockford base32 characters of 48 bits of milliseconds and 80 random
/// bits, so that ids sort by time. Primary key of everything that is remembered about the request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GenerationId([u8; 30]);

impl GenerationId {
    pub fn new(now: Timestamp) -> Self {
        Self::from_parts(now, pooled())
    }

    fn from_parts(now: Timestamp, random: [u8; 10]) -> Self {
        let mut text = *b"gen-00000000000000000000000000";
        text[4..].copy_from_slice(&ordered(now, random));
        Self(text)
    }

    /// The smallest id of an instant: ids are ordered by time, so it bounds a range of them.
    pub fn first_at(instant: Timestamp) -> Self {
        Self::from_parts(instant, [0; 10])
    }

    /// This one, or the next after `other` where it would come before that: what begins one after the other, maybe in the
    /// same millisecond, is then read back in that order.
    #[must_use]
    pub fn after(self, other: Self) -> Self {
        if self > other {
            return self;
        }
        let mut next = other;
        for character in next.0[4..].iter_mut().rev() {
            let place = usize::from(PLACES[usize::from(*character)]) + 1;
            *character = CROCKFORD[place % CROCKFORD.len()];
            if place < CROCKFORD.len() {
                break;
            }
        }
        next
    }

    /// What it is made of, for those who want other names that are as much one's own: the time, and 80 random bits.
    pub fn bits(&self) -> u128 {
        self.0[4..].iter().fold(0, |bits, character| bits << 5 | u128::from(PLACES[usize::from(*character)]))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("made of ASCII characters")
    }

    /// Its characters, for those who write them into something: as a text, they are looked at each time.
    pub fn as_bytes(&self) -> &[u8; 30] {
        &self.0
    }

    /// Reads an id back; `None` for anything that is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 30] = text.as_bytes().try_into().ok()?;
        let valid = bytes.starts_with(b"gen-") && bytes[4..].iter().all(|byte| CROCKFORD.contains(byte));
        valid.then_some(Self(bytes))
    }
}

impl Serialize for GenerationId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for GenerationId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not the id of a generation"))
    }
}

impl fmt::Display for GenerationId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for GenerationId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A file that somebody keeps here: `file_` and the same 26 characters, so that files sort by the time they came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId([u8; 31]);

impl FileId {
    pub fn new(now: Timestamp) -> Self {
        let mut text = *b"file_00000000000000000000000000";
        text[5..].copy_from_slice(&ordered(now, pooled()));
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("made of ASCII characters")
    }

    /// Reads an id back; `None` for anything that is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 31] = text.as_bytes().try_into().ok()?;
        let valid = bytes.starts_with(b"file_") && bytes[5..].iter().all(|byte| CROCKFORD.contains(byte));
        valid.then_some(Self(bytes))
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// 48 bits of milliseconds and 80 random ones in Crockford base32.
fn ordered(now: Timestamp, random: [u8; 10]) -> [u8; 26] {
    let millis = u128::from(u64::try_from(now.0).unwrap_or(0) & 0xFFFF_FFFF_FFFF);
    let mut low = [0_u8; 16];
    low[6..].copy_from_slice(&random);
    let value = (millis << 80) | u128::from_be_bytes(low);
    let mut text = [0; 26];
    for (place, character) in text.iter_mut().enumerate() {
        let shift = 5 * (25 - place);
        *character = CROCKFORD[((value >> shift) & 31) as usize];
    }
    text
}

/// Names a request that never became a generation: `req_` and 24 base62 characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId([u8; 28]);

impl RequestId {
    pub fn new() -> Self {
        let mut text = *b"req_000000000000000000000000";
        base62_fill(&mut text[4..]);
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("made of ASCII characters")
    }
}

impl Default for RequestId {
    fn default() -> Self {
        Self::new()
    }
}

/// Random bytes from the system. A machine that cannot give them cannot run a gateway, hence no `Result`.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).expect("the system's random source works");
    bytes
}

/// Random bytes for ids and for what must only be different each time, taken from a store of the thread's own: a system
/// call for every request would be the dearest part of its id. Keys and codes ask the system each time ([`random`]).
pub fn pooled<const N: usize>() -> [u8; N] {
    const SIZE: usize = 1024;
    thread_local! {
        static POOL: RefCell<([u8; SIZE], usize)> = const { RefCell::new(([0; SIZE], SIZE)) };
    }
    POOL.with_borrow_mut(|(bytes, used)| {
        if *used + N > SIZE {
            *bytes = random();
            *used = 0;
        }
        let mut out = [0; N];
        out.copy_from_slice(&bytes[*used..*used + N]);
        *used += N;
        out
    })
}

/// `value` in base62, most significant digit first, padded with zeros to fill `out`.
pub(crate) fn base62(mut value: Vec<u8>, out: &mut [u8]) {
    for place in out.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in &mut value {
            let part = (remainder << 8) | u32::from(*byte);
            *byte = (part / 62) as u8;
            remainder = part % 62;
        }
        *place = BASE62[remainder as usize];
    }
}

pub(crate) fn is_base62(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_alphanumeric)
}

/// Fills `out` with random base62 characters; bytes that would favour some characters are thrown away.
fn base62_fill(out: &mut [u8]) {
    let mut filled = 0;
    while filled < out.len() {
        for byte in pooled::<32>() {
            if byte < 248 && filled < out.len() {
                out[filled] = BASE62[usize::from(byte % 62)];
                filled += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn led_5_an_id_carries_its_time_and_sorts_by_it() {
        // The first ten characters are Crockford base32 of the milliseconds, as in any ULID.
        let early = GenerationId::from_parts(Timestamp(1_700_000_000_000), [0xFF; 10]);
        let late = GenerationId::from_parts(Timestamp(1_700_000_000_001), [0; 10]);
        assert_eq!(early.as_str(), "gen-01HF7YAT00ZZZZZZZZZZZZZZZZ");
        assert!(early < late);
        assert_eq!(GenerationId::parse(early.as_str()), Some(early));
    }

    #[test]
    fn what_begins_later_in_one_millisecond_comes_later() {
        let at = |random| GenerationId::from_parts(Timestamp(1_700_000_000_000), random);
        let (low, high) = (at([0; 10]), at([0xFF; 10]));
        assert_eq!((high.after(low), low.after(low).as_str()), (high, "gen-01HF7YAT000000000000000001"));
        assert_eq!(low.after(high).as_str(), "gen-01HF7YAT010000000000000000", "after the last of a millisecond");
        assert!(low.after(at([0, 0, 0, 0, 0, 0, 0, 0, 0, 31])) > at([0, 0, 0, 0, 0, 0, 0, 0, 0, 31]));
        let mut ids = vec![low];
        (0..1_000).for_each(|_| ids.push(GenerationId::new(Timestamp(1_700_000_000_000)).after(ids[ids.len() - 1])));
        assert!(ids.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn an_id_has_the_bits_that_it_was_made_of() {
        let id = GenerationId::from_parts(Timestamp(0x0123_4567_89AB), [0xCD, 0xEF, 1, 2, 3, 4, 5, 6, 7, 0xF8]);
        assert_eq!(id.bits(), 0x0123_4567_89AB_CDEF_0102_0304_0506_07F8);
    }

    #[test]
    fn what_is_not_an_id_is_not_read_as_one() {
        for text in [
            "",
            "gen-",
            "gen-01HF7YAT00ZZZZZZZZZZZZZZZ",
            "gen-01HF7YAT00ZZZZZZZZZZZZZZZU",
            "req-01HF7YAT00ZZZZZZZZZZZZZZZZ",
        ] {
            assert_eq!(GenerationId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn files_sort_by_their_time() {
        let (early, late) = (FileId::new(Timestamp(1_700_000_000_000)), FileId::new(Timestamp(1_700_000_000_001)));
        assert!(early < late);
        assert!(early.as_str().starts_with("file_01HF7YAT00"), "{early}");
        assert_eq!(FileId::parse(early.as_str()), Some(early));
        for text in ["", "file_", "file-01HF7YAT00ZZZZZZZZZZZZZZZZ", "file_01HF7YAT00ZZZZZZZZZZZZZZZU"] {
            assert_eq!(FileId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn ids_of_one_instant_differ() {
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| GenerationId::new(Timestamp(1))).collect();
        assert_eq!(ids.len(), 10_000);
    }

    #[test]
    fn request_ids_differ() {
        let (one, other) = (RequestId::new(), RequestId::new());
        assert_ne!(one, other);
        assert!(one.as_str().starts_with("req_") && is_base62(&one.as_str().as_bytes()[4..]));
    }

    #[test]
    fn base62_counts_as_numbers_do() {
        let mut out = [0; 3];
        base62(vec![62], &mut out);
        assert_eq!(&out, b"010");
        base62(vec![0xFF], &mut out); // 255 = 4 × 62 + 7
        assert_eq!(&out, b"047");
    }
}
