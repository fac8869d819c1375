//! A request for which attempts are made.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidegate_providers::anthropic::Forwarded;
use tidegate_providers::repair::Repair;
use tidegate_routing::{Attempt, Compression, Plan, Searchers};
use tidegate_wire::envelope::{Cuts, Media as Shown, Purpose, Traits};
use tokio::time::Instant;

use super::Searching;
use super::media::Media;
use super::refused::Refused;
use super::resume::{Graft, Sent};
use super::settle::Ticket;
use super::translate::Typed;
use crate::cache::Recording;
use crate::failure::Failure;
use crate::snapshot::Settings;
use crate::{Gateway, Snapshot};

/// A request on its way, with everything it owns: it may outlive the call that started it.
pub(super) struct Job {
    pub gate: Arc<Gateway>,
    pub snapshot: Arc<Snapshot>,
    pub ticket: Box<Ticket>,
    pub body: Bytes,
    pub cuts: Cuts,
    pub stream: bool,
    pub forwarded: Forwarded,
    pub beta_query: bool,
    pub plan: Plan,
    pub requested: Vec<String>,
    pub metadata: bool,
    pub session: Option<Box<str>>,
    /// Who the end user is, in the caller's words.
    pub user: Option<Box<str>>,
    /// The request as translations read it, or why it cannot be read; made when the first one needs it.
    pub typed: Typed,
    /// The request as those get it who search the web themselves.
    pub native: Option<Box<Native>>,
    /// What the request points at, as far as it was fetched.
    pub media: Media,
    /// What the attempt that answers had to leave out.
    pub warnings: Vec<String>,
    pub traits: Traits,
    /// The service tier that is asked for; `fast` where that is the speed.
    pub tier: Option<Box<str>>,
    pub max_tokens: Option<u64>,
    /// What the body shows that is not text.
    pub shown: Shown,
    /// Whether it has tools, or servers that have some.
    pub has_tools: bool,
    /// Whether the upstream holds what was said before.
    pub continues_thread: bool,
    /// Nothing that the request sets may be left out.
    pub requires_parameters: bool,
    /// For whom the conversation is made shorter.
    pub compression: Compression,
    /// What the call that was refused last should leave out when it is made again.
    pub hint: Vec<Repair>,
    /// What this attempt leaves out because it was refused.
    pub repairs: Vec<Repair>,
    /// The most that the upstream may answer, where the caller set no limit and cannot pay for everything, or the window
    /// has no room for it.
    pub cap: Option<u64>,
    /// It is the money that does not reach further.
    pub is_poor: bool,
    /// Whether a stream that breaks may be gone on with elsewhere.
    pub may_continue: bool,
    /// What the client has of the answer, when another attempt goes on with it.
    pub heard: Option<Heard>,
    /// What the model said that refused last.
    pub refused: Option<Box<Refused>>,
    /// Of a stream that is to be kept.
    pub recording: Option<Box<Recording>>,
}

/// The other form of a request with a search: the one that the attempt under way does not take.
pub(super) struct Native {
    searchers: Searchers,
    body: Bytes,
    cuts: Cuts,
    traits: Traits,
    typed: Typed,
    /// Whether the job has the form of those who search themselves now.
    pub is_taken: bool,
}

impl Native {
    pub fn of(searching: Searching, settings: &Settings) -> Result<Box<Self>, Failure> {
        let Searching { body, searchers, .. } = searching;
        let envelope = super::read(&body, settings, Purpose::Generate)?;
        let (cuts, traits) = (envelope.cuts.clone(), envelope.traits);
        drop(envelope);
        Ok(Box::new(Self { searchers, body, cuts, traits, typed: OnceLock::new(), is_taken: false }))
    }
}

impl Job {
    /// Takes the form of the request that the endpoint of an attempt wants.
    pub fn suit(&mut self, attempt: &Attempt) {
        let Some(native) = &mut self.native else { return };
        let wanted = native.searchers.contains(attempt.endpoint.searcher);
        if std::mem::replace(&mut native.is_taken, wanted) != wanted {
            std::mem::swap(&mut self.body, &mut native.body);
            std::mem::swap(&mut self.cuts, &mut native.cuts);
            std::mem::swap(&mut self.traits, &mut native.traits);
            std::mem::swap(&mut self.typed, &mut native.typed);
        }
    }
}

/// An answer that broke off.
pub(super) struct Heard {
    /// What its first attempt was sent.
    pub asked: Bytes,
    pub sent: Sent,
    pub graft: Graft,
    /// When all of it must be over.
    pub deadline: Instant,
}
