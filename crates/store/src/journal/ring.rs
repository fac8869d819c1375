//! The last groups, each on a sheet of its own, in slots that are written over again and again. A slot is as long as a page
//! of the file and never grows or shrinks, so a commit costs the pages of its own words and nothing else: no list of free
//! pages, no index, no row that is taken away later.
//!
//! What is still needed when its slot's turn comes moves to a table: long calls, what the main store has not taken, letters
//! that nobody fetched. Sheets go in the order in which they came, so whatever says that something is over stays at least as
//! long as what it is about.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use sqlx::sqlite::SqliteConnection;
use tidegate_core::GenerationId;
use tidegate_core::map::{Map, Set};

use super::Result;

pub(super) const TABLE: &str = "CREATE TABLE IF NOT EXISTS ring (slot INTEGER PRIMARY KEY, data BLOB NOT NULL)";
/// How long the slots are together.
pub(super) const RING_BYTES: usize = 4 << 20;
/// What a page of the file takes for itself, and a slot for its place among the others.
const PAGE_HEAD: usize = 48;
const HEAD: usize = 32;

/// On a sheet that only says that others are gone.
pub(super) const NOTHING: &str = "N\t\n";

/// Slots of a file: each is as long as what one of its pages holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// How many there are at most.
    pub slots: usize,
    slot: usize,
}

impl Shape {
    pub fn of_pages(bytes: usize) -> Self {
        Self { slots: RING_BYTES / bytes, slot: bytes - PAGE_HEAD }
    }

    fn body(self) -> usize {
        self.slot - HEAD
    }

    /// The longest group that is written here.
    pub fn longest(self) -> usize {
        self.slots / 4 * self.body()
    }

    /// How many slots a text takes.
    pub fn slots_of(self, text: &str) -> usize {
        text.len().div_ceil(self.body()).max(1)
    }

    /// A sheet as it stands in its slots.
    pub fn images(self, head: Head, text: &str) -> Vec<Vec<u8>> {
        let parts = self.slots_of(text);
        let image = |part: usize| {
            let body = &text.as_bytes()[part * self.body()..text.len().min((part + 1) * self.body())];
            let mut image = Vec::with_capacity(self.slot);
            for number in [head.number, head.first, head.epoch] {
                image.extend_from_slice(&number.to_le_bytes());
            }
            for number in [part, parts, body.len()] {
                image.extend_from_slice(&(number as u16).to_le_bytes());
            }
            image.resize(HEAD, 0);
            image.extend_from_slice(body);
            image.resize(self.slot, 0);
            image
        };
        (0..parts).map(image).collect()
    }
}

/// Where a sheet stands among the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub number: i64,
    /// The first sheet that counts when this one is written.
    pub first: i64,
    /// The start that wrote it.
    pub epoch: i64,
}

struct Part<'a> {
    head: Head,
    part: u16,
    parts: u16,
    body: &'a [u8],
}

impl<'a> Part<'a> {
    fn read(image: &'a [u8]) -> Option<Self> {
        let wide = |place: usize| Some(i64::from_le_bytes(image.get(place..place + 8)?.try_into().ok()?));
        let small = |place: usize| Some(u16::from_le_bytes(image.get(place..place + 2)?.try_into().ok()?));
        let head = Head { number: wide(0)?, first: wide(8)?, epoch: wide(16)? };
        let body = image.get(HEAD..HEAD + usize::from(small(28)?))?;
        Some(Self { head, part: small(24)?, parts: small(26)?, body })
    }
}

/// Whether a sheet is all there; its parts are in their order.
fn is_whole(parts: &[Part<'_>]) -> bool {
    let is_next =
        |(place, part): (usize, &Part<'_>)| usize::from(part.part) == place && usize::from(part.parts) == parts.len();
    !parts.is_empty() && parts.iter().enumerate().all(is_next)
}

/// The words of a sheet, a line each.
#[derive(Debug, Default)]
pub(super) struct Lines(pub String);

impl Lines {
    pub fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// A call and its text. Says where the text stands.
    fn call(&mut self, kind: char, id: &GenerationId, data: &str) -> std::ops::Range<usize> {
        self.0.push(kind);
        self.0.push('\t');
        self.0.push_str(id.as_str());
        self.0.push('\t');
        let start = self.0.len();
        self.0.push_str(data);
        self.0.push('\n');
        start..start + data.len()
    }

    pub fn open(&mut self, id: &GenerationId, data: &str) -> std::ops::Range<usize> {
        self.call('O', id, data)
    }

    pub fn settle(&mut self, id: &GenerationId, data: &str) -> std::ops::Range<usize> {
        self.call('S', id, data)
    }

    /// An open call stands in a table from now on, or what it ended with does.
    pub fn away(&mut self, id: &GenerationId) {
        let _ = writeln!(self.0, "A\t{id}");
    }

    /// Calls of a sheet that the main store has.
    pub fn forgotten(&mut self, sheet: i64, lines: &[u32]) {
        let _ = write!(self.0, "F\t{sheet}");
        for line in lines {
            let _ = write!(self.0, "\t{line}");
        }
        self.0.push('\n');
    }

    /// Letters about calls that are settled on this sheet.
    pub fn letters(&mut self, row: i64, letters: &Posted) {
        let destination = serde_json::to_string(&letters.destination).expect("texts are always JSON");
        let [one, other] = letters.before;
        let _ = write!(self.0, "L\t{row}\t{}\t{one}\t{other}\t{destination}", letters.at);
        for generation in &letters.generations {
            let _ = write!(self.0, "\t{generation}");
        }
        self.0.push('\n');
    }

    /// Letters that are delivered, or stand in the table from now on.
    pub fn gone(&mut self, rows: &[i64]) {
        self.0.push('D');
        for row in rows {
            let _ = write!(self.0, "\t{row}");
        }
        self.0.push('\n');
    }
}

/// Letters that can be made again of the calls that they are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Posted {
    pub destination: String,
    pub at: i64,
    pub before: [u8; 2],
    pub generations: Vec<GenerationId>,
}

/// An open call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub id: GenerationId,
    pub epoch: i64,
    pub data: String,
}

/// What the sheets say, all together.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub opened: Map<GenerationId, Opened>,
    /// Calls of each sheet, by their lines; nothing where the main store has one.
    pub settled: BTreeMap<i64, Vec<Option<(GenerationId, String)>>>,
    /// All calls that are settled on them, whoever has them: a call that has a row may be among them.
    pub over: Set<GenerationId>,
    pub letters: BTreeMap<i64, (Posted, Vec<(GenerationId, String)>)>,
    /// All slots that there are.
    pub slots: Vec<i64>,
    /// The last sheet.
    pub last: i64,
    /// Sheets and lines that are not what was written, as they are.
    pub broken: Vec<String>,
}

impl Replay {
    pub async fn read(connection: &mut SqliteConnection) -> Result<Self> {
        // A file of an older release has none.
        let is_there: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'ring')")
            .fetch_one(&mut *connection)
            .await?;
        if !is_there {
            return Ok(Self::default());
        }
        let rows: Vec<(i64, Vec<u8>)> =
            sqlx::query_as("SELECT slot, data FROM ring ORDER BY slot").fetch_all(connection).await?;
        Ok(Self::of(&rows))
    }

    pub fn of(rows: &[(i64, Vec<u8>)]) -> Self {
        let mut replay = Self { slots: rows.iter().map(|(slot, _)| *slot).collect(), ..Self::default() };
        let mut sheets: BTreeMap<i64, Vec<Part<'_>>> = BTreeMap::new();
        for (_, image) in rows {
            match Part::read(image) {
                Some(part) => sheets.entry(part.head.number).or_default().push(part),
                None => replay.broken.push(String::from_utf8_lossy(image).into_owned()),
            }
        }
        sheets.values_mut().for_each(|parts| parts.sort_by_key(|part| part.part));
        // Only a sheet that is all there says which others count.
        let newest = sheets.iter().rev().find(|(_, parts)| is_whole(parts));
        let Some((last, first)) = newest.map(|(number, parts)| (*number, parts[0].head.first)) else { return replay };
        // The number of one that is not all there is not given to another.
        let numbers = sheets.keys().filter(|number| **number < last.saturating_add(1 << 32));
        replay.last = numbers.max().copied().unwrap_or(last);
        for (number, parts) in sheets.split_off(&first) {
            let epoch = parts.first().map_or(0, |part| part.head.epoch);
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.body).copied().collect();
            let text = String::from_utf8_lossy(&bytes);
            if !is_whole(&parts) || matches!(text, Cow::Owned(_)) {
                replay.broken.push(text.clone().into_owned());
            }
            replay.sheet(number, epoch, &text);
        }
        replay
    }

    fn sheet(&mut self, number: i64, epoch: i64, text: &str) {
        let mut texts: Map<GenerationId, &str> = Map::default();
        for line in text.lines() {
            if self.line(number, epoch, line, &mut texts).is_none() {
                self.broken.push(line.to_owned());
            }
        }
    }

    /// Nothing where it is not what was written.
    fn line<'a>(
        &mut self,
        number: i64,
        epoch: i64,
        line: &'a str,
        texts: &mut Map<GenerationId, &'a str>,
    ) -> Option<()> {
        let (kind, rest) = line.split_once('\t')?;
        match kind {
            "O" | "S" => {
                let read = rest.split_once('\t').and_then(|(id, data)| Some((GenerationId::parse(id)?, data)));
                if kind == "S" && read.is_none() {
                    // Others are known by their lines.
                    self.settled.entry(number).or_default().push(None);
                }
                let (id, data) = read?;
                if kind == "O" {
                    self.opened.insert(id, Opened { id, epoch, data: data.to_owned() });
                } else {
                    self.opened.remove(&id);
                    self.over.insert(id);
                    self.settled.entry(number).or_default().push(Some((id, data.to_owned())));
                    texts.insert(id, data);
                }
            }
            "A" => drop(self.opened.remove(&GenerationId::parse(rest)?)),
            "F" => {
                let mut numbers = rest.split('\t').map(str::parse::<i64>);
                let sheet = numbers.next()?.ok()?;
                for line in numbers {
                    let line = usize::try_from(line.ok()?).ok()?;
                    if let Some(call) = self.settled.get_mut(&sheet).and_then(|calls| calls.get_mut(line)) {
                        *call = None;
                    }
                }
            }
            "L" => {
                let mut words = rest.split('\t');
                let row = words.next()?.parse().ok()?;
                let at = words.next()?.parse().ok()?;
                let before = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
                let destination = serde_json::from_str(words.next()?).ok()?;
                let generations: Vec<GenerationId> = words.map(GenerationId::parse).collect::<Option<_>>()?;
                let told = |id: &GenerationId| (*id, texts.get(id).copied().unwrap_or_default().to_owned());
                let told = generations.iter().map(told).collect();
                self.letters.insert(row, (Posted { destination, at, before, generations }, told));
            }
            "D" => {
                for row in rest.split('\t') {
                    self.letters.remove(&row.parse().ok()?);
                }
            }
            "N" => {}
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::Timestamp;

    const HEAD: Head = Head { number: 7, first: 7, epoch: 3 };
    const SHAPE: Shape = Shape { slots: 16, slot: 4_048 };

    fn rows(sheets: &[(Head, &str)]) -> Vec<(i64, Vec<u8>)> {
        let images = sheets.iter().flat_map(|(head, text)| SHAPE.images(*head, text));
        (1..).zip(images).collect()
    }

    #[test]
    fn a_text_of_any_length_is_cut_into_slots_of_one_length_and_put_together_again() {
        let id = GenerationId::new(Timestamp(1));
        let body = SHAPE.body();
        for length in [0, 1, body - 40, body - 34, body, 3 * body, 5 * body + 17] {
            let mut lines = Lines::default();
            let data = "é".repeat(length / 2);
            lines.open(&id, &data);
            let mut rows = rows(&[(HEAD, &lines.0)]);
            assert!(rows.iter().all(|(_, image)| image.len() == SHAPE.slot), "{length}");
            assert_eq!(rows.len(), SHAPE.slots_of(&lines.0));
            rows.reverse();
            let replay = Replay::of(&rows);
            assert_eq!(
                (replay.opened[&id].data.as_str(), replay.opened[&id].epoch, replay.broken.len()),
                (&*data, 3, 0)
            );
            assert_eq!((replay.last, replay.slots.len()), (7, rows.len()));
        }
    }

    #[test]
    fn what_came_before_the_first_sheet_that_counts_says_nothing() {
        let [old, new] = [1, 2].map(|at| GenerationId::new(Timestamp(at)));
        let mut one = Lines::default();
        one.open(&old, "{}");
        let mut other = Lines::default();
        other.open(&new, "{}");
        let heads = [Head { number: 6, first: 1, epoch: 3 }, HEAD];
        let replay = Replay::of(&rows(&[(heads[0], &one.0), (heads[1], &other.0)]));
        assert_eq!(replay.opened.keys().collect::<Vec<_>>(), [&new]);
        let counts = Head { first: 6, ..HEAD };
        assert_eq!(Replay::of(&rows(&[(heads[0], &one.0), (counts, &other.0)])).opened.len(), 2);
    }

    #[test]
    fn what_is_over_forgotten_or_delivered_is_said_by_later_sheets() {
        let ids: Vec<GenerationId> = (1..=4).map(|at| GenerationId::new(Timestamp(at))).collect();
        let posted =
            Posted { destination: "a\t\"b".to_owned(), at: 5, before: [0, 255], generations: ids[1..3].to_vec() };
        let mut one = Lines::default();
        one.open(&ids[0], "0");
        one.settle(&ids[1], "1");
        one.settle(&ids[2], "2");
        one.letters(8, &posted);
        one.letters(9, &posted);
        one.open(&ids[3], "3");
        let mut other = Lines::default();
        other.settle(&ids[0], "over");
        other.away(&ids[3]);
        other.forgotten(7, &[1]);
        other.gone(&[8]);
        other.0.push_str(NOTHING);
        let later = Head { number: 8, ..HEAD };
        let replay = Replay::of(&rows(&[(HEAD, &one.0), (later, &other.0)]));
        assert!(replay.opened.is_empty() && replay.broken.is_empty());
        let settled: Vec<(i64, Vec<Option<&str>>)> = replay
            .settled
            .iter()
            .map(|(sheet, calls)| (*sheet, calls.iter().map(|call| Some(&*call.as_ref()?.1)).collect()))
            .collect();
        assert_eq!(settled, [(7, vec![Some("1"), None]), (8, vec![Some("over")])]);
        assert!(ids[..3].iter().all(|id| replay.over.contains(id)), "also what the main store has");
        let told = vec![(ids[1], "1".to_owned()), (ids[2], "2".to_owned())];
        assert_eq!(replay.letters, BTreeMap::from([(9, (posted, told))]));
    }

    #[test]
    fn what_was_not_written_here_is_counted_and_holds_up_nothing() {
        let id = GenerationId::new(Timestamp(1));
        let mut good = Lines::default();
        good.open(&id, "{}");
        let whole = rows(&[(HEAD, &good.0)]);
        for image in [vec![], vec![0; 31], vec![255; SHAPE.slot], vec![b'x'; 5_000]] {
            let replay = Replay::of(&[whole[0].clone(), (2, image)]);
            assert!(!replay.broken.is_empty() && replay.opened.contains_key(&id) && replay.last == 7);
        }
        for odd in ["X\t1", "O", "O\tno name\t{}", "S\tno name\t{}", "F\tx", "F\t7\t-1", "L\t1\t2", "D\t", "A\t", ""] {
            let text = format!("{odd}\n{}", good.0);
            let replay = Replay::of(&rows(&[(HEAD, &text)]));
            assert_eq!((&*replay.broken, replay.opened.len()), (&[odd.to_owned()][..], 1), "{odd}");
        }
        let mut long = Lines::default();
        long.open(&id, &"y".repeat(2 * SHAPE.body()));
        let mut torn = rows(&[(HEAD, &long.0)]);
        torn.remove(1);
        torn.extend(rows(&[(Head { number: 8, ..HEAD }, &good.0)]));
        let replay = Replay::of(&torn);
        assert!(!replay.broken.is_empty() && replay.opened.contains_key(&id) && replay.last == 8);
    }
}
