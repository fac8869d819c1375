//! Where it goes, from what was written about it. Most destinations take OTLP and differ in address and headers only.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidegate_core::Secret;

use super::kind::Kind;
use super::object::Bucket;
use super::rows::Table;
use super::snowflake::Warehouse;

/// Names that a caller must not give a header: they belong to the connection or to somebody's cloud.
const FORBIDDEN: [&str; 11] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "metadata",
    "metadata-flavor",
    "x-aws-ec2-metadata-token",
    "x-aws-ec2-metadata-token-ttl-seconds",
];

/// Whether a caller must not give a header of this name, which is in small letters.
pub fn is_forbidden(name: &str) -> bool {
    FORBIDDEN.contains(&name) || name.starts_with("proxy-")
}

/// A configuration as it was written; values may be secrets, so all of them are kept as such.
#[derive(Default)]
pub struct Config {
    pub values: BTreeMap<String, Secret>,
    pub headers: BTreeMap<String, Secret>,
}

/// Whom to call, and how.
pub struct Target {
    /// Where all that is sent begins.
    pub url: String,
    pub is_put: bool,
    pub headers: Vec<(String, Secret)>,
    /// Bodies are compressed on the way.
    pub is_packed: bool,
    pub shape: Shape,
}

/// In which form it is told.
pub enum Shape {
    Otlp(Otlp),
    /// One object per request, in a bucket.
    Object(Bucket),
    /// One row per span, in a table of ClickHouse.
    Rows(Table),
    /// The same in one of Snowflake.
    Statement(Warehouse),
    /// Spans of an application, by its name.
    Datadog(String),
    /// Events of a project, by its key.
    Events(Secret),
}

#[derive(Default)]
pub struct Otlp {
    pub is_protobuf: bool,
    /// What else the sender is, by name.
    pub resource: Vec<(String, String)>,
    /// Spans that one call may carry; nothing where only letters and bytes are counted.
    pub most_spans: Option<usize>,
}

/// Whoever writes a webhook can rely on it.
const MOST_SPANS: usize = 100;

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
        let mut shape = Shape::Otlp(Otlp::default());
        let mut is_packed = false;
        let (member, url, mut headers) = match kind {
            Kind::OtelCollector => {
                let is_protobuf = match text("protocol").as_str() {
                    "http/json" => false,
                    "http/protobuf" => true,
                    _ => return Err(wrong("protocol", "must be http/json or http/protobuf")),
                };
                is_packed = match text("compression").as_str() {
                    "none" => false,
                    "gzip" => true,
                    _ => return Err(wrong("compression", "must be none or gzip")),
                };
                shape = Shape::Otlp(Otlp { is_protobuf, ..Otlp::default() });
                ("endpoint", text("endpoint"), Vec::new())
            }
            Kind::Webhook => {
                shape = Shape::Otlp(Otlp { most_spans: Some(MOST_SPANS), ..Otlp::default() });
                ("url", text("url"), Vec::new())
            }
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
                let Some(key) = key_of(&dsn) else {
                    return Err(wrong("dsn", "must look like https://<key>@<host>/<project>"));
                };
                let header = format!("sentry sentry_version=7, sentry_key={key}");
                ("otlpEndpoint", text("otlpEndpoint"), vec![("x-sentry-auth".to_owned(), Secret::new(header))])
            }
            Kind::Arize => {
                // It files traces by what the sender says it is.
                let resource =
                    ["openinference.project.name", "model_id"].map(|name| (name.to_owned(), text("modelId")));
                shape = Shape::Otlp(Otlp { resource: resource.into(), ..Otlp::default() });
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
            Kind::Weave => {
                let resource = ["entity", "project"].map(|name| (format!("wandb.{name}"), text(name)));
                shape = Shape::Otlp(Otlp { is_protobuf: true, resource: resource.into(), ..Otlp::default() });
                ("baseUrl", under("baseUrl", "/otel/v1/traces"), vec![with("wandb-api-key", "apiKey")])
            }
            Kind::Opik => {
                shape = Shape::Otlp(Otlp { is_protobuf: true, ..Otlp::default() });
                let headers = vec![
                    with("authorization", "apiKey"),
                    with("comet-workspace", "workspace"),
                    with("projectname", "projectName"),
                ];
                ("baseUrl", under("baseUrl", "/v1/private/otel/v1/traces"), headers)
            }
            Kind::Datadog => {
                shape = Shape::Datadog(text("mlApp"));
                ("url", text("url").trim_end_matches('/').to_owned(), vec![with("dd-api-key", "apiKey")])
            }
            Kind::PostHog => {
                shape = Shape::Events(Secret::new(text("apiKey")));
                ("endpoint", text("endpoint").trim_end_matches('/').to_owned(), Vec::new())
            }
            Kind::Snowflake => {
                let (warehouse, url) = Warehouse::read(&text).map_err(|(member, message)| wrong(member, message))?;
                shape = Shape::Statement(warehouse);
                let kind = Secret::new("PROGRAMMATIC_ACCESS_TOKEN");
                ("account", url, vec![bearer("token"), ("x-snowflake-authorization-token-type".to_owned(), kind)])
            }
            Kind::S3 => {
                let bucket = Bucket::read(&text).map_err(|(member, message)| wrong(member, message))?;
                let url = bucket.url.clone();
                shape = Shape::Object(bucket);
                ("endpoint", url, Vec::new())
            }
            Kind::ClickHouse => {
                let table = Table::read(&text).map_err(|(member, message)| wrong(member, message))?;
                shape = Shape::Rows(table);
                let headers = vec![with("x-clickhouse-user", "username"), with("x-clickhouse-key", "password")];
                ("host", under("host", "/"), headers)
            }
        };
        if !(url.starts_with("https://") || url.starts_with("http://")) {
            return Err(wrong(member, "must be an address that begins with https:// or http://"));
        }
        // They are not sent, and whoever tells of a connection would tell them.
        let authority = url.split("://").nth(1).unwrap_or_default().split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(wrong(
                member,
                "must not hold a user name or password: put them into headers, as authorization",
            ));
        }
        let is_put = match kind {
            Kind::S3 => true,
            Kind::Webhook => match text("method").to_uppercase().as_str() {
                "POST" => false,
                "PUT" => true,
                _ => return Err(wrong("method", "must be POST or PUT")),
            },
            _ => false,
        };
        for (name, value) in &self.headers {
            let small = name.to_ascii_lowercase();
            let is_token =
                !small.is_empty() && small.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            let is_clean = value.expose(|bytes| bytes.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f));
            if !is_token || is_forbidden(&small) {
                return Err(wrong(&format!("headers.{name}"), "is not a header that may be set"));
            }
            if !is_clean {
                return Err(wrong(&format!("headers.{name}"), "must not hold line breaks or other control characters"));
            }
            // Those who are used to OTLP's exporters say with these how it is to be written.
            if let (Shape::Otlp(otlp), false) = (&mut shape, kind == Kind::Webhook) {
                let said = value.expose(|bytes| String::from_utf8_lossy(bytes).trim().to_ascii_lowercase());
                match (small.as_str(), said.as_str()) {
                    ("content-type", "application/json") => otlp.is_protobuf = false,
                    ("content-type", "application/x-protobuf") => otlp.is_protobuf = true,
                    ("content-type", _) => {
                        return Err(wrong(
                            &format!("headers.{name}"),
                            "must be application/json or application/x-protobuf",
                        ));
                    }
                    ("content-encoding", "gzip") => is_packed = true,
                    ("content-encoding", _) => return Err(wrong(&format!("headers.{name}"), "must be gzip")),
                    _ => headers.push((small, value.expose(|bytes| Secret::new(bytes)))),
                }
                continue;
            }
            // What is sent is plain there, whatever a header says.
            if small == "content-encoding" {
                return Err(wrong(&format!("headers.{name}"), "is not a header that may be set"));
            }
            headers.push((small, value.expose(|bytes| Secret::new(bytes))));
        }
        Ok(Target { url, is_put, headers, is_packed, shape })
    }
}

/// The key in one of Sentry's addresses, `https://<key>@<host>/<project>`. Older ones have a second key behind a colon, which
/// nobody asks for any more, some stand under a path, and some have a query, which says nothing here.
fn key_of(dsn: &str) -> Option<&str> {
    let (keys, rest) = dsn.strip_prefix("https://")?.split_once('@')?;
    let (host, path) = rest.split_once('/')?;
    let key = keys.split(':').next()?;
    let (path, _) = path.split_once(['?', '#']).unwrap_or((path, ""));
    let project = path.trim_end_matches('/').rsplit('/').next()?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.split_once(']'));
    let (name, port) = bracketed.unwrap_or_else(|| host.split_at(host.find(':').unwrap_or(host.len())));
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_made_of = |text: &str, more: &[u8]| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
    };
    let is_host = match bracketed {
        Some(_) => name.parse::<Ipv6Addr>().is_ok(),
        None => is_made_of(name, b"-._"),
    };
    (is_made_of(key, b"-_") && is_host && is_port && is_made_of(project, b"-_")).then_some(key)
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
