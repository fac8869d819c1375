//! The store's tests. Each runs on SQLite, and again on PostgreSQL when `TEST_POSTGRES_URL` is set.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod audit;
mod auth_codes;
mod budgets;
mod credentials;
mod databases;
mod generations;
mod journal;
mod keys;
mod ledger;
mod members;
mod organisations;
mod plugins;
mod presets;
mod ring;
mod schema;
mod seals;
mod spend;
mod verify;
mod workspaces;
