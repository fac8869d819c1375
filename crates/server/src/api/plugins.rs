//! `/workspaces/{id}/plugins`: what a workspace sets for plugins of its requests.

use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_gateway::Failure;
use tidegate_gateway::plugins::defaults::Setting;
use tidegate_store::plugins::{NewPlugin, PluginRow};
use tidegate_wire::envelope::PLUGINS;

use super::account::{Answering, Instant, Request, data, deleted, internal, not_found};
use super::form::{Form, refused};
use super::workspaces::addressed;
use crate::router::Call;

/// What stands beside `config`, or in the path.
const BESIDE: [&str; 3] = ["id", "enabled", "prevent_overrides"];

#[derive(Serialize)]
struct Shown<'a> {
    plugin_id: &'a str,
    workspace_id: &'a str,
    enabled: Option<bool>,
    config: &'a RawValue,
    prevent_overrides: bool,
    created_at: Instant,
    updated_at: Instant,
}

impl<'a> Shown<'a> {
    fn of(row: &'a PluginRow) -> Result<Self, Failure> {
        Ok(Self {
            plugin_id: &row.plugin,
            workspace_id: &row.workspace.0,
            enabled: row.enabled,
            config: serde_json::from_str(&row.config).map_err(|_| Failure::internal())?,
            prevent_overrides: row.prevents_overrides,
            created_at: Instant(row.created),
            updated_at: Instant(row.updated),
        })
    }
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let workspace = addressed(&request).await?;
        let rows = request.app.store.list_plugins(&request.tenant, &workspace.id).await.map_err(internal)?;
        Ok(data(StatusCode::OK, &rows.iter().map(Shown::of).collect::<Result<Vec<_>, _>>()?))
    })
}

pub fn put(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let plugin = plugin(&request)?.to_owned();
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let enabled = form.nullable("enabled", |reader, raw| reader.flag(raw)).flatten();
        let prevents_overrides = form.flag("prevent_overrides").unwrap_or(false);
        let config = form.value("config", |reader, raw| match reader.plain(raw)? {
            Value::Object(members) => Some(members),
            _ => reader.refuse("must be an object"),
        });
        let config: Map<String, Value> = config.unwrap_or_default();
        for name in BESIDE.into_iter().filter(|name| config.contains_key(*name)) {
            form.issues.add(format!("config.{name}"), "does not belong here: it stands beside config or in the path");
        }
        form.finish()?;
        let mut setting = Setting { members: config.clone(), prevents_overrides };
        setting.members.extend(enabled.map(|enabled| ("enabled".to_owned(), Value::Bool(enabled))));
        request.app.gateway.check_plugin(&plugin, &setting).map_err(|problem| {
            let (member, problem) = problem.split_once(' ').unwrap_or(("", &problem));
            // The one member of them that stands beside it.
            let path = if member == "enabled" { member.to_owned() } else { format!("config.{member}") };
            refused(&path, problem)
        })?;
        let workspace = addressed(&request).await?;
        let config = Value::Object(config).to_string();
        let new = NewPlugin { workspace: &workspace.id, plugin: &plugin, enabled, config: &config, prevents_overrides };
        let written = request.app.store.put_plugin(&request.tenant, &request.by, new).await.map_err(internal)?;
        let row = written.ok_or_else(not_found)?;
        request.app.plugins_changed().await;
        Ok(data(StatusCode::OK, &Shown::of(&row)?))
    })
}

pub fn delete(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let plugin = plugin(&request)?;
        let workspace = addressed(&request).await?;
        // What was not set is as gone as what was.
        request.app.store.delete_plugin(&request.tenant, &request.by, &workspace.id, plugin).await.map_err(internal)?;
        request.app.plugins_changed().await;
        Ok(deleted())
    })
}

/// The plugin in the path.
fn plugin(request: &Request) -> Result<&str, Failure> {
    let plugin = request.param(1);
    if PLUGINS.contains(&plugin) {
        return Ok(plugin);
    }
    Err(refused("plugin_id", format!("must be one of {}", PLUGINS.join(", "))))
}
