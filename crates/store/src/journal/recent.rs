//! Letters that were written a moment ago, as they are to be sent: nearly all are delivered at once, and
//! need not be looked for in the file, nor read back from it, for that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::map::Map;
use tidegate_core::{GenerationId, Timestamp};

/// What is kept at most, in bytes; what came first goes first.
const MOST_BYTES: usize = 8 << 20;

/// The letters of one row, none of which was tried yet.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    /// Since when they wait.
    pub at: i64,
    /// What the row takes in the file, once it has one.
    pub bytes: u64,
    /// It has none yet: its letters can be made again of what stands on a sheet.
    pub is_on_sheet: bool,
    pub letters: Vec<(GenerationId, Arc<[u8]>)>,
}

impl Fresh {
    fn held(&self) -> usize {
        self.letters.iter().map(|(_, told)| told.len()).sum()
    }
}

/// Rows that are due; where none is, when the first will be.
pub(super) type Due = (Vec<(i64, Fresh)>, Option<Timestamp>);

/// What is kept for one destination.
#[derive(Debug, Default)]
struct Desk {
    rows: BTreeMap<i64, Fresh>,
    /// Nothing waits for it but what is here.
    is_whole: bool,
    /// How often something came that is not here.
    missed: u64,
}

#[derive(Debug, Default)]
struct Inner {
    desks: Map<String, Desk>,
    bytes: usize,
    /// Nothing waits for anybody of whom nothing is known here.
    was_empty: bool,
}

impl Inner {
    fn desk(&mut self, destination: &str) -> &mut Desk {
        if !self.desks.contains_key(destination) {
            let fresh = Desk { is_whole: self.was_empty, ..Desk::default() };
            self.desks.insert(destination.to_owned(), fresh);
        }
        self.desks.get_mut(destination).expect("it was just put there")
    }

    /// Whose row it was; nothing where it is not here.
    fn remove(&mut self, row: i64) -> Option<&mut Desk> {
        let desk = self.desks.values_mut().find(|desk| desk.rows.contains_key(&row))?;
        self.bytes -= desk.rows.remove(&row)?.held();
        Some(desk)
    }

    fn oldest(&self) -> Option<i64> {
        self.desks.values().filter_map(|desk| desk.rows.first_key_value()).map(|(row, _)| *row).min()
    }

    /// Says whose it was.
    fn remove_oldest(&mut self) -> Option<String> {
        let row = self.oldest()?;
        let whose = self.desks.iter().find(|(_, desk)| desk.rows.contains_key(&row)).map(|(name, _)| name.clone());
        self.remove(row)?.miss();
        whose
    }
}

impl Desk {
    fn miss(&mut self) {
        (self.is_whole, self.missed) = (false, self.missed + 1);
    }
}

#[derive(Debug)]
pub(super) struct Recent {
    inner: Mutex<Inner>,
    /// It hears of everything that is written.
    is_writers: bool,
}

impl Recent {
    /// Of whoever writes the file; `was_empty` when nothing waits in it.
    pub fn of_writer(was_empty: bool) -> Self {
        Self { inner: Mutex::new(Inner { was_empty, ..Inner::default() }), is_writers: true }
    }

    /// Of somebody who only reads it, and never knows anything.
    pub fn of_stranger() -> Self {
        Self { inner: Mutex::default(), is_writers: false }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says for whom something had to go for it.
    pub fn keep(&self, destination: &str, row: i64, fresh: Fresh) -> Vec<String> {
        self.with(|inner| {
            inner.bytes += fresh.held();
            inner.desk(destination).rows.insert(row, fresh);
            let mut missed = Vec::new();
            while inner.bytes > MOST_BYTES {
                missed.extend(inner.remove_oldest());
            }
            missed
        })
    }

    /// Whether all that waits for a destination is here.
    pub fn is_whole(&self, destination: &str) -> bool {
        self.with(|inner| inner.desks.get(destination).map_or(inner.was_empty, |desk| desk.is_whole))
    }

    /// They have rows now, for these destinations. Who looked in the file before cannot have seen those that are not here.
    pub fn have_rows(&self, rows: &[(i64, String)]) {
        if rows.is_empty() {
            return;
        }
        self.with(|inner| {
            for (row, destination) in rows {
                let desk = inner.desk(destination);
                match desk.rows.get_mut(row) {
                    Some(fresh) => fresh.is_on_sheet = false,
                    None => desk.miss(),
                }
            }
        });
    }

    /// Letters that have no rows: how many wait for a destination, or for anybody, in how many bytes, and since when.
    /// Nothing for who only reads the file, and has to look there.
    pub fn on_sheets(&self, destination: Option<&str>) -> Option<(u64, u64, Option<i64>)> {
        let sum = |inner: &mut Inner| {
            let is_meant = |name: &str| destination.is_none_or(|destination| name == destination);
            let desks = inner.desks.iter().filter(|(name, _)| is_meant(name)).map(|(_, desk)| desk);
            let rows: Vec<&Fresh> = desks.flat_map(|desk| desk.rows.values()).filter(|row| row.is_on_sheet).collect();
            let letters = rows.iter().map(|row| row.letters.len() as u64).sum();
            (letters, rows.iter().map(|row| row.bytes).sum(), rows.iter().map(|row| row.at).min())
        };
        self.is_writers.then(|| self.with(sum))
    }

    /// Something may wait in the file that is not here.
    pub fn miss(&self, destination: &str) {
        self.with(|inner| inner.desk(destination).miss());
    }

    /// The rows are gone from the file.
    pub fn forget(&self, rows: impl IntoIterator<Item = i64>) {
        self.with(|inner| {
            // What is long gone from here may go by the million.
            let Some(oldest) = inner.oldest() else { return };
            for row in rows.into_iter().filter(|row| *row >= oldest) {
                inner.remove(row);
            }
        });
    }

    /// There are no other destinations than these any more.
    pub fn keep_only(&self, known: &[String]) {
        self.with(|inner| {
            let before = inner.desks.len();
            inner.desks.retain(|destination, desk| !desk.rows.is_empty() || known.contains(destination));
            inner.was_empty &= inner.desks.len() == before;
        });
    }

    /// Nobody knows what the file holds now.
    pub fn miss_all(&self) {
        self.with(|inner| {
            inner.was_empty = false;
            inner.desks.values_mut().for_each(Desk::miss);
        });
    }

    /// The rows are in the file still, and are not what they were. What is not here was missed already.
    pub fn let_go(&self, rows: impl IntoIterator<Item = i64>) {
        self.with(|inner| {
            for row in rows {
                if let Some(desk) = inner.remove(row) {
                    desk.miss();
                }
            }
        });
    }

    /// What is due of all that waits for a destination, oldest first, as rows; where nothing is, when the first will be.
    /// Nothing where the file must be asked. `choose` says which of the rows that are due are wanted, by their numbers,
    /// letters and bytes.
    pub fn due(
        &self,
        destination: &str,
        now: Timestamp,
        choose: impl FnOnce(&[(i64, u64, u64)]) -> Vec<i64>,
    ) -> Option<Due> {
        self.with(|inner| {
            let desk = inner.desk(destination);
            if !desk.is_whole {
                return None;
            }
            let is_due = |(_, fresh): &(&i64, &Fresh)| fresh.at <= now.0;
            let mut due: Vec<(&i64, &Fresh)> = desk.rows.iter().filter(is_due).collect();
            if due.is_empty() {
                return Some((Vec::new(), desk.rows.values().map(|fresh| Timestamp(fresh.at)).min()));
            }
            due.sort_by_key(|(row, fresh)| (fresh.at, **row));
            let listed: Vec<(i64, u64, u64)> =
                due.iter().map(|(row, fresh)| (**row, fresh.letters.len() as u64, fresh.bytes)).collect();
            let chosen = choose(&listed).into_iter().map(|row| (row, desk.rows[&row].clone()));
            Some((chosen.collect(), None))
        })
    }

    pub fn find(&self, destination: &str, row: i64) -> Option<Fresh> {
        self.with(|inner| inner.desks.get(destination)?.rows.get(&row).cloned())
    }

    /// What was missed so far; to be asked before the file is.
    pub fn missed(&self, destination: &str) -> u64 {
        self.with(|inner| inner.desk(destination).missed)
    }

    /// Nothing waits in the file for a destination, unless it came after `missed` was asked for.
    pub fn none_missed(&self, destination: &str, missed: u64) {
        if self.is_writers {
            self.with(|inner| {
                let desk = inner.desk(destination);
                desk.is_whole |= desk.missed == missed;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1);

    fn fresh(bytes: usize) -> Fresh {
        Fresh {
            at: 1,
            bytes: bytes as u64,
            is_on_sheet: false,
            letters: vec![(GenerationId::new(NOW), vec![0; bytes].into())],
        }
    }

    /// The rows that are due; nothing where the file must be asked.
    fn due(recent: &Recent, destination: &str) -> Option<Vec<i64>> {
        let all = |listed: &[(i64, u64, u64)]| listed.iter().map(|(row, ..)| *row).collect();
        recent.due(destination, NOW, all).map(|(rows, _)| rows.into_iter().map(|(row, _)| row).collect())
    }

    #[test]
    fn what_came_first_goes_first_when_there_is_too_much() {
        let recent = Recent::of_writer(true);
        for row in 1..=9 {
            recent.keep(if row % 2 == 0 { "a" } else { "b" }, row, fresh(1 << 20));
        }
        let is_here = |row: i64| recent.find("a", row).or_else(|| recent.find("b", row)).is_some();
        assert!(!is_here(1), "nine do not fit");
        assert!((2..=9).all(is_here));
        assert_eq!((due(&recent, "a"), due(&recent, "b")), (Some(vec![2, 4, 6, 8]), None), "one of b's is missing");
        recent.forget([2, 4, 77]);
        assert!(!is_here(2) && !is_here(4));
        recent.keep("a", 10, fresh(2 << 20));
        assert!([3, 5, 6, 7, 8, 9, 10].into_iter().all(is_here), "there is room again");
        recent.keep("a", 11, fresh(9 << 20));
        assert!(!(1..=11).any(is_here), "it does not fit at all");
        let inner = recent.inner.lock().unwrap();
        assert_eq!(inner.bytes, 0);
    }

    #[test]
    fn the_file_is_asked_until_nothing_waits_there_that_is_not_here() {
        let recent = Recent::of_writer(false);
        recent.keep("a", 1, fresh(10));
        assert_eq!(due(&recent, "a"), None, "an earlier start may have left some");
        let missed = recent.missed("a");
        recent.miss("a");
        recent.none_missed("a", missed);
        assert_eq!(due(&recent, "a"), None, "something came while the file was read");
        recent.none_missed("a", recent.missed("a"));
        assert_eq!(due(&recent, "a"), Some(vec![1]));
        assert_eq!(due(&recent, "b"), None);
        recent.keep("a", 2, fresh(10));
        recent.forget([1]);
        assert_eq!(due(&recent, "a"), Some(vec![2]));
        recent.let_go([1, 2]);
        assert_eq!(due(&recent, "a"), None, "it waits in the file, for another time");
        let stranger = Recent::of_stranger();
        stranger.none_missed("a", stranger.missed("a"));
        assert_eq!(due(&stranger, "a"), None, "nobody tells it");
    }

    #[test]
    fn who_looked_before_a_letter_had_its_row_looks_again() {
        let recent = Recent::of_writer(true);
        assert!(recent.keep("a", 1, fresh(5 << 20)).is_empty());
        assert_eq!(recent.keep("b", 2, fresh(5 << 20)), ["a"], "both do not fit");
        recent.none_missed("a", recent.missed("a"));
        assert_eq!(due(&recent, "a"), Some(vec![]), "the file had no row yet");
        recent.have_rows(&[(1, "a".to_owned()), (2, "b".to_owned())]);
        assert_eq!((due(&recent, "a"), due(&recent, "b")), (None, Some(vec![2])));
    }

    #[test]
    fn what_is_forgotten_leaves_nothing_behind() {
        let recent = Recent::of_writer(true);
        recent.keep("a", 0, fresh(10));
        for row in 1..10_000 {
            recent.keep("a", row, fresh(10));
            recent.forget([row]);
        }
        let inner = recent.inner.lock().unwrap();
        assert_eq!((inner.desks["a"].rows.len(), inner.bytes), (1, 10), "nobody comes for the first");
    }

    #[test]
    fn whoever_is_gone_is_forgotten_and_nothing_is_known_of_who_comes_back() {
        let recent = Recent::of_writer(true);
        recent.keep("a", 1, fresh(10));
        recent.keep("b", 2, fresh(10));
        recent.forget([2]);
        recent.keep_only(&["c".to_owned()]);
        assert_eq!(due(&recent, "a"), Some(vec![1]), "its letters go first");
        assert_eq!(due(&recent, "b"), None, "somebody of that name may have left some");
        recent.none_missed("b", recent.missed("b"));
        assert_eq!(due(&recent, "b"), Some(vec![]));
        recent.miss_all();
        assert_eq!((due(&recent, "a"), due(&recent, "b"), due(&recent, "z")), (None, None, None));
    }

    #[test]
    fn what_is_not_due_yet_says_when_it_will_be() {
        let recent = Recent::of_writer(true);
        let ahead = |at: i64| Fresh { at, ..fresh(1) };
        recent.keep("a", 1, ahead(9));
        recent.keep("a", 2, ahead(7));
        let all = |listed: &[(i64, u64, u64)]| listed.iter().map(|(row, ..)| *row).collect::<Vec<_>>();
        let (rows, next) = recent.due("a", NOW, all).unwrap();
        assert_eq!((rows.len(), next), (0, Some(Timestamp(7))));
        let (rows, next) = recent.due("a", Timestamp(9), all).unwrap();
        assert_eq!((rows.iter().map(|(row, _)| *row).collect::<Vec<_>>(), next), (vec![2, 1], None));
    }
}
