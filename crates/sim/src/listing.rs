//! The list of models. Several vendors serve theirs at this path, each in a shape of its own; the members do not
//! collide, so one answer has them all.

use http::Response;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::body::Answer;
use crate::model::DEMO_MODELS;
use crate::openai::CREATED;
use crate::speak::JSON;

pub(crate) fn answer() -> Response<Answer> {
    // OpenAI's members and Anthropic's.
    let data: Vec<Value> = DEMO_MODELS
        .iter()
        .map(|model| {
            json!({"id": model.id, "object": "model", "created": CREATED, "owned_by": "tidegate", "type": "model",
                "display_name": model.name, "created_at": "2023-11-14T22:13:20Z"})
        })
        .collect();
    let cohere: Vec<Value> = DEMO_MODELS
        .iter()
        .map(|model| {
            json!({"name": model.id, "endpoints": ["chat"], "finetuned": false, "context_length": 128_000,
                "tokenizer_url": null, "default_endpoints": [], "features": ["tools"], "is_deprecated": false})
        })
        .collect();
    let (first, last) = (DEMO_MODELS.first().map(|model| model.id), DEMO_MODELS.last().map(|model| model.id));
    let list = json!({"object": "list", "data": data, "has_more": false, "first_id": first, "last_id": last,
        "models": cohere, "next_page_token": null});
    let mut response = Response::new(Answer::whole(list.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
