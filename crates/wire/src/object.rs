//! Typed objects that keep strangers: `object!`, `tagged!` and `words!` write the serde impls of a wire type.
//!
//! Known members are fields; every other member is kept in `extra`, every unknown kind in `Other`, byte for byte. The
//! impls are written out because serde's `flatten`, `untagged` and internally tagged forms buffer the value, cannot hold
//! raw JSON and do not name the member that failed. Reading needs JSON text in memory (`from_slice`, `from_str`): raw
//! values borrow from it.
//!
//! | Section | Field | Absent | `null` |
//! | --- | --- | --- | --- |
//! | `required { a: T }` | `T` | an error that names it | what `T` makes of it (`T = Option<…>` where allowed) |
//! | `optional { a: T }` | `Option<T>` | `None`, not written | `None`; noted in `extra`, so it is written back |
//! | `nullable { a: T }` | `Option<Option<T>>` | `None`, not written | `Some(None)`, written as `null` |
//!
//! `nullable` is for members whose `null` we must be able to write ourselves; everywhere else absent and `null` mean the
//! same, and a null noted in `extra` gives way as soon as the field is set.

mod raw;
pub(crate) mod read;

pub use raw::{Extra, Other, Raw};

/// Writes a struct with its serde impls.
///
/// ```text
/// object! {
///     /// Documentation and further derives.
///     pub struct Name as "kind" {              // `as "kind"`: its `type` member, written first
///         required { a: T, kind as "type": U }  // `as "…"`: the member's name when it cannot be the field's
///         optional { b: T }
///         nullable { c: T }
///     }
/// }
/// ```
///
/// Each section may be left out. Every struct has `extra`; one with required members has `new` taking those, one
/// without has `Default`. With `as`, another `type` is an error when reading and a missing one is filled in.
macro_rules! object {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(as $kind:literal)? {
            $(required { $($(#[$rm:meta])* $r:ident $(as $rw:literal)? : $rt:ty),* $(,)? })?
            $(optional { $($(#[$om:meta])* $o:ident $(as $ow:literal)? : $ot:ty),* $(,)? })?
            $(nullable { $($(#[$nm:meta])* $n:ident $(as $nw:literal)? : $nt:ty),* $(,)? })?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($($(#[$rm])* pub $r: $rt,)*)?
            $($($(#[$om])* pub $o: Option<$ot>,)*)?
            $($($(#[$nm])* pub $n: Option<Option<$nt>>,)*)?
            /// Members without a field, and optional ones that were `null`.
            pub extra: $crate::object::Extra,
        }

        $crate::object::construct! { $name [$($($r: $rt,)*)?] [$($($o)*)? $($($n)*)?] }

        $(
            impl $name {
                pub fn kind(&self) -> &'static str {
                    $kind
                }
            }
        )?

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members;
                impl<'de> serde::de::Visitor<'de> for Members {
                    type Value = $name;
                    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        out.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut extra = $crate::object::Extra::default();
                        $(let mut expected = Some($kind);)?
                        $($(let mut $r = None;)*)?
                        $($(let mut $o = None;)*)?
                        $($(let mut $n = None;)*)?
                        while let Some($crate::json::Text(key)) = map.next_key()? {
                            $(if &*key == $crate::object::member!(kind "type" $kind) {
                                $crate::object::read::check_kind(&mut expected, &mut map)?;
                                continue;
                            })?
                            $($(if &*key == $crate::object::member!($r $($rw)?) {
                                $crate::object::read::fill(&mut $r, $crate::object::member!($r $($rw)?), &mut map)?;
                                continue;
                            })*)?
                            $($(if &*key == $crate::object::member!($o $($ow)?) {
                                let name = $crate::object::member!($o $($ow)?);
                                $crate::object::read::fill_optional(&mut $o, &mut extra, name, &mut map)?;
                                continue;
                            })*)?
                            $($(if &*key == $crate::object::member!($n $($nw)?) {
                                $crate::object::read::fill(&mut $n, $crate::object::member!($n $($nw)?), &mut map)?;
                                continue;
                            })*)?
                            extra.push(key, map.next_value()?);
                        }
                        Ok($name {
                            $($($r: $r.ok_or_else(|| {
                                serde::de::Error::missing_field($crate::object::member!($r $($rw)?))
                            })?,)*)?
                            $($($o,)*)?
                            $($($n,)*)?
                            extra,
                        })
                    }
                }
                deserializer.deserialize_map(Members)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                $(map.serialize_entry("type", $kind)?;)?
                $($(map.serialize_entry($crate::object::member!($r $($rw)?), &self.$r)?;)*)?
                $($(if let Some(value) = &self.$o {
                    map.serialize_entry($crate::object::member!($o $($ow)?), value)?;
                })*)?
                $($(if let Some(value) = &self.$n {
                    map.serialize_entry($crate::object::member!($n $($nw)?), value)?;
                })*)?
                for (key, value) in &self.extra.0 {
                    // The null that was read here has been replaced since.
                    $($(if self.$o.is_some() && key == $crate::object::member!($o $($ow)?) { continue; })*)?
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    };
}

/// Writes an enum over the objects that share a place and are told apart by `type`.
///
/// ```text
/// tagged! {
///     /// Documentation.
///     pub enum Name else "kind" {        // `else`: the kind of an object without `type`
///         "kind" => Variant(Type),
///         "one" | "two" => Both(Type),   // a type with its own `kind()`
///     }
/// }
/// ```
///
/// A kind that is not listed becomes `Other`; so does a listed one whose members do not fit, because not understanding a
/// block is no reason to reject a conversation. `parse_strict` reports the misfit instead (of this value; values inside
/// it stay lenient). Only something that is no object with a string `type` is an error in both.
macro_rules! tagged {
    (
        $(#[$meta:meta])*
        pub enum $name:ident $(else $default:literal)? {
            $($($kind:literal)|+ => $variant:ident($ty:ty)),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $($variant($ty),)*
            Other($crate::object::Other),
        }

        impl $name {
            /// The kinds that have a variant.
            pub const KINDS: &[&str] = &[$($($kind),+),*];

            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(value) => value.kind(),)*
                    Self::Other(other) => &other.kind,
                }
            }

            /// Reads a value and says what is wrong with it instead of keeping it as `Other`; unknown kinds stay fine.
            pub fn parse_strict(text: &str) -> serde_json::Result<Self> {
                let raw: &serde_json::value::RawValue = serde_json::from_str(text)?;
                let kind = $crate::object::read::kind_of(raw, Self::DEFAULT_KIND)?;
                match &*kind {
                    $($($kind)|+ => serde_json::from_str(raw.get()).map(Self::$variant),)*
                    _ => Ok($crate::object::read::other(kind, raw).into()),
                }
            }

            const DEFAULT_KIND: Option<&'static str> = $crate::object::maybe!($($default)?);

            fn read_known(kind: &str, raw: &serde_json::value::RawValue) -> Option<Self> {
                match kind {
                    $($($kind)|+ => $crate::json::read_raw(raw).ok().map(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl From<$crate::object::Other> for $name {
            fn from(other: $crate::object::Other) -> Self {
                Self::Other(other)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let raw = <&serde_json::value::RawValue>::deserialize(deserializer)?;
                let kind = $crate::object::read::kind_of(raw, Self::DEFAULT_KIND).map_err(serde::de::Error::custom)?;
                let known = $crate::object::read::nested(|| Self::read_known(&kind, raw));
                Ok(known.unwrap_or_else(|| $crate::object::read::other(kind, raw).into()))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(value) => value.serialize(serializer),)*
                    Self::Other(other) => other.raw.serialize(serializer),
                }
            }
        }
    };
}

/// Writes an enum over strings; a word that is not listed survives as `Other`.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($word:literal => $variant:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($variant,)*
            Other(String),
        }

        impl $name {
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::json::Text::deserialize(deserializer).map(|text| Self::from(&*text.0))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

macro_rules! construct {
    ($name:ident [] [$($optional:ident)*]) => {
        impl Default for $name {
            fn default() -> Self {
                Self { $($optional: None,)* extra: $crate::object::Extra::default() }
            }
        }
    };
    ($name:ident [$($required:ident: $type:ty,)+] [$($optional:ident)*]) => {
        impl $name {
            pub fn new($($required: $type),+) -> Self {
                Self { $($required,)+ $($optional: None,)* extra: $crate::object::Extra::default() }
            }
        }
    };
}

macro_rules! maybe {
    () => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}

// A member's name: the field's own unless another is given. A further literal only ties the use to its repetition.
macro_rules! member {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $name:literal $($for:literal)?) => {
        $name
    };
}

pub(crate) use {construct, maybe, member, object, tagged, words};
