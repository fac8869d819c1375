//! Server tools: the model calls, the gateway runs. Between the envelope of a request and its attempts stands a loop that
//! makes one ordinary call per turn, with a record and a reservation of its own, and shows all of them as one answer.
//!
//! `roster` says which tools there are, `conduct` is the loop, `calls` runs the calls of a turn, `run` is what the tools do,
//! `inner` how they ask other models, `stop` when it ends, `sink` what the client sees, `tell` what is said of it all,
//! `replay` what the client sends back.

mod advisor;
mod body;
mod calls;
mod conduct;
mod fetch;
mod files;
mod find;
mod fusion;
mod image;
mod inner;
mod mcp;
mod memory;
mod native;
mod reader;
mod reopen;
mod replay;
mod roster;
mod route;
mod run;
mod sandbox;
mod search;
mod shares;
mod sink;
mod stop;
mod subagent;
mod tell;
mod turn;
mod usage;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value};
use tidegate_core::WorkspaceId;
use tidegate_providers::Protocol;
use tidegate_routing::{Endpoint, Parameter, Searcher, Searchers};
use tidegate_wire::envelope::{Brand, Envelope};
use tokio::sync::mpsc;

pub use body::LoopBody;
pub(crate) use mcp::Lists;
pub(crate) use memory::Results;
pub use roster::{SERVER_TOOLS, one_spelling};
pub(crate) use sandbox::Containers;
pub use sandbox::look as look_at_sandbox;
pub(crate) use search::{Before, Search};
pub(crate) use shares::Shares;
pub(crate) use turn::{Assembly, Turn};

use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::plugins::Prepared;
use crate::presets::Applied;
use crate::relay::{Body, Head, Inner, Reply, Wish, header_session, said};
use crate::snapshot::{Names, Settings};
use crate::sticky::Conversation;
use crate::{Gateway, Snapshot, request};
use conduct::{Broken, Conductor};
use native::Left;
use replay::{Foreign, Memory as _};
use roster::Roster;
use search::Recall;
use sink::Sink;
use stop::Limits;

/// Frames that wait for a client that reads slowly.
const WAITING: usize = 32;

/// Whether a request has tools that the gateway runs.
pub(crate) fn is_for(envelope: &Envelope<'_>, snapshot: &Snapshot) -> bool {
    !envelope.server_tools.is_empty() || emulates(envelope, snapshot) || calls_servers(envelope, snapshot)
}

/// Whether servers of tools are named as Anthropic's own interface does where nobody who could serve calls them.
fn calls_servers(envelope: &Envelope<'_>, snapshot: &Snapshot) -> bool {
    let has_them = |endpoint: &Arc<Endpoint>| endpoint.parameters.contains(Parameter::McpServers);
    envelope.asked.mcp_servers && is_without(envelope, snapshot, has_them)
}

/// Puts tools of ours in the place of such servers.
fn take_servers(request: &mut Map<String, Value>, envelope: &Envelope<'_>, snapshot: &Snapshot) -> Result<(), Failure> {
    if !calls_servers(envelope, snapshot) {
        return Ok(());
    }
    let Some(servers) = request.remove("mcp_servers") else { return Ok(()) };
    let added = mcp::of_request(&servers, &snapshot.settings.brand)?;
    request::tools(request).ok_or_else(Failure::internal)?.extend(added);
    Ok(())
}

/// Whether somebody who could serve a model searches the web for itself, and can keep to the domains of the plugin.
pub(crate) fn searches_natively(name: &str, plugin: &Map<String, Value>, snapshot: &Snapshot) -> bool {
    let able = native::able_to(plugin);
    let model = snapshot.catalogue.find(name).ok().map(|named| named.model);
    model.is_some_and(|model| model.endpoints.iter().any(|endpoint| able.contains(endpoint.searcher)))
}

/// Whether there is a model that searches for itself as a plugin wants it, and that everybody may call.
pub(crate) fn anybody_searches(plugin: &Map<String, Value>, snapshot: &Snapshot) -> bool {
    let (able, models) = (native::able_to(plugin), snapshot.catalogue.models());
    let mut endpoints = models.iter().flat_map(|model| &model.endpoints);
    endpoints.any(|endpoint| endpoint.shared && able.contains(endpoint.searcher))
}

/// Whether a vendor's own search or fetch is run here, at least for some of those who could serve.
fn emulates(envelope: &Envelope<'_>, snapshot: &Snapshot) -> bool {
    if !envelope.asked.vendor_web {
        return false;
    }
    let models = envelope.names().filter_map(|name| snapshot.catalogue.find(name).ok());
    let all: Searchers = models.flat_map(|named| &named.model.endpoints).map(|endpoint| endpoint.searcher).collect();
    if !all.contains(Searcher::Anthropic) {
        return true;
    }
    let others = all.iter().any(|searcher| searcher != Searcher::Anthropic);
    // A turn has a form for those who search and one for the others, but none for those who fetch: where somebody has
    // all of it, that is who serves. Without an engine there is nothing to run a search with.
    others && !envelope.asked.vendor_fetch && snapshot.settings.tools.search.default.is_some()
}

/// The body of a request without server tools, with earlier calls and results that only we can read told as anybody can.
pub(crate) async fn opened(gate: &Gateway, key: &KeyEntry, settings: &Settings, body: &Bytes) -> Option<Bytes> {
    let mut request: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let has_tools = request.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty());
    let Some(Value::Array(messages)) = request.get_mut("messages") else { return None };
    let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
    let terms = reopen::Terms { brand, has: &|_| false, has_tools };
    recall(gate, key, reopen::sought(messages, &terms)).await;
    let results = gate.results.of(&key.workspace, gate.clock.now());
    let memory = Recall { results, vault: &gate.vault, workspace: &key.workspace };
    *messages = reopen::retold(std::mem::take(messages), &memory, &terms);
    Some(Value::Object(request).to_string().into())
}

/// What the model read of a call that was just made, by the id that the client knows it by, where clients are not shown it.
pub(crate) fn result_of(gate: &Gateway, workspace: &WorkspaceId, id: &str) -> Option<String> {
    gate.results.of(workspace, gate.clock.now()).result(id)
}

/// Asks the store for those of these results that are not in memory.
async fn recall(gate: &Gateway, key: &KeyEntry, mut sought: Vec<String>) {
    let now = gate.clock.now();
    let known = gate.results.of(&key.workspace, now);
    sought.retain(|id| known.result(id).is_none());
    if !sought.is_empty() {
        gate.results.recall(gate.keys.store(), &gate.vault, key, &sought, now).await;
    }
}

/// Tools that are deferred need somebody who finds them: a search among the tools, a vendor who does that himself, or the
/// caller, who adds them between turns.
pub(crate) fn check_deferred(envelope: &Envelope<'_>, snapshot: &Snapshot, body: &[u8]) -> Result<(), Failure> {
    let settings = &snapshot.settings;
    let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
    let finds = |wire: &str| find::is_vendors(wire) || brand.tool(wire) == Some(find::NAME);
    if envelope.server_tools.iter().any(|wire| finds(wire)) || !is_foreign(envelope, snapshot) {
        return Ok(());
    }
    if serde_json::from_slice(body).is_ok_and(|request| find::are_added(&request)) {
        return Ok(());
    }
    let model = envelope.names().next().unwrap_or_default();
    let problem = format!("Invalid request: defer_loading needs {}:{} on {model}", settings.brand, find::NAME);
    Err(Failure::invalid(problem))
}

/// Looks at what is set for the search before the first turn, by the entry at this place, as far as no engine is needed
/// for that.
pub(crate) fn check_search(members: &Map<String, Value>, index: usize) -> Result<(), Failure> {
    Search::check(&reader::Reader { members, path: format!("plugins[{index}]") })
}

/// The same for the tool that fetches pages.
pub(crate) fn check_fetch(members: &Map<String, Value>) -> Result<(), Failure> {
    fetch::Fetch::of_vendors(&reader::Reader { members, path: "plugins[0]".to_owned() }).map(drop)
}

/// Whether nobody who could serve speaks the protocol that has a vendor's own tools.
fn is_foreign(envelope: &Envelope<'_>, snapshot: &Snapshot) -> bool {
    let is_native = |index: usize| snapshot.upstreams.get(index).is_none_or(|one| one.protocol == Protocol::Messages);
    is_without(envelope, snapshot, |endpoint| is_native(endpoint.provider_index))
}

/// Whether nobody who could serve is so.
fn is_without(envelope: &Envelope<'_>, snapshot: &Snapshot, is_so: impl Fn(&Arc<Endpoint>) -> bool) -> bool {
    let mut models = envelope.names().filter_map(|name| snapshot.catalogue.find(name).ok()).peekable();
    // Nobody knows who `default` and the like are yet.
    models.peek().is_some() && models.all(|named| !named.model.endpoints.iter().any(&is_so))
}

/// A first turn, for those who only count or explain.
pub(crate) struct FirstTurn {
    /// As the model would get it.
    pub body: Bytes,
    /// Of one with a search: who may serve it.
    pub searchers: Option<Searchers>,
    pub only_searches: bool,
}

/// The first turn of a request; `None` when that is the request as it is. Servers of tools are not asked what they offer.
pub(crate) fn as_turn(
    body: &Bytes,
    envelope: &Envelope<'_>,
    snapshot: &Snapshot,
) -> Result<Option<FirstTurn>, Failure> {
    if !is_for(envelope, snapshot) {
        return Ok(None);
    }
    let (request, roster) = begun(body, envelope, snapshot)?;
    first_turn(request, &roster, envelope, snapshot).map(Some)
}

/// The same with the tools that servers offer to a caller, asked for as a call would.
pub(crate) async fn as_turn_of(
    gate: &Arc<Gateway>,
    snapshot: &Arc<Snapshot>,
    key: &Arc<KeyEntry>,
    body: &Bytes,
    envelope: &Envelope<'_>,
) -> Result<Option<FirstTurn>, Failure> {
    if !is_for(envelope, snapshot) {
        return Ok(None);
    }
    let (request, mut roster) = begun(body, envelope, snapshot)?;
    roster.join(gate, snapshot, key).await?;
    first_turn(request, &roster, envelope, snapshot).map(Some)
}

fn begun(body: &Bytes, envelope: &Envelope<'_>, snapshot: &Snapshot) -> Result<(Map<String, Value>, Roster), Failure> {
    let mut request = request::read(body)?;
    take_servers(&mut request, envelope, snapshot)?;
    let roster = roster(&request, envelope, snapshot)?;
    Ok((request, roster))
}

fn first_turn(
    mut request: Map<String, Value>,
    roster: &Roster,
    envelope: &Envelope<'_>,
    snapshot: &Snapshot,
) -> Result<FirstTurn, Failure> {
    let left = Left::of(roster, snapshot, envelope.names())?;
    let found = find::callable(request.get("messages").and_then(Value::as_array).map_or(&[], Vec::as_slice));
    request.insert("tools".into(), Value::Array(roster.upstream_with(&found)));
    Ok(FirstTurn {
        body: Value::Object(request).to_string().into(),
        searchers: left.as_ref().and_then(|left| left.may_serve),
        only_searches: left.is_some_and(|left| left.is_alone && left.searchers.contains(Searcher::Itself)),
    })
}

/// The tools of a request.
fn roster(request: &Map<String, Value>, envelope: &Envelope<'_>, snapshot: &Snapshot) -> Result<Roster, Failure> {
    if envelope.asked.thread {
        return Err(Failure::thread_with_tools());
    }
    let tools = request.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let roster = Roster::of(tools, &snapshot.settings, emulates(envelope, snapshot))?;
    roster.check(snapshot)?;
    let choice = request.get("tool_choice").and_then(|choice| choice.get("type")?.as_str());
    if choice.is_some_and(|choice| choice != "auto")
        && let Some(finds) = roster.finds()
    {
        return Err(Failure::invalid(format!("Invalid request: tool_choice conflicts with {finds}")));
    }
    Ok(roster)
}

/// Serves a request with server tools.
pub(crate) async fn serve(
    gate: &Arc<Gateway>,
    snapshot: &Arc<Snapshot>,
    key: &Arc<KeyEntry>,
    Head { headers, query, api, cache_key, .. }: Head<'_>,
    body: &Bytes,
    envelope: &Envelope<'_>,
    (applied, prepared, wish): (Option<Applied>, Option<Box<Prepared>>, Option<Wish>),
) -> Result<Reply, Failure> {
    let settings = &snapshot.settings;
    let mut request = request::read(body)?;
    take_servers(&mut request, envelope, snapshot)?;
    let mut roster = roster(&request, envelope, snapshot)?;
    let session = envelope.session_id.as_deref().or(header_session(headers, &snapshot.names)?);
    roster.belongs_to(session);
    roster.before = prepared.as_ref().and_then(|prepared| prepared.searched.clone());
    // Nobody knows yet whom they will ask.
    let asks_others = roster.tools.iter().any(|tool| tool.kind.asks_others());
    let wish = wish.filter(|_| !(asks_others && gate.enforces_zdr(key)));
    let limits = Limits::of(envelope.stop_when, envelope.max_tool_calls, settings.tools.max_steps);
    // From here on others are asked, which takes a place.
    let places = match prepared.as_ref().and_then(|prepared| prepared.purse.as_ref()) {
        Some(purse) => purse.places().clone(),
        None => Arc::new(gate.enter(key, settings)?),
    };
    roster.join(gate, snapshot, key).await?;
    let Some(Value::Array(messages)) = request.remove("messages") else { return Err(Failure::internal()) };
    let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
    let now = gate.clock.now();
    let names: HashSet<&str> = roster.tools.iter().flat_map(|tool| [tool.kind.name(), tool.block.as_str()]).collect();
    let has = |name: &str| names.contains(name);
    let terms = reopen::Terms { brand, has: &has, has_tools: true };
    let mut sought = replay::sought(&messages, &roster, brand, &gate.results.of(&key.workspace, now));
    sought.extend(if envelope.traits.own_calls { reopen::sought(&messages, &terms) } else { Vec::new() });
    recall(gate, key, sought).await;
    let results = gate.results.of(&key.workspace, now);
    let memory = Recall { results, vault: &gate.vault, workspace: &key.workspace };
    let found = if roster.has_deferred() { find::callable(&messages) } else { Vec::new() };
    let messages = match envelope.traits.sealed_results || envelope.traits.own_calls {
        true => reopen::retold(messages, &memory, &terms),
        false => messages,
    };
    // What others sealed stays until it is known who serves.
    let foreign = if roster.native().is_some() { Foreign::Kept } else { Foreign::Rebuilt };
    let messages = replay::rebuilt(messages, &roster, brand, &memory, foreign);
    let chosen = prepared.as_ref().and_then(|prepared| prepared.told.requested.first().cloned());
    let requested = applied.as_ref().and_then(|applied| applied.requested.first().cloned()).or(chosen);
    let requested = requested.or_else(|| envelope.model.as_deref().map(str::to_owned));
    let conversation = conversation(key, session.or(cache_key), envelope);
    let inner = Inner::new(api, places, conversation, (applied, prepared), Shares::of(settings.tools.parallelism));
    let inner = inner.keyed(cache_key);
    let (stream, member) = (envelope.stream, snapshot.names.metadata_member.clone());
    let head = (headers.clone(), query.to_owned());
    let mut conductor =
        Conductor::new(gate.clone(), snapshot.clone(), key.clone(), head, inner, request, messages, roster, limits);
    conductor.requested = requested;
    conductor.find(found);
    let first = conductor.begin().await?;
    let mut reply_headers = first.headers.clone();
    let source = conductor.inner.root().copied();
    let kept = wish.zip(source).inspect(|(wish, _)| wish.missed(&mut reply_headers, &snapshot.names));
    if !stream {
        let mut sink = Sink::new(None);
        return match conductor.conduct(first, &mut sink).await {
            Ok(mut answer) => {
                answer["content"] = Value::Array(sink.content);
                let is_whole = is_whole(&answer, conductor.stopped_by);
                let body = Bytes::from(ordered(answer, &member).to_string());
                if let Some((wish, source)) = kept.filter(|_| is_whole) {
                    wish.keep(gate, source, &body, Some(&member), &conductor.warnings);
                }
                // The head has not left yet: it says what any turn lost.
                if let Some(value) = said(&conductor.warnings) {
                    reply_headers.insert(snapshot.names.warnings_header.clone(), value);
                }
                Ok(Reply { status: http::StatusCode::OK, headers: reply_headers, body: Body::full(body) })
            }
            Err(Broken::Failure(failure)) => Err(failure),
            Err(Broken::Gone) => Err(Failure::internal()),
        };
    }
    let (sender, frames) = mpsc::channel(WAITING);
    let warnings = warned(&reply_headers, &snapshot.names);
    let recording = kept.map(|(wish, source)| wish.recording(gate, source, &warnings));
    let work = async move {
        let mut sink = Sink::new(Some(sender)).recorded(recording);
        let conducted = conductor.conduct(first, &mut sink).await;
        conductor.inner.over();
        match conducted {
            Ok(answer) => {
                if conductor.end(&answer, &sink).await.is_ok() && is_whole(&answer, conductor.stopped_by) {
                    sink.keep(conductor.gate.clock.now());
                }
            }
            Err(Broken::Failure(failure)) => conductor.fail(&failure, &sink).await,
            Err(Broken::Gone) => {}
        }
    };
    let body = Body::Loop(Box::new(LoopBody::new(frames, work)));
    Ok(Reply { status: http::StatusCode::OK, headers: reply_headers, body })
}

/// Whether an answer came to its end; one that ran out of time or money is not what another request is to get.
fn is_whole(answer: &Value, stopped_by: Option<&str>) -> bool {
    let is_paused = answer.get("stop_reason").and_then(Value::as_str) == Some("pause_turn");
    !is_paused && !matches!(stopped_by, Some("budget" | "deadline"))
}

/// What the head of an answer says was left out.
fn warned(headers: &HeaderMap, names: &Names) -> Vec<String> {
    let said = headers.get(&names.warnings_header).and_then(|said| said.to_str().ok());
    said.map(|said| said.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

/// All turns of a request are one conversation.
fn conversation(key: &KeyEntry, session: Option<&str>, envelope: &Envelope<'_>) -> Conversation {
    let name = envelope.names().next().unwrap_or_default();
    Conversation::of(&key.workspace, name, session, &envelope.opening)
}

/// The members of a message in their usual order: what it is, what it says, how it ended.
fn ordered(mut answer: Value, metadata: &str) -> Value {
    let Some(members) = answer.as_object_mut() else { return answer };
    let last = ["usage", metadata];
    for name in last {
        if let Some(value) = members.shift_remove(name) {
            members.insert(name.to_owned(), value);
        }
    }
    answer
}
