//! Sections about what the gateway does for models: its tools, and the files that they work on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Decimal;

/// What the gateway itself does for models that call its tools.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    /// Tools that nobody may use, by name: `advisor`, `bash`, `datetime`, `experimental__search_models`, `files`, `fusion`,
    /// `image_generation`, `mcp`, `shell`, `subagent`, `tool_search`, `web_fetch`, `web_search`.
    pub disabled: Vec<String>,
    /// Calls that one request may make, whatever its stop conditions say.
    pub max_steps: u64,
    /// Milliseconds after which a request's loop of calls ends. At four fifths of it no further call is made.
    pub loop_deadline_ms: u64,
    /// Calls of one turn that run at the same time.
    pub parallelism: usize,
    /// Bytes of results that a model is given in one request; what is beyond them is cut off, with a note.
    pub result_budget: usize,
    /// Whether results of tools that have no block of their own are shown, in a block that only clients of this gateway know.
    pub generic_result_block: bool,
    /// Searching the web.
    pub web_search: WebSearch,
    /// Drawing for models that cannot.
    pub image_generation: ImageGeneration,
    /// Where commands of models run.
    pub sandbox: Sandbox,
}

/// Drawing for models that cannot.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImageGeneration {
    /// Who draws for requests that name nobody: a model whose `output_modalities` name `image`.
    pub default_model: String,
}

impl Default for ImageGeneration {
    fn default() -> Self {
        Self { default_model: "openai/gpt-5-image".to_owned() }
    }
}

/// Searching the web for models that ask for it. Without an engine nobody can.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebSearch {
    /// The engine for requests that name none; not needed where there is only one.
    pub default_engine: Option<String>,
    /// Engines by the name that requests may call them by.
    pub engines: BTreeMap<String, SearchEngine>,
}

/// An engine that the web is searched with.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchEngine {
    /// Whose format it speaks: `searxng`, `brave`, `tavily`, `exa`, `perplexity`, or `static` for tests.
    pub kind: String,
    /// Where it is; the vendor's own address when left out. A SearXNG must have `json` among its formats.
    pub url: Option<String>,
    /// Its key: `env:NAME`, `file:PATH`, `cmd:[...]` or the value itself.
    pub api_key: Option<String>,
    /// Dollars that a search costs the caller; a search that fails costs nothing.
    pub price_per_call: Option<Decimal>,
    /// Results of a search that are part of that.
    pub included_results: u64,
    /// Dollars for each result beyond those.
    pub price_per_extra_result: Option<Decimal>,
    /// What a static engine finds, whatever it is asked.
    pub results: Vec<SearchResult>,
}

/// Where commands of models run. Without it nobody's do.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sandbox {
    /// `none`; `docker` or `podman`: containers of an engine on this machine; `http`: a service of your own that keeps the
    /// contract of docs/sandbox.md.
    pub backend: String,
    /// The image of the engine's containers, which has to be there already. It needs a shell.
    pub image: Option<String>,
    /// Where the engine listens: /run/docker.sock or /run/podman/podman.sock without it.
    pub socket: Option<String>,
    /// What Docker runs containers with, such as runsc, where that is not what it takes by itself.
    pub runtime: Option<String>,
    /// Containers of the engine at a time; 16 without it.
    pub max_containers: Option<usize>,
    /// Where the service is. Callers do not get there by other ways.
    pub url: Option<String>,
    /// Its key: `env:NAME`, `file:PATH`, `cmd:[...]` or the value itself.
    pub api_key: Option<String>,
    /// Dollars that each started second of a call costs the caller.
    pub price_per_second: Option<Decimal>,
    /// `off`, or `allowlist`: containers reach `allowed_hosts` and nothing else.
    pub network: String,
    pub allowed_hosts: Vec<String>,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            backend: "none".to_owned(),
            image: None,
            socket: None,
            runtime: None,
            max_containers: None,
            url: None,
            api_key: None,
            price_per_second: None,
            network: "off".to_owned(),
            allowed_hosts: Vec::new(),
        }
    }
}

/// What a static engine finds.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchResult {
    pub url: String,
    pub title: String,
    pub content: String,
    pub published_at: Option<String>,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            disabled: Vec::new(),
            max_steps: 100,
            loop_deadline_ms: 600_000,
            parallelism: 8,
            result_budget: 400_000,
            generic_result_block: false,
            web_search: WebSearch::default(),
            image_generation: ImageGeneration::default(),
            sandbox: Sandbox::default(),
        }
    }
}

/// What callers and models may keep in files.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// Bytes of one file, at most 268435456 (256 MiB): a file is read and written as a whole.
    pub max_file_bytes: usize,
    /// Files of one workspace.
    pub max_workspace_files: u64,
    /// Bytes of all files of one workspace together.
    pub max_workspace_bytes: u64,
}

impl Default for Files {
    fn default() -> Self {
        Self { max_file_bytes: 32 << 20, max_workspace_files: 10_000, max_workspace_bytes: 1 << 30 }
    }
}
