//! `tidegate run`: a program with its base URL and key set.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::bail;

use super::address;

/// Replaces this process by the program; comes back only when that fails.
pub fn run(url: &str, key: &str, command: &[String]) -> anyhow::Result<ExitCode> {
    let Some((program, arguments)) = command.split_first() else {
        bail!("name a program, such as `tidegate run claude`")
    };
    let url = address::base(url)?;
    let mut child = Command::new(program);
    child.args(settings(program, url)).args(arguments);
    for (name, value) in environment(program, url, key) {
        match value {
            Some(value) => child.env(name, value),
            None => child.env_remove(name),
        };
    }
    let error = child.exec();
    bail!("{program} could not be started: {error}");
}

/// Variables that are set, and those that are taken away.
fn environment(program: &str, url: &str, key: &str) -> [(&'static str, Option<String>); 5] {
    // Claude Code warns of both, and asks whether a key in this one is to be used at all.
    let api_key = (!is_called(program, "claude")).then(|| key.to_owned());
    [
        // Anthropic's clients add /v1 themselves, OpenAI's expect it in the address.
        ("ANTHROPIC_BASE_URL", Some(url.to_owned())),
        ("ANTHROPIC_AUTH_TOKEN", Some(key.to_owned())),
        ("ANTHROPIC_API_KEY", api_key),
        ("OPENAI_BASE_URL", Some(format!("{url}/v1"))),
        ("OPENAI_API_KEY", Some(key.to_owned())),
    ]
}

fn is_called(program: &str, name: &str) -> bool {
    Path::new(program).file_name().is_some_and(|program| program == name)
}

/// What a program must be told that does not look at the environment for it.
fn settings(program: &str, url: &str) -> Vec<String> {
    if !is_called(program, "codex") {
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
    fn claude_code_is_given_one_key_and_others_both() {
        for (program, api_key) in [("claude", None), ("/usr/bin/claude", None), ("claudette", Some("k"))] {
            let set = environment(program, "http://h", "k");
            let value = |name: &str| set.iter().find(|(known, _)| *known == name).unwrap().1.as_deref();
            assert_eq!((value("ANTHROPIC_AUTH_TOKEN"), value("ANTHROPIC_API_KEY")), (Some("k"), api_key), "{program}");
        }
    }

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
