//! One attempt of a request for pictures: what an endpoint is sent, and what is made of its answer.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use http::StatusCode;
use serde_json::value::RawValue;
use tidegate_core::{Timestamp, Usage};
use tidegate_providers::credential::Credential;
use tidegate_providers::images::{self as drawing, Made, Wanted};
use tidegate_providers::repair::{self, Refused, Repair};
use tidegate_providers::{Class, Fault};
use tidegate_routing::price::Unit;
use tidegate_routing::{Attempt, Endpoint};
use tidegate_wire::envelope::images::{self, Request};
use tidegate_wire::json::Members;

use super::super::{call, translate};
use super::{Job, told};
use crate::learned::{Fact, Noted};
use crate::{error_rules, upstream};

/// What stands before the names of options that are learnt of calls for pictures.
const OF_IMAGES: &str = "images.";
/// Tokens of a picture where tokens are paid for and the upstream does not say how many there were.
const USUAL_TOKENS: u64 = 1_056;
const RESPONSE_FORMAT: &str = "response_format";
/// Options that everybody knows.
const KNOWN: [&str; 11] = [
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
/// Members that options for one provider cannot replace.
const CHECKED: [&str; 7] = ["model", "prompt", "n", "stream", "response_format", "input_references", "provider"];

/// One attempt, made again without an option that the endpoint does not know.
pub(super) async fn called(job: &mut Job, attempt: &Attempt, since: Timestamp) -> Result<Bytes, Fault> {
    let endpoint = &attempt.endpoint;
    let mut refused = learned(job, endpoint);
    let mut is_repaired = false;
    loop {
        let (fault, hint) = match sent(job, attempt, &refused).await? {
            Ok(body) => return completed(job, attempt, since, &body),
            Err(refusal) => refusal,
        };
        let without = match hint {
            Some(Repair::Without(Refused::Member(name))) if !is_repaired && !refused.contains(&name) => {
                if !is_sent(job, &name) {
                    return Err(fault);
                }
                Some(name)
            }
            Some(Repair::Again) if !is_repaired => None,
            _ => return Err(fault),
        };
        is_repaired = true;
        job.ticket.faulted(&fault);
        if let Some(name) = without {
            // What a customer's own account or server says is no fact about the others'. Nor is what it says to names that a
            // caller made up: they could be made up so that it speaks of others.
            if attempt.credential.is_none() && is_ordinary(job) {
                let (provider, model) = (endpoint.provider.clone(), endpoint.upstream_model.clone());
                let fact = Fact { provider, model, refused: Refused::Member(format!("{OF_IMAGES}{name}")) };
                if let Noted::New { instead_of } = job.gate.learn(fact.clone()) {
                    job.gate.keep(&fact, instead_of);
                }
            }
            refused.insert(name);
        }
    }
}

/// Whether an option was part of what was sent.
fn is_sent(job: &Job, name: &str) -> bool {
    let read = images::read(&job.body, job.form);
    name == RESPONSE_FORMAT || read.is_ok_and(|request| request.options.iter().any(|(known, _)| known == name))
}

/// Whether a request has no other options than those that everybody knows.
fn is_ordinary(job: &Job) -> bool {
    let is_known = |request: images::Request<'_>| {
        let has_own = request.provider.iter().any(|provider| !provider.options.is_empty());
        !has_own && request.options.iter().all(|(name, _)| KNOWN.contains(&name.as_ref()))
    };
    images::read(&job.body, job.form).is_ok_and(is_known)
}

/// Options that the endpoint is known not to take. They stand apart from those of messages, which may have members of the
/// same names.
fn learned(job: &Job, endpoint: &Endpoint) -> BTreeSet<String> {
    let learned = job.gate.learned.of(&endpoint.provider, &endpoint.upstream_model);
    let facts = learned.iter().flat_map(|learned| learned.iter());
    facts.filter_map(|fact| fact.name().strip_prefix(OF_IMAGES)).map(str::to_owned).collect()
}

type Refusal = (Fault, Option<Repair>);

/// The whole answer of an upstream, or its refusal and what may be done about that.
async fn sent(job: &mut Job, attempt: &Attempt, refused: &BTreeSet<String>) -> Result<Result<Bytes, Refusal>, Fault> {
    let snapshot = job.snapshot.clone();
    let endpoint = &attempt.endpoint;
    let upstream = &snapshot.upstreams[endpoint.provider_index];
    let credential = call::credential((&job.gate, job.ticket.workspace()), attempt, upstream).await?;
    let (own_calls, named) = match &credential {
        Some(credential) => call::calls(credential, attempt, upstream)?,
        None => (None, None),
    };
    let calls = own_calls.as_ref().unwrap_or(&snapshot.places[endpoint.place].calls);
    let uri = calls.images.clone().ok_or_else(|| Fault::without_answer(Class::Own))?;
    let model = named.as_deref().unwrap_or(&endpoint.upstream_model);
    let body = outgoing(job, attempt, model, refused)?;
    let mut headers = translate::headers(upstream.protocol, false);
    let who = (&*endpoint.model, attempt.credential.is_none());
    let authority = job.gate.authority();
    let body = call::authorise(authority, upstream, credential.as_ref(), who, &uri, &mut headers, body.into()).await?;
    job.ticket.called(attempt, !upstream.supports_cancel);
    let response = job.gate.upstream.send(&uri, headers, body).await?;
    if response.status() == StatusCode::OK {
        return upstream::whole(response.into_body(), snapshot.settings.max_answer_bytes).await.map(Ok);
    }
    let (head, body) = response.into_parts();
    let body = upstream::error_body(body).await;
    let mut hint = repair::undrawable(head.status.as_u16(), &body).map(Repair::Without);
    if let (StatusCode::UNAUTHORIZED, Some(Credential::Google(account))) = (head.status, &credential) {
        job.gate.tokens.forget(account, attempt.credential.is_none()).await;
        hint = Some(Repair::Again);
    }
    Ok(Err((error_rules::classify(upstream, &head, &body, job.gate.clock.now()), hint)))
}

/// What the endpoint is sent. What had to be left out is in the job's warnings.
fn outgoing(job: &mut Job, attempt: &Attempt, model: &str, refused: &BTreeSet<String>) -> Result<Bytes, Fault> {
    let endpoint = &attempt.endpoint;
    let own = |_| Fault::without_answer(Class::Own);
    let Request { prompt, n, references, mut options, provider, .. } =
        images::read(&job.body, job.form).map_err(own)?;
    // What is meant for this provider alone wins over what is meant for all.
    let meant = provider.iter().flat_map(|provider| &provider.options).find(|(slug, _)| **slug == *endpoint.provider);
    if let Some((_, object)) = meant {
        let raw: &RawValue = serde_json::from_str(object).map_err(|_| Fault::without_answer(Class::Own))?;
        let mut members = Members::of(raw).map(|members| members.0).unwrap_or_default();
        // What was checked, planned and paid for stays what it is.
        members.retain(|(name, _)| !CHECKED.contains(&name.as_ref()));
        options.retain(|(name, _)| members.iter().all(|(other, _)| other != name));
        options.extend(members);
    }
    let prompt = job.prompt.as_deref().unwrap_or(&prompt);
    let references: Vec<Cow<'_, str>> = references;
    let wanted = Wanted { model, prompt, n, references: &references, options: &options };
    let protocol = job.snapshot.upstreams[endpoint.provider_index].protocol;
    let drawing::Sent { mut body, mut warnings } = drawing::request(protocol, &wanted)?;
    for name in refused {
        if let Some(without) = repair::without(&body, name) {
            // Nobody asked for what we added ourselves.
            if name != "response_format" {
                warnings.push(format!("dropped:{name}"));
            }
            body = without.into();
        }
    }
    job.warnings = warnings;
    Ok(body)
}

/// Judges an upstream's answer, charges for it and makes ours of it.
fn completed(job: &mut Job, attempt: &Attempt, since: Timestamp, body: &Bytes) -> Result<Bytes, Fault> {
    let endpoint = &attempt.endpoint;
    let now = job.gate.clock.now();
    let protocol = job.snapshot.upstreams[endpoint.provider_index].protocol;
    let made = drawing::answer(protocol, body, now)?;
    let usage = used(&made, endpoint, job.body.len());
    let ticket = &mut job.ticket;
    ticket.attempted(endpoint, 200, since);
    let charged = ticket.drawn(usage, usage != made.usage, endpoint);
    ticket.first_content();
    ticket.overhear(&told::overheard(&made));
    let answer = told::answer(&made, &usage, &charged.charge(), job.form, now);
    ticket.sent(answer.len());
    Ok(answer)
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
