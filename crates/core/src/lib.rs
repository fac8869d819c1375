//! The words every Tidegate crate uses: ids, money, usage, secrets, time, and the record of a finished request.
//!
//! This crate depends on none of ours, does no I/O beyond asking the system for random bytes and the time, and knows
//! nothing of HTTP, SQL or any vendor's format. A thing lives here only when two crates that must not know each other
//! both need it. Start with [`exchange::Exchange`]: it is what everything else works towards.

pub mod boxed;
pub mod clock;
pub mod exchange;
pub mod id;
pub mod json;
pub mod key;
pub mod ledger;
pub mod map;
pub mod money;
pub mod secret;
pub mod tenant;
pub mod usage;
pub mod window;

pub use boxed::{boxed, pinned};
pub use clock::{Clock, Timestamp};
pub use exchange::{Api, Exchange, Outcome, Settlement};
pub use id::{FileId, GenerationId, RequestId};
pub use key::{KeyHash, KeyKind};
pub use ledger::{Account, Guarded, Posting, Slot, Spent};
pub use money::{Factor, Money, Price};
pub use secret::Secret;
pub use tenant::{OrganisationId, Tenant, WorkspaceId};
pub use usage::Usage;
pub use window::Window;
