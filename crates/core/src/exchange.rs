//! A finished request: what is handed over, once, to everything that happens afterwards.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::id::GenerationId;
use crate::key::KeyHash;
use crate::money::Money;
use crate::tenant::{OrganisationId, WorkspaceId};
use crate::usage::Usage;

/// How a request ended, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// One upstream call of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    pub provider: Arc<str>,
    pub model: Arc<str>,
    /// The upstream's status; 0 for a connection that failed or broke, 408 for a timeout.
    pub status: u16,
    pub duration_ms: u32,
}

/// One finished request, with everything that metering, records, logs and broadcasts need of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub id: GenerationId,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub key: KeyHash,
    /// Catalogue id of the model that answered, or was asked for when none did.
    pub model: Arc<str>,
    /// Display name of the provider that answered; empty when none did.
    pub provider: Arc<str>,
    pub outcome: Outcome,
    pub status: u16,
    pub streamed: bool,
    pub stop_reason: Option<Box<str>>,
    pub upstream_id: Option<Box<str>>,
    pub error_type: Option<&'static str>,
    pub usage: Usage,
    /// False when the upstream never reported usage: the counts are then what was seen so far.
    pub usage_reported: bool,
    /// `None` for an endpoint without a price: unknown is not zero.
    pub cost: Option<Money>,
    /// Whether a credential of the customer's own was used.
    pub is_byok: bool,
    /// What it would have cost at list price; only when a credential of the customer's own was used.
    pub list_cost: Option<Money>,
    pub session: Option<Box<str>>,
    pub user: Option<Box<str>>,
    pub attempts: Vec<AttemptRecord>,
    pub started: Timestamp,
    pub first_content_ms: Option<u32>,
    pub duration_ms: u32,
    pub request_bytes: u64,
    pub response_bytes: u64,
}
