//! The way to the issuer that people sign in with, and the way back.

use std::net::IpAddr;
use std::time::Duration;

use http::StatusCode;
use http::header::{HOST, HeaderValue, SET_COOKIE};
use tidegate_core::{RequestId, Tenant, Timestamp};
use tidegate_gateway::Failure;
use tidegate_store::audit::Actor;
use tidegate_store::members::{Identity, Member};
use tidegate_store::{Refused, StoreError};
use url::form_urlencoded::byte_serialize;

use super::session::{self, Session};
use super::{authorize, by, dashboard, needs_https, notice, see_other};
use crate::api::account::{Answering, internal};
use crate::api::form::Query;
use crate::oidc::{Door, Flow, LIFE, Refusal, START};
use crate::router::{Answer, Call};
use crate::state::App;

const COOKIE: &str = "oidc";

/// Whom people may sign in with besides a management key, and the way there, which leads back to this page.
pub fn offer<'a>(app: &'a App, to: &str) -> Option<(&'a str, String)> {
    let door = app.oidc.as_ref()?;
    let to: String = byte_serialize(to.as_bytes()).collect();
    Some((&door.settings.name, format!("{START}?to={to}")))
}

/// `GET /dashboard/oidc`: off to the issuer.
pub fn start(call: Call) -> Answering {
    Box::pin(async move {
        let (app, headers) = (call.app, call.head.headers);
        let Some(door) = &app.oidc else { return none(&app) };
        if !session::may_sign_in(&app, &headers) {
            return needs_https(&app);
        }
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let query = call.head.uri.query().unwrap_or_default();
        if let Some(own) = session::other_name(&app, host) {
            // The issuer sends people back to that name, and cookies do not go along from one to the other.
            return see_other(&format!("http://{own}{START}?{query}"));
        }
        let aim = aim(Query::read(Some(query)).text("to").as_deref());
        let now = app.gateway.clock.now();
        let Some(flow) = Flow::begin(&aim, now) else {
            let text = "What the application asks for is too long to be carried to the sign-in and back.";
            return notice(&app, StatusCode::BAD_REQUEST, "That did not work", &[text]);
        };
        match door.address(&app.vault, &flow, now).await {
            Ok(address) => {
                let mut answer = see_other(&address)?;
                answer.headers_mut().insert(SET_COOKIE, flow_cookie(&app, &flow.cookie(&app.vault), LIFE)?);
                Ok(answer)
            }
            Err(refusal) => refused(&app, StatusCode::BAD_GATEWAY, &refusal),
        }
    })
}

/// `GET /dashboard/oidc/callback`: back from the issuer.
pub fn back(call: Call) -> Answering {
    Box::pin(async move {
        let (app, headers, peer) = (call.app, call.head.headers, call.peer);
        let Some(door) = &app.oidc else { return none(&app) };
        let now = app.gateway.clock.now();
        let mut query = Query::read(call.head.uri.query());
        let name = session::named_cookie(&app, COOKIE);
        let found = session::cookies(&headers).find(|(cookie, _)| *cookie == name);
        let flow = found.and_then(|(_, cookie)| Flow::read(&app.vault, cookie, now));
        let state = query.text("state").unwrap_or_default();
        let Some(flow) = flow.filter(|flow| flow.is_state(&app.vault, &state)) else {
            let text = "This sign-in did not begin in this browser, or took longer than ten minutes. Start again.";
            return notice(&app, StatusCode::BAD_REQUEST, "That did not work", &[text]);
        };
        if let Err(failure) = app.admit_exchange(peer.ip(), now) {
            return dashboard::told(&app, Err(failure));
        }
        let outcome = match (query.text("code"), query.text("error")) {
            (Some(code), None) => member(&app, door, &flow, &code, call.request, peer.ip(), now).await,
            (_, Some(error)) if error == "access_denied" => Err(Stopped::Refused(Refusal {
                told: "You did not sign in. Nothing was changed.".to_owned(),
                logged: "the issuer says access_denied".to_owned(),
            })),
            (_, error) => Err(Stopped::Refused(Refusal {
                told: "The sign-in service refused. Ask whoever runs this gateway to look at its log.".to_owned(),
                logged: format!("the issuer sends people back with {:?}", error.unwrap_or_default()),
            })),
        };
        let path = if flow.aim.starts_with(dashboard::HOME) { dashboard::HOME } else { authorize::PATH };
        match outcome {
            Ok(member) => {
                let mut answer = see_other(&flow.aim)?;
                let headers = answer.headers_mut();
                headers.append(SET_COOKIE, Session::start_of_member(&app, &member, now, path)?);
                headers.append(SET_COOKIE, flow_cookie(&app, "", Duration::ZERO)?);
                Ok(answer)
            }
            Err(Stopped::Failed(failure)) => dashboard::told(&app, Err(failure)),
            Err(Stopped::Refused(refusal)) => {
                app.note_failed_exchange(peer.ip(), now);
                refused(&app, StatusCode::FORBIDDEN, &refusal)
            }
        }
    })
}

enum Stopped {
    Refused(Refusal),
    Failed(Failure),
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The member who comes back with this code.
async fn member(
    app: &App,
    door: &Door,
    flow: &Flow,
    code: &str,
    request: RequestId,
    source: IpAddr,
    now: Timestamp,
) -> Result<Member, Stopped> {
    let failed = |error| Stopped::Failed(internal(error));
    let identity = door.identity(&app.vault, flow, code, now).await?;
    let organisation = app.store.sole_organisation().await.map_err(failed)?;
    let organisation = organisation.ok_or_else(|| Stopped::Failed(Failure::internal()))?;
    let tenant = Tenant { organisation: organisation.id };
    let join = door.settings.may_join(identity.email.as_deref());
    let by = by(Actor::Server, request, source, now);
    match app.store.sign_in_member(&tenant, &by, &identity, join).await {
        Ok(member) => Ok(member),
        Err(StoreError::Refused(rule)) => Err(why(rule, &identity, &door.settings.name).into()),
        Err(error) => Err(failed(error)),
    }
}

/// Why somebody whom the issuer knows is not let in.
fn why(rule: Refused, identity: &Identity, issuer: &str) -> Refusal {
    let told = match (rule, &identity.email) {
        (Refused::UnknownUser, None) => format!(
            "{issuer} knows you, but does not say which e-mail address is yours for sure. Ask whoever runs this gateway: \
             the address must be verified there, or oidc.trust_email set here."
        ),
        (Refused::UnknownUser, Some(email)) => {
            format!(
                "{issuer} knows you as {email}, which is no member here. Ask an administrator of this gateway to add you."
            )
        }
        (Refused::WasRemoved, _) => {
            "You were a member here and have been removed. An administrator of this gateway can add you again."
                .to_owned()
        }
        (Refused::OtherIdentity, _) => {
            format!(
                "Your address belongs to a member who signs in with another account at {issuer}. Ask an administrator."
            )
        }
        (rule, _) => format!("This account {rule}."),
    };
    Refusal { logged: format!("somebody whom the issuer knows {rule}"), told }
}

/// The page to go to in the end: one of ours, whatever was asked for.
fn aim(to: Option<&str>) -> String {
    match to {
        Some(to) if dashboard::is_page(to) => to.to_owned(),
        Some(to) => match to.split_once('?') {
            Some((authorize::PATH, query)) => format!("{}?{}", authorize::PATH, Query::read(Some(query)).encoded()),
            _ => dashboard::HOME.to_owned(),
        },
        None => dashboard::HOME.to_owned(),
    }
}

fn flow_cookie(app: &App, value: &str, life: Duration) -> Result<HeaderValue, Failure> {
    session::set_cookie(app, &session::named_cookie(app, COOKIE), START, value, life)
}

fn none(app: &App) -> Result<Answer, Failure> {
    let text = "People sign in with a management key here.";
    notice(app, StatusCode::NOT_FOUND, "There is no such thing", &[text])
}

fn refused(app: &App, status: StatusCode, refusal: &Refusal) -> Result<Answer, Failure> {
    tracing::warn!(reason = %refusal.logged, "a sign-in with the issuer failed");
    notice(app, status, "You are not signed in", &[&*refusal.told])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_leads_to_a_page_of_ours() {
        for (to, expected) in [
            (None, "/dashboard"),
            (Some("/dashboard/keys"), "/dashboard/keys"),
            (Some("/auth?callback_url=https%3A%2F%2Fa.example&x=1"), "/auth?callback_url=https%3A%2F%2Fa.example&x=1"),
            (Some("/auth?a=b\r\nx"), "/auth?a=b%0D%0Ax"),
            (Some("//evil.example"), "/dashboard"),
            (Some("https://evil.example/auth?x"), "/dashboard"),
            (Some("/dashboard/../evil"), "/dashboard"),
        ] {
            assert_eq!(aim(to), expected, "{to:?}");
        }
    }
}
