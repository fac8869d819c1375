//! One turn of a request: who serves it, whether its answer is kept, and the job that the attempts are made for.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidegate_core::{GenerationId, Timestamp, boxed, pinned};
use tidegate_routing::{Attempt, Compression, Plan, Searcher, Variant};
use tidegate_wire::envelope::Envelope;
use tokio::time::timeout;

use super::attempt::{self, Done, Start};
use super::drain::Attempts;
use super::head::{Head, Reply, forwarded, header_session, reply, sender, wants_metadata};
use super::inner::Inner;
use super::job::{Job, Native};
use super::prefer::Wishes;
use super::replay::Wish;
use super::settle::Ticket;
use super::stream::{self, Body, StreamBody};
use super::translate::Typed;
use super::{Searching, both, is_chosen, media};
use crate::choices::Made;
use crate::failure::{self, Failure};
use crate::keys::KeyEntry;
use crate::plugins::Prepared;
use crate::presets::Applied;
use crate::sticky::Conversation;
use crate::{Gateway, Snapshot};

/// What a turn is part of, and what was made for it.
#[derive(Clone, Copy)]
struct Turn<'a> {
    snapshot: &'a Arc<Snapshot>,
    key: &'a Arc<KeyEntry>,
    head: Head<'a>,
    /// The loop that it belongs to.
    inner: Option<&'a Inner>,
    applied: Option<&'a Applied>,
    prepared: Option<&'a Prepared>,
    /// The session that the head names.
    session: Option<&'a str>,
}

impl Turn<'_> {
    /// Whether it is the first of its request.
    fn is_first(&self) -> bool {
        self.inner.is_none_or(|inner| inner.root.get().is_none())
    }

    /// What requests share that belong together, as far as anybody said.
    fn session<'e>(&'e self, envelope: &'e Envelope<'_>) -> Option<&'e str> {
        envelope.session_id.as_deref().or(self.session).or(self.head.cache_key)
    }

    /// The models as the caller wrote them, where something else stands in the body now.
    fn as_written(&self) -> Option<&Vec<String>> {
        let chosen = self.prepared.map(|prepared| &prepared.told.requested).filter(|requested| !requested.is_empty());
        self.applied.map(|applied| &applied.requested).or(chosen)
    }

    fn wants_metadata(&self) -> bool {
        wants_metadata(self.head.headers, &self.snapshot.names)
    }

    /// What is to be said of the request itself: options that were understood and have no effect are not hidden.
    fn warnings(&self, plan: &Plan) -> Vec<String> {
        let is_online = plan.attempts.first().is_some_and(|attempt| attempt.variants.contains(Variant::Online));
        let is_seen_to = self.prepared.is_some_and(|prepared| prepared.is_online);
        let online = (is_online && !is_seen_to).then(|| format!("dropped:{}", Variant::Online.as_str()));
        let dropped = self.prepared.map(|prepared| prepared.warnings.as_slice()).unwrap_or_default();
        online.into_iter().chain(dropped.iter().cloned()).collect()
    }
}

impl Gateway {
    pub(super) async fn served(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        head: Head<'_>,
        (body, envelope, applied, prepared): (Bytes, Box<Envelope<'_>>, Option<&Applied>, Option<&Prepared>),
        turn: Option<(&Inner, Option<Searching>)>,
    ) -> Result<Reply, Failure> {
        let settings = &snapshot.settings;
        let (inner, searching) = turn.map_or((None, None), |(inner, searching)| (Some(inner), searching));
        let applied = applied.or_else(|| inner.and_then(|inner| inner.applied.as_ref()));
        let prepared = prepared.or_else(|| inner.and_then(|inner| inner.prepared.as_deref()));
        let session = header_session(head.headers, &snapshot.names)?;
        let turn = Turn { snapshot, key, head, inner, applied, prepared, session };
        // Before the ticket: with that a loop has its first turn.
        let is_first = turn.is_first();
        let mut ticket = self.opened(turn, &body, &envelope)?;
        let id = ticket.id();
        let refuse = |ticket: Box<Ticket>, failure: Failure| {
            let failure = Failure { generation: Some(id), ..failure };
            ticket.fail(&failure);
            failure
        };
        let listed: Vec<String> = envelope.names().map(str::to_owned).collect();
        let names: Vec<&str> = listed.iter().map(String::as_str).collect();
        let typed = OnceLock::new();
        let mut wishes = Wishes::of(&envelope, body.len());
        if let Some(searching) = &searching {
            wishes.needs.searchers = both(wishes.needs.searchers, searching.may_serve);
            wishes.needs.only_searches = searching.is_alone && searching.searchers.contains(Searcher::Itself);
        }
        let native = match searching.map(|searching| Native::of(searching, settings)).transpose() {
            Ok(native) => native,
            Err(failure) => return Err(refuse(ticket, failure)),
        };
        let asked = (&body, &*envelope, names.as_slice());
        let plan = match self.chosen(turn, &mut ticket, asked, &mut wishes, &typed) {
            Ok(plan) => plan,
            Err(failure) => return Err(refuse(ticket, failure)),
        };
        let wish = self.wished(turn, (&body, &envelope), &plan);
        if let Some(wish) = &wish
            && let Some(kept) = Box::pin(wish.look(self, snapshot, key, &mut ticket)).await
        {
            return Box::pin(kept.give(self, snapshot, ticket)).await;
        }
        if is_free(&plan)
            && inner.is_none_or(Inner::is_uncounted)
            && let Err(failure) = self.admit_free(key, settings)
        {
            // Never let in: nothing is remembered of it.
            ticket.refuse();
            return Err(failure);
        }
        let (stream, metadata) = (envelope.stream, turn.wants_metadata());
        let mut telling = Telling { id, snapshot, wish, stream, metadata, warnings: turn.warnings(&plan) };
        let mut job = boxed(|| Job {
            gate: self.clone(),
            ticket,
            stream,
            forwarded: match inner.filter(|_| !is_first) {
                Some(inner) => inner.forwarded(head.headers, &body),
                None => forwarded(head.headers),
            },
            beta_query: head.query.split('&').any(|pair| pair == "beta=true"),
            plan,
            session: turn.session(&envelope).map(Into::into),
            requested: turn.as_written().cloned().unwrap_or(listed),
            metadata,
            cuts: envelope.cuts.clone(),
            snapshot: snapshot.clone(),
            body: body.clone(),
            user: envelope.user.as_deref().or(envelope.metadata_user.as_deref()).map(Into::into),
            typed,
            media: media::Media::default(),
            warnings: Vec::new(),
            traits: envelope.traits,
            tier: if envelope.is_fast { Some("fast".into()) } else { envelope.service_tier.as_deref().map(Into::into) },
            max_tokens: envelope.max_tokens,
            shown: envelope.media,
            has_tools: envelope.asked.tools || envelope.asked.mcp_servers,
            continues_thread: envelope.asked.continues_thread,
            requires_parameters: wishes.preferences.require_parameters,
            compression: compression(prepared),
            hint: Vec::new(),
            repairs: Vec::new(),
            cap: None,
            is_poor: false,
            // Who goes on might search otherwise, and has another body. What an upstream holds of a conversation would not
            // be what the client was sent.
            may_continue: wishes.preferences.allow_fallbacks && native.is_none() && !envelope.asked.thread,
            native,
            heard: None,
            refused: None,
            recording: wish.as_ref().filter(|_| stream).map(|wish| wish.recording(self, id, &telling.warnings)),
        });
        drop(envelope);
        let first = match attempt::admit(&mut job).await {
            Ok(first) => first,
            Err(failure) => {
                job.ticket.refuse();
                return Err(failure);
            }
        };
        let (receipt, presence) = (job.ticket.receipt(), job.ticket.presence());
        let mut attempts = Attempts::new(self, presence, pinned(|| attempt::run(job, Start::At(first))));
        let early = settings.early_commit;
        let waiting = self.unless_aborted(async {
            // Zero means never: the status is then held until there is content.
            if stream && !early.is_zero() { timeout(early, attempts.done()).await } else { Ok(attempts.done().await) }
        });
        let is_begun = match waiting.await {
            Some(Ok(done)) => return self.ended(done, &mut telling).await,
            // Not even the head leaves before it is written down that the call was let in.
            Some(Err(_)) => receipt.committed(stream::SETTLE).await,
            None => false,
        };
        if !is_begun {
            // The attempts are dropped here and settle themselves.
            attempts.end();
            return Err(Failure { generation: Some(id), ..Failure::unavailable() });
        }
        let body = StreamBody::waiting(self.clone(), snapshot.clone(), id, attempts);
        Ok(telling.reply(Body::Stream(Box::new(body))))
    }

    /// Opens the account of a turn.
    fn opened(self: &Arc<Self>, turn: Turn<'_>, body: &Bytes, envelope: &Envelope<'_>) -> Result<Box<Ticket>, Failure> {
        let Turn { snapshot, key, head, inner, applied, prepared, session } = turn;
        let purse = prepared.and_then(|prepared| prepared.purse.as_ref());
        let places = match (inner, purse) {
            (Some(inner), _) => inner.places.clone().into(),
            (None, Some(purse)) => purse.places().clone().into(),
            (None, None) => self.enter(key, &snapshot.settings)?.into(),
        };
        let sender = sender(head.headers, &snapshot.names, envelope.session_id.as_deref().or(session));
        let mut ticket = Ticket::open(self, snapshot, key, places, envelope, sender, body);
        ticket.asked_in(head.api);
        if let Some(applied) = applied {
            ticket.made_with(&applied.id);
        }
        let is_first = turn.is_first();
        if let Some(prepared) = prepared {
            ticket.tell(&prepared.told, is_first);
            if let (Some(purse), true) = (&prepared.purse, is_first) {
                ticket.known_as(purse.root());
            }
        }
        if let Some(inner) = inner {
            let id = inner.next(ticket.id());
            ticket.known_as(id);
            ticket.belongs_to(inner.begin(&self.loops, id));
            ticket.used(inner);
            ticket.metered(inner);
            ticket.at(inner);
        }
        Ok(ticket)
    }

    /// Who shall serve it.
    fn chosen<'e>(
        self: &Arc<Self>,
        turn: Turn<'_>,
        ticket: &mut Ticket,
        (body, envelope, names): (&Bytes, &'e Envelope<'_>, &[&str]),
        wishes: &mut Wishes<'e>,
        typed: &Typed,
    ) -> Result<Plan, Failure> {
        let Turn { snapshot, key, inner, .. } = turn;
        wishes.default = self.choices.model(&key.workspace, names, Made::Text)?;
        wishes.home = inner.and_then(|inner| inner.hearth.last());
        if is_chosen(snapshot, names, wishes, || self.credentials.of(&key.workspace).is_some()) {
            let conversation = || Conversation::of(&key.workspace, names[0], turn.session(envelope), &envelope.opening);
            let conversation = inner.map_or_else(conversation, |inner| inner.conversation);
            wishes.conversation = Some(conversation);
            ticket.follow(conversation);
        }
        let compression = compression(turn.prepared);
        let mut plan = match self.planned(snapshot, key, names, wishes, typed, body, compression) {
            Ok(plan) => plan,
            Err(error) => {
                let requested = turn.as_written().map(|requested| requested.iter().map(String::as_str).collect());
                let as_sent: Vec<&str> = requested.unwrap_or_else(|| names.to_vec());
                let mut failure = failure::from_plan(&error, &as_sent, &snapshot.settings);
                if let Some(before) = error.before_last().filter(|_| turn.wants_metadata()) {
                    let told = ticket.routing_json(snapshot, &before, as_sent[0], None, Timestamp(0));
                    failure.more_mut().routing = Some(told);
                }
                return Err(failure);
            }
        };
        // Nobody can be talked to who only makes embeddings or pictures, or ranks documents.
        let talks = |attempt: &Attempt| snapshot.places[attempt.endpoint.place].talks;
        if !plan.attempts.iter().all(talks) {
            plan.attempts.retain(talks);
        }
        if plan.attempts.is_empty() {
            let detail = match snapshot.catalogue.find(names[0]).map(|named| named.model) {
                Ok(model) if model.makes_images() => "makes images, which are asked for at POST /images",
                Ok(model) if model.ranks() => "ranks documents, which is asked for at POST /rerank",
                Ok(model) if model.speaks() => "speaks texts, which is asked for at POST /audio/speech",
                Ok(model) if model.transcribes() => {
                    "writes down what is said, which is asked for at POST /audio/transcriptions"
                }
                _ => "makes embeddings, which are asked for at POST /embeddings",
            };
            return Err(failure::wrong_endpoint(names[0], detail, &snapshot.settings));
        }
        Ok(plan)
    }

    /// The wish for an answer that is kept, where it may be granted.
    fn wished(
        self: &Arc<Self>,
        Turn { snapshot, key, head, inner, applied, prepared, .. }: Turn<'_>,
        (body, envelope): (&Bytes, &Envelope<'_>),
        plan: &Plan,
    ) -> Option<Wish> {
        // A turn is no answer that could be given again.
        if inner.is_some() {
            return None;
        }
        // What plugins made of a request is not what it was kept by.
        let wish = prepared.and_then(|prepared| prepared.wish).or_else(|| {
            let of_preset = applied.map(|applied| applied.cache).unwrap_or_default();
            Wish::of(self, key, head, snapshot, envelope, body, of_preset)
        });
        // Only with a plan: who may not have the model any more may not have what it once said, either.
        let is_unjudged = prepared.is_some_and(|prepared| prepared.is_unjudged);
        wish.filter(|_| !is_unjudged && !self.retains_nothing(key, plan))
    }

    /// What the client gets of what the attempts came to.
    async fn ended(self: &Arc<Self>, done: Done, telling: &mut Telling<'_>) -> Result<Reply, Failure> {
        match done {
            Done::Refused(bytes, more, mut settled) => {
                self.settled(&mut settled).await;
                telling.warnings.extend(more);
                Ok(telling.reply(Body::full(bytes)))
            }
            Done::Whole(bytes, more, mut settled) => {
                self.settled(&mut settled).await;
                telling.warnings.extend(more);
                if let Some(wish) = &telling.wish {
                    let member = telling.metadata.then_some(telling.snapshot.names.metadata_member.as_str());
                    wish.keep(self, telling.id, &bytes, member, &telling.warnings);
                }
                Ok(telling.reply(Body::full(bytes)))
            }
            Done::Stream(mut relay, more) => {
                telling.warnings.extend(more);
                relay.warned(&telling.warnings);
                Ok(telling.reply(Body::Stream(Box::new(StreamBody::relaying(relay)))))
            }
            Done::Failed(failure, mut settled) => {
                self.settled(&mut settled).await;
                Err(match &telling.wish {
                    Some(wish) => wish.failed(failure, &telling.snapshot.names),
                    None => failure,
                })
            }
        }
    }
}

/// How an answer is told.
struct Telling<'a> {
    id: GenerationId,
    snapshot: &'a Snapshot,
    wish: Option<Wish>,
    stream: bool,
    metadata: bool,
    warnings: Vec<String>,
}

impl Telling<'_> {
    fn reply(&self, body: Body) -> Reply {
        let mut reply = reply(self.id, &self.snapshot.names, body, self.stream, &self.warnings);
        if let Some(wish) = &self.wish {
            wish.missed(&mut reply.headers, &self.snapshot.names);
        }
        reply
    }
}

fn compression(prepared: Option<&Prepared>) -> Compression {
    prepared.map_or(Compression::Small, |prepared| prepared.compression)
}

/// Whether the model was asked for by its free name, which may be that of a model of its own.
pub(super) fn is_free(plan: &Plan) -> bool {
    let is_free_name = |id: &str| id.rsplit_once(':').is_some_and(|(_, variant)| variant == Variant::Free.as_str());
    let first = plan.attempts.first();
    first.is_some_and(|one| one.variants.contains(Variant::Free) || is_free_name(&one.endpoint.model))
}
