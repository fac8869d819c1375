//! What concerns all sealed secrets at once: wrapping them under another master key, opening each to see that it opens,
//! and giving up master keys that nothing is sealed under any more.

use std::collections::BTreeMap;

use serde_json::json;
use tidegate_core::Tenant;

use super::row::{CredentialRow, RawCredential, select_credentials};
use super::{HOLD_CREDENTIALS, TAKE_CHANGES};
use crate::audit::{By, Change, append_audit};
use crate::meta::{self, FIND_CHECK};
use crate::vault::{RingError, Vault, VaultError};
use crate::{Result, Store, dialect};

/// Credentials wrapped again in one transaction: each is a statement of its own, and nobody else changes a credential
/// meanwhile.
const BATCH: i64 = 100;

/// Credentials read at a time when each is opened.
const PAGE: i64 = 500;

/// A secret that does not open, and why.
#[derive(Debug)]
pub struct Failed {
    pub id: String,
    pub error: VaultError,
}

/// What one batch did.
#[derive(Debug, Default)]
pub struct Rewrapped {
    pub count: u64,
    pub failed: Vec<Failed>,
    /// Where the next batch goes on; `None` when there is none.
    pub next: Option<String>,
}

/// What a look at every secret found.
#[derive(Debug, Default)]
pub struct Verified {
    pub count: u64,
    pub failed: Vec<Failed>,
}

impl Store {
    /// How many of the tenant's credentials and files are sealed under another master key than the active one.
    pub async fn count_to_rewrap(&self, tenant: &Tenant, vault: &Vault) -> Result<u64> {
        let active = vault.active_id();
        let count: i64 = on_reader!(self, pool => {
            Ok(sqlx::query_scalar(
                "SELECT (SELECT COUNT(*) FROM credentials \
                 WHERE organisation_id = $1 AND master_key_id <> $2 AND ciphertext IS NOT NULL) + \
                 (SELECT COUNT(*) FROM files WHERE organisation_id = $1 AND master_key_id <> $2)",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*active)
            .fetch_one(pool)
            .await?)
        })?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// How much of anyone is sealed under each master key: credentials, files, and what destinations hold, which alone does
    /// not say under which it is and has a `label` of its own.
    pub async fn count_by_master_key(&self, vault: &Vault, label: &str) -> Result<BTreeMap<String, i64>> {
        let counts: Vec<(String, i64)> = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT master_key_id, CAST(SUM(number) AS BIGINT) FROM ( \
                 SELECT master_key_id, COUNT(*) AS number FROM credentials \
                 WHERE master_key_id IS NOT NULL AND ciphertext IS NOT NULL GROUP BY master_key_id \
                 UNION ALL SELECT master_key_id, COUNT(*) FROM files GROUP BY master_key_id) AS sealed \
                 GROUP BY master_key_id",
            )
            .fetch_all(pool)
            .await?)
        })?;
        let mut counts: BTreeMap<String, i64> = counts.into_iter().collect();
        for (id, sealed) in self.sealed_destinations().await? {
            if let Some(key) = vault.key_of_blob(label, id.as_bytes(), &sealed) {
                *counts.entry(key.into()).or_default() += 1;
            }
        }
        Ok(counts)
    }

    /// How much of what was said in requests of anyone is sealed under each master key. It may be very much, and take as
    /// long as a statement may.
    pub async fn count_contents_by_master_key(&self) -> Result<BTreeMap<String, i64>> {
        let counts: Vec<(String, i64)> = on_reader!(self, pool => {
            Ok(sqlx::query_as("SELECT master_key_id, COUNT(*) FROM generation_contents GROUP BY master_key_id")
                .fetch_all(pool)
                .await?)
        })?;
        Ok(counts.into_iter().collect())
    }

    /// Wraps the data keys of the next credentials behind `after` under the active master key, all of them or none. The
    /// secrets are not decrypted. What was done stays done: a run that was cut short goes on where it was.
    pub async fn rewrap_credentials(&self, tenant: &Tenant, by: &By, vault: &Vault, after: &str) -> Result<Rewrapped> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            // Another rotation may have been quicker, and have given up the key that was active a moment ago.
            vault.refresh_if_changed().await.map_err(VaultError::from)?;
            let active = vault.active_id();
            let page: Vec<RawCredential> = sqlx::query_as(concat!(
                select_credentials!(),
                " WHERE organisation_id = $1 AND id > $2 AND master_key_id <> $3 AND ciphertext IS NOT NULL",
                " ORDER BY id LIMIT $4"
            ))
            .bind(&*tenant.organisation.0)
            .bind(after)
            .bind(&*active)
            .bind(BATCH)
            .fetch_all(&mut *transaction)
            .await?;
            let is_last = (page.len() as i64) < BATCH;
            let mut done = Rewrapped::default();
            let mut wrapped = Vec::with_capacity(page.len());
            for raw in page {
                let row = CredentialRow::try_from(raw)?;
                let Some(old) = &row.sealed else { continue };
                done.next = Some(row.id.to_string());
                match vault.rewrap(&row.binding(), old) {
                    Ok(Some(new)) => wrapped.push((row.id, new)),
                    Ok(None) => {}
                    // One that does not open must not keep the others under the old key.
                    Err(error) => done.failed.push(Failed { id: row.id.to_string(), error }),
                }
            }
            done.count = wrapped.len() as u64;
            let last: i64 = sqlx::query_scalar(TAKE_CHANGES)
                .bind(i64::try_from(wrapped.len()).unwrap_or(0))
                .fetch_one(&mut *transaction)
                .await?;
            for ((id, new), change_seq) in wrapped.iter().rev().zip((0..=last).rev()) {
                // The secret is the same, so the revision is. It cannot have been replaced since it was read: whoever
                // does that needs the lock that is held here.
                sqlx::query(
                    "UPDATE credentials SET master_key_id = $3, wrapped_key = $4, change_seq = $5 \
                     WHERE organisation_id = $1 AND id = $2",
                )
                .bind(&*tenant.organisation.0)
                .bind(&**id)
                .bind(&*new.master_key)
                .bind(&new.wrapped_key)
                .bind(change_seq)
                .execute(&mut *transaction)
                .await?;
            }
            if is_last {
                done.next = None;
            }
            if done.count > 0 {
                let values = json!({"count": done.count, "master_key": &*active});
                let change = Change::new("secrets.rewrapped", &active).with(values);
                append_audit!(transaction, tenant.organisation, by, change);
                transaction.commit().await?;
            }
            Ok(done)
        })
    }

    /// Opens every secret of the tenant; `progress` hears how many were opened.
    pub async fn verify_credentials(
        &self,
        tenant: &Tenant,
        vault: &Vault,
        mut progress: impl FnMut(u64),
    ) -> Result<Verified> {
        let mut verified = Verified::default();
        let mut after = String::new();
        loop {
            let page = self.sealed_page(tenant, &after).await?;
            let Some(last) = page.last() else { return Ok(verified) };
            after = last.id.to_string();
            for row in page {
                verified.count += 1;
                if let Err(error) = self.opens(tenant, vault, &row).await? {
                    verified.failed.push(Failed { id: row.id.to_string(), error });
                }
            }
            progress(verified.count);
        }
    }

    /// Whether a secret opens. One that does not is looked at again with the ring and the row of this moment: both may
    /// have changed since they were read.
    async fn opens(
        &self,
        tenant: &Tenant,
        vault: &Vault,
        row: &CredentialRow,
    ) -> Result<std::result::Result<(), VaultError>> {
        let open = |row: &CredentialRow| match &row.sealed {
            Some(sealed) => vault.open(&row.binding(), sealed).map(drop),
            None => Err(VaultError::DoesNotOpen),
        };
        if open(row).is_ok() {
            return Ok(Ok(()));
        }
        if let Err(error) = vault.refresh().await {
            return Ok(Err(error.into()));
        }
        let now = self.find_credential(tenant, &row.id).await?;
        Ok(now.as_ref().map_or(Ok(()), open))
    }

    async fn sealed_page(&self, tenant: &Tenant, after: &str) -> Result<Vec<CredentialRow>> {
        let page: Vec<RawCredential> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_credentials!(),
                " WHERE organisation_id = $1 AND id > $2 AND deleted_at IS NULL ORDER BY id LIMIT $3"
            ))
            .bind(&*tenant.organisation.0)
            .bind(after)
            .bind(PAGE)
            .fetch_all(pool)
            .await?)
        })?;
        page.into_iter().map(CredentialRow::try_from).collect()
    }

    /// Any live credential, whoever it belongs to: what a ring is tried on where no check record is.
    pub async fn any_credential(&self) -> Result<Option<CredentialRow>> {
        let raw: Option<RawCredential> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_credentials!(), " WHERE deleted_at IS NULL LIMIT 1"))
                .fetch_optional(pool)
                .await?)
        })?;
        raw.map(CredentialRow::try_from).transpose()
    }

    /// Hands those of the master keys that nothing of anyone is sealed under to `remove`, and returns them. As long as
    /// that takes, nothing can be sealed: whoever seals next finds the ring without them.
    pub async fn give_up_master_keys(
        &self,
        ids: &[Box<str>],
        remove: impl FnOnce(&[&str]) -> std::result::Result<(), RingError>,
    ) -> Result<Vec<Box<str>>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            let check: Option<String> = sqlx::query_scalar(FIND_CHECK).fetch_optional(&mut *transaction).await?;
            let check = check.as_deref().map(meta::read).transpose()?;
            let used: Vec<String> = sqlx::query_scalar(
                "SELECT master_key_id FROM credentials WHERE master_key_id IS NOT NULL AND ciphertext IS NOT NULL \
                 UNION SELECT master_key_id FROM generation_contents UNION SELECT master_key_id FROM files",
            )
            .fetch_all(&mut *transaction)
            .await?;
            let is_used = |id: &str| {
                used.iter().any(|used| *used == *id) || check.as_ref().is_some_and(|check| *check.master_key == *id)
            };
            let unused: Vec<&str> = ids.iter().map(|id| &**id).filter(|id| !is_used(id)).collect();
            remove(&unused).map_err(VaultError::from)?;
            transaction.commit().await?;
            Ok(unused.into_iter().map(Into::into).collect())
        })
    }
}
