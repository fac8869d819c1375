//! What people say about answers. Of each kind one is kept for a request, the latest; it leaves with the record.

use serde_json::json;
use tidegate_core::{GenerationId, KeyHash, Tenant, Timestamp};

use crate::audit::{By, Change, append_audit};
use crate::error::Unreadable;
use crate::{Result, Store, StoreError, dialect};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    pub category: String,
    pub comment: Option<String>,
    /// Whose key said it.
    pub by: KeyHash,
    pub at: Timestamp,
}

impl Store {
    /// Notes what is said about a request of the tenant's, in place of what was said in the same category before.
    pub async fn keep_feedback(&self, tenant: &Tenant, by: &By, id: &GenerationId, feedback: &Feedback) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let kept = sqlx::query(
                "INSERT INTO generation_feedback (organisation_id, generation_id, category, comment, created_by, \
                 created_at) SELECT organisation_id, id, $3, $4, $5, $6 FROM generations \
                 WHERE organisation_id = $1 AND id = $2 \
                 ON CONFLICT (generation_id, category) DO UPDATE SET comment = excluded.comment, \
                 created_by = excluded.created_by, created_at = excluded.created_at",
            )
            .bind(&*tenant.organisation.0)
            .bind(id.as_str())
            .bind(&feedback.category)
            .bind(&feedback.comment)
            .bind(feedback.by.to_hex())
            .bind(feedback.at.0)
            .execute(&mut *transaction)
            .await?;
            if kept.rows_affected() == 0 {
                return Err(StoreError::Missing);
            }
            // What was said may name people: the audit log says only that something was.
            let change = Change::new("generation.feedback", id.as_str()).with(json!({"category": feedback.category}));
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(())
        })
    }

    /// What was said about a request of the tenant's, by category.
    pub async fn list_feedback(&self, tenant: &Tenant, id: &GenerationId) -> Result<Vec<Feedback>> {
        let rows: Vec<(String, Option<String>, String, i64)> = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT category, comment, created_by, created_at FROM generation_feedback \
                 WHERE organisation_id = $1 AND generation_id = $2 ORDER BY category",
            )
            .bind(&*tenant.organisation.0)
            .bind(id.as_str())
            .fetch_all(pool)
            .await?)
        })?;
        let read = |(category, comment, by, at): (String, Option<String>, String, i64)| {
            let by = KeyHash::parse(&by).ok_or(Unreadable { table: "generation_feedback", column: "created_by" })?;
            Ok(Feedback { category, comment, by, at: Timestamp(at) })
        };
        rows.into_iter().map(read).collect()
    }
}
