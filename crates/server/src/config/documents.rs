//! How documents are read, from what was written about it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tidegate_core::Money;
use tidegate_gateway::PdfEngine;
use tidegate_gateway::extract::Limits;
use tidegate_gateway::snapshot::Documents;
use tidegate_tools::ocr;

use super::lines::Lines;
use super::{Source, raw, secret};

pub fn limits(raw: &raw::Parser, lines: &Lines) -> anyhow::Result<Limits> {
    let range = |key: &str, value: u64, least: u64, most: u64| {
        let is_within = (least..=most).contains(&value);
        let problem = || lines.named(key, anyhow::anyhow!("{key}: must be between {least} and {most}"));
        if is_within { Ok(()) } else { Err(problem()) }
    };
    // Less does not hold the program itself.
    range("parser.memory_bytes", raw.memory_bytes, 128 << 20, 64 << 30)?;
    range("parser.time_ms", raw.time_ms, 100, 600_000)?;
    range("parser.parallel", raw.parallel as u64, 1, 1_024)?;
    range("parser.max_output_bytes", raw.max_output_bytes as u64, 64 << 10, 64 << 20)?;
    Ok(Limits {
        memory_bytes: raw.memory_bytes,
        time: Duration::from_millis(raw.time_ms),
        parallel: raw.parallel,
        max_output_bytes: raw.max_output_bytes,
    })
}

pub fn read(raw: &raw::Parser, lines: &Lines, source: &Source) -> anyhow::Result<Documents> {
    let named = |key: &str, problem: anyhow::Error| lines.named(key, problem.context(key.to_owned()));
    let default = PdfEngine::parse(&raw.default).filter(|engine| *engine != PdfEngine::Native);
    let default = default.ok_or_else(|| {
        let problem = format!("{:?} is none of cloudflare-ai, mistral-ocr", raw.default);
        named("parser.default", anyhow::anyhow!(problem))
    })?;
    let ocr = service(&raw.ocr, source).map_err(|(member, problem)| named(&format!("parser.ocr.{member}"), problem))?;
    if default == PdfEngine::Ocr && ocr.is_none() {
        let problem = "mistral-ocr needs parser.ocr.url or parser.ocr.api_key";
        return Err(named("parser.default", anyhow::anyhow!(problem)));
    }
    Ok(Documents { default, ocr: ocr.map(Arc::new) })
}

fn service(raw: &raw::Ocr, source: &Source) -> Result<Option<ocr::Service>, (&'static str, anyhow::Error)> {
    let price = Money::parse(raw.price_per_1000_pages.text()).map_err(|error| anyhow::anyhow!("{error}"));
    let price = price.and_then(|price| {
        ensure!(price >= Money::ZERO, "must be at least 0");
        Ok(price)
    });
    let price_per_1000_pages = price.map_err(|problem| ("price_per_1000_pages", problem))?;
    if raw.url.is_none() && raw.api_key.is_none() {
        return Ok(None);
    }
    let text = raw.url.as_deref().unwrap_or(ocr::ADDRESS);
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let uri = url.filter(|url| url.host_str().is_some() && url.username().is_empty());
    let uri = uri.and_then(|url| url.as_str().parse().ok());
    let uri = uri.context("must be an address such as http://ocr.internal:8080/v1/ocr, without a user");
    let uri = uri.map_err(|problem| ("url", problem))?;
    let key = raw.api_key.as_deref().map(|text| secret::resolve(text, source)).transpose();
    let key = key.map_err(|problem| ("api_key", problem))?;
    let model = raw.model.clone().unwrap_or_else(|| ocr::MODEL.to_owned());
    Ok(Some(ocr::Service { uri, key, model, price_per_1000_pages }))
}

#[cfg(test)]
mod tests {
    use crate::config::tests::problem;

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let table = [
            (
                "[parser]\ndefault = \"native\"",
                "line 2: parser.default: \"native\" is none of cloudflare-ai, mistral-ocr",
            ),
            (
                "[parser]\ndefault = \"mistral-ocr\"",
                "line 2: parser.default: mistral-ocr needs parser.ocr.url or parser.ocr.api_key",
            ),
            (
                "[parser.ocr]\nurl = \"ocr.internal\"",
                "line 2: parser.ocr.url: must be an address such as http://ocr.internal:8080/v1/ocr, without a user",
            ),
            ("[parser.ocr]\nprice_per_1000_pages = -1", "line 2: parser.ocr.price_per_1000_pages: "),
            (
                "[parser.ocr]\napi_key = \"env:NOWHERE\"",
                "line 2: parser.ocr.api_key: environment variable NOWHERE is not set",
            ),
        ];
        for (text, wanted) in table {
            let told = problem(text);
            assert!(told.contains(wanted), "{told}\nnot\n{wanted}");
        }
        assert_eq!(problem("[parser]\ndefault = \"mistral-ocr\"\n[parser.ocr]\napi_key = \"k\""), "ok");
        assert_eq!(problem("[parser.ocr]\nurl = \"http://ocr.internal/v1/ocr\"\nprice_per_1000_pages = 1.5"), "ok");
    }
}
