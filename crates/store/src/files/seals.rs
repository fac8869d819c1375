//! What concerns the contents of all files at once: another master key, and whether each opens.

use serde_json::json;
use tidegate_core::{FileId, Tenant, WorkspaceId};

use super::binding;
use crate::audit::{By, Change, append_audit};
use crate::credentials::{Failed, HOLD_CREDENTIALS, Rewrapped, Verified};
use crate::vault::{Sealed, Vault, VaultError};
use crate::{Result, Store, dialect};

/// Files wrapped again in one transaction.
const BATCH: i64 = 100;

/// Files found at a time when each is opened.
const PAGE: i64 = 100;

type Wrapped = (String, String, i64, String, Vec<u8>);

impl Store {
    /// Wraps the data keys of the next files behind `after` under the active master key, as
    /// [`Store::rewrap_credentials`] does. What the files hold is not read.
    pub async fn rewrap_files(&self, tenant: &Tenant, by: &By, vault: &Vault, after: &str) -> Result<Rewrapped> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            vault.refresh_if_changed().await.map_err(VaultError::from)?;
            let active = vault.active_id();
            let page: Vec<Wrapped> = sqlx::query_as(
                "SELECT id, workspace_id, seal_version, master_key_id, wrapped_key FROM files \
                 WHERE organisation_id = $1 AND id > $2 AND master_key_id <> $3 ORDER BY id LIMIT $4",
            )
            .bind(&*tenant.organisation.0)
            .bind(after)
            .bind(&*active)
            .bind(BATCH)
            .fetch_all(&mut *transaction)
            .await?;
            let is_last = (page.len() as i64) < BATCH;
            let mut done = Rewrapped::default();
            for (id, workspace, version, master_key, wrapped_key) in page {
                let old = Sealed { version, master_key: master_key.into(), wrapped_key, ciphertext: Vec::new() };
                match vault.rewrap(&binding(&id, &workspace), &old) {
                    Ok(Some(new)) => {
                        sqlx::query(
                            "UPDATE files SET master_key_id = $3, wrapped_key = $4 \
                             WHERE organisation_id = $1 AND id = $2",
                        )
                        .bind(&*tenant.organisation.0)
                        .bind(&id)
                        .bind(&*new.master_key)
                        .bind(&new.wrapped_key)
                        .execute(&mut *transaction)
                        .await?;
                        done.count += 1;
                    }
                    Ok(None) => {}
                    Err(error) => done.failed.push(Failed { id: id.clone(), error }),
                }
                done.next = Some(id);
            }
            if is_last {
                done.next = None;
            }
            if done.count > 0 {
                let values = json!({"count": done.count, "master_key": &*active});
                append_audit!(
                    transaction,
                    tenant.organisation,
                    by,
                    Change::new("files.rewrapped", &active).with(values)
                );
                transaction.commit().await?;
            }
            Ok(done)
        })
    }

    /// Opens what every file of the tenant holds.
    pub async fn verify_files(&self, tenant: &Tenant, vault: &Vault) -> Result<Verified> {
        let mut verified = Verified::default();
        let mut after = String::new();
        loop {
            let page: Vec<(String, String)> = on_reader!(self, pool => {
                Ok(sqlx::query_as(
                    "SELECT id, workspace_id FROM files WHERE organisation_id = $1 AND id > $2 ORDER BY id LIMIT $3",
                )
                .bind(&*tenant.organisation.0)
                .bind(&after)
                .bind(PAGE)
                .fetch_all(pool)
                .await?)
            })?;
            let Some((last, _)) = page.last() else { return Ok(verified) };
            after.clone_from(last);
            for (id, workspace) in page {
                let Some(file) = FileId::parse(&id) else { continue };
                // One that went meanwhile has nothing to open.
                let Some(sealed) = self.sealed_file(&file).await? else { continue };
                verified.count += 1;
                let workspace = WorkspaceId(workspace.into());
                if let Err(error) = vault.open(&binding(&id, &workspace.0), &sealed) {
                    verified.failed.push(Failed { id, error });
                }
            }
        }
    }
}
