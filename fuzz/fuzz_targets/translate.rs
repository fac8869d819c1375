//! Any request, at any provider: translating it never panics; what goes upstream is JSON, and a refusal says why.
//! `seeds/translate` holds one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use tidegate_providers::translate::{Card, Target};
use tidegate_providers::{Protocol, adapter, dialect, estimate};
use tidegate_wire::messages::Request;

const PLACES: [(&str, Protocol); 9] = [
    ("", Protocol::Chat),
    ("openai", Protocol::Chat),
    ("mistral", Protocol::Chat),
    ("alibaba", Protocol::Chat),
    ("deepseek", Protocol::Chat),
    ("openai", Protocol::Responses),
    ("google-ai-studio", Protocol::Gemini),
    ("amazon-bedrock", Protocol::Converse),
    ("cohere", Protocol::Cohere),
];

fuzz_target!(|data: &[u8]| {
    let Ok(request) = Request::parse(data) else { return };
    for (slug, protocol) in PLACES {
        let known = dialect::card_for(slug, protocol);
        let card = Card { max_output_tokens: 4_096, pdf: true, ..known };
        let target = Target {
            card: &card,
            model: "m",
            scope: "s",
            cache_key: Some("k"),
            user: Some("u"),
            stream: true,
            is_capped: false,
            tells_searches: true,
            tier: None,
            betas: &[],
            kept: &[],
            unsigned: false,
        };
        match adapter::request(protocol, &request, &target) {
            Ok(made) => assert!(serde_json::from_slice::<IgnoredAny>(&made.body).is_ok()),
            Err(refused) => assert!(!refused.path.is_empty() && !refused.reason.is_empty()),
        }
        let _ = estimate::rough(&request, &card);
    }
});
