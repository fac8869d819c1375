//! Calls that may be made twice and must act once. The key is taken in the transaction of the act itself, so that there
//! is no moment in which one is stored without the other; who comes second waits for the first to end.

use aws_lc_rs::digest;
use tidegate_core::{KeyHash, OrganisationId, Timestamp};

use crate::{Result, Store};

/// How long an answer is kept.
pub(crate) const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// A call that names itself, so that it can be told from another one.
#[derive(Clone, Debug)]
pub struct Once {
    pub(crate) key: String,
    pub(crate) body: String,
}

impl Once {
    /// `name` is the caller's key; `route` and `body` are what must be the same when it comes again.
    pub fn new(name: &str, route: &str, body: &[u8]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(route.as_bytes());
        context.update(&[0]);
        context.update(body);
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        Self { key: KeyHash::of(name.as_bytes()).to_hex(), body: KeyHash(hash).to_hex() }
    }
}

impl Store {
    /// What such a call was answered with before, for who cannot make it again.
    pub async fn answered_before(
        &self,
        organisation: &OrganisationId,
        once: &Once,
        now: Timestamp,
    ) -> Result<Option<String>> {
        let answer: Option<Option<String>> = on_reader!(self, pool => {
            Ok(sqlx::query_scalar(
                "SELECT answer FROM idempotency \
                 WHERE organisation_id = $1 AND key_hash = $2 AND body_hash = $3 AND created_at > $4",
            )
            .bind(&*organisation.0)
            .bind(&once.key)
            .bind(&once.body)
            .bind(now.0 - KEPT_MS)
            .fetch_optional(pool)
            .await?)
        })?;
        Ok(answer.flatten())
    }
}

/// What is known of such a call.
pub(crate) enum Given {
    First,
    Again {
        answer: String,
    },
    /// The key was used for another call.
    Differently,
}

/// Takes the key, or says what it was taken for.
macro_rules! take {
    ($transaction:ident, $organisation:expr, $once:expr, $now:expr) => {{
        sqlx::query("DELETE FROM idempotency WHERE organisation_id = $1 AND key_hash = $2 AND created_at <= $3")
            .bind(&*$organisation.0)
            .bind(&$once.key)
            .bind($now.0 - $crate::idempotency::KEPT_MS)
            .execute(&mut *$transaction)
            .await?;
        let taken = sqlx::query(
            "INSERT INTO idempotency (organisation_id, key_hash, body_hash, created_at) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (organisation_id, key_hash) DO NOTHING",
        )
        .bind(&*$organisation.0)
        .bind(&$once.key)
        .bind(&$once.body)
        .bind($now.0)
        .execute(&mut *$transaction)
        .await?;
        if taken.rows_affected() == 1 {
            $crate::idempotency::Given::First
        } else {
            let (body, answer): (String, Option<String>) = sqlx::query_as(
                "SELECT body_hash, answer FROM idempotency WHERE organisation_id = $1 AND key_hash = $2",
            )
            .bind(&*$organisation.0)
            .bind(&$once.key)
            .fetch_one(&mut *$transaction)
            .await?;
            match answer {
                Some(answer) if body == $once.body => $crate::idempotency::Given::Again { answer },
                _ => $crate::idempotency::Given::Differently,
            }
        }
    }};
}
pub(crate) use take;

/// Keeps the answer for whoever calls again.
macro_rules! answered {
    ($transaction:ident, $organisation:expr, $once:expr, $answer:expr) => {
        sqlx::query("UPDATE idempotency SET answer = $3 WHERE organisation_id = $1 AND key_hash = $2")
            .bind(&*$organisation.0)
            .bind(&$once.key)
            .bind(&$answer)
            .execute(&mut *$transaction)
            .await?;
    };
}
pub(crate) use answered;
