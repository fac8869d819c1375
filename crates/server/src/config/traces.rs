//! Where the gateway's own spans go, by the variables that OpenTelemetry names.

use anyhow::{Context as _, bail};
use http::Uri;
use http::header::HeaderName;
use tidegate_core::Secret;
use tidegate_gateway::traces::Collector;
use tidegate_observe::broadcast::Service;

use super::Source;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// Nothing where no collector is named.
pub fn read(source: &Source, service: &Service) -> anyhow::Result<Option<Collector>> {
    let Some(endpoint) = source.variable(ENDPOINT) else { return Ok(None) };
    let uri: Uri = format!("{}/v1/traces", endpoint.trim_end_matches('/'))
        .parse()
        .with_context(|| format!("{ENDPOINT}: must be an address such as http://otel.internal:4318"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        bail!("{ENDPOINT}: must be an address such as http://otel.internal:4318");
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        bail!("{ENDPOINT}: must not hold a user name or password; use {HEADERS}");
    }
    let mut headers = Vec::new();
    let pairs = source.variable(HEADERS).unwrap_or_default().split(',').map(str::trim);
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        // What is written there may be a secret: it is not repeated.
        let (name, value) = pair.split_once('=').with_context(|| format!("{HEADERS}: must be name=value, …"))?;
        let name: HeaderName = name.trim().parse().with_context(|| format!("{HEADERS}: has a name that is none"))?;
        let value = decoded(value.trim());
        http::HeaderValue::from_bytes(&value)
            .with_context(|| format!("{HEADERS}: {name} has a value that cannot be sent"))?;
        headers.push((name, Secret::new(value)));
    }
    let is_json = match source.variable(PROTOCOL) {
        None | Some("http/protobuf") => false,
        Some("http/json") => true,
        Some(_) => bail!("{PROTOCOL}: must be http/protobuf or http/json"),
    };
    let name = source.variable(SERVICE).map_or_else(|| service.name.clone(), ToOwned::to_owned);
    Ok(Some(Collector { uri, headers, is_json, service: Service { name, ..service.clone() } }))
}

/// Without its percent signs.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut out, mut place) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(place) {
        let pair = text.get(place + 1..place + 3).filter(|_| *byte == b'%');
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(value) => {
                out.push(value);
                place += 3;
            }
            None => {
                out.push(*byte);
                place += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector(variables: &[(&str, &str)]) -> anyhow::Result<Option<Collector>> {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let service = Service { name: "tidegate".to_owned(), ..Service::default() };
        read(&Source { environment, ..Source::default() }, &service)
    }

    #[test]
    fn the_variables_of_opentelemetry_are_read() {
        assert!(collector(&[]).unwrap().is_none());
        let all = [
            (ENDPOINT, "http://otel.internal:4318/"),
            (HEADERS, "authorization=Bearer%20abc+==, x-own=1"),
            (PROTOCOL, "http/json"),
            (SERVICE, "gate"),
        ];
        let read = collector(&all).unwrap().unwrap();
        assert_eq!(
            (read.uri.to_string().as_str(), read.service.name.as_str(), read.is_json),
            ("http://otel.internal:4318/v1/traces", "gate", true)
        );
        let headers: Vec<_> =
            read.headers.iter().map(|(name, value)| (name.as_str(), value.expose(<[u8]>::to_vec))).collect();
        assert_eq!(headers, [("authorization", b"Bearer abc+==".to_vec()), ("x-own", b"1".to_vec())]);
        assert!(!collector(&all[..1]).unwrap().unwrap().is_json);
    }

    #[test]
    fn what_cannot_be_used_is_named_and_not_repeated() {
        for (name, value) in [
            (ENDPOINT, "otel.internal"),
            (ENDPOINT, "ftp://x"),
            (ENDPOINT, "http://planted:password@otel.internal:4318"),
            (HEADERS, "secret"),
            (HEADERS, "a b=secret"),
            (PROTOCOL, "grpc"),
        ] {
            let endpoint = (ENDPOINT, "http://otel.internal:4318");
            let variables = if name == ENDPOINT { vec![(name, value)] } else { vec![endpoint, (name, value)] };
            let error = format!("{:#}", collector(&variables).err().unwrap());
            assert!(error.contains(name) && !error.contains("secret"), "{error}");
        }
    }
}
