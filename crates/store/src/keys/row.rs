//! A key as it is read from its row.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_core::{KeyHash, KeyKind, Money, OrganisationId, Timestamp, Window as LimitReset, WorkspaceId};

use crate::Result;
use crate::error::Unreadable;

/// A stored key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    pub hash: KeyHash,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub kind: KeyKind,
    pub name: Box<str>,
    pub label: Box<str>,
    pub disabled: bool,
    pub limit: Option<Money>,
    pub limit_reset: Option<LimitReset>,
    pub include_byok_in_limit: bool,
    pub expires: Option<Timestamp>,
    pub creator: Option<Box<str>>,
    /// Whom the customer says it is for. The load of the whole index leaves it out: admission does not need it.
    pub external_user: Option<Box<str>>,
    pub created: Timestamp,
    pub updated: Option<Timestamp>,
    /// Only the changes show deleted keys; every other function leaves them out.
    pub deleted: bool,
    pub change_seq: i64,
}

/// The columns of [`RawKey`], in its order.
macro_rules! select_keys {
    () => {
        "SELECT hash, organisation_id, workspace_id, kind, name, label, disabled, limit_nanos, limit_reset, \
         include_byok_in_limit, expires_at, creator_user_id, external_user, created_at, updated_at, deleted_at, \
         change_seq \
         FROM api_keys"
    };
}
pub(super) use select_keys;

/// The condition for one live key of a tenant: organisation, hash, and kind or NULL.
macro_rules! one_tenant_key {
    () => {
        " WHERE organisation_id = $1 AND hash = $2 AND ($3 IS NULL OR kind = $3) AND deleted_at IS NULL"
    };
}
pub(super) use one_tenant_key;

#[derive(sqlx::FromRow)]
pub(super) struct RawKey {
    hash: String,
    organisation_id: String,
    workspace_id: String,
    kind: String,
    name: String,
    label: String,
    disabled: bool,
    limit_nanos: Option<i64>,
    limit_reset: Option<String>,
    include_byok_in_limit: bool,
    expires_at: Option<i64>,
    creator_user_id: Option<String>,
    external_user: Option<String>,
    created_at: i64,
    updated_at: Option<i64>,
    deleted_at: Option<i64>,
    change_seq: i64,
}

impl RawKey {
    pub(super) fn into_key(self, names: &mut Names) -> Result<KeyRow> {
        let unreadable = |column| Unreadable { table: "api_keys", column };
        let limit_reset = match self.limit_reset {
            Some(text) => Some(LimitReset::parse(&text).ok_or_else(|| unreadable("limit_reset"))?),
            None => None,
        };
        Ok(KeyRow {
            hash: KeyHash::parse(&self.hash).ok_or_else(|| unreadable("hash"))?,
            organisation: OrganisationId(names.shared(&self.organisation_id)),
            workspace: WorkspaceId(names.shared(&self.workspace_id)),
            kind: KeyKind::parse(&self.kind).ok_or_else(|| unreadable("kind"))?,
            name: self.name.into(),
            label: self.label.into(),
            disabled: self.disabled,
            limit: self.limit_nanos.map(Money),
            limit_reset,
            include_byok_in_limit: self.include_byok_in_limit,
            expires: self.expires_at.map(Timestamp),
            creator: self.creator_user_id.map(Into::into),
            external_user: self.external_user.map(Into::into),
            created: Timestamp(self.created_at),
            updated: self.updated_at.map(Timestamp),
            deleted: self.deleted_at.is_some(),
            change_seq: self.change_seq,
        })
    }
}

/// Ids already seen: the keys of one workspace share its name instead of each holding a copy.
#[derive(Default)]
pub(super) struct Names(HashSet<Arc<str>>);

impl Names {
    pub(super) fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(name) = self.0.get(text) {
            return name.clone();
        }
        let name: Arc<str> = text.into();
        self.0.insert(name.clone());
        name
    }
}
