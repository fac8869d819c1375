//! Which master keys the gateways of a deployment have, told by each of them: who rotates must know that no other is left
//! without a key that it needs.

use serde::{Deserialize, Serialize};
use tidegate_core::Timestamp;

use crate::{Result, Store, dialect};

/// Names in `meta` that begin with this are rings; the rest of the name is the node.
const PREFIX: &str = "ring ";
/// A gateway that was heard of within this time runs: it tells of itself every few seconds.
const LIVE_MS: i64 = 20_000;

/// What a gateway last told of its ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRing {
    pub node: String,
    /// Ids of its master keys, the active one first.
    pub keys: Vec<String>,
    /// Letters that wait there, sealed under any of them.
    pub letters: u64,
    pub told: Timestamp,
    /// It was heard of just now.
    pub is_live: bool,
}

#[derive(Deserialize, Serialize)]
struct Told {
    keys: Vec<String>,
    letters: u64,
    at: i64,
    is_stopped: bool,
}

impl Store {
    /// Notes what a gateway has, or had when it stopped; times are the database's.
    pub async fn tell_ring(&self, node: &str, keys: &[Box<str>], letters: u64, is_stopped: bool) -> Result<()> {
        let name = format!("{PREFIX}{node}");
        let keys: Vec<String> = keys.iter().map(|id| id.to_string()).collect();
        on_writer!(self, pool => {
            let at: i64 = sqlx::query_scalar(dialect::now(pool)).fetch_one(pool).await?;
            let value = serde_json::to_string(&Told { keys, letters, at, is_stopped }).unwrap_or_default();
            sqlx::query("INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value")
                .bind(&name)
                .bind(&value)
                .execute(pool)
                .await?;
            Ok(())
        })
    }

    /// A gateway that is stopped and has nothing left needs no key.
    pub async fn forget_ring(&self, node: &str) -> Result<()> {
        let name = format!("{PREFIX}{node}");
        on_writer!(self, pool => {
            sqlx::query("DELETE FROM meta WHERE name = $1").bind(&name).execute(pool).await?;
            Ok(())
        })
    }

    /// What all gateways told, and the database's time. What cannot be read is passed over: it is told again soon.
    pub async fn rings(&self) -> Result<(Vec<NodeRing>, Timestamp)> {
        let (rows, now): (Vec<(String, String)>, i64) = on_reader!(self, pool => {
            let find = "SELECT name, value FROM meta WHERE name LIKE 'ring %' ORDER BY name";
            let rows = sqlx::query_as(find).fetch_all(pool).await?;
            Ok((rows, sqlx::query_scalar(dialect::now(pool)).fetch_one(pool).await?))
        })?;
        let read = |(name, value): (String, String)| {
            let Told { keys, letters, at, is_stopped } = serde_json::from_str(&value).ok()?;
            let (node, is_live) = (name.strip_prefix(PREFIX)?.to_owned(), !is_stopped && at > now - LIVE_MS);
            Some(NodeRing { node, keys, letters, told: Timestamp(at), is_live })
        };
        Ok((rows.into_iter().filter_map(read).collect(), Timestamp(now)))
    }
}
