//! A request of which there is nothing special to tell, which nearly all are, as OTLP's JSON at once: it is told while its
//! caller waits. The same to the byte as what goes the long way.

use serde_json::Value;
use tidegate_core::{Exchange, Outcome, json};

use super::otlp::{Json, SCOPE, any_value};
use super::span::{NANOS_PER_MILLI, Name, Sink, SpanKind, hash, parent_id, tell, trace_id};
use super::{Destination, Kind, Maker, Said, Shape, Sight};

/// Nearly always enough where nobody hears what was said, so that it need not grow.
const USUAL: usize = 4_096;

/// One element of a request of export; nothing where there is more to it than one span without any events.
pub(super) fn told(
    destination: &Destination,
    sight: Sight,
    exchange: &Exchange,
    said: &Said,
    maker: Maker<'_>,
) -> Option<Vec<u8>> {
    let Shape::Otlp(otlp) = &destination.target.shape else { return None };
    let is_smooth = exchange.attempts.iter().all(|attempt| (200..300).contains(&attempt.status))
        && !matches!(exchange.outcome, Outcome::Failed | Outcome::Broken);
    // Who has names of its own for things goes the long way.
    let is_plain = said.trace.is_empty() && said.tools.is_empty() && destination.kind != Kind::Arize;
    if otlp.is_protobuf || !is_smooth || !is_plain {
        return None;
    }
    let (service, (trace, _)) = (maker.service, trace_id(exchange, said));
    // Both come from the same id, where nobody says otherwise.
    let is_own = said.parent.is_none() && exchange.parent.is_none();
    let span = if is_own { trace[..16].to_owned() } else { hash(exchange.id.as_str(), 8) };
    let mut out = Out { brand: Brand::of(&service.brand), told: Vec::with_capacity(USUAL), is_first: true };
    out.raw(r#"{"resource":{"attributes":["#);
    out.text(Name::Theirs("service.name"), &service.name);
    out.text(Name::Theirs("service.version"), &service.version);
    out.text(Name::Theirs("service.instance.id"), &service.instance);
    if let Some(environment) = &service.environment {
        out.text(Name::Theirs("deployment.environment.name"), environment);
    }
    out.text(Name::Ours("trace.id"), &trace);
    for (name, value) in &otlp.resource {
        out.begin();
        out.quoted(name);
        out.string(value);
    }
    out.raw(r#"]},"scopeSpans":[{"scope":{"name":"#);
    out.quoted(&format!("{}.{SCOPE}", service.brand));
    out.raw(r#","version":"#);
    out.quoted(&service.version);
    out.raw(r#"},"spans":[{"traceId":""#);
    out.raw(&trace);
    out.raw(r#"","spanId":""#);
    out.raw(&span);
    let first = exchange.parent.filter(|first| *first != exchange.id);
    if let Some(parent) = first.map(|first| hash(first.as_str(), 8)).or_else(|| parent_id(said)) {
        out.raw(r#"","parentSpanId":""#);
        out.raw(&parent);
    }
    out.raw(r#"","name":"#);
    out.quoted(&format!("chat {}", exchange.model));
    let start = exchange.started.0.saturating_mul(NANOS_PER_MILLI);
    let end = start.saturating_add(i64::from(exchange.duration_ms) * NANOS_PER_MILLI);
    let [start, end] = [start, end].map(|nanos| u64::try_from(nanos).unwrap_or(0));
    out.raw(r#","kind":"#);
    json::number(&mut out.told, SpanKind::Client as i32);
    out.raw(r#","startTimeUnixNano":""#);
    json::number(&mut out.told, start);
    out.raw(r#"","endTimeUnixNano":""#);
    json::number(&mut out.told, end);
    out.raw(r#"","attributes":["#);
    out.is_first = true;
    tell(exchange, said, sight, maker, &mut out);
    out.raw(r#"],"status":{}}]}]}"#);
    Some(out.told)
}

/// What our own names begin with.
enum Brand<'a> {
    Plain(&'a str),
    /// It holds what cannot stand in JSON as it is.
    Odd(&'a str),
}

impl<'a> Brand<'a> {
    fn of(brand: &'a str) -> Self {
        let is_plain = brand.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if is_plain { Self::Plain(brand) } else { Self::Odd(brand) }
    }
}

struct Out<'a> {
    brand: Brand<'a>,
    told: Vec<u8>,
    /// Of a list.
    is_first: bool,
}

impl Out<'_> {
    fn raw(&mut self, text: &str) {
        self.told.extend_from_slice(text.as_bytes());
    }

    fn quoted(&mut self, text: &str) {
        json::text(&mut self.told, text);
    }

    /// The head of an attribute, up to its name.
    fn begin(&mut self) {
        self.raw(if self.is_first { r#"{"key":"# } else { r#",{"key":"# });
        self.is_first = false;
    }

    /// Its name as well. Those that we write are known to be plain.
    fn named(&mut self, name: Name) {
        self.begin();
        match (name, &self.brand) {
            (Name::Theirs(name), _) => {
                self.raw("\"");
                self.raw(name);
                self.raw("\"");
            }
            (Name::Ours(name), Brand::Plain(brand)) => {
                let brand = *brand;
                self.raw("\"");
                self.raw(brand);
                self.raw(".");
                self.raw(name);
                self.raw("\"");
            }
            (Name::Ours(name), Brand::Odd(brand)) => {
                let name = format!("{brand}.{name}");
                self.quoted(&name);
            }
        }
    }

    /// Its value, and its end.
    fn string(&mut self, text: &str) {
        self.raw(r#","value":{"stringValue":"#);
        self.quoted(text);
        self.raw("}}");
    }
}

impl Sink for Out<'_> {
    fn text(&mut self, name: Name, text: &str) {
        self.named(name);
        self.string(text);
    }

    fn texts(&mut self, name: Name, texts: &[&str]) {
        self.named(name);
        self.raw(r#","value":{"arrayValue":{"values":["#);
        for (place, text) in texts.iter().enumerate() {
            self.raw(if place == 0 { r#"{"stringValue":"# } else { r#",{"stringValue":"# });
            self.quoted(text);
            self.raw("}");
        }
        self.raw("]}}}");
    }

    fn number(&mut self, name: Name, number: u64) {
        let Ok(number) = i64::try_from(number) else { return self.decimal(name, number as f64) };
        self.named(name);
        self.raw(r#","value":{"intValue":""#);
        json::number(&mut self.told, number);
        self.raw(r#""}}"#);
    }

    fn decimal(&mut self, name: Name, number: f64) {
        if !number.is_finite() {
            return self.value(name, &serde_json::json!(number));
        }
        self.named(name);
        self.raw(r#","value":{"doubleValue":"#);
        serde_json::to_writer(&mut self.told, &number).expect("numbers are always JSON");
        self.raw("}}");
    }

    fn flag(&mut self, name: Name, flag: bool) {
        self.named(name);
        self.raw(if flag { r#","value":{"boolValue":true}}"# } else { r#","value":{"boolValue":false}}"# });
    }

    fn value(&mut self, name: Name, value: &Value) {
        self.named(name);
        self.raw(r#","value":"#);
        serde_json::to_writer(&mut self.told, &Json(&any_value(value.clone()))).expect("values are always JSON");
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
    use tidegate_core::exchange::AttemptRecord;
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
        ) -> Exchange {
            let started = Timestamp(times.0);
            let (organisation, workspace) = (OrganisationId("org".into()), WorkspaceId("w\"s".into()));
            let id = GenerationId::new(started);
            let [session, user, stop, title, agent, preset] = words.map(|word| word.map(Into::into));
            let attempt = AttemptRecord {
                provider: "P".into(), model: "m".into(), status: 200, duration_ms: 5, is_byok: false,
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
            let destination = destination(is_private, Tells { cost: tells[0], identity: tells[1], context: tells[2] });
            let [name, key_name, creator] = words;
            let service =
                Service { name, version: "1.2".into(), instance: "node\"1".into(), environment, brand: brand.into() };
            let maker = Maker { key_name: &key_name, creator: Some(&creator), service: &service };
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
            let short = told(&destination, destination.sight(), &exchange, &said, maker).expect("there is nothing special about it");
            let long = otlp::json(&otlp::resource_spans(spans(&exchange, &said, destination.sight(), maker), &service, &[]));
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
            let maker = Maker { key_name: "then", creator: Some("who"), service: &service };
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
        let maker = Maker { key_name: "k", creator: None, service: &service };
        let is_short =
            |exchange: &Exchange, said: &Said| told(&collector, collector.sight(), exchange, said, maker).is_some();
        let said = Said::default();
        assert!(is_short(&plain, &said));
        assert!(!is_short(&Exchange { outcome: Outcome::Failed, ..plain.clone() }, &said));
        let attempts = vec![AttemptRecord {
            provider: "P".into(),
            model: "m".into(),
            status: 529,
            duration_ms: 1,
            is_byok: false,
        }];
        assert!(!is_short(&Exchange { attempts, ..plain.clone() }, &said));
        let trace = [("trace_name".to_owned(), json!("job"))].into_iter().collect();
        assert!(!is_short(&plain, &Said { trace, ..Said::default() }));
    }
}
