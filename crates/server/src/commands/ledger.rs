//! `tidegate ledger verify`: whether what is stored as spent is what the records say. A server runs the same by itself.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use tidegate_core::{Exchange, Money, Tenant};
use tidegate_store::Store;
use tidegate_store::journal::{Cursor, JournalError, JournalReader, JournalRow};
use tidegate_store::verify::Verified;

use super::keys::open_any;
use super::out::{say, shown};
use crate::cli::Place;

/// Faults of the journal that are told.
const TOLD: usize = 100;

#[derive(Subcommand)]
pub enum Ledger {
    /// Add up all spending again from the records and compare; the server may run
    #[command(after_help = "Example:\n  tidegate ledger verify && echo sound")]
    Verify {
        #[command(flatten)]
        place: Place,
    },
}

impl Ledger {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Verify { place } = self;
        let source = place.source(None);
        let folder = source.read()?.data_dir;
        let (store, _) = open_any(&source).await?;
        let report = verify(&store, &folder).await;
        store.close().await;
        let report = report?;
        for fault in report.faults() {
            eprintln!("tidegate: {}", shown(&fault));
        }
        say!("{report}")?;
        Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What was looked at and found.
#[derive(Debug)]
pub struct Report {
    pub spend: Verified,
    /// `None` when the data folder has no journal.
    pub journal: Option<JournalReport>,
}

#[derive(Debug, Default)]
pub struct JournalReport {
    /// Calls under way, as far as can be told from the file.
    pub open: u64,
    /// Finished calls that the store has not confirmed yet.
    pub waiting: u64,
    pub faults: Vec<String>,
}

impl JournalReport {
    fn add(&mut self, fault: String) {
        if self.faults.len() < TOLD {
            self.faults.push(fault);
        }
    }
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.spend.is_clean() && self.journal.as_ref().is_none_or(|journal| journal.faults.is_empty())
    }

    /// Everything that is wrong, a line each.
    pub fn faults(&self) -> impl Iterator<Item = String> {
        let cut = self.spend.is_cut.then(|| "there are more differences than these".to_owned());
        let days = self.spend.differences.iter().map(ToString::to_string);
        let journal = self.journal.iter().flat_map(|journal| journal.faults.iter().cloned());
        days.chain(cut).chain(journal)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verified { generations, archived, accounts, days, leases, .. } = &self.spend;
        write!(
            out,
            "{generations} records and {archived} archived ones, {days} days of {accounts} accounts, {leases} leases: "
        )?;
        match self.spend.differences.len() {
            0 => write!(out, "all adds up")?,
            number => write!(out, "{number} differences")?,
        }
        match &self.journal {
            None => write!(out, "\nno journal in the data folder"),
            Some(JournalReport { open, waiting, faults }) => {
                write!(out, "\njournal: {open} calls open, {waiting} on their way to the store")?;
                if faults.is_empty() { Ok(()) } else { write!(out, ", {} faults", faults.len()) }
            }
        }
    }
}

/// Proves what is stored, and looks whether the journal of this node agrees with it. Nothing is changed, and nobody has to
/// stand still for it.
pub async fn verify(store: &Store, journal_folder: &Path) -> anyhow::Result<Report> {
    let spend = store.verify_spend().await?;
    let Some(reader) = JournalReader::open(journal_folder) else { return Ok(Report { spend, journal: None }) };
    let mut journal = JournalReport::default();
    let looked = look(store, &reader, &mut journal).await;
    reader.close().await;
    if let Err(error) = looked {
        match error.downcast::<JournalError>() {
            Ok(JournalError::Damaged(reason)) => journal.add(format!("the journal's file is damaged: {reason}")),
            Ok(other) => return Err(other.into()),
            Err(other) => return Err(other),
        }
    }
    Ok(Report { spend, journal: Some(journal) })
}

async fn look(store: &Store, reader: &JournalReader, report: &mut JournalReport) -> anyhow::Result<()> {
    if !reader.is_whole().await? {
        report.add("the journal's file is damaged".to_owned());
    }
    let epoch = reader.epoch().await?;
    for (start, row) in reader.open_rows().await? {
        report.open += 1;
        // Whoever starts closes first what earlier starts left; calls of the start under way may still run. They have no
        // cost yet that could contradict anything.
        if checked(&row, report).is_some() && start < epoch {
            let id = &row.generation;
            report.add(format!("call {id} was left open by start {start} and has not been closed since"));
        }
    }
    let mut cursor = Cursor::default();
    loop {
        let rows = reader.next_settled_rows(&mut cursor).await?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            report.waiting += 1;
            if let Some(exchange) = checked(row, report)
                && let Some(fault) = contradiction(store, &exchange).await?
            {
                report.add(format!("call {}: {fault}", row.generation));
            }
        }
    }
    for row in reader.unreadable_rows().await? {
        checked(&row, report);
    }
    Ok(())
}

/// What a row says, if it can be read and is about the call that it names.
fn checked(row: &JournalRow, report: &mut JournalReport) -> Option<Exchange> {
    let id = &row.generation;
    match row.exchange() {
        Ok(exchange) if exchange.id.as_str() == id => return Some(exchange),
        Ok(exchange) => report.add(format!("call {id}: its row is about {}", exchange.id)),
        Err(error) => report.add(format!("call {id}: {error}")),
    }
    None
}

/// What the store says of a call, where that is not what the journal says. A call may be in both: it leaves the journal
/// after it has arrived.
async fn contradiction(store: &Store, exchange: &Exchange) -> anyhow::Result<Option<String>> {
    let tenant = Tenant { organisation: exchange.organisation.clone() };
    let Some(stored) = store.find_generation(&tenant, &exchange.id).await? else { return Ok(None) };
    let journal = (exchange.key, exchange.started, exchange.cost, exchange.list_cost, exchange.is_byok);
    if journal == (stored.key, stored.started, stored.cost, stored.list_cost, stored.is_byok) {
        return Ok(None);
    }
    let shown = |cost: Option<Money>| cost.map_or_else(|| "no price".to_owned(), |cost| format!("${cost}"));
    Ok(Some(format!("the journal says {}, the store {}", shown(exchange.cost), shown(stored.cost))))
}
