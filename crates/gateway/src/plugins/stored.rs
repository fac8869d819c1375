//! What workspaces set for plugins, as it is used: all in memory, fresh within a second of any change. A request of a
//! workspace that sets nothing pays for one look.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use serde_json::Value;
use tidegate_core::WorkspaceId;
use tidegate_store::plugins::PluginRow;
use tidegate_store::{Store, StoreError};

use super::defaults::{self, Defaults, Setting};
use crate::Gateway;
use crate::snapshot::Settings;

pub struct Stored {
    store: Arc<Store>,
    seen: AtomicI64,
    by_workspace: ArcSwap<HashMap<WorkspaceId, Arc<Defaults>>>,
}

/// What stands below a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing<'a> {
    pub defaults: Cow<'a, Defaults>,
    /// Plugins for which the workspace was not heard.
    pub unheard: Vec<String>,
}

impl<'a> From<&'a Settings> for Standing<'a> {
    /// What the operator says alone.
    fn from(settings: &'a Settings) -> Self {
        Self { defaults: Cow::Borrowed(&settings.plugin_defaults), unheard: Vec::new() }
    }
}

impl Stored {
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, seen: AtomicI64::new(-1), by_workspace: ArcSwap::default() }
    }

    /// Takes over what changed in the store since the last call.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        if self.store.plugins_seq().await? == self.seen.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (seq, rows) = self.store.all_plugins().await?;
        let mut by_workspace: HashMap<WorkspaceId, Defaults> = HashMap::new();
        for row in rows {
            match setting(&row) {
                Some(setting) => {
                    by_workspace.entry(row.workspace).or_default().insert(row.plugin, setting);
                }
                None => {
                    tracing::error!(workspace = %row.workspace.0, plugin = row.plugin, "a stored setting of a plugin cannot be used")
                }
            }
        }
        let shared = by_workspace.into_iter().map(|(workspace, settings)| (workspace, Arc::new(settings)));
        self.by_workspace.store(Arc::new(shared.collect()));
        self.seen.store(seq, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn of(&self, workspace: &WorkspaceId) -> Option<Arc<Defaults>> {
        let all = self.by_workspace.load();
        if all.is_empty() {
            return None;
        }
        all.get(workspace).cloned()
    }

    /// What stands below the requests of a workspace.
    pub(crate) fn standing<'a>(&self, workspace: &WorkspaceId, settings: &'a Settings) -> Standing<'a> {
        let Some(own) = self.of(workspace) else { return settings.into() };
        let (defaults, unheard) = defaults::over(&settings.plugin_defaults, &own);
        Standing { defaults: Cow::Owned(defaults), unheard }
    }
}

impl Gateway {
    /// Whether a workspace can set this for a plugin; the problem begins with the member's name.
    pub fn check_plugin(&self, id: &str, setting: &Setting) -> Result<(), String> {
        setting.check(id)?;
        let snapshot = self.snapshot();
        setting.check_configured(id, &snapshot)?;
        setting.check_engine(id, &snapshot.settings)
    }
}

/// None when it is no longer what this build takes: a request then has the operator's word instead of an error.
fn setting(row: &PluginRow) -> Option<Setting> {
    let Ok(Value::Object(mut members)) = serde_json::from_str(&row.config) else { return None };
    if let Some(enabled) = row.enabled {
        members.insert("enabled".into(), enabled.into());
    }
    let setting = Setting { members, prevents_overrides: row.prevents_overrides };
    setting.check(&row.plugin).is_ok().then_some(setting)
}
