//! What is given to clients to keep for us: sealed so that only this deployment reads it, and bound to what it is about.

use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use tidegate_core::map::Map;
use tidegate_core::{Secret, id};

use super::{MasterKey, Vault, VaultError};

/// Keeps these keys apart from any other use that a master key is put to.
const SALT: &[u8] = b"tidegate vault blob";

impl Vault {
    /// Seals under a key of its own for each label. The mode withstands a repeated nonce, so one key serves for all of
    /// them: nonce, ciphertext, tag.
    pub fn seal_blob(&self, label: &str, about: &[u8], plain: &[u8]) -> Result<Vec<u8>, VaultError> {
        self.seal_named_blob(label, about, plain).map(|(_, sealed)| sealed)
    }

    /// The same with the id of the master key, for what is kept for long.
    pub fn seal_named_blob(&self, label: &str, about: &[u8], plain: &[u8]) -> Result<(Box<str>, Vec<u8>), VaultError> {
        let ring = self.ring.load();
        let key = ring.active().blobs.key(ring.active(), label)?;
        let nonce = id::pooled::<NONCE_LEN>();
        let mut sealed = Vec::with_capacity(NONCE_LEN + plain.len() + MAX_TAG_LEN);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(about), &mut sealed[NONCE_LEN..]);
        sealed.extend_from_slice(tag.map_err(|_| VaultError::Broken)?.as_ref());
        Ok((ring.active().id.clone(), sealed))
    }

    /// The same sealed under the active key; `None` where it is. An error where no key of the ring opens it.
    pub fn reseal_blob(&self, label: &str, about: &[u8], sealed: &[u8]) -> Result<Option<Vec<u8>>, VaultError> {
        let ring = self.ring.load();
        if open(ring.active(), label, about, sealed).is_some() {
            return Ok(None);
        }
        let plain = Secret::new(self.open_blob(label, about, sealed).ok_or(VaultError::Broken)?);
        plain.expose(|plain| self.seal_blob(label, about, plain)).map(Some)
    }

    /// The id of the master key that opens it.
    pub fn key_of_blob(&self, label: &str, about: &[u8], sealed: &[u8]) -> Option<Box<str>> {
        let ring = self.ring.load();
        ring.keys().iter().find(|master| open(master, label, about, sealed).is_some()).map(|master| master.id.clone())
    }

    /// Opens what any key of the ring sealed for the same label and the same thing.
    pub fn open_blob(&self, label: &str, about: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        self.ring.load().keys().iter().find_map(|master| open(master, label, about, sealed))
    }
}

fn open(master: &MasterKey, label: &str, about: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let length = body.len().checked_sub(MAX_TAG_LEN)?;
    let mut plain = body.to_vec();
    let key = master.blobs.key(master, label).ok()?;
    key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(about), &mut plain).ok()?;
    plain.truncate(length);
    Some(plain)
}

/// The keys that were derived from a master key so far: there are few labels, and each key is made once.
#[derive(Default)]
pub struct Keys(RwLock<Map<Box<str>, Arc<LessSafeKey>>>);

impl Keys {
    fn key(&self, master: &MasterKey, label: &str) -> Result<Arc<LessSafeKey>, VaultError> {
        if let Some(key) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(label) {
            return Ok(key.clone());
        }
        let made = Arc::new(key(master, label)?);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(label.into(), made.clone());
        Ok(made)
    }
}

fn key(master: &MasterKey, label: &str) -> Result<LessSafeKey, VaultError> {
    let pseudorandom = master.key.expose(|key| hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(key));
    let info = [label.as_bytes()];
    let key: UnboundKey = pseudorandom.expand(&info, &AES_256_GCM_SIV).map_err(|_| VaultError::Broken)?.into();
    Ok(LessSafeKey::new(key))
}
