//! What went wrong, before a protocol puts it in its own shape.

/// An error to answer with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    pub status: u16,
    /// The script's word for it; without one it follows from the status.
    pub kind: Option<String>,
    /// Without one it follows from the status.
    pub message: Option<String>,
    /// The member of the request that is wrong.
    pub param: Option<String>,
    /// The vendor's code for what is wrong with it.
    pub code: Option<&'static str>,
    pub retry_after: Option<String>,
}

impl Failure {
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: Some(message.into()), ..Self::default() }
    }

    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// A request that is wrong at one place.
    pub fn at(param: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), code: Some(code), ..Self::new(400, message) }
    }

    /// The status behind a word of the Messages protocol, which scripts use on every protocol. Another word
    /// is the vendor's own and goes out as it is.
    pub fn class(&self) -> Class<'_> {
        match self.kind.as_deref() {
            None => Class::Status(self.status),
            Some(kind) => match known_status(kind) {
                Some(status) => Class::Status(status),
                None => Class::Word(kind),
            },
        }
    }

    /// The hint in seconds, where it is a number: dates have no place in a body.
    pub fn retry_seconds(&self) -> Option<f64> {
        self.retry_after.as_deref()?.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0)
    }
}

pub(crate) enum Class<'a> {
    Status(u16),
    Word(&'a str),
}

/// The status of an error that a stream reports: what it would have been before the stream.
pub(crate) fn status_of(kind: &str) -> u16 {
    known_status(kind).unwrap_or(500)
}

fn known_status(kind: &str) -> Option<u16> {
    Some(match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "api_error" => 500,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}
