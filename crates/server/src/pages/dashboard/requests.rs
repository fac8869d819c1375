//! The newest requests, and the story of one: who was tried, how long it took, what it cost.

use std::collections::BTreeMap;

use askama::Template;
use tidegate_core::{GenerationId, KeyHash, Money, Outcome, Settlement};
use tidegate_gateway::Failure;
use tidegate_store::generations::{Generation, Newest};

use super::words::{count, dollars, instant, millis};
use super::{Frame, Viewer, page};
use crate::api::account::{internal, not_found};
use crate::router::Answer;

const HERE: &str = "/dashboard/requests";
const SHOWN: u32 = 50;

#[derive(Template)]
#[template(path = "dashboard/requests.html")]
struct List {
    frame: Frame,
    rows: Vec<Row>,
    model: String,
    is_failed: bool,
    /// The query of the next page.
    older: Option<String>,
    is_first: bool,
}

struct Row {
    id: String,
    at: String,
    model: String,
    provider: String,
    key: String,
    outcome: &'static str,
    is_well: bool,
    status: u16,
    tokens: String,
    cost: String,
    first: String,
    duration: String,
    attempts: usize,
    /// The first turn of the loop that it is a turn of.
    parent: Option<String>,
}

impl Row {
    fn of(generation: &Generation, names: &BTreeMap<KeyHash, String>) -> Self {
        let usage = &generation.usage;
        Self {
            id: generation.id.as_str().to_owned(),
            at: instant(generation.started),
            model: generation.model.clone(),
            provider: generation.provider.clone(),
            key: names.get(&generation.key).cloned().unwrap_or_default(),
            outcome: outcome(generation),
            is_well: generation.outcome == Outcome::Complete,
            status: generation.status,
            tokens: format!("{} → {}", count(usage.prompt()), count(usage.output)),
            cost: cost(generation.cost),
            first: generation.first_content_ms.map_or_else(|| "–".to_owned(), |first| millis(first.into())),
            duration: millis(generation.duration_ms.into()),
            attempts: generation.attempts.len(),
            parent: generation.parent.as_ref().map(ToString::to_string),
        }
    }
}

fn outcome(generation: &Generation) -> &'static str {
    generation.outcome.as_str()
}

/// What is not known is not nothing.
fn cost(cost: Option<Money>) -> String {
    cost.map_or_else(|| "unknown".to_owned(), dollars)
}

pub(super) async fn list(mut viewer: Viewer) -> Result<Answer, Failure> {
    let model = viewer.query.text("model").unwrap_or_default();
    let is_failed = viewer.query.text("failed").is_some();
    let before = viewer.query.text("before").and_then(|text| GenerationId::parse(&text));
    viewer.settled().await;
    let wanted = Newest {
        before: before.as_ref(),
        key: None,
        model: Some(model.trim()).filter(|model| !model.is_empty()),
        is_failed,
        limit: SHOWN,
    };
    let found = viewer.app.store.list_generations(&viewer.tenant, wanted).await.map_err(internal)?;
    let names = names(&viewer, &found).await?;
    let older = (found.len() == SHOWN as usize).then(|| found.last()).flatten().map(|last| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("before", last.id.as_str());
        if !model.is_empty() {
            query.append_pair("model", &model);
        }
        if is_failed {
            query.append_pair("failed", "1");
        }
        query.finish()
    });
    let rows = found.iter().map(|generation| Row::of(generation, &names)).collect();
    let list = List { frame: viewer.frame(HERE), rows, model, is_failed, older, is_first: before.is_none() };
    page(list.frame.status(), &list, None)
}

/// What the keys of these are called.
async fn names(viewer: &Viewer, found: &[Generation]) -> Result<BTreeMap<KeyHash, String>, Failure> {
    let mut names = BTreeMap::new();
    for generation in found {
        if names.contains_key(&generation.key) {
            continue;
        }
        let key = viewer.app.store.find_tenant_key(&viewer.tenant, &generation.key, None).await.map_err(internal)?;
        let name = key.map_or_else(|| format!("{}…", &generation.key.to_hex()[..8]), |key| key.name.into());
        names.insert(generation.key, name);
    }
    Ok(names)
}

#[derive(Template)]
#[template(path = "dashboard/request.html")]
struct Story {
    frame: Frame,
    id: String,
    summary: String,
    turns: Vec<Turn>,
    facts: Vec<(&'static str, String)>,
    money: Vec<(&'static str, String)>,
    tokens: Vec<(&'static str, String)>,
}

/// One call of a model; a request without a loop has one.
struct Turn {
    id: String,
    model: String,
    attempts: Vec<Attempt>,
}

struct Attempt {
    provider: String,
    model: String,
    status: String,
    is_well: bool,
    duration: String,
    /// Its part of the longest, in hundredths.
    share: u64,
    is_byok: bool,
}

pub(super) async fn show(viewer: Viewer) -> Result<Answer, Failure> {
    let id = GenerationId::parse(viewer.param(0)).ok_or_else(not_found)?;
    viewer.settled().await;
    let (store, tenant) = (&viewer.app.store, &viewer.tenant);
    let found = store.find_generation(tenant, &id).await.map_err(internal)?.ok_or_else(not_found)?;
    let mut turns = vec![found.clone()];
    if found.parent.is_none() {
        turns.extend(store.find_turns(tenant, &id).await.map_err(internal)?);
    }
    let names = names(&viewer, &turns[..1]).await?;
    let whole = turns.iter().cloned().reduce(Generation::with_turn).unwrap_or(found);
    let story = Story {
        frame: viewer.frame(HERE),
        id: id.as_str().to_owned(),
        summary: summary(&whole),
        turns: turns.iter().filter(|turn| !turn.attempts.is_empty()).map(turn).collect(),
        facts: facts(&whole, names.get(&whole.key).cloned().unwrap_or_default()),
        money: money(&whole),
        tokens: tokens(&whole),
    };
    page(story.frame.status(), &story, None)
}

fn summary(generation: &Generation) -> String {
    if generation.settlement == Settlement::Recovered {
        let asked = Some(generation.provider.as_str()).filter(|provider| !provider.is_empty());
        let who = asked.map(|provider| format!(" {provider} was called.")).unwrap_or_default();
        let charged = "What is charged is what was known of the answer.";
        return format!("The gateway stopped in the middle of it.{who} {charged}");
    }
    let taken = millis(generation.duration_ms.into());
    let end = match generation.outcome {
        Outcome::Complete => format!("Answered with status {} after {taken}.", generation.status),
        Outcome::Cancelled => format!("The client left after {taken}."),
        Outcome::Broken => format!("The answer broke off after {taken}."),
        Outcome::Failed => format!("Failed with status {} after {taken}.", generation.status),
    };
    let who = match (generation.attempts.len(), generation.provider.as_str()) {
        (0, _) => "Nobody was called.".to_owned(),
        (1, provider) => format!("{provider} was called."),
        (tried, provider) => format!("{tried} calls were made, the last to {provider}."),
    };
    format!("{end} {who}")
}

fn turn(generation: &Generation) -> Turn {
    let longest = generation.attempts.iter().map(|attempt| attempt.duration_ms).max().unwrap_or(0).max(1);
    let attempt = |attempt: &tidegate_core::exchange::AttemptRecord| Attempt {
        provider: attempt.provider.to_string(),
        model: attempt.model.to_string(),
        status: if attempt.status == 0 { "no answer".to_owned() } else { attempt.status.to_string() },
        is_well: (200..300).contains(&attempt.status),
        duration: millis(attempt.duration_ms.into()),
        share: (u64::from(attempt.duration_ms) * 100 / u64::from(longest)).max(1),
        is_byok: attempt.is_byok,
    };
    Turn {
        id: generation.id.as_str().to_owned(),
        model: generation.model.clone(),
        attempts: generation.attempts.iter().map(attempt).collect(),
    }
}

fn facts(generation: &Generation, key: String) -> Vec<(&'static str, String)> {
    let optional = [
        ("Error", generation.error_type.clone()),
        ("Stop reason", generation.stop_reason.clone()),
        ("Service tier", generation.service_tier.clone()),
        ("Message id", generation.message_id.clone()),
        ("Upstream id", generation.native_id.clone().filter(|id| !id.is_empty())),
        ("Session", generation.session.clone()),
        ("User", generation.user.clone()),
        ("Application", generation.title.clone().or_else(|| generation.referer.clone())),
        ("Client", generation.user_agent.clone()),
        ("Router", generation.router.clone()),
        ("Preset", generation.preset.clone()),
        ("Turn of", generation.parent.as_ref().map(ToString::to_string)),
        ("Answered from the cache by", generation.cache_source.as_ref().map(ToString::to_string)),
    ];
    let mut facts = vec![
        ("Model", generation.model.clone()),
        ("Provider", generation.provider.clone()),
        ("Key", key),
        ("Began", format!("{} UTC", instant(generation.started))),
        ("Streamed", if generation.streamed { "yes" } else { "no" }.to_owned()),
    ];
    if let Some(first) = generation.first_content_ms {
        facts.push(("First content after", millis(first.into())));
    }
    facts.push(("Bytes", format!("{} in, {} out", count(generation.request_bytes), count(generation.response_bytes))));
    facts.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    facts
}

fn money(generation: &Generation) -> Vec<(&'static str, String)> {
    let optional = [
        ("List price", generation.list_cost),
        ("Paid to the provider", generation.upstream_cost),
        ("Reported by the provider", generation.reported_cost),
        ("Saved by its cache", generation.cache_discount),
    ];
    let mut money = vec![("Charged", cost(generation.cost)), ("Held at first", dollars(generation.reserved))];
    money.extend(optional.into_iter().filter_map(|(name, amount)| Some((name, dollars(amount?)))));
    if generation.is_byok {
        money.push(("Provider key", "the customer's own".to_owned()));
    }
    money
}

fn tokens(generation: &Generation) -> Vec<(&'static str, String)> {
    let usage = &generation.usage;
    let mut tokens = vec![("Input", usage.input), ("Output", usage.output)];
    let others = [
        ("Read from a cache", usage.cache_read),
        ("Written to a cache", usage.cache_write),
        ("Written for an hour", usage.cache_write_1h),
        ("Of the output, thinking", usage.thinking),
        ("Web searches", usage.web_searches),
        ("Pages fetched", usage.web_fetches),
    ];
    tokens.extend(others.into_iter().filter(|(_, number)| *number > 0));
    let mut shown: Vec<(&'static str, String)> =
        tokens.into_iter().map(|(name, number)| (name, count(number))).collect();
    if generation.is_estimated {
        shown.push(("Counted by", "an estimate: the provider did not say".to_owned()));
    }
    shown
}
