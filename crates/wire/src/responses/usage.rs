//! What an answer used, in the words of the Responses format.

use serde::Serialize;

use crate::messages;
use crate::object::Raw;

#[derive(Debug, Serialize)]
pub(super) struct Usage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Null where nobody knows a price.
    cost: Option<Option<Raw>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_details: Option<Option<CostDetails>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_byok: Option<bool>,
}

#[derive(Debug, Serialize)]
struct InputDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Debug, Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

#[derive(Debug, Serialize)]
struct CostDetails {
    upstream_inference_cost: Option<Raw>,
    upstream_inference_input_cost: Option<Raw>,
    upstream_inference_output_cost: Option<Raw>,
}

impl Usage {
    pub fn of(usage: &messages::Usage) -> Self {
        let cached = usage.cache_read_input_tokens.flatten().unwrap_or(0);
        let written = usage.cache_creation_input_tokens.flatten().unwrap_or(0);
        let fresh = usage.input_tokens.flatten().unwrap_or(0);
        let input = fresh.saturating_add(cached).saturating_add(written);
        let output = usage.output_tokens.unwrap_or(0);
        let thought = usage.output_tokens_details.as_ref().and_then(Option::as_ref);
        let told = |details: messages::CostDetails| CostDetails {
            upstream_inference_cost: details.upstream_inference_cost.flatten(),
            upstream_inference_input_cost: details.upstream_inference_prompt_cost,
            upstream_inference_output_cost: details.upstream_inference_completions_cost,
        };
        Self {
            input_tokens: input,
            input_tokens_details: InputDetails { cached_tokens: cached, cache_write_tokens: written },
            output_tokens: output,
            output_tokens_details: OutputDetails {
                reasoning_tokens: thought.and_then(|details| details.thinking_tokens).unwrap_or(0),
            },
            total_tokens: input.saturating_add(output),
            cost: usage.cost.clone(),
            cost_details: usage.cost_details.clone().map(|details| details.map(told)),
            is_byok: usage.is_byok,
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers are always JSON").replace(['\n', '\r'], " ")
    }
}
