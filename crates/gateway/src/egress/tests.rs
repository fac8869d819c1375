//! The client against servers on loopback, which each test allows. Names are resolved by a script.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use bytes::Bytes;
use http::{HeaderMap, Method};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::client::{Egress, Resolve};
use super::kind::tests::png;
use super::{Budget, Domain, Domains, Reason, Refused, Rules, Wanted};

type Log = Arc<Mutex<Vec<String>>>;

fn seen(log: &Log) -> Vec<String> {
    log.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Answers names from a list, one entry per question; the last one for good.
#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<Vec<IpAddr>>>>,
    asked: Log,
}

impl Script {
    fn new(answers: &[&[&str]]) -> Self {
        let answers = answers.iter().map(|ips| ips.iter().map(|ip| ip.parse().unwrap()).collect()).collect();
        Self { answers: Arc::new(Mutex::new(answers)), asked: Log::default() }
    }
}

impl Resolve for Script {
    fn resolve(&self, name: &str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(async move { answer.ok_or_else(|| io::Error::other("no such name")) })
    }
}

/// A server that answers the n-th connection with the n-th text, the last one for good.
struct Server {
    address: SocketAddr,
    requests: Log,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start(answers: &[Vec<u8>]) -> Self {
        Self::on("127.0.0.1:0", answers, None).await
    }

    async fn on(address: &str, answers: &[Vec<u8>], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Log::default());
        let mut serving = JoinSet::new();
        let (answers, log) = (answers.to_vec(), requests.clone());
        serving.spawn(async move {
            let mut answers = VecDeque::from(answers);
            while let Ok((stream, _)) = listener.accept().await {
                let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
                let answer = answer.unwrap_or_default();
                match &tls {
                    None => serve(stream, &answer, &log).await,
                    Some(tls) => serve(tls.accept(stream).await.unwrap(), &answer, &log).await,
                }
            }
        });
        Self { address, requests, _serving: serving }
    }

    fn rules(&self) -> Rules {
        let allowed_ranges = vec!["127.0.0.1/32".parse().unwrap()];
        Rules { allowed_ranges, ports: vec![80, 443, self.address.port()], ..Rules::default() }
    }

    fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/a.png?token=t", self.address.port())
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8], log: &Log) {
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) => head.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    log.lock().unwrap().push(String::from_utf8_lossy(&head).to_lowercase());
    let _ = stream.write_all(answer).await;
    // Not answered to the end means not answered: the client's clock runs.
    if answer.is_empty() {
        let _ = stream.read(&mut buffer).await;
    }
    let _ = stream.shutdown().await;
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

fn image() -> Vec<u8> {
    answer("200 OK\r\ncontent-type: image/png", &png(2, 2))
}

async fn image_of(egress: &Egress, url: &str, rules: &Rules) -> Result<&'static str, Reason> {
    egress.fetch(url, Wanted::Image, rules).await.map(|fetched| fetched.media_type).map_err(|Refused(reason)| reason)
}

#[tokio::test]
async fn egr_2_a_name_that_changes_its_answer_is_connected_to_where_it_was_checked() {
    let server = Server::start(&[image()]).await;
    let script = Script::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    // Nobody would see the second answer connect here: the listener would.
    let canary = Server::on(&format!("127.0.0.2:{}", server.address.port()), &[image()], None).await;
    let egress = Egress::with(script.clone());
    assert_eq!(image_of(&egress, &server.url("img.example.com"), &server.rules()).await, Ok("image/png"));
    assert_eq!(seen(&script.asked), ["img.example.com"], "one lookup");
    let sent = seen(&server.requests);
    assert!(sent[0].starts_with("get /a.png?token=t http/1.1\r\n"), "{sent:?}");
    assert!(sent[0].contains(&format!("host: img.example.com:{}\r\n", server.address.port())), "{sent:?}");
    assert!(sent[0].contains("accept-encoding: identity\r\n") && !sent[0].contains("cookie"), "{sent:?}");
    assert_eq!(seen(&canary.requests).len(), 0);
    // The next fetch asks again, and is checked again.
    assert_eq!(image_of(&egress, &server.url("img.example.com"), &server.rules()).await, Err(Reason::Address));
    assert_eq!(seen(&canary.requests).len(), 0);
}

#[tokio::test]
async fn egr_2_one_forbidden_address_spoils_a_name() {
    let server = Server::start(&[image()]).await;
    for answers in [&["127.0.0.1", "10.0.0.1"], &["::1", "127.0.0.1"], &["8.8.8.8", "169.254.169.254"]] {
        let egress = Egress::with(Script::new(&[answers]));
        let got = image_of(&egress, &server.url("img.example.com"), &server.rules()).await;
        assert_eq!(got, Err(Reason::Address), "{answers:?}");
    }
    let nothing = Egress::with(Script::new(&[]));
    assert_eq!(image_of(&nothing, &server.url("img.example.com"), &server.rules()).await, Err(Reason::Lookup));
    let nothing = Egress::with(Script::new(&[&[]]));
    assert_eq!(image_of(&nothing, &server.url("img.example.com"), &server.rules()).await, Err(Reason::Lookup));
    assert_eq!(seen(&server.requests).len(), 0, "nobody was called");
}

#[tokio::test]
async fn egr_3_an_allowed_name_may_lead_anywhere_but_to_ourselves() {
    let server = Server::start(&[image()]).await;
    let egress = Egress::with(Script::new(&[&["127.0.0.1"]]));
    let mut rules = Rules { allowed_ranges: Vec::new(), allowed_names: vec!["minio".to_owned()], ..server.rules() };
    assert_eq!(image_of(&egress, &server.url("minio"), &rules).await, Ok("image/png"));
    assert_eq!(image_of(&egress, &server.url("127.0.0.1"), &rules).await, Err(Reason::Address));
    assert_eq!(image_of(&egress, &server.url("other.example"), &rules).await, Err(Reason::Address));
    rules.own = vec![server.address];
    assert_eq!(image_of(&egress, &server.url("minio"), &rules).await, Err(Reason::Address));
}

#[tokio::test]
async fn egr_5_redirects_are_followed_three_times_and_checked_every_time() {
    let to = |location: &str| answer(&format!("302 Found\r\nset-cookie: a=b\r\nlocation: {location}"), b"");
    let (egress, local) = (Egress::with(Script::new(&[&["127.0.0.1"], &["10.0.0.1"]])), "127.0.0.1");
    let server = Server::start(&[to("/b"), to("c"), to("./d"), image()]).await;
    assert_eq!(image_of(&egress, &server.url(local), &server.rules()).await, Ok("image/png"));
    let sent = seen(&server.requests);
    assert!(sent[3].starts_with("get /d ") && !sent.concat().contains("cookie:"), "{sent:?}");

    let server = Server::start(&[to("/b")]).await;
    assert_eq!(image_of(&egress, &server.url(local), &server.rules()).await, Err(Reason::Redirect));
    assert_eq!(seen(&server.requests).len(), 4);

    for (location, reason) in [
        ("http://10.0.0.1/", Reason::Address),
        ("http://[::ffff:169.254.169.254]/", Reason::Address),
        ("//localhost/", Reason::Name),
        ("http://example.com:22/", Reason::Port),
        ("file:///etc/passwd", Reason::Url),
    ] {
        let server = Server::start(&[to(location)]).await;
        assert_eq!(image_of(&egress, &server.url(local), &server.rules()).await, Err(reason), "{location}");
    }
    // The name is fine at first and leads inside at the second hop.
    let server = Server::start(&[to("/again")]).await;
    assert_eq!(image_of(&egress, &server.url("img.example.com"), &server.rules()).await, Err(Reason::Address));
    assert_eq!(seen(&server.requests).len(), 1);
    let server = Server::start(&[answer("302 Found", b"")]).await;
    assert_eq!(image_of(&egress, &server.url(local), &server.rules()).await, Err(Reason::Redirect));
}

#[tokio::test]
async fn egr_6_and_7_only_a_whole_plain_answer_of_the_right_kind_is_taken() {
    let egress = Egress::default();
    let encoded = |encoding: &str| answer(&format!("200 OK\r\ncontent-encoding: {encoding}"), &png(1, 1));
    let promised = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", (20 << 20) + 1).into_bytes();
    let cases = [
        (image(), Ok("image/png")),
        (encoded("identity"), Ok("image/png")),
        ([b"HTTP/1.0 200 OK\r\n\r\n" as &[u8], &png(1, 1)].concat(), Ok("image/png")),
        (encoded("gzip"), Err(Reason::Encoding)),
        (encoded("identity, br"), Err(Reason::Encoding)),
        (encoded("identity\r\ncontent-encoding: gzip"), Err(Reason::Encoding)),
        (answer("404 Not Found", &png(1, 1)), Err(Reason::Status)),
        (answer("206 Partial Content", &png(1, 1)), Err(Reason::Status)),
        (answer("304 Not Modified", b""), Err(Reason::Status)),
        (answer("500 Oops", b""), Err(Reason::Status)),
        (answer("200 OK\r\ncontent-type: text/html", b"<html>"), Err(Reason::Type)),
        (answer("200 OK\r\ncontent-type: image/png", b"<html>"), Err(Reason::Type)),
        (answer("200 OK\r\ncontent-type: image/svg+xml", b"<svg/>"), Err(Reason::Type)),
        (answer("200 OK\r\ncontent-type: é", &png(1, 1)), Err(Reason::Type)),
        (answer("200 OK", &png(60_000, 60_000)), Err(Reason::TooManyPixels)),
        (promised, Err(Reason::TooLarge)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort".to_vec(), Err(Reason::Broken)),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec(), Err(Reason::Broken)),
        (b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), Err(Reason::Broken)),
        ([b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'a'; 200 << 10], image()].concat(), Err(Reason::Broken)),
    ];
    for (answer, expected) in cases {
        let server = Server::start(std::slice::from_ref(&answer)).await;
        let got = image_of(&egress, &server.url("127.0.0.1"), &server.rules()).await;
        assert_eq!(got, expected, "{}", answer[..answer.len().min(80)].escape_ascii());
    }
    let body = [png(1, 1), vec![0; 20 << 20]].concat();
    let endless = [b"HTTP/1.0 200 OK\r\n\r\n", body.as_slice()].concat();
    let server = Server::start(&[endless]).await;
    assert_eq!(image_of(&egress, &server.url("127.0.0.1"), &server.rules()).await, Err(Reason::TooLarge));
}

#[tokio::test]
async fn egr_6_several_fetches_share_their_bytes() {
    let server = Server::start(&[image()]).await;
    let (egress, rules, budget) = (Egress::default(), server.rules(), Budget::new(png(2, 2).len() + 1));
    let fetch = || egress.fetch_within("", Wanted::Image, &rules, &budget);
    assert_eq!(fetch().await, Err(Refused(Reason::Url)));
    let url = server.url("127.0.0.1");
    assert!(egress.fetch_within(&url, Wanted::Image, &rules, &budget).await.is_ok());
    let second = egress.fetch_within(&url, Wanted::Image, &rules, &budget).await;
    assert_eq!(second, Err(Refused(Reason::TooLarge)));
}

/// The sockets are real and the clock is not: it moves on when everybody waits.
#[tokio::test(start_paused = true)]
async fn egr_6_who_is_slow_is_left() {
    // A clock that jumps may be ahead of a socket that is just being connected.
    let is_slow = |got| matches!(got, Err(Reason::TooSlow | Reason::Connect));
    let egress = Egress::default();
    let silent = Server::start(&[Vec::new()]).await;
    let since = tokio::time::Instant::now();
    assert!(is_slow(image_of(&egress, &silent.url("127.0.0.1"), &silent.rules()).await));
    assert!(since.elapsed() <= Duration::from_secs(15), "{:?}", since.elapsed());

    struct Never;
    impl Resolve for Never {
        fn resolve(&self, _: &str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
            Box::pin(std::future::pending())
        }
    }
    let since = tokio::time::Instant::now();
    let url = silent.url("img.example.com");
    assert!(is_slow(image_of(&Egress::with(Never), &url, &silent.rules()).await));
    assert!(since.elapsed() <= Duration::from_secs(3), "{:?}", since.elapsed());

    // A byte now and then keeps nobody waiting for ever.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut dripping = JoinSet::new();
    dripping.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await;
        while stream.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let rules = Rules { ports: vec![address.port()], ..silent.rules() };
    let since = tokio::time::Instant::now();
    let url = format!("http://{address}/");
    assert!(is_slow(image_of(&egress, &url, &rules).await));
    assert!(since.elapsed() <= Duration::from_secs(16), "{:?}", since.elapsed());
}

#[tokio::test]
async fn egr_6_destinations_that_are_slow_keep_no_fetch_waiting() {
    let server = Server::start(&[image()]).await;
    // Connections are taken and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let rules = Rules { ports: vec![address.port(), server.address.port()], ..server.rules() };
    let (egress, rules) = (Arc::new(Egress::default()), Arc::new(rules));
    let mut sending = JoinSet::new();
    for _ in 0..100 {
        let (egress, rules, url) = (egress.clone(), rules.clone(), format!("http://{address}/"));
        sending.spawn(async move { egress.send(&url, Method::POST, HeaderMap::new(), Bytes::new(), &rules).await });
    }
    // All of them begin before the fetch does; a turn of the runtime takes some of them.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(image_of(&egress, &server.url("127.0.0.1"), &rules).await, Ok("image/png"));
    assert!(sending.try_join_next().is_none(), "the fetch has waited for a destination");
}

#[tokio::test]
async fn egr_2_tls_is_told_the_name_and_not_the_address() {
    let said = Log::default();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let server = rustls::ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(Any(said.clone())));
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let plain = answer("302 Found\r\nlocation: http://img.example.com/", b"");
    let server = Server::on("127.0.0.1:0", &[image(), plain, image()], Some(acceptor)).await;
    let client =
        rustls::ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(Any(said.clone())));
    let script = Script::new(&[&["127.0.0.1"]]);
    let egress = Egress::with(script).trusting(client.with_no_client_auth());
    let url = server.url("img.example.com").replace("http:", "https:");
    assert_eq!(image_of(&egress, &url, &server.rules()).await, Ok("image/png"));
    assert_eq!(seen(&said), ["img.example.com", "checked img.example.com"]);
    assert!(seen(&server.requests)[0].contains("host: img.example.com:"));
    assert_eq!(image_of(&egress, &url, &server.rules()).await, Err(Reason::Redirect), "never from TLS to plain text");
    // Who is not known to the system is not believed.
    let egress = Egress::with(Script::new(&[&["127.0.0.1"]]));
    assert_eq!(image_of(&egress, &url, &server.rules()).await, Err(Reason::Connect));
}

/// Both ends of TLS without a certificate that means anything; notes which names were said.
#[derive(Debug)]
struct Any(Log);

impl ResolvesServerCert for Any {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.lock().unwrap().push(hello.server_name().unwrap_or("none").to_owned());
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new()).unwrap();
        let key = PrivateKeyDer::try_from(key.as_ref().to_vec()).unwrap();
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
        Some(Arc::new(CertifiedKey::new(vec![CertificateDer::from(vec![0])], key)))
    }
}

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.lock().unwrap().push(format!("checked {}", name.to_str()));
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

#[tokio::test]
async fn egr_9_a_page_is_fetched_from_where_the_caller_wants_it_at_every_hop() {
    let page = |text: &str| answer("200 OK\r\ncontent-type: Text/HTML; Charset=\"utf-8\"", text.as_bytes());
    let to = |location: &str| answer(&format!("301 Moved\r\nlocation: {location}"), b"");
    let domains = |allowed: &[&str], blocked: &[&str]| {
        let list = |entries: &[&str]| entries.iter().map(|entry| Domain::parse(entry).unwrap()).collect();
        Domains { allowed: list(allowed), blocked: list(blocked) }
    };
    let server = Server::start(&[page("<p>hi")]).await;
    let egress = Egress::with(Script::new(&[&["127.0.0.1"]]));
    let fetch = async |server: &Server, host: &str, domains: Domains| {
        let fetched = egress.fetch_page(&server.url(host), &server.rules(), &domains).await;
        fetched.map(|page| (page.media_type, page.charset)).map_err(|Refused(reason)| reason)
    };
    let html = Ok(("text/html", Some("utf-8".into())));
    assert_eq!(fetch(&server, "www.example.com", domains(&["example.com"], &[])).await, html);
    assert_eq!(fetch(&server, "www.example.com", domains(&[], &["other.com"])).await, html);
    assert!(seen(&server.requests)[0].contains("user-agent: tidegate-fetch/"));
    let asked = seen(&server.requests).len();
    for domains in [domains(&["example.org"], &[]), domains(&["example.com"], &["www.example.com"])] {
        assert_eq!(fetch(&server, "www.example.com", domains).await, Err(Reason::Domain));
    }
    assert_eq!(seen(&server.requests).len(), asked, "nobody was asked");
    let port = server.address.port();
    let moves = Server::start(&[to(&format!("http://evil.org:{port}/"))]).await;
    let rules = Rules { ports: vec![moves.address.port(), port], ..server.rules() };
    let only = domains(&["example.com"], &[]);
    let moved = egress.fetch_page(&moves.url("a.example.com"), &rules, &only).await;
    assert_eq!(moved, Err(Refused(Reason::Domain)));
    assert_eq!(seen(&server.requests).len(), asked, "nobody was asked there");
    // What is a name to the caller and an address inside to us.
    let inside = Egress::with(Script::new(&[&["10.0.0.1"]]));
    let refused = inside.fetch_page(&server.url("a.example.com"), &server.rules(), &only).await;
    assert_eq!(refused, Err(Refused(Reason::Address)));
}

#[tokio::test]
async fn egr_6_and_7_a_page_is_what_its_sender_and_its_bytes_say() {
    let egress = Egress::default();
    let typed = |kind: &str, body: &[u8]| answer(&format!("200 OK\r\ncontent-type: {kind}"), body);
    let cases = [
        (typed("text/html", b"<p>"), Ok("text/html")),
        (typed("application/xhtml+xml", b"<?xml?>"), Ok("text/html")),
        (typed("text/markdown", b"# a"), Ok("text/plain")),
        (typed("application/json", b"{}"), Ok("text/plain")),
        (typed("application/ld+json", b"{}"), Ok("text/plain")),
        (typed("application/rss+xml", b"<rss/>"), Ok("text/plain")),
        (typed("application/pdf", b"%PDF-1.7"), Ok("application/pdf")),
        (typed("application/octet-stream", b"%PDF-1.7"), Ok("application/pdf")),
        (answer("200 OK", b" <!DOCTYPE html>"), Ok("text/html")),
        (answer("200 OK", b"plain"), Ok("text/plain")),
        (typed("text/plain; charset=utf-16", b"\xff\xfea\0"), Ok("text/plain")),
        (typed("application/pdf", b"<html>"), Err(Reason::Type)),
        (typed("text/html", b"%PDF-1.7"), Err(Reason::Type)),
        (typed("text/plain", b"\x89PNG\r\n\x1a\n"), Err(Reason::Type)),
        (typed("text/plain", b"a\0b"), Err(Reason::Type)),
        (typed("application/json", b"\0"), Err(Reason::Type)),
        (typed("image/png", &png(1, 1)), Err(Reason::Type)),
        (typed("application/zip", b"PK\x03\x04"), Err(Reason::Type)),
        (typed("video/mp4", b"a"), Err(Reason::Type)),
        (answer("200 OK", b"\xff\xd9\x80"), Err(Reason::Type)),
        (typed("text/plain", &vec![b'a'; (5 << 20) + 1]), Err(Reason::TooLarge)),
    ];
    for (answer, expected) in cases {
        let server = Server::start(std::slice::from_ref(&answer)).await;
        let got = egress.fetch_page(&server.url("127.0.0.1"), &server.rules(), &Domains::default()).await;
        let got = got.map(|page| page.media_type).map_err(|Refused(reason)| reason);
        assert_eq!(got, expected, "{}", answer[..answer.len().min(80)].escape_ascii());
    }
}
