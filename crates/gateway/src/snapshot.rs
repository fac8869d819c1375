//! One consistent view of the configuration. A reload builds a new one and swaps a pointer; requests under way keep
//! the one they started with.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};
use tidegate_core::Money;
use tidegate_core::id::random;
use tidegate_providers::credential::Credential;
use tidegate_providers::translate::Card;
use tidegate_providers::{Auth, Betas, Carriage, Protocol, place};
use tidegate_routing::byok::is_place;
use tidegate_routing::plan::Policy;
use tidegate_routing::{Catalogue, Draws, Endpoint};
use tidegate_store::vault::shape::AZURE_DOMAINS;
use tidegate_tools::sandbox::Sandbox;
use tidegate_tools::search::Engine;
use tidegate_tools::{moderation, ocr};

use crate::broadcast::Audience;
use crate::error_rules::ErrorRule;
use crate::health::Ward;
use crate::plugins::PdfEngine;
use crate::plugins::defaults::Defaults;
use crate::{egress, extract, files, ledger};

/// The slug of the simulated provider.
pub const SIMULATOR: &str = "simulator";

/// Everything that a reload may change.
pub struct Snapshot {
    pub settings: Settings,
    pub names: Names,
    pub catalogue: Catalogue,
    /// By `Endpoint::provider_index`.
    pub upstreams: Vec<Upstream>,
    /// By `Endpoint::place`.
    pub places: Vec<Place>,
    /// What is left to chance.
    pub draws: Draws,
    /// Where the health of its endpoints is kept; set when the snapshot is taken into use.
    pub ward: Ward,
}

impl Snapshot {
    pub fn new(settings: Settings, catalogue: Catalogue, upstreams: Vec<Upstream>, places: Vec<Place>) -> Self {
        let seed = settings.routing.seed.unwrap_or_else(|| u64::from_le_bytes(random()));
        let (names, draws, ward) = (Names::of(&settings), Draws::new(seed), Ward::default());
        Self { names, settings, catalogue, upstreams, places, draws, ward }
    }
}

/// What one endpoint can do, and where it is called. Addresses are built once: the client takes a path of ours, never one
/// from a request.
pub struct Place {
    pub card: Card,
    pub calls: Calls,
    /// The model can be talked to.
    pub talks: bool,
    /// The same endpoint in the provider's other protocols, for credentials whose owner names the protocol.
    pub others: Vec<(Protocol, Arc<Endpoint>)>,
}

impl Place {
    /// The endpoint as it is called with a credential of a customer, by what the credential is stored for: in another
    /// protocol where the customer's deployment of the model speaks that one alone.
    pub fn spoken(&self, stored: &str, model: &str) -> Option<&Arc<Endpoint>> {
        if self.others.is_empty() {
            return None;
        }
        let name = stored.split(' ').find_map(|scope| scope.strip_prefix(model)?.strip_prefix('='))?;
        let wanted = Protocol::parse(name)?;
        self.others.iter().find(|(protocol, _)| *protocol == wanted).map(|(_, endpoint)| endpoint)
    }
}

/// How it is stored with a credential that a deployment of a model speaks one protocol alone. It stands among addresses and
/// is never taken for one: none ends so.
pub fn spoken_scope(model: &str, protocol: Protocol) -> String {
    format!("{model}={}", protocol.as_str())
}

/// The addresses of one endpoint.
#[derive(Clone, Debug)]
pub struct Calls {
    pub whole: Uri,
    pub stream: Uri,
    /// Where tokens are counted; not every protocol has such a place.
    pub count: Option<Uri>,
    /// Where pictures are made; the same.
    pub images: Option<Uri>,
    /// Where embeddings are made; the same.
    pub embeddings: Option<Uri>,
    /// Where documents are ranked; the same.
    pub rerank: Option<Uri>,
    /// Where texts are spoken, and where what is said is written down; the same.
    pub speech: Option<Uri>,
    pub transcriptions: Option<Uri>,
}

impl Calls {
    /// Below a base address.
    pub fn of(base: &str, protocol: Protocol, carriage: Carriage, model: &str) -> Result<Self, place::BadModel> {
        let uri = |path: String| format!("{base}{path}").parse::<Uri>().map_err(|_| place::BadModel);
        Ok(Self {
            whole: uri(place::call(protocol, carriage, model, false)?)?,
            stream: uri(place::call(protocol, carriage, model, true)?)?,
            count: place::count(protocol, carriage, model).map(uri).transpose()?,
            images: place::images(protocol, carriage, model).map(uri).transpose()?,
            embeddings: place::embeddings(protocol, model).map(uri).transpose()?,
            rerank: place::rerank(protocol).map(|path| uri(path.to_owned())).transpose()?,
            speech: place::speech(protocol, carriage, model).map(uri).transpose()?,
            transcriptions: place::transcriptions(protocol).map(|path| uri(path.to_owned())).transpose()?,
        })
    }

    /// The same with a query that belongs to the address.
    pub fn with_query(self, query: Option<&str>) -> Result<Self, place::BadModel> {
        let Some(query) = query else { return Ok(self) };
        let with = |uri: Uri| {
            let mark = if uri.query().is_some() { '&' } else { '?' };
            format!("{uri}{mark}{query}").parse::<Uri>().map_err(|_| place::BadModel)
        };
        Ok(Self {
            whole: with(self.whole)?,
            stream: with(self.stream)?,
            count: self.count.map(with).transpose()?,
            images: self.images.map(with).transpose()?,
            embeddings: self.embeddings.map(with).transpose()?,
            rerank: self.rerank.map(with).transpose()?,
            speech: self.speech.map(with).transpose()?,
            transcriptions: self.transcriptions.map(with).transpose()?,
        })
    }
}

/// Branded names, made once.
pub struct Names {
    /// Headers that ask for routing metadata, the legacy spellings last.
    pub metadata_headers: Vec<HeaderName>,
    pub warnings_header: HeaderName,
    pub count_header: HeaderName,
    /// Headers that ask for a kept answer, say how long one is kept, and have one dropped.
    pub cache_headers: Vec<HeaderName>,
    pub cache_ttl_headers: Vec<HeaderName>,
    pub cache_clear_headers: Vec<HeaderName>,
    /// Headers that name the application.
    pub title_headers: Vec<HeaderName>,
    /// Headers that name the session, beside our own.
    pub session_headers: Vec<HeaderName>,
    /// What is said of a kept answer.
    pub cache_status_header: HeaderName,
    pub cache_age_header: HeaderName,
    pub cache_ttl_header: HeaderName,
    pub cache_source_header: HeaderName,
    /// The member that carries routing metadata.
    pub metadata_member: String,
    /// The comment that keeps a stream alive before its content.
    pub processing: Bytes,
}

impl Names {
    pub(crate) fn of(settings: &Settings) -> Self {
        let header = |brand: &str, suffix: &str| {
            HeaderName::from_bytes(format!("x-{brand}-{suffix}").as_bytes())
                .expect("a brand is lower-case letters and digits")
        };
        let brands = || std::iter::once(&settings.brand).chain(&settings.brand_aliases);
        let current = brands().map(|brand| header(brand, "metadata"));
        let all = |suffix: &str| brands().map(|brand| header(brand, suffix)).collect();
        let legacy = brands().map(|brand| header(brand, "experimental-metadata"));
        Self {
            metadata_headers: current.chain(legacy).collect(),
            warnings_header: header(&settings.brand, "warnings"),
            count_header: header(&settings.brand, "count"),
            cache_headers: all("cache"),
            cache_ttl_headers: all("cache-ttl"),
            cache_clear_headers: all("cache-clear"),
            title_headers: all("title"),
            session_headers: settings.routing.session_headers.clone(),
            cache_status_header: header(&settings.brand, "cache-status"),
            cache_age_header: header(&settings.brand, "cache-age"),
            cache_ttl_header: header(&settings.brand, "cache-ttl"),
            cache_source_header: header(&settings.brand, "cache-source-id"),
            metadata_member: format!("{}_metadata", settings.brand),
            processing: Bytes::from(format!(": {} PROCESSING\n\n", settings.brand.to_uppercase())),
        }
    }
}

/// How long a provider is waited for, where that is not as long as all are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Patience {
    pub first_content: Option<Duration>,
    pub first_content_alone: Option<Duration>,
    pub idle: Option<Duration>,
}

impl Upstream {
    /// Until the first content of a stream, by whether there is another endpoint to try.
    pub fn first_content(&self, settings: &Settings, has_alternative: bool) -> Duration {
        match has_alternative {
            true => self.patience.first_content.unwrap_or(settings.first_content),
            false => self.patience.first_content_alone.unwrap_or(settings.first_content_alone),
        }
    }

    /// Between two signs of life.
    pub fn idle(&self, settings: &Settings) -> Duration {
        self.patience.idle.unwrap_or(settings.idle)
    }
}

/// A provider as it is called.
pub struct Upstream {
    pub slug: Arc<str>,
    pub display_name: Arc<str>,
    pub protocol: Protocol,
    /// Scheme, host and port; a customer's credential is stored for them.
    pub origin: Arc<str>,
    /// Whether the operator's own key may be used.
    pub shared: bool,
    pub carriage: Carriage,
    /// The address with its gaps, for customers whose credentials name what fills them.
    pub template: Option<Box<str>>,
    /// What answers a question that costs nothing: which models there are.
    pub models_uri: Option<Uri>,
    pub auth: Auth,
    /// The operator's own.
    pub credential: Option<Credential>,
    /// Where a signature is valid; none where nothing is signed.
    pub region: Option<Box<str>>,
    pub betas: Betas,
    /// Whether it stops, and stops charging, when nobody listens any more.
    pub supports_cancel: bool,
    /// Whether it is asked for all of a request or not at all.
    pub is_strict: bool,
    pub patience: Patience,
    /// What the operator knows of its errors, tried in this order before what is known of them otherwise.
    pub error_rules: Arc<[ErrorRule]>,
}

impl Upstream {
    /// Whether a credential that was stored for an address may be sent here.
    pub fn takes(&self, stored: &str) -> bool {
        let is_there = |template: &str| is_place(&stored_for(template), stored);
        self.template.as_deref().is_some_and(is_there) || is_place(&self.origin, stored)
    }
}

/// What a credential must be stored for to be sent to an address with gaps: scheme, host and port, or several with a space
/// between them. Azure has a host for each kind of resource, and a customer's deployment may be at any of them.
pub fn stored_for(template: &str) -> Cow<'_, str> {
    let origin = origin_of(template);
    if !origin.ends_with(".azure.com") {
        return origin.into();
    }
    let all: Vec<String> = AZURE_DOMAINS.iter().map(|domain| format!("https://{{resource}}{domain}")).collect();
    all.join(" ").into()
}

/// Scheme, host and port of an address that may have gaps.
pub fn origin_of(address: &str) -> &str {
    let start = address.find("://").map_or(0, |place| place + 3);
    let end = address[start..].find('/').map_or(address.len(), |place| start + place);
    &address[..end]
}

/// Names, limits and timers; the defaults are those of the operator guide.
#[derive(Clone, Debug)]
pub struct Settings {
    pub brand: String,
    pub brand_aliases: Vec<String>,
    pub region: String,
    pub docs_url: String,
    /// Where callers reach this deployment.
    pub public_url: String,
    pub key_prefixes: Vec<String>,
    /// Origins whose pages may call with a key; a star is for all.
    pub cors_origins: Vec<HeaderValue>,
    pub max_body_bytes: usize,
    pub in_flight_node: usize,
    pub in_flight_workspace: usize,
    pub in_flight_key: usize,
    /// What this process may use; otherwise what its control group or the machine has.
    pub memory_bytes: Option<u64>,
    /// Failed authentications per minute that one source may make before it is held off.
    pub auth_failures_per_minute: u32,
    /// Inference requests per minute: of a key, of a workspace, from an address; 0 is no limit.
    pub key_per_minute: u32,
    /// Requests for free variants that a key may make; 0 is no limit.
    pub free_per_minute: u32,
    pub free_per_day: u32,
    pub workspace_per_minute: u32,
    pub address_per_minute: u32,
    /// Management operations per minute and key.
    pub management_per_minute: u32,
    /// Exchanges of authorization codes per minute and address, and failed ones.
    pub exchanges_per_minute: u32,
    pub exchange_failures_per_minute: u32,
    pub first_content: Duration,
    pub first_content_alone: Duration,
    pub idle: Duration,
    pub total_streamed: Duration,
    pub total_whole: Duration,
    pub early_commit: Duration,
    pub keep_alive: Duration,
    pub max_event_bytes: usize,
    pub max_answer_bytes: usize,
    /// Whether translated answers come event by event also for clients that want them whole.
    pub always_stream: bool,
    /// The room for answers that are kept; none are in 0 bytes.
    pub cache_bytes: usize,
    /// Where callers may point at.
    pub egress: egress::Rules,
    /// The program that reads documents of strangers: this one. Without it they cannot be read.
    pub extractor: Option<PathBuf>,
    pub parser: extract::Limits,
    pub documents: Documents,
    /// Who judges what people write, for requests that ask for it.
    pub moderation: Option<Arc<Moderation>>,
    /// What is set for plugins, below requests or above them.
    pub plugin_defaults: Defaults,
    /// Panels of models, by their names.
    pub fusion: BTreeMap<String, FusionPreset>,
    /// Where more can be bought.
    pub credits_url: Option<String>,
    pub ledger: ledger::Terms,
    pub billing: Billing,
    pub unknown_price: UnknownPrice,
    pub routing: Routing,
    pub tools: Tools,
    /// How much callers and models may keep in files.
    pub files: files::Limits,
    /// Who is told of requests.
    pub audience: Arc<Audience>,
    /// Days for which what was said is kept, where it is kept at all.
    pub content_days: u32,
}

/// Who makes text of documents for models that cannot read them.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    /// For requests that name nobody.
    pub default: PdfEngine,
    /// What reads pages that are pictures.
    pub ocr: Option<Arc<ocr::Service>>,
}

/// A panel of models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FusionPreset {
    pub analysis_models: Vec<String>,
    /// Who answers and compares; the first of the panel where nobody is named.
    pub model: Option<String>,
}

/// Who judges what people write.
#[derive(Debug)]
pub struct Moderation {
    pub backend: moderation::Backend,
    /// Whether a request is refused when nobody answers.
    pub denies_on_error: bool,
    pub price_per_call: Money,
}

/// How server tools are run.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Names of tools that nobody may use.
    pub disabled: Vec<String>,
    /// Calls that a request may make, whatever it says.
    pub max_steps: u64,
    /// When a loop ends.
    pub loop_deadline: Duration,
    /// Calls of a turn that run at once.
    pub parallelism: usize,
    /// Bytes of results that a model is given in one request.
    pub result_budget: usize,
    /// Whether results without a block of their own are shown in one that no vendor knows.
    pub generic_result_block: bool,
    pub search: Search,
    /// Who draws, for requests that name nobody.
    pub image_model: String,
    /// Where commands run; none: nowhere.
    pub sandbox: Option<Arc<Sandbox>>,
}

/// The engines that the web is searched with.
#[derive(Clone, Debug, Default)]
pub struct Search {
    pub engines: Vec<Arc<Engine>>,
    /// For requests that name none.
    pub default: Option<Arc<Engine>>,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            disabled: Vec::new(),
            max_steps: 100,
            loop_deadline: Duration::from_secs(600),
            parallelism: 8,
            result_budget: 400_000,
            generic_result_block: false,
            search: Search::default(),
            image_model: "openai/gpt-5-image".to_owned(),
            sandbox: None,
        }
    }
}

/// How a model is chosen where the request leaves it open.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Auto {
    /// By pattern; empty: all that are listed.
    pub candidates: Vec<String>,
    /// Which of them come first, by the kind of work; `general` for all others.
    pub ranking: BTreeMap<String, Vec<String>>,
}

/// How those who serve are chosen.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Routing {
    /// Makes what is left to chance repeatable.
    pub seed: Option<u64>,
    /// Whether what calls say about their endpoints decides who is called next.
    pub health: bool,
    /// Whether an endpoint that failed is called again when no other is left.
    pub repeat: bool,
    /// How a model is chosen, and how one is by those who try something new.
    pub auto: Auto,
    pub auto_beta: Auto,
    /// The model that writes requests by description.
    pub bodybuilder: Option<String>,
    /// How well models write programs, by their ids, where that is not what the catalogue says.
    pub coding_percentiles: BTreeMap<String, f64>,
    /// Headers that name a session where nothing else does.
    pub session_headers: Vec<HeaderName>,
    pub policy: Policy,
}

/// What callers pay for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Billing {
    /// Whether an organisation can spend only what it has been given.
    pub enabled: bool,
    /// What looks left where nothing is bought.
    pub headroom: Money,
    /// Of the list price of calls through customers' own credentials, in millionths.
    pub byok_fee: u32,
}

impl Default for Billing {
    fn default() -> Self {
        Self { enabled: false, headroom: Money(1_000_000 * 1_000_000_000), byok_fee: 0 }
    }
}

/// What is done with an endpoint whose price nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UnknownPrice {
    /// It serves only those whom no limit binds.
    #[default]
    RefuseLimited,
    Refuse,
    Allow,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            brand: "tidegate".to_owned(),
            brand_aliases: Vec::new(),
            region: "local".to_owned(),
            docs_url: "http://127.0.0.1:8080/docs".to_owned(),
            public_url: "http://127.0.0.1:8080".to_owned(),
            cors_origins: Vec::new(),
            key_prefixes: vec!["sk-tg-v1-".to_owned(), "sk-tgm-v1-".to_owned()],
            max_body_bytes: 32 << 20,
            in_flight_node: 8192,
            in_flight_workspace: 1024,
            in_flight_key: 256,
            memory_bytes: None,
            auth_failures_per_minute: 10,
            key_per_minute: 0,
            free_per_minute: 20,
            free_per_day: 50,
            workspace_per_minute: 0,
            address_per_minute: 0,
            management_per_minute: 600,
            exchanges_per_minute: 20,
            exchange_failures_per_minute: 5,
            first_content: Duration::from_secs(30),
            first_content_alone: Duration::from_secs(120),
            idle: Duration::from_secs(120),
            total_streamed: Duration::from_secs(900),
            total_whole: Duration::from_secs(600),
            early_commit: Duration::from_secs(10),
            keep_alive: Duration::from_secs(10),
            max_event_bytes: 16 << 20,
            max_answer_bytes: 64 << 20,
            always_stream: false,
            cache_bytes: 256 << 20,
            egress: egress::Rules::default(),
            extractor: None,
            parser: extract::Limits::default(),
            documents: Documents::default(),
            moderation: None,
            plugin_defaults: Defaults::new(),
            fusion: BTreeMap::new(),
            credits_url: None,
            ledger: ledger::Terms::default(),
            billing: Billing::default(),
            unknown_price: UnknownPrice::default(),
            routing: Routing::default(),
            tools: Tools::default(),
            files: files::Limits::default(),
            audience: Arc::default(),
            content_days: 90,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_that_speaks_one_protocol_alone_has_its_model_called_in_it() {
        let chat = Arc::new(Endpoint::new("openai/a", "azure"));
        let calls = Calls::of("https://nowhere.invalid", Protocol::Responses, Carriage::Plain, "a").unwrap();
        let others = vec![(Protocol::Chat, chat.clone())];
        let place = Place { card: Card::default(), calls, talks: true, others };
        let scope = |model| spoken_scope(model, Protocol::Chat);
        for (stored, model, is_chat) in [
            (format!("https://my.azure.com {}", scope("openai/a")), "openai/a", true),
            (format!("https://my.azure.com {}", scope("openai/a")), "openai/b", false),
            (format!("https://my.azure.com {}", scope("openai/aa")), "openai/a", false),
            (format!("https://my.azure.com {}", spoken_scope("openai/a", Protocol::Responses)), "openai/a", false),
            // As earlier releases stored it.
            ("https://my.azure.com".to_owned(), "openai/a", false),
        ] {
            let found = place.spoken(&stored, model);
            assert_eq!(found.is_some_and(|found| Arc::ptr_eq(found, &chat)), is_chat, "{stored}");
        }
    }
}
