//! The server tools of a request: which there are, what the model sees of them, and what their calls are called.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tidegate_tools::datetime;
use tidegate_tools::find::Entry;
use tidegate_wire::envelope::Brand;
use tokio::task::JoinSet;

use super::advisor::{self, Advisor};
use super::fetch::{self, Fetch};
use super::files;
use super::find::{self, Find};
use super::fusion::{self, Fusion};
use super::image::{self, Image};
use super::mcp::{self, Remote, Server};
use super::native::Native;
use super::reader::Reader;
use super::sandbox::{self, Sandbox};
use super::search::{self, Before, Search};
use super::shares::Shares;
use super::subagent::{self, Subagent};
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::snapshot::Settings;
use crate::{Gateway, Snapshot};

/// Tools of the public interface that run on other surfaces only.
const ELSEWHERE: [&str; 3] = ["apply_patch", "local_shell", "code_interpreter"];
/// The tool that a client runs commands with itself.
const CLIENTS_BASH: &str = "bash_20250124";

const DATETIME: &str = "datetime";
const SEARCH_MODELS: &str = "experimental__search_models";
/// All tools that the gateway runs, by their names behind the brand.
pub const SERVER_TOOLS: [&str; 13] = [
    advisor::NAME,
    sandbox::BASH,
    DATETIME,
    SEARCH_MODELS,
    files::NAME,
    fusion::NAME,
    image::NAME,
    mcp::NAME,
    sandbox::SHELL,
    subagent::NAME,
    find::NAME,
    fetch::NAME,
    search::NAME,
];

/// What a tool does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Datetime { zone: String },
    SearchModels { most: usize },
    WebSearch(Search),
    WebFetch(Fetch),
    ToolSearch(Find),
    Advisor(Advisor),
    Subagent(Subagent),
    Fusion(Fusion),
    Image(Image),
    Files,
    Sandbox(Sandbox),
    Remote(Remote),
}

/// A tool that the gateway runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tool {
    pub kind: Kind,
    /// Its type in the request.
    pub wire: String,
    /// As the model calls it.
    pub function: String,
    /// As its calls are called in the answer.
    pub block: String,
}

/// All of them, and the tools as the model gets to see them.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    pub tools: Vec<Tool>,
    pub upstream: Vec<Value>,
    /// Those that are shown once they have been found.
    deferred: Vec<Value>,
    /// Whether the client has tools of its own.
    pub has_others: bool,
    /// The type that stands for the client's own `bash`, where the request has it.
    pub clients_bash: Option<String>,
    /// Servers whose tools are not known yet, and the types that name them.
    servers: Vec<(Arc<Server>, String)>,
    /// What the deployment calls itself, and so its own engines.
    brand: String,
    /// A search that was made before the first turn.
    pub before: Option<Before>,
}

impl Roster {
    /// Of the `tools` of a request.
    ///
    /// `emulates`: a vendor's own search and fetch are run here, because nobody who could serve has them.
    pub fn of(given: &[Value], settings: &Settings, emulates: bool) -> Result<Self, Failure> {
        let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
        let mut roster = Self { brand: settings.brand.clone(), ..Self::default() };
        let mut names: HashSet<&str> = HashSet::new();
        let mut functions: HashSet<String> = HashSet::new();
        let wire_of = |entry: &'_ Value| entry.get("type").and_then(Value::as_str).unwrap_or("custom").to_owned();
        let finds = |wire: &str| find::is_vendors(wire) || brand.tool(wire) == Some(find::NAME);
        let has_search = given.iter().any(|entry| finds(&wire_of(entry)));
        for (place, entry) in given.iter().enumerate() {
            let wire = wire_of(entry);
            let vendors = vendors(&wire, emulates);
            let Some(name) = brand.tool(&wire).or(vendors) else {
                roster.has_others = true;
                let name = entry.get("name").and_then(Value::as_str);
                names.extend(name);
                if has_search && name.is_some() && entry.get("defer_loading") == Some(&Value::Bool(true)) {
                    roster.deferred.push(shown(entry));
                } else {
                    roster.upstream.push(entry.clone());
                }
                continue;
            };
            let none = Map::new();
            let members = match entry.get("parameters").filter(|_| vendors.is_none()) {
                None | Some(Value::Null) => &none,
                Some(Value::Object(parameters)) => parameters,
                Some(_) => return Err(wrong(place, "parameters", "must be an object")),
            };
            let reader = match vendors {
                Some(_) => Reader { members: entry.as_object().unwrap_or(&none), path: format!("tools[{place}]") },
                None => match entry.get(mcp::SERVER).and_then(Value::as_u64).filter(|_| name == mcp::NAME) {
                    Some(server) => Reader::of_server(members, server),
                    None => Reader::of(members, place),
                },
            };
            if settings.tools.disabled.iter().any(|disabled| disabled == one_spelling(name)) {
                return Err(Failure::invalid(format!("{wire} is not configured on this deployment")));
            }
            let is_deferred = entry.get("defer_loading") == Some(&Value::Bool(true));
            if name == find::NAME && is_deferred {
                return Err(Failure::invalid(format!("Invalid request: tools[{place}] cannot be deferred")));
            }
            if name == mcp::NAME {
                let server = Server::of(&reader, settings)?;
                if roster.servers.iter().any(|(known, _)| known.label == server.label) {
                    let problem = format!("'{}' is used more than once", server.label);
                    return Err(reader.wrong("server_label", &problem));
                }
                if roster.servers.len() == mcp::MOST_SERVERS {
                    let problem = format!("is one too many: at most {} servers are asked", mcp::MOST_SERVERS);
                    return Err(reader.wrong("server_label", &problem));
                }
                roster.servers.push((Arc::new(server), wire));
                continue;
            }
            if name == sandbox::BASH && sandbox::is_clients(&reader, &wire)? {
                if roster.clients_bash.is_some() {
                    return Err(wrong(place, "type", &format!("'{wire}' is used more than once")));
                }
                roster.has_others = true;
                names.insert(sandbox::BASH);
                let mut own = json!({"type": CLIENTS_BASH, "name": sandbox::BASH});
                if let Some(control) = entry.get("cache_control") {
                    own["cache_control"] = control.clone();
                }
                roster.upstream.push(own);
                roster.clients_bash = Some(wire);
                continue;
            }
            let kind = kind(name, &wire, &reader, vendors.is_some(), (settings, &roster.tools))?;
            let function = kind.function(&settings.brand);
            if !functions.insert(function.clone()) {
                return Err(wrong(place, "type", &format!("'{wire}' is used more than once")));
            }
            let mut shown = definition(&kind, &function, entry.get("cache_control"));
            if entry.get("strict") == Some(&Value::Bool(true)) {
                be_strict(&mut shown);
            }
            roster.upstream.push(shown);
            let block = kind.block(&settings.brand);
            roster.tools.push(Tool { kind, wire, function, block });
        }
        roster.index();
        let clash = roster.tools.iter().find(|tool| names.contains(&tool.function.as_str()));
        match clash {
            Some(tool) => Err(Failure::invalid(format!("tool name conflict: {}", tool.function))),
            None => Ok(roster),
        }
    }

    /// Looks whether the models that tools name are there.
    pub fn check(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        self.tools.iter().try_for_each(|tool| match &tool.kind {
            Kind::Image(image) => image.check(snapshot),
            Kind::Subagent(subagent) => subagent.check(snapshot),
            Kind::Fusion(fusion) => fusion.check(snapshot),
            _ => Ok(()),
        })
    }

    /// Has containers that nothing names be those of a session.
    pub fn belongs_to(&self, session: Option<&str>) {
        for tool in &self.tools {
            if let Kind::Sandbox(sandbox) = &tool.kind {
                sandbox.belongs_to(session);
            }
        }
    }

    /// Tells the search what there is to find.
    fn index(&mut self) {
        let entries = Arc::new(self.deferred.iter().filter_map(Entry::of).collect::<Vec<_>>());
        for tool in &mut self.tools {
            if let Kind::ToolSearch(find) = &mut tool.kind {
                find.entries = entries.clone();
            }
        }
    }

    /// Asks the servers what they offer, side by side, and takes that in.
    pub async fn join(
        &mut self,
        gate: &Arc<Gateway>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
    ) -> Result<(), Failure> {
        if self.servers.is_empty() {
            return Ok(());
        }
        let mut asking = JoinSet::new();
        for (place, (server, _)) in self.servers.iter().enumerate() {
            let (server, gate, snapshot, key) = (server.clone(), gate.clone(), snapshot.clone(), key.clone());
            asking.spawn(async move { (place, server.tools(&gate, &snapshot, &key).await) });
        }
        let mut offered: Vec<Vec<Remote>> = self.servers.iter().map(|_| Vec::new()).collect();
        while let Some(joined) = asking.join_next().await {
            let (place, tools) = joined.map_err(|_| Failure::internal())?;
            offered[place] = tools?;
        }
        let has_search = self.tools.iter().any(|tool| matches!(tool.kind, Kind::ToolSearch(_)));
        let wires: Vec<String> = self.servers.iter().map(|(_, wire)| wire.clone()).collect();
        let known = self.upstream.iter().chain(&self.deferred);
        let mut taken: HashSet<String> =
            known.filter_map(|tool| tool.get("name").and_then(Value::as_str)).map(str::to_owned).collect();
        for (wire, remote) in
            wires.iter().zip(offered).flat_map(|(wire, tools)| tools.into_iter().map(move |tool| (wire, tool)))
        {
            let function = remote.function.clone();
            if !taken.insert(function.clone()) {
                return Err(Failure::invalid(format!("tool name conflict: {function}")));
            }
            match remote.is_deferred() && has_search {
                true => self.deferred.push(remote.definition()),
                false => self.upstream.push(remote.definition()),
            }
            let block = function.clone();
            self.tools.push(Tool { kind: Kind::Remote(remote), wire: wire.clone(), function, block });
        }
        self.index();
        Ok(())
    }

    /// The tool that the model calls so.
    pub fn called(&self, function: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.function == function)
    }

    /// The advisor of this name.
    pub fn advisor(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| matches!(&tool.kind, Kind::Advisor(advisor) if advisor.name() == Some(name)))
    }

    /// The tools by what their calls are called in answers.
    pub fn named<'r>(&'r self, brand: Brand<'r>) -> Named<'r> {
        let mut named = Named { brand, blocks: HashMap::new(), kinds: HashMap::new() };
        for (place, tool) in self.tools.iter().enumerate() {
            named.blocks.entry(&tool.block).or_insert((place, tool));
            named.kinds.entry(tool.kind.name()).or_insert((place, tool));
        }
        named
    }

    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// The type of the tool that finds others, where there are any to find.
    pub fn finds(&self) -> Option<&str> {
        let search = self.tools.iter().find(|tool| matches!(tool.kind, Kind::ToolSearch(_)))?;
        self.has_deferred().then_some(search.wire.as_str())
    }

    /// The tools as the model gets to see them: what was found stands at the end, so that a cache of what stands before
    /// it stays good.
    pub fn upstream_with(&self, found: &[String]) -> Vec<Value> {
        // Of several with one name the first is meant, and it is shown once.
        let deferred = self.deferred.iter().rev().filter(|_| !found.is_empty());
        let mut named: HashMap<&str, &Value> =
            deferred.filter_map(|tool| Some((tool.get("name")?.as_str()?, tool))).collect();
        let found = found.iter().filter_map(|name| named.remove(name.as_str()));
        self.upstream.iter().chain(found).cloned().collect()
    }

    fn search(&self) -> Option<&Search> {
        self.tools.iter().find_map(|tool| match &tool.kind {
            Kind::WebSearch(search) => Some(search),
            _ => None,
        })
    }

    /// What of the search is left to vendors, whether an engine of ours stands behind it, and the type that asks for it.
    pub fn native(&self) -> Option<(&Native, bool, &str)> {
        self.tools.iter().find_map(|tool| match &tool.kind {
            Kind::WebSearch(search) => {
                Some((search.terms.native.as_ref()?, search.terms.engine.is_some(), tool.wire.as_str()))
            }
            _ => None,
        })
    }

    /// How many tools the model gets to see, now or later.
    pub fn shown(&self) -> usize {
        self.upstream.len() + self.deferred.len()
    }

    /// Searches that were answered.
    pub fn searches(&self) -> u64 {
        let before = self.before.as_ref().map_or(0, |before| before.search.searches());
        before + self.search().map_or(0, Search::searches)
    }

    /// The citations of a text, where anything was searched.
    pub fn citations(&self, text: &str) -> Option<Vec<Value>> {
        let before = self.before.as_ref().and_then(|before| before.search.citations(text));
        let now = self.search().and_then(|search| search.citations(text));
        match (before, now) {
            (Some(mut before), now) => {
                // What both have found is one page.
                let is_new = |one: &Value| !before.iter().any(|known| known["url"] == one["url"]);
                let more: Vec<Value> = now.into_iter().flatten().filter(is_new).collect();
                before.extend(more);
                Some(before)
            }
            (None, now) => now,
        }
    }

    /// Who does the work of one tool: a search engine by its configured name, or the gateway itself.
    pub fn engine_of(&self, tool: &Tool) -> String {
        match &tool.kind {
            Kind::WebSearch(search) => search.terms.engine.as_ref().map_or("native", |engine| &engine.name).to_owned(),
            _ => self.brand.to_string(),
        }
    }

    /// Who did the work of tools.
    pub fn engines(&self) -> Value {
        let search = self.search().map(|search| (search::NAME.to_owned(), json!(search.engine())));
        let fetches = self.tools.iter().any(|tool| matches!(tool.kind, Kind::WebFetch(_)));
        let fetch = fetches.then(|| (fetch::NAME.to_owned(), json!(self.brand)));
        Value::Object(search.into_iter().chain(fetch).collect())
    }

    /// Pages that were fetched for it.
    pub fn fetches(&self) -> u64 {
        let fetches = self.tools.iter().map(|tool| match &tool.kind {
            Kind::WebFetch(fetch) => fetch.fetches(),
            _ => 0,
        });
        fetches.sum()
    }

    /// The tool that a `tool_choice` names, by its type or by its function.
    pub fn chosen(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.wire == name || tool.block == name || tool.function == name)
    }
}

/// The tools of a roster by what their calls are called in answers. Made once for a conversation, however many calls it
/// holds.
pub(super) struct Named<'r> {
    brand: Brand<'r>,
    blocks: HashMap<&'r str, (usize, &'r Tool)>,
    kinds: HashMap<&'static str, (usize, &'r Tool)>,
}

impl<'r> Named<'r> {
    /// The tool whose calls are called so, by any of the deployment's names. The first one where there are several.
    pub fn told(&self, block: &str) -> Option<&'r Tool> {
        let by_kind = self.brand.tool(block).and_then(|bare| self.kinds.get(bare));
        let both = self.blocks.get(block).into_iter().chain(by_kind);
        both.min_by_key(|(place, _)| *place).map(|(_, tool)| *tool)
    }
}

fn wrong(place: usize, member: &str, problem: &str) -> Failure {
    Failure::invalid(format!("Invalid request: tools[{place}].{member} {problem}"))
}

/// The name of a tool of ours that a vendor's type is run as.
fn vendors(wire: &str, emulates: bool) -> Option<&'static str> {
    match wire {
        _ if find::is_vendors(wire) => Some(find::NAME),
        _ if advisor::is_vendors(wire) => Some(advisor::NAME),
        _ if emulates && search::is_vendors(wire) => Some(search::NAME),
        _ if emulates && fetch::is_vendors(wire) => Some(fetch::NAME),
        _ => None,
    }
}

/// The name of a tool whichever way it is spelled.
pub fn one_spelling(name: &str) -> &str {
    if name == "search_models" { SEARCH_MODELS } else { name }
}

/// A deferred tool as it is shown once it has been found.
fn shown(entry: &Value) -> Value {
    let mut shown = entry.clone();
    if let Some(members) = shown.as_object_mut() {
        members.shift_remove("defer_loading");
    }
    shown
}

/// `before`: the tools that stand before it.
fn kind(
    name: &str,
    wire: &str,
    reader: &Reader<'_>,
    is_vendors: bool,
    (settings, before): (&Settings, &[Tool]),
) -> Result<Kind, Failure> {
    match name {
        DATETIME => {
            let zone = reader.text("timezone")?.unwrap_or("UTC");
            if !datetime::is_zone(zone) {
                return Err(reader.wrong("timezone", "must be a name of the time zone database"));
            }
            Ok(Kind::Datetime { zone: zone.to_owned() })
        }
        SEARCH_MODELS | "search_models" => {
            Ok(Kind::SearchModels { most: reader.number("max_results", 20)?.unwrap_or(5) as usize })
        }
        search::NAME if is_vendors => Ok(Kind::WebSearch(Search::of_vendors(reader, wire, settings)?)),
        search::NAME => Ok(Kind::WebSearch(Search::of(reader, wire, settings)?)),
        fetch::NAME if is_vendors => Ok(Kind::WebFetch(Fetch::of_vendors(reader)?)),
        fetch::NAME => Ok(Kind::WebFetch(Fetch::of(reader, wire.split(':').next().unwrap_or_default())?)),
        find::NAME => Ok(Kind::ToolSearch(Find::of(reader, wire, is_vendors)?)),
        advisor::NAME => {
            let others = before.iter().filter_map(|tool| match &tool.kind {
                Kind::Advisor(advisor) => Some(advisor),
                _ => None,
            });
            Ok(Kind::Advisor(Advisor::of(reader, is_vendors, &others.collect::<Vec<_>>())?))
        }
        subagent::NAME => {
            let others = before.iter().filter_map(|tool| match &tool.kind {
                Kind::Subagent(subagent) => Some(subagent),
                _ => None,
            });
            Ok(Kind::Subagent(Subagent::of(reader, settings, &others.collect::<Vec<_>>())?))
        }
        fusion::NAME => Ok(Kind::Fusion(Fusion::of(reader, settings)?)),
        image::NAME => Ok(Kind::Image(Image::of(reader, settings)?)),
        files::NAME => Ok(Kind::Files),
        sandbox::BASH | sandbox::SHELL => {
            let others = before.iter().filter_map(|tool| match &tool.kind {
                Kind::Sandbox(sandbox) => Some(sandbox),
                _ => None,
            });
            Ok(Kind::Sandbox(Sandbox::of(reader, wire, name, settings, &others.collect::<Vec<_>>())?))
        }
        name if ELSEWHERE.contains(&name) => {
            Err(Failure::invalid(format!("{wire} is only available on the Responses API")))
        }
        _ => Err(Failure::invalid(format!("Unknown server tool: {wire}"))),
    }
}

impl Kind {
    /// Its name behind the brand.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Datetime { .. } => DATETIME,
            Self::SearchModels { .. } => SEARCH_MODELS,
            Self::WebSearch(_) => search::NAME,
            Self::WebFetch(_) => fetch::NAME,
            Self::ToolSearch(_) => find::NAME,
            Self::Advisor(_) => advisor::NAME,
            Self::Subagent(_) => subagent::NAME,
            Self::Fusion(_) => fusion::NAME,
            Self::Image(_) => image::NAME,
            Self::Files => files::NAME,
            Self::Sandbox(sandbox) => sandbox.name(),
            Self::Remote(_) => mcp::NAME,
        }
    }

    /// Whether it asks other models, which takes its time.
    pub fn asks_others(&self) -> bool {
        matches!(self, Self::Advisor(_) | Self::Subagent(_) | Self::Fusion(_) | Self::Image(_))
    }

    /// Whether it lets other models work, with tools of their own.
    pub fn lets_work(&self) -> bool {
        matches!(self, Self::Subagent(_) | Self::Fusion(_))
    }

    /// As its calls are called in answers: tools that others have too are called as they call them.
    fn block(&self, brand: &str) -> String {
        match self {
            Self::Datetime { .. }
            | Self::SearchModels { .. }
            | Self::Subagent(_)
            | Self::Fusion(_)
            | Self::Image(_)
            | Self::Files
            | Self::Sandbox(_) => {
                format!("{brand}:{}", self.name())
            }
            Self::WebFetch(_) | Self::WebSearch(_) | Self::Advisor(_) => self.name().to_owned(),
            Self::ToolSearch(find) => find.function().to_owned(),
            Self::Remote(remote) => remote.function.clone(),
        }
    }

    /// As it is for one call, which takes its share of what a request may use. Taken in the order of the calls, before
    /// they run side by side.
    pub fn begun(&self, shares: &Shares) -> Self {
        match self {
            Self::WebSearch(search) => Self::WebSearch(search.begun()),
            Self::WebFetch(fetch) => Self::WebFetch(fetch.begun(shares)),
            Self::Advisor(advisor) => Self::Advisor(advisor.begun(shares)),
            Self::Subagent(subagent) => Self::Subagent(subagent.begun(shares)),
            Self::Fusion(fusion) => Self::Fusion(fusion.begun(shares)),
            Self::Datetime { .. }
            | Self::SearchModels { .. }
            | Self::ToolSearch(_)
            | Self::Image(_)
            | Self::Files
            | Self::Sandbox(_)
            | Self::Remote(_) => self.clone(),
        }
    }

    /// What a call must say.
    fn required(&self) -> &'static [&'static str] {
        match self {
            Self::WebSearch(_) => &["query"],
            Self::WebFetch(_) => &["url"],
            Self::ToolSearch(find) => find.required(),
            Self::Advisor(advisor) => advisor.required(),
            Self::Subagent(_) => &["task_name", "task_description"],
            Self::Image(_) => &["prompt"],
            Self::Files => &["operation"],
            Self::Sandbox(sandbox) => sandbox.required(),
            Self::Datetime { .. } | Self::SearchModels { .. } | Self::Fusion(_) | Self::Remote(_) => &[],
        }
    }

    fn function(&self, brand: &str) -> String {
        let plain: String =
            brand.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        let name = match self {
            Self::Datetime { .. } => "datetime",
            Self::SearchModels { .. } => "search_models",
            Self::WebSearch(_) => return search::NAME.to_owned(),
            Self::WebFetch(_) => return fetch::NAME.to_owned(),
            Self::ToolSearch(find) => return find.function().to_owned(),
            Self::Advisor(advisor) => return cut(advisor.function(&plain)),
            Self::Subagent(subagent) => return cut(subagent.function(&plain)),
            Self::Fusion(_) => fusion::NAME,
            Self::Image(_) => image::NAME,
            Self::Files => files::NAME,
            Self::Sandbox(sandbox) => return sandbox.name().to_owned(),
            Self::Remote(remote) => return remote.function.clone(),
        };
        cut(format!("{plain}_{name}"))
    }
}

/// As long as names of functions can be, from its end: that is where they differ.
fn cut(mut function: String) -> String {
    function.drain(..function.len().saturating_sub(64));
    function
}

/// The tool as a function that the model can call.
fn definition(kind: &Kind, function: &str, cache_control: Option<&Value>) -> Value {
    let texts = |description: &str| json!({"type": "array", "items": {"type": "string"}, "description": description});
    let text = |description: &str| json!({"type": "string", "description": description});
    let (description, properties) = match kind {
        Kind::Remote(remote) => return remote.definition(),
        Kind::Datetime { zone } => (
            format!(
                "Tells the current date and time. Call it whenever the answer depends on what day or time it is now; \
                 you cannot know it otherwise. Without a time zone it answers for {zone}."
            ),
            json!({"timezone": text("A name of the IANA time zone database, such as Europe/Paris")}),
        ),
        Kind::SearchModels { most } => (
            format!(
                "Searches the language models that can be used here, and tells their context length and what they take \
                 and give; at most {most} at a time. Call it when asked which models there are or which one fits. \
                 Without arguments it lists them."
            ),
            json!({
                "query": text("Words that the name or the description holds"),
                "input_modalities": texts("What it must take: text, image, file, audio, video"),
                "output_modalities": texts("What it must give: text, image, audio"),
                "min_context_length": {"type": "integer", "description": "Tokens that it must take at least"},
                "series": text("The author or family, such as anthropic"),
            }),
        ),
        Kind::WebSearch(search) => search.description(),
        Kind::WebFetch(_) => (Fetch::description().to_owned(), Fetch::properties()),
        Kind::ToolSearch(find) => find.description(),
        Kind::Advisor(advisor) => advisor.description(),
        Kind::Subagent(subagent) => subagent.description(),
        Kind::Fusion(fusion) => fusion.description(),
        Kind::Image(_) => Image::description(),
        Kind::Files => files::description(),
        Kind::Sandbox(sandbox) => sandbox.description(),
    };
    let mut definition = json!({
        "name": function,
        "description": description,
        "input_schema": {"type": "object", "properties": properties},
    });
    if !kind.required().is_empty() {
        definition["input_schema"]["required"] = json!(kind.required());
    }
    if let Some(marker) = cache_control.filter(|marker| !marker.is_null()) {
        definition["cache_control"] = marker.clone();
    }
    definition
}

/// Has vendors who can hold a model to the schema do so. They take only schemas that name all there is, and no bounds;
/// what is out of bounds is told when the tool is called.
fn be_strict(definition: &mut Value) {
    const BOUNDS: [&str; 5] = ["minLength", "maxLength", "minimum", "maximum", "minItems"];
    definition["strict"] = Value::Bool(true);
    let schema = &mut definition["input_schema"];
    schema["additionalProperties"] = Value::Bool(false);
    let properties = schema["properties"].as_object_mut().into_iter().flat_map(|properties| properties.values_mut());
    for property in properties.filter_map(Value::as_object_mut) {
        property.retain(|name, _| !BOUNDS.contains(&name.as_str()));
    }
}

#[cfg(test)]
mod tests;
