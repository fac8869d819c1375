//! `/organization/members` and `/workspaces/{id}/members`: who is here, and who belongs where.

use http::StatusCode;
use serde::Serialize;
use tidegate_gateway::Failure;
use tidegate_store::members::{Member, Membership, Role};
use tidegate_store::{Refused, StoreError};

use super::account::{Answering, Instant, Request, answer, internal, not_found, page};
use super::form::{Form, refused};
use super::workspaces::addressed;
use crate::router::Call;

const MOST_USERS: usize = 100;
const LONGEST_ID: usize = 256;

#[derive(Serialize)]
struct Person<'a> {
    id: &'a str,
    email: &'a str,
    first_name: Option<&'a str>,
    last_name: Option<&'a str>,
    role: &'static str,
}

impl<'a> From<&'a Member> for Person<'a> {
    fn from(member: &'a Member) -> Self {
        Self {
            id: &member.id,
            email: &member.email,
            first_name: member.first_name.as_deref(),
            last_name: member.last_name.as_deref(),
            role: match member.role {
                Role::Admin => "org:admin",
                Role::Member => "org:member",
            },
        }
    }
}

#[derive(Serialize)]
struct Place<'a> {
    id: &'a str,
    workspace_id: &'a str,
    user_id: &'a str,
    role: &'static str,
    created_at: Instant,
}

impl<'a> From<&'a Membership> for Place<'a> {
    fn from(membership: &'a Membership) -> Self {
        Self {
            id: &membership.id,
            workspace_id: &membership.workspace.0,
            user_id: &membership.user,
            role: membership.role.as_str(),
            created_at: Instant(membership.created),
        }
    }
}

pub fn list_of_organisation(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = request.query.clamped_page();
        let listed = request.app.store.list_members(&request.tenant, offset, limit).await;
        let (members, total) = listed.map_err(internal)?;
        Ok(page(&members.iter().map(Person::from).collect::<Vec<_>>(), total))
    })
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = request.query.clamped_page();
        let workspace = addressed(&request).await?;
        let listed = request.app.store.list_workspace_members(&request.tenant, &workspace.id, offset, limit).await;
        let (places, total) = listed.map_err(internal)?.ok_or_else(not_found)?;
        Ok(page(&places.iter().map(Place::from).collect::<Vec<_>>(), total))
    })
}

pub fn add(call: Call) -> Answering {
    #[derive(Serialize)]
    struct Added<'a> {
        added_count: usize,
        data: Vec<Place<'a>>,
    }
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let users = users(&mut request).await?;
        let workspace = addressed(&request).await?;
        let store = &request.app.store;
        let added = store.add_workspace_members(&request.tenant, &request.by, &workspace.id, &users).await;
        let added = added.map_err(refusal)?.ok_or_else(not_found)?;
        let data = added.members.iter().map(Place::from).collect();
        Ok(answer(StatusCode::OK, &Added { added_count: added.count, data }))
    })
}

pub fn remove(call: Call) -> Answering {
    #[derive(Serialize)]
    struct Removed {
        removed_count: usize,
    }
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let users = users(&mut request).await?;
        let workspace = addressed(&request).await?;
        let store = &request.app.store;
        let removed = store.remove_workspace_members(&request.tenant, &request.by, &workspace.id, &users).await;
        let removed_count = removed.map_err(refusal)?.ok_or_else(not_found)?;
        Ok(answer(StatusCode::OK, &Removed { removed_count }))
    })
}

/// The people a body names.
async fn users(request: &mut Request) -> Result<Vec<String>, Failure> {
    let body = request.body().await?;
    let mut form = Form::read(&body)?;
    let users = form.value("user_ids", |reader, raw| {
        reader.list(raw, 1..=MOST_USERS, |reader, raw| reader.text(raw, 1..=LONGEST_ID))
    });
    let users = form.require("user_ids", users);
    form.finish()?;
    users.ok_or_else(Failure::internal)
}

fn refusal(error: StoreError) -> Failure {
    match error {
        StoreError::Refused(Refused::IsDefault) => {
            refused("id", "is the default workspace, which every member belongs to")
        }
        StoreError::Refused(rule) => refused("user_ids", rule.to_string()),
        error => internal(error),
    }
}
