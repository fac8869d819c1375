//! Requests to upstreams that do not speak the Messages format: made from the typed request, which is read once and only
//! for them.

use std::borrow::Cow;
use std::sync::OnceLock;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use tidegate_core::KeyHash;
use tidegate_providers::anthropic::{Signer, beta};
use tidegate_providers::clear::{self, Cleared};
use tidegate_providers::repair::{self, Refused, Repair};
use tidegate_providers::translate::Card;
use tidegate_providers::translate::intent::NO_PREFILL;
use tidegate_providers::translate::tools::user_hash;
use tidegate_providers::translate::{Context, NOTHING_SAID, Outgoing, Target, Translator};
use tidegate_providers::{Carriage, Class, Fault, Protocol, adapter, chat, estimate, gemini};
use tidegate_routing::Attempt;
use tidegate_wire::envelope;
use tidegate_wire::error::ErrorType;
use tidegate_wire::messages::{Block, Content, Misfit, Request};

use super::call;
use super::job::Job;
use crate::{Snapshot, Upstream, failure, tasks};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The request as the endpoint takes it. `inlined`: what is to be read instead of the body.
pub(super) fn outgoing(
    job: &Job,
    attempt: &Attempt,
    upstream: &Upstream,
    model: &str,
    inlined: Option<Request>,
) -> Result<Outgoing, Fault> {
    let mut request = match inlined {
        Some(request) => Cow::Owned(request),
        None => Cow::Borrowed(
            typed(&job.typed, &job.body)
                .map_err(|error| misread(&job.body, format!("the body cannot be translated: {error}")))?,
        ),
    };
    match Misfit::of(&request) {
        None => {}
        Some(Misfit::Member(problem)) => return Err(misread(&job.body, problem)),
        Some(Misfit::File(id)) => return Err(of_file(&id)),
    }
    let cap = job.cap.filter(|_| request.max_tokens.is_none());
    let is_capped = cap.is_some();
    if is_capped {
        request.to_mut().max_tokens = cap;
    }
    let lost_thinking = job.repairs.contains(&Repair::WithoutThinking) && request.to_mut().thinking.take().is_some();
    let signed = job.repairs.contains(&Repair::WithoutReasoning).then(|| request.clone());
    if signed.is_some() {
        unsigned(request.to_mut());
    }
    let mut lost_reasoning = signed.is_some();
    let card = &job.snapshot.places[attempt.endpoint.place].card;
    let corrected = call::corrected(job, attempt);
    let card = corrected.as_ref().unwrap_or(card);
    let cache_key = cache_key(&job.ticket.workspace().0, job.session.as_deref(), &request);
    // A provider learns that two requests are of one person, never who that is, and nothing across workspaces.
    let user = job.user.as_deref().filter(|_| card.user_field.is_some());
    let user = user.map(|user| user_hash(&job.ticket.workspace().0, user));
    let scope = scope(attempt);
    let is_kept = match upstream.protocol {
        Protocol::Gemini => card.signed_reasoning,
        Protocol::Chat => card.needs_thinking_back,
        Protocol::Messages | Protocol::Responses | Protocol::Converse | Protocol::Cohere => false,
    };
    let kept = match is_kept {
        true => job.gate.carriers.of(job.ticket.workspace(), called(&request), job.gate.clock.now()),
        false => Vec::new(),
    };
    let is_claude = card.claude && upstream.protocol == Protocol::Converse;
    let betas = if is_claude { call::betas(job, attempt) } else { beta::Kept::default() };
    let target = Target {
        card,
        model,
        scope: &scope,
        cache_key: Some(&cache_key),
        user: user.as_deref(),
        stream: asks_to_stream(job, attempt),
        is_capped,
        tells_searches: job.native.as_ref().is_some_and(|native| native.is_taken),
        tier: attempt.endpoint.tier.name(),
        betas: &betas.betas,
        // What was refused for its signatures goes without them.
        kept: if signed.is_some() { &[] } else { &kept },
        unsigned: signed.is_some(),
    };
    let made = adapter::request(upstream.protocol, &request, &target);
    let mut made = made.map_err(|error| match &*error.reason {
        NOTHING_SAID => nothing_said(),
        NO_PREFILL => of_prompt(error.to_string()),
        _ => unsupported(error.to_string()),
    })?;
    made.warnings.extend(betas.warnings);
    made.warnings.extend(lost_thinking.then(|| "dropped:thinking".to_owned()));
    made.context.input_estimate = estimate::rough(&request, card);
    if let Some(signed) = signed.filter(|_| upstream.protocol == Protocol::Gemini) {
        let sent = |request: &Request, kept| {
            let made = adapter::request(upstream.protocol, request, &Target { kept, unsigned: false, ..target });
            made.map(|made| made.body).unwrap_or_default()
        };
        let refused = sent(&signed, &kept);
        lost_reasoning = refused != sent(&request, &[]);
        // What was refused held no signature but the one that stands for none: that has another form.
        if !lost_reasoning && gemini::with_encoded_dummy(&refused) != refused {
            made.body = gemini::with_encoded_dummy(&made.body);
        }
    }
    made.warnings.extend(lost_reasoning.then(|| call::WITHOUT_REASONING.to_owned()));
    if job.repairs.contains(&Repair::WordsInResults)
        && upstream.protocol == Protocol::Chat
        && let Some(body) = chat::words_in_results(&made.body)
    {
        made.body = body;
    }
    Ok(made)
}

/// The conversation after the edits that the request asks for; nothing where it has no word of them.
pub(super) fn edited(job: &Job, attempt: &Attempt) -> Option<Cleared> {
    let card = &job.snapshot.places[attempt.endpoint.place].card;
    cleared(typed(&job.typed, &job.body).ok()?, card)
}

/// The same of any request. Its texts are counted, and that may take a while.
pub(crate) fn cleared(request: &Request, card: &Card) -> Option<Cleared> {
    request.context_management.as_ref()?;
    tasks::at_length(|| clear::cleared(request, card))
}

/// Whether the upstream is asked for a stream. Also where the client wants none, if it gives nothing else or the operator
/// wants it so: only of a stream can be told whether it has stopped coming, and how much of it there is when the client
/// leaves. What passes through unread is asked for as the client asks.
pub(super) fn asks_to_stream(job: &Job, attempt: &Attempt) -> bool {
    let Snapshot { upstreams, places, settings, .. } = &*job.snapshot;
    let endpoint = &attempt.endpoint;
    if upstreams[endpoint.provider_index].protocol == Protocol::Messages {
        return job.stream;
    }
    let refuses = |refused: &Refused| refused.name() == repair::STREAM;
    if job.repairs.iter().any(|repair| matches!(repair, Repair::Without(refused) if refuses(refused))) {
        return false;
    }
    let may_stream = || {
        let learned = job.gate.learned.of(&endpoint.provider, &endpoint.upstream_model);
        !learned.is_some_and(|learned| learned.iter().any(refuses))
    };
    job.stream || places[endpoint.place].card.stream_only || (settings.always_stream && may_stream())
}

/// The body as it is translated, where it was read. In a box: most are not, and all that waits for them is moved about.
pub(super) type Typed = OnceLock<Result<Box<Request>, String>>;

/// The body as it is translated, read at the first need.
pub(super) fn typed<'j>(read: &'j Typed, body: &[u8]) -> Result<&'j Request, &'j str> {
    let request = read.get_or_init(|| Request::parse(body).map(Box::new).map_err(|error| error.to_string()));
    request.as_deref().map_err(String::as_str)
}

/// Which account at which host: what it signs is worth something there alone.
pub(crate) fn scope(attempt: &Attempt) -> String {
    let endpoint = &attempt.endpoint;
    let own = attempt.credential.as_ref().map_or("shared", |credential| &credential.id);
    short_hash("ep-", &[&endpoint.provider, &endpoint.origin, own], 8)
}

/// Who signs what an attempt answers, where nobody could tell by the signature.
pub(super) fn signer(attempt: &Attempt) -> Signer {
    Signer { scope: scope(attempt), model: attempt.endpoint.upstream_model.to_string() }
}

/// Ids of all calls of a conversation.
fn called(request: &Request) -> impl Iterator<Item = &str> {
    let blocks = request.messages.iter().filter_map(|message| match &message.content {
        Content::Blocks(blocks) => Some(blocks),
        Content::Text(_) => None,
    });
    blocks.flatten().filter_map(|block| match block {
        Block::ToolUse(call) => Some(call.id.as_str()),
        _ => None,
    })
}

/// Takes the signatures off thinking: its text may stay, what only its issuer reads does not.
fn unsigned(request: &mut Request) {
    for message in &mut request.messages {
        let Content::Blocks(blocks) = &mut message.content else { continue };
        blocks.retain(|block| !matches!(block, Block::RedactedThinking(_)));
        for block in blocks {
            if let Block::Thinking(thinking) = block {
                thinking.signature = None;
            }
        }
    }
}

/// Of a request of which nothing is left that this endpoint can be told.
pub(super) fn nothing_said() -> Fault {
    of_prompt("messages must not be empty".to_owned())
}

fn of_prompt(message: String) -> Fault {
    Fault { code: Some(ErrorType::InvalidPrompt.as_str().to_owned()), ..unsupported(message) }
}

/// Of a file that is not kept here: only who keeps it could show it.
fn of_file(id: &str) -> Fault {
    Fault { code: Some(ErrorType::NotFound.as_str().to_owned()), ..unsupported(failure::file_not_found(id)) }
}

/// Of a request that cannot be read for this reason; half a character, of which a parser has odd things to say, is named
/// by its place.
fn misread(body: &[u8], reason: String) -> Fault {
    let half = envelope::half_character(body);
    unsupported(half.map_or(reason, |violation| violation.message.replacen("Invalid request: ", "", 1)))
}

fn unsupported(message: String) -> Fault {
    Fault { message: Some(message), status: 400, ..Fault::without_answer(Class::Unsupported) }
}

/// What reads the stream of an upstream; none where it is in the Messages format already, as its makers write it.
pub(super) fn translator(
    job: &Job,
    attempt: &Attempt,
    upstream: &Upstream,
    context: Option<&Context>,
) -> Option<Translator> {
    let largest = job.snapshot.settings.max_event_bytes;
    match context {
        Some(context) => {
            let mut translator = adapter::translator(upstream.protocol, context, job.gate.clock.now(), largest)?;
            if upstream.supports_cancel {
                translator.leave_early();
            }
            Some(translator)
        }
        None if upstream.carriage == Carriage::BedrockInvoke => Some(adapter::invoke_translator(largest)),
        None if job.snapshot.places[attempt.endpoint.place].card.foreign => {
            Some(adapter::mending_translator(signer(attempt), largest))
        }
        None => None,
    }
}

/// The headers of a translated call; nothing of the client's goes along.
pub(crate) fn headers(protocol: Protocol, stream: bool) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(4);
    headers.insert(CONTENT_TYPE, JSON);
    let events = match protocol {
        Protocol::Converse => "application/vnd.amazon.eventstream",
        _ => "text/event-stream",
    };
    headers.insert(ACCEPT, if stream { HeaderValue::from_static(events) } else { JSON });
    headers
}

/// What keeps the requests of one conversation together at a provider that caches by itself: the same for all of them
/// and for nobody else's.
fn cache_key(tenant: &str, session: Option<&str>, request: &Request) -> String {
    let user = request.metadata.as_ref().and_then(|metadata| metadata.user_id.as_deref());
    let conversation = match session.or(user) {
        Some(named) => named.to_owned(),
        None => KeyHash::of(format!("{}{}", texts(request.system.as_ref()), first_words(request)).as_bytes()).to_hex(),
    };
    KeyHash::of([tenant.as_bytes(), &[0], conversation.as_bytes()].concat().as_slice()).to_hex()[..32].to_owned()
}

fn first_words(request: &Request) -> String {
    request.messages.first().map(|message| texts(Some(&message.content))).unwrap_or_default()
}

fn texts(content: Option<&Content>) -> String {
    match content {
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Blocks(blocks)) => blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text(text) => Some(text.text.as_str()),
                _ => None,
            })
            .collect(),
        None => String::new(),
    }
}

fn short_hash(prefix: &str, parts: &[&str], characters: usize) -> String {
    let hash = KeyHash::of(parts.join("\0").as_bytes()).to_hex();
    format!("{prefix}{}", &hash[..characters])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p70_the_key_of_a_cache_is_stable_and_equals_the_published_one() {
        let request = |extra: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{extra}}}"#);
            Request::parse(body.as_bytes()).unwrap()
        };
        let named = request(r#","metadata":{"user_id":"u-77"}"#);
        assert_eq!(cache_key("t-demo", None, &named), "43f74794ff7f9c9a157ceba89e41f02a");
        assert_ne!(cache_key("t-demo", Some("s"), &named), cache_key("t-demo", None, &named));
        assert_eq!(cache_key("t", None, &request("")), cache_key("t", None, &request(r#","max_tokens":9"#)));
    }
}
