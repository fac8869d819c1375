//! The accept loop: connections within their number, each with its timers, all ended gracefully.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use tidegate_core::{clock, pinned};
use tidegate_gateway::tasks;

use crate::head;
use crate::router;
use crate::socket::{Activity, Patience, Socket, Tracked};
use crate::state::App;
use crate::tls::Tls;

/// What the HTTP library reads of a head before it refuses it without a word. More than we take: what is only a little too
/// large is refused by the router, with our own answer.
const HEADER_BYTES: usize = head::LARGEST + (16 << 10);
const HEADERS: usize = head::MOST + 50;
/// After a connection that could not be accepted.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the loop needs to know of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    pub patience: Patience,
}

/// Accepts until `stop` is done; gives back what is needed to wait for the connections that are left.
pub async fn accept(
    listener: TcpListener,
    app: Arc<App>,
    limits: Limits,
    tls: Option<Arc<Tls>>,
    stop: impl Future<Output = ()>,
) -> GracefulShutdown {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let server = Arc::new(server());
    let mut stop = std::pin::pin!(stop);
    loop {
        let place = tokio::select! {
            () = &mut stop => return graceful,
            place = places.clone().acquire_owned() => place.expect("the semaphore is never closed"),
        };
        let accepted = tokio::select! {
            () = &mut stop => return graceful,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: wait for some to come back instead of spinning.
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Small writes must not wait for an acknowledgement of the last one.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls.clone() else {
            let connection = connection(&server, stream, peer, &app, limits.patience);
            let connection = graceful.watch(connection);
            tasks::spawn("serve a connection", Served { connection, _place: place });
            continue;
        };
        let (server, app, watcher) = (server.clone(), app.clone(), graceful.watcher());
        tasks::spawn("serve a connection", async move {
            let stream = match tls.accept(stream).await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a handshake failed");
                    return;
                }
            };
            let connection = connection(&server, stream, peer, &app, limits.patience);
            Served { connection: watcher.watch(connection), _place: place }.await;
        });
    }
}

// Not an async block: that would hold the connection twice, and there are thousands of them.
pin_project! {
    /// A connection until its end, and its place among those that may be open.
    struct Served<C> {
        #[pin]
        connection: C,
        _place: OwnedSemaphorePermit,
    }
}

impl<C: Future<Output = Result<(), Broken>>> Future for Served<C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        clock::step(|| self.project().connection.poll(context)).map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            }
        })
    }
}

fn server() -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().max_buf_size(HEADER_BYTES).max_headers(HEADERS).keep_alive(true);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(100)
        .initial_stream_window_size(64 << 10)
        .initial_connection_window_size(1 << 20)
        .max_header_list_size(HEADER_BYTES as u32)
        .max_pending_accept_reset_streams(100)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    server
}

type Broken = Box<dyn std::error::Error + Send + Sync>;
type Service = Pin<Box<dyn Future<Output = Result<http::Response<Tracked>, std::convert::Infallible>> + Send>>;

fn connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    server: &Arc<auto::Builder<TokioExecutor>>,
    stream: S,
    peer: SocketAddr,
    app: &Arc<App>,
    patience: Patience,
) -> impl GracefulConnection<Error = Broken> + Send + 'static {
    let app = app.clone();
    let activity = Arc::new(Activity::default());
    let io = TokioIo::new(Socket::new(stream, patience, activity.clone()));
    let service = service_fn(move |request| -> Service {
        let app = app.clone();
        let open = activity.begin();
        pinned(
            move || async move { Ok(router::serve(app, peer, request).await.map(|body| Tracked { body, _open: open })) },
        )
    });
    server.serve_connection(io, service).into_owned()
}
