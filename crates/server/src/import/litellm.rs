//! LiteLLM's `config.yaml`.

mod reach;

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Map, Value};

use super::Imported;
use super::draft::{Draft, Endpoint, Model};
use crate::config::{self, raw};

/// What stands before a model's name there, the provider here, and the protocol of its servers at other addresses.
const PREFIXES: [(&str, &str, &str); 40] = [
    ("anthropic", "anthropic", "anthropic"),
    ("azure", "azure", "openai-chat"),
    ("azure_ai", "azure", "openai-chat"),
    ("bedrock", "amazon-bedrock", "bedrock-converse"),
    ("bedrock_converse", "amazon-bedrock", "bedrock-converse"),
    ("cerebras", "cerebras", "openai-chat"),
    ("cohere", "cohere", "cohere"),
    ("cohere_chat", "cohere", "cohere"),
    ("dashscope", "alibaba", "openai-chat"),
    ("deepinfra", "deepinfra", "openai-chat"),
    ("deepseek", "deepseek", "openai-chat"),
    ("fireworks_ai", "fireworks", "openai-chat"),
    ("gemini", "google-ai-studio", "gemini"),
    ("github", "github-models", "openai-chat"),
    ("groq", "groq", "openai-chat"),
    ("hosted_vllm", "vllm", "openai-chat"),
    ("huggingface", "huggingface", "openai-chat"),
    ("llamafile", "llamacpp", "openai-chat"),
    ("lm_studio", "lmstudio", "openai-chat"),
    ("minimax", "minimax", "openai-chat"),
    ("mistral", "mistral", "openai-chat"),
    ("moonshot", "moonshotai", "openai-chat"),
    ("nebius", "nebius", "openai-chat"),
    ("novita", "novita", "openai-chat"),
    ("nvidia_nim", "nvidia", "openai-chat"),
    ("ollama", "ollama", "openai-chat"),
    ("ollama_chat", "ollama", "openai-chat"),
    ("openai", "openai", "openai-chat"),
    ("openrouter", "openrouter", "openai-chat"),
    ("perplexity", "perplexity", "openai-chat"),
    ("sambanova", "sambanova", "openai-chat"),
    ("together_ai", "together", "openai-chat"),
    ("vertex_ai", "google-vertex", "gemini"),
    ("vertex_ai_beta", "google-vertex", "gemini"),
    ("vllm", "vllm", "openai-chat"),
    ("xai", "xai", "openai-chat"),
    ("zai", "z-ai", "openai-chat"),
    ("custom_openai", "", "openai-chat"),
    ("litellm_proxy", "", "openai-chat"),
    ("openai_like", "", "openai-chat"),
];

/// How names begin of which LiteLLM knows by itself whose they are. The first that fits decides.
const NAMES: [(&str, &str); 23] = [
    ("claude", "anthropic"),
    ("gemini", "vertex_ai"),
    ("text-embedding-0", "vertex_ai"),
    ("text-multilingual-embedding", "vertex_ai"),
    ("command", "cohere"),
    ("embed-", "cohere"),
    ("rerank-", "cohere"),
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("ft:", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("codex-", "openai"),
    ("computer-use", "openai"),
    ("text-embedding-", "openai"),
    ("text-moderation-", "openai"),
    ("omni-moderation-", "openai"),
    ("dall-e", "openai"),
    ("sora", "openai"),
    ("tts-", "openai"),
    ("whisper-", "openai"),
    ("davinci-", "openai"),
];

/// Characters that a key must have here.
const LEAST_KEY: usize = 16;

/// Prices of the file, ours, and what one of theirs is worth here.
const PRICES: [(&str, &str, f64); 10] = [
    ("input_cost_per_token", "input", 1e6),
    ("output_cost_per_token", "output", 1e6),
    ("cache_read_input_token_cost", "cache_read", 1e6),
    ("cache_creation_input_token_cost", "cache_write", 1e6),
    ("input_cost_per_audio_token", "input_audio", 1e6),
    ("output_cost_per_audio_token", "output_audio", 1e6),
    ("input_cost_per_character", "character", 1e6),
    ("input_cost_per_second", "audio_hour", 3_600.0),
    ("input_cost_per_request", "request", 1.0),
    // Of models that rank documents.
    ("input_cost_per_query", "request", 1.0),
];

/// Parameters of a deployment that have a place here, or need none.
const READ: [&str; 19] = [
    "model",
    "api_key",
    "api_base",
    "base_url",
    "api_version",
    "custom_llm_provider",
    "aws_region_name",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "vertex_project",
    "vertex_location",
    "vertex_credentials",
    "drop_params",
    "merge_reasoning_content_in_choices",
    "stream_timeout",
    "max_retries",
    "use_in_pass_through",
    "additional_drop_params",
];

/// Turns such a file into ours.
pub fn convert(yaml: &str) -> anyhow::Result<Imported> {
    let file = read(yaml)?;
    let Some(Value::Array(entries)) = file.get("model_list") else {
        bail!("it has no list named model_list, as a configuration of LiteLLM has");
    };
    let known = config::built_in();
    let mut draft = Draft::default();
    // Names that are in use already are given to no other key.
    for params in entries.iter().filter_map(|entry| entry.get("litellm_params")) {
        if let Some(variable) = text(params, "api_key").as_deref().and_then(environment).or_else(|| unsaid(params)) {
            draft.take(variable);
        }
    }
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for (place, entry) in entries.iter().enumerate() {
        deployment(entry, place, &known, &mut names, &mut draft)?;
    }
    others(&file, &names, &mut draft);
    Ok(draft.finish("LiteLLM"))
}

/// The variable of a deployment that names no key.
fn unsaid(params: &Value) -> Option<&'static str> {
    let (prefix, _) = split(params, &text(params, "model")?);
    let (_, slug, _) = PREFIXES.iter().find(|(known, ..)| *known == prefix)?;
    reach::unsaid_variable(&prefix, slug, params)
}

/// Reads YAML. A mistake is told by its place alone: what stands there may be a key.
fn read(yaml: &str) -> anyhow::Result<Value> {
    serde_saphyr::from_str(yaml).map_err(|error| match error.without_snippet().location() {
        Some(place) => anyhow!("it is not YAML: look at line {}, column {}", place.line(), place.column()),
        None => anyhow!("it is not YAML"),
    })
}

/// One entry of the list: a model at one provider.
fn deployment(
    entry: &Value,
    place: usize,
    known: &[raw::Model],
    names: &mut BTreeMap<String, usize>,
    draft: &mut Draft,
) -> anyhow::Result<()> {
    let at = || format!("model_list[{place}]");
    let name = text(entry, "model_name").with_context(|| format!("{}.model_name must be a text", at()))?;
    let empty = Value::Object(Map::new());
    let params = entry.get("litellm_params").unwrap_or(&empty);
    let info = entry.get("model_info").unwrap_or(&empty);
    let called = text(params, "model").with_context(|| format!("{}.litellm_params.model must be a text", at()))?;
    let output = match text(info, "mode").as_deref() {
        // Nobody says it there who calls it by a name of the vendor's.
        None if called.contains("rerank") => Some("rerank"),
        None | Some("chat" | "responses" | "completion") => None,
        Some("rerank") => Some("rerank"),
        Some("embedding") => Some("embeddings"),
        Some("image_generation") => Some("image"),
        Some("audio_speech") => Some("speech"),
        Some("audio_transcription") => Some("transcription"),
        Some(other) => {
            draft.note(format!("{name}: models for {other} have no place here yet; left out"));
            return Ok(());
        }
    };
    let (prefix, model) = split(params, &called);
    if !called.contains('/') && text(params, "custom_llm_provider").is_none() && bare(&called).is_none() {
        draft.note(format!("{name}: nobody says whose {called} is; it is taken for a model of OpenAI's"));
    }
    // `openai/responses/…` says how it is called, as `bedrock/converse/…` does.
    let (model, is_responses) = match model.strip_prefix("responses/") {
        Some(rest) => (rest.to_owned(), true),
        None => (model, false),
    };
    let Some((_, slug, protocol)) = PREFIXES.iter().find(|(known, ..)| *known == prefix) else {
        draft.note(format!("{name}: the provider {prefix} is not known here; left out. With an address it can be had as a [[providers]] of your own"));
        return Ok(());
    };
    let called = reach::Called { prefix: &prefix, slug, protocol, model: &model, is_responses };
    let Some(reach::Reached { provider, protocol }) = reach::provider(&name, &called, params, draft) else {
        return Ok(());
    };
    if name.contains('*') || model.contains('*') {
        draft.note(format!("{name}: stands for all models of {provider}; those that are known here can be called by their own names (GET /models)"));
        return Ok(());
    }
    let facts = facts(known, slug, &base_model(info).unwrap_or_else(|| model.clone()));
    let makes = |(model, _): (&raw::Model, _)| {
        ["embeddings", "image", "rerank", "speech", "transcription"]
            .into_iter()
            .find(|made| model.output_modalities.iter().any(|other| other == made))
    };
    let output = output
        .or_else(|| facts.and_then(makes).filter(|_| text(info, "mode").is_none()))
        .or_else(|| (text(info, "mode").is_none() && model.contains("embed")).then_some("embeddings"));
    for other in params.as_object().into_iter().flat_map(Map::keys).filter(|other| !is_read(other, output)) {
        draft.note(format!("{name}: {other} is not taken over"));
    }
    let known_price =
        || facts.and_then(|(_, endpoint)| inline(&toml::Value::try_from(endpoint.pricing.as_ref()?).ok()?));
    let pricing = prices(&name, output, params, info, draft).or_else(known_price);
    let number = |name: &str| info.get(name).and_then(Value::as_u64).filter(|number| *number > 0);
    let id = if name.contains('/') { name.clone() } else { format!("{}/{name}", author(slug, &provider, &model)) };
    let taken = draft.models.iter().position(|model| model.id == id);
    let index = *names.entry(name.clone()).or_insert_with(|| {
        let aliases = if id == name { Vec::new() } else { vec![name.clone()] };
        // Two names of one model: `gpt-4o` and `openai/gpt-4o`.
        if let Some(taken) = taken {
            draft.models[taken].aliases.extend(aliases);
            return taken;
        }
        let of_facts = |read: fn(&raw::Model) -> u64| facts.map(|(model, _)| read(model));
        draft.models.push(Model {
            id,
            aliases,
            context_length: number("max_input_tokens").or_else(|| of_facts(|model| model.context_length)),
            max_output_tokens: number("max_output_tokens")
                .or_else(|| number("max_tokens"))
                .or_else(|| of_facts(|model| model.max_output_tokens)),
            input_modalities: facts.map(|(model, _)| model.input_modalities.clone()).unwrap_or_default(),
            output,
            endpoints: Vec::new(),
        });
        draft.models.len() - 1
    });
    draft.models[index].endpoints.push(Endpoint { provider, model, protocol, pricing });
    Ok(())
}

/// The provider and the model of `provider/model`; names alone are known by how they begin.
fn split(params: &Value, called: &str) -> (String, String) {
    let named = text(params, "custom_llm_provider");
    if let Some((prefix, rest)) = called.split_once('/') {
        let is_known = PREFIXES.iter().any(|(known, ..)| *known == prefix);
        match named {
            Some(named) if named != prefix => return (named, called.to_owned()),
            _ if is_known => {
                // `bedrock/converse/…` says how it is called, `vertex_ai/gemini/…` is a habit.
                let rest = ["converse/", "invoke/"].iter().find_map(|way| rest.strip_prefix(way)).unwrap_or(rest);
                return (prefix.to_owned(), rest.to_owned());
            }
            _ => return (prefix.to_owned(), rest.to_owned()),
        }
    }
    let prefix = named.unwrap_or_else(|| bare(called).unwrap_or("openai").to_owned());
    (prefix, called.to_owned())
}

/// Whose a model is that is called by its name alone.
fn bare(called: &str) -> Option<&'static str> {
    // Bedrock's begin with the author's, and may have a group of regions before it.
    let author = called.split('.').find(|part| !["us", "eu", "apac", "global"].contains(part));
    let is_bedrocks = called.contains('.')
        && author.is_some_and(|author| ["ai21", "amazon", "anthropic", "cohere", "meta", "mistral"].contains(&author));
    if is_bedrocks {
        return Some("bedrock");
    }
    NAMES.iter().find(|(start, _)| called.starts_with(start)).map(|(_, prefix)| *prefix)
}

/// What is said beside the list.
fn others(file: &Value, names: &BTreeMap<String, usize>, draft: &mut Draft) {
    let section = |name: &str| file.get(name).and_then(Value::as_object).into_iter().flatten();
    for (alias, target) in section("router_settings")
        .filter(|(name, _)| *name == "model_group_alias")
        .flat_map(|(_, map)| map.as_object().into_iter().flatten())
    {
        let target = target.as_str().or_else(|| target.get("model")?.as_str()).unwrap_or_default();
        match names.get(target) {
            Some(_) if names.contains_key(alias) => {
                draft.note(format!("{alias}: is a model and leads to {target}, too; it stays the model"))
            }
            Some(index) => draft.models[*index].aliases.push(alias.clone()),
            None => draft.note(format!("{alias}: leads to {target}, which is not in the list")),
        }
    }
    for (from, name, value) in section("litellm_settings")
        .map(|(name, value)| ("litellm_settings", name, value))
        .chain(section("router_settings").map(|(name, value)| ("router_settings", name, value)))
        .chain(section("general_settings").map(|(name, value)| ("general_settings", name, value)))
    {
        match (name.as_str(), value.as_str()) {
            ("model_group_alias" | "drop_params" | "num_retries" | "set_verbose" | "json_logs", _) => {}
            ("master_key", Some(key)) if environment(key).is_none() && key.len() < LEAST_KEY => {
                draft.note(format!("general_settings.master_key has less than {LEAST_KEY} characters, which can be guessed, and is not taken over: `tidegate serve` prints new keys at the first start"));
            }
            ("master_key", Some(key)) => {
                let variable = environment(key).unwrap_or("LITELLM_MASTER_KEY").to_owned();
                draft.note(format!("applications go on with the key in {variable}; the key for administration is another one and is printed at the first start"));
                if environment(key).is_none() {
                    draft.note(format!(
                        "general_settings.master_key stood in the file and is not copied; put it into {variable}"
                    ));
                }
                draft.inference_key = Some(format!("env:{variable}"));
            }
            ("fallbacks" | "context_window_fallbacks" | "default_fallbacks" | "content_policy_fallbacks", _) => {
                draft.note(format!(
                    "{from}.{name}: callers name other models in `models`, or a preset does (docs/presets.md)"
                ));
            }
            ("database_url" | "store_model_in_db", _) => {
                draft.note(format!("{from}.{name}: keys and spending of the other gateway stay there; `tidegate keys create` makes new ones"));
            }
            _ => draft.note(format!("{from}.{name} is not taken over")),
        }
    }
    for name in file.as_object().into_iter().flat_map(Map::keys) {
        let known = ["model_list", "litellm_settings", "router_settings", "general_settings"];
        if !known.contains(&name.as_str()) {
            draft.note(format!("{name} is not taken over"));
        }
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The variable that a value is read from there.
fn environment(said: &str) -> Option<&str> {
    said.strip_prefix("os.environ/").filter(|name| !name.is_empty())
}

/// Who stands before the slash of a model whose name has none.
fn author<'a>(slug: &'a str, provider: &'a str, model: &str) -> &'a str {
    match slug {
        // A server of the operator's own.
        _ if !provider.starts_with(slug) => provider,
        "google-vertex" | "amazon-bedrock" | "azure" if model.contains("claude") => "anthropic",
        "google-ai-studio" | "google-vertex" => "google",
        "amazon-bedrock" => "amazon",
        "azure" => "openai",
        "" => provider,
        other => other,
    }
}

/// What a deployment with a name of its own is a deployment of.
fn base_model(info: &Value) -> Option<String> {
    let base = text(info, "base_model")?;
    Some(base.rsplit_once('/').map_or_else(|| base.clone(), |(_, model)| model.to_owned()))
}

/// What is known here of a model, at this provider if it can be.
fn facts<'a>(known: &'a [raw::Model], slug: &str, model: &str) -> Option<(&'a raw::Model, &'a raw::Endpoint)> {
    let all = || known.iter().flat_map(|model| model.endpoints.iter().map(move |endpoint| (model, endpoint)));
    let undated = undated(model);
    let fits = |endpoint: &raw::Endpoint| endpoint.model == model || endpoint.model == undated;
    all()
        .find(|(_, endpoint)| endpoint.provider == slug && fits(endpoint))
        .or_else(|| all().find(|(_, endpoint)| fits(endpoint)))
}

/// A name without the day of its release.
fn undated(model: &str) -> &str {
    let model = model.strip_suffix("-latest").unwrap_or(model);
    match model.rsplit_once(['-', '@']) {
        Some((rest, day)) if day.len() == 8 && day.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => model,
    }
}

/// Whether a member of a model that gives this is taken over.
fn is_read(name: &str, output: Option<&str>) -> bool {
    READ.contains(&name) || PRICES.iter().any(|(known, ours, _)| *known == name && counts(ours, output))
}

/// Whether a price is one of a model that gives this: elsewhere characters and seconds are what others count in place of tokens.
fn counts(price: &str, output: Option<&str>) -> bool {
    match price {
        "character" => output == Some("speech"),
        "audio_hour" => output == Some("transcription"),
        _ => true,
    }
}

/// Prices that the file names: there for a token, here for a million of them.
fn prices(model: &str, output: Option<&str>, params: &Value, info: &Value, draft: &mut Draft) -> Option<String> {
    /// Each of them says what a call costs; the others, what some of it does.
    const ENOUGH: [&str; 6] = [
        "input_cost_per_token",
        "output_cost_per_token",
        "input_cost_per_request",
        "input_cost_per_query",
        "input_cost_per_character",
        "input_cost_per_second",
    ];
    let said = |name: &str| {
        PRICES.iter().find(|(known, ours, _)| *known == name && counts(ours, output))?;
        let price = params.get(name).or_else(|| info.get(name)).filter(|price| !price.is_null())?;
        let number = price.as_str().map_or_else(|| price.as_f64(), |text| text.parse::<f64>().ok());
        // A dollar for a token is no price.
        Some(number.filter(|number| (0.0..1.0).contains(number)))
    };
    if PRICES.iter().any(|(name, ..)| said(name) == Some(None)) {
        draft.note(format!("{model}: a price of it cannot be one; none is taken over"));
        return None;
    }
    ENOUGH.iter().find_map(|name| said(name))?;
    let one = |(name, ours, times): (&str, &'static str, f64)| Some((ours, decimal(said(name)?? * times)));
    let mut prices: Vec<_> = PRICES.into_iter().filter_map(one).collect();
    // Both of these are one here; who is asked at this price is asked with the first.
    prices.dedup_by_key(|(name, _)| *name);
    for (needed, at) in [("input", 0), ("output", 1)] {
        if prices.iter().all(|(name, _)| *name != needed) {
            prices.insert(at.min(prices.len()), (needed, "0".to_owned()));
        }
    }
    let prices: Vec<String> = prices.iter().map(|(name, price)| format!("{name} = {price}")).collect();
    Some(format!("{{ {} }}", prices.join(", ")))
}

/// To nine places, which is more than any price has.
fn decimal(price: f64) -> String {
    let text = format!("{price:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A table on one line, without what it leaves open.
fn inline(table: &toml::Value) -> Option<String> {
    let is_said = |value: &toml::Value| match value {
        toml::Value::Table(inner) => !inner.is_empty(),
        toml::Value::Array(inner) => !inner.is_empty(),
        _ => true,
    };
    let written = |value: &toml::Value| match value {
        // Prices are kept as texts, and read as numbers, too.
        toml::Value::String(text) if text.parse::<f64>().is_ok() => text.clone(),
        other => other.to_string(),
    };
    let members = table.as_table()?.iter().filter(|(_, value)| is_said(value));
    let members: Vec<String> = members.map(|(name, value)| format!("{name} = {}", written(value))).collect();
    Some(format!("{{ {} }}", members.join(", ")))
}

#[cfg(test)]
mod tests;
