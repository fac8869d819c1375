//! `tidegate run`: a program with its base URL and key set.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::bail;

/// Replaces this process by the program; comes back only when that fails.
pub fn run(url: &str, key: &str, command: &[String]) -> anyhow::Result<ExitCode> {
    let Some((program, arguments)) = command.split_first() else {
        bail!("name a program, such as `tidegate run claude`")
    };
    let url = url.trim_end_matches('/');
    let error = Command::new(program)
        .args(arguments)
        // Anthropic's clients add /v1 themselves, OpenAI's expect it in the address.
        .env("ANTHROPIC_BASE_URL", url)
        .env("ANTHROPIC_AUTH_TOKEN", key)
        .env("ANTHROPIC_API_KEY", key)
        .env("OPENAI_BASE_URL", format!("{url}/v1"))
        .env("OPENAI_API_KEY", key)
        .exec();
    bail!("{program} could not be started: {error}");
}
