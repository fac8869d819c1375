//! The one way to fetch what a caller points at: images, documents, pages, and later notifications. Providers, whose
//! addresses the operator wrote, are called through [`crate::upstream`] instead; nothing here knows a credential.
//!
//! `name` and `address` say where may be called, `client` calls it, `kind` says what came. Every failure is the same to
//! the caller ([`Refused`]): who asks must not learn what is behind our wall from how an answer is refused.

pub mod address;
mod client;
mod domains;
mod kind;
mod name;
#[cfg(test)]
mod tests;

pub use client::{Bounds, Egress, Fetched, Resolve, Said, System};
pub use domains::{Domain, Domains};
pub(crate) use kind::fitting;
pub use name::allowed_name;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use ipnet::IpNet;

/// Where may be called, by configuration.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Ranges that may be called although they are not public.
    pub allowed_ranges: Vec<IpNet>,
    /// Names that may be called wherever they lead; lower case, without a dot at the end.
    pub allowed_names: Vec<String>,
    pub ports: Vec<u16>,
    /// Where we ourselves listen.
    pub own: Vec<SocketAddr>,
    /// What we keep our own data in; never called, whatever is allowed.
    pub kept: Vec<Kept>,
}

/// Something of the operator's that the gateway itself calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name, in lower case and without a dot at the end, or its address.
    pub host: String,
    /// Nothing where every port of it is meant.
    pub port: Option<u16>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            allowed_ranges: Vec::new(),
            allowed_names: Vec::new(),
            ports: vec![80, 443],
            own: Vec::new(),
            kept: Vec::new(),
        }
    }
}

/// What a fetch is for: it decides which types are taken and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    Image,
    Document,
    /// What a model wants to read.
    Page,
}

impl Wanted {
    /// Bytes that are read at most.
    pub fn most(self) -> usize {
        match self {
            Self::Image => 20 << 20,
            Self::Document | Self::Page => 32 << 20,
        }
    }

    /// The same, of what its sender says it is.
    fn most_of(self, declared: Option<&str>) -> usize {
        match self {
            Self::Page if !kind::is_pdf(declared) => 5 << 20,
            _ => self.most(),
        }
    }
}

/// How an address that may be called is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    Tls,
    Plain,
    /// The operator allows this very place.
    Listed,
}

/// Looks at an address without calling it: names are resolved only when they are called.
pub fn checked(url: &str, rules: &Rules) -> Result<Checked, Refused> {
    let place = name::place(url, rules).map_err(Refused)?;
    let is_listed = match &place.host {
        name::Where::Name { allowed, .. } => *allowed,
        name::Where::Ip(ip) => rules.allowed_ranges.iter().any(|range| range.contains(ip)),
    };
    Ok(match (is_listed, place.is_tls()) {
        (true, _) => Checked::Listed,
        (false, true) => Checked::Tls,
        (false, false) => Checked::Plain,
    })
}

/// Bytes that several fetches may bring together.
#[derive(Debug)]
pub struct Budget(AtomicUsize);

impl Budget {
    pub fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    /// Takes from it; false when there is not so much left.
    pub fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// Nothing was fetched. Callers are told no more than that; the reason is for the log and for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub(crate) Reason);

impl Refused {
    /// It was for the port alone.
    pub fn is_port(self) -> bool {
        self.0 == Reason::Port
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("it could not be downloaded")
    }
}

impl std::error::Error for Refused {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Url,
    /// The caller's own lists do not let it through.
    Domain,
    Port,
    Name,
    Address,
    /// It is allowed, but for that it is the gateway itself or what it keeps its data in.
    Own,
    Lookup,
    Connect,
    Status,
    Redirect,
    Encoding,
    TooLarge,
    Type,
    TooManyPixels,
    TooSlow,
    Broken,
    Busy,
}
