//! The hot path: from a body of bytes to a reply. Steps are in the order in which a request takes them: `admit`, `ready`,
//! `serve` and `planning`, `attempt`, `stream`, `settle`.
//!
//! Deliberately absent: SQL, `serde_json::Value`, locks across an await, a task per request, a copy of the body other
//! than the splice.

mod admit;
mod amend;
mod aside;
mod attempt;
pub(crate) mod call;
mod compress;
mod drain;
mod embeddings;
mod follow;
pub(crate) mod foreign;
mod framing;
mod gather;
mod head;
mod images;
mod inner;
mod job;
mod media;
mod meter;
mod planning;
mod prefer;
mod pump;
mod ready;
mod receive;
mod refused;
mod replay;
mod required;
mod rerank;
mod reserve;
mod resume;
mod room;
mod serve;
mod settle;
mod signs;
mod speech;
mod stream;
pub mod transcription;
pub(crate) mod translate;
mod unpaid;
mod whole;

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tidegate_core::Api;
use tidegate_observe::metrics::Judgement;
use tidegate_routing::Searchers;
use tidegate_wire::envelope::{self, Brand, Envelope, Purpose};
use tidegate_wire::preset::Words;

pub(crate) use admit::Places;
pub(crate) use aside::{Aside, Purse};
pub use drain::LONGEST as LONGEST_DRAIN;
pub use head::Reply;
pub(crate) use head::{GENERATION_ID, Head, asker, forwarded, header_session, reply, said};
pub(crate) use inner::Inner;
pub use inner::Loops;
pub(crate) use planning::is_chosen;
pub(crate) use prefer::Wishes;
pub(crate) use pump::PING;
pub(crate) use replay::Wish;
pub(crate) use settle::Asker;
pub(crate) use stream::error_frame;
pub use stream::{Body, StreamBody};

use crate::failure::Failure;
use crate::guardrails::Judged;
use crate::keys::KeyEntry;
use crate::ledger::{Receipt, fail};
use crate::snapshot::Settings;
use crate::{Gateway, Snapshot};

/// A turn with a search that vendors may run themselves.
pub(crate) struct Searching {
    /// As those get it who do, and how many of its messages are older than the loop.
    pub body: Bytes,
    pub begun: usize,
    pub searchers: Searchers,
    /// Who may serve at all; nothing: everybody.
    pub may_serve: Option<Searchers>,
    /// There are no other tools.
    pub is_alone: bool,
}

impl Gateway {
    /// Serves `POST /messages` for a caller that has been let in. `query` is the raw query string.
    pub async fn messages(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        query: &str,
        body: Bytes,
    ) -> Result<Reply, Failure> {
        self.answer(key, Head { headers, query, api: Api::Messages, words: Words::Own, cache_key: None }, body).await
    }

    /// Serves one turn of a loop.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        (headers, query): (&HeaderMap, &str),
        (body, begun, mut searching): (Bytes, usize, Option<Searching>),
        inner: &Inner,
    ) -> Result<Reply, Failure> {
        // What earlier requests found and only we can read is told in words by now.
        let body = self.passed_turn(key, body, begun)?;
        if let Some(searching) = &mut searching {
            searching.body = self.passed_turn(key, std::mem::take(&mut searching.body), searching.begun)?;
        }
        let envelope = read(&body, &snapshot.settings, Purpose::Generate)?;
        let turn = Some((inner, searching));
        let head = Head { headers, query, api: inner.api, words: Words::Own, cache_key: inner.cache_key.as_deref() };
        Box::pin(self.served(snapshot, key, head, (body.clone(), envelope, None, None), turn)).await
    }

    /// The body with what the caller's filters take out.
    pub(crate) fn passed(&self, key: &KeyEntry, body: Bytes) -> Result<Bytes, Failure> {
        self.passed_turn(key, body, usize::MAX)
    }

    fn passed_turn(&self, key: &KeyEntry, body: Bytes, begun: usize) -> Result<Bytes, Failure> {
        let Some(held) = self.guardrails.of(key).filter(|held| held.has_filters()) else { return Ok(body) };
        let passed = held.scan_turn(&body, begun).map_err(|blocked| blocked.failure)?;
        Ok(passed.body.unwrap_or(body))
    }

    pub(crate) fn note_judged(&self, judged: &Judged) {
        for (kind, action) in judged.events.iter().copied() {
            self.metrics.guardrail_events.get_or_create(&Judgement { kind, action }).inc();
        }
    }

    /// Waits until an answer that is about to leave is settled; after a while it leaves all the same.
    async fn settled(&self, settled: &mut Receipt) {
        if !settled.committed(stream::SETTLE).await {
            self.metrics.ledger_late.inc();
        }
        fail::point("settled");
    }
}

/// Who may serve by both; nothing where neither says anything.
pub(crate) fn both(one: Option<Searchers>, other: Option<Searchers>) -> Option<Searchers> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.iter().filter(|searcher| other.contains(*searcher)).collect()),
        (one, other) => one.or(other),
    }
}

/// Reads the envelope with the deployment's brand. In a box: it goes from hand to hand.
pub(crate) fn read<'a>(body: &'a Bytes, settings: &Settings, purpose: Purpose) -> Result<Box<Envelope<'a>>, Failure> {
    let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
    Ok(Box::new(envelope::read(body, brand, purpose)?))
}
