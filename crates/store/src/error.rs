//! What can go wrong with a store call, in words that callers act on.

use std::error::Error;

use sqlx::error::ErrorKind;

use crate::dialect;
use crate::vault::VaultError;

pub type Result<T> = std::result::Result<T, StoreError>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store's own fault (connection, pool, disk, time limit, unreadable row) and never the caller's.
    #[error("the store is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// Somebody else holds what this needed, and did not let go in time. Nothing was changed; another try may go well.
    #[error("the store is busy")]
    Busy(#[source] Box<dyn Error + Send + Sync>),
    #[error("it exists already")]
    Conflict,
    /// A record was to refer to something that is not there, or not this tenant's.
    #[error("it refers to something that does not exist")]
    Missing,
    /// A rule forbids the change; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// The rules a change can break, in words that fit behind the name of what was to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("has as many keys as a workspace may have")]
    TooManyKeys,
    #[error("is not a member of the workspace")]
    NotAMember,
    #[error("has as many workspaces as an account may have")]
    TooManyWorkspaces,
    #[error("is the slug of another workspace")]
    SlugTaken,
    #[error("is the default workspace")]
    IsDefault,
    #[error("has live keys")]
    HasKeys,
    #[error("has a live management key: see `tidegate keys list`, and delete it with `tidegate keys delete`")]
    HasManagementKeys,
    #[error("is the address of another member")]
    EmailTaken,
    #[error("names somebody who is not a member of the organisation")]
    UnknownUser,
    #[error("is the address of a member who signed in as somebody else before")]
    OtherIdentity,
    #[error("was a member and has been removed")]
    WasRemoved,
    #[error("names a member who holds live keys in the workspace")]
    HoldsKeys,
    #[error("has as many credentials as a workspace may have")]
    TooManyCredentials,
    #[error("has as many presets as a workspace may have")]
    TooManyPresets,
    #[error("has as many guardrails as a workspace may have")]
    TooManyGuardrails,
    #[error("of a workspace's own guardrail cannot be changed")]
    NameOfDefault,
    #[error("has as many destinations of this type as a workspace may have")]
    TooManyDestinations,
    #[error("has as many files as a workspace may have")]
    TooManyFiles,
    #[error("has no room for a file of this size")]
    NoRoomForFile,
    #[error("belongs to another workspace")]
    OfAnotherWorkspace,
    #[error("names a key that is no inference key of the account")]
    UnknownKey,
    #[error("cannot be combined with is_fallback")]
    ByokOnlyFallback,
    #[error("the {narrow} budget must be less than the {wide} budget")]
    BudgetOrder { wide: &'static str, narrow: &'static str },
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

#[derive(Debug, thiserror::Error)]
#[error("others changed it at every try")]
pub(crate) struct Outrun;

impl StoreError {
    /// The same where there is one connection that writes, and all take turns: whoever does not get it in time waited for
    /// somebody who waits for a lock himself.
    pub(crate) fn of_turns(self) -> Self {
        match self {
            Self::Unavailable(error)
                if matches!(error.downcast_ref::<sqlx::Error>(), Some(sqlx::Error::PoolTimedOut)) =>
            {
                Self::Busy(error)
            }
            other => other,
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error.as_database_error().map(|database| database.kind()) {
            Some(ErrorKind::UniqueViolation) => Self::Conflict,
            Some(ErrorKind::ForeignKeyViolation) => Self::Missing,
            _ if dialect::is_contention(&error) => Self::Busy(Box::new(error)),
            _ => Self::Unavailable(Box::new(error)),
        }
    }
}

impl From<Unreadable> for StoreError {
    fn from(error: Unreadable) -> Self {
        Self::Unavailable(Box::new(error))
    }
}

/// What cannot be sealed cannot be stored.
impl From<VaultError> for StoreError {
    fn from(error: VaultError) -> Self {
        Self::Unavailable(Box::new(error))
    }
}

impl From<TimedOut> for StoreError {
    fn from(error: TimedOut) -> Self {
        Self::Unavailable(Box::new(error))
    }
}
