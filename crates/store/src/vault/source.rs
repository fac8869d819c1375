//! Where the master keys are: a file, an environment variable, or the output of a command.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use tidegate_core::Secret;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::RingError;

/// Far more than any ring needs.
const LARGEST_BYTES: usize = 64 * 1024;
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
/// How the names of our own environment variables begin.
const OWN_VARIABLES: &str = "TIDEGATE_";

/// The setting `secrets.master_key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKeySource {
    File(PathBuf),
    Environment(String),
    /// A program and its arguments; no shell reads them. At least the program is there.
    Command(Vec<String>),
}

impl FromStr for MasterKeySource {
    type Err = RingError;

    fn from_str(text: &str) -> Result<Self, RingError> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            Some(("env", name)) if !name.is_empty() => Ok(Self::Environment(name.to_owned())),
            Some(("cmd", list)) => match serde_json::from_str::<Vec<String>>(list) {
                Ok(words) if words.first().is_some_and(|program| !program.is_empty()) => Ok(Self::Command(words)),
                _ => Err(RingError::UnknownSource),
            },
            _ => Err(RingError::UnknownSource),
        }
    }
}

/// What tells one state of a file from another without reading it. The time of its last change of any kind is among it,
/// since the time of writing can be set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

/// As in an error: of a command only the program, since arguments can hold anything.
impl fmt::Display for MasterKeySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(out, "file:{}", path.display()),
            Self::Environment(name) => write!(out, "env:{name}"),
            Self::Command(words) => write!(out, "cmd:[{:?}]", words.first().map_or("", String::as_str)),
        }
    }
}

impl MasterKeySource {
    pub(super) async fn read(&self) -> Result<Secret, RingError> {
        let text = match self {
            Self::File(path) => read_file(path),
            Self::Environment(name) => read_variable(std::env::var_os(name)),
            Self::Command(words) => run(words).await,
        };
        text.map_err(|reason| RingError::Source { place: self.to_string(), reason })
    }

    /// The state of the file; `None` for the other sources, which have none.
    pub(super) fn stamp(&self) -> Result<Option<Stamp>, RingError> {
        let Self::File(path) = self else { return Ok(None) };
        match path.metadata() {
            Ok(about) => Ok(Some(Stamp {
                device: about.dev(),
                inode: about.ino(),
                length: about.len(),
                written: (about.mtime(), about.mtime_nsec()),
                changed: (about.ctime(), about.ctime_nsec()),
            })),
            Err(error) => {
                let reason = format!("cannot read the file: {error}");
                Err(RingError::Source { place: self.to_string(), reason })
            }
        }
    }
}

pub(super) fn read_file(path: &Path) -> Result<Secret, String> {
    let failed = |error| format!("cannot read the file: {error}");
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no such file, and the store has been used with a master key: copy it from a \
                                    backup or from another gateway of the same store (docs/accounts.md)"
                .to_owned()
        }
        _ => failed(error),
    })?;
    // Of the open file, not of the path: between two looks at a path it can change.
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!("others than its owner may use the file (mode {mode:03o}): run chmod 600 on it"));
    }
    // Room for all of it from the start, so that no grown-out-of buffer is left behind unwiped.
    let mut text = Vec::with_capacity(LARGEST_BYTES + 1);
    let read = file.take(LARGEST_BYTES as u64 + 1).read_to_end(&mut text);
    let text = Secret::new(text);
    read.map_err(failed)?;
    within_size(text)
}

fn read_variable(value: Option<OsString>) -> Result<Secret, String> {
    let value = value.ok_or_else(|| "the variable is not set".to_owned())?;
    within_size(Secret::new(value.into_vec()))
}

/// Runs the command once. It gets our environment, where key tools look for their own settings, without our variables,
/// which can hold secrets. What it says on its error output is thrown away, since we cannot know what is in it.
async fn run(words: &[String]) -> Result<Secret, String> {
    let (program, arguments) = words.split_first().ok_or_else(|| "names no program".to_owned())?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(OWN_VARIABLES.as_bytes()))
    {
        command.env_remove(name);
    }
    let mut child = command.spawn().map_err(|error| format!("cannot start the program: {error}"))?;
    let output = child.stdout.take().expect("its output is piped");
    let mut text = Vec::with_capacity(LARGEST_BYTES + 1);
    let finished = tokio::time::timeout(COMMAND_LIMIT, async {
        output.take(LARGEST_BYTES as u64 + 1).read_to_end(&mut text).await?;
        child.wait().await
    })
    .await;
    let text = Secret::new(text);
    match finished {
        Err(_) => Err("the program did not finish within 10 seconds".to_owned()),
        Ok(Err(error)) => Err(format!("cannot read what the program says: {error}")),
        Ok(Ok(status)) if !status.success() => Err(format!("the program failed ({status}): run it by hand to see why")),
        Ok(Ok(_)) => within_size(text),
    }
}

pub(super) fn within_size(text: Secret) -> Result<Secret, String> {
    if text.expose(<[u8]>::len) > LARGEST_BYTES {
        return Err("is longer than 64 KiB, which is no ring of keys".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_3_a_source_is_a_file_a_variable_or_an_argument_list() {
        let read = |text: &str| text.parse::<MasterKeySource>().ok();
        assert_eq!(read("file:/etc/ring"), Some(MasterKeySource::File("/etc/ring".into())));
        assert_eq!(read("env:RING"), Some(MasterKeySource::Environment("RING".to_owned())));
        let words = vec!["kms".to_owned(), "a b; c".to_owned()];
        assert_eq!(read(r#"cmd:["kms", "a b; c"]"#), Some(MasterKeySource::Command(words)));
        for text in ["", "file:", "env:", "cmd:", "cmd:[]", r#"cmd:[""]"#, "cmd:kms decrypt", "/etc/ring", "vault:x"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn sec_3_a_variable_yields_its_value() {
        assert!(read_variable(Some("a b".into())).ok().unwrap().expose(|text| text == b"a b"));
        assert_eq!(read_variable(None).err().unwrap(), "the variable is not set");
        assert!(read_variable(Some("x".repeat(LARGEST_BYTES + 1).into())).is_err());
    }
}
