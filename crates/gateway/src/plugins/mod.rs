//! What is done to a request before it goes out, and to an answer before it leaves, because the caller, a model's name or
//! what the request holds asks for it. A request without any of these never comes here.
//!
//! `options` reads the entries, `route` and `choose` pick a model, `documents` makes text of files, `heal` repairs an
//! answer; the rest puts them together.

mod choose;
pub mod defaults;
mod documents;
mod fusion;
mod heal;
mod moderate;
mod options;
mod pareto;
mod route;
pub mod stored;
mod web;

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value, json};
use tidegate_core::Money;
use tidegate_observe::metrics::Plugin;
use tidegate_routing::Compression;
use tidegate_wire::envelope::{Brand, Envelope, Purpose};

pub(crate) use documents::Texts;
pub(crate) use fusion::PRESET;
pub use fusion::PRESETS as FUSION_PRESETS;
pub use options::PdfEngine;
pub(crate) use stored::Standing;

use crate::agent::Before;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::{self, Asker, Body, Purse, Reply, Wish, asker};
use crate::snapshot::Settings;
use crate::sticky::Conversation;
use crate::{Gateway, Snapshot, request};
use options::Plugins;
use route::Router;

/// What the routing metadata say of it, and what it costs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The models as the caller wrote them, where they were changed.
    pub requested: Vec<String>,
    /// How the model was found.
    pub strategy: Option<&'static str>,
    /// The conversation that stays with the model that answers, where a router chose it.
    pub conversation: Option<Conversation>,
    /// Entries of `pipeline`, as JSON.
    pub entries: Vec<String>,
    /// Plugins for which the request or its workspace was not heard.
    pub unheard: Vec<String>,
    /// What was paid beside the call itself.
    pub fee: Money,
    /// Searches that were made before it.
    pub searches: u64,
}

/// A request as it goes on.
#[derive(Default)]
pub(crate) struct Prepared {
    /// In place of the one that came, where it was changed.
    pub body: Option<Bytes>,
    pub told: Told,
    /// How the answer is repaired, where it is.
    pub heals: Option<Healing>,
    /// What had to be left out.
    pub warnings: Vec<String>,
    /// What was found before the first turn.
    pub searched: Option<Before>,
    /// Whether the search that a model's name asks for was seen to.
    pub is_online: bool,
    /// For whom its conversation is made shorter where it is too long.
    pub compression: Compression,
    /// What it looks for among the answers that are kept, and what its own is kept by: the request as it came.
    pub wish: Option<Wish>,
    /// Whether nobody could judge it: somebody may the next time.
    pub is_unjudged: bool,
    /// What it pays from, where it had to wait for something; its places in the limits of requests in flight are there.
    pub purse: Option<Arc<Purse>>,
}

/// How an answer is repaired.
pub(crate) struct Healing {
    /// What it must be.
    schema: Value,
    /// Whether the request had no say in it.
    is_unheard: bool,
}

fn brand(settings: &Settings) -> Brand<'_> {
    Brand { name: &settings.brand, aliases: &settings.brand_aliases }
}

/// Whether there may be anything to do for a request of a workspace that sets nothing.
pub(crate) fn is_for(envelope: &Envelope<'_>, settings: &Settings) -> bool {
    let name = envelope.model.as_deref().unwrap_or_default();
    envelope.plugins.is_some()
        || !settings.plugin_defaults.is_empty()
        || envelope.media.files > 0
        || web::is_online(name)
        || Router::of(name, brand(settings)).is_some()
}

/// What counts of what the request and those above it say, and the plugins for which only these were heard.
fn entries(envelope: &Envelope<'_>, standing: &Standing<'_>) -> Result<(Plugins, Vec<String>), Failure> {
    let given = envelope.plugins.and_then(|raw| serde_json::from_str::<Vec<Value>>(raw.get()).ok());
    let (entries, mut unheard) = defaults::merged(given.unwrap_or_default(), &standing.defaults);
    unheard.extend(standing.unheard.iter().cloned());
    Ok((Plugins::of(&entries)?, unheard))
}

/// For whom the conversation of a request is made shorter.
pub(crate) fn compression(envelope: &Envelope<'_>, standing: &Standing<'_>) -> Compression {
    entries(envelope, standing).map_or(Compression::Small, |(plugins, _)| plugins.compression)
}

/// Whether documents of a request are made text of when nobody can read them.
pub(crate) fn may_parse(envelope: &Envelope<'_>, standing: &Standing<'_>) -> bool {
    entries(envelope, standing).is_ok_and(|(plugins, _)| plugins.parser.may_parse())
}

/// Does what must be done before a request goes out.
pub(crate) async fn prepare(
    gate: &Arc<Gateway>,
    snapshot: &Arc<Snapshot>,
    (key, headers): (&Arc<KeyEntry>, &HeaderMap),
    (body, envelope): (&Bytes, &Envelope<'_>),
    made: &mut Prepared,
) -> Result<(), Failure> {
    let standing = gate.plugins.standing(&key.workspace, &snapshot.settings);
    let (plugins, unheard) = entries(envelope, &standing)?;
    made.told.unheard = unheard;
    made.compression = plugins.compression;
    let model = envelope.model.as_deref().unwrap_or_default();
    let panel = fusion::wanted(&plugins, model, &snapshot.settings)?;
    let asker = || asker(headers, &snapshot.names, envelope);
    let stage = Stage { gate, snapshot, key, plugins: &plugins, panel: panel.as_ref(), model, asker: &asker };
    if plugins.moderation {
        let purse = stage.purse(made)?;
        let judged = moderate::moderate((gate, &purse), &snapshot.settings, body, model, made).await;
        stage.failed("moderation", judged)?;
        stage.ran("moderation");
    }
    let answers = panel.as_ref().and_then(|panel| panel.answers.as_deref());
    match route::routed(gate, snapshot, key, (body, envelope), (&plugins, answers), true, &mut made.told)? {
        Some(chosen) => {
            stage.ran("router");
            let envelope = relay::read(&chosen, &snapshot.settings, Purpose::Generate)?;
            stage.prepare(&chosen, &envelope, made).await?;
            made.body = made.body.take().or_else(|| Some(chosen.clone()));
        }
        None => stage.prepare(body, envelope, made).await?,
    }
    let Told { entries, unheard, .. } = &mut made.told;
    *entries = std::mem::take(entries).into_iter().map(|entry| defaults::said(entry, unheard)).collect();
    Ok(())
}

/// Whether the name of a model stands for a choice.
pub(crate) fn is_router(name: &str, settings: &Settings) -> bool {
    Router::of(name, brand(settings)).is_some()
}

/// The body with the models that would be chosen now; nothing where the name of its model stands for no choice. Nothing is
/// remembered of it.
pub(crate) fn resolved(
    gate: &Gateway,
    snapshot: &Snapshot,
    key: &KeyEntry,
    (body, envelope): (&Bytes, &Envelope<'_>),
) -> Result<Option<Bytes>, Failure> {
    let model = envelope.model.as_deref().unwrap_or_default();
    if !is_router(model, &snapshot.settings) {
        return Ok(None);
    }
    let (plugins, _) = entries(envelope, &gate.plugins.standing(&key.workspace, &snapshot.settings))?;
    let panel = fusion::wanted(&plugins, model, &snapshot.settings)?;
    let answers = panel.as_ref().and_then(|panel| panel.answers.as_deref());
    let mut told = Told::default();
    let chosen = route::routed(gate, snapshot, key, (body, envelope), (&plugins, answers), false, &mut told)?;
    let (Some(chosen), Some(panel)) = (&chosen, panel) else { return Ok(chosen) };
    let mut request = request::read(chosen)?;
    panel.add(&mut request, &snapshot.settings, &mut told);
    Ok(Some(Value::Object(request).to_string().into()))
}

/// What is done once it is known which models may answer.
struct Stage<'a> {
    gate: &'a Arc<Gateway>,
    snapshot: &'a Arc<Snapshot>,
    key: &'a Arc<KeyEntry>,
    plugins: &'a Plugins,
    panel: Option<&'a fusion::Panel>,
    /// As the caller wrote it.
    model: &'a str,
    asker: &'a (dyn Fn() -> Asker + Sync),
}

impl Stage<'_> {
    fn ran(&self, plugin: &'static str) {
        self.gate.metrics.plugin_runs.get_or_create(&Plugin { plugin, outcome: "ok" }).inc();
    }

    /// Counts what a plugin that may fail or refuse came to; what it changed is counted by [`Stage::ran`].
    fn failed<T>(&self, plugin: &'static str, made: Result<T, Failure>) -> Result<T, Failure> {
        made.inspect_err(|failure| {
            let outcome = if failure.status < 500 { "refused" } else { "error" };
            self.gate.metrics.plugin_runs.get_or_create(&Plugin { plugin, outcome }).inc();
        })
    }

    /// Opened by the first who has to wait for something.
    fn purse(&self, made: &mut Prepared) -> Result<Arc<Purse>, Failure> {
        if made.purse.is_none() {
            made.purse = Some(Arc::new(Purse::open(self.gate, self.snapshot, self.key, (self.model, (self.asker)()))?));
        }
        made.purse.clone().ok_or_else(Failure::internal)
    }

    async fn prepare(&self, body: &Bytes, envelope: &Envelope<'_>, made: &mut Prepared) -> Result<(), Failure> {
        let Self { gate, snapshot, key, plugins, panel, .. } = *self;
        let name = envelope.model.as_deref().unwrap_or_default();
        let searches = web::wanted(plugins, name, snapshot)?;
        let panel = panel.filter(|panel| panel.adds_tool());
        let is_looped =
            plugins.fetch.is_some() || panel.is_some() || matches!(searches, Some(web::Wanted::Here { .. }));
        if envelope.asked.thread && is_looped {
            return Err(Failure::thread_with_tools());
        }
        let scene = documents::Scene { gate, snapshot, key, options: &plugins.parser, stage: self };
        made.body = self.failed("file-parser", Box::pin(scene.parsed(body, envelope, made)).await)?;
        if made.body.is_some() {
            self.ran("file-parser");
        }
        let heals = plugins.healing && !envelope.stream;
        if plugins.fetch.is_none() && panel.is_none() && searches.is_none() && !heals {
            return Ok(());
        }
        let body = made.body.as_ref().unwrap_or(body);
        let mut request = request::read(body)?;
        let is_unheard = made.told.unheard.iter().any(|plugin| plugin == "response-healing");
        made.heals = schema(&request).filter(|_| heals).map(|schema| Healing { schema, is_unheard });
        // A plugin that was asked for searches all the same; the name of a model wants a search, and that there is.
        let is_native = matches!(searches, Some(web::Wanted::Native(_)));
        let is_vague = searches.is_some() && (plugins.web.is_none() || is_native);
        if is_vague && web::has_search(&request, &snapshot.settings, is_native) {
            made.is_online = true;
        } else if let Some(wanted) = searches {
            let purse = self.purse(made)?;
            let searched = wanted.run(gate, &purse, &mut request, made).await;
            if self.failed("web", searched)? {
                self.ran("web");
                made.body = Some(Value::Object(request.clone()).to_string().into());
            }
        }
        if let Some(parameters) = &plugins.fetch
            && add_fetch(&mut request, parameters, &snapshot.settings, &mut made.told)
        {
            self.ran("web-fetch");
            made.body = Some(Value::Object(request.clone()).to_string().into());
        }
        if let Some(panel) = panel
            && panel.add(&mut request, &snapshot.settings, &mut made.told)
        {
            self.ran("fusion");
            made.body = Some(Value::Object(request).to_string().into());
        }
        Ok(())
    }
}

/// How an answer to a request is repaired, for one that was made earlier.
pub(crate) fn healing(
    gate: &Gateway,
    snapshot: &Snapshot,
    key: &KeyEntry,
    (body, envelope): (&Bytes, &Envelope<'_>),
) -> Result<Option<Healing>, Failure> {
    let (plugins, unheard) = entries(envelope, &gate.plugins.standing(&key.workspace, &snapshot.settings))?;
    if !plugins.healing || envelope.stream {
        return Ok(None);
    }
    let is_unheard = unheard.iter().any(|plugin| plugin == "response-healing");
    Ok(schema(&request::read(body)?).map(|schema| Healing { schema, is_unheard }))
}

/// The schema that an answer is to follow.
fn schema(request: &Map<String, Value>) -> Option<Value> {
    let format =
        request.get("output_config").and_then(|config| config.get("format")).or_else(|| request.get("output_format"));
    let format = format.filter(|format| format.get("type").and_then(Value::as_str) == Some("json_schema"));
    format.and_then(|format| format.get("schema")).cloned()
}

/// Gives the model the tool that fetches pages, unless it has one.
fn add_fetch(
    request: &mut Map<String, Value>,
    parameters: &Map<String, Value>,
    settings: &Settings,
    told: &mut Told,
) -> bool {
    let kind = format!("{}:web_fetch", settings.brand);
    let Some(tools) = request::tools(request) else { return false };
    let is_fetch = |tool: &Value| {
        let tool = tool.get("type").and_then(Value::as_str).unwrap_or_default();
        brand(settings).tool(tool) == Some("web_fetch") || tool.starts_with("web_fetch_")
    };
    if tools.iter().any(is_fetch) {
        return false;
    }
    tools.push(json!({"type": kind, "parameters": parameters}));
    told.entries.push(json!({"type": "plugin", "name": "web-fetch", "data": {"injected": true}}).to_string());
    true
}

/// Repairs the last text of an answer that should be JSON and is not quite.
pub(crate) fn healed(mut reply: Reply, healing: Option<&Healing>, metadata: &str) -> Reply {
    let Some(healing) = healing else { return reply };
    let Body::Full(Some(bytes)) = &reply.body else { return reply };
    let Ok(mut answer) = serde_json::from_slice::<Value>(bytes) else { return reply };
    let ended = answer.get("stop_reason").and_then(Value::as_str);
    if !matches!(ended, Some("end_turn" | "stop_sequence")) {
        return reply;
    }
    let Some(Value::Array(blocks)) = answer.get_mut("content") else { return reply };
    let is_text = |block: &&mut Value| block.get("type").and_then(Value::as_str) == Some("text");
    let Some(block) = blocks.iter_mut().rev().find(is_text) else { return reply };
    let said = block.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(made) = heal::healed(&said, &healing.schema) else { return reply };
    let mut entry = json!({
        "type": "response_healing",
        "name": "response-healing",
        "data": {
            "mode": "json_schema",
            "improved": made.text != said,
            "original_length": said.chars().count(),
            "healed_length": made.text.chars().count(),
            "schema_valid": made.is_valid,
        },
    });
    if healing.is_unheard {
        entry["data"]["overrides_ignored"] = json!(true);
    }
    block["text"] = Value::String(made.text);
    if let Some(metadata) = answer.get_mut(metadata) {
        match metadata.get_mut("pipeline") {
            Some(Value::Array(entries)) => entries.push(entry),
            _ => metadata["pipeline"] = json!([entry]),
        }
    }
    reply.body = Body::full(answer.to_string());
    reply
}
