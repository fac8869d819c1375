//! The child that reads documents of strangers: what it tells, and that no document makes it use more than it may.

use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

use crate::harness::{command, pdf, soon};

const MEMORY: u64 = 256 << 20;
const SECONDS: u64 = 4;
const OUTPUT: usize = 1 << 20;

/// What came of a document, and how much memory was in use at most, as far as was seen.
async fn read(kind: &str, bytes: Vec<u8>) -> (Output, u64) {
    let (memory, seconds, most) = (MEMORY.to_string(), SECONDS.to_string(), OUTPUT.to_string());
    let limits = ["--memory-bytes", &memory, "--cpu-seconds", &seconds, "--max-output-bytes", &most];
    let mut child = command(&["extract", "--kind", kind])
        .args(limits)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let status = format!("/proc/{}/status", child.id().expect("it runs"));
    let mut input = child.stdin.take().expect("piped");
    let fed = async move {
        // One that gives up does not take all of it.
        let _ = input.write_all(&bytes).await;
    };
    let mut peak = 0;
    let ended = async move { tokio::join!(fed, child.wait_with_output()).1.expect("it ends") };
    tokio::pin!(ended);
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    let work = async {
        loop {
            tokio::select! {
                output = &mut ended => return output,
                _ = ticks.tick() => peak = peak.max(resident(&status)),
            }
        }
    };
    let output = tokio::time::timeout(Duration::from_secs(60), work).await.expect("no document takes for ever");
    (output, peak)
}

fn resident(status: &str) -> u64 {
    let text = std::fs::read_to_string(status).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn told(output: &Output) -> Option<Value> {
    output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// Reads all of them, a few at a time, and gives back what they told.
async fn all_within_limits(kind: &'static str, cases: Vec<(String, Vec<u8>)>) -> Vec<(String, Option<Value>)> {
    let (mut running, mut done) = (JoinSet::new(), Vec::new());
    let mut cases = cases.into_iter();
    loop {
        while running.len() < 3
            && let Some((name, bytes)) = cases.next()
        {
            running.spawn(async move { (name, read(kind, bytes).await) });
        }
        let Some(ended) = running.join_next().await else { return done };
        let (name, (output, peak)) = ended.expect("it does not panic");
        assert!(peak <= MEMORY, "{name}: {peak} bytes");
        assert!(output.stdout.len() <= OUTPUT, "{name}: {} bytes written", output.stdout.len());
        done.push((name, told(&output)));
    }
}

#[tokio::test]
async fn a_document_is_told_as_text() {
    let bytes = pdf::saying(&["Flood at six", "Ebb at noon"]);
    let (output, _) = soon("a PDF", read("pdf", bytes)).await;
    let wanted =
        json!({"title": "High water", "pages": 2, "text": "[page 1]\n\nFlood at six\n\n[page 2]\n\nEbb at noon"});
    assert_eq!(told(&output), Some(wanted));
    let html = b"<title>Tide</title><nav>Home</nav><h1>Today</h1><p>Flood at <b>six</b>".to_vec();
    let (output, _) = soon("a page", read("html", html)).await;
    assert_eq!(told(&output), Some(json!({"title": "Tide", "text": "# Today\n\nFlood at six"})));
    let (output, _) = soon("a picture of text", read("pdf", pdf::of(&pdf::page("", pdf::stream("", b"")), ""))).await;
    assert_eq!(told(&output), Some(json!({"title": null, "pages": 1, "text": ""})));
}

#[tokio::test]
async fn what_is_too_much_is_stopped() {
    // It would need far more than it may have, or take far longer.
    let bomb = pdf::of(&pdf::page("", pdf::stream("/Filter /FlateDecode", &pdf::deflated(b' ', 300 << 20))), "");
    let (output, peak) = read("pdf", bomb).await;
    assert!(told(&output).is_none_or(|told| told["text"] == "") && peak <= MEMORY, "{peak}");
    // More text than may be told is cut.
    let (output, _) = read("html", vec![b'a'; 5 << 20]).await;
    let text = told(&output).expect("a text")["text"].as_str().expect("text").len();
    assert_eq!(text, (OUTPUT - 4096) / 2);
}

#[tokio::test]
async fn ten_6_no_pdf_takes_more_than_it_may() {
    let cases = pdfs();
    assert!(cases.len() >= 100, "{}", cases.len());
    let told = all_within_limits("pdf", cases).await;
    let whole = told.iter().find(|(name, _)| name == "whole").expect("it was read");
    assert!(whole.1.is_some());
}

#[tokio::test]
async fn ten_6_no_page_takes_more_than_it_may() {
    let many = |piece: &str, bytes: usize| piece.repeat(bytes / piece.len()).into_bytes();
    // What a page may have takes its time in a program that is not optimised.
    let whole = 512 << 10;
    let attributes: String = (0..20_000).map(|number| format!(" a{number}=1")).collect();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("deep", many("<div>", whole)),
        ("deep inline", many("<b><i><a href=x>", whole)),
        ("deep lists", many("<ul><li>", whole)),
        ("deep tables", many("<table><tr><td>", whole)),
        ("left out", many("<nav>", whole)),
        ("closed", many("</div></nav></ul></a></main>", whole)),
        ("one tag", [b"<a ".to_vec(), vec![b'x'; 5 << 20]].concat()),
        ("one attribute", [b"<a href=\"".to_vec(), vec![b'x'; whole]].concat()),
        ("many attributes", format!("<a{attributes}>x").into_bytes()),
        ("one name", [b"<".to_vec(), vec![b'x'; whole]].concat()),
        ("entities", many("&amp;&#x110000;&#0;&notit;&", whole)),
        ("ampersands", vec![b'&'; whole]),
        ("nothing", vec![0; whole]),
        ("nothing within", many("a\0<\0b>\0", whole)),
        ("angles", vec![b'<'; whole]),
        ("comment", [b"<!--".to_vec(), many("--!", whole)].concat()),
        ("script", [b"<script>".to_vec(), many("<!--<script>", whole)].concat()),
        ("title", [b"<title>".to_vec(), vec![b't'; whole]].concat()),
        ("declarations", many("<!DOCTYPE x [<!ENTITY a '&a;&a;'>]>", whole)),
        ("no text", vec![0xff; whole]),
        ("lines", vec![b'\n'; whole]),
        ("quotes", vec![b'"'; whole]),
        ("main", many("<main>", whole)),
        ("plaintext", many("<plaintext>", whole)),
    ];
    let cases = cases.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    let told = all_within_limits("html", cases).await;
    let unread: Vec<&String> = told.iter().filter(|(_, told)| told.is_none()).map(|(name, _)| name).collect();
    assert!(unread.len() <= 4, "most of them are pages: {unread:?}");
}

/// Everything that may be wrong with a PDF.
fn pdfs() -> Vec<(String, Vec<u8>)> {
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    let whole = pdf::saying(&["Flood at six", "Ebb at noon"]);
    let text = String::from_utf8(whole.clone()).expect("it is ASCII");
    // Cut short anywhere.
    let steps = 36;
    cases.extend((0..steps).map(|step| {
        let end = whole.len() * step / steps;
        (format!("up to {end}"), whole[..end].to_vec())
    }));
    // One word of it missing, or another one.
    for word in [
        "%PDF",
        "xref",
        "trailer",
        "startxref",
        "endobj",
        "endstream",
        "/Length",
        "/Kids",
        "/Count",
        "/Parent",
        "/Root",
        "/Size",
        "/MediaBox",
        "/Contents",
        "/Font",
        "/Resources",
        "/Type /Page ",
        "0 obj",
    ] {
        cases.push((format!("without {word}"), text.replace(word, "").into_bytes()));
    }
    for (word, other) in [
        ("/Kids [5 0 R", "/Kids [2 0 R"),
        ("/Kids [5 0 R", "/Kids [1 0 R 2 0 R 3 0 R"),
        ("/Kids [5 0 R", "/Kids 2 0 R /A [5 0 R"),
        ("/Count 2", "/Count 99999999999999999999"),
        ("/Count 2", "/Count -1"),
        ("/Pages 2 0 R", "/Pages 1 0 R"),
        ("/Root 1 0 R", "/Root 9999 0 R"),
        ("/Size ", "/Size 99999999"),
        ("/Parent 2 0 R", "/Parent 5 0 R"),
        ("/MediaBox [0 0 612 792] /Resources", "/Parent 5 0 R /Resources"),
        ("/MediaBox [0 0 612 792]", "/MediaBox [1e400 -- nan 0]"),
        ("/Contents 6 0 R", "/Contents 5 0 R"),
        ("/Contents 6 0 R", "/Contents [6 0 R 5 0 R 6 0 R]"),
        ("/F1 3 0 R", "/F1 5 0 R"),
        ("/Encoding /WinAnsiEncoding", "/Encoding 3 0 R"),
        ("/Encoding /WinAnsiEncoding", "/Encoding << /Differences [0 /a -5 /b 99999999 /c] >>"),
        ("/Encoding /WinAnsiEncoding", "/ToUnicode 3 0 R"),
        ("/Encoding /WinAnsiEncoding", "/FirstChar 255 /LastChar 0 /Widths [1]"),
        ("/Encoding /WinAnsiEncoding", "/FirstChar -9999999999 /LastChar 9999999999 /Widths 3 0 R"),
        ("/Subtype /Type1", "/Subtype /Type0"),
        ("/Subtype /Type1", "/Subtype /Type0 /DescendantFonts [3 0 R] /Encoding /Identity-H"),
        ("/Subtype /Type1", "/Subtype /Type3"),
        ("startxref\n", "startxref\n99999999999999999999"),
        ("startxref\n", "startxref\n-"),
        ("0000000000 65535 f", "0000000009 00000 n"),
        ("xref\n0 ", "xref\n0 4294967295\n0 "),
        (" /Info 4 0 R", " /Prev 9"),
        (" /Info 4 0 R", " /Info 4 0 R /XRefStm 9"),
        (" /Info 4 0 R", " /Encrypt << /Filter /Standard /V 1 /R 2 /O () /U () /P -1 >>"),
        (" /Info 4 0 R", " /Encrypt << /Filter /Standard /V 5 /R 6 /Length 256 /O (a) /U (b) /OE () /UE () /P 0 >>"),
        (" /Info 4 0 R", " /Encrypt << /Filter /Standard /V 4 /R 4 /CF << /StdCF << /CFM /AESV2 >> >> /P 0 >>"),
        (" /Info 4 0 R", " /Encrypt 1 0 R"),
        (" /Info 4 0 R", " /Encrypt << /V 99 /R -1 /Length -8 >> /ID [() 5]"),
    ] {
        assert!(text.contains(word), "{word}");
        cases.push((format!("{word} is {other}"), text.replace(word, other).into_bytes()));
    }
    let start = text.find("xref\n").expect("a table");
    cases.push(("the table before itself".into(), text.replace("/Info 4 0 R", &format!("/Prev {start}")).into_bytes()));
    let content =
        |name: &str, head: &str, bytes: &[u8]| (name.to_owned(), pdf::of(&pdf::page("", pdf::stream(head, bytes)), ""));
    let large = 200 << 20;
    // Streams that are more than they seem.
    let flate = "/Filter /FlateDecode";
    cases.push(content("a bomb of spaces", flate, &pdf::deflated(b' ', large)));
    cases.push(content("a bomb of states", flate, &pdf::deflated(b'q', large / 8)));
    cases.push(content("a bomb of brackets", flate, &pdf::deflated(b'[', large / 8)));
    cases.push(content("a bomb of strings", flate, &pdf::deflated(b'(', large / 8)));
    cases.push(content("a bomb of dictionaries", flate, &pdf::deflated(b'<', large / 8)));
    cases.push(content("no deflate", flate, b"not deflated"));
    cases.push(content("lzw", "/Filter /LZWDecode", &[0x80; 4096]));
    cases.push(content("hex", "/Filter /ASCIIHexDecode", &[b'F'; 1 << 20]));
    cases.push(content("base 85", "/Filter /ASCII85Decode", &[b'z'; 1 << 20]));
    cases.push(content("many filters", &format!("/Filter [{}]", "/ASCIIHexDecode ".repeat(5_000)), &[b'4'; 1 << 10]));
    cases.push(content(
        "a predictor",
        "/Filter /FlateDecode /DecodeParms << /Predictor 15 /Columns 99999999 /Colors 99 >>",
        &pdf::deflated(0, 1 << 20),
    ));
    cases.push(content("nested bomb", "/Filter [/FlateDecode /FlateDecode]", &deflated_twice(300 << 20)));
    for length in ["-1", "99999999", "9223372036854775807", "6 0 R", "7 0 R", "(x)"] {
        let wrong = format!("<< /Length {length} >>\nstream\nBT ET\nendstream").into_bytes();
        cases.push((format!("length {length}"), pdf::of(&pdf::page("", wrong), "")));
    }
    // What is drawn.
    cases.push(content("states", "", &b"q ".repeat(1 << 20)));
    cases.push(content("no states", "", &b"Q ".repeat(1 << 20)));
    cases.push(content("no operands", "", b"BT Tf Td Tj TJ Tm ' \" cm gs Do sh cs scn ET EI ID BI"));
    cases.push(content("no font", "", b"BT /F9 12 Tf (a) Tj ET"));
    cases.push(content("numbers", "", b"BT /F1 1e999 Tf 99999999999999999999 -.-5 Td [(a) -1e308 (b)] TJ ET"));
    cases.push(content(
        "much text",
        "",
        &[b"BT /F1 12 Tf ".to_vec(), b"(aaaaaaaaaaaaaaaa) Tj 0 -9 Td ".repeat(40_000)].concat(),
    ));
    cases.push(content("an image", "", b"BI /W 99999999 /H 99999999 ID \xff\xff"));
    for (name, open, close) in [("arrays", "[", "]"), ("dictionaries", "<< /A ", ">>"), ("strings", "(", ")")] {
        for depth in [1_000, 100_000, 1_000_000] {
            let nested = format!("{}{}", open.repeat(depth), close.repeat(depth));
            cases.push(content(&format!("{depth} {name} drawn"), "", format!("BT {nested} TJ ET").as_bytes()));
            let object = pdf::of(&pdf::page(&format!("/X {nested}"), pdf::stream("", b"")), "");
            cases.push((format!("{depth} {name} in a page"), object));
        }
    }
    // A form that draws itself, and a page tree as deep as it is long.
    let mut form = pdf::page("", pdf::stream("/Subtype /Form /Resources << /XObject << /X 6 0 R >> >>", b"/X Do"));
    form[4] =
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >> /Contents 6 0 R >>"
            .to_vec();
    cases.push(("a form within itself".into(), pdf::of(&form, "")));
    let chain = (0..50_000)
        .map(|place| format!("<< /Type /Pages /Kids [{} 0 R] /Count 1 /Parent {} 0 R >>", place + 3, place + 1));
    let chain: Vec<Vec<u8>> =
        std::iter::once(b"<< /Type /Catalog /Pages 2 0 R >>".to_vec()).chain(chain.map(String::into_bytes)).collect();
    cases.push(("a chain of pages".into(), pdf::of(&chain, "")));
    let many = format!("<< /Type /Pages /Kids [{}] /Count 200000 >>", "5 0 R ".repeat(200_000));
    let mut wide = pdf::page("", pdf::stream("", b"BT /F1 12 Tf (a) Tj ET"));
    wide[1] = many.into_bytes();
    cases.push(("one page many times".into(), pdf::of(&wide, "")));
    cases.push(("zeros".into(), [b"%PDF-1.7\n".to_vec(), vec![0; 5 << 20]].concat()));
    cases.push(("objects".into(), [b"%PDF-1.7\n".to_vec(), b"1 0 obj ".repeat(600_000)].concat()));
    cases.push(("only a head".into(), b"%PDF-".to_vec()));
    cases.push(("nothing".into(), Vec::new()));
    cases.push(("whole".into(), whole));
    cases
}

fn deflated_twice(count: usize) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&pdf::deflated(b' ', count)).expect("it has room");
    encoder.finish().expect("it has room")
}
