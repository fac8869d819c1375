//! Transcripts: what is said, written down.

mod told;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Uri};
use tidegate_core::{Api, Timestamp, Usage};
use tidegate_providers::Fault;
use tidegate_providers::estimate::sound;
use tidegate_providers::repair::{self, Repair};
use tidegate_providers::transcription::{self as listening, Made, Recording, Tokens, Wanted};
use tidegate_routing::price::Unit;
use tidegate_routing::{Attempt, Endpoint, Model};
use tidegate_wire::envelope::Provider;
use tidegate_wire::envelope::transcription::{self, Fields, Form, OURS};

use super::prefer::Wishes;
use super::reserve::Ask;
use super::whole::{Job, Kind, Opening, Options, pays};
use super::{Body, Reply, reply};
use crate::Gateway;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::snapshot::Calls;

const FORM: &str = "response_format";
/// What models that count tokens make of a second of sound, and how much may be said in one.
const HEARD_A_SECOND: u64 = 10;
const SAID_A_SECOND: u64 = 6;

/// A request to write down what is said.
pub struct Asked<'a> {
    pub model: &'a str,
    pub recording: Recording,
    pub form: Form,
    pub provider: Option<&'a Provider<'a>>,
    pub user: Option<&'a str>,
    pub session: Option<&'a str>,
    /// All other options.
    pub fields: Fields,
}

impl Gateway {
    /// Serves `POST /audio/transcriptions` for a caller that has been let in.
    pub async fn transcriptions(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        asked: Asked<'_>,
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let Asked { model, recording, form, provider, user, session, fields } = asked;
        let own = provider.map(transcription::own_fields).unwrap_or_default();
        let opening = Opening { key, headers, model, user, session, size: recording.bytes.len(), inner: None };
        let begun = self.begin_whole(&snapshot, &opening, |ticket| {
            // Filters cannot listen; what is written beside the sound they read.
            self.passed_texts(key, 0, || {
                let all = fields.iter().chain(own.iter().flat_map(|(_, fields)| fields));
                let mut texts: Vec<String> = all.flat_map(|(name, value)| [name.clone(), value.clone()]).collect();
                texts.extend([recording.filename.clone(), recording.media_type.clone()]);
                Ok(texts)
            })?;
            ticket.asked(|| told::asked(model, &recording));
            let plan = self.plan_whole::<Heard>(&snapshot, key, model, &Wishes::for_model(provider))?;
            // Nobody can have put this into the recording: it did not exist before.
            let boundary = format!("form-{}", ticket.id().as_str());
            Ok((Heard { recording, form, fields, own, boundary }, plan))
        })?;
        let answered = Box::pin(self.answer_whole(&snapshot, begun, Bytes::new())).await?;
        let mut reply = reply(answered.id, &snapshot.names, Body::full(answered.body), false, &answered.warnings);
        if form == Form::Text {
            reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        }
        Ok(reply)
    }
}

struct Heard {
    recording: Recording,
    form: Form,
    fields: Fields,
    /// Those that are meant for one provider alone, by its name.
    own: Vec<(String, Fields)>,
    boundary: String,
}

impl Heard {
    /// What is said for all providers, replaced by what is said for this one alone.
    fn meant(&self, slug: &str) -> Fields {
        let own = self.own.iter().find(|(other, _)| other == slug).map(|(_, fields)| fields.as_slice()).unwrap_or(&[]);
        let is_free = |name: &str| !OURS.contains(&name.trim_end_matches("[]"));
        let own: Fields = own.iter().filter(|(name, _)| is_free(name)).cloned().collect();
        let replaced: BTreeSet<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
        let kept = self.fields.iter().filter(|(name, _)| !replaced.contains(name.as_str())).cloned();
        kept.chain(own.iter().cloned()).collect()
    }
}

fn pays_tokens(endpoint: &Endpoint) -> bool {
    pays(endpoint, &[Unit::Input, Unit::InputAudio, Unit::Output])
}

fn pays_time(endpoint: &Endpoint) -> bool {
    pays(endpoint, &[Unit::AudioHour])
}

impl Kind for Heard {
    const API: Api = Api::Transcriptions;
    const LIMIT: Duration = Duration::from_secs(600);
    const LEARNT: &'static str = "transcriptions.";
    const KNOWN: &'static [&'static str] = &[];
    const WRONG_MODEL: &'static str =
        "does not write down what is said; GET /models?output_modalities=transcription lists those that do";
    const NOBODY: &'static str = "write down what is said";

    fn is_for(model: &Model) -> bool {
        model.transcribes()
    }

    fn address(calls: &Calls) -> Option<&Uri> {
        calls.transcriptions.as_ref()
    }

    fn ask<'a>(job: &mut Job<Self>, attempt: &'a Attempt) -> Result<Ask<'a>, Failure> {
        let Heard { recording, fields, .. } = &job.kind;
        let audio_ms = sound::most_ms(&recording.bytes);
        let seconds = audio_ms.div_ceil(1_000);
        let written: usize = fields.iter().map(|(_, value)| value.len()).sum();
        let within = |tokens: u64, most: u64| if most > 0 { tokens.min(most) } else { tokens };
        let Endpoint { context_length, max_output_tokens, .. } = *attempt.endpoint;
        let prompt = within(seconds * HEARD_A_SECOND + (written as u64).div_ceil(3) + 64, context_length);
        let output = within(seconds * SAID_A_SECOND + 64, max_output_tokens);
        Ok(Ask { prompt, output, audio_ms, ..Ask::whole(attempt, &job.ticket) })
    }

    /// All of them are fields of the form, which is sent as it is or not at all. What an upstream says to a form with any is no
    /// fact about the others'.
    fn options<'a>(job: &'a Job<Self>) -> Option<(Options<'a>, Option<Provider<'a>>)> {
        (job.kind.fields.is_empty() && job.kind.own.is_empty()).then(|| (Vec::new(), None))
    }

    fn media_type(job: &Job<Self>) -> HeaderValue {
        let kind = format!("multipart/form-data; boundary={}", job.kind.boundary);
        HeaderValue::from_str(&kind).expect("an id is plain ASCII")
    }

    fn outgoing(job: &mut Job<Self>, endpoint: &Endpoint, model: &str) -> Result<Bytes, Fault> {
        let Heard { recording, form, boundary, .. } = &job.kind;
        let fields = job.kind.meant(&endpoint.provider);
        // Where time is paid for, the long answer says how much there was; it has no place for what is to be included.
        let includes = fields.iter().any(|(name, _)| name.starts_with("include"));
        let is_timed = pays_time(endpoint) && !job.refused.contains(FORM) && !includes;
        let form = if is_timed { Form::Verbose } else { *form };
        Ok(listening::request(&Wanted { model, recording, form, fields: &fields }, boundary))
    }

    fn repairs(status: u16, body: &[u8]) -> Vec<Repair> {
        repair::of_ours(FORM, status, body).into_iter().collect()
    }

    /// Who has no long answer is asked for the short one.
    fn sees_to(job: &Job<Self>, name: &str) -> bool {
        name == FORM && job.kind.form != Form::Verbose
    }

    fn completed(job: &mut Job<Self>, endpoint: &Endpoint, since: Timestamp, body: &Bytes) -> Result<Bytes, Fault> {
        let made = listening::answer(body, job.gate.clock.now())?;
        let (usage, is_estimated) = used(&made, &job.kind.recording, endpoint);
        let ticket = &mut job.ticket;
        ticket.attempted(endpoint, 200, since);
        let charged = ticket.used_whole(usage, is_estimated, endpoint);
        ticket.first_content();
        ticket.overhear(&told::overheard(&made));
        let answer = told::answer(&made, job.kind.form, &usage, &charged.charge());
        ticket.sent(answer.len());
        Ok(answer)
    }
}

/// What was used, and whether some of what is paid for had to be estimated.
fn used(made: &Made<'_>, recording: &Recording, endpoint: &Endpoint) -> (Usage, bool) {
    let (pays_tokens, pays_time) = (pays_tokens(endpoint), pays_time(endpoint));
    let is_silent = made.tokens.is_none() && made.audio_ms.is_none();
    let usual = made.audio_ms.unwrap_or_else(|| sound::usual_ms(&recording.bytes));
    let audio_ms = made.audio_ms.unwrap_or(if pays_time || is_silent { usual } else { 0 });
    let tokens = made.tokens.unwrap_or_else(|| match pays_tokens {
        true => {
            let heard = usual.div_ceil(1_000) * HEARD_A_SECOND;
            Tokens { input: heard, audio: heard, output: (made.text.len() as u64).div_ceil(4) }
        }
        false => Tokens { input: 0, audio: 0, output: 0 },
    });
    let usage =
        Usage { input: tokens.input, input_audio: tokens.audio, output: tokens.output, audio_ms, ..Usage::default() };
    let is_estimated = is_silent || (pays_tokens && made.tokens.is_none()) || (pays_time && made.audio_ms.is_none());
    (usage, is_estimated)
}
