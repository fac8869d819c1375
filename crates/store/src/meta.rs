//! What the whole deployment has once: the check record, which tells the right ring of master keys from any other.

use crate::credentials::HOLD_CREDENTIALS;
use crate::error::Unreadable;
use crate::vault::{CHECK, Sealed, Vault, VaultError};
use crate::{Result, Store, dialect};

pub(crate) const FIND_CHECK: &str = "SELECT value FROM meta WHERE name = 'vault_check'";

impl Store {
    /// The check record; `None` before the first start is over.
    pub async fn vault_check(&self) -> Result<Option<Sealed>> {
        let text: Option<String> = on_reader!(self, pool => {
            Ok(sqlx::query_scalar(FIND_CHECK).fetch_optional(pool).await?)
        })?;
        text.as_deref().map(read).transpose()
    }

    /// Stores the check record if there is none, and returns the one that is there: of several nodes that start
    /// together, one is first.
    pub async fn keep_vault_check(&self, check: &Sealed) -> Result<Sealed> {
        let text: String = on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query("INSERT INTO meta (name, value) VALUES ('vault_check', $1) ON CONFLICT (name) DO NOTHING")
                .bind(check.to_text())
                .execute(&mut *transaction)
                .await?;
            let text = sqlx::query_scalar(FIND_CHECK).fetch_one(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(text)
        })?;
        read(&text)
    }

    /// Whether the vault's ring is the one that everything here is sealed with. A store without a check record gets one,
    /// unless it holds secrets that the ring does not open.
    pub async fn is_ring_right(&self, vault: &Vault) -> Result<bool> {
        if let Some(check) = self.vault_check().await? {
            return Ok(vault.is_ours(&check) || self.is_ring_right_now(vault).await?);
        }
        let opens = match self.any_credential().await? {
            Some(row) => row.sealed.as_ref().is_some_and(|sealed| vault.open(&row.binding(), sealed).is_ok()),
            None => true,
        };
        Ok(opens && vault.is_ours(&self.keep_vault_check(&vault.check()).await?))
    }

    /// The second look: a rotation may have gone on between the reading of the ring and of the record.
    async fn is_ring_right_now(&self, vault: &Vault) -> Result<bool> {
        let check = self.vault_check().await?;
        vault.refresh().await.map_err(VaultError::from)?;
        Ok(check.is_some_and(|check| vault.is_ours(&check)))
    }

    /// Wraps the check record under the active master key. Nothing happens when it already is, or when there is none.
    pub async fn rewrap_vault_check(&self, vault: &Vault) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            let old: Option<String> = sqlx::query_scalar(FIND_CHECK).fetch_optional(&mut *transaction).await?;
            let Some(old) = old else { return Ok(()) };
            vault.refresh_if_changed().await.map_err(VaultError::from)?;
            let Some(new) = vault.rewrap(&CHECK, &read(&old)?)? else { return Ok(()) };
            sqlx::query("UPDATE meta SET value = $1 WHERE name = 'vault_check'")
                .bind(new.to_text())
                .execute(&mut *transaction)
                .await?;
            transaction.commit().await?;
            Ok(())
        })
    }
}

pub(crate) fn read(text: &str) -> Result<Sealed> {
    Ok(Sealed::from_text(text).ok_or(Unreadable { table: "meta", column: "value" })?)
}
