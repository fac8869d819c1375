//! Credits that organisations were given.

use std::sync::Arc;

use serde_json::json;
use tidegate_core::{Money, OrganisationId, Tenant, Timestamp};

use crate::audit::{By, Change, append_audit};
use crate::error::Unreadable;
use crate::idempotency::{self, Given, Once};
use crate::ledger::LIMITS_CHANGED;
use crate::spend::nanos;
use crate::workspaces::new_id;
use crate::{Result, Store, dialect};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// A UUID.
    pub id: String,
    pub amount: Money,
    pub note: Option<String>,
    /// The hash of the key it was made with; `None` at the shell.
    pub created_by: Option<String>,
    pub created: Timestamp,
}

/// What became of a grant that names itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Granting {
    New(Grant),
    /// The same call was made before, and made this.
    Before(Grant),
    /// The name was used for another call.
    Misused,
}

impl Store {
    /// Gives the tenant credits.
    pub async fn grant_credits(&self, tenant: &Tenant, by: &By, amount: Money, note: Option<&str>) -> Result<Grant> {
        match self.grant_credits_once(tenant, by, amount, note, None).await? {
            Granting::New(grant) | Granting::Before(grant) => Ok(grant),
            Granting::Misused => unreachable!("a call without a name is like no other"),
        }
    }

    /// Gives the tenant credits; a call that comes again under its name gives nothing more.
    pub async fn grant_credits_once(
        &self,
        tenant: &Tenant,
        by: &By,
        amount: Money,
        note: Option<&str>,
        once: Option<&Once>,
    ) -> Result<Granting> {
        let grant = Grant {
            id: new_id(by.at).0.to_string(),
            amount,
            note: note.map(ToOwned::to_owned),
            created_by: by.actor.id(),
            created: by.at,
        };
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            if let Some(once) = once {
                let given: Given = idempotency::take!(transaction, tenant.organisation, once, by.at);
                match given {
                    Given::First => {}
                    Given::Again { answer } => {
                        let before: Option<RawGrant> = sqlx::query_as(concat!(
                            select_grants!(),
                            " WHERE organisation_id = $1 AND id = $2"
                        ))
                        .bind(&*tenant.organisation.0)
                        .bind(&answer)
                        .fetch_optional(&mut *transaction)
                        .await?;
                        let before = before.ok_or(Unreadable { table: "idempotency", column: "answer" })?;
                        return Ok(Granting::Before(before.into()));
                    }
                    Given::Differently => return Ok(Granting::Misused),
                }
                idempotency::answered!(transaction, tenant.organisation, once, grant.id);
            }
            sqlx::query(LIMITS_CHANGED).execute(&mut *transaction).await?;
            sqlx::query(
                "INSERT INTO credit_grants (id, organisation_id, amount_nanos, note, created_by, created_at) \
                 VALUES ($1, $2, $3, $4, $5, $6)",
            )
            .bind(&grant.id)
            .bind(&*tenant.organisation.0)
            .bind(grant.amount.0)
            .bind(&grant.note)
            .bind(&grant.created_by)
            .bind(grant.created.0)
            .execute(&mut *transaction)
            .await?;
            let new = json!({"amount": grant.amount.to_string(), "note": grant.note});
            let change = Change::new("credits.granted", &grant.id).with(new);
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(Granting::New(grant.clone()))
        })
    }

    /// A page of the tenant's grants, newest first, and how many there are.
    pub async fn list_grants(&self, tenant: &Tenant, offset: u32, limit: u32) -> Result<(Vec<Grant>, u64)> {
        let (page, total): (Vec<RawGrant>, i64) = on_reader!(self, pool => {
            let page = sqlx::query_as(concat!(
                select_grants!(),
                " WHERE organisation_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3"
            ))
            .bind(&*tenant.organisation.0)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?;
            let total = sqlx::query_scalar("SELECT COUNT(*) FROM credit_grants WHERE organisation_id = $1")
                .bind(&*tenant.organisation.0)
                .fetch_one(pool)
                .await?;
            Ok((page, total))
        })?;
        Ok((page.into_iter().map(Grant::from).collect(), u64::try_from(total).unwrap_or(0)))
    }

    /// All that the tenant was given.
    pub async fn total_granted(&self, tenant: &Tenant) -> Result<Money> {
        let (dollars, rest): (i64, i64) = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT CAST(COALESCE(SUM(amount_nanos / 1000000000), 0) AS BIGINT), \
                 CAST(COALESCE(SUM(amount_nanos % 1000000000), 0) AS BIGINT) \
                 FROM credit_grants WHERE organisation_id = $1",
            )
            .bind(&*tenant.organisation.0)
            .fetch_one(pool)
            .await?)
        })?;
        Ok(Money(nanos(dollars, rest)))
    }

    /// All that each organisation was given, for the books of this node.
    pub async fn all_grants(&self) -> Result<Vec<(OrganisationId, Money)>> {
        let rows: Vec<(String, i64, i64)> = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT organisation_id, CAST(SUM(amount_nanos / 1000000000) AS BIGINT), \
                 CAST(SUM(amount_nanos % 1000000000) AS BIGINT) \
                 FROM credit_grants GROUP BY organisation_id ORDER BY organisation_id",
            )
            .fetch_all(pool)
            .await?)
        })?;
        let grants = rows.into_iter().map(|(organisation, dollars, rest)| {
            (OrganisationId(Arc::from(organisation)), Money(nanos(dollars, rest)))
        });
        Ok(grants.collect())
    }
}

macro_rules! select_grants {
    () => {
        "SELECT id, amount_nanos, note, created_by, created_at FROM credit_grants"
    };
}
use select_grants;

#[derive(sqlx::FromRow)]
struct RawGrant {
    id: String,
    amount_nanos: i64,
    note: Option<String>,
    created_by: Option<String>,
    created_at: i64,
}

impl From<RawGrant> for Grant {
    fn from(raw: RawGrant) -> Self {
        Self {
            id: raw.id,
            amount: Money(raw.amount_nanos),
            note: raw.note,
            created_by: raw.created_by,
            created: Timestamp(raw.created_at),
        }
    }
}
