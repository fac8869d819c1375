use serde_json::{Value, json};

use super::*;

fn sent(protocol: Protocol, options: &str) -> (Value, Vec<String>) {
    let options: &RawValue = serde_json::from_str(options).unwrap();
    let options = json::Members::of(options).unwrap().0;
    let texts = [Cow::Borrowed("a boat"), Cow::Borrowed("fog")];
    let wanted = Wanted { model: "m", query: "ships", documents: Documents::Texts(&texts), options: &options };
    let Sent { body, warnings } = request(protocol, &wanted).unwrap();
    (serde_json::from_slice(&body).unwrap(), warnings)
}

#[test]
fn each_gets_the_call_that_it_knows() {
    let options = r#"{"top_n":1,"max_tokens_per_doc":64,"return_documents":true,"x":2,"user":"u"}"#;
    let common =
        json!({"model": "m", "query": "ships", "documents": ["a boat", "fog"], "top_n": 1, "max_tokens_per_doc": 64});
    let mut chat = common.clone();
    (chat["x"], chat["user"]) = (json!(2), json!("u"));
    assert_eq!(sent(Protocol::Chat, options), (chat, vec![]));
    assert_eq!(sent(Protocol::Cohere, options), (common, vec!["dropped:x".to_owned()]));
}

#[test]
fn pictures_go_where_they_can_be_seen() {
    let picture: &RawValue = serde_json::from_str(r#"{"image":"data:,"}"#).unwrap();
    let wanted = Wanted { model: "m", query: "q", documents: Documents::Raw(&[picture]), options: &[] };
    let body: Value = serde_json::from_slice(&request(Protocol::Chat, &wanted).unwrap().body).unwrap();
    assert_eq!(body["documents"], json!([{"image": "data:,"}]));
    for protocol in [Protocol::Cohere, Protocol::Messages, Protocol::Gemini, Protocol::Converse] {
        let Err(fault) = request(protocol, &wanted) else { panic!("{protocol:?}") };
        assert_eq!((fault.class, fault.status), (Class::Unsupported, 400), "{protocol:?}");
    }
}

/// Places with their scores, units and tokens.
fn told(body: &str) -> String {
    match answer(body.as_bytes(), 3) {
        Ok(made) => {
            let each: Vec<String> = made.ranked.iter().map(|one| format!("{}:{}", one.index, one.score)).collect();
            format!("{} {:?} {:?}", each.join(" "), made.search_units, made.tokens)
        }
        Err(fault) => format!("{:?}", fault.class),
    }
}

#[test]
fn answers_of_every_vendor_are_read() {
    for (vendor, body, expected) in [
        (
            "Cohere",
            r#"{"id":"1","results":[{"index":2,"relevance_score":0.9990},{"index":0,"relevance_score":0.1}],
                "meta":{"api_version":{"version":"2"},"billed_units":{"search_units":2.0}}}"#,
            "2:0.9990 0:0.1 Some(2) None",
        ),
        (
            "Jina, which sends the documents along",
            r#"{"model":"j","usage":{"total_tokens":38},"results":[{"index":1,"document":{"text":"fog"},"relevance_score":-0.5}]}"#,
            "1:-0.5 None Some(38)",
        ),
        (
            "Voyage, which calls them data",
            r#"{"object":"list","data":[{"relevance_score":0.4,"index":0},{"relevance_score":0.3,"index":1}],"usage":{"total_tokens":26}}"#,
            "0:0.4 1:0.3 None Some(26)",
        ),
        (
            "one that does not sort",
            r#"{"results":[{"index":0,"score":0.2},{"index":1,"score":0.7}],"usage":{"prompt_tokens":5,"total_tokens":5}}"#,
            "1:0.7 0:0.2 None Some(5)",
        ),
        (
            "one that counts in words",
            r#"{"results":[{"index":0,"relevance_score":1}],"usage":{"total_tokens":"many"},"meta":[]}"#,
            "0:1 None None",
        ),
    ] {
        assert_eq!(told(body), expected, "{vendor}");
    }
}

#[test]
fn what_is_no_answer_is_not_taken_for_one() {
    for (body, expected) in [
        (r#"{"results":[]}"#, "EmptyCompletion"),
        (r#"{"results":[{"index":3,"relevance_score":0.1}]}"#, "BadResponse"),
        (r#"{"results":[{"index":0,"relevance_score":0.1},{"index":0,"relevance_score":0.1}]}"#, "BadResponse"),
        (r#"{"results":[{"index":0,"relevance_score":"high"}]}"#, "BadResponse"),
        (r#"{"results":[{"index":0,"relevance_score":1e999}]}"#, "BadResponse"),
        (r#"{"results":[{"index":-1,"relevance_score":0.1}]}"#, "BadResponse"),
        ("[1,2]", "BadResponse"),
        ("{", "BadResponse"),
    ] {
        assert_eq!(told(body), expected, "{body}");
    }
}
