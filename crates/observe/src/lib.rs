//! What the outside learns: metrics and logs today, broadcast destinations later.
//!
//! Everything here works on finished things ([`tidegate_core::Exchange`]); nothing in it may delay a request. It knows
//! neither HTTP nor any vendor's format. Start with [`metrics::Metrics`].

pub mod logging;
pub mod metrics;
