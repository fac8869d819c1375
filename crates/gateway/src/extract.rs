//! The text of pages and PDFs that strangers wrote. They are read in a child process, which is this very program with
//! nothing but numbers of the configuration as its arguments: whatever a document does to its reader, it does there, within
//! the memory, the time and the output that the child has. Everything that can go wrong is one error.

use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use tidegate_tools::page::{Kind, Page};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::snapshot::Settings;

/// What a child may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of address space.
    pub memory_bytes: u64,
    pub time: Duration,
    /// Children at a time.
    pub parallel: usize,
    pub max_output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 256 << 20, time: Duration::from_secs(10), parallel: 2, max_output_bytes: 4 << 20 }
    }
}

/// Nobody could read it: it is broken, hostile or locked, or there is nobody to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Starts the children.
pub(crate) struct Extractor(Semaphore);

impl Extractor {
    pub fn new(limits: &Limits) -> Self {
        Self(Semaphore::new(limits.parallel))
    }

    /// The text of a document; HTML must be UTF-8.
    pub async fn text(&self, settings: &Settings, kind: Kind, bytes: Bytes) -> Result<Page, Unreadable> {
        let _slot = self.0.acquire().await.map_err(|_| Unreadable)?;
        let limits = &settings.parser;
        let read = async {
            let mut child = started(settings, kind)?;
            let read = timeout(limits.time, told(&mut child, bytes, limits.max_output_bytes)).await;
            if !matches!(read, Ok(Ok(_))) {
                let _ = child.start_kill();
            }
            // Its place is taken until it has gone.
            let status = child.wait().await.map_err(|_| "lost")?;
            let output = read.map_err(|_| "too slow")??;
            if !status.success() {
                return Err("failed");
            }
            serde_json::from_slice(&output).map_err(|_| "not understood")
        };
        read.await.map_err(|reason| {
            tracing::info!(kind = kind.as_str(), reason, "the text of a document could not be read");
            Unreadable
        })
    }
}

fn started(settings: &Settings, kind: Kind) -> Result<Child, &'static str> {
    let (program, limits) = (settings.extractor.as_ref().ok_or("not available")?, &settings.parser);
    // Whole seconds of work; who only waits is stopped by the clock.
    let seconds = limits.time.as_millis().div_ceil(1000).max(1);
    let numbers = [
        ("--memory-bytes", limits.memory_bytes.to_string()),
        ("--cpu-seconds", seconds.to_string()),
        ("--max-output-bytes", limits.max_output_bytes.to_string()),
    ];
    let mut command = Command::new(program);
    command.args(["extract", "--kind", kind.as_str()]);
    for (name, number) in numbers {
        command.args([name, &number]);
    }
    command.env_clear().current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(|_| "not started")
}

/// Gives a child what it is to read, and takes what it says.
async fn told(child: &mut Child, bytes: Bytes, most: usize) -> Result<Vec<u8>, &'static str> {
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return Err("not started") };
    let feed = async move {
        // A child that has gone does not take all of it.
        let _ = input.write_all(&bytes).await;
        drop(input);
    };
    let mut told = Vec::new();
    let mut output = output.take(most as u64 + 1);
    let ((), read) = tokio::join!(feed, output.read_to_end(&mut told));
    read.map_err(|_| "lost")?;
    if told.len() > most { Err("too long") } else { Ok(told) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whatever_a_child_does_is_one_error() {
        let extractor = Extractor::new(&Limits::default());
        let programs = [None, Some("/no/such/program"), Some("/bin/true"), Some("/bin/false"), Some("/bin/echo")];
        for program in programs {
            let settings = Settings { extractor: program.map(Into::into), ..Settings::default() };
            let bytes = Bytes::from(vec![b'a'; 1 << 20]);
            assert_eq!(extractor.text(&settings, Kind::Html, bytes).await, Err(Unreadable), "{program:?}");
        }
        assert_eq!(extractor.0.available_permits(), 2, "every place is given back");
    }
}
