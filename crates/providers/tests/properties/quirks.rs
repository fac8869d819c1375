//! What clients send that means something else than it seems to, on every protocol.

use serde_json::{Value, json};
use tidegate_providers::dialect::card_for;
use tidegate_providers::translate::card::Prefill;
use tidegate_wire::messages::Request;

use crate::PROTOCOLS;
use crate::asked::translated;
use crate::sent::sent;

#[test]
fn a_question_that_says_nothing_is_not_left_out_behind_an_answer() {
    for said in [json!(""), json!(" \n"), json!([]), json!([{"type": "text", "text": " "}])] {
        let messages = json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": said},
        ]);
        let body = json!({"model": "v/m", "max_tokens": 9, "messages": messages});
        let request = Request::parse(body.to_string().as_bytes()).unwrap();
        for protocol in PROTOCOLS {
            for prefill in [Prefill::None, Prefill::Native] {
                let mut card = card_for("in-house", protocol);
                card.prefill = prefill;
                let made = translated(protocol, &request, &card).unwrap();
                let body: Value = serde_json::from_slice(&made.body).unwrap();
                // Without it the model would be asked to go on with what it said.
                assert_eq!(sent(protocol, &body).texts, ["hi", "hello", "."], "{protocol:?}");
                assert!(made.warnings.contains(&"changed:messages".to_owned()), "{protocol:?} {:?}", made.warnings);
            }
        }
    }
}

#[test]
fn a_choice_among_none_is_no_limit() {
    for protocol in PROTOCOLS {
        for knows in [true, false] {
            let mut card = card_for("in-house", protocol);
            card.top_k = knows;
            let of = |top_k: u64| {
                let messages = json!([{"role": "user", "content": "hi"}]);
                let body = json!({"model": "v/m", "max_tokens": 9, "top_k": top_k, "messages": messages});
                let made = translated(protocol, &Request::parse(body.to_string().as_bytes()).unwrap(), &card).unwrap();
                (String::from_utf8(made.body.to_vec()).unwrap(), made.warnings)
            };
            let (sent, warnings) = of(0);
            let names = ["\"topK\"", "\"top_k\"", "\"k\""];
            assert!(names.iter().all(|name| !sent.contains(name)), "{protocol:?}: {sent}");
            assert!(warnings.iter().all(|warning| !warning.contains("top_k")), "{protocol:?}: {warnings:?}");
            // One is sent or told of.
            let (sent, warnings) = of(3);
            let is_told = warnings.iter().any(|warning| warning == "dropped:top_k");
            assert!(is_told != names.iter().any(|name| sent.contains(name)), "{protocol:?}: {sent} {warnings:?}");
        }
    }
}
