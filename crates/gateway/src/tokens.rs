//! Tokens that service accounts are given for an hour: asked for once, used until shortly before they end.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{StatusCode, Uri};
use tidegate_core::{KeyHash, Secret, Timestamp};
use tidegate_providers::credential::{NO_KEY, ServiceAccount, bearer};
use tidegate_providers::{Class, Fault, google};
use tokio::sync::Mutex;

use crate::upstream::{self, Client};

const LARGEST_ANSWER: usize = 64 << 10;
/// A token is renewed this long before it ends.
const MARGIN: Duration = Duration::from_secs(300);
const MOST: usize = 1_024;

/// Tokens by what they were asked for with: the account, where it was asked, and its private key. Names alone will not do:
/// they are public, and whoever knows them does not have the key.
#[derive(Default)]
pub struct Tokens {
    known: RwLock<HashMap<KeyHash, Arc<Slot>>>,
}

/// One account's token; who waits for it waits for one question, not for as many as there are calls.
#[derive(Default)]
struct Slot(Mutex<Option<(HeaderValue, Timestamp)>>);

impl Tokens {
    /// The header value for a call. `shared` says that the account is the operator's own, who may say where to ask.
    pub async fn bearer(
        &self,
        client: &Client,
        account: &ServiceAccount,
        shared: bool,
        now: Timestamp,
    ) -> Result<HeaderValue, Fault> {
        let uri = token_uri(account, shared);
        let slot = self.slot(account, uri);
        let mut held = slot.0.lock().await;
        if let Some((value, until)) = held.as_ref().filter(|(_, until)| *until > now) {
            tracing::trace!(until = until.0, "a token is still good");
            return Ok(value.clone());
        }
        let (token, seconds) = ask(client, account, uri, now).await?;
        let value = bearer(&token).ok_or_else(|| Fault::without_answer(Class::Credential))?;
        let good_for = Duration::from_secs(seconds).saturating_sub(MARGIN);
        *held = Some((value.clone(), now.plus(good_for)));
        Ok(value)
    }

    /// A token that was refused is asked for anew.
    pub async fn forget(&self, account: &ServiceAccount, shared: bool) {
        *self.slot(account, token_uri(account, shared)).0.lock().await = None;
    }

    fn slot(&self, account: &ServiceAccount, uri: &str) -> Arc<Slot> {
        let names = [account.email.as_bytes(), &[0], account.key_id.as_bytes(), &[0], uri.as_bytes(), &[0]].concat();
        let key = account.private_key.expose(|secret| KeyHash::of(&[&names, secret].concat()));
        if let Some(slot) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return slot.clone();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.entry(key).or_default().clone()
    }
}

/// Where tokens are asked for. An operator may say so for the own account; a customer does not choose whom we call.
fn token_uri(account: &ServiceAccount, shared: bool) -> &str {
    account.token_uri.as_deref().filter(|_| shared).unwrap_or(google::TOKEN_URI)
}

async fn ask(client: &Client, account: &ServiceAccount, uri: &str, now: Timestamp) -> Result<(Secret, u64), Fault> {
    let form = google::form(account, uri, now).ok_or_else(|| {
        // Stored by a release that did not look at it, or the operator's own.
        tracing::warn!(project = %account.project, "a service account cannot be used: {NO_KEY}");
        Fault { message: Some(NO_KEY.to_owned()), ..Fault::without_answer(Class::Credential) }
    })?;
    let uri: Uri = uri.parse().map_err(|_| Fault::without_answer(Class::Credential))?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    let response = client.send(&uri, headers, Bytes::from(form).into()).await?;
    let status = response.status();
    let body = upstream::whole(response.into_body(), LARGEST_ANSWER).await?;
    if status != StatusCode::OK {
        return Err(refusal(status));
    }
    google::token(&body).ok_or_else(|| Fault::in_answer(Class::BadResponse))
}

/// Who is given no token is refused as by the provider itself, and is told so with the status of the answer.
fn refusal(status: StatusCode) -> Fault {
    let class = if status.is_server_error() { Class::Server } else { Class::Credential };
    Fault { status: status.as_u16(), ..Fault::without_answer(class) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(key: &str, token_uri: Option<&str>) -> ServiceAccount {
        ServiceAccount {
            project: "p".to_owned(),
            email: "a@p.example".to_owned(),
            key_id: "k1".to_owned(),
            private_key: Secret::new(key),
            region: None,
            token_uri: token_uri.map(str::to_owned),
        }
    }

    #[test]
    fn a_token_is_kept_for_who_has_the_key_and_not_for_who_knows_the_names() {
        let tokens = Tokens::default();
        let one = tokens.slot(&account("secret", None), google::TOKEN_URI);
        assert!(Arc::ptr_eq(&one, &tokens.slot(&account("secret", None), google::TOKEN_URI)));
        assert!(!Arc::ptr_eq(&one, &tokens.slot(&account("guess", None), google::TOKEN_URI)));
        assert!(!Arc::ptr_eq(&one, &tokens.slot(&account("secret", None), "http://127.0.0.1/token")));
    }

    #[test]
    fn who_is_given_no_token_is_refused_with_a_status() {
        for (status, class) in
            [(400, Class::Credential), (401, Class::Credential), (403, Class::Credential), (503, Class::Server)]
        {
            let fault = refusal(StatusCode::from_u16(status).unwrap());
            assert_eq!((fault.status, fault.class), (status, class));
        }
    }

    #[test]
    fn a_customer_does_not_say_where_tokens_are_asked_for() {
        let theirs = account("secret", Some("https://evil.example/token"));
        assert_eq!(token_uri(&theirs, false), google::TOKEN_URI);
        assert_eq!(token_uri(&theirs, true), "https://evil.example/token");
    }
}
