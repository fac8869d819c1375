//! What happens to a request before anybody is chosen to serve it: its preset, files of the workspace, filters, plugins,
//! and what of it only the gateway can read.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_wire::envelope::{Envelope, Purpose};
use tidegate_wire::json;

use super::head::{Head, Reply, header_session, sender, wants_metadata};
use super::replay::Wish;
use super::settle::Ticket;
use super::{Purse, amend, foreign, read};
use crate::failure::Failure;
use crate::guardrails::{Blocked, Held};
use crate::keys::KeyEntry;
use crate::plugins::{self, Prepared};
use crate::presets::Applied;
use crate::{Gateway, Snapshot, agent};

/// What plugins came to.
enum Readied {
    /// An answer that was kept: nothing is left to be done.
    Kept(Reply),
    /// What they made, and the body that they changed.
    Made(Box<Prepared>, Option<Bytes>),
}

/// Whose request it is and how it came.
#[derive(Clone, Copy)]
struct Asking<'a> {
    snapshot: &'a Arc<Snapshot>,
    key: &'a Arc<KeyEntry>,
    head: Head<'a>,
}

impl Gateway {
    /// Serves a request that came in any format, and is in the Messages format now.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        head: Head<'_>,
        body: Bytes,
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let settings = &snapshot.settings;
        let asking = Asking { snapshot: &snapshot, key, head };
        let (mut body, mut applied) = (body, None);
        let mut envelope = read(&body, settings, Purpose::Generate)?;
        if envelope.names_preset {
            let with_preset = Box::pin(self.presets.applied(key, settings, (&body, &envelope), head.words)).await?;
            drop(envelope);
            body = with_preset.body.clone();
            envelope = read(&body, settings, Purpose::Generate)?;
            applied = Some(with_preset);
        }
        if envelope.traits.own_file {
            let filled = Box::pin(self.with_files(key, &body)).await?;
            drop(envelope);
            body = filled;
            envelope = read(&body, settings, Purpose::Generate)?;
        }
        let mut judged = Vec::new();
        let held = self.guardrails.of(key).filter(|held| held.has_filters());
        if let Some(held) = &held {
            let changed = Box::pin(self.filtered(asking, held, (&body, &envelope), &mut judged)).await?;
            if let Some(changed) = changed {
                drop(envelope);
                body = changed;
                envelope = read(&body, settings, Purpose::Generate)?;
            }
        }
        // Before anything is paid for.
        if envelope.asked.thread && agent::is_for(&envelope, &snapshot) {
            return Err(Failure::thread_with_tools());
        }
        let mut prepared = None;
        if plugins::is_for(&envelope, settings) || self.plugins.of(&key.workspace).is_some() {
            let asked = (&body, &*envelope, applied.as_ref());
            match Box::pin(self.readied(asking, held.as_deref(), asked, &mut judged)).await? {
                Readied::Kept(reply) => return Ok(reply),
                Readied::Made(made, changed) => {
                    if let Some(changed) = changed {
                        drop(envelope);
                        body = changed;
                        envelope = read(&body, settings, Purpose::Generate)?;
                    }
                    prepared = Some(made);
                }
            }
        }
        if !judged.is_empty() {
            prepared.get_or_insert_with(Box::<Prepared>::default).told.entries.splice(0..0, judged);
        }
        if let Some(amended) = amend::amended(&body, &envelope) {
            drop(envelope);
            body = amended;
            envelope = read(&body, settings, Purpose::Generate)?;
        }
        let holds_ours = envelope.traits.sealed_results || envelope.traits.own_calls;
        if holds_ours && !agent::is_for(&envelope, &snapshot) {
            drop(envelope);
            if let Some(opened) = Box::pin(agent::opened(self, key, settings, &body)).await {
                body = self.passed(key, opened)?;
            }
            envelope = read(&body, settings, Purpose::Generate)?;
        }
        foreign::check(&envelope, &snapshot, &body)?;
        if envelope.asked.deferred_tools {
            agent::check_deferred(&envelope, &snapshot, &body)?;
        }
        self.shed_free(&snapshot, envelope.names())?;
        let heals = prepared.as_mut().and_then(|prepared| prepared.heals.take());
        let has_searched = prepared.as_ref().is_some_and(|prepared| prepared.searched.is_some());
        let reply = if has_searched || agent::is_for(&envelope, &snapshot) {
            Box::pin(self.looped(asking, (&body, &envelope), applied, prepared)).await?
        } else {
            let asked = (body.clone(), envelope, applied.as_ref(), prepared.as_deref());
            self.served(&snapshot, key, head, asked, None).await?
        };
        Ok(plugins::healed(reply, heals.as_ref(), &snapshot.names.metadata_member))
    }

    /// Looks through a request for what its guardrails do not let pass: the body with that taken out, where something was.
    async fn filtered(
        self: &Arc<Self>,
        asking: Asking<'_>,
        held: &Held,
        (body, envelope): (&Bytes, &Envelope<'_>),
        judged: &mut Vec<String>,
    ) -> Result<Option<Bytes>, Failure> {
        match held.scan(body) {
            Ok(passed) => {
                self.note_judged(&passed.judged);
                *judged = passed.judged.entries;
                Ok(passed.body)
            }
            Err(blocked) => {
                let failure = self.blocked(asking, envelope, *blocked);
                Err(self.stopped(asking, (body, envelope), None, failure).await)
            }
        }
    }

    /// Has plugins do what they do before an answer.
    async fn readied(
        self: &Arc<Self>,
        asking @ Asking { snapshot, key, head }: Asking<'_>,
        held: Option<&Held>,
        (body, envelope, applied): (&Bytes, &Envelope<'_>, Option<&Applied>),
        judged: &mut Vec<String>,
    ) -> Result<Readied, Failure> {
        let of_preset = applied.map(|applied| applied.cache).unwrap_or_default();
        let wish = Wish::of(self, key, head, snapshot, envelope, body, of_preset);
        if let Some(wish) = &wish
            && let Some(kept) = self.kept_before(asking, (body, envelope), wish, applied).await?
        {
            let healing = plugins::healing(self, snapshot, key, (body, envelope))?;
            return Ok(Readied::Kept(plugins::healed(kept, healing.as_ref(), &snapshot.names.metadata_member)));
        }
        let mut made = Box::new(Prepared { wish, ..Prepared::default() });
        if let Err(mut failure) =
            Box::pin(plugins::prepare(self, snapshot, (key, head.headers), (body, envelope), &mut made)).await
        {
            if failure.more.is_some() && !wants_metadata(head.headers, &snapshot.names) {
                failure.more_mut().routing = None;
            }
            return Err(self.stopped(asking, (body, envelope), made.purse.as_deref(), failure).await);
        }
        if let Some(before) = &mut made.searched {
            let found = std::mem::take(&mut before.judged).without(judged);
            self.note_judged(&found);
            judged.extend(found.entries);
        }
        let mut changed = made.body.clone();
        // Documents and pages have words of their own.
        if let (Some(with_more), Some(held)) = (&changed, held) {
            match held.scan(with_more) {
                Ok(passed) => {
                    let more = passed.judged.without(judged);
                    self.note_judged(&more);
                    judged.extend(more.entries);
                    changed = passed.body.or(changed);
                }
                Err(mut blocked) => {
                    let before = std::mem::take(judged).into_iter().chain(std::mem::take(&mut made.told.entries));
                    blocked.judged.entries.splice(0..0, before);
                    let failure = self.blocked(asking, envelope, *blocked);
                    return Err(self.stopped(asking, (body, envelope), made.purse.as_deref(), failure).await);
                }
            }
        }
        Ok(Readied::Made(made, changed))
    }

    /// Serves a request with tools of ours, turn by turn, or gives what is kept for it.
    async fn looped(
        self: &Arc<Self>,
        asking @ Asking { snapshot, key, head }: Asking<'_>,
        (body, envelope): (&Bytes, &Envelope<'_>),
        applied: Option<Applied>,
        prepared: Option<Box<Prepared>>,
    ) -> Result<Reply, Failure> {
        let known = prepared.as_ref().and_then(|prepared| prepared.wish);
        let of_preset = applied.as_ref().map(|applied| applied.cache).unwrap_or_default();
        let wish = known.or_else(|| Wish::of(self, key, head, snapshot, envelope, body, of_preset));
        if let Some(wish) = wish.filter(|_| known.is_none())
            && let Some(kept) = self.kept_before(asking, (body, envelope), &wish, applied.as_ref()).await?
        {
            return Ok(kept);
        }
        let is_unjudged = prepared.as_ref().is_some_and(|prepared| prepared.is_unjudged);
        let wish = wish.filter(|_| !is_unjudged && self.may_keep(snapshot, key, envelope));
        if let Some(wish) = &wish {
            wish.miss(self);
        }
        let made = (applied, prepared, wish);
        let served = Box::pin(agent::serve(self, snapshot, key, head, body, envelope, made)).await;
        match (served, wish) {
            (Err(failure), Some(wish)) => Err(wish.failed(failure, &snapshot.names)),
            (served, _) => served,
        }
    }

    /// The answer that is kept for a request, before plugins do what must be paid for.
    async fn kept_before(
        self: &Arc<Self>,
        Asking { snapshot, key, head: Head { headers, api, .. } }: Asking<'_>,
        (body, envelope): (&Bytes, &Envelope<'_>),
        wish: &Wish,
        applied: Option<&Applied>,
    ) -> Result<Option<Reply>, Failure> {
        let session = header_session(headers, &snapshot.names)?;
        let open = || {
            let places = self.enter(key, &snapshot.settings)?.into();
            let sender = sender(headers, &snapshot.names, envelope.session_id.as_deref().or(session));
            let mut ticket = Ticket::open(self, snapshot, key, places, envelope, sender, body);
            ticket.asked_in(api);
            if let Some(applied) = applied {
                ticket.made_with(&applied.id);
            }
            Ok(ticket)
        };
        wish.look_early(self, snapshot, key, open).await
    }

    /// A request that was looked at and goes no further is on record all the same; what it said is not told to anybody.
    async fn stopped(
        self: &Arc<Self>,
        Asking { snapshot, key, head: Head { headers, api, .. } }: Asking<'_>,
        (body, envelope): (&Bytes, &Envelope<'_>),
        purse: Option<&Purse>,
        failure: Failure,
    ) -> Failure {
        let places = match purse {
            Some(purse) => purse.places().clone().into(),
            None => match self.enter(key, &snapshot.settings) {
                Ok(places) => places.into(),
                Err(failure) => return failure,
            },
        };
        let session =
            envelope.session_id.as_deref().or_else(|| header_session(headers, &snapshot.names).ok().flatten());
        let sender = sender(headers, &snapshot.names, session);
        let mut ticket = Ticket::open(self, snapshot, key, places, envelope, sender, body);
        ticket.asked_in(api);
        ticket.hush();
        if let Some(purse) = purse {
            ticket.known_as(purse.root());
        }
        let failure = Failure { generation: Some(ticket.id()), ..failure };
        self.settled(&mut ticket.fail(&failure)).await;
        failure
    }

    /// The answer to a request that a guardrail blocks, with what was looked at where the caller wants to know.
    fn blocked(&self, Asking { snapshot, head, .. }: Asking<'_>, envelope: &Envelope<'_>, blocked: Blocked) -> Failure {
        let Blocked { mut failure, judged } = blocked;
        self.note_judged(&judged);
        if wants_metadata(head.headers, &snapshot.names) {
            let (requested, region) = (envelope.names().next().unwrap_or_default(), &snapshot.settings.region);
            failure.more_mut().routing = Some(format!(
                r#"{{"requested":{},"strategy":"direct","region":{},"summary":"blocked by a guardrail","attempt":0,"is_byok":false,"endpoints":{{"total":0,"available":[]}},"pipeline":[{}]}}"#,
                json::quoted(requested),
                json::quoted(region),
                judged.entries.join(",")
            ));
        }
        failure
    }
}
