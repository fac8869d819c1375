//! What tools said that clients do not get to see. A call of such a tool may come back for a day; losing its result is
//! harmless, so nothing waits for these rows. They come sealed.

use tidegate_core::{OrganisationId, Tenant, Timestamp, WorkspaceId};

use crate::dialect::Shapes;
use crate::{Result, Store, dialect};

static KEPT: Shapes<3> = Shapes::new([32, 8, 1]);
static WANTED: Shapes<3> = Shapes::new([64, 8, 1]);

/// A result as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    /// The id of its call, as the client knows it.
    pub id: String,
    pub sealed: Vec<u8>,
    pub expires: Timestamp,
}

impl Store {
    /// Keeps results, in place of those with the same ids.
    pub async fn keep_tool_results(&self, results: &[ToolResult]) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            for piece in KEPT.cut(results) {
                let mut insert = sqlx::query(insert_text(piece.len(), dialect::is_numbered(pool)));
                for result in piece {
                    insert = insert
                        .bind(&*result.organisation.0)
                        .bind(&*result.workspace.0)
                        .bind(&result.id)
                        .bind(&result.sealed)
                        .bind(result.expires.0);
                }
                insert.execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            Ok(())
        })
    }

    /// Those of these results that the workspace has and that are still good: id, sealed text, and until when.
    pub async fn tool_results(
        &self,
        tenant: &Tenant,
        workspace: &WorkspaceId,
        ids: &[&str],
        now: Timestamp,
    ) -> Result<Vec<(String, Vec<u8>, Timestamp)>> {
        let rows: Vec<(String, Vec<u8>, i64)> = on_reader!(self, pool => {
            let mut rows = Vec::new();
            for piece in WANTED.cut(ids) {
                let mut select = sqlx::query_as(select_text(piece.len(), dialect::is_numbered(pool)));
                for id in piece {
                    select = select.bind(&*tenant.organisation.0).bind(&*workspace.0).bind(*id);
                }
                rows.extend(select.fetch_all(pool).await?);
            }
            Ok(rows)
        })?;
        let rows = rows.into_iter().map(|(id, sealed, expires)| (id, sealed, Timestamp(expires)));
        Ok(rows.filter(|(_, _, expires)| *expires > now).collect())
    }

    /// Takes results away whose time is over; how many.
    pub async fn purge_tool_results(&self, now: Timestamp) -> Result<u64> {
        on_writer!(self, pool => {
            let gone = sqlx::query("DELETE FROM tool_results WHERE expires_at <= $1").bind(now.0).execute(pool).await?;
            Ok(gone.rows_affected())
        })
    }
}

fn insert_text(rows: usize, numbered: bool) -> &'static str {
    KEPT.text(rows, numbered, "?, ?, ?, ?, ?", |values| {
        format!(
            "INSERT INTO tool_results (organisation_id, workspace_id, id, sealed, expires_at) VALUES {values} \
             ON CONFLICT (organisation_id, workspace_id, id) \
             DO UPDATE SET sealed = excluded.sealed, expires_at = excluded.expires_at"
        )
    })
}

fn select_text(rows: usize, numbered: bool) -> &'static str {
    WANTED.text(rows, numbered, "?, ?, ?", |values| {
        format!(
            "SELECT id, sealed, expires_at FROM tool_results \
             WHERE (organisation_id, workspace_id, id) IN (VALUES {values})"
        )
    })
}
