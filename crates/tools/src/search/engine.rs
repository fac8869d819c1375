//! The engines, and how each is asked.

use std::fmt;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Uri};
use serde_json::{Value, json};
use tidegate_core::{Money, Secret};
use url::Url;

use super::{Domain, Found, Query};

/// Whose format is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Searxng,
    Brave,
    Tavily,
    Exa,
    Perplexity,
    /// Answers from the configuration; for tests.
    Static,
}

impl Kind {
    pub const NAMES: [&str; 6] = ["searxng", "brave", "tavily", "exa", "perplexity", "static"];

    pub fn parse(name: &str) -> Option<Self> {
        const ALL: [Kind; 6] = [Kind::Searxng, Kind::Brave, Kind::Tavily, Kind::Exa, Kind::Perplexity, Kind::Static];
        Self::NAMES.iter().position(|known| *known == name).map(|place| ALL[place])
    }

    /// Where the vendor serves it; nothing for what everybody runs for themselves.
    pub fn address(self) -> Option<&'static str> {
        match self {
            Self::Searxng | Self::Static => None,
            Self::Brave => Some("https://api.search.brave.com"),
            Self::Tavily => Some("https://api.tavily.com"),
            Self::Exa => Some("https://api.exa.ai"),
            Self::Perplexity => Some("https://api.perplexity.ai"),
        }
    }

    pub fn needs_key(self) -> bool {
        !matches!(self, Self::Searxng | Self::Static)
    }

    /// The most results that it gives for one question.
    fn most(self) -> usize {
        match self {
            Self::Brave | Self::Tavily | Self::Perplexity => 20,
            Self::Searxng | Self::Exa | Self::Static => 25,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Brave => "/res/v1/web/search",
            Self::Searxng | Self::Tavily | Self::Exa | Self::Perplexity | Self::Static => "/search",
        }
    }
}

/// An engine that the operator set up.
pub struct Engine {
    pub name: String,
    pub kind: Kind,
    /// Without a slash at its end.
    pub url: String,
    pub key: Option<Secret>,
    /// What a static one finds.
    pub results: Vec<Found>,
    pub fee: Fee,
}

/// What a search costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fee {
    pub per_call: Money,
    /// Results that a call may find for that.
    pub included: u64,
    /// For each one beyond them.
    pub per_extra: Money,
}

impl Fee {
    /// Of a search that found so many.
    pub fn of(&self, results: u64) -> Money {
        let extra = i64::try_from(results.saturating_sub(self.included)).unwrap_or(i64::MAX);
        self.per_call.plus(Money(self.per_extra.0.saturating_mul(extra)))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, .. } = self;
        out.debug_struct("Engine").field("name", name).field("kind", kind).finish_non_exhaustive()
    }
}

/// A question as it goes out.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Option<String>,
}

impl Engine {
    /// The question in the engine's format; nothing when its address or key cannot be sent.
    pub fn call(&self, query: &Query<'_>) -> Option<Call> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let address = format!("{}{}", self.url, self.kind.path());
        let count = query.most.min(self.kind.most());
        let mut members = Vec::new();
        let body = match self.kind {
            Kind::Searxng => {
                members.extend([("q", narrowed(query)), ("format", "json".to_owned())]);
                None
            }
            Kind::Brave => {
                // Without the markup that it otherwise puts around the words of the query.
                members.extend([("q", narrowed(query)), ("count", count.to_string())]);
                members.extend([("text_decorations", "false".to_owned()), ("extra_snippets", "true".to_owned())]);
                members.extend(query.country.map(|country| ("country", country.to_owned())));
                None
            }
            Kind::Tavily => Some(tavily(query, count)),
            Kind::Exa => Some(exa(query, count)),
            Kind::Perplexity => Some(perplexity(query, count)),
            Kind::Static => None,
        };
        if let Some(key) = &self.key {
            let (name, value) = self.authorised(key)?;
            headers.insert(name, value);
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let mut url = Url::parse(&address).ok()?;
        if !members.is_empty() {
            url.query_pairs_mut().extend_pairs(members);
        }
        let method = if body.is_some() { Method::POST } else { Method::GET };
        Some(Call { method, uri: url.as_str().parse().ok()?, headers, body: body.map(|body| body.to_string()) })
    }

    fn authorised(&self, key: &Secret) -> Option<(HeaderName, HeaderValue)> {
        let plain = |name| {
            let value = key.expose(HeaderValue::from_bytes).ok()?;
            Some((HeaderName::from_static(name), value))
        };
        let (name, mut value) = match self.kind {
            Kind::Brave => plain("x-subscription-token"),
            Kind::Exa => plain("x-api-key"),
            Kind::Tavily | Kind::Perplexity | Kind::Searxng | Kind::Static => {
                let value = key.expose(|key| HeaderValue::from_bytes(&[b"Bearer ", key].concat())).ok()?;
                Some((AUTHORIZATION, value))
            }
        }?;
        value.set_sensitive(true);
        Some((name, value))
    }
}

/// The words with the domains as the operators that search engines share.
fn narrowed(query: &Query<'_>) -> String {
    let mut words = query.text.to_owned();
    let sites: Vec<String> = hosts(query.allowed).iter().map(|host| format!("site:{host}")).collect();
    match sites.as_slice() {
        [] => {}
        [one] => words = format!("{words} {one}"),
        several => words = format!("{words} ({})", several.join(" OR ")),
    }
    for host in whole(query.excluded) {
        words.push_str(" -site:");
        words.push_str(&host);
    }
    words
}

fn hosts(domains: &[Domain]) -> Vec<String> {
    let mut hosts: Vec<String> = domains.iter().map(|domain| domain.host().to_owned()).collect();
    hosts.dedup();
    hosts
}

/// Those that are excluded with all that they hold: of one that is excluded in part the rest must stay.
fn whole(domains: &[Domain]) -> Vec<String> {
    let mut hosts: Vec<String> =
        domains.iter().filter(|domain| domain.is_whole()).map(|domain| domain.host().to_owned()).collect();
    hosts.dedup();
    hosts
}

fn put(body: &mut Value, name: &str, list: Vec<String>) {
    if !list.is_empty() {
        body[name] = json!(list);
    }
}

fn tavily(query: &Query<'_>, count: usize) -> Value {
    let mut body = json!({"query": query.text, "max_results": count});
    if let Some(mode) = query.mode.filter(|mode| matches!(*mode, "basic" | "advanced" | "fast" | "ultra-fast")) {
        body["search_depth"] = json!(mode);
    }
    put(&mut body, "include_domains", hosts(query.allowed));
    put(&mut body, "exclude_domains", whole(query.excluded));
    body
}

fn exa(query: &Query<'_>, count: usize) -> Value {
    const MODES: [&str; 6] = ["instant", "fast", "auto", "deep-lite", "deep", "deep-reasoning"];
    let mode = query.mode.filter(|mode| MODES.contains(mode)).unwrap_or("auto");
    let contents = json!({"text": {"maxCharacters": query.characters}});
    let mut body = json!({"query": query.text, "type": mode, "numResults": count, "contents": contents});
    put(&mut body, "includeDomains", hosts(query.allowed));
    put(&mut body, "excludeDomains", whole(query.excluded));
    if let Some(country) = query.country {
        body["userLocation"] = json!(country);
    }
    body
}

/// It takes one list: domains to keep to, or, with a minus, to leave out; the first wins.
fn perplexity(query: &Query<'_>, count: usize) -> Value {
    let mut body = json!({"query": query.text, "max_results": count});
    let allowed = hosts(query.allowed);
    let list = match allowed.is_empty() {
        true => whole(query.excluded).iter().map(|host| format!("-{host}")).collect(),
        false => allowed,
    };
    put(&mut body, "search_domain_filter", list);
    if let Some(country) = query.country {
        body["country"] = json!(country);
    }
    body
}
