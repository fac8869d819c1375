//! Changes to a key that is there, and how they stand in the audit log.

use serde_json::{Value, json};
use tidegate_core::{KeyHash, KeyKind, Money, Tenant, WorkspaceId};

use super::row::{KeyRow, Names, RawKey, one_tenant_key, select_keys};
use super::{LimitReset, NEXT_CHANGE, NewKey, check_creator};
use crate::audit::{By, Change, append_audit};
use crate::{Result, Store, dialect};

/// What is to be different; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default)]
pub struct KeyChange {
    pub name: Option<String>,
    pub disabled: Option<bool>,
    pub limit: Option<Option<Money>>,
    pub limit_reset: Option<Option<LimitReset>>,
    pub include_byok_in_limit: Option<bool>,
}

impl Store {
    /// Changes a live key of this kind (`None`: of either); `None` when the tenant has no such key. A change that
    /// changes nothing leaves no trace.
    pub async fn update_key(
        &self,
        tenant: &Tenant,
        by: &By,
        hash: &KeyHash,
        kind: Option<KeyKind>,
        change: &KeyChange,
    ) -> Result<Option<KeyRow>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let change_seq: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
            let found: Option<RawKey> = sqlx::query_as(concat!(select_keys!(), one_tenant_key!()))
                .bind(&*tenant.organisation.0)
                .bind(hash.to_hex())
                .bind(kind.map(KeyKind::as_str))
                .fetch_optional(&mut *transaction)
                .await?;
            let Some(old) = found else { return Ok(None) };
            let old = old.into_key(&mut Names::default())?;
            let new = KeyRow { updated: Some(by.at), change_seq, ..change.applied_to(old.clone()) };
            let (before, after) = (settings(&old), settings(&new));
            if before == after {
                return Ok(Some(old));
            }
            // It was switched off when its creator lost their place, and would be theirs again.
            if old.disabled && !new.disabled {
                check_creator!(transaction, tenant.organisation, new.workspace, new.creator.as_deref());
            }
            sqlx::query(
                "UPDATE api_keys SET name = $3, disabled = $4, limit_nanos = $5, limit_reset = $6, \
                 include_byok_in_limit = $7, updated_at = $8, change_seq = $9 \
                 WHERE organisation_id = $1 AND hash = $2",
            )
            .bind(&*tenant.organisation.0)
            .bind(hash.to_hex())
            .bind(&*new.name)
            .bind(new.disabled)
            .bind(new.limit.map(|limit| limit.0))
            .bind(new.limit_reset.map(LimitReset::as_str))
            .bind(new.include_byok_in_limit)
            .bind(by.at.0)
            .bind(change_seq)
            .execute(&mut *transaction)
            .await?;
            let target = hash.to_hex();
            append_audit!(transaction, tenant.organisation, by, Change::new("key.updated", &target).between(&before, &after));
            transaction.commit().await?;
            Ok(Some(new))
        })
    }

    /// Switches a key of either kind off or on; false when the tenant has no such key.
    pub async fn set_key_disabled(&self, tenant: &Tenant, by: &By, hash: &KeyHash, disabled: bool) -> Result<bool> {
        let change = KeyChange { disabled: Some(disabled), ..KeyChange::default() };
        Ok(Box::pin(self.update_key(tenant, by, hash, None, &change)).await?.is_some())
    }

    /// Deletes a key of this kind (`None`: of either); false when the tenant has no such key. The row stays, for its
    /// history and so that its hash cannot come back.
    pub async fn delete_key(&self, tenant: &Tenant, by: &By, hash: &KeyHash, kind: Option<KeyKind>) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let change_seq: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
            let name: Option<String> = sqlx::query_scalar(
                "UPDATE api_keys SET deleted_at = $4, change_seq = $5 \
                 WHERE organisation_id = $1 AND hash = $2 AND ($3 IS NULL OR kind = $3) AND deleted_at IS NULL \
                 RETURNING name",
            )
            .bind(&*tenant.organisation.0)
            .bind(hash.to_hex())
            .bind(kind.map(KeyKind::as_str))
            .bind(by.at.0)
            .bind(change_seq)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(name) = name else { return Ok(false) };
            let target = hash.to_hex();
            let change = Change { old: Some(json!({"name": name})), ..Change::new("key.deleted", &target) };
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(true)
        })
    }
}

impl KeyChange {
    fn applied_to(&self, key: KeyRow) -> KeyRow {
        KeyRow {
            name: self.name.as_deref().map_or(key.name, Into::into),
            disabled: self.disabled.unwrap_or(key.disabled),
            limit: self.limit.unwrap_or(key.limit),
            limit_reset: self.limit_reset.unwrap_or(key.limit_reset),
            include_byok_in_limit: self.include_byok_in_limit.unwrap_or(key.include_byok_in_limit),
            ..key
        }
    }
}

/// The settings that can change.
fn settings(key: &KeyRow) -> Value {
    json!({
        "name": &*key.name,
        "disabled": key.disabled,
        "limit": key.limit.map(|limit| limit.to_string()),
        "limit_reset": key.limit_reset.map(LimitReset::as_str),
        "include_byok_in_limit": key.include_byok_in_limit,
    })
}

/// The entry of a key that was made; `target` is its hash.
pub(crate) fn created<'a>(key: &NewKey, workspace: &WorkspaceId, target: &'a str) -> Change<'a> {
    Change::new("key.created", target).with(json!({
        "kind": key.kind.as_str(),
        "name": key.name,
        "workspace_id": &*workspace.0,
        "limit": key.limit.map(|limit| limit.to_string()),
        "limit_reset": key.limit_reset.map(LimitReset::as_str),
        "include_byok_in_limit": key.include_byok_in_limit,
        "expires_at": key.expires.map(|time| time.to_string()),
        "creator_user_id": key.creator,
        "external_user": key.external_user,
    }))
}
