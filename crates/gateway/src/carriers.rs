//! Signatures of calls, and what was thought before them, for clients that do not send them back. Some models refuse a
//! conversation in which one is missing, and answer worse to the one that stands for none. Losing them is harmless.

use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tidegate_core::{Timestamp, WorkspaceId};
use tidegate_providers::translate::carrier::is_thought;

/// A loop of tools is over by then.
const REMEMBERED: Duration = Duration::from_secs(3_600);
/// Of all of them together; those that were asked for the longest ago go first.
const MOST_BYTES: u64 = 16 << 20;
/// Of the signatures, which are small, and of the thoughts, which may be some hundreds of kilobytes: where more are
/// thought to come than do, the room is cut into pieces that hold no large one.
const USUAL_SIGNATURES: usize = 10_000;
const USUAL_THOUGHTS: usize = 50;

#[derive(Clone)]
struct Size;

impl Weighter<String, (String, Timestamp)> for Size {
    fn weight(&self, key: &String, (carrier, _): &(String, Timestamp)) -> u64 {
        (key.len() + carrier.len()) as u64
    }
}

type Kept = Cache<String, (String, Timestamp), Size>;

/// What carries the signature of a call, or the thought before it, by whose call it is and its id, and until when. It says
/// itself where it is worth something.
pub(crate) struct Carriers {
    signatures: Kept,
    /// With room of their own: a few of them would push out all signatures.
    thoughts: Kept,
}

impl Default for Carriers {
    fn default() -> Self {
        let kept = |usual| Cache::with_weighter(usual, MOST_BYTES, Size);
        Self { signatures: kept(USUAL_SIGNATURES), thoughts: kept(USUAL_THOUGHTS) }
    }
}

impl Carriers {
    pub fn keep(&self, workspace: &WorkspaceId, signed: &[(String, String)], now: Timestamp) {
        for (id, carrier) in signed {
            let kept = if is_thought(carrier) { &self.thoughts } else { &self.signatures };
            kept.insert(key(workspace, id), (carrier.clone(), now.plus(REMEMBERED)));
        }
    }

    /// Those of these calls that are known.
    pub fn of<'a>(
        &self,
        workspace: &WorkspaceId,
        ids: impl Iterator<Item = &'a str>,
        now: Timestamp,
    ) -> Vec<(String, String)> {
        let known = |id: &str| {
            let key = key(workspace, id);
            let found = [&self.signatures, &self.thoughts].into_iter().filter_map(|kept| kept.get(&key));
            // Should both know it, by an id that came twice, the later one counts.
            found.filter(|(_, until)| now < *until).max_by_key(|(_, until)| *until)
        };
        ids.filter_map(|id| Some((id.to_owned(), known(id)?.0))).collect()
    }
}

fn key(workspace: &WorkspaceId, id: &str) -> String {
    format!("{}\0{id}", workspace.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_providers::translate::carrier::Carrier;

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

    #[test]
    fn thoughts_push_out_no_signatures() {
        let (carriers, workspace, now) = (Carriers::default(), WorkspaceId("a".into()), Timestamp(1_000));
        let carrier = |kind: &str, data: &str| Carrier::new("p", "s", "m", kind, data).unwrap().to_signature();
        let signed = ("call_s".to_owned(), carrier("gemini_part", r#"{"signature":"x"}"#));
        carriers.keep(&workspace, std::slice::from_ref(&signed), now);
        let thought = carrier("plain", &format!(r#"{{"text":"{}"}}"#, "t".repeat(256 << 10)));
        let thoughts: Vec<_> = (0..200).map(|number| (format!("call_{number}"), thought.clone())).collect();
        carriers.keep(&workspace, &thoughts, now);
        assert_eq!(carriers.of(&workspace, ["call_s"].into_iter(), now), [signed]);
        let known = carriers.of(&workspace, thoughts.iter().map(|(id, _)| id.as_str()), now).len();
        assert!((20..=48).contains(&known), "{known}");
    }
}
