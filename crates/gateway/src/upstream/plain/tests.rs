use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::*;
use crate::upstream::connector;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// What a server saw.
#[derive(Debug, PartialEq)]
enum Seen {
    Opened,
    Asked(String),
    Closed,
}

/// What a server does with one request.
#[derive(Clone, Copy)]
enum Act {
    Whole(&'static str),
    /// A beginning, and then nothing.
    Begins(&'static str),
    /// A beginning, and then its end.
    Breaks(&'static str),
    /// Closes without an answer.
    Refuses,
}

/// A server that acts as told: a list for each of its connections.
async fn server(script: &'static [&'static [Act]]) -> (Uri, UnboundedReceiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/v1/messages?beta=true", listener.local_addr().unwrap()).parse().unwrap();
    let (tell, told) = unbounded_channel();
    tasks::spawn("serve a test", async move {
        for acts in script {
            let (mut stream, _) = listener.accept().await.unwrap();
            let tell = tell.clone();
            tasks::spawn("serve a connection of a test", async move {
                let _ = tell.send(Seen::Opened);
                for act in *acts {
                    let Some(head) = asked(&mut stream).await else { break };
                    let _ = tell.send(Seen::Asked(head));
                    let (text, stays) = match act {
                        Act::Whole(body) => (answer(body.len(), body), true),
                        Act::Begins(body) => (answer(1_000, body), true),
                        Act::Breaks(body) => (answer(1_000, body), false),
                        Act::Refuses => (String::new(), false),
                    };
                    stream.write_all(text.as_bytes()).await.unwrap();
                    if !stays {
                        return;
                    }
                }
                while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {}
                let _ = tell.send(Seen::Closed);
            });
        }
    });
    (address, told)
}

fn answer(length: usize, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// The head of a request whose body is `hello`.
async fn asked(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\nhello") {
        let mut piece = [0; 1_024];
        match stream.read(&mut piece).await {
            Ok(length @ 1..) => read.extend_from_slice(&piece[..length]),
            _ => return None,
        }
    }
    Some(String::from_utf8(read).unwrap())
}

fn hello() -> Request<Pieces> {
    let mut request = Request::new(Pieces::from(Bytes::from_static(b"hello")));
    *request.method_mut() = http::Method::POST;
    request
}

async fn text(answer: Response<Flow>) -> Option<String> {
    let whole = answer.into_body().collect().await.ok()?;
    Some(String::from_utf8(whole.to_bytes().into()).unwrap())
}

async fn said(plain: &Plain, uri: &Uri) -> Option<String> {
    text(plain.request(uri, hello()).await.ok()?).await
}

async fn seen(told: &mut UnboundedReceiver<Seen>) -> Seen {
    timeout(LONG, told.recv()).await.unwrap().unwrap()
}

fn plain() -> Plain {
    Plain::new(connector())
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let (uri, mut told) = server(&[&[Act::Whole("a"), Act::Whole(""), Act::Whole("c")]]).await;
    let plain = plain();
    for expected in ["a", "", "c"] {
        assert_eq!(said(&plain, &uri).await.as_deref(), Some(expected));
    }
    assert_eq!(seen(&mut told).await, Seen::Opened);
    for _ in 0..3 {
        let Seen::Asked(head) = seen(&mut told).await else { panic!("not asked") };
        let (host, port) = (uri.host().unwrap(), uri.port_u16().unwrap());
        assert!(head.starts_with("POST /v1/messages?beta=true HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nhost: {host}:{port}\r\n")), "{head}");
        assert!(head.contains("\r\ncontent-length: 5\r\n"), "{head}");
    }
}

#[tokio::test]
async fn requests_at_once_have_connections_of_their_own() {
    let (uri, mut told) = server(&[&[Act::Whole("a"), Act::Whole("c")], &[Act::Whole("b")]]).await;
    let plain = plain();
    let one = plain.request(&uri, hello()).await.ok().unwrap();
    let other = plain.request(&uri, hello()).await.ok().unwrap();
    assert_eq!((text(one).await.as_deref(), text(other).await.as_deref()), (Some("a"), Some("b")));
    let watched: Vec<bool> = plain.idle.open().values().flatten().map(|kept| kept.link.is_watched).collect();
    assert_eq!(watched, [false, false], "both are kept, and wake nobody");
    drop(plain);
    let mut closed = 0;
    while closed < 2 {
        closed += usize::from(seen(&mut told).await == Seen::Closed);
    }
}

#[tokio::test]
async fn what_a_closed_connection_did_not_take_goes_over_another() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let uri: Uri = format!("http://{address}/").parse().unwrap();
    let plain = plain();
    let serve = async |body: &str| {
        let (mut stream, _) = listener.accept().await.unwrap();
        asked(&mut stream).await.unwrap();
        stream.write_all(answer(body.len(), body).as_bytes()).await.unwrap();
        stream
    };
    let (said_first, stream) = tokio::join!(said(&plain, &uri), serve("a"));
    assert_eq!(said_first.as_deref(), Some("a"));
    assert_eq!(plain.idle.open().values().map(Vec::len).sum::<usize>(), 1, "it is kept");
    drop(stream);
    // What comes later is known of by now, and so is that end.
    let (later, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    drop((later, accepted));
    let both = async { tokio::join!(said(&plain, &uri), serve("b")) };
    let (said_then, _stream) = timeout(LONG, both).await.unwrap();
    assert_eq!(said_then.as_deref(), Some("b"));
}

#[tokio::test]
async fn what_was_sent_is_not_sent_again() {
    let (uri, _told) = server(&[&[Act::Whole("a"), Act::Refuses], &[Act::Whole("b")]]).await;
    let plain = plain();
    assert_eq!(said(&plain, &uri).await.as_deref(), Some("a"));
    assert_eq!(said(&plain, &uri).await, None);
    assert_eq!(said(&plain, &uri).await.as_deref(), Some("b"));
}

#[tokio::test]
async fn an_answer_that_is_let_go_ends_its_connection() {
    let (uri, mut told) = server(&[&[Act::Begins("abc")], &[Act::Begins("")]]).await;
    let plain = plain();
    let mut answer = plain.request(&uri, hello()).await.ok().unwrap();
    let frame = answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "abc");
    drop(answer);
    // The second is let go while nothing of it is there.
    let answer = plain.request(&uri, hello()).await.ok().unwrap();
    assert_eq!(answer.body().size_hint().exact(), Some(1_000));
    drop(answer);
    let mut closed = 0;
    while closed < 2 {
        closed += usize::from(seen(&mut told).await == Seen::Closed);
    }
    assert!(plain.idle.open().values().all(Vec::is_empty));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let (uri, _told) = server(&[&[Act::Breaks("abc")]]).await;
    let plain = plain();
    let mut answer = plain.request(&uri, hello()).await.ok().unwrap();
    assert_eq!(answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
    assert!(timeout(LONG, answer.body_mut().frame()).await.unwrap().unwrap().is_err());
    drop(answer);
    assert!(plain.idle.open().is_empty());
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed() {
    let idle = Arc::new(Idle::default());
    let (uri, mut told) = server(&[&[Act::Whole("a"), Act::Whole("b")]]).await;
    let plain = Plain { connector: connector(), idle: idle.clone() };
    assert_eq!(said(&plain, &uri).await.as_deref(), Some("a"));
    for _ in 1..ROUNDS {
        idle.look_after();
    }
    assert_eq!(said(&plain, &uri).await.as_deref(), Some("b"));
    for _ in 0..ROUNDS {
        idle.look_after();
    }
    assert!(idle.open().is_empty());
    let mut last = seen(&mut told).await;
    while last != Seen::Closed {
        last = seen(&mut told).await;
    }
}

#[tokio::test]
async fn nobody_there_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let unanswered = plain().request(&uri, hello()).await.err().unwrap();
    assert!(unanswered.is_connect);
}
