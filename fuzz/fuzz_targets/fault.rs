//! Any error answer: it gets a class, and its words never carry what looks like a key.
#![no_main]

use http::{HeaderMap, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use tidegate_core::Timestamp;
use tidegate_providers::fault::classify;

fuzz_target!(|input: (u16, Vec<u8>, Vec<u8>)| {
    let (status, hint, body) = input;
    let Ok(status) = StatusCode::from_u16(100 + status % 900) else { return };
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(&hint) {
        headers.insert("retry-after", value.clone());
        headers.insert("retry-after-ms", value);
    }
    let fault = classify(status, &headers, &body, Timestamp(0));
    let _ = fault.class.next();
    assert!(fault.message.is_none_or(|message| !message.split(' ').any(|word| word.starts_with("sk-") && word.len() > 16)));
});
