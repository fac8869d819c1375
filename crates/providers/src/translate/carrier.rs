//! Reasoning that only its issuer can read, carried across turns in the signature of a thinking block: the gateway keeps
//! nothing, and a signature never reaches anyone but the upstream that made it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Target;

const PREFIX: &str = "tgs1.";

/// What a signature of ours holds.
#[derive(Clone, Debug)]
pub struct Carrier {
    /// The protocol, account and model that it came from.
    pub protocol: String,
    pub scope: String,
    pub model: String,
    /// What kind of thing it is, and the thing, as JSON.
    pub kind: String,
    pub data: Box<RawValue>,
}

#[derive(Serialize)]
struct Written<'a> {
    v: u8,
    p: &'a str,
    s: &'a str,
    m: &'a str,
    k: &'a str,
    d: &'a RawValue,
}

#[derive(Deserialize)]
struct Read {
    v: u8,
    p: String,
    s: String,
    m: String,
    k: String,
    d: Box<RawValue>,
}

impl Carrier {
    /// Reasoning that is all in the text.
    pub fn plain(protocol: &str, scope: &str, model: &str) -> Self {
        Self::new(protocol, scope, model, "plain", "{}").expect("an empty object is JSON")
    }

    pub fn new(protocol: &str, scope: &str, model: &str, kind: &str, data: &str) -> serde_json::Result<Self> {
        Ok(Self {
            protocol: protocol.to_owned(),
            scope: scope.to_owned(),
            model: model.to_owned(),
            kind: kind.to_owned(),
            data: RawValue::from_string(data.to_owned())?,
        })
    }

    pub fn to_signature(&self) -> String {
        let written = Written { v: 1, p: &self.protocol, s: &self.scope, m: &self.model, k: &self.kind, d: &self.data };
        let text = serde_json::to_string(&written).expect("texts and raw JSON are always JSON");
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
    }

    /// `None` for what is no signature of ours.
    pub fn read(signature: &str) -> Option<Self> {
        let text = URL_SAFE_NO_PAD.decode(signature.strip_prefix(PREFIX)?).ok()?;
        let read: Read = serde_json::from_slice(&text).ok()?;
        (read.v == 1).then_some(Self { protocol: read.p, scope: read.s, model: read.m, kind: read.k, data: read.d })
    }

    /// Whether it may go back to this upstream, whichever of its models is asked.
    pub fn is_from(&self, protocol: &str, scope: &str) -> bool {
        self.protocol == protocol && self.scope == scope
    }

    /// Whether it may go back to this very target: the upstream, and a model of the family that made it.
    pub fn fits(&self, protocol: &str, target: &Target<'_>) -> bool {
        self.is_from(protocol, target.scope) && family(&self.model) == family(target.model)
    }
}

/// A name up to its first number: signatures hold within a generation of models.
fn family(model: &str) -> &str {
    let start = model.find(|letter: char| letter.is_ascii_digit()).unwrap_or(model.len());
    let length = model[start..].find(|letter: char| !letter.is_ascii_digit()).unwrap_or(model.len() - start);
    &model[..start + length]
}

/// Whether a signature was made here: no native upstream may ever see it.
pub fn is_ours(signature: &str) -> bool {
    signature.starts_with(PREFIX)
}

/// Whether a signature of ours holds reasoning that is read as text; others are signed.
pub fn is_thought(signature: &str) -> bool {
    Carrier::read(signature).is_some_and(|carrier| carrier.kind == "plain")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_is_read_back_and_equals_the_published_one() {
        let published = "tgs1.eyJ2IjoxLCJwIjoicmVzcG9uc2VzIiwicyI6ImVwLTdmMmMiLCJtIjoiZ3B0LTUuNi10ZXJyYSIsImsiOiJvcGVuYWlfaXRlbSIsImQiOnsiaWQiOiJyc185IiwiZW5jcnlwdGVkX2NvbnRlbnQiOiJnQUFBQiJ9fQ";
        let carrier = Carrier::read(published).unwrap();
        assert_eq!((carrier.protocol.as_str(), carrier.model.as_str()), ("responses", "gpt-5.6-terra"));
        assert_eq!(
            (carrier.kind.as_str(), carrier.data.get()),
            ("openai_item", r#"{"id":"rs_9","encrypted_content":"gAAAB"}"#)
        );
        assert!(carrier.is_from("responses", "ep-7f2c") && !carrier.is_from("responses", "ep-other"));
        assert_eq!(carrier.to_signature(), published);
        let plain =
            "tgs1.eyJ2IjoxLCJwIjoiY2hhdCIsInMiOiJlcC03ZjJjIiwibSI6ImRlZXBzZWVrLXY0LXBybyIsImsiOiJwbGFpbiIsImQiOnt9fQ";
        assert_eq!(Carrier::plain("chat", "ep-7f2c", "deepseek-v4-pro").to_signature(), plain);
    }

    #[test]
    fn a_family_is_a_generation_of_models() {
        assert_eq!(family("gpt-5"), family("gpt-5.6-terra"));
        assert_eq!(family("gemini-3.8-flash"), family("gemini-3-pro"));
        for (one, other) in [("gpt-5", "gpt-4.1"), ("o3", "o4-mini"), ("openai/gpt-5", "anthropic/claude-5")] {
            assert_ne!(family(one), family(other));
        }
    }

    #[test]
    fn p57_a_foreign_signature_is_none_of_ours() {
        for foreign in ["", "EqQBCgIYAhIM", "tgs1.", "tgs1.!!!", "tgs1.e30", "tgs2.eyJ2IjoxfQ"] {
            assert!(Carrier::read(foreign).is_none(), "{foreign}");
        }
    }
}
