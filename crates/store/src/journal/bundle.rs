//! Letters that are written together for one destination stand in one row: what a row costs is paid once for all of them.

use std::ops::Range;

use tidegate_core::GenerationId;
use tidegate_core::map::Map;

use super::recent::Fresh;
use super::ring::Posted;
use super::{Entry, Letter, Payload};

/// Letters and bytes of one row at most; a longer letter has a row of its own.
const MOST: usize = 64;
const MOST_BYTES: usize = 256 << 10;

/// A letter, and what is written of it.
pub(super) type Written<'a> = (&'a Letter, Text<'a>);

/// One after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text<'a>(&'a [u8], &'a [u8]);

impl Text<'_> {
    fn len(&self) -> usize {
        self.0.len() + self.1.len()
    }
}

/// Letters, with the text of the call for those that have no words of their own.
pub(super) fn written<'a>(letters: &[&'a Letter], entries: &[Entry<'a>]) -> Vec<Written<'a>> {
    let mut texts: Map<GenerationId, &[u8]> = Map::default();
    if letters.iter().any(|letter| matches!(letter.payload, Payload::Record(_))) {
        for entry in entries {
            if let Entry::Settle(id, text) = entry {
                // The first settling counts.
                texts.entry(*id).or_insert(text.as_bytes());
            }
        }
    }
    let text = |letter: &'a Letter| match &letter.payload {
        Payload::Own(payload) => Text(payload, &[]),
        // One whose call is not settled here says nothing to anybody, and is given up as that.
        Payload::Record(before) => Text(before, texts.get(&letter.generation).copied().unwrap_or_default()),
    };
    letters.iter().map(|letter| (*letter, text(letter))).collect()
}

/// What stands in one row.
#[derive(Debug)]
pub(super) struct Bundle {
    pub id: i64,
    pub destination: String,
    /// Of a letter that is alone; others say it themselves.
    pub generation: String,
    pub letters: u32,
    pub at: i64,
    /// A single letter as it is, several one after the other.
    pub payload: Vec<u8>,
    /// The same as it is to be sent, where all of it is there.
    pub fresh: Option<Fresh>,
}

impl Bundle {
    fn new(id: i64, letters: &[Written<'_>]) -> Option<Self> {
        let (first, text) = letters.first()?;
        let is_alone = letters.len() == 1;
        let payload = if is_alone {
            [text.0, text.1].concat()
        } else {
            together(letters.iter().map(|(letter, text)| (letter.generation, *text)))
        };
        let at = letters.iter().map(|(letter, _)| letter.at.0).min()?;
        let told = letters.iter().map(|(letter, _)| Some((letter.generation, letter.told.clone()?)));
        let bytes = payload.len() as u64;
        let fresh = told.collect::<Option<_>>().map(|letters| Fresh { at, bytes, is_on_sheet: false, letters });
        Some(Self {
            id,
            destination: first.destination.clone(),
            generation: if is_alone { first.generation.as_str().to_owned() } else { String::new() },
            letters: letters.len() as u32,
            at,
            payload,
            fresh,
        })
    }
}

impl Bundle {
    /// Letters that have no words of their own, with the texts of their calls.
    pub fn again(id: i64, letters: &Posted, told: &[(GenerationId, &str)]) -> Self {
        let texts = told.iter().map(|(generation, text)| (*generation, Text(&letters.before, text.as_bytes())));
        let (generation, payload) = match told {
            [(generation, text)] => (generation.as_str().to_owned(), [&letters.before, text.as_bytes()].concat()),
            _ => (String::new(), together(texts)),
        };
        let (destination, at) = (letters.destination.clone(), letters.at);
        Self { id, destination, generation, letters: told.len() as u32, at, payload, fresh: None }
    }
}

/// Puts letters that have no words of their own together, in their order, in rows from this one on; each with how long the
/// text of its call is, and with what it says.
pub(super) fn posted<'a>(
    letters: impl Iterator<Item = (&'a Letter, [u8; 2], &'a std::sync::Arc<[u8]>, usize)>,
    first: i64,
) -> Vec<(i64, Posted, Fresh)> {
    let mut rows: Vec<(i64, Posted, Fresh)> = Vec::new();
    for (letter, before, told, text) in letters {
        let is_mine = |posted: &Posted| posted.destination == letter.destination && posted.before == before;
        let has_room = |fresh: &Fresh| fresh.letters.len() < MOST && fresh.bytes < MOST_BYTES as u64;
        let mine = rows.iter_mut().rfind(|(_, posted, fresh)| is_mine(posted) && has_room(fresh));
        let row = match mine {
            Some(row) => row,
            None => {
                let destination = letter.destination.clone();
                let posted = Posted { destination, at: letter.at.0, before, generations: Vec::new() };
                let fresh = Fresh { at: letter.at.0, bytes: 0, is_on_sheet: true, letters: Vec::new() };
                rows.push((first + rows.len() as i64, posted, fresh));
                rows.last_mut().expect("it was just put there")
            }
        };
        let (_, posted, fresh) = row;
        (posted.at, fresh.at) = (posted.at.min(letter.at.0), fresh.at.min(letter.at.0));
        posted.generations.push(letter.generation);
        fresh.letters.push((letter.generation, told.clone()));
        fresh.bytes += (before.len() + text) as u64;
    }
    rows
}

/// Puts letters of the same destination together, in their order, in rows from this one on.
pub(super) fn bundles(letters: &[Written<'_>], first: i64) -> Vec<Bundle> {
    let mut open: Vec<(Vec<Written<'_>>, usize)> = Vec::new();
    let mut made = Vec::new();
    for (letter, text) in letters {
        let mine = open.iter_mut().find(|(some, _)| some[0].0.destination == letter.destination);
        match mine {
            None => open.push((vec![(letter, *text)], text.len())),
            Some((some, bytes)) => {
                if some.len() >= MOST || *bytes + text.len() > MOST_BYTES {
                    made.extend(Bundle::new(first + made.len() as i64, some));
                    some.clear();
                    *bytes = 0;
                }
                some.push((letter, *text));
                *bytes += text.len();
            }
        }
    }
    for (some, _) in &open {
        made.extend(Bundle::new(first + made.len() as i64, some));
    }
    made
}

/// Each with its name and its length before it.
fn together<'a>(letters: impl Iterator<Item = (GenerationId, Text<'a>)> + Clone) -> Vec<u8> {
    let length = letters.clone().map(|(generation, text)| 5 + generation.as_str().len() + text.len()).sum();
    let mut bytes = Vec::with_capacity(length);
    for (generation, text) in letters {
        let name = generation.as_str();
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text.0);
        bytes.extend_from_slice(text.1);
    }
    bytes
}

/// The letters of such a row: names, and where they stand. Nothing where it is not what was written.
pub(super) fn apart(bytes: &[u8], letters: u32) -> Option<Vec<(String, Range<usize>)>> {
    let mut found = Vec::with_capacity(letters.min(MOST as u32) as usize);
    let mut at = 0;
    while at < bytes.len() {
        let name_end = at + 1 + usize::from(bytes[at]);
        let name = std::str::from_utf8(bytes.get(at + 1..name_end)?).ok()?;
        let length = u32::from_le_bytes(bytes.get(name_end..name_end + 4)?.try_into().ok()?);
        let (start, end) = (name_end + 4, name_end + 4 + length as usize);
        bytes.get(start..end)?;
        found.push((name.to_owned(), start..end));
        at = end;
    }
    (found.len() == letters as usize).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{GenerationId, Timestamp};

    fn letter(destination: &str, payload: Vec<u8>, at: i64) -> Letter {
        let destination = destination.to_owned();
        Letter {
            destination,
            kind: "webhook",
            generation: GenerationId::new(Timestamp(at)),
            payload: Payload::Own(payload.into()),
            told: None,
            at: Timestamp(at),
        }
    }

    fn own(letter: &Letter) -> &[u8] {
        match &letter.payload {
            Payload::Own(payload) => payload,
            Payload::Record(before) => before,
        }
    }

    fn made(letters: &[Letter], first: i64) -> Vec<Bundle> {
        bundles(&written(&letters.iter().collect::<Vec<_>>(), &[]), first)
    }

    #[test]
    fn a_letter_without_words_of_its_own_says_what_its_call_does() {
        let mut letters = [letter("a", vec![1], 1), letter("a", Vec::new(), 2), letter("b", Vec::new(), 3)];
        letters[1].payload = Payload::Record(*b"r1");
        letters[2].payload = Payload::Record(*b"r2");
        let (mine, other) = (letters[1].generation, GenerationId::new(Timestamp(9)));
        let entries = [
            Entry::Settle(other, "other"),
            Entry::Open(mine, "open"),
            Entry::Settle(mine, "settled"),
            Entry::Settle(mine, "again"),
        ];
        let written = written(&letters.iter().collect::<Vec<_>>(), &entries);
        let texts: Vec<Text<'_>> = written.iter().map(|(_, text)| *text).collect();
        assert_eq!(texts, [Text(&[1], b""), Text(b"r1", b"settled"), Text(b"r2", b"")]);
        let made = bundles(&written, 1);
        let found = apart(&made[0].payload, 2).unwrap();
        assert_eq!(&made[0].payload[found[1].1.clone()], b"r1settled");
        assert_eq!(made[1].payload, b"r2");
    }

    #[test]
    fn letters_of_one_destination_share_a_row_and_come_apart_again() {
        let letters = [
            letter("a", vec![1; 300], 9),
            letter("b", vec![2], 5),
            letter("a", Vec::new(), 7),
            letter("a", vec![3], 8),
        ];
        let made = made(&letters, 5);
        let seen: Vec<_> = made.iter().map(|row| (row.id, row.destination.as_str(), row.letters, row.at)).collect();
        assert_eq!(seen, [(5, "a", 3, 7), (6, "b", 1, 5)]);
        assert_eq!((made[1].generation.as_str(), &made[1].payload), (letters[1].generation.as_str(), &vec![2]));
        let mine = [&letters[0], &letters[2], &letters[3]];
        let found = apart(&made[0].payload, 3).unwrap();
        let found: Vec<_> =
            found.iter().map(|(name, place)| (name.as_str(), &made[0].payload[place.clone()])).collect();
        let expected: Vec<_> = mine.iter().map(|letter| (letter.generation.as_str(), own(letter))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_row_has_its_bounds() {
        let many: Vec<Letter> = (0..130).map(|at| letter("a", vec![0; 10], at)).collect();
        assert_eq!(made(&many, 1).iter().map(|row| row.letters).collect::<Vec<_>>(), [64, 64, 2]);
        let long: Vec<Letter> = (0..3).map(|at| letter("a", vec![0; 100 << 10], at)).collect();
        assert_eq!(made(&long, 1).iter().map(|row| row.letters).collect::<Vec<_>>(), [2, 1]);
        let huge = [letter("a", vec![0; 1 << 20], 0), letter("a", vec![0], 1)];
        assert_eq!(made(&huge, 1).iter().map(|row| row.letters).collect::<Vec<_>>(), [1, 1]);
        assert!(made(&[], 1).is_empty());
    }

    #[test]
    fn what_is_no_bundle_is_nothing() {
        let made = made(&[letter("a", vec![7; 9], 0), letter("a", vec![8; 9], 1)], 1);
        let payload = &made[0].payload;
        assert!(apart(payload, 2).is_some());
        for end in 1..payload.len() {
            assert_eq!(apart(&payload[..end], 2), None, "{end}");
        }
        assert_eq!(apart(payload, 3), None);
        assert_eq!(apart(b"", 1), None);
        assert_eq!(apart(&[255; 40], 1), None);
    }
}
