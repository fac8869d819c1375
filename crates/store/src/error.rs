//! What can go wrong with a store call, in words that callers act on.

use std::error::Error;

use sqlx::error::ErrorKind;

pub type Result<T> = std::result::Result<T, StoreError>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store's own fault (connection, pool, disk, time limit, unreadable row) and never the caller's.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    #[error("it exists already")]
    Conflict,
    /// A record was to refer to something that is not there, or not this tenant's.
    #[error("it refers to something that does not exist")]
    Missing,
}

/// A value in a column that this release cannot read.
#[derive(Debug, thiserror::Error)]
#[error("column {column} of {table} holds a value that cannot be read")]
pub(crate) struct Unreadable {
    pub table: &'static str,
    pub column: &'static str,
}

#[derive(Debug, thiserror::Error)]
#[error("no answer within the time limit")]
pub(crate) struct TimedOut;

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error.as_database_error().map(|database| database.kind()) {
            Some(ErrorKind::UniqueViolation) => Self::Conflict,
            Some(ErrorKind::ForeignKeyViolation) => Self::Missing,
            _ => Self::Unavailable(Box::new(error)),
        }
    }
}

impl From<Unreadable> for StoreError {
    fn from(error: Unreadable) -> Self {
        Self::Unavailable(Box::new(error))
    }
}

impl From<TimedOut> for StoreError {
    fn from(error: TimedOut) -> Self {
        Self::Unavailable(Box::new(error))
    }
}
