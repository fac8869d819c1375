//! What is given to clients to keep for us: sealed so that only this deployment reads it, and bound to what it is about.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf;
use tidegate_core::id;

use super::{MasterKey, Vault, VaultError};

/// Keeps these keys apart from any other use that a master key is put to.
const SALT: &[u8] = b"tidegate vault blob";

impl Vault {
    /// Seals under a key of its own for each label. The mode withstands a repeated nonce, so one key serves for all of
    /// them: nonce, ciphertext, tag.
    pub fn seal_blob(&self, label: &str, about: &[u8], plain: &[u8]) -> Result<Vec<u8>, VaultError> {
        let key = key(self.ring.load().active(), label)?;
        let nonce = id::random::<NONCE_LEN>();
        let mut sealed = nonce.to_vec();
        let mut body = plain.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(about), &mut body)
            .map_err(|_| VaultError::Broken)?;
        sealed.append(&mut body);
        Ok(sealed)
    }

    /// Opens what any key of the ring sealed for the same label and the same thing.
    pub fn open_blob(&self, label: &str, about: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let length = body.len().checked_sub(MAX_TAG_LEN)?;
        let ring = self.ring.load();
        ring.keys().iter().find_map(|master| {
            let mut plain = body.to_vec();
            let key = key(master, label).ok()?;
            key.open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(about), &mut plain).ok()?;
            plain.truncate(length);
            Some(plain)
        })
    }
}

fn key(master: &MasterKey, label: &str) -> Result<LessSafeKey, VaultError> {
    let pseudorandom = master.key.expose(|key| hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(key));
    let info = [label.as_bytes()];
    let key: UnboundKey = pseudorandom.expand(&info, &AES_256_GCM_SIV).map_err(|_| VaultError::Broken)?.into();
    Ok(LessSafeKey::new(key))
}
