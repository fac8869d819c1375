//! What one model can do at one endpoint. Translation branches on nothing else: never on a model's name.

use super::tools::{IdRule, NameRule};
use tidegate_wire::messages::Effort;

/// Sampling parameters a model takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    #[default]
    All,
    None,
    /// `temperature` or `top_p`, not both.
    OneOf,
}

/// Where reasoning stands in messages of the chat protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningField {
    #[default]
    None,
    ReasoningContent,
    Reasoning,
    /// OpenRouter's list, which goes back unchanged.
    ReasoningDetails,
}

/// How reasoning is asked for in the chat protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningSwitch {
    #[default]
    None,
    /// `reasoning_effort`.
    Effort,
    /// `thinking: {"type": …}`, and an effort beside it where the card lists one (DeepSeek, Kimi, GLM).
    Thinking,
    /// `enable_thinking` and `thinking_budget` (Qwen).
    EnableThinking,
    /// `chat_template_kwargs: {"enable_thinking": …}` (vLLM, SGLang).
    Template,
    /// `reasoning: {…}` (OpenRouter).
    Object,
    /// `prompt_mode` (Mistral).
    PromptMode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    #[default]
    Never,
    /// Since the last words of a person.
    ToolLoop,
    Always,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SystemRole {
    #[default]
    System,
    Developer,
    User,
}

/// How an answer that was begun by the caller is continued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefill {
    Native,
    /// `prefix: true` on the last message.
    PrefixFlag,
    /// vLLM's pair of flags.
    ContinueFinal,
    #[default]
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    #[default]
    None,
    /// The provider caches by itself; bytes are kept stable and nothing is sent.
    Implicit,
    /// Markers as in the Messages format.
    Markers,
    /// `prompt_cache_breakpoint` on parts.
    Breakpoints,
    /// Converse's `cachePoint` blocks.
    Points,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Structured {
    JsonSchema,
    JsonObject,
    #[default]
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopSupport {
    All,
    #[default]
    Four,
    None,
}

/// One model at one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub context_length: u64,
    pub max_output_tokens: u64,
    pub min_output_tokens: u64,
    pub sampling: Sampling,
    pub top_k: bool,
    /// `max_completion_tokens` instead of `max_tokens`.
    pub completion_limit: bool,
    /// In ascending order.
    pub efforts: Vec<Level>,
    pub default_effort: Option<Level>,
    pub reasoning: ReasoningSwitch,
    /// With tools the upstream refuses every effort but `none` in this protocol.
    pub tools_without_reasoning: bool,
    pub reasoning_in: ReasoningField,
    pub replay: Replay,
    pub system_role: SystemRole,
    pub mid_system: bool,
    pub prefill: Prefill,
    pub parallel_flag: bool,
    pub forced_choice: bool,
    pub id_rule: IdRule,
    pub name_rule: NameRule,
    /// Whether `strict` is understood.
    pub strict: bool,
    pub images: bool,
    pub image_url: bool,
    pub images_in_results: bool,
    pub pdf: bool,
    pub cache: Cache,
    /// Whether `prompt_cache_key` is understood.
    pub cache_key: bool,
    pub stop: StopSupport,
    pub structured: Structured,
    /// Whether a hashed user id may be sent, and under which name.
    pub user_field: Option<&'static str>,
    pub stream_options: bool,
    /// `store: false` must be said.
    pub store_flag: bool,
    /// A call without text has `content: ""` instead of null.
    pub empty_content: bool,
    /// `tool_choice: "any"` instead of `"required"` (Mistral).
    pub choice_any: bool,
    /// The service tiers the upstream calls standard and priority.
    pub tiers: Option<(&'static str, &'static str)>,
}

/// How hard a model thinks, in the words of those who sell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
            sampling: Sampling::All,
            top_k: false,
            completion_limit: false,
            efforts: Vec::new(),
            default_effort: None,
            reasoning: ReasoningSwitch::None,
            tools_without_reasoning: false,
            reasoning_in: ReasoningField::None,
            replay: Replay::Never,
            system_role: SystemRole::System,
            mid_system: false,
            prefill: Prefill::None,
            parallel_flag: false,
            forced_choice: true,
            id_rule: IdRule::Any,
            name_rule: NameRule::Plain64,
            strict: false,
            images: true,
            image_url: true,
            images_in_results: false,
            pdf: false,
            cache: Cache::None,
            cache_key: false,
            stop: StopSupport::Four,
            structured: Structured::JsonSchema,
            user_field: None,
            stream_options: true,
            store_flag: false,
            empty_content: false,
            choice_any: false,
            tiers: None,
        }
    }
}

impl Card {
    /// The nearest effort at or below the wanted one; the lowest there is when none is below.
    pub fn clamp(&self, wanted: Level) -> Option<Level> {
        let thinking = self.efforts.iter().copied().filter(|level| *level != Level::None);
        let below = thinking.clone().filter(|level| *level <= wanted).max();
        below.or_else(|| thinking.min())
    }
}
