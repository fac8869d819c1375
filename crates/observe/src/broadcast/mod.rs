//! What destinations learn of finished requests: which of them (`select`), in which words (`span`, then `otlp` or the
//! form of one vendor), where it goes (`kind`, `target`) and in which calls (`parcel`). Pure functions; who keeps and sends it is
//! elsewhere.

mod alias;
mod attribute;
mod datadog;
mod events;
pub mod kind;
mod message;
pub mod object;
pub(crate) mod otlp;
mod parcel;
mod plain;
mod record;
pub mod rows;
pub mod select;
mod shorten;
pub mod snowflake;
pub(crate) mod span;
pub mod target;

use std::collections::HashSet;

use serde_json::{Map, Value};
use tidegate_core::exchange::Served;
use tidegate_core::{Exchange, KeyHash, Money, Timestamp, WorkspaceId};

pub use kind::Kind;
pub use parcel::{Parcel, Verb};
pub use select::{Filter, Mistake};
pub use span::{Attribute, Part, Span, SpanKind, spans};
pub use target::{Shape, Target};

/// Somebody who is told.
pub struct Destination {
    /// Names it for as long as it exists.
    pub id: String,
    pub kind: Kind,
    pub target: Target,
    pub scope: Scope,
    pub is_private: bool,
    pub tells: Tells,
    /// The operator wrote its address; what others write is called like everything that callers point at.
    pub is_operators: bool,
}

/// Of which requests it is told.
#[derive(Debug, Default)]
pub struct Scope {
    /// `None`: of all workspaces.
    pub workspace: Option<WorkspaceId>,
    /// `None`: of all keys.
    pub keys: Option<HashSet<KeyHash>>,
    pub filter: Option<Filter>,
    /// From 0 to 1.
    pub share: f64,
}

/// What else it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tells {
    pub cost: bool,
    pub identity: bool,
    pub context: bool,
}

/// How much of a request is told.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    is_private: bool,
    tells: Tells,
}

/// What a record does not hold: what was said, and what the caller calls it.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The caller's `trace` object.
    pub trace: Map<String, Value>,
    /// Of a `traceparent` header: the trace and the caller's span.
    pub parent: Option<(String, String)>,
    /// The request in the Messages format, and the blocks of its answer; nothing where nobody wants to know.
    pub request: Option<Value>,
    pub answer: Vec<Value>,
    /// The tools that were run for the model before this call of it.
    pub tools: Vec<Used>,
}

/// A tool that was run here for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Used {
    pub name: String,
    /// Of the model's call.
    pub id: String,
    pub arguments: Value,
    pub result: String,
    pub is_error: bool,
    pub started: Timestamp,
    pub ended: Timestamp,
}

impl Said {
    /// Reads a `traceparent` header.
    pub fn traceparent(header: &str) -> Option<(String, String)> {
        let parts: Vec<&str> = header.trim().split('-').collect();
        let ["00", trace, span, _] = parts[..] else { return None };
        let is_hex = |text: &str, length| {
            let is_small = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            text.len() == length && text.bytes().all(is_small) && text.bytes().any(|byte| byte != b'0')
        };
        (is_hex(trace, 32) && is_hex(span, 16)).then(|| (trace.to_owned(), span.to_owned()))
    }

    /// The caller's own word for something.
    pub(crate) fn named(&self, name: &str) -> Option<&str> {
        self.trace.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }
}

/// Who made a request, for those who may know.
#[derive(Clone, Copy, Debug)]
pub struct Maker<'a> {
    pub key_name: &'a str,
    pub creator: Option<&'a str>,
    /// What this gateway calls itself.
    pub service: &'a Service,
    /// Where the call went, where the record does not say it.
    pub served: Option<&'a Served>,
}

impl<'a> Maker<'a> {
    /// Where the call went.
    fn served(&self, exchange: &'a Exchange) -> Option<&'a Served> {
        self.served.or_else(|| exchange.asked.as_deref()?.served.as_ref())
    }

    /// What was paid for the call and for the tools and plugins before it, which have records that nobody is told of.
    fn paid(&self, exchange: &'a Exchange) -> Option<Money> {
        let tools = self.served(exchange).and_then(|served| served.tools);
        // Also beside a call that nobody knows the price of.
        match (exchange.cost, tools.unwrap_or_default()) {
            (None, Money::ZERO) => None,
            (cost, tools) => Some(cost.unwrap_or_default().plus(tools)),
        }
    }
}

/// The gateway as it names itself.
#[derive(Clone, Debug, Default)]
pub struct Service {
    pub name: String,
    pub region: String,
    pub version: String,
    pub instance: String,
    pub environment: Option<String>,
    /// Begins the names of what is ours alone.
    pub brand: String,
}

impl Destination {
    /// Appends what it is told of a request; false where that is none of its business.
    pub fn told_into(&self, out: &mut Vec<u8>, exchange: &Exchange, said: &Said, maker: Maker<'_>) -> bool {
        let is_admitted = self.scope.admits(&self.id, exchange, said, maker);
        if is_admitted {
            self.told_within(out, self.sight(), exchange, said, maker);
        }
        is_admitted
    }

    /// The same by itself.
    #[cfg(test)]
    fn told(&self, exchange: &Exchange, said: &Said, maker: Maker<'_>) -> Option<Vec<u8>> {
        let mut told = Vec::new();
        self.told_into(&mut told, exchange, said, maker).then_some(told)
    }

    fn sight(&self) -> Sight {
        Sight { is_private: self.is_private, tells: self.tells }
    }

    /// Whether [`Destination::told_again`] can say the same of a request, with nothing but its record: what was said is no
    /// part of that, nor what the caller calls it. Custom metadata may say anything. A key may have another name by then, or
    /// be gone.
    pub fn can_be_told_again(&self, said: &Said) -> bool {
        let Said { trace, parent, request, answer, tools } = said;
        let knows_nothing = request.is_none() && answer.is_empty() && tools.is_empty();
        let is_unnamed = trace.is_empty() && parent.is_none() && !self.tells.identity;
        self.is_private && matches!(self.target.shape, Shape::Otlp(_)) && knows_nothing && is_unnamed
    }

    /// What it was told of a request, made once more of its record. Whether it may hear of it was decided then, and so was
    /// how much of it, whatever is set now; its form and what we call ourselves are those of now. Nothing where it has become
    /// another kind.
    pub fn told_again(&self, exchange: &Exchange, tells: Tells, service: &Service) -> Option<Vec<u8>> {
        let maker = Maker { key_name: "", creator: None, service, served: None };
        let sight = Sight { is_private: true, tells: Tells { identity: false, ..tells } };
        let is_same = matches!(self.target.shape, Shape::Otlp(_));
        is_same.then(|| {
            let mut told = Vec::new();
            self.told_within(&mut told, sight, exchange, &Said::default(), maker);
            told
        })
    }

    fn told_within(&self, out: &mut Vec<u8>, sight: Sight, exchange: &Exchange, said: &Said, maker: Maker<'_>) {
        if plain::told(out, self, sight, exchange, said, maker) {
            return;
        }
        let told = self.told_at_length(sight, exchange, said, maker);
        if out.is_empty() {
            *out = told;
        } else {
            out.extend_from_slice(&told);
        }
    }

    fn told_at_length(&self, sight: Sight, exchange: &Exchange, said: &Said, maker: Maker<'_>) -> Vec<u8> {
        let mut spans = spans(exchange, said, sight, maker);
        alias::add(self.kind, &mut spans, said);
        let trace = || record::Trace { spans: &spans, exchange, said, maker };
        match &self.target.shape {
            Shape::Otlp(otlp) => {
                let more = [otlp.resource.clone(), alias::resource(self.kind, said)].concat();
                let spans = otlp::resource_spans(spans, maker.service, &more);
                if otlp.is_protobuf { otlp::protobuf(spans) } else { otlp::json(&spans) }
            }
            Shape::Object(bucket) => object::told(&trace(), bucket),
            Shape::Rows(_) | Shape::Statement(_) => rows::told(&trace()),
            Shape::Datadog(_) => datadog::told(&trace()),
            Shape::Events(_) => events::told(&trace()),
        }
    }
}

/// What a destination found too large, with less of what was said; nothing where there is nothing to leave out.
pub fn shortened(letter: &[u8]) -> Option<Vec<u8>> {
    shorten::shortened(letter)
}
