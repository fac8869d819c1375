//! From a request to its handler: path, method, caller, in this order, and the same for every route.

use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use http::header::{ALLOW, CONTENT_LENGTH, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode, request};
use http_body::Body as _;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use tidegate_core::{KeyKind, RequestId, boxed, clock};
use tidegate_gateway::relay::Body;
use tidegate_gateway::tasks::{Panicked, guarded};
use tidegate_gateway::{Failure, KeyEntry};
use tidegate_observe::{logging, metrics};
use tidegate_wire::error::ErrorType;

use crate::routes::{Callers, ROUTES, Route, Surface, paths};
use crate::state::App;
use crate::{cors, error, head};

pub type Answer = Response<Body>;
pub type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

const LONGEST_TARGET: usize = 8 << 10;
/// Where a model is asked for by its name.
const MODELS: [&str; 2] = ["/api/v1/models", "/v1/models"];
/// Asked for all the time by whoever watches over us.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request that has been let in. In a box: it goes from hand to hand, and every future on its way has room for it.
pub type Call = Box<Asking>;

/// See [`Call`].
pub struct Asking {
    pub app: Arc<App>,
    /// There for every route that asks for a key.
    pub key: Option<Arc<KeyEntry>>,
    pub head: request::Parts,
    pub body: Incoming,
    pub peer: SocketAddr,
    /// The variable parts of the path, in their order.
    pub params: Vec<String>,
    /// What the answer will carry as its request id, where it is not a generation's.
    pub request: RequestId,
}

/// The routes of one path.
struct Site {
    routes: Vec<&'static Route>,
}

pub struct Router(matchit::Router<Site>);

impl Router {
    pub fn new() -> Self {
        let mut grouped: Vec<(String, Site)> = Vec::new();
        for route in ROUTES {
            for path in paths(route) {
                match grouped.iter_mut().find(|(known, _)| *known == path) {
                    Some((_, site)) => site.routes.push(route),
                    None => grouped.push((path, Site { routes: vec![route] })),
                }
            }
        }
        let mut router = matchit::Router::new();
        for (path, site) in grouped {
            router.insert(path, site).expect("a test builds the router from the table");
        }
        Self(router)
    }

    /// The route of a request and the variable parts of its path, or why there is none.
    fn find(&self, method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), Failure> {
        if !is_plain(path) {
            return Err(Failure::invalid(
                "Invalid request: the path must not hold encoded slashes, dot segments or empty segments",
            ));
        }
        let not_found = || Failure::new(404, ErrorType::NotFound, absent(path).unwrap_or("Not found"));
        let found = self.0.at(path).map_err(|_| not_found())?;
        // What can be got can be asked about: the answer leaves without its body.
        let wanted = if *method == Method::HEAD { &Method::GET } else { method };
        let route = found.value.routes.iter().find(|route| route.method == *wanted);
        let route = route.copied().ok_or_else(|| Failure::new(405, ErrorType::InvalidRequest, "Method Not Allowed"))?;
        Ok((route, found.params.iter().map(|(_, value)| decoded(value)).collect::<Result<_, _>>()?))
    }

    /// Who may call this path from a browser, and how.
    fn readers(&self, app: &App, path: &str, headers: &HeaderMap) -> (Option<HeaderValue>, String) {
        let routes = self.0.at(path).map(|found| found.value.routes.as_slice()).unwrap_or_default();
        let may = |route: &&&'static Route| Some((cors::reader(app, route, headers)?, route.method.as_str()));
        let open: Vec<_> = routes.iter().filter_map(|route| may(&route)).collect();
        let methods: Vec<&str> = open.iter().map(|(_, method)| *method).collect();
        (open.first().map(|(reader, _)| reader.clone()), methods.join(", "))
    }

    fn allowed(&self, path: &str) -> Option<String> {
        let site = &self.0.at(path).ok()?.value;
        let named = site.routes.iter().map(|route| match route.method {
            Method::GET => "GET, HEAD",
            ref method => method.as_str(),
        });
        Some(named.collect::<Vec<_>>().join(", "))
    }

    fn surface(&self, path: &str) -> Surface {
        self.0
            .at(path)
            .ok()
            .and_then(|found| found.value.routes.first().map(|route| route.surface))
            .unwrap_or(Surface::General)
    }
}

/// What is told of calls that vendors have and this gateway does not: whoever makes one looks for a wrong address otherwise.
fn absent(path: &str) -> Option<&'static str> {
    let path = ["/api/v1", "/v1"].iter().find_map(|mount| path.strip_prefix(mount))?;
    let is_below = |start: &str| path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if is_below("/messages/batches") || is_below("/batches") {
        return Some("Not found: batches are not offered here; send their requests one by one");
    }
    if is_below("/responses") || is_below("/conversations") {
        return Some("Not found: answers are not kept here; send the whole conversation with every request");
    }
    if is_below("/chat/completions") {
        return Some("Not found: answers are not kept here");
    }
    if path == "/completions" {
        return Some("Not found: bare prompts are not completed here; send them as messages to /chat/completions");
    }
    None
}

/// Clients write a model's name as one segment, with its slash encoded. Whoever on the way decodes it gets the same path.
fn model_path(path: &str) -> Cow<'_, str> {
    let split = path.rsplit_once('/').filter(|(head, _)| MODELS.contains(head));
    let named = split.and_then(|(head, name)| {
        let (author, slug) = name.split_once("%2F").or_else(|| name.split_once("%2f"))?;
        Some(format!("{head}/{author}/{slug}"))
    });
    named.map_or(Cow::Borrowed(path), Cow::Owned)
}

/// What a part of a path stands for: clients encode characters that need not be (`:` in the name of a variant).
fn decoded(part: &str) -> Result<String, Failure> {
    let text = percent_decode_str(part).decode_utf8();
    let text = text.map_err(|_| Failure::invalid("Invalid request: the path must be UTF-8 when it is decoded"))?;
    Ok(text.into_owned())
}

/// Rights are decided on the matched route, so a path that two parties could read differently is not matched at all.
fn is_plain(path: &str) -> bool {
    if !path.contains("//") && !path.contains("/.") && !path.contains('%') && !path.contains('\\') {
        return true;
    }
    let lower = path.to_ascii_lowercase();
    !["//", "%2f", "%5c", "%2e", "\\", "%00"].iter().any(|part| lower.contains(part))
        && !path.split('/').any(|segment| matches!(segment, "." | ".."))
}

/// Serves one request; a panic in it ends this request alone.
pub async fn serve(app: Arc<App>, peer: SocketAddr, request: Request<Incoming>) -> Answer {
    let began = app.gateway.clock.instant();
    let (head, body) = request.into_parts();
    let method = head.method.clone();
    let checked = head::check(&head);
    let is_ambiguous = checked.is_err();
    let found = checked.and_then(|()| {
        if head.uri.path_and_query().is_some_and(|target| target.as_str().len() > LONGEST_TARGET) {
            return Err(Failure::new(414, ErrorType::InvalidRequest, "Request target too long"));
        }
        app.router.find(&method, &model_path(head.uri.path()))
    });
    let request = RequestId::new();
    let (route, params) = match found {
        Ok(found) => found,
        Err(failure) => {
            let path = &*model_path(head.uri.path());
            let (reader, methods) = app.router.readers(&app, path, &head.headers);
            if reader.is_some() && method == Method::OPTIONS && !is_ambiguous {
                let answer = cors::opened(cors::preflight(&head.headers, &methods), reader);
                return finished(&app, None, &method, request, (began, None, None), answer);
            }
            let mut answer = error::answer(&failure, app.router.surface(path), &app.brand());
            if failure.status == 405
                && let Some(allowed) = app.router.allowed(path).and_then(|allowed| HeaderValue::from_str(&allowed).ok())
            {
                answer.headers_mut().insert(ALLOW, allowed);
            }
            if is_ambiguous {
                answer.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
            }
            let answer = cors::opened(answer, reader);
            let kind = Some(failure.error_type.as_str());
            return finished(&app, None, &method, request, (began, None, kind), answer);
        }
    };
    let reader = cors::reader(&app, route, &head.headers);
    let peer = if app.trusted_proxies.is_empty() { peer } else { app.caller(peer, &head.headers) };
    let call = boxed(|| Asking { app: app.clone(), key: None, head, body, peer, params, request });
    let (mut caller, mut error_type) = (None, None);
    let served = guarded(let_in(route, call, &mut caller)).await;
    let answer = match served {
        Ok(Ok(answer)) => answer,
        Ok(Err(failure)) => {
            error_type = Some(failure.error_type.as_str());
            if failure.status == 500 {
                tracing::error!(route = route.path, request_id = request.as_str(), "a request failed by our own fault");
            }
            error::answer(&failure, route.surface, &app.brand())
        }
        Err(Panicked) => {
            app.gateway.metrics.panics.inc();
            tracing::error!(route = route.path, request_id = request.as_str(), "a request panicked");
            error::answer(&Failure::internal(), route.surface, &app.brand())
        }
    };
    let answer = cors::opened(answer, reader);
    let taken = app.gateway.clock.instant().saturating_duration_since(began);
    let door = metrics::Door { route: route.path };
    app.gateway.metrics.flow.http_duration.get_or_create(&door).observe(taken.as_secs_f64());
    finished(&app, Some(route), &method, request, (began, caller, error_type), answer)
}

/// `caller` is for the log, and stays empty where there is none to write.
async fn let_in(route: &'static Route, mut call: Call, caller: &mut Option<Arc<KeyEntry>>) -> Result<Answer, Failure> {
    let (gateway, source) = (&call.app.gateway, call.peer.ip());
    // Before anybody is looked up: whoever is refused for our sake costs next to nothing.
    if let Some(level) = route.shed_at {
        gateway.shed_from(level)?;
    }
    call.key = match route.callers {
        Callers::Anyone => None,
        Callers::Inference => {
            let key = gateway.authenticate_inference(&call.head.headers, source).await?;
            gateway.admit_inference(&key, source).await?;
            Some(key)
        }
        Callers::Both => Some(gateway.authenticate(&call.head.headers, source, true).await?),
        Callers::Management => {
            let key = gateway.authenticate(&call.head.headers, source, false).await?;
            if key.kind != KeyKind::Management {
                return Err(Failure::management_only());
            }
            gateway.admit_management(&key.live.managed)?;
            Some(key)
        }
    };
    if logging::tells_of_requests() {
        caller.clone_from(&call.key);
    }
    (route.handler)(call).await
}

/// Every answer carries an id, and is counted. A call of a model has its own line in the log when it is settled; all others
/// have theirs here.
fn finished(
    app: &App,
    route: Option<&'static Route>,
    method: &Method,
    request: RequestId,
    (began, caller, error_type): (Instant, Option<Arc<KeyEntry>>, Option<&'static str>),
    mut answer: Answer,
) -> Answer {
    let is_own = !answer.headers().contains_key(&X_REQUEST_ID);
    if is_own && logging::tells_of_requests() {
        clock::time_passes();
        let path = route.map_or("other", |route| route.path);
        logging::served(&logging::Served {
            request_id: request.as_str(),
            method: method.as_str(),
            route: path,
            status: answer.status().as_u16(),
            duration: app.gateway.clock.instant().saturating_duration_since(began),
            caller: caller.as_deref().map(|key| (&key.hash, &key.workspace)),
            error_type,
            is_probe: PROBES.contains(&path),
        });
    }
    if is_own {
        let id = HeaderValue::from_str(request.as_str()).expect("an id is plain ASCII");
        answer.headers_mut().insert(REQUEST_ID, id.clone());
        answer.headers_mut().insert(X_REQUEST_ID, id);
    }
    // Who calls again looks for another gateway, while this one still serves those who do not find one.
    if app.gateway.is_leaving() && !answer.headers().contains_key(http::header::CONNECTION) {
        answer.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    }
    let labels = metrics::Route {
        route: route.map_or("other", |route| route.path),
        method: match *method {
            Method::GET => "GET",
            Method::HEAD => "HEAD",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        },
        status: answer.status().as_u16(),
    };
    app.gateway.metrics.http_requests.get_or_create(&labels).inc();
    if *method == Method::HEAD { bodiless(answer) } else { answer }
}

/// The head of an answer, which says how long its body would be. HTTP/1.1 leaves bodies of such answers out by itself,
/// HTTP/2 does not.
fn bodiless(answer: Answer) -> Answer {
    let (mut head, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    Response::from_parts(head, Body::full(bytes::Bytes::new()))
}

/// An answer made of bytes that are there.
pub fn plain(status: StatusCode, kind: &'static str, body: impl Into<bytes::Bytes>) -> Answer {
    let mut answer = Response::new(Body::full(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_1_the_table_makes_a_router_and_nothing_else_is_served() {
        let router = Router::new();
        for route in ROUTES {
            for path in paths(route) {
                let path = path.replace(['{', '}'], "");
                assert!(std::ptr::eq(router.find(&route.method, &path).unwrap().0, route), "{path}");
            }
        }
        let status = |method: Method, path: &str| {
            router.find(&method, path).map(|_| 200).unwrap_or_else(|failure| failure.status)
        };
        assert_eq!(status(Method::POST, "/messages"), 404);
        assert_eq!(status(Method::POST, "/v1/messages/"), 404);
        assert_eq!(status(Method::GET, "/v1/messages"), 405);
        assert_eq!(status(Method::PUT, "/api/v1/messages/count_tokens"), 405);
        assert_eq!(status(Method::HEAD, "/v1/messages"), 405);
        for route in ROUTES.iter().filter(|route| route.method == Method::GET) {
            let path = paths(route).into_iter().next().unwrap().replace(['{', '}'], "");
            assert_eq!(status(Method::HEAD, &path), 200, "{path}");
            assert!(router.allowed(&path).unwrap().contains("GET, HEAD"), "{path}");
        }
    }

    #[test]
    fn ten_2_ambiguous_paths_are_refused() {
        for path in [
            "//v1/messages",
            "/v1//messages",
            "/v1/./messages",
            "/v1/x/../messages",
            "/v1%2Fmessages",
            "/v1/%2e%2e/x",
            "/v1\\messages",
            "/v1/messages%00",
        ] {
            assert_eq!(
                Router::new().find(&Method::POST, path).err().map(|failure| failure.status),
                Some(400),
                "{path}"
            );
        }
        assert!(is_plain("/v1/files/a.b%20c"));
    }
}
