//! `/observability/destinations`: who is told of a workspace's requests. Secrets go in and come out masked.

mod config;

use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tidegate_core::{KeyHash, Secret};
use tidegate_gateway::{Failure, Gateway, broadcast};
use tidegate_observe::broadcast::target::{Config, Target};
use tidegate_observe::broadcast::{Destination, Filter, Kind, Mistake, Scope, Tells};
use tidegate_store::destinations::{
    Changed, ConfigChange, DestinationChange, DestinationRow, DestinationSettings, NewConfig, NewDestination,
    SettingsChange, new_destination_id,
};
use tidegate_store::{Refused, StoreError};
use tidegate_wire::error::ErrorType;

use self::config::{Given, logged, shown};
use super::account::{Answering, Instant, Request, answer, conflict, data, deleted, internal, not_found, page};
use super::form::{Form, parse_uuid, refused};
use crate::router::Call;

const LONGEST_NAME: usize = 255;
const MOST_KEYS: usize = 1_000;
/// Who is told is told from where the gateway runs.
const REGIONS: [&str; 1] = ["global"];
/// So often a change of a configuration is made anew of what others made of it meanwhile.
const TRIES: usize = 3;

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    name: &'a str,
    enabled: bool,
    config: Map<String, Value>,
    api_key_hashes: Option<&'a [String]>,
    filter_rules: Option<&'a Value>,
    sampling_rate: f64,
    privacy_mode: bool,
    broadcast_generation_cost: bool,
    broadcast_generation_cost_allocation: bool,
    broadcast_generation_identity: bool,
    broadcast_generation_request_context: bool,
    regions: [&'static str; 1],
    workspace_id: &'a str,
    created_at: Instant,
    updated_at: Instant,
}

impl<'a> Shown<'a> {
    fn of(row: &'a DestinationRow, request: &Request) -> Self {
        let settings = &row.settings;
        let config = broadcast::opened(&request.app.vault, &row.id, &row.sealed).unwrap_or_default();
        Self {
            id: &row.id,
            kind: &row.kind,
            name: &row.name,
            enabled: row.enabled,
            config: shown(&row.kind, &config),
            api_key_hashes: settings.api_key_hashes.as_deref(),
            filter_rules: settings.filter_rules.as_ref(),
            sampling_rate: settings.sampling_rate,
            privacy_mode: settings.privacy_mode,
            broadcast_generation_cost: settings.broadcast_generation_cost,
            broadcast_generation_cost_allocation: false,
            broadcast_generation_identity: settings.broadcast_generation_identity,
            broadcast_generation_request_context: settings.broadcast_generation_request_context,
            regions: REGIONS,
            workspace_id: &row.workspace.0,
            created_at: Instant(row.created),
            updated_at: Instant(row.updated),
        }
    }
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = (request.query.offset(), request.query.limit());
        let workspace = request.query.uuid("workspace_id");
        request.query.check()?;
        let workspace = match workspace {
            Some(id) => Some(request.workspace("workspace_id", Some(id)).await?),
            None => None,
        };
        let listed = request.app.store.list_destinations(&request.tenant, workspace.as_ref(), offset, limit).await;
        let (rows, total) = listed.map_err(internal)?;
        ring(&request).await;
        Ok(page(&rows.iter().map(|row| Shown::of(row, &request)).collect::<Vec<_>>(), total))
    })
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let row = addressed(&request).await?;
        Ok(data(StatusCode::OK, &Shown::of(&row, &request)))
    })
}

/// How a destination does, by what this node knows of it.
#[derive(Serialize)]
struct Status {
    queued: u64,
    oldest_at: Option<Instant>,
    delivered_24h: u64,
    failed_24h: u64,
    dropped_24h: u64,
    last_error: Option<String>,
    last_success_at: Option<Instant>,
}

pub fn status(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let row = addressed(&request).await?;
        let gateway = &request.app.gateway;
        let (queued, oldest, known) = request.app.journal.outbox_standing(&row.id).await.map_err(|error| {
            tracing::warn!(%error, "what waits for a destination cannot be read");
            Failure::internal()
        })?;
        let standing = gateway.tallies.standing(&row.id, gateway.clock.now());
        let status = Status {
            queued,
            oldest_at: oldest.map(Instant),
            delivered_24h: standing.delivered,
            failed_24h: standing.failed,
            dropped_24h: standing.dropped,
            last_error: standing.last_error.or(known),
            last_success_at: standing.last_success.map(Instant),
        };
        Ok(answer(StatusCode::OK, &status))
    })
}

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let skips = request.query.flag("skip_test").unwrap_or(false);
        request.query.check()?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let workspace = form.uuid("workspace_id");
        let kind = form.value("type", |reader, raw| reader.word(raw, &Kind::ALL));
        let kind = form.require("type", kind);
        let wanted = read(&mut form);
        let name = form.require("name", wanted.name);
        let config = wanted.config.map(|config| config.onto(Config::default(), &Map::new()));
        let config = form.require("config", config);
        form.finish()?;
        may_set(&request, &DestinationSettings::default(), &wanted.settings)?;
        let (Some(kind), Some(name), Some(config)) = (kind, name, config) else { return Err(Failure::internal()) };
        let workspace = request.workspace("workspace_id", workspace).await?;
        let id = new_destination_id(request.by.at);
        let plain = checked(&request, (kind, &id), &config, skips).await?;
        let new = NewDestination {
            id,
            workspace,
            kind: kind.as_str().to_owned(),
            name,
            enabled: wanted.enabled.unwrap_or(true),
            settings: wanted.settings.applied_to(&DestinationSettings::default()),
            config: sealed_later(&request, &plain),
            logged: logged(kind, &Config::default(), &config).1,
        };
        let made = request.app.store.create_destination(&request.tenant, &request.by, new).await.map_err(refusal)?;
        request.app.destinations_changed().await;
        Ok(data(StatusCode::CREATED, &Shown::of(&made, &request)))
    })
}

pub fn update(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let skips = request.query.flag("skip_test").unwrap_or(false);
        request.query.check()?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let wanted = read(&mut form);
        form.finish()?;
        for _ in 0..TRIES {
            let row = addressed(&request).await?;
            may_set(&request, &row.settings, &wanted.settings)?;
            let plain;
            let (name, enabled, settings) = (wanted.name.clone(), wanted.enabled, wanted.settings.clone());
            let mut change = DestinationChange { name, enabled, settings, config: None };
            if let (Some(given), Some(kind)) = (&wanted.config, Kind::parse(&row.kind)) {
                let known = || broadcast::opened(&request.app.vault, &row.id, &row.sealed).unwrap_or_default();
                let config = given.onto_its_own(kind, known())?;
                let logged = logged(kind, &known(), &config);
                plain = checked(&request, (kind, &row.id), &config, skips).await?;
                if logged != (json!({}), json!({})) {
                    change.config =
                        Some(ConfigChange { before: row.sealed, after: sealed_later(&request, &plain), logged });
                }
            }
            let (store, by) = (&request.app.store, &request.by);
            match store.change_destination(&request.tenant, by, &row.id, &change).await.map_err(refusal)? {
                Changed::Done(row) => {
                    request.app.destinations_changed().await;
                    return Ok(data(StatusCode::OK, &Shown::of(&row, &request)));
                }
                Changed::Missing => return Err(not_found()),
                // The test takes its time, and somebody has changed it meanwhile.
                Changed::Outrun => {}
            }
        }
        Err(conflict())
    })
}

pub fn delete(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let id = parse_uuid(request.param(0)).ok_or_else(not_found)?;
        let gone = request.app.store.delete_destination(&request.tenant, &request.by, &id).await.map_err(internal)?;
        request.app.destinations_changed().await;
        if gone { Ok(deleted()) } else { Err(not_found()) }
    })
}

async fn addressed(request: &Request) -> Result<DestinationRow, Failure> {
    let id = parse_uuid(request.param(0)).ok_or_else(not_found)?;
    let found = request.app.store.find_destination(&request.tenant, &id).await.map_err(internal)?;
    ring(request).await;
    found.ok_or_else(not_found)
}

/// Takes over another ring of master keys: what was read may be sealed under a key that came a moment ago. Where it cannot
/// be read, the one at hand stays.
async fn ring(request: &Request) {
    if let Err(error) = request.app.vault.refresh_if_changed().await {
        tracing::warn!(%error, "the ring of master keys cannot be read");
    }
}

/// Where the operator has locked what destinations may know, nobody changes it; to say what is there already is no change.
fn may_set(request: &Request, known: &DestinationSettings, wanted: &SettingsChange) -> Result<(), Failure> {
    let locked = |settings: &DestinationSettings| {
        let DestinationSettings {
            api_key_hashes,
            filter_rules: _,
            sampling_rate: _,
            privacy_mode,
            broadcast_generation_cost,
            broadcast_generation_identity,
            broadcast_generation_request_context,
        } = settings.clone();
        let flags = [broadcast_generation_cost, broadcast_generation_identity, broadcast_generation_request_context];
        (api_key_hashes, privacy_mode, flags)
    };
    let is_locked = request.app.gateway.snapshot().settings.audience.locks_privacy;
    if is_locked && locked(known) != locked(&wanted.applied_to(known)) {
        return Err(Failure::new(403, ErrorType::PermissionDenied, "Privacy settings are locked"));
    }
    Ok(())
}

fn refusal(error: StoreError) -> Failure {
    let taken = |text: &str| Failure::new(409, ErrorType::InvalidRequest, text.to_owned());
    match error {
        StoreError::Conflict => taken("The workspace has a destination with this name"),
        StoreError::Refused(Refused::TooManyDestinations) => {
            taken("The workspace has as many destinations of this type as it may have")
        }
        StoreError::Missing => refused("workspace_id", "is not a workspace of this account"),
        error => internal(error),
    }
}

/// The members of a body.
struct Wanted {
    name: Option<String>,
    enabled: Option<bool>,
    settings: SettingsChange,
    config: Option<Given>,
}

fn read(form: &mut Form<'_>) -> Wanted {
    let name = form.text("name", 1..=LONGEST_NAME);
    let enabled = form.flag("enabled");
    let config = form.value("config", Given::read);
    let api_key_hashes = form.nullable("api_key_hashes", |reader, raw| {
        reader.list(raw, 1..=MOST_KEYS, |reader, raw| reader.key_hash(raw).map(|hash: KeyHash| hash.to_hex()))
    });
    let mut mistake = None;
    let filter_rules = form.nullable("filter_rules", |reader, raw: &RawValue| {
        let value = reader.plain(raw)?;
        match Filter::read(&value) {
            // Who wants to take them away sends null.
            Ok(_) if value.get("groups").is_none_or(Value::is_null) => {
                mistake = Some(Mistake { path: "groups".to_owned(), message: "is required".to_owned() });
                None
            }
            Ok(_) => Some(value),
            Err(wrong) if wrong.path.is_empty() => reader.refuse(wrong.message),
            Err(wrong) => {
                mistake = Some(wrong);
                None
            }
        }
    });
    if let Some(wrong) = mistake {
        form.issues.add(format!("filter_rules.{}", wrong.path), wrong.message);
    }
    fixed(form);
    let settings = SettingsChange {
        api_key_hashes,
        filter_rules,
        sampling_rate: form.value("sampling_rate", |reader, raw| reader.number(raw, 0.0001..=1.0)),
        privacy_mode: form.flag("privacy_mode"),
        broadcast_generation_cost: form.flag("broadcast_generation_cost"),
        broadcast_generation_identity: form.flag("broadcast_generation_identity"),
        broadcast_generation_request_context: form.flag("broadcast_generation_request_context"),
    };
    Wanted { name, enabled, settings, config }
}

/// Members that have one value here: what cannot be done must not look as if it were.
fn fixed(form: &mut Form<'_>) {
    if form.flag("broadcast_generation_cost_allocation") == Some(true) {
        form.issues
            .add("broadcast_generation_cost_allocation", "is not supported here: leave it out or set it to false");
    }
    let regions = form.nullable("regions", |reader, raw| reader.plain(raw)).flatten();
    if regions.is_some_and(|regions| regions != json!(REGIONS)) {
        form.issues.add("regions", "are not supported here: leave them out or give [\"global\"]");
    }
}

/// Whether a destination is there and lets us in; what it answered where it does not, and what that means.
pub async fn tried(
    gateway: &Gateway,
    (kind, id): (Kind, &str),
    target: Target,
) -> Result<(), (Option<u16>, &'static str)> {
    let destination = Destination {
        id: id.to_owned(),
        kind,
        target,
        scope: Scope::default(),
        is_private: true,
        tells: Tells::default(),
        is_operators: false,
    };
    match broadcast::test(gateway, &destination).await {
        Ok(200..300) => Ok(()),
        Ok(400) if kind == Kind::Webhook => Ok(()),
        Ok(status) => Err((Some(status), "it does not take what it is told")),
        Err(problem) => Err((None, problem)),
    }
}

/// Looks whether a destination can be reached with this configuration; as it is sealed.
async fn checked(request: &Request, (kind, id): (Kind, &str), config: &Config, skips: bool) -> Result<Secret, Failure> {
    let target = config.target(kind).map_err(|wrong| refused(&format!("config.{}", wrong.member), wrong.message))?;
    let gateway = &request.app.gateway;
    if let Err(problem) = broadcast::may_be_called(&target.url, &gateway.snapshot().settings.egress) {
        let member = kind.address();
        return Err(refused(&format!("config.{member}"), problem));
    }
    if !skips && let Err((status, detail)) = tried(gateway, (kind, id), target).await {
        let mut failure = Failure::new(
            400,
            ErrorType::InvalidRequest,
            "The destination did not pass its connection test; `?skip_test=true` leaves it out",
        );
        failure.more_mut().metadata = Some(json!({"test": {"status": status, "detail": detail}}).to_string());
        return Err(failure);
    }
    broadcast::plain_config(config).ok_or_else(Failure::internal)
}

fn sealed_later<'a>(request: &'a Request, plain: &'a Secret) -> NewConfig<'a> {
    NewConfig { vault: &request.app.vault, label: broadcast::CONFIG_LABEL, plain }
}
