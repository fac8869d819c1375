//! The parameters of a request, checked as OpenAI checks them.

use serde_json::{Value, json};

use super::input;
use crate::content::{Ask, LastUser};
use crate::failure::Failure;
use crate::openai::{Place, check_name, check_schema};

pub(crate) struct Request {
    model: String,
    stream: bool,
    max_tokens: Option<u64>,
    last: LastUser,
    tools: Vec<Tool>,
    parallel: bool,
    searches: bool,
    /// Searches are told with what they found.
    pub sources: bool,
    /// Reasoning is returned sealed.
    pub encrypted: bool,
    /// Reasoning is summed up in words.
    pub summary: bool,
    pub obfuscation: bool,
    /// Why a model that checks reasoning refuses the conversation.
    pub unsigned: Option<Failure>,
    /// Parameters that the answer repeats.
    pub repeated: Value,
}

pub(super) struct Tool {
    pub name: String,
    /// Strict because nothing else was said: calls then have all of these, also those that are optional.
    pub filled: Vec<String>,
}

const PARAMETERS: &str = "background context_management conversation include input instructions max_output_tokens \
    max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key \
    prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options \
    temperature text tool_choice tools top_logprobs top_p truncation user";

const FUNCTION: &str = "type name description parameters strict defer_loading allowed_callers output_schema";

const HOSTED: &[&str] =
    &["web_search", "web_search_preview", "file_search", "code_interpreter", "mcp", "image_generation"];

const INCLUDE: &[&str] = &[
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
];

const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

impl Request {
    pub fn read(body: &[u8]) -> Result<Self, Failure> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            Failure::new(400, format!("We could not parse the JSON body of your request. ({error})"))
        })?;
        let root = Place::root(&value);
        root.only(&PARAMETERS.split(' ').collect::<Vec<_>>())?;
        let flag = |name: &str| root.get(name).map(|place| place.flag()).transpose();
        let stream = flag("stream")?.unwrap_or(false);
        plain(&root)?;
        format(&root)?;
        let include = root.get("include").map(|list| list.items()).transpose()?.unwrap_or_default();
        for item in &include {
            item.one_of(INCLUDE)?;
        }
        let conversation = input::check(&root.need("input")?)?;
        let tools = tools(&root)?;
        let repeated = repeated(&value);
        Ok(Self {
            model: root.need("model")?.text()?.to_owned(),
            stream,
            max_tokens: root.get("max_output_tokens").map(|limit| limit.integer(16)).transpose()?,
            last: conversation.last,
            tools: chosen(&root, tools)?,
            parallel: flag("parallel_tool_calls")?.unwrap_or(true),
            searches: searches(&root)?,
            sources: include.iter().any(|item| item.value == "web_search_call.action.sources"),
            encrypted: include.iter().any(|item| item.value == "reasoning.encrypted_content"),
            summary: summary(&root)?,
            obfuscation: obfuscation(&root, stream)?,
            unsigned: conversation.unsigned,
            repeated,
        })
    }

    /// The properties that a call of this tool always has.
    pub fn filled(&self, name: &str) -> &[String] {
        self.tools.iter().find(|tool| tool.name == name).map_or(&[], |tool| &tool.filled)
    }
}

impl Ask for Request {
    fn model(&self) -> &str {
        &self.model
    }

    fn stream(&self) -> bool {
        self.stream
    }

    fn max_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    /// The protocol has none.
    fn stop_sequences(&self) -> &[String] {
        &[]
    }

    fn last_user(&self) -> LastUser {
        self.last.clone()
    }

    fn tools(&self) -> Vec<String> {
        self.tools.iter().map(|tool| tool.name.clone()).collect()
    }

    fn searches(&self) -> bool {
        self.searches
    }

    fn most_calls(&self) -> usize {
        if self.parallel { usize::MAX } else { 1 }
    }

    fn call_id(number: usize) -> String {
        format!("call_sim_{number}")
    }
}

fn plain(root: &Place<'_>) -> Result<(), Failure> {
    for (name, most) in [("temperature", 2.0), ("top_p", 1.0)] {
        if let Some(place) = root.get(name) {
            place.number(most)?;
        }
    }
    if let Some(instructions) = root.get("instructions") {
        instructions.text()?;
    }
    if let Some(management) = root.get("context_management") {
        management.items()?;
    }
    match root.get("previous_response_id") {
        None => Ok(()),
        Some(id) => {
            let message = format!("Previous response with id '{}' not found.", id.text()?);
            Err(id.wrong("previous_response_not_found", &message))
        }
    }
}

fn format(root: &Place<'_>) -> Result<(), Failure> {
    let Some(text) = root.get("text") else {
        return Ok(());
    };
    text.only(&["format", "verbosity"])?;
    let Some(format) = text.get("format") else {
        return Ok(());
    };
    if format.need("type")?.one_of(&["json_object", "json_schema", "text"])? != "json_schema" {
        return format.only(&["type"]);
    }
    format.only(&["type", "name", "description", "schema", "strict"])?;
    check_name(&format.need("name")?)?;
    let strict = format.get("strict").is_some_and(|strict| strict.value == true);
    check_schema(&format.need("schema")?, "response_format", strict)
}

fn summary(root: &Place<'_>) -> Result<bool, Failure> {
    let Some(reasoning) = root.get("reasoning") else {
        return Ok(false);
    };
    reasoning.only(&["effort", "summary", "generate_summary", "context", "mode"])?;
    if let Some(effort) = reasoning.get("effort") {
        effort.one_of(EFFORTS)?;
    }
    match reasoning.get("summary") {
        Some(summary) => summary.one_of(&["auto", "concise", "detailed"]).map(|_| true),
        None => Ok(false),
    }
}

fn obfuscation(root: &Place<'_>, stream: bool) -> Result<bool, Failure> {
    let Some(options) = root.get("stream_options") else {
        return Ok(true);
    };
    if !stream {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(Failure { code: None, ..options.wrong("", message) });
    }
    options.only(&["include_obfuscation"])?;
    options.get("include_obfuscation").map_or(Ok(true), |place| place.flag())
}

/// The functions on offer.
fn tools(root: &Place<'_>) -> Result<Vec<Tool>, Failure> {
    let mut found = Vec::new();
    for tool in root.get("tools").map(|list| list.items()).transpose()?.unwrap_or_default() {
        let kind = tool.need("type")?.one_of(&[&["function"], HOSTED].concat())?;
        if kind != "function" {
            continue;
        }
        tool.only(&FUNCTION.split(' ').collect::<Vec<_>>())?;
        let name = tool.need("name")?;
        check_name(&name)?;
        let strict = tool.get("strict").map(|place| place.flag()).transpose()?;
        let parameters = tool.get("parameters");
        if let Some(parameters) = &parameters {
            check_schema(parameters, &format!("function '{}'", name.text()?), strict == Some(true))?;
        }
        let properties = parameters.as_ref().and_then(|schema| schema.value["properties"].as_object());
        let filled = match strict {
            None => properties.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
            Some(_) => Vec::new(),
        };
        found.push(Tool { name: name.text()?.to_owned(), filled });
    }
    Ok(found)
}

/// Whether the service is to search, which can be told where and what to keep to.
fn searches(root: &Place<'_>) -> Result<bool, Failure> {
    for tool in root.get("tools").map(|list| list.items()).transpose()?.unwrap_or_default() {
        if tool.value["type"] != "web_search" {
            continue;
        }
        tool.only(&["type", "filters", "user_location", "search_context_size", "external_web_access"])?;
        if let Some(filters) = tool.get("filters") {
            // The second one is xAI's.
            filters.only(&["allowed_domains", "excluded_domains"])?;
        }
        return Ok(root.get("tool_choice").is_none_or(|choice| choice.value != "none"));
    }
    Ok(false)
}

/// The functions that the choice leaves.
fn chosen(root: &Place<'_>, tools: Vec<Tool>) -> Result<Vec<Tool>, Failure> {
    let Some(choice) = root.get("tool_choice") else {
        return Ok(tools);
    };
    if choice.value.is_string() {
        let word = choice.one_of(&["none", "auto", "required"])?;
        if word == "required" && tools.is_empty() && !searches(root)? {
            return Err(
                choice.wrong("invalid_value", "Tool choice 'required' must be specified with 'tools' parameter.")
            );
        }
        return Ok(if word == "none" { Vec::new() } else { tools });
    }
    if choice.value["type"] == "allowed_tools" {
        choice.only(&["type", "mode", "tools"])?;
        choice.need("mode")?.one_of(&["auto", "required"])?;
        let allowed = choice.need("tools")?.items()?;
        let is_allowed = |tool: &Tool| allowed.iter().any(|one| one.value["name"] == tool.name.as_str());
        return Ok(tools.into_iter().filter(is_allowed).collect());
    }
    choice.only(&["type", "name"])?;
    if choice.need("type")?.one_of(&[&["function"], HOSTED].concat())? != "function" {
        return Ok(tools);
    }
    let name = choice.need("name")?;
    match tools.into_iter().find(|tool| name.value == tool.name.as_str()) {
        Some(tool) => Ok(vec![tool]),
        None => {
            let message = format!("Tool choice 'function' not found in 'tools' parameter: '{}'.", name.text()?);
            Err(choice.wrong("invalid_value", &message))
        }
    }
}

fn repeated(request: &Value) -> Value {
    let or = |name: &str, default: Value| match &request[name] {
        Value::Null => default,
        given => given.clone(),
    };
    json!({
        "instructions": request["instructions"], "max_output_tokens": request["max_output_tokens"],
        "metadata": or("metadata", json!({})), "parallel_tool_calls": or("parallel_tool_calls", json!(true)),
        "reasoning": {"effort": request["reasoning"]["effort"], "summary": request["reasoning"]["summary"]},
        "store": or("store", json!(true)), "temperature": or("temperature", json!(1.0)),
        "text": or("text", json!({"format": {"type": "text"}})), "tool_choice": or("tool_choice", json!("auto")),
        "tools": or("tools", json!([])), "top_p": or("top_p", json!(1.0)),
        // Who asks for nothing is served as usual; a tier that is asked for is given.
        "service_tier": request["service_tier"].as_str().filter(|tier| *tier != "auto").unwrap_or("default"),
        "truncation": or("truncation", json!("disabled")), "previous_response_id": null,
    })
}
