//! A key in few columns, for the load of the whole index.
//!
//! What a row costs on its way out of SQLite is nearly all per column: each value is copied with an allocation of its
//! own. With everything but the free texts in one column, a hundred thousand keys load several times faster.

use tidegate_core::{KeyHash, KeyKind, Money, OrganisationId, Timestamp, WorkspaceId};

use super::LimitReset;
use super::row::{KeyRow, Names};
use crate::Result;
use crate::error::Unreadable;

/// `change_seq`, `name`, `label`, and the rest with spaces between. No id, number or word has a space in it, except
/// perhaps the creator's id, which therefore is last.
pub(super) type PackedKey = (i64, String, String, String);

macro_rules! select_packed_keys {
    () => {
        "SELECT change_seq, name, label, \
         hash || ' ' || organisation_id || ' ' || workspace_id || ' ' || kind \
         || CASE WHEN disabled THEN ' 1' ELSE ' 0' END \
         || CASE WHEN include_byok_in_limit THEN ' 1' ELSE ' 0' END \
         || ' ' || CAST(created_at AS TEXT) \
         || ' ' || COALESCE(CAST(updated_at AS TEXT), '-') \
         || ' ' || COALESCE(CAST(expires_at AS TEXT), '-') \
         || ' ' || COALESCE(CAST(limit_nanos AS TEXT), '-') \
         || ' ' || COALESCE(limit_reset, '-') \
         || ' ' || COALESCE(creator_user_id, '') \
         FROM api_keys"
    };
}
pub(super) use select_packed_keys;

/// The live key in `packed`.
pub(super) fn unpack(packed: PackedKey, names: &mut Names) -> Result<KeyRow> {
    let (change_seq, name, label, rest) = packed;
    let mut fields = Fields(rest.splitn(12, ' '));
    Ok(KeyRow {
        hash: fields.read("hash", KeyHash::parse)?,
        organisation: OrganisationId(fields.read("organisation_id", |text| Some(names.shared(text)))?),
        workspace: WorkspaceId(fields.read("workspace_id", |text| Some(names.shared(text)))?),
        kind: fields.read("kind", KeyKind::parse)?,
        name: name.into(),
        label: label.into(),
        disabled: fields.read("disabled", flag)?,
        include_byok_in_limit: fields.read("include_byok_in_limit", flag)?,
        created: fields.read("created_at", |text| text.parse().ok().map(Timestamp))?,
        updated: fields.read("updated_at", |text| optional(text, |text| text.parse().ok().map(Timestamp)))?,
        expires: fields.read("expires_at", |text| optional(text, |text| text.parse().ok().map(Timestamp)))?,
        limit: fields.read("limit_nanos", |text| optional(text, |text| text.parse().ok().map(Money)))?,
        limit_reset: fields.read("limit_reset", |text| optional(text, LimitReset::parse))?,
        creator: fields.read("creator_user_id", |text| Some((!text.is_empty()).then(|| text.into())))?,
        external_user: None,
        deleted: false,
        change_seq,
    })
}

struct Fields<'a>(std::str::SplitN<'a, char>);

impl Fields<'_> {
    fn read<T>(&mut self, column: &'static str, read: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        Ok(self.0.next().and_then(read).ok_or(Unreadable { table: "api_keys", column })?)
    }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// `Some(None)` for the mark of an absent value, `None` for one that cannot be read.
fn optional<T>(text: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if text == "-" { Some(None) } else { read(text).map(Some) }
}
