//! The accept loop: connections within their number, each with its timers, all ended gracefully.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};

use tidegate_gateway::tasks;

use crate::router;
use crate::state::App;

const HEADER_BYTES: usize = 32 << 10;
const HEADERS: usize = 100;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the loop needs to know of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    pub header_read: Duration,
    pub write_stall: Duration,
}

/// Accepts until `stop` is done; gives back what is needed to wait for the connections that are left.
pub async fn accept(
    listener: TcpListener,
    app: Arc<App>,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> GracefulShutdown {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let server = Arc::new(server(limits));
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
        let connection = connection(&server, stream, peer, &app, limits.write_stall);
        let connection = graceful.watch(connection);
        tasks::spawn("serve a connection", async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        });
    }
}

fn server(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS)
        .keep_alive(true);
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

type Service = Pin<Box<dyn Future<Output = Result<router::Answer, std::convert::Infallible>> + Send>>;

fn connection(
    server: &Arc<auto::Builder<TokioExecutor>>,
    stream: TcpStream,
    peer: SocketAddr,
    app: &Arc<App>,
    write_stall: Duration,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>> + Send + 'static
{
    let app = app.clone();
    let service = service_fn(move |request| -> Service {
        let app = app.clone();
        Box::pin(async move { Ok(router::serve(app, peer, request).await) })
    });
    let io = TokioIo::new(Stalling { stream, limit: write_stall, stalled: None });
    server.serve_connection(io, service).into_owned()
}

/// A socket whose peer must take what is written within a time; one that does not is treated as gone.
struct Stalling {
    stream: TcpStream,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Stalling {
    fn judged<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match result {
            Poll::Ready(result) => {
                self.stalled = None;
                Poll::Ready(result)
            }
            Poll::Pending => {
                let limit = self.limit;
                let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
                match stalled.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

impl AsyncRead for Stalling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stalling {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judged(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.judged(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
