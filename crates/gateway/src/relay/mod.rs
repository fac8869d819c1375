//! The hot path: from a body of bytes to a reply. Steps are in the order in which a request takes them: `admit`,
//! envelope (here) and `planning`, `attempt`, `stream`, `settle`.
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
mod framing;
mod gather;
mod images;
mod inner;
mod media;
mod meter;
mod planning;
mod prefer;
mod pump;
mod refused;
mod replay;
mod reserve;
mod resume;
mod room;
mod settle;
mod stream;
pub(crate) mod translate;
mod whole;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{HeaderMap, StatusCode};
use tidegate_core::{Api, GenerationId, Timestamp};
use tidegate_observe::metrics::Judgement;
use tidegate_providers::anthropic::{self, Forwarded};
use tidegate_routing::{Attempt, Compression, Plan, Searcher, Searchers, Variant};
use tidegate_wire::envelope::{self, Brand, Envelope, Purpose};
use tidegate_wire::json;
use tidegate_wire::preset::Words;
use tokio::time::timeout;

pub(crate) use aside::{Aside, Purse};
pub use drain::LONGEST as LONGEST_DRAIN;
pub(crate) use pump::PING;
pub(crate) use stream::error_frame;
pub use stream::{Body, StreamBody};

use crate::agent;
use crate::choices::Made;
use crate::failure::{self, Failure};
use crate::guardrails::{Blocked, Judged};
use crate::keys::KeyEntry;
use crate::ledger::{Receipt, fail};
use crate::plugins::{self, Prepared};
use crate::presets::Applied;
use crate::snapshot::{Names, Settings};
use crate::sticky::Conversation;
use crate::{Gateway, Snapshot};
use attempt::{Done, Job, Native, Start};
use drain::Attempts;
pub(crate) use inner::Inner;
pub(crate) use planning::is_chosen;
pub(crate) use prefer::Wishes;
pub(crate) use replay::Wish;
use settle::{Sender, Ticket};

pub(crate) const GENERATION_ID: HeaderName = HeaderName::from_static("x-generation-id");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const HTTP_REFERER: HeaderName = HeaderName::from_static("http-referer");
const X_TITLE: HeaderName = HeaderName::from_static("x-title");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
const LONGEST_SESSION: usize = 256;

/// How a request came: what its head says, and in which format its body was.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub headers: &'a HeaderMap,
    /// The raw query string.
    pub query: &'a str,
    pub api: Api,
    /// What it was said in, for a preset that it names.
    pub words: Words,
    /// What requests share that begin alike, in the caller's words: a conversation where no session is named.
    pub cache_key: Option<&'a str>,
}

/// An answer on its way to the client.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Body,
}

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

    /// The same for a request that came in any format, and is in the Messages format now.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        head: Head<'_>,
        body: Bytes,
    ) -> Result<Reply, Failure> {
        let headers = head.headers;
        let snapshot = self.snapshot();
        let settings = &snapshot.settings;
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
        let mut prepared = None;
        let mut judged = Vec::new();
        let held = self.guardrails.of(key).filter(|held| held.has_filters());
        if let Some(held) = &held {
            let passed = match held.scan(&body) {
                Ok(passed) => passed,
                Err(blocked) => {
                    let failure = self.blocked(&snapshot, headers, &envelope, *blocked);
                    let failure = self.stopped(&snapshot, key, head, (&body, &envelope), None, failure);
                    return Err(Box::pin(failure).await);
                }
            };
            self.note_judged(&passed.judged);
            if let Some(changed) = passed.body {
                drop(envelope);
                body = changed;
                envelope = read(&body, settings, Purpose::Generate)?;
            }
            judged = passed.judged.entries;
        }
        if plugins::is_for(&envelope, settings) || self.plugins.of(&key.workspace).is_some() {
            let of_preset = applied.as_ref().map(|applied| applied.cache).unwrap_or_default();
            let wish = Wish::of(self, key, headers, &snapshot, &envelope, &body, of_preset);
            if let Some(wish) = &wish
                && let Some(kept) =
                    Box::pin(self.kept_before(&snapshot, key, head, (&body, &envelope), wish, applied.as_ref())).await?
            {
                let healing = plugins::healing(self, &snapshot, key, (&body, &envelope))?;
                return Ok(plugins::healed(kept, healing.as_ref(), &snapshot.names.metadata_member));
            }
            let mut made = Prepared { wish, ..Prepared::default() };
            if let Err(mut failure) =
                Box::pin(plugins::prepare(self, &snapshot, key, (&body, &envelope), &mut made)).await
            {
                if failure.more.is_some() && !wants_metadata(headers, &snapshot.names) {
                    failure.more_mut().routing = None;
                }
                let purse = made.purse.as_deref();
                let failure = self.stopped(&snapshot, key, head, (&body, &envelope), purse, failure);
                return Err(Box::pin(failure).await);
            }
            if let Some(before) = &mut made.searched {
                let found = std::mem::take(&mut before.judged).without(&judged);
                self.note_judged(&found);
                judged.extend(found.entries);
            }
            if let Some(changed) = &made.body {
                let mut changed = changed.clone();
                // Documents and pages have words of their own.
                if let Some(held) = &held {
                    let passed = held.scan(&changed);
                    let passed = match passed {
                        Ok(passed) => passed,
                        Err(mut blocked) => {
                            blocked.judged.entries.splice(0..0, judged.into_iter().chain(made.told.entries));
                            let failure = self.blocked(&snapshot, headers, &envelope, *blocked);
                            let purse = made.purse.as_deref();
                            let failure = self.stopped(&snapshot, key, head, (&body, &envelope), purse, failure);
                            return Err(Box::pin(failure).await);
                        }
                    };
                    let more = passed.judged.without(&judged);
                    self.note_judged(&more);
                    judged.extend(more.entries);
                    changed = passed.body.unwrap_or(changed);
                }
                drop(envelope);
                body = changed;
                envelope = read(&body, settings, Purpose::Generate)?;
            }
            prepared = Some(Box::new(made));
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
        if envelope.asked.deferred_tools {
            agent::check_deferred(&envelope, &snapshot)?;
        }
        self.shed_free(&snapshot, envelope.names())?;
        let heals = prepared.as_mut().and_then(|prepared| prepared.heals.take());
        let has_searched = prepared.as_ref().is_some_and(|prepared| prepared.searched.is_some());
        let reply = if has_searched || agent::is_for(&envelope, &snapshot) {
            let known = prepared.as_ref().and_then(|prepared| prepared.wish);
            let of_preset = applied.as_ref().map(|applied| applied.cache).unwrap_or_default();
            let wish = || Wish::of(self, key, headers, &snapshot, &envelope, &body, of_preset);
            let wish = known.or_else(wish);
            if let Some(wish) = wish.filter(|_| known.is_none())
                && let Some(kept) =
                    Box::pin(self.kept_before(&snapshot, key, head, (&body, &envelope), &wish, applied.as_ref()))
                        .await?
            {
                return Ok(kept);
            }
            let is_unjudged = prepared.as_ref().is_some_and(|prepared| prepared.is_unjudged);
            let wish = wish.filter(|_| !is_unjudged && self.may_keep(&snapshot, key, &envelope));
            if let Some(wish) = &wish {
                wish.miss(self);
            }
            let made = (applied, prepared, wish);
            match (Box::pin(agent::serve(self, &snapshot, key, head, &body, &envelope, made)).await, wish) {
                (Err(failure), Some(wish)) => return Err(wish.failed(failure, &snapshot.names)),
                (served, _) => served?,
            }
        } else {
            let asked = (body.clone(), envelope, applied.as_ref(), prepared.as_deref());
            self.served(&snapshot, key, head, asked, None).await?
        };
        Ok(plugins::healed(reply, heals.as_ref(), &snapshot.names.metadata_member))
    }

    /// The answer that is kept for a request, before plugins do what must be paid for.
    async fn kept_before(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        Head { headers, api, .. }: Head<'_>,
        (body, envelope): (&Bytes, &Envelope<'_>),
        wish: &Wish,
        applied: Option<&Applied>,
    ) -> Result<Option<Reply>, Failure> {
        let session = header_session(headers)?;
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

    async fn served(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        Head { headers, query, api, cache_key, .. }: Head<'_>,
        (body, envelope, applied, prepared): (Bytes, Box<Envelope<'_>>, Option<&Applied>, Option<&Prepared>),
        turn: Option<(&Inner, Option<Searching>)>,
    ) -> Result<Reply, Failure> {
        let settings = &snapshot.settings;
        let (inner, searching) = turn.map_or((None, None), |(inner, searching)| (Some(inner), searching));
        let applied = applied.or_else(|| inner.and_then(|inner| inner.applied.as_ref()));
        let prepared = prepared.or_else(|| inner.and_then(|inner| inner.prepared.as_deref()));
        let session = header_session(headers)?;
        let places = match inner {
            Some(inner) => inner.places.clone().into(),
            None => match prepared.and_then(|prepared| prepared.purse.as_ref()) {
                Some(purse) => purse.places().clone().into(),
                None => self.enter(key, settings)?.into(),
            },
        };
        let sender = sender(headers, &snapshot.names, envelope.session_id.as_deref().or(session));
        let mut ticket = Ticket::open(self, snapshot, key, places, &envelope, sender, &body);
        ticket.asked_in(api);
        if let Some(applied) = applied {
            ticket.made_with(&applied.id);
        }
        let is_first = inner.is_none_or(|inner| inner.root.get().is_none());
        if let Some(prepared) = prepared {
            ticket.tell(&prepared.told, is_first);
            if let (Some(purse), true) = (&prepared.purse, is_first) {
                ticket.known_as(purse.root());
            }
        }
        let id = ticket.id();
        if let Some(inner) = inner {
            ticket.belongs_to(*inner.root.get_or_init(|| id));
            ticket.used(inner);
            ticket.metered(inner);
        }
        let listed: Vec<String> = envelope.names().map(str::to_owned).collect();
        let names: Vec<&str> = listed.iter().map(String::as_str).collect();
        let refuse = |ticket: Box<Ticket>, failure: Failure| {
            let failure = Failure { generation: Some(id), ..failure };
            ticket.fail(&failure);
            failure
        };
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
        wishes.default = match self.choices.model(&key.workspace, &names, Made::Text) {
            Ok(default) => default,
            Err(failure) => return Err(refuse(ticket, failure)),
        };
        if is_chosen(snapshot, &names, &wishes) {
            let session = envelope.session_id.as_deref().or(session).or(cache_key);
            let conversation = || Conversation::of(&key.workspace, names[0], session, &envelope.opening);
            let conversation = inner.map_or_else(conversation, |inner| inner.conversation);
            wishes.conversation = Some(conversation);
            ticket.follow(conversation);
        }
        let compression = prepared.map_or(Compression::Small, |prepared| prepared.compression);
        let mut plan = match self.planned(snapshot, key, &names, &mut wishes, &typed, &body, compression) {
            Ok(plan) => plan,
            Err(error) => {
                let requested = as_written(applied, prepared).unwrap_or(&listed);
                let as_sent: Vec<&str> = requested.iter().map(String::as_str).collect();
                let mut failure = failure::from_plan(&error, &as_sent, settings);
                if let Some(before) = error.before_last().filter(|_| wants_metadata(headers, &snapshot.names)) {
                    let told = ticket.routing_json(snapshot, &before, as_sent[0], None, Timestamp(0));
                    failure.more_mut().routing = Some(told);
                }
                return Err(refuse(ticket, failure));
            }
        };
        // Nobody can be talked to who only makes embeddings.
        let talks = |attempt: &Attempt| !snapshot.places[attempt.endpoint.place].only_embeds;
        if !plan.attempts.iter().all(talks) {
            plan.attempts.retain(talks);
        }
        if plan.attempts.is_empty() {
            let detail = "makes embeddings, which are asked for at POST /embeddings";
            return Err(refuse(ticket, failure::wrong_endpoint(names[0], detail, settings)));
        }
        let of_preset = applied.map(|applied| applied.cache).unwrap_or_default();
        // A turn is no answer that could be given again.
        let wish = match inner {
            Some(_) => None,
            // What plugins made of a request is not what it was kept by.
            None => match prepared.and_then(|prepared| prepared.wish) {
                Some(wish) => Some(wish),
                None => Wish::of(self, key, headers, snapshot, &envelope, &body, of_preset),
            },
        };
        // Only now: who may not have the model any more may not have what it once said, either.
        let is_unjudged = prepared.is_some_and(|prepared| prepared.is_unjudged);
        let wish = wish.filter(|_| !is_unjudged && !self.retains_nothing(key, &plan));
        if let Some(wish) = &wish
            && let Some(kept) = Box::pin(wish.look(self, snapshot, key, &mut ticket)).await
        {
            return Box::pin(kept.give(self, snapshot, ticket)).await;
        }
        if is_free(&plan)
            && inner.is_none_or(Inner::is_uncounted)
            && let Err(failure) = self.admit_free(key, settings)
        {
            return Err(refuse(ticket, failure));
        }
        let mut warnings = warnings(&plan, prepared);
        let (stream, metadata) = (envelope.stream, wants_metadata(headers, &snapshot.names));
        let answered = |body: Body, warnings: &[String]| {
            let mut reply = reply(id, &snapshot.names, body, stream, warnings);
            if let Some(wish) = &wish {
                wish.missed(&mut reply.headers, &snapshot.names);
            }
            reply
        };
        let mut job = Box::new(Job {
            gate: self.clone(),
            ticket,
            stream,
            forwarded: match inner.filter(|_| !is_first) {
                Some(inner) => inner.forwarded(headers, &body),
                None => forwarded(headers),
            },
            beta_query: query.split('&').any(|pair| pair == "beta=true"),
            plan,
            requested: as_written(applied, prepared).cloned().unwrap_or(listed),
            metadata,
            cuts: envelope.cuts.clone(),
            snapshot: snapshot.clone(),
            body: body.clone(),
            session: envelope.session_id.as_deref().or(session).or(cache_key).map(Into::into),
            user: envelope.user.as_deref().or(envelope.metadata_user.as_deref()).map(Into::into),
            typed,
            media: media::Media::default(),
            warnings: Vec::new(),
            traits: envelope.traits,
            max_tokens: envelope.max_tokens,
            shown: envelope.media,
            compression,
            hint: None,
            repairs: Vec::new(),
            cap: None,
            // Who goes on might search otherwise, and has another body.
            may_continue: wishes.preferences.allow_fallbacks && native.is_none(),
            native,
            heard: None,
            refused: None,
            recording: wish.as_ref().filter(|_| stream).map(|wish| wish.recording(self, id, &warnings)),
        });
        drop(envelope);
        let first = match attempt::admit(&mut job).await {
            Ok(first) => first,
            // Never let in: nothing is remembered of it.
            Err(failure) => {
                job.ticket.refuse();
                return Err(failure);
            }
        };
        let (receipt, presence) = (job.ticket.receipt(), job.ticket.presence());
        let mut attempts = Attempts::new(self, presence, Box::pin(attempt::run(job, Start::At(first))));
        let early = settings.early_commit;
        let waiting = self.unless_aborted(async {
            // Zero means never: the status is then held until there is content.
            if stream && !early.is_zero() { timeout(early, attempts.done()).await } else { Ok(attempts.done().await) }
        });
        let done = match waiting.await {
            Some(Ok(done)) => done,
            Some(Err(_)) => {
                // Not even the head leaves before it is written down that the call was let in.
                if !receipt.committed(stream::SETTLE).await {
                    attempts.end();
                    return Err(Failure { generation: Some(id), ..Failure::unavailable() });
                }
                let body = StreamBody::waiting(self.clone(), snapshot.clone(), id, attempts);
                return Ok(answered(Body::Stream(Box::new(body)), &warnings));
            }
            // The attempts are dropped here and settle themselves.
            None => {
                attempts.end();
                return Err(Failure { generation: Some(id), ..Failure::unavailable() });
            }
        };
        match done {
            Done::Refused(bytes, more, mut settled) => {
                self.settled(&mut settled).await;
                warnings.extend(more);
                Ok(answered(Body::full(bytes), &warnings))
            }
            Done::Whole(bytes, more, mut settled) => {
                self.settled(&mut settled).await;
                warnings.extend(more);
                if let Some(wish) = &wish {
                    let member = metadata.then_some(snapshot.names.metadata_member.as_str());
                    wish.keep(self, id, &bytes, member, &warnings);
                }
                Ok(answered(Body::full(bytes), &warnings))
            }
            Done::Stream(mut relay, more) => {
                warnings.extend(more);
                relay.warned(&warnings);
                let body = StreamBody::relaying(relay);
                Ok(answered(Body::Stream(Box::new(body)), &warnings))
            }
            Done::Failed(failure, mut settled) => {
                self.settled(&mut settled).await;
                Err(match &wish {
                    Some(wish) => wish.failed(failure, &snapshot.names),
                    None => failure,
                })
            }
        }
    }

    /// A request that was looked at and goes no further is on record all the same; what it said is not told to anybody.
    async fn stopped(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        Head { headers, api, .. }: Head<'_>,
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
        let session = envelope.session_id.as_deref().or_else(|| header_session(headers).ok().flatten());
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
    fn blocked(&self, snapshot: &Snapshot, headers: &HeaderMap, envelope: &Envelope<'_>, blocked: Blocked) -> Failure {
        let Blocked { mut failure, judged } = blocked;
        self.note_judged(&judged);
        if wants_metadata(headers, &snapshot.names) {
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

/// What the head says about who sent a request, cut to a sensible length.
fn sender(headers: &HeaderMap, names: &Names, session: Option<&str>) -> Sender {
    const LONGEST: usize = 512;
    let text = |name: &HeaderName| -> Option<Box<str>> {
        let text = headers.get(name)?.to_str().ok()?;
        let end = text.char_indices().nth(LONGEST).map_or(text.len(), |(place, _)| place);
        (end > 0).then(|| text[..end].into())
    };
    Sender {
        session: session.map(Into::into),
        user_agent: text(&USER_AGENT),
        referer: text(&HTTP_REFERER).or_else(|| text(&REFERER)),
        title: names.title_headers.iter().find_map(text).or_else(|| text(&X_TITLE)),
        trace: text(&TRACEPARENT),
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

pub(crate) fn forwarded(headers: &HeaderMap) -> Forwarded {
    Forwarded {
        version: headers.get(anthropic::VERSION).map(apart),
        beta: anthropic::merged_betas(headers),
        idempotency_key: headers.get(anthropic::IDEMPOTENCY_KEY).map(apart),
    }
}

/// The value in memory of its own. As it came it is a piece of what was read from the connection, and all of that stays as
/// long as any piece of it is held: for a stream that is long.
fn apart(value: &HeaderValue) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone())
}

/// The models as the caller wrote them, where something else stands in the body now.
fn as_written<'a>(applied: Option<&'a Applied>, prepared: Option<&'a Prepared>) -> Option<&'a Vec<String>> {
    let chosen = prepared.map(|prepared| &prepared.told.requested).filter(|requested| !requested.is_empty());
    applied.map(|applied| &applied.requested).or(chosen)
}

/// Whether the model was asked for by its free name, which may be that of a model of its own.
fn is_free(plan: &Plan) -> bool {
    let is_free_name = |id: &str| id.rsplit_once(':').is_some_and(|(_, variant)| variant == Variant::Free.as_str());
    let first = plan.attempts.first();
    first.is_some_and(|one| one.variants.contains(Variant::Free) || is_free_name(&one.endpoint.model))
}

/// Options that were understood and have no effect yet: said, not hidden.
fn warnings(plan: &Plan, prepared: Option<&Prepared>) -> Vec<String> {
    let is_online = plan.attempts.first().is_some_and(|attempt| attempt.variants.contains(Variant::Online));
    let is_seen_to = prepared.is_some_and(|prepared| prepared.is_online);
    let online = (is_online && !is_seen_to).then(|| format!("dropped:{}", Variant::Online.as_str()));
    let dropped = prepared.map(|prepared| prepared.warnings.as_slice()).unwrap_or_default();
    online.into_iter().chain(dropped.iter().cloned()).collect()
}

/// `x-session-id`, under the same limit as the member of the body.
fn header_session(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let session = headers.get(X_SESSION_ID).and_then(|value| value.to_str().ok()).filter(|session| !session.is_empty());
    match session {
        Some(session) if session.chars().count() > LONGEST_SESSION => {
            Err(Failure::invalid(format!("Invalid request: session_id must be at most {LONGEST_SESSION} characters")))
        }
        session => Ok(session),
    }
}

/// The opt-in header; the legacy spelling counts only when the current one is absent.
fn wants_metadata(headers: &HeaderMap, names: &Names) -> bool {
    let header = names.metadata_headers.iter().find_map(|name| headers.get(name));
    header.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"enabled"))
}

pub(crate) fn reply(id: GenerationId, names: &Names, body: Body, stream: bool, warnings: &[String]) -> Reply {
    let mut headers = HeaderMap::with_capacity(8);
    let id = HeaderValue::from_str(id.as_str()).expect("an id is plain ASCII");
    headers.insert(GENERATION_ID, id.clone());
    headers.insert(REQUEST_ID, id.clone());
    headers.insert(X_REQUEST_ID, id);
    if stream {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    // One that cannot be said does not silence the others.
    let said: Vec<&str> =
        warnings.iter().map(String::as_str).filter(|text| HeaderValue::from_str(text).is_ok()).collect();
    if !said.is_empty()
        && let Ok(value) = HeaderValue::from_str(&said.join(","))
    {
        headers.insert(names.warnings_header.clone(), value);
    }
    Reply { status: StatusCode::OK, headers, body }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_application_is_called_as_the_header_of_the_brand_says() {
        let settings = Settings { brand_aliases: vec!["old".to_owned()], ..Settings::default() };
        let names = Names::of(&settings);
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-title", "any"), ("x-old-title", "alias"), ("x-tidegate-title", "own")] {
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(sender(&headers, &names, None).title.as_deref(), Some(value));
        }
        headers.insert("x-tidegate-title", HeaderValue::from_static(""));
        assert_eq!(sender(&headers, &names, None).title.as_deref(), Some("alias"), "an empty one says nothing");
    }
}
