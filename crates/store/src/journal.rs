//! The journal of one node: a SQLite file of its own, apart from the main store, in which every call is written down
//! before its first byte and again before its last one. One writer, one journey to the database per group.
//!
//! What is written together stands on a sheet of its own in a ring of pages, each of which is written over when nothing
//! on it is needed any more: nearly always that is a moment later. What is needed longer moves to tables. There an open call
//! has a row of its own, which goes when the call is settled; what was settled together stands in one row, a line for each
//! call, and goes when the main store has all of it.
//!
//! The file knows nothing of accounts: what it holds of a call is the text of an [`tidegate_core::Exchange`], as it stood
//! when the call was let in or as it ended.

mod ballast;
mod bound;
mod bundle;
mod draft;
mod error;
mod group;
mod outbox;
mod read;
mod recent;
mod ring;
mod sheets;
mod write;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};
use tidegate_core::map::{Map, Set};
use tidegate_core::{GenerationId, Money, Spent, Usage};

use crate::open::create_private;

pub use ballast::{BALLAST_BYTES, Ballast};
pub use error::JournalError;
use group::{Group, OpenRow, SettledRow};
pub use outbox::{Fate, Letter, LetterId, Payload, Waiting};
pub use read::{Cursor, JournalReader, JournalRow, Open, Settled};
use recent::Recent;
use ring::{RING_BYTES, Replay, Shape};
use sheets::Sheets;
use write::Moved;

/// The file, in the data folder.
pub const FILE: &str = "ledger.db";
/// How long a lock of somebody else is waited for before the journal counts as unavailable.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// The most that one row, and one statement, takes.
pub const MOST: usize = 512;
/// Rows of settled calls that may stay a little longer, to go with others.
const DEAD: usize = 256;
/// Bytes of the log after which it is folded into the file. What stands in it lives for a moment only: the longer the log,
/// the less of it is ever written a second time.
const FOLD_BYTES: u64 = 64 << 20;
/// The same where there is no room for it to grow: no more than what was set aside for that.
const FOLD_EARLY: u64 = BALLAST_BYTES;
/// What taking rows away adds to the log, about.
const COMMIT_BYTES: u64 = 20 << 10;

/// Texts of groups that are kept parsed.
const STATEMENTS: usize = 512;

type Result<T, E = JournalError> = std::result::Result<T, E>;

/// What is written of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// It is let in, or more is held for it than before.
    Open(GenerationId, &'a str),
    /// How far it has come; nothing of a call that is not open.
    Mark(GenerationId, Progress),
    /// It is over.
    Settle(GenerationId, &'a str),
}

/// How far an open call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// What it has cost so far, at list price.
    pub cost: Money,
    /// What that is the price of. In the journal of an earlier release it has output alone.
    pub usage: Usage,
    /// What is spent of it; nothing in the journal of an earlier release.
    pub spent: Option<Spent>,
}

impl Progress {
    /// What has no column of its own.
    fn more(&self) -> More {
        More { usage: self.usage, spent: self.spent }
    }
}

#[derive(Serialize, Deserialize)]
struct More {
    #[serde(default)]
    usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spent: Option<Spent>,
}

/// Where a settled call stands in the file, until it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// The number of a sheet or of a row.
    row: i64,
    line: u32,
    /// Lines of that row.
    of: u32,
    is_on_sheet: bool,
}

/// Where an open call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    /// On the sheet of this number.
    Ring(i64),
    Row(i64),
}

/// Who writes here: a name that stays with the file, and a number that grows with every start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    pub epoch: i64,
}

/// The file that commits are added to. It is held open, so that the system tells it of every write that failed.
#[derive(Clone, Debug)]
pub struct Log(Arc<File>);

impl Log {
    /// Brings what was committed to the disk; others may be committed meanwhile.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Folds the log into the file, without keeping the writer from writing.
#[derive(Clone, Debug)]
pub struct Fold(PathBuf);

impl Fold {
    pub async fn run(self) -> Result<()> {
        let mut connection = connect(&self.0).await?;
        let folded = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut connection).await;
        connection.close().await?;
        folded?;
        Ok(())
    }
}

/// The writing end.
pub struct Journal {
    path: PathBuf,
    connection: SqliteConnection,
    node: Node,
    is_full_sync: bool,
    open: Map<GenerationId, Home>,
    sheets: Sheets,
    /// Settled calls of sheets that are gone: their rows.
    moved: Map<i64, Moved>,
    /// The sheets that these rows came from.
    moved_from: Map<i64, i64>,
    /// Destinations whose letters must not stay on sheets: the file is asked about them.
    doubted: Set<String>,
    /// Rows of calls that are settled. They go before anything that says so does.
    dead: Vec<i64>,
    /// Lines that were forgotten, of rows that hold others still.
    forgotten: Map<i64, Set<u32>>,
    /// Rows of which everything was.
    gone: Vec<i64>,
    next_open: i64,
    next_settled: i64,
    /// Never one that was there before: who holds a letter may come back for it when its row is long gone.
    next_bundle: i64,
    /// Letters that need not be read from the file.
    recent: Arc<Recent>,
    /// About how many bytes the log has grown by since it was last folded.
    grown: u64,
    log: Option<Log>,
}

impl Journal {
    /// Opens the journal of a data folder, or makes it, and begins a new epoch.
    pub async fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        create_private(&path).map_err(|error| JournalError::Broken(error.into()))?;
        let mut connection = connect(&path).await?;
        prepare(&mut connection).await?;
        let (id, epoch): (String, i64) = sqlx::query_as(
            "UPDATE node SET epoch = epoch + 1 WHERE id = (SELECT id FROM node LIMIT 1) RETURNING id, epoch",
        )
        .fetch_one(&mut connection)
        .await?;
        let last = "SELECT COALESCE((SELECT MAX(id) FROM opened), 0), COALESCE((SELECT MAX(id) FROM settled), 0), \
                    COALESCE((SELECT MAX(id) FROM bundles), 0)";
        let (opened, settled, bundles): (i64, i64, i64) = sqlx::query_as(last).fetch_one(&mut connection).await?;
        // A file keeps the pages that it was made with.
        let page: i64 = sqlx::query_scalar("PRAGMA page_size").fetch_one(&mut connection).await?;
        let shape = Shape::of_pages(usize::try_from(page).unwrap_or(PAGE as usize));
        let replay = Replay::read(&mut connection).await?;
        if !replay.broken.is_empty() {
            tracing::error!(
                places = replay.broken.len(),
                "some of the journal's last sheets cannot be read: they are kept"
            );
        }
        let mut journal = Self {
            path,
            connection,
            node: Node { id, epoch },
            is_full_sync: true,
            open: Map::default(),
            sheets: Sheets::new(shape, &replay.slots, replay.last),
            moved: Map::default(),
            moved_from: Map::default(),
            doubted: Set::default(),
            dead: Vec::new(),
            forgotten: Map::default(),
            gone: Vec::new(),
            next_open: opened + 1,
            next_settled: settled + 1,
            next_bundle: bundles + 1,
            recent: Arc::new(Recent::of_writer(bundles == 0 && replay.letters.is_empty())),
            grown: 0,
            log: None,
        };
        journal.take_over(&replay).await?;
        journal.find_open().await?;
        Ok(journal)
    }

    /// Moves what an earlier start left on its sheets to the tables.
    async fn take_over(&mut self, replay: &Replay) -> Result<()> {
        let mut group = Group::default();
        let mut opened: Vec<_> = replay.opened.values().collect();
        opened.sort_by_key(|call| call.id);
        for call in opened {
            let (row, data) = (self.next_open, call.data.as_str().into());
            group.opened.push(OpenRow { row, id: call.id, epoch: call.epoch, data });
            self.next_open += 1;
        }
        for calls in replay.settled.values() {
            let mut settled = SettledRow::new(self.next_settled);
            for (id, data) in calls.iter().flatten() {
                settled.add(id, data);
            }
            if settled.calls > 0 {
                self.next_settled += 1;
                group.settled.push(settled);
            }
        }
        // Under new numbers: an older release may have given theirs away, and nobody comes back for them.
        for (letters, told) in replay.letters.values() {
            let told: Vec<(GenerationId, &str)> = told.iter().map(|(id, text)| (*id, text.as_str())).collect();
            group.bundles.push(bundle::Bundle::again(self.next_bundle, letters, &told));
            self.next_bundle += 1;
        }
        group.unreadable = replay.broken.clone();
        let rows: Vec<(i64, String)> =
            sqlx::query_as("SELECT id, generation FROM opened").fetch_all(&mut self.connection).await?;
        let is_over = |name: &str| GenerationId::parse(name).is_some_and(|id| replay.over.contains(&id));
        let dead: Vec<i64> = rows.iter().filter(|(_, name)| is_over(name)).map(|(row, _)| *row).collect();
        group.buried = (!dead.is_empty()).then(|| group::list(&dead));
        let is_nothing = group.opened.is_empty() && group.settled.is_empty() && group.bundles.is_empty();
        if is_nothing && dead.is_empty() && group.unreadable.is_empty() {
            return Ok(());
        }
        let sheet = sheets::Sheet { text: ring::NOTHING.to_owned(), ..Default::default() };
        self.write_sheet(group, sheet, 0).await
    }

    /// Learns which calls earlier starts left open. A process may have died between writing down that a call is settled
    /// and taking its row away.
    async fn find_open(&mut self) -> Result<()> {
        let rows: Vec<(i64, String)> =
            sqlx::query_as("SELECT id, generation FROM opened").fetch_all(&mut self.connection).await?;
        let named = |(id, generation): (i64, String)| Some((GenerationId::parse(&generation)?, Home::Row(id)));
        self.open = rows.into_iter().filter_map(named).collect();
        let over = read::settled_among(&mut self.connection, &self.open.keys().copied().collect()).await?;
        for generation in over {
            if let Some(Home::Row(row)) = self.open.remove(&generation) {
                self.dead.push(row);
            }
        }
        Ok(())
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is time to fold the log into the file, which is earlier where the disk `is_short` of room: first with
    /// [`Fold`], which does nearly all of it beside the writing of others, then with [`Journal::fold`].
    pub fn is_long(&self, is_short: bool) -> bool {
        self.grown >= if is_short { FOLD_EARLY } else { FOLD_BYTES }
    }

    /// Somebody who does the first part of it.
    pub fn folding(&self) -> Fold {
        Fold(self.path.clone())
    }

    /// The rest: what came meanwhile. After that the log begins anew.
    pub async fn fold(&mut self) -> Result<()> {
        self.grown = 0;
        sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut self.connection).await?;
        Ok(())
    }

    /// What was written and may not be on the disk yet.
    pub fn log(&mut self) -> Result<Log> {
        if let Some(log) = &self.log {
            return Ok(log.clone());
        }
        let mut name = self.path.clone().into_os_string();
        name.push("-wal");
        let file = File::open(&name).map_err(|error| JournalError::Broken(error.into()))?;
        Ok(self.log.insert(Log(Arc::new(file))).clone())
    }

    /// Takes away what the main store has. `spoiled`: lines that cannot be read; they are kept apart, and told of by those
    /// who check the file.
    pub async fn forget(&mut self, places: &[Place], spoiled: &[Place]) -> Result<()> {
        // Noted first: whatever fails now is done with the next ones.
        for place in places {
            self.note_forgotten(*place);
        }
        self.sync(false).await?;
        for place in spoiled {
            self.set_aside(*place).await?;
            self.note_forgotten(*place);
        }
        self.say_news().await?;
        if self.gone.is_empty() {
            return Ok(());
        }
        let mut text = String::from("BEGIN IMMEDIATE; ");
        if !self.dead.is_empty() {
            text.push_str(group::BURY);
        }
        text.push_str("DELETE FROM settled WHERE id IN (SELECT value FROM json_each(?)); COMMIT");
        let mut query = sqlx::query(sqlx::AssertSqlSafe(text));
        if !self.dead.is_empty() {
            query = query.bind(group::list(&self.dead));
        }
        if let Err(error) = query.bind(group::list(&self.gone)).execute(&mut self.connection).await {
            let _ = sqlx::query("ROLLBACK").execute(&mut self.connection).await;
            return Err(error.into());
        }
        self.grown += COMMIT_BYTES * (1 + self.gone.len() as u64 / 8);
        self.dead.clear();
        self.gone.clear();
        Ok(())
    }

    fn note_forgotten(&mut self, place: Place) {
        if place.is_on_sheet {
            if self.sheets.forget(place.row, place.line) {
                return;
            }
            let Some(row) = self.moved.get(&place.row).and_then(|moved| moved.place(place.line)) else { return };
            self.note_row(row);
        } else {
            self.note_row(place);
        }
    }

    fn note_row(&mut self, place: Place) {
        let lines = self.forgotten.entry(place.row).or_default();
        lines.insert(place.line);
        if lines.len() >= place.of as usize {
            self.forgotten.remove(&place.row);
            self.gone.push(place.row);
            if let Some(sheet) = self.moved_from.remove(&place.row) {
                self.moved.remove(&sheet);
            }
        }
    }

    async fn set_aside(&mut self, place: Place) -> Result<()> {
        let on_sheet = self.sheets.get(place.row).filter(|_| place.is_on_sheet);
        let (generation, data) = match on_sheet {
            Some(sheet) => match sheet.settled.get(place.line as usize) {
                Some(call) => (call.id.as_str().to_owned(), sheet.data(&call.place).to_owned()),
                None => return Ok(()),
            },
            None => {
                let moved = self.moved.get(&place.row).and_then(|moved| moved.place(place.line));
                // One that is nowhere any more was forgotten already.
                let place = if place.is_on_sheet { moved } else { Some(place) };
                let Some(place) = place else { return Ok(()) };
                let data: Option<String> = sqlx::query_scalar("SELECT data FROM settled WHERE id = $1")
                    .bind(place.row)
                    .fetch_optional(&mut self.connection)
                    .await?;
                let line = data.as_deref().and_then(|data| data.lines().nth(place.line as usize)).unwrap_or_default();
                let (generation, data) = line.split_once('\t').unwrap_or(("", line));
                (generation.to_owned(), data.to_owned())
            }
        };
        sqlx::query("INSERT INTO unreadable (generation, data) VALUES ($1, $2)")
            .bind(generation)
            .bind(data)
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    /// Closes the file and opens it again, looks whether it is whole, and folds the log into it: after a failed sync the
    /// system may have thrown pages away that a second sync would call safe. What the log holds is written once more by that.
    pub async fn reopen(&mut self) -> Result<()> {
        let fresh = connect(&self.path).await?;
        let old = std::mem::replace(&mut self.connection, fresh);
        self.recent.miss_all();
        self.doubted.extend(self.sheets.destinations());
        (self.is_full_sync, self.log) = (true, None);
        let _ = old.close().await;
        let verdict: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut self.connection).await?;
        if verdict != "ok" {
            return Err(JournalError::Damaged(verdict));
        }
        let (is_busy, ..): (i64, i64, i64) =
            sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut self.connection).await?;
        self.grown = 0;
        if is_busy == 0 { Ok(()) } else { Err(JournalError::Locked) }
    }

    /// Lets the file grow no further, as a full disk would; for tests of what happens then.
    #[doc(hidden)]
    pub async fn limit_pages(&mut self, pages: u32) -> Result<()> {
        sqlx::query(sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}")))
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    /// Everything to the disk and to its tables, the log folded into the file.
    pub async fn close(mut self) -> Result<()> {
        self.move_all().await?;
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut self.connection).await?;
        self.connection.close().await?;
        Ok(())
    }

    async fn sync(&mut self, full: bool) -> Result<()> {
        if self.is_full_sync != full {
            let text = if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            sqlx::query(text).execute(&mut self.connection).await?;
            self.is_full_sync = full;
        }
        Ok(())
    }
}

/// Bytes of a page: few are written then for a group, and it is the number of them that costs.
const PAGE: u32 = 8 << 10;
/// What of the file stays at hand, in KiB below zero as SQLite wants it: all slots of the ring, and what the tables have in
/// use.
const AT_HAND: i64 = -((RING_BYTES as i64 >> 10) + 1_536);

async fn connect(path: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::from_str("sqlite:")
        .map_err(JournalError::from)?
        .filename(path)
        .create_if_missing(true)
        .page_size(PAGE)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // Folding is seen to apart, so that nobody waits for it.
        .pragma("wal_autocheckpoint", "0")
        // A slot is written over as a whole, but SQLite reads a page before that: all of them stay at hand.
        .pragma("cache_size", AT_HAND.to_string())
        .busy_timeout(LOCK_WAIT)
        .statement_cache_capacity(STATEMENTS)
        .disable_statement_logging();
    Ok(options.connect().await?)
}

/// An older release had a row for each call.
const TAKE_OVER: [&str; 3] = [
    "INSERT INTO opened (generation, epoch, data, progress_nanos, progress_tokens) \
     SELECT generation, epoch, data, progress_nanos, progress_tokens FROM calls WHERE is_settled = 0 \
     ORDER BY generation",
    "INSERT INTO settled (calls, data) SELECT 1, generation || char(9) || data || char(10) FROM calls \
     WHERE is_settled = 1 ORDER BY generation",
    "DROP TABLE calls",
];

/// Makes the tables where there are none, and takes over what an older release wrote. The name of the node is made with
/// them.
async fn prepare(connection: &mut SqliteConnection) -> Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    for text in [
        "CREATE TABLE IF NOT EXISTS node (id TEXT NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL)",
        "INSERT INTO node (id, epoch) SELECT 'node_' || lower(hex(randomblob(12))), 0 \
         WHERE NOT EXISTS (SELECT 1 FROM node)",
        "CREATE TABLE IF NOT EXISTS opened (id INTEGER PRIMARY KEY, generation TEXT NOT NULL, epoch INTEGER NOT NULL, \
         data TEXT NOT NULL, progress_nanos INTEGER, progress_tokens INTEGER, progress TEXT)",
        "CREATE TABLE IF NOT EXISTS settled (id INTEGER PRIMARY KEY, calls INTEGER NOT NULL, data TEXT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS unreadable (generation TEXT NOT NULL, data TEXT NOT NULL)",
        ring::TABLE,
        outbox::TABLE,
        outbox::INDEX,
        outbox::OLD_INDEX,
    ] {
        sqlx::query(text).execute(&mut *transaction).await?;
    }
    // The journal of an earlier release is bound to no store.
    let is_bindable: bool = sqlx::query_scalar(bound::HAS_STORE).fetch_one(&mut *transaction).await?;
    if !is_bindable {
        sqlx::query("ALTER TABLE node ADD COLUMN store TEXT").execute(&mut *transaction).await?;
    }
    // And it says no more of a call that has come some way than its cost and its output.
    let has_more: bool = sqlx::query_scalar(read::HAS_MORE).fetch_one(&mut *transaction).await?;
    if !has_more {
        sqlx::query("ALTER TABLE opened ADD COLUMN progress TEXT").execute(&mut *transaction).await?;
    }
    for (table, texts) in [("calls", &TAKE_OVER[..]), ("outbox", &outbox::TAKE_OVER)] {
        let is_there: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = $1)")
            .bind(table)
            .fetch_one(&mut *transaction)
            .await?;
        for text in texts.iter().filter(|_| is_there) {
            sqlx::query(*text).execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}
