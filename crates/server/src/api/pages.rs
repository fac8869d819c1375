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
    // Whoever comes by sees this page: which models there are is for those who have a key.
    let brand = &snapshot.settings.brand;
    let simulated = Some(format!("{brand}/sim")).filter(|model| snapshot.catalogue.find(model).is_ok());
    let page = HOME
        .replace("{{brand}}", &escaped(brand))
        .replace("{{url}}", &escaped(&call.app.public_url))
        .replace("{{model}}", &escaped(simulated.as_deref().unwrap_or("author/model")));
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
