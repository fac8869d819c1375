//! A finished answer, also the head of a stream, and what it used.

use super::{Block, Role};
use crate::object::{Raw, object, tagged, words};

object! {
    /// An answer. Routing metadata, whose name carries the brand, is in `extra`.
    pub struct Response as "message" {
        required { id: String, role: Role, model: String, content: Vec<Block>, usage: Usage }
        optional {
            /// Who answered; ours, upstreams do not send it.
            provider: String,
        }
        nullable {
            stop_reason: StopReason,
            stop_sequence: String,
            stop_details: StopDetails,
            container: Container,
            /// Absent, not `null`, when the request asked for no edits.
            context_management: AppliedEdits,
        }
    }
}

impl Response {
    pub fn parse(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }

    /// The empty answer that opens a stream, or that blocks are put into.
    pub fn begin(id: String, model: String, provider: String) -> Self {
        let mut response = Self::new(id, Role::Assistant, model, Vec::new(), Usage::default());
        response.provider = Some(provider);
        response.complete();
        response
    }

    /// Writes `null` for what clients may rely on finding and is not there.
    pub fn complete(&mut self) {
        self.stop_reason.get_or_insert(None);
        self.stop_sequence.get_or_insert(None);
        self.stop_details.get_or_insert(None);
        self.container.get_or_insert(None);
        self.usage.complete();
    }
}

words! {
    /// Why the answer ended.
    pub enum StopReason {
        "end_turn" => EndTurn,
        "max_tokens" => MaxTokens,
        "stop_sequence" => StopSequence,
        "tool_use" => ToolUse,
        "pause_turn" => PauseTurn,
        "refusal" => Refusal,
        "model_context_window_exceeded" => ContextWindowExceeded,
        "compaction" => Compaction,
    }
}

tagged! {
    pub enum StopDetails {
        "refusal" => Refusal(Refusal),
    }
}

object! {
    /// Why the model declined. Upstreams may leave both out; towards clients both are strings.
    pub struct Refusal as "refusal" {
        nullable { category: String, explanation: String }
    }
}

object! {
    /// Where the provider ran code.
    pub struct Container {
        required { id: String, expires_at: String }
        nullable { skills: Vec<Skill> }
    }
}

object! {
    pub struct Skill {
        required { kind as "type": String, skill_id: String, version: String }
    }
}

object! {
    pub struct AppliedEdits {
        required { applied_edits: Vec<AppliedEdit> }
    }
}

object! {
    pub struct AppliedEdit {
        required { kind as "type": String }
        optional { cleared_tool_uses: u64, cleared_thinking_turns: u64, cleared_input_tokens: u64 }
    }
}

object! {
    /// What an answer used; in `message_delta` the totals so far, with members missing that did not change.
    pub struct Usage {
        optional {
            /// Thinking included.
            output_tokens: u64,
            service_tier: String,
            /// One per turn, when there was more than one.
            iterations: Vec<Iteration>,
            is_byok: bool,
        }
        nullable {
            /// Neither read from nor written to the cache. May be `null` in `message_delta` only.
            input_tokens: u64,
            cache_creation_input_tokens: u64,
            cache_read_input_tokens: u64,
            cache_creation: CacheCreation,
            output_tokens_details: OutputTokensDetails,
            server_tool_use: ServerToolCounts,
            inference_geo: String,
            speed: String,
            /// USD. Money is computed in decimals, so its text is written as it is.
            cost: Raw,
            cost_details: CostDetails,
        }
    }
}

impl Usage {
    /// Adds the members that every answer has.
    pub fn complete(&mut self) {
        self.complete_delta();
        self.input_tokens = Some(Some(self.input_tokens.flatten().unwrap_or(0)));
        self.cache_creation.get_or_insert(None);
        self.inference_geo.get_or_insert(None);
        self.service_tier.get_or_insert_with(|| "standard".to_owned());
    }

    /// Adds the members that every `message_delta` has.
    pub fn complete_delta(&mut self) {
        self.input_tokens.get_or_insert(None);
        self.output_tokens.get_or_insert(0);
        self.cache_creation_input_tokens.get_or_insert(None);
        self.cache_read_input_tokens.get_or_insert(None);
        self.output_tokens_details.get_or_insert(None);
        self.server_tool_use.get_or_insert(None);
    }
}

object! {
    /// Written to the cache, by how long it lives.
    pub struct CacheCreation {
        optional { ephemeral_5m_input_tokens: u64, ephemeral_1h_input_tokens: u64 }
    }
}

object! {
    pub struct OutputTokensDetails {
        optional { thinking_tokens: u64 }
    }
}

object! {
    /// Calls of provider and gateway together.
    pub struct ServerToolCounts {
        optional { web_search_requests: u64, web_fetch_requests: u64 }
    }
}

object! {
    /// USD, as text for the reason given at `cost`.
    pub struct CostDetails {
        optional { upstream_inference_prompt_cost: Raw, upstream_inference_completions_cost: Raw }
        nullable {
            /// `null` unless the customer's own credential served the request.
            upstream_inference_cost: Raw,
        }
    }
}

object! {
    /// One turn: `message`, `compaction`, `advisor_message` or another kind.
    pub struct Iteration {
        required { kind as "type": String }
        optional {
            model: String,
            input_tokens: u64,
            output_tokens: u64,
            cache_creation_input_tokens: u64,
            cache_read_input_tokens: u64,
        }
        nullable { cache_creation: CacheCreation }
    }
}
