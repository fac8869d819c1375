//! The engines that the web is searched with, from what was written about them.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use tidegate_core::Money;
use tidegate_gateway::snapshot::Search;
use tidegate_tools::search::{Engine, Fee, Found, Kind};

use super::lines::Lines;
use super::{Source, nearest, raw, secret};

/// Words that requests choose between engines by, and so no engine's name.
const RESERVED: [&str; 2] = ["auto", "native"];

pub fn read(raw: &raw::WebSearch, lines: &Lines, source: &Source) -> anyhow::Result<Search> {
    let mut engines = Vec::new();
    for (name, entry) in &raw.engines {
        let path = format!("tools.web_search.engines.{name}");
        let engine = engine(name, entry, source).map_err(|(member, problem)| {
            let path = if member.is_empty() { path.clone() } else { format!("{path}.{member}") };
            lines.named(&path, problem.context(path.clone()))
        })?;
        engines.push(Arc::new(engine));
    }
    let default = match (&raw.default_engine, engines.as_slice()) {
        (Some(wanted), _) => {
            let found = engines.iter().find(|engine| engine.name == *wanted).cloned();
            let problem = || {
                let key = "tools.web_search.default_engine";
                let names: Vec<&str> = raw.engines.keys().map(String::as_str).collect();
                let hint = nearest(wanted, &names).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
                let mistake = format!("{key}: {wanted:?} is not among tools.web_search.engines{hint}");
                lines.named(key, anyhow::anyhow!(mistake))
            };
            Some(found.ok_or_else(problem)?)
        }
        (None, [only]) => Some(only.clone()),
        (None, _) => None,
    };
    Ok(Search { engines, default })
}

type Mistake = (&'static str, anyhow::Error);

fn engine(name: &str, entry: &raw::SearchEngine, source: &Source) -> Result<Engine, Mistake> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > 32 || !name.bytes().all(fits) || RESERVED.contains(&name) {
        let problem = "the name must be up to 32 of a-z, 0-9, - and _, and neither auto nor native";
        return Err(("", anyhow::anyhow!(problem)));
    }
    let kind = Kind::parse(&entry.kind)
        .with_context(|| format!("{:?} is none of {}", entry.kind, Kind::NAMES.join(", ")))
        .map_err(|problem| ("kind", problem))?;
    let url = address(kind, entry.url.as_deref()).map_err(|problem| ("url", problem))?;
    let key = entry.api_key.as_deref().map(|text| secret::resolve(text, source)).transpose();
    let key = key.map_err(|problem| ("api_key", problem))?;
    if kind.needs_key() && key.is_none() {
        return Err(("api_key", anyhow::anyhow!("needed by {}", entry.kind)));
    }
    if kind != Kind::Static && !entry.results.is_empty() {
        return Err(("results", anyhow::anyhow!("only an engine of kind static has results of its own")));
    }
    let results = entry.results.iter().map(|result| Found {
        url: result.url.clone(),
        title: result.title.clone(),
        content: result.content.clone(),
        published_at: result.published_at.clone(),
        score: None,
    });
    let fee = Fee {
        per_call: dollars(entry.price_per_call.as_ref()).map_err(|problem| ("price_per_call", problem))?,
        included: entry.included_results,
        per_extra: dollars(entry.price_per_extra_result.as_ref())
            .map_err(|problem| ("price_per_extra_result", problem))?,
    };
    Ok(Engine { name: name.to_owned(), kind, url, key, results: results.collect(), fee })
}

/// An amount of at most nine decimal places, and of at most a thousand dollars: more is a mistake.
pub fn dollars(given: Option<&raw::Decimal>) -> anyhow::Result<Money> {
    const MOST: Money = Money(1_000_000_000_000);
    let Some(text) = given.map(raw::Decimal::text) else { return Ok(Money::ZERO) };
    let amount = Money::parse(text).ok().filter(|amount| (Money::ZERO..=MOST).contains(amount));
    amount.with_context(|| format!("{text:?} must be dollars from 0 to 1000 with at most nine decimal places"))
}

fn address(kind: Kind, given: Option<&str>) -> anyhow::Result<String> {
    if kind == Kind::Static {
        ensure!(given.is_none(), "a static engine has no address");
        return Ok(String::new());
    }
    let Some(text) = given.or_else(|| kind.address()) else { bail!("needed: the address of your own instance") };
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let is_plain = |url: &url::Url| {
        url.host_str().is_some() && url.query().is_none() && url.fragment().is_none() && url.username().is_empty()
    };
    ensure!(
        url.as_ref().is_some_and(is_plain),
        "must be an address such as http://searx.internal:8080, without a query or a user"
    );
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::tests::problem;

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let at = |text: &str| problem(&format!("[tools.web_search]\n{text}"));
        let engine = |text: &str| at(&format!("[tools.web_search.engines.house]\n{text}\n"));
        let place = "tools.web_search.engines.house";
        let table = [
            (engine("kind = \"searx\""), format!("line 3: {place}.kind: \"searx\" is none of searxng, brave, tavily, exa, perplexity, static")),
            (engine("kind = \"searxng\""), format!("line 2: {place}.url: needed: the address of your own instance")),
            (
                engine("kind = \"searxng\"\nurl = \"searx.internal\""),
                format!("line 4: {place}.url: must be an address such as http://searx.internal:8080, without a query or a user"),
            ),
            (engine("kind = \"brave\""), format!("line 2: {place}.api_key: needed by brave")),
            (
                engine("kind = \"brave\"\napi_key = \"env:NOWHERE\""),
                format!("line 4: {place}.api_key: environment variable NOWHERE is not set"),
            ),
            (
                engine("kind = \"brave\"\napi_key = \"k\"\nresults = [{ url = \"https://a.org\" }]"),
                format!("line 5: {place}.results: only an engine of kind static has results of its own"),
            ),
            (engine("kind = \"static\"\nkey = \"k\""), format!("line 4: {place}.key is not a setting")),
            (
                at("default_engine = \"hose\"\n[tools.web_search.engines.house]\nkind = \"static\"\n"),
                "line 2: tools.web_search.default_engine: \"hose\" is not among tools.web_search.engines; did you mean house?".to_owned(),
            ),
            (
                at("[tools.web_search.engines.auto]\nkind = \"static\"\n"),
                "line 2: tools.web_search.engines.auto: the name must be up to 32 of a-z, 0-9, - and _, and neither auto nor native".to_owned(),
            ),
        ];
        for (told, wanted) in table {
            assert!(told.contains(&wanted), "{told}\nnot\n{wanted}");
        }
        assert_eq!(engine("kind = \"searxng\"\nurl = \"http://searx.internal:8080/\""), "ok");
    }
}
