//! Where it goes: one row per kind of destination. Most of them take OTLP and differ in address and headers only.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidegate_core::Secret;

/// Names that a caller must not give a header: they belong to the connection or to somebody's cloud.
const FORBIDDEN: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "metadata-flavor",
    "x-aws-ec2-metadata-token",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    OtelCollector,
    Webhook,
    Langfuse,
    Langsmith,
    Grafana,
    NewRelic,
    Sentry,
    Arize,
    Braintrust,
    Ramp,
}

/// A member of a destination's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    /// What it is when nobody says; none where somebody must.
    pub default: Option<&'static str>,
    pub is_secret: bool,
}

const fn needed(name: &'static str) -> Field {
    Field { name, default: None, is_secret: false }
}

const fn secret(name: &'static str) -> Field {
    Field { name, default: None, is_secret: true }
}

const fn usual(name: &'static str, default: &'static str) -> Field {
    Field { name, default: Some(default), is_secret: false }
}

impl Kind {
    pub const ALL: [(&'static str, Self); 10] = [
        ("otel-collector", Self::OtelCollector),
        ("webhook", Self::Webhook),
        ("langfuse", Self::Langfuse),
        ("langsmith", Self::Langsmith),
        ("grafana", Self::Grafana),
        ("newrelic", Self::NewRelic),
        ("sentry", Self::Sentry),
        ("arize", Self::Arize),
        ("braintrust", Self::Braintrust),
        ("ramp", Self::Ramp),
    ];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind)
    }

    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The member that says where it is.
    pub fn address(self) -> &'static str {
        match self {
            Self::OtelCollector | Self::Langsmith => "endpoint",
            Self::Webhook => "url",
            Self::NewRelic => "region",
            Self::Sentry => "otlpEndpoint",
            Self::Langfuse | Self::Grafana | Self::Arize | Self::Braintrust | Self::Ramp => "baseUrl",
        }
    }

    /// The members of its configuration besides `headers`, which all of them have.
    pub fn fields(self) -> &'static [Field] {
        const COLLECTOR: &[Field] = &[needed("endpoint")];
        const WEBHOOK: &[Field] = &[needed("url"), usual("method", "POST")];
        const LANGFUSE: &[Field] =
            &[secret("publicKey"), secret("secretKey"), usual("baseUrl", "https://us.cloud.langfuse.com")];
        const LANGSMITH: &[Field] = &[
            secret("apiKey"),
            usual("endpoint", "https://api.smith.langchain.com"),
            usual("project", "main"),
            usual("workspaceId", ""),
        ];
        const GRAFANA: &[Field] = &[
            needed("instanceId"),
            secret("apiKey"),
            usual("baseUrl", "https://otlp-gateway-prod-us-west-0.grafana.net"),
        ];
        const NEW_RELIC: &[Field] = &[secret("licenseKey"), usual("region", "us")];
        const SENTRY: &[Field] = &[needed("otlpEndpoint"), secret("dsn")];
        const ARIZE: &[Field] =
            &[secret("apiKey"), secret("spaceKey"), needed("modelId"), usual("baseUrl", "https://otlp.arize.com")];
        const BRAINTRUST: &[Field] =
            &[secret("apiKey"), needed("projectId"), usual("baseUrl", "https://api.braintrust.dev")];
        const RAMP: &[Field] =
            &[secret("apiKey"), usual("baseUrl", "https://api.ramp.com/developer/v1/ai-usage/tidegate")];
        match self {
            Self::OtelCollector => COLLECTOR,
            Self::Webhook => WEBHOOK,
            Self::Langfuse => LANGFUSE,
            Self::Langsmith => LANGSMITH,
            Self::Grafana => GRAFANA,
            Self::NewRelic => NEW_RELIC,
            Self::Sentry => SENTRY,
            Self::Arize => ARIZE,
            Self::Braintrust => BRAINTRUST,
            Self::Ramp => RAMP,
        }
    }
}

/// A configuration as it was written; values may be secrets, so all of them are kept as such.
#[derive(Default)]
pub struct Config {
    pub values: BTreeMap<String, Secret>,
    pub headers: BTreeMap<String, Secret>,
}

/// Whom to call, and how.
pub struct Target {
    pub url: String,
    pub is_put: bool,
    pub headers: Vec<(String, Secret)>,
}

/// What is wrong with a configuration: its member, and what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub member: String,
    pub message: String,
}

impl Config {
    fn text(&self, kind: Kind, name: &str) -> String {
        let default = || kind.fields().iter().find(|field| field.name == name).and_then(|field| field.default);
        match self.values.get(name) {
            Some(value) => value.expose(|bytes| String::from_utf8_lossy(bytes).trim().to_owned()),
            None => default().unwrap_or_default().to_owned(),
        }
    }

    /// The target that it describes.
    pub fn target(&self, kind: Kind) -> Result<Target, Wrong> {
        let wrong = |member: &str, message: &str| Wrong { member: member.to_owned(), message: message.to_owned() };
        for field in kind.fields().iter().filter(|field| field.default.is_none()) {
            if self.text(kind, field.name).is_empty() {
                return Err(wrong(field.name, "is required"));
            }
        }
        if let Some(name) = self.values.keys().find(|name| kind.fields().iter().all(|field| field.name != **name)) {
            return Err(wrong(name, &format!("is not part of {}", kind.as_str())));
        }
        let text = |name: &str| self.text(kind, name);
        let under = |name: &str, path: &str| format!("{}{path}", text(name).trim_end_matches('/'));
        let basic = |user: &str, password: &str| {
            (
                "authorization".to_owned(),
                Secret::new(format!("Basic {}", STANDARD.encode(format!("{}:{}", text(user), text(password))))),
            )
        };
        let bearer = |name: &str| ("authorization".to_owned(), Secret::new(format!("Bearer {}", text(name))));
        let with = |header: &str, name: &str| (header.to_owned(), Secret::new(text(name)));
        let (member, url, mut headers) = match kind {
            Kind::OtelCollector => ("endpoint", text("endpoint"), Vec::new()),
            Kind::Webhook => ("url", text("url"), Vec::new()),
            Kind::Langfuse => {
                ("baseUrl", under("baseUrl", "/api/public/otel/v1/traces"), vec![basic("publicKey", "secretKey")])
            }
            Kind::Langsmith => {
                let mut headers = vec![with("x-api-key", "apiKey"), with("langsmith-project", "project")];
                if !text("workspaceId").is_empty() {
                    headers.push(with("x-tenant-id", "workspaceId"));
                }
                ("endpoint", under("endpoint", "/otel/v1/traces"), headers)
            }
            Kind::Grafana => ("baseUrl", under("baseUrl", "/otlp/v1/traces"), vec![basic("instanceId", "apiKey")]),
            Kind::NewRelic => {
                let host = match text("region").as_str() {
                    "us" => "otlp.nr-data.net",
                    "eu" => "otlp.eu01.nr-data.net",
                    _ => return Err(wrong("region", "must be one of us, eu")),
                };
                ("region", format!("https://{host}/v1/traces"), vec![with("api-key", "licenseKey")])
            }
            Kind::Sentry => {
                let dsn = text("dsn");
                let key = dsn.strip_prefix("https://").and_then(|rest| rest.split_once('@')).map(|(key, _)| key);
                let Some(key) = key.filter(|key| !key.is_empty()) else {
                    return Err(wrong("dsn", "must look like https://<key>@<host>/<project>"));
                };
                let header = format!("sentry sentry_version=7, sentry_key={key}");
                ("otlpEndpoint", text("otlpEndpoint"), vec![("x-sentry-auth".to_owned(), Secret::new(header))])
            }
            Kind::Arize => {
                let headers = vec![
                    with("api_key", "apiKey"),
                    with("space_id", "spaceKey"),
                    with("arize-project-name", "modelId"),
                ];
                ("baseUrl", under("baseUrl", "/v1/traces"), headers)
            }
            Kind::Braintrust => {
                let parent = ("x-bt-parent".to_owned(), Secret::new(format!("project_id:{}", text("projectId"))));
                ("baseUrl", under("baseUrl", "/otel/v1/traces"), vec![bearer("apiKey"), parent])
            }
            Kind::Ramp => ("baseUrl", text("baseUrl"), vec![bearer("apiKey")]),
        };
        if !(url.starts_with("https://") || url.starts_with("http://")) {
            return Err(wrong(member, "must be an address that begins with https:// or http://"));
        }
        let is_put = kind == Kind::Webhook
            && match text("method").to_uppercase().as_str() {
                "POST" => false,
                "PUT" => true,
                _ => return Err(wrong("method", "must be POST or PUT")),
            };
        for (name, value) in &self.headers {
            let small = name.to_ascii_lowercase();
            let is_token =
                !small.is_empty() && small.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            let is_clean = value.expose(|bytes| bytes.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f));
            if !is_token || FORBIDDEN.contains(&small.as_str()) || small.starts_with("proxy-") {
                return Err(wrong(&format!("headers.{name}"), "is not a header that may be set"));
            }
            if !is_clean {
                return Err(wrong(&format!("headers.{name}"), "must not hold line breaks or other control characters"));
            }
            headers.push((small, value.expose(|bytes| Secret::new(bytes))));
        }
        Ok(Target { url, is_put, headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(values: &[(&str, &str)], headers: &[(&str, &str)]) -> Config {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect()
        };
        Config { values: map(values), headers: map(headers) }
    }

    fn shown(target: &Target) -> (String, Vec<String>) {
        let header = |(name, value): &(String, Secret)| {
            value.expose(|bytes| format!("{name}: {}", String::from_utf8_lossy(bytes)))
        };
        (target.url.clone(), target.headers.iter().map(header).collect())
    }

    #[test]
    fn each_vendor_is_reached_where_it_listens() {
        type Row = (Kind, &'static [(&'static str, &'static str)], &'static str, &'static [&'static str]);
        let table: [Row; 6] = [
            (Kind::OtelCollector, &[("endpoint", "http://c:4318/v1/traces")], "http://c:4318/v1/traces", &[]),
            (
                Kind::Langfuse,
                &[("publicKey", "pk"), ("secretKey", "sk")],
                "https://us.cloud.langfuse.com/api/public/otel/v1/traces",
                &["authorization: Basic cGs6c2s="],
            ),
            (
                Kind::Grafana,
                &[("instanceId", "1"), ("apiKey", "k"), ("baseUrl", "https://g/")],
                "https://g/otlp/v1/traces",
                &["authorization: Basic MTpr"],
            ),
            (
                Kind::NewRelic,
                &[("licenseKey", "k"), ("region", "eu")],
                "https://otlp.eu01.nr-data.net/v1/traces",
                &["api-key: k"],
            ),
            (
                Kind::Sentry,
                &[("otlpEndpoint", "https://s/o"), ("dsn", "https://abc@s/1")],
                "https://s/o",
                &["x-sentry-auth: sentry sentry_version=7, sentry_key=abc"],
            ),
            (
                Kind::Braintrust,
                &[("apiKey", "k"), ("projectId", "p")],
                "https://api.braintrust.dev/otel/v1/traces",
                &["authorization: Bearer k", "x-bt-parent: project_id:p"],
            ),
        ];
        for (kind, values, url, headers) in table {
            let target = config(values, &[]).target(kind).map_err(|wrong| wrong.member).unwrap();
            assert_eq!(shown(&target), (url.to_owned(), headers.iter().map(|text| (*text).to_owned()).collect()));
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let webhook = [("url", "https://w")];
        for (kind, values, headers, member) in [
            (Kind::OtelCollector, &[][..], &[][..], "endpoint"),
            (Kind::OtelCollector, &[("endpoint", "ftp://x")], &[], "endpoint"),
            (Kind::OtelCollector, &[("endpoint", "https://x"), ("stranger", "1")], &[], "stranger"),
            (Kind::Webhook, &[("url", "https://w"), ("method", "GET")], &[], "method"),
            (Kind::Webhook, &webhook, &[("Host", "evil")], "headers.Host"),
            (Kind::Webhook, &webhook, &[("Proxy-Authorization", "x")], "headers.Proxy-Authorization"),
            (Kind::Webhook, &webhook, &[("x-a", "b\r\nx-c: d")], "headers.x-a"),
            (Kind::Webhook, &webhook, &[("x a", "b")], "headers.x a"),
            (Kind::NewRelic, &[("licenseKey", "k"), ("region", "asia")], &[], "region"),
            (Kind::Sentry, &[("otlpEndpoint", "https://s"), ("dsn", "https://s/1")], &[], "dsn"),
        ] {
            let wrong = config(values, headers).target(kind).err().map(|wrong| wrong.member);
            assert_eq!(wrong.as_deref(), Some(member));
        }
    }
}
