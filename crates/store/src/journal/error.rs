//! What can be wrong with the journal's file, as far as it makes a difference.

use sqlx::error::DatabaseError as _;
use sqlx::sqlite::SqliteError;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("there is no room on the disk")]
    Full,
    #[error("somebody else holds the journal's lock")]
    Locked,
    #[error("the journal could not be read or written: {0}")]
    Broken(#[source] sqlx::Error),
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    #[error("the journal is of an older release: start the server once, which takes it over")]
    Older,
    #[error("the journal holds something that cannot be read: {0}")]
    Unreadable(String),
}

impl From<sqlx::Error> for JournalError {
    fn from(error: sqlx::Error) -> Self {
        let sqlite = error.as_database_error().and_then(|database| database.try_downcast_ref::<SqliteError>());
        // The low byte is the kind of the error, what is above it says more.
        match sqlite.and_then(|error| error.code()?.parse::<i32>().ok()).map(|code| code & 0xFF) {
            Some(5 | 6) => Self::Locked,
            Some(13) => Self::Full,
            Some(11 | 26) => Self::Damaged(error.to_string()),
            _ => Self::Broken(error),
        }
    }
}
