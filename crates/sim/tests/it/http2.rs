use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_sim::{Behaviour, Script, Sim};
use tokio::task::JoinSet;

use crate::client::{soon, streams};

/// A client and the set that drives its connection.
async fn connect(sim: &Sim) -> (SendRequest<Full<Bytes>>, JoinSet<hyper::Result<()>>) {
    let socket = tokio::net::TcpStream::connect(sim.addr()).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    (sender, driver)
}

fn request(sim: &Sim) -> http::Request<Full<Bytes>> {
    let body = Full::new(Bytes::from(streams("hi").to_string()));
    http::Request::post(format!("{}/v1/messages", sim.base_url())).body(body).unwrap()
}

#[tokio::test]
async fn a_stream_comes_over_http2_without_tls() {
    let sim = Sim::start(Script::says("hello")).await;
    let (mut client, _driver) = connect(&sim).await;
    let response = soon(client.send_request(request(&sim))).await.unwrap();
    let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
    assert!(body.ends_with(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
    assert_eq!((sim.open(), sim.cancelled()), (0, 0));
}

#[tokio::test]
async fn a_fault_fails_one_stream_of_the_connection() {
    let sim = Sim::start(Script::from(Behaviour::CloseMidStream { after: 4 }).then(Behaviour::says("hello"))).await;
    let (mut client, _driver) = connect(&sim).await;
    let broken = soon(client.send_request(request(&sim))).await.unwrap();
    assert!(soon(broken.into_body().collect()).await.is_err());
    let whole = soon(client.send_request(request(&sim))).await.unwrap();
    assert!(soon(whole.into_body().collect()).await.is_ok());
}

#[tokio::test]
async fn a_cancelled_stream_is_noticed() {
    let sim = Sim::start(Behaviour::HangBeforeHeaders).await;
    let (mut client, _driver) = connect(&sim).await;
    let answer = client.send_request(request(&sim));
    tokio::select! {
        _ = answer => panic!("there is no answer"),
        () = soon(sim.wait_calls(1)) => {}
    }
    soon(sim.wait_open(0)).await;
    assert_eq!(sim.cancelled(), 1);
}
