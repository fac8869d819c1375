//! Embeddings: texts as vectors, which say how much they have in common.

mod told;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use tidegate_core::{Api, Timestamp, Usage};
use tidegate_providers::embeddings::{self as embedding, Input, Wanted};
use tidegate_providers::{Class, Fault};
use tidegate_routing::{Attempt, Endpoint, Model};
use tidegate_wire::envelope::Provider;
use tidegate_wire::envelope::embeddings::{self, Request, Said};
use tidegate_wire::error::ErrorType;
use tidegate_wire::json;

use super::prefer::Wishes;
use super::reserve::Ask;
use super::whole::{Job, Kind, Opening, Options, option_words, words};
use super::{Body, Reply, reply};
use crate::Gateway;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::snapshot::Calls;

/// Members that options for one provider cannot replace.
const CHECKED: [&str; 5] = ["model", "input", "encoding_format", "dimensions", "provider"];
const ENCODING: &str = "encoding_format";
/// Tokens of a picture or of another part that is no text: what is held for, and what is taken where nobody counted.
const MOST_OF_A_PART: u64 = 8_192;
const USUAL_OF_A_PART: u64 = 1_024;

impl Gateway {
    /// Serves `POST /embeddings` for a caller that has been let in.
    pub async fn embeddings(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let request = embeddings::read(&body)?;
        let (name, user) = (&*request.model, request.user.as_deref());
        let opening = Opening { key, headers, model: name, user, session: None, size: body.len(), inner: None };
        let begun = self.begin_whole(&snapshot, &opening, |ticket| {
            let texts = self.passed_input(key, &request)?;
            ticket.asked(|| told::asked(&request, texts.as_deref()));
            let plan = self.plan_whole::<Vectors>(&snapshot, key, name, &Wishes::to_embed(&request))?;
            let images = match request.input.said {
                Said::Parts { has_images: true, others, .. } => others,
                _ => 0,
            };
            Ok((Vectors { texts, prompt: held(&request), images }, plan))
        })?;
        drop(request);
        let answered = Box::pin(self.answer_whole(&snapshot, begun, body)).await?;
        Ok(reply(answered.id, &snapshot.names, Body::full(answered.body), false, &answered.warnings))
    }

    /// The texts as the caller's filters leave them; nothing where they leave them as they are. What filters cannot read is
    /// refused.
    fn passed_input(&self, key: &KeyEntry, request: &Request<'_>) -> Result<Option<Vec<Cow<'static, str>>>, Failure> {
        let texts = match &request.input.said {
            Said::Texts(texts) => texts.as_slice(),
            Said::Tokens(_) | Said::Parts { .. } => &[],
        };
        let passed = self.passed_texts(key, texts.len(), || {
            let mut all: Vec<String> = texts.iter().map(|text| text.clone().into_owned()).collect();
            if let Said::Parts { .. } = request.input.said {
                words(request.input.raw, &mut all)?;
            }
            option_words(&request.options, request.provider.as_ref(), &mut all)?;
            Ok(all)
        })?;
        if let Said::Tokens(_) = request.input.said
            && self.guardrails.of(key).is_some_and(|held| held.has_filters())
        {
            let message =
                "Request blocked by content filter: input holds tokens, which filters cannot read; send texts";
            return Err(Failure::new(403, ErrorType::PermissionDenied, message));
        }
        Ok(passed.map(|texts| texts.into_iter().map(Cow::Owned).collect()))
    }
}

/// Tokens that an input cannot have more of, as far as one can tell by its length.
fn held(request: &Request<'_>) -> u64 {
    match &request.input.said {
        Said::Texts(texts) => texts.iter().map(|text| (text.len() as u64).div_ceil(3) + 8).sum(),
        Said::Tokens(count) => *count,
        Said::Parts { text, others, .. } => (*text as u64).div_ceil(3) + 8 + MOST_OF_A_PART * others,
    }
}

/// A request for embeddings.
struct Vectors {
    /// What a guardrail made of the texts.
    texts: Option<Vec<Cow<'static, str>>>,
    /// Tokens that are held for, and pictures.
    prompt: u64,
    images: u64,
}

impl Kind for Vectors {
    const API: Api = Api::Embeddings;
    const LIMIT: Duration = Duration::from_secs(120);
    const LEARNT: &'static str = "embeddings.";
    const KNOWN: &'static [&'static str] = &["dimensions", "encoding_format", "input_type", "user"];
    const WRONG_MODEL: &'static str = "does not make embeddings; GET /embeddings/models lists those that do";
    const NOBODY: &'static str = "make embeddings";

    fn is_for(model: &Model) -> bool {
        model.embeds()
    }

    fn address(calls: &Calls) -> Option<&Uri> {
        calls.embeddings.as_ref()
    }

    fn ask<'a>(job: &mut Job<Self>, attempt: &'a Attempt) -> Result<Ask<'a>, Failure> {
        job.ticket.has_pictures(job.kind.images);
        Ok(Ask { prompt: job.kind.prompt, ..Ask::whole(attempt, &job.ticket) })
    }

    fn options<'a>(job: &'a Job<Self>) -> Option<(Options<'a>, Option<Provider<'a>>)> {
        let request = embeddings::read(&job.body).ok()?;
        Some((request.options, request.provider))
    }

    fn outgoing(job: &mut Job<Self>, endpoint: &Endpoint, model: &str) -> Result<Bytes, Fault> {
        let request = embeddings::read(&job.body).map_err(|_| Fault::without_answer(Class::Own))?;
        let Request { input, dimensions, input_type, options, provider, .. } = request;
        let options = Job::<Self>::meant(options, provider.as_ref(), &endpoint.provider, &CHECKED)?;
        let input = match (&job.kind.texts, &input.said) {
            (Some(texts), _) => Input::Texts(texts),
            (None, Said::Texts(texts)) => Input::Texts(texts),
            (None, Said::Tokens(_) | Said::Parts { .. }) => Input::Raw(input.raw),
        };
        // What is meant for this provider alone wins here, too.
        let own_type = options.iter().find(|(name, _)| name == "input_type").and_then(|(_, value)| json::string(value));
        let input_type = own_type.or(input_type);
        let wanted = Wanted { model, input, dimensions, input_type: input_type.as_deref(), options: &options };
        let protocol = job.snapshot.upstreams[endpoint.provider_index].protocol;
        let embedding::Sent { body, warnings } = embedding::request(protocol, &wanted)?;
        job.warnings = warnings;
        Ok(body)
    }

    fn sees_to(_job: &Job<Self>, name: &str) -> bool {
        name == ENCODING
    }

    fn completed(job: &mut Job<Self>, endpoint: &Endpoint, since: Timestamp, body: &Bytes) -> Result<Bytes, Fault> {
        let asked = embeddings::read(&job.body).map_err(|_| Fault::without_answer(Class::Own))?;
        let protocol = job.snapshot.upstreams[endpoint.provider_index].protocol;
        let made = embedding::answer(protocol, body, asked.input.count);
        // Before anything is charged for it: what cannot be told is no answer. An option that nobody here knows may have
        // asked for another one: then it is not the endpoint that failed.
        let is_ordinary = asked.options.iter().all(|(name, _)| Self::KNOWN.contains(&name.as_ref()));
        let told = made.and_then(|made| told::vectors(&made, asked.encoding).map(|vectors| (made, vectors)));
        let (made, vectors) = told.map_err(|fault| if is_ordinary { fault } else { embedding::unexpected() })?;
        let (is_estimated, tokens) = match made.tokens {
            Some(tokens) => (false, tokens),
            None => (true, estimated(&asked)),
        };
        let ticket = &mut job.ticket;
        ticket.attempted(endpoint, 200, since);
        let charged = ticket.used_whole(Usage { input: tokens, ..Usage::default() }, is_estimated, endpoint);
        ticket.first_content();
        ticket.overhear(&told::overheard(&made));
        let answer = told::answer(&vectors, (ticket.id(), &endpoint.model), tokens, &charged.charge());
        ticket.sent(answer.len());
        Ok(answer)
    }
}

/// What nobody counted.
fn estimated(request: &Request<'_>) -> u64 {
    match &request.input.said {
        Said::Texts(texts) => texts.iter().map(|text| (text.len() as u64).div_ceil(4)).sum(),
        Said::Tokens(count) => *count,
        Said::Parts { text, others, .. } => (*text as u64).div_ceil(4) + USUAL_OF_A_PART * others,
    }
}
