//! Commands other than `serve`.

mod address;
pub mod audit;
pub mod byok;
pub mod check;
pub mod credits;
pub mod explain;
pub mod extract;
pub mod import;
pub mod keys;
pub mod ledger;
pub mod members;
pub mod out;
pub mod presets;
pub mod reload;
pub mod run;
pub mod secrets;
pub mod store;
