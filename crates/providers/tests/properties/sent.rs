//! What a request says, whatever the protocol it is written in.

use serde_json::Value;
use tidegate_providers::Protocol;

#[derive(Debug, Default)]
pub struct Sent {
    /// Everything a model reads as text, but results.
    pub texts: Vec<String>,
    /// Type and data.
    pub images: Vec<(String, String)>,
    /// Id, name and input.
    pub calls: Vec<(String, String, Value)>,
    /// Id and text.
    pub results: Vec<(String, String)>,
    /// Names of what is offered; none where not all tools are, on purpose.
    pub tools: Option<Vec<String>>,
    /// Calls and results are told as text.
    pub is_told: bool,
}

pub fn sent(protocol: Protocol, body: &Value) -> Sent {
    let mut sent = Sent::default();
    match protocol {
        Protocol::Chat => sent.chat(body),
        Protocol::Responses => sent.responses(body),
        Protocol::Gemini => sent.gemini(body),
        Protocol::Converse => sent.converse(body),
        Protocol::Cohere => sent.cohere(body),
        Protocol::Messages => {}
    }
    sent
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn object(value: &Value) -> Value {
    let value: Value = serde_json::from_str(value.as_str().unwrap()).unwrap();
    assert!(value.is_object(), "an input is an object");
    value
}

/// The first words are the user's, nobody speaks twice in a row, and nobody says nothing.
fn alternates(messages: &Value) {
    let roles: Vec<&str> = list(messages).iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_ne!(roles.iter().find(|role| **role != "system"), Some(&"assistant"));
    assert_ne!(roles.first(), Some(&"model"));
    assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{roles:?}");
    assert!(
        list(messages)
            .iter()
            .all(|message| !list(message.get("content").unwrap_or_else(|| &message["parts"])).is_empty())
    );
}

impl Sent {
    /// A data URL, or another, which is not ours to look into.
    fn image(&mut self, url: &str) {
        if let Some((kind, data)) = url.strip_prefix("data:").and_then(|url| url.split_once(";base64,")) {
            self.images.push((kind.to_owned(), data.to_owned()));
        }
    }

    /// Content of the chat protocol or one like it, and its text.
    fn content(&mut self, content: &Value) -> String {
        if let Some(text) = content.as_str() {
            return text.to_owned();
        }
        let mut texts = Vec::new();
        for part in list(content) {
            match part["type"].as_str().unwrap() {
                "text" | "input_text" | "output_text" => texts.push(word(&part["text"])),
                "image_url" => self.image(part["image_url"]["url"].as_str().unwrap()),
                "input_image" => self.image(part["image_url"].as_str().unwrap()),
                "file" | "document_url" | "input_file" | "thinking" => {}
                other => panic!("{other} is no part"),
            }
        }
        texts.join("\n")
    }

    fn chat_like(&mut self, messages: &Value) {
        for message in list(messages) {
            let text = self.content(&message["content"]);
            match message["role"].as_str().unwrap() {
                "tool" => self.results.push((word(&message["tool_call_id"]), text)),
                _ => {
                    assert_eq!(self.results.len(), self.calls.len(), "results stand right behind their calls");
                    self.texts.push(text);
                }
            }
            for call in list(&message["tool_calls"]) {
                let function = &call["function"];
                self.calls.push((word(&call["id"]), word(&function["name"]), object(&function["arguments"])));
            }
        }
    }

    fn chat(&mut self, body: &Value) {
        self.chat_like(&body["messages"]);
        self.tools = Some(list(&body["tools"]).iter().map(|tool| word(&tool["function"]["name"])).collect());
    }

    fn cohere(&mut self, body: &Value) {
        self.chat_like(&body["messages"]);
        self.texts.extend(
            list(&body["messages"]).iter().filter_map(|message| message["tool_plan"].as_str()).map(str::to_owned),
        );
        self.texts.extend(list(&body["documents"]).iter().map(|document| word(&document["data"]["text"])));
        // A tool that must be called is the only one on offer.
        let is_all = body["tool_choice"] != "REQUIRED" && !body["tools"].is_null();
        let names = list(&body["tools"]).iter().map(|tool| word(&tool["function"]["name"])).collect();
        self.tools = is_all.then_some(names);
    }

    fn responses(&mut self, body: &Value) {
        self.texts.extend(body["instructions"].as_str().map(str::to_owned));
        for item in list(&body["input"]) {
            match item["type"].as_str().unwrap() {
                "message" => {
                    let text = self.content(&item["content"]);
                    self.texts.push(text);
                }
                "function_call" => {
                    self.calls.push((word(&item["call_id"]), word(&item["name"]), object(&item["arguments"])));
                }
                "function_call_output" => {
                    let text = self.content(&item["output"]);
                    self.results.push((word(&item["call_id"]), text));
                }
                "reasoning" => {}
                other => panic!("{other} is no item"),
            }
        }
        self.tools = Some(list(&body["tools"]).iter().map(|tool| word(&tool["name"])).collect());
    }

    fn gemini(&mut self, body: &Value) {
        self.texts.extend(list(&body["systemInstruction"]["parts"]).iter().map(|part| word(&part["text"])));
        // Without ids, the results of a turn stand in the order of its calls.
        let mut nameless = Vec::new();
        alternates(&body["contents"]);
        for part in list(&body["contents"]).iter().flat_map(|content| list(&content["parts"])) {
            if part["text"].is_string() && part["thought"] != true {
                self.texts.push(word(&part["text"]));
            }
            self.blob(part);
            if let Some(call) = part.get("functionCall") {
                let id = call["id"].as_str().map_or_else(|| format!("#{}", self.calls.len()), str::to_owned);
                if call["id"].is_null() {
                    nameless.push((id.clone(), call["name"].clone()));
                }
                assert!(call["args"].is_object());
                self.calls.push((id, word(&call["name"]), call["args"].clone()));
            }
            if let Some(result) = part.get("functionResponse") {
                let id = result["id"].as_str().map(str::to_owned).unwrap_or_else(|| {
                    let (id, name) = nameless.remove(0);
                    assert_eq!(name, result["name"], "a result has the name of its call");
                    id
                });
                let said = &result["response"];
                self.results.push((id, word(said.get("output").unwrap_or_else(|| &said["error"]))));
                list(&result["parts"]).iter().for_each(|part| self.blob(part));
            }
        }
        let tools = list(&body["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"]));
        self.tools = Some(tools.map(|tool| word(&tool["name"])).collect());
    }

    fn blob(&mut self, part: &Value) {
        let blob = &part["inlineData"];
        if blob["mimeType"].as_str().is_some_and(|kind| kind.starts_with("image/")) {
            self.images.push((word(&blob["mimeType"]), word(&blob["data"])));
        }
    }

    fn converse(&mut self, body: &Value) {
        self.texts.extend(list(&body["system"]).iter().filter_map(|block| block["text"].as_str()).map(str::to_owned));
        alternates(&body["messages"]);
        for block in list(&body["messages"]).iter().flat_map(|message| list(&message["content"])) {
            if let Some(call) = block.get("toolUse") {
                assert!(call["input"].is_object());
                self.calls.push((word(&call["toolUseId"]), word(&call["name"]), call["input"].clone()));
            } else if let Some(result) = block.get("toolResult") {
                let texts: Vec<String> =
                    list(&result["content"]).iter().filter_map(|block| self.block(block)).collect();
                self.results.push((word(&result["toolUseId"]), texts.join("\n")));
            } else {
                let text = self.block(block);
                self.is_told |= text.as_deref().is_some_and(|text| text.starts_with("[called "));
                self.texts.extend(text);
            }
        }
        let specs = list(&body["toolConfig"]["tools"]).iter().filter_map(|tool| tool["toolSpec"]["name"].as_str());
        self.tools = body.get("toolConfig").map(|_| specs.map(str::to_owned).collect());
    }

    fn block(&mut self, block: &Value) -> Option<String> {
        if let Some(image) = block.get("image") {
            self.images.push((word(&image["format"]), word(&image["source"]["bytes"])));
        }
        let text = block["text"].as_str().or_else(|| block["document"]["source"]["text"].as_str());
        text.map(str::to_owned)
    }
}
