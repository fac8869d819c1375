//! The section about judging what people write.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Decimal;

/// Who judges what people write, for requests with the plugin `moderation`. Without a backend nobody does.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Moderation {
    /// `openai`, `http` for a service of your own, or `keywords`.
    pub backend: Option<String>,
    /// Where it is; OpenAI's own address when left out. A service of your own is sent `{"model", "input": [text]}` and
    /// answers `{"flagged", "reasons": [text]}`.
    pub url: Option<String>,
    /// Its key: `env:NAME`, `file:PATH`, `cmd:[...]` or the value itself.
    pub api_key: Option<String>,
    /// The model it is asked for.
    pub model: Option<String>,
    /// What no text may hold, where words decide.
    pub keywords: Vec<String>,
    /// What is done with a request when nobody answers within two seconds: `allow` or `deny`.
    pub on_error: String,
    /// Dollars that callers are charged for a judgement.
    pub price_per_call: Decimal,
}

impl Default for Moderation {
    fn default() -> Self {
        Self {
            backend: None,
            url: None,
            api_key: None,
            model: None,
            keywords: Vec::new(),
            on_error: "allow".to_owned(),
            price_per_call: Decimal::new("0"),
        }
    }
}
