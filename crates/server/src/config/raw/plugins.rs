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

/// Panels of models that answer together.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fusion {
    /// By name: `general-high` for `tidegate/fusion` and requests that name none, `general-budget`, and `general-fast` for
    /// `tidegate/fusion-flash`.
    pub presets: BTreeMap<String, FusionPreset>,
}

/// A panel of models.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FusionPreset {
    /// Who is asked: one to eight models.
    pub analysis_models: Vec<String>,
    /// Who compares what they say, and answers where the request names a panel instead of a model; the first of the panel
    /// when left out.
    pub model: Option<String>,
}
