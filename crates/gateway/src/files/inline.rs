//! Files that messages name by their ids: upstreams do not know them, so they get what the files hold.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tidegate_core::{FileId, Secret};
use tidegate_store::files::FileRow;
use tidegate_tools::page::Kind;
use tidegate_wire::error::ErrorType;

use crate::failure::{self, Failure};
use crate::keys::KeyEntry;
use crate::{Gateway, request};

/// What images can be.
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
const PDF: &str = "application/pdf";
/// How often one request may name files.
const MOST: u64 = 100;

type Read = HashMap<FileId, (FileRow, Secret)>;

impl Gateway {
    /// The body with what files of the caller's workspace hold in place of their ids. Only for bodies that name some.
    pub(crate) async fn with_files(self: &Arc<Self>, key: &KeyEntry, body: &Bytes) -> Result<Bytes, Failure> {
        let mut request = request::read(body)?;
        let mut named: HashMap<FileId, u64> = HashMap::new();
        each(&mut request, &mut |block, _| {
            if let Some(id) = id_of(block) {
                *named.entry(id).or_default() += 1;
            }
            Ok(())
        })?;
        // One that is named often is shown as often.
        if named.values().sum::<u64>() > MOST {
            return Err(Failure::invalid(format!("Invalid request: messages name files more than {MOST} times")));
        }
        let most = self.snapshot().settings.max_body_bytes as u64;
        let (mut read, mut size): (Read, u64) = (HashMap::new(), body.len() as u64);
        for (id, times) in named {
            let missing = || Failure::new(404, ErrorType::NotFound, failure::file_not_found(id.as_str()));
            let unavailable = |error| {
                tracing::warn!(%error, "the store failed a request that names files");
                Failure::unavailable()
            };
            let file = self.find_file(key, &id).await.map_err(unavailable)?.ok_or_else(missing)?;
            size = size.saturating_add(encoded(file.size_bytes).saturating_mul(times));
            if size > most {
                return Err(Failure::too_large());
            }
            let found = self.read_file(key, &id).await.map_err(unavailable)?.ok_or_else(missing)?;
            read.insert(id, found);
        }
        each(&mut request, &mut |block, place| {
            let Some((file, content)) = id_of(block).and_then(|id| read.get(&id)) else { return Ok(()) };
            let is_image = block.get("type") == Some(&json!("image"));
            let source = content.expose(|bytes| source(&file.mime_type, bytes, is_image));
            block["source"] = source.map_err(|wanted| {
                let problem = format!("must be a file of {wanted}; this one is {}", file.mime_type);
                Failure::invalid(format!("Invalid request: {place}.source.file_id {problem}"))
            })?;
            Ok(())
        })?;
        Ok(Value::Object(request).to_string().into())
    }
}

/// So long it is in base64, which is the longer of the two forms that files are shown in.
fn encoded(bytes: u64) -> u64 {
    bytes.div_ceil(3).saturating_mul(4)
}

/// The file of ours that a block shows.
fn id_of(block: &Value) -> Option<FileId> {
    let source = block.get("source").filter(|source| source.get("type") == Some(&json!("file")))?;
    FileId::parse(source.get("file_id")?.as_str()?)
}

/// What a file is shown as, or what it would have to be.
fn source(mime_type: &str, bytes: &[u8], is_image: bool) -> Result<Value, String> {
    let kind = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let encoded = || json!({"type": "base64", "media_type": kind, "data": STANDARD.encode(bytes)});
    if is_image {
        return if IMAGES.contains(&kind.as_str()) { Ok(encoded()) } else { Err(IMAGES.join(", ")) };
    }
    if kind == PDF || Kind::of_office(&kind).is_some() {
        return Ok(encoded());
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(json!({"type": "text", "media_type": "text/plain", "data": text})),
        Err(_) => Err(format!("{PDF}, text, or .docx, .xlsx or .pptx")),
    }
}

/// Calls `act` with every image and document of the messages, those in results of tools included, and its place.
fn each(
    request: &mut Map<String, Value>,
    act: &mut dyn FnMut(&mut Value, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(Value::Array(messages)) = request.get_mut("messages") else { return Ok(()) };
    for (place, message) in messages.iter_mut().enumerate() {
        blocks(message, &format!("messages[{place}]"), act)?;
    }
    Ok(())
}

fn blocks(
    holder: &mut Value,
    path: &str,
    act: &mut dyn FnMut(&mut Value, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(Value::Array(content)) = holder.get_mut("content") else { return Ok(()) };
    for (place, block) in content.iter_mut().enumerate() {
        let path = format!("{path}.content[{place}]");
        match block.get("type").and_then(Value::as_str) {
            Some("image" | "document") => act(block, &path)?,
            Some("tool_result") => blocks(block, &path, act)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shown_as_what_it_is() {
        let base64 = |kind: &str| json!({"type": "base64", "media_type": kind, "data": "/wA="});
        assert_eq!(source("image/PNG", b"\xff\0", true), Ok(base64("image/png")));
        assert_eq!(source("application/pdf", b"\xff\0", false), Ok(base64("application/pdf")));
        let text = json!({"type": "text", "media_type": "text/plain", "data": "six"});
        for kind in ["text/csv; charset=utf-8", "application/octet-stream"] {
            assert_eq!(source(kind, b"six", false), Ok(text.clone()), "{kind}");
        }
        assert_eq!(source("text/plain", b"six", true), Err("image/jpeg, image/png, image/gif, image/webp".to_owned()));
        assert_eq!(
            source("image/png", b"\xff", false),
            Err("application/pdf, text, or .docx, .xlsx or .pptx".to_owned())
        );
    }

    #[test]
    fn files_are_found_wherever_a_message_shows_them() {
        let id = "file_01HF7YAT00ZZZZZZZZZZZZZZZZ";
        let block = |kind: &str, id: &str| json!({"type": kind, "source": {"type": "file", "file_id": id}});
        let result = json!({"type": "tool_result", "tool_use_id": "t", "content": [block("image", id)]});
        // What is not ours stays as it is.
        let foreign = block("document", "file_011CNha8iCJcU1wXNR6q4V8w");
        let request = json!({"messages": [{"role": "user", "content": "hi"},
            {"role": "user", "content": [block("document", id), foreign, result]}]});
        let Value::Object(mut request) = request else { panic!("an object") };
        let mut found = Vec::new();
        let done = each(&mut request, &mut |block, place| {
            found.extend(id_of(block).map(|_| place.to_owned()));
            Ok(())
        });
        assert!(done.is_ok());
        assert_eq!(found, ["messages[1].content[0]", "messages[1].content[2].content[0]"]);
    }
}
