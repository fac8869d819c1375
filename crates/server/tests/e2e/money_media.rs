//! What pictures and documents cost, and what is held for those that nobody here has seen.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{Account, INFERENCE_KEY, Reply, Tidegate, on_both};
use crate::money::key;

const MODEL: &str = "vendor/m";
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn reporting(input: u64, output: u64) -> Behaviour {
    let body = json!({
        "id": "msg_up", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": input, "output_tokens": output},
    });
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Behaviour::Raw { status: 200, headers, body: Bytes::from(body.to_string()) }
}

async fn said(account: &Account, key: &str, content: Value) -> Reply {
    let body = json!({"model": MODEL, "max_tokens": 1000, "messages": [{"role": "user", "content": content}]});
    account.gate.ask("POST", "/v1/messages").key(key).json(body.to_string()).send().await
}

async fn record(account: &Account, key: &str, reply: &Reply) -> Value {
    let path = format!("/api/v1/generation?id={}", reply.header("x-generation-id").unwrap());
    account.gate.ask("GET", &path).key(key).send().await.json()["data"].clone()
}

on_both! {
    async fn led_7_a_document_elsewhere_may_fill_the_window(database: &Database) {
        // Sixty pages of which the request says nothing but where they are: $0.54 and $0.015.
        let sim = Sim::start(reporting(180_000, 1_000)).await;
        let pricing = "pricing = { input = 3, output = 15 }";
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, pricing)).await;
        let document = json!([{"type": "document", "source": {"type": "url", "url": "https://example.com/long.pdf"}}]);
        for key in [INFERENCE_KEY.to_owned(), key(&account, json!({"limit": 1})).await] {
            let reply = said(&account, &key, document.clone()).await;
            assert_eq!(reply.json()["usage"]["cost"], json!(0.555), "{}", reply.body_text());
            assert_eq!(record(&account, &key, &reply).await["total_cost"], json!(0.555));
        }
        // A window of 200 000 tokens and the answer are $0.615.
        let poor = key(&account, json!({"limit": 0.5})).await;
        let refused = said(&account, &poor, document).await;
        assert_eq!((refused.status, sim.calls()), (402, 2), "{}", refused.body_text());
        let metrics = account.gate.managed("/metrics").await;
        assert!(metrics.body_text().contains("tidegate_ledger_clamped_total 0\n"), "nobody was taken for a liar");
    }

    async fn led_7_what_a_vendors_own_tools_print_may_fill_the_window(database: &Database) {
        // Two words are sent, and what the tool printed is counted: $0.36 and $0.00075.
        let sim = Sim::start(reporting(120_000, 50)).await;
        let pricing = "pricing = { input = 3, output = 15 }";
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, pricing)).await;
        let tools = [
            json!({"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}),
            json!({"mcp_servers": [{"type": "url", "url": "https://example.com/mcp", "name": "m"}]}),
        ];
        for more in tools {
            let mut body = json!({"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "Go on"}]});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let ask = account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY);
            let reply = ask.header("anthropic-beta", "mcp-client-2025-04-04").json(body.to_string()).send().await;
            assert_eq!(reply.json()["usage"]["cost"], json!(0.36075), "{}", reply.body_text());
        }
        let metrics = account.gate.managed("/metrics").await;
        assert!(metrics.body_text().contains("tidegate_ledger_clamped_total 0\n"), "nobody was taken for a liar");
    }

    async fn led_7_what_may_fill_the_window_does_so_however_it_is_spelled(database: &Database) {
        // The same JSON: a letter may stand as itself or as its number.
        let spellings = [
            (r#""messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://example.com/long.pdf"}}]}]"#, "source"),
            (r#""messages":[],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]"#, "code_execution_2"),
            (r#""messages":[],"mcp_servers":[{"type":"url","url":"https://example.com/mcp","name":"m"}]"#, "mcp_servers"),
        ];
        let sim = Sim::start(reporting(180_000, 1_000)).await;
        let pricing = "pricing = { input = 3, output = 15 }";
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, pricing)).await;
        for (members, word) in spellings {
            let members = members.replace(r#""messages":[]"#, r#""messages":[{"role":"user","content":"Go on"}]"#);
            let coded = format!("\\u{:04x}{}", u32::from(word.as_bytes()[0]), &word[1..]);
            let body = format!(r#"{{"model":"{MODEL}","max_tokens":1000,{}}}"#, members.replacen(word, &coded, 1));
            assert!(body.contains(r"\u00"), "{body}");
            let ask = account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY);
            let reply = ask.header("anthropic-beta", "mcp-client-2025-04-04").json(body.clone()).send().await;
            assert_eq!(reply.json()["usage"]["cost"], json!(0.555), "{}", reply.body_text());
            let metrics = account.gate.managed("/metrics").await;
            assert!(metrics.body_text().contains("tidegate_ledger_clamped_total 0\n"), "{body}");
        }
        let poor = key(&account, json!({"limit": 0.5})).await;
        let document = r#"[{"type":"document","sourc\u0065":{"type":"url","url":"https://example.com/long.pdf"}}]"#;
        let body = format!(r#"{{"model":"{MODEL}","max_tokens":1000,"messages":[{{"role":"user","content":{document}}}]}}"#);
        let refused = account.gate.ask("POST", "/v1/messages").key(&poor).json(body).send().await;
        assert_eq!((refused.status, sim.calls()), (402, 3), "{}", refused.body_text());
    }

    async fn led_7_a_clients_own_tool_holds_no_searches_by_its_name(database: &Database) {
        let sim = Sim::start(reporting(100, 10)).await;
        let pricing = "pricing = { input = 3, output = 15, web_search = 0.01 }\nnative_tools = [\"web_search\"]";
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, pricing)).await;
        let poor = key(&account, json!({"limit": 0.02})).await;
        let ask = |tool: Value| {
            let body = json!({"model": MODEL, "max_tokens": 10, "tools": [tool], "messages": [{"role": "user", "content": "hi"}]});
            account.gate.ask("POST", "/v1/messages").key(&poor).json(body.to_string()).send()
        };
        let own = json!({"name": "web_search_docs", "input_schema": {"type": "object", "properties": {"web_search_q": {}}}});
        let reply = ask(own).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        // Ten searches of the vendor's are ten cents.
        let theirs = json!({"type": "web_search_20250305", "name": "web_search"});
        assert_eq!(ask(theirs).await.status, 402);
    }

    async fn led_7_a_conversation_that_the_upstream_holds_may_fill_the_window(database: &Database) {
        // Three words are sent, and all that was said before them is counted: $0.3 and $0.00075.
        let sim = Sim::start(reporting(100_000, 50)).await;
        let (platform, pricing) = ("platform = \"anthropic\"", "pricing = { input = 3, output = 15 }");
        let builder = Tidegate::start().endpoint_of(MODEL, &sim.base_url(), platform, pricing);
        let account = Account::start(database, builder).await;
        let thread = json!({"type": "continue", "previous_message_id": "msg_up"});
        let mut body = json!({"model": MODEL, "max_tokens": 100, "thread": thread});
        body["messages"] = json!([{"role": "user", "content": "and now?"}]);
        let ask = |key: &str| account.gate.ask("POST", "/v1/messages").key(key).json(body.to_string());
        for key in [INFERENCE_KEY.to_owned(), key(&account, json!({"limit": 1})).await] {
            let reply = ask(&key).send().await;
            assert_eq!(reply.json()["usage"]["cost"], json!(0.30075), "{}", reply.body_text());
        }
        let poor = key(&account, json!({"limit": 0.02})).await;
        let refused = ask(&poor).send().await;
        assert_eq!((refused.status, sim.calls()), (402, 2), "{}", refused.body_text());
        let metrics = account.gate.managed("/metrics").await;
        assert!(metrics.body_text().contains("tidegate_ledger_clamped_total 0\n"), "nobody was taken for a liar");
    }

    async fn pictures_cost_what_the_endpoint_asks_for_each(database: &Database) {
        let sim = Sim::start(reporting(1_000, 100)).await;
        let pricing = "pricing = { input = 1, output = 10, image = 0.002 }";
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, pricing)).await;
        let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}});
        let shown = json!([{"type": "text", "text": "what is this?"}, picture, picture, picture]);
        let reply = said(&account, INFERENCE_KEY, shown.clone()).await;
        // A thousandth of a dollar for the prompt, one for the answer, six for the pictures.
        assert_eq!(reply.json()["usage"]["cost"], json!(0.008), "{}", reply.body_text());
        let record = record(&account, INFERENCE_KEY, &reply).await;
        assert_eq!((&record["total_cost"], &record["num_media_prompt"]), (&json!(0.008), &json!(3)), "{record}");
        // Enough for prompt and answer, not for the pictures.
        let poor = key(&account, json!({"limit": 0.015})).await;
        assert_eq!(said(&account, &poor, json!("what is this?")).await.status, 200);
        assert_eq!(said(&account, &poor, shown).await.status, 402);
    }

    async fn pictures_that_nobody_is_shown_cost_nothing(database: &Database) {
        let sim = Sim::start(Behaviour::says("ok")).await;
        let pricing = "pricing = { input = 0, output = 0, image = 0.002 }";
        let builder = Tidegate::start().protocol_at(MODEL, "openai-chat", &format!("{}/v1", sim.base_url()), pricing);
        let account = Account::start(database, builder).await;
        let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}});
        let messages = json!([
            {"role": "user", "content": [picture, picture, {"type": "text", "text": "what is this?"}]},
            {"role": "assistant", "content": [{"type": "compaction", "content": "Two pictures of nothing."}]},
            {"role": "user", "content": [picture, {"type": "text", "text": "and this?"}, {"type": "a\u{e9}b", "x": 1}]},
        ]);
        let body = json!({"model": MODEL, "max_tokens": 9, "messages": messages});
        let reply = account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string()).send().await;
        assert_eq!(reply.json()["usage"]["cost"], json!(0.002), "{}", reply.body_text());
        assert_eq!(record(&account, INFERENCE_KEY, &reply).await["num_media_prompt"], json!(1));
        // A name that no header can hold is said in another word.
        assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:block"));
    }
}
