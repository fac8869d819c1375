//! Control over HTTP, for tests that run the server as another process.
//!
//! | Route | |
//! |---|---|
//! | `GET /_sim/stats` | `{"calls", "count_calls", "open", "cancelled"}` |
//! | `GET /_sim/requests` | the last requests: `[{"method", "path", "headers": [[name, value]], "body_base64"}]` |
//! | `DELETE /_sim/requests` | forgets them |
//! | `PUT /_sim/script` | replaces the script and starts its sequence anew |
//! | `POST /_sim/sink` | takes anything and forgets it |
//!
//! A script is a [`Script`] in JSON. All members are optional:
//!
//! ```json
//! {
//!   "behaviour": {"status": {"code": 529, "retry_after": "1"}},
//!   "then": [{"says": "hello"}, "echo"],
//!   "first_byte_ms": 20, "pace_ms": 5, "flush": false,
//!   "record": true, "require_key": "secret", "by_model": true
//! }
//! ```
//!
//! A [`Behaviour`](crate::Behaviour) is its name in snake case, with its argument if it has one:
//! `"echo"`, `"tool_use"`, `{"parallel_tools": 2}`, `{"tokens": {"count": 100, "bytes": 20}}`,
//! `{"stop_reason": "pause_turn"}`, `{"cached": {"read": 9, "write_5m": 0, "write_1h": 0}}`,
//! `{"raw": {"status": 200, "headers": [["content-type", "text/plain"]], "body": "hi"}}`,
//! `{"raw_stream": {"chunks": [": hi\n\n", "base64:AP8="], "end": "close"}}` (or `hang`, `cut`, `reset`),
//! `"hang_before_headers"`, `{"close_mid_stream": {"after": 5}}`,
//! `{"error_in_stream": {"after": 5, "error_type": "overloaded_error", "message": "Overloaded"}}`,
//! `{"refuse_member": "seed"}`, `{"refuse_beta": "files-api-2025-04-14"}`, `"refuse_signature"`,
//! `{"image": {"input_tokens": 3, "output_tokens": 7}}`, `{"quirk": "no-usage"}` (see [`quirk`](crate::quirk)).

use base64::Engine as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use serde::Serialize;

use crate::body::Answer;
use crate::script::Script;
use crate::state::{Seen, State};

#[derive(Serialize)]
struct Stats {
    calls: usize,
    count_calls: usize,
    open: usize,
    cancelled: usize,
}

#[derive(Serialize)]
struct Recorded<'a> {
    method: &'a str,
    path: &'a str,
    headers: Vec<(&'a str, String)>,
    body_base64: String,
}

#[derive(Serialize)]
struct Problem {
    error: String,
}

pub(crate) fn route(state: &State, method: &Method, path: &str, body: &Bytes) -> Response<Answer> {
    match (method, path) {
        (&Method::GET, "stats") => json(
            StatusCode::OK,
            &Stats {
                calls: state.calls(),
                count_calls: state.count_calls(),
                open: state.open(),
                cancelled: state.cancelled(),
            },
        ),
        (&Method::GET, "requests") => {
            let seen = state.seen();
            json(StatusCode::OK, &seen.iter().map(recorded).collect::<Vec<_>>())
        }
        (&Method::DELETE, "requests") => {
            state.seen().clear();
            empty()
        }
        (&Method::POST, "sink") => empty(),
        (&Method::PUT, "script") => match serde_json::from_slice::<Script>(body) {
            Ok(script) => {
                state.set(script);
                empty()
            }
            Err(error) => problem(StatusCode::BAD_REQUEST, error.to_string()),
        },
        _ => problem(StatusCode::NOT_FOUND, format!("there is no {method} /_sim/{path}")),
    }
}

fn recorded(seen: &Seen) -> Recorded<'_> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Recorded {
        method: seen.method.as_str(),
        path: &seen.path,
        headers: seen.headers.iter().map(|(name, value)| (name.as_str(), text(value))).collect(),
        body_base64: base64::engine::general_purpose::STANDARD.encode(&seen.body),
    }
}

fn problem(status: StatusCode, error: String) -> Response<Answer> {
    json(status, &Problem { error })
}

fn empty() -> Response<Answer> {
    let mut response = Response::new(Answer::whole(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Answer> {
    let body = serde_json::to_vec(value).expect("strings and numbers always serialize");
    let mut response = Response::new(Answer::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
