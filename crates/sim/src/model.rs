//! Behaviours chosen by the name of the model that is asked for.

use std::time::Duration;

use crate::script::{Behaviour, TokenShape};

/// A model name worth showing to a newcomer.
#[derive(Clone, Copy, Debug)]
pub struct DemoModel {
    /// The name to ask for.
    pub id: &'static str,
    pub name: &'static str,
    pub description: &'static str,
}

/// The models a demo catalogue lists. More names work: `sim-status-NNN` for every status,
/// `sim-stop-REASON`, `sim-tokens-COUNTxBYTES`, `sim-redacted`, `sim-hang-mid`, `sim-close-mid`,
/// `sim-close-frame`, `sim-truncated`, `sim-garbage`, `sim-garbage-stream`, `sim-empty`, `sim-no-stop`,
/// `sim-refuse-member-NAME`, `sim-refuse-beta-NAME`, `sim-refuse-signature`, and `sim-quirk-NAME` for every [`Quirk`](crate::Quirk).
pub const DEMO_MODELS: &[DemoModel] = &[
    model("sim", "Simulated echo", "Repeats what you said, word by word."),
    model("sim-slow", "Simulated slow echo", "The echo, with a pause between words: watch it stream."),
    model("sim-thinking", "Simulated thinking", "Thinks in a signed block before it answers."),
    model("sim-tools", "Simulated tool use", "Calls the first tool you offer, then quotes its result."),
    model("sim-parallel-tools", "Simulated parallel tools", "Calls two tools in one turn."),
    model("sim-cached", "Simulated prompt cache", "Reports tokens read from and written to a prompt cache."),
    model("sim-refusal", "Simulated refusal", "Declines every request."),
    model("sim-status-429", "Simulated rate limit", "Always rate limited: shows retries and fallback."),
    model("sim-status-529", "Simulated overload", "Always overloaded: shows retries and fallback."),
    model("sim-error-mid", "Simulated broken stream", "Fails in the middle of a stream."),
    model("sim-hang", "Simulated silence", "Never answers: shows time-outs."),
];

const fn model(id: &'static str, name: &'static str, description: &'static str) -> DemoModel {
    DemoModel { id, name, description }
}

/// What a model name asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub behaviour: Behaviour,
    /// Replaces the script's pace.
    pub pace: Option<Duration>,
}

/// The behaviour a name stands for. `None`: an ordinary name, the script decides.
/// `Err`: one of ours that cannot be served, with the reason.
pub(crate) fn chosen(name: &str) -> Option<Result<Chosen, String>> {
    let rest = match name.strip_prefix("sim")? {
        "" => return Some(Ok(plain(Behaviour::Echo))),
        rest => rest.strip_prefix('-')?,
    };
    let behaviour = match rest {
        "slow" => {
            let pace = Some(Duration::from_millis(300));
            return Some(Ok(Chosen { behaviour: Behaviour::Echo, pace }));
        }
        "thinking" => Behaviour::Thinking,
        "tools" => Behaviour::ToolUse,
        "parallel-tools" => Behaviour::ParallelTools(2),
        "refusal" => Behaviour::Refusal,
        "cached" => Behaviour::Cached { read: 2048, write_5m: 512, write_1h: 256 },
        "hang" => Behaviour::HangBeforeHeaders,
        "hang-mid" => Behaviour::HangMidStream { after: MID },
        "close-mid" => Behaviour::CloseMidStream { after: MID },
        "close-frame" => Behaviour::CloseMidFrame { after: MID },
        "truncated" => Behaviour::TruncatedBody,
        "garbage" => Behaviour::Garbage,
        "garbage-stream" => Behaviour::GarbageStream,
        "empty" => Behaviour::EmptyStream,
        "no-stop" => Behaviour::EndsWithoutStop,
        "redacted" => Behaviour::RedactedThinking,
        "refuse-signature" => Behaviour::RefuseSignature,
        "error-mid" => {
            Behaviour::ErrorInStream { after: MID, error_type: "overloaded_error".into(), message: "Overloaded".into() }
        }
        _ => return with_argument(rest),
    };
    Some(Ok(plain(behaviour)))
}

/// Three events before the first delta, and two deltas: enough to be committed to the answer. The other
/// protocols have one to five deltas within it.
const MID: usize = 5;

fn with_argument(rest: &str) -> Option<Result<Chosen, String>> {
    if let Some(code) = rest.strip_prefix("status-") {
        let code = code.parse().ok().filter(|code| (200..=599).contains(code))?;
        let retry_after = matches!(code, 429 | 503 | 529).then(|| "1".to_owned());
        return Some(Ok(plain(Behaviour::Status { code, retry_after, error_type: None, message: None })));
    }
    if let Some(reason) = rest.strip_prefix("stop-") {
        return Some(Ok(plain(Behaviour::StopReason(reason.to_owned()))));
    }
    if let Some(name) = rest.strip_prefix("quirk-") {
        return Some(name.parse().map(|quirk| plain(Behaviour::Quirk(quirk))));
    }
    if let Some(name) = rest.strip_prefix("refuse-member-") {
        return Some(Ok(plain(Behaviour::RefuseMember(name.to_owned()))));
    }
    if let Some(name) = rest.strip_prefix("refuse-beta-") {
        return Some(Ok(plain(Behaviour::RefuseBeta(name.to_owned()))));
    }
    let shape = rest.strip_prefix("tokens-")?.parse::<TokenShape>();
    Some(shape.map(|TokenShape { count, bytes }| plain(Behaviour::Tokens { count, bytes })))
}

fn plain(behaviour: Behaviour) -> Chosen {
    Chosen { behaviour, pace: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behaviour(name: &str) -> Option<Behaviour> {
        chosen(name).map(|found| found.unwrap().behaviour)
    }

    #[test]
    fn every_listed_model_is_known() {
        for model in DEMO_MODELS {
            assert!(matches!(chosen(model.id), Some(Ok(_))), "{}", model.id);
        }
    }

    #[test]
    fn arguments_are_read_from_the_name() {
        assert_eq!(behaviour("sim-stop-pause_turn"), Some(Behaviour::StopReason("pause_turn".into())));
        assert_eq!(behaviour("sim-tokens-3x4"), Some(Behaviour::Tokens { count: 3, bytes: 4 }));
        assert_eq!(behaviour("sim-refuse-member-a.b"), Some(Behaviour::RefuseMember("a.b".into())));
        assert_eq!(behaviour("sim-refuse-beta-b-1"), Some(Behaviour::RefuseBeta("b-1".into())));
        assert_eq!(behaviour("sim-refuse-signature"), Some(Behaviour::RefuseSignature));
        assert_eq!(behaviour("sim-status-404"), Some(Behaviour::status(404)));
        let Some(Behaviour::Status { retry_after, .. }) = behaviour("sim-status-503") else { panic!() };
        assert_eq!(retry_after.as_deref(), Some("1"));
    }

    #[test]
    fn other_names_are_left_to_the_script() {
        for name in ["simple", "sim-unheard-of", "claude", "", "sim-status-7"] {
            assert_eq!(behaviour(name), None, "{name}");
        }
    }

    #[test]
    fn a_stream_too_large_to_render_is_refused() {
        assert!(matches!(chosen("sim-tokens-999999999x999999999"), Some(Err(_))));
    }
}
