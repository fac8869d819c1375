//! What is asked of the issuer: where its doors are and which keys it signs with, a token for a code, and what it knows of
//! a person.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{StatusCode, Uri};
use jsonwebtoken::jwk::Jwk;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidegate_core::{Secret, Timestamp};
use tidegate_gateway::upstream::{self, Client};
use tokio::sync::Mutex;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::token::Claims;
use super::{Refusal, broken};
use crate::config::{self, Oidc};

const LARGEST_ANSWER: usize = 1 << 20;
/// So long what an issuer says of itself is believed.
const FRESH: Duration = Duration::from_secs(60 * 60);
/// Not more often than this it is asked again because a key is missing.
const ASKED: Duration = Duration::from_secs(60);
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

#[derive(Default)]
pub struct Issuer {
    client: Client,
    known: Mutex<Option<Arc<Known>>>,
}

/// What an issuer says of itself.
pub struct Known {
    pub authorization: Url,
    pub userinfo: Option<Uri>,
    pub keys: Vec<Jwk>,
    token: Uri,
    takes_basic: bool,
    at: Timestamp,
}

/// What a code was exchanged for.
pub struct Given {
    pub id_token: String,
    pub access_token: Option<Secret>,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Keys {
    /// Of kinds that we may not know.
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
    access_token: Option<String>,
}

impl Issuer {
    pub async fn known(&self, settings: &Oidc, now: Timestamp) -> Result<Arc<Known>, Refusal> {
        let mut held = self.known.lock().await;
        if let Some(known) = held.as_ref().filter(|known| known.at.plus(FRESH) > now) {
            return Ok(known.clone());
        }
        let known = Arc::new(self.ask(settings, now).await?);
        *held = Some(known.clone());
        Ok(known)
    }

    /// The same with newer keys, unless these are new enough.
    pub async fn known_anew(&self, settings: &Oidc, old: Arc<Known>, now: Timestamp) -> Result<Arc<Known>, Refusal> {
        if old.at.plus(ASKED) > now {
            return Ok(old);
        }
        let mut held = self.known.lock().await;
        if let Some(newer) = held.as_ref().filter(|known| known.at > old.at) {
            return Ok(newer.clone());
        }
        let known = Arc::new(self.ask(settings, now).await?);
        *held = Some(known.clone());
        Ok(known)
    }

    async fn ask(&self, settings: &Oidc, now: Timestamp) -> Result<Known, Refusal> {
        let address = format!("{}/.well-known/openid-configuration", settings.issuer.trim_end_matches('/'));
        let document: Document = self.get(&uri(&address)?, None).await?;
        if document.issuer != settings.issuer {
            let problem =
                format!("{address} is about {:?}: set oidc.issuer to exactly that, if it is right", document.issuer);
            return Err(broken(problem));
        }
        let keys: Keys = self.get(&uri(&document.jwks_uri)?, None).await?;
        let methods = document.token_endpoint_auth_methods_supported;
        uri(&document.authorization_endpoint)?;
        Ok(Known {
            authorization: Url::parse(&document.authorization_endpoint)
                .map_err(|_| broken("the issuer's authorization_endpoint is no address"))?,
            userinfo: document.userinfo_endpoint.as_deref().map(uri).transpose()?,
            keys: keys.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect(),
            token: uri(&document.token_endpoint)?,
            takes_basic: methods.is_none_or(|methods| methods.iter().any(|method| method == "client_secret_basic")),
            at: now,
        })
    }

    pub async fn exchange(
        &self,
        settings: &Oidc,
        known: &Known,
        code: &str,
        redirect: &str,
        verifier: &str,
    ) -> Result<Given, Refusal> {
        let (headers, form) = question(settings, known, code, redirect, verifier)?;
        let sent = self.client.send(&known.token, headers, Bytes::from(form).into()).await;
        let response = sent.map_err(|_| broken("the issuer's token_endpoint cannot be reached"))?;
        let status = response.status();
        let body = upstream::whole(response.into_body(), LARGEST_ANSWER).await;
        let body = body.map_err(|_| broken("the issuer's token_endpoint broke off"))?;
        if status == StatusCode::BAD_REQUEST && refusal(&body).as_deref() == Some("invalid_grant") {
            let told = "This sign-in was used already, or took too long. Start again.";
            return Err(Refusal::new(told, "the issuer does not take the code: invalid_grant"));
        }
        if status != StatusCode::OK {
            let word = refusal(&body).unwrap_or_default();
            return Err(broken(format!("the issuer's token_endpoint answers {} {word}", status.as_u16())));
        }
        let tokens: Tokens = serde_json::from_slice(&body)
            .map_err(|_| broken("the issuer's token_endpoint gives no id_token: is `openid` among oidc.scopes?"))?;
        Ok(Given { id_token: tokens.id_token, access_token: tokens.access_token.map(Secret::new) })
    }

    pub async fn userinfo(&self, address: &Uri, access: &Secret) -> Result<Claims, Refusal> {
        let value = access.expose(|token| HeaderValue::from_bytes(&[b"Bearer ", token].concat()));
        let mut value = value.map_err(|_| broken("the issuer's access token cannot be sent"))?;
        value.set_sensitive(true);
        self.get(address, Some(value)).await
    }

    async fn get<T: DeserializeOwned>(&self, address: &Uri, bearer: Option<HeaderValue>) -> Result<T, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, JSON);
        if let Some(bearer) = bearer {
            headers.insert(AUTHORIZATION, bearer);
        }
        let response = self.client.get(address, headers).await;
        let response = response.map_err(|_| broken(format!("{address} cannot be reached")))?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(broken(format!("{address} answers {}", status.as_u16())));
        }
        let body = upstream::whole(response.into_body(), LARGEST_ANSWER).await;
        let body = body.map_err(|_| broken(format!("{address} broke off")))?;
        serde_json::from_slice(&body).map_err(|_| broken(format!("{address} answers something else than it should")))
    }
}

/// The head and the form with which a code is exchanged.
fn question(
    settings: &Oidc,
    known: &Known,
    code: &str,
    redirect: &str,
    verifier: &str,
) -> Result<(HeaderMap, String), Refusal> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, FORM);
    headers.insert(ACCEPT, JSON);
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "authorization_code")
        .append_pair("code", code)
        .append_pair("redirect_uri", redirect)
        .append_pair("code_verifier", verifier);
    match &settings.client_secret {
        Some(secret) if known.takes_basic => {
            headers.insert(AUTHORIZATION, basic(&settings.client_id, secret)?);
        }
        Some(secret) => {
            form.append_pair("client_id", &settings.client_id);
            secret.expose(|secret| form.append_pair("client_secret", &String::from_utf8_lossy(secret)));
        }
        None => {
            form.append_pair("client_id", &settings.client_id);
        }
    }
    Ok((headers, form.finish()))
}

/// The word for what went wrong (RFC 6749 5.2), if it is one of those: anything else may hold anything.
fn refusal(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Refused {
        error: String,
    }
    let refused: Refused = serde_json::from_slice(body).ok()?;
    let is_word =
        |word: &String| word.len() <= 40 && word.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase());
    Some(refused.error).filter(is_word)
}

/// A client's name and secret as RFC 6749 2.3.1 has them.
fn basic(client: &str, secret: &Secret) -> Result<HeaderValue, Refusal> {
    let text = secret.expose(|secret| {
        let encoded = |bytes: &[u8]| byte_serialize(bytes).collect::<String>();
        STANDARD.encode(format!("{}:{}", encoded(client.as_bytes()), encoded(secret)))
    });
    let mut value =
        HeaderValue::from_str(&format!("Basic {text}")).map_err(|_| broken("the client cannot be named"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// An address that people and secrets may be sent to.
fn uri(text: &str) -> Result<Uri, Refusal> {
    if !config::is_private_address(text) {
        return Err(broken(format!("{text:?} is no https:// address")));
    }
    text.parse().map_err(|_| broken(format!("{text:?} is no address")))
}
