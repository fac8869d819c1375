//! What a group says of calls, each of them once: a call that is settled stays as it is, and the first settling counts.

use std::collections::BTreeMap;

use tidegate_core::GenerationId;
use tidegate_core::map::Map;

use super::{Entry, Home, Progress};

#[derive(Debug)]
pub(super) struct Draft<'k, 'a> {
    known: &'k Map<GenerationId, Home>,
    opens: Vec<(GenerationId, &'a str)>,
    /// Their places in that list.
    fresh: Map<GenerationId, usize>,
    /// New words for calls that have rows.
    pub amended: Vec<(i64, &'a str)>,
    /// The last of each call: it says most.
    pub marked: BTreeMap<i64, Progress>,
    /// The same of calls that have none yet, and get them with it.
    pub risen: BTreeMap<GenerationId, Progress>,
    pub settles: Vec<(GenerationId, &'a str)>,
    /// Their places in that list.
    settled: Map<GenerationId, usize>,
    /// Which of them each settling is about, as they came.
    pub order: Vec<usize>,
}

impl<'k, 'a> Draft<'k, 'a> {
    /// `known`: where open calls stand.
    pub fn of(entries: &[Entry<'a>], known: &'k Map<GenerationId, Home>) -> Self {
        // Room for all of it at once: what grows step by step is moved, and hashed again, with every step.
        let settles = entries.iter().filter(|entry| matches!(entry, Entry::Settle(..))).count();
        let others = entries.len() - settles;
        let mut draft = Self {
            known,
            opens: Vec::with_capacity(others),
            fresh: Map::with_capacity_and_hasher(others, Default::default()),
            amended: Vec::new(),
            marked: BTreeMap::new(),
            risen: BTreeMap::new(),
            settles: Vec::with_capacity(settles),
            settled: Map::with_capacity_and_hasher(settles, Default::default()),
            order: Vec::with_capacity(settles),
        };
        entries.iter().for_each(|entry| draft.add(*entry));
        draft
    }

    fn add(&mut self, entry: Entry<'a>) {
        match entry {
            Entry::Open(id, _) | Entry::Mark(id, _) if self.settled.contains_key(&id) => {}
            Entry::Open(id, data) => match (self.known.get(&id), self.fresh.get(&id)) {
                (Some(Home::Row(row)), _) => self.amended.push((*row, data)),
                (_, Some(place)) => self.opens[*place].1 = data,
                (_, None) => {
                    self.fresh.insert(id, self.opens.len());
                    self.opens.push((id, data));
                }
            },
            Entry::Mark(id, progress) => match self.known.get(&id) {
                Some(Home::Row(row)) => drop(self.marked.insert(*row, progress)),
                Some(Home::Ring(_)) => drop(self.risen.insert(id, progress)),
                // Of one that is let in with the same group there is nothing to say yet.
                None => {}
            },
            Entry::Settle(id, data) => {
                let place = *self.settled.entry(id).or_insert(self.settles.len());
                if place == self.settles.len() {
                    self.settles.push((id, data));
                    // Of a call that is over it need not be said that it was let in, nor how far it had come.
                    self.risen.remove(&id);
                    self.take_open(&id);
                }
                self.order.push(place);
            }
        }
    }

    /// Has it not said here that a call was let in. Says what was to be said.
    pub fn take_open(&mut self, id: &GenerationId) -> Option<&'a str> {
        let place = self.fresh.remove(id)?;
        let (_, data) = self.opens.swap_remove(place);
        if let Some((moved, _)) = self.opens.get(place) {
            self.fresh.insert(*moved, place);
        }
        Some(data)
    }

    /// Calls that are let in, or more is held for them.
    pub fn opens(&self) -> &[(GenerationId, &'a str)] {
        &self.opens
    }

    /// Whether it says anything of a call that makes older words needless.
    pub fn is_about(&self, id: &GenerationId) -> bool {
        self.settled.contains_key(id) || self.fresh.contains_key(id) || self.risen.contains_key(id)
    }

    /// What a call ended with.
    pub fn settled(&self, id: &GenerationId) -> Option<&'a str> {
        self.settled.get(id).map(|place| self.settles[*place].1)
    }

    /// About how long it is.
    pub fn bytes(&self) -> usize {
        self.opens.iter().chain(&self.settles).map(|(_, data)| data.len() + 64).sum()
    }
}
