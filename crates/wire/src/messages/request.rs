//! A request, and the options that are objects of their own.

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::Number;
use serde_json::value::RawValue;

use super::{CacheControl, Content, Role, Tool, ToolChoice};
use crate::json;
use crate::object::{Raw, object, tagged, words};

object! {
    /// A request for an answer. The gateway's own options, which never go upstream, stay unread here.
    pub struct Request {
        required { messages: Vec<Message> }
        optional {
            model: String,
            max_tokens: u64,
            system: Content,
            stream: bool,
            temperature: Number,
            top_p: Number,
            top_k: u64,
            stop_sequences: Vec<String>,
            tools: Vec<Tool>,
            tool_choice: ToolChoice,
            thinking: ThinkingConfig,
            output_config: OutputConfig,
            /// The old spelling of `output_config.format`.
            output_format: OutputFormat,
            context_management: ContextManagement,
            cache_control: CacheControl,
            service_tier: String,
            speed: String,
            metadata: Metadata,
            container: Raw,
            mcp_servers: Raw,
            inference_geo: String,
            diagnostics: Raw,
            models: Vec<String>,
            fallbacks: Raw,
            plugins: Raw,
            provider: Raw,
            route: String,
            session_id: String,
            user: String,
            trace: Raw,
            stop_server_tools_when: Raw,
            max_tool_calls: u64,
            preset: String,
            chat_options: Raw,
        }
    }
}

impl Request {
    pub fn parse(body: &[u8]) -> serde_json::Result<Self> {
        // Only who failed is asked why.
        let read = std::str::from_utf8(body).ok().and_then(|text| json::read(text).ok());
        read.map_or_else(|| serde_json::from_slice(body), Ok)
    }

    /// The schema the answer is to follow, in whichever spelling it was asked for.
    pub fn answer_format(&self) -> Option<&OutputFormat> {
        self.output_config.as_ref().and_then(|config| config.format.as_ref()).or(self.output_format.as_ref())
    }
}

object! {
    /// One turn of the conversation.
    pub struct Message {
        required { role: Role, content: Content }
    }
}

object! {
    pub struct Metadata {
        optional { user_id: String }
    }
}

tagged! {
    /// How the model is to think.
    pub enum ThinkingConfig {
        "enabled" => Enabled(ThinkingEnabled),
        "adaptive" => Adaptive(ThinkingAdaptive),
        "disabled" => Disabled(ThinkingDisabled),
        "between_tools" => BetweenTools(ThinkingBetweenTools),
    }
}

object! {
    pub struct ThinkingEnabled as "enabled" {
        required { budget_tokens: u64 }
        optional { display: String }
    }
}

object! {
    pub struct ThinkingAdaptive as "adaptive" {
        optional { display: String }
    }
}

object! {
    pub struct ThinkingDisabled as "disabled" {}
}

object! {
    pub struct ThinkingBetweenTools as "between_tools" {}
}

object! {
    pub struct OutputConfig {
        optional { effort: Effort, format: OutputFormat, task_budget: TaskBudget }
    }
}

words! {
    /// How much work the answer is worth.
    pub enum Effort { "low" => Low, "medium" => Medium, "high" => High, "xhigh" => XHigh, "max" => Max }
}

tagged! {
    /// The form the answer is bound to.
    pub enum OutputFormat {
        "json_schema" => JsonSchema(JsonSchema),
    }
}

object! {
    pub struct JsonSchema as "json_schema" {
        required { schema: Raw }
    }
}

object! {
    /// A budget the model sees counting down.
    pub struct TaskBudget {
        required { kind as "type": String, total: u64 }
        optional { remaining: u64 }
    }
}

object! {
    /// Edits of the conversation before the model sees it, in order.
    pub struct ContextManagement {
        optional { edits: Vec<Edit> }
    }
}

tagged! {
    pub enum Edit {
        "clear_tool_uses_20250919" => ClearToolUses(ClearToolUses),
        "clear_thinking_20251015" => ClearThinking(ClearThinking),
        "compact_20260112" => Compact(Compact),
    }
}

object! {
    pub struct ClearToolUses as "clear_tool_uses_20250919" {
        optional {
            trigger: Threshold,
            keep: Threshold,
            clear_at_least: Threshold,
            clear_tool_inputs: ClearToolInputs,
            exclude_tools: Vec<String>,
        }
    }
}

object! {
    pub struct ClearThinking as "clear_thinking_20251015" {
        optional { keep: KeepThinking }
    }
}

object! {
    pub struct Compact as "compact_20260112" {
        optional { trigger: Threshold, instructions: String, pause_after_compaction: bool }
    }
}

object! {
    /// A number of something: `input_tokens`, `tool_uses` or `thinking_turns`; `all` has no value.
    pub struct Threshold {
        required { kind as "type": String }
        optional { value: u64 }
    }
}

/// How many turns keep their thinking: `"all"`, or an object.
#[derive(Clone, Debug, PartialEq)]
pub enum KeepThinking {
    Word(String),
    Threshold(Threshold),
}

impl KeepThinking {
    pub fn is_all(&self) -> bool {
        match self {
            Self::Word(word) => word == "all",
            Self::Threshold(threshold) => threshold.kind == "all",
        }
    }
}

impl<'de> Deserialize<'de> for KeepThinking {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        match json::kind(raw) {
            json::Kind::String => serde_json::from_str(raw.get()).map(Self::Word),
            _ => serde_json::from_str(raw.get()).map(Self::Threshold),
        }
        .map_err(serde::de::Error::custom)
    }
}

impl Serialize for KeepThinking {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Word(word) => word.serialize(serializer),
            Self::Threshold(threshold) => threshold.serialize(serializer),
        }
    }
}

/// Whether cleared calls lose their input too: all of them, or those of some tools.
#[derive(Clone, Debug, PartialEq)]
pub enum ClearToolInputs {
    All(bool),
    Tools(Vec<String>),
}

impl<'de> Deserialize<'de> for ClearToolInputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        match json::kind(raw) {
            json::Kind::Array => serde_json::from_str(raw.get()).map(Self::Tools),
            _ => serde_json::from_str(raw.get()).map(Self::All),
        }
        .map_err(serde::de::Error::custom)
    }
}

impl Serialize for ClearToolInputs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All(all) => all.serialize(serializer),
            Self::Tools(tools) => tools.serialize(serializer),
        }
    }
}
