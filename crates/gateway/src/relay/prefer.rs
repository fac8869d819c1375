//! From what a body says to what routing decides by. `wire` and `routing` do not know each other; they meet here.

use std::borrow::Cow;
use std::sync::Arc;

use tidegate_core::Price;
use tidegate_routing::{
    Compression, MaxPrice, Modalities, Modality, Needs, Parameter, Partition, Preferences, Quantization, Searcher,
    Searchers, ServiceTier, Sort, Threshold,
};
use tidegate_wire::chat;
use tidegate_wire::envelope::{self, CutOffs, Envelope, Media, Provider, embeddings, images, rerank};
use tidegate_wire::json::Members;

use crate::sticky::{Conversation, Served};

/// Tokens of a picture or a page, roughly.
const PER_MEDIUM: u64 = 1_600;

/// What a caller wants, and what the request needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes<'e> {
    pub preferences: Preferences<'e>,
    pub needs: Needs,
    /// What the request goes on with, where it matters who serves it.
    pub conversation: Option<Conversation>,
    /// Who served the turn before it.
    pub home: Option<Served>,
    /// The model that `default` stands for.
    pub default: Option<Arc<str>>,
}

impl<'e> Wishes<'e> {
    /// Of a message whose body has so many bytes.
    pub fn of(envelope: &'e Envelope<'_>, size: usize) -> Self {
        Self { preferences: preferences(envelope), needs: needs(envelope, size), ..Self::default() }
    }

    /// Of a count: whoever would serve can count, and no prompt is too long for that.
    pub fn to_count(envelope: &'e Envelope<'_>) -> Self {
        Self { preferences: preferences(envelope), ..Self::default() }
    }

    /// Of a request for pictures.
    pub fn to_draw(request: &'e images::Request<'_>) -> Self {
        let shows = !request.references.is_empty();
        let needs = Needs {
            input_tokens: (request.prompt.len() as u64).div_ceil(3) + PER_MEDIUM * request.references.len() as u64,
            modalities: shows.then_some(Modality::Image).into_iter().collect(),
            ..Needs::default()
        };
        Self { preferences: preferred(request.provider.as_ref(), None), needs, ..Self::default() }
    }

    /// Of a request for embeddings. How long each of its inputs may be is the upstream's to say.
    pub fn to_embed(request: &'e embeddings::Request<'_>) -> Self {
        let shows = matches!(request.input.said, embeddings::Said::Parts { has_images: true, .. });
        let needs = Needs { modalities: shows.then_some(Modality::Image).into_iter().collect(), ..Needs::default() };
        Self { preferences: preferred(request.provider.as_ref(), None), needs, ..Self::default() }
    }

    /// Of a request that is about a model and whoever serves it, and nothing else.
    pub fn for_model(provider: Option<&'e Provider<'_>>) -> Self {
        Self { preferences: preferred(provider, None), ..Self::default() }
    }

    /// Of a request to rank documents. How long each of them may be is the upstream's to say.
    pub fn to_rank(request: &'e rerank::Request<'_>) -> Self {
        let shows = matches!(request.documents.said, rerank::Said::Pictures { .. });
        let needs = Needs { modalities: shows.then_some(Modality::Image).into_iter().collect(), ..Needs::default() };
        Self { preferences: preferred(request.provider.as_ref(), None), needs, ..Self::default() }
    }
}

fn preferences<'e>(envelope: &'e Envelope<'_>) -> Preferences<'e> {
    preferred(envelope.provider.as_deref(), envelope.route)
}

fn preferred<'e>(provider: Option<&'e Provider<'_>>, route: Option<envelope::Partition>) -> Preferences<'e> {
    let Some(provider) = provider else {
        return Preferences { partition: partition(route), ..Preferences::default() };
    };
    let list = |texts: &'e [Cow<'_, str>]| texts.iter().map(|text| Cow::Borrowed(&**text)).collect();
    Preferences {
        order: list(&provider.order),
        only: list(&provider.only),
        ignore: list(&provider.ignore),
        allow_fallbacks: provider.allow_fallbacks.unwrap_or(true),
        require_parameters: provider.require_parameters.unwrap_or(false),
        deny_collection: provider.data_collection.as_deref() == Some("deny"),
        zdr: provider.zdr.unwrap_or(false),
        distillable: provider.enforce_distillable_text.unwrap_or(false),
        quantizations: provider.quantizations.iter().filter_map(|level| Quantization::parse(level)).collect(),
        sort: provider.sort.as_deref().and_then(Sort::parse),
        partition: partition(provider.partition.or(route)),
        min_throughput: threshold(provider.preferred_min_throughput),
        max_latency: threshold(provider.preferred_max_latency),
        max_price: max_price(&provider.max_price),
    }
}

fn partition(said: Option<envelope::Partition>) -> Partition {
    match said {
        Some(envelope::Partition::None) => Partition::None,
        Some(envelope::Partition::Model) | None => Partition::Model,
    }
}

fn threshold(said: CutOffs) -> Threshold {
    let figure = |figure: Option<f64>| figure.map(|figure| figure as f32);
    Threshold { p50: figure(said.p50), p75: figure(said.p75), p90: figure(said.p90), p99: figure(said.p99) }
}

/// A limit beyond all amounts limits nothing. What is said per piece is kept per million, like the prices.
fn max_price(said: &envelope::MaxPrice<'_>) -> MaxPrice {
    let tokens = |text: &Option<Cow<'_, str>>| text.as_deref().and_then(|text| Price::parse(text).ok());
    let pieces = |text: &Option<Cow<'_, str>>| tokens(text).map(|price| Price(price.0.saturating_mul(1_000_000)));
    MaxPrice {
        prompt: tokens(&said.prompt),
        completion: tokens(&said.completion),
        request: pieces(&said.request),
        image: pieces(&said.image),
        audio: pieces(&said.audio),
    }
}

fn needs(envelope: &Envelope<'_>, size: usize) -> Needs {
    let (asked, traits, media) = (envelope.asked, envelope.traits, envelope.media);
    let parameters = [
        (Parameter::MaxTokens, envelope.max_tokens.is_some()),
        (Parameter::Temperature, asked.temperature),
        (Parameter::TopP, asked.top_p),
        (Parameter::TopK, asked.top_k),
        (Parameter::Stop, asked.stop),
        (Parameter::Tools, asked.tools),
        (Parameter::ToolChoice, asked.tool_choice),
        (Parameter::Reasoning, traits.thinking),
        (Parameter::Verbosity, traits.effort),
        (Parameter::StructuredOutputs, asked.structured),
        (Parameter::ContextManagement, asked.context_management),
        // What runs in a container of Anthropic's and what is kept there is with whoever has those.
        (Parameter::Container, asked.container || asked.vendor_code || traits.foreign_file),
        (Parameter::McpServers, asked.mcp_servers),
        (Parameter::Thread, asked.thread),
        (Parameter::InferenceGeo, asked.inference_geo),
        (Parameter::Diagnostics, asked.diagnostics),
    ];
    let shown = [(Modality::Image, media.images), (Modality::File, media.files)];
    // Every model takes text, so only the others are looked for.
    let modalities: Modalities = shown.into_iter().filter(|(_, count)| *count > 0).map(|(kind, _)| kind).collect();
    Needs {
        input_tokens: at_most(size, media),
        max_tokens: envelope.max_tokens,
        modalities,
        parameters: parameters
            .into_iter()
            .filter(|(_, holds)| *holds)
            .map(|(parameter, _)| parameter)
            .chain(beside(envelope))
            .collect(),
        has_tools: asked.tools,
        // A vendor's own tool that is still there at this point goes out as it is.
        searchers: asked.vendor_web.then(|| Searchers::NONE.with(Searcher::Anthropic)),
        only_searches: false,
        structured: asked.structured,
        service_tier: service_tier(envelope),
        compression: Compression::Never,
    }
}

/// Parameters that stand beside the request, for chat endpoints.
fn beside(envelope: &Envelope<'_>) -> impl Iterator<Item = Parameter> {
    let options = envelope.chat_options.and_then(Members::of).unwrap_or_default().0;
    // How closely a schema is to be followed is no parameter of its own.
    let options = options.into_iter().filter(|(name, value)| chat::wish(name, value).is_none());
    options.filter_map(|(name, _)| Parameter::parse(&name))
}

/// Few prompts of a body of this size have more tokens: where even so many fit, nobody has to count.
pub(super) fn at_most(size: usize, media: Media) -> u64 {
    let text = size.saturating_sub(media.bytes) as u64;
    text.div_ceil(3) + 64 + PER_MEDIUM * u64::from(media.images + media.files)
}

fn service_tier(envelope: &Envelope<'_>) -> ServiceTier {
    match envelope.service_tier.as_deref() {
        Some("default" | "standard" | "standard_only") => ServiceTier::Default,
        Some("flex") => ServiceTier::Flex,
        Some("priority" | "fast") => ServiceTier::Priority,
        // Any other word means what is usual, and then the speed decides.
        _ if envelope.is_fast => ServiceTier::Priority,
        _ => ServiceTier::Auto,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire::envelope::{Brand, Purpose, read};

    fn with(members: &str, look: impl FnOnce(&Wishes<'_>)) {
        let body = format!(r#"{{"model":"a/m","messages":[{{"role":"user","content":"hi"}}]{members}}}"#);
        let brand = Brand { name: "tidegate", aliases: &[] };
        let envelope = read(body.as_bytes(), brand, Purpose::Generate).map_err(|violation| violation.message);
        look(&Wishes::of(&envelope.unwrap(), body.len()));
    }

    #[test]
    fn a_form_beside_a_request_is_a_parameter_and_a_wish_for_it_is_none() {
        for (format, is_parameter) in [
            (r#"{"type":"json_object"}"#, true),
            (r#"{"type":"json_schema","json_schema":{"strict":true}}"#, false),
            (r#"{"type":"json_schema","json_schema":{"strict":true,"schema":{}}}"#, true),
        ] {
            with(&format!(r#","chat_options":{{"response_format":{format}}}"#), |wishes| {
                assert_eq!(wishes.needs.parameters.contains(Parameter::ResponseFormat), is_parameter, "{format}");
            });
            let body = format!(r#"{{"chat_options":{{"response_format":{format}}}}}"#);
            assert_eq!(envelope::chat_options(body.as_bytes()).is_empty(), !is_parameter, "{format}");
        }
    }

    #[test]
    fn every_wish_arrives() {
        with("", |wishes| assert_eq!(wishes.preferences, Preferences::default()));
        with(r#","provider":null,"route":null"#, |wishes| assert_eq!(wishes.preferences, Preferences::default()));
        let provider = r#","provider":{"order":["a"],"only":["b"],"ignore":["c"],"allow_fallbacks":false,
            "require_parameters":true,"data_collection":"deny","zdr":true,"enforce_distillable_text":true,
            "quantizations":["fp8","int4"],"sort":{"by":"latency","partition":"none"},
            "preferred_min_throughput":40,"preferred_max_latency":{"p50":null,"p90":3,"p99":8.5},
            "max_price":{"prompt":"3","completion":15.5,"request":0.001,"image":"0.002","audio":1e-6}}"#;
        let list = |entry: &'static str| vec![Cow::Borrowed(entry)];
        with(provider, |wishes| {
            let expected = Preferences {
                order: list("a"),
                only: list("b"),
                ignore: list("c"),
                allow_fallbacks: false,
                require_parameters: true,
                deny_collection: true,
                zdr: true,
                distillable: true,
                quantizations: [Quantization::Fp8, Quantization::Int4].into_iter().collect(),
                sort: Some(Sort::Latency),
                partition: Partition::None,
                min_throughput: Threshold { p50: Some(40.0), ..Threshold::default() },
                max_latency: Threshold { p90: Some(3.0), p99: Some(8.5), ..Threshold::default() },
                // Per million tokens, and per million pieces: nano-dollars.
                max_price: MaxPrice {
                    prompt: Some(Price(3_000_000_000)),
                    completion: Some(Price(15_500_000_000)),
                    request: Some(Price(1_000_000_000_000)),
                    image: Some(Price(2_000_000_000_000)),
                    audio: Some(Price(1_000_000_000)),
                },
            };
            assert_eq!(wishes.preferences, expected);
        });
        for (members, partition) in [
            (r#","route":"sort""#, Partition::None),
            (r#","route":"fallback""#, Partition::Model),
            (r#","route":"sort","provider":{"sort":{"partition":"model"}}"#, Partition::Model),
            (r#","route":"sort","provider":{"sort":"price"}"#, Partition::None),
        ] {
            with(members, |wishes| assert_eq!(wishes.preferences.partition, partition, "{members}"));
        }
    }

    #[test]
    fn needs_are_what_the_body_holds() {
        for (members, tier) in [
            ("", ServiceTier::Auto),
            (r#","service_tier":"auto""#, ServiceTier::Auto),
            (r#","service_tier":"scale""#, ServiceTier::Auto),
            (r#","service_tier":"standard_only""#, ServiceTier::Default),
            (r#","service_tier":"flex""#, ServiceTier::Flex),
            (r#","service_tier":"priority""#, ServiceTier::Priority),
            (r#","speed":"fast""#, ServiceTier::Priority),
            (r#","speed":"fast","service_tier":"flex""#, ServiceTier::Flex),
            (r#","speed":"standard""#, ServiceTier::Auto),
        ] {
            with(members, |wishes| assert_eq!(wishes.needs.service_tier, tier, "{members}"));
        }
        let tool = r#"{"name":"f","input_schema":{"type":"object"}}"#;
        let members = format!(
            r#","max_tokens":9,"temperature":1,"top_k":3,"top_p":null,"stop_sequences":["x"],"tools":[{tool}],
            "thinking":{{"type":"adaptive"}},"output_config":{{"effort":"low","format":{{"type":"json_schema","schema":{{}}}}}},
            "mcp_servers":[],"container":"c","inference_geo":"us","thread":{{"type":"create"}}"#
        );
        with(&members, |wishes| {
            let named: Vec<&str> = wishes.needs.parameters.iter().map(Parameter::as_str).collect();
            let expected = [
                "container",
                "inference_geo",
                "max_tokens",
                "reasoning",
                "stop",
                "structured_outputs",
                "temperature",
                "thread",
                "tools",
                "top_k",
                "verbosity",
            ];
            assert_eq!(named, expected);
            let Needs { max_tokens, has_tools, structured, modalities, .. } = wishes.needs;
            assert_eq!((max_tokens, has_tools, structured, modalities.is_empty()), (Some(9), true, true, true));
        });
        let data = "A".repeat(90_000);
        let source = format!(r#"{{"type":"base64","media_type":"image/png","data":"{data}"}}"#);
        let shows = |block: &str| format!(r#","messages ":[],"system":[{{"type":"text","text":"s"}},{block}]"#);
        for (block, expected) in [
            (format!(r#"{{"type":"image","source":{source}}}"#), vec![Modality::Image]),
            (format!(r#"{{"type":"document","source":{source}}}"#), vec![Modality::File]),
            (r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"x"}}"#.to_owned(), vec![]),
            (
                format!(
                    r#"{{"type":"tool_result","tool_use_id":"t","content":[{{"type":"image","source":{source}}}]}}"#
                ),
                vec![Modality::Image],
            ),
        ] {
            with(&shows(&block), |wishes| {
                assert_eq!(wishes.needs.modalities.iter().collect::<Vec<_>>(), expected, "{block:.60}");
                assert!(wishes.needs.input_tokens < 2_000, "a picture is not counted by its bytes");
            });
        }
    }
}
