//! Organisations and the first start, which makes the first one.

use std::sync::Arc;

use tidegate_core::{GenerationId, OrganisationId, Timestamp, WorkspaceId};

use crate::audit::{By, Change, append_audit};
use crate::keys::{self, KeyRow, NEXT_CHANGE, NewKey, insert_key};
use crate::workspaces::{self, DEFAULT_SLUG};
use crate::{Result, Store, dialect};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Organisation {
    pub id: OrganisationId,
    pub name: String,
    pub created: Timestamp,
}

/// What an empty store is to be filled with.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    pub organisation_name: String,
    pub workspace_name: String,
    pub keys: Vec<NewKey>,
}

/// What the first start made.
#[derive(Clone, Debug)]
pub struct Bootstrapped {
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub keys: Vec<KeyRow>,
}

impl Store {
    /// Fills an empty store: one organisation, its default workspace and the given keys, all or nothing. `None` when
    /// there is an organisation already; of several processes that try at once, one gets `Some`.
    pub async fn bootstrap(&self, now: Timestamp, first: Bootstrap) -> Result<Option<Bootstrapped>> {
        let organisation = OrganisationId(format!("org_{}", &GenerationId::new(now).as_str()[4..]).into());
        let workspace = workspaces::new_id(now);
        let changes: Option<Vec<i64>> = on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            // The number's lock comes before the question, so whoever waited here sees the organisation of the winner.
            let mut next: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
            let existing: i64 =
                sqlx::query_scalar("SELECT COUNT(*) FROM organisations").fetch_one(&mut *transaction).await?;
            if existing > 0 {
                transaction.rollback().await?;
                return Ok(None);
            }
            sqlx::query("INSERT INTO organisations (id, name, created_at) VALUES ($1, $2, $3)")
                .bind(&*organisation.0)
                .bind(&first.organisation_name)
                .bind(now.0)
                .execute(&mut *transaction)
                .await?;
            sqlx::query(
                "INSERT INTO workspaces (id, organisation_id, name, slug, created_at) VALUES ($1, $2, $3, $4, $5)",
            )
            .bind(&*workspace.0)
            .bind(&*organisation.0)
            .bind(&first.workspace_name)
            .bind(DEFAULT_SLUG)
            .bind(now.0)
            .execute(&mut *transaction)
            .await?;
            let mut changes = Vec::with_capacity(first.keys.len());
            for key in &first.keys {
                insert_key!(transaction, organisation, workspace, key, next, now);
                changes.push(next);
                next = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
            }
            let by = By::shell(now);
            let made = Change::new("workspace.created", &workspace.0)
                .with(serde_json::json!({"name": first.workspace_name, "slug": DEFAULT_SLUG}));
            append_audit!(transaction, organisation, &by, made);
            for key in &first.keys {
                append_audit!(transaction, organisation, &by, keys::created(key, &workspace, &key.hash.to_hex()));
            }
            transaction.commit().await?;
            Ok(Some(changes))
        })?;
        Ok(changes.map(|changes| {
            let keys = first.keys.into_iter().zip(changes);
            let keys = keys.map(|(key, seq)| key.into_row(organisation.clone(), workspace.clone(), seq, now)).collect();
            Bootstrapped { organisation, workspace, keys }
        }))
    }

    /// The organisation of a store that has exactly one; `None` when there is none yet, or several.
    pub async fn sole_organisation(&self) -> Result<Option<Organisation>> {
        let mut found: Vec<(String, String, i64)> = on_reader!(self, pool => {
            Ok(sqlx::query_as("SELECT id, name, created_at FROM organisations LIMIT 2").fetch_all(pool).await?)
        })?;
        Ok(match (found.pop(), found.pop()) {
            (Some((id, name, created)), None) => {
                Some(Organisation { id: OrganisationId(Arc::from(id)), name, created: Timestamp(created) })
            }
            _ => None,
        })
    }

    /// The ids of all organisations, the oldest first: that one tells a store from any other.
    pub async fn organisation_ids(&self) -> Result<Vec<OrganisationId>> {
        let found: Vec<String> = on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT id FROM organisations ORDER BY created_at, id").fetch_all(pool).await?)
        })?;
        Ok(found.into_iter().map(|id| OrganisationId(Arc::from(id))).collect())
    }

    /// Notes something that concerns the whole deployment; it stands in the log of the oldest organisation.
    pub async fn note(&self, by: &By, change: Change<'_>) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let oldest: Option<String> =
                sqlx::query_scalar("SELECT id FROM organisations ORDER BY created_at, id LIMIT 1")
                    .fetch_optional(&mut *transaction)
                    .await?;
            if let Some(id) = oldest {
                append_audit!(transaction, OrganisationId(Arc::from(id)), by, change);
            }
            Ok(transaction.commit().await?)
        })
    }
}
