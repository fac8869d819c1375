//! `tidegate credits`: what the account may spend, from a shell. A running server notices a grant within two seconds.

use anyhow::bail;
use clap::Subcommand;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::{Money, Tenant};
use tidegate_store::Store;
use tidegate_store::audit::By;

use super::keys::open;
use super::out::{say, shown};
use crate::cli::Place;

const LONGEST_NOTE: usize = 500;
/// Grants that are shown, newest first.
const SHOWN: u32 = 20;

#[derive(Subcommand)]
pub enum Credits {
    /// Grant credits and print the grant's id
    #[command(
        after_help = "Examples:\n  tidegate credits grant 25\n  tidegate credits grant 0.50 --note 'for the trial'"
    )]
    Grant {
        #[command(flatten)]
        place: Place,
        /// Dollars, to at most nine places
        #[arg(allow_hyphen_values = true)]
        amount: String,
        /// What it is for
        #[arg(long)]
        note: Option<String>,
    },
    /// Show what was granted and what has been used
    #[command(after_help = "Example:\n  tidegate credits show")]
    Show {
        #[command(flatten)]
        place: Place,
    },
}

impl Credits {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Grant { place, amount, note } => grant(place, &amount, note.as_deref()).await,
            Self::Show { place } => {
                let source = place.source(None);
                let is_limited = source.read()?.settings.billing.enabled;
                let (store, tenant) = open(&source).await?;
                let told = show(&store, &tenant, is_limited).await;
                store.close().await;
                told
            }
        }
    }
}

async fn grant(place: Place, amount: &str, note: Option<&str>) -> anyhow::Result<()> {
    let amount = Money::parse(amount).map_err(|error| anyhow::anyhow!("the amount {error}"))?;
    if amount == Money::ZERO {
        bail!("the amount must be greater than 0");
    }
    let length = note.map(|note| note.chars().count());
    if length.is_some_and(|length| !(1..=LONGEST_NOTE).contains(&length))
        || note.is_some_and(|note| note.contains('\0'))
    {
        bail!("--note must have 1 to {LONGEST_NOTE} characters");
    }
    let (store, tenant) = open(&place.source(None)).await?;
    let granted = store.grant_credits(&tenant, &By::shell(SystemClock.now()), amount, note).await;
    let total = store.total_granted(&tenant).await;
    store.close().await;
    let (granted, total) = (granted?, total?);
    say!("{}", granted.id)?;
    eprintln!("Granted ${}; that makes ${total} in all.", granted.amount);
    Ok(())
}

async fn show(store: &Store, tenant: &Tenant, is_limited: bool) -> anyhow::Result<()> {
    let (granted, used) = (store.total_granted(tenant).await?, store.total_usage(tenant).await?);
    let (grants, total) = store.list_grants(tenant, 0, SHOWN).await?;
    say!("granted ${granted}")?;
    say!("used    ${used}")?;
    match is_limited {
        true => say!("left    ${}", granted.minus(used))?,
        false => say!("billing is off: credits limit nothing")?,
    }
    if grants.is_empty() {
        return Ok(());
    }
    say!("")?;
    say!("{:<36} {:<24} {:<14} NOTE", "GRANT", "AT", "AMOUNT")?;
    for grant in &grants {
        let (at, amount) = (grant.created.to_string(), format!("${}", grant.amount));
        say!("{:<36} {at:<24} {amount:<14} {}", grant.id, shown(grant.note.as_deref().unwrap_or("-")))?;
    }
    let more = total.saturating_sub(grants.len() as u64);
    if more > 0 {
        say!("and {more} before them")?;
    }
    Ok(())
}
