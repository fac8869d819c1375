//! Secrets in the configuration: `env:NAME`, `file:PATH`, `cmd:["program", "argument"]`, or the value itself.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use tidegate_core::Secret;

use super::Source;

/// Resolves a reference. Errors name the reference, never a value.
pub(super) fn resolve(text: &str, source: &Source) -> anyhow::Result<Secret> {
    let secret = match text.split_once(':') {
        Some(("env", name)) => {
            let value = source.variable(name).with_context(|| format!("environment variable {name} is not set"))?;
            Secret::new(value.trim())
        }
        Some(("file", path)) => {
            let path = source.data_dir.join(Path::new(path));
            let text = std::fs::read_to_string(&path).with_context(|| format!("secret file {}", path.display()))?;
            Secret::new(text.trim())
        }
        Some(("cmd", list)) => run(list)?,
        _ => Secret::new(text.trim()),
    };
    if secret.is_empty() {
        bail!("the secret is empty");
    }
    Ok(secret)
}

/// Runs a program given as a list of arguments; no shell is involved.
fn run(list: &str) -> anyhow::Result<Secret> {
    let words: Vec<String> =
        serde_json::from_str(list).context("cmd: needs a list such as [\"program\", \"argument\"]")?;
    let Some((program, arguments)) = words.split_first() else { bail!("cmd: needs a program") };
    let output = Command::new(program).args(arguments).output().with_context(|| format!("command {program}"))?;
    if !output.status.success() {
        bail!("command {program} ended with {}", output.status);
    }
    Ok(Secret::new(output.stdout.trim_ascii()))
}
