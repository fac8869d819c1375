//! What a refusal names. Callers choose the names of tools, of properties and of members, and upstreams quote them: a name
//! counts only where the upstream has a place of its own for it, or where one of the sentences that are known begins.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind};

/// What the Responses protocol calls thinking that is shown.
const SUMMARY: &str = "reasoning.summary";

/// What the Gemini protocol calls a tool's schema.
const TOOL_SCHEMA: &str = "parametersJsonSchema";

/// Behind these stands what is not known: OpenAI's words, Cohere's, those of servers in Go and in Rust, and Java's.
const OPENINGS: [&str; 7] = [
    "unknown parameter: ",
    "unsupported parameter: ",
    "unrecognized request argument supplied: ",
    "unknown field: parameter ",
    "json: unknown field ",
    "unknown field ",
    "unrecognized field ",
];

/// What servers in Rust begin with.
const UNREAD: &str = "failed to deserialize the json body into the target type: ";

/// What others put before the words of the server that they ask: Bedrock, Python and those who check what comes.
const BEFORE: [&str; 4] =
    ["the model returned the following errors: ", "typeerror: ", "input validation error: ", "invalid request: "];

#[derive(Default)]
pub(super) struct Error {
    pub message: String,
    pub param: Option<String>,
    pub code: Option<String>,
    /// The places that a list of mistakes names as superfluous.
    extra: Vec<String>,
}

impl Error {
    pub fn read(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Outer<'a> {
            #[serde(borrow, default)]
            error: Option<&'a RawValue>,
            #[serde(borrow, default)]
            message: Option<&'a RawValue>,
            #[serde(borrow, default)]
            detail: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Inner<'a> {
            #[serde(borrow, default)]
            message: Option<&'a RawValue>,
            #[serde(borrow, default)]
            param: Option<&'a RawValue>,
            #[serde(borrow, default)]
            code: Option<&'a RawValue>,
        }
        let text = |raw: Option<&RawValue>| raw.and_then(json::string).map(|text| text.into_owned());
        // Google wraps some errors in a list of one.
        let whole: Option<&RawValue> = serde_json::from_slice(body).ok();
        let whole = whole.map(|whole| match json::kind(whole) {
            Kind::Array => json::elements(whole).and_then(|list| list.first().copied()).unwrap_or(whole),
            _ => whole,
        });
        let Some(outer) = whole.and_then(|whole| serde_json::from_str::<Outer<'_>>(whole.get()).ok()) else {
            return Self::default();
        };
        let inner = outer.error.and_then(|error| serde_json::from_str::<Inner<'_>>(error.get()).ok());
        let message = inner.as_ref().and_then(|inner| text(inner.message));
        Self {
            message: message
                .or_else(|| text(outer.error))
                .or_else(|| text(outer.message))
                .or_else(|| text(outer.detail))
                .unwrap_or_default(),
            // Some always have the member.
            param: inner.as_ref().and_then(|inner| text(inner.param)).filter(|param| !param.is_empty()),
            code: inner.as_ref().and_then(|inner| text(inner.code)),
            extra: outer.detail.and_then(superfluous).or_else(|| outer.message.and_then(within)).unwrap_or_default(),
        }
    }

    /// ``Unexpected value(s) `x`, `y` for the `anthropic-beta` header``
    pub fn betas(&self) -> Vec<String> {
        let names = after(&self.message, "unexpected value(s) `")
            .and_then(|rest| rest.split_once("` for the `anthropic-beta` header"))
            .and_then(|(names, _)| names.split("`, `").map(name).collect());
        names.unwrap_or_default()
    }

    /// The members that it is about: several where a list of them is told.
    pub fn members(&self) -> Vec<String> {
        if !self.extra.is_empty() {
            return self.extra.clone();
        }
        let (param, code) = (self.param.as_deref(), self.code.as_deref());
        // An organisation that is not verified is shown no summaries; the member itself is known.
        let is_unverified = match param {
            Some(param) => param == SUMMARY && code == Some("unsupported_value"),
            None => after(&self.message, "your organization must be verified to generate reasoning summar").is_some(),
        };
        if is_unverified {
            return vec![SUMMARY.to_owned()];
        }
        let said = || self.listed().or_else(|| Some(vec![self.said()?]));
        let named = match param {
            // What is named is what it is about, whatever else is said.
            Some(param) => {
                let is_unknown =
                    code.is_some_and(|code| ["unsupported_parameter", "unknown_parameter"].contains(&code));
                name(param).filter(|_| is_unknown || said().is_some()).map(|name| vec![name])
            }
            None => said(),
        };
        named.unwrap_or_default()
    }

    /// Whether the sentence that has this name says that it is refused beside something else, so that others may send it.
    pub fn is_conditional(&self, name: &str) -> bool {
        const WORDS: [&str; 8] = ["when", "while", "unless", "if", "only", "together", "with", "without"];
        let behind = self.message.find(name).map_or(0, |place| place + name.len());
        let rest = &self.message[behind..];
        let sentence = rest.split_once(". ").map_or(rest, |(sentence, _)| sentence).to_ascii_lowercase();
        // What is kept is kept of a model.
        let sentence = sentence.replace("with this model", "").replace("with the model", "");
        sentence.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| WORDS.contains(&word))
    }

    /// `Unrecognized request arguments supplied: x, y`
    fn listed(&self) -> Option<Vec<String>> {
        let list = after(handed_on(&self.message), "unrecognized request arguments supplied: ")?;
        let list = list.split_once(". ").map_or(list, |(list, _)| list);
        let one = |item| word(item).filter(|(_, rest)| rest.is_empty()).and_then(|(word, _)| name(word));
        list.trim_end_matches('.').split(", ").map(one).collect()
    }

    /// What the sentence names that the message begins with.
    fn said(&self) -> Option<String> {
        let message = handed_on(&self.message);
        if after(message, "encrypted content is not supported").is_some() {
            return Some("include".to_owned());
        }
        // `x.y: Extra inputs are not permitted`. Only of ASCII: places in it must be places in the message.
        if let Some(place) = message.to_ascii_lowercase().find(": extra inputs are not permitted") {
            // So we ourselves write a list of mistakes.
            let place = &message[..place];
            return name(place.strip_prefix("body.").unwrap_or(place));
        }
        if let Some(rest) = after(message, "invalid json payload received. unknown name ") {
            return unknown_to_google(rest);
        }
        if let Some(name) = after(message, UNREAD).and_then(unknown_to_serde) {
            return Some(name);
        }
        if let Some(rest) = OPENINGS.iter().find_map(|opening| after(message, opening)) {
            return word(rest).and_then(|(word, _)| name(word));
        }
        // xAI's words, which spell names in a way of their own: `Model m does not support parameter presencePenalty.`
        let of_model = after(message, "model ").and_then(|rest| rest.split_once(' '));
        let refused = of_model.and_then(|(_, rest)| after(rest, "does not support parameter "));
        if let Some(rest) = refused.or_else(|| after(message, "argument not supported on this model: ")) {
            return word(rest).filter(|(_, rest)| rest.is_empty()).and_then(|(word, _)| name(&snake(word)));
        }
        // Groq's: `property 'x' is unsupported`
        if let Some((word, rest)) = after(message, "property ").and_then(word)
            && after(rest, " is unsupported").is_some()
        {
            return name(word);
        }
        // `f() got an unexpected keyword argument 'x'`
        if let Some((function, rest)) = message.split_once(" got an unexpected keyword argument ") {
            let is_one_word = !function.contains([' ', '\'', '"', '`']);
            return word(rest).filter(|_| is_one_word).and_then(|(word, _)| name(word));
        }
        // Voyage's words, which stand last: `Argument 'x' is not supported by our API`
        let last = message.trim_end_matches('.').rsplit(". ").next().unwrap_or(message);
        if let Some((word, rest)) = after(last, "argument ").and_then(word)
            && rest == " is not supported by our API"
        {
            return name(word);
        }
        // `'x' is not supported with this model`
        let (word, rest) = word(message).filter(|_| message.starts_with(['\'', '"', '`']))?;
        after(rest, " is not supported with this model").and_then(|_| name(word))
    }
}

/// The words of the server that was asked, where somebody hands them on.
fn handed_on(message: &str) -> &str {
    let message = behind_litellm(message);
    BEFORE.iter().find_map(|before| after(message, before)).unwrap_or(message)
}

/// `litellm.BadRequestError: OpenAIException - …`: what stands behind that.
pub(crate) fn behind_litellm(message: &str) -> &str {
    let is_kind = |kinds: &str| kinds.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_: ".contains(&byte));
    let parts = after(message, "litellm.").and_then(|rest| rest.split_once("Exception - "));
    parts.filter(|(kinds, _)| is_kind(kinds)).map_or(message, |(_, rest)| rest)
}

/// ``unknown field `y` ``, with the path to it before it or without: `x.y: `.
fn unknown_to_serde(rest: &str) -> Option<String> {
    let (path, rest) = match after(rest, "unknown field ") {
        Some(rest) => (None, rest),
        None => rest.split_once(": unknown field ").map(|(path, rest)| (Some(path), rest))?,
    };
    let (field, rest) = word(rest)?;
    let Some(path) = path else { return name(field) };
    let is_path = path.strip_suffix(field).is_some_and(|outer| outer.is_empty() || outer.ends_with('.'));
    let is_whole = rest.is_empty() || rest.starts_with([',', ' ']);
    name(path).filter(|_| is_path && is_whole)
}

/// `"x" at 'y': Cannot find field.`: the member, and the object that it stands in unless that is the whole.
fn unknown_to_google(rest: &str) -> Option<String> {
    let (member, rest) = word(rest)?;
    let Some(place) = rest.strip_prefix(" at ") else { return name(member).filter(|_| rest.starts_with(':')) };
    let (place, _) = word(place)?;
    match name(place) {
        Some(place) => Some(format!("{}.{}", camel(&place), name(member)?)),
        // Other members of tools are what a caller has named.
        None => name(member).filter(|member| member == TOOL_SCHEMA),
    }
}

/// `{"loc": ["body", "x"], "type": "extra_forbidden"}` in a list.
fn superfluous(detail: &RawValue) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Mistake {
        #[serde(default)]
        loc: Vec<serde_json::Value>,
        #[serde(default, rename = "type")]
        kind: String,
    }
    let mistakes: Vec<Mistake> = serde_json::from_str(detail.get()).ok()?;
    let extra = mistakes.iter().filter(|mistake| mistake.kind.contains("extra_forbidden"));
    let places = extra.map(|mistake| {
        let path: Option<Vec<&str>> = mistake.loc.iter().map(serde_json::Value::as_str).collect();
        // Numbers stand in lists, of which nothing is left out; a part with a dot would look like two.
        let path: Vec<&str> = path?.into_iter().filter(|part| *part != "body").collect();
        let is_plain = path.iter().all(|part| !part.contains('.'));
        name(&path.join(".")).filter(|_| is_plain)
    });
    places.collect()
}

/// The same in the message itself, as an object or as the text of one: so Mistral has it.
fn within(message: &RawValue) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        detail: &'a RawValue,
    }
    let text = json::string(message);
    let message: Message<'_> = serde_json::from_str(text.as_deref().unwrap_or_else(|| message.get())).ok()?;
    superfluous(message.detail)
}

/// What follows an opening, however that is written.
fn after<'a>(text: &'a str, opening: &str) -> Option<&'a str> {
    let start = text.get(..opening.len())?;
    start.eq_ignore_ascii_case(opening).then(|| &text[opening.len()..])
}

/// The first word, in quotes of any kind or without, and what follows it.
fn word(text: &str) -> Option<(&str, &str)> {
    match text.chars().next()? {
        quote @ ('\'' | '"' | '`') => text[1..].split_once(quote),
        _ => {
            let end = text.find(char::is_whitespace).unwrap_or(text.len());
            Some((text[..end].trim_end_matches(['.', ',', ':']), &text[end..]))
        }
    }
}

fn name(name: &str) -> Option<String> {
    let is_name = (1..=80).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        && !name.starts_with('.');
    is_name.then(|| name.to_owned())
}

/// `presencePenalty` as `presence_penalty`.
fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(character.to_ascii_lowercase());
    }
    out
}

/// `generation_config` as `generationConfig`.
fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for character in name.chars() {
        match character {
            '_' => upper = true,
            other if std::mem::take(&mut upper) => out.push(other.to_ascii_uppercase()),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(error: serde_json::Value) -> Option<String> {
        let error = Error::read(json!({ "error": error }).to_string().as_bytes());
        let names = [error.betas(), error.members()].concat();
        (!names.is_empty()).then(|| names.join(" "))
    }

    #[test]
    fn words_that_a_caller_plants_name_nothing() {
        for message in [
            "Invalid schema for function 'stop': In context=('properties', 'unknown parameter'), array schema missing items.",
            "Invalid schema for function 'stop': unknown field",
            "messages.0.content.0.text.x stop_sequences: Extra inputs are not permitted",
            "x\nstop_sequences: Extra inputs are not permitted",
            "x`stop_sequences: Extra inputs are not permitted",
            "Unexpected value(s) `a`b`context-1m-2025-08-07` for the `anthropic-beta` header",
            "Unexpected value(s) `a`b`, `context-1m-2025-08-07` for the `anthropic-beta` header",
            "Unrecognized request arguments supplied: a b, stop",
            "Failed to deserialize the JSON body into the target type: tools[0].x: unknown field `stop`",
            "Failed to deserialize the JSON body into the target type: x: unknown field `stop`",
            "Failed to deserialize the JSON body into the target type: stop: unknown field `stop`: unknown field `stop: x`",
            "litellm.BadRequestError: the tool 'x' - Unsupported parameter: 'stop'",
            "Invalid value 'x. Argument 'stop' is not supported by our API' of user",
            "The tool 'x' - Unsupported parameter: 'stop'",
            "The tool 'x' is bad: Unexpected value(s) `context-1m-2025-08-07` for the `anthropic-beta` header",
            "tools[0].function.name: json: unknown field \"stop\"",
            "Tool 'stop' got an unexpected keyword argument 'temperature'",
            "the tool 'stop' is not supported with this model",
            "Invalid JSON payload received. Unknown name \"safetySettings\" at 'tools[0].function_declarations[0].parameters': Cannot find field.",
            "My organization must be verified to generate reasoning summaries",
            "Model m of 'x' does not support parameter stop",
            "Model m does not support parameter x stop",
            "'messages.0' : property 'stop' is unsupported",
        ] {
            assert_eq!(named(json!({ "message": message })), None, "{message}");
        }
    }

    #[test]
    fn what_has_a_place_of_its_own_counts_more_than_words() {
        let of =
            |message: &str, param: &str, code: &str| named(json!({"message": message, "param": param, "code": code}));
        let said = "Unknown parameter: 'stop'.";
        assert_eq!(of(said, "seed", "unknown_parameter").as_deref(), Some("seed"));
        assert_eq!(of(said, "", "").as_deref(), Some("stop"), "an empty place is none");
        assert_eq!(of(said, "tools[0].stop", "unknown_parameter"), None);
        assert_eq!(of(said, "tools[0].function.parameters", "invalid_function_parameters"), None);
        assert_eq!(of("Invalid 'stop': unknown field", "stop", "invalid_value"), None);
        let listed = |loc: serde_json::Value| {
            let body =
                json!({"detail": [{"type": "extra_forbidden", "loc": loc, "msg": "Extra inputs are not permitted"}]});
            Error::read(body.to_string().as_bytes()).members().pop()
        };
        assert_eq!(listed(json!(["body", "seed"])).as_deref(), Some("seed"));
        assert_eq!(listed(json!(["body", "thinking", "mode"])).as_deref(), Some("thinking.mode"));
        assert_eq!(listed(json!(["body", "list", 0, "stop"])), None);
        assert_eq!(listed(json!(["body", "thinking.mode"])), None);
        let extra = |name: &str| json!({"type": "extra_forbidden", "loc": ["body", name]});
        let body = json!({"detail": [extra("seed"), {"type": "missing", "loc": ["body", "x"]}, extra("top_k")]});
        assert_eq!(Error::read(body.to_string().as_bytes()).members(), ["seed", "top_k"]);
        let detail = json!({"detail": [extra("seed")]});
        for message in [detail.clone(), json!(detail.to_string())] {
            let body = json!({"object": "error", "message": message, "type": "invalid_request_error", "code": 3051});
            assert_eq!(Error::read(body.to_string().as_bytes()).members(), ["seed"], "{body}");
        }
        let body = json!({"detail": "Argument 'top_n' is not supported by our API"});
        assert_eq!(Error::read(body.to_string().as_bytes()).members(), ["top_n"]);
    }

    #[test]
    fn the_sentences_of_servers_are_known() {
        for (message, name) in [
            ("The model returned the following errors: speed: Extra inputs are not permitted", "speed"),
            ("unknown field: parameter 'seed' is not a valid field. For proper usage, please refer to x", "seed"),
            ("json: unknown field \"seed\"", "seed"),
            (
                "Failed to deserialize the JSON body into the target type: unknown field `seed`, expected one of `a`",
                "seed",
            ),
            ("Unrecognized field \"seed\" (class Request), not marked as ignorable", "seed"),
            ("Completions.create() got an unexpected keyword argument 'seed'", "seed"),
            ("'seed' is not supported with this model.", "seed"),
            (
                "Failed to deserialize the JSON body into the target type: seed: unknown field `seed`, expected one of `a`",
                "seed",
            ),
            (
                "Failed to deserialize the JSON body into the target type: a.b: unknown field `b` at line 1 column 9",
                "a.b",
            ),
            (
                "litellm.BadRequestError: OpenAIException - Unsupported parameter: 'seed' is not supported with this model.",
                "seed",
            ),
            ("TypeError: create() got an unexpected keyword argument 'seed'", "seed"),
            ("Input validation error: unknown field `seed`", "seed"),
            ("Invalid request: Unsupported parameter: 'seed' is not supported with this model.", "seed"),
            ("Argument 'top_n' is not supported by our API", "top_n"),
            ("The request is invalid. Argument 'top_n' is not supported by our API.", "top_n"),
            ("body.seed: Extra inputs are not permitted", "seed"),
            ("Model grok-4 does not support parameter presencePenalty.", "presence_penalty"),
            ("Argument not supported on this model: frequencyPenalty", "frequency_penalty"),
            ("property 'logit_bias' is unsupported, did you mean 'x'?", "logit_bias"),
            ("Unexpected value(s) `a-1`, `b-2` for the `anthropic-beta` header", "a-1 b-2"),
            ("Unrecognized request arguments supplied: seed, top_k", "seed top_k"),
            ("Unrecognized request arguments supplied: 'seed', 'top_k'. See the reference.", "seed top_k"),
        ] {
            assert_eq!(named(json!({ "message": message })).as_deref(), Some(name), "{message}");
        }
    }
}
