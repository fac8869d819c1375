//! `/byok`: the credentials that an account brings for providers. A raw credential goes in and never comes out again.

use http::StatusCode;
use http::header::HeaderValue;
use serde::Serialize;
use tidegate_core::{KeyHash, Secret};
use tidegate_gateway::Failure;
use tidegate_gateway::snapshot::{Snapshot, Upstream, spoken_scope};
use tidegate_providers::{credential, slugs};
use tidegate_store::credentials::{
    CredentialChange, CredentialFilter, CredentialRow, NewCredential, NewSecret, Settings,
};
use tidegate_store::vault::{Vault, shape};
use tidegate_store::{Refused, StoreError};

use super::account::{Answering, Instant, Request, data, deleted, internal, not_found, page};
use super::form::{Form, parse_uuid, refused};
use crate::router::{Answer, Call};
use crate::state::App;

pub const LONGEST_NAME: usize = 255;
pub const LARGEST_KEY_BYTES: usize = 65_536;
const LONGEST_ENTRY: usize = 255;
const MOST_ENTRIES: usize = 100;
/// Far more than there can be credentials.
const LAST_PLACE: i64 = i32::MAX as i64;
const REGIONS: [(&str, &str); 3] = [("global", "global"), ("europe", "europe"), ("us", "us")];
const UNROUTABLE: HeaderValue = HeaderValue::from_static("unroutable:provider");
const ELSEWHERE: HeaderValue = HeaderValue::from_static("unroutable:address");

/// A credential as it is shown.
#[derive(Serialize)]
struct Credential<'a> {
    id: &'a str,
    provider: &'a str,
    name: Option<&'a str>,
    label: &'a str,
    disabled: bool,
    is_fallback: bool,
    is_required: bool,
    is_byok_only: bool,
    declared_region: Option<&'a str>,
    declared_zdr: Option<bool>,
    allowed_models: Option<&'a [String]>,
    allowed_user_ids: Option<&'a [String]>,
    allowed_api_key_hashes: Option<Vec<String>>,
    sort_order: i64,
    workspace_id: &'a str,
    created_at: Instant,
}

impl<'a> From<&'a CredentialRow> for Credential<'a> {
    fn from(row: &'a CredentialRow) -> Self {
        let hex = |keys: &[KeyHash]| keys.iter().map(|key| key.to_hex()).collect();
        Self {
            id: &row.id,
            provider: &row.provider,
            name: row.name.as_deref(),
            label: &row.label,
            disabled: row.disabled,
            is_fallback: row.is_fallback,
            is_required: row.is_required,
            is_byok_only: row.is_byok_only,
            declared_region: row.declared_region.as_deref(),
            declared_zdr: row.declared_zdr,
            allowed_models: row.allowed_models.as_deref(),
            allowed_user_ids: row.allowed_users.as_deref(),
            allowed_api_key_hashes: row.allowed_keys.as_deref().map(hex),
            sort_order: row.sort_order,
            workspace_id: &row.workspace.0,
            created_at: Instant(row.created),
        }
    }
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = (request.query.offset(), request.query.limit());
        let workspace = request.query.uuid("workspace_id");
        let provider = request.query.text("provider");
        if provider.as_deref().is_some_and(|slug| !is_provider(&request.app.gateway.snapshot(), slug)) {
            request.query.issues.add("provider", "is not a known provider");
        }
        request.query.check()?;
        let workspace = match workspace {
            Some(id) => Some(request.workspace("workspace_id", Some(id)).await?),
            None => None,
        };
        let filter = CredentialFilter { workspace: workspace.as_ref(), provider: provider.as_deref(), offset, limit };
        let found = request.app.store.list_credentials(&request.tenant, filter).await;
        let (rows, total) = found.map_err(internal)?;
        let shown: Vec<Credential<'_>> = rows.iter().map(Credential::from).collect();
        Ok(page(&shown, total))
    })
}

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let snapshot = request.app.gateway.snapshot();
        let mut form = Form::read(&body)?;
        let provider = form.text("provider", 1..=LONGEST_ENTRY);
        let provider = form.require("provider", provider).unwrap_or_default();
        if !form.issues.mention("provider") && !is_provider(&snapshot, &provider) {
            form.issues.add("provider", "is not a known provider");
        }
        let key = form.value("key", |reader, raw| reader.secret(raw, LARGEST_KEY_BYTES));
        let key = form.require("key", key);
        let settings = settings(&mut form);
        let workspace = form.uuid("workspace_id");
        form.finish()?;
        let key = key.ok_or_else(Failure::internal)?;
        let secret =
            described(&snapshot, &request.app.vault, &provider, &key).map_err(|reason| refused("key", reason))?;
        let workspace = request.workspace("workspace_id", workspace).await?;
        let new = NewCredential { workspace: &workspace, provider: &provider, secret, settings };
        let (app, tenant, by) = (&request.app, &request.tenant, &request.by);
        let row = app.store.create_credential(tenant, by, &new).await.map_err(not_stored)?;
        app.credentials_changed().await;
        let mut answer = shown(app, StatusCode::CREATED, &row);
        if upstream(&snapshot, &provider).is_none() {
            answer.headers_mut().insert(snapshot.names.warnings_header.clone(), UNROUTABLE);
        }
        Ok(answer)
    })
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let id = parse_uuid(request.param(0)).ok_or_else(not_found)?;
        let found = request.app.store.find_credential(&request.tenant, &id).await.map_err(internal)?;
        Ok(shown(&request.app, StatusCode::OK, &found.ok_or_else(not_found)?))
    })
}

pub fn update(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let id = parse_uuid(request.param(0)).ok_or_else(|| refused("id", "must be a UUID"))?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let key = form.value("key", |reader, raw| reader.secret(raw, LARGEST_KEY_BYTES));
        let settings = settings(&mut form);
        let sort_order = form.value("sort_order", |reader, raw| reader.integer(raw, 0..=LAST_PLACE));
        form.finish()?;
        let (app, tenant, by) = (&request.app, &request.tenant, &request.by);
        let secret = match &key {
            Some(key) => {
                // Its provider, which never changes, says what the key must look like and where it may go.
                let found = app.store.find_credential(tenant, &id).await.map_err(internal)?;
                let provider = found.ok_or_else(not_found)?.provider;
                let secret = described(&app.gateway.snapshot(), &app.vault, &provider, key);
                Some(secret.map_err(|reason| refused("key", reason))?)
            }
            None => None,
        };
        let change = CredentialChange { settings, sort_order, secret };
        let changed = app.store.update_credential(tenant, by, &id, &change).await.map_err(not_stored)?;
        let row = changed.ok_or_else(not_found)?;
        app.credentials_changed().await;
        Ok(shown(app, StatusCode::OK, &row))
    })
}

pub fn delete(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let id = parse_uuid(request.param(0)).ok_or_else(not_found)?;
        let gone = request.app.store.delete_credential(&request.tenant, &request.by, &id).await.map_err(internal)?;
        if !gone {
            return Err(not_found());
        }
        request.app.credentials_changed().await;
        Ok(deleted())
    })
}

/// A credential, with a word of warning where its provider is reached at another address than it may be sent to: it is not
/// used until it is rotated.
fn shown(app: &App, status: StatusCode, row: &CredentialRow) -> Answer {
    let mut answer = data(status, &Credential::from(row));
    if app.gateway.is_misdirected(&row.provider, row.destination.as_deref()) {
        answer.headers_mut().insert(app.gateway.snapshot().names.warnings_header.clone(), ELSEWHERE);
    }
    answer
}

fn settings(form: &mut Form<'_>) -> Settings {
    let entries = |form: &mut Form<'_>, name: &str| {
        form.nullable(name, |reader, raw| {
            reader.list(raw, 0..=MOST_ENTRIES, |reader, raw| reader.text(raw, 1..=LONGEST_ENTRY))
        })
    };
    let (allowed_models, allowed_users) = (entries(form, "allowed_models"), entries(form, "allowed_user_ids"));
    let allowed_keys = form.nullable("allowed_api_key_hashes", |reader, raw| {
        reader.list(raw, 1..=MOST_ENTRIES, |reader, raw| reader.key_hash(raw))
    });
    let settings = Settings {
        name: form.nullable_text("name", 0..=LONGEST_NAME),
        disabled: form.flag("disabled"),
        is_fallback: form.flag("is_fallback"),
        is_required: form.flag("is_required"),
        is_byok_only: form.flag("is_byok_only"),
        declared_region: form.nullable_word("declared_region", &REGIONS).map(|region| region.map(ToOwned::to_owned)),
        declared_zdr: form.nullable("declared_zdr", |reader, raw| reader.flag(raw)),
        allowed_models,
        allowed_users,
        allowed_keys,
    };
    if settings.is_byok_only == Some(true) && settings.is_fallback == Some(true) {
        form.issues.add("is_byok_only", Refused::ByokOnlyFallback.to_string());
    }
    settings
}

fn not_stored(error: StoreError) -> Failure {
    match error {
        StoreError::Missing => refused("workspace_id", "is not a workspace of this account"),
        StoreError::Refused(rule @ Refused::UnknownKey) => refused("allowed_api_key_hashes", rule.to_string()),
        StoreError::Refused(rule @ Refused::ByokOnlyFallback) => refused("is_byok_only", rule.to_string()),
        StoreError::Refused(rule @ Refused::TooManyCredentials) => refused("workspace_id", rule.to_string()),
        error => internal(error),
    }
}

/// Whether a credential for it can be stored: a vendor we know of, or a provider of the operator's.
pub fn is_provider(snapshot: &Snapshot, slug: &str) -> bool {
    slugs::is_vendor(slug) || upstream(snapshot, slug).is_some()
}

/// The provider as it is usually called.
pub fn upstream<'s>(snapshot: &'s Snapshot, slug: &str) -> Option<&'s Upstream> {
    snapshot.upstreams.iter().find(|upstream| *upstream.slug == *slug)
}

/// What is stored of a key beside itself: how it is shown, and where alone it may be sent. Or what is wrong with it.
pub fn described<'k>(
    snapshot: &Snapshot,
    vault: &'k Vault,
    provider: &str,
    key: &'k Secret,
) -> Result<NewSecret<'k>, &'static str> {
    let label = shape::describe(provider, key)?.label;
    let ways = snapshot.upstreams.iter().filter(|upstream| *upstream.slug == *provider);
    if let Some(flaw) = ways.filter_map(|way| credential::Credential::read(way.auth, key)?.flaw()).next() {
        return Err(flaw);
    }
    Ok(NewSecret { secret: key, vault, label, destination: destination(snapshot, provider, key) })
}

/// Scheme, host and port at which a provider is reached with this key; `None` when there is no telling. A key of several
/// parts may name the place itself, or several, and which models are called in one protocol alone.
fn destination(snapshot: &Snapshot, provider: &str, key: &Secret) -> Option<String> {
    let mut places: Vec<String> = Vec::new();
    for upstream in snapshot.upstreams.iter().filter(|upstream| *upstream.slug == *provider) {
        let Some(credential) = credential::Credential::read(upstream.auth, key) else { continue };
        let named = credential.places(upstream.template.as_deref().filter(|_| credential.is_placed()));
        let found = if credential.is_placed() { named } else { vec![upstream.origin.to_string()] };
        let spoken = credential.spoken().into_iter().map(|(model, protocol)| spoken_scope(model, protocol));
        for place in found.into_iter().chain(spoken) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    (!places.is_empty()).then(|| places.join(" "))
}
