//! Results of earlier searches that come back in a request that cannot search. Only we can read them, so they are told as
//! text, to whoever serves; what others sealed stays as it is.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tidegate_core::WorkspaceId;
use tidegate_store::vault::Vault;

use super::replay::Memory;
use super::search::{self, SEALED, Vaulted};
use super::turn::is;

/// The body with the results that we sealed told in words; nothing where it holds none.
pub(super) fn opened(body: &[u8], vault: &Vault, workspace: &WorkspaceId) -> Option<Bytes> {
    let mut request: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let Some(Value::Array(messages)) = request.get_mut("messages") else { return None };
    *messages = retold(std::mem::take(messages), &Vaulted { vault, workspace });
    Some(Value::Object(request).to_string().into())
}

/// The messages with every search of ours as what was said and heard.
pub(super) fn retold(messages: Vec<Value>, memory: &dyn Memory) -> Vec<Value> {
    let mut made: Vec<Value> = Vec::with_capacity(messages.len());
    let mut heard: Vec<Value> = Vec::new();
    for message in messages {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        if role == "user" && !heard.is_empty() {
            match message.get("content") {
                Some(Value::String(text)) => heard.push(json!({"type": "text", "text": text})),
                Some(Value::Array(blocks)) => heard.extend(blocks.iter().cloned()),
                _ => {}
            }
            made.push(json!({"role": "user", "content": std::mem::take(&mut heard)}));
            continue;
        }
        let ours = if role == "assistant" { sealed_by_us(&message) } else { Vec::new() };
        if ours.is_empty() {
            made.push(message);
            continue;
        }
        let blocks = message.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut said: Vec<Value> = Vec::new();
        for block in blocks {
            let of =
                |name: &str| block.get(name).and_then(Value::as_str).is_some_and(|id| ours.iter().any(|own| own == id));
            if is(&block, "server_tool_use") && of("id") {
                let text = format!("[{} {}]", search::NAME, block.get("input").cloned().unwrap_or_default());
                said.push(json!({"type": "text", "text": text}));
            } else if of("tool_use_id") {
                let content = block.get("content").cloned().unwrap_or_default();
                heard.push(json!({"type": "text", "text": search::retold(&content, memory).0}));
            } else {
                if !heard.is_empty() {
                    made.push(json!({"role": "assistant", "content": std::mem::take(&mut said)}));
                    made.push(json!({"role": "user", "content": std::mem::take(&mut heard)}));
                }
                said.push(block);
            }
        }
        if !said.is_empty() {
            made.push(json!({"role": "assistant", "content": said}));
        }
    }
    if !heard.is_empty() {
        made.push(json!({"role": "user", "content": heard}));
    }
    made
}

/// The ids of the searches whose results only we can read.
fn sealed_by_us(message: &Value) -> Vec<String> {
    let blocks = message.get("content").and_then(Value::as_array).into_iter().flatten();
    let is_ours = |block: &&Value| {
        let results = block.get("content").and_then(Value::as_array).into_iter().flatten();
        let mut sealed = results.filter_map(|result| result.get("encrypted_content")?.as_str());
        is(block, search::BLOCK) && sealed.any(|sealed| sealed.starts_with(SEALED))
    };
    blocks.filter(is_ours).filter_map(|block| block.get("tool_use_id")?.as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Open;

    impl Memory for Open {
        fn result(&self, _: &str) -> Option<String> {
            None
        }

        fn opened(&self, blob: &str) -> Option<Vec<u8>> {
            let kept = json!({"url": "https://a.example/", "title": "A", "content": "Six.", "published_at": null,
                "engine": "e", "retrieved_at": "2026-08-24T10:30:00.000+00:00"});
            (blob == "tg1.x").then(|| kept.to_string().into_bytes())
        }
    }

    fn searched(id: &str, sealed: &str) -> [Value; 2] {
        [
            json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}),
            json!({"type": "web_search_tool_result", "tool_use_id": id, "content": [
                {"type": "web_search_result", "url": "https://a.example/", "title": "A", "encrypted_content": sealed}]}),
        ]
    }

    #[test]
    fn our_searches_are_told_and_those_of_others_stay() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let ([call, result], [other, others]) = (searched("1", "tg1.x"), searched("2", "Eqg="));
        let given = vec![
            json!({"role": "user", "content": "hi"}),
            json!({"role": "assistant", "content": [text("a"), call, result, text("b"), other, others]}),
            json!({"role": "user", "content": "and?"}),
        ];
        let made = retold(given.clone(), &Open);
        assert_eq!(made.len(), 5, "{made:?}");
        assert_eq!((&made[0], &made[4]), (&given[0], &given[2]));
        assert_eq!(made[1]["content"], json!([text("a"), text("[web_search {\"query\":\"q\"}]")]));
        assert_eq!(made[2]["role"], "user");
        let told = made[2]["content"][0]["text"].as_str().unwrap();
        assert!(told.contains("Six.") && told.contains("https://a.example/"), "{told}");
        assert_eq!(made[3]["content"], json!([text("b"), other, others]));

        // At the end of a message the results come before what the user says next.
        let [call, result] = searched("1", "tg1.x");
        let made = retold(
            vec![json!({"role": "assistant", "content": [call, result]}), json!({"role": "user", "content": "and?"})],
            &Open,
        );
        assert_eq!((made.len(), &made[1]["content"][1]), (2, &text("and?")));
    }
}
