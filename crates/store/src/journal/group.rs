//! What changes together: one text of statements, one journey to the database, one transaction.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;
use tidegate_core::GenerationId;

use super::bundle::Bundle;
use super::{MOST, More, Progress, Result};

/// Rows per statement. Calls are filled up with empty rows to the next of them: few statements, each parsed once.
const SHAPES: [usize; 9] = [1, 2, 4, 8, 12, 16, 32, 128, MOST];
/// Slots that one statement may write, and up to which texts are worth keeping.
const FEW_SLOTS: usize = 16;

/// Takes rows of settled calls away.
pub(super) const BURY: &str = "DELETE FROM opened WHERE id IN (SELECT value FROM json_each(?)); ";
static OPEN: Rows = Rows::new("INSERT INTO opened (id, generation, epoch, data)", 4);
static POST: Rows =
    Rows::new("INSERT INTO bundles (id, destination, generation, payload, created_at, due_at, bytes, letters)", 8);
const AMEND: &str = "UPDATE opened SET data = ? WHERE id = ?; ";
const MARK: &str = "UPDATE opened SET progress_nanos = json_extract(value, '$[1]'), \
     progress_tokens = json_extract(value, '$[2]'), progress = json_extract(value, '$[3]') FROM json_each(?) \
     WHERE opened.id = json_extract(value, '$[0]'); ";
const SETTLE: &str = "INSERT INTO settled (id, calls, data) VALUES (?, ?, ?); ";
/// By how many are written. The database's thread reports each statement by itself, and whoever waits for the whole is woken
/// by every report: one statement for all slots, where there is nothing else and so no transaction around it, is one report.
static WRITE: [OnceLock<String>; FEW_SLOTS] = [const { OnceLock::new() }; FEW_SLOTS];
const KEEP: &str = "INSERT INTO unreadable (generation, data) VALUES ('', ?); ";

/// A row of an open call.
pub(super) struct OpenRow<'a> {
    pub row: i64,
    pub id: GenerationId,
    pub epoch: i64,
    pub data: Cow<'a, str>,
}

/// What is settled together, a line for each call.
#[derive(Debug)]
pub(super) struct SettledRow {
    pub row: i64,
    pub calls: u32,
    pub data: String,
}

impl SettledRow {
    pub fn new(row: i64) -> Self {
        Self { row, calls: 0, data: String::new() }
    }

    /// Says which line it is.
    pub fn add(&mut self, id: &GenerationId, data: &str) -> u32 {
        let line = self.calls;
        self.calls += 1;
        self.data.push_str(id.as_str());
        self.data.push('\t');
        self.data.push_str(data);
        self.data.push('\n');
        line
    }
}

#[derive(Default)]
pub(super) struct Group<'a> {
    pub opened: Vec<OpenRow<'a>>,
    pub amended: Vec<(i64, &'a str)>,
    pub marked: BTreeMap<i64, Progress>,
    /// Rows of calls that are over.
    pub buried: Option<String>,
    pub settled: Vec<SettledRow>,
    pub bundles: Vec<Bundle>,
    /// What is kept though nobody can read it.
    pub unreadable: Vec<String>,
    /// Slots, and what stands in them.
    pub slots: Vec<(i64, Vec<u8>)>,
}

impl Group<'_> {
    /// Long texts are handed over, not copied: they are gone after.
    pub async fn write(&mut self, connection: &mut SqliteConnection) -> Result<()> {
        let (mut text, statements) = self.text();
        if statements == 0 {
            return Ok(());
        }
        if statements > 1 {
            text = format!("BEGIN IMMEDIATE; {text}COMMIT");
        }
        let written = self.execute(text, connection).await;
        if written.is_err() && statements > 1 {
            // A failed statement may have ended the transaction itself.
            let _ = sqlx::query("ROLLBACK").execute(connection).await;
        }
        written
    }

    fn text(&self) -> (String, usize) {
        let mut text = String::with_capacity(512);
        for some in self.opened.chunks(MOST) {
            text.push_str(OPEN.text(some.len()));
        }
        for _ in &self.amended {
            text.push_str(AMEND);
        }
        let optional = [(!self.marked.is_empty()).then_some(MARK), self.buried.as_ref().map(|_| BURY)];
        text.extend(optional.into_iter().flatten());
        for _ in &self.settled {
            text.push_str(SETTLE);
        }
        for some in self.bundles.chunks(MOST) {
            text.push_str(POST.text(some.len()));
        }
        for _ in &self.unreadable {
            text.push_str(KEEP);
        }
        let lists = self.opened.len().div_ceil(MOST) + self.bundles.len().div_ceil(MOST);
        let single = self.amended.len() + self.settled.len() + self.unreadable.len();
        let others = lists + optional.iter().flatten().count() + single;
        // Within a transaction, a statement that writes many pages keeps what stood there aside, maybe in a file, so that
        // it could be taken back alone.
        let at_once = if others == 0 && self.slots.len() <= FEW_SLOTS { FEW_SLOTS } else { 1 };
        for some in self.slots.chunks(at_once) {
            text.push_str(write_text(some.len()));
        }
        (text, others + self.slots.len().div_ceil(at_once))
    }

    async fn execute(&mut self, text: String, connection: &mut SqliteConnection) -> Result<()> {
        // Texts that are seldom the same are not worth keeping.
        let is_common = self.amended.is_empty()
            && self.opened.len() <= MOST
            && self.settled.len() <= 1
            && self.unreadable.is_empty()
            && self.slots.len() <= FEW_SLOTS;
        let mut query = sqlx::query(AssertSqlSafe(text)).persistent(is_common);
        for some in self.opened.chunks_mut(MOST) {
            for place in 0..shape(some.len()) {
                query = match some.get_mut(place) {
                    Some(call) => {
                        let data = std::mem::take(&mut call.data).into_owned();
                        query.bind(call.row).bind(call.id.as_str().to_owned()).bind(call.epoch).bind(data)
                    }
                    None => query.bind(None::<i64>).bind("").bind(0_i64).bind(""),
                };
            }
        }
        for (row, data) in &self.amended {
            query = query.bind((*data).to_owned()).bind(*row);
        }
        if !self.marked.is_empty() {
            let marks = self.marked.iter().map(|(row, mark)| (*row, mark.cost.0, mark.usage.output, mark.more()));
            let marks: Vec<(i64, i64, u64, More)> = marks.collect();
            query = query.bind(serde_json::to_string(&marks).expect("numbers are always JSON"));
        }
        if let Some(buried) = &self.buried {
            query = query.bind(buried.clone());
        }
        for settled in &mut self.settled {
            query = query.bind(settled.row).bind(i64::from(settled.calls)).bind(std::mem::take(&mut settled.data));
        }
        for some in self.bundles.chunks_mut(MOST) {
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
        for text in &self.unreadable {
            query = query.bind(text.clone());
        }
        for (slot, image) in &mut self.slots {
            query = query.bind(*slot).bind(std::mem::take(image));
        }
        query.execute(connection).await?;
        Ok(())
    }

    /// About how much it adds to the log.
    pub fn bytes(&self) -> u64 {
        let opened: usize = self.opened.iter().map(|call| call.data.len()).sum();
        let settled: usize = self.settled.iter().map(|row| row.data.len()).sum();
        let posted: usize = self.bundles.iter().map(|bundle| bundle.payload.len()).sum();
        let written: usize = self.slots.iter().map(|(_, image)| image.len() + PAGE).sum();
        let has_rows = opened + settled + posted > 0 || self.buried.is_some() || !self.marked.is_empty();
        let rows = if has_rows { COMMIT } else { 0 };
        (opened + settled + posted + written + rows) as u64
    }
}

/// What a page takes in the log beside itself, and what rows take beside what is in them.
const PAGE: usize = 80;
const COMMIT: usize = 20 << 10;

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

/// Each slot has the same length as before: its page is written over, and no other is touched.
fn write_text(slots: usize) -> &'static str {
    WRITE[slots - 1].get_or_init(|| {
        let places = vec!["(?, ?)"; slots].join(", ");
        format!("INSERT INTO ring (slot, data) VALUES {places} ON CONFLICT (slot) DO UPDATE SET data = excluded.data; ")
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_written_at_once_where_nothing_else_is() {
        for (slots, buried, statements) in
            [(1, false, 1), (16, false, 1), (17, false, 17), (1, true, 2), (16, true, 17)]
        {
            let group = Group {
                slots: (0..slots).map(|slot| (slot, Vec::new())).collect(),
                buried: buried.then(String::new),
                ..Group::default()
            };
            let (text, counted) = group.text();
            let written = text.matches("INSERT INTO ring").count() + text.matches(BURY).count();
            assert_eq!((written, counted), (statements, statements), "{slots} {buried}");
            assert_eq!(text.matches("(?, ?)").count() as i64, slots, "{slots} {buried}");
        }
    }
}
