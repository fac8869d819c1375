//! What is written together: one text of statements, one journey to the database, one transaction.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;
use tidegate_core::GenerationId;
use tidegate_core::map::Map;

use super::bundle::Bundle;
use super::{Entry, MOST, Place, Progress, Result};

/// Rows per statement. Calls are filled up with empty rows to the next of them: few statements, each parsed once.
const SHAPES: [usize; 9] = [1, 2, 4, 8, 12, 16, 32, 128, MOST];

/// What a settled call takes beside its text, and a little more.
const LINE: usize = 96;
/// A text that is longer says nothing about the others.
const LONG: usize = 2 << 10;

/// Takes rows of settled calls away.
pub(super) const BURY: &str = "DELETE FROM opened WHERE id IN (SELECT value FROM json_each(?)); ";
static OPEN: Rows = Rows::new("INSERT INTO opened (id, generation, epoch, data)", 4);
static POST: Rows =
    Rows::new("INSERT INTO bundles (id, destination, generation, payload, created_at, due_at, bytes, letters)", 8);
const AMEND: &str = "UPDATE opened SET data = ? WHERE id = ?; ";
const MARK: &str = "UPDATE opened SET progress_nanos = json_extract(value, '$[1]'), \
     progress_tokens = json_extract(value, '$[2]') FROM json_each(?) WHERE opened.id = json_extract(value, '$[0]'); ";
const SETTLE: &str = "INSERT INTO settled (id, calls, data) VALUES (?, ?, ?); ";

pub(super) struct Group<'a> {
    known: &'a Map<GenerationId, i64>,
    epoch: i64,
    next_open: i64,
    next_settled: i64,
    opened: Vec<(GenerationId, &'a str)>,
    /// Their places in that list.
    fresh: Map<GenerationId, usize>,
    amended: Vec<(i64, &'a str)>,
    /// The last of each call: it says most.
    marked: BTreeMap<i64, Progress>,
    /// With the first of their places.
    settled: Map<GenerationId, usize>,
    /// The rows of what is settled: how many lines, and which.
    rows: Vec<(u32, String)>,
    places: Vec<Place>,
    buried: Option<String>,
}

/// What stands in the file when a group is committed.
pub(super) struct Written {
    pub opened: Vec<(GenerationId, i64)>,
    pub settled: Vec<GenerationId>,
    pub places: Vec<Place>,
    pub next_settled: i64,
}

impl<'a> Group<'a> {
    /// `known`: the rows of open calls. The next rows are these.
    pub fn of(
        entries: &[Entry<'a>],
        known: &'a Map<GenerationId, i64>,
        epoch: i64,
        (next_open, next_settled): (i64, i64),
    ) -> Self {
        // Room for all of it at once: what grows step by step is moved, and hashed again, with every step.
        let settles = entries.iter().filter(|entry| matches!(entry, Entry::Settle(..))).count();
        let others = entries.len() - settles;
        let mut group = Self {
            known,
            epoch,
            next_open,
            next_settled,
            opened: Vec::with_capacity(others),
            fresh: Map::with_capacity_and_hasher(others, Default::default()),
            amended: Vec::new(),
            marked: BTreeMap::new(),
            settled: Map::with_capacity_and_hasher(settles, Default::default()),
            rows: Vec::new(),
            places: Vec::with_capacity(settles),
            buried: None,
        };
        entries.iter().for_each(|entry| group.add(*entry));
        group
    }

    /// A call that is settled stays as it is: the first settling counts.
    fn add(&mut self, entry: Entry<'a>) {
        match entry {
            Entry::Open(id, _) | Entry::Mark(id, _) if self.settled.contains_key(&id) => {}
            Entry::Open(id, data) => match (self.known.get(&id), self.fresh.get(&id)) {
                (Some(row), _) => self.amended.push((*row, data)),
                (None, Some(place)) => self.opened[*place].1 = data,
                (None, None) => {
                    self.fresh.insert(id, self.opened.len());
                    self.opened.push((id, data));
                }
            },
            Entry::Mark(id, progress) => {
                // Of one that is let in with the same group there is nothing to say yet.
                self.marked.extend(self.known.get(&id).map(|row| (*row, progress)));
            }
            Entry::Settle(id, data) => match self.settled.get(&id) {
                Some(first) => self.places.push(self.places[*first]),
                None => self.settle(id, data),
            },
        }
    }

    fn settle(&mut self, id: GenerationId, data: &str) {
        // Of a call that is over it need not be said that it was let in.
        if let Some(place) = self.fresh.remove(&id) {
            self.opened.swap_remove(place);
            if let Some((moved, _)) = self.opened.get(place) {
                self.fresh.insert(*moved, place);
            }
        }
        if self.rows.last().is_none_or(|(lines, _)| *lines as usize >= MOST) {
            // Texts of calls are about equally long; some room is left for those that are longer.
            let rest = self.places.capacity().saturating_sub(self.places.len()).clamp(1, MOST);
            self.rows.push((0, String::with_capacity(rest * (data.len().min(LONG) + LINE))));
        }
        let row = self.next_settled + (self.rows.len() as i64) - 1;
        let Some((lines, text)) = self.rows.last_mut() else { return };
        self.settled.insert(id, self.places.len());
        self.places.push(Place { row, line: *lines, of: 0 });
        *lines += 1;
        text.push_str(id.as_str());
        text.push('\t');
        text.push_str(data);
        text.push('\n');
    }

    /// With it, these rows go.
    pub fn bury(&mut self, dead: &[i64]) {
        self.buried = Some(list(dead));
    }

    /// Writes it, with what destinations are to be told of it. Long texts are handed over, not copied: they are gone after.
    pub async fn write(&mut self, bundles: &mut [Bundle], connection: &mut SqliteConnection) -> Result<()> {
        let (mut text, statements) = self.text(bundles);
        if statements == 0 {
            return Ok(());
        }
        if statements > 1 {
            text = format!("BEGIN IMMEDIATE; {text}COMMIT");
        }
        let written = self.execute(text, bundles, connection).await;
        if written.is_err() && statements > 1 {
            // A failed statement may have ended the transaction itself.
            let _ = sqlx::query("ROLLBACK").execute(connection).await;
        }
        written
    }

    fn text(&self, bundles: &[Bundle]) -> (String, usize) {
        let mut text = String::with_capacity(512);
        for some in self.opened.chunks(MOST) {
            text.push_str(OPEN.text(some.len()));
        }
        for _ in &self.amended {
            text.push_str(AMEND);
        }
        let optional = [(!self.marked.is_empty()).then_some(MARK), self.buried.as_ref().map(|_| BURY)];
        text.extend(optional.into_iter().flatten());
        for _ in &self.rows {
            text.push_str(SETTLE);
        }
        for some in bundles.chunks(MOST) {
            text.push_str(POST.text(some.len()));
        }
        let lists = self.opened.len().div_ceil(MOST) + bundles.len().div_ceil(MOST);
        (text, lists + optional.iter().flatten().count() + self.amended.len() + self.rows.len())
    }

    async fn execute(&mut self, text: String, bundles: &mut [Bundle], connection: &mut SqliteConnection) -> Result<()> {
        // Texts that are seldom the same are not worth keeping.
        let is_common = self.amended.is_empty() && self.opened.len() <= MOST && self.rows.len() <= 1;
        let mut query = sqlx::query(AssertSqlSafe(text)).persistent(is_common);
        let mut id = self.next_open;
        for some in self.opened.chunks(MOST) {
            for place in 0..shape(some.len()) {
                query = match some.get(place) {
                    Some((generation, data)) => {
                        id += 1;
                        query.bind(id - 1).bind(generation.as_str()).bind(self.epoch).bind(*data)
                    }
                    None => query.bind(None::<i64>).bind("").bind(0_i64).bind(""),
                };
            }
        }
        for (row, data) in &self.amended {
            query = query.bind(*data).bind(row);
        }
        if !self.marked.is_empty() {
            let marks = self.marked.iter().map(|(row, mark)| (*row, mark.cost.0, mark.output_tokens));
            let marks: Vec<(i64, i64, u64)> = marks.collect();
            query = query.bind(serde_json::to_string(&marks).expect("numbers are always JSON"));
        }
        if let Some(buried) = &self.buried {
            query = query.bind(buried);
        }
        for (place, (lines, data)) in self.rows.iter_mut().enumerate() {
            query = query.bind(self.next_settled + place as i64).bind(i64::from(*lines)).bind(std::mem::take(data));
        }
        for some in bundles.chunks_mut(MOST) {
            for place in 0..shape(some.len()) {
                query = match some.get_mut(place) {
                    Some(bundle) => {
                        let bytes = i64::try_from(bundle.payload.len()).unwrap_or(i64::MAX);
                        let named =
                            query.bind(bundle.id).bind(bundle.destination.clone()).bind(bundle.generation.clone());
                        let named = named.bind(std::mem::take(&mut bundle.payload));
                        named.bind(bundle.at).bind(bundle.at).bind(bytes).bind(bundle.letters)
                    }
                    None => {
                        let none = query.bind(None::<i64>).bind("").bind("").bind(&[][..]);
                        none.bind(0_i64).bind(0_i64).bind(0_i64).bind(0_i64)
                    }
                };
            }
        }
        query.execute(connection).await?;
        Ok(())
    }

    /// About how long it is.
    pub fn bytes(&self) -> u64 {
        let opened: usize = self.opened.iter().map(|(_, data)| data.len()).sum();
        let settled: usize = self.rows.iter().map(|(_, data)| data.len()).sum();
        (opened + settled) as u64
    }

    pub fn written(mut self) -> Written {
        for place in &mut self.places {
            place.of = self.rows[(place.row - self.next_settled) as usize].0;
        }
        let opened = self.opened.iter().zip(self.next_open..).map(|((id, _), row)| (*id, row)).collect();
        let next_settled = self.next_settled + self.rows.len() as i64;
        Written { opened, settled: self.settled.into_keys().collect(), places: self.places, next_settled }
    }
}

/// Numbers for `json_each`.
pub(super) fn list(numbers: &[i64]) -> String {
    let mut text = String::with_capacity(2 + numbers.len() * 8);
    text.push('[');
    for (place, number) in numbers.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{number}");
    }
    text.push(']');
    text
}

fn shape(rows: usize) -> usize {
    SHAPES.into_iter().find(|shape| *shape >= rows).unwrap_or(MOST)
}

/// Many rows in one statement.
struct Rows {
    into: &'static str,
    columns: usize,
    texts: [OnceLock<String>; SHAPES.len()],
}

impl Rows {
    const fn new(into: &'static str, columns: usize) -> Self {
        Self { into, columns, texts: [const { OnceLock::new() }; SHAPES.len()] }
    }

    /// The statement for so many, filled up; a row without a first value is left out.
    fn text(&self, rows: usize) -> &str {
        let rows = shape(rows);
        let place = SHAPES.iter().position(|shape| *shape == rows).expect("lists are filled up to these shapes");
        self.texts[place].get_or_init(|| {
            let row = format!("({})", vec!["?"; self.columns].join(", "));
            let (into, values) = (self.into, vec![row; rows].join(", "));
            match rows {
                1 | 2 => format!("{into} VALUES {values}; "),
                _ => {
                    let columns: Vec<String> = (1..=self.columns).map(|number| format!("column{number}")).collect();
                    format!("{into} SELECT {} FROM (VALUES {values}) WHERE column1 IS NOT NULL; ", columns.join(", "))
                }
            }
        })
    }
}
