//! A finished request: what is handed over, once, to everything that happens afterwards.

mod write;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::GenerationId;
use crate::key::KeyHash;
use crate::ledger::{Posting, Spent};
use crate::money::Money;
use crate::tenant::{OrganisationId, WorkspaceId};
use crate::usage::Usage;

/// How a request ended, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The whole answer reached the client's socket.
    Complete,
    /// The client left before the end.
    Cancelled,
    /// No answer; the client got an error status.
    Failed,
    /// Content had been sent when the upstream broke; the stream ended with the in-band error.
    Broken,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Broken => "broken",
        }
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    #[default]
    Messages,
    /// Messages in the chat format.
    Chat,
    /// Messages in the Responses format.
    Responses,
    Images,
    Embeddings,
    Rerank,
    Speech,
    Transcriptions,
}

impl Api {
    const ALL: [Self; 8] = [
        Self::Messages,
        Self::Chat,
        Self::Responses,
        Self::Images,
        Self::Embeddings,
        Self::Rerank,
        Self::Speech,
        Self::Transcriptions,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Images => "images",
            Self::Embeddings => "embeddings",
            Self::Rerank => "rerank",
            Self::Speech => "speech",
            Self::Transcriptions => "transcriptions",
        }
    }

    /// Where it is asked for.
    pub fn route(self) -> &'static str {
        match self {
            Self::Messages => "/messages",
            Self::Chat => "/chat/completions",
            Self::Responses => "/responses",
            Self::Images => "/images",
            Self::Embeddings => "/embeddings",
            Self::Rerank => "/rerank",
            Self::Speech => "/audio/speech",
            Self::Transcriptions => "/audio/transcriptions",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.as_str() == text)
    }
}

/// How the account of a call was closed. It is closed once; what is found out later is a row of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Settlement {
    /// By the call itself.
    Settled,
    /// By the call itself, without a charge.
    Released,
    /// By the start after a process died: what is charged is what was known of it.
    Recovered,
}

impl Settlement {
    pub const ALL: [Self; 3] = [Self::Settled, Self::Released, Self::Recovered];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Released => "released",
            Self::Recovered => "recovered",
        }
    }
}

/// One upstream call of a request.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// The provider's display name.
    #[serde(with = "text")]
    pub provider: Arc<str>,
    /// Its slug; empty where only the name was kept.
    #[serde(with = "text", default, skip_serializing_if = "is_default")]
    pub slug: Arc<str>,
    #[serde(with = "text")]
    pub model: Arc<str>,
    /// The upstream's status; 0 for a connection that failed or broke, 408 for a timeout.
    pub status: u16,
    pub duration_ms: u32,
    /// Whether a credential of the customer's own was used.
    #[serde(default)]
    pub is_byok: bool,
    /// How long after the request it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<Cow<'static, str>>,
}

impl AttemptRecord {
    /// What the provider is told apart by.
    pub fn slug(&self) -> &str {
        if self.slug.is_empty() { &self.provider } else { &self.slug }
    }
}

/// How a request was asked for, as far as that says nothing of what was said.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Asked {
    /// The model as the caller wrote it.
    #[serde(with = "text")]
    pub model: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Numbers with the digits that they came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<Box<str>>,
    /// An answer that follows a schema.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_structured: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
}

/// Where a call went and what its parts cost, as destinations are told it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Served {
    /// The slug of the provider that answered, or was asked last.
    #[serde(with = "text")]
    pub provider: Arc<str>,
    /// Scheme, host and port of where that is.
    #[serde(with = "text")]
    pub origin: Arc<str>,
    /// How the model was found.
    pub strategy: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Money>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Money>,
    /// What was paid beside the call itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Money>,
}

impl Served {
    /// Host and port; nothing where a credential names the host.
    pub fn server(&self) -> Option<(&str, u64)> {
        let (scheme, place) = self.origin.split_once("://")?;
        let (host, port) = match place.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (place, if scheme == "https" { 443 } else { 80 }),
        };
        (!host.contains('{')).then_some((host.trim_matches(['[', ']']), port))
    }
}

/// One finished request, with everything that metering, records, logs and broadcasts need of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    pub id: GenerationId,
    /// The first turn of the loop that this is a turn of; nothing of a call that stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<GenerationId>,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub key: KeyHash,
    /// Catalogue id of the model that answered, or was asked for when none did.
    #[serde(with = "text")]
    pub model: Arc<str>,
    /// Display name of the provider that answered; empty when none did.
    #[serde(with = "text")]
    pub provider: Arc<str>,
    pub outcome: Outcome,
    pub status: u16,
    #[serde(default, skip_serializing_if = "is_default")]
    pub streamed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<Box<str>>,
    /// The id of the message that the client got.
    #[serde(rename = "upstream_id", default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<Box<str>>,
    /// The upstream's own id of the answer. Nothing where that is the message's, as it came; empty where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_id: Option<Box<str>>,
    /// Why the answer ended, in the upstream's own word; nothing and empty mean the same as of its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_stop_reason: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<Cow<'static, str>>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// False when the upstream never reported usage: the counts are then what was seen so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub usage_reported: bool,
    /// Whether some of the counts are our own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_estimated: bool,
    /// Whether the upstream's counts could not be true and were cut.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_clamped: bool,
    pub settlement: Settlement,
    /// What was held for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reserved: Money,
    /// What it counts towards, with the amount that each of them sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub postings: Vec<Posting>,
    /// `None` for an endpoint without a price: unknown is not zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// Whether a credential of the customer's own was used, for all of the answer or for a part of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_byok: bool,
    /// What went through a credential of the customer's own, at list price; only when one was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_cost: Option<Money>,
    /// What the provider can be expected to charge for all attempts, also where the caller is not charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_cost: Option<Money>,
    /// What the upstream itself said that it costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_cost: Option<Money>,
    /// What the same tokens would have cost without a cache, less what they cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_discount: Option<Money>,
    /// The tier that served, in the upstream's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referer: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptRecord>,
    pub started: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_content_ms: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub duration_ms: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub request_bytes: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub response_bytes: u64,
    /// The request whose answer was given once more, when nobody was called for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_source: Option<GenerationId>,
    /// The id of the preset that it named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Box<str>>,
    /// The name that stood for a choice of models, where it was made with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub api: Api,
    /// Only where destinations hear of it that must not hear what was said: the others read it from the request itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Box<Asked>>,
}

impl Exchange {
    /// Whether it is the fee of a tool: money in the name of who did the work, and nothing else. No model was called, and
    /// nobody asked for it.
    pub fn is_fee(&self) -> bool {
        let is_beside = self.parent.is_some_and(|root| root != self.id) && self.attempts.is_empty();
        let is_paid = self.outcome == Outcome::Complete && !self.provider.is_empty();
        is_beside && is_paid && self.cache_source.is_none()
    }

    pub fn spent(&self) -> Spent {
        Spent::of(self.cost, self.is_byok, self.list_cost)
    }

    /// A request of which nothing is known yet but that it came.
    pub fn new(
        id: GenerationId,
        organisation: OrganisationId,
        workspace: WorkspaceId,
        key: KeyHash,
        model: Arc<str>,
        started: Timestamp,
    ) -> Self {
        Self {
            id,
            parent: None,
            organisation,
            workspace,
            key,
            model,
            provider: Arc::default(),
            outcome: Outcome::Cancelled,
            status: 499,
            streamed: false,
            stop_reason: None,
            message_id: None,
            native_id: None,
            native_stop_reason: None,
            error_type: None,
            usage: Usage::default(),
            usage_reported: false,
            is_estimated: false,
            is_clamped: false,
            settlement: Settlement::Settled,
            reserved: Money::ZERO,
            postings: Vec::new(),
            cost: None,
            is_byok: false,
            list_cost: None,
            upstream_cost: None,
            reported_cost: None,
            cache_discount: None,
            service_tier: None,
            session: None,
            user: None,
            user_agent: None,
            referer: None,
            title: None,
            attempts: Vec::new(),
            started,
            first_content_ms: None,
            duration_ms: 0,
            request_bytes: 0,
            response_bytes: 0,
            cache_source: None,
            preset: None,
            router: None,
            api: Api::Messages,
            asked: None,
        }
    }
}

/// What says nothing is not written: records are many.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Shared texts, written as texts.
mod text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        Ok(String::deserialize(deserializer)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Account, Slot};
    use crate::window::Window;

    #[test]
    fn an_exchange_survives_its_text() {
        let started = Timestamp(1_790_000_000_000);
        let key = KeyHash::of(b"k");
        let mut exchange = Exchange::new(
            GenerationId::new(started),
            OrganisationId("o".into()),
            WorkspaceId("w".into()),
            key,
            "a/\"b\"".into(),
            started,
        );
        exchange.error_type = Some("overloaded_error".into());
        exchange.cost = Some(Money(177_000));
        exchange.cache_source = Some(GenerationId::first_at(started));
        exchange.preset = Some("p".into());
        exchange.attempts.push(AttemptRecord {
            provider: "P".into(),
            model: "m".into(),
            status: 529,
            duration_ms: 4,
            is_byok: true,
            after_ms: Some(3),
            ..AttemptRecord::default()
        });
        exchange
            .postings
            .push(Posting { slot: Slot::of(Account::Key(key), Some(Window::Daily), started), amount: Money(9) });
        let json = serde_json::to_string(&exchange).unwrap();
        assert_eq!(serde_json::from_str::<Exchange>(&json).unwrap(), exchange);
    }
}
