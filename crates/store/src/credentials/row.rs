//! A credential as it is read from its row.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_core::{KeyHash, OrganisationId, Timestamp, WorkspaceId};

use crate::error::Unreadable;
use crate::vault::{Binding, Sealed};
use crate::{Result, StoreError};

/// The place of the secret, which is sealed to it.
pub(super) const TABLE: &str = "credentials";
pub(super) const COLUMN: &str = "ciphertext";

/// A stored credential. Lists that are `None` restrict nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialRow {
    pub id: Arc<str>,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub provider: Arc<str>,
    pub name: Option<String>,
    /// What may be shown of the secret.
    pub label: String,
    pub disabled: bool,
    pub is_fallback: bool,
    pub is_required: bool,
    pub is_byok_only: bool,
    pub declared_region: Option<String>,
    pub declared_zdr: Option<bool>,
    pub allowed_models: Option<Vec<String>>,
    pub allowed_users: Option<Vec<String>>,
    pub allowed_keys: Option<Vec<KeyHash>>,
    pub sort_order: i64,
    /// Scheme, host and port that the secret may be sent to.
    pub destination: Option<String>,
    /// Gone once the credential is deleted.
    pub sealed: Option<Sealed>,
    /// Counts the changes of this row.
    pub revision: i64,
    pub change_seq: i64,
    pub created: Timestamp,
    pub updated: Option<Timestamp>,
    pub deleted: bool,
}

impl CredentialRow {
    /// What the secret is sealed to.
    pub fn binding(&self) -> Binding<'_> {
        Binding {
            table: TABLE,
            column: COLUMN,
            record: &self.id,
            workspace: &self.workspace.0,
            provider: &self.provider,
            destination: self.destination.as_deref(),
        }
    }

    /// The settings that can change, as the audit log shows them.
    pub(super) fn settings(&self) -> Value {
        let keys = self.allowed_keys.as_deref().map(hex);
        json!({
            "name": self.name,
            "disabled": self.disabled,
            "is_fallback": self.is_fallback,
            "is_required": self.is_required,
            "is_byok_only": self.is_byok_only,
            "declared_region": self.declared_region,
            "declared_zdr": self.declared_zdr,
            "allowed_models": self.allowed_models,
            "allowed_user_ids": self.allowed_users,
            "allowed_api_key_hashes": keys,
            "sort_order": self.sort_order,
        })
    }
}

/// A list as its column holds it.
pub(super) fn texts(list: &Option<Vec<String>>) -> Option<String> {
    list.as_ref().map(|list| json!(list).to_string())
}

pub(super) fn hashes(list: &Option<Vec<KeyHash>>) -> Option<String> {
    list.as_deref().map(|list| json!(hex(list)).to_string())
}

fn hex(list: &[KeyHash]) -> Vec<String> {
    list.iter().map(|hash| hash.to_hex()).collect()
}

/// The columns of [`RawCredential`], in its order.
macro_rules! select_credentials {
    () => {
        "SELECT id, organisation_id, workspace_id, provider, name, label, disabled, is_fallback, is_required, \
         is_byok_only, declared_region, declared_zdr, allowed_models, allowed_user_ids, allowed_api_key_hashes, \
         sort_order, destination, seal_version, master_key_id, wrapped_key, ciphertext, revision, change_seq, \
         created_at, updated_at, deleted_at FROM credentials"
    };
}
pub(super) use select_credentials;

/// One live credential of a tenant, `$1`, by its id, `$2`.
macro_rules! one_credential {
    () => {
        " WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL"
    };
}
pub(super) use one_credential;

#[derive(sqlx::FromRow)]
pub(super) struct RawCredential {
    id: String,
    organisation_id: String,
    workspace_id: String,
    provider: String,
    name: Option<String>,
    label: String,
    disabled: bool,
    is_fallback: bool,
    is_required: bool,
    is_byok_only: bool,
    declared_region: Option<String>,
    declared_zdr: Option<bool>,
    allowed_models: Option<String>,
    allowed_user_ids: Option<String>,
    allowed_api_key_hashes: Option<String>,
    sort_order: i64,
    destination: Option<String>,
    seal_version: i64,
    master_key_id: Option<String>,
    wrapped_key: Option<Vec<u8>>,
    ciphertext: Option<Vec<u8>>,
    revision: i64,
    change_seq: i64,
    created_at: i64,
    updated_at: Option<i64>,
    deleted_at: Option<i64>,
}

impl TryFrom<RawCredential> for CredentialRow {
    type Error = StoreError;

    fn try_from(raw: RawCredential) -> Result<Self> {
        let unreadable = |column| Unreadable { table: TABLE, column };
        let list = |text: Option<String>, column| -> Result<Option<Vec<String>>> {
            // A restriction that cannot be read must not become none.
            let read = |text: String| serde_json::from_str(&text).map_err(|_| unreadable(column));
            Ok(text.map(read).transpose()?)
        };
        let keys = list(raw.allowed_api_key_hashes, "allowed_api_key_hashes")?.map(|hashes| {
            let parse = |hash: String| KeyHash::parse(&hash).ok_or_else(|| unreadable("allowed_api_key_hashes"));
            hashes.into_iter().map(parse).collect::<std::result::Result<Vec<_>, _>>()
        });
        let sealed = match (raw.master_key_id, raw.wrapped_key, raw.ciphertext) {
            (Some(master_key), Some(wrapped_key), Some(ciphertext)) => {
                Some(Sealed { version: raw.seal_version, master_key: master_key.into(), wrapped_key, ciphertext })
            }
            _ => None,
        };
        Ok(Self {
            id: raw.id.into(),
            organisation: OrganisationId(raw.organisation_id.into()),
            workspace: WorkspaceId(raw.workspace_id.into()),
            provider: raw.provider.into(),
            name: raw.name,
            label: raw.label,
            disabled: raw.disabled,
            is_fallback: raw.is_fallback,
            is_required: raw.is_required,
            is_byok_only: raw.is_byok_only,
            declared_region: raw.declared_region,
            declared_zdr: raw.declared_zdr,
            allowed_models: list(raw.allowed_models, "allowed_models")?,
            allowed_users: list(raw.allowed_user_ids, "allowed_user_ids")?,
            allowed_keys: keys.transpose()?,
            sort_order: raw.sort_order,
            destination: raw.destination,
            sealed,
            revision: raw.revision,
            change_seq: raw.change_seq,
            created: Timestamp(raw.created_at),
            updated: raw.updated_at.map(Timestamp),
            deleted: raw.deleted_at.is_some(),
        })
    }
}
