//! One attempt of a call that is answered whole.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tidegate_core::Timestamp;
use tidegate_providers::credential::Credential;
use tidegate_providers::repair::{self, Refused, Repair};
use tidegate_providers::{Class, Fault};
use tidegate_routing::{Attempt, Endpoint};

use super::super::attempt::MOST_REPAIRS;
use super::super::{call, translate};
use super::{Job, Kind};
use crate::learned::Fact;
use crate::{error_rules, upstream};

/// One attempt, made again without options that the endpoint does not know.
pub(super) async fn called<K: Kind>(job: &mut Job<K>, attempt: &Attempt, since: Timestamp) -> Result<Bytes, Fault> {
    let endpoint = &attempt.endpoint;
    job.refused = learned(job, endpoint);
    let mut repairs: Vec<Repair> = Vec::new();
    let mut repeats = 0;
    loop {
        let (fault, mut hint) = match sent(job, attempt).await? {
            Ok(body) => {
                let answer = K::completed(job, endpoint, since, &body)?;
                note(job, attempt, &repairs);
                return Ok(answer);
            }
            Err(refusal) => refusal,
        };
        // Only where that makes another call of it.
        hint.retain(|repair| match repair.left_out().map(Refused::name) {
            Some(name) => !job.refused.contains(name) && is_sent(job, name),
            None => !repairs.contains(repair),
        });
        if hint.is_empty() || repeats == MOST_REPAIRS {
            return Err(fault);
        }
        job.ticket.faulted(&fault);
        job.refused.extend(hint.iter().filter_map(|repair| repair.left_out().map(|refused| refused.name().to_owned())));
        repairs.append(&mut hint);
        repeats += 1;
    }
}

/// Remembers what an endpoint does not take, now that it has taken the same call without it. What a customer's
/// own account or server says is no fact about the others'. Nor is what it says to names that a caller made up: they could
/// be made up so that it speaks of others.
fn note<K: Kind>(job: &Job<K>, attempt: &Attempt, repairs: &[Repair]) {
    if repairs.is_empty() || attempt.credential.is_some() || !is_ordinary(job) {
        return;
    }
    for repair in repairs {
        let Repair::Without(refused) = repair else { continue };
        let (provider, model) = (attempt.endpoint.provider.clone(), attempt.endpoint.upstream_model.clone());
        let refused = Refused::Member(format!("{}{}", K::LEARNT, refused.name()));
        job.gate.learn(&Fact { provider, model, refused }, true);
    }
}

/// Whether an option was part of what was sent.
fn is_sent<K: Kind>(job: &Job<K>, name: &str) -> bool {
    K::sees_to(job, name) || K::options(job).is_some_and(|(options, _)| options.iter().any(|(known, _)| known == name))
}

/// Whether a request has no other options than those that everybody knows.
fn is_ordinary<K: Kind>(job: &Job<K>) -> bool {
    K::options(job).is_some_and(|(options, provider)| {
        let has_own = provider.iter().any(|provider| !provider.options.is_empty());
        !has_own && options.iter().all(|(name, _)| K::KNOWN.contains(&name.as_ref()))
    })
}

/// Options that the endpoint is known not to take. They stand apart from those of messages, which may have members of the
/// same names.
fn learned<K: Kind>(job: &Job<K>, endpoint: &Endpoint) -> BTreeSet<String> {
    let learned = job.gate.learned.of(&endpoint.provider, &endpoint.upstream_model);
    let facts = learned.iter().flat_map(|learned| learned.iter());
    facts.filter_map(|fact| fact.name().strip_prefix(K::LEARNT)).map(str::to_owned).collect()
}

type Refusal = (Fault, Vec<Repair>);

/// The whole answer of an upstream, or its refusal and what may be done about that.
async fn sent<K: Kind>(job: &mut Job<K>, attempt: &Attempt) -> Result<Result<Bytes, Refusal>, Fault> {
    let snapshot = job.snapshot.clone();
    let endpoint = &attempt.endpoint;
    let upstream = &snapshot.upstreams[endpoint.provider_index];
    let credential = call::credential((&job.gate, job.ticket.workspace()), attempt, upstream).await?;
    let (own_calls, named) = match &credential {
        Some(credential) => call::calls(credential, attempt, upstream)?,
        None => (None, None),
    };
    let calls = own_calls.as_ref().unwrap_or(&snapshot.places[endpoint.place].calls);
    let uri = K::address(calls).cloned().ok_or_else(|| Fault::without_answer(Class::Own))?;
    let model = named.as_deref().unwrap_or(&endpoint.upstream_model);
    let mut body = K::outgoing(job, endpoint, model)?;
    for name in job.refused.clone() {
        let Some(without) = repair::without(&body, &name) else { continue };
        body = without.into();
        if !K::sees_to(job, &name) {
            job.warnings.push(format!("dropped:{name}"));
        }
    }
    call::complete(upstream, &job.warnings)?;
    let mut headers = translate::headers(upstream.protocol, false);
    headers.insert(CONTENT_TYPE, K::media_type(job));
    let who = (&*endpoint.model, attempt.credential.is_none());
    let authority = job.gate.authority();
    let body = call::authorise(authority, upstream, credential.as_ref(), who, &uri, &mut headers, body.into()).await?;
    let account = match &credential {
        Some(Credential::Google(account)) => Some(account.clone()),
        _ => None,
    };
    job.ticket.authorised(credential, &headers);
    job.ticket.called(attempt, !upstream.supports_cancel);
    let response = job.gate.upstream.send(&uri, headers, body).await?;
    if response.status() == StatusCode::OK {
        job.answered_as = response.headers().get(CONTENT_TYPE).cloned();
        return upstream::whole(response.into_body(), snapshot.settings.max_answer_bytes).await.map(Ok);
    }
    let (head, body) = response.into_parts();
    let body = upstream::error_body(body).await;
    let mut hint = K::repairs(head.status.as_u16(), &body);
    if let (StatusCode::UNAUTHORIZED, Some(account)) = (head.status, account) {
        job.gate.tokens.forget(&account, attempt.credential.is_none()).await;
        hint = vec![Repair::Again];
    }
    Ok(Err((error_rules::classify(upstream, &head, &body, job.gate.clock.now()), hint)))
}
