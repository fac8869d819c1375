//! The page on which a person lets an application have a key: sign in, look at what is asked for, change it, authorize
//! or cancel. Nothing is stored before Authorize.

use askama::Template;
use http::header::{HOST, SET_COOKIE};
use http::{HeaderMap, StatusCode};
use tidegate_core::{Tenant, Timestamp};
use tidegate_gateway::Failure;
use tidegate_store::audit::Actor;
use tidegate_store::keys::LimitReset;
use tidegate_store::workspaces::Workspace;

use super::session::{self, Session};
use super::{Notice, by, form, needs_https, notice, oidc, page, see_other};
use crate::api::account::{Answering, internal};
use crate::api::auth_codes::{self, Outcome, Wanted};
use crate::api::form::Query;
use crate::oauth::asked::Asked;
use crate::oauth::callback::Callback;
use crate::router::{Answer, Call};
use crate::state::App;

pub(super) const PATH: &str = "/auth";
/// Workspaces offered on the page.
const CHOICES: u32 = 500;
/// What the form carries on unchanged.
const CARRIED: [&str; 6] =
    ["callback_url", "code_challenge", "code_challenge_method", "state", "spawn_agent", "spawn_cloud"];
/// What the application proposes and the person may change.
const PROPOSED: [&str; 5] = ["key_label", "limit", "usage_limit_type", "expires_at", "workspace_id"];

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn<'a> {
    brand: &'a str,
    query: &'a str,
    problem: Option<&'a str>,
    /// Whom people may also sign in with, and the way there.
    issuer: Option<(&'a str, String)>,
}

#[derive(Template)]
#[template(path = "consent.html")]
struct Consent<'a> {
    brand: &'a str,
    title: String,
    origin: Option<String>,
    is_local: bool,
    problems: &'a [(String, String)],
    csrf: String,
    hidden: Vec<(&'static str, String)>,
    label: String,
    workspaces: Vec<Choice>,
    limit: String,
    reset: String,
    expires: String,
    query: &'a str,
    signed_in: String,
}

struct Choice {
    id: String,
    name: String,
    selected: bool,
}

#[derive(Template)]
#[template(path = "code.html")]
struct Code<'a> {
    brand: &'a str,
    title: &'a str,
    code: &'a str,
    minutes: u64,
}

/// `GET /auth`.
pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let (app, headers) = (call.app, call.head.headers);
        let now = app.gateway.clock.now();
        let text = call.head.uri.query().unwrap_or_default().to_owned();
        let mut query = Query::read(Some(&text));
        let asked = Asked::from_query(&mut query, &app.oauth, now);
        refuse_own_pages(&app, &headers, &asked, &mut query);
        // An address that is wrong is never redirected to, nor shown as if it were right.
        if !query.issues.is_empty() {
            return refused(&app, query.issues.list());
        }
        let Some(session) = Session::of(&app, &headers, now).await? else {
            return sign_in_page(&app, &headers, StatusCode::OK, &text, None);
        };
        if let Some(named) = asked.workspace.as_deref() {
            let choices = open_to(&app, &session).await?;
            if chosen(&choices, Some(named)).is_none() {
                return refused(&app, vec![("workspace_id".to_owned(), "is not a workspace of yours".to_owned())]);
            }
        }
        consent(&app, &session, &asked, Shown { query: &text, fields: &query, problems: &[] }).await
    })
}

/// `POST /auth/sign-in`.
pub fn sign_in(call: Call) -> Answering {
    Box::pin(async move {
        let (app, peer, request) = (call.app.clone(), call.peer, call.request);
        let headers = call.head.headers.clone();
        let mut form = form(call).await?;
        let query = Query::read(form.text("query").as_deref()).encoded();
        if !session::is_same_site(&headers) {
            return foreign(&app);
        }
        if !session::may_sign_in(&app, &headers) {
            return needs_https(&app);
        }
        let token = form.text("key").unwrap_or_default();
        let now = app.gateway.clock.now();
        match Session::start(&app, token.trim(), peer.ip(), now, PATH).await {
            Ok((cookie, key)) => {
                let tenant = Tenant { organisation: key.organisation.clone() };
                let by = by(Actor::Key(key.hash), request, peer.ip(), now);
                app.store.note_sign_in(&tenant, &by, &key.hash).await.map_err(internal)?;
                let mut answer = see_other(&format!("/auth?{query}"))?;
                answer.headers_mut().insert(SET_COOKIE, cookie);
                Ok(answer)
            }
            Err(failure) => {
                let (status, problem) = session::refusal(&failure);
                sign_in_page(&app, &headers, status, &query, Some(problem))
            }
        }
    })
}

/// `POST /auth/sign-out`.
pub fn sign_out(call: Call) -> Answering {
    Box::pin(async move {
        let (app, headers) = (call.app.clone(), call.head.headers.clone());
        let mut form = form(call).await?;
        let query = Query::read(form.text("query").as_deref()).encoded();
        let token = form.text("csrf").unwrap_or_default();
        let now = app.gateway.clock.now();
        let session = Session::of(&app, &headers, now).await?;
        if session.as_ref().is_some_and(|session| !session.is_csrf(&app, &token)) {
            return foreign(&app);
        }
        let mut answer = see_other(&format!("/auth?{query}"))?;
        answer.headers_mut().insert(SET_COOKIE, session::end(&app, session.as_ref(), PATH, now).await?);
        Ok(answer)
    })
}

/// `POST /auth/authorize`: consent, or the refusal of it.
pub fn authorize(call: Call) -> Answering {
    Box::pin(async move {
        let (app, headers, peer) = (call.app.clone(), call.head.headers.clone(), call.peer);
        let request = call.request;
        let mut form = form(call).await?;
        let now = app.gateway.clock.now();
        form.edit("expires_at", in_utc);
        let asked = Asked::from_query(&mut form, &app.oauth, now);
        let Some(session) = Session::of(&app, &headers, now).await? else {
            let problem = Some("Your session is over. Sign in again.");
            return sign_in_page(&app, &headers, StatusCode::UNAUTHORIZED, &to_return(&form), problem);
        };
        let token = form.text("csrf").unwrap_or_default();
        if !session::is_same_site(&headers) || !session.is_csrf(&app, &token) {
            return foreign(&app);
        }
        let decision = form.text("decision").unwrap_or_default();
        refuse_own_pages(&app, &headers, &asked, &mut form);
        let problems = form.issues.list();
        // What the application sent must be right in any case; what the person typed can be mended by them.
        if problems.iter().any(|(field, _)| CARRIED.contains(&field.as_str())) {
            return refused(&app, problems);
        }
        if decision != "authorize" {
            return cancelled(&app, &asked);
        }
        let choices = open_to(&app, &session).await?;
        let workspace = chosen(&choices, asked.workspace.as_deref()).map(|workspace| workspace.id.clone());
        if workspace.is_none() {
            form.issues.add("workspace_id", "is not a workspace of yours");
        }
        let (Some(workspace), true) = (workspace, form.issues.is_empty()) else {
            let shown = Shown { query: &to_return(&form), fields: &form, problems: &form.issues.list() };
            return consent(&app, &session, &asked, shown).await;
        };
        let by = by(session.actor(), request, peer.ip(), now);
        let creator = session.user().map(ToOwned::to_owned);
        let wanted = Wanted { asked: asked.clone(), workspace, creator, title: None, once: None };
        let fresh = match auth_codes::issue(&app, &session.tenant, &by, wanted).await {
            Ok(Outcome::Fresh(fresh)) => fresh,
            Ok(Outcome::Before(_)) => return Err(Failure::internal()),
            Err(failure) if failure.status == 409 => {
                let text = "Too many codes are waiting to be used. Try again in a few minutes.";
                return notice(&app, StatusCode::CONFLICT, "Not now", &[text]);
            }
            Err(failure) => return Err(failure),
        };
        fresh.code.expose(|code| handed_over(&app, &asked, &String::from_utf8_lossy(code)))
    })
}

/// The code goes to the application, or to the person who carries it there.
fn handed_over(app: &App, asked: &Asked, code: &str) -> Result<Answer, Failure> {
    match &asked.callback {
        Some(callback) => {
            let state = asked.state.as_deref().map(|state| ("state", state));
            let parameters: Vec<_> = std::iter::once(("code", code)).chain(state).collect();
            see_other(&callback.with(&parameters))
        }
        None => {
            let title = asked.application(None).title;
            let minutes = app.oauth.code_ttl.as_secs() / 60;
            page(StatusCode::OK, &Code { brand: &app.brand(), title: &title, code, minutes }, None)
        }
    }
}

fn cancelled(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let Some(callback) = &asked.callback else {
        return notice(app, StatusCode::OK, "Cancelled", &["No key was made. You can close this page."]);
    };
    let state = asked.state.as_deref().map(|state| ("state", state));
    let parameters: Vec<_> = std::iter::once(("error", "access_denied")).chain(state).collect();
    see_other(&callback.with(&parameters))
}

/// What a consent page is filled with besides the request itself.
struct Shown<'a> {
    query: &'a str,
    fields: &'a Query,
    problems: &'a [(String, String)],
}

async fn consent(app: &App, session: &Session, asked: &Asked, shown: Shown<'_>) -> Result<Answer, Failure> {
    let choices = open_to(app, session).await?;
    let selected = chosen(&choices, asked.workspace.as_deref()).map(|workspace| workspace.id.clone());
    let application = asked.application(None);
    let title = app.store.application_title(&application.origin).await.map_err(internal)?.unwrap_or(application.title);
    let origin = asked.callback.as_ref().map(|callback| callback.origin());
    // After a mistake the form shows what was typed, right or wrong.
    let typed = |name: &str, right: Option<String>| right.or_else(|| shown.fields.raw(name)).unwrap_or_default();
    let template = Consent {
        brand: &app.brand(),
        title,
        origin,
        is_local: asked.callback.as_ref().is_some_and(|callback| callback.is_local()),
        problems: shown.problems,
        csrf: session.csrf(app),
        hidden: CARRIED.into_iter().filter_map(|name| Some((name, shown.fields.raw(name)?))).collect(),
        label: typed("key_label", asked.key_label.clone()),
        workspaces: choices
            .iter()
            .map(|workspace| Choice {
                id: workspace.id.0.to_string(),
                name: workspace.name.clone(),
                selected: Some(&workspace.id) == selected.as_ref(),
            })
            .collect(),
        limit: typed("limit", asked.limit.map(|limit| limit.to_string())),
        reset: asked.limit_reset.map(LimitReset::as_str).unwrap_or_default().to_owned(),
        expires: typed("expires_at", asked.expires.map(local)),
        query: shown.query,
        signed_in: session.label(app).await,
    };
    let status = if shown.problems.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    page(status, &template, asked.callback.as_ref().map(Callback::policy_source).as_deref())
}

/// The workspaces in which the person may make keys.
async fn open_to(app: &App, session: &Session) -> Result<Vec<Workspace>, Failure> {
    app.store.workspaces_open_to(&session.tenant, session.user(), CHOICES).await.map_err(internal)
}

/// The named one, or the default one, which comes first; `None` when the named one is not among them.
fn chosen<'a>(choices: &'a [Workspace], named: Option<&str>) -> Option<&'a Workspace> {
    match named {
        Some(named) => choices.iter().find(|workspace| *workspace.id.0 == *named),
        None => choices.first(),
    }
}

/// An application must not be called back below this page's own path on any port of this host: the session's cookie
/// would go along.
fn refuse_own_pages(app: &App, headers: &HeaderMap, asked: &Asked, query: &mut Query) {
    let hosts = [
        headers.get(HOST).and_then(|host| host.to_str().ok()),
        app.public_url.split_once("://").map(|(_, host)| host.trim_end_matches('/')),
    ];
    let is_below = |callback: &Callback, host: &str| session::PATHS.iter().any(|path| callback.is_below(host, path));
    let is_ours = |callback: &Callback| hosts.iter().flatten().any(|host| is_below(callback, host));
    if asked.callback.as_ref().is_some_and(is_ours) {
        let paths = session::PATHS.join(" or ");
        query.issues.add("callback_url", format!("must not lead to {paths} on the gateway's own host"));
    }
}

/// A form for the key, where it can be typed in without being read by others.
fn sign_in_page(
    app: &App,
    headers: &HeaderMap,
    status: StatusCode,
    query: &str,
    problem: Option<&str>,
) -> Result<Answer, Failure> {
    if !session::may_sign_in(app, headers) {
        return needs_https(app);
    }
    page(
        status,
        &SignIn { brand: &app.brand(), query, problem, issuer: oidc::offer(app, &format!("{PATH}?{query}")) },
        None,
    )
}

fn refused(app: &App, problems: Vec<(String, String)>) -> Result<Answer, Failure> {
    let paragraphs =
        ["The application that sent you here asks in a way that is not accepted, so you are not sent back \
                       to it. Its developer has to change this:"];
    let template = Notice {
        brand: &app.brand(),
        heading: "This request cannot be authorized",
        paragraphs: &paragraphs,
        problems: &problems,
    };
    page(StatusCode::BAD_REQUEST, &template, None)
}

fn foreign(app: &App) -> Result<Answer, Failure> {
    let text = "This form was not sent by a page of this gateway, or the page was too old. Go back to the application \
                and start again.";
    notice(app, StatusCode::FORBIDDEN, "Not accepted", &[text])
}

/// The address that opens the page again as the person left it. What they mistyped is not in it: the page takes nothing
/// wrong from an address, and would refuse all of it.
fn to_return(form: &Query) -> String {
    let sound = PROPOSED.into_iter().filter(|name| !form.issues.mention(name));
    form.again(&CARRIED.into_iter().chain(sound).collect::<Vec<_>>())
}

/// What a browser's field for date and time says, which has no offset: the page says that it means UTC.
fn in_utc(text: &str) -> String {
    let has_offset = text.ends_with(['Z', 'z']) || text.get(10..).is_some_and(|time| time.contains(['+', '-']));
    match text.len() {
        _ if text.is_empty() || has_offset => text.to_owned(),
        16 => format!("{text}:00Z"),
        _ => format!("{text}Z"),
    }
}

/// The same the other way.
fn local(instant: Timestamp) -> String {
    let text = instant.to_string();
    text.get(..19).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_carries_what_is_right_of_what_was_typed() {
        let text =
            "callback_url=https%3A%2F%2Fa.example&csrf=t&key_label=laptop&limit=-1&usage_limit_type=daily&decision=x";
        let mut form = Query::read(Some(text));
        form.issues.add("limit", "must not be negative");
        assert_eq!(to_return(&form), "callback_url=https%3A%2F%2Fa.example&key_label=laptop&usage_limit_type=daily");
    }

    #[test]
    fn a_time_without_offset_is_utc() {
        let cases = [
            ("", ""),
            ("2027-01-31T10:30", "2027-01-31T10:30:00Z"),
            ("2027-01-31T10:30:05", "2027-01-31T10:30:05Z"),
            ("2027-01-31T10:30:05Z", "2027-01-31T10:30:05Z"),
            ("2027-01-31T10:30:05+02:00", "2027-01-31T10:30:05+02:00"),
            ("2027-01-31T10:30:05-02:00", "2027-01-31T10:30:05-02:00"),
        ];
        for (text, expected) in cases {
            assert_eq!(in_utc(text), expected);
        }
        assert_eq!(local(Timestamp(1_787_567_400_007)), "2026-08-24T10:30:00");
    }
}
