//! The journal against a plain list of what was said to it: whatever is written, moved, forgotten and delivered in whatever
//! order, and wherever the process dies, it knows the same.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use tidegate_core::{Exchange, GenerationId, KeyHash, Money, OrganisationId, Timestamp, Usage, WorkspaceId};
use tidegate_store::journal::{
    Cursor, Entry, Fate, Journal, JournalError, JournalReader, Letter, Payload, Place, Progress, Waiting,
};

use crate::databases::NOW;

const LATER: Timestamp = Timestamp(NOW.0 + 60_000);
const BEFORE: [u8; 2] = *b"ok";

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())])
    }
}

/// What must be known.
#[derive(Default)]
struct Model {
    open: BTreeMap<GenerationId, (String, Option<(i64, u64)>)>,
    settled: BTreeMap<GenerationId, (String, Place)>,
    forgotten: BTreeSet<GenerationId>,
    /// Letters by destination and call, and since when they are due.
    letters: BTreeMap<(&'static str, GenerationId), Timestamp>,
    /// What the letters are about.
    texts: BTreeMap<GenerationId, String>,
}

struct Desk {
    folder: TempDir,
    journal: Option<Journal>,
    reader: JournalReader,
    model: Model,
    dice: Dice,
    calls: i64,
    failures: usize,
}

fn text(id: GenerationId, length: usize) -> String {
    let (organisation, workspace) = (OrganisationId("org".into()), WorkspaceId("w".into()));
    let mut exchange = Exchange::new(id, organisation, workspace, KeyHash::of(b"k"), "v/m".into(), NOW);
    exchange.user_agent = Some("ü".repeat(length / 2).into());
    serde_json::to_string(&exchange).unwrap()
}

/// A file as an older release made it: the pages of a file stay as long as they are.
async fn make_with_small_pages(folder: &TempDir) {
    let options = SqliteConnectOptions::new().filename(folder.path().join("ledger.db")).create_if_missing(true);
    let mut made = options.page_size(4_096).connect().await.unwrap();
    sqlx::query("CREATE TABLE ring (slot INTEGER PRIMARY KEY, data BLOB NOT NULL)").execute(&mut made).await.unwrap();
    made.close().await.unwrap();
}

impl Desk {
    async fn open(seed: u64) -> Self {
        let folder = TempDir::new().unwrap();
        if seed == 1 {
            make_with_small_pages(&folder).await;
        }
        let journal = Journal::open(folder.path()).await.unwrap();
        let reader = journal.reader();
        Self {
            folder,
            journal: Some(journal),
            reader,
            model: Model::default(),
            dice: Dice(seed),
            calls: 0,
            failures: 0,
        }
    }

    fn journal(&mut self) -> &mut Journal {
        self.journal.as_mut().unwrap()
    }

    fn fresh(&mut self) -> (GenerationId, String) {
        self.calls += 1;
        // Most are short; some take several pages, and now and then one does not fit at all.
        let length = match self.dice.below(200) {
            0 => 1_200_000,
            1..=70 => 25_000,
            71..=120 => 3_000,
            _ => 300,
        };
        let id = GenerationId::new(Timestamp(NOW.0 + self.calls));
        (id, text(id, length))
    }

    /// One group: calls are let in, come some way, are settled.
    async fn write(&mut self) {
        let mut said: Vec<(char, GenerationId, String, Progress)> = Vec::new();
        let mut letters = Vec::new();
        for _ in 0..=self.dice.below(8) {
            let open: Vec<GenerationId> = self.model.open.keys().copied().collect();
            let none = Progress::default();
            match self.dice.below(9) {
                0..=3 => {
                    let (id, text) = self.fresh();
                    self.model.open.insert(id, (text.clone(), None));
                    said.push(('o', id, text, none));
                }
                4 => {
                    if let Some(id) = self.dice.pick(&open) {
                        let text = text(id, 500);
                        self.model.open.get_mut(&id).unwrap().0 = text.clone();
                        said.push(('o', id, text, none));
                    }
                }
                5 => {
                    // Of one that is let in with the same group nothing is said yet.
                    let known: Vec<GenerationId> =
                        open.into_iter().filter(|id| !said.iter().any(|(_, other, ..)| other == id)).collect();
                    if let Some(id) = self.dice.pick(&known) {
                        let (cost, tokens) = (self.dice.below(900) as i64, self.dice.below(900) as u64);
                        self.model.open.get_mut(&id).unwrap().1 = Some((cost, tokens));
                        let usage = Usage { output: tokens, ..Usage::default() };
                        said.push(('m', id, String::new(), Progress { cost: Money(cost), usage, spent: None }));
                    }
                }
                _ => {
                    let picked = self.dice.pick(&open);
                    let (id, text) = match picked {
                        Some(id) => (id, text(id, 700)),
                        None => self.fresh(),
                    };
                    self.model.open.remove(&id);
                    self.model.texts.insert(id, text.clone());
                    for destination in ["a", "b"] {
                        if self.dice.below(3) > 0 {
                            self.model.letters.insert((destination, id), NOW);
                            letters.push(Letter {
                                destination: destination.to_owned(),
                                kind: "webhook",
                                generation: id,
                                payload: Payload::Record(BEFORE),
                                told: Some([&BEFORE, text.as_bytes()].concat().into()),
                                at: NOW,
                            });
                        }
                    }
                    said.push(('s', id, text, none));
                }
            }
        }
        let entry = |(kind, id, text, progress): &(char, GenerationId, String, Progress)| match kind {
            'o' => Entry::Open(*id, &*text.clone().leak()),
            'm' => Entry::Mark(*id, *progress),
            _ => Entry::Settle(*id, &*text.clone().leak()),
        };
        let entries: Vec<Entry<'_>> = said.iter().map(entry).collect();
        let full_sync = self.dice.below(10) == 0;
        // Now and then the disk is full: nothing of it is written then, and it is tried again.
        if self.dice.below(8) == 0 {
            self.journal().limit_pages(1).await.unwrap();
        }
        let written = self.journal().write_with(&entries, &letters, full_sync).await;
        self.journal().limit_pages(u32::MAX).await.unwrap();
        let places = match written {
            Ok(places) => places,
            Err(error) => {
                assert!(matches!(error, JournalError::Full), "{error}");
                self.failures += 1;
                self.journal().write_with(&entries, &letters, full_sync).await.unwrap()
            }
        };
        let settled = said.iter().filter(|(kind, ..)| *kind == 's');
        for ((_, id, text, _), place) in settled.zip(places) {
            self.model.settled.insert(*id, (text.clone(), place));
        }
    }

    async fn forget(&mut self) {
        // From the oldest on, as they are forwarded.
        let count = self.dice.below(30);
        let some: Vec<GenerationId> = self.model.settled.keys().take(count).copied().collect();
        let places: Vec<Place> = some.iter().map(|id| self.model.settled.remove(id).unwrap().1).collect();
        self.journal().forget(&places, &[]).await.unwrap();
        self.model.forgotten.extend(some);
    }

    async fn deliver(&mut self, destination: &'static str) {
        let at_most = 1 + self.dice.below(40);
        let due = self.reader.due(destination, NOW, at_most).await.unwrap().0;
        let kind = self.dice.below(12);
        let mut fates = Vec::new();
        for letter in &due {
            let id = GenerationId::parse(&letter.generation).unwrap();
            let fate = match kind {
                0 => Fate::Postponed(LATER, "busy".to_owned()),
                1 => Fate::Dead(NOW, "refused".to_owned()),
                2 if self.dice.below(2) == 0 => continue,
                _ => Fate::Delivered,
            };
            match &fate {
                Fate::Postponed(until, _) => drop(self.model.letters.insert((destination, id), *until)),
                _ => drop(self.model.letters.remove(&(destination, id))),
            }
            fates.push((letter.id, fate));
        }
        self.journal().resolve(&fates).await.unwrap();
    }

    /// The process dies, or ends in peace.
    async fn restart(&mut self) {
        let journal = self.journal.take().unwrap();
        self.reader.close().await;
        match self.dice.below(2) {
            0 => drop(journal),
            _ => journal.close().await.unwrap(),
        }
        let journal = Journal::open(self.folder.path()).await.unwrap();
        self.reader = journal.reader();
        self.journal = Some(journal);
        // Whoever begins anew is told where everything stands.
        let read = self.reader.settled(usize::MAX).await.unwrap();
        let again: Vec<Place> = read
            .calls
            .iter()
            .filter(|(exchange, _)| self.model.forgotten.contains(&exchange.id))
            .map(|(_, place)| *place)
            .collect();
        for (exchange, place) in &read.calls {
            if let Some(known) = self.model.settled.get_mut(&exchange.id) {
                known.1 = *place;
            }
        }
        self.journal().forget(&again, &[]).await.unwrap();
    }

    async fn check(&mut self, step: usize) {
        let stranger = JournalReader::open(self.folder.path()).unwrap();
        for reader in [&self.reader, &stranger] {
            let open = reader.open_rows().await.unwrap();
            let data: BTreeMap<GenerationId, Exchange> = open
                .iter()
                .map(|(_, row)| (GenerationId::parse(&row.generation).unwrap(), row.exchange().unwrap()))
                .collect();
            let expected: BTreeMap<GenerationId, Exchange> =
                self.model.open.iter().map(|(id, (text, _))| (*id, serde_json::from_str(text).unwrap())).collect();
            assert_eq!(data, expected, "step {step}: open calls");
            let settled = reader.settled(usize::MAX).await.unwrap();
            assert!(settled.is_all && settled.spoiled.is_empty());
            let mut missing: BTreeSet<GenerationId> = self.model.settled.keys().copied().collect();
            for (exchange, _) in &settled.calls {
                let is_known = missing.remove(&exchange.id);
                // A row goes when all of it is known elsewhere.
                assert!(is_known || self.model.forgotten.contains(&exchange.id), "step {step}: {}", exchange.id);
            }
            assert!(missing.is_empty(), "step {step}: {missing:?} are lost");
            let (mut cursor, mut rows) = (Cursor::default(), 0);
            loop {
                let some = reader.next_settled_rows(&mut cursor).await.unwrap();
                rows += some.len();
                if some.is_empty() {
                    break;
                }
            }
            assert_eq!(rows, settled.calls.len());
            assert_eq!(reader.letters().await.unwrap(), self.model.letters.len() as u64, "step {step}: letters");
            for destination in ["a", "b"] {
                let mine = self.model.letters.keys().filter(|(other, _)| *other == destination).count() as u64;
                assert_eq!(reader.outbox_depth(destination).await.unwrap().0, mine, "step {step}: {destination}");
            }
        }
        stranger.close().await;
        let left: BTreeMap<GenerationId, Option<(i64, u64)>> = self
            .reader
            .left_open(i64::MAX)
            .await
            .unwrap()
            .into_iter()
            .map(|open| (open.exchange.id, open.progress.map(|mark| (mark.cost.0, mark.usage.output))))
            .collect();
        let expected: BTreeMap<GenerationId, Option<(i64, u64)>> =
            self.model.open.iter().map(|(id, (_, progress))| (*id, *progress)).collect();
        assert_eq!(left, expected, "step {step}: how far they have come");
    }

    /// Every letter is found in the end, and says what its call does.
    async fn fetch_all(&mut self) {
        for destination in ["a", "b"] {
            let mut found: BTreeSet<GenerationId> = BTreeSet::new();
            loop {
                let due: Vec<Waiting> = self.reader.due(destination, LATER, 50).await.unwrap().0;
                if due.is_empty() {
                    break;
                }
                let mut fates = Vec::new();
                for letter in &due {
                    let id = GenerationId::parse(&letter.generation).unwrap();
                    let words = letter.told.as_ref().map_or(&letter.payload[..], |told| &told[..]);
                    assert_eq!(words, [&BEFORE, self.model.texts[&id].as_bytes()].concat(), "{destination} {id}");
                    assert!(found.insert(id), "{id} twice");
                    fates.push((letter.id, Fate::Delivered));
                }
                self.journal().resolve(&fates).await.unwrap();
            }
            let expected: BTreeSet<GenerationId> =
                self.model.letters.keys().filter(|(other, _)| *other == destination).map(|(_, id)| *id).collect();
            assert_eq!(found, expected, "{destination}");
        }
    }
}

#[tokio::test]
async fn led_13_the_journal_knows_what_it_was_told_whatever_moves_and_whoever_dies() {
    for seed in 1..=2 {
        let mut desk = Desk::open(seed).await;
        for step in 0..600 {
            match desk.dice.below(40) {
                0..=23 => desk.write().await,
                24..=29 => desk.forget().await,
                30..=33 => desk.deliver("a").await,
                34..=36 => desk.deliver("b").await,
                37 if step % 3 == 0 => desk.restart().await,
                38 => desk.journal().reopen().await.unwrap(),
                _ => desk.check(step).await,
            }
        }
        desk.check(600).await;
        desk.restart().await;
        desk.check(601).await;
        desk.fetch_all().await;
        assert!(desk.reader.is_whole().await.unwrap());
        assert!(desk.failures > 0, "the disk was never full");
    }
}
