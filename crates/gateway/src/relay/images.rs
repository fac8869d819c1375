//! Pictures. A picture is nothing before it is finished; a client that wants a stream gets one with finished pictures in it.

mod told;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use tidegate_core::{Api, Timestamp, Usage};
use tidegate_providers::images::{self as drawing, Made, Wanted};
use tidegate_providers::{Class, Fault};
use tidegate_routing::price::Unit;
use tidegate_routing::{Attempt, Endpoint, Model};
use tidegate_wire::envelope::Provider;
use tidegate_wire::envelope::images::{self, Form, Request};

use super::prefer::Wishes;
use super::reserve::Ask;
use super::whole::{Answered, Job, Kind, Opening, Options, option_words};
use super::{Body, Inner, Reply, reply};
use crate::choices;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::snapshot::Calls;
use crate::{Gateway, Snapshot};

/// Tokens that are held for a picture where tokens are what is paid for.
const MOST_TOKENS: u64 = 8_192;
/// Tokens of a picture where tokens are paid for and the upstream does not say how many there were.
const USUAL_TOKENS: u64 = 1_056;
const RESPONSE_FORMAT: &str = "response_format";
/// Members that options for one provider cannot replace.
const CHECKED: [&str; 7] = ["model", "prompt", "n", "stream", "response_format", "input_references", "provider"];

impl Gateway {
    /// Serves `POST /images` for a caller that has been let in.
    pub async fn images(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        body: Bytes,
        form: Form,
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let stream = images::read(&body, form)?.stream;
        let Answered { id, body, warnings } = Box::pin(self.draw(&snapshot, key, headers, body, form, None)).await?;
        let body = if stream { told::as_stream(&body)? } else { body };
        Ok(reply(id, &snapshot.names, Body::full(body), stream, &warnings))
    }

    /// Has pictures made, for a caller or for a tool of the loop that `inner` is of.
    pub(crate) async fn draw(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        body: Bytes,
        form: Form,
        inner: Option<&Inner>,
    ) -> Result<Answered, Failure> {
        let request = images::read(&body, form)?;
        let (name, user) = (&*request.model, request.user.as_deref());
        let opening = Opening { key, headers, model: name, user, session: None, size: body.len(), inner };
        let begun = self.begin_whole(snapshot, &opening, |ticket| {
            let prompt = self.passed_prompt(key, &request)?;
            ticket.asked(|| told::asked(&request, prompt.as_deref()));
            let mut wishes = Wishes::to_draw(&request);
            wishes.default = self.choices.model(&key.workspace, &[name], choices::Made::Images)?;
            Ok((Pictures { form, prompt }, self.plan_whole::<Pictures>(snapshot, key, name, &wishes)?))
        })?;
        drop(request);
        self.answer_whole(snapshot, begun, body).await
    }

    /// The prompt as the caller's filters leave it; nothing where they leave it as it is. Options may hold words, too.
    fn passed_prompt(&self, key: &KeyEntry, request: &Request<'_>) -> Result<Option<String>, Failure> {
        let passed = self.passed_texts(key, 1, || {
            let mut texts = vec![request.prompt.clone().into_owned()];
            option_words(&request.options, request.provider.as_ref(), &mut texts)?;
            Ok(texts)
        })?;
        Ok(passed.and_then(|mut texts| texts.pop()))
    }
}

/// A request for pictures.
struct Pictures {
    form: Form,
    /// What a guardrail made of the prompt.
    prompt: Option<String>,
}

impl Kind for Pictures {
    const API: Api = Api::Images;
    const LIMIT: Duration = Duration::from_secs(180);
    /// They stand apart from those of messages, which may have members of the same names.
    const LEARNT: &'static str = "images.";
    const KNOWN: &'static [&'static str] = &[
        "aspect_ratio",
        "background",
        "moderation",
        "output_compression",
        "output_format",
        "quality",
        "resolution",
        "seed",
        "size",
        "style",
        "user",
    ];
    const WRONG_MODEL: &'static str = "does not make images; GET /images/models lists those that do";
    const NOBODY: &'static str = "make images";

    fn is_for(model: &Model) -> bool {
        model.makes_images()
    }

    fn address(calls: &Calls) -> Option<&Uri> {
        calls.images.as_ref()
    }

    fn ask<'a>(job: &mut Job<Self>, attempt: &'a Attempt) -> Result<Ask<'a>, Failure> {
        let endpoint = &*attempt.endpoint;
        let asked = images::read(&job.body, job.kind.form)?;
        let (n, shown) = (asked.n, asked.references.len() as u64);
        job.ticket.has_pictures(shown);
        let most =
            if endpoint.max_output_tokens > 0 { endpoint.max_output_tokens.min(MOST_TOKENS) } else { MOST_TOKENS };
        let prompt = (job.body.len() as u64).div_ceil(3) + 64;
        let prompt = if endpoint.context_length > 0 { prompt.min(endpoint.context_length) } else { prompt };
        Ok(Ask { prompt, output: most.saturating_mul(n), images_out: n, ..Ask::whole(attempt, &job.ticket) })
    }

    fn options<'a>(job: &'a Job<Self>) -> Option<(Options<'a>, Option<Provider<'a>>)> {
        let request = images::read(&job.body, job.kind.form).ok()?;
        Some((request.options, request.provider))
    }

    fn sees_to(_job: &Job<Self>, name: &str) -> bool {
        name == RESPONSE_FORMAT
    }

    fn outgoing(job: &mut Job<Self>, endpoint: &Endpoint, model: &str) -> Result<Bytes, Fault> {
        let own = |_| Fault::without_answer(Class::Own);
        let Request { prompt, n, references, options, provider, .. } =
            images::read(&job.body, job.kind.form).map_err(own)?;
        let options = Job::<Self>::meant(options, provider.as_ref(), &endpoint.provider, &CHECKED)?;
        let prompt = job.kind.prompt.as_deref().unwrap_or(&prompt);
        let references: Vec<Cow<'_, str>> = references;
        let wanted = Wanted { model, prompt, n, references: &references, options: &options };
        let protocol = job.snapshot.upstreams[endpoint.provider_index].protocol;
        let drawing::Sent { body, warnings } = drawing::request(protocol, &wanted)?;
        job.warnings = warnings;
        Ok(body)
    }

    fn completed(job: &mut Job<Self>, endpoint: &Endpoint, since: Timestamp, body: &Bytes) -> Result<Bytes, Fault> {
        let now = job.gate.clock.now();
        let protocol = job.snapshot.upstreams[endpoint.provider_index].protocol;
        let made = drawing::answer(protocol, body, now)?;
        let usage = used(&made, endpoint, job.body.len());
        let ticket = &mut job.ticket;
        ticket.attempted(endpoint, 200, since);
        let charged = ticket.used_whole(usage, usage != made.usage, endpoint);
        ticket.first_content();
        ticket.overhear(&told::overheard(&made));
        let answer = told::answer(&made, &usage, &charged.charge(), job.kind.form, now);
        ticket.sent(answer.len());
        Ok(answer)
    }
}

/// What was used. Where tokens are all that is paid for, and nobody counted them, we do.
fn used(made: &Made<'_>, endpoint: &Endpoint, size: usize) -> Usage {
    let by_piece = endpoint.pricing.as_ref().is_some_and(|pricing| pricing.base.of(Unit::ImageOut).0 > 0);
    if made.is_counted || by_piece {
        return made.usage;
    }
    let output = USUAL_TOKENS * made.usage.images_out;
    Usage { input: (size as u64).div_ceil(4), output, output_image: output, ..made.usage }
}
