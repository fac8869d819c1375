//! The customer's own keys of providers: which there are, new ones, switching them off, putting others in their place.

use askama::Template;
use tidegate_core::Secret;
use tidegate_gateway::Failure;
use tidegate_store::StoreError;
use tidegate_store::credentials::{CredentialChange, CredentialFilter, CredentialRow, NewCredential, Settings};

use super::words::instant;
use super::{Frame, Viewer, page, see_other};
use crate::api::account::{internal, not_found};
use crate::api::byok::{LARGEST_KEY_BYTES, described, is_provider};
use crate::api::form::{Query, parse_uuid};
use crate::router::Answer;

const HERE: &str = "/dashboard/byok";
const SHOWN: u32 = 500;
const LONGEST_NAME: usize = 255;

#[derive(Template)]
#[template(path = "dashboard/byok.html")]
struct Page {
    frame: Frame,
    rows: Vec<Row>,
    workspaces: Vec<(String, String)>,
    providers: Vec<String>,
}

struct Row {
    id: String,
    provider: String,
    name: String,
    label: String,
    workspace: String,
    disabled: bool,
    /// When it is tried, and for what.
    terms: String,
    updated: String,
    is_misdirected: bool,
}

pub(super) async fn show(mut viewer: Viewer) -> Result<Answer, Failure> {
    let said = match viewer.query.text("done").as_deref() {
        Some("create") => Some("The provider key is stored, encrypted."),
        Some("disable") => Some("The provider key is not used any more."),
        Some("enable") => Some("The provider key is used again."),
        Some("rotate") => Some("The new key is used from the next request on."),
        Some("delete") => Some("The provider key is deleted."),
        _ => None,
    };
    shown(&viewer, Ok(said.map(str::to_owned))).await
}

async fn shown(viewer: &Viewer, said: Result<Option<String>, String>) -> Result<Answer, Failure> {
    let filter = CredentialFilter { workspace: None, provider: None, offset: 0, limit: SHOWN };
    let (rows, _) = viewer.app.store.list_credentials(&viewer.tenant, filter).await.map_err(internal)?;
    let workspaces = viewer.workspaces().await?;
    let workspaces: Vec<(String, String)> =
        workspaces.into_iter().map(|workspace| (workspace.id.0.to_string(), workspace.name)).collect();
    let snapshot = viewer.app.gateway.snapshot();
    let mut providers: Vec<String> = snapshot.upstreams.iter().map(|upstream| upstream.slug.to_string()).collect();
    providers.sort_unstable();
    providers.dedup();
    let page_of = Page {
        frame: viewer.frame(HERE).with(said),
        rows: rows.iter().map(|credential| row(viewer, credential, &workspaces)).collect(),
        workspaces,
        providers,
    };
    page(page_of.frame.status(), &page_of, None)
}

fn row(viewer: &Viewer, credential: &CredentialRow, workspaces: &[(String, String)]) -> Row {
    let workspace = workspaces.iter().find(|(id, _)| **id == *credential.workspace.0);
    let flags = [
        (credential.is_fallback, "after the operator's own"),
        (credential.is_byok_only, "alone"),
        (credential.is_required, "required"),
        (credential.allowed_models.is_some(), "some models"),
        (credential.allowed_users.is_some(), "some members"),
        (credential.allowed_keys.is_some(), "some keys"),
    ];
    let terms: Vec<&str> = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, text)| text).collect();
    Row {
        id: credential.id.to_string(),
        provider: credential.provider.to_string(),
        name: credential.name.clone().unwrap_or_default(),
        label: credential.label.clone(),
        workspace: workspace.map(|(_, name)| name.clone()).unwrap_or_default(),
        disabled: credential.disabled,
        terms: if terms.is_empty() { "first".to_owned() } else { terms.join(", ") },
        updated: instant(credential.updated.unwrap_or(credential.created)),
        is_misdirected: viewer.app.gateway.is_misdirected(&credential.provider, credential.destination.as_deref()),
    }
}

pub(super) async fn change(viewer: Viewer, mut form: Query) -> Result<Answer, Failure> {
    let action = form.text("action").unwrap_or_default();
    let secret = form.text("key").map(|key| Secret::new(key.trim().to_owned()));
    if secret.as_ref().is_some_and(|secret| secret.expose(|bytes| bytes.len() > LARGEST_KEY_BYTES)) {
        return shown(&viewer, Err(format!("Key: must have at most {LARGEST_KEY_BYTES} bytes."))).await;
    }
    if action == "create" {
        return create(viewer, form, secret).await;
    }
    let id = form.text("id").and_then(|text| parse_uuid(&text)).ok_or_else(not_found)?;
    let (app, tenant, by) = (&viewer.app, &viewer.tenant, &viewer.by);
    let is_there = match action.as_str() {
        "delete" => app.store.delete_credential(tenant, by, &id).await.map_err(internal)?,
        "disable" | "enable" => {
            let settings = Settings { disabled: Some(action == "disable"), ..Settings::default() };
            let change = CredentialChange { settings, sort_order: None, secret: None };
            app.store.update_credential(tenant, by, &id, &change).await.map_err(internal)?.is_some()
        }
        "rotate" => {
            let Some(secret) = &secret else {
                return shown(&viewer, Err("Key: type the new one.".to_owned())).await;
            };
            let found = app.store.find_credential(tenant, &id).await.map_err(internal)?.ok_or_else(not_found)?;
            let secret = match described(&app.gateway.snapshot(), &app.vault, &found.provider, secret) {
                Ok(secret) => secret,
                Err(reason) => return shown(&viewer, Err(format!("Key: {reason}."))).await,
            };
            let change = CredentialChange { settings: Settings::default(), sort_order: None, secret: Some(secret) };
            app.store.update_credential(tenant, by, &id, &change).await.map_err(internal)?.is_some()
        }
        _ => return Err(not_found()),
    };
    if !is_there {
        return Err(not_found());
    }
    app.credentials_changed().await;
    see_other(&format!("{HERE}?done={action}"))
}

async fn create(viewer: Viewer, mut form: Query, secret: Option<Secret>) -> Result<Answer, Failure> {
    let (provider, name) = (form.text("provider").unwrap_or_default(), form.text("name"));
    let snapshot = viewer.app.gateway.snapshot();
    if !is_provider(&snapshot, &provider) {
        return shown(&viewer, Err("Provider: is not a known one.".to_owned())).await;
    }
    if name.as_ref().is_some_and(|name| name.chars().count() > LONGEST_NAME) {
        return shown(&viewer, Err(format!("Name: must have at most {LONGEST_NAME} characters."))).await;
    }
    let Some(secret) = secret else {
        return shown(&viewer, Err("Key: type the provider's.".to_owned())).await;
    };
    let workspaces = viewer.workspaces().await?;
    let wanted = form.text("workspace").unwrap_or_default();
    let Some(workspace) = workspaces.iter().find(|workspace| *workspace.id.0 == *wanted) else {
        return shown(&viewer, Err("Workspace: is not one of yours.".to_owned())).await;
    };
    let secret = match described(&snapshot, &viewer.app.vault, &provider, &secret) {
        Ok(secret) => secret,
        Err(reason) => return shown(&viewer, Err(format!("Key: {reason}."))).await,
    };
    let settings = Settings { name: Some(name), ..Settings::default() };
    let new = NewCredential { workspace: &workspace.id, provider: &provider, secret, settings };
    match viewer.app.store.create_credential(&viewer.tenant, &viewer.by, &new).await {
        Ok(_) => {}
        Err(StoreError::Refused(rule)) => return shown(&viewer, Err(format!("The workspace {rule}."))).await,
        Err(error) => return Err(internal(error)),
    }
    viewer.app.credentials_changed().await;
    see_other(&format!("{HERE}?done=create"))
}
