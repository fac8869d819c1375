//! The tools of a request, and how the model is to choose among them.

use super::CacheControl;
use crate::object::{Raw, object, tagged};

tagged! {
    /// A tool the model may call. Branded tools, later dates of the vendor's and everything else are `Other`.
    pub enum Tool else "custom" {
        "custom" => Custom(CustomTool),
        "bash_20250124" => Bash(BashTool),
        "text_editor_20250124" => TextEditor(TextEditorTool),
        "web_search_20250305" | "web_search_20260209" => WebSearch(WebSearchTool),
        "advisor_20260301" => Advisor(AdvisorTool),
        "tool_search_tool_bm25" | "tool_search_tool_bm25_20251119"
            | "tool_search_tool_regex" | "tool_search_tool_regex_20251119" => ToolSearch(ToolSearchTool),
    }
}

object! {
    /// The caller's own function.
    pub struct CustomTool {
        required { name: String, input_schema: Raw }
        optional {
            /// Left out by most callers.
            kind as "type": String,
            description: String,
            defer_loading: bool,
            strict: bool,
            allowed_callers: Vec<String>,
            input_examples: Raw,
            eager_input_streaming: bool,
            cache_control: CacheControl,
        }
    }
}

impl CustomTool {
    pub fn kind(&self) -> &str {
        "custom"
    }
}

object! {
    /// The caller runs shell commands for a model that was trained on this tool.
    pub struct BashTool as "bash_20250124" {
        required { name: String }
        optional { cache_control: CacheControl }
    }
}

object! {
    /// The caller edits files for a model that was trained on this tool.
    pub struct TextEditorTool as "text_editor_20250124" {
        required { name: String }
        optional { cache_control: CacheControl }
    }
}

object! {
    pub struct WebSearchTool {
        required { kind as "type": String, name: String }
        optional {
            max_uses: u64,
            allowed_domains: Vec<String>,
            blocked_domains: Vec<String>,
            user_location: UserLocation,
            allowed_callers: Vec<String>,
            cache_control: CacheControl,
        }
    }
}

impl WebSearchTool {
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

object! {
    /// Roughly where the user is, for results that depend on it.
    pub struct UserLocation {
        optional { kind as "type": String, city: String, region: String, country: String, timezone: String }
    }
}

object! {
    /// A stronger model the answering one may consult.
    pub struct AdvisorTool as "advisor_20260301" {
        required { name: String, model: String }
        optional {
            max_uses: u64,
            caching: CacheControl,
            allowed_callers: Vec<String>,
            defer_loading: bool,
            cache_control: CacheControl,
        }
    }
}

object! {
    /// A search among the tools with `defer_loading`, by words or by pattern.
    pub struct ToolSearchTool {
        required { kind as "type": String, name: String }
        optional { allowed_callers: Vec<String>, defer_loading: bool, strict: bool, cache_control: CacheControl }
    }
}

impl ToolSearchTool {
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

object! {
    /// Read from an [`Other`](crate::object::Other) such as `<brand>:web_search`.
    pub struct BrandedTool {
        required { kind as "type": String }
        optional { parameters: Raw }
    }
}

tagged! {
    /// Whether the model must, may or must not call tools.
    pub enum ToolChoice {
        "auto" => Auto(AutoChoice),
        "any" => Any(AnyChoice),
        "tool" => Tool(NamedChoice),
        "none" => None(NoChoice),
    }
}

impl ToolChoice {
    /// Whether at most one call may be made per turn.
    pub fn is_serial(&self) -> bool {
        let flag = match self {
            Self::Auto(choice) => choice.disable_parallel_tool_use,
            Self::Any(choice) => choice.disable_parallel_tool_use,
            Self::Tool(choice) => choice.disable_parallel_tool_use,
            Self::None(_) | Self::Other(_) => None,
        };
        flag.unwrap_or(false)
    }
}

object! {
    pub struct AutoChoice as "auto" {
        optional { disable_parallel_tool_use: bool }
    }
}

object! {
    pub struct AnyChoice as "any" {
        optional { disable_parallel_tool_use: bool }
    }
}

object! {
    pub struct NamedChoice as "tool" {
        required { name: String }
        optional { disable_parallel_tool_use: bool }
    }
}

object! {
    pub struct NoChoice as "none" {}
}
