//! Speech: texts as sound.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Uri};
use serde_json::json;
use tidegate_core::{Api, Timestamp, Usage};
use tidegate_providers::repair::{self, Repair};
use tidegate_providers::speech::{self as speaking, COUNTING, Wanted};
use tidegate_providers::{Class, Fault};
use tidegate_routing::price::Unit;
use tidegate_routing::{Attempt, Endpoint, Model};
use tidegate_wire::envelope::Provider;
use tidegate_wire::envelope::speech::{self, Request};
use tidegate_wire::json as wire;

use super::prefer::Wishes;
use super::reserve::Ask;
use super::whole::{Job, Kind, Opening, Options, option_words, pays};
use super::{Body, Reply, reply};
use crate::Gateway;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::snapshot::Calls;

/// Members that options for one provider cannot replace.
const CHECKED: [&str; 5] = ["model", "input", "response_format", COUNTING, "provider"];
const VOICE: &str = "voice";
/// Tokens of sound that a character may come to at the slowest, in hundredths; and what it usually comes to.
const MOST_OF_A_CHARACTER: u64 = 600;
const USUAL_OF_A_CHARACTER: u64 = 150;

impl Gateway {
    /// Serves `POST /audio/speech` for a caller that has been let in.
    pub async fn speech(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let request = speech::read(&body)?;
        let (name, user) = (&*request.model, request.user.as_deref());
        let session = request.session_id.as_deref();
        let opening = Opening { key, headers, model: name, user, session, size: body.len(), inner: None };
        let format = request.format;
        let begun = self.begin_whole(&snapshot, &opening, |ticket| {
            let passed = self.passed_texts(key, 1, || {
                let mut texts = vec![request.input.clone().into_owned()];
                texts.extend(request.voice.iter().map(|voice| voice.clone().into_owned()));
                option_words(&request.options, request.provider.as_ref(), &mut texts)?;
                Ok(texts)
            })?;
            let input = passed.and_then(|texts| texts.into_iter().next());
            let said = input.as_deref().unwrap_or(&request.input);
            ticket.asked(|| {
                let content = json!([{"type": "text", "text": said}]);
                json!({"model": name, "messages": [{"role": "user", "content": content}]}).to_string().into()
            });
            let wishes = Wishes::for_model(request.provider.as_ref());
            let plan = self.plan_whole::<Spoken>(&snapshot, key, name, &wishes)?;
            let size = Size { characters: said.chars().count() as u64, bytes: said.len() as u64 };
            Ok((Spoken { input, size }, plan))
        })?;
        drop(request);
        let answered = Box::pin(self.answer_whole(&snapshot, begun, body)).await?;
        let mut reply = reply(answered.id, &snapshot.names, Body::full(answered.body), false, &answered.warnings);
        reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
        Ok(reply)
    }
}

/// How long a text is.
#[derive(Clone, Copy)]
struct Size {
    characters: u64,
    bytes: u64,
}

/// A request to speak a text.
struct Spoken {
    /// What a guardrail made of the text.
    input: Option<String>,
    size: Size,
}

/// Whether tokens are what is paid for.
fn pays_tokens(endpoint: &Endpoint) -> bool {
    pays(endpoint, &[Unit::Input, Unit::Output, Unit::OutputAudio])
}

impl Kind for Spoken {
    const API: Api = Api::Speech;
    const LIMIT: Duration = Duration::from_secs(300);
    const LEARNT: &'static str = "speech.";
    const KNOWN: &'static [&'static str] = &["instructions", "speed"];
    const WRONG_MODEL: &'static str = "does not speak; GET /models?output_modalities=speech lists those that do";
    const NOBODY: &'static str = "speak texts";

    fn is_for(model: &Model) -> bool {
        model.speaks()
    }

    fn address(calls: &Calls) -> Option<&Uri> {
        calls.speech.as_ref()
    }

    fn ask<'a>(job: &mut Job<Self>, attempt: &'a Attempt) -> Result<Ask<'a>, Failure> {
        let Size { characters, bytes } = job.kind.size;
        let most = attempt.endpoint.max_output_tokens;
        let output = (characters * MOST_OF_A_CHARACTER).div_ceil(100) + 64;
        let output = if most > 0 { output.min(most) } else { output };
        Ok(Ask { prompt: bytes.div_ceil(3) + 64, output, characters, ..Ask::whole(attempt, &job.ticket) })
    }

    fn options<'a>(job: &'a Job<Self>) -> Option<(Options<'a>, Option<Provider<'a>>)> {
        let request = speech::read(&job.body).ok()?;
        Some((request.options, request.provider))
    }

    fn outgoing(job: &mut Job<Self>, endpoint: &Endpoint, model: &str) -> Result<Bytes, Fault> {
        let request = speech::read(&job.body).map_err(|_| Fault::without_answer(Class::Own))?;
        let Request { input, voice, format, options, provider, .. } = request;
        let mut options = Job::<Self>::meant(options, provider.as_ref(), &endpoint.provider, &CHECKED)?;
        // What is meant for this provider alone wins here, too: voices have other names everywhere.
        let own_voice = options.iter().position(|(name, _)| name == VOICE).map(|place| options.remove(place).1);
        let voice: Option<Cow<'_, str>> = own_voice.and_then(wire::string).or(voice);
        let wanted = Wanted {
            model,
            input: job.kind.input.as_deref().unwrap_or(&input),
            voice: voice.as_deref(),
            format,
            is_counted: pays_tokens(endpoint) && !job.refused.contains(COUNTING),
            options: &options,
        };
        let protocol = job.snapshot.upstreams[endpoint.provider_index].protocol;
        let speaking::Sent { body, warnings } = speaking::request(protocol, &wanted)?;
        job.warnings = warnings;
        Ok(body)
    }

    fn repairs(status: u16, body: &[u8]) -> Vec<Repair> {
        repair::of_ours(COUNTING, status, body).map_or_else(|| repair::options(status, body), |repair| vec![repair])
    }

    /// Who does not count is asked without it, and estimated.
    fn sees_to(_job: &Job<Self>, name: &str) -> bool {
        name == COUNTING
    }

    fn completed(job: &mut Job<Self>, endpoint: &Endpoint, since: Timestamp, body: &Bytes) -> Result<Bytes, Fault> {
        let format = speech::read(&job.body).map_err(|_| Fault::without_answer(Class::Own))?.format;
        let protocol = job.snapshot.upstreams[endpoint.provider_index].protocol;
        let kind = job.answered_as.as_ref().and_then(|kind| kind.to_str().ok());
        let made = speaking::answer(protocol, (body, kind), format, job.gate.clock.now())?;
        let Size { characters, bytes } = job.kind.size;
        let is_estimated = made.usage.is_none() && pays_tokens(endpoint);
        let counted = made.usage.unwrap_or_else(|| {
            let output = if is_estimated { (characters * USUAL_OF_A_CHARACTER).div_ceil(100) } else { 0 };
            let input = if is_estimated { bytes.div_ceil(4) } else { 0 };
            Usage { input, output, output_audio: output, ..Usage::default() }
        });
        let ticket = &mut job.ticket;
        ticket.attempted(endpoint, 200, since);
        ticket.used_whole(Usage { characters, ..counted }, is_estimated, endpoint);
        ticket.first_content();
        let told = format!("[audio {}, {} bytes]", format.media_type(), made.audio.len());
        ticket.overhear(json!({"content": [{"type": "text", "text": told}]}).to_string().as_bytes());
        ticket.sent(made.audio.len());
        Ok(made.audio)
    }
}
