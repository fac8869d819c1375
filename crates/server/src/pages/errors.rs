//! What the errors say that arise when nobody can serve a model. Each of them names its place on this page.

use askama::Template;
use http::StatusCode;

use super::page;
use crate::api::account::Answering;
use crate::router::Call;

#[derive(Template)]
#[template(path = "errors.html")]
struct Errors<'a> {
    brand: &'a str,
    codes: &'static [Code],
}

struct Code {
    code: &'static str,
    status: u16,
    error_type: &'static str,
    is_retryable: bool,
    meaning: &'static str,
    advice: &'static str,
}

const fn lasting(
    code: &'static str,
    (status, error_type): (u16, &'static str),
    meaning: &'static str,
    advice: &'static str,
) -> Code {
    Code { code, status, error_type, is_retryable: false, meaning, advice }
}

const fn passing(
    code: &'static str,
    (status, error_type): (u16, &'static str),
    meaning: &'static str,
    advice: &'static str,
) -> Code {
    Code { code, status, error_type, is_retryable: true, meaning, advice }
}

const INVALID: (u16, &str) = (400, "invalid_request");
const ABSENT: (u16, &str) = (404, "not_found");

const CODES: [Code; 11] = [
    lasting("model_not_found", INVALID, "There is no model with this id.", "GET /models lists those that there are."),
    lasting(
        "wrong_endpoint",
        INVALID,
        "The model is of another kind than this operation calls.",
        "The constraint of the error says what the model does not do.",
    ),
    lasting(
        "no_endpoints",
        ABSENT,
        "Nobody is configured who serves the model, or the lists of providers leave nobody over.",
        "Allow one of the providers that the error names, or ask for another model.",
    ),
    lasting(
        "model_deprecated",
        ABSENT,
        "The model is no longer offered.",
        "Ask for a successor; the error names those that are known.",
    ),
    lasting(
        "model_unavailable_upstream",
        ABSENT,
        "No provider that should have the model knows it.",
        "Ask for another model, or let the operator look at the names of the endpoints.",
    ),
    passing(
        "capacity_exhausted",
        (429, "rate_limit_exceeded"),
        "All providers of the model are at their limits.",
        "Try again after the time that the error names.",
    ),
    passing(
        "temporarily_unavailable",
        (503, "provider_overloaded"),
        "All providers of the model failed for reasons that pass.",
        "Try again in a little while.",
    ),
    lasting(
        "region_restricted",
        (403, "permission_denied"),
        "The model is not offered where the request comes from.",
        "Ask for another model.",
    ),
    lasting(
        "privacy_restricted",
        ABSENT,
        "Nobody who serves the model keeps to the data policy that was asked for.",
        "Ask for another model, or for another policy.",
    ),
    lasting(
        "constraint_filtered",
        ABSENT,
        "Nobody who serves the model satisfies what the request, its workspace or a guardrail demands.",
        "The constraint of the error names the demand.",
    ),
    lasting("free_variant_ended", ABSENT, "The model is no longer free.", "Ask for it without :free."),
];

/// `GET /docs/errors`.
pub fn show(call: Call) -> Answering {
    Box::pin(async move { page(StatusCode::OK, &Errors { brand: &call.app.brand(), codes: &CODES }, None) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_place_of_its_own() {
        let html = Errors { brand: "gate", codes: &CODES }.render().unwrap();
        for code in &CODES {
            assert_eq!(html.matches(&format!("id=\"{}\"", code.code)).count(), 1, "{}", code.code);
        }
    }
}
