//! Tests of the typed formats against samples, in one binary.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, like the tests")]

mod errors;
mod nulls;
mod properties;
mod samples;
