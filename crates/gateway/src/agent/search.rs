//! `web_search`: what a request may look for, the search itself, what is shown of it, and how it is told again when the
//! client sends it back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tidegate_core::{Money, WorkspaceId};
use tidegate_store::vault::Vault;
use tidegate_tools::datetime;
use tidegate_tools::search::{self, Domain, Engine, Found, LONGEST_QUERY, Query};
use tokio::time::timeout;

use super::inner::Desk;
use super::native::{ENGINE, Native};
use super::reader::Reader;
use super::replay::Memory;
use super::run::{Outcome, WITHHELD, withheld};
use crate::Gateway;
use crate::failure::Failure;
use crate::guardrails::Judged;
use crate::keys::KeyEntry;
use crate::relay::Aside;
use crate::snapshot::Settings;
use crate::upstream::whole;

/// As the model calls it, and as the client sees it.
pub(super) const NAME: &str = "web_search";
pub(super) const BLOCK: &str = "web_search_tool_result";
/// What a result of ours begins with that only we can read.
pub(super) const SEALED: &str = "tg1.";
/// What results are sealed as.
const LABEL: &str = "web search result";
/// What marks a citation of ours.
const OURS: &str = "tg1";
/// How long a search before the first turn may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Results of one search at most.
const MOST_RESULTS: u64 = 25;
/// Bytes of an engine's answer at most.
const LONGEST_ANSWER: usize = 8 << 20;
/// Engines of the public interface, which may be there or not.
const PUBLIC: [&str; 4] = ["exa", "parallel", "firecrawl", "perplexity"];
/// Characters of a result by `search_context_size`.
const SIZES: [(&str, usize); 3] = [("low", 5_000), ("medium", 15_000), ("high", 30_000)];

/// What a request asks for, and how much of it was used.
#[derive(Debug)]
pub(super) struct Terms {
    /// Nothing where only vendors search.
    pub engine: Option<Arc<Engine>>,
    /// What is left to the vendor who serves, if he searches himself.
    pub native: Option<Native>,
    most: usize,
    max_uses: u64,
    characters: usize,
    allowed: Vec<Domain>,
    excluded: Vec<Domain>,
    country: Option<String>,
    mode: Option<String>,
    uses: AtomicU64,
    /// Results that may still be shown.
    left: AtomicU64,
    /// Searches that an engine answered.
    done: AtomicU64,
    /// Everything that was found, for citations.
    found: Mutex<Vec<Found>>,
}

/// The tool, or one call of it.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(super) terms: Arc<Terms>,
    room: Room,
}

/// The terms count what a request uses, so they are equal only to themselves.
impl PartialEq for Search {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.terms, &other.terms) && self.room == other.room
    }
}

/// How much a call may find.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Room {
    Results(u64),
    /// No further search may be made, or no further result shown.
    NoUses,
    NoResults,
}

fn domains(reader: &Reader<'_>, name: &str) -> Result<Vec<Domain>, Failure> {
    let Some(value) = reader.get(name) else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| reader.wrong(name, "must be an array"))?;
    let problem = "must be a domain such as example.org, *.example.org or example.org/path";
    let one = |(place, entry): (usize, &Value)| {
        let domain = entry.as_str().and_then(Domain::parse);
        domain.ok_or_else(|| reader.wrong(&format!("{name}[{place}]"), problem))
    };
    list.iter().enumerate().map(one).collect()
}

/// The country of a `user_location`, where it names one.
fn country(reader: &Reader<'_>) -> Result<Option<String>, Failure> {
    let Some(inner) = reader.object("user_location")? else { return Ok(None) };
    if inner.text("type")?.is_some_and(|kind| kind != "approximate") {
        return Err(inner.wrong("type", "must be approximate"));
    }
    for name in ["city", "region", "timezone"] {
        inner.text(name)?;
    }
    let country = inner.text("country")?;
    let is_code = |country: &&str| country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic());
    Ok(country.filter(is_code).map(str::to_ascii_uppercase))
}

impl Search {
    /// Of a tool of ours, with its parameters.
    pub(super) fn of(reader: &Reader<'_>, wire: &str, settings: &Settings) -> Result<Self, Failure> {
        let wanted = reader.text("engine")?.unwrap_or("auto");
        let excluded = domains(reader, "excluded_domains")?;
        if !matches!(wanted, "auto" | "native") {
            return Self::new(reader, Some(engine(reader, wire, settings)?), excluded);
        }
        let mut made = Self::new(reader, settings.tools.search.default.clone(), excluded)?;
        if let Some(terms) = Arc::get_mut(&mut made.terms) {
            terms.native = Some(Native::of(reader, wanted == "native", (&terms.allowed, &terms.excluded))?);
        }
        Ok(made)
    }

    /// Of a vendor's own type, which has its parameters in the entry itself.
    pub(super) fn of_vendors(reader: &Reader<'_>, wire: &str, settings: &Settings) -> Result<Self, Failure> {
        let excluded = domains(reader, "blocked_domains")?;
        let mut made = Self::new(reader, settings.tools.search.default.clone(), excluded)?;
        if let Some(terms) = Arc::get_mut(&mut made.terms) {
            terms.native = Some(Native::of_vendors(reader, wire, (&terms.allowed, &terms.excluded)));
        }
        Ok(made)
    }

    /// Of the plugin that searches once before the first turn.
    pub fn of_plugin(members: &Map<String, Value>, index: usize, settings: &Settings) -> Result<Self, Failure> {
        let reader = Reader { members, path: format!("plugins[{index}]") };
        let engine = engine(&reader, "web", settings)?;
        let (allowed, excluded) = (domains(&reader, "include_domains")?, domains(&reader, "exclude_domains")?);
        if engine.kind == search::Kind::Perplexity && !allowed.is_empty() && !excluded.is_empty() {
            let problem = "cannot be given together with include_domains: this engine takes one of them";
            return Err(reader.wrong("exclude_domains", problem));
        }
        let mut made = Self::new(&reader, Some(engine), excluded)?;
        if let Some(terms) = Arc::get_mut(&mut made.terms) {
            // All of it goes into the prompt, whether it helps or not.
            (terms.allowed, terms.characters) = (allowed, SIZES[0].1);
        }
        Ok(made)
    }

    /// Looks at the members of that plugin that mean the same to every engine.
    pub(super) fn check(reader: &Reader<'_>) -> Result<(), Failure> {
        for name in ["search_prompt", "engine", "mode"] {
            reader.text(name)?;
        }
        reader.number("max_results", MOST_RESULTS)?;
        reader.number("max_uses", u64::MAX)?;
        domains(reader, "include_domains")?;
        domains(reader, "exclude_domains")?;
        country(reader).map(drop)
    }

    fn new(reader: &Reader<'_>, engine: Option<Arc<Engine>>, excluded: Vec<Domain>) -> Result<Self, Failure> {
        let size = match reader.text("search_context_size")? {
            None => SIZES[1].1,
            Some(name) => {
                let known = SIZES.iter().find(|(known, _)| *known == name).map(|(_, size)| *size);
                known.ok_or_else(|| reader.wrong("search_context_size", "must be one of low, medium, high"))?
            }
        };
        let terms = Terms {
            engine,
            native: None,
            most: reader.number("max_results", MOST_RESULTS)?.unwrap_or(5) as usize,
            max_uses: reader.number("max_uses", u64::MAX)?.unwrap_or(u64::MAX),
            characters: reader.number("max_characters", 100_000)?.map_or(size, |most| most as usize),
            allowed: domains(reader, "allowed_domains")?,
            excluded,
            country: country(reader)?,
            mode: reader.text("mode")?.map(str::to_owned),
            uses: AtomicU64::new(0),
            left: AtomicU64::new(reader.number("max_total_results", u64::MAX)?.unwrap_or(50)),
            done: AtomicU64::new(0),
            found: Mutex::default(),
        };
        Ok(Self { terms: Arc::new(terms), room: Room::NoUses })
    }

    /// A call of it. Taken before the calls of a turn run side by side, so that the first ones get what is left.
    pub fn begun(&self) -> Self {
        let terms = &self.terms;
        let room = if terms.uses.fetch_add(1, Ordering::SeqCst) >= terms.max_uses {
            Room::NoUses
        } else {
            let most = terms.most as u64;
            let before =
                terms.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(most)));
            match before.unwrap_or_else(|left| left).min(most) {
                0 => Room::NoResults,
                room => Room::Results(room),
            }
        };
        Self { terms: terms.clone(), room }
    }

    /// What the model gets to know of it.
    pub fn description(&self) -> (String, Value) {
        let text = "Searches the web and gives pages with their address, title and text. Call it when the answer depends on \
                    recent events, or on facts that you do not know for certain; not for what you know or can work out. Ask \
                    in a few plain words; search again with other words when the results do not help.";
        let query = json!({
            "type": "string",
            "description": "What to look for",
            "minLength": 1,
            "maxLength": LONGEST_QUERY,
        });
        (text.to_owned(), json!({"query": query}))
    }

    pub fn searches(&self) -> u64 {
        self.terms.done.load(Ordering::SeqCst)
    }

    /// The citations of a text, once anything was searched.
    pub fn citations(&self, text: &str) -> Option<Vec<Value>> {
        if self.searches() == 0 {
            return None;
        }
        let found = self.terms.found.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |citation: search::Citation| {
            let Found { url, title, .. } = &found[citation.of];
            json!({
                "type": "web_search_result_location",
                "url": url,
                "title": title,
                "cited_text": citation.quoted,
                "encrypted_index": OURS,
            })
        };
        Some(search::cited(text, &found).into_iter().map(told).collect())
    }
}

fn engine(reader: &Reader<'_>, wire: &str, settings: &Settings) -> Result<Arc<Engine>, Failure> {
    let search = &settings.tools.search;
    let wanted = reader.text("engine")?.unwrap_or("auto");
    let named = search.engines.iter().find(|engine| engine.name == wanted);
    match (wanted, named) {
        // Nobody is asked who might search himself, so both mean the same.
        ("auto" | "native", _) => search.default.clone().ok_or_else(|| unconfigured(wire)),
        (_, Some(engine)) => Ok(engine.clone()),
        (name, None) if PUBLIC.contains(&name) => Err(unconfigured(wire)),
        (_, None) => {
            let names = search.engines.iter().map(|engine| engine.name.as_str());
            let names: Vec<&str> = ["auto", "native"].into_iter().chain(names).collect();
            Err(reader.wrong("engine", &format!("must be one of {}", names.join(", "))))
        }
    }
}

pub(super) fn unconfigured(wire: &str) -> Failure {
    Failure::invalid(format!("{wire} is not configured on this deployment"))
}

/// Whether it is a type of Anthropic's web search.
pub(super) fn is_vendors(wire: &str) -> bool {
    wire.starts_with("web_search_20")
}

/// A search that came to nothing, for the model and for the client: the same now and when it comes back.
pub(super) fn failed(code: &str) -> Outcome {
    // The public words have none for a search that took too long.
    let code = if code == "execution_time_exceeded" { "unavailable" } else { code };
    let message = match code {
        "invalid_tool_input" => "query must be a text of 1 to 1000 characters.",
        "query_too_long" => "The query is too long; use at most 1000 characters.",
        "max_uses_exceeded" => "No further search is made in this request. Answer with what is known.",
        "too_many_requests" => "The search engine is asked too often. Answer without it, or try again later.",
        _ => "The search engine cannot be reached. Answer without it, and say so.",
    };
    let content = json!({"type": "web_search_tool_result_error", "error_code": code});
    Outcome { shown: Some((BLOCK.into(), content)), ..Outcome::error(code, message) }
}

pub(super) async fn run(desk: &Desk, call: &Search, input: &Value) -> Outcome {
    let (gate, key, terms) = (&desk.gate, &desk.key, &call.terms);
    let room = match call.room {
        Room::Results(room) => room,
        Room::NoUses => return failed("max_uses_exceeded"),
        Room::NoResults => return nothing_left(),
    };
    // Only those who search themselves were to be asked.
    let Some(engine) = &terms.engine else { return failed("unavailable") };
    // Most engines cost nothing, and then there is nothing to write down.
    let aside = match engine.fee.of(room.min(terms.most as u64)) {
        Money::ZERO => None,
        most => match Aside::open(gate, &desk.snapshot, key, &desk.inner, &desk.model).held(most).await {
            Some(held) => Some(held),
            None => return failed("unavailable"),
        },
    };
    let outcome = searched(gate, terms, room, input).await;
    let fee = outcome.as_ref().map_or(Money::ZERO, |found| engine.fee.of(found.len() as u64));
    if let Some(aside) = aside {
        aside.pay(gate, &engine.name, fee).await;
    }
    let used = outcome.as_ref().map_or(0, |found| found.len() as u64);
    terms.left.fetch_add(room.saturating_sub(used), Ordering::SeqCst);
    match outcome {
        Err(code) => failed(code),
        Ok(mut found) => {
            terms.done.fetch_add(1, Ordering::SeqCst);
            let (passed, judged) = passed(gate, key, &mut found);
            if !passed {
                let shown = Some((BLOCK.into(), withheld(BLOCK)));
                return Outcome { text: WITHHELD.to_owned(), is_error: true, shown, fee, judged, ..Outcome::default() };
            }
            let at = datetime::told(gate.clock.now(), "UTC").unwrap_or_default();
            let text = search::told(&found, Some(&at));
            let shown = found.iter().map(|one| shown(&gate.vault, &key.workspace, one, &engine.name, &at)).collect();
            terms.found.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
            Outcome { text, shown: Some((BLOCK.into(), Value::Array(shown))), fee, judged, ..Outcome::default() }
        }
    }
}

/// Takes out what the caller's filters do not let through, before the results are told, sealed and quoted from. False when
/// nothing may be told of them. Who tells them counts what was judged.
fn passed(gate: &Gateway, key: &KeyEntry, found: &mut Vec<Found>) -> (bool, Judged) {
    let mut judged = Judged::default();
    let Some(held) = gate.guardrails.of(key).filter(|held| held.has_filters()) else { return (true, judged) };
    // Of an address nothing can be taken out: it would lead elsewhere.
    found.retain(|one| {
        let mut url = one.url.clone();
        let (passed, more) = held.scan_texts([&mut url], None);
        judged.add(more);
        passed && url == one.url
    });
    let texts = found.iter_mut().flat_map(|one| [&mut one.title, &mut one.content]);
    let (passed, more) = held.scan_texts(texts, None);
    judged.add(more);
    (passed, judged)
}

impl Search {
    pub(crate) fn engine(&self) -> &str {
        self.terms.engine.as_ref().map_or(ENGINE, |engine| &engine.name)
    }

    /// What one search may cost.
    pub(crate) fn most(&self) -> Money {
        self.terms.engine.as_ref().map_or(Money::ZERO, |engine| engine.fee.of(self.terms.most as u64))
    }
}

/// A search that was made before the first turn: what it found can be cited.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    pub(super) search: Search,
    pub found: Vec<Found>,
    /// What was taken out of it.
    pub judged: Judged,
    fee: Money,
}

impl Before {
    /// Searches once. Nothing when the engine does not answer, which is logged.
    pub async fn search(gate: &Gateway, key: &KeyEntry, search: Search, query: &str) -> Option<Self> {
        let terms = &search.terms;
        let room = terms.most as u64;
        let input = json!({"query": query});
        let mut found = timeout(PATIENCE, searched(gate, terms, room, &input)).await.ok()?.ok()?;
        let fee = terms.engine.as_ref().map_or(Money::ZERO, |engine| engine.fee.of(found.len() as u64));
        // What may not be told at all blocks the request that it is put into.
        let (_, judged) = passed(gate, key, &mut found);
        terms.done.fetch_add(1, Ordering::SeqCst);
        terms.found.lock().unwrap_or_else(PoisonError::into_inner).extend(found.clone());
        Some(Self { search, found, judged, fee })
    }

    /// What it cost.
    pub fn fee(&self) -> Money {
        self.fee
    }

    pub fn engine(&self) -> &str {
        self.search.engine()
    }
}

fn nothing_left() -> Outcome {
    let text =
        "{\"results\":[]}\nThis request has been shown as many results as it may be. Answer with those.".to_owned();
    Outcome { text, shown: Some((BLOCK.into(), json!([]))), ..Outcome::default() }
}

async fn searched(gate: &Gateway, terms: &Terms, room: u64, input: &Value) -> Result<Vec<Found>, &'static str> {
    let text = input.get("query").and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let text = text.ok_or("invalid_tool_input")?;
    if text.chars().count() > LONGEST_QUERY {
        return Err("query_too_long");
    }
    let query = Query {
        text,
        most: terms.most.min(usize::try_from(room).unwrap_or(usize::MAX)),
        characters: terms.characters,
        allowed: &terms.allowed,
        excluded: &terms.excluded,
        country: terms.country.as_deref(),
        mode: terms.mode.as_deref(),
    };
    let engine = terms.engine.as_ref().ok_or("unavailable")?;
    if engine.kind == search::Kind::Static {
        return Ok(engine.fixed(&query));
    }
    let unreachable = |problem: &str| {
        tracing::warn!(engine = engine.name, problem, "a search failed");
        "unavailable"
    };
    let call = engine.call(&query).ok_or_else(|| unreachable("its address or key cannot be sent"))?;
    let sent = match call.method {
        Method::POST => {
            gate.upstream.send(&call.uri, call.headers, bytes::Bytes::from(call.body.unwrap_or_default()).into()).await
        }
        _ => gate.upstream.get(&call.uri, call.headers).await,
    };
    let answer = sent.map_err(|_| unreachable("it did not answer"))?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::TOO_MANY_REQUESTS => {
            tracing::warn!(engine = engine.name, "a search engine limits how often it is asked");
            return Err("too_many_requests");
        }
        status => return Err(unreachable(&format!("it answered {status}"))),
    }
    let body = whole(answer.into_body(), LONGEST_ANSWER)
        .await
        .map_err(|_| unreachable("its answer broke off or is too long"))?;
    search::read(engine.kind, &body, &query).map_err(|_| unreachable("its answer is not what its kind sends"))
}

/// A result as only we can read it: it is told again when it comes back, to whatever model.
#[derive(Deserialize, Serialize)]
struct Kept {
    url: String,
    title: String,
    content: String,
    published_at: Option<String>,
    engine: String,
    retrieved_at: String,
}

pub(super) fn shown(vault: &Vault, workspace: &WorkspaceId, found: &Found, engine: &str, at: &str) -> Value {
    let Found { url, title, content, published_at, .. } = found.clone();
    let kept = Kept { url, title, content, published_at, engine: engine.to_owned(), retrieved_at: at.to_owned() };
    let plain = serde_json::to_vec(&kept).unwrap_or_default();
    // Without it the result is one of which only title and address can be told again.
    let sealed = vault.seal_blob(LABEL, workspace.0.as_bytes(), &plain).unwrap_or_default();
    json!({
        "type": "web_search_result",
        "url": found.url,
        "title": found.title,
        "page_age": found.published_at,
        "encrypted_content": format!("{SEALED}{}", URL_SAFE_NO_PAD.encode(sealed)),
    })
}

/// What is known of results that come back: those that nobody saw, and those that only we can read.
pub(super) struct Recall<'a, M> {
    pub results: M,
    pub vault: &'a Vault,
    pub workspace: &'a WorkspaceId,
}

impl<M: Memory> Memory for Recall<'_, M> {
    fn result(&self, id: &str) -> Option<String> {
        self.results.result(id)
    }

    fn opened(&self, blob: &str) -> Option<Vec<u8>> {
        let sealed = URL_SAFE_NO_PAD.decode(blob.strip_prefix(SEALED)?).ok()?;
        self.vault.open_blob(LABEL, self.workspace.0.as_bytes(), &sealed)
    }
}

/// The content of a result block as the model was told it, and whether it was an error; of results that others sealed,
/// title and address.
pub(super) fn retold(content: &Value, memory: &dyn Memory) -> (String, bool) {
    const CODES: [&str; 6] = [
        "invalid_tool_input",
        "unavailable",
        "max_uses_exceeded",
        "too_many_requests",
        "query_too_long",
        "request_too_large",
    ];
    let Some(list) = content.as_array() else {
        let code = content.get("error_code").and_then(Value::as_str).unwrap_or_default();
        let known = CODES.into_iter().find(|known| *known == code);
        return (failed(known.unwrap_or("unavailable")).text, true);
    };
    let mut retrieved_at: Option<String> = None;
    let found: Vec<Found> = list
        .iter()
        .map(|entry| {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let opened = memory.opened(text("encrypted_content"));
            match opened.and_then(|plain| serde_json::from_slice::<Kept>(&plain).ok()) {
                Some(kept) => {
                    let Kept { url, title, content, published_at, retrieved_at: at, .. } = kept;
                    retrieved_at.get_or_insert(at);
                    Found { url, title, content, published_at, score: None }
                }
                None => Found {
                    url: text("url").to_owned(),
                    title: text("title").to_owned(),
                    published_at: Some(text("page_age").to_owned()).filter(|age| !age.is_empty()),
                    ..Found::default()
                },
            }
        })
        .collect();
    (search::told(&found, retrieved_at.as_deref()), false)
}
