//! The parameters of a request: first their shapes, then what the shapes do not say.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{definition, turns};
use crate::aws::Verb;
use crate::content::{Ask, LastUser};
use crate::failure::Failure;
use crate::invoke;

pub(crate) struct Request {
    model: String,
    stream: bool,
    max_tokens: Option<u64>,
    stop: Vec<String>,
    last: LastUser,
    tools: Vec<String>,
    parallel: bool,
    /// The answer is to say which sequence stopped it.
    pub tells_stop: bool,
}

impl Request {
    pub fn read(path: &str, body: &[u8]) -> Result<Self, Failure> {
        let (model, verb) = Verb::of(path).ok_or_else(|| Failure::status(404))?;
        let value: Value = serde_json::from_slice(body).map_err(|error| Failure {
            code: Some("SerializationException"),
            ..Failure::new(400, format!("Malformed JSON: {error}"))
        })?;
        if verb != Verb::Count {
            definition::INPUT.check("", &value)?;
            return Self::of(model, verb == Verb::ConverseStream, &value);
        }
        definition::COUNTED.check("", &value)?;
        let input = &value["input"];
        if let Some(converse) = input.get("converse") {
            return Self::of(model, false, converse);
        }
        let body = STANDARD.decode(input["invokeModel"]["body"].as_str().unwrap_or_default()).unwrap_or_default();
        invoke::check(&body)?;
        Self::of(model, false, &json!({"messages": [{"role": "user", "content": [{"text": "counted"}]}]}))
    }

    fn of(model: String, stream: bool, value: &Value) -> Result<Self, Failure> {
        let conversation = turns::check(&value["messages"], &value["system"])?;
        let config = value.get("toolConfig");
        if conversation.tools && config.is_none() {
            let message = "The toolConfig field must be defined when using toolUse and toolResult content blocks.";
            return Err(Failure::new(400, message));
        }
        let more = &value["additionalModelRequestFields"];
        let inference = &value["inferenceConfig"];
        structured(value)?;
        Ok(Self {
            model,
            stream,
            max_tokens: inference["maxTokens"].as_u64(),
            stop: texts(&inference["stopSequences"]),
            last: conversation.last,
            tools: config.map_or(Ok(Vec::new()), |config| tools(config, more))?,
            parallel: more["tool_choice"]["disable_parallel_tool_use"] != true,
            tells_stop: texts(&value["additionalModelResponseFieldPaths"]).iter().any(|path| path == "/stop_sequence"),
        })
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The tools that may be called.
fn tools(config: &Value, more: &Value) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for (at, tool) in config["tools"].as_array().into_iter().flatten().enumerate() {
        let Some(spec) = tool.get("toolSpec") else { continue };
        let name = spec["name"].as_str().unwrap_or_default();
        if names.iter().any(|known| known == name) {
            return Err(Failure::new(400, format!("The toolConfig.tools field contains duplicate tool names: {name}")));
        }
        if spec["inputSchema"]["json"]["type"] != "object" {
            let place = format!("toolConfig.tools.{at}.toolSpec.inputSchema.json.type");
            return Err(Failure::new(400, format!("The value at {place} must be one of the following: object.")));
        }
        names.push(name.to_owned());
    }
    let choice = &config["toolChoice"];
    if choice.is_object() && more.get("tool_choice").is_some() {
        let message = "The additional field tool_choice conflicts with the existing field toolConfig.toolChoice.";
        return Err(Failure::new(400, message));
    }
    if let Some(wanted) = choice["tool"]["name"].as_str() {
        if !names.iter().any(|name| name == wanted) {
            let message = format!("The toolChoice names {wanted}, which is not among toolConfig.tools.");
            return Err(Failure::new(400, message));
        }
        names.retain(|name| name == wanted);
    }
    if more["tool_choice"]["type"] == "none" {
        names.clear();
    }
    Ok(names)
}

/// The schema of a structured answer is JSON in a string.
fn structured(value: &Value) -> Result<(), Failure> {
    let schema = &value["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"];
    let Some(schema) = schema.as_str() else {
        return Ok(());
    };
    match serde_json::from_str::<Value>(schema) {
        Ok(Value::Object(_)) => Ok(()),
        _ => {
            let message = "The value at outputConfig.textFormat.structure.jsonSchema.schema is not a JSON schema.";
            Err(Failure::new(400, message))
        }
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
        format!("tooluse_sim_{number}")
    }
}
