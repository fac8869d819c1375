//! The conversation: roles, parts, and that every turn of calls is followed by as many responses.

use super::field::Field;
use crate::content::{LastUser, SIGNATURE};
use crate::failure::Failure;

const DATA: &[&str] =
    &["text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"];

const PART: &str = "text inlineData fileData functionCall functionResponse executableCode codeExecutionResult thought \
    thoughtSignature videoMetadata mediaResolution partMetadata";

/// Stands for a signature the service never made, in a history that comes from elsewhere.
const DUMMY: &str = "skip_thought_signature_validator";

pub(super) const CORRUPTED: &str = "Corrupted thought signature.";

/// What the conversation says at its end.
#[derive(Default)]
pub(super) struct Conversation {
    pub last: LastUser,
    /// Why a model that checks signatures refuses it.
    pub unsigned: Option<String>,
}

#[derive(Default)]
struct Turn<'v> {
    /// Names and ids.
    calls: Vec<(&'v str, Option<&'v str>)>,
    responses: usize,
}

pub(super) fn check(contents: &Field<'_>) -> Result<Conversation, Failure> {
    let items = contents.items()?;
    if items.is_empty() {
        return Err(contents.wrong("* GenerateContentRequest.contents: contents is not specified"));
    }
    let mut found = Conversation::default();
    let mut before = Turn::default();
    let mut before_role = "";
    for (at, content) in items.iter().enumerate() {
        content.only("role parts")?;
        let role = match content.get("role") {
            None => "user",
            Some(role) => match role.text()? {
                role @ ("user" | "model") => role,
                _ => return Err(role.wrong("Please use a valid role: user, model.")),
            },
        };
        if at == 0 && role == "model" {
            return Err(content.wrong("Please ensure that the first content has the role user."));
        }
        let last = if role == "user" { LastUser::default() } else { std::mem::take(&mut found.last) };
        found.last = last;
        let turn = parts(content, role, at, &before, &mut found)?;
        if !turn.calls.is_empty() && before_role == "model" {
            return Err(content.wrong(
                "Please ensure that function call turn comes immediately after a user turn or after a function \
                 response turn.",
            ));
        }
        if turn.responses != before.calls.len() {
            let message = match before.calls.is_empty() {
                true => "Please ensure that function response turn comes immediately after a function call turn.",
                false => {
                    "Please ensure that the number of function response parts is equal to the number of function \
                     call parts of the function call turn."
                }
            };
            return Err(content.wrong(message));
        }
        before = turn;
        before_role = role;
    }
    if before_role == "model" {
        return Err(
            contents.wrong("Please ensure that multiturn requests end with a user role or a function response.")
        );
    }
    Ok(found)
}

fn parts<'v>(
    content: &Field<'v>,
    role: &str,
    at: usize,
    before: &Turn<'v>,
    found: &mut Conversation,
) -> Result<Turn<'v>, Failure> {
    let parts = content.need("parts")?;
    let mut turn = Turn::default();
    for part in some_parts(&parts)? {
        let kind = kind(&part)?;
        let data = part.need(kind)?;
        if let Some(signature) = part.get("thoughtSignature") {
            signature.bytes()?;
        }
        match kind {
            "text" => {
                let text = data.text()?;
                if text.is_empty() && part.get("thoughtSignature").is_none() {
                    return Err(part.wrong(
                        "Unable to submit request because it has an empty text parameter. Add a value to the \
                         parameter and try again.",
                    ));
                }
                if role == "user" {
                    found.last.add_text(text);
                }
            }
            "functionCall" => {
                call(&data, role)?;
                let id = data.get("id").map(|id| id.text()).transpose()?;
                let name = data.need("name")?.text()?;
                if turn.calls.is_empty() {
                    let signature = part.get("thoughtSignature").map(|signature| signature.text()).transpose()?;
                    note(found, signature, name, at);
                }
                turn.calls.push((name, id));
            }
            "functionResponse" => {
                found.last.tool_results.push(response(&data, role, before)?);
                turn.responses += 1;
            }
            _ => {
                media(&data, kind)?;
                found.last.other_blocks += usize::from(role == "user");
            }
        }
    }
    if role == "user" && turn.responses == 0 {
        // Only the calls since the user last spoke are checked.
        found.unsigned = None;
    }
    Ok(turn)
}

fn some_parts<'v>(parts: &Field<'v>) -> Result<Vec<Field<'v>>, Failure> {
    let items = parts.items()?;
    match items.is_empty() {
        false => Ok(items),
        true => {
            Err(parts.wrong(&format!("* GenerateContentRequest.{}: contents.parts must not be empty.", parts.path)))
        }
    }
}

/// The one member that holds a part's data.
fn kind(part: &Field<'_>) -> Result<&'static str, Failure> {
    part.only(PART)?;
    let mut set = DATA.iter().filter(|name| part.get(name).is_some());
    match (set.next(), set.next()) {
        (Some(kind), None) => Ok(kind),
        (Some(_), Some(second)) => {
            let path = &part.path;
            Err(part.wrong(&format!(
                "Invalid value at '{path}' (oneof), oneof field 'data' is already set. Cannot set '{second}'"
            )))
        }
        (None, _) => Err(part.wrong(&format!(
            "* GenerateContentRequest.{}.data: required oneof field 'data' must have one initialized field",
            part.path
        ))),
    }
}

fn call(call: &Field<'_>, role: &str) -> Result<(), Failure> {
    call.only("id name args")?;
    if role != "model" {
        return Err(call.wrong("Please ensure that function calls have the role model."));
    }
    call.get("args").map_or(Ok(()), |args| args.object())
}

fn response<'v>(response: &Field<'v>, role: &str, before: &Turn<'v>) -> Result<String, Failure> {
    response.only("id name response parts willContinue scheduling")?;
    let name = response.need("name")?;
    let inner = response.need("response")?;
    inner.object()?;
    let id = response.get("id").map(|id| id.text()).transpose()?;
    let matches = |(called, called_id): &(&str, Option<&str>)| {
        name.value == *called && (id.is_none() || called_id.is_none() || id == *called_id)
    };
    if role != "user" || !before.calls.iter().any(matches) {
        return Err(
            response.wrong("Please ensure that function response turn comes immediately after a function call turn.")
        );
    }
    let text = ["output", "error", "result"].iter().find_map(|key| inner.value.get(key)).unwrap_or(inner.value);
    Ok(text.as_str().map_or_else(|| text.to_string(), str::to_owned))
}

fn media(data: &Field<'_>, kind: &str) -> Result<(), Failure> {
    match kind {
        "inlineData" => {
            data.only("mimeType data displayName")?;
            data.need("mimeType")?.text()?;
            data.need("data")?.bytes()
        }
        "fileData" => {
            data.only("mimeType fileUri displayName")?;
            data.need("fileUri")?.text().map(|_| ())
        }
        _ => data.object(),
    }
}

/// Remembers the first thing that is wrong with the signatures of the turn.
fn note(found: &mut Conversation, signature: Option<&str>, name: &str, at: usize) {
    let problem = match signature {
        Some(SIGNATURE | DUMMY) => return,
        Some(_) => CORRUPTED.to_owned(),
        None => format!(
            "Function call is missing a thought_signature in functionCall parts. This is required for tools to work \
             correctly, and missing thought_signature may lead to degraded model performance. Additional data, \
             function call `default_api:{name}` , position {}.",
            at + 1
        ),
    };
    found.unsigned.get_or_insert(problem);
}
