//! What the server counts and remembers, shared between its connections and the test that watches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::sync::Notify;

use crate::messages;
use crate::script::{Behaviour, Script};

/// How many requests are kept; a long run must not grow without end.
const KEPT: usize = 64;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    /// With the query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    /// The header's value, if it is there once or more and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The script in force and how far its sequence has come.
pub(crate) struct Active {
    pub script: Script,
    used: AtomicUsize,
}

impl Active {
    fn new(script: Script) -> Self {
        let used = AtomicUsize::new(0);
        Self { script, used }
    }

    /// Takes the next behaviour of the sequence.
    pub fn take(&self) -> &Behaviour {
        self.script.at(self.used.fetch_add(1, SeqCst))
    }

    /// What the next call will get.
    pub fn peek(&self) -> &Behaviour {
        self.script.at(self.used.load(SeqCst))
    }
}

pub(crate) struct State {
    active: RwLock<Arc<Active>>,
    counts: Counts,
    changed: Notify,
    seen: Mutex<VecDeque<Seen>>,
    requests: AtomicUsize,
    pub tokens: messages::TokenCache,
    pub tool_ids: AtomicUsize,
}

#[derive(Default)]
struct Counts {
    calls: AtomicUsize,
    count_calls: AtomicUsize,
    open: AtomicUsize,
    cancelled: AtomicUsize,
}

impl State {
    pub fn new(script: Script) -> Self {
        Self {
            active: RwLock::new(Arc::new(Active::new(script))),
            counts: Counts::default(),
            changed: Notify::new(),
            seen: Mutex::default(),
            requests: AtomicUsize::new(0),
            tokens: messages::TokenCache::default(),
            tool_ids: AtomicUsize::new(0),
        }
    }

    pub fn active(&self) -> Arc<Active> {
        self.active.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, script: Script) {
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Active::new(script));
    }

    /// A number no other request of this server has; ids are made of it.
    pub fn next_request(&self) -> usize {
        self.requests.fetch_add(1, SeqCst) + 1
    }

    pub fn record(&self, seen: Seen) {
        let mut kept = self.seen();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(seen);
    }

    pub fn seen(&self) -> MutexGuard<'_, VecDeque<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn calls(&self) -> usize {
        self.counts.calls.load(SeqCst)
    }

    pub fn count_calls(&self) -> usize {
        self.counts.count_calls.load(SeqCst)
    }

    pub fn open(&self) -> usize {
        self.counts.open.load(SeqCst)
    }

    pub fn cancelled(&self) -> usize {
        self.counts.cancelled.load(SeqCst)
    }

    pub fn count_call(&self) {
        self.counts.count_calls.fetch_add(1, SeqCst);
        self.changed.notify_waiters();
    }

    /// Counts a message call that has arrived whole. It is open before it is counted, so that a test
    /// which waited for the call finds it open.
    pub fn enter(self: &Arc<Self>) -> Open {
        self.counts.open.fetch_add(1, SeqCst);
        self.counts.calls.fetch_add(1, SeqCst);
        self.changed.notify_waiters();
        Open { state: Some(self.clone()) }
    }

    /// Returns once the condition holds; it is looked at after every change of a count.
    pub async fn until(&self, mut holds: impl FnMut(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Listening starts before looking, so a change in between is not missed.
            changed.as_mut().enable();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }
}

/// A message call being answered. Dropped unfinished, the client left before the end.
pub(crate) struct Open {
    state: Option<Arc<State>>,
}

impl Open {
    /// The answer is complete, faults included. Called before the last bytes go out, so that a client
    /// which has read them never sees its own call still open.
    pub fn finish(&mut self) {
        self.leave(false);
    }

    fn leave(&mut self, cancelled: bool) {
        let Some(state) = self.state.take() else {
            return;
        };
        if cancelled {
            state.counts.cancelled.fetch_add(1, SeqCst);
        }
        state.counts.open.fetch_sub(1, SeqCst);
        state.changed.notify_waiters();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.leave(true);
    }
}
