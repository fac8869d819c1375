//! `GET /activity`: what was asked for and spent on each of the last thirty days, by model and provider.

use http::StatusCode;
use serde::Serialize;
use tidegate_core::{KeyHash, WorkspaceId, window};
use tidegate_store::activity::{Asked, DayOfModel};

use super::account::{Answering, Dollars, Request, data, internal};
use super::form::refused;
use crate::router::Call;

/// Days that are shown; today is not over and not among them.
const DAYS: i64 = 30;

#[derive(Serialize)]
struct Shown<'a> {
    date: String,
    model: &'a str,
    model_permaslug: &'a str,
    endpoint_id: String,
    provider_name: &'a str,
    usage: Dollars,
    byok_usage_inference: Dollars,
    requests: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    reasoning_tokens: u64,
    /// Of the prompt's.
    cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace_id: Option<&'a str>,
}

impl<'a> From<&'a DayOfModel> for Shown<'a> {
    fn from(day: &'a DayOfModel) -> Self {
        Self {
            date: window::day_text(day.day),
            model: &day.model,
            model_permaslug: &day.model,
            endpoint_id: format!("{}:{}", day.provider, day.model),
            provider_name: &day.provider,
            usage: Dollars(day.credit),
            byok_usage_inference: Dollars(day.byok),
            requests: day.requests,
            prompt_tokens: day.prompt_tokens,
            completion_tokens: day.completion_tokens,
            reasoning_tokens: day.reasoning_tokens,
            cached_tokens: day.cached_tokens,
            workspace_id: day.workspace.as_deref(),
        }
    }
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (date, key) = (request.query.text("date"), request.query.text("api_key_hash"));
        let (user, workspace) = (request.query.text("user_id"), request.query.text("workspace_id"));
        let by_workspace = request.query.word("group_by", &[("workspace", ())]).is_some();
        request.query.check()?;
        let yesterday = window::day(request.now()) - 1;
        let days = match date {
            None => (yesterday + 1 - DAYS, yesterday),
            Some(date) => {
                let wrong = || refused("date", "must be YYYY-MM-DD, one of the last 30 completed days in UTC");
                let day = window::parse_day(&date).ok_or_else(wrong)?;
                if !(yesterday + 1 - DAYS..=yesterday).contains(&day) {
                    return Err(wrong());
                }
                (day, day)
            }
        };
        let key = match key {
            Some(key) => {
                Some(KeyHash::parse(&key).ok_or_else(|| refused("api_key_hash", "must be the hash of a key"))?)
            }
            None => None,
        };
        let workspace = match workspace {
            // Also one that is closed: what it spent stays.
            Some(workspace) => {
                let id = WorkspaceId(workspace.into());
                if !request.app.store.had_workspace(&request.tenant, &id).await.map_err(internal)? {
                    return Err(refused("workspace_id", "is not a workspace of this account"));
                }
                Some(id.0.to_string())
            }
            None => None,
        };
        request.settled().await;
        let asked = Asked { days, key, user, workspace, by_workspace, by_key: false };
        let found = request.app.store.activity(&request.tenant, &asked).await.map_err(internal)?;
        let shown: Vec<Shown<'_>> = found.iter().map(Shown::from).collect();
        Ok(data(StatusCode::OK, &shown))
    })
}
