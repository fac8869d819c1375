//! Which endpoint, in which order. Pure data and pure functions: the catalogue of what can be called, the plan of
//! attempts for a request, and what an answer costs.
//!
//! No I/O, no clock, no knowledge of wire formats; of credentials everything but the secret. Start with [`plan::plan`].

pub mod byok;
pub mod catalogue;
pub mod draw;
pub mod guard;
pub mod health;
pub mod live;
pub mod plan;
pub mod preferences;
pub mod price;
pub mod set;

pub use byok::{Caller, Credential, Own};
pub use catalogue::{Catalogue, DataPolicy, Endpoint, Model, Tier, talks};
pub use draw::Draws;
pub use guard::{Guard, Zdr};
pub use live::{Group, Live, Percentiles, Vital};
pub use plan::{Attempt, Compression, Needs, Plan, PlanError, Request, ServiceTier, Sticky, Strategy};
pub use preferences::{MaxPrice, Partition, Preferences, Sort, Threshold};
pub use price::{Ask, Pricing, Terms};
pub use set::{
    Modalities, Modality, Parameter, Parameters, Quantization, Quantizations, Searcher, Searchers, Variant, Variants,
};
