//! `/keys`: the inference keys of an account. Management keys are not among them: no answer here shows one, and their
//! hashes are unknown here.

use http::StatusCode;
use serde::Serialize;
use tidegate_core::key;
use tidegate_core::{KeyHash, KeyKind, Money, Secret, Timestamp, Window};
use tidegate_gateway::Failure;
use tidegate_store::keys::{KeyChange, KeyFilter, KeyRow, NewKey};
use tidegate_store::spend::Spend;
use tidegate_store::{Refused, StoreError};

use super::account::{Answering, Dollars, Instant, Request, answer, data, deleted, internal, not_found};
use super::form::{Form, refused};
use crate::router::Call;
use crate::state::App;

const PAGE: u32 = 100;
const LONGEST_NAME: usize = 255;
const LONGEST_ID: usize = 256;
/// Only these are here.
const KIND: Option<KeyKind> = Some(KeyKind::Inference);

pub const RESETS: [(&str, Window); 3] =
    [("daily", Window::Daily), ("weekly", Window::Weekly), ("monthly", Window::Monthly)];

/// A key as it is shown.
#[derive(Serialize)]
struct Key<'a> {
    hash: String,
    name: &'a str,
    label: &'a str,
    disabled: bool,
    limit: Option<Dollars>,
    limit_remaining: Option<Dollars>,
    limit_reset: Option<&'static str>,
    include_byok_in_limit: bool,
    usage: Dollars,
    usage_daily: Dollars,
    usage_weekly: Dollars,
    usage_monthly: Dollars,
    byok_usage: Dollars,
    byok_usage_daily: Dollars,
    byok_usage_weekly: Dollars,
    byok_usage_monthly: Dollars,
    created_at: Instant,
    updated_at: Option<Instant>,
    expires_at: Option<Instant>,
    last_used_at: Option<Instant>,
    creator_user_id: Option<&'a str>,
    external_user: Option<&'a str>,
    workspace_id: &'a str,
}

impl<'a> Key<'a> {
    fn new(row: &'a KeyRow, spend: &Spend) -> Self {
        let (credit, byok) = (&spend.credit, &spend.byok);
        Self {
            hash: row.hash.to_hex(),
            name: &row.name,
            label: &row.label,
            disabled: row.disabled,
            limit: row.limit.map(Dollars),
            limit_remaining: remaining(row, spend).map(Dollars),
            limit_reset: row.limit_reset.map(Window::as_str),
            include_byok_in_limit: row.include_byok_in_limit,
            usage: Dollars(credit.all),
            usage_daily: Dollars(credit.day),
            usage_weekly: Dollars(credit.week),
            usage_monthly: Dollars(credit.month),
            byok_usage: Dollars(byok.all),
            byok_usage_daily: Dollars(byok.day),
            byok_usage_weekly: Dollars(byok.week),
            byok_usage_monthly: Dollars(byok.month),
            created_at: Instant(row.created),
            updated_at: row.updated.map(Instant),
            expires_at: row.expires.map(Instant),
            last_used_at: spend.last_used.map(Instant),
            creator_user_id: row.creator.as_deref(),
            external_user: row.external_user.as_deref(),
            workspace_id: &row.workspace.0,
        }
    }
}

/// What a key may still spend in its window; `None` when it has no limit.
pub fn remaining(row: &KeyRow, spend: &Spend) -> Option<Money> {
    row.limit.map(|limit| left(limit, spend.counted(row.limit_reset, row.include_byok_in_limit)))
}

/// What is left of a limit, never less than nothing.
pub fn left(limit: Money, spent: Money) -> Money {
    Money(limit.0.saturating_sub(spent.0).max(0))
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let offset = request.query.offset();
        let include_disabled = request.query.flag("include_disabled").unwrap_or(false);
        let workspace = request.query.uuid("workspace_id");
        request.query.check()?;
        let workspace = request.workspace("workspace_id", workspace).await?;
        let filter =
            KeyFilter { workspace: Some(&workspace), kind: KIND, creator: None, include_disabled, offset, limit: PAGE };
        let rows = request.app.store.list_keys(&request.tenant, filter).await.map_err(internal)?;
        let hashes: Vec<KeyHash> = rows.iter().map(|row| row.hash).collect();
        let spends =
            request.app.store.key_spend(&request.tenant, &hashes, request.settled().await).await.map_err(internal)?;
        let keys: Vec<Key<'_>> =
            rows.iter().map(|row| Key::new(row, &spends.get(&row.hash).copied().unwrap_or_default())).collect();
        Ok(data(StatusCode::OK, &keys))
    })
}

pub fn create(call: Call) -> Answering {
    #[derive(Serialize)]
    struct Created<'a> {
        data: Key<'a>,
        key: Option<&'a str>,
    }
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let (raw, new) = new_key(&mut form, &request.app, request.now());
        let workspace = form.uuid("workspace_id");
        form.finish()?;
        // Without a mistake the name is there, and so is everything else.
        let new = new.ok_or_else(Failure::internal)?;
        let workspace = request.workspace("workspace_id", workspace).await?;
        let made = request.app.store.create_key(&request.tenant, &request.by, &workspace, new).await;
        let row = made.map_err(|error| match error {
            StoreError::Missing => refused("workspace_id", "is not a workspace of this account"),
            StoreError::Refused(rule @ Refused::NotAMember) => refused("creator_user_id", rule.to_string()),
            StoreError::Refused(rule) => refused("workspace_id", rule.to_string()),
            error => internal(error),
        })?;
        request.app.keys_changed().await;
        Ok(raw.expose(|bytes| {
            let created = Created { data: Key::new(&row, &Spend::default()), key: std::str::from_utf8(bytes).ok() };
            answer(StatusCode::CREATED, &created)
        }))
    })
}

/// A new raw key and what is to be stored of it; nothing to be stored when there is no name for it.
fn new_key(form: &mut Form<'_>, app: &App, now: Timestamp) -> (Secret, Option<NewKey>) {
    let name = form.text("name", 1..=LONGEST_NAME);
    let name = form.require("name", name);
    let limit = form.nullable_money("limit").flatten();
    let limit_reset = form.nullable_word("limit_reset", &RESETS).flatten();
    let include_byok_in_limit = form.flag("include_byok_in_limit").unwrap_or(false);
    let expires = form.nullable("expires_at", |reader, raw| reader.future(raw, now, true)).flatten();
    let creator = form.nullable_text("creator_user_id", 1..=LONGEST_ID).flatten();
    let external_user = external_user(form);
    let raw = key::generate(&app.key_prefix);
    let new = name.map(|name| {
        raw.expose(|bytes| NewKey {
            hash: KeyHash::of(bytes),
            kind: KeyKind::Inference,
            name,
            label: key::label(std::str::from_utf8(bytes).unwrap_or_default(), &app.key_prefix),
            limit,
            limit_reset,
            include_byok_in_limit,
            expires,
            creator,
            external_user,
            app_id: None,
            spawn_agent: None,
            spawn_cloud: None,
        })
    });
    (raw, new)
}

/// Whom the caller makes the key for: by the name under which it is shown, or as `{"user": …}` in `external`, which is
/// how newer clients say it.
fn external_user(form: &mut Form<'_>) -> Option<String> {
    let shown = form.nullable_text("external_user", 1..=LONGEST_ID).flatten();
    let nested = form.value("external", |reader, raw| {
        reader.form(raw, |external| {
            // Ignored, it would leave the caller with a key that they think works.
            if external.text("api_key", 0..=usize::MAX).is_some() {
                external.issues.add("api_key", "cannot be chosen: keys are made here");
            }
            let user = external.text("user", 1..=LONGEST_ID);
            external.require("user", user)
        })
    });
    nested.or(shown)
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let hash = addressed(&request)?;
        let found = request.app.store.find_tenant_key(&request.tenant, &hash, KIND).await.map_err(internal)?;
        let row = found.ok_or_else(not_found)?;
        let spend = spend(&request, &hash).await?;
        Ok(data(StatusCode::OK, &Key::new(&row, &spend)))
    })
}

pub fn update(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let hash = addressed(&request)?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let change = KeyChange {
            name: form.text("name", 1..=LONGEST_NAME),
            disabled: form.flag("disabled"),
            limit: form.nullable_money("limit"),
            limit_reset: form.nullable_word("limit_reset", &RESETS),
            include_byok_in_limit: form.flag("include_byok_in_limit"),
        };
        form.finish()?;
        let changed = request.app.store.update_key(&request.tenant, &request.by, &hash, KIND, &change).await;
        let changed = changed.map_err(|error| match error {
            StoreError::Refused(Refused::NotAMember) => {
                refused("disabled", "must stay true: the key's creator is no longer a member of its workspace")
            }
            error => internal(error),
        })?;
        let row = changed.ok_or_else(not_found)?;
        request.app.keys_changed().await;
        let spend = spend(&request, &hash).await?;
        Ok(data(StatusCode::OK, &Key::new(&row, &spend)))
    })
}

pub fn delete(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let hash = addressed(&request)?;
        if !request.app.store.delete_key(&request.tenant, &request.by, &hash, KIND).await.map_err(internal)? {
            return Err(not_found());
        }
        request.app.keys_changed().await;
        Ok(deleted())
    })
}

/// The key in the path. What cannot be a hash is as unknown as one that no key has.
fn addressed(request: &Request) -> Result<KeyHash, Failure> {
    KeyHash::parse(request.param(0)).ok_or_else(not_found)
}

pub async fn spend(request: &Request, hash: &KeyHash) -> Result<Spend, Failure> {
    let spends =
        request.app.store.key_spend(&request.tenant, &[*hash], request.settled().await).await.map_err(internal)?;
    Ok(spends.get(hash).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_limit_that_was_passed() {
        for (limit, spent, expected) in [(10, 3, 7), (10, 10, 0), (10, 11, 0), (0, i64::MAX, 0)] {
            assert_eq!(left(Money(limit), Money(spent)), Money(expected));
        }
    }
}
