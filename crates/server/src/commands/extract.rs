//! `tidegate extract`: the child process that reads documents of strangers. It takes its limits before it takes anything
//! else, and opens no file and no connection.

use std::io::{Read as _, Write as _, stdin, stdout};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use rustix::process::{Resource, Rlimit, setrlimit};
use tidegate_tools::page::{Kind, Page};

#[derive(Args)]
pub struct Extract {
    /// What is read: html, pdf, docx, xlsx or pptx
    #[arg(long, value_parser = kind)]
    kind: Kind,
    /// Address space
    #[arg(long, default_value_t = 256 << 20)]
    memory_bytes: u64,
    /// Processor time
    #[arg(long, default_value_t = 10)]
    cpu_seconds: u64,
    /// What is written at most
    #[arg(long, default_value_t = 4 << 20)]
    max_output_bytes: usize,
    /// The limits hold already
    #[arg(long)]
    limited: bool,
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::parse(text).ok_or_else(|| "must be html, pdf, docx, xlsx or pptx".to_owned())
}

impl Extract {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if !self.limited {
            return self.limit();
        }
        // From here on nothing can be opened.
        limit(Resource::Nofile, 3)?;
        let mut bytes = Vec::new();
        stdin().lock().read_to_end(&mut bytes)?;
        // A character takes two bytes in JSON at most: control characters, which take more, are left out.
        let most = self.max_output_bytes.saturating_sub(4 << 10) / 2;
        let Some(page) = Page::of(self.kind, &bytes, most) else { bail!("it cannot be read") };
        let mut out = stdout().lock();
        serde_json::to_writer(&mut out, &page)?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    /// Starts the program again under its limits. The allocator has taken address space for itself before the first line
    /// of ours ran; only what begins under a limit keeps to it.
    fn limit(&self) -> anyhow::Result<ExitCode> {
        limit(Resource::Core, 0)?;
        limit(Resource::Fsize, 0)?;
        limit(Resource::Cpu, self.cpu_seconds)?;
        limit(Resource::As, self.memory_bytes)?;
        let program = std::env::current_exe().context("this program is not found")?;
        let error = Command::new(program).args(std::env::args_os().skip(1)).arg("--limited").env_clear().exec();
        bail!("it did not start under its limits: {error}")
    }
}

fn limit(resource: Resource, most: u64) -> anyhow::Result<()> {
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(resource, limit).context("a limit could not be set")
}
