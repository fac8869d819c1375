//! `/credits`: what the account was given and has used, and grants that give it more.

use http::StatusCode;
use http::header::HeaderValue;
use serde::Serialize;
use tidegate_core::Money;
use tidegate_gateway::Failure;
use tidegate_store::StoreError;
use tidegate_store::credits::{Grant, Granting};
use tidegate_wire::json::{self, Kind};

use super::account::{Answering, Dollars, Instant, REPLAYED, Request, conflict, data, internal, once, page};
use super::form::{Form, refused};
use crate::router::Call;

const LONGEST_NOTE: usize = 500;

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    amount: Dollars,
    note: Option<&'a str>,
    /// The hash of the key it was made with; null when it was made at a shell.
    created_by: Option<&'a str>,
    created_at: Instant,
}

impl<'a> From<&'a Grant> for Shown<'a> {
    fn from(grant: &'a Grant) -> Self {
        Self {
            id: &grant.id,
            amount: Dollars(grant.amount),
            note: grant.note.as_deref(),
            created_by: grant.created_by.as_deref(),
            created_at: Instant(grant.created),
        }
    }
}

pub fn show(call: Call) -> Answering {
    #[derive(Serialize)]
    struct Credits {
        total_credits: Dollars,
        total_usage: Dollars,
    }
    Box::pin(async move {
        let request = Request::of(call)?;
        let (store, tenant) = (&request.app.store, &request.tenant);
        request.settled().await;
        let usage = store.total_usage(tenant).await.map_err(internal)?;
        let billing = request.app.gateway.snapshot().settings.billing.clone();
        let credits = if billing.enabled {
            store.total_granted(tenant).await.map_err(internal)?
        } else {
            // Nothing is bought and nothing runs out: what is left always looks the same.
            usage.plus(billing.headroom)
        };
        Ok(data(StatusCode::OK, &Credits { total_credits: Dollars(credits), total_usage: Dollars(usage) }))
    })
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = (request.query.offset(), request.query.limit());
        request.query.check()?;
        let listed = request.app.store.list_grants(&request.tenant, offset, limit).await;
        let (grants, total) = listed.map_err(internal)?;
        let shown: Vec<Shown<'_>> = grants.iter().map(Shown::from).collect();
        Ok(page(&shown, total))
    })
}

pub fn grant(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let once = once(request.headers(), "POST /credits/grants", &body)?;
        let mut form = Form::read(&body)?;
        let amount = form.value("amount", |reader, raw| {
            // As text too: not every client can write all places of a number.
            let text = match json::kind(raw) {
                Kind::Number => raw.get().into(),
                Kind::String => json::string(raw).unwrap_or_default(),
                _ => return reader.refuse("must be a number, or text that is one"),
            };
            match Money::parse(&text) {
                Ok(Money::ZERO) => reader.refuse("must be greater than 0"),
                Ok(amount) => Some(amount),
                Err(error) => reader.refuse(error.to_string()),
            }
        });
        let amount = form.require("amount", amount);
        let note = form.nullable_text("note", 1..=LONGEST_NOTE).flatten();
        form.finish()?;
        let amount = amount.ok_or_else(Failure::internal)?;
        let (store, tenant) = (&request.app.store, &request.tenant);
        let granted = store.grant_credits_once(tenant, &request.by, amount, note.as_deref(), once.as_ref()).await;
        match granted {
            Ok(Granting::New(grant)) => {
                request.limits_changed().await;
                Ok(data(StatusCode::CREATED, &Shown::from(&grant)))
            }
            Ok(Granting::Before(grant)) => {
                let mut answer = data(StatusCode::CREATED, &Shown::from(&grant));
                answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
                Ok(answer)
            }
            Ok(Granting::Misused) => Err(refused("Idempotency-Key", "was used for another request")),
            Err(StoreError::Busy(_)) => Err(conflict()),
            Err(error) => Err(internal(error)),
        }
    })
}
