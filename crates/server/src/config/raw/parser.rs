//! Sections about documents that callers send or point at.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Decimal;

/// How pages and PDFs that callers send or point at are read: in processes of their own, within limits.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Parser {
    /// Address space of one such process, the program itself included.
    pub memory_bytes: u64,
    /// Milliseconds after which one is ended.
    pub time_ms: u64,
    /// How many there are at a time; changed by a restart only.
    pub parallel: usize,
    /// What one may write; a longer text is cut.
    pub max_output_bytes: usize,
    /// Who makes text of PDFs for models that cannot read files, where a request does not say it: `cloudflare-ai`, which
    /// is the built-in reader, or `mistral-ocr`.
    pub default: String,
    pub ocr: Ocr,
}

impl Default for Parser {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            time_ms: 10_000,
            parallel: 2,
            max_output_bytes: 4 << 20,
            default: "cloudflare-ai".to_owned(),
            ocr: Ocr::default(),
        }
    }
}

/// A service that reads pages which are pictures; there is one when it has an address or a key. It is sent whole documents.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ocr {
    /// Where it is; Mistral's own address when left out. Others of the same format will do.
    pub url: Option<String>,
    /// Its key: `env:NAME`, `file:PATH`, `cmd:[...]` or the value itself.
    pub api_key: Option<String>,
    /// The model it is asked for.
    pub model: Option<String>,
    /// Dollars that callers are charged for a thousand pages.
    pub price_per_1000_pages: Decimal,
}

impl Default for Ocr {
    fn default() -> Self {
        Self { url: None, api_key: None, model: None, price_per_1000_pages: Decimal::new("0") }
    }
}
