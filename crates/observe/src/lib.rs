//! What the outside learns: metrics, logs, and destinations that are told of every request.
//!
//! Everything here works on finished things ([`tidegate_core::Exchange`]); nothing in it may delay a request. It knows
//! no sockets and no store: who keeps and sends what [`broadcast`] makes is the gateway. Start with
//! [`metrics::Metrics`].

pub mod broadcast;
pub mod logging;
pub mod metrics;
pub mod scrub;
pub mod traces;
