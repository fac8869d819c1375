//! The section about plugins.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Plugins of all requests.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Plugins {
    /// What is set for a plugin, by its id, as in an entry of `plugins`. Fields that a request gives count instead, unless
    /// `prevent_overrides` is set. A plugin that requests must ask for is on for all of them only with `enabled`.
    pub defaults: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
}
