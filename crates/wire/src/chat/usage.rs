//! What an answer used, in the words of the chat format: one number for all input, one for all output.

use serde::Serialize;

use crate::messages;
use crate::object::Raw;

#[derive(Debug, Serialize)]
pub(crate) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Null where nobody knows a price.
    cost: Option<Option<Raw>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_details: Option<Option<messages::CostDetails>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_byok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_tool_use_details: Option<ServerTools>,
}

#[derive(Debug, Serialize)]
struct PromptDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
    audio_tokens: u64,
}

#[derive(Debug, Serialize)]
struct CompletionDetails {
    reasoning_tokens: u64,
}

#[derive(Debug, Serialize)]
struct ServerTools {
    web_search_requests: u64,
}

impl Usage {
    pub fn of(usage: &messages::Usage) -> Self {
        let cached = usage.cache_read_input_tokens.flatten().unwrap_or(0);
        let written = usage.cache_creation_input_tokens.flatten().unwrap_or(0);
        let fresh = usage.input_tokens.flatten().unwrap_or(0);
        let prompt = fresh.saturating_add(cached).saturating_add(written);
        let completion = usage.output_tokens.unwrap_or(0);
        let thought = usage.output_tokens_details.as_ref().and_then(Option::as_ref);
        let ran = usage.server_tool_use.as_ref().and_then(Option::as_ref);
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt.saturating_add(completion),
            prompt_tokens_details: PromptDetails {
                cached_tokens: cached,
                cache_write_tokens: written,
                audio_tokens: 0,
            },
            completion_tokens_details: CompletionDetails {
                reasoning_tokens: thought.and_then(|details| details.thinking_tokens).unwrap_or(0),
            },
            cost: usage.cost.clone(),
            cost_details: usage.cost_details.clone(),
            is_byok: usage.is_byok,
            server_tool_use_details: ran
                .map(|counts| ServerTools { web_search_requests: counts.web_search_requests.unwrap_or(0) }),
        }
    }
}

/// The totals of a stream: what its end says, and of its beginning what the end leaves out.
pub(crate) fn united(first: messages::Usage, last: &messages::Usage) -> messages::Usage {
    messages::Usage {
        output_tokens: last.output_tokens.or(first.output_tokens),
        service_tier: last.service_tier.clone().or(first.service_tier),
        is_byok: last.is_byok.or(first.is_byok),
        input_tokens: last.input_tokens.filter(Option::is_some).or(first.input_tokens),
        cache_creation_input_tokens: last
            .cache_creation_input_tokens
            .filter(Option::is_some)
            .or(first.cache_creation_input_tokens),
        cache_read_input_tokens: last.cache_read_input_tokens.filter(Option::is_some).or(first.cache_read_input_tokens),
        output_tokens_details: last.output_tokens_details.clone().or(first.output_tokens_details),
        server_tool_use: last.server_tool_use.clone().or(first.server_tool_use),
        cost: last.cost.clone().or(first.cost),
        cost_details: last.cost_details.clone().or(first.cost_details),
        ..messages::Usage::default()
    }
}
