//! Whose journal it is. Calls and letters that wait in it belong to the store that they were made for: brought to another
//! they would be counted there, for keys of the same name, and be missing where they belong.

use tidegate_core::OrganisationId;

use super::{Cursor, Journal, JournalError, JournalReader, Result};

/// Whether the journal can say whose it is; one of an earlier release cannot.
pub(super) const HAS_STORE: &str = "SELECT EXISTS (SELECT 1 FROM pragma_table_info('node') WHERE name = 'store')";

impl Journal {
    /// Writes down whose it is from now on, by the first of the store's organisations. Whether it was another's.
    pub async fn bind(&mut self, organisations: &[OrganisationId]) -> Result<bool> {
        let known: Option<String> =
            sqlx::query_scalar("SELECT store FROM node LIMIT 1").fetch_one(&mut self.connection).await?;
        let is_ours = |known: &String| organisations.iter().any(|id| *id.0 == **known);
        let Some(store) = organisations.first().filter(|_| !known.as_ref().is_some_and(is_ours)) else {
            return Ok(false);
        };
        sqlx::query("UPDATE node SET store = $1").bind(&*store.0).execute(&mut self.connection).await?;
        Ok(known.is_some())
    }
}

impl JournalReader {
    /// How many calls and letters wait for another store than the one with these organisations, the oldest first.
    pub async fn foreign(&self, organisations: &[OrganisationId]) -> Result<(u64, u64)> {
        let known = match self.store().await {
            Ok(known) => known,
            // It is taken over first, and has no letters.
            Err(JournalError::Older) => return Ok((0, 0)),
            Err(error) => return Err(error),
        };
        let is_ours = |id: &OrganisationId| organisations.contains(id);
        if let Some(known) = known {
            // Whichever of them it was bound to: an older one may have been brought in since.
            if is_ours(&OrganisationId(known.as_str().into())) {
                return Ok((0, 0));
            }
            let (open, settled) = self.counts().await?;
            return Ok((open + settled, self.letters().await?));
        }
        // Letters of an earlier release do not say whose they are; they came with calls that do.
        let mut calls = 0;
        for (_, row) in self.open_rows().await? {
            calls += u64::from(row.exchange().is_ok_and(|exchange| !is_ours(&exchange.organisation)));
        }
        let mut cursor = Cursor::default();
        loop {
            let rows = self.next_settled_rows(&mut cursor).await?;
            if rows.is_empty() {
                return Ok((calls, 0));
            }
            let foreign =
                rows.iter().filter(|row| row.exchange().is_ok_and(|exchange| !is_ours(&exchange.organisation)));
            calls += foreign.count() as u64;
        }
    }

    async fn store(&self) -> Result<Option<String>> {
        let is_current = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'opened') \
                          AND EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'bundles')";
        if !sqlx::query_scalar::<_, bool>(is_current).fetch_one(&self.0).await? {
            return Err(JournalError::Older);
        }
        if !sqlx::query_scalar::<_, bool>(HAS_STORE).fetch_one(&self.0).await? {
            return Ok(None);
        }
        Ok(sqlx::query_scalar::<_, Option<String>>("SELECT store FROM node LIMIT 1")
            .fetch_optional(&self.0)
            .await?
            .flatten())
    }
}
