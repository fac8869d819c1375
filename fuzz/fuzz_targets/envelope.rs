//! Any body: reading it never panics; what is accepted is JSON, and what goes upstream is JSON without our members.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tidegate_wire::envelope::{Brand, Purpose, images, read};

const OWN: [&str; 4] = ["session_id", "trace", "provider", "models"];

fuzz_target!(|data: &[u8]| {
    let _ = images::read(data, images::Form::Ours);
    let brand = Brand { name: "tidegate", aliases: &[] };
    let Ok(envelope) = read(data, brand, Purpose::Generate) else { return };
    let body = Bytes::copy_from_slice(data);
    let sent = envelope.cuts.upstream_body(&body, "up\"stream", Some(7));
    // Numbers such as 1e999 are valid JSON that `Value` cannot hold; everything else must agree.
    let (Ok(before), Ok(after)) = (serde_json::from_slice::<Value>(data), serde_json::from_slice::<Value>(&sent)) else {
        assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&sent).is_ok());
        return;
    };
    assert_eq!(after["model"], "up\"stream");
    for (name, value) in after.as_object().expect("an object stays one") {
        assert!(!OWN.contains(&name.as_str()));
        assert!(name == "model" || name == "max_tokens" || before[name] == *value);
    }
});
