//! Commands other than `serve`.

pub mod check;
pub mod keys;
pub mod run;
