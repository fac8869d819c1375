//! Authorization codes and the applications they are made for. Only the hash of a code is here; the code itself exists
//! once, in the answer or redirect that hands it out.

mod exchange;

use tidegate_core::{KeyHash, Money, Tenant, Timestamp, WorkspaceId};

pub use exchange::{Exchanged, Known, NotExchanged};

use crate::audit::{Actor, By, Change, append_audit};
use crate::idempotency::{self, Given, Once};
use crate::keys::LimitReset;
use crate::members::IS_MEMBER;
use crate::workspaces::DEFAULT_SLUG;
use crate::{Refused, Result, Store, dialect};

/// Wrong verifiers after which a code answers as if it did not exist.
pub const MOST_FAILURES: i64 = 5;

/// Taken first by whoever makes a code: they then wait for each other, and what one counts the next one sees.
const NEXT_APPLICATION: &str = "UPDATE sequences SET value = value + $1 WHERE name = 'applications' RETURNING value";

/// How a verifier is turned into the challenge it must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    S256,
    Plain,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S256 => "S256",
            Self::Plain => "plain",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "S256" => Some(Self::S256),
            "plain" => Some(Self::Plain),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    pub method: Method,
    pub value: String,
}

/// What an application is known by, and how it is called until somebody gives it a title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    pub origin: String,
    pub title: String,
    /// A title that was given and replaces the one that is stored.
    pub new_title: Option<String>,
}

/// A code to be stored.
#[derive(Clone, Debug)]
pub struct NewCode {
    pub hash: KeyHash,
    pub workspace: WorkspaceId,
    pub application: Application,
    /// Who will own the key.
    pub creator: Option<String>,
    pub challenge: Option<Challenge>,
    /// The key's name; `None`: the application's title.
    pub key_name: Option<String>,
    pub limit: Option<Money>,
    pub limit_reset: Option<LimitReset>,
    pub key_expires: Option<Timestamp>,
    pub spawn_agent: Option<String>,
    pub spawn_cloud: Option<String>,
    pub expires: Timestamp,
}

/// How many codes may wait for their exchange.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub per_account: u32,
    pub per_application: u32,
}

/// What became of a request for a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Issued {
    New {
        app_id: i64,
    },
    /// The same call was made before: what it was told, without the code.
    Before {
        answer: String,
    },
    /// Another call used the same idempotency key.
    Misused,
    /// Too many codes wait already, or the workspace is on its way out. Nothing was changed.
    Conflict,
}

impl Store {
    /// Stores a code, and its application on first sight. One that was asked for with a key is good as long as that key
    /// is. [`Refused::NotAMember`] when its creator has no place in the workspace.
    pub async fn create_auth_code(
        &self,
        tenant: &Tenant,
        by: &By,
        code: &NewCode,
        most: Pending,
        once: Option<&Once>,
    ) -> Result<Issued> {
        let issuer = match &by.actor {
            Actor::Key(hash) => Some(hash),
            // A person's codes are burned when they are removed.
            Actor::Member(_) | Actor::Anyone | Actor::Shell | Actor::Server => None,
        };
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            if let Some(once) = once {
                let given: Given = idempotency::take!(transaction, tenant.organisation, once, by.at);
                match given {
                    Given::First => {}
                    Given::Again { answer } => return Ok(Issued::Before { answer }),
                    Given::Differently => return Ok(Issued::Misused),
                }
            }
            let _: i64 = sqlx::query_scalar(NEXT_APPLICATION).bind(0_i64).fetch_one(&mut *transaction).await?;
            let (app_id, title): (i64, String) = application!(transaction, code.application, by.at);
            let counted: (i64, i64) = sqlx::query_as(
                "SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN app_id = $2 THEN 1 ELSE 0 END), 0) AS BIGINT) \
                 FROM auth_codes \
                 WHERE organisation_id = $1 AND used_at IS NULL AND failures < $3 AND expires_at > $4",
            )
            .bind(&*tenant.organisation.0)
            .bind(app_id)
            .bind(MOST_FAILURES)
            .bind(by.at.0)
            .fetch_one(&mut *transaction)
            .await?;
            if counted.0 >= i64::from(most.per_account) || counted.1 >= i64::from(most.per_application) {
                return Ok(Issued::Conflict);
            }
            let key_name = code.key_name.as_deref().unwrap_or(&title);
            let inserted = sqlx::query(
                "INSERT INTO auth_codes (hash, organisation_id, workspace_id, app_id, creator_user_id, challenge, \
                 challenge_method, key_name, limit_nanos, limit_reset, key_expires_at, spawn_agent, spawn_cloud, \
                 created_at, expires_at, issuer_key_hash, failures) \
                 SELECT $1, organisation_id, id, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0 \
                 FROM workspaces WHERE organisation_id = $2 AND id = $3 AND deleted_at IS NULL",
            )
            .bind(code.hash.to_hex())
            .bind(&*tenant.organisation.0)
            .bind(&*code.workspace.0)
            .bind(app_id)
            .bind(&code.creator)
            .bind(code.challenge.as_ref().map(|challenge| challenge.value.as_str()))
            .bind(code.challenge.as_ref().map(|challenge| challenge.method.as_str()))
            .bind(key_name)
            .bind(code.limit.map(|limit| limit.0))
            .bind(code.limit_reset.map(LimitReset::as_str))
            .bind(code.key_expires.map(|time| time.0))
            .bind(&code.spawn_agent)
            .bind(&code.spawn_cloud)
            .bind(by.at.0)
            .bind(code.expires.0)
            .bind(issuer.map(|hash| hash.to_hex()))
            .execute(&mut *transaction)
            .await?;
            if inserted.rows_affected() == 0 {
                return Ok(Issued::Conflict);
            }
            // Its key would be theirs, so it could never be exchanged.
            if let Some(creator) = &code.creator {
                let is_member: i64 = sqlx::query_scalar(IS_MEMBER)
                    .bind(&*tenant.organisation.0)
                    .bind(&*code.workspace.0)
                    .bind(creator)
                    .bind(DEFAULT_SLUG)
                    .fetch_one(&mut *transaction)
                    .await?;
                if is_member == 0 {
                    return Err(Refused::NotAMember.into());
                }
            }
            if let Some(once) = once {
                let answer = serde_json::json!({"app_id": app_id, "created_at": by.at.to_string()}).to_string();
                idempotency::answered!(transaction, tenant.organisation, once, answer);
            }
            let target = code.hash.to_hex();
            let change = Change::new("auth_code.created", &target).with(serde_json::json!({
                "app_id": app_id,
                "workspace_id": &*code.workspace.0,
                "key_name": key_name,
                "limit": code.limit.map(|limit| limit.to_string()),
                "limit_reset": code.limit_reset.map(LimitReset::as_str),
                "expires_at": code.key_expires.map(|time| time.to_string()),
                "challenge_method": code.challenge.as_ref().map(|challenge| challenge.method.as_str()),
            }));
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(Issued::New { app_id })
        })
    }

    /// The title under which an application is known; `None` when it was never seen.
    pub async fn application_title(&self, origin: &str) -> Result<Option<String>> {
        on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT title FROM applications WHERE origin = $1")
                .bind(origin)
                .fetch_optional(pool)
                .await?)
        })
    }

    /// The number of an application that was seen.
    pub async fn application_id(&self, origin: &str) -> Result<Option<i64>> {
        on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT id FROM applications WHERE origin = $1")
                .bind(origin)
                .fetch_optional(pool)
                .await?)
        })
    }

    /// Stores applications on first sight.
    pub async fn see_applications(&self, applications: &[Application], now: Timestamp) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let _: i64 = sqlx::query_scalar(NEXT_APPLICATION).bind(0_i64).fetch_one(&mut *transaction).await?;
            for application in applications {
                let _: (i64, String) = application!(transaction, application, now);
            }
            transaction.commit().await?;
            Ok(())
        })
    }

    /// Takes away codes that nobody can use any more, and answers that nobody will ask for again.
    pub async fn purge_codes(&self, older_than: Timestamp) -> Result<u64> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let codes = sqlx::query("DELETE FROM auth_codes WHERE expires_at < $1")
                .bind(older_than.0)
                .execute(&mut *transaction)
                .await?;
            let answers = sqlx::query("DELETE FROM idempotency WHERE created_at < $1")
                .bind(older_than.0)
                .execute(&mut *transaction)
                .await?;
            transaction.commit().await?;
            Ok(codes.rows_affected() + answers.rows_affected())
        })
    }
}

/// The id and title of an application, which is stored on first sight. The number's lock is held already.
macro_rules! application {
    ($transaction:ident, $application:expr, $now:expr) => {{
        let known: Option<(i64, String)> = sqlx::query_as("SELECT id, title FROM applications WHERE origin = $1")
            .bind(&$application.origin)
            .fetch_optional(&mut *$transaction)
            .await?;
        let (id, title) = match known {
            Some(known) => known,
            None => {
                let id: i64 = sqlx::query_scalar(NEXT_APPLICATION).bind(1_i64).fetch_one(&mut *$transaction).await?;
                sqlx::query("INSERT INTO applications (id, origin, title, created_at) VALUES ($1, $2, $3, $4)")
                    .bind(id)
                    .bind(&$application.origin)
                    .bind(&$application.title)
                    .bind($now.0)
                    .execute(&mut *$transaction)
                    .await?;
                (id, $application.title.clone())
            }
        };
        match &$application.new_title {
            Some(given) if *given != title => {
                sqlx::query("UPDATE applications SET title = $2 WHERE id = $1")
                    .bind(id)
                    .bind(given)
                    .execute(&mut *$transaction)
                    .await?;
                (id, given.clone())
            }
            _ => (id, title),
        }
    }};
}
use application;
