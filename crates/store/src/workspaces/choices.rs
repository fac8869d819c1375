//! What workspaces choose for requests that leave it open. It is little, and most choose nothing: every node keeps it in
//! memory and loads it again when its number has changed.

use std::sync::Arc;

use tidegate_core::WorkspaceId;

use crate::{Result, Store};

/// Taken in every transaction that changes what a workspace chooses.
pub(super) const CHOICES_CHANGED: &str = "UPDATE sequences SET value = value + 1 WHERE name = 'choices'";

/// What one workspace chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// What `default` stands for, where text is wanted and where pictures are.
    pub text_model: Option<String>,
    pub image_model: Option<String>,
    /// How endpoints are sorted, by name.
    pub sort: Option<String>,
}

type Row = (String, Option<String>, Option<String>, Option<String>);

impl Store {
    /// A number that changes with every change of what workspaces choose.
    pub async fn choices_seq(&self) -> Result<i64> {
        on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT value FROM sequences WHERE name = 'choices'").fetch_one(pool).await?)
        })
    }

    /// What all workspaces chose that chose anything, and which change that is.
    pub async fn all_choices(&self) -> Result<(i64, Vec<(WorkspaceId, Choices)>)> {
        // The number first: what changes between the two is loaded again.
        let seq = self.choices_seq().await?;
        let rows: Vec<Row> = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT id, default_text_model, default_image_model, default_provider_sort FROM workspaces \
                 WHERE deleted_at IS NULL AND (default_text_model IS NOT NULL OR default_image_model IS NOT NULL \
                 OR default_provider_sort IS NOT NULL) ORDER BY id",
            )
            .fetch_all(pool)
            .await?)
        })?;
        let chosen = |(id, text_model, image_model, sort): Row| {
            (WorkspaceId(Arc::from(id)), Choices { text_model, image_model, sort })
        };
        Ok((seq, rows.into_iter().map(chosen).collect()))
    }
}
