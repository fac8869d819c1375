//! A request of which there is nothing special to tell, which nearly all are, as OTLP's JSON at once: it is told while its
//! caller waits. The same to the byte as what goes the long way.

use std::ops::Range;

use serde_json::Value;
use tidegate_core::{Exchange, GenerationId, Outcome, json};

use super::attribute::{Name, Sink, tell};
use super::otlp::{Json, SCOPE, any_value};
use super::span::{NANOS_PER_MILLI, SpanKind, digits};
use super::{Destination, Kind, Maker, Said, Shape, Sight};

/// Nearly always enough where nobody hears what was said, so that it need not grow.
const USUAL: usize = 4_096;

const _: () = assert!(SpanKind::Client as i32 == 3, "it is part of a piece below");

/// Appends one element of a request of export; nothing where there is more to it than one span without any events.
pub(super) fn told(
    to: &mut Vec<u8>,
    destination: &Destination,
    sight: Sight,
    exchange: &Exchange,
    said: &Said,
    maker: Maker<'_>,
) -> bool {
    let Shape::Otlp(otlp) = &destination.target.shape else { return false };
    let is_smooth = exchange.attempts.iter().all(|attempt| (200..300).contains(&attempt.status))
        && exchange.outcome == Outcome::Complete;
    // Who has names of its own for things goes the long way.
    let is_plain = said.trace.is_empty() && said.tools.is_empty() && destination.kind != Kind::Arize;
    if otlp.is_protobuf || !is_smooth || !is_plain {
        return false;
    }
    let service = maker.service;
    // Of a later turn, the first one names the trace and is what this one hangs under.
    let first = exchange.parent.as_ref().unwrap_or(&exchange.id);
    let of_first = digits(first);
    let of_first = of_first.as_flattened();
    let of_own = (*first != exchange.id).then(|| digits(&exchange.id));
    let (span, parent) = match &of_own {
        Some(own) => (&own.as_flattened()[16..], Some(&of_first[16..])),
        None => (&of_first[16..], said.parent.as_ref().map(|(_, span)| span.as_bytes())),
    };
    to.reserve(USUAL);
    let mut out = Out { told: to, brand: 0..0 };
    out.raw(r#"{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":""#);
    out.quoted(&service.name);
    out.raw(r#"}},{"key":"service.version","value":{"stringValue":""#);
    out.quoted(&service.version);
    out.raw(r#"}},{"key":"service.instance.id","value":{"stringValue":""#);
    out.quoted(&service.instance);
    if let Some(environment) = &service.environment {
        out.raw(r#"}},{"key":"deployment.environment.name","value":{"stringValue":""#);
        out.quoted(environment);
    }
    out.raw("}}");
    out.branded(&service.brand);
    out.raw(r#".trace.id","value":{"stringValue":""#);
    match &said.parent {
        Some((trace, _)) => json::within(out.told, trace),
        None => out.told.extend_from_slice(of_first),
    }
    out.raw(r#""}}"#);
    for (name, value) in &otlp.resource {
        out.raw(r#",{"key":""#);
        out.quoted(name);
        out.raw(r#","value":{"stringValue":""#);
        out.quoted(value);
        out.raw("}}");
    }
    out.raw(r#"]},"scopeSpans":[{"scope":{"name":""#);
    json::within(out.told, &service.brand);
    out.raw(".");
    out.raw(SCOPE);
    out.raw(r#"","version":""#);
    out.quoted(&service.version);
    out.raw(r#"},"spans":[{"traceId":""#);
    out.told.extend_from_slice(said.parent.as_ref().map_or(of_first, |(trace, _)| trace.as_bytes()));
    out.raw(r#"","spanId":""#);
    out.told.extend_from_slice(span);
    if let Some(parent) = parent {
        out.raw(r#"","parentSpanId":""#);
        out.told.extend_from_slice(parent);
    }
    out.raw(r#"","name":"chat "#);
    json::within(out.told, &exchange.model);
    let start = exchange.started.0.saturating_mul(NANOS_PER_MILLI);
    let end = start.saturating_add(i64::from(exchange.duration_ms) * NANOS_PER_MILLI);
    let [start, end] = [start, end].map(|nanos| u64::try_from(nanos).unwrap_or(0));
    out.raw(r#"","kind":3,"startTimeUnixNano":""#);
    json::number(out.told, start);
    out.raw(r#"","endTimeUnixNano":""#);
    json::number(out.told, end);
    out.raw(r#"","attributes":"#);
    let list = out.told.len();
    tell(exchange, said, sight, maker, &mut out);
    // Each begins with a comma; the first one's place is where the list begins.
    out.told[list] = b'[';
    out.raw(r#"],"status":{}}]}]}"#);
    true
}

struct Out<'a> {
    told: &'a mut Vec<u8>,
    /// Where the beginning of a name of ours stands in it, to be taken from there.
    brand: Range<usize>,
}

impl Out<'_> {
    /// Where the length is known when this is compiled, which it is nearly everywhere, nobody is called for the copy.
    #[inline(always)]
    fn raw(&mut self, piece: &str) {
        self.told.extend_from_slice(piece.as_bytes());
    }

    /// A text that has begun, and its last quote.
    fn quoted(&mut self, text: &str) {
        json::within(self.told, text);
        self.told.push(b'"');
    }

    /// The head of an attribute of ours, up to its brand.
    fn branded(&mut self, brand: &str) {
        let start = self.told.len();
        self.raw(r#",{"key":""#);
        json::within(self.told, brand);
        self.brand = start..self.told.len();
    }

    /// The head of an attribute.
    #[inline(always)]
    fn begin(&mut self, is_ours: bool, piece: &str) {
        if is_ours {
            self.told.extend_from_within(self.brand.clone());
        }
        self.raw(piece);
    }

    /// Its value, and its end.
    fn string(&mut self, text: &str) {
        json::within(self.told, text);
        self.raw(r#""}}"#);
    }

    fn whole(&mut self, number: u64) {
        json::count(self.told, number);
        self.raw(r#""}}"#);
    }

    fn fraction(&mut self, number: f64) {
        serde_json::to_writer(&mut *self.told, &number).expect("numbers are always JSON");
        self.raw("}}");
    }
}

impl Sink for Out<'_> {
    #[inline(always)]
    fn text(&mut self, name: Name, text: &str) {
        self.begin(name.is_ours, name.text);
        self.string(text);
    }

    #[inline(always)]
    fn id(&mut self, name: Name, id: &GenerationId) {
        self.begin(name.is_ours, name.text);
        self.told.extend_from_slice(id.as_bytes());
        self.raw(r#""}}"#);
    }

    fn texts(&mut self, name: Name, texts: &[&str]) {
        self.begin(name.is_ours, name.texts);
        for (place, text) in texts.iter().enumerate() {
            self.raw(if place == 0 { r#"{"stringValue":""# } else { r#",{"stringValue":""# });
            self.quoted(text);
            self.raw("}");
        }
        self.raw("]}}}");
    }

    #[inline(always)]
    fn number(&mut self, name: Name, number: u64) {
        if i64::try_from(number).is_err() {
            return self.decimal(name, number as f64);
        }
        self.begin(name.is_ours, name.number);
        self.whole(number);
    }

    #[inline(always)]
    fn decimal(&mut self, name: Name, number: f64) {
        if !number.is_finite() {
            return self.value(name, &Value::Null);
        }
        self.begin(name.is_ours, name.decimal);
        self.fraction(number);
    }

    #[inline(always)]
    fn flag(&mut self, name: Name, flag: bool) {
        if flag {
            self.begin(name.is_ours, name.yes);
        } else {
            self.begin(name.is_ours, name.no);
        }
    }

    fn value(&mut self, name: Name, value: &Value) {
        self.begin(name.is_ours, name.value);
        serde_json::to_writer(&mut *self.told, &Json(&any_value(value.clone()))).expect("values are always JSON");
        self.raw("}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::Config;
    use super::super::{Scope, Service, Tells, Used, otlp, spans};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use tidegate_core::exchange::{Asked, AttemptRecord, Served};
    use tidegate_core::{GenerationId, KeyHash, Money, OrganisationId, Secret, Timestamp, Usage, WorkspaceId};

    fn destination(is_private: bool, tells: Tells) -> Destination {
        let values = [("endpoint".to_owned(), Secret::new("http://c"))].into_iter().collect();
        let target = Config { values, ..Config::default() }.target(Kind::OtelCollector);
        let target = target.map_err(|wrong| wrong.member).unwrap();
        let scope = Scope { share: 1.0, ..Scope::default() };
        Destination { id: "c".into(), kind: Kind::OtelCollector, target, scope, is_private, tells, is_operators: true }
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), "[a-z/]{1,12}", r#"["\\\n\t éü€\u{1}]{1,6}"#]
    }

    prop_compose! {
        fn exchange()(
            model in text(), provider in text(), words in prop::array::uniform6(prop::option::of(text())),
            counts in prop::array::uniform6(prop_oneof![0..100_000_u64, (1_u64 << 50)..(1 << 60)]),
            costs in prop::array::uniform3(prop::option::of(0..9_000_000_000_000_000_i64)),
            times in (0..2_000_000_000_000_i64, any::<u32>(), prop::option::of(any::<u32>())),
            flags in prop::array::uniform3(any::<bool>()), attempts in 0..3_usize,
            status in 0..600_u16, has_parent in 0..3_u8,
            asked in prop::option::of((text(), prop::option::of(any::<u64>()), prop::sample::select(vec!["1", "0.50", "x"]))),
        ) -> Exchange {
            let started = Timestamp(times.0);
            let (organisation, workspace) = (OrganisationId("org".into()), WorkspaceId("w\"s".into()));
            let id = GenerationId::new(started);
            let [session, user, stop, title, agent, preset] = words.map(|word| word.map(Into::into));
            let attempt = AttemptRecord {
                provider: "P".into(), model: "m".into(), status: 200, duration_ms: 5, ..AttemptRecord::default()
            };
            Exchange {
                provider: provider.into(), status, streamed: flags[0], is_byok: flags[1], outcome: Outcome::Complete,
                cache_source: flags[2].then(|| GenerationId::new(Timestamp(1))),
                usage: Usage {
                    input: counts[0], output: counts[1], cache_read: counts[2], cache_write: counts[3],
                    cache_write_1h: counts[4], thinking: counts[5], ..Usage::default()
                },
                cost: costs[0].map(Money), cache_discount: costs[1].map(Money), upstream_cost: costs[2].map(Money),
                session, user, stop_reason: stop, title, user_agent: agent, preset,
                duration_ms: times.1, first_content_ms: times.2, attempts: vec![attempt; attempts],
                asked: asked.map(|(model, max_tokens, number)| Box::new(Asked {
                    model: model.into(), max_tokens, temperature: Some(number.into()), top_p: None,
                    top_k: Some(number.into()), is_structured: flags[0],
                    served: None,
                })),
                parent: match has_parent { 0 => None, 1 => Some(id), _ => Some(GenerationId::new(Timestamp(2))) },
                ..Exchange::new(id, organisation, workspace, KeyHash::of(b"k"), model.into(), started)
            }
        }
    }

    proptest! {
        #[test]
        fn the_short_way_says_what_the_long_way_says(
            exchange in exchange(), is_private: bool, tells in prop::array::uniform3(any::<bool>()),
            words in prop::array::uniform3(text()), environment in prop::option::of(text()), has_parent: bool,
            has_request: bool, brand in prop_oneof![Just("acme"), Just("a\"b")],
            temperature in prop_oneof![Just(json!(1)), Just(json!(0.5)), Just(json!(null)), Just(json!({"a": [1]}))],
        ) {
            let mut destination = destination(is_private, Tells { cost: tells[0], identity: tells[1], context: tells[2] });
            let more = if has_request { vec![("a\"b".to_owned(), words[0].clone()), ("c".to_owned(), "d".to_owned())] } else { Vec::new() };
            let Shape::Otlp(shape) = &mut destination.target.shape else { panic!("it takes OTLP") };
            shape.resource.clone_from(&more);
            let [name, key_name, creator] = words;
            let (instance, region) = ("node\"1".to_owned(), "here".to_owned());
            let service = Service { name, version: "1.2".into(), instance, environment, brand: brand.into(), region };
            let served = Served {
                provider: "p\"0".into(),
                origin: "http://127.0.0.1:8".into(),
                strategy: "direct".into(),
                prompt: Some(Money(1)),
                completion: Some(Money(2_000_000_003)),
                tools: None,
            };
            let maker = Maker { key_name: &key_name, creator: Some(&creator), service: &service, served: Some(&served) };
            let request = json!({
                "model": "asked/for", "temperature": temperature, "stop_sequences": ["\"", "b"], "system": "be \"brief\"",
                "max_tokens": 100, "messages": [{"role": "user", "content": "hello\n"}], "tools": [{"name": "t"}],
            });
            let said = Said {
                parent: has_parent.then(|| ("ab".repeat(16), "cd".repeat(8))),
                request: has_request.then_some(request),
                answer: vec![json!({"type": "text", "text": "well\u{7}"})],
                ..Said::default()
            };
            let mut short = b"before".to_vec();
            let is_plain = told(&mut short, &destination, destination.sight(), &exchange, &said, maker);
            prop_assert!(is_plain, "there is nothing special about it");
            let short = short.strip_prefix(b"before").unwrap().to_vec();
            let long = otlp::json(&otlp::resource_spans(spans(&exchange, &said, destination.sight(), maker), &service, &more));
            prop_assert_eq!(String::from_utf8(short).unwrap(), String::from_utf8(long).unwrap());
        }
    }

    proptest! {
        #[test]
        fn what_is_made_again_of_a_record_says_the_same_whatever_is_set_now(
            exchange in exchange(), cost: bool, context: bool, now in prop::array::uniform4(any::<bool>()), is_failed: bool,
        ) {
            let tells = Tells { cost, identity: false, context };
            let then = destination(true, tells);
            let now = Destination {
                scope: Scope { share: 0.0, ..Scope::default() },
                ..destination(now[0], Tells { cost: now[1], identity: now[2], context: now[3] })
            };
            let outcome = if is_failed { Outcome::Failed } else { exchange.outcome };
            let exchange = Exchange { outcome, ..exchange };
            let service = Service { name: "n".into(), brand: "acme".into(), ..Service::default() };
            let maker = Maker { key_name: "then", creator: Some("who"), service: &service, served: None };
            prop_assert!(then.can_be_told_again(&Said::default()));
            let told = then.told(&exchange, &Said::default(), maker).unwrap();
            let record: Exchange = serde_json::from_slice(&serde_json::to_vec(&exchange).unwrap()).unwrap();
            let again = now.told_again(&record, tells, &service).unwrap();
            prop_assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(told).unwrap());
        }
    }

    #[test]
    fn only_what_a_record_holds_can_be_told_again() {
        let silent = Said::default();
        assert!(destination(true, Tells { cost: true, identity: false, context: true }).can_be_told_again(&silent));
        assert!(!destination(false, Tells::default()).can_be_told_again(&silent));
        assert!(!destination(true, Tells { identity: true, ..Tells::default() }).can_be_told_again(&silent));
        let private = destination(true, Tells::default());
        let with = |change: fn(&mut Said)| {
            let mut said = Said::default();
            change(&mut said);
            private.can_be_told_again(&said)
        };
        assert!(!with(|said| said.request = Some(json!({}))));
        assert!(!with(|said| said.answer = vec![json!({})]));
        assert!(!with(|said| said.parent = Some(("a".into(), "b".into()))));
        assert!(!with(|said| drop(said.trace.insert("a".into(), json!(1)))));
        let used = Used {
            name: "t".into(),
            id: "1".into(),
            arguments: json!({}),
            result: "r".into(),
            is_error: false,
            started: Timestamp(0),
            ended: Timestamp(1),
        };
        assert!(!private.can_be_told_again(&Said { tools: vec![used], ..Said::default() }));

        let values = [("host", "https://h"), ("database", "d"), ("username", "u"), ("password", "p")];
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), Secret::new(value))).collect();
        let target = Config { values, ..Config::default() }.target(Kind::ClickHouse).map_err(|wrong| wrong.member);
        let rows =
            Destination { kind: Kind::ClickHouse, target: target.unwrap(), ..destination(true, Tells::default()) };
        assert!(!rows.can_be_told_again(&silent));
        let (organisation, workspace) = (OrganisationId("o".into()), WorkspaceId("w".into()));
        let id = GenerationId::new(Timestamp(0));
        let record = Exchange::new(id, organisation, workspace, KeyHash::of(b"k"), "m".into(), Timestamp(0));
        assert_eq!(rows.told_again(&record, Tells::default(), &Service::default()), None, "it has become another kind");
    }

    #[test]
    fn what_is_special_goes_the_long_way() {
        let started = Timestamp(0);
        let (organisation, workspace) = (OrganisationId("o".into()), WorkspaceId("w".into()));
        let id = GenerationId::new(started);
        let plain = Exchange {
            outcome: Outcome::Complete,
            ..Exchange::new(id, organisation, workspace, KeyHash::of(b"k"), "m".into(), started)
        };
        let collector = destination(true, Tells::default());
        let service = Service::default();
        let maker = Maker { key_name: "k", creator: None, service: &service, served: None };
        let is_short = |exchange: &Exchange, said: &Said| {
            told(&mut Vec::new(), &collector, collector.sight(), exchange, said, maker)
        };
        let said = Said::default();
        assert!(is_short(&plain, &said));
        for exchange in [&plain, &Exchange { outcome: Outcome::Cancelled, ..plain.clone() }] {
            let mut out = b"before".to_vec();
            assert!(collector.told_into(&mut out, exchange, &said, maker));
            assert_eq!(out.strip_prefix(b"before"), collector.told(exchange, &said, maker).as_deref());
        }
        for (outcome, error) in
            [(Outcome::Failed, "error"), (Outcome::Broken, "error"), (Outcome::Cancelled, "cancelled")]
        {
            let exchange = Exchange { outcome, ..plain.clone() };
            assert!(!is_short(&exchange, &said), "{outcome:?} has a status");
            let told: Value = serde_json::from_slice(&collector.told(&exchange, &said, maker).unwrap()).unwrap();
            let status = &told["scopeSpans"][0]["spans"][0]["status"];
            assert_eq!(*status, json!({"code": 2, "message": error}), "{outcome:?}");
        }
        let attempts = vec![AttemptRecord {
            provider: "P".into(),
            model: "m".into(),
            status: 529,
            duration_ms: 1,
            ..AttemptRecord::default()
        }];
        assert!(!is_short(&Exchange { attempts, ..plain.clone() }, &said));
        let trace = [("trace_name".to_owned(), json!("job"))].into_iter().collect();
        assert!(!is_short(&plain, &Said { trace, ..Said::default() }));
    }
}
