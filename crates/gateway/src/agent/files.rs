//! `files`: the files of the caller's workspace, for the model to list, read, write and change. A file never changes: what
//! an edit makes is a new one.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_core::FileId;
use tidegate_store::StoreError;
use tidegate_store::audit::{Actor, By};
use tidegate_store::files::{FileRow, From};

use super::run::Outcome;
use crate::Gateway;
use crate::files::{Given, Problem};
use crate::keys::KeyEntry;

/// Its name behind the brand.
pub(super) const NAME: &str = "files";
/// Characters of a file that the model gets to read.
const LONGEST_READ: usize = 200_000;
/// Files of a list.
const MOST_LISTED: usize = 100;
/// Files that are asked for at a time.
const PAGE: u32 = 1_000;

pub(super) fn description() -> (String, Value) {
    let text = "Works with the files of the user's workspace, which stay there after this conversation. `list` shows the newest \
                files (those whose name contains `filename_filter`), `read` gives the text of `file_id`, `write` makes a file \
                `filename` with `content`, `edit` replaces the only occurrence of `old_string` in `file_id` by `new_string` \
                and makes a new file with a new id of it. Call it when asked about files or to keep something; not for what \
                can be said in the answer.";
    let text_of = |description: &str| json!({"type": "string", "description": description});
    let properties = json!({
        "operation": {"type": "string", "enum": ["list", "read", "write", "edit"], "description": "What to do"},
        "file_id": text_of("The file to read or edit"),
        "filename": text_of("The name of the file to write"),
        "filename_filter": text_of("What the names of listed files contain"),
        "content": text_of("What to write"),
        "old_string": text_of("What to replace: text that stands in the file exactly once"),
        "new_string": text_of("What to put in its place"),
        "new_filename": text_of("The name of the edited file; without it, the name that it has"),
    });
    (text.to_owned(), properties)
}

pub(super) fn failed(message: &str) -> Outcome {
    Outcome { text: json!({"error": message}).to_string(), is_error: true, ..Outcome::default() }
}

pub(super) async fn run(gate: &Arc<Gateway>, key: &KeyEntry, input: &Value) -> Outcome {
    let done = match text(input, "operation") {
        Some("list") => list(gate, key, input).await,
        Some("read") => read(gate, key, input).await,
        Some("write") => write(gate, key, input).await,
        Some("edit") => edit(gate, key, input).await,
        _ => Err("operation must be one of list, read, write, edit".to_owned()),
    };
    match done {
        Ok(result) => Outcome::of(&json!({"result": result})),
        Err(problem) => failed(&problem),
    }
}

fn text<'a>(input: &'a Value, name: &str) -> Option<&'a str> {
    input.get(name).and_then(Value::as_str)
}

/// A text that a call needs; an empty one is one.
fn needed<'a>(input: &'a Value, name: &str, operation: &str) -> Result<&'a str, String> {
    text(input, name).ok_or_else(|| format!("{operation} needs {name}, a string"))
}

async fn list(gate: &Gateway, key: &KeyEntry, input: &Value) -> Result<Value, String> {
    let filter = text(input, "filename_filter").unwrap_or_default().to_lowercase();
    let (mut listed, mut from) = (Vec::new(), From::Start);
    loop {
        let (page, has_more) = gate.list_files(key, from, false, PAGE).await.map_err(unavailable)?;
        let last = page.last().map(|file| file.id);
        listed.extend(page.into_iter().filter(|file| file.filename.to_lowercase().contains(&filter)));
        match last {
            Some(last) if has_more && listed.len() <= MOST_LISTED => from = From::After(last),
            _ => break,
        }
    }
    let has_more = listed.len() > MOST_LISTED;
    listed.truncate(MOST_LISTED);
    Ok(json!({"files": listed.iter().map(shown).collect::<Vec<_>>(), "has_more": has_more}))
}

async fn read(gate: &Gateway, key: &KeyEntry, input: &Value) -> Result<Value, String> {
    let (file, content) = found(gate, key, needed(input, "file_id", "read")?).await?;
    let mut told = shown(&file);
    let end = content.char_indices().nth(LONGEST_READ).map(|(at, _)| at);
    if end.is_some() {
        told["note"] = json!(format!("cut: these are the first {LONGEST_READ} characters"));
    }
    told["content"] = json!(end.map_or(content.as_str(), |end| &content[..end]));
    Ok(told)
}

async fn write(gate: &Arc<Gateway>, key: &KeyEntry, input: &Value) -> Result<Value, String> {
    let (filename, content) = (needed(input, "filename", "write")?, needed(input, "content", "write")?);
    keep(gate, key, filename, "text/plain", content.to_owned()).await
}

async fn edit(gate: &Arc<Gateway>, key: &KeyEntry, input: &Value) -> Result<Value, String> {
    let id = needed(input, "file_id", "edit")?;
    let (old, new) = (needed(input, "old_string", "edit")?, needed(input, "new_string", "edit")?);
    let (file, content) = found(gate, key, id).await?;
    let edited = replaced(&content, old, new)?;
    let filename = text(input, "new_filename").filter(|name| !name.is_empty()).unwrap_or(&file.filename);
    keep(gate, key, filename, &file.mime_type, edited).await
}

/// The text with the only occurrence of `old` replaced.
fn replaced(content: &str, old: &str, new: &str) -> Result<String, String> {
    if old.is_empty() {
        return Err("old_string must not be empty".to_owned());
    }
    // Also those that begin within each other: which one is meant cannot be known.
    let Some(at) = content.find(old) else {
        return Err("old_string is not in the file; read it to see what is".to_owned());
    };
    let second = at + old.chars().next().map_or(1, char::len_utf8);
    if content[second..].contains(old) {
        return Err("old_string is in the file more than once; give more of what stands around it".to_owned());
    }
    Ok([&content[..at], new, &content[at + old.len()..]].concat())
}

/// A file and its text.
async fn found(gate: &Gateway, key: &KeyEntry, id: &str) -> Result<(FileRow, String), String> {
    let missing = || format!("there is no file {id} in this workspace; list shows which there are");
    let id = FileId::parse(id).ok_or_else(missing)?;
    let (file, content) = gate.read_file(key, &id).await.map_err(unavailable)?.ok_or_else(missing)?;
    let content = content.expose(|bytes| std::str::from_utf8(bytes).map(str::to_owned));
    let content = content.map_err(|_| format!("{} is not text: {}", file.filename, file.mime_type))?;
    Ok((file, content))
}

async fn keep(
    gate: &Arc<Gateway>,
    key: &KeyEntry,
    filename: &str,
    mime_type: &str,
    content: String,
) -> Result<Value, String> {
    let by = By { actor: Actor::Key(key.hash), request: None, address: None, at: gate.clock.now() };
    let given = Given { filename, mime_type, purpose: None, content: content.into_bytes() };
    match gate.keep_file(key, &by, given).await {
        Ok(file) => Ok(shown(&file)),
        Err(problem @ Problem::Name) => Err(format!("filename {problem}")),
        Err(problem @ (Problem::TooLarge(_) | Problem::Full(_))) => Err(format!("the file {problem}")),
        Err(Problem::Store(error)) => Err(unavailable(error)),
    }
}

fn unavailable(error: StoreError) -> String {
    tracing::warn!(%error, "the store failed a model that works with files");
    "files cannot be reached at the moment".to_owned()
}

fn shown(file: &FileRow) -> Value {
    json!({
        "file_id": file.id.as_str(),
        "filename": file.filename,
        "mime_type": file.mime_type,
        "size_bytes": file.size_bytes,
        "created_at": file.created.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_needs_exactly_one_place() {
        assert_eq!(replaced("low water", "low", "high").unwrap(), "high water");
        assert_eq!(replaced("é low é", "low ", "").unwrap(), "é é");
        assert!(replaced("low low", "low", "high").unwrap_err().contains("more than once"));
        assert!(replaced("aaa", "aa", "b").unwrap_err().contains("more than once"));
        assert!(replaced("low", "high", "").unwrap_err().contains("not in the file"));
        assert!(replaced("low", "", "x").unwrap_err().contains("must not be empty"));
    }

    #[test]
    fn the_description_is_short_enough() {
        assert!(description().0.len() <= 600, "{}", description().0.len());
    }
}
