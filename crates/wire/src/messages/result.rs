//! What stands inside the result blocks of server tools.

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Document, ToolReference};
use crate::json::{self, Kind};
use crate::object::{Raw, object, tagged};

/// What a web search gave: an array when it went well, an object when not.
#[derive(Clone, Debug, PartialEq)]
pub enum WebSearchContent {
    Results(Vec<WebSearchResult>),
    Error(WebSearchError),
    Other(Raw),
}

impl<'de> Deserialize<'de> for WebSearchContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let known = match json::kind(raw) {
            Kind::Array => serde_json::from_str(raw.get()).map(Self::Results).ok(),
            Kind::Object => serde_json::from_str(raw.get()).map(Self::Error).ok(),
            _ => None,
        };
        Ok(known.unwrap_or_else(|| Self::Other(raw.into())))
    }
}

impl Serialize for WebSearchContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Results(results) => results.serialize(serializer),
            Self::Error(error) => error.serialize(serializer),
            Self::Other(raw) => raw.serialize(serializer),
        }
    }
}

object! {
    pub struct WebSearchResult as "web_search_result" {
        required { url: String, title: String, encrypted_content: String }
        nullable { page_age: String }
    }
}

object! {
    pub struct WebSearchError as "web_search_tool_result_error" {
        required { error_code: String }
    }
}

tagged! {
    /// What fetching a page gave.
    pub enum WebFetchContent {
        "web_fetch_result" => Page(Box<WebFetchPage>),
        "web_fetch_tool_result_error" => Error(WebFetchError),
    }
}

object! {
    pub struct WebFetchPage as "web_fetch_result" {
        required { url: String, content: Document }
        nullable { retrieved_at: String }
    }
}

object! {
    pub struct WebFetchError as "web_fetch_tool_result_error" {
        required { error_code: String }
    }
}

tagged! {
    /// What running code gave.
    pub enum CodeExecutionContent {
        "code_execution_result" => Output(CodeExecutionOutput),
        "encrypted_code_execution_result" => Encrypted(EncryptedCodeExecutionOutput),
        "code_execution_tool_result_error" => Error(CodeExecutionError),
    }
}

object! {
    pub struct CodeExecutionOutput as "code_execution_result" {
        required { stdout: String, stderr: String, return_code: i64, content: Vec<CodeExecutionFile> }
    }
}

object! {
    pub struct EncryptedCodeExecutionOutput as "encrypted_code_execution_result" {
        required { encrypted_stdout: String, stderr: String, return_code: i64, content: Vec<CodeExecutionFile> }
    }
}

object! {
    pub struct CodeExecutionFile as "code_execution_output" {
        required { file_id: String }
    }
}

object! {
    pub struct CodeExecutionError as "code_execution_tool_result_error" {
        required { error_code: String }
    }
}

tagged! {
    /// What running a shell command in the provider's container gave.
    pub enum BashExecutionContent {
        "bash_code_execution_result" => Output(BashExecutionOutput),
        "bash_code_execution_tool_result_error" => Error(BashExecutionError),
    }
}

object! {
    pub struct BashExecutionOutput as "bash_code_execution_result" {
        required { stdout: String, stderr: String, return_code: i64, content: Vec<BashExecutionFile> }
    }
}

object! {
    pub struct BashExecutionFile as "bash_code_execution_output" {
        required { file_id: String }
    }
}

object! {
    pub struct BashExecutionError as "bash_code_execution_tool_result_error" {
        required { error_code: String }
    }
}

tagged! {
    /// What a text editor command in the provider's container gave.
    pub enum EditorExecutionContent {
        "text_editor_code_execution_view_result" => View(EditorView),
        "text_editor_code_execution_create_result" => Create(EditorCreate),
        "text_editor_code_execution_str_replace_result" => Replace(EditorReplace),
        "text_editor_code_execution_tool_result_error" => Error(EditorError),
    }
}

object! {
    pub struct EditorView as "text_editor_code_execution_view_result" {
        required { content: String, file_type: String }
        nullable { num_lines: i64, start_line: i64, total_lines: i64 }
    }
}

object! {
    pub struct EditorCreate as "text_editor_code_execution_create_result" {
        required { is_file_update: bool }
    }
}

object! {
    pub struct EditorReplace as "text_editor_code_execution_str_replace_result" {
        nullable { lines: Vec<String>, new_lines: i64, new_start: i64, old_lines: i64, old_start: i64 }
    }
}

object! {
    pub struct EditorError as "text_editor_code_execution_tool_result_error" {
        required { error_code: String }
        nullable { error_message: String }
    }
}

tagged! {
    /// What a search among deferred tools gave.
    pub enum ToolSearchContent {
        "tool_search_tool_search_result" => Found(ToolSearchFound),
        "tool_search_tool_result_error" => Error(ToolSearchError),
    }
}

object! {
    pub struct ToolSearchFound as "tool_search_tool_search_result" {
        required { tool_references: Vec<ToolReference> }
    }
}

object! {
    pub struct ToolSearchError as "tool_search_tool_result_error" {
        required { error_code: String }
        nullable { error_message: String }
    }
}

tagged! {
    /// What the advisor said.
    pub enum AdvisorContent {
        "advisor_result" => Advice(Advice),
        "advisor_redacted_result" => Redacted(RedactedAdvice),
        "advisor_tool_result_error" => Error(AdvisorError),
    }
}

object! {
    pub struct Advice as "advisor_result" {
        required { text: String }
        nullable { stop_reason: String }
    }
}

object! {
    pub struct RedactedAdvice as "advisor_redacted_result" {
        required { encrypted_content: String }
        nullable { stop_reason: String }
    }
}

object! {
    pub struct AdvisorError as "advisor_tool_result_error" {
        required { error_code: String }
    }
}
