//! People who sign in: of a session is stored that it began, and that it was ended before its time.

use tidegate_core::{KeyHash, Tenant, Timestamp};

use crate::audit::{By, Change, append_audit};
use crate::{Result, Store, dialect};

impl Store {
    /// Notes that somebody signed in with a key.
    pub async fn note_sign_in(&self, tenant: &Tenant, by: &By, key: &KeyHash) -> Result<()> {
        let target = key.to_hex();
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            append_audit!(transaction, tenant.organisation, by, Change::new("session.started", &target));
            Ok(transaction.commit().await?)
        })
    }

    /// Ends a session that would have lasted until then; those that are over by now are forgotten.
    pub async fn end_session(&self, tenant: &Tenant, digest: &KeyHash, until: Timestamp, now: Timestamp) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query("DELETE FROM ended_sessions WHERE organisation_id = $1 AND until <= $2")
                .bind(&*tenant.organisation.0)
                .bind(now.0)
                .execute(&mut *transaction)
                .await?;
            sqlx::query(
                "INSERT INTO ended_sessions (organisation_id, digest, until) VALUES ($1, $2, $3) \
                 ON CONFLICT (organisation_id, digest) DO NOTHING",
            )
            .bind(&*tenant.organisation.0)
            .bind(digest.to_hex())
            .bind(until.0)
            .execute(&mut *transaction)
            .await?;
            Ok(transaction.commit().await?)
        })
    }

    /// Whether a session was ended before its time, on whichever gateway.
    pub async fn is_session_ended(&self, tenant: &Tenant, digest: &KeyHash) -> Result<bool> {
        let found: Option<i64> = on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT until FROM ended_sessions WHERE organisation_id = $1 AND digest = $2")
                .bind(&*tenant.organisation.0)
                .bind(digest.to_hex())
                .fetch_optional(pool)
                .await?)
        })?;
        Ok(found.is_some())
    }
}
