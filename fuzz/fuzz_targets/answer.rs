//! Any answer of an upstream, whole or as an event: completing it never panics and gives valid JSON with our members.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use tidegate_wire::answer::{Additions, Charge, Counts, Event, Message};
use tidegate_wire::messages;

const CHARGE: Charge<'static> = Charge { cost_json: "0.1", details_json: "null", is_byok: false };

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

fuzz_target!(|data: &[u8]| {
    let additions = Additions { model: "a/b", provider: "P", charge: Some(CHARGE), routing_json: Some(("x_metadata", "{}")) };
    if let Ok(message) = Message::read(data) {
        let _ = (message.is_message(), message.is_empty(), message.id(), message.stop_reason(), message.counts());
        assert!(is_json(&message.completed(&additions)));
    }
    if let Ok(event) = Event::read(data) {
        if let Ok(start) = event.start_completed(&additions) {
            assert!(is_json(&start));
        }
        assert!(is_json(&event.delta_completed(&Counts::default(), Some(&CHARGE), Some("end_turn"))));
        assert!(is_json(&event.stop_completed(("x_metadata", "{}"))));
    }
    let _ = messages::Request::parse(data);
    let _ = messages::Response::parse(data);
});
