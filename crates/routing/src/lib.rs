//! Which endpoint, in which order. Pure data and pure functions: the catalogue of what can be called, the plan of
//! attempts for a request, and what an answer costs.
//!
//! No I/O, no clock, no knowledge of wire formats; of credentials everything but the secret. Start with [`plan::plan`].

pub mod byok;
pub mod catalogue;
pub mod health;
pub mod live;
pub mod plan;
pub mod price;

pub use byok::{Caller, Credential, Own};
pub use catalogue::{Catalogue, Endpoint, Model};
pub use live::{Group, Live, Vital};
pub use plan::{Attempt, Plan, PlanError, Strategy};
pub use price::{Ask, Pricing, Terms};
