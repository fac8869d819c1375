//! The containers of an engine that this gateway has used: who uses them, and which may go when another one is needed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::WorkspaceId;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Containers {
    /// For whoever makes one. Nothing that a request without a sandbox waits for.
    pub(super) door: tokio::sync::Mutex<()>,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug)]
struct Known {
    owner: WorkspaceId,
    /// Those that use it.
    calls: usize,
    /// When it was last used.
    last: Instant,
}

/// A call that uses a container: while it does, nobody takes it away.
pub(super) struct Using {
    containers: Arc<Containers>,
    name: String,
}

impl Containers {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(self: &Arc<Self>, name: &str, owner: &WorkspaceId) -> Using {
        let known = || Known { owner: owner.clone(), calls: 0, last: Instant::now() };
        self.lock().entry(name.to_owned()).or_insert_with(known).calls += 1;
        Using { containers: self.clone(), name: name.to_owned() }
    }

    /// Forgets those that are gone.
    pub(super) fn forget_others(&self, there: &[(String, bool)]) {
        self.lock().retain(|name, known| known.calls > 0 || there.iter().any(|(other, _)| other == name));
    }

    /// Of the workspace that has the most, the one that was not used for longest. A workspace loses none to another one that
    /// has as many. What somebody else made is left alone: it ends by itself.
    pub(super) fn idlest(&self, there: &[(String, bool)], owner: &WorkspaceId) -> Option<String> {
        let all = self.lock();
        let known = || there.iter().filter_map(|(name, _)| Some((name, all.get(name)?)));
        let of = |owner: &WorkspaceId| known().filter(|(_, one)| one.owner == *owner).count();
        let own = of(owner);
        let may_go = |one: &Known| one.calls == 0 && (one.owner == *owner || of(&one.owner) > own);
        let idle = known().filter(|(_, one)| may_go(one));
        idle.max_by_key(|(_, one)| (of(&one.owner), Reverse(one.last))).map(|(name, _)| name.clone())
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if let Some(known) = self.containers.lock().get_mut(&self.name) {
            known.calls -= 1;
            known.last = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(name: &str) -> WorkspaceId {
        WorkspaceId(name.into())
    }

    #[test]
    fn who_has_the_most_loses_what_was_not_used_for_longest() {
        let containers = Arc::<Containers>::default();
        let there: Vec<_> = ["a1", "a2", "a3", "b1", "other"].map(|name| (name.to_owned(), true)).into();
        let (a, b) = (workspace("a"), workspace("b"));
        let mut using: Vec<_> = ["a2", "a1", "a3"].map(|name| containers.enter(name, &a)).into();
        using.push(containers.enter("b1", &b));
        assert_eq!(containers.idlest(&there, &a), None, "all are in use");
        // b1 first, then a2, a1, a3.
        using.rotate_right(1);
        using.into_iter().for_each(drop);
        assert_eq!(containers.idlest(&there, &a).as_deref(), Some("a2"));
        assert_eq!(containers.idlest(&there, &b).as_deref(), Some("a2"), "b has fewer");
        assert_eq!(containers.idlest(&there, &workspace("c")).as_deref(), Some("a2"));
        let busy = containers.enter("a2", &a);
        assert_eq!(containers.idlest(&there, &b).as_deref(), Some("a1"));
        drop(busy);
        assert_eq!(containers.idlest(&there[3..], &workspace("c")).as_deref(), Some("b1"));
        assert_eq!(containers.idlest(&there[3..4], &a), Some("b1".to_owned()), "a has none of these");
        containers.forget_others(&there[..1]);
        assert_eq!(containers.idlest(&there, &b).as_deref(), Some("a1"));
        assert_eq!(containers.idlest(&there[1..], &b), None);
    }
}
