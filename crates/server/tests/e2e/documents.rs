//! Documents for models that cannot read files: the gateway reads them, and says what it did.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::io::{Cursor, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use zip::write::{SimpleFileOptions, ZipWriter};

use crate::agent::{MODEL, PROTOCOLS, asked, bodies, message};
use crate::harness::{INFERENCE_KEY, Service, Tidegate, eventually, pdf};

const TEXT_ONLY: &str = "card = { pdf = false, images = false }\npricing = { input = 1, output = 2 }";
const NO_FILES: &str = "card = { pdf = false, images = true }\npricing = { input = 1, output = 2 }";
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async fn gate(sim: &Sim, (protocol, path): (&str, &str), lines: &str, config: &str) -> Tidegate {
    let address = format!("{}{path}", sim.base_url());
    Tidegate::start().protocol_at(MODEL, protocol, &address, lines).config(config).run().await
}

fn document(bytes: &[u8]) -> Value {
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": STANDARD.encode(bytes)});
    json!({"type": "document", "source": source})
}

fn at(url: &str) -> Value {
    json!({"type": "document", "source": {"type": "url", "url": url}})
}

fn body(blocks: &[Value]) -> Value {
    let mut content = vec![json!({"type": "text", "text": "When is high water?"})];
    content.extend_from_slice(blocks);
    json!({"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": content}]})
}

fn tides() -> Vec<u8> {
    pdf::saying(&["Flood at six", "Ebb at noon"])
}

/// A page without a text on it.
fn scan() -> Vec<u8> {
    pdf::of(&pdf::page("", pdf::stream("", b"")), "")
}

fn entry(message: &Value) -> Value {
    let pipeline = message["tidegate_metadata"]["pipeline"].as_array().unwrap();
    pipeline.iter().find(|entry| entry["name"] == "file-parser").unwrap().clone()
}

/// A file of an office that holds these parts.
fn office(kind: &str, parts: &[(&str, &str)]) -> Value {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in parts {
        archive.start_file(*name, SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    let bytes = archive.finish().unwrap().into_inner();
    let media_type = format!("application/vnd.openxmlformats-officedocument.{kind}");
    let source = json!({"type": "base64", "media_type": media_type, "data": STANDARD.encode(bytes)});
    json!({"type": "document", "source": source})
}

fn letter() -> Value {
    let words =
        r#"<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>Neap at nine</w:t></w:r></w:p></w:body></w:document>"#;
    office("wordprocessingml.document", &[("word/document.xml", words)])
}

#[tokio::test]
async fn files_of_an_office_are_text_to_every_model_also_to_those_that_read_pdf() {
    let links = r#"<Relationships><Relationship Id="r1" Target="worksheets/a.xml"/></Relationships>"#;
    let sheet =
        r#"<worksheet><row><c r="A1" t="inlineStr"><is><t>hour</t></is></c><c r="B1"><v>6</v></c></row></worksheet>"#;
    let book = [
        ("xl/workbook.xml", r#"<workbook xmlns:r="r"><sheet name="Tides" r:id="r1"/></workbook>"#),
        ("xl/_rels/workbook.xml.rels", links),
        ("xl/worksheets/a.xml", sheet),
    ];
    let table = office("spreadsheetml.sheet", &book);
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::says("At six.")).await;
        let gate = gate(&sim, protocol, "card = { pdf = true }\npricing = { input = 1, output = 2 }", "").await;
        let answer = message(&asked(&gate, &body(&[letter(), document(&tides()), table.clone()])).await);
        let sent = bodies(&sim).pop().unwrap();
        assert!(sent.contains("Neap at nine") && sent.contains("| hour | 6 |"), "{protocol:?}: {sent}");
        assert!(sent.contains("JVBERi") && !sent.contains("officedocument"), "{protocol:?}: a PDF stays one: {sent}");
        assert_eq!(entry(&answer)["data"]["files"], 2, "{protocol:?}");
    }
    let sim = Sim::start(Behaviour::says("At six.")).await;
    let gate = gate(&sim, PROTOCOLS[0], TEXT_ONLY, "").await;
    assert_eq!(asked(&gate, &body(&[letter(), document(&tides())])).await.status, 200);
    let sent = bodies(&sim).pop().unwrap();
    assert!(sent.contains("Neap at nine") && sent.contains("Flood at six") && !sent.contains("JVBERi"), "{sent}");
    // What only says that it is one.
    let (status, _, _, text) = asked(&gate, &body(&[office("wordprocessingml.document", &[("x", "y")])])).await.error();
    assert!(status == 400 && text.starts_with("Invalid request: messages[0].content[1] cannot be read"), "{text}");
}

#[tokio::test]
async fn tables_and_pages_are_text_to_every_model_wherever_they_are_held() {
    let held = |media_type: &str, text: &str| {
        let source = json!({"type": "base64", "media_type": media_type, "data": STANDARD.encode(text)});
        json!({"type": "document", "source": source})
    };
    let in_address = |block: &Value| {
        let source = &block["source"];
        let url =
            format!("data:{};base64,{}", source["media_type"].as_str().unwrap(), source["data"].as_str().unwrap());
        at(&url)
    };
    let files = [held("text/csv", "hour,6"), held("text/html", "<p>Ebb at noon</p>"), held("text/markdown", "# Neap")];
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::says("At six.")).await;
        let gate = gate(&sim, protocol, "card = { pdf = true }\npricing = { input = 1, output = 2 }", "").await;
        let addresses: Vec<Value> = files.iter().chain([&letter()]).map(in_address).collect();
        for files in [&files[..], &addresses] {
            let reply = asked(&gate, &body(files)).await;
            assert_eq!(reply.status, 200, "{protocol:?}: {}", reply.body_text());
            let sent = bodies(&sim).pop().unwrap();
            for text in ["hour,6", "Ebb at noon", "# Neap"] {
                assert!(sent.contains(text), "{protocol:?}: {text}: {sent}");
            }
            assert!(!sent.contains("base64"), "{protocol:?}: {sent}");
        }
        assert!(bodies(&sim).pop().unwrap().contains("Neap at nine"), "{protocol:?}");
    }
    // As OpenAI's clients send them.
    let sim = Sim::start(Behaviour::says("At six.")).await;
    let gate = gate(&sim, PROTOCOLS[0], "card = { pdf = true }\npricing = { input = 1, output = 2 }", "").await;
    let data = format!("data:text/csv;base64,{}", STANDARD.encode("hour,6"));
    let part = json!({"type": "file", "file": {"filename": "a.csv", "file_data": data}});
    let chat = json!({"model": MODEL, "messages": [{"role": "user", "content": [part]}]});
    let part = json!({"type": "input_file", "filename": "a.csv", "file_data": data});
    let responses = json!({"model": MODEL, "input": [{"role": "user", "content": [part]}]});
    for (path, body) in [("/v1/chat/completions", chat), ("/v1/responses", responses)] {
        let reply = gate.ask("POST", path).key(INFERENCE_KEY).json(body.to_string()).send().await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body_text());
        assert!(bodies(&sim).pop().unwrap().contains("hour,6"), "{path}");
    }
    // Some write slashes escaped.
    let escaped = body(&[held("text/html", "<p>Ebb at noon</p>")]).to_string().replace('/', "\\/");
    let reply = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(escaped).send().await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let sent = bodies(&sim).pop().unwrap();
    assert!(sent.contains("Ebb at noon") && !sent.contains("base64"), "{sent}");
    // What nobody can make anything of is told as what it is.
    let zip = at("data:application/zip;base64,UEsDBA==");
    let (status, _, _, text) = asked(&gate, &body(&[zip])).await.error();
    assert!(status == 400 && text.contains("messages[0].content[1].source.url must hold a PDF or a text"), "{text}");
}

#[tokio::test]
async fn a_pdf_is_text_to_a_model_that_reads_no_files_on_every_protocol() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::says("At six.")).await;
        let gate = gate(&sim, protocol, TEXT_ONLY, "").await;
        for (number, stream) in [false, true].into_iter().enumerate() {
            let case = format!("{protocol:?} {stream}");
            let mut body = body(&[document(&tides())]);
            body["stream"] = json!(stream);
            let answer = message(&asked(&gate, &body).await);
            let sent = bodies(&sim).pop().unwrap();
            let wanted = r"[Document: High water, 2 pages]\n\n[page 1]\n\nFlood at six\n\n[page 2]\n\nEbb at noon";
            assert!(sent.contains(wanted), "{case}: {sent}");
            assert!(sent.contains("When is high water?") && !sent.contains("JVBERi"), "{case}: {sent}");
            let entry = entry(&answer);
            let data = json!({"engine": "cloudflare-ai", "files": 1, "pages": 2, "images": 0, "cache_hits": number});
            assert_eq!((&entry["type"], &entry["data"]), (&json!("plugin"), &data), "{case}");
            assert_eq!(entry["cost_usd"], 0, "{case}");
        }
        // In the result of a tool, too.
        let call =
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "chart", "input": {}}]});
        let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": [document(&tides())]});
        let mut body = body(&[]);
        body["tools"] = json!([{"name": "chart", "input_schema": {"type": "object"}}]);
        body["messages"].as_array_mut().unwrap().extend([call, json!({"role": "user", "content": [result]})]);
        let reply = asked(&gate, &body).await;
        assert_eq!(reply.status, 200, "{protocol:?}: {}", reply.body_text());
        let sent = bodies(&sim).pop().unwrap();
        assert!(sent.contains("Flood at six") && !sent.contains("JVBERi"), "{protocol:?}: {sent}");
    }
}

#[tokio::test]
async fn who_reads_files_gets_them_as_they_came_unless_another_engine_is_named() {
    let (reader, other) = (Sim::start(Behaviour::says("ok")).await, Sim::start(Behaviour::says("ok")).await);
    let gate =
        Tidegate::start().endpoint("vendor/reads", &reader).endpoint_with("vendor/text", &other, TEXT_ONLY).run().await;
    let with = |model: &str, plugin: Value| {
        let mut body = body(&[document(&tides())]);
        (body["model"], body["plugins"]) = (json!(model), json!([plugin]));
        body
    };
    let mut plain = body(&[document(&tides())]);
    plain["model"] = json!("vendor/reads");
    let reply = asked(&gate, &plain).await;
    let sent = reader.requests().pop().unwrap().json();
    assert_eq!(sent["messages"], plain["messages"], "not a byte of it is changed");
    assert!(reply.json()["tidegate_metadata"].get("pipeline").is_none(), "{}", reply.body_text());

    for engine in ["pdf-text", "cloudflare-ai"] {
        let reply = asked(&gate, &with("vendor/reads", json!({"id": "file-parser", "pdf": {"engine": engine}}))).await;
        assert_eq!(entry(&reply.json())["data"]["engine"], "cloudflare-ai", "{engine}");
        assert!(bodies(&reader).pop().unwrap().contains("Flood at six"), "{engine}");
    }
    let native = json!({"id": "file-parser", "pdf": {"engine": "native"}});
    assert_eq!(asked(&gate, &with("vendor/reads", native.clone())).await.status, 200);
    assert!(bodies(&reader).pop().unwrap().contains("JVBERi"));
    let (status, _, _, text) = asked(&gate, &with("vendor/text", native)).await.error();
    let wanted = "Invalid request: plugins[0].pdf.engine is native, but vendor/text does not read files: leave it out, \
                  or name cloudflare-ai";
    assert_eq!((status, &*text), (400, wanted));
    let off = asked(&gate, &with("vendor/text", json!({"id": "file-parser", "enabled": false}))).await;
    assert_eq!(off.status, 404, "nobody reads it then: {}", off.body_text());
    let ocr = asked(&gate, &with("vendor/text", json!({"id": "file-parser", "pdf": {"engine": "mistral-ocr"}}))).await;
    let (status, _, _, text) = ocr.error();
    assert_eq!((status, &*text), (400, "mistral-ocr is not configured on this deployment"));
    assert_eq!(other.calls(), 0);
    // The model of the request decides, not one that only stands behind it.
    let mut list = with("vendor/text", json!({"id": "web-fetch"}));
    list["models"] = json!(["vendor/reads"]);
    assert_eq!(asked(&gate, &list).await.status, 200);
    assert!(bodies(&other).pop().unwrap().contains("Flood at six"));
}

#[tokio::test]
async fn marks_of_the_cache_stay_and_citations_go_with_a_warning() {
    let sim = Sim::start(Behaviour::says("ok")).await;
    let gate = gate(&sim, PROTOCOLS[0], TEXT_ONLY, "").await;
    let mut chart = document(&tides());
    chart["title"] = json!("Tide table");
    chart["context"] = json!("Of Brest.");
    chart["cache_control"] = json!({"type": "ephemeral"});
    chart["citations"] = json!({"enabled": true});
    let reply = asked(&gate, &body(&[chart])).await;
    assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:citations"), "{}", reply.body_text());
    assert_eq!(entry(&reply.json())["data"]["citations_dropped"], true);
    let sent = sim.requests().pop().unwrap().json();
    let block = &sent["messages"][0]["content"][1];
    let text = "[Document: Tide table, 2 pages]\nOf Brest.\n\n[page 1]\n\nFlood at six\n\n[page 2]\n\nEbb at noon";
    assert_eq!(*block, json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}));
}

#[tokio::test]
async fn a_document_is_fetched_like_everything_else_that_callers_point_at() {
    let (sim, host) = (Sim::start(Behaviour::says("ok")).await, Service::start().await);
    host.answers("/tides.pdf", "200 OK", "application/pdf", &tides());
    host.answers("/tides.txt", "200 OK", "text/plain", b"Flood at seven");
    let open = gate(&sim, PROTOCOLS[1], TEXT_ONLY, &host.allowed()).await;
    let data = format!("data:application/pdf;base64,{}", STANDARD.encode(tides()));
    let blocks = [at(&host.url("/tides.pdf")), at(&host.url("/tides.txt")), at(&data)];
    let reply = asked(&open, &body(&blocks)).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let sent = bodies(&sim).pop().unwrap();
    assert_eq!(sent.matches("Flood at six").count(), 2, "{sent}");
    assert!(sent.contains("Flood at seven"), "{sent}");
    assert_eq!(entry(&reply.json())["data"]["files"], 3);
    let calls = sim.calls();
    for url in [host.url("/nowhere"), "http://10.0.0.1/a.pdf".to_owned(), "file:///etc/passwd".to_owned()] {
        let (status, _, _, text) = asked(&open, &body(&[at(&url)])).await.error();
        assert_eq!((status, &*text), (400, "Could not download messages[0].content[1]"), "{url}");
    }
    let closed = gate(&sim, PROTOCOLS[1], TEXT_ONLY, "").await;
    let before = host.asked().len();
    assert_eq!(asked(&closed, &body(&[at(&host.url("/tides.pdf"))])).await.status, 400);
    assert_eq!((host.asked().len(), sim.calls()), (before, calls), "nobody was asked");
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_by_its_place_and_nobody_is_called() {
    let sim = Sim::start(Behaviour::says("ok")).await;
    let gate = gate(&sim, PROTOCOLS[1], TEXT_ONLY, "[parser]\ntime_ms = 5000\n").await;
    let bomb = pdf::stream("/Filter /FlateDecode", &pdf::deflated(b' ', 300 << 20));
    let loops =
        b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 1 0 R /Kids [1 0 R] >>\nendobj\ntrailer << /Root 1 0 R >>\n%%EOF";
    let whole = tides();
    let hostile: [(&str, Vec<u8>); 6] = [
        ("no PDF", b"%PDF-1.7\nnonsense".to_vec()),
        ("half of one", whole[..whole.len() / 2].to_vec()),
        ("a bomb", pdf::of(&pdf::page("", bomb), "")),
        ("a circle", loops.to_vec()),
        ("brackets", [b"%PDF-1.7\n1 0 obj\n".to_vec(), vec![b'['; 1 << 20]].concat()),
        ("nothing", Vec::new()),
    ];
    for (name, bytes) in hostile {
        let reply = asked(&gate, &body(&[document(&tides()), document(&bytes)])).await;
        let (status, kind, _, text) = reply.error();
        assert_eq!((status, &*kind), (400, "invalid_request_error"), "{name}: {text}");
        assert!(text.starts_with("Invalid request: messages[0].content[2] "), "{name}: {text}");
    }
    let (status, _, _, text) = asked(&gate, &body(&[document(&scan())])).await.error();
    let wanted = "Invalid request: messages[0].content[1] is a document without a text layer: send pictures of its \
                  pages, or use a model that reads files";
    assert_eq!((status, &*text), (400, wanted));
    let source = |kind: &str, data: &str| json!({"type": "document", "source": {"type": "base64", "media_type": kind, "data": data}});
    let table = [
        (source("application/pdf", "%%%"), "Invalid request: messages[0].content[1].source.data must be base64"),
        (
            source("application/zip", "UEsDBA=="),
            "Invalid request: messages[0].content[1].source.media_type must be application/pdf, text/plain, text/html, \
             text/csv, text/markdown or that of a .docx, .xlsx or .pptx file for this model",
        ),
    ];
    for (block, wanted) in table {
        let (status, _, _, text) = asked(&gate, &body(&[block])).await.error();
        assert_eq!((status, &*text), (400, wanted));
    }
    assert_eq!(sim.calls(), 0);
    // Others go on, and so does the gateway: texts and pages need no PDF.
    let blocks = [
        source("text/csv", &STANDARD.encode("hour,height\n6,2.5")),
        source("text/html", &STANDARD.encode("<title>T</title><p>Flood")),
    ];
    assert_eq!(asked(&gate, &body(&blocks)).await.status, 200);
    let sent = bodies(&sim).pop().unwrap();
    assert!(sent.contains(r"hour,height\n6,2.5") && sent.contains(r"[Document: T]\n\nFlood"), "{sent}");
}

fn ocr(service: &Service) -> String {
    format!("[parser.ocr]\nurl = \"{}\"\napi_key = \"ocr-secret\"\nprice_per_1000_pages = 2\n", service.url("/v1/ocr"))
}

fn pages(images: usize) -> Value {
    let image = json!({"id": "i", "image_base64": format!("data:image/png;base64,{PIXEL}")});
    json!({"pages": [
        {"index": 0, "markdown": "# Tide table", "images": vec![image; images]},
        {"index": 1, "markdown": "Flood at six", "images": []},
    ]})
}

#[tokio::test]
async fn pages_that_are_pictures_are_read_by_a_service_and_charged() {
    let plugin = json!([{"id": "file-parser", "pdf": {"engine": "mistral-ocr"}}]);
    for protocol in PROTOCOLS {
        let (sim, service) = (Sim::start(Behaviour::says("ok")).await, Service::start().await);
        service.says("/v1/ocr", &pages(9));
        let gate = gate(&sim, protocol, NO_FILES, &ocr(&service)).await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            let mut body = body(&[document(&scan())]);
            (body["stream"], body["plugins"]) = (json!(stream), plugin.clone());
            let answer = message(&asked(&gate, &body).await);
            let sent = bodies(&sim).pop().unwrap();
            assert!(sent.contains(r"[Document: untitled, 2 pages]\n\n[page 1]\n\n# Tide table"), "{case}: {sent}");
            assert_eq!(sent.matches(PIXEL).count(), 8, "{case}: of nine pictures eight are shown");
            let entry = entry(&answer);
            let hits = usize::from(stream);
            let data = json!({"engine": "mistral-ocr", "files": 1, "pages": 2, "images": 8, "cache_hits": hits});
            assert_eq!(entry["data"], data, "{case}");
            // Two pages at two dollars a thousand; what is known is not read again.
            let fee = if stream { 0.0 } else { 0.004 };
            assert_eq!(entry["cost_usd"].as_f64(), Some(fee), "{case}");
            let number = |name: &str| answer["usage"][name].as_f64().unwrap();
            let of_tokens = (number("input_tokens") + 2.0 * number("output_tokens")) / 1e6;
            assert!((number("cost") - of_tokens - fee).abs() < 1e-9, "{case}: {}", answer["usage"]);
        }
        let asked = service.asked();
        assert_eq!(asked.len(), 1, "{protocol:?}");
        assert!(asked[0].head.contains("authorization: bearer ocr-secret"));
        let question = asked[0].json();
        let url = format!("data:application/pdf;base64,{}", STANDARD.encode(scan()));
        assert_eq!(
            (&question["document"]["document_url"], &question["include_image_base64"]),
            (&json!(url), &json!(true))
        );
    }
}

#[tokio::test]
async fn pages_that_were_read_for_one_model_are_known_for_another() {
    let (sim, service) = (Sim::start(Behaviour::says("ok")).await, Service::start().await);
    service.says("/v1/ocr", &pages(1));
    let address = sim.base_url();
    let start = Tidegate::start().protocol_at("sim/blind", "anthropic", &address, TEXT_ONLY);
    let start = start.protocol_at("sim/seeing", "anthropic", &address, NO_FILES);
    let gate = start.config(&ocr(&service)).run().await;
    let other = pdf::of(&pdf::page("/Rotate 90", pdf::stream("", b"")), "");
    let cases =
        [(scan(), ["sim/blind", "sim/seeing", "sim/blind"]), (other, ["sim/seeing", "sim/blind", "sim/seeing"])];
    for (round, (scan, models)) in cases.iter().enumerate() {
        for (place, model) in models.iter().enumerate() {
            let mut body = body(&[document(scan)]);
            body["model"] = json!(model);
            body["plugins"] = json!([{"id": "file-parser", "pdf": {"engine": "mistral-ocr"}}]);
            let entry = entry(&message(&asked(&gate, &body).await));
            let (case, images) = (format!("{models:?}[{place}]"), usize::from(*model == "sim/seeing"));
            // Two pages at two dollars a thousand, for the first of them.
            let fee = if place == 0 { 0.004 } else { 0.0 };
            assert_eq!(entry["cost_usd"].as_f64(), Some(fee), "{case}");
            let known = usize::from(place > 0);
            assert_eq!(
                (&entry["data"]["cache_hits"], &entry["data"]["images"]),
                (&json!(known), &json!(images)),
                "{case}"
            );
            let sent = bodies(&sim).pop().unwrap();
            assert_eq!(sent.matches(PIXEL).count(), images, "{case}");
            assert!(sent.contains("# Tide table"), "{case}: {sent}");
        }
        assert_eq!(service.asked().len(), round + 1, "{models:?}");
    }
}

#[tokio::test]
async fn all_pages_of_a_long_scan_are_held_for() {
    let (sim, service) = (Sim::start(Behaviour::says("ok")).await, Service::start().await);
    service.says("/v1/ocr", &pages(0));
    let gate = gate(&sim, PROTOCOLS[1], TEXT_ONLY, &ocr(&service)).await;
    let made = gate.place.run(&["keys", "create", "--name", "poor", "--limit", "1.1"]).await;
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let is_known = async || gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
    eventually("the key is known", std::time::Duration::from_secs(10), is_known).await;
    // At two dollars a thousand: five hundred of them could be paid.
    let mut body = body(&[document(&pdf::saying(&[""; 600]))]);
    body["plugins"] = json!([{"id": "file-parser", "pdf": {"engine": "mistral-ocr"}}]);
    let (status, _, _, text) = gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send().await.error();
    assert_eq!((status, service.asked().len(), sim.calls()), (402, 0, 0), "{text}");
    assert!(text.contains("may cost $1.2"), "{text}");
}

#[tokio::test]
async fn a_scan_goes_to_the_service_where_nobody_chose_and_a_service_that_fails_is_named() {
    let (sim, service) = (Sim::start(Behaviour::says("ok")).await, Service::start().await);
    service.says("/v1/ocr", &pages(1));
    let gate = gate(&sim, PROTOCOLS[1], TEXT_ONLY, &ocr(&service)).await;
    let reply = asked(&gate, &body(&[document(&tides()), document(&scan())])).await;
    assert_eq!(entry(&reply.json())["data"]["engine"], "mistral-ocr", "{}", reply.body_text());
    let sent = bodies(&sim).pop().unwrap();
    assert!(sent.contains("Ebb at noon") && sent.contains("# Tide table"), "{sent}");
    assert!(!sent.contains(PIXEL), "a model that takes no pictures gets none");
    assert_eq!(service.asked().len(), 1, "only what has no text of its own");
    let mut chosen = body(&[document(&scan())]);
    chosen["plugins"] = json!([{"id": "file-parser", "pdf": {"engine": "cloudflare-ai"}}]);
    let (status, _, _, text) = asked(&gate, &chosen).await.error();
    assert_eq!(status, 400);
    assert!(text.contains("choose the engine mistral-ocr"), "{text}");
    service.answers("/v1/ocr", "500 Internal Server Error", "text/plain", b"ocr-secret is wrong");
    let other = pdf::of(&pdf::page("/Rotate 90", pdf::stream("", b"")), "");
    let (status, _, _, text) = asked(&gate, &body(&[document(&other)])).await.error();
    assert_eq!((status, &*text), (502, "The service that reads scanned documents did not answer"));
    assert!(!gate.stderr().contains("ocr-secret"));
}
