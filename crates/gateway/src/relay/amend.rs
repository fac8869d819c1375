//! What the name of a model asks for and the body must say.

use bytes::{BufMut as _, Bytes, BytesMut};
use tidegate_routing::Variant;
use tidegate_wire::envelope::Envelope;

const THINKING: &[u8] = br#""thinking":{"type":"adaptive"},"#;

/// The body with what the name of its first model asks for; `None` when it says everything itself.
pub(super) fn amended(body: &Bytes, envelope: &Envelope<'_>) -> Option<Bytes> {
    let name = envelope.model.as_deref()?;
    let thinks = name.split(':').skip(1).any(|suffix| suffix == Variant::Thinking.as_str());
    if !thinks || envelope.traits.thinking {
        return None;
    }
    // An object that names its model has a member for the comma.
    let inside = body.iter().position(|byte| *byte == b'{')? + 1;
    let mut amended = BytesMut::with_capacity(body.len() + THINKING.len());
    amended.put_slice(&body[..inside]);
    amended.put_slice(THINKING);
    amended.put_slice(&body[inside..]);
    Some(amended.freeze())
}

#[cfg(test)]
mod tests {
    use tidegate_wire::envelope::{self, Brand, Purpose};

    use super::*;

    #[test]
    fn a_name_that_asks_for_thinking_is_obeyed_once() {
        let table = [
            (r#" {"model":"a/m:thinking","messages":[{"role":"user","content":"x"}]}"#, true),
            (r#"{"model":"a/m:free:thinking","messages":[{"role":"user","content":"x"}]}"#, true),
            (r#"{"model":"a/m","messages":[{"role":"user","content":":thinking"}]}"#, false),
            (
                r#"{"thinking":{"type":"disabled"},"model":"a/m:thinking","messages":[{"role":"user","content":"x"}]}"#,
                false,
            ),
        ];
        for (body, wanted) in table {
            let body = Bytes::from_static(body.as_bytes());
            let brand = Brand { name: "tidegate", aliases: &[] };
            let envelope = envelope::read(&body, brand, Purpose::Generate).unwrap();
            let made = amended(&body, &envelope);
            assert_eq!(made.is_some(), wanted, "{body:?}");
            if let Some(made) = made {
                let said: serde_json::Value = serde_json::from_slice(&made).unwrap();
                assert_eq!(said["thinking"], serde_json::json!({"type": "adaptive"}));
                let again = envelope::read(&made, brand, Purpose::Generate).unwrap();
                assert!(amended(&made, &again).is_none());
            }
        }
    }
}
