//! What an ID token must be before it is believed (OpenID Connect Core, 3.1.3.7).

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use tidegate_core::Timestamp;
use tidegate_store::members::Identity;

use crate::config::Oidc;
use crate::people;

/// Signatures with a key that only the issuer has. Those with a shared secret are none of them: whoever could read the
/// issuer's public keys could make such a token.
const SIGNATURES: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
const GOOGLE: &str = "https://accounts.google.com";
/// Clocks differ.
const LEEWAY_MS: i64 = 60_000;

pub struct Expected<'a> {
    pub settings: &'a Oidc,
    pub nonce: &'a str,
    pub now: Timestamp,
}

/// For whom a token was made: one client, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    All(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

/// What is said of a person.
#[derive(Debug, Deserialize)]
pub struct Claims {
    pub sub: String,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(default)]
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    #[serde(default)]
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    pub email: Option<String>,
    #[serde(default)]
    email_verified: Option<serde_json::Value>,
    /// The company that an account of Google's belongs to.
    #[serde(default)]
    hd: Option<String>,
    #[serde(default)]
    given_name: Option<String>,
    #[serde(default)]
    family_name: Option<String>,
}

/// Which of the issuer's keys signed it, if it says so.
pub fn key_id(token: &str) -> Option<String> {
    jsonwebtoken::decode_header(token).ok().and_then(|header| header.kid)
}

/// The claims of a token that is right, or why it is not; reasons hold nothing of the token.
pub fn read(token: &str, keys: &[Jwk], expected: &Expected<'_>) -> Result<Claims, &'static str> {
    let header = jsonwebtoken::decode_header(token).map_err(|_| "it is no signed token")?;
    if !SIGNATURES.contains(&header.alg) {
        return Err("it is signed in a way that is not accepted");
    }
    // What must be understood is nothing that we know of (RFC 7515, 4.1.11).
    if header.crit.is_some() {
        return Err("its header says that more of it must be understood than is");
    }
    let mut validation = Validation::new(header.alg);
    validation.set_issuer(&[&expected.settings.issuer]);
    validation.set_audience(&[&expected.settings.client_id]);
    validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    // By our own clock, below.
    validation.validate_exp = false;
    let candidates = keys.iter().filter(|key| header.kid.is_none() || key.common.key_id == header.kid);
    let mut problem = "none of the issuer's keys signed it";
    for key in candidates {
        let Ok(key) = DecodingKey::from_jwk(key) else { continue };
        match jsonwebtoken::decode::<Claims>(token, &key, &validation) {
            Ok(token) => return checked(token.claims, expected),
            Err(error) => problem = reason(error.kind(), problem),
        }
    }
    Err(problem)
}

fn reason(kind: &jsonwebtoken::errors::ErrorKind, otherwise: &'static str) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match kind {
        ErrorKind::InvalidIssuer => "it is another issuer's",
        ErrorKind::InvalidAudience => "it was made for another client",
        ErrorKind::MissingRequiredClaim(_) => "a claim is missing that every token has",
        ErrorKind::Json(_) => "its claims cannot be read",
        _ => otherwise,
    }
}

fn checked(claims: Claims, expected: &Expected<'_>) -> Result<Claims, &'static str> {
    let now = expected.now.0;
    if in_millis(claims.exp).saturating_add(LEEWAY_MS) <= now {
        return Err("it is over; compare the clocks of the two machines");
    }
    if claims.nbf.is_some_and(|from| in_millis(from).saturating_sub(LEEWAY_MS) > now) {
        return Err("it is not good yet; compare the clocks of the two machines");
    }
    if claims.azp.as_deref().is_some_and(|party| party != expected.settings.client_id) {
        return Err("it was handed to another client");
    }
    let others = match &claims.aud {
        Audience::One(client) => *client != expected.settings.client_id,
        Audience::All(all) => all.iter().any(|client| *client != expected.settings.client_id),
    };
    if others && claims.azp.is_none() {
        return Err("it was made for other clients as well, and does not say which of them asked for it");
    }
    if claims.nonce.as_deref() != Some(expected.nonce) {
        return Err("it was made for another sign-in");
    }
    if claims.sub.is_empty() {
        return Err("it names nobody");
    }
    Ok(claims)
}

#[expect(clippy::cast_possible_truncation, reason = "a number of seconds that is too large is the largest there is")]
fn in_millis(seconds: f64) -> i64 {
    (seconds * 1000.0) as i64
}

impl Claims {
    /// With what the token left out.
    pub fn complete(&mut self, more: Self) {
        self.email = more.email;
        self.email_verified = more.email_verified;
        self.given_name = self.given_name.take().or(more.given_name);
        self.family_name = self.family_name.take().or(more.family_name);
    }

    /// An address counts when the issuer says that it is the person's, or the operator does.
    pub fn identity(self, settings: &Oidc) -> Identity {
        let is_verified = match &self.email_verified {
            Some(serde_json::Value::Bool(is_verified)) => *is_verified,
            Some(serde_json::Value::String(text)) => text == "true",
            None | Some(serde_json::Value::Null) => settings.trust_email,
            Some(_) => false,
        };
        // Whoever once had an address of a company can keep a private account under it there.
        let is_current = |email: &str| {
            let domain = email.rsplit_once('@').map(|(_, domain)| domain.to_ascii_lowercase());
            settings.issuer != GOOGLE
                || domain.as_deref() == Some("gmail.com")
                || (domain.is_some() && domain == self.hd)
        };
        let email = self.email.filter(|email| is_verified && people::is_address(email) && is_current(email));
        let name = |name: Option<String>| name.filter(|name| people::is_name(name));
        Identity {
            issuer: settings.issuer.clone(),
            subject: self.sub,
            email,
            first_name: name(self.given_name),
            last_name: name(self.family_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn email(issuer: &str, trust_email: bool, claims: serde_json::Value) -> Option<String> {
        let mut settings = Oidc::default();
        (settings.issuer, settings.trust_email) = (issuer.to_owned(), trust_email);
        let claims: Claims = serde_json::from_value(claims).expect("claims");
        claims.identity(&settings).email
    }

    #[test]
    fn an_address_counts_as_far_as_somebody_vouches_for_it() {
        let named =
            |verified: serde_json::Value| json!({"sub": "s", "email": "a@b.example", "email_verified": verified});
        for (verified, trusts, counts) in [
            (json!(true), false, true),
            (json!("true"), false, true),
            (json!(null), false, false),
            (json!(null), true, true),
            (json!(false), true, false),
            (json!("TRUE"), true, false),
            (json!(1), true, false),
        ] {
            assert_eq!(
                email("https://i.example", trusts, named(verified.clone())).is_some(),
                counts,
                "{verified} {trusts}"
            );
        }
    }

    #[test]
    fn google_says_which_company_an_account_is_of() {
        let of = |email: &str, hd: Option<&str>| json!({"sub": "s", "email": email, "email_verified": true, "hd": hd});
        assert!(email(GOOGLE, false, of("a@b.example", Some("b.example"))).is_some());
        assert!(email(GOOGLE, false, of("a@gmail.com", None)).is_some());
        assert_eq!(email(GOOGLE, false, of("a@b.example", None)), None, "a private account");
        assert_eq!(email(GOOGLE, false, of("a@b.example", Some("c.example"))), None);
        assert!(email("https://i.example", false, of("a@b.example", None)).is_some());
    }
}
