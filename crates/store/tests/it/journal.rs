use tempfile::TempDir;
use tidegate_core::{Exchange, GenerationId, KeyHash, Money, OrganisationId, Timestamp, WorkspaceId};
use tidegate_store::journal::{Ballast, Entry, Journal, JournalError, Progress};

use crate::databases::NOW;

fn exchange(number: i64) -> Exchange {
    let started = Timestamp(NOW.0 + number);
    let (organisation, workspace) = (OrganisationId("org".into()), WorkspaceId("w".into()));
    let key = KeyHash::of(b"k");
    Exchange::new(GenerationId::new(started), organisation, workspace, key, "v/m".into(), started)
}

fn entry(exchange: &Exchange, is_settled: bool) -> Entry {
    let data = Some(serde_json::to_string(exchange).unwrap());
    Entry { generation: exchange.id, is_settled, data, progress: None }
}

#[tokio::test]
async fn led_13_groups_of_any_size_are_written_whole() {
    let folder = TempDir::new().unwrap();
    let mut journal = Journal::open(folder.path()).await.unwrap();
    let mut written = 0;
    for size in [1, 2, 3, 7, 17, 65, 200, 512, 513, 1_100] {
        let calls: Vec<Exchange> = (0..size).map(exchange).collect();
        let entries: Vec<Entry> = calls.iter().map(|call| entry(call, false)).collect();
        journal.write(&entries, size % 2 == 0).await.unwrap();
        written += calls.len() as u64;
        assert_eq!(journal.reader().counts().await.unwrap(), (written, 0), "after a group of {size}");
    }
}

#[tokio::test]
async fn led_3_a_call_is_settled_once_and_the_first_settling_counts() {
    let folder = TempDir::new().unwrap();
    let mut journal = Journal::open(folder.path()).await.unwrap();
    let call = exchange(1);
    let first = Exchange { cost: Some(Money(5)), ..call.clone() };
    let second = Exchange { cost: Some(Money(7)), ..call.clone() };
    // All of it in one group: an answer can be quicker than a commit.
    let group = [entry(&call, false), entry(&first, true), entry(&second, true), entry(&call, false)];
    journal.write(&group, false).await.unwrap();
    journal.write(&[entry(&second, true), entry(&call, false)], false).await.unwrap();
    assert_eq!(journal.reader().settled(10).await.unwrap(), (vec![first], true));
    assert_eq!(journal.reader().counts().await.unwrap(), (0, 1));
    journal.forget(&[call.id]).await.unwrap();
    assert_eq!(journal.reader().counts().await.unwrap(), (0, 0));
}

#[tokio::test]
async fn led_18_nothing_in_the_journal_can_keep_a_start_from_recovering_the_rest() {
    let folder = TempDir::new().unwrap();
    let (over, good) = (exchange(1), exchange(2));
    let mut journal = Journal::open(folder.path()).await.unwrap();
    let mark = |id| Entry {
        generation: id,
        is_settled: false,
        data: None,
        progress: Some(Progress { cost: Money(1), output_tokens: 1 }),
    };
    // How far a call has come that is over and forgotten is no call.
    journal.write(&[entry(&over, true)], false).await.unwrap();
    journal.forget(&[over.id]).await.unwrap();
    journal.write(&[mark(over.id), entry(&good, false)], false).await.unwrap();
    assert_eq!(journal.reader().counts().await.unwrap(), (1, 0));
    let odd = Entry { data: Some("{".to_owned()), ..entry(&over, false) };
    journal.write(&[odd], false).await.unwrap();
    let left = journal.reader().left_open(i64::MAX).await.unwrap();
    assert_eq!(left.iter().map(|open| open.exchange.id).collect::<Vec<_>>(), [good.id]);
    // What cannot be read is no reason to believe that nothing follows.
    let odd = Entry { data: Some("{".to_owned()), ..entry(&over, true) };
    journal.write(&[odd, entry(&good, true)], false).await.unwrap();
    assert_eq!(journal.reader().settled(1).await.unwrap(), (Vec::new(), false));
    assert_eq!(journal.reader().settled(3).await.unwrap(), (vec![good], true));
}

#[tokio::test]
async fn led_18_what_an_earlier_start_left_open_is_found_with_its_progress() {
    let folder = TempDir::new().unwrap();
    let (silent, spoke) = (exchange(1), exchange(2));
    let mut journal = Journal::open(folder.path()).await.unwrap();
    let node = journal.node().clone();
    journal.write(&[entry(&silent, false), entry(&spoke, false)], false).await.unwrap();
    let marks = [(10, 3), (20, 6)].map(|(cost, tokens)| Entry {
        generation: spoke.id,
        is_settled: false,
        data: None,
        progress: Some(Progress { cost: Money(cost), output_tokens: tokens }),
    });
    for mark in marks {
        journal.write(&[mark], false).await.unwrap();
    }
    assert!(journal.reader().left_open(node.epoch).await.unwrap().is_empty(), "they are of this epoch");
    drop(journal);

    let mut journal = Journal::open(folder.path()).await.unwrap();
    assert_eq!(journal.node().id, node.id);
    assert_eq!(journal.node().epoch, node.epoch + 1);
    let left = journal.reader().left_open(journal.node().epoch).await.unwrap();
    let found: Vec<_> = left.iter().map(|open| (&open.exchange, open.progress)).collect();
    let last = Progress { cost: Money(20), output_tokens: 6 };
    assert_eq!(found, [(&silent, None), (&spoke, Some(last))]);
    // Asked for in full, by time: only the first one is old enough.
    let overdue = journal.reader().overdue(spoke.started).await.unwrap();
    assert_eq!(overdue.iter().map(|open| open.exchange.id).collect::<Vec<_>>(), [silent.id]);
    journal.reopen().await.unwrap();
    journal.write(&[entry(&spoke, true)], true).await.unwrap();
    journal.close().await.unwrap();
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
    let refused = journal.write(&[entry(&call, false)], false).await;
    assert!(matches!(refused, Err(JournalError::Locked)), "{refused:?}");
    sqlx::query("ROLLBACK").execute(&mut *other).await.unwrap();
    journal.write(&[entry(&call, false)], false).await.unwrap();
    // A disk that is full, as SQLite sees it.
    let calls: Vec<Entry> = (0..400).map(|number| entry(&exchange(number), false)).collect();
    journal.limit_pages(1).await.unwrap();
    let refused = journal.write(&calls, false).await;
    assert!(matches!(refused, Err(JournalError::Full)), "{refused:?}");
    journal.limit_pages(u32::MAX).await.unwrap();
    journal.write(&calls, false).await.unwrap();
    assert_eq!(journal.reader().counts().await.unwrap(), (401, 0), "a group is written whole or not at all");
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
