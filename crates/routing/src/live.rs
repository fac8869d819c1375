//! What live traffic says about the ways to call. Routing only asks; who measures is somebody else.

use crate::byok::Credential;
use crate::catalogue::Endpoint;

/// What live traffic says about the ways to call.
pub trait Live {
    /// Of an endpoint with a customer's credential, or with the operator's own.
    fn of(&self, endpoint: &Endpoint, credential: Option<&Credential>) -> Vital;
}

/// How a way to call is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vital {
    pub group: Group,
    /// Was told to wait, and has not waited long enough.
    pub cools: bool,
    /// When it failed last, in milliseconds; the one that failed longest ago is tried when all are out.
    pub failed_at: i64,
    /// The share of calls that were answered, from 0 to 1.
    pub uptime: f32,
    /// Seconds to the first content.
    pub latency: Percentiles,
    /// Tokens per second. So many or more are reached by 50, 75, 90 and 99 of 100 calls: it falls from one to the next.
    pub throughput: Percentiles,
    /// The share of calls with tools whose calls were sound.
    pub tool_success: Option<f32>,
}

impl Default for Vital {
    /// Of what was never called.
    fn default() -> Self {
        Self {
            group: Group::Stable,
            cools: false,
            failed_at: 0,
            uptime: 1.0,
            latency: Percentiles::default(),
            throughput: Percentiles::default(),
            tool_success: None,
        }
    }
}

/// How healthy, the healthiest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Group {
    #[default]
    Stable,
    Degraded,
    Down,
    Outage,
}

impl Group {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Degraded => "degraded",
            Self::Down => "down",
            Self::Outage => "outage",
        }
    }
}

/// Nothing where there are too few calls to say.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Percentiles {
    pub p50: Option<f32>,
    pub p75: Option<f32>,
    pub p90: Option<f32>,
    pub p99: Option<f32>,
}

/// Nothing is known of anyone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unknown;

impl Live for Unknown {
    fn of(&self, _: &Endpoint, _: Option<&Credential>) -> Vital {
        Vital::default()
    }
}
