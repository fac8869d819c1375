//! What routing must know of an endpoint and a model, from what is written of them.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use serde_json::{Map, Value};
use tidegate_core::{Price, Timestamp};
use tidegate_gateway::files::Limits;
use tidegate_gateway::snapshot::{Auto, Routing, Tools};
use tidegate_gateway::{SERVER_TOOLS, one_spelling};
use tidegate_providers::Protocol;
use tidegate_providers::translate::card::{ReasoningSwitch, Sampling, Structured};
use tidegate_providers::translate::{Card, beside};
use tidegate_routing::plan::Policy;
use tidegate_routing::{Modalities, Modality, Parameter, Parameters, Quantization, Searcher, Sort, Tier};
use tidegate_store::files::Room;
use tidegate_wire::chat::OPTION_NAMES;

use super::lines::Lines;
use super::{Source, nearest, raw, sandbox, search};

const MOST_FILE_BYTES: usize = 256 << 20;
const PERCENT: std::ops::RangeInclusive<f64> = 0.0..=100.0;

/// What is wrong with a key of a model, and where in its table.
#[derive(Debug)]
pub struct Mistake {
    pub path: String,
    problem: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.path, self.problem)
    }
}

impl std::error::Error for Mistake {}

/// What is known of an endpoint's card, and what the file says otherwise.
pub fn card(index: usize, known: &Card, said: &Map<String, Value>) -> Result<Card, Mistake> {
    known.with(said).map_err(|error| {
        let is_wrong = |(name, value): &(&String, &Value)| {
            known.with(&Map::from_iter([((*name).clone(), (*value).clone())])).is_err()
        };
        let member = said.iter().find(is_wrong).map(|(name, _)| format!(".{name}")).unwrap_or_default();
        Mistake { path: format!("endpoints[{index}].card{member}"), problem: error.to_string() }
    })
}

/// The facts of one endpoint.
pub struct Facts {
    pub tag: Arc<str>,
    pub tier: Tier,
    pub quantization: Quantization,
    pub parameters: Parameters,
    pub modalities: Modalities,
    pub searcher: Searcher,
    pub shadow_price: Option<Price>,
    pub quality: Option<f32>,
}

/// How an endpoint is spoken to, as far as its facts depend on it.
#[derive(Clone, Copy)]
pub struct Spoken {
    pub protocol: Protocol,
    /// Whether the provider is known to search the web.
    pub searches: bool,
    /// It is Anthropic that runs it, or a relay to Anthropic: it has files, containers and servers of tools beside the models.
    pub is_anthropics_own: bool,
    /// Conversations are held there.
    pub holds_threads: bool,
}

pub fn facts(
    index: usize,
    raw: &raw::Endpoint,
    model: &raw::Model,
    provider: &str,
    spoken: Spoken,
    card: &Card,
) -> Result<Facts, Mistake> {
    let Spoken { protocol, searches, is_anthropics_own, .. } = spoken;
    let mistake = |key: &str, problem: String| Mistake { path: format!("endpoints[{index}].{key}"), problem };
    let tier = match raw.tier.as_deref() {
        None => Tier::Default,
        Some(name) => Tier::parse(name)
            .ok_or_else(|| mistake("tier", format!("{name:?} is none of {}", Tier::NAMES.join(", "))))?,
    };
    // Who writes the whole tag means the same.
    let said =
        raw.tag.as_deref().map(|tag| tag.strip_prefix(provider).and_then(|t| t.strip_prefix('/')).unwrap_or(tag));
    if let Some(suffix) = said {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if suffix.is_empty() || !suffix.bytes().all(fits) {
            return Err(mistake("tag", format!("{suffix:?} must be lower-case letters, digits and dashes")));
        }
    }
    let quantization = match raw.quantization.as_deref() {
        None => Quantization::Unknown,
        Some(name) => Quantization::parse(name).ok_or_else(|| {
            let known: Vec<&str> = Quantization::ALL.iter().map(|level| level.as_str()).collect();
            mistake("quantization", format!("{name:?} is none of {}", known.join(", ")))
        })?,
    };
    let named = |name: &String| {
        Parameter::parse(name).ok_or_else(|| {
            let known: Vec<&str> = Parameter::ALL.iter().map(|parameter| parameter.as_str()).collect();
            let hint = nearest(name, &known).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            mistake("supported_parameters", format!("{name:?} is not a parameter{hint}"))
        })
    };
    let parameters = match &raw.supported_parameters {
        // Nobody who lists what a model takes thinks of the files that are kept beside it.
        Some(names) if is_anthropics_own => {
            names.iter().map(named).collect::<Result<Parameters, _>>()?.with(Parameter::Container)
        }
        Some(names) => names.iter().map(named).collect::<Result<Parameters, _>>()?,
        None => parameters(card, spoken),
    };
    let searcher = searcher(raw, provider, protocol, searches).map_err(|problem| mistake("native_tools", problem))?;
    let shadow_price = raw.shadow_price.as_ref().map(|price| Price::parse(price.text())).transpose();
    Ok(Facts {
        tag: match said.or_else(|| tier.name()) {
            Some(suffix) => format!("{provider}/{suffix}").into(),
            None => provider.into(),
        },
        tier,
        quantization,
        parameters,
        modalities: modalities(&model.input_modalities, card),
        searcher,
        shadow_price: shadow_price.map_err(|error| mistake("shadow_price", error.to_string()))?,
        quality: raw.quality.map(|quality| quality.score as f32),
    })
}

/// How the vendor searches the web here, where it does. `known`: what is known of the provider.
fn searcher(raw: &raw::Endpoint, provider: &str, protocol: Protocol, known: bool) -> Result<Searcher, String> {
    const NAME: &str = "web_search";
    // An unknown price is not zero: who searches at one says so, if it is with 0.
    let is_priced = raw.pricing.as_ref().is_none_or(|pricing| pricing.web_search.is_some());
    let searches = match &raw.native_tools {
        None => known && (is_priced || protocol == Protocol::Chat),
        Some(names) if !names.is_empty() && !is_priced && protocol != Protocol::Chat => {
            return Err(format!("{NAME} needs a price: write {NAME} in pricing, 0 where it is free"));
        }
        Some(names) => match names.iter().find(|name| *name != NAME) {
            Some(name) => return Err(format!("{name:?} is not {NAME}, the only one there is")),
            None => !names.is_empty(),
        },
    };
    match protocol {
        _ if !searches => Ok(Searcher::None),
        Protocol::Messages => Ok(Searcher::Anthropic),
        Protocol::Responses if provider == "xai" => Ok(Searcher::Xai),
        Protocol::Responses => Ok(Searcher::Openai),
        Protocol::Gemini => Ok(Searcher::Google),
        // Models that search in this protocol do so whenever they answer.
        Protocol::Chat => Ok(Searcher::Itself),
        Protocol::Converse | Protocol::Cohere => {
            Err(format!("{NAME} cannot be asked for in the protocol {}", protocol.as_str()))
        }
    }
}

/// What an endpoint takes, as far as its card says it. One in the Messages format gets a request as it came.
fn parameters(card: &Card, Spoken { protocol, is_anthropics_own, holds_threads, .. }: Spoken) -> Parameters {
    let is_native = protocol == Protocol::Messages;
    let samples = card.sampling != Sampling::None;
    // A model in the Messages format is asked to think in that format's own words.
    let thinks = card.reasoning != ReasoningSwitch::None
        || !card.efforts.is_empty()
        || card.thinking_modes.as_ref().is_some_and(|modes| !modes.is_empty());
    let all = [
        (Parameter::Container, is_anthropics_own),
        (Parameter::ContextManagement, is_native),
        (Parameter::Diagnostics, is_native),
        (Parameter::IncludeReasoning, thinks),
        (Parameter::InferenceGeo, is_native),
        (Parameter::MaxTokens, true),
        (Parameter::McpServers, is_anthropics_own),
        (Parameter::ParallelToolCalls, is_native || card.parallel_flag),
        (Parameter::Reasoning, thinks),
        (Parameter::ResponseFormat, is_native || card.structured != Structured::None),
        (Parameter::Stop, true),
        (Parameter::StructuredOutputs, is_native || card.structured == Structured::JsonSchema),
        (Parameter::Temperature, samples),
        (Parameter::Thread, holds_threads),
        (Parameter::ToolChoice, true),
        (Parameter::Tools, true),
        (Parameter::TopK, samples && (is_native || card.top_k)),
        (Parameter::TopP, samples),
        (Parameter::Verbosity, if is_native { card.effort } else { !card.efforts.is_empty() }),
    ];
    let beside = OPTION_NAMES.iter().filter(|name| beside::word(protocol, card, name).is_some());
    let beside = beside.filter_map(|name| Parameter::parse(name));
    all.into_iter().filter(|(_, taken)| *taken).map(|(parameter, _)| parameter).chain(beside).collect()
}

fn modalities(names: &[String], card: &Card) -> Modalities {
    let named: Modalities = names.iter().filter_map(|name| Modality::parse(name)).collect();
    let set = |all: Modalities, modality, takes| if takes { all.with(modality) } else { all.without(modality) };
    set(set(named.with(Modality::Text), Modality::Image, card.images), Modality::File, card.pdf)
}

/// Midnight of a day such as `2026-05-31`, in UTC.
pub fn released(text: &str) -> Result<Timestamp, Mistake> {
    let instant = || {
        let day: jiff::civil::Date = text.parse().ok()?;
        Some(Timestamp(day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond()))
    };
    let problem = || format!("{text:?} is not a day such as 2026-05-31");
    instant().ok_or_else(|| Mistake { path: "released_at".to_owned(), problem: problem() })
}

pub fn coding_percentile(model: &raw::Model) -> Result<Option<f64>, Mistake> {
    let score = model.benchmarks.and_then(|benchmarks| benchmarks.coding_percentile);
    match score {
        Some(score) if !PERCENT.contains(&score) => Err(Mistake {
            path: "benchmarks.coding_percentile".to_owned(),
            problem: "must be from 0 to 100".to_owned(),
        }),
        score => Ok(score),
    }
}

/// How models are chosen, and where that is not said, as elsewhere.
fn chosen(raw: &raw::Auto, elsewhere: &Auto) -> Auto {
    let candidates = if raw.candidates.is_empty() { &elsewhere.candidates } else { &raw.candidates };
    let ranking = if raw.ranking.is_empty() { &elsewhere.ranking } else { &raw.ranking };
    Auto { candidates: candidates.clone(), ranking: ranking.clone() }
}

pub fn routing(raw: &raw::Routing, lines: &Lines) -> anyhow::Result<Routing> {
    let mistake = |key: &str, problem: String| lines.named(key, anyhow::anyhow!("{key}: {problem}"));
    let sort = |name: &str| {
        let problem = || format!("{name:?} is none of {}", Sort::NAMES.join(", "));
        Sort::parse(name).ok_or_else(|| mistake("routing.default_sort", problem()))
    };
    let [input, output] = raw.price_blend;
    if ![input, output].iter().all(|part| (0.0..=1e6).contains(part)) || input + output == 0.0 {
        return Err(mistake("routing.price_blend", "must be two numbers of at least 0, and not both 0".to_owned()));
    }
    if let Some((model, _)) = raw.coding_percentiles.iter().find(|(_, score)| !PERCENT.contains(score)) {
        return Err(mistake("routing.coding_percentiles", format!("{model}: must be from 0 to 100")));
    }
    let default_sort = raw.default_sort.as_deref().map(sort).transpose()?;
    let header = |name: &String| {
        let problem = |_| mistake("routing.session_headers", format!("{name:?} is not the name of a header"));
        HeaderName::from_bytes(name.as_bytes()).map_err(problem)
    };
    let session_headers = raw.session_headers.iter().map(header).collect::<Result<_, _>>()?;
    let earlier = Auto { candidates: raw.auto_candidates.clone(), ranking: raw.auto_ranking.clone() };
    let auto = chosen(&raw.auto, &earlier);
    let policy = Policy { blend: (input, output), default_sort };
    Ok(Routing {
        seed: raw.seed,
        health: raw.health,
        repeat: raw.repeat,
        auto_beta: chosen(&raw.auto_beta, &auto),
        auto,
        bodybuilder: raw.bodybuilder.model.clone(),
        coding_percentiles: raw.coding_percentiles.clone(),
        session_headers,
        policy,
    })
}

pub fn tools(raw: &raw::Tools, lines: &Lines, source: &Source) -> anyhow::Result<Tools> {
    let mistake = |key: &str, problem: &str| lines.named(key, anyhow::anyhow!("{key}: {problem}"));
    if raw.max_steps == 0 || raw.parallelism == 0 {
        let key = if raw.max_steps == 0 { "tools.max_steps" } else { "tools.parallelism" };
        return Err(mistake(key, "must be at least 1"));
    }
    if raw.result_budget == 0 {
        return Err(mistake("tools.result_budget", "must be at least 1"));
    }
    if !(1_000..=3_600_000).contains(&raw.loop_deadline_ms) {
        return Err(mistake("tools.loop_deadline_ms", "must be between 1000 and 3600000"));
    }
    let mut disabled = Vec::with_capacity(raw.disabled.len());
    for name in &raw.disabled {
        let name = one_spelling(name);
        if !SERVER_TOOLS.contains(&name) {
            let hint = nearest(name, &SERVER_TOOLS).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return Err(mistake("tools.disabled", &format!("{name:?} is not a tool{hint}")));
        }
        disabled.push(name.to_owned());
    }
    Ok(Tools {
        disabled,
        max_steps: raw.max_steps,
        loop_deadline: Duration::from_millis(raw.loop_deadline_ms),
        parallelism: raw.parallelism,
        result_budget: raw.result_budget,
        generic_result_block: raw.generic_result_block,
        search: search::read(&raw.web_search, lines, source)?,
        image_model: raw.image_generation.default_model.clone(),
        sandbox: sandbox::read(&raw.sandbox, lines, source)?,
    })
}

pub fn files(raw: &raw::Files, lines: &Lines) -> anyhow::Result<Limits> {
    let mistake = |key: &str, problem: &str| lines.named(key, anyhow::anyhow!("{key}: {problem}"));
    if !(1..=MOST_FILE_BYTES).contains(&raw.max_file_bytes) {
        return Err(mistake("files.max_file_bytes", "must be between 1 and 268435456"));
    }
    let room = Room { files: raw.max_workspace_files, bytes: raw.max_workspace_bytes };
    Ok(Limits { file_bytes: raw.max_file_bytes, room })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_providers::translate::card::Level;

    #[test]
    fn what_a_model_takes_is_what_its_card_says() {
        let taken = |card: &Card, protocol, is_anthropics_own| -> Vec<&str> {
            let spoken = Spoken { protocol, searches: false, is_anthropics_own, holds_threads: is_anthropics_own };
            parameters(card, spoken).iter().map(|parameter| parameter.as_str()).collect()
        };
        let takes = |card: &Card, protocol| taken(card, protocol, protocol == Protocol::Messages);
        let plain = takes(&Card::default(), Protocol::Chat);
        assert!(plain.contains(&"temperature") && !plain.contains(&"reasoning") && !plain.contains(&"top_k"));
        let card = Card { sampling: Sampling::None, efforts: vec![Level::Low], top_k: true, ..Card::default() };
        let thinking = takes(&card, Protocol::Chat);
        assert!(thinking.contains(&"reasoning") && !thinking.contains(&"temperature") && !thinking.contains(&"top_k"));
        assert!(thinking.contains(&"verbosity") && !thinking.contains(&"mcp_servers"));
        assert!(!thinking.contains(&"thread"), "nobody else holds conversations");
        let native = takes(&Card::default(), Protocol::Messages);
        assert!(
            native.contains(&"mcp_servers")
                && native.contains(&"thread")
                && native.contains(&"structured_outputs")
                && native.is_sorted()
        );
        let resold = taken(&Card::default(), Protocol::Messages, false);
        let lacks: Vec<&str> = native.into_iter().filter(|name| !resold.contains(name)).collect();
        assert_eq!(
            lacks,
            ["container", "mcp_servers", "thread"],
            "who resells the models has not what stands beside them"
        );
    }

    #[test]
    fn a_day_is_its_midnight() {
        // 2026-05-31 is 20604 days after the epoch.
        assert_eq!(released("2026-05-31").unwrap(), Timestamp(20_604 * 86_400_000));
        assert!(released("2026-02-30").is_err() && released("soon").is_err());
    }
}
