//! One block of message content, in either direction.

use super::{
    AdvisorContent, BashExecutionContent, CacheControl, Citation, CitationsConfig, CodeExecutionContent, Content,
    EditorExecutionContent, Source, ToolSearchContent, WebFetchContent, WebSearchContent,
};
use crate::object::{Raw, object, tagged};

tagged! {
    /// One block of message content.
    ///
    /// `fallback`, `mcp_tool_use` and `mcp_tool_result` have no variant: only native endpoints understand them, and
    /// there they go as they came.
    pub enum Block {
        "text" => Text(Text),
        "image" => Image(Image),
        "document" => Document(Document),
        "search_result" => SearchResult(SearchResult),
        "tool_use" => ToolUse(ToolUse),
        "tool_result" => ToolResult(ToolResult),
        "tool_reference" => ToolReference(ToolReference),
        "thinking" => Thinking(Thinking),
        "redacted_thinking" => RedactedThinking(RedactedThinking),
        "server_tool_use" => ServerToolUse(ServerToolUse),
        "web_search_tool_result" => WebSearchResult(WebSearchToolResult),
        "web_fetch_tool_result" => WebFetchResult(WebFetchToolResult),
        "code_execution_tool_result" => CodeExecutionResult(CodeExecutionToolResult),
        "bash_code_execution_tool_result" => BashExecutionResult(BashExecutionToolResult),
        "text_editor_code_execution_tool_result" => EditorExecutionResult(EditorExecutionToolResult),
        "tool_search_tool_result" => ToolSearchResult(ToolSearchToolResult),
        "advisor_tool_result" => AdvisorResult(AdvisorToolResult),
        "container_upload" => ContainerUpload(ContainerUpload),
        "compaction" => Compaction(Compaction),
        "tool_addition" => ToolAddition(ToolAddition),
        "tool_removal" => ToolRemoval(ToolRemoval),
    }
}

object! {
    pub struct Text as "text" {
        required { text: String }
        optional { cache_control: CacheControl }
        nullable {
            /// Answers say `null` or `[]`, which differ: the latter follows a search that led to no citation.
            citations: Vec<Citation>,
        }
    }
}

impl Text {
    /// A block of an answer that was not searched for.
    pub fn answer(text: String) -> Self {
        Self { citations: Some(None), ..Self::new(text) }
    }
}

object! {
    pub struct Image as "image" {
        required { source: Source }
        optional { cache_control: CacheControl }
    }
}

object! {
    /// A PDF or a text.
    pub struct Document as "document" {
        required { source: Source }
        optional { context: String, cache_control: CacheControl }
        nullable { title: String, citations: CitationsConfig }
    }
}

object! {
    /// A citable passage from the caller's own search.
    pub struct SearchResult as "search_result" {
        required { source: String, title: String, content: Vec<Block> }
        optional { citations: CitationsConfig, cache_control: CacheControl }
    }
}

object! {
    /// The model asks for a call of a client tool.
    pub struct ToolUse as "tool_use" {
        required { id: String, name: String }
        optional {
            /// `{}` when absent, which only happens in replays.
            input: Raw,
            caller: Caller,
            toolset_name: String,
            cache_control: CacheControl,
        }
    }
}

impl ToolUse {
    /// A call as answers carry it.
    pub fn answer(id: String, name: String, input: Raw) -> Self {
        Self { input: Some(input), caller: Some(Caller::direct()), ..Self::new(id, name) }
    }

    /// The input's JSON.
    pub fn input_text(&self) -> &str {
        self.input.as_ref().map_or("{}", Raw::get)
    }
}

object! {
    /// What a client tool answered.
    pub struct ToolResult as "tool_result" {
        required { tool_use_id: String }
        optional { content: Content, is_error: bool, toolset_name: String, cache_control: CacheControl }
    }
}

object! {
    /// Loads a deferred tool; inside the result of a tool search only.
    pub struct ToolReference as "tool_reference" {
        required { tool_name: String }
        optional { cache_control: CacheControl }
    }
}

object! {
    pub struct Thinking as "thinking" {
        required { thinking: String }
        optional {
            /// Always there in the format; servers that imitate it leave it out.
            signature: String,
        }
    }
}

impl Thinking {
    pub fn signed(thinking: String, signature: String) -> Self {
        Self { signature: Some(signature), ..Self::new(thinking) }
    }
}

object! {
    pub struct RedactedThinking as "redacted_thinking" {
        required { data: String }
    }
}

object! {
    /// The model called a tool that runs at the provider or in the gateway.
    pub struct ServerToolUse as "server_tool_use" {
        required { id: String, name: String }
        optional { input: Raw, caller: Caller, cache_control: CacheControl }
    }
}

impl ServerToolUse {
    /// A call as answers carry it.
    pub fn answer(id: String, name: String, input: Raw) -> Self {
        Self { input: Some(input), caller: Some(Caller::direct()), ..Self::new(id, name) }
    }

    /// The input's JSON.
    pub fn input_text(&self) -> &str {
        self.input.as_ref().map_or("{}", Raw::get)
    }
}

object! {
    pub struct WebSearchToolResult as "web_search_tool_result" {
        required { tool_use_id: String, content: WebSearchContent }
        optional { caller: Caller, cache_control: CacheControl }
    }
}

object! {
    pub struct WebFetchToolResult as "web_fetch_tool_result" {
        required { tool_use_id: String, content: WebFetchContent }
        optional { caller: Caller, cache_control: CacheControl }
    }
}

object! {
    pub struct CodeExecutionToolResult as "code_execution_tool_result" {
        required { tool_use_id: String, content: CodeExecutionContent }
        optional { cache_control: CacheControl }
    }
}

object! {
    pub struct BashExecutionToolResult as "bash_code_execution_tool_result" {
        required { tool_use_id: String, content: BashExecutionContent }
        optional { cache_control: CacheControl }
    }
}

object! {
    pub struct EditorExecutionToolResult as "text_editor_code_execution_tool_result" {
        required { tool_use_id: String, content: EditorExecutionContent }
        optional { cache_control: CacheControl }
    }
}

object! {
    pub struct ToolSearchToolResult as "tool_search_tool_result" {
        required { tool_use_id: String, content: ToolSearchContent }
        optional { cache_control: CacheControl }
    }
}

object! {
    pub struct AdvisorToolResult as "advisor_tool_result" {
        required { tool_use_id: String, content: AdvisorContent }
        optional { cache_control: CacheControl }
    }
}

object! {
    /// Read from an [`Other`](crate::object::Other) such as `<brand>_shell_tool_result`.
    pub struct BrandedResult {
        required { kind as "type": String, tool_use_id: String, content: Raw }
    }
}

object! {
    pub struct ContainerUpload as "container_upload" {
        required { file_id: String }
        optional { cache_control: CacheControl }
    }
}

object! {
    /// What replaces everything before it.
    pub struct Compaction as "compaction" {
        required { content: Option<String> }
        optional { cache_control: CacheControl }
        nullable { encrypted_content: String }
    }
}

object! {
    /// Makes a deferred tool callable from here on; in system messages only.
    pub struct ToolAddition as "tool_addition" {
        required { tool: ToolTarget }
        optional { cache_control: CacheControl }
    }
}

object! {
    /// Withdraws a tool from here on; in system messages only.
    pub struct ToolRemoval as "tool_removal" {
        required { tool: ToolTarget }
        optional { cache_control: CacheControl }
    }
}

tagged! {
    /// The tool that is added or removed.
    pub enum ToolTarget {
        "tool_reference" => Tool(TargetTool),
        "mcp_tool_reference" => McpTool(TargetMcpTool),
        "mcp_toolset_reference" => McpToolset(TargetMcpToolset),
    }
}

object! {
    pub struct TargetTool as "tool_reference" {
        required { name: String }
    }
}

object! {
    pub struct TargetMcpTool as "mcp_tool_reference" {
        required { name: String, server_name: String }
    }
}

object! {
    pub struct TargetMcpToolset as "mcp_toolset_reference" {
        required { server_name: String }
    }
}

tagged! {
    /// Who made a call: the model itself, or code it ran.
    pub enum Caller {
        "direct" => Direct(Direct),
        "code_execution_20250825" | "code_execution_20260120" | "code_execution_20260521" => Code(CodeCaller),
    }
}

impl Caller {
    pub fn direct() -> Self {
        Self::Direct(Direct::default())
    }
}

object! {
    pub struct Direct as "direct" {}
}

object! {
    pub struct CodeCaller {
        required { kind as "type": String, tool_id: String }
    }
}

impl CodeCaller {
    pub fn kind(&self) -> &str {
        &self.kind
    }
}
