//! The yardstick: a proxy that reads the head of a request and moves bytes. What a gateway on this stack costs above it
//! is the gateway's own doing. No key check, no JSON, no retry.

use std::net::SocketAddr;

use anyhow::Context as _;
use http::header::{CONNECTION, HOST, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

#[derive(clap::Args)]
pub struct Options {
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where everything goes, such as http://127.0.0.1:9000
    #[arg(long)]
    upstream: Uri,
}

type Upstream = Client<HttpConnector, Incoming>;

#[expect(clippy::disallowed_methods, reason = "a proxy without a gateway, to compare with")]
pub async fn run(options: Options) -> anyhow::Result<()> {
    let authority = options.upstream.authority().context("--upstream must be a URL")?.clone();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Upstream = Client::builder(TokioExecutor::new()).build(connector);
    let listener = TcpListener::bind(options.listen).await?;
    crate::process::announce(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, authority) = (client.clone(), authority.clone());
        let service = service_fn(move |request| forward(request, client.clone(), authority.clone()));
        crate::spawn(async move {
            // A client that leaves is no news here: the driver counts what it did not get.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// An upstream that fails closes the client's connection too; the driver counts it.
async fn forward(
    mut request: Request<Incoming>,
    client: Upstream,
    authority: Authority,
) -> anyhow::Result<Response<Incoming>> {
    let host = HeaderValue::from_str(authority.as_str())?;
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(uri)?;
    let headers = request.headers_mut();
    headers.insert(HOST, host);
    headers.remove(CONNECTION);
    Ok(client.request(request).await?)
}
