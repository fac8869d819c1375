//! `tidegate explain`: who would serve a request and why not the others; or what became of one that was made. A running
//! server is asked where one is named, for only it knows how upstreams are doing.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::{GenerationId, KeyHash};
use tidegate_gateway::explain::from_configuration;
use tidegate_gateway::upstream::{self, Client, TlsTrouble};
use tokio::time::timeout;

use super::address;
use super::keys::open;
use super::out::{say, shown};
use crate::api::explain::{Candidate, Told, message};
use crate::api::generation;
use crate::cli::Place;
use crate::config::{Source, nearest};

const LIMIT: Duration = Duration::from_secs(10);
const LARGEST_ANSWER: usize = 16 << 20;
const LARGEST_REQUEST: u64 = 32 << 20;
const GENERATION: &str = "gen-";

#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    place: Place,
    /// A model, or the id of a generation (gen-…)
    #[arg(value_name = "MODEL_OR_GENERATION", required_unless_present_any = ["model", "request"])]
    what: Option<String>,
    /// A model, also one whose name looks like that of a generation
    #[arg(long, conflicts_with = "what")]
    model: Option<String>,
    /// The body of a message, as JSON; `-` is the standard input
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// For this inference key: its hash or the beginning of it, as `keys list` shows it, or the key itself
    #[arg(long, requires = "url")]
    key: Option<String>,
    /// Address of a running gateway, which knows how upstreams are doing
    #[arg(long, env = "TIDEGATE_URL")]
    url: Option<String>,
    /// Key to ask the gateway with; better in the environment, where others on the machine do not see it
    #[arg(long, env = "TIDEGATE_MANAGEMENT_KEY", hide_env_values = true, value_name = "KEY")]
    management_key: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { place, what, model, request, key, url, management_key, json } = self;
        let source = place.source(None);
        let server = url.map(|url| Server::new(&url, management_key.as_deref(), OTHERWISE)).transpose()?;
        if let Some(id) = what.as_deref().filter(|what| what.starts_with(GENERATION)) {
            if request.is_some() || key.is_some() {
                bail!(
                    "{id} is the id of a generation, which has its own request and key: leave out --request and --key"
                );
            }
            let id = GenerationId::parse(id).with_context(|| {
                format!("{id} is not the id of a generation: the header x-generation-id of its answer has it")
            })?;
            let text = match &server {
                Some(server) => server.generation(&id).await?,
                None => stored(&source, &id).await?,
            };
            return if json { say!("{text}") } else { tell_past(&text) }.map(|()| ExitCode::SUCCESS);
        }
        let (model, request) = (what.or(model), request.as_deref().map(read).transpose()?);
        let text = match &server {
            Some(server) => server.explained(model.as_deref(), request.as_deref(), key.as_deref()).await?,
            None => planned(&source, model.as_deref(), request.as_deref())?,
        };
        let told: Told = serde_json::from_str(&text).context("the answer of the gateway cannot be read")?;
        if json {
            say!("{text}")?
        } else {
            tell_plan(&told)?
        }
        match told.refusal {
            None => Ok(ExitCode::SUCCESS),
            Some(refusal) => bail!("nobody would serve this ({}): {}", refusal.status, shown(&refusal.message)),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Box<RawValue>> {
    let name = path.display();
    let mut text = String::new();
    let got = if path == Path::new("-") {
        std::io::stdin().lock().take(LARGEST_REQUEST).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path).with_context(|| format!("--request {name}"))?;
        file.take(LARGEST_REQUEST).read_to_string(&mut text)
    };
    got.with_context(|| format!("--request {name}"))?;
    let value: Box<RawValue> = serde_json::from_str(&text)
        .with_context(|| format!("--request {name} must be the body of a message, as JSON"))?;
    if !value.get().starts_with('{') {
        bail!("--request {name} must be the body of a message: a JSON object");
    }
    Ok(value)
}

/// What the configuration alone says.
fn planned(source: &Source, model: Option<&str>, request: Option<&RawValue>) -> anyhow::Result<String> {
    let config = source.read()?;
    // The simulated provider is not running here; its models are known all the same.
    let snapshot = config.snapshot(config.sim_enabled.then_some("http://simulator.invalid"), config.listen)?;
    let body = message(model, request).map_err(|wrong| anyhow::anyhow!("--request {wrong}"))?;
    let story = from_configuration(&snapshot, &body, SystemClock.now());
    let story = story.map_err(|failure| anyhow::anyhow!("{}", shown(&failure.message)))?;
    let told = Told::of(&story).map_err(|failure| {
        let models = snapshot.catalogue.models();
        let known: Vec<&str> = models.iter().map(|model| &*model.id).collect();
        let unknown = story.requested.iter().find(|name| snapshot.catalogue.find(name).is_err());
        let meant = unknown.and_then(|name| nearest(name, &known));
        let meant = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        anyhow::anyhow!("{}{meant}", shown(&failure.message))
    })?;
    Ok(serde_json::to_string(&told)?)
}

/// The record of a generation in the store.
async fn stored(source: &Source, id: &GenerationId) -> anyhow::Result<String> {
    let (store, tenant) = open(source).await?;
    let text = generation::text(&store, &tenant, id).await;
    store.close().await;
    text?.with_context(|| missing(id))
}

fn missing(id: &GenerationId) -> String {
    format!(
        "there is no record of {id}: it may still run, be older than records are kept, or be another installation's \
         (--config, --data-dir, --url)"
    )
}

/// Where no gateway is asked.
const OTHERWISE: &str = "; without --url and TIDEGATE_URL the configuration alone is explained";

/// A running gateway.
pub(super) struct Server {
    url: String,
    headers: HeaderMap,
    /// What else can be done where it does not answer.
    otherwise: &'static str,
}

/// An answer's `data`, as it came.
#[derive(Deserialize)]
struct Answer {
    data: Box<RawValue>,
}

impl Server {
    pub fn new(url: &str, key: Option<&str>, otherwise: &'static str) -> anyhow::Result<Self> {
        let key = key.filter(|key| !key.is_empty()).context(format!(
            "a running gateway answers only to a management key: set TIDEGATE_MANAGEMENT_KEY{otherwise}"
        ))?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {key}")).context("--management-key is not a key")?;
        bearer.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, bearer);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self { url: address::base(url)?.to_owned(), headers, otherwise })
    }

    async fn explained(
        &self,
        model: Option<&str>,
        request: Option<&RawValue>,
        key: Option<&str>,
    ) -> anyhow::Result<String> {
        let mut body = json!({});
        if let Some(model) = model {
            body["model"] = json!(model);
        }
        if let Some(key) = key {
            // A key stays here; its hash is enough to name it.
            let is_hash = key.len() <= 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
            body["key"] = json!(if is_hash { key.to_lowercase() } else { KeyHash::of(key.as_bytes()).to_hex() });
        }
        let mut text = body.to_string();
        if let Some(request) = request {
            // To the byte, so that its length is that of the request.
            text.pop();
            let comma = if text.len() > 1 { "," } else { "" };
            write!(text, r#"{comma}"request":{request}}}"#)?;
        }
        let (status, text) = self.ask("/api/v1/explain", Some(text.into())).await?;
        self.data(status, &text)
    }

    async fn generation(&self, id: &GenerationId) -> anyhow::Result<String> {
        let (status, text) = self.ask(&format!("/api/v1/generation?id={id}"), None).await?;
        if status == StatusCode::NOT_FOUND {
            bail!("{}", missing(id));
        }
        self.data(status, &text)
    }

    pub async fn ask(&self, path: &str, body: Option<Bytes>) -> anyhow::Result<(StatusCode, Bytes)> {
        let url = &self.url;
        let uri: Uri = format!("{url}{path}").parse().with_context(|| format!("--url {url} is not an address"))?;
        let (client, headers) = (Client::default(), self.headers.clone());
        let (method, body) = body.map_or((Method::GET, Bytes::new()), |body| (Method::POST, body));
        let asking = async {
            let response = client.ask(method, &uri, headers, body.into()).await.map_err(|silence| silence.tls)?;
            let status = response.status();
            upstream::whole(response.into_body(), LARGEST_ANSWER).await.map(|text| (status, text)).map_err(|_| None)
        };
        match timeout(LIMIT, asking).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(trouble)) => bail!("{url} {}", silence(trouble, self.otherwise)),
            Err(_) => bail!("{url} did not answer within {} s", LIMIT.as_secs()),
        }
    }

    pub fn data(&self, status: StatusCode, text: &[u8]) -> anyhow::Result<String> {
        match status {
            StatusCode::OK => {
                let answer: Answer = serde_json::from_slice(text)
                    .with_context(|| format!("the answer of {} is not one of a gateway", self.url))?;
                Ok(answer.data.get().to_owned())
            }
            StatusCode::UNAUTHORIZED => bail!(
                "{} does not know the management key: set TIDEGATE_MANAGEMENT_KEY to one that `tidegate keys create \
                 --management` made there",
                self.url
            ),
            StatusCode::FORBIDDEN => bail!(
                "{} answers this only to management keys: set TIDEGATE_MANAGEMENT_KEY to one (`tidegate keys create \
                 --management`)",
                self.url
            ),
            status => bail!("{} answers {status}: {}", self.url, complaint(text)),
        }
    }
}

/// Why a gateway did not answer, and what can be done.
fn silence(trouble: Option<TlsTrouble>, otherwise: &str) -> String {
    match trouble {
        None => format!("could not be reached: start the gateway or correct --url{otherwise}"),
        Some(TlsTrouble::Certificate(why)) => {
            format!("shows a certificate that is not trusted here ({why}): name its authority's file in SSL_CERT_FILE")
        }
        Some(TlsTrouble::Other(why)) => format!("does not speak TLS as it should ({why}): is it an http:// address?"),
    }
}

/// What an error says, and where; several mistakes stand on lines of their own.
fn complaint(text: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
    let mut said = body["error"]["message"].as_str().unwrap_or("no reason was given").to_owned();
    for issue in body["error"]["metadata"]["issues"].as_array().into_iter().flatten() {
        let (path, message) = (issue["path"].as_str(), issue["message"].as_str());
        said.push_str(&format!("; {} {}", path.unwrap_or_default(), message.unwrap_or_default()));
    }
    let lines: Vec<Cow<'_, str>> = said.lines().map(shown).collect();
    lines.join("\n")
}

fn tell_plan(told: &Told) -> anyhow::Result<()> {
    let health = if told.health == "live" { "health as it is now" } else { "nobody is known to be ill" };
    say!(
        "{}: {}, {} endpoints, about {} tokens of input; {health}",
        shown(&told.requested.join(", ")),
        told.strategy,
        told.endpoints,
        told.input_tokens
    )?;
    say!("")?;
    let mut rows =
        vec![["PLACE", "ENDPOINT", "MODEL", "CREDENTIAL", "PRICE", "GROUP", "FIRST", "LEFT OUT"].map(str::to_owned)];
    rows.extend(told.candidates.iter().map(row));
    table(&rows)?;
    say!("")?;
    let first = match &*told.order {
        "conversation" => "Who comes first is what this conversation draws, or had last.",
        _ => "Where chance decides who comes first, the likeliest stands first.",
    };
    say!("PRICE is in dollars per million tokens. {first}")?;
    say!("At most {} are tried for a model, {} in all.", told.attempts_per_model, told.attempts_per_request)
}

fn row(candidate: &Candidate) -> [String; 8] {
    let is_tried = candidate.place.is_some();
    let left_out = match (&candidate.removed_by, &candidate.reason) {
        (Some(filter), Some(reason)) => format!("{filter}: {reason}"),
        (Some(filter), None) => filter.clone(),
        (None, _) => String::new(),
    };
    let mut state = candidate.group.clone();
    if candidate.cools_down {
        state.push_str(", told to wait");
    }
    if candidate.passed_over > 0.0 {
        state.push_str(&format!(", {:.0} % go past it", candidate.passed_over * 100.0));
    }
    [
        candidate.place.map_or_else(|| "-".to_owned(), |place| place.to_string()),
        candidate.endpoint.clone(),
        candidate.model.clone(),
        if is_tried { candidate.credential.clone().unwrap_or_else(|| "shared".to_owned()) } else { "-".to_owned() },
        candidate.price.map_or_else(|| "unknown".to_owned(), figure),
        state,
        if is_tried { format!("{} %", figure(candidate.probability * 100.0)) } else { "-".to_owned() },
        left_out,
    ]
}

/// To four places, without zeros at the end.
fn figure(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Columns as wide as what is in them.
fn table<const N: usize>(rows: &[[String; N]]) -> anyhow::Result<()> {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.clone().map(|cell| shown(&cell).into_owned())).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        say!("{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// What is told of a record.
#[derive(Deserialize)]
struct Record {
    id: String,
    model: String,
    provider_name: Option<String>,
    created_at: String,
    latency: Option<u32>,
    generation_time: u32,
    streamed: bool,
    cancelled: bool,
    finish_reason: Option<String>,
    tokens_prompt: Option<u64>,
    tokens_completion: Option<u64>,
    /// To the last digit.
    total_cost: Box<RawValue>,
    is_byok: bool,
    #[serde(default)]
    response_cache_source_id: Option<String>,
    provider_responses: Vec<Attempt>,
}

#[derive(Deserialize)]
struct Attempt {
    provider_name: String,
    model_permaslug: String,
    status: Option<u16>,
    latency: u32,
    is_byok: bool,
}

fn tell_past(text: &str) -> anyhow::Result<()> {
    let record: Record = serde_json::from_str(text).context("the record cannot be read")?;
    let attempts = &record.provider_responses;
    let has_answered = attempts.last().is_some_and(|last| last.status.is_some_and(|status| status < 300));
    let kind = if record.streamed { "streamed" } else { "not streamed" };
    say!("{} at {}, {kind}", record.id, record.created_at)?;
    say!("")?;
    // What the caller wrote is not kept; the first attempt was made for what it led to.
    let first = attempts.first().map_or(&record.model, |first| &first.model_permaslug);
    say!("tried first  {}", shown(first))?;
    // Who was called is known of it, but nothing of the calls: a process that dies keeps what it let in, not what came of it.
    let is_cut_off = attempts.is_empty() && record.response_cache_source_id.is_none();
    let asked = record.provider_name.as_deref().filter(|_| is_cut_off);
    match (&record.provider_name, has_answered) {
        (Some(provider), true) if *first == record.model => {
            say!("answered     {}, {}", shown(provider), shown(&record.model))?
        }
        (Some(provider), true) => {
            say!("answered     {}, {}, as another model of the list", shown(provider), shown(&record.model))?
        }
        (Some(provider), false) if asked.is_some() => say!("called       {}", shown(provider))?,
        _ => say!("answered     nobody")?,
    }
    let ended = match (record.cancelled, &record.finish_reason) {
        (true, _) => "the client left".to_owned(),
        (false, Some(reason)) => shown(reason).into_owned(),
        (false, None) if asked.is_some() => "with the gateway, which stopped in the middle of it".to_owned(),
        (false, None) => "without an answer".to_owned(),
    };
    say!("ended        {ended}")?;
    let content = record.latency.map(|ms| format!(", first content after {ms} ms")).unwrap_or_default();
    say!("took         {} ms{content}", record.generation_time)?;
    if let Some((prompt, completion)) = record.tokens_prompt.zip(record.tokens_completion) {
        say!("tokens       {prompt} in, {completion} out")?;
    }
    let own = if record.is_byok { ", through a credential of the customer's own" } else { "" };
    say!("cost         ${}{own}", record.total_cost)?;
    say!("")?;
    if asked.is_some() {
        return say!("What is charged is what was known of the answer.");
    }
    if attempts.is_empty() {
        return say!("No provider was called.");
    }
    let mut rows = vec![["ATTEMPT", "PROVIDER", "MODEL", "STATUS", "DURATION", "CREDENTIAL"].map(str::to_owned)];
    rows.extend(attempts.iter().enumerate().map(|(place, attempt)| {
        [
            (place + 1).to_string(),
            attempt.provider_name.clone(),
            attempt.model_permaslug.clone(),
            attempt.status.map_or_else(|| "broken".to_owned(), |status| status.to_string()),
            format!("{} ms", attempt.latency),
            if attempt.is_byok { "own" } else { "shared" }.to_owned(),
        ]
    }));
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_trusted_is_no_gateway_that_is_not_there() {
        let told = silence(Some(TlsTrouble::Certificate("UnknownIssuer".to_owned())), "; or else");
        assert!(told.contains("(UnknownIssuer)") && told.contains("SSL_CERT_FILE"), "{told}");
        assert!(!told.contains("start the gateway") && silence(None, "; or else").ends_with("correct --url; or else"));
    }
}
