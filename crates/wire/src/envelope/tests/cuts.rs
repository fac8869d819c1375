//! What does not go upstream.

use super::*;

#[test]
fn a_count_sends_only_what_is_counted_and_strangers() {
    let counted = r#"{"model":"a/b","messages":[{"role":"user","content":"x"}],"system":"s","tools":[],"thinking":{"type":"disabled"},"output_config":{},"cache_control":{"type":"ephemeral"},"context_management":{"edits":[]},"stranger":{"stream":true}}"#;
    let dropped = r#""max_tokens":5,"stream":true,"temperature":1,"top_p":0.5,"top_k":4,"stop_sequences":["x"],"metadata":{"user_id":"u"},"service_tier":"auto","speed":"fast","container":"c","inference_geo":"eu","diagnostics":{},"session_id":"s""#;
    // In front, behind, and among the rest.
    let bodies = [
        counted.replacen('{', &format!("{{{dropped},"), 1),
        format!("{},{dropped}}}", &counted[..counted.len() - 1]),
        counted.replacen("\"system\"", &format!("{dropped} , \"system\""), 1),
    ];
    for body in bodies.map(Bytes::from) {
        let envelope = read(&body, BRAND, Purpose::Count).unwrap();
        let sent: Value = serde_json::from_slice(&envelope.cuts.upstream_body(&body, "a/b", None)).unwrap();
        assert_eq!(sent, serde_json::from_str::<Value>(counted).unwrap());
        // Who has the model in the address wants a call that could be made: with a limit, of whatever size.
        let wrapped = Wrapped { without_stream: true, added: r#""version":"v""# };
        let sent: Value = serde_json::from_slice(&envelope.cuts.wrapped_body(&body, &wrapped, Some(1))).unwrap();
        let mut expected: Value = serde_json::from_str(counted).unwrap();
        expected.as_object_mut().unwrap().remove("model");
        (expected["version"], expected["max_tokens"]) = (json!("v"), json!(1));
        assert_eq!(sent, expected);
        // The same body that is to be answered loses our own member alone.
        let envelope = read(&body, BRAND, Purpose::Generate).unwrap();
        let sent: Value = serde_json::from_slice(&envelope.cuts.upstream_body(&body, "a/b", None)).unwrap();
        assert_eq!(sent.as_object().unwrap().len(), 9 + 12);
    }
}

#[test]
fn a_null_is_replaced_and_never_joined_by_a_second_member() {
    let body = Bytes::from_static(
        br#"{"model":null,"models":["a/b"],"max_tokens": null,"messages":[{"role":"user","content":"x"}]}"#,
    );
    let envelope = read(&body, BRAND, Purpose::Generate).unwrap();
    assert_eq!(
        envelope.cuts.upstream_body(&body, "up", Some(64)),
        r#"{"max_tokens":64,"model":"up","messages":[{"role":"user","content":"x"}]}"#
    );
}

#[test]
fn a_null_is_absent_and_does_not_go_on_unless_a_stranger_wrote_it() {
    let names = [
        "system",
        "stream",
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "context_management",
        "cache_control",
        "service_tier",
        "speed",
        "metadata",
        "container",
        "mcp_servers",
        "inference_geo",
        "diagnostics",
        "output_format",
        "models",
        "preset",
    ];
    let rest = r#""messages":[{"role":"user","content":"x"}],"max_tokens":8,"stranger":null"#;
    let clean = format!(r#"{{"model":"up",{rest}}}"#);
    let wrapped = Wrapped { without_stream: true, added: "\"v\":1" };
    let parsed = |sent: &[u8]| serde_json::from_slice::<Value>(sent).unwrap();
    for name in names {
        for body in [
            format!(r#"{{"model":"a/b","{name}": null,{rest}}}"#),
            format!(r#"{{"{name}" :null, "model":"a/b",{rest}}}"#),
            format!(r#"{{"model":"a/b",{rest} , "{name}":null }}"#),
        ] {
            let body = Bytes::from(body);
            let cuts = read(&body, BRAND, Purpose::Generate).unwrap().cuts;
            let sent = cuts.upstream_body(&body, "up", Some(64));
            assert_eq!(parsed(&sent), parsed(clean.as_bytes()), "{name}");
            let sent = cuts.wrapped_body(&body, &wrapped, None);
            assert_eq!(parsed(&sent), parsed(format!(r#"{{"v":1,{rest}}}"#).as_bytes()), "{name}");
        }
    }
    let all: String = names.iter().map(|name| format!("\"{name}\":null,")).collect();
    let body = Bytes::from(format!(r#"{{{all}"model":"a/b",{rest}}}"#));
    let envelope = read(&body, BRAND, Purpose::Generate).unwrap();
    assert_eq!(envelope.cuts.upstream_body(&body, "up", Some(64)), clean);
}
