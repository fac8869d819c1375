use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(0);

fn class_of(status: u16, body: &str) -> Class {
    classify(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes(), NOW).class
}

#[test]
fn p67_reasoning_that_cannot_be_opened_is_told_by_its_code() {
    let body = r#"{"error":{"message":"The encrypted content could not be verified.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#;
    let fault = classify(StatusCode::BAD_REQUEST, &HeaderMap::new(), body.as_bytes(), NOW);
    assert_eq!((fault.class, fault.code.as_deref()), (Class::InvalidRequest, Some("invalid_encrypted_content")));
}

#[test]
fn p82_an_error_in_an_answer_is_classed_by_its_own_number() {
    let class = |error: &str| {
        let fault = classify_event(Some(&RawValue::from_string(error.to_owned()).unwrap()), NOW);
        (fault.status, fault.class)
    };
    assert_eq!(class(r#"{"code":429,"message":"slow down"}"#), (429, Class::RateLimit));
    assert_eq!(class(r#"{"code":"503","type":"api_error","message":"x"}"#), (503, Class::Overloaded));
    assert_eq!(class(r#"{"code":400,"message":"no such thing"}"#), (400, Class::InvalidRequest));
    assert_eq!(class(r#"{"code":7,"type":"overloaded_error","message":"x"}"#), (529, Class::Overloaded));
    assert_eq!(class(r#"{"type":"api_error","message":"x"}"#), (500, Class::Server));
}

#[test]
fn an_upstream_says_whether_to_come_back() {
    let again = |value: &'static str| {
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static("x-should-retry"), value.parse().unwrap())]);
        classify(StatusCode::BAD_REQUEST, &headers, b"{}", NOW).again
    };
    assert_eq!((again("true"), again("false"), again("perhaps")), (Some(true), Some(false), None));
}

#[test]
fn codes_of_a_failed_response_have_their_classes() {
    let class = |code: &str| {
        let error = RawValue::from_string(format!(r#"{{"code":"{code}","message":"no"}}"#)).unwrap();
        classify_error(&error, NOW).class
    };
    assert_eq!(class("vector_store_timeout"), Class::Server);
    assert_eq!(class("bio_policy"), Class::ContentFilter);
    assert_eq!(class("image_content_policy_violation"), Class::ContentFilter);
    assert_eq!(class("invalid_base64_image"), Class::InvalidRequest);
}

#[test]
fn statuses_and_bodies_are_told_apart() {
    let error =
        |kind: &str, message: &str| format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#);
    let cases = [
        (400, error("invalid_request_error", "messages: roles must alternate"), Class::InvalidRequest),
        (400, error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), Class::ContextLength),
        (400, error("exceed_context_size_error", "the request exceeds"), Class::ContextLength),
        (400, error("invalid_request_error", "Your credit balance is too low"), Class::Billing),
        (
            400,
            error("invalid_request_error", "litellm.BadRequestError: AnthropicException - Your credit balance is too low"),
            Class::Billing,
        ),
        (400, error("invalid_request_error", "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."), Class::Billing),
        (400, r#"{"error":{"code":"tool_use_failed","type":"invalid_request_error","message":"Failed to call a function.","failed_generation":"<function"}}"#.to_owned(), Class::ToolGeneration),
        (400, r#"{"error":{"code":"content_filter","message":"x"}}"#.to_owned(), Class::ContentFilter),
        (400, r#"{"error":{"code":"string_above_max_length","message":"maximum context length"}}"#.to_owned(), Class::InvalidRequest),
        (401, error("authentication_error", "invalid x-api-key"), Class::Credential),
        (402, String::new(), Class::Billing),
        (403, String::new(), Class::Credential),
        (404, error("not_found_error", "model: x"), Class::NotFound),
        (408, String::new(), Class::Timeout),
        (409, String::new(), Class::Server),
        (413, error("request_too_large", "Request exceeds the maximum size"), Class::TooLarge),
        (413, r#"{"error":{"code":"rate_limit_exceeded","message":"tokens per minute"}}"#.to_owned(), Class::RateLimit),
        (418, String::new(), Class::Unmapped),
        (422, String::new(), Class::InvalidRequest),
        (429, error("rate_limit_error", "slow down"), Class::RateLimit),
        (429, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#.to_owned(), Class::Billing),
        (429, r#"{"error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}"#.to_owned(), Class::Billing),
        // Words that a caller has planted are about the caller's own call.
        (400, error("invalid_request_error", "messages.0.content.0.text.x credit balance is too low: Extra inputs are not permitted"), Class::InvalidRequest),
        (400, error("invalid_request_error", "Tool 'You have reached your specified API usage limits': bad schema"), Class::InvalidRequest),
        (400, r#"{"error":{"type":"invalid_request_error","message":"x","details":{"field":"enforced_spend_limit_reached"}}}"#.to_owned(), Class::InvalidRequest),
        (400, r#"{"error":{"status":"INVALID_ARGUMENT","message":"x","details":[{"fieldViolations":[{"field":"API_KEY_INVALID"}]}]}}"#.to_owned(), Class::InvalidRequest),
        (500, "<html>oops</html>".to_owned(), Class::Server),
        (502, String::new(), Class::Server),
        (503, String::new(), Class::Overloaded),
        (504, String::new(), Class::Timeout),
        (524, String::new(), Class::Timeout),
        (529, error("overloaded_error", "Overloaded"), Class::Overloaded),
    ];
    for (status, body, expected) in cases {
        assert_eq!(class_of(status, &body), expected, "{status} {body}");
    }
}

#[test]
fn p79_every_vendor_has_its_own_words_for_a_prompt_that_is_too_long() {
    for (status, words) in [
        (400, "Invalid request: Your request exceeded model token limit: 262144"),
        (422, "Input validation error: the prompt (140000 tokens) is longer than the model's context length (131072)"),
        (400, "invalid params, context window exceeds limit (2013)"),
        (400, "The number of tokens to keep from the initial prompt is greater than the context length."),
        (400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]"),
        (400, "prompt too long; exceeded max context length by 512 tokens"),
    ] {
        let body = format!(r#"{{"error":{{"message":"{words}","type":"invalid_request_error"}}}}"#);
        assert_eq!(class_of(status, &body), Class::ContextLength, "{words}");
    }
}

#[test]
fn not_every_403_is_about_the_key() {
    let unsafe_words = r#"{"code":"The caller does not have permission to execute the specified operation","error":"Content violates usage guidelines. Team: t, API key ID: k, Model: m, Failed check: SAFETY_CHECK_TYPE_BIO"}"#;
    assert_eq!(class_of(403, unsafe_words), Class::ContentFilter);
    let page = "\n<!DOCTYPE html><html><title>Attention Required! | Cloudflare</title></html>";
    assert_eq!(class_of(403, page), Class::Server);
    let refused = r#"{"error":{"message":"You do not have access to this model","type":"permission_error"}}"#;
    assert_eq!(class_of(403, refused), Class::Credential);
}

#[test]
fn the_providers_words_and_details_are_kept_but_no_secret() {
    let body = br#"{"error":{"type":"invalid_request_error","message":"key sk-ant-REDACTED at https://10.0.0.7:8000/x is bad","details":{"error_code":"x"}}}"#;
    let fault = classify(StatusCode::BAD_REQUEST, &HeaderMap::new(), body, NOW);
    assert_eq!(fault.message.as_deref(), Some("key [removed] at [removed] is bad"));
    assert_eq!(fault.details.as_deref(), Some(r#"{"error_code":"x"}"#));
}

#[test]
fn what_begins_like_a_key_is_taken_out() {
    for start in KEY_STARTS {
        let key = format!("{start}0123456789abcdef");
        assert_eq!(cleaned(&format!("key={key}, bad")), "[removed] bad", "{key}");
    }
    assert_eq!(cleaned("of AKIAIOSFODNN7EXAMPLE."), "of [removed]");
    assert_eq!(cleaned("in ASIA and ASIA-PACIFIC-SOUTH-1"), "in ASIA and ASIA-PACIFIC-SOUTH-1");
}

#[test]
fn what_says_where_the_mistake_is_stays() {
    // As Anthropic, OpenAI and Bedrock write it.
    for words in [
        "messages.0.content.0.text.cache_control.ttl: Extra inputs are not permitted",
        "messages.12.content.0.tool_result.content.0.text.text: text content blocks must be non-empty",
        "tools.12.custom.input_schema.properties.range.anyOf.0.items: JSON schema is invalid",
        "Invalid 'input[3].name': unknown tool 'mcp__github_enterprise__create_pull_request_review_comment'.",
        "The provided model identifier us.anthropic.claude-sonnet-4-5-20250929-v1:0 is invalid.",
        "model: accounts/fireworks/models/llama4-maverick-instruct-basic-70b",
        "unknown value of generationConfig.responseJsonSchema.additionalProperties",
    ] {
        assert_eq!(cleaned(words), words);
    }
}

proptest! {
    // Bytes that are made simpler are no longer drawn at random.
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..ProptestConfig::default() })]

    /// Keys, tokens and hashes as they are made of random bytes, alone and between words.
    #[test]
    fn what_was_drawn_at_random_is_taken_out(bytes in any::<[u8; 32]>(), more in any::<[u8; 32]>()) {
        let hex = |size: usize| {
            let part = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            bytes.chunks(size).map(part).collect::<Vec<_>>().join("-")
        };
        let head = r#"{"alg":"HS256","typ":"JWT"}"#;
        let jwt = [head.as_bytes(), &bytes, &more].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let serial = |byte: &u8| char::from(b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789"[usize::from(byte % 32)]);
        let serial = [bytes, more].concat().iter().map(serial).collect::<String>();
        let encoded = [URL_SAFE_NO_PAD.encode(bytes), STANDARD.encode(bytes)];
        for secret in encoded.into_iter().chain([hex(32), hex(32).to_uppercase(), hex(4), hex(8), jwt, serial]) {
            let texts = [format!("token={secret}"), format!("'{secret}',"), format!("tenant_token.{secret}")];
            for text in texts.iter().chain([&secret]) {
                prop_assert_eq!(cleaned(&format!("no {text} here")), "no [removed] here");
            }
        }
    }
}

#[test]
fn details_and_codes_carry_no_secret_either() {
    let fault = |error: &str| {
        classify(StatusCode::UNAUTHORIZED, &HeaderMap::new(), format!(r#"{{"error":{error}}}"#).as_bytes(), NOW)
    };
    for details in [r#"{"key":"sk-ant-upstreamsecret00"}"#, r#"{"host":"http://10.0.0.7:8000"}"#] {
        assert_eq!(fault(&format!(r#"{{"message":"no","details":{details}}}"#)).details, None, "{details}");
    }
    assert_eq!(fault(r#"{"message":"no","code":"sk-ant-upstreamsecret00"}"#).code, None);
    assert_eq!(fault(r#"{"message":"no","code":"see http://x"}"#).code, None);
    assert_eq!(
        fault("{\"message\":\"no\",\"details\":{\n \"error_code\": \"x\"\n}}").details.as_deref(),
        Some(r#"{  "error_code": "x" }"#)
    );
}

#[test]
fn other_shapes_of_bodies_are_read() {
    for body in [
        r#"{"error":"plain words"}"#,
        r#"{"message":"plain words"}"#,
        r#"{"detail":"plain words"}"#,
        r#"{"Message":"plain words"}"#,
        r#"{"msg":"plain words"}"#,
        r#"{"error":{"message":""},"message":"plain words"}"#,
        r#"{"success":false,"errors":[{"message":"plain words","code":5006},{"message":"more"}]}"#,
        r#"{"errors":["plain words"]}"#,
        r#""plain words""#,
        " plain words\n",
    ] {
        let fault = classify(StatusCode::BAD_REQUEST, &HeaderMap::new(), body.as_bytes(), NOW);
        assert_eq!(fault.message.as_deref(), Some("plain words"), "{body}");
    }
    for body in [
        "[1,2",
        r#"{"error":{"message":""}}"#,
        r#"{"error":{"mess"#,
        "\"",
        "  ",
        "",
        "<h1>plain words</h1>",
        "\u{0}\u{fffd}",
    ] {
        let fault = classify(StatusCode::BAD_REQUEST, &HeaderMap::new(), body.as_bytes(), NOW);
        assert_eq!(fault.class, Class::InvalidRequest, "{body}");
        assert_eq!(fault.message.filter(|words| words.contains("plain") || words.trim().is_empty()), None, "{body}");
    }
    let prompt = "prompt is too long: 210000 tokens > 200000 maximum";
    assert_eq!(class_of(422, prompt), Class::ContextLength, "plain words are understood like others");
}

#[test]
fn bodies_of_google_amazon_and_others_are_told_apart() {
    let cases = [
        (
            400,
            r#"{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"@type":"t","reason":"API_KEY_INVALID"}]}}"#,
            Class::Credential,
        ),
        (400, r#"{"error":{"code":400,"message":"Unknown name","status":"INVALID_ARGUMENT"}}"#, Class::InvalidRequest),
        (
            400,
            r#"[{"error":{"code":400,"message":"The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
            Class::ContextLength,
        ),
        (429, r#"[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}]"#, Class::RateLimit),
        (503, r#"{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}"#, Class::Overloaded),
        (403, r#"{"error":{"code":403,"message":"x","status":"PERMISSION_DENIED"}}"#, Class::Credential),
        (
            400,
            r#"{"message":"Input is too long for requested model.","__type":"ValidationException"}"#,
            Class::ContextLength,
        ),
        (400, r#"{"message":"x","__type":"com.amazon#ServiceQuotaExceededException"}"#, Class::Billing),
        (400, r#"{"Message":"x","__type":"UnrecognizedClientException"}"#, Class::Credential),
        (424, r#"{"message":"x","__type":"ModelErrorException"}"#, Class::Server),
        (429, r#"{"message":"x","__type":"ModelNotReadyException:http://x/"}"#, Class::RateLimit),
        (408, r#"{"message":"x","__type":"ModelTimeoutException"}"#, Class::Timeout),
        (498, r#"{"id":"a","message":"invalid api token"}"#, Class::Credential),
        (501, r#"{"message":"not implemented"}"#, Class::Server),
        (
            422,
            r#"{"detail":[{"loc":["body","max_tokens"],"msg":"too small","type":"value_error"}]}"#,
            Class::InvalidRequest,
        ),
        (
            400,
            r#"{"error":{"code":null,"message":"filtered","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
            Class::ContentFilter,
        ),
        (
            400,
            r#"{"error":{"code":"invalid_prompt","message":"x","type":"invalid_request_error"}}"#,
            Class::ContentFilter,
        ),
        (400, r#"{"error":{"code":"bio_policy","message":"x"}}"#, Class::ContentFilter),
        (
            403,
            r#"{"error":{"code":403,"message":"Input was flagged by moderation","metadata":{"error_type":"moderation"}}}"#,
            Class::ContentFilter,
        ),
        (422, r#"{"error":"`inputs` tokens + `max_new_tokens` must be <= 4096"}"#, Class::ContextLength),
    ];
    for (status, body, expected) in cases {
        assert_eq!(class_of(status, body), expected, "{status} {body}");
    }
    let listed = r#"{"detail":[{"loc":["body","max_tokens",0],"msg":"too small","type":"v"},{"msg":"odd"},7]}"#;
    let fault = classify(StatusCode::UNPROCESSABLE_ENTITY, &HeaderMap::new(), listed.as_bytes(), NOW);
    assert_eq!(fault.message.as_deref(), Some("body.max_tokens.0: too small; odd"));
}

#[test]
fn amazons_header_names_the_error() {
    let cases = [
        (400, "ValidationException", Class::InvalidRequest),
        (400, "ServiceQuotaExceededException:http://internal.amazon.com/coral/", Class::Billing),
        (403, "AccessDeniedException", Class::Credential),
        (403, "ExpiredTokenException", Class::Credential),
        (403, "InvalidSignatureException", Class::Credential),
        (404, "ResourceNotFoundException", Class::NotFound),
        (424, "ModelStreamErrorException", Class::Server),
        (429, "ThrottlingException", Class::RateLimit),
        (500, "InternalServerException", Class::Server),
        (503, "ServiceUnavailableException", Class::Overloaded),
    ];
    for (status, kind, expected) in cases {
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-amzn-errortype"),
            http::HeaderValue::from_static(kind),
        )]);
        let fault = classify(StatusCode::from_u16(status).unwrap(), &headers, br#"{"message":"no"}"#, NOW);
        assert_eq!(fault.class, expected, "{kind}");
        assert_eq!(fault.code.as_deref(), kind.split(':').next());
    }
}

#[test]
fn exceptions_of_a_stream_are_told_apart_by_name() {
    let cases = [
        ("throttlingException", r#"{"message":"x"}"#, Class::RateLimit),
        ("ThrottlingException", "", Class::RateLimit),
        ("validationException", r#"{"message":"bad"}"#, Class::InvalidRequest),
        ("validationException", r#"{"message":"Input is too long for requested model"}"#, Class::ContextLength),
        ("serviceUnavailableException", r#"{"message":null}"#, Class::Overloaded),
        ("internalServerException", "not json", Class::Server),
        ("modelTimeoutException", "{}", Class::Timeout),
        ("modelStreamErrorException", r#"{"message":"x"}"#, Class::Server),
        (
            "modelStreamErrorException",
            r#"{"message":"x","originalStatusCode":429,"originalMessage":"slow"}"#,
            Class::RateLimit,
        ),
        (
            "modelStreamErrorException",
            r#"{"originalStatusCode":400,"originalMessage":"prompt is too long"}"#,
            Class::ContextLength,
        ),
        ("accessDeniedException", "{}", Class::Credential),
        ("InternalError", "{}", Class::Server),
        ("neverHeardOf", "{}", Class::Server),
    ];
    for (kind, payload, expected) in cases {
        assert_eq!(classify_exception(kind, payload.as_bytes()).class, expected, "{kind} {payload}");
    }
}

#[test]
fn googles_delay_is_a_hint() {
    let body = br#"[{"error":{"code":429,"message":"try again in 3s","status":"RESOURCE_EXHAUSTED","details":[{"@type":"a"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"17s"}]}}]"#;
    let fault = classify(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new(), body, NOW);
    assert_eq!(fault.retry_after, Some(Duration::from_secs(17)));
    let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, http::HeaderValue::from_static("5"))]);
    let fault = classify(StatusCode::TOO_MANY_REQUESTS, &headers, body, NOW);
    assert_eq!(fault.retry_after, Some(Duration::from_secs(5)), "a header comes first");
}

#[test]
fn an_error_event_is_classified_by_its_type() {
    let error: Box<RawValue> = serde_json::from_str(r#"{"type":"overloaded_error","message":"Overloaded"}"#).unwrap();
    let fault = classify_event(Some(&error), NOW);
    assert_eq!((fault.class, fault.status), (Class::Overloaded, 529));
    assert_eq!(classify_event(None, NOW).class, Class::Server);
}
