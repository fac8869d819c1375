//! `/presets`: settings of requests under a slug. An inference key sees and writes those of its workspace.

use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_core::Api;
use tidegate_gateway::Failure;
use tidegate_store::presets::{NewPresetVersion, PresetRow, PresetVersion};
use tidegate_store::{Refused, StoreError};
use tidegate_wire::error::ErrorType;
use tidegate_wire::preset::system_text;

use super::account::{Answering, Instant, Request, conflict, data, internal, not_found, page};
use super::form::refused;
use crate::router::Call;

const LONGEST_SLUG: usize = 100;
/// What is kept of a request at most, in bytes. A page of versions is a hundred times that.
const MOST_KEPT: usize = 256 << 10;

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    name: &'a str,
    slug: &'a str,
    description: Option<&'a str>,
    status: &'static str,
    status_updated_at: Option<Instant>,
    creator_user_id: Option<&'a str>,
    designated_version_id: &'a str,
    workspace_id: &'a str,
    created_at: Instant,
    updated_at: Instant,
    /// Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    designated_version: Option<Option<ShownVersion<'a>>>,
}

impl<'a> From<&'a PresetRow> for Shown<'a> {
    fn from(preset: &'a PresetRow) -> Self {
        Self {
            id: &preset.id,
            name: &preset.name,
            slug: &preset.slug,
            description: preset.description.as_deref(),
            status: preset.status.as_str(),
            status_updated_at: preset.status_updated.map(Instant),
            creator_user_id: preset.creator.as_deref(),
            designated_version_id: &preset.designated,
            workspace_id: &preset.workspace.0,
            created_at: Instant(preset.created),
            updated_at: Instant(preset.updated),
            designated_version: None,
        }
    }
}

#[derive(Serialize)]
struct ShownVersion<'a> {
    id: &'a str,
    preset_id: &'a str,
    version: i64,
    config: &'a RawValue,
    system_prompt: Option<String>,
    creator_id: &'a str,
    created_at: Instant,
    /// A version never changes.
    updated_at: Instant,
}

impl<'a> ShownVersion<'a> {
    fn of(version: &'a PresetVersion) -> Result<Self, Failure> {
        Ok(Self {
            id: &version.id,
            preset_id: &version.preset,
            version: version.number,
            config: serde_json::from_str(&version.config).map_err(|_| Failure::internal())?,
            system_prompt: version.system.as_deref().and_then(system_text),
            creator_id: &version.creator,
            created_at: Instant(version.created),
            updated_at: Instant(version.created),
        })
    }
}

impl<'a> Shown<'a> {
    /// With the version that is used.
    fn with(preset: &'a PresetRow, version: Option<&'a PresetVersion>) -> Result<Self, Failure> {
        let version = version.map(ShownVersion::of).transpose()?;
        Ok(Self { designated_version: Some(version), ..Self::from(preset) })
    }
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = (request.query.offset(), request.query.limit());
        request.query.check()?;
        let (store, workspace) = (&request.app.store, &request.key.workspace);
        let listed = store.list_presets(&request.tenant, workspace, offset, limit).await;
        let (presets, total) = listed.map_err(internal)?;
        Ok(page(&presets.iter().map(Shown::from).collect::<Vec<_>>(), total))
    })
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let preset = addressed(&request).await?;
        let found = request.app.store.find_preset_version(&request.tenant, &preset.designated).await;
        let version = found.map_err(internal)?;
        Ok(data(StatusCode::OK, &Shown::with(&preset, version.as_ref())?))
    })
}

pub fn versions(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = (request.query.offset(), request.query.limit());
        request.query.check()?;
        let preset = addressed(&request).await?;
        let listed = request.app.store.list_preset_versions(&request.tenant, &preset.id, offset, limit).await;
        let (versions, total) = listed.map_err(internal)?;
        Ok(page(&versions.iter().map(ShownVersion::of).collect::<Result<Vec<_>, _>>()?, total))
    })
}

pub fn version(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let number = request.param(1);
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refused("version", "must be the number of a version: 1, 2, ..."));
        }
        let preset = addressed(&request).await?;
        // More digits than fit are more than there are versions.
        let number = number.parse().map_err(|_| not_found())?;
        let found = request.app.store.find_numbered_preset_version(&request.tenant, &preset.id, number).await;
        let version = found.map_err(internal)?.ok_or_else(not_found)?;
        Ok(data(StatusCode::OK, &ShownVersion::of(&version)?))
    })
}

pub fn create(call: Call) -> Answering {
    created(call, Api::Messages)
}

/// Of a request in the chat format; what is kept is in the words of the Messages format.
pub fn create_of_chat(call: Call) -> Answering {
    created(call, Api::Chat)
}

pub fn create_of_responses(call: Call) -> Answering {
    created(call, Api::Responses)
}

fn created(call: Call, api: Api) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let slug = slug(&request)?.to_owned();
        let body = request.message_body().await?;
        let (kept, warnings) = request.app.gateway.kept(api, &body).map_err(|violation| {
            let (path, message) = violation.parts();
            refused(path, message)
        })?;
        drop(body);
        if kept.size_bytes() > MOST_KEPT {
            let size = kept.size_bytes();
            let message = format!("has {size} bytes of settings and system prompt; a preset holds at most {MOST_KEPT}");
            return Err(refused("", message));
        }
        let (store, key) = (&request.app.store, &request.key);
        // The version that this one comes after. Whoever writes another one from here on is in our way, or we in theirs.
        let known = store.find_preset(&request.tenant, &slug).await.map_err(internal)?;
        let creator = key.creator.as_deref().map_or_else(|| key.hash.to_hex(), ToOwned::to_owned);
        let new = NewPresetVersion {
            workspace: &key.workspace,
            slug: &slug,
            after: known.map_or(0, |known| known.last_version),
            config: &kept.config,
            system: kept.system.as_deref(),
            member: key.creator.as_deref(),
            creator: &creator,
        };
        let written = store.write_preset(&request.tenant, &request.by, new).await;
        let written = written.map_err(|error| refusal(error, &slug))?;
        let (preset, version) = written.ok_or_else(not_found)?;
        request.app.presets_changed().await;
        let mut answer = data(StatusCode::OK, &Shown::with(&preset, Some(&version))?);
        request.app.gateway.warn(answer.headers_mut(), &warnings);
        Ok(answer)
    })
}

fn refusal(error: StoreError, slug: &str) -> Failure {
    match error {
        StoreError::Conflict | StoreError::Busy(_) => conflict(),
        StoreError::Refused(rule @ Refused::OfAnotherWorkspace) => {
            Failure::new(403, ErrorType::PermissionDenied, format!("Preset {slug} {rule}"))
        }
        StoreError::Refused(rule) => refused("", format!("the workspace {rule}")),
        // The workspace went while the request was on its way.
        StoreError::Missing => not_found(),
        error => internal(error),
    }
}

/// The preset in the path, if it is one of the caller's workspace.
async fn addressed(request: &Request) -> Result<PresetRow, Failure> {
    let found = request.app.store.find_preset(&request.tenant, slug(request)?).await.map_err(internal)?;
    found.filter(|preset| preset.workspace == request.key.workspace).ok_or_else(not_found)
}

fn slug(request: &Request) -> Result<&str, Failure> {
    let slug = request.param(0);
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if slug.len() > LONGEST_SLUG || !slug.split('-').all(is_word) {
        let message = "must be words of lower-case letters and digits joined by hyphens, at most 100 characters";
        return Err(refused("slug", message));
    }
    Ok(slug)
}
