//! What was said in requests, for workspaces that want it kept: one sealed row each, beside the record and with an age of
//! its own. Which workspaces want that is little, so every node keeps it in memory and loads it again when its number has
//! changed.

use std::sync::Arc;

use serde_json::json;
use tidegate_core::{GenerationId, OrganisationId, Tenant, Timestamp, WorkspaceId};

use crate::audit::{By, Change, append_audit};
use crate::credentials::{Failed, HOLD_CREDENTIALS, Verified};
use crate::error::Unreadable;
use crate::vault::{Vault, VaultError};
use crate::{Result, Store, dialect};

/// Taken in every transaction that changes what a workspace wants kept.
pub(crate) const CONTENTS_CHANGED: &str = "UPDATE sequences SET value = value + 1 WHERE name = 'contents'";

/// Keeps what is sealed here apart from other uses of the same key.
const LABEL: &str = "content";

/// Read at a time when each is opened: they can be long.
const PAGE: i64 = 100;

/// What a workspace wants kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptOf {
    pub workspace: WorkspaceId,
    /// From 0 to 1.
    pub share: f64,
    /// Numbers of keys; `None`: of all.
    pub keys: Option<Vec<i64>>,
}

/// What was said in one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub generation: GenerationId,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    /// When the request began: its age counts from there.
    pub at: Timestamp,
    pub plain: Vec<u8>,
}

impl Store {
    /// A number that changes with every change of what workspaces want kept.
    pub async fn contents_seq(&self) -> Result<i64> {
        on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT value FROM sequences WHERE name = 'contents'").fetch_one(pool).await?)
        })
    }

    /// What all workspaces want kept that want any of it, and which change that is.
    pub async fn all_kept(&self) -> Result<(i64, Vec<KeptOf>)> {
        // The number first: what changes between the two is loaded again.
        let seq = self.contents_seq().await?;
        let rows: Vec<(String, f64, Option<String>)> = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT id, io_logging_sampling_rate, io_logging_api_key_ids FROM workspaces \
                 WHERE is_io_logging_enabled AND deleted_at IS NULL ORDER BY id",
            )
            .fetch_all(pool)
            .await?)
        })?;
        let kept = |(id, share, keys): (String, f64, Option<String>)| {
            let unreadable = |_| Unreadable { table: "workspaces", column: "io_logging_api_key_ids" };
            let keys = keys.as_deref().map(serde_json::from_str).transpose().map_err(unreadable)?;
            Ok(KeptOf { workspace: WorkspaceId(Arc::from(id)), share, keys })
        };
        Ok((seq, rows.into_iter().map(kept).collect::<Result<_>>()?))
    }

    /// Seals and stores what was said, all or none. What is here already stays as it is, and of a workspace that is gone
    /// nothing is kept any more.
    pub async fn keep_contents(&self, vault: &Vault, contents: &[Content]) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            // Whoever gives a master key up holds this: nothing is sealed under one that is about to go.
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            vault.refresh_if_changed().await.map_err(VaultError::from)?;
            for content in contents {
                let id = content.generation.as_str();
                let (master_key, sealed) = vault.seal_named_blob(LABEL, id.as_bytes(), &content.plain)?;
                sqlx::query(
                    "INSERT INTO generation_contents (generation_id, organisation_id, workspace_id, created_at, \
                     master_key_id, sealed) SELECT $1, organisation_id, id, $4, $5, $6 FROM workspaces \
                     WHERE organisation_id = $2 AND id = $3 AND deleted_at IS NULL \
                     ON CONFLICT (generation_id) DO NOTHING",
                )
                .bind(id)
                .bind(&*content.organisation.0)
                .bind(&*content.workspace.0)
                .bind(content.at.0)
                .bind(&*master_key)
                .bind(sealed)
                .execute(&mut *transaction)
                .await?;
            }
            transaction.commit().await?;
            Ok(())
        })
    }

    /// What was said in a request of the tenant's; `None` where nothing of it is kept.
    pub async fn find_content(&self, tenant: &Tenant, vault: &Vault, id: &GenerationId) -> Result<Option<Vec<u8>>> {
        let sealed: Option<Vec<u8>> = on_reader!(self, pool => {
            Ok(sqlx::query_scalar(
                "SELECT sealed FROM generation_contents WHERE organisation_id = $1 AND generation_id = $2",
            )
            .bind(&*tenant.organisation.0)
            .bind(id.as_str())
            .fetch_optional(pool)
            .await?)
        })?;
        let Some(sealed) = sealed else { return Ok(None) };
        let open = || vault.open_blob(LABEL, id.as_str().as_bytes(), &sealed);
        if let Some(plain) = open() {
            return Ok(Some(plain));
        }
        // Another node may know a newer ring.
        vault.refresh().await.map_err(VaultError::from)?;
        open().map(Some).ok_or_else(|| VaultError::DoesNotOpen.into())
    }

    /// Opens what was said in every request of everyone; `progress` hears how many were opened.
    pub async fn verify_contents(&self, vault: &Vault, mut progress: impl FnMut(u64)) -> Result<Verified> {
        let (mut verified, mut after) = (Verified::default(), String::new());
        loop {
            let page: Vec<(String, Vec<u8>)> = on_reader!(self, pool => {
                Ok(sqlx::query_as(
                    "SELECT generation_id, sealed FROM generation_contents WHERE generation_id > $1 \
                     ORDER BY generation_id LIMIT $2",
                )
                .bind(&after)
                .bind(PAGE)
                .fetch_all(pool)
                .await?)
            })?;
            let Some((last, _)) = page.last() else { return Ok(verified) };
            after.clone_from(last);
            for (id, sealed) in page {
                verified.count += 1;
                if vault.open_blob(LABEL, id.as_bytes(), &sealed).is_some() {
                    continue;
                }
                // It may have come with a newer ring.
                vault.refresh().await.map_err(VaultError::from)?;
                if vault.open_blob(LABEL, id.as_bytes(), &sealed).is_none() {
                    verified.failed.push(Failed { id, error: VaultError::DoesNotOpen });
                }
            }
            progress(verified.count);
        }
    }

    /// Takes what was said in these requests of the tenant's away; how many had any of it kept.
    pub async fn delete_contents(&self, tenant: &Tenant, by: &By, ids: &[GenerationId]) -> Result<u64> {
        let deleted = on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let mut deleted = Vec::new();
            for id in ids {
                let gone = sqlx::query("DELETE FROM generation_contents WHERE organisation_id = $1 AND generation_id = $2")
                    .bind(&*tenant.organisation.0)
                    .bind(id.as_str())
                    .execute(&mut *transaction)
                    .await?;
                deleted.extend((gone.rows_affected() > 0).then_some(id.as_str()));
            }
            if let Some(first) = deleted.first() {
                let change = Change::new("content.deleted", first).with(json!({"generation_ids": deleted}));
                append_audit!(transaction, tenant.organisation, by, change);
                transaction.commit().await?;
            }
            Ok(deleted.len() as u64)
        })?;
        if deleted > 0 {
            self.forget_overwritten().await;
        }
        Ok(deleted)
    }

    /// Takes at most so much of what was said before an instant away, oldest first; when fewer went, none is left.
    pub async fn purge_contents(&self, before: Timestamp, at_most: u32) -> Result<u64> {
        on_writer!(self, pool => {
            let gone = sqlx::query(
                "DELETE FROM generation_contents WHERE generation_id IN \
                 (SELECT generation_id FROM generation_contents WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
            )
            .bind(before.0)
            .bind(i64::from(at_most))
            .execute(pool)
            .await?;
            Ok(gone.rows_affected())
        })
    }
}
