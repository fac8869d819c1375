//! Images and documents by URL, for upstreams that take only bytes: fetched by the gateway, or refused with one text.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{INFERENCE_KEY, Reply, Tidegate, soon};

const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const PDF: &[u8] = b"%PDF-1.7\n%%EOF\n";

/// Somebody's web server, with everything a caller could point at.
struct Host {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Host {
    async fn start() -> Self {
        Self::on("127.0.0.1:0").await
    }

    async fn on(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let mut serving = JoinSet::new();
        let log = asked.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, address, log.clone()));
            }
        });
        Self { address, asked, _serving: serving }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The paths that were asked for.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(mut stream: TcpStream, own: SocketAddr, log: Arc<Mutex<Vec<String>>>) {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) => head.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
    let full = |kind: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    let to = |location: &str| {
        format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n").into_bytes()
    };
    let pixel = STANDARD.decode(PIXEL).expect("a pixel");
    let answer = match path.split('?').next().unwrap_or_default() {
        "/pixel.png" | "/other.png" => full("image/png", &pixel),
        "/odd.png" => full("image/jpeg", &pixel),
        "/a.pdf" => full("application/pdf", PDF),
        "/a.txt" => full("text/plain; charset=utf-8", "Flut um sechs".as_bytes()),
        "/moved" => to("/pixel.png"),
        "/html" => full("text/html", b"<html>hi</html>"),
        "/disguised" => full("image/png", b"<html>hi</html>"),
        "/svg" => full("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        "/huge" => b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 99999999\r\n\r\n".to_vec(),
        "/loop" => to("/loop"),
        "/to-private" => to("http://10.0.0.1/pixel.png"),
        "/to-metadata" => to("http://169.254.169.254/latest/meta-data/"),
        "/to-neighbour" => to(&format!("http://127.0.0.2:{}/pixel.png", own.port())),
        "/to-name" => to(&format!("http://localhost:{}/pixel.png", own.port())),
        "/endless" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n").await;
            let _ = stream.write_all(&pixel).await;
            while stream.write_all(&[0; 64 << 10]).await.is_ok() {}
            return;
        }
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
    };
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}

/// The simulator behind the chat protocol, as a model that takes images and files as bytes only.
fn chat(sim: &Sim, slug: &str, card: &str) -> String {
    format!(
        "[[providers]]\nslug = \"{slug}\"\nprotocol = \"openai-chat\"\nbase_url = \"{}/v1\"\napi_key = \"k\"\n\
         [[models]]\nid = \"{slug}/m\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
         input_modalities = [\"text\", \"image\", \"file\"]\n\
         [[models.endpoints]]\nprovider = \"{slug}\"\nmodel = \"sim\"\ncard = {{ {card} }}\n",
        sim.base_url()
    )
}

fn allowed(host: &Host) -> String {
    format!("[egress]\nallow = [\"127.0.0.1/32\"]\nports = [80, 443, {}]\n", host.address.port())
}

fn pointing(model: &str, blocks: &[Value]) -> Value {
    let text = json!({"type": "text", "text": "look"});
    let content: Vec<&Value> = std::iter::once(&text).chain(blocks).collect();
    json!({"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": content}]})
}

fn at(kind: &str, url: &str) -> Value {
    json!({"type": kind, "source": {"type": "url", "url": url}})
}

fn error(reply: &Reply) -> (u16, Value) {
    (reply.status, reply.json()["error"].clone())
}

#[tokio::test]
async fn p31_p32_what_a_request_points_at_reaches_an_upstream_that_takes_only_bytes() {
    let (sim, host) = (Sim::start(Behaviour::says("ok")).await, Host::start().await);
    let gate = Tidegate::start().config(&chat(&sim, "bytes", "image_url = false")).config(&allowed(&host)).run().await;
    let png = format!("data:image/png;base64,{PIXEL}");
    let blocks = [
        at("image", &host.url("/pixel.png?sig=1")),
        at("image", &host.url("/pixel.png?sig=1")),
        at("image", &host.url("/odd.png")),
        at("image", &host.url("/moved")),
        at("image", &png),
        at("document", &host.url("/a.pdf")),
        at("document", &host.url("/a.txt")),
    ];
    for stream in [false, true] {
        let mut body = pointing("bytes/m", &blocks);
        body["stream"] = json!(stream);
        let reply = gate.messages(body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let sent = sim.requests().pop().expect("it was called").json();
        let parts = sent["messages"][0]["content"].as_array().expect("parts").clone();
        for part in &parts[1..6] {
            assert_eq!(*part, json!({"type": "image_url", "image_url": {"url": png}}));
        }
        assert_eq!(parts[6]["file"]["file_data"], format!("data:application/pdf;base64,{}", STANDARD.encode(PDF)));
        assert_eq!(parts[7], json!({"type": "text", "text": "<document>\nFlut um sechs\n</document>"}));
    }
    let asked = host.asked();
    assert_eq!(asked.iter().filter(|path| *path == "/pixel.png?sig=1").count(), 2, "once per request: {asked:?}");
    assert!(!gate.stderr().contains("sig=1"), "what lets one in is not logged");

    // Inside the result of a tool, too.
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "shot", "input": {}}]});
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [at("image", &host.url("/other.png"))]}]});
    let body =
        json!({"model": "bytes/m", "max_tokens": 64, "messages": [{"role": "user", "content": "go"}, call, result]});
    assert_eq!(gate.messages(body).await.status, 200);
    let sent = sim.requests().pop().expect("it was called").json().to_string();
    assert!(sent.contains(&png), "{sent}");

    // However it is spelled: a letter may stand as its number.
    let spelled = pointing("bytes/m", &[at("image", &host.url("/pixel.png"))]).to_string();
    let spelled = spelled.replace("\"url\"", "\"ur\\u006c\"");
    let reply = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(spelled).send().await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let sent = sim.requests().pop().expect("it was called").json().to_string();
    assert!(sent.contains(&png), "{sent}");
}

#[tokio::test]
async fn egr_8_every_refusal_is_the_same_to_the_caller_and_nobody_inside_is_called() {
    let (sim, host) = (Sim::start(Behaviour::says("ok")).await, Host::start().await);
    let inside = Host::on(&format!("127.0.0.2:{}", host.address.port())).await;
    let gate = Tidegate::start().config(&chat(&sim, "bytes", "image_url = false")).config(&allowed(&host)).run().await;
    let port = host.address.port();
    let urls = [
        host.url("/missing"),
        host.url("/html"),
        host.url("/disguised"),
        host.url("/svg"),
        host.url("/huge"),
        host.url("/endless"),
        host.url("/loop"),
        host.url("/to-private"),
        host.url("/to-metadata"),
        host.url("/to-neighbour"),
        host.url("/to-name"),
        host.url("/a.pdf"),
        inside.url("/pixel.png"),
        format!("http://localhost:{port}/pixel.png"),
        format!("http://2130706434:{port}/pixel.png"),
        format!("http://[::ffff:7f00:2]:{port}/pixel.png"),
        format!("http://u:p@127.0.0.1:{port}/pixel.png"),
        "http://127.0.0.1:1/pixel.png".to_owned(),
        "http://10.0.0.1/pixel.png".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "https://metadata.google.internal/".to_owned(),
        "http://name.invalid/pixel.png".to_owned(),
        "file:///etc/passwd".to_owned(),
        "nonsense".to_owned(),
    ];
    let mut first = None;
    for url in &urls {
        for stream in [false, true] {
            let mut body = pointing("bytes/m", &[at("image", url)]);
            body["stream"] = json!(stream);
            let reply = soon(url, gate.messages(body)).await;
            let error = error(&reply);
            assert_eq!(error.0, 400, "{url}: {reply:?}");
            assert_eq!(error.1["error_type"], "image_download_failed", "{url}: {reply:?}");
            assert_eq!(error.1["message"], "Could not download messages[0].content[1]", "{url}");
            assert_eq!(*first.get_or_insert_with(|| error.clone()), error, "{url}");
        }
    }
    // Of what the caller sent itself it may be told what is wrong.
    let reply = gate.messages(pointing("bytes/m", &[at("image", "data:image/png;base64,PHN2Zy8+")])).await;
    let text = "messages[0].content[1].source.url must hold an image in base64, as data:image/png;base64,... does";
    assert_eq!((reply.status, &error(&reply).1["message"]), (400, &json!(text)));
    assert_eq!(sim.requests().len(), 0, "the upstream was not asked");
    assert_eq!(inside.asked(), Vec::<String>::new(), "nobody inside was called");
    for path in ["/missing", "/html", "/huge", "/endless", "/loop", "/to-private", "/to-neighbour"] {
        assert!(host.asked().contains(&path.to_owned()), "{path} was asked for: {:?}", host.asked());
    }
    assert!(!host.asked().contains(&"/pixel.png".to_owned()), "nor under another name: {:?}", host.asked());
}

#[tokio::test]
async fn egr_3_nothing_on_this_machine_is_called_unless_it_is_allowed() {
    let (sim, host) = (Sim::start(Behaviour::says("ok")).await, Host::start().await);
    let ports = format!("[egress]\nports = [{}]\n", host.address.port());
    let gate = Tidegate::start().config(&chat(&sim, "bytes", "image_url = false")).config(&ports).run().await;
    let reply = gate.messages(pointing("bytes/m", &[at("image", &host.url("/pixel.png"))])).await;
    assert_eq!(error(&reply).1["error_type"], "image_download_failed", "{reply:?}");
    assert_eq!(host.asked().len(), 0);
}

#[tokio::test]
async fn an_upstream_that_takes_addresses_gets_them_and_nothing_is_fetched() {
    let (sim, native, host) =
        (Sim::start(Behaviour::says("ok")).await, Sim::start(Behaviour::says("ok")).await, Host::start().await);
    let gate = Tidegate::start()
        .config(&chat(&sim, "urls", "image_url = true"))
        .config(&allowed(&host))
        .endpoint("vendor/m", &native)
        .run()
        .await;
    let url = host.url("/pixel.png");
    assert_eq!(gate.messages(pointing("urls/m", &[at("image", &url)])).await.status, 200);
    let sent = sim.requests().pop().expect("it was called").json();
    assert_eq!(sent["messages"][0]["content"][1]["image_url"]["url"], url);
    assert_eq!(gate.messages(pointing("vendor/m", &[at("image", &url)])).await.status, 200);
    let sent = native.requests().pop().expect("it was called").json();
    assert_eq!(sent["messages"][0]["content"][1], at("image", &url));
    // A data URL is no address: native upstreams refuse it as one.
    let data = at("image", &format!("data:image/png;base64,{PIXEL}"));
    assert_eq!(gate.messages(pointing("vendor/m", &[data])).await.status, 200);
    let sent = native.requests().pop().expect("it was called").json();
    assert_eq!(
        sent["messages"][0]["content"][1]["source"],
        json!({"type": "base64", "media_type": "image/png", "data": PIXEL})
    );
    assert_eq!(host.asked().len(), 0);
}

#[tokio::test]
async fn a_native_endpoint_that_takes_only_bytes_gets_them_and_the_rest_stays_as_it_came() {
    let (sim, host) = (Sim::start(Behaviour::says("ok")).await, Host::start().await);
    let card = "card = { image_url = false, pdf_url = false }";
    let gate = Tidegate::start().endpoint_with("vendor/m", &sim, card).config(&allowed(&host)).run().await;
    let marked = json!({"type": "image", "source": {"type": "url", "url": host.url("/odd.png")}, "cache_control": {"type": "ephemeral"}});
    let mut body =
        pointing("vendor/m", &[marked, at("document", &host.url("/a.pdf")), at("document", &host.url("/a.txt"))]);
    body["unheard_of"] = json!({"a": 1.50});
    body["session_id"] = json!("s");
    assert_eq!(gate.messages(body).await.status, 200);
    let sent = sim.requests().pop().expect("it was called").json();
    let blocks = &sent["messages"][0]["content"];
    let png = json!({"type": "base64", "media_type": "image/png", "data": PIXEL});
    assert_eq!(blocks[1], json!({"type": "image", "source": png, "cache_control": {"type": "ephemeral"}}));
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": STANDARD.encode(PDF)});
    assert_eq!(blocks[2], json!({"type": "document", "source": pdf}));
    let text = json!({"type": "text", "media_type": "text/plain", "data": "Flut um sechs"});
    assert_eq!(blocks[3], json!({"type": "document", "source": text}));
    assert_eq!((&sent["model"], &sent["unheard_of"]), (&json!("m"), &json!({"a": 1.50})));
    assert_eq!(sent.get("session_id"), None, "ours stays here");
}

#[tokio::test]
async fn other_endpoints_are_tried_without_another_fetch_and_those_that_fetch_themselves_after_a_failure() {
    let (broken, sim, host) =
        (Sim::start(Behaviour::status(503)).await, Sim::start(Behaviour::says("ok")).await, Host::start().await);
    let model = "[[models]]\nid = \"both/m\"\ncontext_length = 200000\nmax_output_tokens = 8192\ninput_modalities = [\"text\", \"image\"]\n";
    let endpoint = |slug: &str, takes: bool| {
        format!("[[models.endpoints]]\nprovider = \"{slug}\"\nmodel = \"sim\"\ncard = {{ image_url = {takes} }}\n")
    };
    let config = [
        chat(&broken, "broken", "image_url = false"),
        chat(&sim, "bytes", "image_url = false"),
        chat(&sim, "urls", "image_url = true"),
        model.to_owned(),
        ["broken", "bytes"].map(|slug| endpoint(slug, false)).concat(),
        endpoint("urls", true),
    ];
    let gate = Tidegate::start().config(&config.concat()).config(&allowed(&host)).run().await;
    let reply = gate.messages(pointing("both/m", &[at("image", &host.url("/pixel.png"))])).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(host.asked(), ["/pixel.png"], "two endpoints, one fetch");
    let before = (broken.requests().len(), sim.requests().len());

    let missing = host.url("/missing");
    let reply = gate.messages(pointing("both/m", &[at("image", &missing)])).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!((broken.requests().len(), sim.requests().len()), (before.0, before.1 + 1));
    let sent = sim.requests().pop().expect("it was called").json();
    assert_eq!(sent["messages"][0]["content"][1]["image_url"]["url"], missing);
    assert_eq!(host.asked(), ["/pixel.png", "/missing"], "one try");
}

#[tokio::test]
async fn several_are_fetched_side_by_side() {
    let (sim, host) = (Sim::start(Behaviour::says("ok")).await, Host::start().await);
    let gate = Tidegate::start().config(&chat(&sim, "bytes", "image_url = false")).config(&allowed(&host)).run().await;
    let blocks: Vec<Value> = (0..40).map(|number| at("image", &host.url(&format!("/pixel.png?{number}")))).collect();
    let work = gate.messages(pointing("bytes/m", &blocks));
    let reply = tokio::time::timeout(Duration::from_secs(20), work).await.expect("in time");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(host.asked().len(), 40);
    let sent = sim.requests().pop().expect("it was called").json();
    assert_eq!(sent["messages"][0]["content"].as_array().expect("parts").len(), 41);
}
