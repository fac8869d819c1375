//! How a service account of Google Cloud asks for a token.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::{Deserialize, Serialize};
use tidegate_core::{Secret, Timestamp};

use crate::credential::ServiceAccount;

/// Where tokens are given out.
pub const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const LIFETIME: i64 = 3_600;

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: &'a str,
    iat: i64,
    exp: i64,
}

/// The form that is exchanged for a token; `None` when the account's key is none.
pub fn form(account: &ServiceAccount, audience: &str, now: Timestamp) -> Option<String> {
    let key = account.private_key.expose(EncodingKey::from_rsa_pem).ok()?;
    let header = Header { kid: Some(account.key_id.clone()), ..Header::new(Algorithm::RS256) };
    let seconds = now.0.div_euclid(1_000);
    let claims = Claims { iss: &account.email, scope: SCOPE, aud: audience, iat: seconds, exp: seconds + LIFETIME };
    let assertion = jsonwebtoken::encode(&header, &claims, &key).ok()?;
    // All of it is base64url and dots: nothing to escape.
    Some(format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}"))
}

/// Whether the account's key can sign.
pub fn signs(account: &ServiceAccount) -> bool {
    form(account, TOKEN_URI, Timestamp(0)).is_some()
}

/// A token and the seconds it is good for.
pub fn token(body: &[u8]) -> Option<(Secret, u64)> {
    #[derive(Deserialize)]
    struct Answer {
        access_token: String,
        #[serde(default)]
        expires_in: Option<u64>,
    }
    let answer: Answer = serde_json::from_slice(body).ok()?;
    Some((Secret::new(answer.access_token), answer.expires_in.unwrap_or(LIFETIME.unsigned_abs())))
}
