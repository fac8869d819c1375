//! `tidegate reload`: has a running gateway read its configuration anew.

use std::process::ExitCode;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use serde::Deserialize;

use super::explain::Server;
use super::out::say;

#[derive(Args)]
pub struct Reload {
    /// Address of the gateway
    #[arg(long, env = "TIDEGATE_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Key to ask the gateway with; better in the environment, where others on the machine do not see it
    #[arg(long, env = "TIDEGATE_MANAGEMENT_KEY", hide_env_values = true, value_name = "KEY")]
    management_key: String,
}

#[derive(Deserialize)]
struct Told {
    needs_restart: Vec<String>,
}

impl Reload {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let server = Server::new(&self.url, Some(&self.management_key), "")?;
        let (status, text) = server.ask("/api/v1/reload", Some(Bytes::new())).await?;
        let told = server.data(status, &text)?;
        let told: Told = serde_json::from_str(&told).context("the answer of the gateway cannot be read")?;
        say!("reloaded")?;
        if !told.needs_restart.is_empty() {
            say!("these stay as they were until a restart: {}", told.needs_restart.join(", "))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
