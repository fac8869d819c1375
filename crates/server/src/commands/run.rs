//! `tidegate run`: a program with its base URL and key set.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::bail;

/// Replaces this process by the program; comes back only when that fails.
pub fn run(url: &str, key: &str, command: &[String]) -> anyhow::Result<ExitCode> {
    let Some((program, arguments)) = command.split_first() else {
        bail!("name a program, such as `tidegate run claude`")
    };
    let url = url.trim_end_matches('/');
    let error = Command::new(program)
        .args(settings(program, url))
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

/// What a program must be told that does not look at the environment for it.
fn settings(program: &str, url: &str) -> Vec<String> {
    if Path::new(program).file_name().is_none_or(|name| name != "codex") {
        return Vec::new();
    }
    let provider = format!(
        r#"model_providers.tidegate={{name="Tidegate",base_url="{url}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}"#
    );
    ["-c", r#"model_provider="tidegate""#, "-c", &provider].map(ToOwned::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codex_is_told_by_arguments_where_to_go() {
        assert!(settings("claude", "http://127.0.0.1:1").is_empty());
        for program in ["codex", "/usr/bin/codex"] {
            let told = settings(program, "http://127.0.0.1:1");
            assert_eq!((told[0].as_str(), told[2].as_str(), told.len()), ("-c", "-c", 4));
            assert!(told[3].contains(r#"base_url="http://127.0.0.1:1/v1""#), "{told:?}");
        }
    }
}
