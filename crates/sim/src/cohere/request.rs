//! The parameters of a request. They are walked like OpenAI's; what is wrong is said in Cohere's words.

use serde_json::Value;

use super::turns;
use crate::content::{Ask, LastUser};
use crate::failure::Failure;
use crate::openai::{Place, check_name};

pub(crate) struct Request {
    model: String,
    stream: bool,
    max_tokens: Option<u64>,
    stop: Vec<String>,
    last: LastUser,
    tools: Vec<String>,
    /// The ids of documents and their content.
    pub documents: Vec<(String, Value)>,
}

const MEMBERS: &str = "stream model messages tools strict_tools documents citation_options response_format safety_mode \
    max_tokens stop_sequences temperature seed frequency_penalty presence_penalty k p logprobs tool_choice thinking \
    priority";

impl Request {
    pub fn read(body: &[u8]) -> Result<Self, Failure> {
        let value: Value =
            serde_json::from_slice(body).map_err(|error| Failure::new(400, format!("invalid json: {error}")))?;
        Self::of(&Place::root(&value)).map_err(voiced)
    }

    fn of(root: &Place<'_>) -> Result<Self, Failure> {
        root.only(&MEMBERS.split(' ').collect::<Vec<_>>())?;
        let flag = |name: &str| root.get(name).map_or(Ok(false), |place| place.flag());
        sampling(root)?;
        let tools = tools(root)?;
        if flag("strict_tools")? && tools.is_empty() {
            return Err(Failure::new(400, "strict_tools can only be used with tools"));
        }
        format(root, &tools)?;
        thinking(root)?;
        Ok(Self {
            model: root.need("model")?.text()?.to_owned(),
            stream: flag("stream")?,
            max_tokens: root.get("max_tokens").map(|limit| limit.integer(1)).transpose()?,
            stop: stop(root)?,
            last: turns::check(&root.need("messages")?)?,
            tools: chosen(root, tools)?,
            documents: documents(root)?,
        })
    }
}

/// A member that the server does not know.
pub(super) fn stranger(name: &str) -> Failure {
    let message = format!(
        "unknown field: parameter '{name}' is not a valid field. For proper usage, please refer to \
         https://docs.cohere.com/reference/chat"
    );
    Failure::new(422, message)
}

/// The same failure in Cohere's words.
fn voiced(failure: Failure) -> Failure {
    let path = failure.param.as_deref().unwrap_or_default();
    match failure.code {
        Some("unknown_parameter") => stranger(path.rsplit('.').next().unwrap_or_default()),
        Some("missing_required_parameter") => {
            Failure::new(400, format!("invalid request: required field '{path}' is missing"))
        }
        Some(_) => {
            let message = failure.message.as_deref().unwrap_or_default();
            Failure::new(400, format!("invalid request: {message}"))
        }
        None => failure,
    }
}

fn sampling(root: &Place<'_>) -> Result<(), Failure> {
    for name in ["temperature", "frequency_penalty", "presence_penalty"] {
        if let Some(place) = root.get(name) {
            place.number(1.0)?;
        }
    }
    if let Some(p) = root.get("p")
        && !(0.01..=0.99).contains(&p.number(1.0)?)
    {
        return Err(p.wrong("invalid_value", "p must be between 0.01 and 0.99 inclusive."));
    }
    if let Some(k) = root.get("k")
        && k.integer(0)? > 500
    {
        return Err(k.wrong("invalid_value", "k must be between 0 and 500 inclusive."));
    }
    if let Some(seed) = root.get("seed") {
        seed.integer(0)?;
    }
    if let Some(mode) = root.get("safety_mode") {
        mode.one_of(&["CONTEXTUAL", "STRICT", "OFF"])?;
    }
    if let Some(logprobs) = root.get("logprobs") {
        logprobs.flag()?;
    }
    match root.get("citation_options") {
        None => Ok(()),
        Some(options) => {
            options.only(&["mode"])?;
            let modes =
                &["FAST", "ACCURATE", "OFF", "ENABLED", "DISABLED", "fast", "accurate", "off", "enabled", "disabled"];
            options.get("mode").map_or(Ok(()), |mode| mode.one_of(modes).map(|_| ()))
        }
    }
}

fn thinking(root: &Place<'_>) -> Result<(), Failure> {
    let Some(thinking) = root.get("thinking") else {
        return Ok(());
    };
    thinking.only(&["type", "token_budget"])?;
    thinking.need("type")?.one_of(&["enabled", "disabled"])?;
    thinking.get("token_budget").map_or(Ok(()), |budget| budget.integer(1).map(|_| ()))
}

fn format(root: &Place<'_>, tools: &[String]) -> Result<(), Failure> {
    let Some(format) = root.get("response_format") else {
        return Ok(());
    };
    if format.need("type")?.one_of(&["text", "json_object"])? == "text" {
        return format.only(&["type"]);
    }
    format.only(&["type", "json_schema", "schema"])?;
    if let Some(schema) = format.get("json_schema") {
        schema.object()?;
    }
    match tools.is_empty() && root.get("documents").is_none() {
        true => Ok(()),
        false => Err(Failure::new(400, "response_format is not supported together with tools or documents")),
    }
}

fn stop(root: &Place<'_>) -> Result<Vec<String>, Failure> {
    let Some(stop) = root.get("stop_sequences") else {
        return Ok(Vec::new());
    };
    let items = stop.items()?;
    stop.at_most(5, items.len())?;
    items.iter().map(|item| item.text().map(str::to_owned)).collect()
}

/// The names of the tools on offer.
fn tools(root: &Place<'_>) -> Result<Vec<String>, Failure> {
    let Some(tools) = root.get("tools") else {
        return Ok(Vec::new());
    };
    let mut names: Vec<String> = Vec::new();
    for tool in tools.some_items()? {
        tool.only(&["type", "function"])?;
        tool.need("type")?.one_of(&["function"])?;
        let function = tool.need("function")?;
        function.only(&["name", "description", "parameters"])?;
        let name = function.need("name")?;
        check_name(&name)?;
        if let Some(description) = function.get("description") {
            description.text()?;
        }
        let parameters = function.need("parameters")?;
        if parameters.object()?.get("type").is_some_and(|kind| kind != "object") {
            return Err(parameters.wrong("invalid_value", "the parameters of a function must be of type object."));
        }
        let name = name.text()?.to_owned();
        if names.contains(&name) {
            return Err(tools.wrong("invalid_value", &format!("duplicate tool name '{name}'.")));
        }
        names.push(name);
    }
    Ok(names)
}

/// The tools that the choice leaves.
fn chosen(root: &Place<'_>, tools: Vec<String>) -> Result<Vec<String>, Failure> {
    let Some(choice) = root.get("tool_choice") else {
        return Ok(tools);
    };
    let word = choice.one_of(&["REQUIRED", "NONE"])?;
    match (tools.is_empty(), word) {
        (true, _) => Err(Failure::new(400, "tool_choice can only be used with tools")),
        (false, "NONE") => Ok(Vec::new()),
        (false, _) => Ok(tools),
    }
}

/// Documents are texts or objects; those without an id get one by their place.
fn documents(root: &Place<'_>) -> Result<Vec<(String, Value)>, Failure> {
    let mut found: Vec<(String, Value)> = Vec::new();
    for (at, document) in
        root.get("documents").map(|list| list.items()).transpose()?.unwrap_or_default().iter().enumerate()
    {
        let place = format!("doc:{at}");
        if let Some(text) = document.value.as_str() {
            found.push((place, serde_json::json!({"text": text})));
            continue;
        }
        document.only(&["id", "data"])?;
        let data = document.need("data")?;
        let data = match data.value.as_str() {
            Some(text) => serde_json::json!({"text": text}),
            None => Value::Object(data.object()?.clone()),
        };
        let id = document.get("id").map(|id| id.text()).transpose()?.map_or(place, str::to_owned);
        if found.iter().any(|(known, _)| *known == id) {
            return Err(document.wrong("invalid_value", &format!("duplicate document id '{id}'.")));
        }
        found.push((id, data));
    }
    Ok(found)
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
        usize::MAX
    }

    fn call_id(number: usize) -> String {
        format!("call_sim_{number}")
    }
}
