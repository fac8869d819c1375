//! What one model can do at one endpoint. Translation branches on nothing else: never on a model's name.
//!
//! A card is also what the configuration may say of an endpoint, under the same names.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tidegate_wire::messages::Effort;

use super::tools::{IdRule, NameRule};

/// A word of the configuration: an enum whose variants are written in snake case.
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$inner:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$inner])* $variant,)* }
    };
}

words! {
    /// Sampling parameters a model takes.
    pub enum Sampling {
        #[default]
        #[serde(rename = "ok")]
        All,
        None,
        /// `temperature` or `top_p`, not both.
        OneOf,
    }
}

words! {
    /// The name of the limit of output tokens in the chat protocol.
    pub enum LimitField {
        #[default]
        MaxTokens,
        MaxCompletionTokens,
    }
}

words! {
    /// Where reasoning stands in messages of the chat protocol.
    pub enum ReasoningField {
        #[default]
        None,
        ReasoningContent,
        Reasoning,
        /// OpenRouter's list, which goes back unchanged.
        ReasoningDetails,
        /// A chunk of a content list (Mistral).
        ThinkChunk,
    }
}

words! {
    /// How reasoning is asked for.
    pub enum ReasoningSwitch {
        #[default]
        None,
        /// `reasoning_effort`, or the protocol's own member for an effort.
        Effort,
        /// `reasoning_effort`, and `reasoning_format: "parsed"` beside it (Groq).
        Parsed,
        /// `thinking: {"type": …}`, and an effort beside it where the card lists one (DeepSeek, Kimi, GLM).
        Thinking,
        /// `enable_thinking` and `thinking_budget` (Qwen).
        EnableThinking,
        /// `chat_template_kwargs: {"enable_thinking": …}` (vLLM, SGLang).
        Template,
        /// `reasoning: {…}` (OpenRouter; GPT on Bedrock).
        Object,
        /// `prompt_mode` (Mistral).
        PromptMode,
        /// Gemini's `thinkingBudget`; Cohere's `token_budget`.
        Budget,
        /// Gemini's `thinkingLevel`.
        Level,
        /// The member `thinking` as it came (Claude on Converse).
        Verbatim,
        /// Nova's `reasoningConfig`.
        Nova,
    }
}

words! {
    /// Whether earlier reasoning is sent back.
    pub enum Replay {
        #[default]
        Never,
        /// Of every stretch between the words of a person in which a tool was called, and of what follows the last words.
        ToolLoop,
        Always,
    }
}

words! {
    /// The role of the system prompt.
    pub enum SystemRole {
        #[default]
        System,
        Developer,
        User,
    }
}

words! {
    /// How an answer that was begun by the caller is continued.
    pub enum Prefill {
        Native,
        /// `prefix: true` on the last message.
        PrefixFlag,
        /// vLLM's pair of flags.
        ContinueFinal,
        #[default]
        None,
    }
}

words! {
    /// What becomes of cache markers.
    pub enum Cache {
        #[default]
        None,
        /// The provider caches by itself; bytes are kept stable and nothing is sent.
        Implicit,
        /// Markers as in the Messages format.
        #[serde(rename = "anthropic")]
        Markers,
        /// `prompt_cache_breakpoint` on parts.
        #[serde(rename = "openai_bp")]
        Breakpoints,
        /// Converse's `cachePoint` blocks.
        #[serde(rename = "cachepoint")]
        Points,
        /// The same, but none among tools.
        #[serde(rename = "cachepoint_no_tools")]
        PointsBesideTools,
    }
}

words! {
    /// How an answer is made to follow a schema.
    pub enum Structured {
        JsonSchema,
        JsonObject,
        #[default]
        None,
    }
}

words! {
    /// How many stop sequences an upstream looks for; we look for the others.
    pub enum StopSupport {
        #[serde(rename = "ok")]
        All,
        #[default]
        #[serde(rename = "max4")]
        Four,
        #[serde(rename = "max5")]
        Five,
        None,
    }
}

impl StopSupport {
    pub fn most(self) -> usize {
        match self {
            Self::All => usize::MAX,
            Self::Four => 4,
            Self::Five => 5,
            Self::None => 0,
        }
    }
}

words! {
    /// Which JSON Schema a tool's input may be described with.
    pub enum SchemaProfile {
        #[default]
        Full,
        GeminiJson,
        GeminiSubset,
    }
}

words! {
    /// A way to think that the Messages format names.
    pub enum ThinkingMode {
        #[default]
        Adaptive,
        Enabled,
        Disabled,
        BetweenTools,
    }
}

words! {
    /// How a model's tokens are estimated where nobody counts them.
    pub enum Tokenizer {
        /// By bytes and characters alone.
        #[default]
        Bytes,
        Openai,
        /// Claude up to 4.6.
        Claude,
        /// Claude from 4.7 on.
        ClaudeNew,
        Gemini,
        /// Llama, Qwen, DeepSeek, Mistral, GLM, Kimi and their like.
        Open,
    }
}

words! {
    /// What becomes of a PDF in the chat protocol.
    pub enum PdfPart {
        #[default]
        File,
        /// Mistral.
        DocumentUrl,
    }
}

/// One model at one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Card {
    pub context_length: u64,
    pub max_output_tokens: u64,
    pub min_output_tokens: u64,
    /// Messages that a conversation may have.
    pub max_messages: Option<usize>,
    /// `ok`, `none` or `one_of`.
    pub sampling: Sampling,
    /// The highest temperature that it takes.
    pub max_temperature: f64,
    pub top_k: bool,
    /// `max_tokens` or `max_completion_tokens`.
    pub max_tokens_field: LimitField,
    /// Of `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`; in ascending order.
    pub efforts: Vec<Level>,
    /// What the model does when it is told nothing.
    pub default_effort: Option<Level>,
    /// How reasoning is asked for.
    pub reasoning: ReasoningSwitch,
    /// The least and the most of a thinking budget, where one is sent.
    pub thinking_budget: Option<(u64, u64)>,
    /// The model cannot be kept from thinking.
    pub always_thinks: bool,
    /// With tools the upstream refuses every effort but `none` in this protocol.
    pub tools_without_reasoning: bool,
    /// Where a request carries earlier reasoning. Answers are read in all spellings.
    #[serde(rename = "reasoning_field")]
    pub reasoning_in: ReasoningField,
    /// Answers begin with reasoning between `<think>` tags.
    pub think_tags: bool,
    /// `never`, `tool_loop` or `always`.
    #[serde(rename = "replay_reasoning")]
    pub replay: Replay,
    /// While it thinks, the upstream refuses calls in the conversation without the thinking that led to them.
    pub needs_thinking_back: bool,
    pub system_role: SystemRole,
    /// Takes instructions between turns.
    pub mid_system: bool,
    /// The first turn must be a person's.
    pub user_first: bool,
    /// `native`, `prefix_flag`, `continue_final` or `none`.
    pub prefill: Prefill,
    #[serde(rename = "parallel_tools_param")]
    pub parallel_flag: bool,
    #[serde(rename = "forced_tool_choice")]
    pub forced_choice: bool,
    /// `any`, `alnum9`, `re64`, `max40`, `max64` or `kimi`.
    #[serde(rename = "tool_id_rule")]
    pub id_rule: IdRule,
    /// `re64`, `re128` or `gemini`.
    #[serde(rename = "tool_name_rule")]
    pub name_rule: NameRule,
    /// Whether `strict` is understood.
    pub strict: bool,
    pub schema_profile: SchemaProfile,
    pub images: bool,
    pub image_url: bool,
    #[serde(rename = "images_in_tool_result")]
    pub images_in_results: bool,
    pub pdf: bool,
    pub pdf_url: bool,
    pub pdf_part: PdfPart,
    pub cache: Cache,
    /// Whether `prompt_cache_key` is understood.
    #[serde(rename = "prompt_cache_key")]
    pub cache_key: bool,
    /// `ok`, `max4`, `max5` or `none`.
    pub stop: StopSupport,
    /// `json_schema`, `json_object` or `none`.
    pub structured: Structured,
    /// An answer may follow a schema although there are tools.
    pub json_with_tools: bool,
    /// Whether a hashed user id may be sent, and under which name.
    pub user_field: Option<Cow<'static, str>>,
    pub stream_options: bool,
    /// Chat: every chunk of a stream can tell what was used so far, so that one that is cut short is counted.
    pub continuous_usage: bool,
    /// `store: false` must be said.
    pub store_flag: bool,
    /// A call without text has `content: ""` instead of null.
    pub empty_content: bool,
    /// `tool_choice: "any"` instead of `"required"` (Mistral).
    pub choice_any: bool,
    /// A result names its tool beside the id (Mistral).
    pub name_in_result: bool,
    /// The service tiers the upstream calls standard and priority.
    pub tiers: Option<(Cow<'static, str>, Cow<'static, str>)>,
    /// Members of a request that are handed on although we do not know them.
    pub extra_allow: Vec<String>,
    /// Gemini and Responses: reasoning comes with a signature that must go back.
    pub signed_reasoning: bool,
    /// Gemini: calls and results carry the provider's own ids.
    pub call_ids: bool,
    /// Responses: the vendor's own search takes domains to leave out.
    pub excluded_domains: bool,
    /// Responses: text says whether it comes before a call or is the answer.
    pub phase: bool,
    /// Converse: results carry a status.
    pub tool_status: bool,
    /// Converse: the model is Claude, which takes its own members beside the protocol's.
    pub claude: bool,
    /// How tokens are estimated where nobody counts them.
    pub tokenizer: Tokenizer,
    /// Cuts a prompt that is too long instead of refusing it; so we refuse it.
    pub truncates: bool,
    /// Thinks only when it is asked for a stream; who wants the answer whole gets it put together.
    pub stream_only: bool,
    /// Messages: the ways to think that the model takes; without a list, all.
    pub thinking_modes: Option<Vec<ThinkingMode>>,
    /// Messages: takes `output_config.effort`.
    pub effort: bool,
    /// Messages and Converse: takes the lifetime of a cache marker.
    pub cache_ttl: bool,
    /// Messages: not run by Anthropic. Its signatures are worth nothing elsewhere, and what only Anthropic's own servers
    /// take is left out.
    pub foreign: bool,
    /// Converse: the schema of a tool has a type, properties and what is required, and nothing else beside these.
    pub plain_schemas: bool,
}

/// How hard a model thinks, in the words of those who sell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    None,
    Minimal,
    Low,
    Medium,
    High,
    XHigh,
    Max,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max]
            .into_iter()
            .find(|level| level.as_str() == text)
    }

    /// What a budget of thinking tokens amounts to.
    pub fn of_budget(budget: u64) -> Self {
        match budget {
            0..4_096 => Self::Low,
            4_096..16_384 => Self::Medium,
            16_384..32_768 => Self::High,
            _ => Self::XHigh,
        }
    }

    /// The other way round, where nothing is known of the model but how much it may write: a share of that.
    pub fn share(self, max_tokens: u64) -> Option<u64> {
        let percent = match self {
            Self::None => return None,
            Self::Minimal => 10,
            Self::Low => 20,
            Self::Medium => 50,
            Self::High => 80,
            Self::XHigh | Self::Max => 95,
        };
        Some((max_tokens.saturating_mul(percent) / 100).clamp(1_024, 128_000))
    }

    pub fn of_effort(effort: &Effort) -> Option<Self> {
        match effort {
            Effort::Low => Some(Self::Low),
            Effort::Medium => Some(Self::Medium),
            Effort::High => Some(Self::High),
            Effort::XHigh => Some(Self::XHigh),
            Effort::Max => Some(Self::Max),
            Effort::Other(_) => None,
        }
    }
}

impl Default for Card {
    /// The most careful guess: nothing that a plain server could refuse.
    fn default() -> Self {
        Self {
            context_length: 8_192,
            max_output_tokens: 4_096,
            min_output_tokens: 1,
            max_messages: None,
            sampling: Sampling::All,
            max_temperature: 2.0,
            top_k: false,
            max_tokens_field: LimitField::MaxTokens,
            efforts: Vec::new(),
            default_effort: None,
            reasoning: ReasoningSwitch::None,
            thinking_budget: None,
            always_thinks: false,
            tools_without_reasoning: false,
            reasoning_in: ReasoningField::None,
            think_tags: false,
            replay: Replay::Never,
            needs_thinking_back: false,
            system_role: SystemRole::System,
            mid_system: false,
            user_first: false,
            prefill: Prefill::None,
            parallel_flag: false,
            forced_choice: true,
            id_rule: IdRule::Any,
            name_rule: NameRule::Plain64,
            strict: false,
            schema_profile: SchemaProfile::Full,
            images: true,
            image_url: true,
            images_in_results: false,
            pdf: false,
            pdf_url: false,
            pdf_part: PdfPart::File,
            cache: Cache::None,
            cache_key: false,
            stop: StopSupport::Four,
            structured: Structured::JsonSchema,
            json_with_tools: true,
            user_field: None,
            stream_options: true,
            continuous_usage: false,
            store_flag: false,
            empty_content: false,
            choice_any: false,
            name_in_result: false,
            tiers: None,
            extra_allow: Vec::new(),
            signed_reasoning: false,
            call_ids: false,
            excluded_domains: false,
            phase: false,
            tool_status: false,
            claude: false,
            tokenizer: Tokenizer::Bytes,
            truncates: false,
            stream_only: false,
            thinking_modes: None,
            effort: true,
            cache_ttl: true,
            foreign: false,
            plain_schemas: false,
        }
    }
}

impl Card {
    /// The card with what `said`, a JSON object of some of its members, says otherwise.
    pub fn with(&self, said: &serde_json::Map<String, serde_json::Value>) -> Result<Self, serde_json::Error> {
        let mut whole = serde_json::to_value(self)?;
        if let Some(members) = whole.as_object_mut() {
            members.extend(said.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        let mut card: Self = serde_json::from_value(whole)?;
        card.efforts.sort_unstable();
        Ok(card)
    }

    /// The highest temperature that it takes: Claude's is 1 wherever it is served.
    pub fn hottest(&self) -> f64 {
        if self.claude { self.max_temperature.min(1.0) } else { self.max_temperature }
    }

    /// Whether the model can be kept from thinking.
    pub fn can_stop_thinking(&self) -> bool {
        let modes = self.thinking_modes.as_ref();
        !self.always_thinks && modes.is_none_or(|modes| modes.contains(&ThinkingMode::Disabled))
    }

    /// The nearest effort at or below the wanted one; the lowest there is when none is below.
    pub fn clamp(&self, wanted: Level) -> Option<Level> {
        let thinking = self.efforts.iter().copied().filter(|level| *level != Level::None);
        let below = thinking.clone().filter(|level| *level <= wanted).max();
        below.or_else(|| thinking.min())
    }
}
