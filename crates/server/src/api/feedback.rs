//! `POST /generation/feedback`: what people say about an answer. It is kept with the record and sent nowhere.

use http::StatusCode;
use serde_json::json;
use tidegate_gateway::Failure;
use tidegate_observe::metrics::Category;
use tidegate_store::StoreError;
use tidegate_store::feedback::Feedback;

use super::account::{Answering, Request, data, internal, not_found};
use super::form::Form;
use super::generation::arrived;
use crate::router::Call;

const LONGEST_ID: usize = 256;
const LONGEST_COMMENT: usize = 1_000;

pub const CATEGORIES: [&str; 7] =
    ["latency", "incoherence", "incorrect_response", "formatting", "billing", "api_error", "other"];

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let id = form.text("generation_id", 1..=LONGEST_ID);
        let id = form.require("generation_id", id);
        let category = form.word("category", &CATEGORIES.map(|category| (category, category)));
        let category = form.require("category", category);
        let comment = form.text("comment", 0..=LONGEST_COMMENT);
        form.finish()?;
        let (Some(id), Some(category)) = (id, category) else { return Err(Failure::internal()) };
        let found = arrived(&request, &id).await?.ok_or_else(not_found)?;
        let comment = comment.filter(|comment| !comment.is_empty());
        let feedback = Feedback { category: category.to_owned(), comment, by: request.key.hash, at: request.now() };
        let kept = request.app.store.keep_feedback(&request.tenant, &request.by, &found.id, &feedback).await;
        kept.map_err(|error| match error {
            StoreError::Missing => not_found(),
            error => internal(error),
        })?;
        request.app.gateway.metrics.flow.feedback.get_or_create(&Category { category }).inc();
        Ok(data(StatusCode::OK, &json!({"success": true})))
    })
}
