//! Where a call goes after a fault: to the next that may serve it, and when nobody is left to one that failed before.

use std::sync::Arc;
use std::time::Duration;

use tidegate_providers::{Class, Fault, Next};
use tidegate_routing::plan::{PER_CALL, PER_MODEL};
use tidegate_routing::{Attempt, Plan};

/// The longest first pause before the same endpoint is called again; it doubles with every call.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// An upstream that wants to be left alone for longer is not waited for.
const LONGEST_TOLD: Duration = Duration::from_secs(10);

/// How long to wait before an endpoint is called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// By its own word.
    Told(Duration),
    /// By chance, at most this long: who failed together does not come back together.
    UpTo(Duration),
}

/// The attempt after the last fault: what kind of fault it was decides how far the list is skipped, and how often the
/// model was tried whether it is tried again. Endpoints that do not suit the request are passed over.
pub(super) fn following(plan: &Plan, faults: &[(usize, Fault)], suits: &dyn Fn(&Attempt) -> bool) -> Option<usize> {
    let (index, _) = faults.last()?;
    if faults.len() >= PER_CALL {
        return None;
    }
    let is_new = |place: usize| faults.iter().all(|(tried, _)| *tried != place);
    // Who has a credential of a provider did not ask for the operator's key there, nor to pay for it: that we cannot open
    // it is no reason. One that is only for the case that the operator's fails did ask.
    let sealed: Vec<&Attempt> = faults
        .iter()
        .filter(|(_, fault)| fault.class == Class::Sealed)
        .map(|(place, _)| &plan.attempts[*place])
        .filter(|failed| failed.credential.as_ref().is_some_and(|own| !own.is_fallback))
        .collect();
    let is_sealed = |attempt: &Attempt| {
        attempt.credential.is_none()
            && sealed.iter().any(|failed| failed.endpoint.provider == attempt.endpoint.provider)
    };
    let may_serve = |attempt: &Attempt| may_serve(plan, faults.iter(), attempt) && !is_sealed(attempt);
    let mut later = plan.attempts.iter().enumerate().skip(index + 1).filter(|(_, attempt)| may_serve(attempt));
    let is_next = |place: usize, attempt: &Attempt| is_new(place) && tried(plan, faults, attempt.model) < PER_MODEL;
    later.find(|(place, attempt)| is_next(*place, attempt) && suits(attempt)).map(|(place, _)| place)
}

/// Models may be mixed in the list: what a fault says of its model holds for all of its endpoints that are left.
fn may_serve<'a>(plan: &Plan, mut faults: impl Iterator<Item = &'a (usize, Fault)>, attempt: &Attempt) -> bool {
    faults.all(|(place, fault)| {
        let failed = &plan.attempts[*place];
        failed.model != attempt.model
            || match fault.class.next() {
                Next::AnotherEndpoint => true,
                Next::LargerEndpoint => attempt.endpoint.context_length > failed.endpoint.context_length,
                Next::AnotherModel => false,
            }
    })
}

/// How often a model was tried.
fn tried(plan: &Plan, faults: &[(usize, Fault)], model: usize) -> usize {
    let counts = |place: usize, fault: &Fault| {
        // A customer's credential that was refused says nothing about the model.
        let refused = matches!(fault.class, Class::Credential | Class::Billing | Class::RateLimit);
        // Nor does what could not be fetched: nobody was called.
        fault.class != Class::Media && (plan.attempts[place].credential.is_none() || !refused)
    };
    let of_model = faults.iter().filter(|(place, _)| plan.attempts[*place].model == model);
    of_model.filter(|(place, fault)| counts(*place, fault)).count()
}

/// The endpoint to be called again when no other is left: the one called least often, in the order of the plan, among
/// those whose fault may pass and who do not want to be left alone for long.
pub(super) fn repeated(plan: &Plan, faults: &[(usize, Fault)]) -> Option<(usize, Pause)> {
    if faults.len() >= PER_CALL {
        return None;
    }
    let calls = |place: usize| faults.iter().filter(|(tried, _)| *tried == place).count();
    let last = |place: usize| faults.iter().rev().find(|(tried, _)| *tried == place).map(|(_, fault)| fault);
    let pause = |place: usize| {
        let fault = last(place).filter(|fault| may_pass(fault, calls(place)))?;
        match fault.retry_after {
            Some(told) => (told <= LONGEST_TOLD).then_some(Pause::Told(told)),
            None => {
                let doubled = 1 << (calls(place) - 1).min(8);
                Some(Pause::UpTo((FIRST_PAUSE * doubled).min(LONGEST_PAUSE)))
            }
        }
    };
    let mut places: Vec<usize> = faults.iter().map(|(place, _)| *place).collect();
    places.sort_unstable();
    places.dedup();
    let may_be = |place: &usize| {
        let attempt = &plan.attempts[*place];
        // Who says that the same call is worth repeating has not spoken of the model.
        let spoken = faults.iter().filter(|(_, fault)| fault.again != Some(true));
        tried(plan, faults, attempt.model) < PER_MODEL && may_serve(plan, spoken, attempt)
    };
    // Of equals the first is taken, so the order of the plan decides between them.
    let open = places.into_iter().filter(may_be).filter_map(|place| pause(place).map(|pause| (place, pause)));
    open.min_by_key(|(place, _)| calls(*place))
}

/// Whether a call after a fault is one of those that make a sick provider sicker, and are bounded for it. Who was told that
/// the request, the model or the credential will not do is helped elsewhere, and nobody is any sicker for that; who has had
/// enough is spared as long as it is asked with the same credential.
pub(super) fn is_retry(fault: &Fault, failed: &Attempt, next: &Attempt) -> bool {
    match fault.class {
        Class::Server
        | Class::Overloaded
        | Class::Timeout
        | Class::Unreachable
        | Class::BadResponse
        | Class::EmptyCompletion
        | Class::Unmapped => true,
        Class::RateLimit => failed.endpoint.provider == next.endpoint.provider && failed.credential == next.credential,
        Class::ContextLength
        | Class::InvalidRequest
        | Class::Unsupported
        | Class::Media
        | Class::ContentFilter
        | Class::Credential
        | Class::Billing
        | Class::NotFound
        | Class::TooLarge
        | Class::ToolGeneration
        | Class::Sealed
        | Class::Own => Arc::ptr_eq(&failed.endpoint, &next.endpoint) && failed.credential == next.credential,
    }
}

/// Whether the same call may succeed a moment later, after so many of them. Who did not answer in time has had its time,
/// and what an upstream says of the request or of the credential will not change, unless it says that it may.
fn may_pass(fault: &Fault, calls: usize) -> bool {
    fault.again.unwrap_or(match fault.class {
        Class::RateLimit
        | Class::Overloaded
        | Class::Server
        | Class::BadResponse
        | Class::EmptyCompletion
        | Class::Unreachable => true,
        // What a model writes is another thing each time, but one that cannot write calls will not learn it.
        Class::ToolGeneration => calls == 1,
        Class::ContextLength
        | Class::InvalidRequest
        | Class::Unsupported
        | Class::Media
        | Class::ContentFilter
        | Class::Credential
        | Class::Billing
        | Class::Timeout
        | Class::NotFound
        | Class::TooLarge
        | Class::Own
        | Class::Sealed
        | Class::Unmapped => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::KeyHash;
    use tidegate_routing::{Credential, Endpoint, Strategy, Variants};

    fn attempt(model: usize, context_length: u64, own: bool) -> Attempt {
        let endpoint = Endpoint { context_length, ..Endpoint::new("m", "p") };
        let keys = Some([KeyHash::of(b"k")].into());
        let credential = Credential { keys, ..Credential::new("c", "p") };
        let credential = own.then(|| Arc::new(credential));
        let (endpoint, variants) = (Arc::new(endpoint), Variants::NONE);
        Attempt { endpoint, credential, model, strategy: Strategy::Direct, variants }
    }

    fn plan(list: &[(usize, u64, bool)]) -> Plan {
        let attempts = list.iter().map(|(model, length, own)| attempt(*model, *length, *own)).collect();
        Plan { attempts, total: list.len(), too_short: 0, strategy: Strategy::Direct }
    }

    fn next(plan: &Plan, faults: &[(usize, Class)]) -> Option<usize> {
        let faults: Vec<_> = faults.iter().map(|(place, class)| (*place, Fault::without_answer(*class))).collect();
        following(plan, &faults, &|_| true)
    }

    #[test]
    fn ret_2_the_class_of_a_fault_decides_where_to_go_on() {
        let plan = plan(&[(0, 100, false), (0, 50, false), (0, 200, false), (1, 10, false)]);
        assert_eq!(next(&plan, &[(0, Class::Server)]), Some(1));
        assert_eq!(next(&plan, &[(0, Class::ContextLength)]), Some(2));
        assert_eq!(next(&plan, &[(2, Class::ContextLength)]), Some(3));
        assert_eq!(next(&plan, &[(0, Class::InvalidRequest)]), Some(3));
        assert_eq!(next(&plan, &[(3, Class::Server)]), None);
    }

    #[test]
    fn ret_2_what_a_fault_says_of_a_model_holds_where_models_are_mixed() {
        let plan = plan(&[(0, 100, false), (1, 10, false), (0, 50, false), (0, 200, false), (1, 20, false)]);
        let refused = [(0, Class::InvalidRequest), (1, Class::Server)];
        assert_eq!(next(&plan, &refused), Some(4), "the first model refused the request as it is");
        assert_eq!(next(&plan, &[(0, Class::ContextLength), (1, Class::Server)]), Some(3));
    }

    #[test]
    fn ret_3_a_model_is_tried_three_times_and_a_call_six_times() {
        let plan = plan(&[(0, 1, false); 4].into_iter().chain([(1, 1, false); 4]).collect::<Vec<_>>());
        let server = |places: &[usize]| places.iter().map(|place| (*place, Class::Server)).collect::<Vec<_>>();
        assert_eq!(next(&plan, &server(&[0, 1])), Some(2));
        assert_eq!(next(&plan, &server(&[0, 1, 2])), Some(4), "the fourth endpoint of the model is not tried");
        assert_eq!(next(&plan, &server(&[0, 1, 2, 4, 5, 6])), None);
    }

    #[test]
    fn what_could_not_be_fetched_leads_to_endpoints_that_fetch_themselves_only() {
        let plan = plan(&[(0, 1, false), (0, 2, false), (0, 3, false), (0, 4, false), (1, 1, false)]);
        let fault = [(0, Fault::without_answer(Class::Media))];
        let takes_urls = |attempt: &Attempt| attempt.endpoint.context_length == 4;
        assert_eq!(following(&plan, &fault, &takes_urls), Some(3));
        assert_eq!(following(&plan, &fault, &|_| false), None);
    }

    #[test]
    fn ret_3_refused_credentials_of_a_customer_do_not_use_up_the_tries_of_a_model() {
        let own = (0, 1, true);
        let plan = plan(&[own, own, own, own, (0, 1, false), (0, 1, false)]);
        let refused: Vec<_> = (0..4).map(|place| (place, Class::Credential)).collect();
        assert_eq!(next(&plan, &refused), Some(4));
        let broken: Vec<_> = (0..3).map(|place| (place, Class::Server)).collect();
        assert_eq!(next(&plan, &broken), None);
    }

    fn again(plan: &Plan, faults: &[(usize, Class)]) -> Option<(usize, Pause)> {
        let faults: Vec<_> = faults.iter().map(|(place, class)| (*place, Fault::without_answer(*class))).collect();
        repeated(plan, &faults)
    }

    const MS: fn(u64) -> Option<Pause> = |ms| Some(Pause::UpTo(Duration::from_millis(ms)));

    #[test]
    fn ret_3_ret_4_one_endpoint_alone_is_called_three_times_with_growing_pauses() {
        let plan = plan(&[(0, 1, false)]);
        let pauses: Vec<_> =
            (1..=3).map(|calls| again(&plan, &vec![(0, Class::Server); calls]).map(|(_, pause)| pause)).collect();
        assert_eq!(pauses, [MS(250), MS(500), None]);
    }

    #[test]
    fn ret_4_a_short_wait_is_obeyed_and_a_long_one_means_no() {
        let plan = plan(&[(0, 1, false)]);
        let told = |seconds: u64| {
            let wait = Duration::from_secs(seconds);
            let fault = Fault { retry_after: Some(wait), ..Fault::without_answer(Class::RateLimit) };
            repeated(&plan, &[(0, fault)])
        };
        assert_eq!(told(10), Some((0, Pause::Told(Duration::from_secs(10)))));
        assert_eq!(told(11), None);
    }

    #[test]
    fn only_what_may_pass_is_asked_again() {
        let plan = plan(&[(0, 1, false)]);
        let passes = [Class::Server, Class::Overloaded, Class::Unreachable, Class::BadResponse, Class::EmptyCompletion];
        assert!(passes.iter().all(|class| again(&plan, &[(0, *class)]) == Some((0, Pause::UpTo(FIRST_PAUSE)))));
        let stays =
            [Class::InvalidRequest, Class::Credential, Class::NotFound, Class::Timeout, Class::Own, Class::Media];
        assert!(stays.iter().all(|class| again(&plan, &[(0, *class)]).is_none()));
    }

    #[test]
    fn a_call_that_was_written_wrongly_is_asked_for_once_more() {
        let plan = plan(&[(0, 1, false)]);
        assert_eq!(again(&plan, &[(0, Class::ToolGeneration)]), Some((0, Pause::UpTo(FIRST_PAUSE))));
        assert_eq!(again(&plan, &[(0, Class::ToolGeneration); 2]), None);
    }

    #[test]
    fn an_upstream_that_says_whether_to_come_back_is_believed() {
        let plan = plan(&[(0, 1, false)]);
        let told = |class: Class, again: bool| {
            let fault = Fault { again: Some(again), ..Fault::without_answer(class) };
            repeated(&plan, &[(0, fault)]).is_some()
        };
        assert!(!told(Class::Server, false) && !told(Class::Overloaded, false));
        assert!(told(Class::InvalidRequest, true) && told(Class::Timeout, true));
    }

    #[test]
    fn ret_3_whoever_was_called_least_is_called_again_and_no_model_too_often() {
        let plan = plan(&[(0, 1, false), (0, 1, false), (1, 1, false)]);
        let server = |places: &[usize]| places.iter().map(|place| (*place, Class::Server)).collect::<Vec<_>>();
        assert_eq!(again(&plan, &server(&[0, 1, 2])), Some((0, Pause::UpTo(FIRST_PAUSE))));
        assert_eq!(
            again(&plan, &server(&[0, 1, 2, 0])),
            Some((2, Pause::UpTo(FIRST_PAUSE))),
            "three of the first model"
        );
        assert_eq!(again(&plan, &server(&[0, 1, 2, 0, 2])).map(|(place, _)| place), Some(2));
        assert_eq!(again(&plan, &server(&[0, 1, 2, 0, 2, 2])), None, "six in all");
        let mixed = [(0, Class::Credential), (1, Class::Server), (2, Class::Server)];
        assert_eq!(again(&plan, &mixed).map(|(place, _)| place), Some(1));
    }

    #[test]
    fn ret_5_only_what_may_make_somebody_sicker_is_a_retry() {
        let list = plan(&[(0, 1, false), (1, 1, false), (0, 1, true)]).attempts;
        let (here, elsewhere, own) = (&list[0], &list[1], &list[2]);
        let is = |class, next| is_retry(&Fault::without_answer(class), here, next);
        for class in [Class::Server, Class::Overloaded, Class::Timeout, Class::Unreachable, Class::BadResponse] {
            assert!(is(class, here) && is(class, elsewhere), "{class:?}");
        }
        for class in [Class::InvalidRequest, Class::ContentFilter, Class::NotFound, Class::Credential] {
            assert!(!is(class, elsewhere) && !is(class, own), "{class:?}");
            assert!(is(class, here), "the same once more: {class:?}");
        }
        assert!(is(Class::RateLimit, elsewhere), "another model with the same credential");
        assert!(!is(Class::RateLimit, own));
    }

    #[test]
    fn nobody_is_asked_again_for_a_model_that_will_not_do() {
        let plan = plan(&[(0, 10, false), (0, 10, false), (0, 20, false), (1, 10, false)]);
        for mistake in [Class::InvalidRequest, Class::ContentFilter, Class::ContextLength, Class::TooLarge] {
            assert_eq!(again(&plan, &[(0, Class::Server), (1, mistake)]), None, "{mistake:?}");
            let other = [(0, Class::Server), (1, mistake), (3, Class::Server)];
            assert_eq!(again(&plan, &other).map(|(place, _)| place), Some(3), "of another model");
        }
        let larger = [(2, Class::Server), (0, Class::ContextLength)];
        assert_eq!(again(&plan, &larger).map(|(place, _)| place), Some(2), "there it may fit");
    }

    #[test]
    fn after_a_repetition_nobody_is_taken_for_new() {
        let plan = plan(&[(0, 1, false), (1, 1, false)]);
        let faults = [(0, Class::Server), (1, Class::Server), (0, Class::Server)];
        assert_eq!(next(&plan, &faults), None);
    }
}
