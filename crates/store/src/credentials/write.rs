//! Credentials come, change and go.

use serde_json::{Value, json};
use tidegate_core::Tenant;
use tokio::time::{Instant, timeout_at};

use super::change::{CredentialChange, NewCredential, NewSecret};
use super::order::{Move, last_place, make_room, moved, those_between};
use super::row::{CredentialRow, RawCredential, hashes, one_credential, select_credentials, texts};
use super::{MOST_CREDENTIALS, NEXT_CHANGE, TAKE_CHANGES};
use crate::audit::{By, Change, append_audit};
use crate::error::{Outrun, TimedOut};
use crate::keys::HOLD_KEYS;
use crate::vault::{Sealed, VaultError};
use crate::{LOCK_WAIT, Refused, Result, Store, StoreError, dialect};

/// What became of a try.
enum Tried {
    Done(Option<Box<CredentialRow>>),
    /// Somebody else was quicker.
    Lost,
}

impl Store {
    /// Seals and stores a credential in a live workspace of the tenant, behind the others of its section.
    pub async fn create_credential(&self, tenant: &Tenant, by: &By, new: &NewCredential<'_>) -> Result<CredentialRow> {
        let row = new.row(&tenant.organisation, by.at)?;
        on_writer!(self, pool => {
            let mut row = row;
            let mut transaction = dialect::begin(pool).await?;
            row.change_seq = take_number!(transaction, new.settings.keys());
            check_keys!(transaction, tenant, new.settings.keys());
            let live: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM credentials \
                 WHERE organisation_id = $1 AND workspace_id = $2 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*row.workspace.0)
            .fetch_one(&mut *transaction)
            .await?;
            if live >= MOST_CREDENTIALS {
                return Err(Refused::TooManyCredentials.into());
            }
            row.sort_order = last_place!(transaction, row);
            let sealed = seal(&row, &new.secret).await?;
            let inserted = sqlx::query(
                "INSERT INTO credentials (id, organisation_id, workspace_id, provider, name, label, disabled, \
                 is_fallback, is_required, is_byok_only, declared_region, declared_zdr, allowed_models, \
                 allowed_user_ids, allowed_api_key_hashes, sort_order, destination, seal_version, master_key_id, \
                 wrapped_key, ciphertext, revision, change_seq, created_at) \
                 SELECT $1, organisation_id, id, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
                 $19, $20, $21, $22, $23, $24 \
                 FROM workspaces WHERE organisation_id = $2 AND id = $3 AND deleted_at IS NULL",
            )
            .bind(&*row.id)
            .bind(&*row.organisation.0)
            .bind(&*row.workspace.0)
            .bind(&*row.provider)
            .bind(&row.name)
            .bind(&row.label)
            .bind(row.disabled)
            .bind(row.is_fallback)
            .bind(row.is_required)
            .bind(row.is_byok_only)
            .bind(&row.declared_region)
            .bind(row.declared_zdr)
            .bind(texts(&row.allowed_models))
            .bind(texts(&row.allowed_users))
            .bind(hashes(&row.allowed_keys))
            .bind(row.sort_order)
            .bind(&row.destination)
            .bind(sealed.version)
            .bind(&*sealed.master_key)
            .bind(&sealed.wrapped_key)
            .bind(&sealed.ciphertext)
            .bind(row.revision)
            .bind(row.change_seq)
            .bind(row.created.0)
            .execute(&mut *transaction)
            .await?;
            if inserted.rows_affected() == 0 {
                return Err(StoreError::Missing);
            }
            row.sealed = Some(sealed);
            append_audit!(transaction, tenant.organisation, by, Change::new("byok.created", &row.id).with(made(&row)));
            transaction.commit().await?;
            Ok(row)
        })
    }

    /// Changes a live credential, all of it or nothing; `None` when the tenant has no such one. A change that changes
    /// nothing leaves no trace; a new secret is always a change.
    pub async fn update_credential(
        &self,
        tenant: &Tenant,
        by: &By,
        id: &str,
        change: &CredentialChange<'_>,
    ) -> Result<Option<CredentialRow>> {
        // One limit for the waiting of all tries. Only a lost race is tried again: who waited for a lock in vain has
        // waited as long as a caller should.
        let until = Instant::now() + LOCK_WAIT;
        let row = loop {
            match Box::pin(self.try_update(tenant, by, id, change, until)).await? {
                Tried::Done(row) => break row,
                Tried::Lost if Instant::now() < until => {}
                Tried::Lost => return Err(StoreError::Busy(Box::new(Outrun))),
            }
        };
        if row.is_some() && change.secret.is_some() {
            self.forget_overwritten().await;
        }
        Ok(row.map(|row| *row))
    }

    async fn try_update(
        &self,
        tenant: &Tenant,
        by: &By,
        id: &str,
        change: &CredentialChange<'_>,
        until: Instant,
    ) -> Result<Tried> {
        on_writer!(self, pool => {
            // Nothing is written before the number is taken, so nothing is lost when the waiting ends here.
            let waited = timeout_at(until, async {
                let mut transaction = dialect::begin(pool).await?;
                let change_seq: i64 = take_number!(transaction, change.settings.keys());
                Result::Ok((transaction, change_seq))
            });
            let (mut transaction, change_seq) = waited.await.map_err(|_| StoreError::Busy(Box::new(TimedOut)))??;
            let found: Option<RawCredential> = sqlx::query_as(concat!(select_credentials!(), one_credential!()))
                .bind(&*tenant.organisation.0)
                .bind(id)
                .fetch_optional(&mut *transaction)
                .await?;
            let Some(old) = found else { return Ok(Tried::Done(None)) };
            let old = CredentialRow::try_from(old)?;
            let mut new = change.settings.applied_to(old.clone())?;
            check_keys!(transaction, tenant, change.settings.keys());
            let is_moved = change.sort_order.is_some() || old.is_fallback != new.is_fallback;
            let end: i64 = if is_moved { last_place!(transaction, new) } else { 0 };
            let mut shifted = None;
            match moved(&old, &new, change.sort_order, end) {
                Move::Stays => {}
                Move::ToEnd => new.sort_order = end,
                Move::To(place, shift) => {
                    let others: Vec<String> = make_room!(transaction, new, shift, by.at);
                    shifted = (!others.is_empty()).then(|| json!({"by": shift.by, "ids": others}));
                    new.sort_order = place;
                }
            }
            if let Some(secret) = &change.secret {
                new.label.clone_from(&secret.label);
                new.destination.clone_from(&secret.destination);
                new.sealed = Some(seal(&new, secret).await?);
            } else if old.settings() == new.settings() {
                return Ok(Tried::Done(Some(Box::new(old))));
            }
            new.revision += 1;
            new.updated = Some(by.at);
            new.change_seq = change_seq;
            let sealed = new.sealed.as_ref();
            // One statement for all of it: nobody ever sees the label of one secret with another.
            let written = sqlx::query(
                "UPDATE credentials SET name = $4, label = $5, disabled = $6, is_fallback = $7, is_required = $8, \
                 is_byok_only = $9, declared_region = $10, declared_zdr = $11, allowed_models = $12, \
                 allowed_user_ids = $13, allowed_api_key_hashes = $14, sort_order = $15, destination = $16, \
                 seal_version = $17, master_key_id = $18, wrapped_key = $19, ciphertext = $20, revision = $21, \
                 change_seq = $22, updated_at = $23 \
                 WHERE organisation_id = $1 AND id = $2 AND revision = $3 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .bind(old.revision)
            .bind(&new.name)
            .bind(&new.label)
            .bind(new.disabled)
            .bind(new.is_fallback)
            .bind(new.is_required)
            .bind(new.is_byok_only)
            .bind(&new.declared_region)
            .bind(new.declared_zdr)
            .bind(texts(&new.allowed_models))
            .bind(texts(&new.allowed_users))
            .bind(hashes(&new.allowed_keys))
            .bind(new.sort_order)
            .bind(&new.destination)
            .bind(sealed.map_or(0, |sealed| sealed.version))
            .bind(sealed.map(|sealed| &*sealed.master_key))
            .bind(sealed.map(|sealed| &*sealed.wrapped_key))
            .bind(sealed.map(|sealed| &*sealed.ciphertext))
            .bind(new.revision)
            .bind(new.change_seq)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            if written.rows_affected() == 0 {
                return Ok(Tried::Lost);
            }
            append_audit!(transaction, tenant.organisation, by, changed(&old, &new, change.secret.is_some(), shifted));
            transaction.commit().await?;
            Ok(Tried::Done(Some(Box::new(new))))
        })
    }

    /// Deletes a credential; false when the tenant has no such one. Its secret goes at once, the row stays.
    pub async fn delete_credential(&self, tenant: &Tenant, by: &By, id: &str) -> Result<bool> {
        let deleted = on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let change_seq: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
            let gone: Option<(String, Option<String>)> = sqlx::query_as(
                "UPDATE credentials SET ciphertext = NULL, wrapped_key = NULL, master_key_id = NULL, \
                 revision = revision + 1, change_seq = $3, deleted_at = $4 \
                 WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL RETURNING provider, name",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .bind(change_seq)
            .bind(by.at.0)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some((provider, name)) = gone else { return Ok(false) };
            let old = json!({"provider": provider, "name": name});
            let change = Change { old: Some(old), ..Change::new("byok.deleted", id) };
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(true)
        })?;
        if deleted {
            self.forget_overwritten().await;
        }
        Ok(deleted)
    }
}

/// The next number; where keys are named, those stand still from here to the end of the transaction. Their lock comes
/// first, as it does for everybody who takes both.
macro_rules! take_number {
    ($transaction:ident, $keys:expr) => {{
        if !$keys.is_empty() {
            sqlx::query(HOLD_KEYS).execute(&mut *$transaction).await?;
        }
        let number: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *$transaction).await?;
        number
    }};
}
use take_number;

/// Leaves the function when a key is not a live one of the tenant, or one with which no model can be called.
macro_rules! check_keys {
    ($transaction:ident, $tenant:expr, $keys:expr) => {
        for key in $keys {
            let live: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM api_keys \
                 WHERE organisation_id = $1 AND hash = $2 AND kind = 'inference' AND deleted_at IS NULL",
            )
            .bind(&*$tenant.organisation.0)
            .bind(key.to_hex())
            .fetch_one(&mut *$transaction)
            .await?;
            if live == 0 {
                return Err(Refused::UnknownKey.into());
            }
        }
    };
}
use check_keys;

/// Seals under the ring as it is now, not as it was when this process last read it.
async fn seal(row: &CredentialRow, new: &NewSecret<'_>) -> Result<Sealed> {
    new.vault.refresh_if_changed().await.map_err(VaultError::from)?;
    Ok(new.vault.seal(&row.binding(), new.secret)?)
}

fn made(row: &CredentialRow) -> Value {
    let mut made = row.settings();
    made["provider"] = json!(&*row.provider);
    made["workspace_id"] = json!(&*row.workspace.0);
    made["label"] = json!(row.label);
    made
}

/// `shifted`: those that made room for it, and by how much.
fn changed<'a>(old: &'a CredentialRow, new: &CredentialRow, rotated: bool, shifted: Option<Value>) -> Change<'a> {
    let action = if rotated { "byok.rotated" } else { "byok.updated" };
    let mut change = Change::new(action, &old.id).between(&old.settings(), &new.settings());
    if rotated {
        for values in [&mut change.old, &mut change.new].into_iter().flatten() {
            values["key"] = json!("[changed]");
        }
    }
    if let (Some(values), Some(shifted)) = (&mut change.new, shifted) {
        values["shifted"] = shifted;
    }
    change
}
