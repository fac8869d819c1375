//! The tools on offer and their parameters, of which the service understands a part of JSON Schema.

use super::field::Field;
use crate::failure::Failure;

const KEYWORDS: &str = "type format title description nullable enum items maxItems minItems properties required \
    minProperties maxProperties minimum maximum minLength maxLength pattern example anyOf propertyOrdering default";

const TOOLS: &str = "functionDeclarations googleSearch googleSearchRetrieval codeExecution urlContext computerUse \
    fileSearch googleMaps enterpriseWebSearch retrieval mcpServers";

/// The names of the functions on offer.
pub(super) fn tools(root: &Field<'_>) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    let Some(tools) = root.get("tools") else {
        return Ok(names);
    };
    for tool in tools.items()? {
        tool.only(TOOLS)?;
        let Some(declarations) = tool.get("functionDeclarations") else { continue };
        for function in declarations.items()? {
            function.only("name description parameters parametersJsonSchema response responseJsonSchema behavior")?;
            let name = function.need("name")?;
            check_name(&name)?;
            match (function.get("parameters"), function.get("parametersJsonSchema")) {
                (Some(parameters), Some(_)) => {
                    return Err(parameters.wrong("only one of parameters and parameters_json_schema can be set"));
                }
                (Some(parameters), None) => check(&parameters)?,
                (None, Some(parameters)) => parameters.object()?,
                (None, None) => {}
            }
            if names.iter().any(|known| name.value == known) {
                let message = format!("Duplicate function declaration found: {}", name.text()?);
                return Err(name.wrong(&message));
            }
            names.push(name.text()?.to_owned());
        }
    }
    Ok(names)
}

/// Whether answers may rest on a search, which has no options and does not stand beside functions.
pub(super) fn grounds(root: &Field<'_>, functions: &[String]) -> Result<bool, Failure> {
    let tools = root.get("tools").map(|tools| tools.items()).transpose()?.unwrap_or_default();
    let Some(search) = tools.iter().find_map(|tool| tool.get("googleSearch")) else { return Ok(false) };
    search.only("timeRangeFilter searchTypes excludeDomains blockingConfidence")?;
    match functions {
        [] => Ok(true),
        _ => Err(search
            .wrong("Built-in tools ({google_search}) and Function Calling cannot be combined in the same request.")),
    }
}

fn check_name(name: &Field<'_>) -> Result<(), Failure> {
    let text = name.text()?;
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    match starts && text.len() <= 128 && text.bytes().all(plain) {
        true => Ok(()),
        false => Err(name.wrong(&format!(
            "* GenerateContentRequest.{}: Invalid function name. Must start with a letter or an underscore. Must be \
             alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum \
             length of 128.",
            name.path
        ))),
    }
}

/// A schema of the service's own kind.
pub(super) fn check(schema: &Field<'_>) -> Result<(), Failure> {
    schema.only(KEYWORDS)?;
    if let Some(kind) = schema.get("type") {
        let lower = kind.text()?.to_lowercase();
        if !["string", "number", "integer", "boolean", "array", "object", "null"].contains(&lower.as_str()) {
            return Err(kind.wrong(&format!("Invalid value at '{}' (type), \"{lower}\"", kind.path)));
        }
        if lower == "object" && schema.get("properties").is_none_or(|found| found.value == &serde_json::json!({})) {
            let message =
                format!("* GenerateContentRequest.{}.properties: should be non-empty for OBJECT type", schema.path);
            return Err(schema.wrong(&message));
        }
    }
    if let Some(properties) = schema.get("properties") {
        properties.object()?;
        let names: Vec<_> = properties.value.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        for (name, value) in properties.value.as_object().into_iter().flatten() {
            check(&Field { path: format!("{}[{name}]", properties.path), value })?;
        }
        for required in schema.get("required").map(|list| list.items()).transpose()?.unwrap_or_default() {
            if !names.contains(&required.text()?) {
                let message = format!("* GenerateContentRequest.{}: property is not defined", required.path);
                return Err(required.wrong(&message));
            }
        }
    }
    if let Some(items) = schema.get("items") {
        check(&items)?;
    }
    for inner in schema.get("anyOf").map(|list| list.items()).transpose()?.unwrap_or_default() {
        check(&inner)?;
    }
    Ok(())
}
