//! What a call counts towards: accounts, and the windows in which they count.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clock::Timestamp;
use crate::key::KeyHash;
use crate::money::Money;
use crate::tenant::{OrganisationId, WorkspaceId};
use crate::window::Window;

/// Something that can have a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Account {
    Key(KeyHash),
    Member(Arc<str>),
    Guardrail(Arc<str>),
    Workspace(WorkspaceId),
    Organisation(OrganisationId),
}

/// Whose spending a limit of a guardrail looks at: each key and each member that it is for has the whole of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded<'a> {
    Key(KeyHash),
    Member(&'a str),
}

impl Account {
    /// The account of a guardrail for one of those that it is for.
    pub fn guarded(guardrail: &str, whom: Guarded<'_>) -> Self {
        Self::Guardrail(match whom {
            Guarded::Key(hash) => format!("{guardrail}/key/{hash}").into(),
            Guarded::Member(user) => format!("{guardrail}/member/{user}").into(),
        })
    }

    /// Whom the account of a guardrail is for; none where it is another account.
    pub fn whom(&self) -> Option<Guarded<'_>> {
        let Self::Guardrail(name) = self else { return None };
        match name.split('/').collect::<Vec<_>>()[..] {
            [_, "key", hash] => KeyHash::parse(hash).map(Guarded::Key),
            [_, "member", user] => Some(Guarded::Member(user)),
            _ => None,
        }
    }
}

/// An account in one of its windows: what is spent in another one does not count here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    pub account: Account,
    /// `None`: all of its life.
    pub window: Option<Window>,
    /// The window's first day, as [`crate::window::day`] counts; 0 without a window.
    pub first_day: i64,
}

/// What a call adds to a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posting {
    pub slot: Slot,
    pub amount: Money,
}

/// What a call adds to what was spent. Whoever counts money counts this: the book of a node, the days in the store, the
/// metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub credit: Money,
    /// Through credentials of the customer's own, at list price. Such a call costs a fee, if anything.
    pub byok: Money,
}

impl Spent {
    /// What a record says. Nothing that is less than nothing was ever spent.
    pub fn of(cost: Option<Money>, is_byok: bool, list_cost: Option<Money>) -> Self {
        let amount = |money: Option<Money>| money.unwrap_or_default().max(Money::ZERO);
        Self { credit: amount(cost), byok: amount(list_cost.filter(|_| is_byok)) }
    }

    /// What a limit sees of it.
    pub fn counted(&self, counts_byok: bool) -> Money {
        if counts_byok { self.credit.plus(self.byok) } else { self.credit }
    }

    pub fn plus(self, other: Self) -> Self {
        Self { credit: self.credit.plus(other.credit), byok: self.byok.plus(other.byok) }
    }
}

impl Slot {
    /// The window that an instant is in.
    pub fn of(account: Account, window: Option<Window>, now: Timestamp) -> Self {
        Self { account, window, first_day: window.map_or(0, |window| window.first_day(now)) }
    }

    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, ':');
        let first_day = parts.next()?.parse().ok()?;
        let window = match parts.next()? {
            "lifetime" => None,
            name => Some(Window::parse(name)?),
        };
        let (kind, name) = parts.next()?.split_once(':')?;
        let account = match kind {
            "key" => Account::Key(KeyHash::parse(name)?),
            "member" => Account::Member(name.into()),
            "guardrail" => Account::Guardrail(name.into()),
            "workspace" => Account::Workspace(WorkspaceId(name.into())),
            "organisation" => Account::Organisation(OrganisationId(name.into())),
            _ => return None,
        };
        Some(Self { account, window, first_day })
    }
}

/// How it is stored: `key:…`, `workspace:…` and so on.
impl fmt::Display for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(hash) => write!(out, "key:{hash}"),
            Self::Member(id) => write!(out, "member:{id}"),
            Self::Guardrail(id) => write!(out, "guardrail:{id}"),
            Self::Workspace(id) => write!(out, "workspace:{id}"),
            Self::Organisation(id) => write!(out, "organisation:{id}"),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = self.window.map_or("lifetime", Window::as_str);
        write!(out, "{}:{window}:{}", self.account, self.first_day)
    }
}

impl Serialize for Slot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Slot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an account and its window"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_a_guardrail_says_whom_it_is_for() {
        let hash = KeyHash::of(b"k");
        for whom in [Guarded::Key(hash), Guarded::Member("user_1")] {
            let account = Account::guarded("0190-g", whom);
            let slot = Slot::of(account, Some(Window::Daily), Timestamp(1_790_000_000_000));
            let read = Slot::parse(&slot.to_string()).map(|slot| slot.account);
            assert_eq!(read.as_ref().and_then(Account::whom), Some(whom));
        }
        assert_eq!(Account::Guardrail("g".into()).whom(), None);
        assert_eq!(Account::Key(hash).whom(), None);
    }

    #[test]
    fn the_list_price_counts_where_an_own_credential_was_used() {
        let (fee, list) = (Some(Money(3)), Some(Money(70)));
        assert_eq!(Spent::of(fee, true, list), Spent { credit: Money(3), byok: Money(70) });
        assert_eq!(Spent::of(fee, false, list), Spent { credit: Money(3), byok: Money::ZERO });
        assert_eq!(Spent::of(None, true, None), Spent::default());
        assert_eq!(Spent::of(Some(Money(-3)), true, Some(Money(-70))), Spent::default());
        let spent = Spent::of(fee, true, list);
        assert_eq!((spent.counted(true), spent.counted(false)), (Money(73), Money(3)));
    }

    #[test]
    fn a_slot_survives_its_text() {
        let now = Timestamp(1_790_000_000_000);
        let accounts = [
            Account::Key(KeyHash::of(b"k")),
            Account::Member("u:1".into()),
            Account::Guardrail("g".into()),
            Account::Workspace(WorkspaceId("w".into())),
            Account::Organisation(OrganisationId("org_1".into())),
        ];
        for account in accounts {
            for window in [None, Some(Window::Daily), Some(Window::Weekly), Some(Window::Monthly)] {
                let slot = Slot::of(account.clone(), window, now);
                assert_eq!(Slot::parse(&slot.to_string()), Some(slot.clone()), "{slot}");
            }
        }
        for text in ["", "key:zz:daily:1", "key:1", "workspace:w:hourly:1", "workspace:w:daily:x", "dog:w:daily:1"] {
            assert_eq!(Slot::parse(text), None, "{text}");
        }
    }
}
