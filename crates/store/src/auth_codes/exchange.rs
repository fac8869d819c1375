//! The exchange of a code for a key: of any number of tries, at any moment, one wins.

use std::time::Duration;

use serde_json::json;
use tidegate_core::{KeyHash, KeyKind, Money, OrganisationId, Timestamp, WorkspaceId};

use super::{Challenge, MOST_FAILURES, Method};
use crate::audit::{By, Change, append_audit};
use crate::error::Unreadable;
use crate::keys::{self, LimitReset, NEXT_CHANGE, NewKey, check_new_key, insert_key};
use crate::{Result, Store, StoreError, dialect};

/// Browser frameworks run effects twice: a second try this soon is the same client, not a thief.
const DOUBLE_SUBMIT: Duration = Duration::from_secs(10);

/// A stored code, as an exchange judges it.
#[derive(Clone, Debug)]
pub struct Known {
    pub hash: KeyHash,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub app_id: i64,
    pub creator: Option<String>,
    pub challenge: Option<Challenge>,
    pub key_name: String,
    pub limit: Option<Money>,
    pub limit_reset: Option<LimitReset>,
    pub key_expires: Option<Timestamp>,
    pub spawn_agent: Option<String>,
    pub spawn_cloud: Option<String>,
    pub expires: Timestamp,
    pub used: Option<Timestamp>,
    /// Too many wrong verifiers, or revoked: it answers as if it were unknown.
    pub is_burned: bool,
    pub key: Option<KeyHash>,
}

/// A key that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchanged {
    pub user: Option<String>,
}

/// Why none was made, although the verifier was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotExchanged {
    /// Somebody else was faster, or it was burned meanwhile.
    Used,
    /// It expired meanwhile, the key would have expired already, or could not be made any more: the workspace is gone or
    /// full, its owner has no place there, or the key that the code was asked for with is not good any more.
    Expired,
}

impl Store {
    /// The code with this hash, whoever it belongs to: whoever holds it has no other credential.
    pub async fn find_auth_code(&self, hash: &KeyHash) -> Result<Option<Known>> {
        let raw: Option<RawCode> = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT hash, organisation_id, workspace_id, app_id, creator_user_id, challenge, challenge_method, \
                 key_name, limit_nanos, limit_reset, key_expires_at, spawn_agent, spawn_cloud, expires_at, failures, \
                 used_at, api_key_hash FROM auth_codes WHERE hash = $1",
            )
            .bind(hash.to_hex())
            .fetch_optional(pool)
            .await?)
        })?;
        raw.map(Known::try_from).transpose()
    }

    /// Turns a code into a key. The code is marked in one statement that only an unused one passes, in the transaction
    /// that stores the key.
    pub async fn exchange_code(
        &self,
        code: &Known,
        by: &By,
        key: &KeyHash,
        label: &str,
    ) -> Result<std::result::Result<Exchanged, NotExchanged>> {
        let new = NewKey {
            hash: *key,
            kind: KeyKind::Inference,
            name: code.key_name.clone(),
            label: label.to_owned(),
            limit: code.limit,
            limit_reset: code.limit_reset,
            include_byok_in_limit: false,
            expires: code.key_expires,
            creator: code.creator.clone(),
            external_user: None,
            app_id: Some(code.app_id),
            spawn_agent: code.spawn_agent.clone(),
            spawn_cloud: code.spawn_cloud.clone(),
        };
        let made = on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let change_seq: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
            let marked = sqlx::query(
                "UPDATE auth_codes SET used_at = $2, api_key_hash = $3 \
                 WHERE hash = $1 AND used_at IS NULL AND failures < $4 AND expires_at > $2",
            )
            .bind(code.hash.to_hex())
            .bind(by.at.0)
            .bind(key.to_hex())
            .bind(MOST_FAILURES)
            .execute(&mut *transaction)
            .await?;
            if marked.rows_affected() == 0 {
                return Ok(Err(NotExchanged::Used));
            }
            let is_issuer_good: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM auth_codes WHERE hash = $1 AND (issuer_key_hash IS NULL OR EXISTS \
                 (SELECT 1 FROM api_keys WHERE api_keys.hash = auth_codes.issuer_key_hash \
                 AND api_keys.organisation_id = auth_codes.organisation_id AND api_keys.deleted_at IS NULL \
                 AND NOT api_keys.disabled AND (api_keys.expires_at IS NULL OR api_keys.expires_at > $2)))",
            )
            .bind(code.hash.to_hex())
            .bind(by.at.0)
            .fetch_one(&mut *transaction)
            .await?;
            if is_issuer_good == 0 {
                return Ok(Err(NotExchanged::Expired));
            }
            check_new_key!(transaction, code.organisation, code.workspace, new);
            insert_key!(transaction, code.organisation, code.workspace, new, change_seq, by.at);
            let (target, key) = (code.hash.to_hex(), key.to_hex());
            let change = Change::new("auth_code.exchanged", &target).with(json!({"key_hash": key}));
            append_audit!(transaction, code.organisation, by, change);
            append_audit!(transaction, code.organisation, by, keys::created(&new, &code.workspace, &key));
            transaction.commit().await?;
            Ok(Ok(Exchanged { user: code.creator.clone() }))
        });
        match made {
            // What was allowed when the code was made is not any more.
            Err(StoreError::Missing | StoreError::Refused(_)) => Ok(Err(NotExchanged::Expired)),
            made => made,
        }
    }

    /// Notes a wrong verifier; the fifth burns the code.
    pub async fn note_failed_exchange(&self, code: &Known, by: &By) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let failures: Option<i64> = sqlx::query_scalar(
                "UPDATE auth_codes SET failures = failures + 1 WHERE hash = $1 AND used_at IS NULL RETURNING failures",
            )
            .bind(code.hash.to_hex())
            .fetch_optional(&mut *transaction)
            .await?;
            let target = code.hash.to_hex();
            let change = Change::new("auth_code.failed", &target).with(json!({"failures": failures}));
            append_audit!(transaction, code.organisation, by, change);
            Ok(transaction.commit().await?)
        })
    }

    /// Notes that a used code came again, and disables its key when `proven` (the verifier was right), except for what
    /// looks like the same client twice. True when the key was disabled.
    pub async fn note_replay(&self, code: &Known, by: &By, proven: bool) -> Result<bool> {
        let is_double = code.used.is_none_or(|used| by.at.since(used) <= DOUBLE_SUBMIT);
        let is_alive = code.expires > by.at;
        let key = code.key.filter(|_| proven && is_alive && !is_double);
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let mut disabled = false;
            if let Some(key) = key {
                let change_seq: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
                let changed = sqlx::query(
                    "UPDATE api_keys SET disabled = TRUE, updated_at = $3, change_seq = $4 \
                     WHERE organisation_id = $1 AND hash = $2 AND deleted_at IS NULL AND NOT disabled",
                )
                .bind(&*code.organisation.0)
                .bind(key.to_hex())
                .bind(by.at.0)
                .bind(change_seq)
                .execute(&mut *transaction)
                .await?;
                disabled = changed.rows_affected() == 1;
            }
            let target = code.hash.to_hex();
            let change = Change::new("auth_code.replayed", &target).with(json!({"key_disabled": disabled}));
            append_audit!(transaction, code.organisation, by, change);
            if let Some(key) = key.filter(|_| disabled) {
                let target = key.to_hex();
                let (before, after) = (json!({"disabled": false}), json!({"disabled": true}));
                let change = Change::new("key.updated", &target).between(&before, &after);
                append_audit!(transaction, code.organisation, by, change);
            }
            transaction.commit().await?;
            Ok(disabled)
        })
    }
}

#[derive(sqlx::FromRow)]
struct RawCode {
    hash: String,
    organisation_id: String,
    workspace_id: String,
    app_id: i64,
    creator_user_id: Option<String>,
    challenge: Option<String>,
    challenge_method: Option<String>,
    key_name: String,
    limit_nanos: Option<i64>,
    limit_reset: Option<String>,
    key_expires_at: Option<i64>,
    spawn_agent: Option<String>,
    spawn_cloud: Option<String>,
    expires_at: i64,
    failures: i64,
    used_at: Option<i64>,
    api_key_hash: Option<String>,
}

impl TryFrom<RawCode> for Known {
    type Error = StoreError;

    fn try_from(raw: RawCode) -> Result<Self> {
        let unreadable = |column| Unreadable { table: "auth_codes", column };
        let challenge = match (raw.challenge, raw.challenge_method) {
            (Some(value), Some(method)) => {
                let method = Method::parse(&method).ok_or_else(|| unreadable("challenge_method"))?;
                Some(Challenge { method, value })
            }
            (None, None) => None,
            // Half a challenge must not become none.
            _ => return Err(unreadable("challenge").into()),
        };
        let reset =
            raw.limit_reset.as_deref().map(|text| LimitReset::parse(text).ok_or_else(|| unreadable("limit_reset")));
        let key =
            raw.api_key_hash.as_deref().map(|text| KeyHash::parse(text).ok_or_else(|| unreadable("api_key_hash")));
        Ok(Self {
            hash: KeyHash::parse(&raw.hash).ok_or_else(|| unreadable("hash"))?,
            organisation: OrganisationId(raw.organisation_id.into()),
            workspace: WorkspaceId(raw.workspace_id.into()),
            app_id: raw.app_id,
            creator: raw.creator_user_id,
            challenge,
            key_name: raw.key_name,
            limit: raw.limit_nanos.map(Money),
            limit_reset: reset.transpose()?,
            key_expires: raw.key_expires_at.map(Timestamp),
            spawn_agent: raw.spawn_agent,
            spawn_cloud: raw.spawn_cloud,
            expires: Timestamp(raw.expires_at),
            used: raw.used_at.map(Timestamp),
            is_burned: raw.failures >= MOST_FAILURES,
            key: key.transpose()?,
        })
    }
}
