//! Gateways that share a store tell each other which master keys they have and whether letters wait with them, so that
//! nobody takes a key away that another needs, or seals with one that another lacks.

use std::sync::Arc;
use std::time::Duration;

use tidegate_store::journal::JournalReader;
use tidegate_store::vault::Vault;
use tidegate_store::{Store, StoreError};
use tokio::time::{Instant, sleep};

const LOOK: Duration = Duration::from_secs(1);
/// How often it is told although nothing changed.
const AGAIN: Duration = Duration::from_secs(5);

pub struct Teller {
    pub store: Arc<Store>,
    pub vault: Arc<Vault>,
    pub journal: JournalReader,
    pub node: String,
}

impl Teller {
    pub async fn run(self: Arc<Self>) {
        let (mut last, mut is_failing) = (None, false);
        loop {
            let now = Instant::now();
            let keys = self.vault.ids();
            let is_due = last.as_ref().is_none_or(|(known, at)| *known != keys || now >= *at + AGAIN);
            if is_due {
                let told = self.tell(&keys, false).await;
                let was_failing = std::mem::replace(&mut is_failing, told.is_err());
                match told {
                    Ok(()) => last = Some((keys, now)),
                    Err(error) if !was_failing => {
                        tracing::warn!(%error, "other gateways do not hear which master keys this one has");
                    }
                    Err(_) => {}
                }
            }
            sleep(LOOK).await;
        }
    }

    /// The keys were read before the letters are counted: none is sealed under an older one after that.
    async fn tell(&self, keys: &[Box<str>], is_stopped: bool) -> Result<(), StoreError> {
        // What cannot be counted may be anything.
        let letters = self.journal.letters().await.unwrap_or(u64::MAX >> 1);
        self.store.tell_ring(&self.node, keys, letters, is_stopped).await
    }

    /// The last word: a gateway without letters needs no key any more.
    pub async fn leave(&self) {
        let left = match self.journal.letters().await {
            Ok(0) => self.store.forget_ring(&self.node).await,
            _ => self.tell(&self.vault.ids(), true).await,
        };
        if let Err(error) = left {
            tracing::warn!(%error, "other gateways do not hear that this one needs no master key any more");
        }
    }
}
