//! The configuration of a destination: as a body gives it, as it is kept, and as it is shown.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tidegate_core::Secret;
use tidegate_gateway::Failure;
use tidegate_observe::broadcast::Kind;
use tidegate_observe::broadcast::target::Config;
use url::{Origin, Url};

use crate::api::form::{Issues, Reader};

const LONGEST_VALUE: usize = 8_192;
/// From so many characters on the ends of a secret are shown.
const SHOWN_FROM: usize = 16;
/// What the log says of a secret.
const CHANGED: &str = "[changed]";

fn masked(secret: &Secret) -> String {
    secret.expose(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        let letters: Vec<char> = text.chars().collect();
        if letters.len() < SHOWN_FROM {
            return "***".to_owned();
        }
        let ends = |part: &[char]| part.iter().collect::<String>();
        format!("{}...{}", ends(&letters[..3]), ends(&letters[letters.len() - 4..]))
    })
}

/// A configuration as it is shown: of secrets and headers only what a mask leaves.
pub(super) fn shown(kind: &str, config: &Config) -> Map<String, Value> {
    let kind = Kind::parse(kind);
    let is_secret = |name: &str| kind.is_some_and(|kind| is_secret(kind, name));
    let mut members = Map::new();
    for (name, value) in &config.values {
        let plain = |bytes: &[u8]| without_query(&String::from_utf8_lossy(bytes));
        members.insert(name.clone(), json!(if is_secret(name) { masked(value) } else { value.expose(plain) }));
    }
    if !config.headers.is_empty() {
        let headers: Map<String, Value> =
            config.headers.iter().map(|(name, value)| (name.clone(), json!(masked(value)))).collect();
        members.insert("headers".to_owned(), Value::Object(headers));
    }
    members
}

/// An address with masks in its query, where hooks have what lets one in.
fn without_query(text: &str) -> String {
    let is_address = text.starts_with("https://") || text.starts_with("http://");
    let Some((address, query)) = text.split_once('?').filter(|_| is_address) else { return text.to_owned() };
    let pair = |pair: &str| match pair.split_once('=') {
        Some((name, value)) => format!("{name}={}", masked(&Secret::new(value))),
        None if pair.is_empty() => String::new(),
        None => masked(&Secret::new(pair)),
    };
    format!("{address}?{}", query.split('&').map(pair).collect::<Vec<_>>().join("&"))
}

/// What the log says of a change: the members that differ. Of secrets and headers it says only that they do, and of an address
/// where it leads, because the rest of it may be what lets one in.
pub(super) fn logged(kind: Kind, old: &Config, new: &Config) -> (Value, Value) {
    let (mut before, mut after) = (Map::new(), Map::new());
    let is_same = |one: Option<&Secret>, other: Option<&Secret>| {
        let bytes = |secret: Option<&Secret>| secret.map(|secret| secret.expose(<[u8]>::to_vec));
        bytes(one) == bytes(other)
    };
    let text = |name: &str, value: &Secret| {
        let text = value.expose(|bytes| String::from_utf8_lossy(bytes).into_owned());
        match Url::parse(&text).ok().filter(Url::has_host) {
            _ if is_secret(kind, name) => CHANGED.to_owned(),
            Some(url) => url.origin().ascii_serialization(),
            None => text,
        }
    };
    for name in old.values.keys().chain(new.values.keys()) {
        let (was, is) = (old.values.get(name), new.values.get(name));
        if is_same(was, is) {
            continue;
        }
        let (was, is) = (was.map(|value| text(name, value)), is.map(|value| text(name, value)));
        // Where it leads is the same.
        let is = if was == is { is.map(|_| CHANGED.to_owned()) } else { is };
        was.map(|text| before.insert(name.clone(), json!(text)));
        is.map(|text| after.insert(name.clone(), json!(text)));
    }
    for name in old.headers.keys().chain(new.headers.keys()) {
        let (was, is) = (old.headers.get(name), new.headers.get(name));
        if is_same(was, is) {
            continue;
        }
        let name = format!("headers.{name}");
        was.map(|_| before.insert(name.clone(), json!(CHANGED)));
        is.map(|_| after.insert(name.clone(), json!(CHANGED)));
    }
    (Value::Object(before), Value::Object(after))
}

/// A configuration as a body gives it; a member that is null is taken away.
pub(super) struct Given {
    values: Vec<(String, Option<Secret>)>,
    headers: Option<Vec<(String, Secret)>>,
}

impl Given {
    pub(super) fn read(reader: &mut Reader<'_>, raw: &RawValue) -> Option<Self> {
        let Value::Object(members) = reader.plain(raw)? else { return reader.refuse("must be an object") };
        let mut given = Self { values: Vec::new(), headers: None };
        for (name, value) in members {
            match (name.as_str(), value) {
                ("headers", Value::Null) => given.headers = Some(Vec::new()),
                ("headers", Value::Object(headers)) => {
                    let mut read = Vec::new();
                    for (header, value) in headers {
                        match value {
                            Value::String(text) if text.len() <= LONGEST_VALUE => {
                                read.push((header, Secret::new(text)))
                            }
                            _ => {
                                return reader.refuse(format!(
                                    "headers.{header} must be a string of at most {LONGEST_VALUE} bytes"
                                ));
                            }
                        }
                    }
                    given.headers = Some(read);
                }
                (_, Value::Null) => given.values.push((name, None)),
                (_, Value::String(text)) if text.len() <= LONGEST_VALUE => {
                    given.values.push((name, Some(Secret::new(text))))
                }
                _ => return reader.refuse(format!("{name} must be a string of at most {LONGEST_VALUE} bytes")),
            }
        }
        Some(given)
    }

    /// The whole of it: what is not given stays, and so does what comes back as it was shown.
    pub(super) fn onto(&self, known: Config, masks: &Map<String, Value>) -> Config {
        let mut config = known;
        for (name, value) in &self.values {
            match value {
                None => drop(config.values.remove(name)),
                Some(value) if is_mask(masks.get(name), value) => {}
                Some(value) => drop(config.values.insert(name.clone(), same(value))),
            }
        }
        if let Some(headers) = &self.headers {
            let mut old = std::mem::take(&mut config.headers);
            for (name, value) in headers {
                let mask = masks.get("headers").and_then(|headers| headers.get(name));
                let kept = is_mask(mask, value).then(|| old.remove(name)).flatten();
                config.headers.insert(name.clone(), kept.unwrap_or_else(|| same(value)));
            }
        }
        config
    }

    /// The same on what the destination was given before. Of what nobody is shown nothing goes with it to another place:
    /// whoever may name the place could read it there.
    pub(super) fn onto_its_own(&self, kind: Kind, known: Config) -> Result<Config, Failure> {
        let masks = shown(kind.as_str(), &known);
        let (before, kept) = (origin(kind, &known), self.kept(kind, &known, &masks));
        let config = self.onto(known, &masks);
        // What leads nowhere is refused for that.
        if let after @ Some(_) = origin(kind, &config)
            && after != before
        {
            let mut issues = Issues::default();
            kept.iter()
                .for_each(|member| issues.add(format!("config.{member}"), "must be given anew for another address"));
            issues.check()?;
        }
        Ok(config)
    }

    /// The members that stay as they are, of those that nobody is shown.
    fn kept(&self, kind: Kind, known: &Config, masks: &Map<String, Value>) -> Vec<String> {
        let is_replaced = |name: &String| {
            let given = self.values.iter().find(|(given, _)| given == name);
            given.is_some_and(|(_, value)| !value.as_ref().is_some_and(|value| is_mask(masks.get(name), value)))
        };
        let is_left = |name: &String| match &self.headers {
            None => true,
            Some(headers) => {
                let mask = masks.get("headers").and_then(|headers| headers.get(name));
                headers.iter().any(|(given, value)| given == name && is_mask(mask, value))
            }
        };
        let values = known.values.keys().filter(|name| is_secret(kind, name) && !is_replaced(name)).cloned();
        let headers = known.headers.keys().filter(|name| is_left(name)).map(|name| format!("headers.{name}"));
        values.chain(headers).collect()
    }
}

/// Whether a value is no more than what was shown of it.
fn is_mask(shown: Option<&Value>, value: &Secret) -> bool {
    // What was shown whole is the value itself.
    let shown = shown.and_then(Value::as_str);
    shown.is_some_and(|shown| value.expose(|bytes| bytes == shown.as_bytes()))
}

fn same(secret: &Secret) -> Secret {
    secret.expose(|bytes| Secret::new(bytes))
}

fn is_secret(kind: Kind, name: &str) -> bool {
    kind.fields().iter().any(|field| field.name == name && field.is_secret)
}

/// Scheme, host and port of where it leads.
fn origin(kind: Kind, config: &Config) -> Option<Origin> {
    let target = config.target(kind).ok()?;
    Url::parse(&target.url).ok().map(|url| url.origin())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lets_one_in_is_shown_of_no_address() {
        let of =
            |text: &str| Config { values: [("endpoint".to_owned(), Secret::new(text))].into(), ..Config::default() };
        let url = "https://h/o?token=PLANTEDSECRETPLANTED&x=1&PLANTEDSECRETALONE";
        let masks = shown("otel-collector", &of(url));
        assert_eq!(masks["endpoint"], "https://h/o?token=PLA...NTED&x=***&PLA...LONE");
        for plain in ["https://h/o", "no address?token=x"] {
            assert_eq!(shown("otel-collector", &of(plain))["endpoint"], plain);
        }
        // What comes back as it was shown changes nothing.
        let given =
            |text: &str| Given { values: vec![("endpoint".to_owned(), Some(Secret::new(text)))], headers: None };
        let after = |text: &str| {
            let config = given(text).onto_its_own(Kind::OtelCollector, of(url)).ok().unwrap();
            config.values["endpoint"].expose(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        assert_eq!(after(masks["endpoint"].as_str().unwrap()), url);
        assert_eq!(after("https://h/o?token=another"), "https://h/o?token=another");
    }
}
