//! `POST /auth/keys/code` makes an authorization code, `POST /auth/keys` turns it into a key.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use tidegate_core::key;
use tidegate_core::{KeyHash, Secret, Tenant, Timestamp, WorkspaceId};
use tidegate_gateway::Failure;
use tidegate_observe::metrics::Happened;
use tidegate_store::audit::{Actor, By};
use tidegate_store::auth_codes::{Issued, Known, NewCode, NotExchanged, Pending};
use tidegate_store::idempotency::Once;
use tidegate_store::{Refused, StoreError};
use tidegate_wire::error::ErrorType;
use tokio::time::timeout;

use super::account::{Answering, Instant, REPLAYED, Request, answer, conflict, data, internal, once, read_body};
use super::form::{Form, refused};
use crate::oauth::asked::{Asked, METHODS};
use crate::oauth::exchange::{Sent, Verdict, judge};
use crate::router::{Answer, Asking, Call};
use crate::state::App;

/// Codes of one application that may wait.
const PENDING_PER_APPLICATION: u32 = 100;
/// Tries to store a code when others are in the way.
const TRIES: usize = 3;
/// How long those tries may take together.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long an exchange waits for those before it.
const LINE: Duration = Duration::from_secs(5);
const TITLE: HeaderName = HeaderName::from_static("x-title");

/// A code and what is known of it once it is stored.
pub struct Fresh {
    pub code: Secret,
    pub app_id: i64,
    pub created: Timestamp,
}

/// What became of a request for a code.
pub enum Outcome {
    Fresh(Fresh),
    /// The caller's idempotency key was used for the same request before.
    Before(String),
}

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let once = once(request.headers(), "POST /auth/keys/code", &body)?;
        let (asked, workspace) = match asked(&mut request, &body).await {
            Ok(asked) => asked,
            Err(failure) => return again(&request, once.as_ref()).await?.map_or(Err(failure), |told| replayed(&told)),
        };
        let title = title(&request.app, request.headers());
        let creator = request.key.creator.as_deref().map(ToOwned::to_owned);
        let wanted = Wanted { asked, workspace, creator, title, once };
        match issue(&request.app, &request.tenant, &request.by, wanted).await? {
            Outcome::Fresh(fresh) => Ok(fresh.code.expose(|code| created(code, fresh.app_id, fresh.created))),
            Outcome::Before(told) => replayed(&told),
        }
    })
}

/// What is asked for, and in which workspace.
async fn asked(request: &mut Request, body: &Bytes) -> Result<(Asked, WorkspaceId), Failure> {
    let mut form = Form::read(body)?;
    let asked = Asked::from_form(&mut form, &request.app.oauth, request.now());
    form.finish()?;
    let workspace = request.workspace("workspace_id", asked.workspace.clone()).await?;
    Ok((asked, workspace))
}

/// What a call was answered that could not be made any more: a date in it has passed, or its workspace is gone.
async fn again(request: &Request, once: Option<&Once>) -> Result<Option<String>, Failure> {
    let Some(once) = once else { return Ok(None) };
    let known = request.app.store.answered_before(&request.tenant.organisation, once, request.now());
    known.await.map_err(internal)
}

#[derive(Serialize)]
struct Code<'a> {
    id: Option<&'a str>,
    app_id: i64,
    created_at: Instant,
}

fn created(code: &[u8], app_id: i64, at: Timestamp) -> Answer {
    let id = std::str::from_utf8(code).ok();
    data(StatusCode::OK, &Code { id, app_id, created_at: Instant(at) })
}

/// The first answer without the code, which is nowhere any more.
fn replayed(told: &str) -> Result<Answer, Failure> {
    let mut told: serde_json::Value = serde_json::from_str(told).map_err(|_| Failure::internal())?;
    told["id"] = serde_json::Value::Null;
    let mut answer = data(StatusCode::OK, &told);
    answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(answer)
}

/// What a code is to be made of.
pub struct Wanted {
    pub asked: Asked,
    pub workspace: WorkspaceId,
    pub creator: Option<String>,
    pub title: Option<String>,
    pub once: Option<Once>,
}

/// Makes and stores a code; the page does the same after a person's consent.
pub async fn issue(app: &App, tenant: &Tenant, by: &By, wanted: Wanted) -> Result<Outcome, Failure> {
    let Wanted { asked, workspace, creator, title, once } = wanted;
    let at = app.store.agreed_time(by.at).await.map_err(internal)?;
    let by = &By { at, ..by.clone() };
    let most = Pending { per_account: app.oauth.max_pending_codes, per_application: PENDING_PER_APPLICATION };
    let mut new = NewCode {
        hash: KeyHash([0; 32]),
        workspace,
        application: asked.application(title.as_deref()),
        creator,
        challenge: asked.challenge,
        key_name: asked.key_label,
        limit: asked.limit,
        limit_reset: asked.limit_reset,
        key_expires: asked.expires,
        spawn_agent: asked.spawn_agent,
        spawn_cloud: asked.spawn_cloud,
        expires: by.at.plus(app.oauth.code_ttl),
    };
    let started = app.gateway.clock.instant();
    for _ in 0..TRIES {
        let code = key::authorization_code();
        new.hash = code.expose(KeyHash::of);
        match app.store.create_auth_code(tenant, by, &new, most, once.as_ref()).await {
            Ok(Issued::New { app_id }) => {
                note(app, "created");
                return Ok(Outcome::Fresh(Fresh { code, app_id, created: by.at }));
            }
            Ok(Issued::Before { answer }) => return Ok(Outcome::Before(answer)),
            Ok(Issued::Misused) => return Err(refused("Idempotency-Key", "was used for another request")),
            Ok(Issued::Conflict) => return Err(conflict()),
            // A code that exists, or writers in the way: another try may go well, but nobody waits for long.
            Err(StoreError::Conflict | StoreError::Busy(_)) => {
                if app.gateway.clock.instant().duration_since(started) > PATIENCE {
                    break;
                }
            }
            Err(StoreError::Refused(Refused::NotAMember)) => {
                return Err(refused("workspace_id", "is not open to the person who made this management key"));
            }
            Err(error) => return Err(internal(error)),
        }
    }
    Err(conflict())
}

/// What the caller's headers call the application.
pub fn title(app: &App, headers: &HeaderMap) -> Option<String> {
    let branded = HeaderName::try_from(format!("x-{}-title", app.brand())).ok();
    let value = branded.and_then(|name| headers.get(name)).or_else(|| headers.get(TITLE))?;
    let title = value.to_str().ok()?;
    (!title.trim().is_empty()).then(|| title.to_owned())
}

pub fn exchange(call: Call) -> Answering {
    Box::pin(async move {
        let Asking { app, head, body, peer, request, .. } = *call;
        let body = read_body(&app, None, &head.headers, body).await?;
        let mut form = Form::read(&body)?;
        let code = form.text("code", 1..=256);
        let code = form.require("code", code).unwrap_or_default();
        let least = if app.oauth.strict_pkce { 43 } else { 1 };
        let verifier = form.text("code_verifier", least..=512);
        let method = form.nullable_word("code_challenge_method", &METHODS).flatten();
        form.finish()?;
        app.admit_exchange(peer.ip(), app.gateway.clock.now())?;
        // Whoever comes here needs no key. A crowd of them waits for itself, not for the store's connections: those are
        // everybody's, and nobody waits long for one.
        let turn = timeout(LINE, app.exchanging.acquire()).await;
        let _turn = turn.map_err(|_| Failure::unavailable())?;
        // Only now: neither a body that comes slowly nor a line may keep a code alive.
        let now = app.gateway.clock.now();
        // Those before it may have failed meanwhile.
        app.check_exchange(peer.ip(), now)?;
        // Another gateway may have made the code.
        let at = app.store.agreed_time(now).await.map_err(internal)?;
        let by = By {
            actor: Actor::Anyone,
            request: Some(request.as_str().into()),
            address: Some(peer.ip().to_string().into()),
            at,
        };
        let known = app.store.find_auth_code(&KeyHash::of(code.as_bytes())).await.map_err(internal)?;
        let verdict = judge(known.as_ref(), Sent { verifier: verifier.as_deref(), method }, at);
        let event = match verdict {
            Verdict::Replayed { .. } => "replayed",
            Verdict::Expired => "expired",
            _ => "failed",
        };
        let made = settle(&app, known.as_ref(), verdict, &by, peer.ip()).await;
        note(&app, if made.is_ok() { "exchanged" } else { event });
        made.inspect_err(|failure| {
            if failure.status == 403 {
                app.note_failed_exchange(peer.ip(), now);
            }
        })
    })
}

fn note(app: &App, event: &'static str) {
    app.gateway.metrics.flow.auth_codes.get_or_create(&Happened { event }).inc();
}

/// Acts on the verdict.
async fn settle(
    app: &App,
    known: Option<&Known>,
    verdict: Verdict,
    by: &By,
    source: IpAddr,
) -> Result<Answer, Failure> {
    let refused_code = || Failure::new(403, ErrorType::PermissionDenied, "Invalid code or code_verifier");
    let expired = || Failure::new(403, ErrorType::PermissionDenied, "Authorization code expired");
    let Some(code) = known else { return Err(refused_code()) };
    match verdict {
        Verdict::Good => {}
        Verdict::Unknown | Verdict::Unproven => return Err(refused_code()),
        Verdict::Expired => return Err(expired()),
        Verdict::OtherMethod => {
            return Err(Failure::new(400, ErrorType::InvalidRequest, "Invalid code_challenge_method"));
        }
        Verdict::Downgraded => {
            return Err(refused("code_verifier", "must be absent: the code was made without a challenge"));
        }
        Verdict::Wrong => {
            app.store.note_failed_exchange(code, by).await.map_err(internal)?;
            return Err(refused_code());
        }
        Verdict::Replayed { proven } => {
            replay(app, code, by, proven, source).await?;
            return Err(refused_code());
        }
    }
    let key = key::generate(&app.key_prefix);
    let (hash, label) =
        key.expose(|bytes| (KeyHash::of(bytes), key::label(&String::from_utf8_lossy(bytes), &app.key_prefix)));
    match app.store.exchange_code(code, by, &hash, &label).await.map_err(internal)? {
        Ok(exchanged) => {
            // The very next request may come with it, to this node.
            app.keys_changed().await;
            #[derive(Serialize)]
            struct Key<'a> {
                key: &'a str,
                user_id: Option<&'a str>,
            }
            Ok(key.expose(|bytes| {
                let key = std::str::from_utf8(bytes).expect("a key is plain ASCII");
                answer(StatusCode::OK, &Key { key, user_id: exchanged.user.as_deref() })
            }))
        }
        Err(NotExchanged::Used) => Err(refused_code()),
        Err(NotExchanged::Expired) => Err(expired()),
    }
}

async fn replay(app: &App, code: &Known, by: &By, proven: bool, source: IpAddr) -> Result<(), Failure> {
    let disables = proven && app.oauth.replay_disables;
    let disabled = app.store.note_replay(code, by, disables).await.map_err(internal)?;
    if disabled {
        tracing::warn!(app = code.app_id, %source, "an authorization code came twice: its key was disabled");
        app.keys_changed().await;
    }
    Ok(())
}
