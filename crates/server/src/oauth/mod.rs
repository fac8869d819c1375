//! Authorization codes: what may be asked for, and when a code becomes a key. Decisions only; the operations are in
//! `api::auth_codes`, the page in `pages`, the rows in the store.

pub mod asked;
pub mod callback;
pub mod exchange;
pub mod pkce;
