//! The configuration file as it is written. Nothing past `config::check` meets these types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The whole file. Every part is optional.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub service: Service,
    pub storage: Storage,
    pub secrets: Secrets,
    pub keys: Keys,
    pub oauth: Oauth,
    pub limits: Limits,
    pub stream: Stream,
    pub upstream: UpstreamTimers,
    pub egress: Egress,
    pub log: Log,
    pub metrics: Metrics,
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
    /// Proxies in front whose `X-Forwarded-For` is believed: addresses or ranges such as `10.0.0.0/8`.
    pub trusted_proxies: Vec<String>,
    /// Shown in routing metadata.
    pub region: String,
    /// Where error texts point to; default: `public_url` and `/docs`.
    pub docs_url: Option<String>,
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
            trusted_proxies: Vec::new(),
            region: "local".to_owned(),
            docs_url: None,
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
    /// Failed authentications per minute and address before it is held off.
    pub auth_failures_per_minute: u32,
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            max_body_bytes: 32 << 20,
            in_flight_node: 8192,
            in_flight_workspace: 1024,
            in_flight_key: 256,
            auth_failures_per_minute: 10,
            management_rpm: 600,
            exchanges_per_minute: 20,
            exchange_failures_per_minute: 5,
            body_idle_ms: 15_000,
            body_total_ms: 300_000,
            write_stall_ms: 60_000,
            header_read_ms: 10_000,
            keep_alive_idle_ms: 75_000,
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
    pub total_whole_ms: u64,
    /// Bytes of one event, and of a whole answer.
    pub max_event_bytes: usize,
    pub max_answer_bytes: usize,
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
        }
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

/// What is written to standard error.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `auto` (text on a terminal, JSON otherwise), `text` or `json`.
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
    pub slug: String,
    /// The name shown to people.
    pub display_name: Option<String>,
    /// `anthropic`, `openai-chat`, `openai-responses`, `gemini`, `bedrock-converse` or `cohere`.
    pub protocol: Option<String>,
    /// Without the part that the protocol adds (`/v1/messages`).
    pub base_url: Option<String>,
    /// `env:NAME`, `file:PATH`, `cmd:["program", "argument"]`, or the key itself.
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
    /// Other names that lead here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
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
    /// What the model can do here, where it differs from what is known of the provider.
    #[schemars(with = "Option<tidegate_providers::translate::Card>")]
    pub card: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Dollars per million tokens; `request` and `web_search` in dollars each.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pricing {
    pub input: Decimal,
    pub output: Decimal,
    pub cache_read: Option<Decimal>,
    pub cache_write: Option<Decimal>,
    pub cache_write_1h: Option<Decimal>,
    pub reasoning: Option<Decimal>,
    pub request: Option<Decimal>,
    pub web_search: Option<Decimal>,
}

/// A decimal number, kept as its text: `0.60`, `3`, or `"0.60"`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Decimal {
    Integer(i64),
    /// The shortest text of this number is the one that was written, up to 15 digits: more than any price has.
    Number(f64),
    Text(String),
}

impl Decimal {
    pub fn text(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}
