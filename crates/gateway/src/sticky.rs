//! Who served a conversation last, so that its next turn finds the prompt in the same cache. Losing it is harmless, and
//! without it every node still draws the same endpoint for the same conversation.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::quality::FixedState;
use quick_cache::sync::Cache;
use tidegate_core::{Timestamp, Usage, WorkspaceId};
use tidegate_routing::plan::Home;
use tidegate_routing::price::Unit;
use tidegate_routing::{Credential, Endpoint, Sticky};
use tidegate_wire::envelope::Opening;

/// Conversations that are remembered; those that were silent the longest go first.
const MOST: usize = 100_000;
/// After the last answer.
const REMEMBERED: Duration = Duration::from_secs(600);
/// After the last choice.
const MODEL: Duration = Duration::from_secs(300);
/// As much of a text as tells one conversation from another.
const OPENING: usize = 4 << 10;

const SEEDS: [u64; 2] = [0x7469_6465, 0x6761_7465];

/// A conversation: a workspace, a model, and a session or the way it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversation {
    /// Two numbers that stand for all of it. Losing it is harmless, and so is taking one for another.
    hash: [u64; 2],
    /// The caller named the session.
    is_named: bool,
}

impl Conversation {
    pub fn of(workspace: &WorkspaceId, model: &str, session: Option<&str>, opening: &Opening<'_>) -> Self {
        // The same on every node.
        let mut hashers = SEEDS.map(|seed| FixedState::with_seed(seed).build_hasher());
        let mut add = |text: &str| {
            let end = text.floor_char_boundary(OPENING);
            for hasher in &mut hashers {
                // With its length, so that one text cannot run into the next.
                hasher.write_u64(text.len() as u64);
                hasher.write(&text.as_bytes()[..end]);
            }
        };
        add(&workspace.0);
        add(model);
        match session {
            Some(session) => add(session),
            None => {
                add(opening.system.unwrap_or_default());
                add(opening.message.unwrap_or_default());
                add("");
            }
        }
        Self { hash: hashers.map(|hasher| hasher.finish()), is_named: session.is_some() }
    }

    /// A number from 0 to 1, never 1, that is the same for the conversation everywhere.
    pub fn draw(&self) -> f64 {
        (self.hash[0] >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether an answer is a reason to come back: its cache is warm there, or the caller asked for it.
    fn is_worth(&self, endpoint: &Endpoint, usage: &Usage) -> bool {
        let is_cached = usage.cache_read + usage.cache_write + usage.cache_write_1h > 0;
        let is_cheaper = endpoint.pricing.as_ref().is_none_or(|pricing| {
            let (read, input) = (pricing.base.get(Unit::CacheRead), pricing.base.get(Unit::Input));
            read.zip(input).is_none_or(|(read, input)| read < input)
        });
        self.is_named || (is_cached && is_cheaper)
    }
}

/// Where a conversation was served.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    model: Arc<str>,
    tag: Arc<str>,
    credential: Option<Arc<str>>,
    until: Timestamp,
}

impl Served {
    /// As a plan asks for it.
    pub fn sticky(&self) -> Sticky<'_> {
        Sticky { tag: &self.tag, credential: self.credential.as_deref() }
    }

    fn of(endpoint: &Endpoint, credential: Option<&Credential>, now: Timestamp) -> Self {
        let (model, tag) = (endpoint.model.clone(), endpoint.tag.clone());
        Self { model, tag, credential: credential.map(|credential| credential.id.clone()), until: now.plus(REMEMBERED) }
    }
}

/// Where the turns of one request are served, from the first that was answered on.
#[derive(Debug, Default)]
pub(crate) struct Hearth(Mutex<Option<Served>>);

impl Hearth {
    pub fn served(&self, endpoint: &Endpoint, credential: Option<&Credential>, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Served::of(endpoint, credential, now));
    }

    pub fn last(&self) -> Option<Served> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Served {
    /// As the plan of a later turn of the same request asks for it.
    pub fn home(&self) -> Home<'_> {
        Home { model: &self.model, at: self.sticky() }
    }
}

pub(crate) struct Stickiness {
    served: Cache<[u64; 2], Served>,
    /// Models that were chosen for conversations that leave it open, and until when that counts.
    models: Cache<[u64; 2], (Arc<str>, Timestamp)>,
}

impl Default for Stickiness {
    fn default() -> Self {
        Self { served: Cache::new(MOST), models: Cache::new(MOST / 4) }
    }
}

impl Stickiness {
    pub fn last(&self, conversation: &Conversation, now: Timestamp) -> Option<Served> {
        self.served.get(&conversation.hash).filter(|served| now < served.until)
    }

    /// An answer came to its end.
    pub fn served(
        &self,
        conversation: &Conversation,
        (endpoint, credential): (&Endpoint, Option<&Credential>),
        usage: &Usage,
        now: Timestamp,
    ) {
        if conversation.is_worth(endpoint, usage) {
            self.served.insert(conversation.hash, Served::of(endpoint, credential, now));
        }
    }

    /// The model that was chosen for a conversation.
    pub fn model(&self, conversation: &Conversation, now: Timestamp) -> Option<String> {
        let known = self.models.get(&conversation.hash).filter(|(_, until)| now < *until);
        known.map(|(model, _)| model.to_string())
    }

    pub fn keep_model(&self, conversation: &Conversation, model: &str, now: Timestamp) {
        self.models.insert(conversation.hash, (model.into(), now.plus(MODEL)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::Price;
    use tidegate_routing::Pricing;
    use tidegate_routing::price::Prices;

    fn opening(system: &'static str, message: &'static str) -> Opening<'static> {
        Opening { system: Some(system), message: Some(message) }
    }

    fn of(workspace: &str, model: &str, session: Option<&str>, opening: &Opening<'_>) -> Conversation {
        Conversation::of(&WorkspaceId(workspace.into()), model, session, opening)
    }

    #[test]
    fn a_session_or_the_opening_makes_a_conversation() {
        let (one, other) = (opening("be kind", "hello"), opening("be kind", "goodbye"));
        let base = of("w", "a/m", Some("s"), &one);
        assert_eq!(base, of("w", "a/m", Some("s"), &other), "a session says it all");
        for different in [
            of("v", "a/m", Some("s"), &one),
            of("w", "a/n", Some("s"), &one),
            of("w", "a/m", Some("t"), &one),
            of("w", "a/m", None, &one),
            of("w", "a/m", None, &other),
            of("w", "a/m", None, &opening("be kindhello", "")),
            of("w", "a/m", Some(""), &Opening::default()),
        ] {
            assert_ne!(base.hash, different.hash);
        }
        assert_eq!(of("w", "a/m", None, &one), of("w", "a/m", None, &one.clone()));
        assert!((0.0..1.0).contains(&base.draw()));
    }

    #[test]
    fn what_is_unnamed_sticks_only_where_its_cache_is_warm_and_cheaper() {
        let price = |input: i64, read: i64| {
            let mut prices = Prices::default();
            prices.set(Unit::Input, Price(input));
            prices.set(Unit::CacheRead, Price(read));
            Endpoint { pricing: Some(Pricing::of(prices)), ..Endpoint::new("a/m", "p") }
        };
        let (cheap, same) = (price(100, 10), price(100, 100));
        let (cold, warm) = (Usage::default(), Usage { cache_read: 1, ..Usage::default() });
        let named = of("w", "a/m", Some("s"), &Opening::default());
        let unnamed = of("w", "a/m", None, &opening("a", "b"));
        let cases = [
            (named, &cheap, cold, true),
            (named, &same, cold, true),
            (unnamed, &cheap, cold, false),
            (unnamed, &cheap, warm, true),
            (unnamed, &cheap, Usage { cache_write: 1, ..Usage::default() }, true),
            (unnamed, &same, warm, false),
        ];
        let now = Timestamp(1_790_000_000_000);
        for (conversation, endpoint, usage, sticks) in cases {
            let memory = Stickiness::default();
            memory.served(&conversation, (endpoint, None), &usage, now);
            assert_eq!(memory.last(&conversation, now).is_some(), sticks, "{conversation:?} {usage:?}");
            let later = now.plus(REMEMBERED);
            assert!(memory.last(&conversation, later).is_none(), "ten minutes later it is forgotten");
        }
    }
}
