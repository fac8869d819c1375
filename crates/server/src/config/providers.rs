//! Whom we can call: the providers of the file, those whose keys are in the environment, and the known vendors, each
//! with the ways to reach it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tidegate_core::Secret;
use tidegate_gateway::error_rules::ErrorRule;
use tidegate_gateway::snapshot::{Patience, SIMULATOR, stored_for};
use tidegate_gateway::{Calls, Upstream};
use tidegate_providers::credential::Credential;
use tidegate_providers::platform::{self, filled, google_host};
use tidegate_providers::{Auth, Betas, Carriage, Platform, Protocol, place};
use tidegate_routing::DataPolicy;

use super::mistakes::Mistakes;
use super::{Source, nearest, raw, secret};

/// A provider key in the environment.
pub struct Found {
    pub variable: &'static str,
    pub provider: &'static str,
}

const AZURE_KEY: &str = "AZURE_OPENAI_API_KEY";

/// One provider.
pub struct Provider {
    pub slug: Arc<str>,
    pub display_name: Arc<str>,
    pub local: bool,
    /// Whether the operator's own key can be used. A vendor nobody gave a key for is there for those who bring one.
    pub shared: bool,
    /// Whether it stops, and stops charging, when nobody listens any more.
    pub supports_cancel: bool,
    /// Whether it is asked for all of a request or not at all.
    pub is_strict: bool,
    pub patience: Patience,
    pub policy: DataPolicy,
    pub error_rules: Arc<[ErrorRule]>,
    /// The usual one first; never empty.
    pub ways: Vec<Way>,
}

/// One way to reach a provider: a protocol at an address.
pub struct Way {
    pub name: Box<str>,
    pub protocol: Protocol,
    pub carriage: Carriage,
    base_url: String,
    /// The address with gaps that a credential of several parts fills.
    template: Option<&'static str>,
    auth: Auth,
    credential: Option<Credential>,
    betas: Betas,
    /// Anthropic itself runs the models here.
    is_anthropics: bool,
    /// Only its format tells us who is there.
    is_unknown: bool,
    /// The vendor itself searches the web for its models here.
    searches: bool,
    region: Option<Box<str>>,
}

impl Provider {
    /// The way that an endpoint names, or the usual one: for Anthropic's models the one that loses nothing.
    pub fn way(&self, endpoint: &raw::Endpoint, model: &str) -> anyhow::Result<usize> {
        let protocol = endpoint.protocol.as_deref().map(protocol).transpose()?;
        let named = |way: &&Way| {
            endpoint.platform.as_deref().is_none_or(|name| *name == *way.name)
                && protocol.is_none_or(|protocol| protocol == way.protocol)
        };
        let is_said = endpoint.platform.is_some() || protocol.is_some();
        let is_claude = !is_said && model.starts_with("anthropic/");
        let native = |way: &&Way| !is_claude || way.protocol == Protocol::Messages;
        // A key of the operator's that names the address of a deployment says what is spoken there.
        let deployment = |way: &Way| way.credential.as_ref()?.deployment(model)?.protocol;
        let spoken = self.ways.iter().find_map(deployment);
        let found = spoken.and_then(|spoken| self.ways.iter().position(|way| named(&way) && way.protocol == spoken));
        let found = found.or_else(|| self.ways.iter().position(|way| named(&way) && native(&way)));
        let found = found.or_else(|| self.ways.iter().position(|way| named(&way)));
        found.with_context(|| {
            let names: Vec<String> =
                self.ways.iter().map(|way| format!("{} ({})", way.name, way.protocol.as_str())).collect();
            format!("{} has no such platform or protocol; it has {}", self.slug, names.join(", "))
        })
    }

    /// The ways that a customer's deployment may ask for in place of one: only Azure's owners say where a model is called.
    pub fn others(&self, way: usize) -> Vec<usize> {
        let is_azures = |way: &Way| matches!(way.auth, Auth::AzureKey | Auth::FoundryKey);
        let own = &self.ways[way];
        let other = |index: &usize| is_azures(&self.ways[*index]) && self.ways[*index].protocol != own.protocol;
        (0..self.ways.len()).filter(|_| is_azures(own)).filter(other).collect()
    }

    /// One upstream for each way.
    pub fn upstreams(&self) -> anyhow::Result<Vec<Upstream>> {
        self.ways.iter().map(|way| way.upstream(self)).collect()
    }
}

impl Way {
    fn upstream(&self, provider: &Provider) -> anyhow::Result<Upstream> {
        let models = place::models(self.protocol, self.carriage);
        let models_uri = models.map(|path| format!("{}{path}", self.base_url).parse()).transpose();
        Ok(Upstream {
            slug: provider.slug.clone(),
            display_name: provider.display_name.clone(),
            protocol: self.protocol,
            carriage: self.carriage,
            origin: origin(&self.base_url),
            shared: provider.shared,
            template: self.template.map(Into::into),
            models_uri: models_uri.map_err(|_| anyhow::anyhow!("{}: base_url is not usable", provider.slug))?,
            auth: self.auth,
            credential: self.credential.clone(),
            region: self.region.clone(),
            betas: self.betas,
            supports_cancel: provider.supports_cancel,
            is_strict: provider.is_strict,
            patience: provider.patience,
            error_rules: provider.error_rules.clone(),
        })
    }

    /// Where a model is called.
    pub fn calls(&self, slug: &str, model: &str) -> anyhow::Result<Calls> {
        let mut calls = Calls::of(&self.base_url, self.protocol, self.carriage, model)?;
        if self.auth == Auth::Google {
            // Vertex AI has another call for embeddings than the Gemini API.
            calls.embeddings = None;
        }
        if slug == "vllm" && self.protocol == Protocol::Chat {
            calls.count = place::tokenize(&self.base_url).parse().ok();
        }
        Ok(calls)
    }

    /// What a customer's credential is stored for: an address, or one with a gap that the credential fills.
    pub fn place(&self) -> Arc<str> {
        self.template.map_or_else(|| origin(&self.base_url), |template| stored_for(template).into())
    }

    /// Whether Anthropic itself runs the models here.
    pub fn is_anthropics(&self) -> bool {
        self.is_anthropics
    }

    /// Whether conversations are held here that a request only goes on with. A server that we know nothing of may leave out
    /// what it does not know, and would then answer to a part of the conversation.
    pub fn holds_threads(&self) -> bool {
        self.is_anthropics && !self.is_unknown
    }

    /// Whether the vendor itself is known to search the web for its models here.
    pub fn searches(&self) -> bool {
        self.searches
    }
}

pub fn origin(base_url: &str) -> Arc<str> {
    url::Url::parse(base_url).map_or_else(|_| "".into(), |url| url.origin().ascii_serialization().into())
}

fn protocol(name: &str) -> anyhow::Result<Protocol> {
    Protocol::parse(name).ok_or_else(|| {
        let hint = nearest(name, &Protocol::NAMES).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        anyhow::anyhow!("protocol: {name:?} is none of {}{hint}", Protocol::NAMES.join(", "))
    })
}

/// The providers of the file and, for slugs that it does not name, those whose keys are in the environment.
pub fn read(config: &raw::Config, source: &Source) -> anyhow::Result<(Vec<Provider>, Vec<Found>)> {
    let (mut providers, mut mistakes) = (Vec::<Provider>::new(), Mistakes::default());
    let mut found = Vec::<Found>::new();
    for (index, entry) in config.providers.iter().enumerate() {
        let provider = from_entry(entry, source).with_context(|| format!("providers[{index}] ({})", entry.slug));
        let Some(provider) = mistakes.note(provider) else { continue };
        if providers.iter().any(|other| other.slug == provider.slug) {
            mistakes.note::<()>(Err(anyhow::anyhow!("providers[{index}]: slug {:?} is used twice", entry.slug)));
        } else {
            providers.push(provider);
        }
        let Some((variable, platform, _)) = unsaid_key(entry, source) else { continue };
        if found.iter().all(|known| known.variable != variable) {
            found.push(Found { variable, provider: platform.display_name });
        }
    }
    for platform in platform::PLATFORMS {
        let Some(variable) = platform.env else { continue };
        let Some(value) = source.variable(variable) else { continue };
        if providers.iter().any(|provider| *provider.slug == *platform.slug) {
            continue;
        }
        found.push(Found { variable, provider: platform.display_name });
        let provider = from_environment(platform, value, source);
        providers.extend(mistakes.note(provider.with_context(|| format!("environment variable {variable}"))));
    }
    for (variable, slug, key) in [aws(source), azure(source)].into_iter().flatten() {
        let Some(platform) = platform::find(slug) else { continue };
        if providers.iter().any(|provider| *provider.slug == *platform.slug) {
            continue;
        }
        found.push(Found { variable, provider: platform.display_name });
        let provider = from_environment(platform, &key, source);
        providers.extend(mistakes.note(provider.with_context(|| format!("environment variable {variable}"))));
    }
    // Models of a provider that could not be read would all be wrong.
    mistakes.check()?;
    for platform in platform::PLATFORMS.iter().filter(|platform| !platform.local) {
        if providers.iter().all(|provider| *provider.slug != *platform.slug) {
            providers.push(known_vendor(platform));
        }
    }
    Ok((providers, found))
}

/// The key of an entry that names none, from the environment: the variable, the platform and the key. None where the entry
/// gives an address, which need not be the vendor's.
fn unsaid_key(entry: &raw::Provider, source: &Source) -> Option<(&'static str, &'static Platform, Secret)> {
    if entry.api_key.is_some() || entry.base_url.is_some() {
        return None;
    }
    let platform = of_entry(entry).filter(|platform| !platform.local)?;
    let plain = || {
        let variable = platform::ways(platform.slug).find_map(|way| way.env)?;
        Some((variable, source.variable(variable)?.to_owned()))
    };
    let of_several = || match platform.slug {
        "amazon-bedrock" => aws(source).map(|(variable, _, key)| (variable, key)),
        // Its resource may stand in the entry.
        "azure" if entry.resource.is_some() || azure_resource(source).is_some() => {
            Some((AZURE_KEY, source.variable(AZURE_KEY)?.to_owned()))
        }
        _ => None,
    };
    let (variable, key) = plain().or_else(of_several)?;
    Some((variable, platform, Secret::new(key.trim())))
}

fn of_entry(entry: &raw::Provider) -> Option<&'static Platform> {
    platform::find(entry.platform.as_deref().unwrap_or(&entry.slug))
}

/// The keys that Amazon's own programs use, in the form that a credential has: the variable that names them, the provider and
/// the key. Nothing where a part is missing.
fn aws(source: &Source) -> Option<(&'static str, &'static str, String)> {
    let (id, secret) = (source.variable("AWS_ACCESS_KEY_ID")?, source.variable("AWS_SECRET_ACCESS_KEY")?);
    let mut key = serde_json::json!({"accessKeyId": id.trim(), "secretAccessKey": secret.trim()});
    if let Some(token) = source.variable("AWS_SESSION_TOKEN") {
        key["sessionToken"] = token.trim().into();
    }
    Some(("AWS_ACCESS_KEY_ID", "amazon-bedrock", key.to_string()))
}

/// A key for Azure is of use only with the resource that it is for. An address that names none may be meant for another
/// program, so it is passed over.
fn azure(source: &Source) -> Option<(&'static str, &'static str, String)> {
    let key = source.variable(AZURE_KEY)?;
    azure_resource(source)?;
    Some((AZURE_KEY, "azure", key.to_owned()))
}

/// Variables that name half of a provider, and what is missing.
pub fn unused(config: &raw::Config, source: &Source) -> Vec<String> {
    let is_said = |slug: &str| config.providers.iter().any(|entry| entry.slug == slug);
    let mut found = Vec::new();
    let pair = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    for (one, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
        if source.variable(one).is_some() && source.variable(other).is_none() && !is_said("amazon-bedrock") {
            found.push(format!("{one} found, but {other} is not set: Amazon Bedrock is no provider"));
        }
    }
    if source.variable(AZURE_KEY).is_some() && azure_resource(source).is_none() && !is_said("azure") {
        let why = match source.variable("AZURE_OPENAI_ENDPOINT") {
            None => "is not set",
            Some(_) => "is no address such as https://RESOURCE.openai.azure.com",
        };
        found.push(format!("{AZURE_KEY} found, but AZURE_OPENAI_ENDPOINT {why}: Azure is no provider"));
    }
    found.extend(config.providers.iter().filter_map(|entry| keyless(entry, source)));
    found
}

/// What is said of an entry of a vendor's that has no key. It is no mistake: customers may bring theirs.
fn keyless(entry: &raw::Provider, source: &Source) -> Option<String> {
    let platform = of_entry(entry).filter(|platform| !platform.local && entry.api_key.is_none())?;
    if unsaid_key(entry, source).is_some() {
        return None;
    }
    let variable = platform::ways(platform.slug).find_map(|way| way.env);
    let why = match variable {
        Some(variable) if source.variable(variable).is_some() => {
            format!(", and {variable} is not sent to a base_url unless api_key = \"env:{variable}\" says so")
        }
        Some(variable) if entry.base_url.is_none() => format!(", and {variable} is not set"),
        _ => String::new(),
    };
    Some(format!("{} has no api_key{why}: only customers' own credentials are used there", entry.slug))
}

/// The resource in `https://RESOURCE.openai.azure.com`.
fn azure_resource(source: &Source) -> Option<String> {
    let address = url::Url::parse(source.variable("AZURE_OPENAI_ENDPOINT")?.trim()).ok()?;
    let host = address.host_str().filter(|_| address.scheme() == "https")?;
    let (resource, domain) = host.split_once('.')?;
    let is_azures = ["openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"].contains(&domain);
    is_azures.then(|| resource.to_owned())
}

/// What fills the gaps of addresses.
struct Gaps<'a> {
    entry: Option<&'a raw::Provider>,
    source: Option<&'a Source>,
}

impl Gaps<'_> {
    fn said(&self, name: &str, auth: Auth) -> Option<String> {
        let variable = |name: &str| self.source.and_then(|source| source.variable(name)).map(str::to_owned);
        let said = |pick: fn(&raw::Provider) -> &Option<String>| self.entry.and_then(|entry| pick(entry).clone());
        match name {
            "region" if auth == Auth::Aws => {
                let region = said(|entry| &entry.region).or_else(|| variable("AWS_REGION"));
                region.or_else(|| variable("AWS_DEFAULT_REGION"))
            }
            "region" => said(|entry| &entry.region),
            "project" => said(|entry| &entry.project),
            "resource" => said(|entry| &entry.resource).or_else(|| self.source.and_then(azure_resource)),
            "account" => said(|entry| &entry.account),
            _ => None,
        }
    }
}

/// Where models run when nobody says it.
fn usual(name: &str, auth: Auth) -> Option<String> {
    let region = if auth == Auth::Aws { "us-east-1" } else { "global" };
    (name == "region").then(|| region.to_owned())
}

/// A known way with the operator's key. A gap that nothing fills is an error where there is a key to be used.
fn way(platform: &'static Platform, gaps: &Gaps<'_>, key: Option<&Secret>) -> anyhow::Result<Way> {
    let credential = key.map(|key| read_key(platform.auth, key)).transpose().context("api_key")?;
    // What the operator says comes first, then what the key itself says, then what is usual.
    let named = |name: &str| {
        let placed = credential.as_ref().filter(|credential| credential.is_placed());
        let said = gaps.said(name, platform.auth);
        said.or_else(|| placed.and_then(|credential| credential.place(name, ""))).or_else(|| usual(name, platform.auth))
    };
    let value = |name: &str| match name {
        "google_host" => named("region").map(|region| google_host(&region)),
        name => named(name),
    };
    let base_url = match filled(platform.base_url, value) {
        Ok(base_url) => base_url,
        Err(gap) if key.is_some() => bail!("{gap}: needed to reach {}", platform.name),
        // Only a credential that names it can be used here.
        Err(_) => "https://nowhere.invalid".to_owned(),
    };
    Ok(Way {
        name: platform.name.into(),
        protocol: platform.protocol,
        carriage: platform.carriage,
        base_url,
        template: platform.base_url.contains('{').then_some(platform.base_url),
        auth: platform.auth,
        region: (platform.auth == Auth::Aws).then(|| value("region")).flatten().map(Into::into),
        credential,
        betas: platform.betas,
        is_anthropics: platform.betas != Betas::None,
        is_unknown: false,
        searches: platform::searches(platform.name, platform.protocol),
    })
}

fn read_key(auth: Auth, key: &Secret) -> anyhow::Result<Credential> {
    Credential::read(auth, key).context("the key is not what this provider takes: use visible characters, or its JSON")
}

/// All ways of a provider; those that cannot be filled are left out as long as one can.
fn ways(slug: &str, gaps: &Gaps<'_>, key: Option<&Secret>) -> anyhow::Result<Vec<Way>> {
    let mut made = Vec::new();
    let mut missing = None;
    for platform in platform::ways(slug) {
        match way(platform, gaps, key) {
            Ok(way) => made.push(way),
            Err(error) => drop(missing.get_or_insert(error)),
        }
    }
    match missing {
        Some(error) if made.is_empty() => Err(error),
        _ => Ok(made),
    }
}

/// A vendor without a key of the operator's: only credentials of customers reach it.
fn known_vendor(platform: &'static Platform) -> Provider {
    let gaps = Gaps { entry: None, source: None };
    Provider {
        slug: platform.slug.into(),
        display_name: platform.display_name.into(),
        local: false,
        shared: false,
        supports_cancel: platform::supports_cancel(platform.slug),
        is_strict: false,
        patience: Patience::default(),
        policy: DataPolicy::default(),
        error_rules: Arc::default(),
        ways: ways(platform.slug, &gaps, None).unwrap_or_default(),
    }
}

fn from_environment(platform: &'static Platform, value: &str, source: &Source) -> anyhow::Result<Provider> {
    let gaps = Gaps { entry: None, source: Some(source) };
    let ways = if platform.local {
        // A local server's variable holds its address; all others hold a key.
        let address = local_address(value, platform.base_url);
        let local = platform::ways(platform.slug).map(|platform| {
            let path = platform.base_url.splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap_or_default();
            Ok(Way { base_url: format!("{address}{path}"), ..way(platform, &gaps, None)? })
        });
        local.collect::<anyhow::Result<Vec<Way>>>()?
    } else {
        ways(platform.slug, &gaps, Some(&Secret::new(value.trim())))?
    };
    Ok(Provider {
        slug: platform.slug.into(),
        display_name: platform.display_name.into(),
        local: platform.local,
        shared: true,
        supports_cancel: platform::supports_cancel(platform.slug),
        is_strict: false,
        patience: Patience::default(),
        policy: usual_policy(platform.local),
        error_rules: Arc::default(),
        ways,
    })
}

/// A server of the operator's own keeps and learns nothing; of all others the worst is assumed.
fn usual_policy(is_local: bool) -> DataPolicy {
    DataPolicy { retains: !is_local, trains: !is_local }
}

/// `OLLAMA_HOST` and the like: an address, a host with or without port, or what a server listens on.
fn local_address(value: &str, default: &str) -> String {
    let (scheme, host) = value.split_once("://").unwrap_or(("http", value));
    let host = host.trim_end_matches('/');
    let port = default.rsplit_once(':').map_or("80", |(_, port)| port);
    let host = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    };
    // What a server listens on with 0.0.0.0 is reached at the loopback address.
    format!("{scheme}://{}", host.replace("0.0.0.0", "127.0.0.1"))
}

fn from_entry(entry: &raw::Provider, source: &Source) -> anyhow::Result<Provider> {
    let slug_fits = !entry.slug.is_empty()
        && entry.slug.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_./".contains(&byte));
    ensure!(slug_fits, "slug: use lower-case letters, digits and -");
    let parts = [
        ("region", &entry.region),
        ("project", &entry.project),
        ("resource", &entry.resource),
        ("account", &entry.account),
    ];
    for (name, part) in parts {
        let fits = |text: &String| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte))
        };
        ensure!(part.as_ref().is_none_or(fits), "{name}: use letters, digits and dashes");
    }
    let wanted = entry.platform.as_deref().unwrap_or(&entry.slug);
    let known = of_entry(entry);
    ensure!(entry.platform.is_none() || known.is_some(), "platform: {wanted:?} is not a known one");
    let of_another = |known: &Platform| {
        let own = platform::find(&entry.slug);
        entry.base_url.is_none() && own.is_some_and(|own| own.slug != known.slug)
    };
    ensure!(
        !known.is_some_and(of_another),
        "platform: {wanted:?} is a way to another provider; give base_url if it is meant"
    );
    let said = entry.protocol.as_deref().map(protocol).transpose()?;
    let key = entry.api_key.as_deref().map(|text| secret::resolve(text, source)).transpose().context("api_key")?;
    let key = key.or_else(|| unsaid_key(entry, source).map(|(_, _, key)| key));
    let auth = match entry.auth.as_deref() {
        Some(name) => {
            Some(Auth::parse(name).with_context(|| format!("auth: {name:?} is none of {}", Auth::NAMES.join(", ")))?)
        }
        None => None,
    };
    let mut ways = match &entry.base_url {
        Some(base_url) => vec![own_way(entry, base_url, known, said, auth, key.as_ref())?],
        None => {
            let gaps = Gaps { entry: Some(entry), source: Some(source) };
            known_ways(entry, wanted, &gaps, said, auth, key.as_ref())?
        }
    };
    if let Some(betas) = entry.betas {
        for way in &mut ways {
            way.betas = if betas { Betas::All } else { Betas::None };
        }
    }
    let display_name =
        entry.display_name.as_deref().or_else(|| known.map(|platform| platform.display_name)).unwrap_or(&entry.slug);
    // The slug of a platform is its provider's, so that preferences find it.
    let slug = known.filter(|platform| platform.name == entry.slug).map_or(entry.slug.as_str(), |known| known.slug);
    Ok(Provider {
        slug: slug.into(),
        display_name: display_name.into(),
        local: known.is_some_and(|platform| platform.local),
        // A vendor that wants a key and was given none can only be called with somebody else's.
        shared: key.is_some() || known.is_none_or(|platform| platform.local),
        supports_cancel: entry
            .supports_cancel
            .unwrap_or_else(|| platform::supports_cancel(known.map_or(entry.slug.as_str(), |platform| platform.slug))),
        is_strict: is_strict(entry)?,
        patience: patience(&entry.timeouts)?,
        policy: entry.data_policy.map_or_else(
            || usual_policy(known.is_some_and(|platform| platform.local)),
            |policy| DataPolicy { retains: policy.retains, trains: policy.trains },
        ),
        error_rules: error_rules(&entry.error_rules)?,
        ways,
    })
}

fn is_strict(entry: &raw::Provider) -> anyhow::Result<bool> {
    match entry.on_unsupported.as_deref() {
        None | Some("drop") => Ok(false),
        Some("error") => Ok(true),
        Some(other) => bail!("on_unsupported: {other:?} is none of drop, error"),
    }
}

fn patience(timeouts: &raw::Timeouts) -> anyhow::Result<Patience> {
    let limit = |name: &str, millis: Option<u64>| match millis {
        Some(0) => Err(anyhow::anyhow!("timeouts.{name}: must be at least 1")),
        millis => Ok(millis.map(Duration::from_millis)),
    };
    Ok(Patience {
        first_content: limit("first_content_ms", timeouts.first_content_ms)?,
        first_content_alone: limit("first_content_alone_ms", timeouts.first_content_alone_ms)?,
        idle: limit("idle_ms", timeouts.idle_ms)?,
    })
}

fn error_rules(entries: &[raw::ErrorRule]) -> anyhow::Result<Arc<[ErrorRule]>> {
    let rules = entries.iter().enumerate().map(|(place, entry)| {
        let rule = ErrorRule::new(entry.status, entry.pattern.as_deref(), &entry.error_type);
        rule.map_err(|(member, problem)| {
            let types: Vec<&str> = ErrorRule::types().collect();
            let near = nearest(&entry.error_type, &types).filter(|_| member == "error_type");
            let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            anyhow::anyhow!("error_rules[{place}].{member}: {problem}{hint}")
        })
    });
    rules.collect()
}

/// The ways of a known provider, with what the entry says otherwise.
fn known_ways(
    entry: &raw::Provider,
    wanted: &str,
    gaps: &Gaps<'_>,
    said: Option<Protocol>,
    auth: Option<Auth>,
    key: Option<&Secret>,
) -> anyhow::Result<Vec<Way>> {
    let Some(first) = platform::find(wanted) else {
        let slugs: Vec<&str> = platform::PLATFORMS.iter().map(|platform| platform.slug).collect();
        let hint =
            nearest(&entry.slug, &slugs).map(|slug| format!("; did you mean the slug {slug}?")).unwrap_or_default();
        match said {
            Some(_) => bail!("base_url: needed, because the slug is not a known one{hint}"),
            None => bail!("protocol: needed, because the slug is not a known one{hint}"),
        }
    };
    let mut made = ways(wanted, gaps, key)?;
    if let Some(protocol) = said {
        made.retain(|way| way.protocol == protocol);
        ensure!(
            !made.is_empty(),
            "protocol: {} is not spoken by {} at a known address; give base_url",
            protocol.as_str(),
            first.display_name
        );
    }
    if let Some(auth) = auth {
        for way in &mut made {
            way.auth = auth;
            way.credential = key.map(|key| read_key(auth, key)).transpose().context("api_key")?;
        }
    }
    Ok(made)
}

/// The one way at an address that the operator gives.
fn own_way(
    entry: &raw::Provider,
    base_url: &str,
    known: Option<&'static Platform>,
    said: Option<Protocol>,
    auth: Option<Auth>,
    key: Option<&Secret>,
) -> anyhow::Result<Way> {
    let base_url = base_url.trim_end_matches('/').to_owned();
    check_base_url(&base_url).context("base_url")?;
    let known = match (entry.platform.as_deref(), said) {
        (None, Some(protocol)) => platform::ways(&entry.slug).find(|platform| platform.protocol == protocol).or(known),
        _ => known,
    };
    let protocol = match (said, known) {
        (Some(protocol), _) => protocol,
        (None, Some(platform)) => platform.protocol,
        (None, None) => {
            let slugs: Vec<&str> = platform::PLATFORMS.iter().map(|platform| platform.slug).collect();
            let hint =
                nearest(&entry.slug, &slugs).map(|slug| format!("; did you mean the slug {slug}?")).unwrap_or_default();
            bail!("protocol: needed, because the slug is not a known one{hint}");
        }
    };
    let usual = match protocol {
        Protocol::Messages => Auth::ApiKey,
        Protocol::Gemini => Auth::GoogleKey,
        Protocol::Converse => Auth::Aws,
        Protocol::Chat | Protocol::Responses | Protocol::Cohere => Auth::Bearer,
    };
    let auth = auth.or_else(|| known.map(|platform| platform.auth)).unwrap_or(usual);
    let region = entry.region.clone().or_else(|| (auth == Auth::Aws).then(|| "us-east-1".to_owned()));
    Ok(Way {
        name: known.map_or(entry.slug.as_str(), |platform| platform.name).into(),
        protocol,
        carriage: known.map_or(Carriage::Plain, |platform| platform.carriage),
        base_url,
        template: None,
        auth,
        credential: key.map(|key| read_key(auth, key)).transpose().context("api_key")?,
        betas: known.map_or(Betas::All, |platform| platform.betas),
        // A server of the operator's own in this format is taken for a relay to Anthropic unless its slug says otherwise.
        is_anthropics: known.is_none_or(|platform| platform.betas != Betas::None),
        is_unknown: known.is_none(),
        // What stands at another address may lack what the vendor has beside its models.
        searches: false,
        region: region.map(Into::into),
    })
}

fn check_base_url(text: &str) -> anyhow::Result<()> {
    let url = url::Url::parse(text).map_err(|error| anyhow::anyhow!("{text:?} is not an address: {error}"))?;
    ensure!(matches!(url.scheme(), "http" | "https"), "must begin with http:// or https://");
    ensure!(
        url.username().is_empty() && url.password().is_none(),
        "must not hold a user name or password; use api_key"
    );
    ensure!(url.query().is_none() && url.fragment().is_none(), "must not have a query or a fragment");
    Ok(())
}

/// The simulated provider, at the address it was started on.
pub fn simulator(base_url: &str) -> Provider {
    Provider {
        slug: SIMULATOR.into(),
        display_name: "Simulator".into(),
        local: true,
        shared: true,
        supports_cancel: true,
        is_strict: false,
        patience: Patience::default(),
        policy: usual_policy(true),
        error_rules: Arc::default(),
        ways: vec![Way {
            name: "simulator".into(),
            protocol: Protocol::Messages,
            carriage: Carriage::Plain,
            base_url: base_url.to_owned(),
            template: None,
            auth: Auth::ApiKey,
            credential: None,
            betas: Betas::All,
            is_anthropics: true,
            is_unknown: false,
            searches: false,
            region: None,
        }],
    }
}
