//! What is told of a call of a model, one attribute after the other.

use serde_json::{Value, json};
use tidegate_core::exchange::Served;
use tidegate_core::{Api, Exchange, GenerationId, Money};

use super::span::{Attribute, cut, message, own_words, part, parts};
use super::{Maker, Said, Sight};

/// What an attribute is called, and how it begins in OTLP's JSON with each of its values: its name with all around it is
/// one piece there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    pub name: &'static str,
    /// The brand stands before it; how it begins follows on that.
    pub is_ours: bool,
    pub text: &'static str,
    pub texts: &'static str,
    pub number: &'static str,
    pub decimal: &'static str,
    /// With their end.
    pub yes: &'static str,
    pub no: &'static str,
    pub value: &'static str,
}

macro_rules! name {
    ($is_ours:literal, $before:literal, $name:literal) => {
        $crate::broadcast::attribute::Name {
            name: $name,
            is_ours: $is_ours,
            text: concat!($before, $name, r#"","value":{"stringValue":""#),
            texts: concat!($before, $name, r#"","value":{"arrayValue":{"values":["#),
            number: concat!($before, $name, r#"","value":{"intValue":""#),
            decimal: concat!($before, $name, r#"","value":{"doubleValue":"#),
            yes: concat!($before, $name, r#"","value":{"boolValue":true}}"#),
            no: concat!($before, $name, r#"","value":{"boolValue":false}}"#),
            value: concat!($before, $name, r#"","value":"#),
        }
    };
}

macro_rules! theirs {
    ($name:literal) => {
        name!(false, r#",{"key":""#, $name)
    };
}

/// Ours alone, which begin with the brand.
macro_rules! ours {
    ($name:literal) => {
        name!(true, ".", $name)
    };
}

/// Takes attributes one after the other, in whichever form it needs them.
pub(super) trait Sink {
    fn text(&mut self, name: Name, text: &str);
    fn id(&mut self, name: Name, id: &GenerationId);
    fn texts(&mut self, name: Name, texts: &[&str]);
    fn number(&mut self, name: Name, number: u64);
    fn decimal(&mut self, name: Name, number: f64);
    fn flag(&mut self, name: Name, flag: bool);
    fn value(&mut self, name: Name, value: &Value);

    /// Nothing is said of what is empty.
    #[inline(always)]
    fn some_text(&mut self, name: Name, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.text(name, text);
        }
    }

    #[inline(always)]
    fn dollars(&mut self, name: Name, money: Option<Money>) {
        if let Some(money) = money {
            self.decimal(name, money.0 as f64 / 1e9);
        }
    }
}

/// Keeps them as they are.
struct Kept<'a> {
    brand: &'a str,
    made: Vec<Attribute>,
}

impl Kept<'_> {
    fn put(&mut self, name: Name, value: Value) {
        let Name { name, is_ours, .. } = name;
        let name = if is_ours { format!("{}.{name}", self.brand).into() } else { name.into() };
        self.made.push(Attribute { name, value });
    }
}

impl Sink for Kept<'_> {
    fn text(&mut self, name: Name, text: &str) {
        self.put(name, json!(text));
    }

    fn id(&mut self, name: Name, id: &GenerationId) {
        self.put(name, json!(id.as_str()));
    }

    fn texts(&mut self, name: Name, texts: &[&str]) {
        self.put(name, json!(texts));
    }

    fn number(&mut self, name: Name, number: u64) {
        self.put(name, json!(number));
    }

    fn decimal(&mut self, name: Name, number: f64) {
        self.put(name, json!(number));
    }

    fn flag(&mut self, name: Name, flag: bool) {
        self.put(name, json!(flag));
    }

    fn value(&mut self, name: Name, value: &Value) {
        self.put(name, value.clone());
    }
}

pub(super) fn attributes(exchange: &Exchange, said: &Said, sight: Sight, maker: Maker<'_>) -> Vec<Attribute> {
    let mut kept = Kept { brand: &maker.service.brand, made: Vec::with_capacity(48) };
    tell(exchange, said, sight, maker, &mut kept);
    kept.made.extend(own_words(said));
    kept.made
}

/// Everything that is told of a call of a model, but for what the caller said in words of its own.
pub(super) fn tell(exchange: &Exchange, said: &Said, sight: Sight, maker: Maker<'_>, to: &mut impl Sink) {
    let usage = &exchange.usage;
    let cache_write = usage.cache_write + usage.cache_write_1h;
    let input = usage.input + usage.cache_read + cache_write;
    let request = said.request.as_ref();
    let asked = |name: &str| request.and_then(|request| request.get(name)).filter(|value| !value.is_null());
    let stop = exchange.stop_reason.as_deref();
    let operation = match exchange.api {
        Api::Embeddings | Api::Rerank | Api::Speech | Api::Transcriptions => exchange.api.as_str(),
        Api::Messages | Api::Chat | Api::Responses | Api::Images => "chat",
    };
    to.text(theirs!("gen_ai.operation.name"), operation);
    let served = maker.served(exchange);
    let provider = served.map_or(&*exchange.provider, |served| &served.provider);
    to.some_text(theirs!("gen_ai.provider.name"), Some(provider));
    to.some_text(theirs!("gen_ai.system"), Some(provider));
    // Where nobody may hear what was said, the record has how it was asked for.
    let noted = exchange.asked.as_deref().filter(|_| request.is_none());
    match (asked("model"), noted.map(|noted| &*noted.model).filter(|model| !model.is_empty())) {
        (Some(model), _) => to.value(theirs!("gen_ai.request.model"), model),
        (None, Some(model)) => to.text(theirs!("gen_ai.request.model"), model),
        (None, None) => to.some_text(theirs!("gen_ai.request.model"), Some(&exchange.model)),
    }
    to.some_text(theirs!("gen_ai.response.model"), Some(&exchange.model));
    to.id(theirs!("gen_ai.response.id"), &exchange.id);
    to.some_text(theirs!("gen_ai.conversation.id"), exchange.session.as_deref());
    to.some_text(theirs!("session.id"), exchange.session.as_deref());
    to.some_text(theirs!("user.id"), exchange.user.as_deref());
    if request.is_some() {
        for (name, member) in [
            (theirs!("gen_ai.request.max_tokens"), "max_tokens"),
            (theirs!("gen_ai.request.temperature"), "temperature"),
            (theirs!("gen_ai.request.top_p"), "top_p"),
            (theirs!("gen_ai.request.top_k"), "top_k"),
        ] {
            if let Some(value) = asked(member) {
                to.value(name, value);
            }
        }
        // It may say anything. The request can be known where others may hear what was said in it.
        if let Some(value) = asked("stop_sequences").filter(|_| !sight.is_private) {
            to.value(theirs!("gen_ai.request.stop_sequences"), value);
        }
    }
    if let Some(noted) = noted {
        if let Some(most) = noted.max_tokens {
            to.number(theirs!("gen_ai.request.max_tokens"), most);
        }
        for (name, number) in [
            (theirs!("gen_ai.request.temperature"), &noted.temperature),
            (theirs!("gen_ai.request.top_p"), &noted.top_p),
            (theirs!("gen_ai.request.top_k"), &noted.top_k),
        ] {
            if let Some(number) = number.as_deref().and_then(|number| serde_json::from_str::<Value>(number).ok()) {
                to.value(name, &number);
            }
        }
    }
    to.flag(theirs!("gen_ai.request.stream"), exchange.streamed);
    if let Some(stop) = stop {
        to.texts(theirs!("gen_ai.response.finish_reasons"), &[stop]);
        to.text(theirs!("gen_ai.response.finish_reason"), stop);
    }
    to.number(theirs!("gen_ai.usage.input_tokens"), input);
    to.number(theirs!("gen_ai.usage.output_tokens"), usage.output);
    to.number(theirs!("gen_ai.usage.prompt_tokens"), input);
    to.number(theirs!("gen_ai.usage.completion_tokens"), usage.output);
    to.number(theirs!("gen_ai.usage.total_tokens"), input + usage.output);
    to.number(theirs!("gen_ai.usage.cache_read.input_tokens"), usage.cache_read);
    to.number(theirs!("gen_ai.usage.cache_creation.input_tokens"), cache_write);
    to.number(theirs!("gen_ai.usage.reasoning.output_tokens"), usage.thinking);
    to.dollars(theirs!("gen_ai.usage.cost"), maker.paid(exchange));
    if let Some(first) = exchange.first_content_ms.filter(|_| exchange.streamed) {
        to.decimal(theirs!("gen_ai.response.time_to_first_chunk"), f64::from(first) / 1000.0);
    }
    to.some_text(theirs!("error.type"), exchange.error_type.as_deref());
    to.number(theirs!("http.response.status_code"), exchange.status.into());
    if let Some((host, port)) = served.and_then(Served::server) {
        to.text(theirs!("server.address"), host);
        to.number(theirs!("server.port"), port);
    }
    let follows_schema = |request: &Value| {
        request.pointer("/output_config/format/type").or_else(|| request.get("output_format")).is_some()
    };
    if let Some(is_structured) = request.map(follows_schema).or_else(|| noted.map(|noted| noted.is_structured)) {
        let output = match exchange.api {
            Api::Images => Some("image"),
            // There is no word for it.
            Api::Embeddings | Api::Rerank => None,
            Api::Speech => Some("speech"),
            Api::Transcriptions => Some("text"),
            Api::Messages | Api::Chat | Api::Responses if is_structured => Some("json"),
            Api::Messages | Api::Chat | Api::Responses => Some("text"),
        };
        to.some_text(theirs!("gen_ai.output.type"), output);
    }
    if let Some(request) = request.filter(|_| !sight.is_private) {
        if let Some(system) = request.get("system") {
            to.text(theirs!("gen_ai.system_instructions"), &cut(json!(parts(system)).to_string()));
        }
        let messages: Vec<Value> = request["messages"].as_array().into_iter().flatten().map(message).collect();
        to.text(theirs!("gen_ai.input.messages"), &cut(json!(messages).to_string()));
        if let Some(tools) = request.get("tools").filter(|tools| tools.is_array()) {
            to.text(theirs!("gen_ai.tool.definitions"), &cut(tools.to_string()));
        }
        if !said.answer.is_empty() {
            let answer = json!([{
                "role": "assistant",
                "parts": said.answer.iter().map(part).collect::<Vec<_>>(),
                "finish_reason": stop,
            }]);
            to.text(theirs!("gen_ai.output.messages"), &cut(answer.to_string()));
        }
    }
    to.id(ours!("generation_id"), &exchange.id);
    to.id(ours!("request_id"), exchange.parent.as_ref().unwrap_or(&exchange.id));
    to.number(ours!("attempt"), exchange.attempts.len() as u64);
    to.some_text(ours!("strategy"), served.map(|served| &*served.strategy));
    to.flag(ours!("is_byok"), exchange.is_byok);
    to.flag(ours!("cache.hit"), exchange.cache_source.is_some());
    to.some_text(ours!("router"), exchange.router.as_deref());
    to.some_text(ours!("preset"), exchange.preset.as_deref());
    if sight.tells.cost {
        to.dollars(ours!("cost.total"), maker.paid(exchange));
        to.dollars(ours!("cost.prompt"), served.and_then(|served| served.prompt));
        to.dollars(ours!("cost.completion"), served.and_then(|served| served.completion));
        to.dollars(ours!("cost.tool"), served.and_then(|served| served.tools));
        to.dollars(ours!("cost.cache_discount"), exchange.cache_discount);
        to.dollars(ours!("cost.upstream"), exchange.upstream_cost);
        to.flag(ours!("cost.is_byok"), exchange.is_byok);
    }
    if sight.tells.identity {
        to.some_text(ours!("identity.key_name"), Some(maker.key_name));
        to.text(ours!("identity.key_hash"), &exchange.key.to_hex());
        to.some_text(ours!("identity.creator_user_id"), maker.creator);
        to.some_text(ours!("identity.organization_id"), Some(&exchange.organisation.0));
        to.some_text(ours!("identity.workspace_id"), Some(&exchange.workspace.0));
    }
    if sight.tells.context {
        to.some_text(ours!("request.title"), exchange.title.as_deref());
        to.some_text(ours!("request.referer"), exchange.referer.as_deref());
        to.some_text(ours!("request.user_agent"), exchange.user_agent.as_deref());
        to.some_text(ours!("request.preset_id"), exchange.preset.as_deref());
        to.some_text(ours!("request.region"), Some(&maker.service.region));
        to.number(ours!("request.attempts"), exchange.attempts.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{KeyHash, OrganisationId, Timestamp, WorkspaceId};

    use super::super::{Service, Tells};
    use super::*;

    #[test]
    fn stop_sequences_are_told_to_those_alone_who_may_hear_what_was_said() {
        let (at, service) = (Timestamp(0), Service::default());
        let (organisation, workspace) = (OrganisationId("o".into()), WorkspaceId("w".into()));
        let exchange = Exchange::new(GenerationId::new(at), organisation, workspace, KeyHash::of(b"k"), "m".into(), at);
        // Another destination hears what was said, so the request is known.
        let request = json!({"model": "m", "max_tokens": 9, "stop_sequences": ["secret"], "messages": []});
        let said = Said { request: Some(request), ..Said::default() };
        let maker = Maker { key_name: "k", creator: None, service: &service, served: None };
        let told = |is_private| {
            let told = attributes(&exchange, &said, Sight { is_private, tells: Tells::default() }, maker);
            let value = |name: &str| told.iter().find(|told| told.name == name).map(|told| told.value.clone());
            (value("gen_ai.request.max_tokens"), value("gen_ai.request.stop_sequences"))
        };
        assert_eq!(told(true), (Some(json!(9)), None));
        assert_eq!(told(false), (Some(json!(9)), Some(json!(["secret"]))));
    }
}
