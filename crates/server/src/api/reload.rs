//! `POST /reload`: reads the configuration file anew.

use http::StatusCode;
use serde::Serialize;
use tidegate_gateway::Failure;

use super::account::{Answering, Request, data};
use crate::router::Call;

#[derive(Serialize)]
struct Shown {
    /// Settings that changed and are only read at a start.
    needs_restart: Vec<String>,
}

pub fn reload(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        match request.app.reloads.ask(request.by).await {
            Some(Ok(needs_restart)) => Ok(data(StatusCode::OK, &Shown { needs_restart })),
            Some(Err(mistakes)) => Err(Failure::invalid(format!("The old configuration stays: {mistakes}"))),
            None => Err(Failure::unavailable()),
        }
    })
}
