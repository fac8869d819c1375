//! Errors as clients see them: the stable types, and the two envelopes.

use std::fmt::Write as _;

use crate::json::quoted;

macro_rules! error_types {
    ($($name:ident = $word:literal,)*) => {
        /// The stable `error_type` of every surface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorType { $($name,)* }

        impl ErrorType {
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($word => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

error_types! {
    ContextLengthExceeded = "context_length_exceeded",
    MaxTokensExceeded = "max_tokens_exceeded",
    TokenLimitExceeded = "token_limit_exceeded",
    StringTooLong = "string_too_long",
    Authentication = "authentication",
    PermissionDenied = "permission_denied",
    PaymentRequired = "payment_required",
    RateLimitExceeded = "rate_limit_exceeded",
    ProviderOverloaded = "provider_overloaded",
    ProviderUnavailable = "provider_unavailable",
    InvalidRequest = "invalid_request",
    InvalidPrompt = "invalid_prompt",
    NotFound = "not_found",
    PreconditionFailed = "precondition_failed",
    PayloadTooLarge = "payload_too_large",
    Unprocessable = "unprocessable",
    ContentPolicyViolation = "content_policy_violation",
    Refusal = "refusal",
    InvalidImage = "invalid_image",
    ImageTooLarge = "image_too_large",
    ImageTooSmall = "image_too_small",
    UnsupportedImageFormat = "unsupported_image_format",
    ImageNotFound = "image_not_found",
    ImageDownloadFailed = "image_download_failed",
    Server = "server",
    Timeout = "timeout",
    Unmapped = "unmapped",
}

impl ErrorType {
    /// The status of an answer that is an error of this kind, where nothing more is known of it.
    pub fn status(self) -> u16 {
        use ErrorType::*;
        match self {
            Authentication => 401,
            PaymentRequired => 402,
            PermissionDenied => 403,
            NotFound | ImageNotFound => 404,
            PreconditionFailed => 412,
            PayloadTooLarge => 413,
            Unprocessable => 422,
            RateLimitExceeded => 429,
            Server | Unmapped => 500,
            ProviderUnavailable => 502,
            ProviderOverloaded => 503,
            Timeout => 504,
            ContextLengthExceeded
            | MaxTokensExceeded
            | TokenLimitExceeded
            | StringTooLong
            | InvalidRequest
            | InvalidPrompt
            | ContentPolicyViolation
            | Refusal
            | InvalidImage
            | ImageTooLarge
            | ImageTooSmall
            | UnsupportedImageFormat
            | ImageDownloadFailed => 400,
        }
    }

    /// `error.code` of a response that failed.
    pub fn responses_code(self) -> &'static str {
        use ErrorType::*;
        match self {
            ContextLengthExceeded | InvalidRequest => "invalid_prompt",
            RateLimitExceeded => "rate_limit_exceeded",
            ContentPolicyViolation => "image_content_policy_violation",
            InvalidImage => "invalid_image",
            ImageTooLarge => "image_too_large",
            ImageTooSmall => "image_too_small",
            UnsupportedImageFormat => "unsupported_image_media_type",
            ImageNotFound => "image_file_not_found",
            ImageDownloadFailed => "failed_to_download_image",
            _ => "server_error",
        }
    }

    /// Whether something was too long: no failure in the Responses format, but an answer that was cut short.
    pub fn is_length(self) -> bool {
        use ErrorType::*;
        matches!(self, ContextLengthExceeded | MaxTokensExceeded | TokenLimitExceeded | StringTooLong)
    }

    /// `error.type` of the Messages envelope, which Anthropic's clients choose their exception by.
    pub fn messages_type(self) -> &'static str {
        use ErrorType::*;
        match self {
            Authentication => "authentication_error",
            PermissionDenied => "permission_error",
            PaymentRequired => "billing_error",
            RateLimitExceeded => "rate_limit_error",
            ProviderOverloaded => "overloaded_error",
            ProviderUnavailable | Server | Unmapped => "api_error",
            NotFound | ImageNotFound => "not_found_error",
            Timeout => "timeout_error",
            ContextLengthExceeded
            | MaxTokensExceeded
            | TokenLimitExceeded
            | StringTooLong
            | InvalidRequest
            | InvalidPrompt
            | PreconditionFailed
            | PayloadTooLarge
            | Unprocessable
            | ContentPolicyViolation
            | Refusal
            | InvalidImage
            | ImageTooLarge
            | ImageTooSmall
            | UnsupportedImageFormat
            | ImageDownloadFailed => "invalid_request_error",
        }
    }
}

/// A Messages error body. The optional parts are JSON text.
#[derive(Clone, Copy, Debug)]
pub struct MessagesError<'a> {
    pub error_type: ErrorType,
    pub message: &'a str,
    pub availability: Option<&'a str>,
    /// The provider's own `error.details`, kept inside `error`.
    pub details: Option<&'a str>,
    pub request_id: Option<&'a str>,
    pub metadata: Option<&'a str>,
    /// Name and value of the routing metadata, when asked for.
    pub routing: Option<(&'a str, &'a str)>,
}

impl MessagesError<'_> {
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(192 + self.message.len());
        let (kind, name, message) = (self.error_type.messages_type(), self.error_type.as_str(), quoted(self.message));
        let _ = write!(out, r#"{{"type":"error","error":{{"type":"{kind}","message":{message},"error_type":"{name}""#);
        for (member, value) in [("availability", self.availability), ("details", self.details)] {
            if let Some(value) = value {
                let _ = write!(out, r#","{member}":{value}"#);
            }
        }
        let _ = write!(out, r#"}},"request_id":{}"#, self.request_id.map_or_else(|| "null".to_owned(), quoted));
        if let Some(metadata) = self.metadata {
            let _ = write!(out, r#","metadata":{metadata}"#);
        }
        if let Some((member, value)) = self.routing {
            let _ = write!(out, r#","{member}":{value}"#);
        }
        out.push('}');
        out
    }
}

/// The body of every other operation's error: `{"error":{"code","message","metadata"?}}`. `metadata` is JSON text.
pub fn general(code: u16, message: &str, metadata: Option<&str>) -> String {
    let metadata = metadata.map(|metadata| format!(r#","metadata":{metadata}"#)).unwrap_or_default();
    format!(r#"{{"error":{{"code":{code},"message":{}{metadata}}}}}"#, quoted(message))
}

/// The same envelope for operations that call a model: it says of what kind an error is, and why nobody could serve.
#[derive(Clone, Copy, Debug)]
pub struct InferenceError<'a> {
    pub code: u16,
    pub error_type: ErrorType,
    pub message: &'a str,
    /// JSON texts: objects, all of them.
    pub metadata: Option<&'a str>,
    pub availability: Option<&'a str>,
    /// Name and value of the routing metadata, when asked for.
    pub routing: Option<(&'a str, &'a str)>,
}

impl InferenceError<'_> {
    pub fn to_json(&self) -> String {
        let (code, name, message) = (self.code, self.error_type.as_str(), quoted(self.message));
        let mut out = format!(r#"{{"error":{{"code":{code},"message":{message}"#);
        if let Some(availability) = self.availability {
            let _ = write!(out, r#","error_type":"{name}","http_status":{code},"availability":{availability}"#);
        }
        let more = self.metadata.and_then(|text| text.trim().strip_prefix('{')).map(str::trim_start);
        let comma = if more.is_none_or(|more| more.starts_with('}')) { "" } else { "," };
        let _ = write!(out, r#","metadata":{{"error_type":"{name}"{comma}{}}}"#, more.unwrap_or("}"));
        if let Some((member, value)) = self.routing {
            let _ = write!(out, r#","{member}":{value}"#);
        }
        out.push('}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_envelope_has_its_documented_shape() {
        let error = MessagesError {
            error_type: ErrorType::RateLimitExceeded,
            message: "Rate limit exceeded",
            availability: None,
            details: None,
            request_id: Some("gen-01KBS35CG04TFF59TDWH9EDD1R"),
            metadata: None,
            routing: None,
        };
        let expected = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Rate limit exceeded","error_type":"rate_limit_exceeded"},"request_id":"gen-01KBS35CG04TFF59TDWH9EDD1R"}"#;
        assert_eq!(error.to_json(), expected);
        let early = MessagesError { request_id: None, metadata: Some("{}"), ..error };
        assert!(early.to_json().ends_with(r#""request_id":null,"metadata":{}}"#));
    }

    #[test]
    fn calls_of_models_say_more_in_the_general_envelope() {
        let error = InferenceError {
            code: 502,
            error_type: ErrorType::ProviderUnavailable,
            message: "Provider returned error",
            metadata: Some(r#"{"provider_name":"Nebius","provider_code":"upstream_reset"}"#),
            availability: None,
            routing: None,
        };
        assert_eq!(
            error.to_json(),
            r#"{"error":{"code":502,"message":"Provider returned error","metadata":{"error_type":"provider_unavailable","provider_name":"Nebius","provider_code":"upstream_reset"}}}"#
        );
        for nothing in [None, Some("{}"), Some(" { } ")] {
            let bare: serde_json::Value =
                serde_json::from_str(&InferenceError { metadata: nothing, ..error }.to_json()).unwrap();
            assert_eq!(bare["error"]["metadata"], serde_json::json!({"error_type": "provider_unavailable"}));
        }
        let unserved = InferenceError { availability: Some(r#"{"code":"c"}"#), routing: Some(("m", "[]")), ..error };
        let unserved: serde_json::Value = serde_json::from_str(&unserved.to_json()).unwrap();
        assert_eq!(unserved["error"]["error_type"], "provider_unavailable");
        assert_eq!((&unserved["error"]["http_status"], &unserved["m"]), (&502.into(), &serde_json::json!([])));
        assert_eq!(unserved["error"]["availability"]["code"], "c");
    }

    #[test]
    fn the_general_envelope_carries_the_status() {
        assert_eq!(general(404, "Not found", None), r#"{"error":{"code":404,"message":"Not found"}}"#);
        assert_eq!(
            general(500, "a \"b\"", Some(r#"{"x":1}"#)),
            r#"{"error":{"code":500,"message":"a \"b\"","metadata":{"x":1}}}"#
        );
    }
}
