//! The sandbox that commands of models run in, from what was written about it.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tidegate_tools::sandbox::Service;

use super::lines::Lines;
use super::search::dollars;
use super::{Source, raw, secret};

pub fn read(raw: &raw::Sandbox, lines: &Lines, source: &Source) -> anyhow::Result<Option<Arc<Service>>> {
    let service = service(raw, source).map_err(|(member, problem)| {
        let path = format!("tools.sandbox.{member}");
        lines.named(&path, problem.context(path.clone()))
    })?;
    Ok(service.map(Arc::new))
}

type Mistake = (&'static str, anyhow::Error);

fn service(raw: &raw::Sandbox, source: &Source) -> Result<Option<Service>, Mistake> {
    let wrong = |member: &'static str| move |problem: anyhow::Error| (member, problem);
    match raw.backend.as_str() {
        "none" => return Ok(None),
        "http" => {}
        other => return Err(("backend", anyhow::anyhow!("{other:?} is none of none, http"))),
    }
    let hosts = match raw.network.as_str() {
        "off" if raw.allowed_hosts.is_empty() => Vec::new(),
        "off" => return Err(("allowed_hosts", anyhow::anyhow!("needs network = \"allowlist\""))),
        "allowlist" => raw.allowed_hosts.clone(),
        other => return Err(("network", anyhow::anyhow!("{other:?} is none of off, allowlist"))),
    };
    let key = raw.api_key.as_deref().map(|text| secret::resolve(text, source)).transpose();
    Ok(Some(Service {
        url: address(raw.url.as_deref()).map_err(wrong("url"))?,
        key: key.map_err(wrong("api_key"))?,
        price_per_second: dollars(raw.price_per_second.as_ref()).map_err(wrong("price_per_second"))?,
        hosts,
    }))
}

fn address(given: Option<&str>) -> anyhow::Result<String> {
    let text = given.context("needed: the address of your service")?;
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let is_plain = |url: &url::Url| {
        url.host_str().is_some() && url.query().is_none() && url.fragment().is_none() && url.username().is_empty()
    };
    ensure!(
        url.as_ref().is_some_and(is_plain),
        "must be an address such as http://sandbox.internal:8700, without a query or a user"
    );
    Ok(text.trim_end_matches('/').to_owned())
}
