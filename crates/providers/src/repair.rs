//! When an upstream refuses a call for a reason that another call need not give it: what to leave out and try again.
//! Only what says how to answer is ever left out, never what is said.

mod named;

use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind};

use self::named::Error;
pub(crate) use self::named::behind_litellm;

/// Something that an upstream does not know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refused {
    /// A value of `anthropic-beta`.
    Beta(String),
    /// A member of the body; inner ones with a dot.
    Member(String),
}

impl Refused {
    pub fn name(&self) -> &str {
        match self {
            Self::Beta(name) | Self::Member(name) => name,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Beta(_) => "beta",
            Self::Member(_) => "member",
        }
    }

    pub fn read(kind: &str, name: &str) -> Option<Self> {
        match kind {
            "beta" => Some(Self::Beta(name.to_owned())),
            "member" => Some(Self::Member(name.to_owned())),
            _ => None,
        }
    }
}

/// What may help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Leave this out: if that helps, from now on.
    Without(Refused),
    /// Leave this out, this time: it is refused beside something else only.
    WithoutNow(Refused),
    /// Leave out reasoning of earlier turns, this time.
    WithoutReasoning,
    /// Do not think, this time.
    WithoutThinking,
    /// Put words that follow results into the last of them, this time.
    WordsInResults,
    /// The same once more: what it was authorised with has been renewed.
    Again,
}

impl Repair {
    /// What is left out, for however long.
    pub fn left_out(&self) -> Option<&Refused> {
        match self {
            Self::Without(refused) | Self::WithoutNow(refused) => Some(refused),
            Self::WithoutReasoning | Self::WithoutThinking | Self::WordsInResults | Self::Again => None,
        }
    }
}

/// Members that are what was said, without which there is no call or another answer than the one that was asked for, or
/// which keep what was said from being stored.
const CONTENT: [&str; 23] = [
    "store",
    "generationConfig",
    "inferenceConfig",
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "input",
    "instructions",
    "contents",
    "systemInstruction",
    "toolConfig",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "stream",
    "response_format",
    "text",
    "documents",
    "thread",
    "container",
    "mcp_servers",
];

/// Members that hold options, and may hold the form of the answer beside them (Messages, Converse): without that the client
/// reads something else than it can parse.
const FORMS: [(&str, &str); 2] = [("output_config", "format"), ("outputConfig", "textFormat")];

/// The member that asks for a stream.
pub const STREAM: &str = "stream";

/// Whether a repair is to do without a stream.
pub fn is_of_stream(repair: &Repair) -> bool {
    matches!(repair, Repair::Without(Refused::Member(name)) if name == STREAM)
}

/// Who may call but not for a stream (Bedrock has a permission for each), whose organisation must be verified for it
/// (OpenAI), or whose model has none, mostly with tools.
fn is_about_streaming(status: u16, words: &str, error: &Error) -> bool {
    if status == 403 {
        return words.contains("invokemodelwithresponsestream");
    }
    // What is named is what it is about, whatever else is said.
    if let Some(param) = &error.param {
        let codes = ["unsupported_value", "unsupported_parameter", "unknown_parameter"];
        return param == STREAM && error.code.as_deref().is_some_and(|code| codes.contains(&code));
    }
    let says = [
        "must be verified to stream",
        "not support streaming",
        "n't support streaming",
        "not support tool use in streaming mode",
        "n't support tool use in streaming mode",
        "not supported for streaming",
        "streaming is not supported",
        "streaming is not available",
    ];
    let message = error.message.to_lowercase();
    // Nor is it about streams where only the options of one are refused.
    !message.contains("stream_options") && says.iter().any(|said| message.contains(said))
}

/// What a refusal (400 or 422) asks for, all of it; nothing when nothing can be left out.
pub fn repairs(status: u16, body: &[u8]) -> Vec<Repair> {
    if !matches!(status, 400 | 403 | 422) {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(body);
    let words = text.to_lowercase();
    if words.contains(STREAM) && is_about_streaming(status, &words, &Error::read(body)) {
        return vec![Repair::Without(Refused::Member(STREAM.to_owned()))];
    }
    if status == 403 {
        return Vec::new();
    }
    if is_about_signatures(&words) {
        return vec![Repair::WithoutReasoning];
    }
    if words.contains("must start with a thinking block") {
        return vec![Repair::WithoutThinking];
    }
    // Mistral's words for a user's turn behind results, of now and of before.
    let is_out_of_turn = words.contains("unexpected role 'user' after role 'tool'");
    if is_out_of_turn || words.contains("expected last role user or tool") {
        return vec![Repair::WordsInResults];
    }
    let error = Error::read(body);
    let betas = error.betas().into_iter().map(Refused::Beta);
    let refused: Vec<Refused> = betas.chain(error.members().into_iter().map(Refused::Member)).collect();
    // A call that still has one of them would be refused like this one.
    if refused.iter().any(is_content) {
        return Vec::new();
    }
    refused.into_iter().map(|refused| leaving_out(refused, &error)).collect()
}

fn leaving_out(refused: Refused, error: &Error) -> Repair {
    if error.is_conditional(refused.name()) { Repair::WithoutNow(refused) } else { Repair::Without(refused) }
}

/// Whether this is what was said.
fn is_content(refused: &Refused) -> bool {
    let Refused::Member(name) = refused else { return false };
    let (first, is_inner) = name.split_once('.').map_or((name.as_str(), false), |(first, _)| (first, true));
    // Inside of the options that every call has, single ones may go; what was said stays whole.
    let is_options = is_inner && ["generationConfig", "inferenceConfig"].contains(&first);
    let is_form = FORMS.iter().any(|form| name.split_once('.') == Some(*form));
    (CONTENT.contains(&first) && !is_options) || is_form
}

/// Whether a member is needed for what it holds, though others of its name are not.
pub(crate) fn is_needed(name: &str, value: &RawValue) -> bool {
    let Some((_, form)) = FORMS.iter().find(|(outer, _)| *outer == name) else { return false };
    let holds = |inner: json::Members<'_>| inner.get(form).is_some_and(|form| json::kind(form) != Kind::Null);
    json::Members::of(value).is_some_and(holds)
}

/// What may be done about the refusal of an option that we have added ourselves: the call goes without it. It is remembered
/// only where the upstream has a place for its name; words may be the caller's.
pub fn of_ours(name: &str, status: u16, body: &[u8]) -> Option<Repair> {
    if !matches!(status, 400 | 422) || !String::from_utf8_lossy(body).contains(name) {
        return None;
    }
    let refused = Refused::Member(name.to_owned());
    let is_named = Error::read(body).param.as_deref() == Some(name);
    Some(if is_named { Repair::Without(refused) } else { Repair::WithoutNow(refused) })
}

/// The options that a refused call for pictures or embeddings should do without. What it is about is none.
pub fn options(status: u16, body: &[u8]) -> Vec<Repair> {
    // Vectors of another size are others.
    const NEEDED: [&str; 10] = [
        "model",
        "prompt",
        "n",
        "contents",
        "generationConfig",
        "input",
        "texts",
        "requests",
        "dimensions",
        "output_dimension",
    ];
    if !matches!(status, 400 | 422) {
        return Vec::new();
    }
    let error = Error::read(body);
    let members = error.members();
    if members.iter().any(|member| NEEDED.contains(&member.as_str())) {
        return Vec::new();
    }
    members.into_iter().map(|member| leaving_out(Refused::Member(member), &error)).collect()
}

/// The reasoning that was sent back is not, or no longer, the upstream's own.
fn is_about_signatures(words: &str) -> bool {
    let damaged = ["invalid", "corrupted"].iter().any(|bad| {
        words.match_indices(bad).any(|(place, _)| {
            let rest = &words[place + bad.len()..];
            let near: String = rest.chars().take(40).collect();
            near.find("signature").is_some_and(|at| at <= 30)
        })
    });
    damaged
        || words.contains("invalid_encrypted_content")
        || words.contains("encrypted content could not be verified")
        || (words.contains("could not be verified") && words.contains("thinking"))
        || words.contains("missing a thought_signature")
        || words.contains("invalid `data` in `redacted_thinking`")
}

/// The body without a member; inner ones are named with a dot. `None` when it is not there, or needed as it is.
pub fn without(body: &[u8], name: &str) -> Option<Vec<u8>> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let members: json::Members<'_> = serde_json::from_slice(body).ok()?;
    members.get(first).filter(|value| rest.is_some() || !is_needed(first, value))?;
    let mut out = Vec::with_capacity(body.len());
    out.push(b'{');
    for (key, value) in &members.0 {
        let kept: std::borrow::Cow<'_, [u8]> = match (key == first, rest) {
            (true, None) => continue,
            (true, Some(rest)) => without(value.get().as_bytes(), rest)?.into(),
            (false, _) => value.get().as_bytes().into(),
        };
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(json::quoted(key).as_bytes());
        out.push(b':');
        out.extend_from_slice(&kept);
    }
    out.push(b'}');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Option<Repair> {
        repairs(400, body.as_bytes()).pop()
    }

    #[test]
    fn a_stream_is_left_out_only_where_that_is_what_is_refused() {
        let stream = Some(Repair::Without(Refused::Member("stream".to_owned())));
        for body in [
            r#"{"error":{"message":"Your organization must be verified to stream this model.","param":"stream","code":"unsupported_value"}}"#,
            r#"{"message":"This model doesn't support tool use in streaming mode."}"#,
            r#"{"error":{"message":"o9-pro does not support streaming."}}"#,
        ] {
            assert_eq!(of(body), stream, "{body}");
        }
        for body in [
            r#"{"error":{"message":"This model does not support non-streaming mode; set stream to true."}}"#,
            r#"{"error":{"message":"Models of this family only support streaming requests."}}"#,
            r#"{"error":{"message":"Unsupported parameter: 'temperature'. Input: you do not support streaming","param":"temperature","code":"unsupported_parameter"}}"#,
            r#"{"error":{"message":"'stream_options' is not supported with this model: it does not support streaming usage"}}"#,
            r#"{"error":{"message":"stream must be a boolean","param":"stream","code":"invalid_type"}}"#,
        ] {
            assert_ne!(of(body), stream, "{body}");
        }
        let denied =
            br#"{"message":"not authorized to perform: bedrock:InvokeModelWithResponseStream on resource: x"}"#;
        assert_eq!(repairs(403, denied).pop(), stream);
        assert_eq!(repairs(403, br#"{"error":{"message":"it does not support streaming"}}"#), []);
    }

    fn member(name: &str) -> Option<Repair> {
        Some(Repair::Without(Refused::Member(name.to_owned())))
    }

    #[test]
    fn a_picture_is_drawn_without_an_option_and_never_without_what_is_to_be_drawn() {
        let refused = |name: &str| {
            let body = format!(
                r#"{{"error":{{"message":"Unknown parameter: '{name}'.","param":"{name}","code":"unknown_parameter"}}}}"#
            );
            options(400, body.as_bytes()).pop()
        };
        assert_eq!(refused("response_format"), member("response_format"));
        assert_eq!((refused("prompt"), refused("n"), options(500, b"{}").pop()), (None, None, None));
    }

    #[test]
    fn members_that_an_upstream_does_not_know_are_named_in_many_ways() {
        let cases = [
            (
                r#"{"error":{"message":"Unsupported parameter: 'reasoning_effort' is not supported with this model.","param":"reasoning_effort","code":"unsupported_parameter"}}"#,
                "reasoning_effort",
            ),
            (
                r#"{"error":{"message":"Unknown parameter: 'prompt_cache_key'.","type":"invalid_request_error","param":"prompt_cache_key","code":"unknown_parameter"}}"#,
                "prompt_cache_key",
            ),
            (
                r#"{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error","param":null,"code":null}}"#,
                "stream_options",
            ),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"speed: Extra inputs are not permitted"}}"#,
                "speed",
            ),
            (
                r#"{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"thinkingConfig\" at 'generation_config': Cannot find field.","status":"INVALID_ARGUMENT"}}"#,
                "generationConfig.thinkingConfig",
            ),
            (
                r#"[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"serviceTier\": Cannot find field.","status":"INVALID_ARGUMENT"}}]"#,
                "serviceTier",
            ),
            (
                r#"{"detail":[{"type":"extra_forbidden","loc":["body","parallel_tool_calls"],"msg":"Extra inputs are not permitted"}]}"#,
                "parallel_tool_calls",
            ),
            (r#"{"error":{"message":"Encrypted content is not supported with this model."}}"#, "include"),
            (
                r#"{"error":{"message":"Unsupported parameter: 'reasoning.summary' is not supported with this model.","param":"reasoning.summary","code":"unsupported_parameter"}}"#,
                "reasoning.summary",
            ),
            (
                r#"{"error":{"message":"Your organization must be verified to generate reasoning summaries. Please go to settings and click on Verify Organization.","type":"invalid_request_error","param":"reasoning.summary","code":"unsupported_value"}}"#,
                "reasoning.summary",
            ),
            (
                r#"{"error":{"message":"Your organization must be verified to generate reasoning summaries."}}"#,
                "reasoning.summary",
            ),
            (
                r#"{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"parametersJsonSchema\" at 'tools[0].function_declarations[0]': Cannot find field.","status":"INVALID_ARGUMENT"}}"#,
                "parametersJsonSchema",
            ),
        ];
        for (body, name) in cases {
            assert_eq!(of(body), member(name), "{body}");
        }
    }

    #[test]
    fn what_is_refused_beside_something_else_is_left_out_this_time() {
        let of = |message: &str| {
            let error =
                serde_json::json!({"message": message, "param": "temperature", "code": "unsupported_parameter"});
            repairs(400, serde_json::json!({ "error": error }).to_string().as_bytes())
        };
        let refused = || Refused::Member("temperature".to_owned());
        for message in [
            "Unsupported parameter: 'temperature' is not supported with this model.",
            "Unsupported parameter: 'temperature' is not supported with this model. Try again when it is gone.",
            "Unknown parameter: 'temperature'.",
            "",
        ] {
            assert_eq!(of(message), [Repair::Without(refused())], "{message}");
        }
        for message in [
            "Unsupported parameter: 'temperature' is not supported with reasoning_effort 'high'.",
            "Unsupported parameter: 'temperature' is not supported with this model when reasoning effort is not none.",
            "Unsupported parameter: 'temperature' is not supported with this model unless 'reasoning.effort' is 'none'.",
            "'temperature' is only allowed when 'tools' are specified.",
            "`temperature` may not be set with thinking",
        ] {
            assert_eq!(of(message), [Repair::WithoutNow(refused())], "{message}");
        }
    }

    #[test]
    fn a_beta_that_is_refused_is_named() {
        let body = r#"{"type":"error","error":{"type":"invalid_request_error","message":"Unexpected value(s) `new-2027-01-01` for the `anthropic-beta` header. Please consult the documentation."}}"#;
        let beta = |name: &str| Repair::Without(Refused::Beta(name.to_owned()));
        assert_eq!(of(body), Some(beta("new-2027-01-01")));
        let body = r#"{"error":{"message":"Unexpected value(s) `a-1`, `b-2` for the `anthropic-beta` header."}}"#;
        assert_eq!(repairs(400, body.as_bytes()), [beta("a-1"), beta("b-2")], "all at once");
    }

    #[test]
    fn what_was_said_is_never_left_out() {
        let said = ["messages", "tools", "system", "contents", "input", "messages.0.content"];
        // `messages.md` §3: without these the answer would be a wrong one.
        let needed = ["container", "mcp_servers", "output_config.format", "outputConfig.textFormat"];
        for name in said.into_iter().chain(needed) {
            let body = format!(
                r#"{{"error":{{"message":"Unknown parameter: '{name}'.","param":"{name}","code":"unknown_parameter"}}}}"#
            );
            assert_eq!(of(&body), None, "{name}");
        }
        for body in [
            r#"{"error":{"message":"prompt is too long"}}"#,
            "<html>",
            "",
            r#"{"error":{"message":"Unknown parameter: 'a b'"}}"#,
        ] {
            assert_eq!(of(body), None, "{body}");
        }
        let both = r#"{"error":{"message":"Unrecognized request arguments supplied: seed, messages"}}"#;
        assert_eq!(of(both), None, "without one of them it would be refused again");
        let wide = format!(r#"{{"error":{{"message":"{}: Extra inputs are not permitted"}}}}"#, "İ".repeat(40));
        assert_eq!(of(&wide), None, "letters whose lower case is longer");
        assert_eq!(repairs(500, br#"{"error":{"message":"Unknown parameter: 'x'"}}"#), []);
    }

    #[test]
    fn p57_p61_p67_reasoning_that_is_not_the_upstreams_own_is_left_out() {
        for words in [
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "messages.1.content.0: Invalid `data` in `redacted_thinking` block",
            "Corrupted thought signature.",
            "The encrypted content could not be verified.",
            "invalid_encrypted_content",
            "Function call is missing a thought_signature in functionCall parts.",
        ] {
            assert_eq!(
                of(&format!(r#"{{"error":{{"message":"{words}"}}}}"#)),
                Some(Repair::WithoutReasoning),
                "{words}"
            );
        }
        let old = "messages.1.content.0.type: Expected `thinking` … a final `assistant` message must start with a thinking block";
        assert_eq!(of(&format!(r#"{{"error":{{"message":"{old}"}}}}"#)), Some(Repair::WithoutThinking));
    }

    #[test]
    fn words_that_may_not_follow_results_go_into_them() {
        let body = r#"{"object":"error","message":"Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant","type":"invalid_request_message_order","code":"3230"}"#;
        assert_eq!(of(body), Some(Repair::WordsInResults));
        let body = r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","type":"invalid_request_message_order","param":null,"code":"3230"}"#;
        assert_eq!(of(body), Some(Repair::WordsInResults));
        let value = r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.2 with this model.","param":"temperature","code":"unsupported_value"}}"#;
        assert_eq!(of(value), None, "another value would be another answer");
    }

    #[test]
    fn a_member_is_taken_out_and_the_rest_stays() {
        let body = br#"{"a":1.0,"b":{"c":2,"d":[3]},"e":"x"}"#;
        assert_eq!(without(body, "a").unwrap(), br#"{"b":{"c":2,"d":[3]},"e":"x"}"#);
        assert_eq!(without(body, "b.c").unwrap(), br#"{"a":1.0,"b":{"d":[3]},"e":"x"}"#);
        assert_eq!(without(body, "zz"), None);
        assert_eq!(without(body, "a.b"), None);
    }

    #[test]
    fn options_are_taken_out_only_while_the_form_of_the_answer_is_not_among_them() {
        let options = br#"{"output_config":{"effort":"low","format":null},"m":1}"#;
        assert_eq!(without(options, "output_config").unwrap(), br#"{"m":1}"#);
        let with_form = br#"{"output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}},"m":1}"#;
        assert_eq!(without(with_form, "output_config"), None);
        let of_converse = br#"{"outputConfig":{"textFormat":{"type":"json_schema"}}}"#;
        assert_eq!(without(of_converse, "outputConfig"), None);
        let left = br#"{"output_config":{"format":{"type":"json_schema","schema":{}}},"m":1}"#;
        assert_eq!(without(with_form, "output_config.effort").unwrap(), left);
    }
}
