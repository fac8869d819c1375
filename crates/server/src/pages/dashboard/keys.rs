//! Inference keys: what they may spend and have spent, new ones, and switching them off.

use askama::Template;
use tidegate_core::key;
use tidegate_core::{KeyHash, KeyKind, Money, Window};
use tidegate_gateway::Failure;
use tidegate_store::keys::{KeyChange, KeyFilter, KeyRow, NewKey};
use tidegate_store::spend::Spend;
use tidegate_store::{Refused, StoreError};

use super::words::{dollars, instant};
use super::{Frame, Viewer, page};
use crate::api::account::{internal, not_found};
use crate::api::form::Query;
use crate::api::keys::{RESETS, remaining};
use crate::router::Answer;

const HERE: &str = "/dashboard/keys";
const SHOWN: u32 = 200;
const LONGEST_NAME: usize = 255;
const KIND: Option<KeyKind> = Some(KeyKind::Inference);

#[derive(Template)]
#[template(path = "dashboard/keys.html")]
struct Page<'a> {
    frame: Frame,
    rows: Vec<Row>,
    workspaces: Vec<(String, String)>,
    resets: Vec<&'static str>,
    /// A key that was just made: shown once.
    made: Option<&'a str>,
    /// What was typed, where something is wrong with it.
    typed: Typed,
    more: bool,
}

#[derive(Default)]
struct Typed {
    name: String,
    limit: String,
}

struct Row {
    hash: String,
    name: String,
    label: String,
    workspace: String,
    disabled: bool,
    spent: String,
    today: String,
    limit: String,
    /// As it is typed.
    amount: String,
    reset: &'static str,
    left: String,
    expires: String,
    used: String,
}

pub(super) async fn show(mut viewer: Viewer) -> Result<Answer, Failure> {
    let said = match viewer.query.text("done").as_deref() {
        Some("disable") => Some("The key is switched off."),
        Some("enable") => Some("The key works again."),
        Some("delete") => Some("The key is deleted."),
        Some("limit") => Some("The limit is changed."),
        _ => None,
    };
    shown(&viewer, Ok(said.map(str::to_owned)), Typed::default()).await
}

async fn shown(viewer: &Viewer, said: Result<Option<String>, String>, typed: Typed) -> Result<Answer, Failure> {
    let page_of = prepared(viewer, said, typed).await?;
    page(page_of.frame.status(), &page_of, None)
}

async fn prepared(
    viewer: &Viewer,
    said: Result<Option<String>, String>,
    typed: Typed,
) -> Result<Page<'static>, Failure> {
    viewer.settled().await;
    let (store, tenant) = (&viewer.app.store, &viewer.tenant);
    let creator = viewer.member.as_deref();
    let filter =
        KeyFilter { workspace: None, kind: KIND, creator, include_disabled: true, offset: 0, limit: SHOWN + 1 };
    let mut keys = store.list_keys(tenant, filter).await.map_err(internal)?;
    let more = keys.len() > SHOWN as usize;
    keys.truncate(SHOWN as usize);
    let hashes: Vec<KeyHash> = keys.iter().map(|row| row.hash).collect();
    let spends = store.key_spend(tenant, &hashes, viewer.app.gateway.ledger.now()).await.map_err(internal)?;
    let workspaces = viewer.workspaces().await?;
    let workspaces: Vec<(String, String)> =
        workspaces.into_iter().map(|workspace| (workspace.id.0.to_string(), workspace.name)).collect();
    let row = |key: &KeyRow| row(key, &spends.get(&key.hash).copied().unwrap_or_default(), &workspaces);
    Ok(Page {
        rows: keys.iter().map(row).collect(),
        frame: viewer.frame(HERE).with(said),
        workspaces: workspaces.clone(),
        resets: RESETS.iter().map(|(name, _)| *name).collect(),
        made: None,
        typed,
        more,
    })
}

fn row(key: &KeyRow, spend: &Spend, workspaces: &[(String, String)]) -> Row {
    let workspace = workspaces.iter().find(|(id, _)| **id == *key.workspace.0).map(|(_, name)| name.clone());
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let limit = key.limit.map(|limit| match key.limit_reset {
        Some(window) => format!("{} {}", dollars(limit), window.as_str()),
        None => dollars(limit),
    });
    Row {
        hash: key.hash.to_hex(),
        name: key.name.to_string(),
        label: key.label.to_string(),
        workspace: or_dash(workspace),
        disabled: key.disabled,
        spent: dollars(spend.counted(None, key.include_byok_in_limit)),
        today: dollars(spend.counted(Some(Window::Daily), key.include_byok_in_limit)),
        limit: or_dash(limit),
        amount: key.limit.map(|limit| limit.to_string()).unwrap_or_default(),
        reset: key.limit_reset.map(Window::as_str).unwrap_or_default(),
        left: or_dash(remaining(key, spend).map(dollars)),
        expires: or_dash(key.expires.map(instant)),
        used: or_dash(spend.last_used.map(instant)),
    }
}

pub(super) async fn change(viewer: Viewer, mut form: Query) -> Result<Answer, Failure> {
    let action = form.text("action").unwrap_or_default();
    if action == "create" {
        return create(viewer, form).await;
    }
    let hash = form.text("hash").and_then(|text| KeyHash::parse(&text)).ok_or_else(not_found)?;
    let (store, tenant, by) = (&viewer.app.store, &viewer.tenant, &viewer.by);
    if viewer.member.is_some() {
        let found = store.find_tenant_key(tenant, &hash, KIND).await.map_err(internal)?;
        // Somebody else's are none that a member knows of.
        found.filter(|key| key.creator.as_deref() == viewer.member.as_deref()).ok_or_else(not_found)?;
    }
    let is_there = match action.as_str() {
        "delete" => store.delete_key(tenant, by, &hash, KIND).await.map_err(internal)?,
        "disable" | "enable" => {
            let change = KeyChange { disabled: Some(action == "disable"), ..KeyChange::default() };
            match store.update_key(tenant, by, &hash, KIND, &change).await {
                Ok(changed) => changed.is_some(),
                Err(StoreError::Refused(rule)) => {
                    return shown(&viewer, Err(refusal(rule)), Typed::default()).await;
                }
                Err(error) => return Err(internal(error)),
            }
        }
        "limit" => {
            let (limit, reset) = match limit(&mut form) {
                Ok(limit) => limit,
                Err(problem) => return shown(&viewer, Err(problem), Typed::default()).await,
            };
            let change = KeyChange { limit: Some(limit), limit_reset: Some(reset), ..KeyChange::default() };
            store.update_key(tenant, by, &hash, KIND, &change).await.map_err(internal)?.is_some()
        }
        _ => return Err(not_found()),
    };
    if !is_there {
        return Err(not_found());
    }
    viewer.app.keys_changed().await;
    super::see_other(&format!("{HERE}?done={action}"))
}

type Limit = (Option<Money>, Option<Window>);

/// What a key may spend; nothing typed is no limit.
fn limit(form: &mut Query) -> Result<Limit, String> {
    let limit = match form.text("limit") {
        Some(text) => Some(Money::parse(text.trim()).map_err(|error| format!("Limit: {error}."))?),
        None => None,
    };
    if limit.is_some_and(|limit| limit < Money::ZERO) {
        return Err("Limit: must not be negative.".to_owned());
    }
    let reset = form.text("reset");
    let known = RESETS.iter().find(|(name, _)| Some(*name) == reset.as_deref()).map(|(_, window)| *window);
    if reset.is_some() && known.is_none() {
        return Err("Starts again: is not one of the windows.".to_owned());
    }
    let reset = known;
    Ok((limit, reset.filter(|_| limit.is_some())))
}

async fn create(viewer: Viewer, mut form: Query) -> Result<Answer, Failure> {
    let typed = Typed { name: form.text("name").unwrap_or_default(), limit: form.raw("limit").unwrap_or_default() };
    let name = typed.name.trim().to_owned();
    if name.is_empty() || name.chars().count() > LONGEST_NAME {
        let problem = format!("Name: must have 1 to {LONGEST_NAME} characters.");
        return shown(&viewer, Err(problem), typed).await;
    }
    let is_timed = form.raw("reset").is_some_and(|reset| !reset.is_empty());
    let (limit, limit_reset) = match limit(&mut form) {
        Ok((None, _)) if is_timed => {
            let problem = "Limit: is missing; without one there is nothing that starts again.".to_owned();
            return shown(&viewer, Err(problem), typed).await;
        }
        Ok(limit) => limit,
        Err(problem) => return shown(&viewer, Err(problem), typed).await,
    };
    let wanted = form.text("workspace");
    let workspaces = viewer.workspaces().await?;
    let workspace = workspaces.iter().find(|each| match &wanted {
        Some(wanted) => *each.id.0 == **wanted,
        None => each.is_default(),
    });
    let Some(workspace) = workspace.map(|workspace| workspace.id.clone()) else {
        return shown(&viewer, Err("Workspace: is not one of yours.".to_owned()), typed).await;
    };
    let raw = key::generate(&viewer.app.key_prefix);
    let new = raw.expose(|bytes| NewKey {
        hash: KeyHash::of(bytes),
        kind: KeyKind::Inference,
        name,
        label: key::label(std::str::from_utf8(bytes).unwrap_or_default(), &viewer.app.key_prefix),
        limit,
        limit_reset,
        include_byok_in_limit: false,
        expires: None,
        creator: viewer.session.user().map(ToOwned::to_owned),
        external_user: None,
        app_id: None,
        spawn_agent: None,
        spawn_cloud: None,
    });
    match viewer.app.store.create_key(&viewer.tenant, &viewer.by, &workspace, new).await {
        Ok(_) => {}
        Err(StoreError::Refused(rule)) => return shown(&viewer, Err(refusal(rule)), typed).await,
        Err(error) => return Err(internal(error)),
    }
    viewer.app.keys_changed().await;
    let page_of = prepared(&viewer, Ok(Some("The key is made.".to_owned())), Typed::default()).await?;
    raw.expose(|bytes| {
        let page_of = Page { made: std::str::from_utf8(bytes).ok(), ..page_of };
        page(page_of.frame.status(), &page_of, None)
    })
}

fn refusal(rule: Refused) -> String {
    match rule {
        Refused::NotAMember => format!("Whoever the key belongs to {rule}."),
        rule => format!("The workspace {rule}."),
    }
}
