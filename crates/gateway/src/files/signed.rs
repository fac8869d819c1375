//! Addresses that serve a file to whoever has them, until they end: for pictures that models show to people, who have no
//! key. What makes them ours is a signature under the deployment's keys, so any gateway of it can tell, without asking.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_core::{FileId, Secret, Timestamp};
use tidegate_store::Result as Stored;
use tidegate_store::files::FileRow;

use crate::{Gateway, Snapshot};

/// What the keys of these signatures are for.
const LABEL: &str = "file address";

/// Why an address serves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("This link is not valid: use it exactly as it was given")]
    Forged,
    #[error("This link has expired: whoever made the file can read it with a key")]
    Expired,
}

impl Gateway {
    /// An address that serves a file until then, to the second.
    pub(crate) fn signed_address(&self, snapshot: &Snapshot, id: &FileId, until: Timestamp) -> String {
        let expires = (until.0 / 1_000).to_string();
        let signature = URL_SAFE_NO_PAD.encode(self.vault.sign(LABEL, &about(id, &expires)));
        let base = &snapshot.settings.public_url;
        format!("{base}/api/v1/files/{}/signed?expires={expires}&signature={signature}", id.as_str())
    }

    /// Whether such an address is ours and holds. Nothing is looked up for it.
    pub fn check_signed(&self, id: &FileId, expires: &str, signature: &str) -> Result<(), Broken> {
        let tag = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Broken::Forged)?;
        if !self.vault.verify(LABEL, &about(id, expires), &tag) {
            return Err(Broken::Forged);
        }
        let until = expires.parse::<i64>().map_err(|_| Broken::Forged)?;
        if self.clock.now().0 / 1_000 < until { Ok(()) } else { Err(Broken::Expired) }
    }

    /// The file of an address that was found to hold.
    pub async fn read_signed_file(&self, id: &FileId) -> Stored<Option<(FileRow, Secret)>> {
        self.keys.store().read_any_file(&self.vault, id).await
    }
}

fn about(id: &FileId, expires: &str) -> Vec<u8> {
    [id.as_str().as_bytes(), &[0], expires.as_bytes()].concat()
}
