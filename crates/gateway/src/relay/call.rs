//! A call as it is sent: the address, the headers and the body that an attempt's endpoint wants, authorised with the
//! credential of the attempt.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap};
use http::{HeaderValue, Method, Uri};
use tidegate_core::Timestamp;
use tidegate_providers::anthropic::{self, beta, edit};
use tidegate_providers::credential::{AwsKeys, Credential};
use tidegate_providers::platform::filled;
use tidegate_providers::repair::{self, Refused, Repair};
use tidegate_providers::sigv4::{self, Service};
use tidegate_providers::translate::Context;
use tidegate_providers::{Carriage, Class, Fault, Protocol, estimate};
use tidegate_routing::Attempt;
use tidegate_wire::envelope::{self, Brand, Purpose, Wrapped};
use tidegate_wire::messages::Request;

use super::attempt::Job;
use super::{media, translate};
use crate::credentials::Unusable;
use crate::snapshot::origin_of;
use crate::upstream::Pieces;
use crate::{Calls, Gateway, Upstream};

/// Everything that goes out.
pub(super) struct Call {
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Pieces,
    /// What the answer must be read with when it is not in the Messages format.
    pub context: Option<Context>,
}

/// The call of an attempt. What had to be left out of it is in the job's warnings.
pub(super) async fn prepare(job: &mut Job, attempt: &Attempt) -> Result<Call, Fault> {
    let snapshot = job.snapshot.clone();
    let upstream = &snapshot.upstreams[attempt.endpoint.provider_index];
    too_long(job, attempt)?;
    let credential = credential(job, attempt, upstream).await?;
    let own = attempt.credential.as_ref();
    let (calls, model) = match (&credential, own) {
        (Some(credential), Some(own)) => calls(credential, own, attempt, upstream)?,
        _ => (None, None),
    };
    let calls = calls.as_ref().unwrap_or(&snapshot.places[attempt.endpoint.place].calls);
    let model = model.unwrap_or_else(|| attempt.endpoint.upstream_model.to_string());
    job.warnings.clear();
    let inlined = media::inlined(job, attempt).await?;
    let (mut headers, body, context) = match upstream.protocol {
        Protocol::Messages => native(job, attempt, upstream, &model, inlined),
        _ => {
            let outgoing = translate::outgoing(job, attempt, upstream, &model, inlined)?;
            job.warnings = outgoing.warnings;
            let body = without_refused(job, attempt, outgoing.body);
            (translate::headers(upstream.protocol, job.stream), body.into(), Some(outgoing.context))
        }
    };
    let mut uri = if job.stream { calls.stream.clone() } else { calls.whole.clone() };
    if job.beta_query && upstream.protocol == Protocol::Messages && upstream.carriage == Carriage::Plain {
        uri = format!("{uri}?beta=true").parse().unwrap_or(uri);
    }
    let body = authorise(&job.gate, attempt, upstream, credential, &uri, &mut headers, body).await?;
    Ok(Call { uri, headers, body, context })
}

/// Refuses a prompt that the upstream would cut without a word.
fn too_long(job: &Job, attempt: &Attempt) -> Result<(), Fault> {
    let (endpoint, card) = (&attempt.endpoint, &job.snapshot.places[attempt.endpoint.place].card);
    if !card.truncates {
        return Ok(());
    }
    let request = translate::typed(&job.typed, &job.body);
    let estimate = request.map_or_else(|_| 0, |request| estimate::rough(request, card));
    // An estimate that refuses must be on the safe side.
    if estimate.saturating_mul(100) / 105 <= endpoint.context_length {
        return Ok(());
    }
    let message = format!("prompt is too long: about {estimate} tokens > {} maximum", endpoint.context_length);
    Err(Fault { message: Some(message), status: 400, ..Fault::without_answer(Class::ContextLength) })
}

async fn credential(job: &Job, attempt: &Attempt, upstream: &Upstream) -> Result<Option<Credential>, Fault> {
    let Some(own) = &attempt.credential else { return Ok(upstream.credential.clone()) };
    let value = job.gate.credentials.value(job.ticket.workspace(), own, upstream.auth, job.gate.clock.now());
    value.await.map(Some).map_err(|unusable| match unusable {
        Unusable::Gone => Fault::without_answer(Class::Credential),
        Unusable::Sealed => Fault::without_answer(Class::Own),
    })
}

/// The addresses that a customer's credential itself names: its region, its project, its deployment. They must be those
/// that it was stored for.
pub(crate) fn calls(
    credential: &Credential,
    own: &tidegate_routing::Credential,
    attempt: &Attempt,
    upstream: &Upstream,
) -> Result<(Option<Calls>, Option<String>), Fault> {
    let endpoint = &attempt.endpoint;
    let refused = || Fault::without_answer(Class::Credential);
    if !credential.is_placed() {
        return Ok((None, None));
    }
    let (base, model) = match (credential.deployment(&endpoint.model), &upstream.template) {
        (Some((url, name)), _) => (url.trim_end_matches('/').to_owned(), Some(name.to_owned())),
        (None, Some(template)) => {
            let made = filled(template, |gap| credential.place(gap, &endpoint.model));
            (made.map_err(|_| refused())?, None)
        }
        (None, None) => return Ok((None, None)),
    };
    let stored = own.destination.as_deref().unwrap_or_default();
    if !stored.split(' ').any(|place| place == origin_of(&base)) {
        return Err(refused());
    }
    let name = model.as_deref().unwrap_or(&endpoint.upstream_model);
    let calls = Calls::of(&base, upstream.protocol, upstream.carriage, name).map_err(|_| refused())?;
    Ok((Some(calls), model))
}

/// A call in the format it came in, with `inlined` instead of the body if there is such a thing: with another name of the model and what the endpoint wants otherwise.
fn native(
    job: &mut Job,
    attempt: &Attempt,
    upstream: &Upstream,
    model: &str,
    inlined: Option<Request>,
) -> (HeaderMap, Pieces, Option<Context>) {
    let endpoint = &attempt.endpoint;
    let card = &job.snapshot.places[endpoint.place].card;
    let learned = job.gate.learned.of(&endpoint.provider, &endpoint.upstream_model);
    let refused = |fact: &Refused| learned.as_ref().is_some_and(|learned| learned.contains(fact));
    let given = job.forwarded.beta.as_ref().and_then(|value| value.to_str().ok());
    let kept = beta::kept(given, upstream.betas, &|beta| refused(&Refused::Beta(beta.to_owned())));
    let mut dropped: Vec<&str> = kept.members.clone();
    let members = learned.iter().flat_map(|learned| learned.iter());
    dropped.extend(members.filter_map(|fact| match fact {
        Refused::Member(name) => Some(name.as_str()),
        Refused::Beta(_) => None,
    }));
    if job.repairs.contains(&Repair::WithoutThinking) {
        dropped.push("thinking");
    }
    let scope = translate::scope(attempt);
    let rules = edit::Rules {
        card,
        scope: &scope,
        max_tokens: job.max_tokens,
        max_output_tokens: endpoint.max_output_tokens,
        dropped: &dropped,
        without_reasoning: job.repairs.contains(&Repair::WithoutReasoning),
    };
    let inlined = inlined.and_then(|request| serde_json::to_vec(&request).ok()).map(Bytes::from);
    let edited = edit::edited(inlined.as_ref().unwrap_or(&job.body), job.traits, &rules);
    let mut warnings = kept.warnings;
    warnings.extend(edited.warnings);
    let settings = &job.snapshot.settings;
    let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
    // A changed body has its members elsewhere.
    let again = edited.body.or(inlined).and_then(|body| {
        let cuts = envelope::read(&body, brand, Purpose::Generate).ok()?.cuts;
        Some((body, cuts))
    });
    let (body, cuts) = again.as_ref().map_or((&job.body, &job.cuts), |(body, cuts)| (body, cuts));
    let limit = Some(endpoint.max_output_tokens);
    let version = job.forwarded.version.as_ref().and_then(|version| version.to_str().ok());
    let sent: Pieces = match upstream.carriage {
        Carriage::Plain => cuts.upstream_pieces(body, model, limit).into(),
        carriage => {
            let added = anthropic::added(carriage, version, card, &kept.betas);
            let without_stream = carriage == Carriage::BedrockInvoke;
            cuts.wrapped_body(body, &Wrapped { without_stream, added: &added }, limit).into()
        }
    };
    let header = if kept.betas.is_empty() { None } else { HeaderValue::from_str(&kept.betas.join(",")).ok() };
    let headers = anthropic::headers(&job.forwarded, upstream.carriage, header);
    job.warnings = warnings;
    (headers, sent, None)
}

/// A translated body without what the upstream has refused before.
fn without_refused(job: &mut Job, attempt: &Attempt, mut body: Bytes) -> Bytes {
    let endpoint = &attempt.endpoint;
    let Some(learned) = job.gate.learned.of(&endpoint.provider, &endpoint.upstream_model) else { return body };
    for fact in learned.iter() {
        if let Refused::Member(name) = fact
            && let Some(without) = repair::without(&body, name)
        {
            job.warnings.push(format!("dropped:{name}"));
            body = without.into();
        }
    }
    body
}

/// Puts the credential on the call. What is signed covers the whole body, so that is the last step.
pub(crate) async fn authorise(
    gate: &Gateway,
    attempt: &Attempt,
    upstream: &Upstream,
    credential: Option<Credential>,
    uri: &Uri,
    headers: &mut HeaderMap,
    body: Pieces,
) -> Result<Pieces, Fault> {
    let now = gate.clock.now();
    let Some(credential) = credential else { return Ok(body) };
    match &credential {
        Credential::Key(..) | Credential::Azure(_) => {
            credential.put(headers, upstream.auth, &attempt.endpoint.model);
            Ok(body)
        }
        Credential::Google(account) => {
            let shared = attempt.credential.is_none();
            let value = gate.tokens.bearer(&gate.upstream, account, shared, now).await?;
            headers.insert(AUTHORIZATION, value);
            Ok(body)
        }
        Credential::Aws(keys) => {
            let whole = body.joined();
            let region = keys.region.as_deref().or(upstream.region.as_deref()).unwrap_or("us-east-1");
            let is_mantle = uri.host().is_some_and(|host| host.starts_with("bedrock-mantle"));
            let service = Service { region, name: if is_mantle { "bedrock-mantle" } else { "bedrock" } };
            sign(keys, service, uri, headers, &whole, now)?;
            Ok(whole.into())
        }
    }
}

fn sign(
    keys: &AwsKeys,
    service: Service<'_>,
    uri: &Uri,
    headers: &mut HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<(), Fault> {
    let signed = keys.secret.expose(|secret| {
        let with = |token: Option<&[u8]>, headers: &mut HeaderMap| {
            let credentials =
                sigv4::Credentials { access_key_id: &keys.id, secret_access_key: secret, session_token: token };
            sigv4::sign(&Method::POST, uri, headers, body, &credentials, &service, now)
        };
        match &keys.token {
            Some(token) => token.expose(|token| with(Some(token), headers)),
            None => with(None, headers),
        }
    });
    signed.map_err(|_| Fault::without_answer(Class::Credential))
}
