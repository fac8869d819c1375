//! How one secret is sealed: a fresh data key encrypts it, the master key wraps the data key, and both are bound to the
//! place the secret belongs to.

use std::fmt;
use std::mem;

use aws_lc_rs::aead::{
    AES_256_GCM, AES_256_GCM_SIV, Aad, Algorithm, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use tidegate_core::{Secret, id};
use zeroize::Zeroizing;

use super::VaultError;
use super::ring::{KEY_BYTES, MasterKey};

/// The format below. It is authenticated too, so that no record can pass for one of another format.
pub(super) const VERSION: i64 = 1;

const SECRET_LABEL: &str = "tidegate stored secret";
const DATA_KEY_LABEL: &str = "tidegate wrapped data key";

/// What a sealed secret belongs to; it opens with exactly the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    pub table: &'a str,
    pub column: &'a str,
    pub record: &'a str,
    pub workspace: &'a str,
    pub provider: &'a str,
    /// Scheme, host and port that the secret may be sent to. None differs from an empty one.
    pub destination: Option<&'a str>,
}

/// A secret as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    pub version: i64,
    /// The id of the master key that the data key is wrapped under.
    pub master_key: Box<str>,
    /// Nonce, AES-256-GCM-SIV of the data key, tag.
    pub wrapped_key: Vec<u8>,
    /// Nonce, AES-256-GCM of the secret, tag.
    pub ciphertext: Vec<u8>,
}

impl Sealed {
    /// One line for a column of text: `version:master key:wrapped key:ciphertext`, the last two in base64.
    pub fn to_text(&self) -> String {
        let (wrapped_key, ciphertext) =
            (STANDARD_NO_PAD.encode(&self.wrapped_key), STANDARD_NO_PAD.encode(&self.ciphertext));
        format!("{}:{}:{wrapped_key}:{ciphertext}", self.version, self.master_key)
    }

    /// Reads [`Sealed::to_text`] back; `None` for anything else.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (version, master_key, wrapped_key, ciphertext) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let sealed = Self {
            version: version.parse().ok()?,
            master_key: master_key.into(),
            wrapped_key: STANDARD_NO_PAD.decode(wrapped_key).ok()?,
            ciphertext: STANDARD_NO_PAD.decode(ciphertext).ok()?,
        };
        parts.next().is_none().then_some(sealed)
    }
}

/// Lengths only: ciphertext tells nobody anything.
impl fmt::Debug for Sealed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = out.debug_struct("Sealed");
        out.field("version", &self.version).field("master_key", &self.master_key);
        out.field("wrapped_key_bytes", &self.wrapped_key.len()).field("ciphertext_bytes", &self.ciphertext.len());
        out.finish()
    }
}

/// A data key encrypts once, and the mode it is wrapped in withstands a repeated nonce; so random nonces of 96 bits
/// never come near the number of uses that plain GCM allows them.
pub(super) fn seal(master: &MasterKey, binding: &Binding, secret: &Secret) -> Result<Sealed, VaultError> {
    let data_key = Secret::new(id::random::<KEY_BYTES>());
    Ok(Sealed {
        version: VERSION,
        master_key: master.id.clone(),
        wrapped_key: wrap(master, binding, &data_key)?,
        ciphertext: encrypt(&AES_256_GCM, &data_key, &around_secret(binding), secret)?,
    })
}

/// The caller has chosen the master key by the id in the record, and knows the version.
pub(super) fn open(master: &MasterKey, binding: &Binding, sealed: &Sealed) -> Result<Secret, VaultError> {
    let data_key = unwrap(master, binding, sealed)?;
    decrypt(&AES_256_GCM, &data_key, &around_secret(binding), &sealed.ciphertext)
}

pub(super) fn rewrap(
    old: &MasterKey,
    new: &MasterKey,
    binding: &Binding,
    sealed: &Sealed,
) -> Result<Sealed, VaultError> {
    let data_key = unwrap(old, binding, sealed)?;
    Ok(Sealed {
        version: sealed.version,
        master_key: new.id.clone(),
        wrapped_key: wrap(new, binding, &data_key)?,
        ciphertext: sealed.ciphertext.clone(),
    })
}

fn wrap(master: &MasterKey, binding: &Binding, data_key: &Secret) -> Result<Vec<u8>, VaultError> {
    encrypt(&AES_256_GCM_SIV, &master.key, &around_data_key(binding, &master.id), data_key)
}

fn unwrap(master: &MasterKey, binding: &Binding, sealed: &Sealed) -> Result<Secret, VaultError> {
    decrypt(&AES_256_GCM_SIV, &master.key, &around_data_key(binding, &master.id), &sealed.wrapped_key)
}

/// What is authenticated with the secret. The master key's id is not among it: a new master key would then change the
/// ciphertext, and rotation would have to decrypt every secret. The id is bound all the same, through the data key,
/// without which nothing opens here.
fn around_secret(binding: &Binding) -> Vec<u8> {
    authenticated(SECRET_LABEL, binding)
}

/// What is authenticated with the data key.
fn around_data_key(binding: &Binding, master_key: &str) -> Vec<u8> {
    let mut list = authenticated(DATA_KEY_LABEL, binding);
    push(&mut list, master_key.as_bytes());
    list
}

/// A list whose members carry their length, so that no two bindings give the same bytes.
fn authenticated(label: &str, binding: &Binding) -> Vec<u8> {
    let Binding { table, column, record, workspace, provider, destination } = binding;
    let mut list = Vec::new();
    push(&mut list, label.as_bytes());
    push(&mut list, &VERSION.to_be_bytes());
    for member in [table, column, record, workspace, provider] {
        push(&mut list, member.as_bytes());
    }
    push(&mut list, &[u8::from(destination.is_some())]);
    push(&mut list, destination.unwrap_or_default().as_bytes());
    list
}

fn push(list: &mut Vec<u8>, member: &[u8]) {
    list.extend_from_slice(&(member.len() as u64).to_be_bytes());
    list.extend_from_slice(member);
}

/// Nonce, ciphertext, tag. From one buffer into another, so that no copy of the plaintext is made.
fn encrypt(algorithm: &'static Algorithm, key: &Secret, around: &[u8], plain: &Secret) -> Result<Vec<u8>, VaultError> {
    let key = prepare(algorithm, key)?;
    let nonce = id::random::<NONCE_LEN>();
    plain.expose(|plain| {
        let mut sealed = vec![0; NONCE_LEN + plain.len() + MAX_TAG_LEN];
        let (head, rest) = sealed.split_at_mut(NONCE_LEN);
        let (body, tag) = rest.split_at_mut(plain.len());
        head.copy_from_slice(&nonce);
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_out_of_place_scatter(nonce, Aad::from(around), plain, body, &[], tag)
            .map_err(|_| VaultError::Broken)?;
        Ok(sealed)
    })
}

fn decrypt(algorithm: &'static Algorithm, key: &Secret, around: &[u8], sealed: &[u8]) -> Result<Secret, VaultError> {
    let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(VaultError::DoesNotOpen)?;
    let (body, tag) = rest.split_last_chunk::<MAX_TAG_LEN>().ok_or(VaultError::DoesNotOpen)?;
    let key = prepare(algorithm, key)?;
    // Wiped when it does not open, too: the library may have written into it by then.
    let mut plain = Zeroizing::new(vec![0; body.len()]);
    key.open_separate_gather(Nonce::assume_unique_for_key(*nonce), Aad::from(around), body, tag, &mut plain)
        .map_err(|_| VaultError::DoesNotOpen)?;
    Ok(Secret::new(mem::take(&mut *plain)))
}

fn prepare(algorithm: &'static Algorithm, key: &Secret) -> Result<LessSafeKey, VaultError> {
    key.expose(|key| UnboundKey::new(algorithm, key)).map(LessSafeKey::new).map_err(|_| VaultError::Broken)
}

#[cfg(test)]
mod tests;
