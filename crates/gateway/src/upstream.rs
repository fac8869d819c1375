//! The only place that opens a connection to a provider. It takes a prepared call and gives back an answer or a fault;
//! the address is one that the operator configured, or the vendor's own for the region, project or resource that a
//! customer's credential was stored for.

mod plain;
mod unanswered;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls_platform_verifier::ConfigVerifierExt as _;
use smallvec::{SmallVec, smallvec};
use tidegate_providers::{Class, Fault};
use tokio::time::{Instant, timeout, timeout_at};

pub use self::plain::Flow;
use self::plain::Plain;
pub use self::unanswered::{TlsTrouble, Unanswered};

const CONNECT: Duration = Duration::from_secs(5);
const IDLE_CONNECTION: Duration = Duration::from_secs(60);
const AGENT: HeaderValue = HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
const PLAIN: HeaderValue = HeaderValue::from_static("identity");
/// Enough of an error answer to tell what it means.
pub(crate) const ERROR_BODY: usize = 64 << 10;

/// A request's body: pieces that are sent one after the other. Nearly always one, and small: every connection has room for
/// many requests.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    pieces: SmallVec<[Bytes; 1]>,
    sent: usize,
}

impl From<SmallVec<[Bytes; 1]>> for Pieces {
    fn from(pieces: SmallVec<[Bytes; 1]>) -> Self {
        Self { pieces, sent: 0 }
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        Self::from(smallvec![bytes])
    }
}

impl Pieces {
    /// All of it in one piece.
    pub fn joined(self) -> Bytes {
        if let [only] = self.pieces.as_slice() {
            return only.clone();
        }
        Bytes::from(self.pieces.concat())
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        let piece = body.pieces.get_mut(body.sent).map(std::mem::take);
        body.sent += 1;
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent >= self.pieces.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// Pooled connections to providers, kept for the life of the process.
#[derive(Default)]
pub struct Client {
    plain: OnceLock<Plain>,
    /// Made at the first call over TLS: reading the system's trust store takes longer than the rest of a start.
    tls: OnceLock<Pool<HttpsConnector<HttpConnector>, Pieces>>,
}

impl Client {
    /// Sends a call and waits for the head of its answer.
    pub async fn send(&self, uri: &Uri, headers: HeaderMap, body: Pieces) -> Result<Response<Flow>, Fault> {
        self.request(Method::POST, uri, headers, body).await
    }

    /// Asks without a body.
    pub async fn get(&self, uri: &Uri, headers: HeaderMap) -> Result<Response<Flow>, Fault> {
        self.request(Method::GET, uri, headers, Pieces::default()).await
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        uri: &Uri,
        headers: HeaderMap,
        body: Pieces,
    ) -> Result<Response<Flow>, Fault> {
        self.ask(method, uri, headers, body).await.map_err(|Unanswered { is_connect, .. }| {
            // The client's own text may hold addresses; only its kind is logged.
            tracing::debug!(connect = is_connect, "an upstream call failed before its answer");
            Fault::without_answer(Class::Unreachable)
        })
    }

    /// For people, who want to know why there is no answer.
    pub async fn ask(
        &self,
        method: Method,
        uri: &Uri,
        mut headers: HeaderMap,
        body: Pieces,
    ) -> Result<Response<Flow>, Unanswered> {
        headers.insert(USER_AGENT, AGENT);
        // Without a word a server or a proxy between may use any coding, and none is undone here.
        headers.insert(ACCEPT_ENCODING, PLAIN);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        match uri.scheme_str() {
            Some("https") => self.over_tls(uri, request).await,
            _ => self.plain.get_or_init(|| Plain::new(connector())).request(uri, request).await,
        }
    }

    async fn over_tls(&self, uri: &Uri, mut request: Request<Pieces>) -> Result<Response<Flow>, Unanswered> {
        *request.uri_mut() = uri.clone();
        let pool = match self.tls.get() {
            Some(pool) => pool,
            None => {
                let pool = tls_pool().map_err(|error| {
                    tracing::error!(%error, "the system's trust store cannot be used");
                    Unanswered::of(true)
                })?;
                self.tls.get_or_init(|| pool)
            }
        };
        let answer = pool.request(request).await;
        answer
            .map(|answer| answer.map(Flow::from))
            .map_err(|error| Unanswered { is_connect: error.is_connect(), tls: TlsTrouble::of(&error) })
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the client for providers")]
fn builder() -> hyper_util::client::legacy::Builder {
    let mut builder = Pool::builder(TokioExecutor::new());
    builder
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_adaptive_window(true);
    builder
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(Duration::from_secs(30)));
    connector.enforce_http(false);
    connector
}

fn tls_pool() -> Result<Pool<HttpsConnector<HttpConnector>, Pieces>, rustls::Error> {
    // Another part of the process may have chosen the provider already; it is the same one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = rustls::ClientConfig::with_platform_verifier()?;
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(connector());
    Ok(builder().build(https))
}

/// The whole body, up to `limit` bytes. One that came in a single piece is not copied.
pub async fn whole(body: impl Into<Flow>, limit: usize) -> Result<Bytes, Fault> {
    read(body.into(), limit, None).await
}

/// The same of a body that has begun by then and never pauses for longer than this.
pub async fn steady(body: Flow, limit: usize, (begun, longest): (Instant, Duration)) -> Result<Bytes, Fault> {
    read(body, limit, Some((begun, longest))).await
}

async fn read(mut body: Flow, limit: usize, patience: Option<(Instant, Duration)>) -> Result<Bytes, Fault> {
    let mut first: Option<Bytes> = None;
    let mut rest: Option<BytesMut> = None;
    let mut size = 0;
    loop {
        let next = match patience {
            Some((begun, _)) if size == 0 => timeout_at(begun, body.frame()).await,
            Some((_, longest)) if longest < Duration::MAX => timeout(longest, body.frame()).await,
            _ => Ok(body.frame().await),
        };
        let frame = next.map_err(|_| Fault::without_answer(Class::Timeout))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Fault::without_answer(Class::Unreachable))?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if size > limit {
            return Err(Fault::in_answer(Class::BadResponse));
        }
        match (&mut first, &mut rest) {
            (None, _) => first = Some(data),
            (Some(head), None) => {
                let expected = usize::try_from(body.size_hint().lower()).unwrap_or(0).min(limit);
                let mut joined = BytesMut::with_capacity(size + expected);
                joined.extend_from_slice(head);
                joined.extend_from_slice(&data);
                rest = Some(joined);
            }
            (Some(_), Some(joined)) => joined.extend_from_slice(&data),
        }
    }
    Ok(rest.map(BytesMut::freeze).or(first).unwrap_or_default())
}

/// As much of an error answer as is worth reading; a broken one is as good as an empty one.
pub async fn error_body(mut body: Flow) -> Bytes {
    let mut out = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            out.extend_from_slice(&data[..data.len().min(ERROR_BODY - out.len())]);
        }
        if out.len() >= ERROR_BODY {
            break;
        }
    }
    out.freeze()
}
