//! A plan told candidate by candidate: who comes when, who was taken out by what, and what chance had to do with it.
//! There is no second way to decide here: the plan itself is made, and listened to.

use std::sync::Arc;

use super::filter::Filter;
use super::{Plan, PlanError, Request, order, run};
use crate::catalogue::{Catalogue, Endpoint};
use crate::live::Group;

/// Hears what is decided while a plan is made. Nobody listens when a request is served.
pub(super) trait Record {
    fn removed(&mut self, _: &Arc<Endpoint>, _: Filter) {}
    /// How likely an endpoint was to come first in its list.
    fn first(&mut self, _: &Arc<Endpoint>, _: f64) {}
}

impl Record for () {}

/// What became of one way to serve a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub tag: Arc<str>,
    pub model: Arc<str>,
    /// The customer's, by its id.
    pub credential: Option<Arc<str>>,
    pub outcome: Outcome,
    /// By which it is compared with others, in dollars per million tokens.
    pub price: f64,
    pub group: Group,
    /// Was told to wait, and comes later for it.
    pub cools: bool,
    /// How likely it was to come first among the endpoints that are ordered together, from 0 to 1.
    pub probability: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its place among the attempts, from 0.
    Place(usize),
    Removed(Filter),
    /// It may serve, but comes behind as many as are listed or allowed.
    NotListed,
}

/// A plan, or why there is none, and the verdicts on all candidates: attempts in their order, then the others.
pub struct Explained {
    pub plan: Result<Plan, Box<PlanError>>,
    pub verdicts: Vec<Verdict>,
}

#[derive(Default)]
struct Heard {
    removed: Vec<(Arc<Endpoint>, Filter)>,
    firsts: Vec<(Arc<Endpoint>, f64)>,
}

impl Record for Heard {
    fn removed(&mut self, endpoint: &Arc<Endpoint>, filter: Filter) {
        self.removed.push((endpoint.clone(), filter));
    }

    fn first(&mut self, endpoint: &Arc<Endpoint>, probability: f64) {
        self.firsts.push((endpoint.clone(), probability));
    }
}

pub fn explain(catalogue: &Catalogue, request: &Request<'_>) -> Explained {
    let mut heard = Heard::default();
    let plan = run(catalogue, request, &mut heard);
    let probability = |endpoint: &Arc<Endpoint>| {
        heard.firsts.iter().find(|(known, _)| Arc::ptr_eq(known, endpoint)).map_or(0.0, |(_, share)| *share)
    };
    let attempts = plan.as_ref().map_or(&[][..], |plan| &plan.attempts);
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(attempts.len() + heard.removed.len());
    for (place, attempt) in attempts.iter().enumerate() {
        let (endpoint, own) = (&attempt.endpoint, attempt.credential.as_deref());
        let vital = request.live.of(endpoint, own);
        verdicts.push(Verdict {
            credential: own.map(|own| own.id.clone()),
            group: vital.group,
            cools: vital.cools,
            probability: probability(endpoint),
            ..verdict(endpoint, Outcome::Place(place), request)
        });
    }
    verdicts.extend(heard.removed.iter().map(|(endpoint, by)| verdict(endpoint, Outcome::Removed(*by), request)));
    for (endpoint, probability) in &heard.firsts {
        if !attempts.iter().any(|attempt| Arc::ptr_eq(&attempt.endpoint, endpoint)) {
            verdicts.push(Verdict { probability: *probability, ..verdict(endpoint, Outcome::NotListed, request) });
        }
    }
    Explained { plan, verdicts }
}

fn verdict(endpoint: &Arc<Endpoint>, outcome: Outcome, request: &Request<'_>) -> Verdict {
    let vital = request.live.of(endpoint, None);
    Verdict {
        tag: endpoint.tag.clone(),
        model: endpoint.model.clone(),
        credential: None,
        outcome,
        price: order::asked(endpoint, request),
        group: vital.group,
        cools: vital.cools,
        probability: 0.0,
    }
}
