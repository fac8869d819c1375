//! Signatures of calls, and what was thought before them, for clients that do not send them back. Some models refuse a
//! conversation in which one is missing, and answer worse to the one that stands for none. Losing them is harmless.

use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tidegate_core::{Timestamp, WorkspaceId};

/// A loop of tools is over by then.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// Of all of them together; those that were asked for the longest ago go first.
const MOST_BYTES: u64 = 16 << 20;
const USUAL: usize = 10_000;

#[derive(Clone)]
struct Size;

impl Weighter<String, (String, Timestamp)> for Size {
    fn weight(&self, key: &String, (carrier, _): &(String, Timestamp)) -> u64 {
        (key.len() + carrier.len()) as u64
    }
}

/// What carries the signature of a call, by whose call it is and its id, and until when. It says itself where it is worth
/// something.
pub(crate) struct Carriers(Cache<String, (String, Timestamp), Size>);

impl Default for Carriers {
    fn default() -> Self {
        Self(Cache::with_weighter(USUAL, MOST_BYTES, Size))
    }
}

impl Carriers {
    pub fn keep(&self, workspace: &WorkspaceId, signed: &[(String, String)], now: Timestamp) {
        for (id, carrier) in signed {
            self.0.insert(key(workspace, id), (carrier.clone(), now.plus(REMEMBERED)));
        }
    }

    /// Those of these calls that are known.
    pub fn of<'a>(
        &self,
        workspace: &WorkspaceId,
        ids: impl Iterator<Item = &'a str>,
        now: Timestamp,
    ) -> Vec<(String, String)> {
        let known = |id: &str| self.0.get(&key(workspace, id)).filter(|(_, until)| now < *until);
        ids.filter_map(|id| Some((id.to_owned(), known(id)?.0))).collect()
    }
}

fn key(workspace: &WorkspaceId, id: &str) -> String {
    format!("{}\0{id}", workspace.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_known_for_an_hour_and_to_its_own_workspace() {
        let carriers = Carriers::default();
        let (own, other) = (WorkspaceId("a".into()), WorkspaceId("b".into()));
        let signed = ("toolu_1".to_owned(), "tgs1.x".to_owned());
        carriers.keep(&own, std::slice::from_ref(&signed), Timestamp(1_000));
        let found = |workspace: &WorkspaceId, now| carriers.of(workspace, ["toolu_1", "toolu_2"].into_iter(), now);
        assert_eq!(found(&own, Timestamp(3_600_999)), [signed]);
        assert!(found(&own, Timestamp(3_601_000)).is_empty() && found(&other, Timestamp(1_000)).is_empty());
    }
}
