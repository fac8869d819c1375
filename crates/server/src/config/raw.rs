//! The configuration file as it is written. Nothing past `config::check` meets these types.

mod io_logging;
mod moderation;
mod parser;
mod plugins;
mod prices;
mod tools;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::destinations::{Destination, Observability};

pub use io_logging::IoLogging;
pub use moderation::Moderation;
pub use parser::{Ocr, Parser};
pub use plugins::{Fusion, FusionPreset, Plugins};
pub use prices::{Decimal, PriceOverride, PriceSet, Pricing, TierPrice};
pub use tools::{Files, Sandbox, SearchEngine, Tools, WebSearch};

/// The whole file. Every part is optional.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub service: Service,
    pub storage: Storage,
    pub secrets: Secrets,
    pub state: State,
    pub keys: Keys,
    pub oauth: Oauth,
    pub oidc: Oidc,
    pub limits: Limits,
    pub stream: Stream,
    pub upstream: UpstreamTimers,
    pub cache: Cache,
    pub egress: Egress,
    pub parser: Parser,
    pub moderation: Moderation,
    pub plugins: Plugins,
    pub fusion: Fusion,
    pub routing: Routing,
    pub tools: Tools,
    pub files: Files,
    pub ledger: Ledger,
    pub pricing: PricePolicy,
    pub billing: Billing,
    pub log: Log,
    pub metrics: Metrics,
    pub observability: Observability,
    pub io_logging: IoLogging,
    pub sim: Sim,
    /// Names of your own for models: `house-model = "anthropic/claude-sonnet-5"`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub aliases: BTreeMap<String, String>,
    /// Where models can be called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<Provider>,
    /// Models that add to the built-in catalogue or replace entries of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<Model>,
    /// Who is told of requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Destination>,
}

/// Who this deployment is and where it listens.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// The brand: every branded header, field, model and tool name derives from it.
    pub name: String,
    /// Further brands accepted on input.
    pub name_aliases: Vec<String>,
    pub listen: String,
    /// The address people use, where it differs from the one we listen on.
    pub public_url: Option<String>,
    /// The certificate and those that vouch for it, in PEM form, and its key: `file:PATH`, `env:NAME`, `cmd:[...]`. With them
    /// we speak https; without, put a proxy in front that does. They are read again every hour, and on a reload.
    pub tls_certificate: Option<String>,
    pub tls_key: Option<String>,
    /// Proxies in front whose `X-Forwarded-For` is believed: addresses or ranges such as `10.0.0.0/8`.
    pub trusted_proxies: Vec<String>,
    /// Origins whose pages may call models from a browser, such as `https://app.example.com`; `*` is for all. Each call still
    /// needs a key. Nothing is managed from there.
    pub cors_origins: Vec<String>,
    /// Shown in routing metadata.
    pub region: String,
    /// Where error texts point to; default: `public_url` and `/docs`.
    pub docs_url: Option<String>,
    /// Where people can buy more; named to those whose credits are used up.
    pub credits_url: Option<String>,
    /// Seconds between a stop signal and the end of accepting, so that load balancers notice first.
    pub drain_delay: u64,
    /// Seconds that running requests get after that.
    pub drain_timeout: u64,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            name: "tidegate".to_owned(),
            name_aliases: Vec::new(),
            listen: "127.0.0.1:8080".to_owned(),
            public_url: None,
            tls_certificate: None,
            tls_key: None,
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            region: "local".to_owned(),
            docs_url: None,
            credits_url: None,
            drain_delay: 5,
            drain_timeout: 120,
        }
    }
}

/// Where accounts and records are kept.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Storage {
    /// `sqlite:FILE`, relative to the data folder, or `postgres://user@host/database`.
    pub url: String,
}

impl Default for Storage {
    fn default() -> Self {
        Self { url: "sqlite:tidegate.db".to_owned() }
    }
}

/// What gateways share besides the store. Nothing of it is needed.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// A Valkey or Redis server in which all gateways count requests a minute together (`limits.*_rpm`), and nothing else:
    /// `redis://user:password@host:6379/0`, or `env:NAME`, `file:PATH`, `cmd:[…]` that yields it. Without it, or while it
    /// does not answer, each gateway counts for itself.
    pub redis_url: Option<String>,
    /// Milliseconds that a request waits for it at most.
    pub redis_timeout_ms: u64,
}

impl Default for State {
    fn default() -> Self {
        Self { redis_url: None, redis_timeout_ms: 5 }
    }
}

/// What stored secrets are encrypted with.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Secrets {
    /// `file:PATH` (relative to the data folder), `env:NAME` or `cmd:["program", "argument"]`.
    pub master_key: String,
}

impl Default for Secrets {
    fn default() -> Self {
        Self { master_key: "file:master.key".to_owned() }
    }
}

/// Keys that Tidegate issues.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Keys {
    pub prefix: String,
    pub management_prefix: String,
    /// The first management key, instead of a random one: `env:NAME`, `file:PATH` or `cmd:[…]`. Used at the first start only.
    /// 16 visible characters or more.
    pub management_key: Option<String>,
    /// The first inference key, instead of a random one with a daily limit. Used at the first start only.
    pub inference_key: Option<String>,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            prefix: "sk-tg-v1-".to_owned(),
            management_prefix: "sk-tgm-v1-".to_owned(),
            management_key: None,
            inference_key: None,
        }
    }
}

/// Authorization codes, which applications exchange for keys.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Oauth {
    /// Seconds that a code lives: 60 to 600.
    pub code_ttl: u64,
    /// Codes of an account that may wait for their exchange.
    pub max_pending_codes: u32,
    /// Whether the method `plain` is accepted.
    pub allow_plain: bool,
    /// Whether verifiers and plain challenges must have the 43 to 128 characters of RFC 7636.
    pub strict_pkce: bool,
    /// What a code that comes a second time does to its key: `disable` or `deny` (nothing).
    pub code_replay: String,
}

impl Default for Oauth {
    fn default() -> Self {
        Self {
            code_ttl: 600,
            max_pending_codes: 1000,
            allow_plain: true,
            strict_pkce: false,
            code_replay: "disable".to_owned(),
        }
    }
}

/// Sign-in of people with an issuer of yours (OpenID Connect), beside management keys: for the dashboard and for the page
/// on which they authorize applications.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Oidc {
    /// Such as `https://login.example.com`; none: people sign in with management keys alone.
    pub issuer: Option<String>,
    /// What this gateway is called there. Its redirect address is `service.public_url` and `/dashboard/oidc/callback`.
    pub client_id: Option<String>,
    /// `env:NAME`, `file:PATH`, `cmd:[...]` or the value itself; none for a public client.
    pub client_secret: Option<String>,
    /// What people are told that they sign in with; the issuer's host unless you say so.
    pub name: Option<String>,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// Whether somebody whom nobody added becomes a member at their first sign-in.
    pub auto_join: bool,
    /// If only people with addresses of these domains may: `["example.com"]`.
    pub join_domains: Vec<String>,
    /// Whether addresses count that the issuer does not call verified. Say so only of an issuer at which people cannot
    /// choose their addresses.
    pub trust_email: bool,
}

impl Default for Oidc {
    fn default() -> Self {
        Self {
            issuer: None,
            client_id: None,
            client_secret: None,
            name: None,
            scopes: ["openid", "email", "profile"].map(str::to_owned).to_vec(),
            auto_join: false,
            join_domains: vec![],
            trust_email: false,
        }
    }
}

/// Sizes and counts beyond which a request is refused.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open client connections; beyond it, accepting pauses.
    pub connections: usize,
    /// Bytes of an inference request, after decompression.
    pub max_body_bytes: usize,
    /// Inference requests at a time: on this node, per workspace, per key.
    pub in_flight_node: usize,
    pub in_flight_workspace: usize,
    pub in_flight_key: usize,
    /// Bytes of memory that this process may use, at least 64 MiB. Without it, what its control group or the machine has.
    /// From 80 percent on, more and more is refused: lists, free models, keys with much under way, at 95 percent all new calls.
    pub memory_bytes: Option<u64>,
    /// Failed authentications per minute and address before it is held off.
    pub auth_failures_per_minute: u32,
    /// Inference requests per minute on this node, or on all that share `state.redis_url`: of a key, of a workspace, from an
    /// address. 0: as many as they like.
    #[serde(alias = "rpm")]
    pub key_rpm: u32,
    pub workspace_rpm: u32,
    pub address_rpm: u32,
    /// Requests for free variants (`:free`) per key on this node: in a minute, in a day of UTC. 0: as many as they like.
    pub free_rpm: u32,
    pub free_rpd: u32,
    /// Management operations per minute and key.
    pub management_rpm: u32,
    /// Exchanges of authorization codes per minute and address: all of them, and failed ones.
    pub exchanges_per_minute: u32,
    pub exchange_failures_per_minute: u32,
    /// Milliseconds: without a byte of a request body; for the whole body; for a client that does not read.
    pub body_idle_ms: u64,
    pub body_total_ms: u64,
    pub write_stall_ms: u64,
    /// Milliseconds for the head of a request, and between two requests of a connection.
    pub header_read_ms: u64,
    pub keep_alive_idle_ms: u64,
    /// Milliseconds for a handshake, where we speak https.
    pub tls_handshake_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            max_body_bytes: 32 << 20,
            in_flight_node: 8192,
            in_flight_workspace: 1024,
            in_flight_key: 256,
            memory_bytes: None,
            auth_failures_per_minute: 10,
            key_rpm: 0,
            workspace_rpm: 0,
            address_rpm: 0,
            free_rpm: 20,
            free_rpd: 50,
            management_rpm: 600,
            exchanges_per_minute: 20,
            exchange_failures_per_minute: 5,
            body_idle_ms: 15_000,
            body_total_ms: 300_000,
            write_stall_ms: 60_000,
            header_read_ms: 10_000,
            keep_alive_idle_ms: 75_000,
            tls_handshake_ms: 10_000,
        }
    }
}

/// Answers that are streamed.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Stream {
    /// Milliseconds without content after which the status is sent anyway; 0: never.
    pub early_commit_ms: u64,
    /// Milliseconds of silence after which a client gets a sign of life.
    pub keep_alive_ms: u64,
}

impl Default for Stream {
    fn default() -> Self {
        Self { early_commit_ms: 10_000, keep_alive_ms: 10_000 }
    }
}

/// How long an upstream may take, in milliseconds.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamTimers {
    /// Until the first content of a stream, when there is another endpoint to try.
    pub first_content_ms: u64,
    /// The same when there is none.
    pub first_content_alone_ms: u64,
    /// Between two signs of life.
    pub idle_ms: u64,
    pub total_streamed_ms: u64,
    /// For an answer that comes whole. One that has not begun after half of it is looked for elsewhere, if it can be.
    pub total_whole_ms: u64,
    /// Bytes of one event, and of a whole answer.
    pub max_event_bytes: usize,
    pub max_answer_bytes: usize,
    /// Whether upstreams that do not speak the Messages format are asked for streams also where the client wants a whole
    /// answer, which is then put together here: one that stops coming is noticed, nothing on the way takes a long one for
    /// dead, and of one whose client leaves it is known how much there was. It costs work for every piece, and some
    /// servers are better at whole answers.
    pub always_stream: bool,
}

impl Default for UpstreamTimers {
    fn default() -> Self {
        Self {
            first_content_ms: 30_000,
            first_content_alone_ms: 120_000,
            idle_ms: 120_000,
            total_streamed_ms: 900_000,
            total_whole_ms: 600_000,
            max_event_bytes: 16 << 20,
            max_answer_bytes: 64 << 20,
            always_stream: false,
        }
    }
}

/// Answers that are kept for requests that ask for it (`X-Tidegate-Cache: true`).
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// Bytes of memory for all of them; what was not used for longest goes first. 0: none are kept.
    pub max_bytes: usize,
}

impl Default for Cache {
    fn default() -> Self {
        Self { max_bytes: 256 << 20 }
    }
}

/// What is fetched because a caller points at it: images and documents by URL, for models that take only bytes.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Egress {
    /// What may be called although it is not public: ranges such as `10.20.0.0/16` and exact host names. Callers can then
    /// make the gateway fetch from there.
    pub allow: Vec<String>,
    /// Ports that may be called.
    pub ports: Vec<u16>,
}

impl Default for Egress {
    fn default() -> Self {
        Self { allow: Vec::new(), ports: vec![80, 443] }
    }
}

/// Who is asked first among those who can serve a request.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Routing {
    /// Makes every choice by chance repeatable; for tests.
    pub seed: Option<u64>,
    /// Whether endpoints that fail are left alone for a while. Otherwise everyone is tried in the order of the plan,
    /// whatever happened before.
    pub health: bool,
    /// Whether an endpoint that failed for a passing reason is called again, after a moment, when no other is left: at
    /// most three calls per model.
    pub repeat: bool,
    /// How `tidegate/auto` chooses.
    pub auto: Auto,
    /// How `tidegate/auto-beta` does, to try something else first. What is not said here is as for `auto`.
    pub auto_beta: Auto,
    /// Who `tidegate/bodybuilder` asks.
    pub bodybuilder: Bodybuilder,
    /// Earlier names of `auto.candidates` and `auto.ranking`.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub auto_candidates: Vec<String>,
    #[schemars(skip)]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub auto_ranking: BTreeMap<String, Vec<String>>,
    /// How well models write programs, by their ids, for `tidegate/pareto-code`: instead of the `benchmarks` of the model.
    pub coding_percentiles: BTreeMap<String, f64>,
    /// Parts of input and of output in the price by which endpoints are compared.
    pub price_blend: [f64; 2],
    /// How endpoints are sorted for requests that do not say it: `price`, `throughput`, `latency` or `exacto`. Without it
    /// chance decides, and the cheap win it more often.
    pub default_sort: Option<String>,
    /// Headers that name the session of a request which has neither `session_id` nor `x-session-id`, such as
    /// `x-openwebui-chat-id` or `x-claude-code-session-id`; the first that is there counts.
    pub session_headers: Vec<String>,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            seed: None,
            health: true,
            repeat: true,
            auto: Auto::default(),
            auto_beta: Auto::default(),
            bodybuilder: Bodybuilder::default(),
            auto_candidates: Vec::new(),
            auto_ranking: BTreeMap::new(),
            coding_percentiles: BTreeMap::new(),
            price_blend: [3.0, 1.0],
            default_sort: None,
            session_headers: Vec::new(),
        }
    }
}

/// How a model is chosen where the request leaves it open.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Auto {
    /// Models that are chosen from, by pattern (`anthropic/*`); empty: all that are listed.
    pub candidates: Vec<String>,
    /// Which of them are preferred, by the kind of work (`code:generation`, `translation`, …; `general` for all others).
    pub ranking: BTreeMap<String, Vec<String>>,
}

/// Requests by description.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Bodybuilder {
    /// The model that writes them; without one, `tidegate/bodybuilder` is not there.
    pub model: Option<String>,
}

/// How calls are metered.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ledger {
    /// When what is written to the journal reaches the disk: `interval` (within 50 ms; a killed process loses nothing, a
    /// power cut at most that) or `always` (before anyone is answered).
    pub sync: String,
    /// What happens to a running answer that costs more than there is: `finish` or `cut`.
    pub on_exhausted: String,
    /// What happens to new calls while the journal cannot be written: `refuse`, or `serve` without metering them.
    pub on_unavailable: String,
    /// Output tokens that are held for a call at most. Without it, all that the call may answer is held, and no limit is
    /// ever passed. With it more calls fit at a time, and a limit may be passed by the calls under way, each by what it
    /// answers beyond this.
    pub reserve_output_tokens: Option<u64>,
    /// Seconds that a node goes on spending what it holds of limits without word from the store.
    pub lease_hold: u64,
    /// Days that records of calls are kept, at least 7; 0: for ever. What they add up to is always kept.
    pub retention_days: u32,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            sync: "interval".to_owned(),
            on_exhausted: "finish".to_owned(),
            on_unavailable: "refuse".to_owned(),
            reserve_output_tokens: None,
            lease_hold: 600,
            retention_days: 0,
        }
    }
}

/// Calls whose price nobody knows.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PricePolicy {
    /// What is done with an endpoint that has no price: `refuse_limited` (it serves only those whom no limit of money
    /// binds), `refuse`, or `allow` (it serves all, and its calls count for nothing).
    pub unknown: String,
}

impl Default for PricePolicy {
    fn default() -> Self {
        Self { unknown: "refuse_limited".to_owned() }
    }
}

/// What callers pay for.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Billing {
    /// Whether an organisation can spend only what it has been given.
    pub enabled: bool,
    /// Dollars that look left to a client where nothing has to be bought.
    pub headroom: Decimal,
    /// What a call through a customer's own credential costs, in percent of its list price.
    pub byok_fee_percent: Decimal,
}

impl Default for Billing {
    fn default() -> Self {
        Self { enabled: false, headroom: Decimal::new("1000000"), byok_fee_percent: Decimal::new("0") }
    }
}

/// What is said of requests and troubles: as JSON to standard output, for people to standard error.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `auto` (text on a terminal, JSON otherwise), `text` or `json`: then nothing else goes to standard output, and the first
    /// screen with its keys goes to standard error.
    pub format: String,
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,tidegate_gateway=debug`.
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: "auto".to_owned(), level: "info".to_owned() }
    }
}

/// Where Prometheus reads.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// A listener of its own without a key; without it, `/metrics` needs a management key.
    pub listen: Option<String>,
}

/// The built-in simulated provider.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sim {
    pub enabled: bool,
}

impl Default for Sim {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// One provider. A known slug brings protocol, address and way of authentication.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// A known one, such as `vllm`, also says how its server differs from others. One that is not known and speaks
    /// `anthropic` is taken for a relay to Anthropic.
    pub slug: String,
    /// The name shown to people.
    pub display_name: Option<String>,
    /// `anthropic`, `openai-chat`, `openai-responses`, `gemini`, `bedrock-converse` or `cohere`.
    pub protocol: Option<String>,
    /// Without the part that the protocol adds (`/v1/messages`).
    pub base_url: Option<String>,
    /// `env:NAME`, `file:PATH`, `cmd:["program", "argument"]`, or the key itself. A known provider without a `base_url` has
    /// the key that its variable in the environment holds.
    pub api_key: Option<String>,
    /// How the key is sent: `x-api-key`, `bearer`, `x-goog-api-key`, `api-key`, `x-api-key+api-key`, `aws` or `google`.
    pub auth: Option<String>,
    /// Which of several ways to reach a known provider: `bedrock`, `bedrock-invoke`, `vertex-anthropic`, `foundry` …
    pub platform: Option<String>,
    /// Of Bedrock and Vertex: where the models run.
    pub region: Option<String>,
    /// Of Vertex.
    pub project: Option<String>,
    /// Of Azure: the first part of its host name.
    pub resource: Option<String>,
    /// Of Cloudflare.
    pub account: Option<String>,
    /// Whether the client's `anthropic-beta` values are forwarded.
    pub betas: Option<bool>,
    /// Whether it stops, and stops charging, when a client hangs up. What is known of the provider holds otherwise.
    pub supports_cancel: Option<bool>,
    /// What is done with a part of a request that it does not take: `drop` (the usual: left out, and said in the header
    /// `x-tidegate-warnings`), or `error`: it is not asked, and where nobody else can be, that is a 400.
    pub on_unsupported: Option<String>,
    /// How long it is waited for, where that is not as long as `[upstream]` says.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// What it does with what is said to it. Of one that says nothing the worst is assumed, unless it is a local server.
    pub data_policy: Option<DataPolicy>,
    /// What its errors mean where that is not known, or known wrongly. The first that fits decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub error_rules: Vec<ErrorRule>,
}

/// An answer with this status, with these words in it, is an error of this kind.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorRule {
    pub status: Option<u16>,
    /// A regular expression that is looked for in the body.
    pub pattern: Option<String>,
    /// `rate_limit_exceeded`, `provider_overloaded`, `provider_unavailable`, `timeout`, `context_length_exceeded`,
    /// `invalid_request`, `content_policy_violation`, `not_found`, `authentication`, `payment_required` …
    pub error_type: String,
}

/// How long a provider is waited for; what is not said here is as in `[upstream]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// Until the first content of a stream, when there is another endpoint to try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_content_ms: Option<u64>,
    /// The same when there is none. A whole answer that has not begun by then is looked for elsewhere, if it can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_content_alone_ms: Option<u64>,
    /// Between two signs of life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
}

/// What a provider does with what is said to it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataPolicy {
    /// Keeps it beyond the request.
    pub retains: bool,
    /// May learn from it.
    pub trains: bool,
}

impl Default for DataPolicy {
    fn default() -> Self {
        Self { retains: true, trains: true }
    }
}

/// One model and where it can be called.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// `author/slug`.
    pub id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub context_length: u64,
    pub max_output_tokens: u64,
    /// `text`, `image`, `file`, `audio`, `video`.
    #[serde(default = "text_only")]
    pub input_modalities: Vec<String>,
    /// What it gives: `text`, `image`, `audio`, `embeddings`, `rerank`, `speech`, `transcription`. One that gives images can be
    /// called at `/images`, one that gives embeddings at `/embeddings`, one that ranks documents at `/rerank`, one that speaks
    /// at `/audio/speech`, and one that writes down what is said at `/audio/transcriptions`.
    #[serde(default = "text_only")]
    pub output_modalities: Vec<String>,
    /// Other names that lead here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// What it is a version of: with `family = "claude-sonnet"`, `~author/claude-sonnet-latest` is the newest of them.
    pub family: Option<String>,
    /// `2026-05-31`; without it the numbers in the id tell which is newer.
    pub released_at: Option<String>,
    /// Not listed, and never the newest of its family; who knows its id can call it.
    #[serde(default)]
    pub hidden: bool,
    /// Whether its author allows others to learn from its answers.
    #[serde(default)]
    pub distillable: bool,
    pub benchmarks: Option<Benchmarks>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
}

/// How good a model is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Benchmarks {
    /// How well it writes programs, from 0 to 100: the share of models that do it worse. `tidegate/pareto-code` chooses by
    /// it.
    pub coding_percentile: Option<f64>,
}

fn text_only() -> Vec<String> {
    vec!["text".to_owned()]
}

/// A model at one provider.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Slug of a provider.
    pub provider: String,
    /// The provider's own name of the model.
    pub model: String,
    /// Which of several ways to reach the provider; the first one that fits the model when nothing is said.
    pub platform: Option<String>,
    pub protocol: Option<String>,
    pub pricing: Option<Pricing>,
    /// Where they differ from the model's.
    pub context_length: Option<u64>,
    pub max_output_tokens: Option<u64>,
    /// What sets it apart from the provider's other endpoints of the model, such as a region: callers name it behind the
    /// provider's slug and a slash.
    pub tag: Option<String>,
    /// `default`, or `priority` or `flex`: such endpoints serve only who asks for them.
    pub tier: Option<String>,
    /// `int4`, `int8`, `fp4`, `mxfp4`, `nvfp4`, `fp6`, `fp8`, `mxfp8`, `fp16`, `bf16`, `fp32` or `unknown`.
    pub quantization: Option<String>,
    /// The parameters it takes, by their public names; without a list, what its card says.
    pub supported_parameters: Option<Vec<String>>,
    /// Tools that the vendor runs for the model here: `web_search`, or nothing. Without a list, what is known of the provider;
    /// nothing where `base_url` is given, or where `pricing` has no `web_search`.
    pub native_tools: Option<Vec<String>>,
    /// What it counts as when prices are compared, in dollars per million tokens; nobody is charged it.
    pub shadow_price: Option<Decimal>,
    pub quality: Option<Quality>,
    /// What the model can do here, where it differs from what is known of the provider.
    #[schemars(with = "Option<tidegate_providers::translate::Card>")]
    pub card: Option<serde_json::Map<String, serde_json::Value>>,
}

/// How good an endpoint is, found by the operator.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quality {
    /// Compared with the scores of the model's other endpoints, when there are at least four.
    pub score: f64,
}
