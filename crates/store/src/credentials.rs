//! Provider credentials of customers. The secret is stored only sealed, bound to its row; whoever may open it has the
//! vault.
//!
//! As with keys, each write takes the next number of one sequence, so that every node can keep all credentials in
//! memory and fetch only what changed. Secrets are sealed after that number is taken: a master key that is given up
//! under the same lock can then have no writer who still uses it.

mod change;
mod order;
mod row;
mod seals;
mod write;

pub use change::{CredentialChange, NewCredential, NewSecret, Settings};
pub use row::CredentialRow;
pub use seals::{Failed, Rewrapped, Verified};

use tidegate_core::{Tenant, WorkspaceId};

use crate::{Result, Store};
use row::{RawCredential, one_credential, select_credentials};

/// Credentials fetched at a time when all are loaded.
const LOAD_PAGE: u32 = 1_000;

/// Live credentials of a workspace at most.
const MOST_CREDENTIALS: i64 = 500;

/// Taken first in every transaction that writes a credential; each one written needs a number of its own. Only those who
/// need the keys to stand still take their lock before.
pub(crate) const NEXT_CHANGE: &str =
    "UPDATE sequences SET value = value + 1 WHERE name = 'credentials' RETURNING value";

/// As many numbers at once as there are credentials to be written; the last of them comes back.
pub(crate) const TAKE_CHANGES: &str =
    "UPDATE sequences SET value = value + $1 WHERE name = 'credentials' RETURNING value";

/// The same lock without a number, for those who change what credentials depend on: the ring of master keys.
pub(crate) const HOLD_CREDENTIALS: &str = "UPDATE sequences SET value = value WHERE name = 'credentials'";

/// Which credentials of a tenant to list.
#[derive(Clone, Copy, Debug)]
pub struct CredentialFilter<'a> {
    /// `None`: of all workspaces.
    pub workspace: Option<&'a WorkspaceId>,
    /// `None`: of all providers.
    pub provider: Option<&'a str>,
    pub offset: u32,
    pub limit: u32,
}

impl Store {
    /// Hands every live credential to `each` and returns the number to continue from with
    /// [`Store::credentials_changed_after`].
    ///
    /// One that changes while this runs may come twice, here or among the changes; what comes later is newer.
    pub async fn live_credentials(&self, mut each: impl FnMut(CredentialRow)) -> Result<i64> {
        // Asked before the first page: what is deleted meanwhile is then among the changes.
        let as_of: i64 = on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT value FROM sequences WHERE name = 'credentials'").fetch_one(pool).await?)
        })?;
        let mut after = 0;
        loop {
            let page: Vec<RawCredential> = on_reader!(self, pool => {
                Ok(sqlx::query_as(concat!(
                    select_credentials!(),
                    " WHERE change_seq > $1 AND deleted_at IS NULL ORDER BY change_seq LIMIT $2"
                ))
                .bind(after)
                .bind(i64::from(LOAD_PAGE))
                .fetch_all(pool)
                .await?)
            })?;
            if page.is_empty() {
                return Ok(as_of);
            }
            for raw in page {
                let row = CredentialRow::try_from(raw)?;
                after = row.change_seq;
                each(row);
            }
        }
    }

    /// Credentials changed since `seq`, oldest change first, the deleted ones too. Ask again from the last one's
    /// `change_seq` until nothing comes.
    pub async fn credentials_changed_after(&self, seq: i64) -> Result<Vec<CredentialRow>> {
        let page: Vec<RawCredential> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_credentials!(), " WHERE change_seq > $1 ORDER BY change_seq LIMIT $2"))
                .bind(seq)
                .bind(i64::from(LOAD_PAGE))
                .fetch_all(pool)
                .await?)
        })?;
        if !page.is_empty() {
            // Whoever made the change may be gone already, a command at a shell for example.
            self.note_overwritten();
        }
        page.into_iter().map(CredentialRow::try_from).collect()
    }

    /// The tenant's live credential with this id.
    pub async fn find_credential(&self, tenant: &Tenant, id: &str) -> Result<Option<CredentialRow>> {
        let raw: Option<RawCredential> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_credentials!(), one_credential!()))
                .bind(&*tenant.organisation.0)
                .bind(id)
                .fetch_optional(pool)
                .await?)
        })?;
        raw.map(CredentialRow::try_from).transpose()
    }

    /// A page of the tenant's live credentials by provider, and there in the order in which they are tried; and how
    /// many there are.
    pub async fn list_credentials(
        &self,
        tenant: &Tenant,
        filter: CredentialFilter<'_>,
    ) -> Result<(Vec<CredentialRow>, u64)> {
        let workspace = filter.workspace.map(|id| &*id.0);
        let (page, total): (Vec<RawCredential>, i64) = on_reader!(self, pool => {
            let page = sqlx::query_as(concat!(
                select_credentials!(),
                " WHERE organisation_id = $1 AND deleted_at IS NULL",
                " AND ($2 IS NULL OR workspace_id = $2) AND ($3 IS NULL OR provider = $3)",
                " ORDER BY provider, is_fallback, sort_order, id LIMIT $4 OFFSET $5"
            ))
            .bind(&*tenant.organisation.0)
            .bind(workspace)
            .bind(filter.provider)
            .bind(i64::from(filter.limit))
            .bind(i64::from(filter.offset))
            .fetch_all(pool)
            .await?;
            let total = sqlx::query_scalar(
                "SELECT COUNT(*) FROM credentials WHERE organisation_id = $1 AND deleted_at IS NULL \
                 AND ($2 IS NULL OR workspace_id = $2) AND ($3 IS NULL OR provider = $3)",
            )
            .bind(&*tenant.organisation.0)
            .bind(workspace)
            .bind(filter.provider)
            .fetch_one(pool)
            .await?;
            Ok((page, total))
        })?;
        let page = page.into_iter().map(CredentialRow::try_from).collect::<Result<_>>()?;
        Ok((page, u64::try_from(total).unwrap_or(0)))
    }
}
