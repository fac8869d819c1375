//! Instruction counts of the hot path's pure parts: exact where time is noise.
//!
//! The program under callgrind is an ordinary benchmark target that runs one case at a time and names the function to
//! count, so valgrind is all it takes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::table::Table;

/// Smaller changes come from code that moved, not from code that was written.
const TOLERATED: f64 = 0.02;

#[derive(clap::Args)]
pub struct Options {
    /// A benchmark program, as `cargo bench --no-run` built it; may be given several times
    #[arg(long, required = true)]
    program: Vec<PathBuf>,
    /// The stored counts, name to instructions
    #[arg(long, default_value = "bench/instructions.json")]
    baseline: PathBuf,
    /// Replace the stored counts by the new ones
    #[arg(long)]
    store: bool,
    /// For callgrind's own files
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

type Counts = BTreeMap<String, u64>;

pub fn run(options: &Options) -> anyhow::Result<()> {
    fs::create_dir_all(&options.out)?;
    let mut counts = Counts::new();
    for program in &options.program {
        let names = Command::new(program).arg("--names").output();
        let names = names.with_context(|| format!("cannot run {}", program.display()))?;
        let names = String::from_utf8(names.stdout)?;
        ensure!(!names.is_empty(), "{} has no cases", program.display());
        for name in names.lines() {
            counts.insert(name.to_owned(), instructions(program, name, &options.out)?);
        }
    }
    let stored = match fs::read(&options.baseline) {
        Ok(bytes) => serde_json::from_slice(&bytes).context("the stored counts are damaged")?,
        Err(_) => Counts::new(),
    };
    let (table, changed) = compared(&counts, &stored);
    print!("{}", table.text());
    if options.store {
        if let Some(folder) = options.baseline.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&options.baseline, serde_json::to_string_pretty(&counts)? + "\n")?;
        println!("stored in {}", options.baseline.display());
    } else if changed > 0 {
        println!("warning: {changed} of {} differ from {}", counts.len(), options.baseline.display());
    }
    Ok(())
}

fn instructions(program: &Path, name: &str, out: &Path) -> anyhow::Result<u64> {
    let file = out.join(format!("callgrind.{name}.out"));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*measured*"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(["--case", name])
        .stdout(Stdio::null())
        .output()
        .context("cannot run valgrind")?;
    ensure!(run.status.success(), "{name} failed under callgrind: {}", String::from_utf8_lossy(&run.stderr));
    total(&fs::read_to_string(&file)?).with_context(|| format!("no count in {}", file.display()))
}

fn total(out: &str) -> Option<u64> {
    let line = out.lines().find_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")))?;
    line.split_whitespace().next()?.parse().ok().filter(|count| *count > 0)
}

fn compared(counts: &Counts, stored: &Counts) -> (Table, usize) {
    let mut table = Table::new("Instructions (callgrind)", &["case", "instructions", "stored", "change", ""]);
    let mut changed = 0;
    for (name, count) in counts {
        let before = stored.get(name).copied().filter(|before| *before > 0);
        let change = before.map(|before| *count as f64 / before as f64 - 1.0);
        let (change, remark) = match change {
            Some(change) if change.abs() > TOLERATED => (format!("{:+.1} %", change * 100.0), "CHANGED"),
            Some(change) => (format!("{:+.1} %", change * 100.0), ""),
            None => ("-".to_owned(), "new"),
        };
        changed += usize::from(!remark.is_empty());
        let before = before.map_or_else(|| "-".to_owned(), |before| before.to_string());
        table.row(vec![name.clone(), count.to_string(), before, change, remark.to_owned()]);
    }
    for name in stored.keys().filter(|name| !counts.contains_key(*name)) {
        changed += 1;
        table.row(vec![name.clone(), "-".into(), stored[name].to_string(), "-".into(), "gone".into()]);
    }
    (table, changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_are_tolerated() {
        let counts = |list: &[(&str, u64)]| list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let stored: Counts = counts(&[("same", 1000), ("more", 1000), ("gone", 1)]);
        let (table, changed) = compared(&counts(&[("same", 1019), ("more", 1021), ("new", 5)]), &stored);
        assert_eq!(changed, 3);
        let text = table.text();
        assert!(text.contains("+1.9 %\n") && text.contains("+2.1 %  CHANGED"), "{text}");
    }

    #[test]
    fn the_total_is_found() {
        assert_eq!(total("version: 1\nevents: Ir\nsummary: 12 0\ntotals: 12\n"), Some(12));
        assert_eq!(total("totals: 0\n"), None);
    }
}
