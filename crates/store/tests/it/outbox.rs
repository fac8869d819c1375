//! Letters in the journal: written together, taken one by one.

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use tidegate_core::{GenerationId, Timestamp};
use tidegate_store::journal::{Entry, Fate, Journal, JournalReader, Letter, Payload, Waiting};

use crate::databases::NOW;

const LATER: Timestamp = Timestamp(NOW.0 + 60_000);

struct Desk {
    folder: TempDir,
    journal: Journal,
    reader: JournalReader,
    /// Knows only what stands in the file.
    stranger: JournalReader,
}

impl Desk {
    async fn open() -> Self {
        let folder = TempDir::new().unwrap();
        let journal = Journal::open(folder.path()).await.unwrap();
        let (reader, stranger) = (journal.reader(), JournalReader::open(folder.path()).unwrap());
        Self { folder, journal, reader, stranger }
    }

    /// Writes a group with these letters, each of which says its number.
    async fn post(&mut self, destination: &str, numbers: std::ops::Range<u8>) -> Vec<String> {
        let letter = |number: u8| Letter {
            destination: destination.to_owned(),
            kind: "webhook",
            generation: GenerationId::new(Timestamp(NOW.0 + i64::from(number))),
            payload: Payload::Own(vec![number; 10].into()),
            // Of some it is not known what they were before they were sealed.
            told: (destination != "long").then(|| vec![number; 10].into()),
            at: NOW,
        };
        let letters: Vec<Letter> = numbers.map(letter).collect();
        self.journal.write_with(&[], &letters, false).await.unwrap();
        letters.iter().map(|letter| letter.generation.as_str().to_owned()).collect()
    }

    async fn due(&self, destination: &str, at: Timestamp, at_most: usize) -> Vec<Waiting> {
        let due = self.reader.due(destination, at, at_most).await.unwrap();
        let stands = self.stranger.due(destination, at, at_most).await.unwrap();
        let plain = |letter: &Waiting| Waiting { payload: words(letter).to_vec(), told: None, ..letter.clone() };
        let seen = |due: &[Waiting]| due.iter().map(plain).collect::<Vec<_>>();
        assert_eq!((seen(&due.0), due.1), (stands.0, stands.1), "what is remembered is what stands in the file");
        due.0
    }

    async fn resolve(&mut self, letters: &[Waiting], fate: impl Fn(u8) -> Option<Fate>) {
        let fates: Vec<_> = letters.iter().filter_map(|letter| Some((letter.id, fate(words(letter)[0])?))).collect();
        self.journal.resolve(&fates).await.unwrap();
    }

    async fn raw(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(self.folder.path().join("ledger.db")).connect().await.unwrap()
    }
}

fn numbers(letters: &[Waiting]) -> Vec<u8> {
    letters.iter().map(|letter| words(letter)[0]).collect()
}

/// What is said in it.
fn words(letter: &Waiting) -> &[u8] {
    letter.told.as_ref().map_or(&letter.payload, |told| &**told)
}

#[tokio::test]
async fn letters_of_a_group_come_back_one_by_one_and_go_together() {
    let mut desk = Desk::open().await;
    let names = desk.post("a", 0..5).await;
    desk.post("b", 5..6).await;
    let due = desk.due("a", NOW, 100).await;
    assert_eq!(numbers(&due), [0, 1, 2, 3, 4]);
    assert_eq!(due.iter().map(|letter| letter.generation.clone()).collect::<Vec<_>>(), names);
    assert!(due.iter().all(|letter| (letter.created_at, letter.due_at, letter.attempts) == (NOW.0, NOW.0, 0)));
    assert_eq!(desk.reader.outbox_depth("a").await.unwrap().0, 5);
    assert_eq!(desk.reader.letters().await.unwrap(), 6);
    let rows: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM bundles").fetch_one(&mut desk.raw().await).await.unwrap();
    assert_eq!(rows, 2, "a row for each destination");
    desk.resolve(&due, |_| Some(Fate::Delivered)).await;
    assert_eq!(desk.due("a", NOW, 100).await, []);
    assert_eq!(numbers(&desk.due("b", NOW, 100).await), [5]);
}

#[tokio::test]
async fn a_fate_that_is_told_twice_takes_nothing_that_came_meanwhile() {
    let mut desk = Desk::open().await;
    desk.post("a", 0..3).await;
    let due = desk.due("a", NOW, 100).await;
    desk.resolve(&due, |_| Some(Fate::Delivered)).await;
    desk.post("a", 3..6).await;
    // Who did not hear that it was noted notes it again.
    desk.resolve(&due, |_| Some(Fate::Delivered)).await;
    desk.resolve(&due, |number| (number == 1).then(|| Fate::Dead(NOW, "refused".to_owned()))).await;
    assert_eq!(numbers(&desk.due("a", NOW, 100).await), [3, 4, 5]);
}

#[tokio::test]
async fn what_is_read_at_once_are_whole_rows_but_of_a_row_that_is_too_long() {
    let mut desk = Desk::open().await;
    desk.post("a", 0..5).await;
    desk.post("a", 5..8).await;
    desk.post("a", 8..9).await;
    assert_eq!(numbers(&desk.due("a", NOW, 9).await), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(numbers(&desk.due("a", NOW, 8).await), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(numbers(&desk.due("a", NOW, 7).await), [0, 1, 2, 3, 4]);
    let some = desk.due("a", NOW, 2).await;
    assert_eq!(numbers(&some), [0, 1]);
    // The rest of that row stays, whatever becomes of those.
    desk.resolve(&some, |_| Some(Fate::Delivered)).await;
    let mut left = numbers(&desk.due("a", NOW, 100).await);
    left.sort_unstable();
    assert_eq!(left, [2, 3, 4, 5, 6, 7, 8]);
}

#[tokio::test]
async fn letters_of_one_row_may_have_different_fates() {
    let mut desk = Desk::open().await;
    let names = desk.post("a", 0..4).await;
    let due = desk.due("a", NOW, 100).await;
    desk.resolve(&due, |number| match number {
        0 => Some(Fate::Delivered),
        1 => Some(Fate::Postponed(LATER, "busy".to_owned())),
        2 => Some(Fate::Dead(NOW, "refused".to_owned())),
        _ => None,
    })
    .await;
    let now = desk.due("a", NOW, 100).await;
    assert_eq!((numbers(&now), now[0].attempts), (vec![3], 0), "the one that nothing became of");
    let later = desk.due("a", LATER, 100).await;
    assert_eq!((numbers(&later), later[1].attempts, later[1].due_at), (vec![3, 1], 1, LATER.0));
    assert_eq!((later[1].generation.as_str(), later[1].created_at), (names[1].as_str(), NOW.0));
    assert_eq!(desk.reader.outbox_depth("a").await.unwrap().0, 2);
    let dead: Vec<(String, String, i64)> =
        sqlx::query_as("SELECT generation, last_error, LENGTH(payload) FROM bundles WHERE died_at IS NOT NULL")
            .fetch_all(&mut desk.raw().await)
            .await
            .unwrap();
    assert_eq!(dead, [(names[2].clone(), "refused".to_owned(), 0)]);
}

#[tokio::test]
async fn a_whole_row_is_postponed_as_one_and_dies_by_name() {
    let mut desk = Desk::open().await;
    let names = desk.post("a", 0..3).await;
    let due = desk.due("a", NOW, 100).await;
    desk.resolve(&due, |_| Some(Fate::Postponed(LATER, "busy".to_owned()))).await;
    let (none, next) = desk.reader.due("a", NOW, 100).await.unwrap();
    assert_eq!((none, next), (Vec::new(), Some(LATER)));
    let (count, oldest, error) = desk.reader.outbox_standing("a").await.unwrap();
    assert_eq!((count, oldest, error.as_deref()), (3, Some(NOW), Some("busy")));
    let due = desk.due("a", LATER, 100).await;
    assert!(numbers(&due) == [0, 1, 2] && due.iter().all(|letter| letter.attempts == 1));
    desk.resolve(&due, |_| Some(Fate::Dead(LATER, "gone".to_owned()))).await;
    assert_eq!(desk.due("a", LATER, 100).await, []);
    let dead: Vec<String> = sqlx::query_scalar("SELECT generation FROM bundles WHERE died_at IS NOT NULL ORDER BY id")
        .fetch_all(&mut desk.raw().await)
        .await
        .unwrap();
    assert_eq!(dead, names);
}

#[tokio::test]
async fn the_oldest_rows_go_until_enough_letters_have_gone() {
    let mut desk = Desk::open().await;
    desk.post("a", 0..3).await;
    desk.post("b", 3..4).await;
    desk.post("a", 4..6).await;
    desk.post("a", 6..7).await;
    let past = Timestamp(0);
    assert_eq!(desk.journal.bound_outbox("a", 0, past).await.unwrap(), 0);
    assert_eq!(desk.journal.bound_outbox("a", 4, past).await.unwrap(), 5, "whole rows");
    assert_eq!(numbers(&desk.due("a", NOW, 100).await), [6]);
    assert_eq!(numbers(&desk.due("b", NOW, 100).await), [3]);
}

#[tokio::test]
async fn what_is_remembered_and_what_is_read_come_in_their_order() {
    let mut desk = Desk::open().await;
    desk.post("a", 0..2).await;
    desk.journal.close().await.unwrap();
    // Who begins anew remembers nothing.
    desk.journal = Journal::open(desk.folder.path()).await.unwrap();
    desk.reader = desk.journal.reader();
    desk.post("a", 2..4).await;
    let due = desk.due("a", NOW, 100).await;
    assert_eq!(numbers(&due), [0, 1, 2, 3]);
    assert_eq!(due.iter().map(|letter| letter.told.is_some()).collect::<Vec<_>>(), [false, false, true, true]);
    desk.post("long", 4..6).await;
    assert!(desk.due("long", NOW, 100).await.iter().all(|letter| letter.told.is_none()));
}

#[tokio::test]
async fn what_an_older_release_left_to_be_told_is_told() {
    let desk = Desk::open().await;
    let mut raw = desk.raw().await;
    for text in [
        "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, destination TEXT NOT NULL, generation TEXT NOT NULL, \
         created_at INTEGER NOT NULL, due_at INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, last_error TEXT, \
         died_at INTEGER, bytes INTEGER NOT NULL, payload BLOB NOT NULL)",
        "INSERT INTO outbox (destination, generation, created_at, due_at, attempts, bytes, payload) \
         VALUES ('a', 'gen-1', 1, 2, 3, 1, x'07'), ('a', 'gen-2', 1, 2, 0, 1, x'08')",
    ] {
        sqlx::query(text).execute(&mut raw).await.unwrap();
    }
    raw.close().await.unwrap();
    let Desk { folder, journal, .. } = desk;
    journal.close().await.unwrap();
    for _ in 0..2 {
        let journal = Journal::open(folder.path()).await.unwrap();
        let due = JournalReader::open(folder.path()).unwrap().due("a", NOW, 100).await.unwrap().0;
        let seen: Vec<_> =
            due.iter().map(|letter| (letter.generation.as_str(), letter.payload[0], letter.attempts)).collect();
        assert_eq!(seen, [("gen-1", 7, 3), ("gen-2", 8, 0)]);
        journal.close().await.unwrap();
    }
}

#[tokio::test]
async fn letters_on_sheets_get_rows_whatever_numbers_an_older_release_gave_away() {
    let mut desk = Desk::open().await;
    let id = GenerationId::new(NOW);
    let letter = Letter {
        destination: "a".to_owned(),
        kind: "webhook",
        generation: id,
        payload: Payload::Record(*b"r1"),
        told: Some(b"told"[..].into()),
        at: NOW,
    };
    desk.journal.write_with(&[Entry::Settle(id, "{}")], &[letter], false).await.unwrap();
    let rows = "SELECT COUNT(*) FROM bundles";
    assert_eq!(sqlx::query_scalar::<_, i64>(rows).fetch_one(&mut desk.raw().await).await.unwrap(), 0);
    sqlx::query(
        "INSERT INTO bundles (id, destination, due_at, letters, bytes, created_at, generation, payload) \
         VALUES (1, 'a', 0, 1, 1, 0, 'gen-1', x'07')",
    )
    .execute(&mut desk.raw().await)
    .await
    .unwrap();
    let Desk { folder, journal, .. } = desk;
    drop(journal);
    let journal = Journal::open(folder.path()).await.unwrap();
    let due = journal.reader().due("a", NOW, 10).await.unwrap().0;
    assert_eq!(due.iter().map(|letter| letter.payload.as_slice()).collect::<Vec<_>>(), [&b"\x07"[..], b"r1{}"]);
}
