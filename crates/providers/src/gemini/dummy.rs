//! The signature that stands for none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

/// What the upstream takes for the signature of a call that it has not made itself.
pub(super) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// A body with that signature encoded once more: some servers are said to take it only so. Nothing that anybody said looks
/// like it, because quotes inside of texts are escaped.
pub fn with_encoded_dummy(body: &[u8]) -> Bytes {
    let member = |signature: &str| format!(r#""thoughtSignature":"{signature}""#);
    let (plain, encoded) = (member(NO_SIGNATURE), member(&STANDARD.encode(NO_SIGNATURE)));
    String::from_utf8_lossy(body).replace(&plain, &encoded).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p61_the_signature_that_stands_for_none_has_another_form() {
        let body = br#"{"text":"\"thoughtSignature\":\"skip_thought_signature_validator\"","a":{"thoughtSignature":"skip_thought_signature_validator"},"b":{"thoughtSignature":"CiQB"}}"#;
        let wanted = br#"{"text":"\"thoughtSignature\":\"skip_thought_signature_validator\"","a":{"thoughtSignature":"c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="},"b":{"thoughtSignature":"CiQB"}}"#;
        assert_eq!(with_encoded_dummy(body), &wanted[..]);
    }
}
