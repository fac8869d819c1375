//! Letters that are written together for one destination stand in one row: what a row costs is paid once for all of them.

use std::ops::Range;

use super::Letter;
use super::recent::Fresh;

/// Letters and bytes of one row at most; a longer letter has a row of its own.
const MOST: usize = 64;
const MOST_BYTES: usize = 256 << 10;

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
    /// The same as it was before it was sealed, where all of it is there.
    pub fresh: Option<Fresh>,
}

impl Bundle {
    fn new(id: i64, letters: &[&Letter]) -> Option<Self> {
        let first = letters.first()?;
        let is_alone = letters.len() == 1;
        let payload = if is_alone { first.payload.to_vec() } else { together(letters) };
        let at = letters.iter().map(|letter| letter.at.0).min()?;
        let told = letters.iter().map(|letter| Some((letter.generation, letter.told.clone()?)));
        let bytes = payload.len() as u64;
        let fresh = told.collect::<Option<_>>().map(|letters| Fresh { at, bytes, letters });
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

/// Puts letters of the same destination together, in their order, in rows from this one on.
pub(super) fn bundles(letters: &[Letter], first: i64) -> Vec<Bundle> {
    let mut open: Vec<(Vec<&Letter>, usize)> = Vec::new();
    let mut made = Vec::new();
    for letter in letters {
        let mine = open.iter_mut().find(|(some, _)| some[0].destination == letter.destination);
        match mine {
            None => open.push((vec![letter], letter.payload.len())),
            Some((some, bytes)) => {
                if some.len() >= MOST || *bytes + letter.payload.len() > MOST_BYTES {
                    made.extend(Bundle::new(first + made.len() as i64, some));
                    some.clear();
                    *bytes = 0;
                }
                some.push(letter);
                *bytes += letter.payload.len();
            }
        }
    }
    for (some, _) in &open {
        made.extend(Bundle::new(first + made.len() as i64, some));
    }
    made
}

/// Each with its name and its length before it.
fn together(letters: &[&Letter]) -> Vec<u8> {
    let length = letters.iter().map(|letter| 5 + letter.generation.as_str().len() + letter.payload.len()).sum();
    let mut bytes = Vec::with_capacity(length);
    for letter in letters {
        let name = letter.generation.as_str();
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&(letter.payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&letter.payload);
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
            generation: GenerationId::new(Timestamp(at)),
            payload: payload.into(),
            told: None,
            at: Timestamp(at),
        }
    }

    #[test]
    fn letters_of_one_destination_share_a_row_and_come_apart_again() {
        let letters = [
            letter("a", vec![1; 300], 9),
            letter("b", vec![2], 5),
            letter("a", Vec::new(), 7),
            letter("a", vec![3], 8),
        ];
        let made = bundles(&letters, 5);
        let seen: Vec<_> = made.iter().map(|row| (row.id, row.destination.as_str(), row.letters, row.at)).collect();
        assert_eq!(seen, [(5, "a", 3, 7), (6, "b", 1, 5)]);
        assert_eq!(
            (made[1].generation.as_str(), &made[1].payload),
            (letters[1].generation.as_str(), &letters[1].payload.to_vec())
        );
        let mine = [&letters[0], &letters[2], &letters[3]];
        let found = apart(&made[0].payload, 3).unwrap();
        let found: Vec<_> =
            found.iter().map(|(name, place)| (name.as_str(), &made[0].payload[place.clone()])).collect();
        let expected: Vec<_> = mine.iter().map(|letter| (letter.generation.as_str(), &*letter.payload)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_row_has_its_bounds() {
        let many: Vec<Letter> = (0..130).map(|at| letter("a", vec![0; 10], at)).collect();
        assert_eq!(bundles(&many, 1).iter().map(|row| row.letters).collect::<Vec<_>>(), [64, 64, 2]);
        let long: Vec<Letter> = (0..3).map(|at| letter("a", vec![0; 100 << 10], at)).collect();
        assert_eq!(bundles(&long, 1).iter().map(|row| row.letters).collect::<Vec<_>>(), [2, 1]);
        let huge = [letter("a", vec![0; 1 << 20], 0), letter("a", vec![0], 1)];
        assert_eq!(bundles(&huge, 1).iter().map(|row| row.letters).collect::<Vec<_>>(), [1, 1]);
        assert!(bundles(&[], 1).is_empty());
    }

    #[test]
    fn what_is_no_bundle_is_nothing() {
        let made = bundles(&[letter("a", vec![7; 9], 0), letter("a", vec![8; 9], 1)], 1);
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
