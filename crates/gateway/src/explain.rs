//! What would be done with a request, without doing it: the plan is made as for a call, and told candidate by candidate.
//! Nothing is taken from the sequence that calls draw from, so that looking changes nothing.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::{Timestamp, WorkspaceId};
use tidegate_providers::{compress, estimate};
use tidegate_routing::live::Unknown;
use tidegate_routing::plan::Request;
use tidegate_routing::plan::explain::{Explained, explain};
use tidegate_routing::{Caller, Compression, Guard, Live, Modality, Needs, Own, Sort};
use tidegate_wire::envelope::Purpose;
use tidegate_wire::messages;
use tidegate_wire::preset::Words;

use crate::agent;
use crate::choices::Made;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::{self, Wishes, translate};
use crate::sticky::{Conversation, Served, Stickiness};
use crate::{Gateway, Snapshot, plugins, presets};

/// The story of a request that was not made.
pub struct Story {
    /// Models in their order of preference, as the caller wrote them.
    pub requested: Vec<String>,
    pub needs: Needs,
    /// Whether live traffic had a say; else nobody is known to be ill.
    pub is_live: bool,
    pub draw: Draw,
    pub explained: Explained,
    /// Of each verdict: the share of calls that go past it now, where another can serve, because its provider refuses most.
    pub passed_over: Vec<f64>,
}

/// Who comes first where chance decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// The caller is not known, so the one that is drawn most often.
    Likeliest,
    /// The one that this conversation gets, or had last.
    Conversation,
}

impl Gateway {
    /// Tells what a message with this body would meet now. Without a key only the operator's own credentials count.
    pub async fn explain(self: &Arc<Self>, key: Option<&Arc<KeyEntry>>, body: &Bytes) -> Result<Story, Failure> {
        let (snapshot, now) = (self.snapshot(), self.clock.now());
        let envelope = relay::read(body, &snapshot.settings, Purpose::Generate)?;
        let applied = match key.filter(|_| envelope.names_preset) {
            Some(key) => Some(self.presets.applied(key, &snapshot.settings, (body, &envelope), Words::Own).await?),
            None => None,
        };
        let body = applied.as_ref().map_or(body, |applied| &applied.body);
        let envelope = relay::read(body, &snapshot.settings, Purpose::Generate)?;
        let requested: Vec<String> = envelope.names().map(str::to_owned).collect();
        let resolved = match key {
            Some(key) => plugins::resolved(self, &snapshot, key, (body, &envelope))?,
            None => None,
        };
        let body = resolved.as_ref().unwrap_or(body);
        let envelope = relay::read(body, &snapshot.settings, Purpose::Generate)?;
        // Without a key nobody is asked what tools there are.
        let turn = match key {
            Some(key) => Box::pin(agent::as_turn_of(self, &snapshot, key, body, &envelope)).await?,
            None => agent::as_turn(body, &envelope, &snapshot)?,
        };
        let live = self.health.view(&snapshot.ward);
        let live = snapshot.settings.routing.health.then_some(&live as &dyn Live);
        let owned = key.and_then(|key| self.credentials.of(&key.workspace));
        let resting = owned.as_ref().map(|owned| owned.resting(now)).unwrap_or_default();
        let own = key.zip(owned.as_ref()).map(|(key, owned)| {
            let caller = Caller { key: &key.hash, user: key.creator.as_deref() };
            Own { caller, credentials: &owned.list, resting: &resting }
        });
        let memory = key.map(|key| (&key.workspace, &self.sticky));
        let settings = &snapshot.settings;
        let plugins = key.map_or_else(|| settings.into(), |key| self.plugins.standing(&key.workspace, settings));
        let held = key.and_then(|key| self.guardrails.of(key));
        let guard = held.as_deref().map(|held| &held.guard);
        let sort = key.and_then(|key| self.choices.sort(&key.workspace));
        let names: Vec<&str> = envelope.names().collect();
        let default = match key {
            Some(key) => self.choices.model(&key.workspace, &names, Made::Text)?,
            None => None,
        };
        let default = default.as_deref();
        let scene = Scene { live, own, memory, plugins, guard, default, sort, now };
        let mut story = story(&snapshot, body, turn, &scene)?;
        let verdicts = story.explained.verdicts.iter().filter(|_| live.is_some());
        for (verdict, passed_over) in verdicts.zip(&mut story.passed_over) {
            let model = snapshot.catalogue.find(&verdict.model).ok().map(|named| named.model);
            let endpoint = model.and_then(|model| model.endpoints.iter().find(|one| one.tag == verdict.tag));
            *passed_over = endpoint.map_or(0.0, |endpoint| self.health.passed_over(&snapshot.ward, endpoint));
        }
        story.requested = applied.as_ref().map_or(requested, |applied| applied.requested.clone());
        Ok(story)
    }
}

/// The same from a configuration alone.
pub fn from_configuration(snapshot: &Snapshot, body: &Bytes, now: Timestamp) -> Result<Story, Failure> {
    let plugins = (&snapshot.settings).into();
    let envelope = relay::read(body, &snapshot.settings, Purpose::Generate)?;
    let turn = agent::as_turn(body, &envelope, snapshot)?;
    let scene = Scene { live: None, own: None, memory: None, plugins, guard: None, default: None, sort: None, now };
    story(snapshot, body, turn, &scene)
}

/// What a plan depends on beside the request and the configuration.
struct Scene<'a> {
    live: Option<&'a dyn Live>,
    own: Option<Own<'a>>,
    /// The caller's workspace, and where its conversations went.
    memory: Option<(&'a WorkspaceId, &'a Stickiness)>,
    /// What is set for plugins.
    plugins: plugins::Standing<'a>,
    /// What the caller is held to, what `default` stands for there, and how endpoints are sorted.
    guard: Option<&'a Guard>,
    default: Option<&'a str>,
    sort: Option<Sort>,
    now: Timestamp,
}

/// `turn`: what the first turn is, where tools run here.
fn story(
    snapshot: &Snapshot,
    body: &Bytes,
    turn: Option<agent::FirstTurn>,
    scene: &Scene<'_>,
) -> Result<Story, Failure> {
    let settings = &snapshot.settings;
    let body = turn.as_ref().map_or(body, |turn| &turn.body);
    let envelope = relay::read(body, settings, Purpose::Generate)?;
    if let Some(failure) = presets::refused(&envelope) {
        return Err(failure);
    }
    let names: Vec<&str> = envelope.names().collect();
    if let Some(name) = names.first().filter(|name| plugins::is_router(name, settings)) {
        let problem = "is chosen among the models that a key can call: name the key";
        return Err(Failure::invalid(format!("Invalid request: model {name} {problem}")));
    }
    let mut wishes = Wishes::of(&envelope, body.len());
    if let Some(turn) = &turn {
        wishes.needs.searchers = relay::both(wishes.needs.searchers, turn.searchers);
        wishes.needs.only_searches = turn.only_searches;
    }
    let model = names.first().and_then(|name| snapshot.catalogue.find(name).ok()).map(|named| named.model);
    // As for a call: where there is a choice, and it is left to us.
    let is_chosen = relay::is_chosen(snapshot, &names, &wishes, || scene.own.is_some());
    let conversation = scene.memory.filter(|_| is_chosen).map(|(workspace, _)| {
        let session = envelope.session_id.as_deref();
        Conversation::of(workspace, names[0], session, &envelope.opening)
    });
    let last = conversation.zip(scene.memory).and_then(|(talk, (_, memory))| memory.last(&talk, scene.now));
    // With a seed the calls are drawn one after the other, whoever talks.
    let drawn = conversation.filter(|_| settings.routing.seed.is_none());
    let told = |needs: Needs| {
        let request = Request {
            needs,
            own: scene.own,
            live: scene.live.unwrap_or(&Unknown),
            sticky: last.as_ref().map(Served::sticky),
            // The cheapest stands first before the draw, and is the likeliest.
            draw: drawn.map_or(0.0, |conversation| conversation.draw()),
            policy: settings.routing.policy.sorted(scene.sort),
            guard: scene.guard,
            default: scene.default,
            now: scene.now,
            ..Request::new(&names, &wishes.preferences)
        };
        explain(&snapshot.catalogue, &request)
    };
    let mut explained = told(wishes.needs);
    // As for a call: documents that nobody can read are given as text.
    if explained.plan.is_err() && envelope.media.files > 0 && plugins::may_parse(&envelope, &scene.plugins) {
        let needs = Needs { modalities: wishes.needs.modalities.without(Modality::File), ..wishes.needs };
        let without = told(needs);
        if without.plan.is_ok() {
            (explained, wishes.needs) = (without, needs);
        }
    }
    let seems_long = match &explained.plan {
        Ok(plan) => plan.too_short > 0,
        Err(error) => error.excluded_by.contains(&"context_length"),
    };
    // As for a call: where the prompt seems too long for somebody, it is looked at more closely.
    if seems_long
        && let Ok(request) = messages::Request::parse(body)
        && let Some(endpoint) = model.and_then(|model| model.endpoints.first())
    {
        let card = &snapshot.places[endpoint.place].card;
        let edited = translate::cleared(&request, card);
        let estimate = estimate::rough(edited.as_ref().map_or(&request, |edited| &edited.request), card);
        let is_possible = compress::is_possible(&request);
        let needs = Needs {
            input_tokens: (estimate.saturating_mul(100) / 105).min(wishes.needs.input_tokens),
            compression: if is_possible { plugins::compression(&envelope, &scene.plugins) } else { Compression::Never },
            ..wishes.needs
        };
        explained = told(needs);
        wishes.needs = needs;
    }
    Ok(Story {
        requested: names.iter().map(|name| (*name).to_owned()).collect(),
        needs: wishes.needs,
        is_live: scene.live.is_some(),
        draw: if drawn.is_some() { Draw::Conversation } else { Draw::Likeliest },
        passed_over: vec![0.0; explained.verdicts.len()],
        explained,
    })
}
