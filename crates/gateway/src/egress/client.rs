//! The client. A name is resolved once, by us; all its addresses are checked, and the connection goes to one of those
//! that were checked, so that a second answer of a name server has nothing to change. The name itself is only said: to
//! TLS and in `Host`.
//!
//! Deliberately absent: proxies of the environment, cookies, credentials, kept connections, decompression.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::ConfigVerifierExt as _;
use tidegate_observe::metrics::{Reason as Counted, Refusals};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::name::{self, Place, Where};
use super::{Budget, Domains, Reason, Refused, Rules, Wanted, kind};

const LOOKUP: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(3);
/// How long one of several addresses is waited for.
const ONE_OF_SEVERAL: Duration = Duration::from_secs(1);
const FIRST_BYTE: Duration = Duration::from_secs(10);
const TOTAL: Duration = Duration::from_secs(15);
const MOST_REDIRECTS: usize = 3;
/// Fetches at a time on this node, and lookups: what those who ask cannot make us hold more of.
const FETCHES: usize = 64;
/// Calls to destinations at a time; each of them has a few at most, so it takes many slow ones to keep the rest waiting.
const DELIVERIES: usize = 256;
const LOOKUPS: usize = 32;
const HEAD: usize = 64 << 10;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
/// Who reads pages says so by a name that their owners can tell from others.
const READER: HeaderValue = HeaderValue::from_static(concat!("Tidegate-Fetch/", env!("CARGO_PKG_VERSION")));
const PLAIN: HeaderValue = HeaderValue::from_static("identity");

/// What was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub media_type: &'static str,
    /// The encoding of a text, as its sender calls it.
    pub charset: Option<Box<str>>,
    pub bytes: Bytes,
}

/// How much of an answer is read, and how long it is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub bytes: usize,
    pub time: Duration,
}

/// What was answered to something that was sent.
#[derive(Debug)]
pub struct Said {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

type Answered = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// What turns a name into addresses; asked once per hop.
pub trait Resolve: Send + Sync {
    fn resolve(&self, name: &str) -> Answered;
}

/// The system's resolver.
pub struct System(Arc<Semaphore>);

impl Default for System {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUPS)))
    }
}

impl Resolve for System {
    fn resolve(&self, name: &str) -> Answered {
        let (name, slots) = (name.to_owned(), self.0.clone());
        Box::pin(async move {
            // A lookup cannot be stopped. It keeps its place until it is done, so that slow name servers cannot take
            // all the threads.
            let slot = slots.acquire_owned().await.map_err(io::Error::other)?;
            let lookup = tokio::task::spawn_blocking(move || {
                let _slot = slot;
                Ok((name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect())
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}

/// What is fetched, and within which bounds.
struct Order<'a> {
    wanted: Wanted,
    rules: &'a Rules,
    budget: &'a Budget,
    domains: &'a Domains,
}

/// The one client for what callers point at.
pub struct Egress {
    resolver: Box<dyn Resolve>,
    /// Made at the first fetch over TLS: reading the system's trust store takes time.
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    slots: Semaphore,
    /// Nobody waits for a request's sake until a destination has answered.
    deliveries: Semaphore,
    /// Those who may take their time must not keep all others waiting.
    conversations: Semaphore,
    /// What the rules did not let through, by reason.
    refusals: Refusals,
}

impl Default for Egress {
    fn default() -> Self {
        Self::with(System::default())
    }
}

impl Egress {
    pub fn with(resolver: impl Resolve + 'static) -> Self {
        Self {
            resolver: Box::new(resolver),
            tls: OnceLock::new(),
            slots: Semaphore::new(FETCHES),
            deliveries: Semaphore::new(DELIVERIES),
            conversations: Semaphore::new(FETCHES),
            refusals: Refusals::default(),
        }
    }

    /// The same, counting what is refused there.
    pub fn counting(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    fn refused(&self, reason: Reason) -> Refused {
        let reason_text = match reason {
            Reason::Url => "url",
            Reason::Domain => "domain",
            Reason::Port => "port",
            Reason::Name => "name",
            Reason::Address => "address",
            Reason::Own => "own",
            // It was let through and came to nothing.
            _ => return Refused(reason),
        };
        self.refusals.get_or_create(&Counted { reason: reason_text }).inc();
        Refused(reason)
    }

    /// Fetches what a caller points at.
    pub async fn fetch(&self, url: &str, wanted: Wanted, rules: &Rules) -> Result<Fetched, Refused> {
        self.fetch_within(url, wanted, rules, &Budget::new(wanted.most())).await
    }

    /// The same, with bytes that several fetches share.
    pub async fn fetch_within(
        &self,
        url: &str,
        wanted: Wanted,
        rules: &Rules,
        budget: &Budget,
    ) -> Result<Fetched, Refused> {
        self.fetch_as(url, &Order { wanted, rules, budget, domains: &Domains::default() }).await
    }

    /// Fetches a page from where the caller wants pages from.
    pub async fn fetch_page(&self, url: &str, rules: &Rules, domains: &Domains) -> Result<Fetched, Refused> {
        let wanted = Wanted::Page;
        self.fetch_as(url, &Order { wanted, rules, budget: &Budget::new(wanted.most()), domains }).await
    }

    /// Sends something to where a caller wants to have it: the status of the answer, and after how many seconds it wants
    /// to be asked again. What it says else is not read, and nobody is followed elsewhere.
    pub async fn send(
        &self,
        url: &str,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        rules: &Rules,
    ) -> Result<(u16, Option<u64>), Refused> {
        let work = async {
            let _slot = self.deliveries.acquire().await.map_err(|_| Reason::Busy)?;
            let place = name::place(url, rules)?;
            let mut request = Request::new(Full::new(body));
            *request.method_mut() = method;
            *request.uri_mut() = place.target().parse().map_err(|_| Reason::Url)?;
            *request.headers_mut() = headers;
            let host = HeaderValue::from_str(&place.authority()).map_err(|_| Reason::Url)?;
            request.headers_mut().insert(HOST, host);
            request.headers_mut().insert(USER_AGENT, AGENT);
            self.sent(&place, request, rules).await
        };
        let outcome = timeout(TOTAL, Box::pin(work)).await.unwrap_or(Err(Reason::TooSlow));
        outcome.map_err(|reason| {
            tracing::info!(?reason, "what a caller wanted to be told of could not be sent");
            self.refused(reason)
        })
    }

    #[expect(clippy::disallowed_methods, reason = "this is the client for what callers point at")]
    async fn sent(
        &self,
        place: &Place,
        request: Request<Full<Bytes>>,
        rules: &Rules,
    ) -> Result<(u16, Option<u64>), Reason> {
        let addresses = timeout(LOOKUP, self.addresses(place, rules)).await.map_err(|_| Reason::TooSlow)??;
        let stream = timeout(CONNECT, self.connected(place, &addresses)).await.map_err(|_| Reason::TooSlow)??;
        let mut settings = http1::Builder::new();
        settings.max_buf_size(HEAD);
        let (mut sender, connection) = settings.handshake(TokioIo::new(stream)).await.map_err(|_| Reason::Broken)?;
        let mut connection = pin!(connection);
        let mut work = pin!(async move {
            let sent = timeout(FIRST_BYTE, sender.send_request(request)).await.map_err(|_| Reason::TooSlow)?;
            let response = sent.map_err(|_| Reason::Broken)?;
            let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Ok((response.status().as_u16(), wait))
        });
        tokio::select! {
            biased;
            done = &mut work => done,
            _ = &mut connection => work.await,
        }
    }

    /// Sends something to where a caller points and reads the answer, until `is_whole` has seen enough of it. Nobody is
    /// followed elsewhere.
    pub async fn converse(
        &self,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
        rules: &Rules,
        bounds: Bounds,
        is_whole: impl FnMut(&Bytes) -> bool + Send,
    ) -> Result<Said, Refused> {
        let mut origin = None;
        let work = async {
            let _slot = self.conversations.acquire().await.map_err(|_| Reason::Busy)?;
            let place = name::place(url, rules)?;
            origin = Some(place.origin());
            let mut request = Request::new(Full::new(body));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = place.target().parse().map_err(|_| Reason::Url)?;
            *request.headers_mut() = headers;
            let host = HeaderValue::from_str(&place.authority()).map_err(|_| Reason::Url)?;
            request.headers_mut().insert(HOST, host);
            request.headers_mut().insert(USER_AGENT, AGENT);
            request.headers_mut().insert(ACCEPT_ENCODING, PLAIN);
            self.conversed(&place, request, rules, bounds.bytes, is_whole).await
        };
        let outcome = timeout(bounds.time, Box::pin(work)).await.unwrap_or(Err(Reason::TooSlow));
        outcome.map_err(|reason| {
            let origin = origin.as_deref().unwrap_or("none");
            tracing::info!(origin, ?reason, "whom a caller pointed at did not answer");
            self.refused(reason)
        })
    }

    #[expect(clippy::disallowed_methods, reason = "this is the client for what callers point at")]
    async fn conversed(
        &self,
        place: &Place,
        request: Request<Full<Bytes>>,
        rules: &Rules,
        most: usize,
        mut is_whole: impl FnMut(&Bytes) -> bool + Send,
    ) -> Result<Said, Reason> {
        let addresses = timeout(LOOKUP, self.addresses(place, rules)).await.map_err(|_| Reason::TooSlow)??;
        let stream = timeout(CONNECT, self.connected(place, &addresses)).await.map_err(|_| Reason::TooSlow)??;
        let mut settings = http1::Builder::new();
        settings.max_buf_size(HEAD);
        let (mut sender, connection) = settings.handshake(TokioIo::new(stream)).await.map_err(|_| Reason::Broken)?;
        let mut connection = pin!(connection);
        let mut work = pin!(async move {
            let response = sender.send_request(request).await.map_err(|_| Reason::Broken)?;
            let (head, mut body) = response.into_parts();
            let is_encoded = |encoding: &HeaderValue| !encoding.as_bytes().eq_ignore_ascii_case(b"identity");
            if head.headers.get_all(CONTENT_ENCODING).iter().any(is_encoded) {
                return Err(Reason::Encoding);
            }
            let mut bytes = BytesMut::new();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(|_| Reason::Broken)?.into_data() else { continue };
                if bytes.len() + data.len() > most {
                    return Err(Reason::TooLarge);
                }
                bytes.extend_from_slice(&data);
                if is_whole(&data) {
                    break;
                }
            }
            Ok(Said { status: head.status.as_u16(), headers: head.headers, body: bytes.freeze() })
        });
        tokio::select! {
            biased;
            done = &mut work => done,
            // The other side has closed; what it said before is still to be read.
            _ = &mut connection => work.await,
        }
    }

    async fn fetch_as(&self, url: &str, order: &Order<'_>) -> Result<Fetched, Refused> {
        let mut last = None;
        let work = async {
            let _slot = self.slots.acquire().await.map_err(|_| Reason::Busy)?;
            self.follow(url, order, &mut last).await
        };
        let outcome = timeout(TOTAL, Box::pin(work)).await.unwrap_or(Err(Reason::TooSlow));
        outcome.map_err(|reason| {
            // Neither path nor query: both may be what lets one in.
            let origin = last.as_deref().unwrap_or("none");
            tracing::info!(origin, ?reason, "what a caller pointed at was not fetched");
            self.refused(reason)
        })
    }

    /// `last`: whom was asked last.
    async fn follow(&self, url: &str, order: &Order<'_>, last: &mut Option<String>) -> Result<Fetched, Reason> {
        let mut place = name::place(url, order.rules)?;
        for _ in 0..=MOST_REDIRECTS {
            if !order.domains.permit(&place.host) {
                return Err(Reason::Domain);
            }
            *last = Some(place.origin());
            match self.ask(&place, order).await? {
                Answer::Here(fetched) => return Ok(fetched),
                Answer::Elsewhere(location) => place = name::redirected(&place, &location, order.rules)?,
            }
        }
        Err(Reason::Redirect)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the client for what callers point at")]
    async fn ask(&self, place: &Place, order: &Order<'_>) -> Result<Answer, Reason> {
        let Order { wanted, rules, budget, .. } = *order;
        let addresses = timeout(LOOKUP, self.addresses(place, rules)).await.map_err(|_| Reason::TooSlow)??;
        let stream = timeout(CONNECT, self.connected(place, &addresses)).await.map_err(|_| Reason::TooSlow)??;
        let mut settings = http1::Builder::new();
        settings.max_buf_size(HEAD);
        let (mut sender, connection) = settings.handshake(TokioIo::new(stream)).await.map_err(|_| Reason::Broken)?;
        let mut connection = pin!(connection);
        let request = request(place, wanted)?;
        let mut work = pin!(async move {
            let sent = timeout(FIRST_BYTE, sender.send_request(request)).await.map_err(|_| Reason::TooSlow)?;
            read(sent.map_err(|_| Reason::Broken)?, wanted, budget).await
        });
        tokio::select! {
            biased;
            done = &mut work => done,
            // The other side has closed; what it said before is still to be read.
            _ = &mut connection => work.await,
        }
    }

    /// The addresses of a place, all of which may be called; one that may not spoils all.
    async fn addresses(&self, place: &Place, rules: &Rules) -> Result<Vec<SocketAddr>, Reason> {
        let (ips, by_name) = match &place.host {
            Where::Ip(ip) => (vec![*ip], false),
            Where::Name { name, allowed } => (self.resolver.resolve(name).await.map_err(|_| Reason::Lookup)?, *allowed),
        };
        let addresses: Vec<SocketAddr> =
            ips.into_iter().map(|ip| SocketAddr::new(ip.to_canonical(), place.port)).collect();
        if addresses.is_empty() {
            return Err(Reason::Lookup);
        }
        if !addresses.iter().all(|address| rules.permits(*address, by_name)) {
            return Err(Reason::Address);
        }
        Ok(addresses)
    }

    async fn connected(&self, place: &Place, addresses: &[SocketAddr]) -> Result<Box<dyn Stream>, Reason> {
        let mut stream = None;
        for (index, address) in addresses.iter().enumerate() {
            let limit = if index + 1 == addresses.len() { CONNECT } else { ONE_OF_SEVERAL };
            if let Ok(Ok(connected)) = timeout(limit, TcpStream::connect(*address)).await {
                stream = Some(connected);
                break;
            }
        }
        let stream = stream.ok_or(Reason::Connect)?;
        let _ = stream.set_nodelay(true);
        if !place.is_tls() {
            return Ok(Box::new(stream));
        }
        let name = match &place.host {
            Where::Ip(ip) => ServerName::from(*ip),
            Where::Name { name, .. } => ServerName::try_from(name.clone()).map_err(|_| Reason::Name)?,
        };
        let connector = TlsConnector::from(self.tls()?);
        Ok(Box::new(connector.connect(name, stream).await.map_err(|_| Reason::Connect)?))
    }

    fn tls(&self) -> Result<Arc<rustls::ClientConfig>, Reason> {
        if let Some(config) = self.tls.get() {
            return Ok(config.clone());
        }
        // Another part of the process may have chosen the provider already; it is the same one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut config = rustls::ClientConfig::with_platform_verifier().map_err(|error| {
            tracing::error!(%error, "the system's trust store cannot be used");
            Reason::Connect
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(self.tls.get_or_init(|| Arc::new(config)).clone())
    }

    #[cfg(test)]
    pub(super) fn trusting(self, config: rustls::ClientConfig) -> Self {
        Self { tls: OnceLock::from(Arc::new(config)), ..self }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

enum Answer {
    Here(Fetched),
    Elsewhere(String),
}

fn request(place: &Place, wanted: Wanted) -> Result<Request<Empty<Bytes>>, Reason> {
    let accept = match wanted {
        Wanted::Image => "image/png, image/jpeg, image/gif, image/webp",
        Wanted::Document => "application/pdf, text/plain",
        Wanted::Page => "text/html, application/xhtml+xml, text/*;q=0.9, application/pdf;q=0.9, */*;q=0.5",
    };
    let agent = if wanted == Wanted::Page { READER } else { AGENT };
    Request::get(place.target())
        .header(HOST, place.authority())
        .header(USER_AGENT, agent)
        .header(ACCEPT, HeaderValue::from_static(accept))
        .header(ACCEPT_ENCODING, PLAIN)
        .body(Empty::new())
        .map_err(|_| Reason::Url)
}

async fn read(response: Response<Incoming>, wanted: Wanted, budget: &Budget) -> Result<Answer, Reason> {
    let (head, mut body) = response.into_parts();
    let text = |name| head.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    match head.status.as_u16() {
        200 => {}
        301 | 302 | 303 | 307 | 308 => {
            let location = text(LOCATION).filter(|location| *location != "?").ok_or(Reason::Redirect)?;
            return Ok(Answer::Elsewhere(location.to_owned()));
        }
        _ => return Err(Reason::Status),
    }
    // Nothing encoded was asked for. What is sent so all the same is not unpacked.
    if head
        .headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(Reason::Encoding);
    }
    let declared = text(CONTENT_TYPE);
    if !kind::is_declared(wanted, declared) {
        return Err(Reason::Type);
    }
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let most = wanted.most_of(declared);
    if expected > most {
        return Err(Reason::TooLarge);
    }
    // Not as much as is promised at once: it may never come.
    let mut bytes = BytesMut::with_capacity(expected.min(1 << 20));
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Reason::Broken)?.into_data() else { continue };
        if bytes.len() + data.len() > most || !budget.take(data.len()) {
            return Err(Reason::TooLarge);
        }
        bytes.extend_from_slice(&data);
    }
    let media_type = kind::fitting(wanted, declared, &bytes)?;
    let charset = declared.and_then(kind::charset).map(Into::into);
    Ok(Answer::Here(Fetched { media_type, charset, bytes: bytes.freeze() }))
}
