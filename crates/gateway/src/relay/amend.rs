//! What the name of a model asks for and the body must say, and what stands for a name.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use tidegate_core::Tenant;
use tidegate_routing::Variant;
use tidegate_wire::envelope::Envelope;

use crate::Gateway;
use crate::failure::Failure;
use crate::keys::KeyEntry;

/// Stands for the model that a workspace has chosen.
const DEFAULT: &str = "default";
/// A changed choice is followed within this time.
const KNOWN_FOR: Duration = Duration::from_secs(2);
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

impl Gateway {
    /// The model that `default` stands for, where a request says it.
    pub(crate) async fn default_model(&self, key: &KeyEntry, names: &[&str]) -> Result<Option<Arc<str>>, Failure> {
        if !names.iter().any(|name| name.trim() == DEFAULT) {
            return Ok(None);
        }
        let now = self.clock.now();
        let known = self.defaults.get(&key.workspace).filter(|(_, until)| *until > now);
        let model = match known {
            Some((model, _)) => model,
            None => {
                let tenant = Tenant { organisation: key.organisation.clone() };
                let found = self.keys.store().find_workspace(&tenant, &key.workspace).await.map_err(|error| {
                    tracing::error!(%error, "a workspace could not be looked up");
                    Failure::unavailable()
                })?;
                let model: Option<Arc<str>> =
                    found.and_then(|workspace| workspace.default_text_model).map(|model| model.as_str().into());
                self.defaults.insert(key.workspace.clone(), (model.clone(), now.plus(KNOWN_FOR)));
                model
            }
        };
        let unset = || Failure::invalid("Invalid request: model 'default' needs a default_text_model in the workspace");
        model.map(Some).ok_or_else(unset)
    }
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
