//! The section about keeping what is said.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is said in requests, for workspaces that want it kept.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IoLogging {
    /// Days that it is kept, 1 to 3650.
    pub retention_days: u32,
}

impl Default for IoLogging {
    fn default() -> Self {
        Self { retention_days: 90 }
    }
}
