//! The newest requests, for people who look at what happens.

use tidegate_core::{GenerationId, KeyHash, Tenant};

use super::{Generation, RawGeneration, columns};
use crate::{Result, Store};

/// So many of the newest are looked through for those that are wanted: a list is not worth a walk through everything.
const LOOKED_THROUGH: u32 = 20_000;
/// Not before any id, in whatever order a database has letters and digits.
const LAST: &str = "gen-ZZZZZZZZZZZZZZZZZZZZZZZZZZ";

/// Which requests are listed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Newest<'a> {
    /// Only those that came before it.
    pub before: Option<&'a GenerationId>,
    pub key: Option<&'a KeyHash>,
    pub model: Option<&'a str>,
    /// Only those that ended badly; a client that leaves is no failure.
    pub is_failed: bool,
    pub limit: u32,
}

impl Newest<'_> {
    fn is_everything(&self) -> bool {
        self.key.is_none() && self.model.is_none() && !self.is_failed
    }
}

impl Store {
    /// The tenant's newest requests, newest first.
    pub async fn list_generations(&self, tenant: &Tenant, wanted: Newest<'_>) -> Result<Vec<Generation>> {
        let looked_through = if wanted.is_everything() { wanted.limit } else { LOOKED_THROUGH };
        let raw: Vec<RawGeneration> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                "SELECT ",
                columns!(),
                " FROM (SELECT * FROM generations WHERE organisation_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3) \
                 AS newest WHERE ($4 = '' OR key_hash = $4) AND ($5 = '' OR model = $5) \
                 AND (NOT $6 OR outcome IN ('failed', 'broken')) ORDER BY id DESC LIMIT $7"
            ))
            .bind(&*tenant.organisation.0)
            .bind(wanted.before.map_or(LAST, GenerationId::as_str))
            .bind(i64::from(looked_through))
            .bind(wanted.key.map(|key| key.to_hex()).unwrap_or_default())
            .bind(wanted.model.unwrap_or_default())
            .bind(wanted.is_failed)
            .bind(i64::from(wanted.limit))
            .fetch_all(pool)
            .await?)
        })?;
        raw.into_iter().map(Generation::try_from).collect()
    }
}
