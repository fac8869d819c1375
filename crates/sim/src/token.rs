//! Google's token endpoint for service accounts: a signed assertion for an access token. The signature is not
//! checked, for the server does not know the account's key; everything else about the assertion is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Answer;
use crate::speak::JSON;
use crate::state::State;

/// Answers a form.
pub(crate) fn answer(state: &State, body: &[u8]) -> Response<Answer> {
    let (status, answer) = match assertion(body) {
        Ok(()) => {
            let token = format!("ya29.sim-{}", state.next_request());
            (StatusCode::OK, json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}))
        }
        Err((error, problem)) => (StatusCode::BAD_REQUEST, json!({"error": error, "error_description": problem})),
    };
    let mut response = Response::new(Answer::whole(answer.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn assertion(body: &[u8]) -> Result<(), (&'static str, String)> {
    let form = String::from_utf8_lossy(body);
    let member = |name: &str| {
        let mut pairs = form.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(found, _)| *found == name).map(|(_, value)| value.replace("%3A", ":").replace("%3a", ":"))
    };
    match member("grant_type").as_deref() {
        Some("urn:ietf:params:oauth:grant-type:jwt-bearer") => {}
        _ => return Err(("unsupported_grant_type", "Invalid grant_type".into())),
    }
    let bad = |problem: &str| ("invalid_grant", format!("Invalid JWT: {problem}"));
    let jwt = member("assertion").ok_or_else(|| bad("there is no assertion"))?;
    let parts: Vec<_> = jwt.split('.').collect();
    let [header, claims, signature] = parts[..] else {
        return Err(bad("it must have three parts"));
    };
    let read = |part: &str| {
        let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
        serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object)
    };
    let header = read(header).ok_or_else(|| bad("the header is not JSON"))?;
    if header["alg"] != "RS256" {
        return Err(bad("the algorithm must be RS256"));
    }
    if !URL_SAFE_NO_PAD.decode(signature).is_ok_and(|bytes| !bytes.is_empty()) {
        return Err(bad("the signature is not base64url"));
    }
    let claims = read(claims).ok_or_else(|| bad("the claims are not JSON"))?;
    for name in ["iss", "scope", "aud"] {
        if claims[name].as_str().is_none_or(str::is_empty) {
            return Err(bad(&format!("{name} must be a string")));
        }
    }
    match (claims["iat"].as_i64(), claims["exp"].as_i64()) {
        (Some(from), Some(until)) if until > from && until.saturating_sub(from) <= 3600 => Ok(()),
        _ => Err(bad(
            "Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assertion_is_checked() {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let form = |claims: &Value| {
            let header = part(&json!({"alg": "RS256", "typ": "JWT"}));
            let jwt = format!("{header}.{}.c2ln", part(claims));
            format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={jwt}")
        };
        let fine = json!({"iss": "a@b", "scope": "s", "aud": "http://x/token", "iat": 1000, "exp": 4600});
        assert_eq!(assertion(form(&fine).as_bytes()), Ok(()));
        for (name, value) in [
            ("iss", json!("")),
            ("scope", json!(null)),
            ("aud", json!(1)),
            ("exp", json!(4601)),
            ("exp", json!(1000)),
            ("iat", json!("x")),
        ] {
            let mut claims = fine.clone();
            claims[name] = value;
            assert!(assertion(form(&claims).as_bytes()).is_err(), "{name}");
        }
        for body in [
            "",
            "grant_type=password",
            "grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer",
            "grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion=a.b.c",
        ] {
            assert!(assertion(body.as_bytes()).is_err(), "{body}");
        }
    }
}
