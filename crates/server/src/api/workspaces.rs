//! `/workspaces`: making, changing and deleting them. Their members and budgets have modules of their own.

use http::StatusCode;
use serde::Serialize;
use tidegate_gateway::Failure;
use tidegate_store::workspaces::{NewWorkspace, Workspace, WorkspaceChange};
use tidegate_store::{Refused, StoreError};
use tidegate_wire::error::ErrorType;

use super::account::{Answering, Instant, Request, data, deleted, internal, not_found, page};
use super::form::{Form, parse_uuid, refused};
use crate::router::Call;

const LONGEST_NAME: usize = 100;
const LONGEST_SLUG: usize = 50;
const LONGEST_DESCRIPTION: usize = 500;
const LONGEST_MODEL: usize = 256;
/// As many keys as a workspace may have.
const MOST_KEY_IDS: usize = 10_000;
const SORTS: [(&str, &str); 4] =
    [("price", "price"), ("throughput", "throughput"), ("latency", "latency"), ("exacto", "exacto")];

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    name: &'a str,
    slug: &'a str,
    description: Option<&'a str>,
    default_text_model: Option<&'a str>,
    default_image_model: Option<&'a str>,
    default_provider_sort: Option<&'a str>,
    default_guardrail_id: String,
    include_byok_in_budgets: bool,
    is_observability_io_logging_enabled: bool,
    is_observability_broadcast_enabled: bool,
    is_data_discount_logging_enabled: bool,
    io_logging_sampling_rate: f64,
    io_logging_api_key_ids: Option<&'a [i64]>,
    created_at: Instant,
    updated_at: Option<Instant>,
    created_by: Option<&'a str>,
}

impl<'a> From<&'a Workspace> for Shown<'a> {
    fn from(workspace: &'a Workspace) -> Self {
        Self {
            id: &workspace.id.0,
            name: &workspace.name,
            slug: &workspace.slug,
            description: workspace.description.as_deref(),
            default_text_model: workspace.default_text_model.as_deref(),
            default_image_model: workspace.default_image_model.as_deref(),
            default_provider_sort: workspace.default_provider_sort.as_deref(),
            default_guardrail_id: workspace.default_guardrail_id(),
            include_byok_in_budgets: workspace.include_byok_in_budgets,
            is_observability_io_logging_enabled: workspace.is_io_logging_enabled,
            is_observability_broadcast_enabled: workspace.is_broadcast_enabled,
            is_data_discount_logging_enabled: workspace.is_data_discount_logging_enabled,
            io_logging_sampling_rate: workspace.io_logging_sampling_rate,
            io_logging_api_key_ids: workspace.io_logging_api_key_ids.as_deref(),
            created_at: Instant(workspace.created),
            updated_at: workspace.updated.map(Instant),
            created_by: workspace.created_by.as_deref(),
        }
    }
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = request.query.clamped_page();
        let listed = request.app.store.list_workspaces(&request.tenant, offset, limit).await;
        let (workspaces, total) = listed.map_err(internal)?;
        Ok(page(&workspaces.iter().map(Shown::from).collect::<Vec<_>>(), total))
    })
}

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let mut settings = read(&mut form);
        let name = form.require("name", settings.name.take());
        let slug = form.require("slug", settings.slug.take());
        form.finish()?;
        let (Some(name), Some(slug)) = (name, slug) else { return Err(Failure::internal()) };
        let created_by = request.key.creator.as_deref().map(ToOwned::to_owned);
        let new = NewWorkspace { name, slug, created_by, settings };
        let made = request.app.store.create_workspace(&request.tenant, &request.by, new).await;
        let workspace = made.map_err(refusal)?;
        request.app.contents_changed().await;
        request.app.choices_changed().await;
        Ok(data(StatusCode::CREATED, &Shown::from(&workspace)))
    })
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let workspace = addressed(&request).await?;
        Ok(data(StatusCode::OK, &Shown::from(&workspace)))
    })
}

pub fn update(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let change = read(&mut form);
        form.finish()?;
        let id = addressed(&request).await?.id;
        let changed = request.app.store.update_workspace(&request.tenant, &request.by, &id, &change).await;
        let workspace = changed.map_err(refusal)?.ok_or_else(not_found)?;
        request.app.destinations_changed().await;
        request.app.contents_changed().await;
        request.app.choices_changed().await;
        Ok(data(StatusCode::OK, &Shown::from(&workspace)))
    })
}

pub fn delete(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let id = addressed(&request).await?.id;
        let gone = request.app.store.delete_workspace(&request.tenant, &request.by, &id).await;
        let gone = gone.map_err(|error| match error {
            StoreError::Refused(Refused::IsDefault) => {
                Failure::new(403, ErrorType::PermissionDenied, "The default workspace cannot be deleted")
            }
            StoreError::Refused(rule) => refused("id", rule.to_string()),
            error => internal(error),
        })?;
        request.app.credentials_changed().await;
        request.app.guardrails_changed().await;
        request.app.destinations_changed().await;
        request.app.contents_changed().await;
        request.app.choices_changed().await;
        if gone { Ok(deleted()) } else { Err(not_found()) }
    })
}

/// The workspace in the path, by id or slug.
pub async fn addressed(request: &Request) -> Result<Workspace, Failure> {
    let name = request.param(0);
    let name = parse_uuid(name).unwrap_or_else(|| name.to_owned());
    let found = request.app.store.find_workspace_named(&request.tenant, &name).await.map_err(internal)?;
    found.ok_or_else(not_found)
}

fn refusal(error: StoreError) -> Failure {
    match error {
        StoreError::Refused(Refused::IsDefault) => refused("slug", "of the default workspace cannot be changed"),
        StoreError::Refused(rule @ Refused::SlugTaken) => refused("slug", rule.to_string()),
        StoreError::Refused(rule) => refused("", format!("the account {rule}")),
        error => internal(error),
    }
}

/// The members of a body that makes or changes a workspace.
fn read(form: &mut Form<'_>) -> WorkspaceChange {
    WorkspaceChange {
        name: form.text("name", 1..=LONGEST_NAME),
        slug: slug(form),
        description: form.nullable_text("description", 0..=LONGEST_DESCRIPTION),
        default_text_model: form.nullable_text("default_text_model", 1..=LONGEST_MODEL),
        default_image_model: form.nullable_text("default_image_model", 1..=LONGEST_MODEL),
        default_provider_sort: form
            .nullable_word("default_provider_sort", &SORTS)
            .map(|sort| sort.map(ToOwned::to_owned)),
        is_broadcast_enabled: form.flag("is_observability_broadcast_enabled"),
        is_io_logging_enabled: form.flag("is_observability_io_logging_enabled"),
        io_logging_sampling_rate: form
            .value("io_logging_sampling_rate", |reader, raw| reader.number(raw, 0.0001..=1.0)),
        io_logging_api_key_ids: form.nullable("io_logging_api_key_ids", |reader, raw| {
            reader.list(raw, 0..=MOST_KEY_IDS, |reader, raw| reader.integer(raw, 0..=i64::MAX))
        }),
        is_data_discount_logging_enabled: form.flag("is_data_discount_logging_enabled"),
    }
}

fn slug(form: &mut Form<'_>) -> Option<String> {
    form.value("slug", |reader, raw| {
        let slug = reader.text(raw, 1..=LONGEST_SLUG)?;
        if !is_slug(&slug) {
            return reader.refuse("must be lower-case letters and digits, in groups joined by single hyphens");
        }
        // One path leads to a workspace by either.
        if parse_uuid(&slug).is_some() {
            return reader.refuse("must not look like a UUID");
        }
        Some(slug)
    })
}

fn is_slug(text: &str) -> bool {
    let is_group =
        |group: &str| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.split('-').all(is_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_groups_of_letters_and_digits() {
        for good in ["a", "0", "team-1", "a-b-c", "0a"] {
            assert!(is_slug(good), "{good}");
        }
        for bad in ["", "-", "-a", "a-", "a--b", "A", "a_b", "ä", "a b", "a.b"] {
            assert!(!is_slug(bad), "{bad}");
        }
    }
}
