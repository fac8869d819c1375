//! The sheets of the ring as their writer remembers them: what is still needed of each, and which slots are free.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use tidegate_core::GenerationId;
use tidegate_core::map::{Map, Set};

use super::Home;
use super::bundle::Bundle;
use super::ring::{Lines, Posted, Shape};

/// What was written together.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub slots: Vec<i64>,
    pub text: String,
    pub opens: Vec<(GenerationId, Range<usize>)>,
    pub settled: Vec<Settled>,
    pub letters: Vec<(i64, Posted)>,
}

#[derive(Debug)]
pub(super) struct Settled {
    pub id: GenerationId,
    pub place: Range<usize>,
    /// The main store has it.
    pub is_forgotten: bool,
}

impl Sheet {
    pub fn data(&self, place: &Range<usize>) -> &str {
        &self.text[place.clone()]
    }

    /// Letters as they stand in the table.
    pub fn bundle(&self, row: i64, letters: &Posted) -> Bundle {
        let text = |id: &GenerationId| {
            let call = self.settled.iter().find(|call| call.id == *id);
            (*id, call.map_or("", |call| self.data(&call.place)))
        };
        let told: Vec<(GenerationId, &str)> = letters.generations.iter().map(text).collect();
        Bundle::again(row, letters, &told)
    }
}

#[derive(Debug)]
pub(super) struct Sheets {
    pub shape: Shape,
    /// In their order, without a gap.
    sheets: VecDeque<Sheet>,
    /// The number of the one that comes next.
    pub next: i64,
    free: Vec<i64>,
    /// The slots that there are have the numbers below this.
    grown: i64,
    /// Letters that wait here: the sheets that they stand on.
    pub posted: BTreeMap<i64, i64>,
    /// What is to be said with the next sheet: calls that the main store has, letters that are gone.
    forgotten: BTreeMap<i64, Vec<u32>>,
    pub gone: Vec<i64>,
}

impl Sheets {
    /// Nothing is needed of what stands in these slots. The last sheet was this.
    pub fn new(shape: Shape, slots: &[i64], last: i64) -> Self {
        Self {
            shape,
            sheets: VecDeque::new(),
            next: last + 1,
            free: slots.to_vec(),
            grown: slots.iter().max().map_or(1, |last| last + 1),
            posted: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            gone: Vec::new(),
        }
    }

    fn first(&self) -> i64 {
        self.next - self.sheets.len() as i64
    }

    pub fn get(&self, number: i64) -> Option<&Sheet> {
        self.sheets.get(usize::try_from(number - self.first()).ok()?)
    }

    /// Whom letters on sheets wait for.
    pub fn destinations(&self) -> Set<String> {
        let posted = self.posted.iter().filter_map(|(row, sheet)| self.posted_at(*row, *sheet));
        posted.map(|(_, letters)| letters.destination.clone()).collect()
    }

    fn posted_at(&self, row: i64, sheet: i64) -> Option<(&Sheet, &Posted)> {
        let sheet = self.get(sheet)?;
        sheet.letters.iter().find(|(letters, _)| *letters == row).map(|(_, letters)| (sheet, letters))
    }

    /// Those that wait for one of these, or for anybody, as they stand in the table.
    pub fn bundles(&self, destinations: Option<&Set<String>>) -> Vec<Bundle> {
        let is_meant = |letters: &Posted| destinations.is_none_or(|some| some.contains(&letters.destination));
        let posted = self.posted.iter().filter_map(|(row, sheet)| Some((*row, self.posted_at(*row, *sheet)?)));
        let meant = posted.filter(|(_, (_, letters))| is_meant(letters));
        meant.map(|(row, (sheet, letters))| sheet.bundle(row, letters)).collect()
    }

    /// Says that the main store has a call. False where the sheet is gone.
    pub fn forget(&mut self, number: i64, line: u32) -> bool {
        let first = self.first();
        let place = usize::try_from(number - first).ok();
        let Some(sheet) = place.and_then(|place| self.sheets.get_mut(place)) else { return false };
        if let Some(call) = sheet.settled.get_mut(line as usize)
            && !std::mem::replace(&mut call.is_forgotten, true)
        {
            self.forgotten.entry(number).or_default().push(line);
        }
        true
    }

    /// Whether there is something to be said, though nothing is to be written.
    pub fn has_news(&self) -> bool {
        !self.forgotten.is_empty() || !self.gone.is_empty()
    }

    /// Says it.
    pub fn say_news(&self, lines: &mut Lines) {
        for (sheet, calls) in &self.forgotten {
            lines.forgotten(*sheet, calls);
        }
        if !self.gone.is_empty() {
            lines.gone(&self.gone);
        }
    }

    fn is_over(&self, number: i64, sheet: &Sheet, open: &Map<GenerationId, Home>) -> bool {
        sheet.settled.iter().all(|call| call.is_forgotten)
            && !sheet.letters.iter().any(|(row, _)| self.posted.contains_key(row))
            && !sheet.opens.iter().any(|(id, _)| open.get(id) == Some(&Home::Ring(number)))
    }

    /// Which of the oldest sheets give their slots to a text that is to be written: those of which nothing is needed, and,
    /// where there is no room else, as many of the others as give some to the next ones, too.
    pub fn make_room(&self, needed: usize, open: &Map<GenerationId, Home>, may_end: bool) -> usize {
        let mut room = self.free.len() + self.shape.slots.saturating_sub((self.grown - 1) as usize);
        let mut count = 0;
        let wanted = if room < needed { needed.max(self.shape.slots / 4) } else { 0 };
        for (number, sheet) in (self.first()..).zip(&self.sheets) {
            let is_over = (may_end || wanted > 0) && self.is_over(number, sheet, open);
            if room >= wanted && !is_over {
                break;
            }
            room += sheet.slots.len();
            count += 1;
        }
        count
    }

    /// The first of the sheets that stay.
    pub fn first_after(&self, count: usize) -> i64 {
        self.first() + count as i64
    }

    /// The oldest ones, with their numbers.
    pub fn oldest(&self, count: usize) -> impl Iterator<Item = (i64, &Sheet)> {
        (self.first()..).zip(self.sheets.iter().take(count))
    }

    /// Slots for a text when the oldest sheets go, and whether each is new in the file. Those that were used a moment ago
    /// come first: the fewer there are in use, the less is there to fold.
    pub fn slots_for(&self, text: &str, going: usize) -> Vec<(i64, bool)> {
        let gone = self.sheets.iter().take(going).rev().flat_map(|sheet| sheet.slots.iter().rev());
        let old = gone.chain(self.free.iter().rev()).map(|slot| (*slot, false));
        old.chain((self.grown..).map(|slot| (slot, true))).take(self.shape.slots_of(text)).collect()
    }

    /// A sheet was written, and the oldest ones are gone.
    pub fn written(&mut self, mut sheet: Sheet, taken: &[(i64, bool)], going: usize) {
        for gone in self.sheets.drain(..going) {
            self.free.extend(gone.slots);
            for (row, _) in gone.letters {
                self.posted.remove(&row);
            }
        }
        let new = taken.iter().filter(|(_, is_new)| *is_new).count();
        self.free.truncate(self.free.len() - (taken.len() - new));
        self.grown += new as i64;
        sheet.slots = taken.iter().map(|(slot, _)| *slot).collect();
        for (row, _) in &sheet.letters {
            self.posted.insert(*row, self.next);
        }
        self.sheets.push_back(sheet);
        self.next += 1;
        self.forgotten.clear();
        self.gone.clear();
    }
}
