//! `GET /audit`: who changed what, newest first.

use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_store::audit::Entry;

use super::account::{Answering, Instant, Request, internal, page};
use super::time::instant;
use crate::router::Call;

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    at: Instant,
    actor: Actor<'a>,
    action: &'a str,
    target: &'a str,
    request_id: Option<&'a str>,
    address: Option<&'a str>,
    /// The members that changed; of a secret they say `[changed]`.
    before: Option<&'a RawValue>,
    after: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Actor<'a> {
    /// `key`, `member`, `anyone`, `shell` or `server`.
    kind: &'a str,
    /// Of a key.
    key_hash: Option<&'a str>,
    /// Of a person who signed in as themselves.
    user_id: Option<&'a str>,
}

impl<'a> From<&'a Entry> for Shown<'a> {
    fn from(entry: &'a Entry) -> Self {
        let values = |text: &'a Option<String>| text.as_deref().and_then(|text| serde_json::from_str(text).ok());
        Self {
            id: &entry.id,
            at: Instant(entry.at),
            actor: Actor {
                kind: &entry.actor_kind,
                key_hash: entry.actor_id.as_deref().filter(|_| entry.actor_kind == "key"),
                user_id: entry.actor_id.as_deref().filter(|_| entry.actor_kind == "member"),
            },
            action: &entry.action,
            target: &entry.target,
            request_id: entry.request.as_deref(),
            address: entry.address.as_deref(),
            before: values(&entry.old),
            after: values(&entry.new),
        }
    }
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = (request.query.offset(), request.query.limit());
        let since = request.query.text("since").and_then(|text| {
            let read = instant(&text);
            if read.is_none() {
                request.query.issues.add("since", "must be a time such as 2027-01-31T00:00:00Z");
            }
            read
        });
        request.query.check()?;
        let since = since.unwrap_or(Timestamp(0));
        let (store, tenant) = (&request.app.store, &request.tenant);
        let total = store.count_audit(tenant, since).await.map_err(internal)?;
        let found = store.list_audit(tenant, since, offset, limit).await.map_err(internal)?;
        let shown: Vec<Shown<'_>> = found.iter().map(Shown::from).collect();
        Ok(page(&shown, total))
    })
}
