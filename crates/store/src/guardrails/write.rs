//! Guardrails come, change and go.

use serde_json::{Value, json};
use tidegate_core::{Money, Tenant, Window, WorkspaceId};

use super::change::GuardrailChange;
use super::row::{Guardrail, GuardrailRules, RawGuardrail, select_guardrails};
use super::{GUARDRAILS_CHANGED, MOST_GUARDRAILS};
use crate::audit::{By, Change, append_audit};
use crate::workspaces::new_id;
use crate::{Refused, Result, Store, StoreError, dialect};

#[derive(Clone, Debug)]
pub struct NewGuardrail {
    pub workspace: WorkspaceId,
    pub name: String,
    pub description: Option<String>,
    pub limit: Option<Money>,
    pub window: Option<Window>,
    pub include_byok: bool,
    pub rules: GuardrailRules,
}

impl Store {
    /// Makes a guardrail. [`StoreError::Missing`] when the workspace is not a live one of the tenant.
    pub async fn create_guardrail(&self, tenant: &Tenant, by: &By, new: NewGuardrail) -> Result<Guardrail> {
        let guardrail = Guardrail {
            id: new_id(by.at).0.to_string(),
            organisation: tenant.organisation.clone(),
            workspace: new.workspace,
            is_default: false,
            name: new.name,
            description: new.description,
            limit: new.limit,
            window: new.window,
            include_byok: new.include_byok,
            rules: new.rules,
            created: by.at,
            updated: None,
        };
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(GUARDRAILS_CHANGED).execute(&mut *transaction).await?;
            let count: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM guardrails WHERE organisation_id = $1 AND workspace_id = $2 AND is_default = FALSE",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*guardrail.workspace.0)
            .fetch_one(&mut *transaction)
            .await?;
            if count >= MOST_GUARDRAILS {
                return Err(Refused::TooManyGuardrails.into());
            }
            insert_guardrail!(transaction, guardrail);
            let values = shown(&guardrail);
            let change = Change::new("guardrail.created", &guardrail.id).with(values);
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(guardrail)
        })
    }

    /// Changes a guardrail; `None` when the tenant has no such one. `own_of` is the workspace whose own guardrail has this
    /// id: that one is made where it is not there yet.
    pub async fn update_guardrail(
        &self,
        tenant: &Tenant,
        by: &By,
        id: &str,
        own_of: Option<&WorkspaceId>,
        change: &GuardrailChange,
    ) -> Result<Option<Guardrail>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(GUARDRAILS_CHANGED).execute(&mut *transaction).await?;
            let raw: Option<RawGuardrail> =
                sqlx::query_as(concat!(select_guardrails!(), " WHERE organisation_id = $1 AND id = $2"))
                    .bind(&*tenant.organisation.0)
                    .bind(id)
                    .fetch_optional(&mut *transaction)
                    .await?;
            let known = raw.map(Guardrail::try_from).transpose()?;
            let is_new = known.is_none();
            let known = match (known, own_of) {
                (Some(known), _) => known,
                (None, Some(workspace)) => untouched(tenant, by, id, workspace),
                (None, None) => return Ok(None),
            };
            if known.is_default && change.name.as_ref().is_some_and(|name| *name != known.name) {
                return Err(Refused::NameOfDefault.into());
            }
            let old = shown(&known);
            let guardrail = changed(known, change, by);
            if is_new {
                insert_guardrail!(transaction, guardrail);
            } else {
                let rules = serde_json::to_string(&guardrail.rules).expect("texts and flags are always JSON");
                sqlx::query(
                    "UPDATE guardrails SET name = $3, description = $4, limit_nanos = $5, reset_interval = $6, \
                     include_byok = $7, rules = $8, updated_at = $9 WHERE organisation_id = $1 AND id = $2",
                )
                .bind(&*tenant.organisation.0)
                .bind(id)
                .bind(&guardrail.name)
                .bind(&guardrail.description)
                .bind(guardrail.limit.map(|limit| limit.0))
                .bind(guardrail.window.map(Window::as_str))
                .bind(guardrail.include_byok)
                .bind(rules)
                .bind(by.at.0)
                .execute(&mut *transaction)
                .await?;
            }
            let entry = Change::new("guardrail.updated", id).between(&old, &shown(&guardrail));
            append_audit!(transaction, tenant.organisation, by, entry);
            transaction.commit().await?;
            Ok(Some(guardrail))
        })
    }

    /// Takes a guardrail away, and with it what it was assigned to. False when the tenant has no such one.
    pub async fn delete_guardrail(&self, tenant: &Tenant, by: &By, id: &str) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(GUARDRAILS_CHANGED).execute(&mut *transaction).await?;
            sqlx::query("DELETE FROM guardrail_assignments WHERE organisation_id = $1 AND guardrail_id = $2")
                .bind(&*tenant.organisation.0)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
            let gone = sqlx::query("DELETE FROM guardrails WHERE organisation_id = $1 AND id = $2")
                .bind(&*tenant.organisation.0)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
            if gone.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit!(transaction, tenant.organisation, by, Change::new("guardrail.deleted", id));
            transaction.commit().await?;
            Ok(true)
        })
    }
}

macro_rules! insert_guardrail {
    ($transaction:ident, $guardrail:ident) => {
        let rules = serde_json::to_string(&$guardrail.rules).expect("texts and flags are always JSON");
        let inserted = sqlx::query(
            "INSERT INTO guardrails (id, organisation_id, workspace_id, is_default, name, description, limit_nanos, \
             reset_interval, include_byok, rules, created_at, updated_at) \
             SELECT $1, organisation_id, id, $4, $5, $6, $7, $8, $9, $10, $11, $12 \
             FROM workspaces WHERE organisation_id = $2 AND id = $3 AND deleted_at IS NULL",
        )
        .bind(&$guardrail.id)
        .bind(&*$guardrail.organisation.0)
        .bind(&*$guardrail.workspace.0)
        .bind($guardrail.is_default)
        .bind(&$guardrail.name)
        .bind(&$guardrail.description)
        .bind($guardrail.limit.map(|limit| limit.0))
        .bind($guardrail.window.map(Window::as_str))
        .bind($guardrail.include_byok)
        .bind(rules)
        .bind($guardrail.created.0)
        .bind($guardrail.updated.map(|updated| updated.0))
        .execute(&mut *$transaction)
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Missing);
        }
    };
}
use insert_guardrail;

/// A workspace's own guardrail before anything was written there.
fn untouched(tenant: &Tenant, by: &By, id: &str, workspace: &WorkspaceId) -> Guardrail {
    Guardrail {
        id: id.to_owned(),
        organisation: tenant.organisation.clone(),
        workspace: workspace.clone(),
        is_default: true,
        name: format!("Workspace {} Default", workspace.0),
        description: None,
        limit: None,
        window: None,
        include_byok: false,
        rules: GuardrailRules::default(),
        created: by.at,
        updated: None,
    }
}

fn changed(known: Guardrail, change: &GuardrailChange, by: &By) -> Guardrail {
    Guardrail {
        name: change.name.clone().unwrap_or(known.name),
        description: change.description.clone().unwrap_or(known.description),
        limit: change.limit.unwrap_or(known.limit),
        window: change.window.unwrap_or(known.window),
        include_byok: change.include_byok.unwrap_or(known.include_byok),
        rules: change.rules.clone().applied_to(known.rules),
        updated: Some(by.at),
        ..known
    }
}

/// As the audit log shows it.
fn shown(guardrail: &Guardrail) -> Value {
    json!({
        "name": guardrail.name,
        "workspace_id": &*guardrail.workspace.0,
        "description": guardrail.description,
        "limit_nanos": guardrail.limit.map(|limit| limit.0),
        "reset_interval": guardrail.window.map(Window::as_str),
        "include_byok_in_budgets": guardrail.include_byok,
        "rules": serde_json::to_value(&guardrail.rules).unwrap_or_default(),
    })
}
