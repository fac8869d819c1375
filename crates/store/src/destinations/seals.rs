//! What concerns what all destinations hold: sealing it under another master key, and opening it to see that it opens.

use super::DESTINATIONS_CHANGED;
use crate::credentials::{Failed, HOLD_CREDENTIALS, Rewrapped, Verified};
use crate::vault::{Vault, VaultError};
use crate::{Result, Store, dialect};

impl Store {
    /// Seals all destinations of everyone under the active master key. How many were not, and those that no key opens.
    pub async fn reseal_destinations(&self, vault: &Vault, label: &str) -> Result<Rewrapped> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            // Servers load them again, and the ring with them. Before any row is taken, as everybody does who changes one.
            sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            vault.refresh_if_changed().await.map_err(VaultError::from)?;
            let rows: Vec<(String, Vec<u8>)> =
                sqlx::query_as("SELECT id, sealed FROM destinations WHERE sealed IS NOT NULL ORDER BY id")
                    .fetch_all(&mut *transaction)
                    .await?;
            let mut done = Rewrapped::default();
            for (id, sealed) in rows {
                match vault.reseal_blob(label, id.as_bytes(), &sealed) {
                    Ok(None) => {}
                    Ok(Some(sealed)) => {
                        sqlx::query("UPDATE destinations SET sealed = $2 WHERE id = $1 AND sealed IS NOT NULL")
                            .bind(&id)
                            .bind(sealed)
                            .execute(&mut *transaction)
                            .await?;
                        done.count += 1;
                    }
                    Err(error) => done.failed.push(Failed { id, error }),
                }
            }
            if done.count > 0 {
                transaction.commit().await?;
            }
            Ok(done)
        })
    }

    /// Opens what every destination of everyone holds.
    pub async fn verify_destinations(&self, vault: &Vault, label: &str) -> Result<Verified> {
        let rows = self.sealed_destinations().await?;
        let mut verified = Verified { count: rows.len() as u64, ..Verified::default() };
        let broken = rows.into_iter().filter(|(id, sealed)| vault.open_blob(label, id.as_bytes(), sealed).is_none());
        verified.failed = broken.map(|(id, _)| Failed { id, error: VaultError::Broken }).collect();
        Ok(verified)
    }

    /// What every destination of everyone holds, by their ids.
    pub(crate) async fn sealed_destinations(&self) -> Result<Vec<(String, Vec<u8>)>> {
        on_reader!(self, pool => {
            Ok(sqlx::query_as("SELECT id, sealed FROM destinations WHERE sealed IS NOT NULL ORDER BY id")
                .fetch_all(pool)
                .await?)
        })
    }
}
