//! How much an endpoint may answer when the caller has set no limit: what its window has left beside the prompt.

use tidegate_providers::estimate;
use tidegate_routing::Attempt;
use tidegate_wire::messages::Request;

use super::job::Job;
use super::{prefer, translate};
use crate::tasks;

/// A prompt that can be no more than this part of the window is not counted: its bytes tell enough.
const SHORT: u64 = 16;
/// An answer is left no less room than this: an estimate is no reason to pay for a prompt and hear one word. Where it is
/// right, the upstream says that the prompt is too long.
const LEAST: u64 = 256;

/// The limit that an attempt must be given so that its answer fits the window; nothing where its own limit fits.
/// `changed` stands for the body where something had to be done to it.
pub(super) fn left(job: &Job, attempt: &Attempt, changed: Option<&Request>) -> Option<u64> {
    let endpoint = &attempt.endpoint;
    if job.max_tokens.is_some() {
        return None;
    }
    let most = job.cap.map_or(endpoint.max_output_tokens, |cap| cap.min(endpoint.max_output_tokens));
    let card = &job.snapshot.places[endpoint.place].card;
    let bound = prefer::at_most(job.body.len(), job.shown);
    let left = within(endpoint.context_length, most, bound, || {
        let request = changed.map_or_else(|| translate::typed(&job.typed, &job.body), Ok);
        request.map_or(bound, |request| tasks::at_length(|| estimate::tokens(request, card)))
    });
    left.map(|left| left.max(card.min_output_tokens))
}

/// What is left of a window for an answer of at most so many tokens; nothing where all of it is. `bound` is what the
/// prompt has at most by its size, `count` what it is thought to have.
fn within(window: u64, most: u64, bound: u64, count: impl FnOnce() -> u64) -> Option<u64> {
    // Of some endpoints nobody has said how wide they are.
    if window == 0 || most == 0 || bound.saturating_add(most) <= window {
        return None;
    }
    let prompt = if bound <= window / SHORT { bound } else { safely(count()) };
    let left = window.saturating_sub(prompt).max(LEAST);
    (left < most).then_some(left)
}

/// An estimate is a little more than is thought, where being wrong means to be refused.
fn safely(estimate: u64) -> u64 {
    estimate.saturating_mul(105).div_ceil(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uncounted() -> u64 {
        panic!("nobody has to count")
    }

    #[test]
    fn what_fits_by_its_size_is_not_counted() {
        assert_eq!(within(200_000, 8_192, 191_808, uncounted), None);
        assert_eq!(within(0, 8_192, 1 << 40, uncounted), None, "a window that nobody knows");
        assert_eq!(within(16_000, 16_000, 1_000, uncounted), Some(15_000), "a sixteenth of the window");
    }

    #[test]
    fn an_answer_gets_what_the_prompt_leaves() {
        assert_eq!(within(10_000, 8_000, 5_000, || 4_000), Some(10_000 - 4_200));
        assert_eq!(within(10_000, 8_000, 5_000, || 1_000), None, "it fits, once it is counted");
        assert_eq!(within(10_000, 8_000, 12_000, || 9_999), Some(256), "enough to say something");
        assert_eq!(within(10_000, 8_000, 5_000, || 4_001), Some(10_000 - 4_202), "rounded up");
    }
}
