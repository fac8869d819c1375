//! What metrics are told apart by.

use prometheus_client::encoding::EncodeLabelSet;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Route {
    pub route: &'static str,
    pub method: &'static str,
    pub status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Generation {
    pub model: String,
    pub provider: String,
    pub outcome: &'static str,
    pub stop_reason: String,
    pub byok: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Served {
    pub model: String,
    pub provider: String,
}

/// How the endpoints of a model at a provider are doing; where there are several, the worst of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub served: Served,
    /// 0: stable, 1: degraded, 2: down, 3: out of order.
    pub state: i64,
    /// The share of calls that were answered in the last five minutes; none where there were no calls.
    pub uptime: Option<f64>,
    /// It is not asked for a while: it said that it has had enough.
    pub cools: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Tried {
    pub provider: String,
    pub model: String,
    pub status_class: &'static str,
    pub error_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Tokens {
    pub model: String,
    pub provider: String,
    pub kind: &'static str,
}

/// Something that an upstream does not know. Their number is bounded where they are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Refusal {
    pub provider: String,
    pub model: String,
    pub kind: &'static str,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reason {
    pub reason: &'static str,
}

/// What ended a loop of tools.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Stopped {
    pub condition: &'static str,
}

/// Which limit refused a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Rejection {
    pub kind: &'static str,
}

/// A call of a server tool, by the name of the tool and of who did the work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ToolCall {
    pub tool: &'static str,
    pub engine: String,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Plugin {
    pub plugin: &'static str,
    pub outcome: &'static str,
}

/// What a guardrail's filter did.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Judgement {
    pub kind: &'static str,
    pub action: &'static str,
}

/// What became of what a destination was to be told.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Delivery {
    pub destination_type: &'static str,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Receiver {
    pub destination_type: &'static str,
    pub destination: String,
}

/// Why a destination will not be told something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Untold {
    pub destination_type: &'static str,
    pub reason: &'static str,
}

/// Something that can run out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Used {
    pub resource: &'static str,
}

/// What a look for a kept answer gave.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Looked {
    pub result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Build {
    pub version: &'static str,
    pub commit: &'static str,
}
