//! Short texts from outside: amounts of money, ids, keys.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::{GenerationId, KeyHash, Money, key};

fuzz_target!(|text: &str| {
    if let Ok(amount) = Money::parse(text) {
        assert_eq!(Money::parse(&amount.to_string()), Ok(amount));
    }
    if let Some(id) = GenerationId::parse(text) {
        assert_eq!(id.as_str(), text);
    }
    if let Some(hash) = KeyHash::parse(text) {
        assert_eq!(hash.to_hex(), text);
    }
    let _ = key::is_malformed(text.as_bytes(), &["sk-tg-v1-"]);
    assert!(key::label(text, "sk-tg-v1-").len() <= "sk-tg-v1-".len() + 10);
});
