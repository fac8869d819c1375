//! Whose data it is. Every store function takes a [`Tenant`]; only the look-up of a key by its hash yields one.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `org_` and a ULID.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OrganisationId(pub Arc<str>);

/// A UUID (version 7 when we make it).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WorkspaceId(pub Arc<str>);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tenant {
    pub organisation: OrganisationId,
}

impl fmt::Display for OrganisationId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self(String::deserialize(deserializer)?.into()))
            }
        }
    )*};
}
as_text!(OrganisationId, WorkspaceId);
