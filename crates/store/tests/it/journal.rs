use tempfile::TempDir;
use tidegate_core::{Exchange, GenerationId, KeyHash, Money, OrganisationId, Spent, Timestamp, Usage, WorkspaceId};
use tidegate_store::journal::{Ballast, Entry, Journal, JournalError, JournalReader, Place, Progress};

use crate::databases::NOW;

fn exchange(number: i64) -> Exchange {
    let started = Timestamp(NOW.0 + number);
    let (organisation, workspace) = (OrganisationId("org".into()), WorkspaceId("w".into()));
    let key = KeyHash::of(b"k");
    Exchange::new(GenerationId::new(started), organisation, workspace, key, "v/m".into(), started)
}

/// What is written of a call.
enum What<'a> {
    Open(&'a Exchange),
    Settle(&'a Exchange),
    Mark(GenerationId, i64, u64),
    OddOpen(GenerationId),
    OddSettle(GenerationId),
}
use What::{Mark, OddOpen, OddSettle, Open, Settle};

/// So far, of a call with an own credential.
fn progress(cost: i64, output: u64) -> Progress {
    let usage = Usage { input: 11, output, cache_read: 5, ..Usage::default() };
    Progress { cost: Money(cost), usage, spent: Some(Spent { credit: Money(1), byok: Money(cost) }) }
}

async fn write(journal: &mut Journal, group: &[What<'_>], full_sync: bool) -> Vec<Place> {
    let text = |what: &What<'_>| match what {
        Open(call) | Settle(call) => serde_json::to_string(call).unwrap(),
        Mark(..) => String::new(),
        OddOpen(_) | OddSettle(_) => "{".to_owned(),
    };
    let texts: Vec<String> = group.iter().map(text).collect();
    let entry = |(what, text): (&What<'_>, &'static str)| match what {
        Open(call) => Entry::Open(call.id, text),
        Settle(call) => Entry::Settle(call.id, text),
        Mark(id, cost, output_tokens) => Entry::Mark(*id, progress(*cost, *output_tokens)),
        OddOpen(id) => Entry::Open(*id, text),
        OddSettle(id) => Entry::Settle(*id, text),
    };
    let texts = texts.into_iter().map(|text| &*text.leak());
    let entries: Vec<Entry<'_>> = group.iter().zip(texts).map(entry).collect();
    journal.write(&entries, full_sync).await.unwrap()
}

/// The settled calls, and whether these are all.
async fn settled(reader: &JournalReader, at_most: usize) -> (Vec<Exchange>, bool) {
    let read = reader.settled(at_most).await.unwrap();
    (read.calls.into_iter().map(|(call, _)| call).collect(), read.is_all)
}

#[tokio::test]
async fn led_13_groups_of_any_size_are_written_whole() {
    let folder = TempDir::new().unwrap();
    let mut journal = Journal::open(folder.path()).await.unwrap();
    let mut all = Vec::new();
    for size in [1, 2, 3, 7, 17, 65, 200, 512, 513, 1_100] {
        let calls: Vec<Exchange> = (0..size).map(exchange).collect();
        let group: Vec<What<'_>> = calls.iter().map(Open).collect();
        write(&mut journal, &group, size % 2 == 0).await;
        all.extend(calls);
        assert_eq!(journal.reader().counts().await.unwrap(), (all.len() as u64, 0), "after a group of {size}");
    }
    // All of them are settled in groups that cut across those in which they were let in, and forgotten in others again.
    let mut places = Vec::new();
    let mut over = 0;
    for size in [1, 513, 40, 200, 1, 1_100, 3] {
        let group: Vec<What<'_>> = all[over..over + size].iter().map(Settle).collect();
        let written = write(&mut journal, &group, false).await;
        assert_eq!(written.len(), size);
        places.extend(written);
        over += size;
        let left = (all.len() - over) as u64;
        assert_eq!(journal.reader().counts().await.unwrap(), (left, over as u64), "after a group of {size}");
    }
    let mut left = places.len();
    for some in places.chunks(77) {
        journal.forget(some, &[]).await.unwrap();
        left -= some.len();
        // Rows go when all of them is known elsewhere; so long they are read again.
        let read = journal.reader().settled(usize::MAX).await.unwrap();
        if left > 0 {
            let few = journal.reader().settled(3).await.unwrap();
            assert!((1..=3 + 512).contains(&few.calls.len()) && !few.is_all, "{left}: {}", few.calls.len());
        }
        assert!(read.is_all && (left..left + 512).contains(&read.calls.len()), "{left}: {}", read.calls.len());
    }
    let open = (all.len() - over) as u64;
    assert_eq!(journal.reader().counts().await.unwrap(), (open, 0));
}

#[tokio::test]
async fn led_3_a_call_is_settled_once_and_the_first_settling_counts() {
    let folder = TempDir::new().unwrap();
    let mut journal = Journal::open(folder.path()).await.unwrap();
    let call = exchange(1);
    let first = Exchange { cost: Some(Money(5)), ..call.clone() };
    let second = Exchange { cost: Some(Money(7)), ..call.clone() };
    // All of it in one group: an answer can be quicker than a commit.
    let group = [Open(&call), Settle(&first), Settle(&second), Open(&call)];
    let places = write(&mut journal, &group, false).await;
    assert_eq!(settled(&journal.reader(), 10).await, (vec![first], true));
    assert_eq!(journal.reader().counts().await.unwrap(), (0, 1));
    assert_eq!(places[0], places[1]);
    // Whoever is told twice that it is known elsewhere forgets it once.
    journal.forget(&places, &[]).await.unwrap();
    assert_eq!(journal.reader().counts().await.unwrap(), (0, 0));
}

#[tokio::test]
async fn led_18_nothing_in_the_journal_can_keep_a_start_from_recovering_the_rest() {
    let folder = TempDir::new().unwrap();
    let (over, good) = (exchange(1), exchange(2));
    let mut journal = Journal::open(folder.path()).await.unwrap();
    // How far a call has come that is over and forgotten is no call.
    let places = write(&mut journal, &[Settle(&over)], false).await;
    journal.forget(&places, &[]).await.unwrap();
    write(&mut journal, &[Mark(over.id, 1, 1), Open(&good)], false).await;
    assert_eq!(journal.reader().counts().await.unwrap(), (1, 0));
    write(&mut journal, &[OddOpen(over.id)], false).await;
    let left = journal.reader().left_open(i64::MAX).await.unwrap();
    assert_eq!(left.iter().map(|open| open.exchange.id).collect::<Vec<_>>(), [good.id]);
    // What cannot be read is no reason to believe that nothing follows.
    write(&mut journal, &[OddSettle(over.id), Settle(&good)], false).await;
    let read = journal.reader().settled(10).await.unwrap();
    assert_eq!((read.calls.len(), read.spoiled.len(), read.is_all), (1, 1, true));
    // It is kept apart, and does not come again.
    journal.forget(&[read.calls[0].1], &read.spoiled).await.unwrap();
    assert_eq!(settled(&journal.reader(), 10).await, (Vec::new(), true));
    let kept = journal.reader().unreadable_rows().await.unwrap();
    assert_eq!((kept.len(), &*kept[0].generation), (1, over.id.as_str()));
    assert!(kept[0].exchange().is_err());
}

#[tokio::test]
async fn led_18_what_an_earlier_start_left_open_is_found_with_its_progress() {
    let folder = TempDir::new().unwrap();
    let (silent, spoke, over) = (exchange(1), exchange(2), exchange(3));
    let mut journal = Journal::open(folder.path()).await.unwrap();
    let node = journal.node().clone();
    write(&mut journal, &[Open(&silent), Open(&spoke), Open(&over)], false).await;
    let more = Exchange { reserved: Money(9), ..silent.clone() };
    write(&mut journal, &[Mark(spoke.id, 10, 3), Open(&more), Settle(&over)], false).await;
    // The last one of a group says most.
    write(&mut journal, &[Mark(spoke.id, 12, 4), Mark(spoke.id, 15, 5), Mark(spoke.id, 20, 6)], false).await;
    assert!(journal.reader().left_open(node.epoch).await.unwrap().is_empty(), "they are of this epoch");
    drop(journal);

    let mut journal = Journal::open(folder.path()).await.unwrap();
    assert_eq!(journal.node().id, node.id);
    assert_eq!(journal.node().epoch, node.epoch + 1);
    let left = journal.reader().left_open(journal.node().epoch).await.unwrap();
    let found: Vec<_> = left.iter().map(|open| (&open.exchange, open.progress)).collect();
    let last = progress(20, 6);
    assert_eq!(found, [(&more, None), (&spoke, Some(last))], "what was held last, and how far it had come");
    // Asked for in full, by time: only the first one is old enough.
    let overdue = journal.reader().overdue(spoke.started).await.unwrap();
    assert_eq!(overdue.iter().map(|open| open.exchange.id).collect::<Vec<_>>(), [silent.id]);
    journal.reopen().await.unwrap();
    write(&mut journal, &[Settle(&spoke)], true).await;
    // All that is settled goes, whichever start let it in; what is open stays, and so it does at the next start.
    let read = journal.reader().settled(10).await.unwrap();
    let places: Vec<Place> = read.calls.iter().map(|(_, place)| *place).collect();
    journal.forget(&places, &[]).await.unwrap();
    journal.close().await.unwrap();
    let journal = Journal::open(folder.path()).await.unwrap();
    assert_eq!(journal.reader().counts().await.unwrap(), (1, 0));
    let left = journal.reader().left_open(i64::MAX).await.unwrap();
    assert_eq!(left.iter().map(|open| open.exchange.id).collect::<Vec<_>>(), [silent.id]);
}

#[tokio::test]
async fn led_18_a_journal_of_an_older_release_is_taken_over() {
    let folder = TempDir::new().unwrap();
    let (open, over) = (exchange(1), exchange(2));
    let path = folder.path().join("ledger.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    for text in [
        "CREATE TABLE node (id TEXT NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL)",
        "INSERT INTO node VALUES ('node_1', 7)",
        "CREATE TABLE calls (generation TEXT NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL, is_settled INTEGER NOT NULL, \
         data TEXT NOT NULL, progress_nanos INTEGER, progress_tokens INTEGER) WITHOUT ROWID",
    ] {
        sqlx::query(text).execute(&pool).await.unwrap();
    }
    for (call, is_settled, nanos) in [(&open, 0, Some(4)), (&over, 1, None)] {
        sqlx::query("INSERT INTO calls VALUES (?, 7, ?, ?, ?, ?)")
            .bind(call.id.as_str())
            .bind(is_settled)
            .bind(serde_json::to_string(call).unwrap())
            .bind(nanos)
            .bind(nanos)
            .execute(&pool)
            .await
            .unwrap();
    }
    pool.close().await;
    let reader = JournalReader::open(folder.path()).unwrap();
    assert!(matches!(reader.is_whole().await, Err(JournalError::Older)), "who only looks changes nothing");
    reader.close().await;

    let journal = Journal::open(folder.path()).await.unwrap();
    assert_eq!((&*journal.node().id, journal.node().epoch), ("node_1", 8));
    let left = journal.reader().left_open(8).await.unwrap();
    let found: Vec<_> = left.iter().map(|open| (&open.exchange, open.progress)).collect();
    let usage = Usage { output: 4, ..Usage::default() };
    assert_eq!(found, [(&open, Some(Progress { cost: Money(4), usage, spent: None }))]);
    assert_eq!(settled(&journal.reader(), 10).await, (vec![over], true));
}

#[tokio::test]
async fn led_20_a_lock_of_somebody_else_is_told_apart() {
    let folder = TempDir::new().unwrap();
    let mut journal = Journal::open(folder.path()).await.unwrap();
    let path = folder.path().join("ledger.db");
    let mut other = sqlx::SqlitePool::connect_lazy_with(sqlx::sqlite::SqliteConnectOptions::new().filename(path))
        .acquire()
        .await
        .unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *other).await.unwrap();
    let call = exchange(1);
    let text = serde_json::to_string(&call).unwrap();
    let refused = journal.write(&[Entry::Open(call.id, &text)], false).await;
    assert!(matches!(refused, Err(JournalError::Locked)), "{refused:?}");
    sqlx::query("ROLLBACK").execute(&mut *other).await.unwrap();
    write(&mut journal, &[Open(&call)], false).await;
    // A disk that is full, as SQLite sees it.
    let calls: Vec<Exchange> = (0..400).map(exchange).collect();
    let entries: Vec<Entry<'_>> = calls.iter().map(|call| Entry::Open(call.id, &text)).collect();
    journal.limit_pages(1).await.unwrap();
    let refused = journal.write(&entries, false).await;
    assert!(matches!(refused, Err(JournalError::Full)), "{refused:?}");
    journal.limit_pages(u32::MAX).await.unwrap();
    journal.write(&entries, false).await.unwrap();
    assert_eq!(journal.reader().counts().await.unwrap(), (401, 0), "a group is written whole or not at all");
}

#[tokio::test]
async fn led_20_what_was_written_is_brought_to_the_disk_by_a_commit_of_its_own() {
    let folder = TempDir::new().unwrap();
    let mut journal = Journal::open(folder.path()).await.unwrap();
    write(&mut journal, &[Open(&exchange(1))], false).await;
    let length = || std::fs::metadata(folder.path().join("ledger.db-wal")).unwrap().len();
    for _ in 0..3 {
        let before = length();
        journal.flush().await.unwrap();
        assert!(length() > before, "a commit that changes nothing is none");
    }
    assert_eq!(journal.reader().counts().await.unwrap(), (1, 0));
}

#[tokio::test]
async fn led_18_sheets_that_cannot_be_read_are_kept_and_hold_up_nothing() {
    let folder = TempDir::new().unwrap();
    let mut journal = Journal::open(folder.path()).await.unwrap();
    let (good, bad) = (exchange(1), exchange(2));
    write(&mut journal, &[Settle(&good)], false).await;
    write(&mut journal, &[Settle(&bad)], false).await;
    drop(journal);
    let pool = sqlx::SqlitePool::connect_lazy_with(
        sqlx::sqlite::SqliteConnectOptions::new().filename(folder.path().join("ledger.db")),
    );
    // The second sheet says of itself that there is more of it.
    let spoil =
        "UPDATE ring SET data = CAST(substr(data, 1, 26) || x'0200' || substr(data, 29) AS BLOB) WHERE slot = 2";
    assert_eq!(sqlx::query(spoil).execute(&pool).await.unwrap().rows_affected(), 1);
    pool.close().await;
    assert!(!JournalReader::open(folder.path()).unwrap().is_whole().await.unwrap());
    for _ in 0..2 {
        let mut journal = Journal::open(folder.path()).await.unwrap();
        let kept = journal.reader().unreadable_rows().await.unwrap();
        assert_eq!(kept.len(), 1);
        write(&mut journal, &[Open(&exchange(3))], false).await;
        let (calls, _) = settled(&journal.reader(), 10).await;
        assert!(calls.contains(&good));
        journal.close().await.unwrap();
    }
}

#[test]
fn led_20_room_is_kept_and_given_back() {
    let folder = TempDir::new().unwrap();
    let ballast = Ballast::of(folder.path());
    assert!(!ballast.is_taken() && !ballast.give());
    ballast.take().unwrap();
    ballast.take().unwrap();
    assert!(ballast.is_taken() && ballast.give() && !ballast.is_taken());
}

#[tokio::test]
async fn the_log_is_folded_earlier_where_room_is_short_and_begins_anew() {
    let folder = TempDir::new().unwrap();
    let mut journal = Journal::open(folder.path()).await.unwrap();
    // One long text first: it says nothing about how long the others are.
    let long = exchange(0);
    let text = format!(r#""{}""#, "x".repeat(17 << 20));
    let others: Vec<Exchange> = (1..200).map(exchange).collect();
    let texts: Vec<String> = others.iter().map(|call| serde_json::to_string(call).unwrap()).collect();
    let mut entries = vec![Entry::Settle(long.id, &text)];
    entries.extend(others.iter().zip(&texts).map(|(call, text)| Entry::Settle(call.id, text)));
    assert!(!journal.is_long(true));
    assert_eq!(journal.write(&entries, false).await.unwrap().len(), 200);
    assert!(journal.is_long(true) && !journal.is_long(false));
    journal.folding().run().await.unwrap();
    journal.fold().await.unwrap();
    assert!(!journal.is_long(true));
    // What was in it is in the file now: nothing of it is lost.
    let log = folder.path().join("ledger.db-wal");
    let before = std::fs::metadata(&log).unwrap().len();
    let read = journal.reader().settled(1_000).await.unwrap();
    assert_eq!((read.calls.len(), read.spoiled.len()), (199, 1));
    write(&mut journal, &[Open(&exchange(500))], false).await;
    assert_eq!(std::fs::metadata(&log).unwrap().len(), before, "it is written over from its beginning");
}

#[tokio::test]
async fn only_its_owner_reads_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let mut journal = Journal::open(folder.path()).await.unwrap();
    write(&mut journal, &[Open(&exchange(0))], false).await;
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
