//! Results that clients do not get to see, for the case that they send the calls back. Losing them is harmless: a call
//! whose result nobody remembers is left out of the conversation.

use std::sync::Arc;
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tidegate_core::{Timestamp, WorkspaceId};

use super::replay::Memory;

const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes that are kept in all, and results that this is roughly.
const MOST: u64 = 32 << 20;
const RESULTS: usize = 16_384;

type Key = (WorkspaceId, Box<str>);
type Kept = (Arc<str>, Timestamp);

#[derive(Clone)]
struct Size;

impl Weighter<Key, Kept> for Size {
    fn weight(&self, key: &Key, (text, _): &Kept) -> u64 {
        (text.len() + key.1.len() + 64) as u64
    }
}

/// Everybody's results.
pub(crate) struct Results(Cache<Key, Kept, Size>);

impl Default for Results {
    fn default() -> Self {
        Self(Cache::with_weighter(RESULTS, MOST, Size))
    }
}

impl Results {
    pub fn keep(&self, workspace: &WorkspaceId, id: &str, text: &str, now: Timestamp) {
        self.0.insert((workspace.clone(), id.into()), (text.into(), now.plus(KEPT)));
    }

    /// Those of a workspace.
    pub fn of(&self, workspace: &WorkspaceId, now: Timestamp) -> OfWorkspace<'_> {
        OfWorkspace { results: self, workspace: workspace.clone(), now }
    }
}

pub(crate) struct OfWorkspace<'a> {
    results: &'a Results,
    workspace: WorkspaceId,
    now: Timestamp,
}

impl Memory for OfWorkspace<'_> {
    fn result(&self, id: &str) -> Option<String> {
        let (text, until) = self.results.0.get(&(self.workspace.clone(), id.into()))?;
        (until > self.now).then(|| text.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_known_for_a_day_and_in_its_workspace_alone() {
        let results = Results::default();
        let (one, other) = (WorkspaceId("a".into()), WorkspaceId("b".into()));
        let day = 24 * 60 * 60 * 1_000;
        results.keep(&one, "srvtoolu_1", "text", Timestamp(0));
        assert_eq!(results.of(&one, Timestamp(day - 1)).result("srvtoolu_1").as_deref(), Some("text"));
        assert_eq!(results.of(&one, Timestamp(day)).result("srvtoolu_1"), None);
        assert_eq!(results.of(&other, Timestamp(1)).result("srvtoolu_1"), None);
    }
}
