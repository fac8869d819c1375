//! What a person or a tool finds at the root: a page that says how to call this, and the interface as a document.

use std::future::Future;
use std::pin::Pin;

use http::StatusCode;
use http::header::HeaderValue;
use tidegate_gateway::Failure;

use crate::openapi::document;
use crate::router::{Answer, Call, plain};

type Answering = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

const HOME: &str = include_str!("home.html");

pub fn home(call: Call) -> Answering {
    let snapshot = call.app.gateway.snapshot();
    // Everything put in is our own configuration, and plain by its checks; models are shown by id only.
    let models: String = snapshot
        .catalogue
        .models()
        .iter()
        .filter(|model| model.endpoints.iter().any(|endpoint| endpoint.shared))
        .map(|model| format!("<li><code>{}</code> {}</li>", escaped(&model.id), escaped(&model.name)))
        .collect();
    let page = HOME
        .replace("{{brand}}", &escaped(&snapshot.settings.brand))
        .replace("{{url}}", &escaped(&call.app.public_url))
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
        .replace("{{models}}", &models);
    Box::pin(async move {
        let mut answer = plain(StatusCode::OK, "text/html; charset=utf-8", page);
        let policy = HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; frame-ancestors 'none'",
        );
        answer.headers_mut().insert("content-security-policy", policy);
        Ok(answer)
    })
}

pub fn openapi(call: Call) -> Answering {
    let text = document(&call.app.public_url);
    Box::pin(async move { Ok(plain(StatusCode::OK, "application/json", text)) })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
