//! Ranking: which documents have most to do with a query.

mod told;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use tidegate_core::{Api, Timestamp, Usage};
use tidegate_providers::rerank::{self as ranking, Documents, Wanted};
use tidegate_providers::{Class, Fault};
use tidegate_routing::price::Unit;
use tidegate_routing::{Attempt, Endpoint, Model};
use tidegate_wire::envelope::Provider;
use tidegate_wire::envelope::rerank::{self, Request, Said};

use super::prefer::Wishes;
use super::reserve::Ask;
use super::whole::{Job, Kind, Opening, Options, option_words, pays, words};
use super::{Body, Reply, reply};
use crate::Gateway;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::snapshot::Calls;

/// Members that options for one provider cannot replace.
const CHECKED: [&str; 6] = ["model", "query", "documents", "top_n", "return_documents", "provider"];
const TOP: &str = "top_n";
/// Tokens of a picture: what is held for, and what is taken where nobody counted.
const MOST_OF_A_PICTURE: u64 = 8_192;
const USUAL_OF_A_PICTURE: u64 = 1_024;
/// A search unit is a query with so many documents; one that is longer than this with the query counts as several.
const OF_A_UNIT: u64 = 100;
const LONGEST: u64 = 500;

impl Gateway {
    /// Serves `POST /rerank` for a caller that has been let in.
    pub async fn rerank(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let request = rerank::read(&body)?;
        let (name, user) = (&*request.model, request.user.as_deref());
        let opening = Opening { key, headers, model: name, user, session: None, size: body.len(), inner: None };
        let begun = self.begin_whole(&snapshot, &opening, |ticket| {
            let changed = self.passed_documents(key, &request)?;
            ticket.asked(|| told::asked(&request, changed.as_deref()));
            let plan = self.plan_whole::<Places>(&snapshot, key, name, &Wishes::to_rank(&request))?;
            let images = match request.documents.said {
                Said::Pictures { images, .. } => images,
                Said::Texts(_) => 0,
            };
            Ok((Places { changed, held: Size::held(&request), images }, plan))
        })?;
        drop(request);
        let answered = Box::pin(self.answer_whole(&snapshot, begun, body)).await?;
        Ok(reply(answered.id, &snapshot.names, Body::full(answered.body), false, &answered.warnings))
    }

    /// The query and, where all are texts, the documents as the caller's filters leave them; nothing where they leave them
    /// as they are.
    fn passed_documents(
        &self,
        key: &KeyEntry,
        request: &Request<'_>,
    ) -> Result<Option<Vec<Cow<'static, str>>>, Failure> {
        let texts = match &request.documents.said {
            Said::Texts(texts) => texts.as_slice(),
            Said::Pictures { .. } => &[],
        };
        let passed = self.passed_texts(key, 1 + texts.len(), || {
            let mut all = vec![request.query.clone().into_owned()];
            all.extend(texts.iter().map(|text| text.clone().into_owned()));
            if let Said::Pictures { .. } = request.documents.said {
                for document in &request.documents.each {
                    words(document, &mut all)?;
                }
            }
            option_words(&request.options, request.provider.as_ref(), &mut all)?;
            Ok(all)
        })?;
        Ok(passed.map(|texts| texts.into_iter().map(Cow::Owned).collect()))
    }
}

/// What a request comes to, by its length.
#[derive(Clone, Copy)]
struct Size {
    tokens: u64,
    search_units: u64,
}

impl Size {
    /// What it cannot come to more than, as far as one can tell.
    fn held(request: &Request<'_>) -> Self {
        Self::of(request, |bytes| bytes.div_ceil(3) + 8, MOST_OF_A_PICTURE)
    }

    /// What nobody counted.
    fn estimated(request: &Request<'_>) -> Self {
        Self::of(request, |bytes| bytes.div_ceil(4), USUAL_OF_A_PICTURE)
    }

    /// Those who count tokens read the query beside each document.
    fn of(request: &Request<'_>, tokens: fn(u64) -> u64, picture: u64) -> Self {
        let query = tokens(request.query.len() as u64);
        let (lengths, pictures): (Vec<usize>, u64) = match &request.documents.said {
            Said::Texts(texts) => (texts.iter().map(|text| text.len()).collect(), 0),
            Said::Pictures { texts, images } => (texts.clone(), *images),
        };
        let room = LONGEST.saturating_sub(query).max(LONGEST / 2);
        let (mut all, mut pieces) = (picture * pictures, 0_u64);
        for length in lengths {
            let document = tokens(length as u64);
            all += query + document;
            pieces += document.div_ceil(room).max(1);
        }
        Self { tokens: all, search_units: pieces.div_ceil(OF_A_UNIT) }
    }
}

/// A request to rank documents.
struct Places {
    /// What a guardrail made of the query and the documents.
    changed: Option<Vec<Cow<'static, str>>>,
    held: Size,
    images: u64,
}

impl Kind for Places {
    const API: Api = Api::Rerank;
    const LIMIT: Duration = Duration::from_secs(120);
    const LEARNT: &'static str = "rerank.";
    const KNOWN: &'static [&'static str] = &["top_n", "max_tokens_per_doc", "return_documents", "user"];
    const WRONG_MODEL: &'static str =
        "does not rank documents; GET /models?output_modalities=rerank lists those that do";
    const NOBODY: &'static str = "rank documents";

    fn is_for(model: &Model) -> bool {
        model.ranks()
    }

    fn address(calls: &Calls) -> Option<&Uri> {
        calls.rerank.as_ref()
    }

    fn ask<'a>(job: &mut Job<Self>, attempt: &'a Attempt) -> Result<Ask<'a>, Failure> {
        job.ticket.has_pictures(job.kind.images);
        let Size { tokens: prompt, search_units } = job.kind.held;
        Ok(Ask { prompt, search_units, ..Ask::whole(attempt, &job.ticket) })
    }

    fn options<'a>(job: &'a Job<Self>) -> Option<(Options<'a>, Option<Provider<'a>>)> {
        let request = rerank::read(&job.body).ok()?;
        Some((request.options, request.provider))
    }

    fn outgoing(job: &mut Job<Self>, endpoint: &Endpoint, model: &str) -> Result<Bytes, Fault> {
        let request = rerank::read(&job.body).map_err(|_| Fault::without_answer(Class::Own))?;
        let Request { query, documents, options, provider, .. } = request;
        let options = Job::<Self>::meant(options, provider.as_ref(), &endpoint.provider, &CHECKED)?;
        let (query, changed) = match job.kind.changed.as_deref() {
            Some([query, texts @ ..]) => (&**query, Some(texts)),
            _ => (&*query, None),
        };
        let documents = match (&documents.said, changed) {
            (Said::Texts(_), Some(texts)) => Documents::Texts(texts),
            (Said::Texts(texts), None) => Documents::Texts(texts),
            (Said::Pictures { .. }, _) => Documents::Raw(&documents.each),
        };
        let wanted = Wanted { model, query, documents, options: &options };
        let protocol = job.snapshot.upstreams[endpoint.provider_index].protocol;
        let ranking::Sent { body, warnings } = ranking::request(protocol, &wanted)?;
        job.warnings = warnings;
        Ok(body)
    }

    /// What is too much of an answer is cut off here.
    fn sees_to(_job: &Job<Self>, name: &str) -> bool {
        name == TOP
    }

    fn completed(job: &mut Job<Self>, endpoint: &Endpoint, since: Timestamp, body: &Bytes) -> Result<Bytes, Fault> {
        let asked = rerank::read(&job.body).map_err(|_| Fault::without_answer(Class::Own))?;
        let is_ordinary = asked.options.iter().all(|(name, _)| Self::KNOWN.contains(&name.as_ref()));
        // An option that nobody here knows may have asked for another answer: then it is not the endpoint that failed.
        let made = ranking::answer(body, asked.documents.each.len());
        let mut made = made.map_err(|fault| if is_ordinary { fault } else { ranking::unexpected() })?;
        made.ranked.truncate(usize::try_from(asked.top_n.unwrap_or(u64::MAX)).unwrap_or(usize::MAX));
        // Who counts units need not count tokens, unless they are what is paid for. Units are not missed where tokens are
        // counted: such a call is one.
        let is_uncounted = made.search_units.is_none() && made.tokens.is_none();
        let is_estimated = made.tokens.is_none() && (is_uncounted || pays(endpoint, &[Unit::Input]));
        let estimated = Size::estimated(&asked);
        let usage = Usage {
            input: made.tokens.unwrap_or(if is_estimated { estimated.tokens } else { 0 }),
            search_units: made.search_units.unwrap_or(if is_uncounted { estimated.search_units } else { 0 }),
            ..Usage::default()
        };
        let provider = &job.snapshot.upstreams[endpoint.provider_index].display_name;
        let ticket = &mut job.ticket;
        ticket.attempted(endpoint, 200, since);
        let charged = ticket.used_whole(usage, is_estimated, endpoint);
        ticket.first_content();
        ticket.overhear(&told::overheard(&made, asked.documents.each.len()));
        let answer = told::answer((&made, &asked), (ticket.id(), &endpoint.model, provider), &usage, &charged.charge());
        ticket.sent(answer.len());
        Ok(answer)
    }
}
