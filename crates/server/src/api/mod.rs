//! One module per group of operations. A handler reads its input, calls what does the work and forms the answer.

pub mod account;
pub mod activity;
pub mod assignments;
pub mod auth_codes;
pub mod budgets;
pub mod byok;
pub mod credits;
pub mod destinations;
pub mod endpoints;
pub mod explain;
pub mod form;
pub mod generation;
pub mod guardrails;
pub mod health;
pub mod key;
pub mod keys;
pub mod members;
pub mod messages;
pub mod models;
pub mod pages;
pub mod plugins;
pub mod presets;
pub mod prices;
pub mod workspaces;
