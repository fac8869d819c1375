//! The vault: how stored secrets are sealed, and the master keys they are sealed under. No database in here.
//!
//! Each secret is encrypted under a data key of its own, which is wrapped under the active master key of the ring
//! ([`ring`](MasterRing)). Both are bound to the place the secret is stored at, so that a ciphertext moved elsewhere
//! does not open. A change of master keys wraps the data keys again and leaves the secrets alone. Start with [`Vault`];
//! [`shape`] is what a provider's secret must look like and how it is shown.

mod blob;
mod file;
mod ring;
mod seal;
mod source;

pub mod shape;

use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::{hkdf, hmac};
use tidegate_core::Secret;
use tokio::sync::Mutex;

pub use file::{activate_key, add_active_key, add_key, remove_keys};
pub use ring::{MasterKey, MasterRing, RingError};
pub use seal::{Binding, Sealed};
pub use source::MasterKeySource;

use source::Stamp;

/// Keeps the keys for signatures apart from any other use that a master key is ever put to.
const SIGNING_SALT: &[u8] = b"tidegate vault signature";

/// Where the check record is stored. Public, for it is rewrapped like any other record when the master key changes.
pub const CHECK: Binding<'static> = Binding {
    table: "meta",
    column: "vault_check",
    record: "vault_check",
    workspace: "",
    provider: "",
    destination: None,
};
const CHECK_TEXT: &str = "this vault was opened with the right ring";

/// Seals and opens secrets with the ring of the moment, which [`Vault::refresh`] replaces while others use it.
pub struct Vault {
    source: MasterKeySource,
    ring: ArcSwap<MasterRing>,
    /// The ring's file as it was when last read. Held during a read, lest a slow one put an older ring over a newer.
    seen: Mutex<Option<Stamp>>,
}

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("sealed under the master key {0:?}, which is not in the ring: put it back into secrets.master_key")]
    UnknownMasterKey(Box<str>),
    #[error("does not open: it was changed, moved from another place, or sealed under another key of the same id")]
    DoesNotOpen,
    #[error("sealed in format {0}, which this version of tidegate does not know")]
    UnknownVersion(i64),
    #[error("the cryptographic library failed")]
    Broken,
    #[error(transparent)]
    Ring(#[from] RingError),
}

impl Vault {
    /// A vault with a ring that was just read from `source`.
    pub fn new(source: MasterKeySource, ring: MasterRing) -> Self {
        Self { source, ring: ArcSwap::from_pointee(ring), seen: Mutex::new(None) }
    }

    /// Seals a secret under the active master key; no two results are alike.
    pub fn seal(&self, binding: &Binding, secret: &Secret) -> Result<Sealed, VaultError> {
        seal::seal(self.ring.load().active(), binding, secret)
    }

    pub fn open(&self, binding: &Binding, sealed: &Sealed) -> Result<Secret, VaultError> {
        let ring = self.ring.load();
        seal::open(key_of(&ring, sealed)?, binding, sealed)
    }

    /// Wraps the data key under the active master key; `None` when it already is. The secret is not decrypted and its
    /// ciphertext stays as it is, byte for byte.
    pub fn rewrap(&self, binding: &Binding, sealed: &Sealed) -> Result<Option<Sealed>, VaultError> {
        let ring = self.ring.load();
        let old = key_of(&ring, sealed)?;
        if old.id == ring.active().id {
            return Ok(None);
        }
        seal::rewrap(old, ring.active(), binding, sealed).map(Some)
    }

    /// The id of the key that new secrets are sealed under.
    pub fn active_id(&self) -> Box<str> {
        self.ring.load().active().id.clone()
    }

    /// The active one first.
    pub fn ids(&self) -> Vec<Box<str>> {
        self.ring.load().ids().map(Into::into).collect()
    }

    pub fn knows(&self, id: &str) -> bool {
        self.ring.load().get(id).is_some()
    }

    /// Reads the ring from its source again; whether it changed. When it cannot be read, the ring at hand stays.
    pub async fn refresh(&self) -> Result<bool, RingError> {
        let mut seen = self.seen.lock().await;
        self.read_again(&mut seen).await
    }

    /// As [`Vault::refresh`], but only where a look at the file says that it is another one: cheap enough to be called
    /// before every seal. Nothing happens for the other sources: a variable does not change, and a command can be dear.
    pub async fn refresh_if_changed(&self) -> Result<bool, RingError> {
        if !matches!(self.source, MasterKeySource::File(_)) {
            return Ok(false);
        }
        let mut seen = self.seen.lock().await;
        if seen.is_some() && *seen == self.source.stamp()? {
            return Ok(false);
        }
        self.read_again(&mut seen).await
    }

    /// A signature of `data` that only this ring makes; each label has keys of its own.
    pub fn sign(&self, label: &str, data: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&signing_key(self.ring.load().active(), label), data);
        tag.as_ref().try_into().expect("a SHA-256 is 32 bytes long")
    }

    /// Whether any key of the ring made the signature, so that a rotation ends no session. In constant time.
    pub fn verify(&self, label: &str, data: &[u8], tag: &[u8]) -> bool {
        let ring = self.ring.load();
        ring.keys().iter().any(|key| hmac::verify(&signing_key(key, label), data, tag).is_ok())
    }

    /// The check record, which is stored once and proves at every later start that the ring is the right one.
    pub fn check(&self) -> Sealed {
        self.seal(&CHECK, &Secret::new(CHECK_TEXT)).expect("a short text is sealed under a key of the right length")
    }

    /// Whether this ring sealed the check record.
    pub fn is_ours(&self, check: &Sealed) -> bool {
        self.open(&CHECK, check).is_ok_and(|text| text.expose(|text| text == CHECK_TEXT.as_bytes()))
    }

    async fn read_again(&self, seen: &mut Option<Stamp>) -> Result<bool, RingError> {
        // Taken before the read: what changes during it then looks new the next time.
        let stamp = self.source.stamp()?;
        let ring = MasterRing::load(&self.source).await?;
        *seen = stamp;
        if ring.equals(&self.ring.load()) {
            return Ok(false);
        }
        self.ring.store(Arc::new(ring));
        Ok(true)
    }
}

/// The version comes first: what a later format means by its master key is not for us to say.
fn key_of<'a>(ring: &'a MasterRing, sealed: &Sealed) -> Result<&'a MasterKey, VaultError> {
    if sealed.version != seal::VERSION {
        return Err(VaultError::UnknownVersion(sealed.version));
    }
    ring.get(&sealed.master_key).ok_or_else(|| VaultError::UnknownMasterKey(sealed.master_key.clone()))
}

fn signing_key(master: &MasterKey, label: &str) -> hmac::Key {
    let pseudorandom = master.key.expose(|key| hkdf::Salt::new(hkdf::HKDF_SHA256, SIGNING_SALT).extract(key));
    let info = [label.as_bytes()];
    pseudorandom.expand(&info, hmac::HMAC_SHA256).expect("32 bytes are within what HKDF gives").into()
}

#[cfg(test)]
mod tests;
