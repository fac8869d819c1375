//! Destinations that do not take OTLP: each hears of requests in its own form, and of nothing that it may not hear.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::receiver::{ELSEWHERE, Receiver, Told};
use crate::harness::{Account, Tidegate, assert_refused, eventually, hello, on_both};

const MODEL: &str = "vendor/m";
const PATIENCE: Duration = Duration::from_secs(30);
const PRICED: &str = "[models.endpoints.pricing]\ninput = 1\noutput = 2\n";
const DESTINATIONS: &str = "/observability/destinations";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A destination of the configuration; what is planted in it must come out only where it belongs.
fn configured(kind: &str, config: &str, lines: &str) -> String {
    format!("[[destinations]]\nname = \"{kind}\"\ntype = \"{kind}\"\nconfig = {{ {config} }}\n{lines}\n")
}

fn bucket(receiver: &Receiver) -> String {
    format!(
        "endpoint = \"http://{}\", bucketName = \"traces\", accessKeyId = \"TIDEKEY\", secretAccessKey = \"planted-secret\", \
         prefix = \"team a\", pathTemplate = \"{{prefix}}/{{year}}/{{month}}/{{day}}/{{date}}/{{apiKeyName}}\"",
        receiver.address
    )
}

fn clickhouse(receiver: &Receiver) -> String {
    format!(
        "host = \"http://{}\", database = \"my db\", username = \"writer\", password = \"planted-password\"",
        receiver.address
    )
}

fn question(stream: bool) -> Value {
    json!({
        "model": MODEL, "max_tokens": 64, "stream": stream, "temperature": 0.5, "system": "spoken-system",
        "session_id": "s-1", "user": "u-1",
        "tools": [{"name": "spoken_tool", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "spoken-question"}],
        "trace": {"trace_id": TRACE, "trace_name": "Checkout", "generation_name": "Answer", "feature": "tides"},
    })
}

/// A request, and its record.
async fn asked(gate: &Tidegate, body: Value) -> Value {
    let reply = gate.messages(body).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let id = reply.header("x-generation-id").unwrap().to_owned();
    let path = format!("/api/v1/generation?id={id}");
    let record = gate.ask("GET", &path).key(crate::harness::INFERENCE_KEY).send().await.json();
    record["data"].clone()
}

/// What it was told, once it was told so often.
async fn calls(receiver: &Receiver, count: usize) -> Vec<Told> {
    eventually("it is told", PATIENCE, async || receiver.told().len() >= count).await;
    receiver.told()
}

/// The name and value of each part of a query.
fn query(line: &str) -> BTreeMap<String, String> {
    let (_, query) = line.split_once('?').unwrap();
    url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

#[tokio::test]
async fn a_bucket_gets_an_object_for_each_request() {
    let (sim, receiver) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = Tidegate::start()
        .endpoint_with(MODEL, &sim, PRICED)
        .config(&configured("s3", &bucket(&receiver), "headers = { x-amz-storage-class = \"STANDARD_IA\" }"))
        .run()
        .await;
    let record = asked(&gate, question(false)).await;
    let told = calls(&receiver, 1).await.remove(0);
    let object: Value = serde_json::from_str(&told.body).unwrap();

    let at = object["timestamp"].as_str().unwrap();
    let (date, day) = (&at[..10], at[..10].replace('-', "/"));
    let (folder, name) = told.line.rsplit_once('/').unwrap();
    assert_eq!(folder, format!("PUT /traces/team%20a/{day}/{date}/first-inference-key"));
    assert!(name.starts_with(&format!("{TRACE}-")) && name.ends_with(".json"), "{name}");
    assert_eq!(told.headers["content-type"], "application/json");
    assert_eq!(told.headers["x-amz-storage-class"], "STANDARD_IA");
    let signed = &told.headers["authorization"];
    let scope = format!("AWS4-HMAC-SHA256 Credential=TIDEKEY/{}/us-east-1/s3/aws4_request, ", date.replace('-', ""));
    let names = "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class, Signature=";
    assert!(signed.starts_with(&format!("{scope}{names}")), "{signed}");

    for (member, value) in [
        ("id", json!(TRACE)),
        ("name", json!("Checkout")),
        ("userId", json!("u-1")),
        ("sessionId", json!("s-1")),
        ("metadata", json!({"feature": "tides"})),
    ] {
        assert_eq!(object[member], value, "{member}");
    }
    let [root, generation] = object["observations"].as_array().unwrap().as_slice() else { panic!("{object}") };
    assert_eq!((&root["type"], &root["name"]), (&json!("SPAN"), &json!("Checkout")));
    assert_eq!(generation["parentId"], root["id"]);
    let input = json!({
        "system": [{"type": "text", "content": "spoken-system"}],
        "messages": [{"role": "user", "parts": [{"type": "text", "content": "spoken-question"}]}],
        "tools": [{"name": "spoken_tool", "input_schema": {"type": "object"}}],
    });
    let (prompt, completion) = (&record["native_tokens_prompt"], &record["native_tokens_completion"]);
    let usage = json!({
        "input": prompt, "output": completion, "total": prompt.as_u64().unwrap() + completion.as_u64().unwrap(),
        "cacheRead": 0, "cacheWrite": 0, "reasoning": 0,
    });
    for (member, value) in [
        ("type", json!("GENERATION")),
        ("name", json!("Answer")),
        ("model", json!(MODEL)),
        ("provider", json!("p0")),
        ("modelParameters", json!({"max_tokens": 64, "temperature": 0.5, "stream": false})),
        ("input", input),
        ("usage", usage),
        ("cost", json!({"input": null, "output": null, "total": record["total_cost"]})),
        ("level", json!("DEFAULT")),
        ("status", json!("ok")),
        ("finishReason", json!("end_turn")),
    ] {
        assert_eq!(generation[member], value, "{member}");
    }
    assert_eq!(generation["output"][0]["role"], "assistant");
    assert!(generation["startTime"].as_str() <= generation["endTime"].as_str());
    assert_eq!(generation["metadata"]["tidegate.generation_id"], record["id"]);

    // Requests of one trace do not take each other's place, not even in the same millisecond.
    let (first, second) = tokio::join!(asked(&gate, question(true)), asked(&gate, question(true)));
    assert_ne!(first["id"], second["id"]);
    let places: BTreeSet<String> = calls(&receiver, 3).await.into_iter().map(|told| told.line).collect();
    assert_eq!(places.len(), 3, "{places:?}");
    // What fails is told as well.
    sim.set(Behaviour::status(400));
    gate.messages(hello(MODEL)).await;
    let failed: Value = serde_json::from_str(&calls(&receiver, 4).await[3].body).unwrap();
    let failed = &failed["observations"][0];
    assert_eq!((&failed["status"], &failed["level"]), (&json!("error"), &json!("ERROR")));
}

#[tokio::test]
async fn a_table_gets_a_row_for_each_span() {
    let (sim, receiver) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = Tidegate::start()
        .endpoint_with(MODEL, &sim, PRICED)
        .config(&configured("clickhouse", &clickhouse(&receiver), "broadcast_generation_identity = true"))
        .run()
        .await;
    let record = asked(&gate, question(true)).await;
    let told = calls(&receiver, 1).await.remove(0);
    assert!(told.line.starts_with("POST /?"), "{}", told.line);
    let wanted = [
        ("database", "my db"),
        ("query", "INSERT INTO TIDEGATE_TRACES FORMAT JSONEachRow"),
        ("async_insert", "1"),
        ("wait_for_async_insert", "1"),
    ];
    let wanted: BTreeMap<String, String> = wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(query(&told.line), wanted);
    assert_eq!(
        (told.headers["x-clickhouse-user"].as_str(), told.headers["x-clickhouse-key"].as_str()),
        ("writer", "planted-password")
    );
    let rows: Vec<Value> = told.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [root, generation] = rows.as_slice() else { panic!("{}", told.body) };
    for row in [root, generation] {
        for (name, value) in row.as_object().unwrap() {
            let fits = match COLUMNS.iter().find(|(names, _)| names.split(' ').any(|known| known == name)).unwrap().1 {
                "text" => value.is_string(),
                "count" => value.is_u64(),
                "number" => value.is_f64(),
                "json" => {
                    value.as_str().is_some_and(|text| text.is_empty() || serde_json::from_str::<Value>(text).is_ok())
                }
                other => panic!("{other}"),
            };
            assert!(fits, "{name}: {value}");
        }
        let names: usize = COLUMNS.iter().map(|(names, _)| names.split(' ').count()).sum();
        assert_eq!(row.as_object().unwrap().len(), names, "every column has its value");
    }
    let read = |name: &str| serde_json::from_str::<Value>(generation[name].as_str().unwrap()).unwrap();
    let (prompt, completion) = (&record["native_tokens_prompt"], &record["native_tokens_completion"]);
    for (name, value) in [
        ("TRACE_ID", json!(TRACE)),
        ("PARENT_SPAN_ID", root["SPAN_ID"].clone()),
        ("SPAN_TYPE", json!("GENERATION")),
        ("SPAN_NAME", json!("Answer")),
        ("MODEL", json!(MODEL)),
        ("PROVIDER_NAME", json!("P0")),
        ("GENERATION_ID", record["id"].clone()),
        ("REQUEST_ID", record["id"].clone()),
        ("USER_ID", json!("u-1")),
        ("SESSION_ID", json!("s-1")),
        ("WORKSPACE_ID", record["workspace_id"].clone()),
        ("PROMPT_TOKENS", prompt.clone()),
        ("COMPLETION_TOKENS", completion.clone()),
        ("TOTAL_TOKENS", json!(prompt.as_u64().unwrap() + completion.as_u64().unwrap())),
        ("CACHED_TOKENS", json!(0)),
        ("TOTAL_COST", record["total_cost"].clone()),
        ("STATUS", json!("ok")),
        ("LEVEL", json!("DEFAULT")),
        ("FINISH_REASON", json!("end_turn")),
    ] {
        assert_eq!(generation[name], value, "{name}");
    }
    assert_eq!(
        (&root["SPAN_TYPE"], &root["SPAN_NAME"], &root["PARENT_SPAN_ID"]),
        (&json!("SPAN"), &json!("Checkout"), &json!(""))
    );
    // Seconds and thousandths, in the form that ClickHouse reads without being told how.
    let at = generation["TIMESTAMP"].as_str().unwrap();
    assert!(at.len() == 23 && at.as_bytes()[10] == b' ' && at.as_bytes()[19] == b'.', "{at}");
    assert_eq!(read("METADATA"), json!({"feature": "tides"}));
    assert_eq!(read("MODEL_PARAMETERS"), json!({"max_tokens": 64, "temperature": 0.5, "stream": true}));
    assert_eq!(read("INPUT")["messages"][0]["parts"][0]["content"], "spoken-question");
    assert_eq!(read("OUTPUT")[0]["role"], "assistant");
    assert_eq!(read("ATTRIBUTES")["gen_ai.operation.name"], "chat");
    assert!(generation["DURATION_MS"].as_f64() >= generation["TTFT_MS"].as_f64());
}

/// What ClickHouse's types take as JSON.
const COLUMNS: [(&str, &str); 7] = [
    ("TIMESTAMP TRACE_ID SPAN_ID PARENT_SPAN_ID SPAN_TYPE SPAN_NAME MODEL PROVIDER_NAME", "text"),
    ("GENERATION_ID REQUEST_ID USER_ID SESSION_ID API_KEY_NAME WORKSPACE_ID", "text"),
    ("PROMPT_TOKENS COMPLETION_TOKENS TOTAL_TOKENS CACHED_TOKENS REASONING_TOKENS", "count"),
    ("PROMPT_COST COMPLETION_COST TOTAL_COST", "number"),
    ("DURATION_MS TTFT_MS", "number"),
    ("STATUS LEVEL FINISH_REASON", "text"),
    ("INPUT OUTPUT METADATA ATTRIBUTES MODEL_PARAMETERS", "json"),
];

fn datadog(receiver: &Receiver) -> String {
    format!("url = \"http://{}/\", apiKey = \"planted-key\", mlApp = \"tides\"", receiver.address)
}

fn posthog(receiver: &Receiver) -> String {
    format!("endpoint = \"http://{}\", apiKey = \"phc_planted\"", receiver.address)
}

fn weave(receiver: &Receiver) -> String {
    format!("baseUrl = \"http://{}\", apiKey = \"planted-key\", entity = \"tides\", project = \"p\"", receiver.address)
}

/// The form is that of Datadog's "LLM Observability HTTP API".
#[tokio::test]
async fn datadog_gets_spans_of_its_own_form() {
    let (sim, receiver) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = Tidegate::start()
        .endpoint_with(MODEL, &sim, PRICED)
        .config(&configured("datadog", &datadog(&receiver), ""))
        .config("[observability]\nenvironment = \"test\"\n")
        .run()
        .await;
    let record = asked(&gate, question(true)).await;
    let told = calls(&receiver, 1).await.remove(0);
    assert_eq!(told.line, "POST /api/intake/llm-obs/v1/trace/spans");
    assert_eq!(told.headers["dd-api-key"], "planted-key");
    let body: Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!((&body["data"]["type"], &body["data"]["attributes"]["ml_app"]), (&json!("span"), &json!("tides")));
    let spans = body["data"]["attributes"]["spans"].as_array().unwrap();
    let [root, generation] = spans.as_slice() else { panic!("{body}") };
    assert_eq!(
        (&root["parent_id"], &root["meta"]["kind"], &root["name"]),
        (&json!("undefined"), &json!("workflow"), &json!("Checkout"))
    );
    assert_eq!((&generation["parent_id"], &generation["trace_id"]), (&root["span_id"], &json!(TRACE)));
    assert_eq!(
        (&generation["name"], &generation["status"], &generation["session_id"]),
        (&json!("Answer"), &json!("ok"), &json!("s-1"))
    );
    assert_eq!(generation["tags"], json!(["service:tidegate", "env:test", "user_id:u-1"]));
    let meta = &generation["meta"];
    assert_eq!(meta["kind"], "llm");
    let messages =
        json!([{"role": "system", "content": "spoken-system"}, {"role": "user", "content": "spoken-question"}]);
    assert_eq!(meta["input"]["messages"], messages);
    assert_eq!(meta["output"]["messages"][0]["role"], "assistant");
    for (member, value) in [
        ("model_name", json!(MODEL)),
        ("model_provider", json!("p0")),
        ("temperature", json!(0.5)),
        ("max_tokens", json!(64)),
        ("feature", json!("tides")),
    ] {
        assert_eq!(meta["metadata"][member], value, "{member}");
    }
    let metrics = &generation["metrics"];
    assert_eq!(metrics["input_tokens"], record["native_tokens_prompt"]);
    assert_eq!(metrics["output_tokens"], record["native_tokens_completion"]);
    assert_eq!(metrics["total_cost"], record["total_cost"]);
    let (start, long) = (generation["start_ns"].as_i64().unwrap(), generation["duration"].as_i64().unwrap());
    assert!(start > 1_700_000_000_000_000_000 && long >= 0, "{start} {long}");
    sim.set(Behaviour::status(400));
    gate.messages(hello(MODEL)).await;
    let failed: Value = serde_json::from_str(&calls(&receiver, 2).await[1].body).unwrap();
    let failed = &failed["data"]["attributes"]["spans"][0];
    assert_eq!(failed["status"], "error");
    assert!(failed["meta"]["error"]["type"].is_string(), "{failed}");
}

/// The names are those of PostHog's "Manual capture".
#[tokio::test]
async fn posthog_gets_an_event_for_each_call_of_a_model() {
    let (sim, receiver) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = Tidegate::start()
        .endpoint_with(MODEL, &sim, PRICED)
        .config(&configured("posthog", &posthog(&receiver), ""))
        .run()
        .await;
    let mut body = question(true);
    body["trace"]["deep"] = json!({"a": {"b": {"c": {"d": 1}}}});
    let record = asked(&gate, body).await;
    let told = calls(&receiver, 1).await.remove(0);
    assert_eq!(told.line, "POST /batch/");
    let body: Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!(body["api_key"], "phc_planted");
    let [event] = body["batch"].as_array().unwrap().as_slice() else { panic!("{body}") };
    assert_eq!((&event["event"], &event["distinct_id"]), (&json!("$ai_generation"), &json!("u-1")));
    assert_eq!(event["uuid"].as_str().unwrap().len(), 36);
    assert!(event["timestamp"].as_str().unwrap().ends_with('Z'));
    let properties = &event["properties"];
    let messages =
        json!([{"role": "system", "content": "spoken-system"}, {"role": "user", "content": "spoken-question"}]);
    for (name, value) in [
        ("$ai_trace_id", json!(TRACE)),
        ("$ai_session_id", json!("s-1")),
        ("$ai_span_name", json!("Answer")),
        ("$ai_model", json!(MODEL)),
        ("$ai_provider", json!("p0")),
        ("$ai_input", messages),
        ("$ai_input_tokens", record["native_tokens_prompt"].clone()),
        ("$ai_output_tokens", record["native_tokens_completion"].clone()),
        ("$ai_total_cost_usd", record["total_cost"].clone()),
        ("$ai_http_status", json!(200)),
        ("$ai_is_error", json!(false)),
        ("$ai_stream", json!(true)),
        ("$ai_temperature", json!(0.5)),
        ("$ai_tools", json!([{"name": "spoken_tool", "input_schema": {"type": "object"}}])),
        ("trace_name", json!("Checkout")),
        ("metadata_feature", json!("tides")),
        ("metadata_deep", json!({"a": {"b": {"c": "[truncated]"}}})),
    ] {
        assert_eq!(properties[name], value, "{name}");
    }
    assert_eq!(properties["$ai_output_choices"][0]["role"], "assistant");
    assert!(properties["$ai_latency"].as_f64() >= properties["$ai_time_to_first_token"].as_f64());
    // Without a user there is no person.
    asked(&gate, hello(MODEL)).await;
    let body: Value = serde_json::from_str(&calls(&receiver, 2).await[1].body).unwrap();
    let event = &body["batch"][0];
    assert_eq!(event["properties"]["$process_person_profile"], false);
}

#[tokio::test]
async fn whatever_its_type_nobody_hears_in_privacy_what_was_said() {
    type Written = fn(&Receiver) -> String;
    let table: [(&str, Written); 5] =
        [("s3", bucket), ("clickhouse", clickhouse), ("datadog", datadog), ("posthog", posthog), ("weave", weave)];
    let sim = Sim::start(Behaviour::Echo).await;
    let mut start = Tidegate::start().endpoint(MODEL, &sim);
    let mut receivers = Vec::new();
    for (kind, config) in table {
        let receiver = Receiver::start().await;
        start = start.config(&configured(kind, &config(&receiver), "privacy_mode = true"));
        receivers.push((kind, receiver));
    }
    // Somebody else may know, so it is known what was said.
    let other = Receiver::start().await;
    let gate = start.config(&other.config("webhook", "")).run().await;
    let mut ids = Vec::new();
    for stream in [false, true] {
        ids.push(asked(&gate, question(stream)).await["id"].as_str().unwrap().to_owned());
    }
    for (kind, receiver) in &receivers {
        let hears = |id: &String| receiver.told().iter().any(|told| told.body.contains(id));
        eventually("it hears of both", PATIENCE, async || ids.iter().all(hears)).await;
        for told in receiver.told() {
            assert!(!told.body.contains("spoken"), "{kind}: {}", told.body);
            assert!(told.body.contains("tides"), "{kind}: what the caller says of the trace stays");
            assert_eq!(told.body.contains("planted"), *kind == "posthog", "only PostHog has its key in the body");
        }
    }
    eventually("the other one hears it", PATIENCE, async || {
        other.told().iter().any(|told| told.body.contains("spoken-question"))
    })
    .await;
    assert!(!gate.stderr().contains("planted"), "{}", gate.stderr());
}

on_both! {
    async fn buckets_and_tables_are_tried_before_they_are_kept(database: &Database) {
        let (sim, receiver) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(&receiver.allowed())).await;
        let at = format!("http://{}", receiver.address);
        let table = json!({"type": "clickhouse", "name": "table", "config": {
            "host": at, "database": "d", "username": "writer", "password": "planted-password-of-it", "table": "T_1",
        }});
        let made = account.data("POST", DESTINATIONS, Some(table.clone()), 201).await;
        let config = json!({"host": at, "database": "d", "username": "writer", "password": "pla...f-it", "table": "T_1"});
        assert_eq!(made["config"], config);
        let test = receiver.told().remove(0);
        assert_eq!((test.line.as_str(), test.headers["x-test-connection"].as_str()), ("POST /?database=d", "true"));
        assert!(test.body.starts_with("CREATE TABLE IF NOT EXISTS T_1 (TIMESTAMP DateTime64(3,'UTC'), TRACE_ID String, "), "{}", test.body);
        for part in [
            "SPAN_TYPE LowCardinality(String)", "PROMPT_TOKENS UInt64", "TOTAL_COST Float64", "MODEL_PARAMETERS String",
            "ENGINE = ReplacingMergeTree", "PARTITION BY toYYYYMM(TIMESTAMP)", "TRACE_ID, SPAN_ID)",
        ] {
            assert!(test.body.contains(part), "{part}: {}", test.body);
        }
        let store = json!({"type": "s3", "name": "store", "config": {
            "endpoint": at, "bucketName": "traces", "accessKeyId": "TIDEKEYTIDEKEYTIDEKEY", "secretAccessKey": "planted-secret-of-it",
        }});
        let made = account.data("POST", DESTINATIONS, Some(store.clone()), 201).await;
        assert_eq!((&made["config"]["accessKeyId"], &made["config"]["secretAccessKey"]), (&json!("TID...EKEY"), &json!("pla...f-it")));
        let test = receiver.told().remove(1);
        assert_eq!((test.line.as_str(), test.body.as_str()), ("PUT /traces/tidegate-traces/connection-test.json", "{}"));
        assert!(test.headers["authorization"].contains("/us-east-1/s3/aws4_request"));

        for (kind, config, line, body) in [
            ("datadog", json!({"url": at, "apiKey": "planted-api-key-of-it", "mlApp": "a"}), "GET /api/v1/validate", ""),
            ("posthog", json!({"endpoint": at, "apiKey": "planted-api-key-of-it"}), "POST /flags/?v=2", r#"{"api_key":"planted-api-key-of-it","distinct_id":"connection-test"}"#),
            ("weave", json!({"baseUrl": at, "apiKey": "planted-api-key-of-it", "entity": "e", "project": "p"}), "POST /otel/v1/traces", ""),
            ("opik", json!({"baseUrl": at, "apiKey": "planted-api-key-of-it", "workspace": "w", "projectName": "p"}), "POST /v1/private/otel/v1/traces", ""),
        ] {
            let made = account.data("POST", DESTINATIONS, Some(json!({"type": kind, "name": kind, "config": config})), 201).await;
            assert_eq!(made["config"]["apiKey"], "pla...f-it", "{kind}");
            let test = receiver.told().pop().unwrap();
            assert_eq!((test.line.as_str(), test.body.as_str()), (line, body));
            let path = format!("{DESTINATIONS}/{}", made["id"].as_str().unwrap());
            assert_eq!(account.ask("DELETE", &path).await.status, 200);
        }

        let reply = account.gate.messages(hello(MODEL)).await;
        let id = reply.header("x-generation-id").unwrap().to_owned();
        eventually("both hear of it", PATIENCE, async || {
            receiver.told().iter().skip(6).filter(|told| told.body.contains(&id)).count() == 2
        }).await;

        receiver.says(403);
        for body in [&table, &store] {
            let mut body = body.clone();
            body["name"] = json!("another");
            let refused = account.send("POST", DESTINATIONS, body).await;
            assert_eq!((refused.status, &refused.json()["error"]["metadata"]["test"]["status"]), (400, &json!(403)), "{}", refused.body_text());
        }
        let with = |base: &Value, member: &str, value: &str| {
            let mut body = base.clone();
            body["config"][member] = json!(value);
            body
        };
        for (body, path) in [
            (with(&store, "bucketName", "No"), "config.bucketName"),
            (with(&store, "region", "mars/1"), "config.region"),
            (with(&store, "endpoint", "https://10.0.0.1"), "config.endpoint"),
            (with(&store, "endpoint", "https://a@example.com"), "config.endpoint"),
            (with(&store, "pathTemplate", "{prefix}/{moon}"), "config.pathTemplate"),
            (with(&table, "table", "t; DROP TABLE t"), "config.table"),
            (with(&table, "host", "https://169.254.169.254"), "config.host"),
            (with(&table, "database", ""), "config.database"),
        ] {
            assert_refused(&account.send("POST", DESTINATIONS, body).await, path);
        }
        assert!(!account.gate.stderr().contains("planted"), "{}", account.gate.stderr());
    }
}
