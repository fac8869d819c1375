//! The audit log: who changed what, in the transaction of the change itself, each row chained to the one before by its
//! hash. A change and its row are there together or not at all.

use std::fmt;

use aws_lc_rs::digest;
use tidegate_core::key::hex;
use tidegate_core::{KeyHash, OrganisationId, Tenant, Timestamp};

use crate::{Result, Store};

/// Rows read at a time when the chain is checked.
const PAGE: i64 = 1_000;

/// Who makes a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A key of ours, named by its hash.
    Key(KeyHash),
    /// A person who signed in as themselves, named by their id.
    Member(Box<str>),
    /// Somebody without a key: whoever holds an authorization code.
    Anyone,
    /// The operator at a shell.
    Shell,
    /// The server itself.
    Server,
}

/// Who makes a change, when and from where: every function that changes something takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    pub actor: Actor,
    pub request: Option<Box<str>>,
    pub address: Option<Box<str>>,
    pub at: Timestamp,
}

impl By {
    pub fn shell(at: Timestamp) -> Self {
        Self { actor: Actor::Shell, request: None, address: None, at }
    }

    /// The server, of its own accord.
    pub fn server(at: Timestamp) -> Self {
        Self { actor: Actor::Server, ..Self::shell(at) }
    }
}

impl Actor {
    fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Member(_) => "member",
            Self::Anyone => "anyone",
            Self::Shell => "shell",
            Self::Server => "server",
        }
    }

    pub(crate) fn id(&self) -> Option<String> {
        match self {
            Self::Key(hash) => Some(hash.to_hex()),
            Self::Member(id) => Some(id.to_string()),
            Self::Anyone | Self::Shell | Self::Server => None,
        }
    }
}

/// One change. Values are JSON objects of the members that changed; of a secret they say `[changed]` and no more.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    pub action: &'static str,
    pub target: &'a str,
    pub old: Option<serde_json::Value>,
    pub new: Option<serde_json::Value>,
}

impl<'a> Change<'a> {
    pub fn new(action: &'static str, target: &'a str) -> Self {
        Self { action, target, old: None, new: None }
    }

    /// With the values that were set.
    pub fn with(self, new: serde_json::Value) -> Self {
        Self { new: Some(new), ..self }
    }

    /// With what differs between the two objects.
    pub fn between(self, old: &serde_json::Value, new: &serde_json::Value) -> Self {
        let differing = |one: &serde_json::Value, other: &serde_json::Value| {
            let members = one.as_object().into_iter().flatten();
            let kept = members.filter(|(name, value)| other.get(name.as_str()) != Some(value));
            serde_json::Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        };
        Self { old: Some(differing(old, new)), new: Some(differing(new, old)), ..self }
    }
}

/// A row of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub seq: i64,
    pub id: String,
    pub organisation: OrganisationId,
    pub at: Timestamp,
    pub actor_kind: String,
    pub actor_id: Option<String>,
    pub action: String,
    pub target: String,
    pub request: Option<String>,
    pub address: Option<String>,
    /// JSON objects.
    pub old: Option<String>,
    pub new: Option<String>,
    previous: String,
    hash: String,
}

impl Entry {
    pub(crate) fn next(
        organisation: &OrganisationId,
        by: &By,
        change: &Change<'_>,
        (seq, previous): (i64, String),
    ) -> Self {
        let text = |value: &Option<serde_json::Value>| value.as_ref().map(ToString::to_string);
        let mut entry = Self {
            seq,
            id: crate::workspaces::new_id(by.at).0.to_string(),
            organisation: organisation.clone(),
            at: by.at,
            actor_kind: by.actor.kind().to_owned(),
            actor_id: by.actor.id(),
            action: change.action.to_owned(),
            target: change.target.to_owned(),
            request: by.request.as_deref().map(ToOwned::to_owned),
            address: by.address.as_deref().map(ToOwned::to_owned),
            old: text(&change.old),
            new: text(&change.new),
            previous,
            hash: String::new(),
        };
        entry.hash = entry.computed();
        entry
    }

    /// Every part goes in with its length, so that nothing can move from one part to the next.
    fn computed(&self) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut part = |text: Option<&str>| match text {
            Some(text) => {
                context.update(&[1]);
                context.update(&(text.len() as u64).to_be_bytes());
                context.update(text.as_bytes());
            }
            None => context.update(&[0]),
        };
        part(Some(&self.previous));
        part(Some(&self.seq.to_string()));
        part(Some(&self.id));
        part(Some(&self.organisation.0));
        part(Some(&self.at.0.to_string()));
        part(Some(&self.actor_kind));
        part(self.actor_id.as_deref());
        part(Some(&self.action));
        part(Some(&self.target));
        part(self.request.as_deref());
        part(self.address.as_deref());
        part(self.old.as_deref());
        part(self.new.as_deref());
        hex(context.finish().as_ref())
    }
}

/// Writes a row inside the transaction of the change. It is the last thing a transaction does, always after the
/// numbers of keys and credentials are taken: all writers then wait in the same order.
macro_rules! append_audit {
    ($transaction:ident, $organisation:expr, $by:expr, $change:expr) => {{
        // Apart, because every change would else carry the room for it on its way.
        let appended = async {
            let head: (i64, String) =
                sqlx::query_as("UPDATE audit_head SET seq = seq + 1 WHERE name = 'audit' RETURNING seq, hash")
                    .fetch_one(&mut *$transaction)
                    .await?;
            let entry = $crate::audit::Entry::next(&$organisation, $by, &$change, head);
            $crate::audit::insert_entry!($transaction, entry);
            $crate::Result::Ok(())
        };
        Box::pin(appended).await?;
    }};
}
pub(crate) use append_audit;

macro_rules! insert_entry {
    ($transaction:ident, $entry:ident) => {
        sqlx::query(
            "INSERT INTO audit (seq, id, organisation_id, at, actor_kind, actor_id, action, target, request_id, \
             address, old_values, new_values, previous_hash, hash) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        )
        .bind($entry.seq)
        .bind(&$entry.id)
        .bind(&*$entry.organisation.0)
        .bind($entry.at.0)
        .bind(&$entry.actor_kind)
        .bind(&$entry.actor_id)
        .bind(&$entry.action)
        .bind(&$entry.target)
        .bind(&$entry.request)
        .bind(&$entry.address)
        .bind(&$entry.old)
        .bind(&$entry.new)
        .bind($entry.previous())
        .bind($entry.hash())
        .execute(&mut *$transaction)
        .await?;
        sqlx::query("UPDATE audit_head SET hash = $1 WHERE name = 'audit'")
            .bind($entry.hash())
            .execute(&mut *$transaction)
            .await?;
    };
}
pub(crate) use insert_entry;

impl Entry {
    pub(crate) fn previous(&self) -> &str {
        &self.previous
    }

    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }
}

/// What a check of the chain found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The number of rows.
    Sound(i64),
    Broken {
        seq: i64,
        reason: Break,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// A row is not there.
    Missing,
    /// A row's contents do not give its hash.
    Changed,
    /// A row does not continue the one before.
    Unchained,
    /// The last row is not the one that was written last.
    Cut,
}

impl fmt::Display for Break {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Missing => "is missing",
            Self::Changed => "was changed after it was written",
            Self::Unchained => "does not follow the one before it",
            Self::Cut => "should be the last one, but the log ends elsewhere",
        })
    }
}

impl Store {
    /// Reads the whole chain; `progress` hears how far it is.
    pub async fn verify_audit(&self, mut progress: impl FnMut(i64)) -> Result<Verdict> {
        // The head first: rows that are added meanwhile lie behind it and are not looked at.
        let (last, head): (i64, String) = on_reader!(self, pool => {
            Ok(sqlx::query_as("SELECT seq, hash FROM audit_head WHERE name = 'audit'").fetch_one(pool).await?)
        })?;
        let (mut seq, mut previous) = (0, String::new());
        while seq < last {
            let page = self.audit_page(seq, last).await?;
            if page.is_empty() {
                return Ok(Verdict::Broken { seq: seq + 1, reason: Break::Missing });
            }
            for entry in page {
                let broken = |seq, reason| Ok(Verdict::Broken { seq, reason });
                if entry.seq != seq + 1 {
                    return broken(seq + 1, Break::Missing);
                }
                if entry.previous != previous {
                    return broken(entry.seq, Break::Unchained);
                }
                if entry.computed() != entry.hash {
                    return broken(entry.seq, Break::Changed);
                }
                (seq, previous) = (entry.seq, entry.hash);
            }
            progress(seq);
        }
        Ok(if previous == head { Verdict::Sound(last) } else { Verdict::Broken { seq: last, reason: Break::Cut } })
    }

    async fn audit_page(&self, after: i64, last: i64) -> Result<Vec<Entry>> {
        let page: Vec<RawEntry> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_entries!(),
                " WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3"
            ))
            .bind(after)
            .bind(last)
            .bind(PAGE)
            .fetch_all(pool)
            .await?)
        })?;
        Ok(page.into_iter().map(Entry::from).collect())
    }

    /// How many entries the tenant has since `since`.
    pub async fn count_audit(&self, tenant: &Tenant, since: Timestamp) -> Result<u64> {
        let count: i64 = on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT COUNT(*) FROM audit WHERE organisation_id = $1 AND at >= $2")
                .bind(&*tenant.organisation.0)
                .bind(since.0)
                .fetch_one(pool)
                .await?)
        })?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// The tenant's entries since `since`, newest first.
    pub async fn list_audit(&self, tenant: &Tenant, since: Timestamp, offset: u32, limit: u32) -> Result<Vec<Entry>> {
        let page: Vec<RawEntry> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_entries!(),
                " WHERE organisation_id = $1 AND at >= $2 ORDER BY seq DESC LIMIT $3 OFFSET $4"
            ))
            .bind(&*tenant.organisation.0)
            .bind(since.0)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?)
        })?;
        Ok(page.into_iter().map(Entry::from).collect())
    }
}

macro_rules! select_entries {
    () => {
        "SELECT seq, id, organisation_id, at, actor_kind, actor_id, action, target, request_id, address, old_values, \
         new_values, previous_hash, hash FROM audit"
    };
}
use select_entries;

#[derive(sqlx::FromRow)]
struct RawEntry {
    seq: i64,
    id: String,
    organisation_id: String,
    at: i64,
    actor_kind: String,
    actor_id: Option<String>,
    action: String,
    target: String,
    request_id: Option<String>,
    address: Option<String>,
    old_values: Option<String>,
    new_values: Option<String>,
    previous_hash: String,
    hash: String,
}

impl From<RawEntry> for Entry {
    fn from(raw: RawEntry) -> Self {
        Self {
            seq: raw.seq,
            id: raw.id,
            organisation: OrganisationId(raw.organisation_id.into()),
            at: Timestamp(raw.at),
            actor_kind: raw.actor_kind,
            actor_id: raw.actor_id,
            action: raw.action,
            target: raw.target,
            request: raw.request_id,
            address: raw.address,
            old: raw.old_values,
            new: raw.new_values,
            previous: raw.previous_hash,
            hash: raw.hash,
        }
    }
}
