//! Which of several failed attempts is told of: the one that helps the caller most.

use tidegate_providers::{Class, Fault, Next};
use tidegate_routing::{Attempt, Plan};

use super::is_gone;

/// What each endpoint said last: one that was called again has failed once.
pub(super) fn latest(faults: &[(usize, Fault)]) -> Vec<(usize, Fault)> {
    let is_last = |at: usize, place: usize| faults[at + 1..].iter().all(|(later, _)| *later != place);
    let kept = faults.iter().enumerate().filter(|(at, (place, _))| is_last(*at, *place));
    kept.map(|(_, fault)| fault.clone()).collect()
}

/// What the caller can mend goes before what passes, as far as it was said by the last model of the request: of the ones
/// before it another was asked. First what is wrong with the request, then a credential of the caller's that was refused.
pub(super) fn decisive<'a>(faults: &'a [(usize, Fault)], plan: &Plan) -> Option<&'a (usize, Fault)> {
    let attempt = |place: usize| &plan.attempts[place];
    let model = faults.iter().map(|(place, _)| attempt(*place).model).max();
    let of_last = || faults.iter().rev().filter(|(place, _)| Some(attempt(*place).model) == model);
    let is_mistake = |failed: &Attempt, fault: &Fault| match fault.class.next() {
        Next::AnotherEndpoint => false,
        // Whoever takes more may only have been out of order.
        Next::LargerEndpoint => {
            let most = of_last().map(|(place, _)| attempt(*place).endpoint.context_length).max();
            Some(failed.endpoint.context_length) == most
        }
        Next::AnotherModel => true,
    };
    let is_refused = |failed: &Attempt, fault: &Fault| {
        failed.credential.is_some() && !is_gone(fault) && matches!(fault.class, Class::Credential | Class::Billing)
    };
    let mistake = of_last().find(|(place, fault)| is_mistake(attempt(*place), fault));
    let refused = || of_last().find(|(place, fault)| is_refused(attempt(*place), fault));
    mistake.or_else(refused).or_else(|| faults.last())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tidegate_routing::{Credential, Endpoint, Strategy, Variants};

    /// Attempts by the place of their model, their context and whether the credential is the caller's.
    fn plan(list: &[(usize, u64, bool)]) -> Plan {
        let credential = Credential::new("c", "p");
        let attempt = |&(model, context_length, own): &(usize, u64, bool)| Attempt {
            endpoint: Arc::new(Endpoint { context_length, ..Endpoint::new("m", "p") }),
            credential: own.then(|| Arc::new(credential.clone())),
            model,
            strategy: Strategy::Direct,
            variants: Variants::NONE,
        };
        Plan {
            attempts: list.iter().map(attempt).collect(),
            total: list.len(),
            too_short: 0,
            strategy: Strategy::Direct,
        }
    }

    fn told(plan: &Plan, faults: &[(usize, Class)]) -> Option<(usize, Class)> {
        let faults: Vec<_> = faults.iter().map(|(place, class)| (*place, Fault::in_answer(*class))).collect();
        decisive(&faults, plan).map(|(place, fault)| (*place, fault.class))
    }

    #[test]
    fn an_endpoint_that_was_called_again_has_failed_once() {
        let faults = [(0, Class::Server), (1, Class::Overloaded), (0, Class::RateLimit), (0, Class::Unreachable)];
        let faults: Vec<_> = faults.iter().map(|(place, class)| (*place, Fault::without_answer(*class))).collect();
        let told: Vec<_> = latest(&faults).iter().map(|(place, fault)| (*place, fault.class)).collect();
        assert_eq!(told, [(1, Class::Overloaded), (0, Class::Unreachable)]);
    }

    #[test]
    fn what_the_last_model_says_of_the_request_goes_before_what_passes() {
        let plan = plan(&[(0, 10, false), (1, 10, false), (1, 20, false)]);
        for mistake in [Class::InvalidRequest, Class::ContentFilter, Class::ContextLength, Class::TooLarge] {
            assert_eq!(told(&plan, &[(2, mistake), (1, Class::Server)]), Some((2, mistake)));
            assert_eq!(told(&plan, &[(2, mistake), (0, Class::RateLimit)]), Some((2, mistake)), "asked once more");
            assert_eq!(told(&plan, &[(0, mistake), (1, Class::Server)]), Some((1, Class::Server)), "another model");
        }
        assert_eq!(told(&plan, &[(1, Class::TooLarge), (2, Class::Server)]), Some((2, Class::Server)), "it takes more");
        assert_eq!(told(&plan, &[(1, Class::Server), (2, Class::Timeout)]), Some((2, Class::Timeout)));
    }

    #[test]
    fn a_refused_credential_of_the_callers_is_told_whoever_came_last() {
        let plan = plan(&[(0, 10, true), (0, 10, false)]);
        for refused in [Class::Credential, Class::Billing] {
            for faults in [[(0, refused), (1, refused)], [(1, refused), (0, refused)]] {
                assert_eq!(told(&plan, &faults), Some((0, refused)));
            }
            assert_eq!(told(&plan, &[(0, refused), (1, Class::Server)]), Some((0, refused)));
            let mistake = [(0, refused), (1, Class::InvalidRequest)];
            assert_eq!(told(&plan, &mistake), Some((1, Class::InvalidRequest)));
        }
        assert_eq!(told(&plan, &[(1, Class::Credential)]), Some((1, Class::Credential)));
    }
}
