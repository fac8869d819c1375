//! Who is told of requests, from what was written about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_core::{KeyHash, WorkspaceId};
use tidegate_gateway::broadcast::{Audience, Bounds};
use tidegate_observe::broadcast::target::Config;
use tidegate_observe::broadcast::{self, Filter, Kind, Scope, Tells};

use super::lines::Lines;
use super::mistakes::Mistakes;
use super::{Source, nearest, raw, secret};

/// How this gateway names itself to those it tells of requests.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Observability {
    /// `service.name` of its spans; `service.name` of this file where nothing is said.
    pub service_name: Option<String>,
    /// `deployment.environment.name` of its spans, such as `production`.
    pub environment: Option<String>,
    /// Signs what webhooks get: `env:NAME`, `file:PATH`, `cmd:["program", "argument"]`, or the secret itself.
    pub webhook_secret: Option<String>,
    /// What destinations that are made over HTTP may know can be set by nobody: their privacy mode, their keys, and the three
    /// `broadcast_generation_*`.
    pub lock_privacy: bool,
    /// Requests that wait for one destination at most; beyond that the oldest go.
    pub outbox_letters: u64,
    /// The same in bytes.
    pub outbox_bytes: u64,
}

impl Default for Observability {
    fn default() -> Self {
        let bounds = Bounds::default();
        Self {
            service_name: None,
            environment: None,
            webhook_secret: None,
            lock_privacy: false,
            outbox_letters: bounds.letters,
            outbox_bytes: bounds.bytes,
        }
    }
}

/// Somebody who is told of every request: a collector, a vendor, a webhook.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// Names it in logs and metrics, and what waits for it: a new name is a new destination.
    pub name: String,
    /// `otel-collector`, `webhook`, `langfuse`, `langsmith`, `grafana`, `newrelic`, `sentry`, `arize`, `braintrust`, `ramp`,
    /// `weave`, `opik`, `datadog`, `posthog`, `s3`, `clickhouse` or `snowflake`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What its type needs. Values may be `env:NAME`, `file:PATH` or `cmd:[…]`.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// Further headers of every call; values as in `config`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Only requests of this workspace, by its id.
    #[serde(default)]
    pub workspace: Option<String>,
    /// Only requests of these keys.
    #[serde(default)]
    pub api_key_hashes: Vec<String>,
    /// Only requests that pass these rules.
    #[serde(default)]
    pub filter_rules: Option<serde_json::Value>,
    /// The share of sessions that it is told of.
    #[serde(default = "all")]
    pub sampling_rate: f64,
    /// Nothing of what was said is told.
    #[serde(default)]
    pub privacy_mode: bool,
    /// What each part cost.
    #[serde(default)]
    pub broadcast_generation_cost: bool,
    /// Whose key it was.
    #[serde(default)]
    pub broadcast_generation_identity: bool,
    /// Which application asked.
    #[serde(default)]
    pub broadcast_generation_request_context: bool,
}

fn yes() -> bool {
    true
}

fn all() -> f64 {
    1.0
}

pub fn read(raw: &raw::Config, lines: &Lines, source: &Source) -> anyhow::Result<Audience> {
    let mut destinations: Vec<Arc<broadcast::Destination>> = Vec::new();
    let mut mistakes = Mistakes::default();
    for (place, entry) in raw.destinations.iter().enumerate() {
        let path = format!("destinations[{place}]");
        let read = destination(entry, source).map_err(|(member, problem)| {
            let path = if member.is_empty() { path.clone() } else { format!("{path}.{member}") };
            lines.named(&path, problem.context(format!("{path} ({})", entry.name)))
        });
        let Some(read) = mistakes.note(read) else { continue };
        if destinations.iter().any(|known| known.id == read.id) {
            let path = format!("{path}.name");
            let mistake = anyhow!("{path}: {:?} names another destination already", entry.name);
            mistakes.note::<()>(Err(lines.named(&path, mistake)));
        } else if entry.enabled {
            destinations.push(Arc::new(read));
        }
    }
    mistakes.check()?;
    let own = &raw.observability;
    let key = "observability.webhook_secret";
    let webhook_secret = own.webhook_secret.as_deref().map(|text| secret::resolve(text, source)).transpose();
    let webhook_secret = webhook_secret.map_err(|problem| lines.named(key, problem.context(key)))?;
    let host = source
        .variable("HOSTNAME")
        .map(str::to_owned)
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let service = broadcast::Service {
        name: own.service_name.clone().unwrap_or_else(|| raw.service.name.clone()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: host.map_or_else(|| "unknown".to_owned(), |host| host.trim().to_owned()),
        environment: own.environment.clone(),
        brand: raw.service.name.clone(),
        region: raw.service.region.clone(),
    };
    let bounds = Bounds { letters: own.outbox_letters, bytes: own.outbox_bytes };
    for (key, value) in [("outbox_letters", bounds.letters), ("outbox_bytes", bounds.bytes)] {
        if value == 0 {
            let key = format!("observability.{key}");
            return Err(lines.named(&key, anyhow!("{key}: must be at least 1")));
        }
    }
    Ok(Audience { destinations, service, webhook_secret, bounds, locks_privacy: own.lock_privacy })
}

type Mistake = (String, anyhow::Error);

fn destination(entry: &Destination, source: &Source) -> Result<broadcast::Destination, Mistake> {
    let wrong = |member: &str, problem: String| (member.to_owned(), anyhow!(problem));
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if entry.name.is_empty() || entry.name.len() > 64 || !entry.name.bytes().all(fits) {
        return Err(wrong("name", "must be up to 64 of a-z, A-Z, 0-9, -, _ and .".to_owned()));
    }
    let names: Vec<&str> = Kind::ALL.iter().map(|(name, _)| *name).collect();
    let kind = Kind::parse(&entry.kind).ok_or_else(|| {
        let hint = nearest(&entry.kind, &names).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        wrong("type", format!("{:?} is none of {}{hint}", entry.kind, names.join(", ")))
    })?;
    if !(0.0001..=1.0).contains(&entry.sampling_rate) {
        return Err(wrong("sampling_rate", "must be from 0.0001 to 1".to_owned()));
    }
    let mut config = Config::default();
    for (section, texts, values) in
        [("config", &entry.config, &mut config.values), ("headers", &entry.headers, &mut config.headers)]
    {
        for (name, text) in texts {
            let value = secret::resolve(text, source).map_err(|problem| (format!("{section}.{name}"), problem))?;
            values.insert(name.clone(), value);
        }
    }
    let target = config.target(kind).map_err(|mistake| match mistake.member.strip_prefix("headers.") {
        Some(_) => wrong(&mistake.member, mistake.message),
        None => wrong(&format!("config.{}", mistake.member), mistake.message),
    })?;
    let hash = |text: &String| KeyHash::parse(text).with_context(|| format!("{text:?} is not the hash of a key"));
    let keys = entry.api_key_hashes.iter().map(hash).collect::<anyhow::Result<_>>();
    let keys = keys.map_err(|problem| ("api_key_hashes".to_owned(), problem))?;
    let filter = entry.filter_rules.as_ref().map(Filter::read).transpose().map_err(|mistake| {
        let member =
            if mistake.path.is_empty() { "filter_rules".into() } else { format!("filter_rules.{}", mistake.path) };
        wrong(&member, mistake.message)
    })?;
    Ok(broadcast::Destination {
        id: entry.name.clone(),
        kind,
        target,
        scope: Scope {
            workspace: entry.workspace.as_deref().map(|id| WorkspaceId(id.into())),
            keys: (!entry.api_key_hashes.is_empty()).then_some(keys),
            filter: filter.flatten(),
            share: entry.sampling_rate,
        },
        is_private: entry.privacy_mode,
        tells: Tells {
            cost: entry.broadcast_generation_cost,
            identity: entry.broadcast_generation_identity,
            context: entry.broadcast_generation_request_context,
        },
        is_operators: true,
    })
}

#[cfg(test)]
mod tests {
    use crate::config::tests::problem;

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let at = |text: &str| problem(&format!("[[destinations]]\nname = \"d\"\n{text}\n"));
        for (text, expected) in [
            ("type = \"webhok\"", "line 3: destinations[0].type (d): \"webhok\" is none of "),
            ("type = \"webhook\"", "line 1: destinations[0].config.url (d): is required"),
            (
                "type = \"webhook\"\nconfig = { url = \"x\" }",
                "line 4: destinations[0].config.url (d): must be an address",
            ),
            (
                "type = \"webhook\"\nconfig = { url = \"env:NOWHERE\" }",
                "line 4: destinations[0].config.url (d): environment variable NOWHERE is not set",
            ),
            (
                "type = \"webhook\"\nconfig = { url = \"https://w\" }\nheaders = { Host = \"x\" }",
                "line 5: destinations[0].headers.Host (d): is not a header that may be set",
            ),
            (
                "type = \"webhook\"\nconfig = { url = \"https://w\" }\nsampling_rate = 2.0",
                "line 5: destinations[0].sampling_rate (d): must be from 0.0001 to 1",
            ),
            (
                "type = \"webhook\"\nconfig = { url = \"https://w\" }\napi_key_hashes = [\"x\"]",
                "line 5: destinations[0].api_key_hashes (d): \"x\" is not the hash of a key",
            ),
        ] {
            let said = at(text);
            assert!(said.contains(expected), "{said}\n{expected}");
        }
    }
}
