//! `mcp`: tools of a server that the caller names, which speaks the Model Context Protocol over HTTP. What it lists become
//! functions of the model; what it says is data, and nothing here acts on it.

mod rpc;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::{Map, Value, json};
use tidegate_core::{KeyHash, Secret, Timestamp};
use tidegate_observe::broadcast::target::is_forbidden;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::inner::Desk;
use super::reader::Reader;
use super::run::Outcome;
use crate::egress::{self, Bounds, Checked};
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::snapshot::Settings;
use crate::{Gateway, Snapshot};

/// Its name behind the brand.
pub(super) const NAME: &str = "mcp";
/// The version of the protocol that is asked for.
const VERSION: &str = "2025-06-18";
/// How long a call may take, and how long one of those before it.
pub(super) const CALL: Duration = Duration::from_secs(30);
const SETUP: Duration = Duration::from_secs(10);
/// How long a list is believed, how many there are, and how many bytes of them.
const KEPT: Duration = Duration::from_secs(300);
const LISTS: usize = 1_024;
const LISTS_BYTES: u64 = 32 << 20;
/// Servers of one request.
pub(super) const MOST_SERVERS: usize = 16;
/// Bytes of a list.
const LIST_BYTES: usize = 512 << 10;
/// Tools of a server, and pages that they are listed on.
const MOST_TOOLS: usize = 128;
const MOST_PAGES: usize = 16;
/// Bytes of an answer, and of the text in it that the model gets to read.
const MOST_BYTES: usize = 4 << 20;
const MOST_TEXT: usize = 200 << 10;
const LONGEST_LABEL: usize = 32;
const LONGEST_FUNCTION: usize = 64;
const MOST_HEADERS: usize = 16;
/// Headers that the transport itself says.
const OWN: [&str; 4] = ["content-type", "accept", "mcp-session-id", "mcp-protocol-version"];

/// A tool as a server lists it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    name: String,
    description: String,
    schema: Value,
    only_reads: bool,
}

impl Listed {
    fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.schema.to_string().len() + 64
    }
}

/// Lists of servers, by server, what it was asked with, and key.
pub(crate) struct Lists(Cache<KeyHash, (Arc<List>, Timestamp), Size>);

/// What a server offers, and how large that is.
pub(crate) struct List {
    tools: Vec<Listed>,
    bytes: usize,
}

#[derive(Clone)]
struct Size;

impl Weighter<KeyHash, (Arc<List>, Timestamp)> for Size {
    fn weight(&self, _: &KeyHash, (list, _): &(Arc<List>, Timestamp)) -> u64 {
        list.bytes as u64 + 256
    }
}

impl Default for Lists {
    fn default() -> Self {
        Self(Cache::with_weighter(LISTS, LISTS_BYTES, Size))
    }
}

/// A server that a request names.
pub(super) struct Server {
    pub label: String,
    pub is_deferred: bool,
    url: String,
    headers: Vec<(HeaderName, Secret)>,
    /// Names of tools; all without it.
    allowed: Option<HashSet<String>>,
    only_reads: bool,
    /// Where it stands in the request, for errors.
    path: String,
    session: OnceCell<Session>,
    /// The number of the last question.
    asked: AtomicU64,
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Server").field("label", &self.label).finish_non_exhaustive()
    }
}

/// A conversation with a server.
#[derive(Clone, Debug, Default)]
struct Session {
    id: Option<HeaderValue>,
    version: String,
}

/// One tool of a server.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    server: Arc<Server>,
    tool: Listed,
    pub function: String,
}

impl PartialEq for Remote {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.server, &other.server) && self.tool == other.tool
    }
}

impl Server {
    pub fn of(reader: &Reader<'_>, settings: &Settings) -> Result<Self, Failure> {
        let label = reader.text("server_label")?.ok_or_else(|| reader.wrong("server_label", "is required"))?;
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=LONGEST_LABEL).contains(&label.len()) || !label.bytes().all(is_plain) {
            return Err(reader.wrong("server_label", "must be 1 to 32 lower-case letters, digits or hyphens"));
        }
        let url = reader.text("server_url")?.ok_or_else(|| reader.wrong("server_url", "is required"))?;
        match egress::checked(url, &settings.egress) {
            Ok(Checked::Tls | Checked::Listed) => {}
            Ok(Checked::Plain) => return Err(reader.wrong("server_url", "must begin with https://")),
            Err(_) => return Err(reader.wrong("server_url", "must be an https address that may be called from here")),
        }
        match reader.get("require_approval") {
            None => {}
            Some(Value::String(word)) if word == "never" => {}
            Some(_) => {
                return Err(reader.wrong("require_approval", "must be never: nobody can approve a call of this API"));
            }
        }
        let (allowed, only_reads) = allowed(reader)?;
        Ok(Self {
            label: label.to_owned(),
            is_deferred: reader.flag("defer_loading")?.unwrap_or(false),
            url: url.to_owned(),
            headers: headers(reader)?,
            allowed,
            only_reads,
            path: reader.path_of("server_url"),
            session: OnceCell::new(),
            asked: AtomicU64::new(0),
        })
    }

    /// What it offers of what is allowed, each with the name that the model calls it by.
    pub async fn tools(
        self: Arc<Self>,
        gate: &Gateway,
        snapshot: &Snapshot,
        key: &KeyEntry,
    ) -> Result<Vec<Remote>, Failure> {
        let now = gate.clock.now();
        let name = self.hash(key);
        let known = gate.mcp.0.get(&name).filter(|(_, until)| *until > now).map(|(list, _)| list);
        let list = match known {
            Some(list) => list,
            None => {
                let list = timeout(SETUP * 2, self.listed(gate, snapshot)).await.ok().flatten();
                let problem =
                    "does not answer as a server of the Model Context Protocol: check address and authorization";
                let list = list.ok_or_else(|| Failure::invalid(format!("Invalid request: {} {problem}", self.path)))?;
                let list = Arc::new(list);
                gate.mcp.0.insert(name, (list.clone(), now.plus(KEPT)));
                list
            }
        };
        let is_allowed = |tool: &&Listed| {
            let is_named = self.allowed.as_ref().is_none_or(|allowed| allowed.contains(&tool.name));
            is_named && (tool.only_reads || !self.only_reads)
        };
        let mut remotes: Vec<Remote> = Vec::new();
        for tool in list.tools.iter().filter(is_allowed) {
            let function = function(&self.label, &tool.name);
            // Two names that look alike to the model cannot be told apart.
            if !remotes.iter().any(|known| known.function == function) {
                remotes.push(Remote { server: self.clone(), tool: tool.clone(), function });
            }
        }
        Ok(remotes)
    }

    /// Who asks whom with what: others must not learn what a list says.
    fn hash(&self, key: &KeyEntry) -> KeyHash {
        let mut text = format!("{}\0{}", key.hash.to_hex(), self.url).into_bytes();
        for (name, value) in &self.headers {
            text.extend_from_slice(format!("\0{name}\0").as_bytes());
            value.expose(|bytes| text.extend_from_slice(bytes));
        }
        KeyHash::of(&text)
    }

    async fn listed(&self, gate: &Gateway, snapshot: &Snapshot) -> Option<List> {
        let mut tools: Vec<Listed> = Vec::new();
        let mut cursor: Option<String> = None;
        for page in 0..MOST_PAGES {
            let params = cursor.take().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let result = self.ask(gate, snapshot, "tools/list", params, SETUP).await.ok()?;
            let listed = result.get("tools")?.as_array()?.iter().filter_map(Listed::of);
            tools.extend(listed);
            cursor = result.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            // What a server says of its tools goes to the model with every turn.
            if tools.iter().map(Listed::bytes).sum::<usize>() > LIST_BYTES {
                return None;
            }
            if cursor.is_none() || tools.len() >= MOST_TOOLS {
                tracing::debug!(pages = page + 1, tools = tools.len(), "a server listed its tools");
                break;
            }
        }
        tools.truncate(MOST_TOOLS);
        let bytes = tools.iter().map(Listed::bytes).sum();
        Some(List { tools, bytes })
    }

    /// Asks something, within a session that is begun at the first need.
    async fn ask(
        &self,
        gate: &Gateway,
        snapshot: &Snapshot,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, rpc::Problem> {
        let session = self.session.get_or_try_init(|| self.begin(gate, snapshot)).await?;
        self.exchange(gate, snapshot, Some(session), method, params, limit).await.map(|(result, _)| result)
    }

    async fn begin(&self, gate: &Gateway, snapshot: &Snapshot) -> Result<Session, rpc::Problem> {
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "tidegate", "version": env!("CARGO_PKG_VERSION")},
        });
        let (result, head) = self.exchange(gate, snapshot, None, "initialize", params, SETUP).await?;
        let version = result.get("protocolVersion").and_then(Value::as_str).unwrap_or(VERSION).to_owned();
        let session = Session { id: head.get(rpc::SESSION).cloned(), version };
        // Not answered but with a status, which changes nothing.
        let body = rpc::notification("notifications/initialized");
        let _ = self.send(gate, snapshot, Some(&session), (0, body), SETUP).await;
        Ok(session)
    }

    async fn exchange(
        &self,
        gate: &Gateway,
        snapshot: &Snapshot,
        session: Option<&Session>,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<(Value, HeaderMap), rpc::Problem> {
        let id = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let body = rpc::request(id, method, params);
        let said = self.send(gate, snapshot, session, (id, body), limit).await?;
        if said.status != 200 {
            return Err(rpc::Problem::Unreachable);
        }
        let is_stream =
            said.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let result = rpc::answer(id, &said.body, is_stream)?;
        Ok((result, said.headers))
    }

    async fn send(
        &self,
        gate: &Gateway,
        snapshot: &Snapshot,
        session: Option<&Session>,
        (id, body): (u64, String),
        limit: Duration,
    ) -> Result<egress::Said, rpc::Problem> {
        let mut head = HeaderMap::new();
        for (name, value) in &self.headers {
            let value = value.expose(HeaderValue::from_bytes).map_err(|_| rpc::Problem::Unreachable)?;
            let mut value = value;
            value.set_sensitive(true);
            head.insert(name.clone(), value);
        }
        head.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        head.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(Session { id, version }) = session {
            head.extend(id.clone().map(|id| (HeaderName::from_static(rpc::SESSION), id)));
            let version = HeaderValue::from_str(version).unwrap_or(HeaderValue::from_static(VERSION));
            head.insert(HeaderName::from_static(rpc::PROTOCOL), version);
        }
        let bounds = Bounds { bytes: MOST_BYTES, time: limit };
        let rules = &snapshot.settings.egress;
        let mut watch = rpc::Watch::new(id);
        let is_whole = |chunk: &Bytes| watch.sees(chunk);
        let said = gate.egress.converse(&self.url, head, Bytes::from(body), rules, bounds, is_whole).await;
        said.map_err(|_| rpc::Problem::Unreachable)
    }
}

impl Listed {
    fn of(tool: &Value) -> Option<Self> {
        let text = |name: &str| tool.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = Some(text("name")).filter(|name| !name.is_empty())?;
        let schema = tool.get("inputSchema").filter(|schema| schema.is_object()).cloned();
        let hint = tool.get("annotations").and_then(|notes| notes.get("readOnlyHint")).and_then(Value::as_bool);
        Some(Self {
            name,
            description: text("description"),
            schema: schema.unwrap_or_else(|| json!({"type": "object"})),
            only_reads: hint.unwrap_or(false),
        })
    }
}

impl Remote {
    pub fn is_deferred(&self) -> bool {
        self.server.is_deferred
    }

    /// The tool as a function that the model can call.
    pub fn definition(&self) -> Value {
        json!({"name": self.function, "description": self.tool.description, "input_schema": self.tool.schema})
    }

    pub async fn run(&self, desk: &Desk, input: &Value) -> Outcome {
        let params = json!({"name": self.tool.name, "arguments": input});
        match self.server.ask(&desk.gate, &desk.snapshot, "tools/call", params, CALL).await {
            Ok(result) => told(&result),
            Err(rpc::Problem::Said(message)) => Outcome::error("tool_error", &cut(message)),
            Err(rpc::Problem::Unreachable) => Outcome::error("unavailable", "The server of the tool does not answer."),
        }
    }
}

/// What the model reads of a result.
fn told(result: &Value) -> Outcome {
    let text = |block: &Value, name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let blocks = result.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let parts: Vec<String> = blocks
        .iter()
        .map(|block| match text(block, "type").as_str() {
            "text" => text(block, "text"),
            "resource" => block.get("resource").map(|resource| text(resource, "text")).unwrap_or_default(),
            "resource_link" => format!("[{}: {}]", text(block, "name"), text(block, "uri")),
            kind => format!("[{kind} that cannot be shown here]"),
        })
        .collect();
    let said = match (parts.is_empty(), result.get("structuredContent")) {
        (true, Some(structured)) => structured.to_string(),
        _ => parts.join("\n"),
    };
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
    Outcome { text: cut(said), is_error, ..Outcome::default() }
}

fn cut(mut text: String) -> String {
    if text.len() > MOST_TEXT {
        text.truncate(text.floor_char_boundary(MOST_TEXT));
        text.push_str("\n[cut: the result is too long]");
    }
    text
}

/// As the model calls it: letters that names of functions cannot have become others.
fn function(label: &str, tool: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    let mut name: String = format!("mcp__{label}__{tool}").chars().map(plain).collect();
    name.truncate(LONGEST_FUNCTION);
    name
}

type Allowed = (Option<HashSet<String>>, bool);

/// The names that are allowed, and whether only tools that change nothing are.
fn allowed(reader: &Reader<'_>) -> Result<Allowed, Failure> {
    let names = |reader: &Reader<'_>, name: &str| -> Result<Option<HashSet<String>>, Failure> {
        let list = match reader.get(name) {
            None => return Ok(None),
            Some(Value::Array(list)) => list.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<_>>(),
            Some(_) => None,
        };
        list.map(Some).ok_or_else(|| reader.wrong(name, "must be an array of names of tools"))
    };
    match reader.get("allowed_tools") {
        Some(Value::Object(_)) => match reader.object("allowed_tools")? {
            Some(inner) => Ok((names(&inner, "tool_names")?, inner.flag("read_only")?.unwrap_or(false))),
            None => Ok((None, false)),
        },
        _ => Ok((names(reader, "allowed_tools")?, false)),
    }
}

fn headers(reader: &Reader<'_>) -> Result<Vec<(HeaderName, Secret)>, Failure> {
    let mut all = Vec::new();
    let fits = |text: &str| HeaderValue::from_str(text).is_ok();
    if let Some(headers) = reader.object("headers")? {
        for (name, value) in headers.members {
            let may_be_sent = |name: &HeaderName| !OWN.contains(&name.as_str()) && !is_forbidden(name.as_str());
            let header = HeaderName::from_bytes(name.as_bytes()).ok().filter(may_be_sent);
            let header = header.ok_or_else(|| headers.wrong(name, "cannot be sent: leave it out"))?;
            let text = value.as_str().filter(|text| fits(text));
            let text = text.ok_or_else(|| headers.wrong(name, "must be a string without line breaks"))?;
            all.push((header, Secret::new(text)));
        }
        if all.len() > MOST_HEADERS {
            return Err(reader.wrong("headers", &format!("must have at most {MOST_HEADERS} entries")));
        }
    }
    if let Some(token) = reader.text("authorization")? {
        let text = if token.contains(' ') { token.to_owned() } else { format!("Bearer {token}") };
        if !fits(&text) {
            return Err(reader.wrong("authorization", "must be a token without line breaks"));
        }
        all.push((AUTHORIZATION, Secret::new(text)));
    }
    Ok(all)
}

/// Where such a server stands in the request, said beside a tool that was made of it.
pub(super) const SERVER: &str = "mcp_servers";

/// Servers that a request names as Anthropic's own interface does, as tools of ours.
pub(super) fn of_request(servers: &Value, brand: &str) -> Result<Vec<Value>, Failure> {
    let wrong = |path: &str, problem: &str| Failure::invalid(format!("Invalid request: mcp_servers{path} {problem}"));
    let list = servers.as_array().ok_or_else(|| wrong("", "must be an array"))?;
    let mut tools = Vec::new();
    for (place, server) in list.iter().enumerate() {
        let text = |name: &str| server.get(name).and_then(Value::as_str);
        let url = text("url").ok_or_else(|| wrong(&format!("[{place}].url"), "must be a string"))?;
        let name = text("name").ok_or_else(|| wrong(&format!("[{place}].name"), "must be a string"))?;
        let label: String = name
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(LONGEST_LABEL)
            .collect();
        let mut parameters = Map::new();
        parameters.insert("server_label".into(), json!(label));
        parameters.insert("server_url".into(), json!(url));
        if let Some(token) = text("authorization_token") {
            parameters.insert("authorization".into(), json!(token));
        }
        let settings = server.get("tool_configuration");
        if settings.and_then(|settings| settings.get("enabled")) == Some(&json!(false)) {
            continue;
        }
        if let Some(allowed) =
            settings.and_then(|settings| settings.get("allowed_tools")).filter(|list| !list.is_null())
        {
            parameters.insert("allowed_tools".into(), allowed.clone());
        }
        tools.push(json!({"type": format!("{brand}:{NAME}"), "parameters": parameters, SERVER: place}));
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_functions() {
        assert_eq!(function("house", "read_file"), "mcp__house__read_file");
        assert_eq!(function("house", "a.b/c"), "mcp__house__a_b_c");
        assert_eq!(function("h", &"x".repeat(100)).len(), 64);
    }

    #[test]
    fn headers_of_the_connection_or_of_a_cloud_are_not_the_callers() {
        let of = |name: &str| {
            let parameters = json!({"headers": {name: "x"}}).as_object().unwrap().clone();
            headers(&Reader::of(&parameters, 0)).map(|all| all.len()).map_err(|failure| failure.message.into_owned())
        };
        for name in [
            "Host",
            "Accept",
            "Proxy-Authorization",
            "Metadata-Flavor",
            "X-aws-ec2-metadata-token",
            "Mcp-Session-Id",
            "TE",
        ] {
            let wrong = format!("Invalid request: tools[0].parameters.headers.{name} cannot be sent: leave it out");
            assert_eq!(of(name), Err(wrong));
        }
        assert_eq!(of("X-Api-Key"), Ok(1));
    }

    #[test]
    fn a_result_is_told_as_text() {
        let text = |value: Value| told(&value).text;
        assert_eq!(text(json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})), "a\nb");
        assert_eq!(text(json!({"content": [{"type": "image", "data": "x"}]})), "[image that cannot be shown here]");
        assert_eq!(text(json!({"content": [], "structuredContent": {"a": 1}})), r#"{"a":1}"#);
        assert!(told(&json!({"content": [], "isError": true})).is_error);
        let long = text(json!({"content": [{"type": "text", "text": "é".repeat(200 << 10)}]}));
        assert!(long.len() < (200 << 10) + 64 && long.ends_with("too long]"));
    }

    #[test]
    fn servers_of_the_vendors_field_become_tools() {
        let made = of_request(
            &json!([
                {"type": "url", "name": "My Notes", "url": "https://a.example/mcp", "authorization_token": "t",
                 "tool_configuration": {"allowed_tools": ["read"]}},
                {"type": "url", "name": "off", "url": "https://b.example", "tool_configuration": {"enabled": false}},
            ]),
            "tidegate",
        );
        let parameters = json!({
            "server_label": "my-notes", "server_url": "https://a.example/mcp", "authorization": "t",
            "allowed_tools": ["read"],
        });
        assert_eq!(made.unwrap(), [json!({"type": "tidegate:mcp", "parameters": parameters, "mcp_servers": 0})]);
        let wrong = of_request(&json!([{"name": "x"}]), "tidegate").unwrap_err();
        assert_eq!(wrong.message, "Invalid request: mcp_servers[0].url must be a string");
    }
}
