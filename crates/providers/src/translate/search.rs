//! The web search that a vendor runs for its own models: how it is asked for, and how what it found is told.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::json;
use tidegate_wire::messages::{Block, Request, Tool, WebSearchContent, WebSearchTool};

/// The name of the tool, and so of its calls.
pub const NAME: &str = "web_search";

/// One search of a vendor's, as far as it tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    pub query: String,
    pub found: Vec<Source>,
}

/// A page that was found. Vendors do not show what stands on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub url: String,
    pub title: String,
}

impl Source {
    /// Without a title a page is called by its host.
    pub fn new(url: &str, title: Option<&str>) -> Self {
        let title = title.filter(|title| !title.is_empty()).unwrap_or_else(|| host(url));
        Self { url: url.to_owned(), title: title.to_owned() }
    }
}

fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    host.strip_prefix("www.").unwrap_or(host)
}

impl Searched {
    /// The input of the call, as JSON.
    pub(super) fn input(&self) -> String {
        json!({"query": self.query}).to_string()
    }

    /// The call without its input, as JSON.
    pub(super) fn call(&self, id: &str, input: &str) -> String {
        format!(
            r#"{{"type":"server_tool_use","id":"{id}","name":"{NAME}","input":{input},"caller":{{"type":"direct"}}}}"#
        )
    }

    /// The result, as JSON. Nothing is sealed in it here: who has the key for that does it.
    pub(super) fn result(&self, id: &str) -> String {
        let found = self.found.iter().map(|source| {
            json!({"type": "web_search_result", "url": source.url, "title": source.title, "page_age": null,
                "encrypted_content": ""})
        });
        let found: Vec<_> = found.collect();
        let caller = json!({"type": "direct"});
        json!({"type": "web_search_tool_result", "tool_use_id": id, "caller": caller, "content": found}).to_string()
    }
}

/// Several words for one search, as one.
pub fn joined<'a>(queries: impl Iterator<Item = &'a str>) -> String {
    queries.filter(|query| !query.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The request without the searches that the vendor runs, where it has any, and those searches.
pub fn divided(request: &Request) -> (Option<Request>, Vec<&WebSearchTool>) {
    let searches: Vec<&WebSearchTool> = request
        .tools
        .iter()
        .flatten()
        .filter_map(|tool| match tool {
            Tool::WebSearch(tool) => Some(tool),
            _ => None,
        })
        .collect();
    let own = (!searches.is_empty()).then(|| {
        let tools = request.tools.iter().flatten().filter(|tool| !matches!(tool, Tool::WebSearch(_)));
        Request { tools: Some(tools.cloned().collect()), ..request.clone() }
    });
    (own, searches)
}

/// A line for each search of a message that only its vendor can read all of, by the id of its call: what was looked for,
/// and the pages that were found.
pub fn told(blocks: &[Block]) -> HashMap<String, String> {
    #[derive(Deserialize)]
    struct Input {
        query: String,
    }
    let mut lines = HashMap::new();
    let calls = blocks.iter().filter_map(|block| match block {
        Block::ServerToolUse(block) if block.name == NAME => Some(block),
        _ => None,
    });
    for call in calls {
        let found = blocks.iter().find_map(|block| match block {
            Block::WebSearchResult(result) if result.tool_use_id == call.id => Some(&result.content),
            _ => None,
        });
        let (Some(WebSearchContent::Results(found)), Ok(Input { query })) =
            (found, serde_json::from_str(call.input_text()))
        else {
            continue;
        };
        let pages: Vec<String> = found.iter().map(|page| format!("{} ({})", page.title, page.url)).collect();
        let pages = if pages.is_empty() { "nothing".to_owned() } else { pages.join("; ") };
        lines.insert(call.id.clone(), format!("[{NAME} {} → {pages}]", json!(query)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_a_title_is_called_by_its_host() {
        let title = |url: &str, title: Option<&str>| Source::new(url, title).title;
        assert_eq!(title("https://www.tides.example/brest?x#y", None), "tides.example");
        assert_eq!(title("https://tides.example?x", Some("")), "tides.example");
        assert_eq!(title("https://tides.example/", Some("Tides")), "Tides");
        assert_eq!(joined(["a", "", "b"].into_iter()), "a; b");
    }

    #[test]
    fn a_search_that_only_its_vendor_can_read_is_one_line() {
        let page = |url: &str, title: &str| json!({"type": "web_search_result", "url": url, "title": title, "encrypted_content": "Eqg="});
        let call =
            |id: &str| json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}});
        let result = |id: &str, content: serde_json::Value| json!({"type": "web_search_tool_result", "tool_use_id": id, "content": content});
        let error = json!({"type": "web_search_tool_result_error", "error_code": "unavailable"});
        let blocks = json!([
            call("1"),
            result("1", json!([page("https://a.example/", "A"), page("https://b.example/", "B")])),
            call("2"),
            result("2", error),
            call("3"),
        ]);
        let blocks: Vec<Block> = serde_json::from_str(&blocks.to_string()).unwrap();
        let lines = told(&blocks);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines["1"], r#"[web_search "q" → A (https://a.example/); B (https://b.example/)]"#);
    }
}
