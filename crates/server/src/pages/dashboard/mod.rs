//! What happens here, and what may be changed about it, for people. Every page is made of what the store and the gateway
//! say when it is asked for; every change is a form with a token of its session, goes the way that the account
//! operations go, and stands in the audit log like one of theirs. Start with `overview`.

mod budgets;
mod chart;
mod credentials;
mod destinations;
mod keys;
mod members;
mod models;
mod overview;
mod playground;
mod requests;
mod words;

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use http::header::{HeaderValue, SET_COOKIE};
use http::{HeaderMap, StatusCode};
use tidegate_core::Tenant;
use tidegate_gateway::Failure;
use tidegate_store::audit::{Actor, By};
use tidegate_store::members::Role;
use tidegate_store::workspaces::Workspace;
use tidegate_wire::error::ErrorType;

use super::session::{self, Session, Who};
use super::{by, form, needs_https, notice, oidc, page, see_other};
use crate::api::account::{Answering, internal};
use crate::api::form::Query;
use crate::router::{Answer, Call};
use crate::state::App;

pub(super) const HOME: &str = "/dashboard";
/// In the order in which they are offered.
const PAGES: [(&str, &str); 9] = [
    (HOME, "Overview"),
    ("/dashboard/requests", "Requests"),
    ("/dashboard/keys", "Keys"),
    ("/dashboard/budgets", "Budgets"),
    ("/dashboard/byok", "Provider keys"),
    ("/dashboard/models", "Models"),
    ("/dashboard/destinations", "Destinations"),
    ("/dashboard/members", "Members"),
    ("/dashboard/playground", "Playground"),
];
/// What there is for a member: their own keys, and what everybody may know. The rest is about the whole organisation.
const PAGES_OF_MEMBERS: [(&str, &str); 3] =
    [("/dashboard/keys", "Keys"), ("/dashboard/models", "Models"), ("/dashboard/playground", "Playground")];
/// How long a page waits for calls that were just settled.
const SETTLED: Duration = Duration::from_millis(500);
/// Workspaces that are offered.
const CHOICES: u32 = 500;

/// Somebody who is signed in and looks at a page.
struct Viewer {
    app: Arc<App>,
    session: Session,
    tenant: Tenant,
    by: By,
    /// Who they are, where that is a member: they act in their workspaces and on their own keys. Administrators act on
    /// everything, and so does a key with nobody behind it.
    member: Option<String>,
    query: Query,
    params: Vec<String>,
}

impl Viewer {
    /// Nobody where the session is none.
    async fn of(call: &Call) -> Result<Option<Self>, Failure> {
        let now = call.app.gateway.clock.now();
        let Some(session) = Session::of(&call.app, &call.head.headers, now).await? else { return Ok(None) };
        let tenant = session.tenant.clone();
        let is_admin = match (&session.who, session.user()) {
            (Who::Member(member), _) => member.role == Role::Admin,
            (Who::Key(_), None) => true,
            (Who::Key(_), Some(user)) => {
                let found = call.app.store.find_member(&tenant, user).await.map_err(internal)?;
                found.is_some_and(|member| member.role == Role::Admin)
            }
        };
        let member = session.user().filter(|_| !is_admin).map(ToOwned::to_owned);
        Ok(Some(Self {
            app: call.app.clone(),
            by: by(session.actor(), call.request, call.peer.ip(), now),
            tenant,
            member,
            session,
            query: Query::read(call.head.uri.query()),
            params: call.params.clone(),
        }))
    }

    /// Refuses a member what is about the whole organisation.
    fn administers(&self) -> Result<(), Failure> {
        match self.member {
            None => Ok(()),
            Some(_) => Err(Failure::new(403, ErrorType::PermissionDenied, "Only administrators see this page.")),
        }
    }

    /// What stands around the page.
    fn frame(&self, here: &'static str) -> Frame {
        let pages: &[_] = if self.member.is_some() { &PAGES_OF_MEMBERS } else { &PAGES };
        Frame { brand: self.app.brand(), csrf: self.session.csrf(&self.app), here, pages, said: None, problem: None }
    }

    /// The variable part of the path at this place.
    fn param(&self, place: usize) -> &str {
        self.params.get(place).map_or("", String::as_str)
    }

    /// Until what was settled before this look is in the store, if that does not take long.
    async fn settled(&self) {
        if !self.app.gateway.ledger.forwarded(SETTLED).await {
            tracing::warn!("a page is shown without the calls that still wait in the journal");
        }
    }

    /// Those in which the viewer may act.
    async fn workspaces(&self) -> Result<Vec<Workspace>, Failure> {
        self.app.store.workspaces_open_to(&self.tenant, self.member.as_deref(), CHOICES).await.map_err(internal)
    }
}

/// What every page has around it.
struct Frame {
    brand: String,
    csrf: String,
    here: &'static str,
    pages: &'static [(&'static str, &'static str)],
    said: Option<String>,
    problem: Option<String>,
}

impl Frame {
    /// With what came of the last form.
    fn with(mut self, said: Result<Option<String>, String>) -> Self {
        match said {
            Ok(said) => self.said = said,
            Err(problem) => self.problem = Some(problem),
        }
        self
    }

    fn status(&self) -> StatusCode {
        if self.problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }
    }
}

#[derive(Template)]
#[template(path = "dashboard/sign_in.html")]
struct SignIn<'a> {
    brand: &'a str,
    to: &'a str,
    problem: Option<&'a str>,
    /// Whom people may also sign in with, and the way there.
    issuer: Option<(&'a str, String)>,
}

/// A page for whoever is signed in, and the way to sign in for everybody else.
fn seen<F, Fut>(call: Call, show: F) -> Answering
where
    F: FnOnce(Viewer) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Answer, Failure>> + Send + 'static,
{
    Box::pin(async move {
        let viewer = match Viewer::of(&call).await {
            Ok(viewer) => viewer,
            Err(failure) => return told(&call.app, Err(failure)),
        };
        let Some(viewer) = viewer else {
            return sign_in_page(&call.app, &call.head.headers, StatusCode::OK, call.head.uri.path(), None);
        };
        if let Err(failure) = viewer.session.admit(&call.app) {
            return told(&call.app, Err(failure));
        }
        told(&call.app, show(viewer).await)
    })
}

/// What a form asks for, where it was sent by a page of this session.
fn done<F, Fut>(call: Call, act: F) -> Answering
where
    F: FnOnce(Viewer, Query) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Answer, Failure>> + Send + 'static,
{
    Box::pin(async move {
        let (app, headers) = (call.app.clone(), call.head.headers.clone());
        let viewer = match Viewer::of(&call).await {
            Ok(viewer) => viewer,
            Err(failure) => return told(&app, Err(failure)),
        };
        let mut form = match form(call).await {
            Ok(form) => form,
            Err(failure) => return told(&app, Err(failure)),
        };
        let Some(viewer) = viewer else {
            let problem = Some("Your session is over. Sign in again.");
            return sign_in_page(&app, &headers, StatusCode::UNAUTHORIZED, HOME, problem);
        };
        let token = form.text("csrf").unwrap_or_default();
        if !session::is_same_site(&headers) || !viewer.session.is_csrf(&app, &token) {
            return foreign(&app);
        }
        if let Err(failure) = viewer.session.admit(&app) {
            return told(&app, Err(failure));
        }
        let acted = act(viewer, form).await;
        told(&app, acted)
    })
}

/// A page about the whole organisation.
fn seen_by_admins<F, Fut>(call: Call, show: F) -> Answering
where
    F: FnOnce(Viewer) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Answer, Failure>> + Send + 'static,
{
    seen(call, async |viewer: Viewer| {
        viewer.administers()?;
        show(viewer).await
    })
}

/// A form of such a page.
fn done_by_admins<F, Fut>(call: Call, act: F) -> Answering
where
    F: FnOnce(Viewer, Query) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Answer, Failure>> + Send + 'static,
{
    done(call, async |viewer: Viewer, form| {
        viewer.administers()?;
        act(viewer, form).await
    })
}

/// What went wrong, as a page: whoever looks at one cannot read an object.
pub(super) fn told(app: &App, outcome: Result<Answer, Failure>) -> Result<Answer, Failure> {
    outcome.or_else(|failure| {
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let heading = if failure.status == 404 { "There is no such thing" } else { "That did not work" };
        notice(app, status, heading, &[&*failure.message])
    })
}

fn foreign(app: &App) -> Result<Answer, Failure> {
    let text = "This form was not sent by a page of this gateway, or the page was too old. Open the dashboard again.";
    notice(app, StatusCode::FORBIDDEN, "Not accepted", &[text])
}

fn sign_in_page(
    app: &App,
    headers: &HeaderMap,
    status: StatusCode,
    to: &str,
    problem: Option<&str>,
) -> Result<Answer, Failure> {
    if !session::may_sign_in(app, headers) {
        return needs_https(app);
    }
    page(status, &SignIn { brand: &app.brand(), to, problem, issuer: oidc::offer(app, to) }, None)
}

/// `POST /dashboard/sign-in`.
pub fn sign_in(call: Call) -> Answering {
    Box::pin(async move {
        let (app, peer, request) = (call.app.clone(), call.peer, call.request);
        let headers = call.head.headers.clone();
        let mut form = form(call).await?;
        if !session::is_same_site(&headers) {
            return foreign(&app);
        }
        if !session::may_sign_in(&app, &headers) {
            return needs_https(&app);
        }
        let to = form.text("to").filter(|to| is_page(to)).unwrap_or_else(|| HOME.to_owned());
        let token = form.text("key").unwrap_or_default();
        let now = app.gateway.clock.now();
        match Session::start(&app, token.trim(), peer.ip(), now, HOME).await {
            Ok((cookie, key)) => {
                let tenant = Tenant { organisation: key.organisation.clone() };
                let by = by(Actor::Key(key.hash), request, peer.ip(), now);
                app.store.note_sign_in(&tenant, &by, &key.hash).await.map_err(internal)?;
                let mut answer = see_other(&to)?;
                answer.headers_mut().insert(SET_COOKIE, cookie);
                Ok(answer)
            }
            Err(failure) => {
                let (status, problem) = session::refusal(&failure);
                sign_in_page(&app, &headers, status, &to, Some(problem))
            }
        }
    })
}

/// Nobody is sent anywhere else from here.
pub(super) fn is_page(path: &str) -> bool {
    let is_plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte));
    is_plain && (path == HOME || path.starts_with("/dashboard/"))
}

/// `POST /dashboard/sign-out`.
pub fn sign_out(call: Call) -> Answering {
    done(call, async |viewer: Viewer, _| {
        let mut answer = see_other(HOME)?;
        answer
            .headers_mut()
            .insert(SET_COOKIE, session::end(&viewer.app, Some(&viewer.session), HOME, viewer.by.at).await?);
        // Also what the playground kept in this browser.
        answer.headers_mut().insert("clear-site-data", HeaderValue::from_static("\"storage\""));
        Ok(answer)
    })
}

pub fn overview(call: Call) -> Answering {
    seen(call, async |viewer: Viewer| match viewer.member {
        // There is nothing else to begin with.
        Some(_) => see_other(PAGES_OF_MEMBERS[0].0),
        None => overview::show(viewer).await,
    })
}

pub fn requests(call: Call) -> Answering {
    seen_by_admins(call, requests::list)
}

pub fn request(call: Call) -> Answering {
    seen_by_admins(call, requests::show)
}

pub fn keys(call: Call) -> Answering {
    seen(call, keys::show)
}

pub fn change_keys(call: Call) -> Answering {
    done(call, keys::change)
}

pub fn budgets(call: Call) -> Answering {
    seen_by_admins(call, budgets::show)
}

pub fn change_budgets(call: Call) -> Answering {
    done_by_admins(call, budgets::change)
}

pub fn credentials(call: Call) -> Answering {
    seen_by_admins(call, credentials::show)
}

pub fn change_credentials(call: Call) -> Answering {
    done_by_admins(call, credentials::change)
}

pub fn models(call: Call) -> Answering {
    seen(call, models::show)
}

pub fn destinations(call: Call) -> Answering {
    seen_by_admins(call, destinations::show)
}

pub fn test_destination(call: Call) -> Answering {
    done_by_admins(call, destinations::test)
}

pub fn members(call: Call) -> Answering {
    seen_by_admins(call, members::show)
}

pub fn change_members(call: Call) -> Answering {
    done_by_admins(call, members::change)
}

pub fn playground(call: Call) -> Answering {
    seen(call, playground::show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_from_signing_in_leads_to_a_page_of_ours() {
        for path in PAGES.map(|(path, _)| path).iter().chain(&["/dashboard/requests/gen-01ABC"]) {
            assert!(is_page(path), "{path}");
        }
        for path in ["", "/", "//evil.example/dashboard", "/dashboardx", "https://evil.example", "/dashboard/\r\nx: y"]
        {
            assert!(!is_page(path), "{path}");
        }
    }
}
