//! Who judges what people write, from what was written about it.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tidegate_core::Money;
use tidegate_gateway::snapshot::Moderation;
use tidegate_tools::moderation::{self, Backend, Service};

use super::lines::Lines;
use super::{Source, raw, secret};

pub fn read(raw: &raw::Moderation, lines: &Lines, source: &Source) -> anyhow::Result<Option<Arc<Moderation>>> {
    let made = checked(raw, source).map_err(|(member, problem)| {
        let path = format!("moderation.{member}");
        lines.named(&path, problem.context(path.clone()))
    });
    Ok(made?.map(Arc::new))
}

fn checked(raw: &raw::Moderation, source: &Source) -> Result<Option<Moderation>, (&'static str, anyhow::Error)> {
    let denies_on_error = match raw.on_error.as_str() {
        "allow" => false,
        "deny" => true,
        other => return Err(("on_error", anyhow::anyhow!("{other:?} is none of allow, deny"))),
    };
    let price = Money::parse(raw.price_per_call.text()).map_err(|error| anyhow::anyhow!("{error}"));
    let price = price.and_then(|price| {
        ensure!(price >= Money::ZERO, "must be at least 0");
        Ok(price)
    });
    let price_per_call = price.map_err(|problem| ("price_per_call", problem))?;
    let Some(backend) = raw.backend.as_deref() else { return Ok(None) };
    let backend = match backend {
        "keywords" if raw.keywords.is_empty() => {
            return Err(("keywords", anyhow::anyhow!("needed by the backend keywords")));
        }
        "keywords" => Backend::Keywords(raw.keywords.iter().map(|word| word.to_lowercase()).collect()),
        "openai" => Backend::Openai(service(raw, Some(moderation::OPENAI), source)?),
        "http" => Backend::Http(service(raw, None, source)?),
        other => {
            let names = Backend::NAMES.join(", ");
            return Err(("backend", anyhow::anyhow!("{other:?} is none of {names}")));
        }
    };
    Ok(Some(Moderation { backend, denies_on_error, price_per_call }))
}

fn service(
    raw: &raw::Moderation,
    address: Option<&str>,
    source: &Source,
) -> Result<Service, (&'static str, anyhow::Error)> {
    let text = raw.url.as_deref().or(address).context("needed: the address of your own service");
    let text = text.map_err(|problem| ("url", problem))?;
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let uri = url.filter(|url| url.host_str().is_some() && url.username().is_empty());
    let uri = uri.and_then(|url| url.as_str().parse().ok());
    let uri = uri.context("must be an address such as http://guard.internal:8080/judge, without a user");
    let uri = uri.map_err(|problem| ("url", problem))?;
    let key = raw.api_key.as_deref().map(|text| secret::resolve(text, source)).transpose();
    let key = key.map_err(|problem| ("api_key", problem))?;
    let model = raw.model.clone().unwrap_or_else(|| moderation::MODEL.to_owned());
    Ok(Service { uri, key, model })
}

#[cfg(test)]
mod tests {
    use crate::config::tests::problem;

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let table = [
            ("backend = \"words\"", "line 2: moderation.backend: \"words\" is none of keywords, openai, http"),
            ("backend = \"keywords\"", "moderation.keywords: needed by the backend keywords"),
            ("backend = \"http\"", "moderation.url: needed: the address of your own service"),
            ("backend = \"http\"\nurl = \"guard\"", "line 3: moderation.url: must be an address"),
            ("on_error = \"ask\"", "line 2: moderation.on_error: \"ask\" is none of allow, deny"),
        ];
        for (text, wanted) in table {
            let told = problem(&format!("[moderation]\n{text}"));
            assert!(told.contains(wanted), "{told}\nnot\n{wanted}");
        }
        assert_eq!(problem("[moderation]\nbackend = \"openai\"\napi_key = \"k\""), "ok");
    }
}
