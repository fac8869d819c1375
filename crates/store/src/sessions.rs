//! People who sign in: nothing is stored of a session but that it began.

use tidegate_core::{KeyHash, Tenant};

use crate::audit::{By, Change, append_audit};
use crate::{Result, Store, dialect};

impl Store {
    /// Notes that somebody signed in with a key.
    pub async fn note_sign_in(&self, tenant: &Tenant, by: &By, key: &KeyHash) -> Result<()> {
        let target = key.to_hex();
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            append_audit!(transaction, tenant.organisation, by, Change::new("session.started", &target));
            Ok(transaction.commit().await?)
        })
    }
}
