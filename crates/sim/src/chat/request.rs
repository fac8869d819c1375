//! The parameters of a request, checked as OpenAI checks them. Parameters of other servers that speak this
//! protocol are let through; what belongs to another protocol is not.

use serde_json::Value;

use super::turns;
use crate::content::{Ask, LastUser};
use crate::failure::Failure;
use crate::openai::{Place, check_name, check_schema};

pub(crate) struct Request {
    model: String,
    stream: bool,
    pub include_usage: bool,
    max_tokens: Option<u64>,
    stop: Vec<String>,
    last: LastUser,
    tools: Vec<String>,
    parallel: bool,
    pub prefix: Option<String>,
    pub other_id: Option<String>,
}

/// OpenAI's own.
const OWN: &str = "audio frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages metadata \
    modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key \
    prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier \
    stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options";

/// Of vLLM, SGLang, Groq, DeepSeek, Qwen, Mistral, OpenRouter and their like.
const OTHERS: &str = "add_generation_prompt chat_template_kwargs continue_final_message enable_thinking \
    include_reasoning min_p models prompt_mode provider random_seed reasoning reasoning_format repetition_penalty \
    safe_prompt thinking thinking_budget top_k";

const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max", "default"];

impl Request {
    pub fn read(path: &str, body: &[u8]) -> Result<Self, Failure> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            Failure::new(400, format!("We could not parse the JSON body of your request. ({error})"))
        })?;
        let root = Place::root(&value);
        root.only(&[OWN, OTHERS].iter().flat_map(|names| names.split(' ')).collect::<Vec<_>>())?;
        let model = match (root.get("model"), deployment(path)) {
            (Some(model), _) => model.text()?.to_owned(),
            (None, Some(deployment)) => deployment.to_owned(),
            (None, None) => {
                let message = "you must provide a model parameter";
                return Err(Failure { param: Some("model".into()), ..Failure::new(400, message) });
            }
        };
        let stream = root.get("stream").map(|place| place.flag()).transpose()?.unwrap_or(false);
        sampling(&root)?;
        response_format(&root)?;
        let conversation = turns::check(&root.need("messages")?)?;
        let tools = tools(&root)?;
        let parallel = root.get("parallel_tool_calls").map(|place| place.flag()).transpose()?;
        if let (Some(_), true) = (parallel, tools.is_empty()) {
            return Err(needs_tools("parallel_tool_calls"));
        }
        Ok(Self {
            model,
            stream,
            include_usage: include_usage(&root, stream)?,
            max_tokens: max_tokens(&root)?,
            stop: stop(&root)?,
            last: conversation.last,
            tools: chosen(&root, tools)?,
            parallel: parallel.unwrap_or(true),
            prefix: conversation.prefix,
            other_id: conversation.other_id,
        })
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

    fn stop_sequences(&self) -> &[String] {
        &self.stop
    }

    fn last_user(&self) -> LastUser {
        self.last.clone()
    }

    fn tools(&self) -> Vec<String> {
        self.tools.clone()
    }

    fn most_calls(&self) -> usize {
        if self.parallel { usize::MAX } else { 1 }
    }

    fn call_id(number: usize) -> String {
        format!("call_sim_{number}")
    }
}

/// Azure's classic paths name the model: `/openai/deployments/{name}/chat/completions`.
fn deployment(path: &str) -> Option<&str> {
    path.split_once("/deployments/")?.1.strip_suffix("/chat/completions")
}

fn sampling(root: &Place<'_>) -> Result<(), Failure> {
    for (name, most) in [("temperature", 2.0), ("top_p", 1.0)] {
        if let Some(place) = root.get(name) {
            place.number(most)?;
        }
    }
    if let Some(effort) = root.get("reasoning_effort") {
        effort.one_of(EFFORTS)?;
    }
    for name in ["user", "safety_identifier", "prompt_cache_key"] {
        let Some(place) = root.get(name) else { continue };
        let found = place.text()?.len();
        if found > 64 {
            let message = format!(
                "Invalid '{name}': string too long. Expected a string with maximum length 64, but got a string with \
                    length {found} instead."
            );
            return Err(place.wrong("string_above_max_length", &message));
        }
    }
    match root.get("store") {
        Some(store) => store.flag().map(|_| ()),
        None => Ok(()),
    }
}

fn max_tokens(root: &Place<'_>) -> Result<Option<u64>, Failure> {
    match (root.get("max_tokens"), root.get("max_completion_tokens")) {
        (Some(old), Some(_)) => {
            let message = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.";
            Err(old.wrong("invalid_parameter_combination", message))
        }
        (Some(limit), None) | (None, Some(limit)) => limit.integer(1).map(Some),
        (None, None) => Ok(None),
    }
}

fn stop(root: &Place<'_>) -> Result<Vec<String>, Failure> {
    let Some(stop) = root.get("stop") else {
        return Ok(Vec::new());
    };
    if let Some(one) = stop.value.as_str() {
        return Ok(vec![one.to_owned()]);
    }
    let items = stop.items()?;
    stop.at_most(4, items.len())?;
    items.iter().map(|item| item.text().map(str::to_owned)).collect()
}

fn include_usage(root: &Place<'_>, stream: bool) -> Result<bool, Failure> {
    let Some(options) = root.get("stream_options") else {
        return Ok(false);
    };
    if !stream {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(Failure { code: None, ..options.wrong("", message) });
    }
    options.only(&["include_usage", "include_obfuscation", "continuous_usage_stats"])?;
    options.get("include_usage").map_or(Ok(false), |place| place.flag())
}

fn response_format(root: &Place<'_>) -> Result<(), Failure> {
    let Some(format) = root.get("response_format") else {
        return Ok(());
    };
    if format.need("type")?.one_of(&["json_object", "json_schema", "text"])? != "json_schema" {
        return format.only(&["type"]);
    }
    let schema = format.need("json_schema")?;
    schema.only(&["name", "description", "schema", "strict"])?;
    check_name(&schema.need("name")?)?;
    let strict = schema.get("strict").is_some_and(|strict| strict.value == true);
    check_schema(&schema.need("schema")?, "response_format", strict)
}

/// The names of the tools on offer.
fn tools(root: &Place<'_>) -> Result<Vec<String>, Failure> {
    let Some(tools) = root.get("tools") else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for tool in tools.some_items()? {
        tool.need("type")?.one_of(&["function"])?;
        tool.only(&["type", "function"])?;
        let function = tool.need("function")?;
        function.only(&["name", "description", "parameters", "strict"])?;
        let name = function.need("name")?;
        check_name(&name)?;
        if let Some(description) = function.get("description") {
            description.text()?;
        }
        let strict = function.get("strict").map(|place| place.flag()).transpose()?.unwrap_or(false);
        if let Some(parameters) = function.get("parameters") {
            check_schema(&parameters, &format!("function '{}'", name.text()?), strict)?;
        }
        names.push(name.text()?.to_owned());
    }
    Ok(names)
}

/// The tools that the choice leaves.
fn chosen(root: &Place<'_>, tools: Vec<String>) -> Result<Vec<String>, Failure> {
    let Some(choice) = root.get("tool_choice") else {
        return Ok(tools);
    };
    if tools.is_empty() {
        return Err(needs_tools("tool_choice"));
    }
    if choice.value.is_string() {
        // `any` is Mistral's word for `required`.
        let word = choice.one_of(&["none", "auto", "required", "any"])?;
        return Ok(if word == "none" { Vec::new() } else { tools });
    }
    choice.only(&["type", "function"])?;
    choice.need("type")?.one_of(&["function"])?;
    let function = choice.need("function")?;
    function.only(&["name"])?;
    let name = function.need("name")?;
    match tools.into_iter().find(|tool| name.value == tool.as_str()) {
        Some(tool) => Ok(vec![tool]),
        None => {
            let message = format!("Tool choice '{}' not found in 'tools' parameter.", name.text()?);
            Err(choice.wrong("invalid_value", &message))
        }
    }
}

fn needs_tools(name: &str) -> Failure {
    let message = format!("Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.");
    Failure { param: Some(name.into()), ..Failure::new(400, message) }
}
