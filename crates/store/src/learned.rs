//! What upstreams were found not to take: kept so that a restart does not have to find it out again, and so that people
//! can see it.

use tidegate_core::Timestamp;

use crate::{Result, Store};

/// Names in `meta` that begin with this are such facts; the rest of the name is the fact as JSON.
const PREFIX: &str = "learned ";

/// One fact: who refused it, for which of its models, and what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedRow {
    pub provider: String,
    pub model: String,
    pub kind: String,
    pub name: String,
    pub learned: Timestamp,
}

impl LearnedRow {
    /// Its name in `meta`.
    fn key(&self) -> String {
        let fact = serde_json::to_string(&[&self.provider, &self.model, &self.kind, &self.name]);
        format!("{PREFIX}{}", fact.unwrap_or_default())
    }
}

impl Store {
    pub async fn keep_learned(&self, row: &LearnedRow) -> Result<()> {
        let name = row.key();
        on_writer!(self, pool => {
            sqlx::query("INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value")
                .bind(&name)
                .bind(row.learned.0.to_string())
                .execute(pool)
                .await?;
            Ok(())
        })
    }

    /// Lets go of a fact; when it was learnt does not matter.
    pub async fn forget_learned(&self, row: &LearnedRow) -> Result<()> {
        let name = row.key();
        on_writer!(self, pool => {
            sqlx::query("DELETE FROM meta WHERE name = $1").bind(&name).execute(pool).await?;
            Ok(())
        })
    }

    /// All facts. What cannot be read is passed over: it costs one more question to an upstream.
    pub async fn learned(&self) -> Result<Vec<LearnedRow>> {
        let rows: Vec<(String, String)> = on_reader!(self, pool => {
            Ok(sqlx::query_as("SELECT name, value FROM meta WHERE name LIKE 'learned %' ORDER BY name").fetch_all(pool).await?)
        })?;
        let read = |(name, value): (String, String)| {
            let [provider, model, kind, name]: [String; 4] = serde_json::from_str(name.strip_prefix(PREFIX)?).ok()?;
            Some(LearnedRow { provider, model, kind, name, learned: Timestamp(value.parse().ok()?) })
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }
}
