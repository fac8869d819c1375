//! People who sign in with an issuer that the operator trusts: who of the members they are.

use serde_json::json;
use tidegate_core::Tenant;

use super::{Member, NewMember, RawMember, Role, insert_member, select_members};
use crate::audit::{Actor, By, Change, append_audit};
use crate::keys::HOLD_KEYS;
use crate::{Refused, Result, Store, dialect};

/// What an issuer says of somebody who signed in there.
#[derive(Clone, Debug)]
pub struct Identity {
    pub issuer: String,
    /// The issuer's own name of the person, which nobody else ever has there.
    pub subject: String,
    /// An address that the issuer vouches for, if there is one.
    pub email: Option<String>,
    pub first_name: Option<String>,
    pub last_name: Option<String>,
}

impl Store {
    /// The member who this is, and that they signed in. Known by the subject from the second time on, by the address at
    /// the first, when the two are tied together; so an address that is given to somebody else later opens nothing. Nobody
    /// is found: they become a member if they may `join`, unless they were one and were removed.
    pub async fn sign_in_member(&self, tenant: &Tenant, by: &By, identity: &Identity, join: bool) -> Result<Member> {
        // Letters of other alphabets that look like ours in lower case are other letters, and that is another address.
        let is_plain = |email: &&str| email.to_lowercase() == email.to_ascii_lowercase();
        let email = identity.email.as_deref().filter(is_plain).map(str::to_ascii_lowercase);
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let known: Option<RawMember> = sqlx::query_as(concat!(
                select_members!(),
                " WHERE organisation_id = $1 AND issuer = $2 AND subject = $3 AND removed_at IS NULL"
            ))
            .bind(&*tenant.organisation.0)
            .bind(&identity.issuer)
            .bind(&identity.subject)
            .fetch_optional(&mut *transaction)
            .await?;
            let member = match known {
                Some(known) => Member::try_from(known)?,
                None => {
                    let email = email.as_deref().ok_or(Refused::UnknownUser)?;
                    let named: Option<RawMember> = sqlx::query_as(concat!(
                        select_members!(),
                        " WHERE organisation_id = $1 AND email = $2 AND removed_at IS NULL"
                    ))
                    .bind(&*tenant.organisation.0)
                    .bind(email)
                    .fetch_optional(&mut *transaction)
                    .await?;
                    let member = match named {
                        Some(named) => Member::try_from(named)?,
                        None => {
                            let removed: i64 = sqlx::query_scalar(
                                "SELECT COUNT(*) FROM users WHERE organisation_id = $1 \
                                 AND (email = $2 OR (issuer = $3 AND subject = $4)) AND removed_at IS NOT NULL",
                            )
                            .bind(&*tenant.organisation.0)
                            .bind(email)
                            .bind(&identity.issuer)
                            .bind(&identity.subject)
                            .fetch_one(&mut *transaction)
                            .await?;
                            if removed > 0 {
                                return Err(Refused::WasRemoved.into());
                            }
                            if !join {
                                return Err(Refused::UnknownUser.into());
                            }
                            let new = NewMember {
                                email: email.to_owned(),
                                first_name: identity.first_name.clone(),
                                last_name: identity.last_name.clone(),
                                role: Role::Member,
                            };
                            let member = Member::new(tenant, by.at, new);
                            let by = &By { actor: Actor::Server, ..by.clone() };
                            insert_member!(transaction, member, by);
                            member
                        }
                    };
                    let tied = sqlx::query(
                        "UPDATE users SET issuer = $3, subject = $4 \
                         WHERE organisation_id = $1 AND id = $2 AND (subject IS NULL OR issuer <> $3)",
                    )
                    .bind(&*tenant.organisation.0)
                    .bind(&member.id)
                    .bind(&identity.issuer)
                    .bind(&identity.subject)
                    .execute(&mut *transaction)
                    .await?;
                    if tied.rows_affected() == 0 {
                        return Err(Refused::OtherIdentity.into());
                    }
                    member
                }
            };
            let by = &By { actor: Actor::Member(member.id.as_str().into()), ..by.clone() };
            let change = Change::new("session.started", &member.id).with(json!({"issuer": identity.issuer}));
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(member)
        })
    }
}
