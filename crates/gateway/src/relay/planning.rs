//! Who is asked for an answer, and in which order: the router is told all that is known of the caller and of the prompt.

use bytes::Bytes;
use tidegate_providers::compress as shorter;
use tidegate_providers::estimate;
use tidegate_routing::live::{Live, Unknown};
use tidegate_routing::plan::{self, Code, Request};
use tidegate_routing::{Attempt, Caller, Compression, Own, Plan, PlanError};

use super::{Wishes, translate};
use crate::keys::KeyEntry;
use crate::sticky::Served;
use crate::{Gateway, Snapshot, tasks};

impl Gateway {
    /// Whether a key can call a model at all.
    pub fn can_call(&self, key: &KeyEntry, model: &str) -> bool {
        self.plan(&self.snapshot(), key, &[model], &Wishes::default()).is_ok()
    }

    /// The attempts for these models, with the caller's own credentials where there are any.
    pub(crate) fn plan(
        &self,
        snapshot: &Snapshot,
        key: &KeyEntry,
        names: &[&str],
        wishes: &Wishes<'_>,
    ) -> Result<Plan, Box<PlanError>> {
        let routing = &snapshot.settings.routing;
        let view = self.health.view(&snapshot.ward);
        let live: &dyn Live = if routing.health { &view } else { &Unknown };
        let now = self.clock.now();
        // A seed is for those who want all chance repeated.
        let drawn = wishes.conversation.filter(|_| routing.seed.is_none()).map(|conversation| conversation.draw());
        let last = wishes.conversation.and_then(|conversation| self.sticky.last(&conversation, now));
        let held = self.guardrails.of(key);
        let request = Request {
            needs: wishes.needs,
            guard: held.as_deref().map(|held| &held.guard),
            default: wishes.default.as_deref(),
            sticky: last.as_ref().map(Served::sticky),
            home: wishes.home.as_ref().map(Served::home),
            draw: drawn.unwrap_or_else(|| snapshot.draws.next()),
            policy: routing.policy.sorted(self.choices.sort(&key.workspace)),
            now,
            live,
            ..Request::new(names, &wishes.preferences)
        };
        let Some(owned) = self.credentials.of(&key.workspace) else { return plan::plan(&snapshot.catalogue, &request) };
        let caller = Caller { key: &key.hash, user: key.creator.as_deref() };
        let resting = owned.resting(request.now);
        let own = Own { caller, credentials: &owned.list, resting: &resting };
        let mut plan = plan::plan(&snapshot.catalogue, &Request { own: Some(own), ..request })?;
        for Attempt { endpoint, credential, .. } in &mut plan.attempts {
            let stored = credential.as_ref().and_then(|own| own.destination.as_deref());
            let other = stored.and_then(|stored| snapshot.places[endpoint.place].spoken(stored, &endpoint.model));
            if let Some(other) = other {
                *endpoint = other.clone();
            }
        }
        Ok(plan)
    }

    /// The same; where the prompt seems too long for somebody, by an estimate that looks at what it says, and with those
    /// for whom it can be made shorter.
    #[expect(clippy::too_many_arguments, reason = "everything that a plan depends on")]
    pub(super) fn planned(
        &self,
        snapshot: &Snapshot,
        key: &KeyEntry,
        names: &[&str],
        wishes: &mut Wishes<'_>,
        typed: &translate::Typed,
        body: &Bytes,
        compression: Compression,
    ) -> Result<Plan, Box<PlanError>> {
        let first = self.plan(snapshot, key, names, wishes);
        let seems_long = match &first {
            Ok(plan) => plan.too_short > 0,
            Err(error) => error.excluded_by.contains(&"context_length"),
        };
        if !seems_long {
            return first;
        }
        let Ok(request) = translate::typed(typed, body) else { return first };
        let model = names.first().and_then(|name| snapshot.catalogue.find(name).ok()).map(|named| named.model);
        let Some(endpoint) = model.and_then(|model| model.endpoints.first()) else { return first };
        let card = &snapshot.places[endpoint.place].card;
        // Edits that make room are done before anybody reads it, by us or by the endpoint.
        let edited = translate::cleared(request, card);
        let said = edited.as_ref().map_or(request, |edited| &edited.request);
        // Whoever is refused here is asked to say less: by the tokens of the text then, not by its bytes.
        let estimate = tasks::at_length(|| estimate::tokens(said, card));
        // An estimate that refuses must be on the safe side.
        wishes.needs.input_tokens = (estimate.saturating_mul(100) / 105).min(wishes.needs.input_tokens);
        if shorter::is_possible(request) {
            wishes.needs.compression = compression;
        }
        let plan = self.plan(snapshot, key, names, wishes);
        match largest(snapshot, names, wishes) {
            // Where it would lose more than half everywhere, it goes where it loses least.
            Some(window) if plan.as_ref().is_err_and(|error| error.code == Code::ContextLength) => {
                let answer = wishes.needs.max_tokens.unwrap_or(1);
                wishes.needs.input_tokens = wishes.needs.input_tokens.min((2 * window).saturating_sub(answer));
                self.plan(snapshot, key, names, wishes).or(plan)
            }
            _ => plan,
        }
    }
}

/// The largest window that a prompt is made shorter for.
fn largest(snapshot: &Snapshot, names: &[&str], wishes: &Wishes<'_>) -> Option<u64> {
    let models = names.iter().filter_map(|name| snapshot.catalogue.find(name).ok()).map(|named| named.model);
    let endpoints = models.flat_map(|model| &model.endpoints);
    let windows = endpoints.filter(|endpoint| wishes.needs.compression.is_for(endpoint));
    windows.map(|endpoint| endpoint.context_length).max()
}

/// Whether it is left to us who serves a request, and there is a choice: among endpoints, or among credentials of the
/// caller's own and ours.
pub(crate) fn is_chosen(
    snapshot: &Snapshot,
    names: &[&str],
    wishes: &Wishes<'_>,
    has_own: impl FnOnce() -> bool,
) -> bool {
    let endpoints = || snapshot.catalogue.find(names.first()?).ok().map(|named| named.model.endpoints.len());
    wishes.preferences.order.is_empty() && (endpoints().is_some_and(|endpoints| endpoints > 1) || has_own())
}
