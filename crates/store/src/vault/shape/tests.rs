use serde_json::{Value, json};

use super::*;

fn label(provider: &str, secret: &str) -> Result<String, &'static str> {
    describe(provider, &Secret::new(secret)).map(|described| described.label)
}

/// The reason of a refusal, which must hold no part of the secret.
fn refusal(provider: &str, secret: &str) -> &'static str {
    let reason = label(provider, secret).unwrap_err();
    assert!(!reason.is_empty() && !reason.contains("MARK") && !reason.contains('\n'), "{reason}");
    reason
}

/// The object with one member set or, with null, taken away.
fn with(object: &Value, member: &str, value: Value) -> Value {
    let mut object = object.clone();
    match value {
        Value::Null => drop(object.as_object_mut().unwrap().remove(member)),
        value => object[member] = value,
    }
    object
}

fn account() -> Value {
    json!({
        "type": "service_account",
        "project_id": "my-project-1",
        "private_key_id": "0123456789abcdef0123456789abcdef01234567",
        "private_key": "-----BEGIN PRIVATE KEY-----\nMARK\n-----END PRIVATE KEY-----\n",
        "client_email": "gate@my-project-1.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    })
}

#[test]
fn sec_7_a_label_shows_seven_characters_of_sixteen_or_more() {
    assert_eq!(label("openai", "sk-proj-0123456789AbCd").unwrap(), "sk-...AbCd");
    assert_eq!(label("anthropic", "0123456789abcdef").unwrap(), "012...cdef");
    assert_eq!(label("in-house", "0123456789abcde").unwrap(), "***");
    assert_eq!(label("amazon-bedrock", "ABSKQmVkcm9ja0FQSUtleQ").unwrap(), "ABS...tleQ");
    assert_eq!(label("openai", "x").unwrap(), "***");
    // Characters, not bytes.
    assert_eq!(mask("äöü0123456789ß€😀é"), "äöü...ß€😀é");
    assert_eq!(mask(&"€".repeat(15)), "***");
}

#[test]
fn a_key_that_no_header_can_carry_is_refused() {
    for secret in ["", " ", "sk-1 2", "sk-1\n", "\tsk-1", "sk-\r\nx-evil: 1", "sk-\u{7f}", "sk-é", "sk-\0", "“sk-1”"]
    {
        refusal("openai", secret);
        refusal("amazon-bedrock", secret);
    }
    assert!(describe("openai", &Secret::new([0xFF, 0xFE])).is_err());
    // Elsewhere than at Bedrock a brace is a character like any other.
    assert_eq!(label("openai", "{not-json").unwrap(), "***");
}

#[test]
fn a_bedrock_object_holds_its_three_strings() {
    let keys = json!({"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": "a/MARK+", "region": "us-east-1"});
    assert_eq!(label("amazon-bedrock", &keys.to_string()).unwrap(), "AKI...MPLE");
    assert_eq!(label("amazon-bedrock", &with(&keys, "sessionToken", json!("t=")).to_string()).unwrap(), "AKI...MPLE");
    assert_eq!(label("amazon-bedrock", &with(&keys, "accessKeyId", json!("AKIA")).to_string()).unwrap(), "***");
    // Some writers escape what need not be.
    let escaped = keys.to_string().replace("a/", r"a\/").replace("AKIA", r"\u0041KIA");
    assert_eq!(label("amazon-bedrock", &escaped).unwrap(), "AKI...MPLE");

    for member in ["accessKeyId", "secretAccessKey", "region"] {
        for wrong in [Value::Null, json!(""), json!("a b"), json!("a\nMARK")] {
            let reason = refusal("amazon-bedrock", &with(&keys, member, wrong).to_string());
            assert!(reason.starts_with(member), "{reason}");
        }
        refusal("amazon-bedrock", &with(&keys, member, json!(5)).to_string());
    }
    assert!(refusal("amazon-bedrock", &with(&keys, "sessionToken", json!("")).to_string()).starts_with("sessionToken"));
    for region in ["evil.example/", "us-east-1.evil", "-", "a@b", &"a".repeat(64)] {
        assert!(refusal("amazon-bedrock", &with(&keys, "region", json!(region)).to_string()).starts_with("region"));
    }
    for broken in ["{", "{}", "{MARK}", r#"{"accessKeyId":"a","accessKeyId":"MARK"}"#] {
        refusal("amazon-bedrock", broken);
    }
}

#[test]
fn a_vertex_secret_is_a_service_account() {
    let account = account();
    assert_eq!(label("google-vertex", &account.to_string()).unwrap(), "my-project-1...4567");
    assert_eq!(
        label("google-vertex", &serde_json::to_string_pretty(&account).unwrap()).unwrap(),
        "my-project-1...4567"
    );
    let short = with(&account, "private_key_id", json!("0123456789abcde"));
    assert_eq!(label("google-vertex", &short.to_string()).unwrap(), "my-project-1...***");
    let full = with(&with(&account, "region", json!("europe-west4")), "bucket", json!("b"));
    assert!(label("google-vertex", &full.to_string()).is_ok());
    let domain = with(&account, "project_id", json!("example.com:old"));
    assert_eq!(label("google-vertex", &domain.to_string()).unwrap(), "example.com:old...4567");

    for member in ["type", "project_id", "private_key_id", "private_key", "client_email"] {
        for wrong in [Value::Null, json!("")] {
            let reason = refusal("google-vertex", &with(&account, member, wrong).to_string());
            assert!(reason.starts_with(member), "{reason}");
        }
        refusal("google-vertex", &with(&account, member, json!(["MARK"])).to_string());
    }
    refusal("google-vertex", &with(&account, "type", json!("authorized_user")).to_string());
    for project in ["../MARK", "a/b", "a b", ".", "a\n", &"a".repeat(101)] {
        assert!(
            refusal("google-vertex", &with(&account, "project_id", json!(project)).to_string()).starts_with("project")
        );
    }
    for region in ["", "evil.example/", "a b"] {
        assert!(refusal("google-vertex", &with(&account, "region", json!(region)).to_string()).starts_with("region"));
    }
    let list = json!(["service_account", "my-project-1", "0123", "MARK", "a@b", "global"]).to_string();
    for broken in ["", "AIzaSyMARK", "{", "{}", "[]", "null", list.as_str()] {
        refusal("google-vertex", broken);
    }
}

#[test]
fn an_azure_secret_lists_resources_and_deployments() {
    let resource = json!({"api_key": "0123456789abcdefMARK", "resource_name": "my-resource"});
    let deployment = json!({
        "model_slug": "openai/gpt-5", "endpoint_url": "https://my.openai.azure.com/openai/deployments/x?api-version=1",
        "api_key": "fedcba9876543210", "model_id": "gpt-5",
    });
    let labelled = |entries: Value| label("azure", &entries.to_string());
    assert_eq!(labelled(json!([resource])).unwrap(), "012...MARK");
    assert_eq!(labelled(json!([deployment, resource])).unwrap(), "fed...3210 (+1)");
    assert_eq!(
        labelled(json!([with(&resource, "api_key", json!("short")), resource, deployment])).unwrap(),
        "*** (+2)"
    );
    for kind in ["ai_foundry", "openai"] {
        assert!(labelled(json!([with(&resource, "resource_type", json!(kind))])).is_ok());
    }

    let mut wrong = vec![
        json!([]),
        json!({}),
        json!(resource),
        json!("MARK"),
        json!([null]),
        json!(["MARK"]),
        json!([["0123456789abcdefMARK", "my-resource"]]),
        json!([resource, {}]),
        json!([{"api_key": "MARK"}]),
        json!([with(&resource, "resource_type", json!("other"))]),
        json!([with(&resource, "endpoint_url", json!("https://a.example"))]),
        json!([with(&deployment, "resource_name", json!("my-resource"))]),
    ];
    for (entry, members) in [
        (&resource, &["api_key", "resource_name"][..]),
        (&deployment, &["api_key", "model_slug", "endpoint_url", "model_id"]),
    ] {
        for member in members {
            wrong.extend(
                [Value::Null, json!(""), json!(1), json!("a b")].map(|value| json!([with(entry, member, value)])),
            );
        }
    }
    for name in ["evil.example/", "a.b", "a@b"] {
        wrong.push(json!([with(&resource, "resource_name", json!(name))]));
    }
    for url in [
        "http://a.example",
        "a.example",
        "https://",
        "https://u:MARK@a.example",
        "https://a.ex\nample",
        "ftp://a",
        "https://a.example/v1",
        "https://169.254.169.254:8443/x",
        "https://x.azure.com.evil.example",
        "https://x.openai.azure.com:8443",
    ] {
        wrong.push(json!([with(&deployment, "endpoint_url", json!(url))]));
    }
    for secret in wrong {
        refusal("azure", &secret.to_string());
    }
    for broken in ["", "[", "0123456789abcdefMARK"] {
        refusal("azure", broken);
    }
}
