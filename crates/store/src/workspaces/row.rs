//! A workspace as it is read from its row.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_core::{OrganisationId, Timestamp, WorkspaceId};

use super::choices::Choices;
use super::{DEFAULT_SLUG, derived_id};
use crate::error::Unreadable;

#[derive(Clone, Debug, PartialEq)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub organisation: OrganisationId,
    pub name: String,
    pub slug: String,
    pub description: Option<String>,
    /// What the model alias `default` stands for here.
    pub default_text_model: Option<String>,
    pub default_image_model: Option<String>,
    pub default_provider_sort: Option<String>,
    pub include_byok_in_budgets: bool,
    pub is_broadcast_enabled: bool,
    pub is_io_logging_enabled: bool,
    pub io_logging_sampling_rate: f64,
    /// `None`: of all keys.
    pub io_logging_api_key_ids: Option<Vec<i64>>,
    pub is_data_discount_logging_enabled: bool,
    pub created_by: Option<String>,
    pub created: Timestamp,
    pub updated: Option<Timestamp>,
}

impl Workspace {
    pub fn is_default(&self) -> bool {
        self.slug == DEFAULT_SLUG
    }

    /// The guardrail that covers all traffic of the workspace, whether or not anything was ever written there.
    pub fn default_guardrail_id(&self) -> String {
        derived_id(&self.id, "default_guardrail")
    }

    /// What it wants kept of what is said.
    pub(super) fn kept(&self) -> (bool, u64, Option<&[i64]>) {
        let share = self.io_logging_sampling_rate.to_bits();
        (self.is_io_logging_enabled, share, self.io_logging_api_key_ids.as_deref())
    }

    /// What it chooses for requests that leave it open.
    pub(super) fn choices(&self) -> Choices {
        Choices {
            text_model: self.default_text_model.clone(),
            image_model: self.default_image_model.clone(),
            sort: self.default_provider_sort.clone(),
        }
    }

    /// The settings that can change, as the audit log shows them.
    pub(super) fn settings(&self) -> Value {
        json!({
            "name": self.name,
            "slug": self.slug,
            "description": self.description,
            "default_text_model": self.default_text_model,
            "default_image_model": self.default_image_model,
            "default_provider_sort": self.default_provider_sort,
            "is_observability_broadcast_enabled": self.is_broadcast_enabled,
            "is_observability_io_logging_enabled": self.is_io_logging_enabled,
            "io_logging_sampling_rate": self.io_logging_sampling_rate,
            "io_logging_api_key_ids": self.io_logging_api_key_ids,
            "is_data_discount_logging_enabled": self.is_data_discount_logging_enabled,
        })
    }

    /// The column `io_logging_api_key_ids`.
    pub(super) fn key_ids_json(&self) -> Option<String> {
        self.io_logging_api_key_ids.as_ref().map(|ids| json!(ids).to_string())
    }
}

macro_rules! select_workspaces {
    () => {
        "SELECT id, organisation_id, name, slug, description, default_text_model, default_image_model, \
         default_provider_sort, include_byok_in_budgets, is_broadcast_enabled, is_io_logging_enabled, \
         io_logging_sampling_rate, io_logging_api_key_ids, is_data_discount_logging_enabled, created_by, created_at, \
         updated_at FROM workspaces"
    };
}
pub(super) use select_workspaces;

#[derive(sqlx::FromRow)]
pub(super) struct RawWorkspace {
    id: String,
    organisation_id: String,
    name: String,
    slug: String,
    description: Option<String>,
    default_text_model: Option<String>,
    default_image_model: Option<String>,
    default_provider_sort: Option<String>,
    include_byok_in_budgets: bool,
    is_broadcast_enabled: bool,
    is_io_logging_enabled: bool,
    io_logging_sampling_rate: f64,
    io_logging_api_key_ids: Option<String>,
    is_data_discount_logging_enabled: bool,
    created_by: Option<String>,
    created_at: i64,
    updated_at: Option<i64>,
}

impl TryFrom<RawWorkspace> for Workspace {
    type Error = crate::StoreError;

    fn try_from(raw: RawWorkspace) -> crate::Result<Self> {
        let key_ids = raw.io_logging_api_key_ids.as_deref().map(serde_json::from_str).transpose();
        let unreadable = |_| Unreadable { table: "workspaces", column: "io_logging_api_key_ids" };
        Ok(Self {
            id: WorkspaceId(Arc::from(raw.id)),
            organisation: OrganisationId(Arc::from(raw.organisation_id)),
            name: raw.name,
            slug: raw.slug,
            description: raw.description,
            default_text_model: raw.default_text_model,
            default_image_model: raw.default_image_model,
            default_provider_sort: raw.default_provider_sort,
            include_byok_in_budgets: raw.include_byok_in_budgets,
            is_broadcast_enabled: raw.is_broadcast_enabled,
            is_io_logging_enabled: raw.is_io_logging_enabled,
            io_logging_sampling_rate: raw.io_logging_sampling_rate,
            io_logging_api_key_ids: key_ids.map_err(unreadable)?,
            is_data_discount_logging_enabled: raw.is_data_discount_logging_enabled,
            created_by: raw.created_by,
            created: Timestamp(raw.created_at),
            updated: raw.updated_at.map(Timestamp),
        })
    }
}
