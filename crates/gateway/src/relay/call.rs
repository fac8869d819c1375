//! A call as it is sent: the address, the headers and the body that an attempt's endpoint wants, authorised with the
//! credential of the attempt.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap};
use http::{HeaderValue, Method, Uri};
use tidegate_core::{Api, Timestamp, WorkspaceId};
use tidegate_providers::anthropic::{self, Forwarded, beta, edit};
use tidegate_providers::credential::{AwsKeys, Credential, ServiceAccount};
use tidegate_providers::repair::{self, Refused, Repair};
use tidegate_providers::sigv4::{self, Service};
use tidegate_providers::translate::card::{SchemaProfile, StopSupport};
use tidegate_providers::translate::{Card, Context, intent};
use tidegate_providers::{Betas, Carriage, Class, Fault, Protocol, estimate};
use tidegate_routing::Attempt;
use tidegate_wire::envelope::{self, Brand, Cuts, Purpose, Traits, Wrapped};
use tidegate_wire::messages::{AppliedEdits, Request};

use super::job::Job;
use super::{compress, media, required, room, translate};
use crate::credentials::Unusable;
use crate::snapshot::origin_of;
use crate::tokens::Tokens;
use crate::upstream::{Client, Pieces};
use crate::{Calls, Gateway, Snapshot, Upstream};

/// Everything that goes out.
pub(super) struct Call {
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Pieces,
    /// What the answer must be read with when it is not in the Messages format.
    pub context: Option<Context>,
    /// Whose token it carries: one that is refused is asked for anew.
    pub account: Option<Arc<ServiceAccount>>,
}

/// What is said of an answer that cannot be paid for in full length.
const CLAMPED: &str = "clamped:max_tokens";

/// What is said of a conversation that lost its middle.
const COMPRESSED: &str = "compressed:messages";

/// The call of an attempt. What had to be left out of it is in the job's warnings.
pub(super) async fn prepare(job: &mut Job, attempt: &Attempt) -> Result<Call, Fault> {
    job.suit(attempt);
    let snapshot = job.snapshot.clone();
    let upstream = &snapshot.upstreams[attempt.endpoint.provider_index];
    let credential = credential((&job.gate, job.ticket.workspace()), attempt, upstream).await?;
    let (calls, model) = match &credential {
        Some(credential) => calls(credential, attempt, upstream)?,
        None => (None, None),
    };
    let calls = calls.as_ref().unwrap_or(&snapshot.places[attempt.endpoint.place].calls);
    let model = model.unwrap_or_else(|| attempt.endpoint.upstream_model.to_string());
    let streams = translate::asks_to_stream(job, attempt);
    job.warnings.clear();
    let (compressed, edited) = shortened(job, attempt, upstream)?;
    job.cap = room::left(job, attempt, compressed.as_deref()).or(job.cap);
    let inlined = media::inlined(job, attempt, compressed).await?;
    show(job, upstream, inlined.as_deref());
    let (mut headers, body, context) = match upstream.protocol {
        Protocol::Messages => {
            let sent = native(job, attempt, upstream, &model, inlined.as_deref())?;
            if let Some((applied, skipped)) = &edited {
                // Its answers pass with what they say themselves, so this is said beside them.
                let is_changed = !applied.applied_edits.is_empty();
                job.warnings.extend(is_changed.then(|| "changed:context_management".to_owned()));
                job.warnings.extend(skipped.iter().map(|edit| left_out(edit)));
            }
            sent
        }
        _ => {
            let mut outgoing = translate::outgoing(job, attempt, upstream, &model, inlined.map(|request| *request))?;
            job.warnings = outgoing.warnings;
            if let Some((applied, skipped)) = edited {
                outgoing.context.edits = serde_json::to_string(&applied).ok();
                job.warnings.extend(skipped.iter().map(|edit| left_out(edit)));
            }
            let body = without_refused(job, attempt, outgoing.body);
            (translate::headers(upstream.protocol, streams), body.into(), Some(outgoing.context))
        }
    };
    if upstream.is_strict {
        complete(upstream, &missed(job))?;
    }
    if job.requires_parameters {
        let missing = required::missing(&job.body, &job.warnings);
        if !missing.is_empty() {
            let why = "which provider.require_parameters does not allow";
            let message = format!("{} would be asked without: {}, {why}", upstream.display_name, missing.join(", "));
            return Err(Fault { message: Some(message), status: 400, ..Fault::without_answer(Class::Unsupported) });
        }
    }
    // Nobody asked for a limit, and an answer that ends at one would be a riddle.
    if job.is_poor && !job.warnings.iter().any(|warning| warning == CLAMPED) {
        job.warnings.push(CLAMPED.to_owned());
    }
    if job.ticket.is_compressed() {
        job.warnings.push(COMPRESSED.to_owned());
    }
    let mut uri = if streams { calls.stream.clone() } else { calls.whole.clone() };
    if job.beta_query && upstream.protocol == Protocol::Messages && upstream.carriage == Carriage::Plain {
        uri = format!("{uri}?beta=true").parse().unwrap_or(uri);
    }
    let with = job.gate.authority();
    let who = (&*attempt.endpoint.model, attempt.credential.is_none());
    let body = authorise(with, upstream, credential.as_ref(), who, &uri, &mut headers, body).await?;
    let account = match &credential {
        Some(Credential::Google(account)) => Some(account.clone()),
        _ => None,
    };
    job.ticket.authorised(credential, &headers);
    Ok(Call { uri, headers, body, context, account })
}

/// What is said of an edit that is not done here.
fn left_out(edit: &str) -> String {
    format!("dropped:context_management.{edit}")
}

/// The warnings of what was asked for. Who has no word of thinking misses none, though the model would have thought.
fn missed(job: &Job) -> Vec<String> {
    let is_asked = || translate::typed(&job.typed, &job.body).map_or(true, intent::is_asked);
    job.warnings.iter().filter(|warning| *warning != intent::NOT_THINKING || is_asked()).cloned().collect()
}

/// Refuses a call that goes without some of what was asked for, where the operator wants no such thing.
pub(super) fn complete(upstream: &Upstream, warnings: &[String]) -> Result<(), Fault> {
    if !upstream.is_strict || warnings.is_empty() {
        return Ok(());
    }
    let message = format!("{} cannot do all that is asked for: {}", upstream.display_name, warnings.join(", "));
    Err(Fault { message: Some(message), status: 400, ..Fault::without_answer(Class::Unsupported) })
}

/// Counts the pictures that are sent, where some of those that the request has may have been left out.
fn show(job: &mut Job, upstream: &Upstream, changed: Option<&Request>) {
    if job.ticket.shown() == 0 {
        return;
    }
    let is_native = upstream.protocol == Protocol::Messages;
    let sent = match changed {
        None if is_native => return,
        None => translate::typed(&job.typed, &job.body).ok(),
        changed => changed,
    };
    if let Some(pictures) = sent.map(estimate::pictures) {
        job.ticket.shows(pictures);
    }
}

/// Which edits of its context were made here, and which could not be.
type Edits = (AppliedEdits, Vec<String>);

/// The request with less in it, where it is to have less, and what was done to it.
fn shortened(
    job: &mut Job,
    attempt: &Attempt,
    upstream: &Upstream,
) -> Result<(Option<Box<Request>>, Option<Edits>), Fault> {
    let (mut changed, mut edited) = (None, None);
    // Anthropic does the edits; those who imitate the format know nothing of them. Their requests pass unread otherwise.
    let is_edited_here = match upstream.protocol {
        Protocol::Messages => {
            job.snapshot.places[attempt.endpoint.place].card.foreign
                && memchr::memmem::find(&job.body, b"context_management").is_some()
        }
        _ => true,
    };
    if is_edited_here && let Some(cleared) = translate::edited(job, attempt) {
        changed = Some(Box::new(cleared.request));
        edited = Some((cleared.applied, cleared.skipped));
    }
    let compressed = compress::compressed(job, attempt, changed.as_deref())?.or(changed);
    too_long(job, attempt, compressed.as_deref())?;
    Ok((compressed, edited))
}

/// Refuses a prompt that the upstream would cut without a word.
fn too_long(job: &Job, attempt: &Attempt, compressed: Option<&Request>) -> Result<(), Fault> {
    let (endpoint, card) = (&attempt.endpoint, &job.snapshot.places[attempt.endpoint.place].card);
    if !card.truncates {
        return Ok(());
    }
    let request = compressed.map_or_else(|| translate::typed(&job.typed, &job.body), Ok);
    let estimate = request.map_or_else(|_| 0, |request| estimate::rough(request, card));
    // An estimate that refuses must be on the safe side.
    if estimate.saturating_mul(100) / 105 <= endpoint.context_length {
        return Ok(());
    }
    let message = format!("prompt is too long: about {estimate} tokens > {} maximum", endpoint.context_length);
    Err(Fault { message: Some(message), status: 400, ..Fault::without_answer(Class::ContextLength) })
}

pub(super) async fn credential(
    (gate, workspace): (&Gateway, &WorkspaceId),
    attempt: &Attempt,
    upstream: &Upstream,
) -> Result<Option<Credential>, Fault> {
    let Some(own) = &attempt.credential else { return Ok(upstream.credential.clone()) };
    // In a box, as all that hardly any call waits for: others would be as large.
    let value = Box::pin(gate.credentials.value(workspace, own, upstream.auth, gate.clock.now()));
    value.await.map(Some).map_err(|unusable| match unusable {
        Unusable::Gone => Fault::without_answer(Class::Credential),
        Unusable::Sealed => Fault::without_answer(Class::Sealed),
    })
}

/// Said of a deployment that was planned without knowing what is spoken there.
const OTHER_PROTOCOL: &str = "its endpoint_url is for another protocol than the model's endpoint: rotate it, or give the \
                              endpoint that protocol";

/// The addresses that a credential itself names: its region, its project, its deployment. A customer's must be those that
/// it was stored for.
pub(crate) fn calls(
    credential: &Credential,
    attempt: &Attempt,
    upstream: &Upstream,
) -> Result<(Option<Calls>, Option<String>), Fault> {
    let endpoint = &attempt.endpoint;
    let refused = || Fault::without_answer(Class::Credential);
    // What the operator says of the own provider is in its address already; only a list has an entry for each model.
    let is_list = matches!(credential, Credential::Azure(..));
    if !credential.is_placed() || (attempt.credential.is_none() && !is_list) {
        return Ok((None, None));
    }
    let deployment = credential.deployment(&endpoint.model);
    let base = match (deployment, &upstream.template) {
        (Some(deployment), _) => {
            // What is spoken there is spoken nowhere else: it was planned without knowing so.
            if deployment.protocol.is_some_and(|protocol| protocol != upstream.protocol) {
                tracing::warn!(
                    provider = %upstream.slug,
                    model = %endpoint.model,
                    credential = attempt.credential.as_ref().map(|own| &*own.id),
                    "a deployment is not called: {OTHER_PROTOCOL}"
                );
                return Err(Fault { message: Some(OTHER_PROTOCOL.to_owned()), ..refused() });
            }
            deployment.base.clone()
        }
        (None, Some(template)) => credential.address(template, &endpoint.model).map_err(|_| refused())?,
        (None, None) => return Ok((None, None)),
    };
    let model = deployment.map(|deployment| deployment.name.clone());
    if let Some(own) = &attempt.credential {
        let stored = own.destination.as_deref().unwrap_or_default();
        // Earlier releases stored a host as its owner wrote it.
        if !stored.split(' ').any(|place| place.eq_ignore_ascii_case(origin_of(&base))) {
            return Err(refused());
        }
    }
    let name = model.as_deref().unwrap_or(&endpoint.upstream_model);
    let calls = Calls::of(base.trim_end_matches('/'), upstream.protocol, upstream.carriage, name);
    let query = deployment.and_then(|deployment| deployment.query.as_deref());
    let calls = calls.and_then(|calls| calls.with_query(query)).map_err(|_| refused())?;
    Ok((Some(calls), model))
}

/// What is said of a call that went without the reasoning of earlier turns.
pub(super) const WITHOUT_REASONING: &str = "dropped:reasoning";

/// What is known that this endpoint does not take: learnt from it before, or said of this very call.
fn refused(job: &Job, attempt: &Attempt) -> BTreeSet<Refused> {
    let endpoint = &attempt.endpoint;
    let learned = job.gate.learned.of(&endpoint.provider, &endpoint.upstream_model);
    let now = job.repairs.iter().filter_map(|repair| repair.left_out().cloned());
    learned.iter().flat_map(|learned| learned.iter().cloned()).chain(now).collect()
}

/// The client's betas for a Claude model behind the Converse protocol.
pub(super) fn betas<'a>(job: &'a Job, attempt: &Attempt) -> beta::Kept<'a> {
    kept(job, attempt, Betas::Converse)
}

fn kept<'a>(job: &'a Job, attempt: &Attempt, policy: Betas) -> beta::Kept<'a> {
    let given = job.forwarded.beta.as_ref().and_then(|value| value.to_str().ok());
    let refused = refused(job, attempt);
    beta::kept(given, policy, job.traits, &|beta| refused.contains(&Refused::Beta(beta.to_owned())))
}

/// A body in the Messages format and what it must be fitted to.
pub(crate) struct Fit<'a> {
    pub body: &'a Bytes,
    pub cuts: &'a Cuts,
    pub traits: Traits,
    pub max_tokens: Option<u64>,
    /// The most that may be answered, where the caller can pay for no more.
    pub cap: Option<u64>,
    pub purpose: Purpose,
    pub refused: &'a BTreeSet<Refused>,
    pub repairs: &'a [Repair],
    pub forwarded: &'a Forwarded,
    /// It was made here of a body in another format.
    pub is_made: bool,
}

/// A fitted body, where its members are, and what had to be left out.
pub(crate) struct Fitted<'a> {
    changed: Option<(Bytes, Cuts)>,
    as_it_came: (&'a Bytes, &'a Cuts),
    pub betas: Vec<&'a str>,
    pub warnings: Vec<String>,
}

impl Fitted<'_> {
    pub fn parts(&self) -> (&Bytes, &Cuts) {
        self.changed.as_ref().map_or(self.as_it_came, |(body, cuts)| (body, cuts))
    }
}

/// Changes a body where its endpoint demands it, and nowhere else.
pub(crate) fn fit<'a>(
    fit: &Fit<'a>,
    attempt: &Attempt,
    upstream: &Upstream,
    snapshot: &Snapshot,
) -> Result<Fitted<'a>, Fault> {
    let endpoint = &attempt.endpoint;
    let given = fit.forwarded.beta.as_ref().and_then(|value| value.to_str().ok());
    let kept =
        beta::kept(given, upstream.betas, fit.traits, &|beta| fit.refused.contains(&Refused::Beta(beta.to_owned())));
    let mut dropped: Vec<&str> = kept.members.clone();
    let members = fit.refused.iter().filter_map(|fact| match fact {
        Refused::Member(name) => Some(name.as_str()),
        Refused::Beta(_) => None,
    });
    // Only what is there is taken out: a request that does not hold it stays as it came.
    let is_there = |name: &&str| memchr::memmem::find(fit.body, name.as_bytes()).is_some();
    let (inner, outer): (Vec<&str>, Vec<&str>) = members.partition(|name| name.contains('.'));
    dropped.extend(outer);
    dropped.retain(is_there);
    if fit.repairs.contains(&Repair::WithoutThinking) {
        dropped.push("thinking");
    }
    // Only thinking that was signed here asks for it.
    let scope = if fit.traits.foreign_thinking { translate::scope(attempt) } else { String::new() };
    let rules = edit::Rules {
        card: &snapshot.places[endpoint.place].card,
        scope: &scope,
        max_tokens: fit.max_tokens,
        max_output_tokens: fit.cap.map_or(endpoint.max_output_tokens, |cap| cap.min(endpoint.max_output_tokens)),
        is_tiered: endpoint.tier.name().is_some(),
        dropped: &dropped,
        withheld: kept.withheld,
        without_reasoning: fit.repairs.contains(&Repair::WithoutReasoning),
        marks_last: upstream.carriage == Carriage::BedrockInvoke,
        is_made: fit.is_made,
    };
    let edited = edit::edited(fit.body, fit.traits, &rules);
    let (mut changed, mut warnings) = (edited.body, kept.warnings);
    warnings.extend(edited.warnings);
    if rules.without_reasoning {
        warnings.push(WITHOUT_REASONING.to_owned());
    }
    for name in inner {
        if let Some(without) = repair::without(changed.as_ref().unwrap_or(fit.body), name) {
            warnings.push(format!("dropped:{name}"));
            changed = Some(without.into());
        }
    }
    let settings = &snapshot.settings;
    let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
    // A changed body has its members elsewhere. One that holds nothing any more had nothing for this upstream; any other
    // that we cannot read ourselves is our own mistake, and is not sent.
    let changed = match changed {
        None => None,
        Some(body) => {
            let cuts =
                envelope::read(&body, brand, fit.purpose).map(|envelope| envelope.cuts).map_err(|violation| {
                    if violation.parts().0 == "messages" {
                        return translate::nothing_said();
                    }
                    tracing::error!(error = violation.message, "a body that was fitted to an endpoint is broken");
                    Fault::without_answer(Class::Own)
                })?;
            Some((body, cuts))
        }
    };
    Ok(Fitted { changed, as_it_came: (fit.body, fit.cuts), betas: kept.betas, warnings })
}

/// A call in the format it came in, with another name of the model and what the endpoint wants otherwise. `inlined`
/// stands for the body where something had to be fetched for it.
fn native(
    job: &mut Job,
    attempt: &Attempt,
    upstream: &Upstream,
    model: &str,
    inlined: Option<&Request>,
) -> Result<(HeaderMap, Pieces, Option<Context>), Fault> {
    let endpoint = &attempt.endpoint;
    let snapshot = job.snapshot.clone();
    let settings = &snapshot.settings;
    let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
    let inlined = inlined.and_then(|request| {
        let body = Bytes::from(serde_json::to_vec(request).ok()?);
        let cuts = envelope::read(&body, brand, Purpose::Generate).ok()?.cuts;
        Some((body, cuts))
    });
    let (body, cuts) = inlined.as_ref().map_or((&job.body, &job.cuts), |(body, cuts)| (body, cuts));
    let refused = refused(job, attempt);
    let wanted = Fit {
        body,
        cuts,
        traits: job.traits,
        max_tokens: job.max_tokens,
        cap: job.cap,
        purpose: Purpose::Generate,
        refused: &refused,
        repairs: &job.repairs,
        forwarded: &job.forwarded,
        is_made: matches!(job.ticket.api(), Api::Chat | Api::Responses),
    };
    let fitted = fit(&wanted, attempt, upstream, &snapshot)?;
    let (body, cuts) = fitted.parts();
    let most = endpoint.max_output_tokens;
    let limit = Some(job.cap.map_or(most, |cap| cap.min(most)));
    let version = job.forwarded.version.as_ref().and_then(|version| version.to_str().ok());
    let sent: Pieces = match upstream.carriage {
        Carriage::Plain => cuts.upstream_pieces(body, model, limit).into(),
        carriage => {
            let card = &snapshot.places[endpoint.place].card;
            let added = anthropic::added(carriage, version, card, &fitted.betas);
            let without_stream = carriage == Carriage::BedrockInvoke;
            cuts.wrapped_body(body, &Wrapped { without_stream, added: &added }, limit).into()
        }
    };
    let headers = anthropic::headers(&job.forwarded, upstream.carriage, beta_header(&fitted.betas));
    job.warnings = fitted.warnings;
    if job.traits.chat_options {
        let named = envelope::chat_options(&job.body).into_iter().map(|name| format!("dropped:{name}"));
        job.warnings.extend(named);
    }
    Ok((headers, sent, None))
}

pub(crate) fn beta_header(betas: &[&str]) -> Option<HeaderValue> {
    if betas.is_empty() { None } else { HeaderValue::from_str(&betas.join(",")).ok() }
}

/// A translated body without what the upstream does not take.
fn without_refused(job: &mut Job, attempt: &Attempt, mut body: Bytes) -> Bytes {
    for fact in refused(job, attempt) {
        if let Refused::Member(name) = &fact
            && name != repair::STREAM
            && let Some(without) = repair::without(&body, name)
        {
            job.warnings.push(format!("dropped:{name}"));
            body = without.into();
        }
    }
    body
}

/// Sequences to stop at, by the names that they have in the protocols.
const STOPS: [&str; 4] = ["stop", "stop_sequences", "generationConfig.stopSequences", "inferenceConfig.stopSequences"];
/// Schemas, by the names that Gemini knows them by.
const SCHEMAS: [&str; 2] = ["parametersJsonSchema", "generationConfig.responseJsonSchema"];

/// Whether the call that was made last had this, so that it would be another one without it.
pub(super) fn has(job: &Job, attempt: &Attempt, refused: &Refused) -> bool {
    let upstream = &job.snapshot.upstreams[attempt.endpoint.provider_index];
    let is_native = upstream.protocol == Protocol::Messages;
    let name = match refused {
        Refused::Beta(beta) if is_native => return kept(job, attempt, upstream.betas).betas.contains(&beta.as_str()),
        Refused::Beta(beta) => return betas(job, attempt).betas.contains(&beta.as_str()),
        Refused::Member(name) => name,
    };
    if is_native {
        return repair::without(&job.body, name).is_some();
    }
    // Made once more rather than kept: hardly any call is refused. Options do not depend on what is fetched for it.
    let Ok(made) = translate::outgoing(job, attempt, upstream, &attempt.endpoint.upstream_model, None) else {
        return true;
    };
    let is_inside = SCHEMAS.contains(&name.as_str()) && memchr::memmem::find(&made.body, name.as_bytes()).is_some();
    is_inside || repair::without(&made.body, name).is_some()
}

/// Whether the call that was made last would have had this and went without it.
pub(super) fn is_left_out(job: &Job, refused: &Refused) -> bool {
    let name = refused.name();
    // Of a beta that is set here nobody is told.
    let is_beta = matches!(refused, Refused::Beta(_));
    if is_beta || name == repair::STREAM || SCHEMAS.contains(&name) {
        return true;
    }
    // Nobody is told of those that are looked for here.
    let is_said = job.warnings.iter().any(|warning| warning.strip_prefix("dropped:") == Some(name));
    is_said || (STOPS.contains(&name) && memchr::memmem::find(&job.body, b"stop_sequences").is_some())
}

/// The card of an attempt's endpoint as far as it was found to be otherwise; nothing where it is right.
pub(super) fn corrected(job: &Job, attempt: &Attempt) -> Option<Card> {
    let refused = refused(job, attempt);
    let names = |known: &[&str]| refused.iter().any(|fact| known.contains(&fact.name()));
    let (stops, schemas) = (names(&STOPS), names(&SCHEMAS));
    (stops || schemas).then(|| {
        let mut card = job.snapshot.places[attempt.endpoint.place].card.clone();
        // Sequences that the upstream does not take are looked for here.
        if stops {
            card.stop = StopSupport::None;
        }
        // Who does not know JSON Schema by name knows a part of it under another.
        if schemas {
            card.schema_profile = SchemaProfile::GeminiSubset;
        }
        card
    })
}

/// Puts the credential on the call. What is signed covers the whole body, so that is the last step.
pub async fn authorise(
    (client, tokens, now): (&Client, &Tokens, Timestamp),
    upstream: &Upstream,
    credential: Option<&Credential>,
    // The model, by its public name, and whether the credential is the operator's own.
    (model, shared): (&str, bool),
    uri: &Uri,
    headers: &mut HeaderMap,
    body: Pieces,
) -> Result<Pieces, Fault> {
    let Some(credential) = credential else { return Ok(body) };
    match credential {
        Credential::Key(..) | Credential::Azure(..) => {
            credential.put(headers, upstream.auth, model);
            Ok(body)
        }
        Credential::Google(account) => {
            let value = Box::pin(tokens.bearer(client, account, shared, now)).await?;
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

#[cfg(test)]
mod tests;
