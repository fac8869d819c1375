//! What a credential is made of and what can change about it.

use tidegate_core::{KeyHash, OrganisationId, Secret, Timestamp, WorkspaceId};

use super::CredentialRow;
use crate::vault::Vault;
use crate::workspaces::new_id;
use crate::{Refused, Result};

/// The settings of a credential; `None` leaves one as it is, and in a new credential as it usually is.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub name: Option<Option<String>>,
    pub disabled: Option<bool>,
    pub is_fallback: Option<bool>,
    pub is_required: Option<bool>,
    pub is_byok_only: Option<bool>,
    pub declared_region: Option<Option<String>>,
    pub declared_zdr: Option<Option<bool>>,
    pub allowed_models: Option<Option<Vec<String>>>,
    pub allowed_users: Option<Option<Vec<String>>>,
    /// Each must be a live key of the tenant when it is set.
    pub allowed_keys: Option<Option<Vec<KeyHash>>>,
}

/// A secret to be stored. No `Debug`: the secret has none.
#[derive(Clone)]
pub struct NewSecret<'a> {
    pub secret: &'a Secret,
    /// What it is sealed with.
    pub vault: &'a Vault,
    /// What may be shown of it.
    pub label: String,
    /// Scheme, host and port that it may be sent to.
    pub destination: Option<String>,
}

/// A credential to be made.
#[derive(Clone)]
pub struct NewCredential<'a> {
    pub workspace: &'a WorkspaceId,
    pub provider: &'a str,
    pub secret: NewSecret<'a>,
    pub settings: Settings,
}

/// What is to be different.
#[derive(Clone, Default)]
pub struct CredentialChange<'a> {
    pub settings: Settings,
    /// Its place among those of its workspace, provider and section; the others make room.
    pub sort_order: Option<i64>,
    /// Takes the place of the one that is stored.
    pub secret: Option<NewSecret<'a>>,
}

impl Settings {
    /// The keys that must be there.
    pub(super) fn keys(&self) -> &[KeyHash] {
        self.allowed_keys.as_ref().and_then(Option::as_deref).unwrap_or_default()
    }

    pub(super) fn applied_to(&self, row: CredentialRow) -> Result<CredentialRow> {
        fn or<T: Clone>(new: &Option<T>, old: T) -> T {
            new.clone().unwrap_or(old)
        }
        let row = CredentialRow {
            name: or(&self.name, row.name),
            disabled: or(&self.disabled, row.disabled),
            is_fallback: or(&self.is_fallback, row.is_fallback),
            is_required: or(&self.is_required, row.is_required),
            is_byok_only: or(&self.is_byok_only, row.is_byok_only),
            declared_region: or(&self.declared_region, row.declared_region),
            declared_zdr: or(&self.declared_zdr, row.declared_zdr),
            allowed_models: or(&self.allowed_models, row.allowed_models),
            allowed_users: or(&self.allowed_users, row.allowed_users),
            allowed_keys: or(&self.allowed_keys, row.allowed_keys),
            ..row
        };
        if row.is_byok_only && row.is_fallback {
            return Err(Refused::ByokOnlyFallback.into());
        }
        Ok(row)
    }
}

impl NewCredential<'_> {
    /// The row, but for its place, its number and its sealed secret.
    pub(super) fn row(&self, organisation: &OrganisationId, now: Timestamp) -> Result<CredentialRow> {
        self.settings.applied_to(CredentialRow {
            // Known before the secret is sealed, which is bound to it.
            id: new_id(now).0,
            organisation: organisation.clone(),
            workspace: self.workspace.clone(),
            provider: self.provider.into(),
            name: None,
            label: self.secret.label.clone(),
            disabled: false,
            is_fallback: false,
            is_required: false,
            is_byok_only: false,
            declared_region: None,
            declared_zdr: None,
            allowed_models: None,
            allowed_users: None,
            allowed_keys: None,
            sort_order: 0,
            destination: self.secret.destination.clone(),
            sealed: None,
            revision: 1,
            change_seq: 0,
            created: now,
            updated: None,
            deleted: false,
        })
    }
}
