//! `/guardrails/{id}/assignments` and `/guardrails/assignments`: which keys and members a guardrail is for.

use http::StatusCode;
use serde::Serialize;
use tidegate_core::KeyHash;
use tidegate_gateway::Failure;
use tidegate_store::StoreError;
use tidegate_store::guardrails::{Assigned, Assignment};

use super::account::{Answering, Instant, Request, answer, internal, not_found, page};
use super::form::{Form, refused};
use super::guardrails::addressed;
use crate::router::Call;

const MOST_SUBJECTS: usize = 1_000;
const LONGEST_ID: usize = 256;

#[derive(Serialize)]
struct OfKey<'a> {
    id: &'a str,
    guardrail_id: &'a str,
    key_hash: &'a str,
    key_name: &'a str,
    key_label: &'a str,
    assigned_by: Option<&'a str>,
    created_at: Instant,
}

#[derive(Serialize)]
struct OfMember<'a> {
    id: &'a str,
    guardrail_id: &'a str,
    organization_id: &'a str,
    user_id: &'a str,
    assigned_by: Option<&'a str>,
    created_at: Instant,
}

impl<'a> From<&'a Assignment> for OfKey<'a> {
    fn from(assignment: &'a Assignment) -> Self {
        Self {
            id: &assignment.id,
            guardrail_id: &assignment.guardrail,
            key_hash: &assignment.subject,
            key_name: &assignment.name,
            key_label: &assignment.label,
            assigned_by: assignment.assigned_by.as_deref(),
            created_at: Instant(assignment.created),
        }
    }
}

pub fn list_keys(call: Call) -> Answering {
    listed(call, Assigned::Key, true)
}

pub fn list_members(call: Call) -> Answering {
    listed(call, Assigned::Member, true)
}

pub fn list_all_keys(call: Call) -> Answering {
    listed(call, Assigned::Key, false)
}

pub fn list_all_members(call: Call) -> Answering {
    listed(call, Assigned::Member, false)
}

pub fn assign_keys(call: Call) -> Answering {
    assigned(call, Assigned::Key)
}

pub fn assign_members(call: Call) -> Answering {
    assigned(call, Assigned::Member)
}

pub fn unassign_keys(call: Call) -> Answering {
    unassigned(call, Assigned::Key)
}

pub fn unassign_members(call: Call) -> Answering {
    unassigned(call, Assigned::Member)
}

fn listed(call: Call, kind: Assigned, is_of_one: bool) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = request.query.clamped_page();
        let store = &request.app.store;
        let guardrail = match is_of_one {
            true => {
                let id = addressed(&request)?;
                let found = store.find_guardrail(&request.tenant, &id).await.map_err(internal)?;
                Some(found.ok_or_else(not_found)?.id)
            }
            false => None,
        };
        let listed = store.list_assignments(&request.tenant, guardrail.as_deref(), kind, offset, limit).await;
        let (assignments, total) = listed.map_err(internal)?;
        let of_member = |assignment| member(assignment, &request.tenant.organisation.0);
        Ok(match kind {
            Assigned::Key => page(&assignments.iter().map(OfKey::from).collect::<Vec<_>>(), total),
            Assigned::Member => page(&assignments.iter().map(of_member).collect::<Vec<_>>(), total),
        })
    })
}

fn member<'a>(assignment: &'a Assignment, organisation: &'a str) -> OfMember<'a> {
    OfMember {
        id: &assignment.id,
        guardrail_id: &assignment.guardrail,
        organization_id: organisation,
        user_id: &assignment.subject,
        assigned_by: assignment.assigned_by.as_deref(),
        created_at: Instant(assignment.created),
    }
}

fn assigned(call: Call, kind: Assigned) -> Answering {
    #[derive(Serialize)]
    struct Counted {
        assigned_count: u64,
    }
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let subjects = subjects(&mut request, kind).await?;
        let id = addressed(&request)?;
        let (store, by) = (&request.app.store, request.key.creator.as_deref());
        let assigned = store.assign_guardrail(&request.tenant, &request.by, &id, kind, &subjects, by).await;
        let assigned = assigned.map_err(|error| match error {
            StoreError::Refused(rule) => refused(member_name(kind), rule.to_string()),
            error => internal(error),
        })?;
        let assigned_count = assigned.ok_or_else(not_found)?;
        request.app.guardrails_changed().await;
        Ok(answer(StatusCode::OK, &Counted { assigned_count }))
    })
}

fn unassigned(call: Call, kind: Assigned) -> Answering {
    #[derive(Serialize)]
    struct Counted {
        unassigned_count: u64,
    }
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let subjects = subjects(&mut request, kind).await?;
        let id = addressed(&request)?;
        let store = &request.app.store;
        let removed = store.unassign_guardrail(&request.tenant, &request.by, &id, kind, &subjects).await;
        let unassigned_count = removed.map_err(internal)?.ok_or_else(not_found)?;
        request.app.guardrails_changed().await;
        Ok(answer(StatusCode::OK, &Counted { unassigned_count }))
    })
}

fn member_name(kind: Assigned) -> &'static str {
    match kind {
        Assigned::Key => "key_hashes",
        Assigned::Member => "member_user_ids",
    }
}

/// Whom a body names.
async fn subjects(request: &mut Request, kind: Assigned) -> Result<Vec<String>, Failure> {
    let body = request.body().await?;
    let mut form = Form::read(&body)?;
    let name = member_name(kind);
    let subjects = form.value(name, |reader, raw| {
        reader.list(raw, 1..=MOST_SUBJECTS, |reader, raw| match kind {
            Assigned::Key => reader.key_hash(raw).map(|hash: KeyHash| hash.to_hex()),
            Assigned::Member => reader.text(raw, 1..=LONGEST_ID),
        })
    });
    let subjects = form.require(name, subjects);
    form.finish()?;
    subjects.ok_or_else(Failure::internal)
}
