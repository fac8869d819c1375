//! What goes together in a call, and when a call that failed is made again. Pure functions.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_observe::broadcast::{Destination, Parcel};
use tidegate_store::journal::{Fate, LetterId, Waiting};

use super::gait::BATCH_BYTES;

pub(super) const LONGEST_WAIT_MS: i64 = 15 * 60 * 1000;
pub(super) const OLDEST_MS: i64 = 24 * 60 * 60 * 1000;
const MOST_ATTEMPTS: i64 = 50;

/// A letter, and what it says.
pub(super) type Opened = (Waiting, Arc<[u8]>);

/// Those that go in one call: letters that were postponed together stay together, so that whoever gets a call twice knows it
/// by its id.
pub(super) fn together(due: Vec<Waiting>) -> Vec<Waiting> {
    let Some((attempts, at)) = due.first().map(|first| (first.attempts, first.due_at)) else { return due };
    let belongs = |letter: &Waiting| letter.attempts == attempts && (attempts == 0 || letter.due_at == at);
    due.into_iter().take_while(belongs).collect()
}

/// When a call is made again.
pub(super) fn again(attempts: i64, wait: Option<Duration>, drawn: f64, now: Timestamp) -> Timestamp {
    let most = 1_000_i64.saturating_mul(1 << attempts.clamp(0, 20)).min(LONGEST_WAIT_MS);
    let drawn = (drawn * most as f64) as i64;
    let told = wait.map_or(0, |wait| i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)).min(LONGEST_WAIT_MS);
    Timestamp(now.0 + drawn.max(told).max(50))
}

/// A letter that waits for that; none does that is too old or was tried too often.
pub(super) fn later(letter: &Waiting, error: &str, at: Timestamp, now: Timestamp) -> Fate {
    match now.0 - letter.created_at > OLDEST_MS || letter.attempts + 1 >= MOST_ATTEMPTS {
        true => Fate::Dead(now, error.to_owned()),
        false => Fate::Postponed(at, error.to_owned()),
    }
}

/// The calls that carry a batch. Within a call letters stand by their names, so that the same letters make the same call,
/// whatever the order in which they are found.
pub(super) fn parcels(destination: &Destination, batch: &[Opened], most: usize) -> Vec<Parcel> {
    let sizes: Vec<(LetterId, usize)> = batch.iter().map(|(letter, told)| (letter.id, told.len())).collect();
    let parcels = |call: Range<usize>| {
        let mut places: Vec<usize> = call.collect();
        places.sort_by_key(|place| &batch[*place].0.generation);
        let told: Vec<&[u8]> = places.iter().map(|place| &*batch[*place].1).collect();
        let mut parcels = destination.target.parcels(&told);
        parcels.iter_mut().flat_map(|parcel| &mut parcel.letters).for_each(|place| *place = places[*place]);
        parcels
    };
    calls(&sizes, most).into_iter().flat_map(parcels).collect()
}

/// Which letters go in which call, so many and so long as one may carry. Letters of a row are kept together where they can be:
/// then they have one fate.
fn calls(letters: &[(LetterId, usize)], most: usize) -> Vec<Range<usize>> {
    let mut calls: Vec<Range<usize>> = Vec::new();
    let (mut at, mut carried) = (0, 0);
    let mut add = |letters: usize, bytes: usize| {
        match calls.last_mut().filter(|call| call.len() + letters <= most && carried + bytes <= BATCH_BYTES) {
            Some(call) => {
                call.end += letters;
                carried += bytes;
            }
            None => {
                calls.push(at..at + letters);
                carried = bytes;
            }
        }
        at += letters;
    };
    for row in letters.chunk_by(|(one, _), (other, _)| one.is_beside(*other)) {
        let bytes = row.iter().map(|(_, bytes)| bytes).sum();
        if row.len() <= most && bytes <= BATCH_BYTES {
            add(row.len(), bytes);
        } else {
            row.iter().for_each(|(_, bytes)| add(1, *bytes));
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use tidegate_core::Secret;
    use tidegate_observe::broadcast::target::Config;
    use tidegate_observe::broadcast::{Kind, Scope, Tells};

    use super::super::gait::BATCH;
    use super::*;

    /// Rows of so many letters, each of so many bytes, and how many letters go in each call.
    fn carried(rows: &[usize], bytes: usize, most: usize) -> Vec<usize> {
        let letters: Vec<(LetterId, usize)> =
            rows.iter().zip(1..).flat_map(|(letters, row)| vec![(LetterId::first_of(row), bytes); *letters]).collect();
        let calls = calls(&letters, most);
        assert_eq!(calls.iter().flat_map(Clone::clone).collect::<Vec<_>>(), (0..letters.len()).collect::<Vec<_>>());
        calls.iter().map(Range::len).collect()
    }

    #[test]
    fn what_waits_is_shared_out_among_calls_and_rows_are_not_torn() {
        assert_eq!(carried(&[], 9, 100), Vec::<usize>::new());
        assert_eq!(carried(&[1], 9, 100), [1]);
        assert_eq!(carried(&[10; 13], 9, 100), [100, 30]);
        assert_eq!(carried(&[30; 5], 9, 100), [90, 60]);
        assert_eq!(carried(&[2, 3, 4], BATCH_BYTES / 5, 100), [5, 4]);
        assert_eq!(carried(&[5, 1], 9, 2), [2, 2, 2], "but one that is longer than a call");
        assert_eq!(carried(&[7], BATCH_BYTES / 3, 100), [3, 3, 1]);
        assert_eq!(carried(&[1, 1], BATCH_BYTES + 1, 100), [1, 1], "a letter that is too long goes alone");
    }

    #[test]
    fn the_same_letters_make_the_same_call_in_whatever_order_they_are_found() {
        let values = [("endpoint".to_owned(), Secret::new("http://c"))].into_iter().collect();
        let target = Config { values, ..Config::default() }.target(Kind::OtelCollector);
        let destination = Destination {
            id: "c".into(),
            kind: Kind::OtelCollector,
            target: target.map_err(|wrong| wrong.member).unwrap(),
            scope: Scope::default(),
            is_private: true,
            tells: Tells::default(),
            is_operators: true,
        };
        let opened = |row: i64, name: &str| {
            let letter = Waiting {
                id: LetterId::first_of(row),
                generation: name.to_owned(),
                payload: Vec::new(),
                told: None,
                created_at: 0,
                due_at: 0,
                attempts: 0,
            };
            (letter, Arc::from(format!("{{\"{name}\":0}}").into_bytes()))
        };
        let one: Vec<Opened> = vec![opened(1, "b"), opened(1, "c"), opened(2, "a")];
        let other: Vec<Opened> = vec![opened(2, "a"), opened(3, "c"), opened(4, "b")];
        let (one, other) = (parcels(&destination, &one, BATCH), parcels(&destination, &other, BATCH));
        assert_eq!(one[0].body, other[0].body);
        assert_eq!((&one[0].letters[..], &other[0].letters[..]), (&[2, 0, 1][..], &[0, 2, 1][..]));
    }

    #[test]
    fn a_call_is_made_again_when_its_receiver_wants_it() {
        let now = Timestamp(1_000_000);
        assert_eq!(again(0, None, 0.0, now), Timestamp(1_000_050));
        assert_eq!(again(0, None, 0.5, now), Timestamp(1_000_500));
        assert_eq!(again(3, None, 0.5, now), Timestamp(1_004_000));
        assert_eq!(again(0, Some(Duration::from_secs(5)), 0.5, now), Timestamp(1_005_000));
        assert_eq!(again(40, None, 1.0, now), Timestamp(now.0 + LONGEST_WAIT_MS));
    }
}
