//! The store's tests. Each runs on SQLite, and again on PostgreSQL when `TEST_POSTGRES_URL` is set.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod analytics;
mod audit;
mod auth_codes;
mod budgets;
mod contents;
mod credentials;
mod databases;
mod destinations;
mod feedback;
mod files;
mod generations;
mod journal;
mod keys;
mod learned;
mod ledger;
mod members;
mod organisations;
mod outbox;
mod plugins;
mod presets;
mod ring;
mod schema;
mod seals;
mod sheets;
mod spend;
mod tool_results;
mod verify;
mod workspaces;
