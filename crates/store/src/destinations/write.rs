//! Destinations come, change and go.

use serde_json::json;
use tidegate_core::Tenant;

use super::{
    Changed, DESTINATIONS_CHANGED, DestinationChange, DestinationRow, NewDestination, Raw, select_destinations,
};
use crate::audit::{By, Change, append_audit};
use crate::credentials::HOLD_CREDENTIALS;
use crate::{Refused, Result, Store, StoreError, dialect};

/// Of one type in a workspace.
const MOST_OF_A_KIND: i64 = 5;

impl Store {
    /// Makes a destination. [`StoreError::Conflict`] when the workspace has one with this name.
    pub async fn create_destination(
        &self,
        tenant: &Tenant,
        by: &By,
        new: NewDestination<'_>,
    ) -> Result<DestinationRow> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            // As long as this is held, no master key is given up.
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            let count: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM destinations \
                 WHERE organisation_id = $1 AND workspace_id = $2 AND kind = $3 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*new.workspace.0)
            .bind(&new.kind)
            .fetch_one(&mut *transaction)
            .await?;
            if count >= MOST_OF_A_KIND {
                return Err(Refused::TooManyDestinations.into());
            }
            let sealed = new.config.sealed(&new.id).await?;
            let inserted = sqlx::query(
                "INSERT INTO destinations (id, organisation_id, workspace_id, kind, name, enabled, settings, sealed, \
                 created_at, updated_at) SELECT $1, organisation_id, id, $4, $5, $6, $7, $8, $9, $9 \
                 FROM workspaces WHERE organisation_id = $2 AND id = $3 AND deleted_at IS NULL",
            )
            .bind(&new.id)
            .bind(&*tenant.organisation.0)
            .bind(&*new.workspace.0)
            .bind(&new.kind)
            .bind(&new.name)
            .bind(new.enabled)
            .bind(new.settings.text())
            .bind(&sealed)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            if inserted.rows_affected() == 0 {
                return Err(StoreError::Missing);
            }
            let row = DestinationRow {
                id: new.id,
                organisation: tenant.organisation.clone(),
                workspace: new.workspace,
                kind: new.kind,
                name: new.name,
                enabled: new.enabled,
                settings: new.settings,
                sealed,
                created: by.at,
                updated: by.at,
            };
            let mut values = row.logged(new.logged);
            values["type"] = json!(row.kind);
            values["workspace_id"] = json!(&*row.workspace.0);
            append_audit!(transaction, tenant.organisation, by, Change::new("destination.created", &row.id).with(values));
            transaction.commit().await?;
            Ok(row)
        })
    }

    /// Changes a destination as it is now, all of it or nothing. A change that changes nothing leaves no trace.
    pub async fn change_destination(
        &self,
        tenant: &Tenant,
        by: &By,
        id: &str,
        change: &DestinationChange<'_>,
    ) -> Result<Changed> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            if change.config.is_some() {
                sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            }
            sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            let found: Option<Raw> =
                sqlx::query_as(concat!(select_destinations!(), " AND organisation_id = $1 AND id = $2"))
                    .bind(&*tenant.organisation.0)
                    .bind(id)
                    .fetch_optional(&mut *transaction)
                    .await?;
            let Some(old) = found else { return Ok(Changed::Missing) };
            let old = DestinationRow::try_from(old)?;
            // No two seals are alike, so this is a revision of it.
            if change.config.as_ref().is_some_and(|config| config.before != old.sealed) {
                return Ok(Changed::Outrun);
            }
            let new = change.applied_to(&old, by.at).await?;
            let is_same = (&new.name, new.enabled, &new.settings) == (&old.name, old.enabled, &old.settings);
            if is_same && change.config.is_none() {
                return Ok(Changed::Done(Box::new(old)));
            }
            sqlx::query(
                "UPDATE destinations SET name = $3, enabled = $4, settings = $5, sealed = COALESCE($6, sealed), \
                 updated_at = $7 WHERE organisation_id = $1 AND id = $2",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .bind(&new.name)
            .bind(new.enabled)
            .bind(new.settings.text())
            .bind(change.config.as_ref().map(|_| &new.sealed))
            .bind(new.updated.0)
            .execute(&mut *transaction)
            .await?;
            let (before, after) = change.config.as_ref().map(|config| config.logged.clone()).unwrap_or_default();
            let values = Change::new("destination.updated", id).between(&old.logged(before), &new.logged(after));
            append_audit!(transaction, tenant.organisation, by, values);
            transaction.commit().await?;
            Ok(Changed::Done(Box::new(new)))
        })
    }

    /// Takes a destination away; its secrets are gone with that. False when there is none.
    pub async fn delete_destination(&self, tenant: &Tenant, by: &By, id: &str) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            let gone = sqlx::query(
                "UPDATE destinations SET deleted_at = $3, sealed = NULL \
                 WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            if gone.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit!(transaction, tenant.organisation, by, Change::new("destination.deleted", id));
            transaction.commit().await?;
            Ok(true)
        })
    }
}
