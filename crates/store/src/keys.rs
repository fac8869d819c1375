//! The keys we issue. Only their hash, label and settings are here; the store never sees a raw key.
//!
//! Each write to a key takes the next number of one sequence, inside its transaction and before anything else. Writers
//! thereby wait for each other, so a number is never seen before a smaller one: that is what lets every node keep the
//! whole index in memory and fetch only what changed.

mod change;
mod packed;
mod row;

use tidegate_core::{KeyHash, KeyKind, Money, OrganisationId, Tenant, Timestamp, WorkspaceId};

pub use change::KeyChange;
pub(crate) use change::created;
pub use row::KeyRow;
/// When a key's spending starts again from zero.
pub use tidegate_core::Window as LimitReset;

use crate::audit::{By, append_audit};
use crate::{Result, Store, dialect};
use packed::{PackedKey, select_packed_keys};
use row::{Names, RawKey, one_tenant_key, select_keys};

/// Keys fetched at a time when the whole index is loaded: few round trips, little memory.
const LOAD_PAGE: i64 = 10_000;

/// Live keys of a workspace at most.
pub(crate) const MOST_KEYS: i64 = 10_000;

/// Taken first in every transaction that writes a key; the row's lock is held until the commit.
pub(crate) const NEXT_CHANGE: &str = "UPDATE sequences SET value = value + 1 WHERE name = 'api_keys' RETURNING value";

/// The same lock without a number, taken first by those who change what keys depend on: workspaces and members. Whoever
/// makes a key then sees them as they are and not as they were.
pub(crate) const HOLD_KEYS: &str = "UPDATE sequences SET value = value WHERE name = 'api_keys'";

/// Leaves the function when a rule forbids the key: its workspace is full, or its creator has no place there.
macro_rules! check_new_key {
    ($transaction:ident, $organisation:expr, $workspace:expr, $key:expr) => {
        let live: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM api_keys WHERE organisation_id = $1 AND workspace_id = $2 AND deleted_at IS NULL",
        )
        .bind(&*$organisation.0)
        .bind(&*$workspace.0)
        .fetch_one(&mut *$transaction)
        .await?;
        if live >= $crate::keys::MOST_KEYS {
            return Err($crate::Refused::TooManyKeys.into());
        }
        $crate::keys::check_creator!($transaction, $organisation, $workspace, $key.creator.as_deref());
    };
}

pub(crate) use check_new_key;

/// Leaves the function when a key's creator, if it has one, has no place in its workspace.
macro_rules! check_creator {
    ($transaction:ident, $organisation:expr, $workspace:expr, $creator:expr) => {
        if let Some(creator) = $creator {
            let is_member: i64 = sqlx::query_scalar($crate::members::IS_MEMBER)
                .bind(&*$organisation.0)
                .bind(&*$workspace.0)
                .bind(creator)
                .bind($crate::workspaces::DEFAULT_SLUG)
                .fetch_one(&mut *$transaction)
                .await?;
            if is_member == 0 {
                return Err($crate::Refused::NotAMember.into());
            }
        }
    };
}

pub(crate) use check_creator;

/// Inserts a key inside a transaction of either database, or leaves the function with [`StoreError::Missing`] when the
/// workspace is not a live one of the organisation. A macro, because a function over both would need a page of bounds.
///
/// [`StoreError::Missing`]: crate::StoreError::Missing
macro_rules! insert_key {
    ($transaction:ident, $organisation:expr, $workspace:expr, $key:expr, $change_seq:expr, $now:expr) => {
        let inserted = sqlx::query(
            "INSERT INTO api_keys (hash, organisation_id, workspace_id, kind, name, label, disabled, limit_nanos, \
             limit_reset, include_byok_in_limit, expires_at, creator_user_id, external_user, app_id, spawn_agent, \
             spawn_cloud, created_at, change_seq) \
             SELECT $1, organisation_id, id, $4, $5, $6, FALSE, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17 \
             FROM workspaces WHERE organisation_id = $2 AND id = $3 AND deleted_at IS NULL",
        )
        .bind($key.hash.to_hex())
        .bind(&*$organisation.0)
        .bind(&*$workspace.0)
        .bind($key.kind.as_str())
        .bind(&$key.name)
        .bind(&$key.label)
        .bind($key.limit.map(|limit| limit.0))
        .bind($key.limit_reset.map($crate::keys::LimitReset::as_str))
        .bind($key.include_byok_in_limit)
        .bind($key.expires.map(|time| time.0))
        .bind(&$key.creator)
        .bind(&$key.external_user)
        .bind($key.app_id)
        .bind(&$key.spawn_agent)
        .bind(&$key.spawn_cloud)
        .bind($now.0)
        .bind($change_seq)
        .execute(&mut *$transaction)
        .await?;
        if inserted.rows_affected() == 0 {
            return Err($crate::StoreError::Missing);
        }
    };
}
pub(crate) use insert_key;

/// A key to be stored.
#[derive(Clone, Debug)]
pub struct NewKey {
    pub hash: KeyHash,
    pub kind: KeyKind,
    pub name: String,
    /// What may be shown of the key.
    pub label: String,
    /// `None`: no limit.
    pub limit: Option<Money>,
    /// `None`: the limit is for the key's whole life.
    pub limit_reset: Option<LimitReset>,
    pub include_byok_in_limit: bool,
    pub expires: Option<Timestamp>,
    /// The member it belongs to.
    pub creator: Option<String>,
    /// Whom the customer says it is for.
    pub external_user: Option<String>,
    /// The application that it was made for.
    pub app_id: Option<i64>,
    /// What an application said of itself; it means nothing to us.
    pub spawn_agent: Option<String>,
    pub spawn_cloud: Option<String>,
}

/// Which keys of a tenant to list.
#[derive(Clone, Copy, Debug)]
pub struct KeyFilter<'a> {
    /// `None`: of all workspaces.
    pub workspace: Option<&'a WorkspaceId>,
    /// `None`: of both kinds.
    pub kind: Option<KeyKind>,
    /// `None`: whoever made them.
    pub creator: Option<&'a str>,
    pub include_disabled: bool,
    pub offset: u32,
    pub limit: u32,
}

/// What the beginning of a hash leads to.
#[derive(Clone, Debug)]
pub enum KeyMatch {
    None,
    One(Box<KeyRow>),
    Several,
}

impl Store {
    /// The live key with this hash, whoever it belongs to: the one look-up that yields a tenant instead of taking one.
    pub async fn find_key(&self, hash: &KeyHash) -> Result<Option<KeyRow>> {
        let raw: Option<RawKey> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_keys!(), " WHERE hash = $1 AND deleted_at IS NULL"))
                .bind(hash.to_hex())
                .fetch_optional(pool)
                .await?)
        })?;
        one(raw)
    }

    /// The live key of this tenant with this hash. `kind`: `None` for either.
    pub async fn find_tenant_key(
        &self,
        tenant: &Tenant,
        hash: &KeyHash,
        kind: Option<KeyKind>,
    ) -> Result<Option<KeyRow>> {
        let raw: Option<RawKey> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_keys!(), one_tenant_key!()))
            .bind(&*tenant.organisation.0)
            .bind(hash.to_hex())
            .bind(kind.map(KeyKind::as_str))
            .fetch_optional(pool)
            .await?)
        })?;
        one(raw)
    }

    /// Hands every live key to `each` and returns the number to continue from with [`Store::keys_changed_after`].
    ///
    /// A key that changes while this runs may come twice, here or among the changes; what comes later is newer.
    pub async fn all_live_keys(&self, mut each: impl FnMut(KeyRow)) -> Result<i64> {
        // Asked before the first page: what changes meanwhile is then among the changes, deletions above all, which the
        // pages leave out.
        let as_of = self.last_change().await?;
        let mut names = Names::default();
        let mut after = 0;
        loop {
            let page: Vec<PackedKey> = on_reader!(self, pool => {
                Ok(sqlx::query_as(concat!(
                    select_packed_keys!(),
                    " WHERE change_seq > $1 AND deleted_at IS NULL ORDER BY change_seq LIMIT $2"
                ))
                .bind(after)
                .bind(LOAD_PAGE)
                .fetch_all(pool)
                .await?)
            })?;
            let Some(last) = page.last() else { return Ok(as_of) };
            after = last.0;
            for key in page {
                each(packed::unpack(key, &mut names)?);
            }
        }
    }

    /// Keys changed since `seq`, oldest change first, the deleted ones too. Ask again from the last one's `change_seq`
    /// until nothing comes.
    pub async fn keys_changed_after(&self, seq: i64, limit: u32) -> Result<Vec<KeyRow>> {
        let page: Vec<RawKey> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_keys!(), " WHERE change_seq > $1 ORDER BY change_seq LIMIT $2"))
                .bind(seq)
                .bind(i64::from(limit))
                .fetch_all(pool)
                .await?)
        })?;
        many(page)
    }

    /// The number of the latest change to any key; 0 before the first.
    pub async fn last_change(&self) -> Result<i64> {
        on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT value FROM sequences WHERE name = 'api_keys'").fetch_one(pool).await?)
        })
    }

    /// Stores a key in a live workspace of the tenant. A hash that was ever used is a conflict, also after deletion.
    pub async fn create_key(&self, tenant: &Tenant, by: &By, workspace: &WorkspaceId, key: NewKey) -> Result<KeyRow> {
        let change_seq = on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let change_seq: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
            check_new_key!(transaction, tenant.organisation, workspace, key);
            insert_key!(transaction, tenant.organisation, workspace, key, change_seq, by.at);
            append_audit!(transaction, tenant.organisation, by, created(&key, workspace, &key.hash.to_hex()));
            transaction.commit().await?;
            Ok(change_seq)
        })?;
        Ok(key.into_row(tenant.organisation.clone(), workspace.clone(), change_seq, by.at))
    }

    /// The tenant's live keys, newest first.
    pub async fn list_keys(&self, tenant: &Tenant, filter: KeyFilter<'_>) -> Result<Vec<KeyRow>> {
        let page: Vec<RawKey> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_keys!(),
                " WHERE organisation_id = $1 AND deleted_at IS NULL",
                " AND ($2 IS NULL OR workspace_id = $2) AND ($3 IS NULL OR kind = $3) AND ($4 OR NOT disabled)",
                " AND ($5 IS NULL OR creator_user_id = $5) ORDER BY created_at DESC, hash LIMIT $6 OFFSET $7"
            ))
            .bind(&*tenant.organisation.0)
            .bind(filter.workspace.map(|id| &*id.0))
            .bind(filter.kind.map(KeyKind::as_str))
            .bind(filter.include_disabled)
            .bind(filter.creator)
            .bind(i64::from(filter.limit))
            .bind(i64::from(filter.offset))
            .fetch_all(pool)
            .await?)
        })?;
        many(page)
    }

    /// The tenant's live key whose hash begins with `prefix`, if there is only one. An empty prefix matches nothing.
    pub async fn find_key_by_prefix(&self, tenant: &Tenant, prefix: &str) -> Result<KeyMatch> {
        if prefix.is_empty() {
            return Ok(KeyMatch::None);
        }
        // LIKE looks at case in one database and not in the other; hashes are lower case.
        let pattern = format!("{}%", escape_like(&prefix.to_ascii_lowercase()));
        let found: Vec<RawKey> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_keys!(),
                r" WHERE organisation_id = $1 AND hash LIKE $2 ESCAPE '\' AND deleted_at IS NULL LIMIT 2"
            ))
            .bind(&*tenant.organisation.0)
            .bind(&pattern)
            .fetch_all(pool)
            .await?)
        })?;
        let mut found = many(found)?;
        Ok(match (found.pop(), found.pop()) {
            (None, _) => KeyMatch::None,
            (Some(key), None) => KeyMatch::One(Box::new(key)),
            (Some(_), Some(_)) => KeyMatch::Several,
        })
    }
}

impl NewKey {
    pub(crate) fn into_row(
        self,
        organisation: OrganisationId,
        workspace: WorkspaceId,
        change_seq: i64,
        created: Timestamp,
    ) -> KeyRow {
        KeyRow {
            hash: self.hash,
            organisation,
            workspace,
            kind: self.kind,
            name: self.name.into(),
            label: self.label.into(),
            disabled: false,
            limit: self.limit,
            limit_reset: self.limit_reset,
            include_byok_in_limit: self.include_byok_in_limit,
            expires: self.expires,
            creator: self.creator.map(Into::into),
            external_user: self.external_user.map(Into::into),
            created,
            updated: None,
            deleted: false,
            change_seq,
        }
    }
}

fn one(raw: Option<RawKey>) -> Result<Option<KeyRow>> {
    raw.map(|raw| raw.into_key(&mut Names::default())).transpose()
}

fn many(page: Vec<RawKey>) -> Result<Vec<KeyRow>> {
    let mut names = Names::default();
    page.into_iter().map(|raw| raw.into_key(&mut names)).collect()
}

/// `text` as a LIKE pattern that matches only itself, with `\` as the escape character.
fn escape_like(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_what_was_typed() {
        assert_eq!(escape_like(r"a%b_c\d"), r"a\%b\_c\\d");
    }
}
