//! Who looks at a page: somebody who signed in with a management key, or with the issuer. The cookie holds the key's hash
//! or the person's id and a signature, so every replica that shares the master keys can read it and nothing is stored; it
//! ends with the key, or with the membership.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, HeaderValue, ORIGIN};
use http::{HeaderMap, StatusCode};
use tidegate_core::{KeyHash, KeyKind, OrganisationId, Tenant, Timestamp, id};
use tidegate_gateway::{Failure, KeyEntry};
use tidegate_store::audit::Actor;
use tidegate_store::members::Member;

use crate::api::account::internal;
use crate::state::App;

const LIFE: Duration = Duration::from_secs(12 * 60 * 60);
/// Labels of what is signed: a signature for one is none for the other.
const SESSION: &str = "session";
const CSRF: &str = "csrf";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A person's session.
pub struct Session {
    pub who: Who,
    pub tenant: Tenant,
    cookie: String,
    until: Timestamp,
}

/// How somebody signed in.
pub enum Who {
    /// With a management key, as whoever it was made for.
    Key(Arc<KeyEntry>),
    /// With the issuer, as themselves.
    Member(Member),
}

impl Session {
    /// The session of a request, if its cookie is ours, not over, and its key or person still stands.
    pub async fn of(app: &App, headers: &HeaderMap, now: Timestamp) -> Result<Option<Self>, Failure> {
        let found = cookies(headers).find(|(name, _)| *name == cookie_name(app));
        let Some((_, cookie)) = found else { return Ok(None) };
        let Some((subject, until, organisation)) = read(app, cookie).filter(|(_, until, _)| *until > now) else {
            return Ok(None);
        };
        let who = match (KeyHash::parse(subject), organisation) {
            (Some(hash), None) => {
                let key = app.gateway.keys.known(&hash);
                key.filter(|key| key.kind == KeyKind::Management && key.is_usable(now)).map(Who::Key)
            }
            (None, Some(organisation)) => {
                let tenant = Tenant { organisation: OrganisationId(organisation.into()) };
                app.store.find_member(&tenant, subject).await.map_err(internal)?.map(Who::Member)
            }
            _ => None,
        };
        let Some(who) = who else { return Ok(None) };
        let tenant = Tenant {
            organisation: match &who {
                Who::Key(key) => key.organisation.clone(),
                Who::Member(member) => member.organisation.clone(),
            },
        };
        let session = Self { who, tenant, cookie: cookie.to_owned(), until };
        let is_ended = app.store.is_session_ended(&session.tenant, &session.digest()).await.map_err(internal)?;
        Ok((!is_ended).then_some(session))
    }

    /// Signs in with a management key for the pages below this path: the cookie to set. Failed tries count as they do
    /// elsewhere.
    pub async fn start(
        app: &App,
        token: &str,
        source: IpAddr,
        now: Timestamp,
        path: &str,
    ) -> Result<(HeaderValue, Arc<KeyEntry>), Failure> {
        let mut headers = HeaderMap::new();
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Failure::invalid_key())?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
        let key = app.gateway.authenticate(&headers, source, false).await?;
        if key.kind != KeyKind::Management {
            return Err(Failure::management_only());
        }
        Ok((begin(app, &key.hash.to_hex(), None, now, path)?, key))
    }

    /// The same for somebody whom the issuer knows.
    pub fn start_of_member(app: &App, member: &Member, now: Timestamp, path: &str) -> Result<HeaderValue, Failure> {
        begin(app, &member.id, Some(&member.organisation.0), now, path)
    }

    /// Whose keys and workspaces they act on; nobody's, where a key was made for nobody.
    pub fn user(&self) -> Option<&str> {
        match &self.who {
            Who::Key(key) => key.creator.as_deref(),
            Who::Member(member) => Some(&member.id),
        }
    }

    pub fn actor(&self) -> Actor {
        match &self.who {
            Who::Key(key) => Actor::Key(key.hash),
            Who::Member(member) => Actor::Member(member.id.as_str().into()),
        }
    }

    /// What may be shown of whoever signed in.
    pub async fn label(&self, app: &App) -> String {
        match &self.who {
            Who::Key(key) => app.label_of(&self.tenant, &key.hash).await,
            Who::Member(member) => member.email.clone(),
        }
    }

    /// Counts a page or a form against the rate of management calls.
    pub fn admit(&self, app: &App) -> Result<(), Failure> {
        match &self.who {
            Who::Key(key) => app.gateway.admit_management(&key.live.managed),
            Who::Member(member) => app.gateway.admit_management(&app.rate_of_member(&member.id)),
        }
    }

    /// What forms of this session must carry, so that no other site can send them.
    pub fn csrf(&self, app: &App) -> String {
        URL_SAFE_NO_PAD.encode(app.vault.sign(CSRF, self.cookie.as_bytes()))
    }

    pub fn is_csrf(&self, app: &App, token: &str) -> bool {
        let tag = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
        app.vault.verify(CSRF, self.cookie.as_bytes(), &tag)
    }

    /// What stands for it where ended ones are remembered.
    fn digest(&self) -> KeyHash {
        let payload = self.cookie.split_once('.').map_or(&*self.cookie, |(payload, _)| payload);
        KeyHash::of(payload.as_bytes())
    }
}

/// What a cookie says, if we signed it: who, until when, and of which organisation, which keys know themselves.
fn read<'a>(app: &App, cookie: &'a str) -> Option<(&'a str, Timestamp, Option<&'a str>)> {
    let (payload, tag) = cookie.split_once('.')?;
    let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
    if !app.vault.verify(SESSION, payload.as_bytes(), &tag) {
        return None;
    }
    let mut parts = payload.splitn(4, '-');
    let (subject, until, _nonce) = (parts.next()?, parts.next()?.parse().ok().map(Timestamp)?, parts.next()?);
    Some((subject, until, parts.next()))
}

/// The cookie of a new session.
fn begin(
    app: &App,
    subject: &str,
    organisation: Option<&str>,
    now: Timestamp,
    path: &str,
) -> Result<HeaderValue, Failure> {
    let nonce = URL_SAFE_NO_PAD.encode(id::random::<16>()).replace('-', "_");
    let organisation = organisation.map(|id| format!("-{id}")).unwrap_or_default();
    let payload = format!("{subject}-{}-{nonce}{organisation}", now.plus(LIFE).0);
    let tag = URL_SAFE_NO_PAD.encode(app.vault.sign(SESSION, payload.as_bytes()));
    set_cookie(app, &cookie_name(app), path, &format!("{payload}.{tag}"), LIFE)
}

/// Ends a session, on every gateway and in the browser: the cookie that does the latter.
pub async fn end(app: &App, session: Option<&Session>, path: &str, now: Timestamp) -> Result<HeaderValue, Failure> {
    if let Some(session) = session {
        let ended = app.store.end_session(&session.tenant, &session.digest(), session.until, now).await;
        ended.map_err(internal)?;
    }
    set_cookie(app, &cookie_name(app), path, "", Duration::ZERO)
}

/// Below these only, each with a session of its own: cookies ignore ports, and an application that waits for its code on
/// this very host must not get one along with it.
pub const PATHS: [&str; 2] = ["/auth", "/dashboard"];

/// A cookie that scripts cannot read and that other sites do not send along with forms.
pub fn set_cookie(app: &App, name: &str, path: &str, value: &str, life: Duration) -> Result<HeaderValue, Failure> {
    let life = life.as_secs();
    let secure = if is_https(app) { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={life}{secure}");
    let mut value = HeaderValue::from_str(&text).map_err(|_| Failure::internal())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Over TLS with a prefix that browsers take from secure pages only.
fn cookie_name(app: &App) -> String {
    named_cookie(app, "session")
}

pub fn named_cookie(app: &App, name: &str) -> String {
    let prefix = if is_https(app) { "__Secure-" } else { "" };
    format!("{prefix}{}_{name}", app.brand())
}

pub fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

/// Why somebody could not sign in.
pub fn refusal(failure: &Failure) -> (StatusCode, &'static str) {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let problem = match failure.status {
        401 => "This is not a key of this gateway, or it no longer works.",
        403 => "This is an inference key. Signing in needs a management key.",
        429 => "Too many attempts from your address. Wait a minute and try again.",
        _ => "The gateway cannot check keys at the moment. Try again in a little while.",
    };
    (status, problem)
}

/// Whether people reach this site over TLS.
fn is_https(app: &App) -> bool {
    app.public_url.starts_with("https://")
}

/// Whether a key may be typed in here: over TLS, or on the very machine the gateway runs on.
pub fn may_sign_in(app: &App, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    is_https(app) || is_this_machine(host)
}

fn is_this_machine(host: &str) -> bool {
    // The colons of an address in brackets begin no port.
    let port = host.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
    matches!(port.map_or(host, |(name, _)| name), "localhost" | "127.0.0.1" | "[::1]")
}

/// The other name of this machine, where people are to use that one.
pub fn other_name<'a>(app: &'a App, host: &str) -> Option<&'a str> {
    let own = app.public_url.strip_prefix("http://")?;
    (own != host && is_this_machine(own) && is_this_machine(host)).then_some(own)
}

/// Whether a form was sent by a page of this site, as far as the browser tells.
pub fn is_same_site(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(FETCH_SITE) {
        return matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    // Browsers that do not say so name at least the origin; our pages ask them to name none.
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    match (text(ORIGIN), text(HOST)) {
        (None | Some("null"), _) => true,
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, name)| name == host),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_three_names_with_and_without_a_port() {
        for host in ["localhost", "localhost:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["", ":80", "[::2]", "[::1]x", "[::1", "::1", "localhost.example", "127.0.0.2", "[::1].example:80"]
        {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
