//! From what was written to what the program uses.

mod snapshot;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use http::HeaderValue;
use ipnet::IpNet;
use rustls::ServerConfig;
use tidegate_core::{Factor, Money, Secret};
use tidegate_gateway::ledger::{OnExhausted, Sync, Terms};
use tidegate_gateway::snapshot::{Billing, UnknownPrice};
use tidegate_gateway::traces::Collector;
use tidegate_gateway::{Settings, egress, rates};
use tidegate_observe::logging;
use tidegate_store::vault::MasterKeySource;

use super::lines::Lines;
use super::mistakes::Mistakes;
use super::providers::{self, Found, Provider};
use super::tls::Tls;
use super::{
    AtStart, Source, built_in, destinations, documents, facts, keys, moderation, nearest, oidc, plugins, raw, secret,
    traces, web,
};

/// With less memory than this everything would be refused for ever.
const LEAST_MEMORY: u64 = 64 << 20;

/// A configuration without mistakes.
pub struct Checked {
    pub listen: SocketAddr,
    pub public_url: Option<String>,
    pub trusted_proxies: Vec<IpNet>,
    docs_url: Option<String>,
    pub metrics_listen: Option<SocketAddr>,
    pub data_dir: PathBuf,
    pub storage_url: String,
    pub master_key: MasterKeySource,
    pub key_prefix: String,
    pub management_prefix: String,
    pub management_key: keys::FirstKey,
    pub inference_key: keys::FirstKey,
    /// Where requests a minute are counted by all gateways, and how long one waits for it.
    pub redis: Option<(Secret, Duration)>,
    pub log_format: logging::Format,
    pub log_level: String,
    pub sim_enabled: bool,
    pub drain_delay: Duration,
    pub drain_timeout: Duration,
    pub connections: usize,
    pub body_idle: Duration,
    pub body_total: Duration,
    pub write_stall: Duration,
    pub header_read: Duration,
    pub keep_alive_idle: Duration,
    pub settings: Settings,
    /// Where our own spans go.
    pub traces: Option<Collector>,
    /// What we prove ourselves with, where we speak https.
    pub tls: Option<(Tls, Arc<ServerConfig>)>,
    pub tls_handshake: Duration,
    pub oauth: Oauth,
    /// Whom people may sign in with.
    pub oidc: Option<Arc<oidc::Oidc>>,
    /// What only a restart changes.
    pub at_start: AtStart,
    providers: Vec<Provider>,
    /// The first so many models are the file's, the others the catalogue's.
    own_models: usize,
    models: Vec<raw::Model>,
    aliases: Vec<(String, String)>,
    /// What was found besides the file, for the first screen and for `tidegate check`.
    pub found: Vec<Found>,
    /// What was found there and is of no use, and why.
    pub unused: Vec<String>,
    lines: Lines,
}

/// How authorization codes are treated.
#[derive(Clone, Debug)]
pub struct Oauth {
    pub code_ttl: Duration,
    pub max_pending_codes: u32,
    pub allow_plain: bool,
    pub strict_pkce: bool,
    /// Whether a code that comes a second time disables its key.
    pub replay_disables: bool,
}

fn log_level(level: &str) -> anyhow::Result<()> {
    let Err(wrong) = logging::filter(level) else { return Ok(()) };
    let meant = match &wrong {
        logging::WrongLevel::Word(word) => nearest(&word.to_lowercase(), &logging::LEVELS),
        logging::WrongLevel::Filter(_) => None,
    };
    let hint = meant.map(|level| format!("; did you mean {level}?")).unwrap_or_default();
    anyhow::bail!("log.level: {wrong}{hint}")
}

pub(super) fn check(
    config: raw::Config,
    lines: Lines,
    source: &Source,
    mut mistakes: Mistakes,
) -> anyhow::Result<Checked> {
    let service = &config.service;
    // Without it nothing can be made: names of headers begin with it.
    let branded = mistakes.note(brands(service));
    let listen = mistakes.note(address(&service.listen).context("service.listen"));
    for (name, url) in [
        ("service.public_url", &service.public_url),
        ("service.docs_url", &service.docs_url),
        ("service.credits_url", &service.credits_url),
    ] {
        mistakes.note(web::address(name, url.as_deref()));
    }
    let without_slash = |url: &Option<String>| url.as_deref().map(|url| url.trim_end_matches('/').to_owned());
    let log_format = match config.log.format.as_str() {
        "auto" => Ok(logging::Format::Auto),
        "text" => Ok(logging::Format::Text),
        "json" => Ok(logging::Format::Json),
        other => Err(anyhow::anyhow!("log.format: {other:?} is none of auto, text, json")),
    };
    let log_format = mistakes.note(log_format);
    mistakes.note(log_level(&config.log.level).map_err(|mistake| lines.named("log.level", mistake)));
    let stored = tidegate_store::check_url(&config.storage.url).context("storage.url");
    mistakes.note(stored.map_err(|mistake| lines.named("storage.url", mistake)));
    mistakes.note(keys::prefixes(&config.keys));
    let read = mistakes.note(providers::read(&config, source));
    let master_key = mistakes.note(config.secrets.master_key.parse::<MasterKeySource>().context("secrets.master_key"));
    let master_key = master_key.map(|key| match key {
        MasterKeySource::File(path) => MasterKeySource::File(source.data_dir.join(path)),
        other => other,
    });
    let redis = mistakes.value(redis(&config.state, source));
    let settings = mistakes.note(settings(&config, &lines, source));
    let redis_host = redis.as_ref().map(|(address, _)| rates::host(address)).transpose();
    let redis_host = mistakes.value(redis_host.context("state.redis_url"));
    let traces = settings.as_ref().map(|settings| traces::read(source, &settings.audience.service));
    let traces = mistakes.value(traces.unwrap_or_else(|| Ok(None)));
    let oauth = mistakes.note(oauth(&config.oauth));
    let tls = mistakes.value(tls(service, source));
    let oidc = mistakes.value(oidc::read(&config.oidc, source));
    let metrics_listen =
        mistakes.value(config.metrics.listen.as_deref().map(address).transpose().context("metrics.listen"));
    let brought = |name, text: &Option<String>| keys::brought(name, text.as_deref(), source);
    let management_key = mistakes.value(brought("keys.management_key", &config.keys.management_key));
    let inference_key = mistakes.value(brought("keys.inference_key", &config.keys.inference_key));
    let limits = &config.limits;
    let connections = mistakes.value(positive("limits.connections", limits.connections));
    let [body_idle, body_total, write_stall, header_read, keep_alive_idle, tls_handshake] = [
        ("limits.body_idle_ms", limits.body_idle_ms),
        ("limits.body_total_ms", limits.body_total_ms),
        ("limits.write_stall_ms", limits.write_stall_ms),
        ("limits.header_read_ms", limits.header_read_ms),
        ("limits.keep_alive_idle_ms", limits.keep_alive_idle_ms),
        ("limits.tls_handshake_ms", limits.tls_handshake_ms),
    ]
    .map(|(name, value)| mistakes.value(millis(name, value)));
    let trusted_proxies = mistakes.value(proxies(&service.trusted_proxies).context("service.trusted_proxies"));
    let models = mistakes.note(models(&config));
    let whole = (branded, listen, log_format, read, master_key, settings, oauth, models);
    let (
        Some(()),
        Some(listen),
        Some(log_format),
        Some((providers, found)),
        Some(master_key),
        Some(mut settings),
        Some(oauth),
        Some(models),
    ) = whole
    else {
        mistakes.check()?;
        bail!("the configuration cannot be read");
    };
    let redis_place = redis_host.flatten().map(|(host, port)| egress::Kept { host, port: Some(port) });
    settings.egress.kept.extend(redis_place);
    // Callers search through it, but do not get to it.
    settings
        .egress
        .kept
        .extend(config.tools.web_search.engines.values().filter_map(|engine| own_place(engine.url.as_deref()?)));
    settings.egress.kept.extend(config.tools.sandbox.url.as_deref().and_then(own_place));
    settings.egress.kept.extend(config.oidc.issuer.as_deref().and_then(own_place));
    let unused = providers::unused(&config, source);
    let checked = Checked {
        at_start: AtStart::of(&config),
        listen,
        metrics_listen,
        data_dir: source.data_dir.clone(),
        storage_url: config.storage.url.clone(),
        master_key,
        key_prefix: config.keys.prefix.clone(),
        management_prefix: config.keys.management_prefix.clone(),
        management_key,
        inference_key,
        log_format,
        log_level: config.log.level.clone(),
        sim_enabled: config.sim.enabled,
        drain_delay: Duration::from_secs(service.drain_delay),
        drain_timeout: Duration::from_secs(service.drain_timeout),
        connections,
        body_idle,
        body_total,
        write_stall,
        header_read,
        keep_alive_idle,
        redis,
        settings,
        traces,
        tls,
        tls_handshake,
        oauth,
        oidc,
        trusted_proxies,
        public_url: without_slash(&service.public_url),
        docs_url: without_slash(&service.docs_url),
        providers,
        own_models: config.models.len(),
        models,
        aliases: config.aliases.into_iter().collect(),
        found,
        unused,
        lines,
    };
    if !mistakes.is_empty() {
        // Nobody will come to the models: what is wrong with them is told with the rest.
        mistakes.note(checked.snapshot(None, checked.listen));
        mistakes.check()?;
    }
    Ok(checked)
}

fn settings(config: &raw::Config, lines: &Lines, source: &Source) -> anyhow::Result<Settings> {
    let (limits, stream, upstream) = (&config.limits, &config.stream, &config.upstream);
    let mut mistakes = Mistakes::default();
    let least = || -> anyhow::Result<()> {
        ensure!(
            limits.memory_bytes.is_none_or(|bytes| bytes >= LEAST_MEMORY),
            "limits.memory_bytes: must be at least {LEAST_MEMORY} (64 MiB)"
        );
        Ok(())
    };
    mistakes.note(least());
    let content_days = match config.io_logging.retention_days {
        days @ 1..=3650 => Ok(days),
        days => Err(anyhow::anyhow!("io_logging.retention_days: must be 1 to 3650, not {days}")),
    };
    let content_days = mistakes.value(content_days);
    let unknown_price = match config.pricing.unknown.as_str() {
        "refuse_limited" => Ok(UnknownPrice::RefuseLimited),
        "refuse" => Ok(UnknownPrice::Refuse),
        "allow" => Ok(UnknownPrice::Allow),
        other => {
            let mistake = anyhow::anyhow!("pricing.unknown: {other:?} is none of refuse_limited, refuse, allow");
            Err(lines.named("pricing.unknown", mistake))
        }
    };
    let whole = (
        mistakes.note(documents::limits(&config.parser, lines)),
        mistakes.note(documents::read(&config.parser, lines, source)),
        mistakes.note(moderation::read(&config.moderation, lines, source)),
        mistakes.note(plugins::read(&config.plugins, lines)),
        mistakes.note(plugins::panels(&config.fusion, lines)),
        mistakes.note(ledger(&config.ledger)),
        mistakes.note(billing(&config.billing, lines)),
        mistakes.note(facts::routing(&config.routing, lines)),
        mistakes.note(facts::tools(&config.tools, lines, source)),
        mistakes.note(facts::files(&config.files, lines)),
        mistakes.note(destinations::read(config, lines, source)),
        mistakes.note(unknown_price),
    );
    let egress = mistakes.value(egress(config));
    let [max_body_bytes, in_flight_node, in_flight_workspace, in_flight_key, max_event_bytes, max_answer_bytes] = [
        ("limits.max_body_bytes", limits.max_body_bytes),
        ("limits.in_flight_node", limits.in_flight_node),
        ("limits.in_flight_workspace", limits.in_flight_workspace),
        ("limits.in_flight_key", limits.in_flight_key),
        ("upstream.max_event_bytes", upstream.max_event_bytes),
        ("upstream.max_answer_bytes", upstream.max_answer_bytes),
    ]
    .map(|(name, value)| mistakes.value(positive(name, value)));
    let cors_origins = mistakes.value(origins(&config.service.cors_origins).context("service.cors_origins"));
    let [auth_failures_per_minute, management_per_minute, exchanges_per_minute, exchange_failures_per_minute] = [
        ("limits.auth_failures_per_minute", limits.auth_failures_per_minute),
        ("limits.management_rpm", limits.management_rpm),
        ("limits.exchanges_per_minute", limits.exchanges_per_minute),
        ("limits.exchange_failures_per_minute", limits.exchange_failures_per_minute),
    ]
    .map(|(name, value)| mistakes.value(positive(name, value)));
    let [first_content, first_content_alone, idle, total_streamed, total_whole, keep_alive] = [
        ("upstream.first_content_ms", upstream.first_content_ms),
        ("upstream.first_content_alone_ms", upstream.first_content_alone_ms),
        ("upstream.idle_ms", upstream.idle_ms),
        ("upstream.total_streamed_ms", upstream.total_streamed_ms),
        ("upstream.total_whole_ms", upstream.total_whole_ms),
        ("stream.keep_alive_ms", stream.keep_alive_ms),
    ]
    .map(|(name, value)| mistakes.value(millis(name, value)));
    mistakes.check()?;
    let (
        Some(parser),
        Some(documents),
        Some(moderation),
        Some(plugin_defaults),
        Some(fusion),
        Some(ledger),
        Some(billing),
        Some(routing),
        Some(tools),
        Some(files),
        Some(audience),
        Some(unknown_price),
    ) = whole
    else {
        bail!("the configuration cannot be read");
    };
    Ok(Settings {
        brand: config.service.name.clone(),
        brand_aliases: config.service.name_aliases.clone(),
        region: config.service.region.clone(),
        // Known only with the address that is really listened on; see `Checked::snapshot`.
        docs_url: String::new(),
        public_url: String::new(),
        cors_origins,
        key_prefixes: vec![config.keys.prefix.clone(), config.keys.management_prefix.clone()],
        max_body_bytes,
        in_flight_node,
        in_flight_workspace,
        in_flight_key,
        memory_bytes: limits.memory_bytes,
        auth_failures_per_minute,
        key_per_minute: limits.key_rpm,
        free_per_minute: limits.free_rpm,
        free_per_day: limits.free_rpd,
        workspace_per_minute: limits.workspace_rpm,
        address_per_minute: limits.address_rpm,
        management_per_minute,
        exchanges_per_minute,
        exchange_failures_per_minute,
        first_content,
        first_content_alone,
        idle,
        total_streamed,
        total_whole,
        early_commit: Duration::from_millis(stream.early_commit_ms),
        keep_alive,
        max_event_bytes,
        max_answer_bytes,
        always_stream: upstream.always_stream,
        cache_bytes: config.cache.max_bytes,
        egress,
        extractor: std::env::current_exe().ok(),
        parser,
        documents,
        moderation,
        plugin_defaults,
        fusion,
        credits_url: config.service.credits_url.clone(),
        ledger,
        billing,
        routing,
        tools,
        files,
        audience: Arc::new(audience),
        content_days,
        unknown_price,
    })
}

fn redis(raw: &raw::State, source: &Source) -> anyhow::Result<Option<(Secret, Duration)>> {
    let patience = millis("state.redis_timeout_ms", raw.redis_timeout_ms)?;
    let Some(text) = &raw.redis_url else { return Ok(None) };
    let address = secret::resolve(text, source).context("state.redis_url")?;
    Ok(Some((address, patience)))
}

fn billing(raw: &raw::Billing, lines: &Lines) -> anyhow::Result<Billing> {
    let headroom = Money::parse(raw.headroom.text())
        .map_err(|error| lines.named("billing.headroom", anyhow::anyhow!("billing.headroom {error}")))?;
    let fee = || -> anyhow::Result<u32> {
        let percent = Factor::parse(raw.byok_fee_percent.text()).map_err(|error| anyhow::anyhow!("{error}"))?;
        ensure!(percent.millionths() <= 100 * Factor::ONE.millionths(), "must be at most 100");
        ensure!(percent.millionths() % 100 == 0, "must have at most four decimal places");
        Ok(u32::try_from(percent.millionths() / 100)?)
    };
    let byok_fee = fee().map_err(|error| {
        lines.named("billing.byok_fee_percent", anyhow::anyhow!("billing.byok_fee_percent {error}"))
    })?;
    Ok(Billing { enabled: raw.enabled, headroom, byok_fee })
}

fn ledger(raw: &raw::Ledger) -> anyhow::Result<Terms> {
    let mut mistakes = Mistakes::default();
    let sync = match raw.sync.as_str() {
        "interval" => Ok(Sync::Interval),
        "always" => Ok(Sync::Always),
        other => Err(anyhow::anyhow!("ledger.sync: {other:?} is none of interval, always")),
    };
    let on_exhausted = match raw.on_exhausted.as_str() {
        "finish" => Ok(OnExhausted::Finish),
        "cut" => Ok(OnExhausted::Cut),
        other => Err(anyhow::anyhow!("ledger.on_exhausted: {other:?} is none of finish, cut")),
    };
    let serve_unmetered = match raw.on_unavailable.as_str() {
        "refuse" => Ok(false),
        "serve" => Ok(true),
        other => Err(anyhow::anyhow!("ledger.on_unavailable: {other:?} is none of refuse, serve")),
    };
    let (sync, on_exhausted, serve_unmetered) =
        (mistakes.note(sync), mistakes.note(on_exhausted), mistakes.value(serve_unmetered));
    for (is_right, mistake) in [
        (raw.reserve_output_tokens != Some(0), "ledger.reserve_output_tokens: must be at least 1"),
        // Three heartbeats: less would stop a node that only missed one.
        ((45..=86_400).contains(&raw.lease_hold), "ledger.lease_hold: must be 45 to 86400 seconds"),
        // A node that was away must be able to send again what it is not sure to have sent.
        (
            raw.retention_days == 0 || raw.retention_days >= 7,
            "ledger.retention_days: must be 0 (for ever) or at least 7",
        ),
    ] {
        mistakes.note(if is_right { Ok(()) } else { Err(anyhow::anyhow!(mistake)) });
    }
    mistakes.check()?;
    let (Some(sync), Some(on_exhausted)) = (sync, on_exhausted) else { bail!("the ledger cannot be read") };
    Ok(Terms {
        sync,
        on_exhausted,
        serve_unmetered,
        reserve_output_tokens: raw.reserve_output_tokens,
        lease_hold: Duration::from_secs(raw.lease_hold),
        retention_days: raw.retention_days,
    })
}

/// Where callers may point at. Our own addresses are known only later; see `Checked::snapshot`.
fn egress(config: &raw::Config) -> anyhow::Result<egress::Rules> {
    let raw = &config.egress;
    ensure!(!raw.ports.is_empty() && !raw.ports.contains(&0), "egress.ports: must be ports from 1 to 65535");
    let mut rules = egress::Rules {
        ports: raw.ports.clone(),
        kept: own_place(&config.storage.url).into_iter().collect(),
        ..Default::default()
    };
    for text in &raw.allow {
        let range = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        match range {
            Some(range) => {
                ensure!(
                    egress::address::is_narrow(range),
                    "egress.allow: {text:?} is too wide: name the ranges that callers may reach, /8 or narrower"
                );
                rules.allowed_ranges.push(range.trunc());
            }
            None => {
                let name = egress::allowed_name(text).filter(|name| !["all", "any"].contains(&name.as_str()));
                let name = name.with_context(|| {
                    format!("egress.allow: {text:?} is neither a range such as 10.20.0.0/16 nor an exact host name")
                })?;
                rules.allowed_names.push(name);
            }
        }
    }
    Ok(rules)
}

/// Where an address of the operator's leads, where it names a host.
fn own_place(address: &str) -> Option<egress::Kept> {
    let url = url::Url::parse(address).ok()?;
    let host = url.host_str()?.to_ascii_lowercase().trim_matches(['[', ']', '.']).to_owned();
    let named = || url.query_pairs().find(|(name, _)| name == "port").and_then(|(_, port)| port.parse().ok());
    let port = match url.scheme().starts_with("postgres") {
        true => named().or_else(|| url.port()).or(Some(5432)),
        false => url.port_or_known_default(),
    };
    (!host.is_empty()).then_some(egress::Kept { host, port })
}

fn proxies(texts: &[String]) -> anyhow::Result<Vec<IpNet>> {
    let parse = |text: &String| {
        let range = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        range.with_context(|| format!("{text:?} is not an address or a range such as 10.0.0.0/8"))
    };
    texts.iter().map(parse).collect()
}

/// Origins as browsers write them: without a path, with a port only where it is not the usual one.
fn origins(texts: &[String]) -> anyhow::Result<Vec<HeaderValue>> {
    let parse = |text: &String| {
        let origin = url::Url::parse(text).ok().map(|url| url.origin()).filter(url::Origin::is_tuple);
        let origin = origin.map(|origin| origin.ascii_serialization());
        ensure!(
            text == "*" || origin.as_ref() == Some(text),
            "{text:?} is not an origin such as https://app.example.com{}",
            origin.map(|origin| format!("; did you mean {origin}?")).unwrap_or_default()
        );
        HeaderValue::from_str(text).with_context(|| format!("{text:?} is not an origin"))
    };
    texts.iter().map(parse).collect()
}

fn tls(service: &raw::Service, source: &Source) -> anyhow::Result<Option<(Tls, Arc<ServerConfig>)>> {
    let Some(tls) = Tls::of(service)? else { return Ok(None) };
    let config = tls.read(source)?;
    Ok(Some((tls, config)))
}

fn oauth(raw: &raw::Oauth) -> anyhow::Result<Oauth> {
    ensure!((60..=600).contains(&raw.code_ttl), "oauth.code_ttl: must be 60 to 600 seconds");
    ensure!(raw.max_pending_codes > 0, "oauth.max_pending_codes: must be at least 1");
    let replay_disables = match raw.code_replay.as_str() {
        "disable" => true,
        "deny" => false,
        other => bail!("oauth.code_replay: {other:?} is none of disable, deny"),
    };
    Ok(Oauth {
        code_ttl: Duration::from_secs(raw.code_ttl),
        max_pending_codes: raw.max_pending_codes,
        allow_plain: raw.allow_plain,
        strict_pkce: raw.strict_pkce,
        replay_disables,
    })
}

fn positive<T: Default + PartialOrd>(name: &str, value: T) -> anyhow::Result<T> {
    ensure!(value > T::default(), "{name}: must be at least 1");
    Ok(value)
}

fn millis(name: &str, value: u64) -> anyhow::Result<Duration> {
    ensure!(value > 0, "{name}: must be at least 1");
    Ok(Duration::from_millis(value))
}

fn address(text: &str) -> anyhow::Result<SocketAddr> {
    text.parse().map_err(|_| anyhow::anyhow!("{text:?} is not an address such as 127.0.0.1:8080"))
}

fn brands(service: &raw::Service) -> anyhow::Result<()> {
    let mut mistakes = Mistakes::default();
    mistakes.note(check_brand(&service.name).context("service.name"));
    for alias in &service.name_aliases {
        mistakes.note(check_brand(alias).context("service.name_aliases"));
    }
    mistakes.check()
}

fn check_brand(name: &str) -> anyhow::Result<()> {
    let valid = (2..=32).contains(&name.len())
        && name.as_bytes()[0].is_ascii_lowercase()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    ensure!(valid, "{name:?} must be 2 to 32 lower-case letters and digits and begin with a letter");
    Ok(())
}

/// The built-in catalogue with the file's models in place of or beside its own.
fn models(config: &raw::Config) -> anyhow::Result<Vec<raw::Model>> {
    let mut mistakes = Mistakes::default();
    for (index, model) in config.models.iter().enumerate() {
        mistakes.note(check_model(model).with_context(|| format!("models[{index}] ({})", model.id)));
    }
    mistakes.check()?;
    let mut models = config.models.clone();
    models.extend(built_in().into_iter().filter(|model| config.models.iter().all(|own| own.id != model.id)));
    Ok(models)
}

fn check_model(model: &raw::Model) -> anyhow::Result<()> {
    let fits = model.id.split_once('/').is_some_and(|(author, slug)| !author.is_empty() && !slug.is_empty());
    ensure!(fits, "id must look like author/slug");
    ensure!(model.context_length > 0 && model.max_output_tokens > 0, "lengths must be at least 1");
    let taken = ("input_modalities", &model.input_modalities, &["text", "image", "file", "audio", "video"][..]);
    let given = (
        "output_modalities",
        &model.output_modalities,
        &["text", "image", "audio", "embeddings", "rerank", "speech", "transcription"][..],
    );
    for (name, modalities, known) in [taken, given] {
        for modality in modalities {
            let known_words = known.join(", ");
            ensure!(known.contains(&modality.as_str()), "{name}: {modality:?} is none of {known_words}");
        }
    }
    ensure!(!model.output_modalities.is_empty(), "output_modalities must name at least one");
    Ok(())
}

impl Checked {
    /// The address people use: the configured one, else the one we listen on.
    /// What we speak on our own listener.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub fn public_url(&self, address: SocketAddr) -> String {
        self.public_url.clone().unwrap_or_else(|| {
            // Who listens everywhere can be called from here at least; "everywhere" is no address.
            let place = match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
                IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
                named => named,
            };
            format!("{}://{}", self.scheme(), SocketAddr::new(place, address.port()))
        })
    }

    /// Where error texts point to. Always absolute: a client shows it to people who have no page to resolve it against.
    pub fn docs_url(&self, address: SocketAddr) -> String {
        self.docs_url.clone().unwrap_or_else(|| format!("{}/docs", self.public_url(address)))
    }

    /// Where we listen: nobody may make us call ourselves.
    pub fn own_addresses(&self, address: SocketAddr, sim: Option<&str>) -> Vec<SocketAddr> {
        let sim = sim.and_then(|url| url.strip_prefix("http://")?.parse().ok());
        [Some(address), self.metrics_listen, sim].into_iter().flatten().collect()
    }
}
