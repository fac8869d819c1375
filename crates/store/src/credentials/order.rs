//! The place of a credential among those of its workspace, provider and section, which is prioritised or fallback.

use super::CredentialRow;

/// Those between two places, both included, and by how much each moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shift {
    pub from: i64,
    pub to: i64,
    pub by: i64,
}

/// Where a credential goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Stays,
    /// Behind all others of its new section.
    ToEnd,
    To(i64, Shift),
}

/// What becomes of the order when `old` becomes `new` and is to stand at `wanted`; `end` is the place behind all that
/// are in its section now. Within a section, only those between the old place and the new one move, towards the gap it
/// leaves. Nobody is put behind the end: places are counted on from the last one, and would run out of numbers.
pub(super) fn moved(old: &CredentialRow, new: &CredentialRow, wanted: Option<i64>, end: i64) -> Move {
    let has = old.sort_order;
    let stays = old.is_fallback == new.is_fallback;
    let last = if stays { end - 1 } else { end };
    match (stays, wanted.map(|place| place.min(last))) {
        (true, None) => Move::Stays,
        (true, Some(place)) if place == has => Move::Stays,
        (true, Some(place)) if place < has => Move::To(place, Shift { from: place, to: has - 1, by: 1 }),
        (true, Some(place)) => Move::To(place, Shift { from: has + 1, to: place, by: -1 }),
        (false, Some(place)) => Move::To(place, Shift { from: place, to: i64::MAX, by: 1 }),
        (false, None) => Move::ToEnd,
    }
}

/// The place behind all others of the section, inside a transaction.
macro_rules! last_place {
    ($transaction:ident, $row:expr) => {{
        let place: i64 = sqlx::query_scalar(
            "SELECT CAST(COALESCE(MAX(sort_order) + 1, 0) AS BIGINT) FROM credentials \
             WHERE organisation_id = $1 AND workspace_id = $2 AND provider = $3 AND is_fallback = $4 \
             AND deleted_at IS NULL",
        )
        .bind(&*$row.organisation.0)
        .bind(&*$row.workspace.0)
        .bind(&*$row.provider)
        .bind($row.is_fallback)
        .fetch_one(&mut *$transaction)
        .await?;
        place
    }};
}
pub(super) use last_place;

/// Makes room in the section of `$row` for it, each of the others with a number of its own; the ids of those that moved.
macro_rules! make_room {
    ($transaction:ident, $row:expr, $shift:expr, $now:expr) => {{
        let others: Vec<String> = sqlx::query_scalar(concat!("SELECT id", those_between!(), " ORDER BY id"))
            .bind(&*$row.organisation.0)
            .bind(&*$row.workspace.0)
            .bind(&*$row.provider)
            .bind($row.is_fallback)
            .bind($shift.from)
            .bind($shift.to)
            .bind(&*$row.id)
            .fetch_all(&mut *$transaction)
            .await?;
        let last: i64 = sqlx::query_scalar(TAKE_CHANGES)
            .bind(i64::try_from(others.len()).unwrap_or(0))
            .fetch_one(&mut *$transaction)
            .await?;
        sqlx::query(concat!(
            "UPDATE credentials SET sort_order = sort_order + $8, revision = revision + 1, updated_at = $9, \
             change_seq = $10 - numbered.place \
             FROM (SELECT id AS numbered_id, ROW_NUMBER() OVER (ORDER BY id) - 1 AS place",
            those_between!(),
            ") AS numbered WHERE organisation_id = $1 AND id = numbered.numbered_id"
        ))
        .bind(&*$row.organisation.0)
        .bind(&*$row.workspace.0)
        .bind(&*$row.provider)
        .bind($row.is_fallback)
        .bind($shift.from)
        .bind($shift.to)
        .bind(&*$row.id)
        .bind($shift.by)
        .bind($now.0)
        .bind(last)
        .execute(&mut *$transaction)
        .await?;
        others
    }};
}
pub(super) use make_room;

/// The others of a section from one place to another: organisation, workspace, provider, section, places, the one that
/// they make room for.
macro_rules! those_between {
    () => {
        " FROM credentials WHERE organisation_id = $1 AND workspace_id = $2 AND provider = $3 AND is_fallback = $4 \
         AND sort_order >= $5 AND sort_order <= $6 AND id <> $7 AND deleted_at IS NULL"
    };
}
pub(super) use those_between;
