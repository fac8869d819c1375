//! The parameters of a request, checked as Google checks them.

use http::Uri;
use serde_json::Value;

use super::contents;
use super::field::Field;
use super::schema;
use crate::content::{Ask, LastUser};
use crate::failure::Failure;

pub(crate) struct Request {
    model: String,
    stream: bool,
    /// Without it a stream is one array of JSON.
    pub sse: bool,
    max_tokens: Option<u64>,
    stop: Vec<String>,
    last: LastUser,
    tools: Vec<String>,
    /// Answers may rest on a search.
    grounds: bool,
    pub include_thoughts: bool,
    pub unsigned: Option<String>,
}

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Generate,
    Stream,
    Count,
}

impl Verb {
    /// The model and the verb of `…/models/{model}:{verb}`; Vertex has long prefixes before it.
    pub fn of(path: &str) -> Option<(&str, Self)> {
        let (model, verb) = path.rsplit_once("/models/")?.1.rsplit_once(':')?;
        let verb = match verb {
            "generateContent" => Verb::Generate,
            "streamGenerateContent" => Verb::Stream,
            "countTokens" => Verb::Count,
            _ => return None,
        };
        Some((model, verb))
    }
}

const ROOT: &str = "contents systemInstruction tools toolConfig generationConfig safetySettings cachedContent \
    serviceTier labels model store";

const GENERATION: &str = "stopSequences responseMimeType responseSchema responseJsonSchema responseModalities \
    candidateCount maxOutputTokens temperature topP topK seed presencePenalty frequencyPenalty responseLogprobs \
    logprobs thinkingConfig mediaResolution speechConfig imageConfig enableEnhancedCivicAnswers audioTimestamp";

impl Request {
    pub fn read(uri: &Uri, body: &[u8]) -> Result<Self, Failure> {
        let (model, verb) = Verb::of(uri.path()).ok_or_else(|| Failure::status(404))?;
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| Failure::new(400, format!("Invalid JSON payload received. {error}")))?;
        let mut root = Field::root(&value);
        if verb == Verb::Count
            && let Some(inner) = root.get("generateContentRequest")
        {
            root.only("generateContentRequest")?;
            inner.need("model")?.text()?;
            root = inner;
        }
        root.only(ROOT)?;
        if let Some(system) = root.get("systemInstruction") {
            system_instruction(&system)?;
        }
        let conversation = contents::check(&root.need("contents")?)?;
        let tools = schema::tools(&root)?;
        let mut request = Self {
            model: model.to_owned(),
            stream: verb == Verb::Stream,
            sse: uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse")),
            max_tokens: None,
            stop: Vec::new(),
            last: conversation.last,
            grounds: schema::grounds(&root, &tools)?,
            tools: chosen(&root, tools)?,
            include_thoughts: false,
            unsigned: conversation.unsigned,
        };
        if let Some(config) = root.get("generationConfig") {
            request.configure(&config)?;
        }
        Ok(request)
    }

    fn configure(&mut self, config: &Field<'_>) -> Result<(), Failure> {
        config.only(GENERATION)?;
        for (name, most) in [("temperature", 2.0), ("topP", 1.0)] {
            let Some(field) = config.get(name) else { continue };
            if !(0.0..=most).contains(&field.number()?) {
                let message = format!("* GenerateContentRequest.{}: must be in the range [0.0, {most}].", field.path);
                return Err(field.wrong(&message));
            }
        }
        if let Some(top_k) = config.get("topK") {
            top_k.number()?;
        }
        if let Some(limit) = config.get("maxOutputTokens") {
            self.max_tokens = u64::try_from(limit.integer(1)?).ok();
        }
        if let Some(stop) = config.get("stopSequences") {
            let items = stop.items()?;
            if items.len() > 5 {
                return Err(stop.wrong("The number of stop sequences must be at most 5."));
            }
            self.stop = items.iter().map(|item| item.text().map(str::to_owned)).collect::<Result<_, _>>()?;
        }
        structured(config)?;
        if let Some(thinking) = config.get("thinkingConfig") {
            self.include_thoughts = include_thoughts(&thinking)?;
        }
        Ok(())
    }
}

impl Ask for Request {
    fn model(&self) -> &str {
        &self.model
    }

    fn stream(&self) -> bool {
        self.stream
    }

    fn max_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    fn stop_sequences(&self) -> &[String] {
        &self.stop
    }

    fn last_user(&self) -> LastUser {
        self.last.clone()
    }

    fn tools(&self) -> Vec<String> {
        self.tools.clone()
    }

    fn searches(&self) -> bool {
        self.grounds
    }

    fn most_calls(&self) -> usize {
        usize::MAX
    }

    fn call_id(number: usize) -> String {
        format!("gcall_sim_{number}")
    }
}

fn system_instruction(system: &Field<'_>) -> Result<(), Failure> {
    system.only("role parts")?;
    for part in system.need("parts")?.items()? {
        part.only("text")?;
        part.need("text")?.text()?;
    }
    Ok(())
}

fn structured(config: &Field<'_>) -> Result<(), Failure> {
    let schema = config.get("responseSchema");
    if let Some(schema) = &schema {
        schema::check(schema)?;
    }
    let Some(given) = schema.or_else(|| config.get("responseJsonSchema")) else {
        return Ok(());
    };
    match config.get("responseMimeType") {
        Some(kind) if kind.value == "application/json" => given.object(),
        _ => Err(given.wrong("Response schema requires the response mime type application/json.")),
    }
}

fn include_thoughts(thinking: &Field<'_>) -> Result<bool, Failure> {
    thinking.only("includeThoughts thinkingBudget thinkingLevel")?;
    if let Some(budget) = thinking.get("thinkingBudget") {
        budget.integer(-1)?;
        if thinking.get("thinkingLevel").is_some() {
            return Err(thinking.wrong("You can only set only one of thinking budget and thinking level."));
        }
    }
    if let Some(level) = thinking.get("thinkingLevel") {
        level.one_of("MINIMAL LOW MEDIUM HIGH minimal low medium high")?;
    }
    thinking.get("includeThoughts").map_or(Ok(false), |flag| flag.flag())
}

/// The functions that the configuration leaves.
fn chosen(root: &Field<'_>, mut tools: Vec<String>) -> Result<Vec<String>, Failure> {
    let Some(config) = root.get("toolConfig") else {
        return Ok(tools);
    };
    config.only("functionCallingConfig retrievalConfig includeServerSideToolInvocations")?;
    let Some(calling) = config.get("functionCallingConfig") else {
        return Ok(tools);
    };
    calling.only("mode allowedFunctionNames streamFunctionCallArguments")?;
    if tools.is_empty() {
        return Err(calling.wrong("Function calling config is set without function_declarations."));
    }
    let mode =
        calling.get("mode").map_or(Ok("AUTO"), |mode| mode.one_of("AUTO ANY NONE VALIDATED MODE_UNSPECIFIED"))?;
    if let Some(allowed) = calling.get("allowedFunctionNames") {
        if !matches!(mode, "ANY" | "VALIDATED") {
            return Err(allowed.wrong("Allowed function names should only be set when function calling mode is ANY."));
        }
        let mut names = Vec::new();
        for name in allowed.items()? {
            if !tools.iter().any(|tool| name.value == tool) {
                return Err(name.wrong("allowed_function_names should be a subset of the declared functions."));
            }
            names.push(name.text()?.to_owned());
        }
        tools.retain(|tool| names.contains(tool));
    }
    if mode == "NONE" {
        tools.clear();
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_and_the_verb_are_at_the_end_of_the_path() {
        assert_eq!(Verb::of("/v1beta/models/g-2.5:generateContent"), Some(("g-2.5", Verb::Generate)));
        let vertex = "/v1/projects/p/locations/r/publishers/google/models/g:streamGenerateContent";
        assert_eq!(Verb::of(vertex), Some(("g", Verb::Stream)));
        assert_eq!(Verb::of("/v1beta/models/g:countTokens"), Some(("g", Verb::Count)));
        assert_eq!(Verb::of("/v1beta/models/g:embedContent"), None);
        assert_eq!(Verb::of("/v1beta/models/g"), None);
    }
}
