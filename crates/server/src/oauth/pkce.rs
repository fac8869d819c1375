//! Proof keys (RFC 7636): a challenge when a code is made, a verifier when it is exchanged.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use tidegate_core::KeyHash;
use tidegate_store::auth_codes::{Challenge, Method};

use crate::config::Oauth;

/// Clients add padding, and it does no harm.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);
const LONGEST_CHALLENGE: usize = 512;
const LONGEST_PLAIN: usize = 128;
const SHORTEST_STRICT: usize = 43;

/// The challenge as it is stored, or the member that is wrong and why. Without a method it is `plain`, as the standard
/// says.
pub fn challenge(
    value: Option<&str>,
    method: Option<Method>,
    rules: &Oauth,
) -> Result<Option<Challenge>, (&'static str, &'static str)> {
    let refuse = |reason| Err(("code_challenge", reason));
    let Some(value) = value else {
        return match method {
            Some(_) => Err(("code_challenge_method", "needs a code_challenge")),
            None => Ok(None),
        };
    };
    let length = value.chars().count();
    if length == 0 {
        return refuse("must have at least 1 character");
    }
    if length > LONGEST_CHALLENGE {
        return refuse("must have at most 512 characters");
    }
    let method = method.unwrap_or(Method::Plain);
    let value = match method {
        Method::S256 => {
            let hash = LENIENT.decode(value.replace('+', "-").replace('/', "_")).ok().filter(|hash| hash.len() == 32);
            let Some(hash) = hash else { return refuse("must be 32 bytes in base64url, 43 characters, for S256") };
            URL_SAFE_NO_PAD.encode(hash)
        }
        Method::Plain if !rules.allow_plain => {
            return Err(("code_challenge_method", "must be S256: plain is not accepted here"));
        }
        Method::Plain if length > LONGEST_PLAIN => return refuse("must have at most 128 characters for plain"),
        Method::Plain if rules.strict_pkce && length < SHORTEST_STRICT => {
            return refuse("must have at least 43 characters for plain");
        }
        Method::Plain if value.contains('\0') => return refuse("must not contain NUL"),
        Method::Plain => value.to_owned(),
    };
    Ok(Some(Challenge { method, value }))
}

/// Whether the verifier belongs to the challenge. Both sides are hashed first, so that the comparison takes the same
/// time whatever they hold and however long they are.
pub fn matches(challenge: &Challenge, verifier: &str) -> bool {
    let hash = KeyHash::of(verifier.as_bytes());
    let made = match challenge.method {
        Method::S256 => URL_SAFE_NO_PAD.encode(hash.0),
        Method::Plain => verifier.to_owned(),
    };
    KeyHash::of(made.as_bytes()).is(&KeyHash::of(challenge.value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    // The pair of RFC 7636, appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn rules() -> Oauth {
        Oauth {
            code_ttl: Duration::from_secs(600),
            max_pending_codes: 1000,
            allow_plain: true,
            strict_pkce: false,
            replay_disables: true,
        }
    }

    #[test]
    fn cod_3_the_standards_own_pair_matches() {
        let challenge = challenge(Some(CHALLENGE), Some(Method::S256), &rules()).unwrap().unwrap();
        assert!(matches(&challenge, VERIFIER));
        assert!(!matches(&challenge, CHALLENGE) && !matches(&challenge, "") && !matches(&challenge, &VERIFIER[1..]));
    }

    #[test]
    fn cod_3_spellings_of_base64_are_normalised() {
        let standard = CHALLENGE.replace('-', "+").replace('_', "/");
        for spelling in [CHALLENGE.to_owned(), format!("{CHALLENGE}="), standard.clone(), format!("{standard}=")] {
            let stored = challenge(Some(&spelling), Some(Method::S256), &rules()).unwrap().unwrap();
            assert_eq!(stored.value, CHALLENGE, "{spelling}");
        }
    }

    #[test]
    fn cod_3_what_is_no_challenge_is_refused_with_its_member() {
        let (long, plain_129) = ("a".repeat(513), "a".repeat(129));
        let s256 = Some(Method::S256);
        let cases: [(Option<&str>, Option<Method>, &str); 9] = [
            (Some(""), None, "code_challenge"),
            (Some(&long), None, "code_challenge"),
            (Some(&plain_129), None, "code_challenge"),
            (Some(&CHALLENGE[..42]), s256, "code_challenge"),
            (Some(&plain_129), s256, "code_challenge"),
            (Some("not base64 at all, not base64 at all, 43 c."), s256, "code_challenge"),
            (Some("short"), s256, "code_challenge"),
            (None, s256, "code_challenge_method"),
            (None, Some(Method::Plain), "code_challenge_method"),
        ];
        for (value, method, member) in cases {
            assert_eq!(challenge(value, method, &rules()).unwrap_err().0, member, "{value:?} {method:?}");
        }
        let plain_128 = "a".repeat(128);
        for value in ["a", &plain_128] {
            let stored = challenge(Some(value), None, &rules()).unwrap().unwrap();
            assert_eq!((stored.method, stored.value.as_str()), (Method::Plain, value));
            assert!(matches(&stored, value) && !matches(&stored, "b"));
        }
        assert_eq!(challenge(None, None, &rules()), Ok(None));
    }

    #[test]
    fn cod_3_plain_can_be_made_strict_or_refused() {
        let strict = Oauth { strict_pkce: true, ..rules() };
        assert!(challenge(Some(&"a".repeat(42)), None, &strict).is_err());
        assert!(challenge(Some(&"a".repeat(43)), None, &strict).is_ok());
        let none = Oauth { allow_plain: false, ..rules() };
        assert_eq!(challenge(Some(VERIFIER), None, &none).unwrap_err().0, "code_challenge_method");
        assert!(challenge(Some(CHALLENGE), Some(Method::S256), &none).is_ok());
    }
}
