//! One object per request in a bucket of S3, or of whoever speaks its protocol.

use serde_json::{Map, Value, json};
use tidegate_core::{Secret, Timestamp};

use super::record::Trace;
use super::span::{Part, Span};

/// What of a key's name stands in a path, in letters.
const LONGEST_NAME: usize = 64;

/// Where objects go, and who may put them there.
pub struct Bucket {
    /// The bucket itself, without a slash at its end.
    pub url: String,
    pub region: String,
    pub access_key_id: Secret,
    pub secret_access_key: Secret,
    pub session_token: Option<Secret>,
    prefix: String,
    template: String,
}

type Mistake = (&'static str, &'static str);

impl Bucket {
    pub(super) fn read(text: &impl Fn(&str) -> String) -> Result<Self, Mistake> {
        let (name, region) = (text("bucketName"), text("region"));
        let is_name = |name: &str, more: &[u8]| {
            name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || more.contains(&byte))
        };
        // The older ones may have capitals and underscores, but not everywhere.
        if !(3..=63).contains(&name.len()) || !is_name(&name, b"-.") {
            return Err(("bucketName", "must be 3 to 63 of a-z, 0-9, - and ."));
        }
        if region.is_empty() || !is_name(&region, b"-") {
            return Err(("region", "must be the name of a region, such as us-east-1"));
        }
        let url = match text("endpoint").as_str() {
            // A name with dots fits no certificate when it is part of the host's.
            "" if name.contains('.') => format!("https://s3.{region}.amazonaws.com/{name}"),
            "" => format!("https://{name}.s3.{region}.amazonaws.com"),
            endpoint => format!("{}/{name}", base(endpoint)?),
        };
        let template = text("pathTemplate");
        let mut rest = template.as_str();
        while let Some((_, after)) = rest.split_once('{') {
            match after.split_once('}') {
                Some((word, after)) if PLACES.contains(&word) => rest = after,
                _ => {
                    return Err((
                        "pathTemplate",
                        "may hold {prefix}, {date}, {year}, {month}, {day} and {apiKeyName} only",
                    ));
                }
            }
        }
        let token = text("sessionToken");
        Ok(Self {
            url,
            region,
            access_key_id: Secret::new(text("accessKeyId")),
            secret_access_key: Secret::new(text("secretAccessKey")),
            session_token: (!token.is_empty()).then(|| Secret::new(token)),
            prefix: text("prefix"),
            template,
        })
    }

    /// Where the object of a request goes, in the form that stands in an address.
    fn key(&self, trace: &Trace<'_>) -> String {
        let (at, id) = (trace.exchange.started, trace.id());
        let folder = self.folder(at, trace.maker.key_name);
        // Requests of one trace may begin in the same millisecond; none may take the other's place.
        let own = trace.spans.iter().find(|span| span.part == Part::Generation).filter(|_| trace.is_shared());
        let own = own.map(|span| format!("-{}", span.id)).unwrap_or_default();
        format!("{folder}{id}-{}{own}.json", at.0)
    }

    /// What a test of the connection puts there, time and again.
    pub(super) fn test_key(&self) -> String {
        let prefix = path(&self.prefix);
        format!("{prefix}connection-test.json")
    }

    fn folder(&self, at: Timestamp, key_name: &str) -> String {
        let date = at.to_string();
        let date = date.get(..10).unwrap_or_default();
        let mut parts = date.split('-');
        let mut next = || parts.next().unwrap_or_default();
        let (year, month, day) = (next(), next(), next());
        let values = [&self.prefix, date, year, month, day, &slug(key_name)];
        let filled = PLACES.iter().zip(values);
        path(&filled.fold(self.template.clone(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value)))
    }
}

const PLACES: [&str; 6] = ["prefix", "date", "year", "month", "day", "apiKeyName"];

/// Scheme, host and path of an endpoint. The host is written as it will stand in the call's head: it is signed.
fn base(endpoint: &str) -> Result<String, Mistake> {
    let wrong = ("endpoint", "must be an address that begins with https:// or http://, without a query or a user");
    let (scheme, rest) = endpoint.split_once("://").ok_or(wrong)?;
    let own_port = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return Err(wrong),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || rest.contains(['?', '#', '@']) {
        return Err(wrong);
    }
    let host = host.to_ascii_lowercase();
    let host = host.strip_suffix(own_port).unwrap_or(&host);
    let path = path.trim_matches('/');
    Ok(if path.is_empty() { format!("{scheme}://{host}") } else { format!("{scheme}://{host}/{path}") })
}

fn slug(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let dashed: String = name.chars().take(LONGEST_NAME).map(plain).collect();
    let words: Vec<&str> = dashed.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "unnamed".to_owned() } else { words.join("-") }
}

/// A folder in the form that stands in an address, with a slash at its end; nothing of an empty one. Dots that would lead
/// elsewhere are left out.
fn path(text: &str) -> String {
    let mut out = String::new();
    for part in text.split('/').filter(|part| !matches!(*part, "" | "." | "..")) {
        encode(part, &mut out);
        out.push('/');
    }
    out
}

/// What a part of an address may not hold becomes `%XX`.
pub(super) fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            _ if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => out.push(char::from(byte)),
            _ => {
                let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0').to_ascii_uppercase();
                out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
}

/// The place of an object and what it holds, as they wait.
pub(super) fn told(trace: &Trace<'_>, bucket: &Bucket) -> Vec<u8> {
    format!("{}\n{}", bucket.key(trace), object(trace)).into_bytes()
}

fn object(trace: &Trace<'_>) -> Value {
    let exchange = trace.exchange;
    json!({
        "id": trace.id(),
        "name": trace.name(),
        "timestamp": exchange.started.to_string(),
        "userId": exchange.user.as_deref(),
        "sessionId": exchange.session.as_deref(),
        "metadata": trace.metadata(),
        "observations": trace.spans.iter().map(|span| observation(span, &trace.maker.service.brand)).collect::<Vec<_>>(),
    })
}

fn observation(span: &Span, brand: &str) -> Value {
    let mut members = Map::new();
    let mut add = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
    add("id", json!(span.id));
    add("parentId", json!(span.parent));
    add("type", json!(span.part.as_str()));
    add("name", json!(span.name));
    add("startTime", json!(span.started().to_string()));
    add("endTime", json!(span.ended().to_string()));
    add("level", json!(span.level()));
    add("status", json!(span.status()));
    add("input", json!(span.input()));
    add("output", json!(span.output()));
    if span.part == Part::Generation {
        let usage = |name: &str| json!(span.count(&format!("gen_ai.usage.{name}")));
        add("model", json!(span.get("gen_ai.response.model")));
        add("provider", json!(span.get("gen_ai.provider.name")));
        add("modelParameters", Value::Object(span.parameters()));
        let total = span.count("gen_ai.usage.input_tokens") + span.count("gen_ai.usage.output_tokens");
        let usage = json!({
            "input": usage("input_tokens"),
            "output": usage("output_tokens"),
            "total": total,
            "cacheRead": usage("cache_read.input_tokens"),
            "cacheWrite": usage("cache_creation.input_tokens"),
            "reasoning": usage("reasoning.output_tokens"),
        });
        add("usage", usage);
        let part = |name: &str| span.get(&format!("{brand}.cost.{name}"));
        let (input, output) = (part("prompt"), part("completion"));
        add("cost", json!({"input": input, "output": output, "total": span.get("gen_ai.usage.cost")}));
        add("finishReason", json!(span.get("gen_ai.response.finish_reason")));
    }
    let ours = format!("{brand}.");
    let own = span.plain().into_iter().filter(|(name, _)| name.starts_with(&ours) || name.starts_with("gen_ai.tool."));
    add("metadata", Value::Object(own.collect()));
    Value::Object(members)
}

#[cfg(test)]
#[path = "object_tests.rs"]
mod tests;
