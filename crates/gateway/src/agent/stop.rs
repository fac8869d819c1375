//! When a loop of tool calls ends: what the caller set, and what the deployment always holds to.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Money;

/// Calls that a request may make when it says nothing else.
const MOST_CALLS: u64 = 30;

/// One entry of `stop_server_tools_when`; its shape was checked with the request.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Condition {
    StepCountIs { step_count: u64 },
    HasToolCall { tool_name: String },
    MaxTokensUsed { max_tokens: u64 },
    MaxCost { max_cost_in_dollars: serde_json::Number },
    FinishReasonIs { reason: String },
}

/// How far a request's loop may go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limits {
    conditions: Vec<Condition>,
    /// Calls that are run; the ones beyond it are told so.
    pub calls: u64,
    /// They are the deployment's, and not the caller's.
    is_ceiling: bool,
}

/// What has happened up to the end of a turn, its own calls not yet run.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Calls that were run.
    pub steps: u64,
    /// Calls of this turn that wait to be run.
    pub pending: u64,
    /// Every name that a call so far can be known by.
    pub names: Vec<String>,
    /// Input, whether cached or not, and output of all turns.
    pub tokens: u64,
    pub cost: Money,
    /// Why this turn ended, in the words of the Messages format.
    pub reason: String,
}

impl Limits {
    /// `most`: the deployment's own ceiling.
    pub fn of(stop_when: Option<&RawValue>, max_tool_calls: Option<u64>, most: u64) -> Self {
        let conditions: Vec<Condition> =
            stop_when.and_then(|given| serde_json::from_str(given.get()).ok()).unwrap_or_default();
        let calls = match conditions.is_empty() {
            true => max_tool_calls.unwrap_or(MOST_CALLS).min(MOST_CALLS),
            // Conditions replace the budget.
            false => u64::MAX,
        };
        Self { conditions, calls: calls.min(most), is_ceiling: most < calls }
    }

    /// What it is called when no further call may be run.
    pub fn spent(&self) -> &'static str {
        if self.is_ceiling { "max_steps" } else { "max_tool_calls" }
    }

    /// The first condition that holds, by its name.
    pub fn fired(&self, tally: &Tally) -> Option<&'static str> {
        self.conditions.iter().find_map(|condition| condition.holds(tally))
    }

    /// Whether no further call may be run after those that wait.
    pub fn is_spent(&self, tally: &Tally) -> bool {
        tally.steps + tally.pending >= self.calls
    }
}

impl Condition {
    fn holds(&self, tally: &Tally) -> Option<&'static str> {
        let (name, holds) = match self {
            Self::StepCountIs { step_count } => ("step_count_is", tally.steps + tally.pending >= *step_count),
            Self::HasToolCall { tool_name } => ("has_tool_call", tally.names.iter().any(|name| name == tool_name)),
            Self::MaxTokensUsed { max_tokens } => ("max_tokens_used", tally.tokens >= *max_tokens),
            Self::MaxCost { max_cost_in_dollars } => ("max_cost", tally.cost >= dollars(max_cost_in_dollars)),
            Self::FinishReasonIs { reason } => ("finish_reason_is", is_reason(&tally.reason, reason)),
        };
        holds.then_some(name)
    }
}

/// An amount that is too fine or too large for an account is never reached exactly, so the nearest one counts.
fn dollars(number: &serde_json::Number) -> Money {
    Money::parse(&number.to_string()).unwrap_or_else(|_| {
        let nanos = number.as_f64().unwrap_or(f64::MAX) * 1e9;
        Money(nanos as i64)
    })
}

/// The same reason in either vocabulary.
fn is_reason(ours: &str, wanted: &str) -> bool {
    const SAME: [(&str, &str); 4] =
        [("end_turn", "stop"), ("max_tokens", "length"), ("tool_use", "tool_calls"), ("refusal", "content_filter")];
    ours == wanted || SAME.contains(&(ours, wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limits(conditions: Value) -> Limits {
        let raw = serde_json::value::to_raw_value(&conditions).unwrap();
        Limits::of(Some(&raw), Some(1), 100)
    }

    fn tally() -> Tally {
        Tally {
            steps: 2,
            pending: 1,
            names: ["tidegate:web_search", "web_search", "get_price"].map(str::to_owned).to_vec(),
            tokens: 500,
            cost: Money(250_000_000),
            reason: "tool_use".to_owned(),
        }
    }

    #[test]
    fn each_condition_holds_at_its_boundary_and_not_before() {
        let table = [
            (json!({"type": "step_count_is", "step_count": 3}), true),
            (json!({"type": "step_count_is", "step_count": 4}), false),
            (json!({"type": "has_tool_call", "tool_name": "tidegate:web_search"}), true),
            (json!({"type": "has_tool_call", "tool_name": "web_search"}), true),
            (json!({"type": "has_tool_call", "tool_name": "get_price"}), true),
            (json!({"type": "has_tool_call", "tool_name": "web"}), false),
            (json!({"type": "max_tokens_used", "max_tokens": 500}), true),
            (json!({"type": "max_tokens_used", "max_tokens": 501}), false),
            (json!({"type": "max_cost", "max_cost_in_dollars": 0.25}), true),
            (json!({"type": "max_cost", "max_cost_in_dollars": 0.250000001}), false),
            (json!({"type": "max_cost", "max_cost_in_dollars": 0}), true),
            (json!({"type": "max_cost", "max_cost_in_dollars": 1e300}), false),
            (json!({"type": "finish_reason_is", "reason": "tool_use"}), true),
            (json!({"type": "finish_reason_is", "reason": "tool_calls"}), true),
            (json!({"type": "finish_reason_is", "reason": "stop"}), false),
        ];
        for (condition, holds) in table {
            let fired = limits(json!([condition])).fired(&tally());
            assert_eq!(fired.is_some(), holds, "{condition}");
            assert!(fired.is_none_or(|name| condition["type"] == name));
        }
    }

    #[test]
    fn any_condition_is_enough_and_the_first_is_named() {
        let never = json!({"type": "step_count_is", "step_count": 99});
        let (tokens, cost) = (
            json!({"type": "max_tokens_used", "max_tokens": 1}),
            json!({"type": "max_cost", "max_cost_in_dollars": 0.01}),
        );
        assert_eq!(limits(json!([never, tokens])).fired(&tally()), Some("max_tokens_used"));
        assert_eq!(limits(json!([cost, tokens])).fired(&tally()), Some("max_cost"));
        assert_eq!(limits(json!([never])).fired(&tally()), None);
    }

    #[test]
    fn conditions_replace_the_budget_but_not_the_ceiling() {
        let never = json!([{"type": "step_count_is", "step_count": 99}]);
        assert_eq!(limits(never).calls, 100);
        assert_eq!(Limits::of(None, None, 100).calls, 30);
        assert_eq!(Limits::of(None, Some(31), 100).calls, 30);
        assert_eq!(Limits::of(None, Some(4), 100).calls, 4);
        assert_eq!(Limits::of(None, Some(4), 2).calls, 2);
        let spent = |steps, pending| Limits::of(None, Some(3), 100).is_spent(&Tally { steps, pending, ..tally() });
        assert!(!spent(1, 1) && spent(2, 1) && spent(0, 4));
    }
}
