use super::*;
use tidegate_core::Secret;
use tidegate_providers::Auth;
use tidegate_routing::plan::Strategy;
use tidegate_routing::set::Variants;
use tidegate_routing::{Credential as Own, Endpoint};

use crate::snapshot::Patience;

const MODEL: &str = "openai/gpt";
const VERSION: &str = "?api-version=2024-10-21";

/// Azure in one of its protocols.
fn azure(protocol: Protocol) -> Upstream {
    let (template, auth) = match protocol {
        Protocol::Messages => ("https://{resource}.services.ai.azure.com/anthropic", Auth::FoundryKey),
        _ => ("https://{resource}.openai.azure.com/openai/v1", Auth::AzureKey),
    };
    Upstream {
        slug: "azure".into(),
        display_name: "Azure".into(),
        protocol,
        origin: "https://nowhere.invalid".into(),
        shared: false,
        carriage: Carriage::Plain,
        template: Some(template.into()),
        models_uri: None,
        auth,
        credential: None,
        region: None,
        betas: Betas::None,
        supports_cancel: true,
        is_strict: false,
        patience: Patience::default(),
        error_rules: [].into(),
    }
}

/// Where a customer's credential, stored for these places, has a model called; `None` where it is not sent.
fn called(upstream: &Upstream, entry: &str, stored: &str) -> Option<(String, Option<String>)> {
    let credential = Credential::read(upstream.auth, &Secret::new(format!("[{entry}]")))?;
    let own = Own { destination: Some(stored.into()), ..Own::new("c", "azure") };
    let attempt = Attempt {
        endpoint: Arc::new(Endpoint::new(MODEL, "azure")),
        credential: Some(Arc::new(own)),
        model: 0,
        strategy: Strategy::Direct,
        variants: Variants::NONE,
    };
    let (calls, model) = calls(&credential, &attempt, upstream).ok()?;
    Some((calls?.whole.to_string(), model))
}

fn deployment(address: &str) -> String {
    format!(r#"{{"api_key":"k","model_slug":"{MODEL}","endpoint_url":"{address}","model_id":"dep"}}"#)
}

#[test]
fn a_deployment_is_called_at_the_address_that_its_owner_gives() {
    const HOST: &str = "https://my.openai.azure.com";
    let (chat, responses) = (azure(Protocol::Chat), azure(Protocol::Responses));
    for (upstream, given, expected) in [
        // All of the address, as Azure and others document it.
        (
            &chat,
            format!("/openai/deployments/d/chat/completions{VERSION}"),
            format!("/openai/deployments/d/chat/completions{VERSION}"),
        ),
        (&chat, format!("/openai/deployments/d{VERSION}"), format!("/openai/deployments/d/chat/completions{VERSION}")),
        (&chat, "/openai/v1/chat/completions".to_owned(), "/openai/v1/chat/completions".to_owned()),
        (&responses, "/openai/responses?api-version=p".to_owned(), "/openai/responses?api-version=p".to_owned()),
        // A base, in whatever the endpoint speaks.
        (&responses, "/openai/v1".to_owned(), "/openai/v1/responses".to_owned()),
        (&chat, "/openai/v1/".to_owned(), "/openai/v1/chat/completions".to_owned()),
        (&responses, format!("/openai/v1{VERSION}"), format!("/openai/v1/responses{VERSION}")),
    ] {
        let found = called(upstream, &deployment(&format!("{HOST}{given}")), HOST);
        assert_eq!(found, Some((format!("{HOST}{expected}"), Some("dep".to_owned()))), "{given}");
    }
}

#[test]
fn a_deployment_is_called_in_no_other_protocol_and_at_no_other_place_than_it_is_stored_for() {
    const HOST: &str = "https://my.openai.azure.com";
    let (chat, responses) = (azure(Protocol::Chat), azure(Protocol::Responses));
    let classic = deployment(&format!("{HOST}/openai/deployments/d/chat/completions{VERSION}"));
    assert_eq!(called(&responses, &classic, HOST), None);
    assert_eq!(called(&chat, &deployment(&format!("{HOST}/openai/responses")), HOST), None);
    for stored in ["https://other.openai.azure.com", "", "openai/gpt=openai-chat", "https://my.openai.azure.com.evil"] {
        assert_eq!(called(&chat, &classic, stored), None, "{stored}");
    }
    // Earlier releases stored the host as it was written.
    let written = deployment("https://My.openai.azure.com/openai/v1");
    assert!(called(&chat, &written, "https://My.openai.azure.com").is_some());
    // What else it is stored for is in nobody's way.
    let stored = format!("https://other.openai.azure.com {HOST} openai/gpt=openai-chat");
    assert!(called(&chat, &classic, &stored).is_some());
}

#[test]
fn a_resource_of_foundry_serves_all_models_and_one_of_azure_openai_none_of_anthropics() {
    const FOUNDRY: &str = r#"{"api_key":"f","resource_name":"my","resource_type":"ai_foundry"}"#;
    const OPENAI: &str = r#"{"api_key":"o","resource_name":"my","resource_type":"openai"}"#;
    let (at_foundry, at_openai) = ("https://my.services.ai.azure.com", "https://my.openai.azure.com");
    let both = format!("{at_foundry} {at_openai}");
    for (list, protocol, expected) in [
        (FOUNDRY.to_owned(), Protocol::Responses, Some(format!("{at_foundry}/openai/v1/responses"))),
        (FOUNDRY.to_owned(), Protocol::Chat, Some(format!("{at_foundry}/openai/v1/chat/completions"))),
        (FOUNDRY.to_owned(), Protocol::Messages, Some(format!("{at_foundry}/anthropic/v1/messages"))),
        (OPENAI.to_owned(), Protocol::Chat, Some(format!("{at_openai}/openai/v1/chat/completions"))),
        (OPENAI.to_owned(), Protocol::Messages, None),
        // The kind that is asked for goes first, in whatever order they stand.
        (format!("{FOUNDRY},{OPENAI}"), Protocol::Responses, Some(format!("{at_openai}/openai/v1/responses"))),
        (format!("{OPENAI},{FOUNDRY}"), Protocol::Messages, Some(format!("{at_foundry}/anthropic/v1/messages"))),
        // A deployment goes before both.
        (
            format!("{FOUNDRY},{}", deployment(&format!("{at_foundry}/anthropic/v1/messages"))),
            Protocol::Messages,
            Some(format!("{at_foundry}/anthropic/v1/messages")),
        ),
    ] {
        let found = called(&azure(protocol), &list, &both).map(|(address, _)| address);
        assert_eq!(found, expected, "{list} {protocol:?}");
    }
    let key = |list: &str, auth| {
        let mut headers = HeaderMap::new();
        Credential::read(auth, &Secret::new(format!("[{list}]"))).unwrap().put(&mut headers, auth, MODEL);
        headers.get("api-key").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(key(FOUNDRY, Auth::AzureKey).as_deref(), Some("f"));
    assert_eq!(key(&format!("{FOUNDRY},{OPENAI}"), Auth::AzureKey).as_deref(), Some("o"));
    assert_eq!(key(OPENAI, Auth::FoundryKey), None);
}
