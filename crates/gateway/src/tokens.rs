//! Tokens that service accounts are given for an hour: asked for once, used until shortly before they end.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{StatusCode, Uri};
use tidegate_core::{Secret, Timestamp};
use tidegate_providers::credential::{ServiceAccount, bearer};
use tidegate_providers::{Class, Fault, google};
use tokio::sync::Mutex;

use crate::upstream::{self, Client};

const LARGEST_ANSWER: usize = 64 << 10;
/// A token is renewed this long before it ends.
const MARGIN: Duration = Duration::from_secs(300);
const MOST: usize = 1_024;

/// Tokens by the account and the key that they were asked for with.
#[derive(Default)]
pub struct Tokens {
    known: RwLock<HashMap<(String, String), Arc<Slot>>>,
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
        let slot = self.slot(account);
        let mut held = slot.0.lock().await;
        if let Some((value, until)) = held.as_ref().filter(|(_, until)| *until > now) {
            tracing::trace!(until = until.0, "a token is still good");
            return Ok(value.clone());
        }
        let uri = account.token_uri.as_deref().filter(|_| shared).unwrap_or(google::TOKEN_URI);
        let (token, seconds) = ask(client, account, uri, now).await?;
        let value = bearer(&token).ok_or_else(|| Fault::without_answer(Class::Credential))?;
        let good_for = Duration::from_secs(seconds).saturating_sub(MARGIN);
        *held = Some((value.clone(), now.plus(good_for)));
        Ok(value)
    }

    /// A token that was refused is asked for anew.
    pub async fn forget(&self, account: &ServiceAccount) {
        *self.slot(account).0.lock().await = None;
    }

    fn slot(&self, account: &ServiceAccount) -> Arc<Slot> {
        let key = (account.email.clone(), account.key_id.clone());
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

async fn ask(client: &Client, account: &ServiceAccount, uri: &str, now: Timestamp) -> Result<(Secret, u64), Fault> {
    let refused = || Fault::without_answer(Class::Credential);
    let form = google::form(account, uri, now).ok_or_else(refused)?;
    let uri: Uri = uri.parse().map_err(|_| refused())?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    let response = client.send(&uri, headers, Bytes::from(form).into()).await?;
    let status = response.status();
    let body = upstream::whole(response.into_body(), LARGEST_ANSWER).await?;
    if status != StatusCode::OK {
        return Err(if status.is_server_error() { Fault::without_answer(Class::Server) } else { refused() });
    }
    google::token(&body).ok_or_else(|| Fault::in_answer(Class::BadResponse))
}
