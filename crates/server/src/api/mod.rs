//! One module per group of operations. A handler reads its input, calls what does the work and forms the answer.

pub mod health;
pub mod messages;
pub mod pages;
