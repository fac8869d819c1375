//! PDFs, as they should be and as they should not.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// A PDF of these objects, which are numbered from 1; the first is its catalogue. `more` stands in its trailer.
pub fn of(objects: &[Vec<u8>], more: &str) -> Vec<u8> {
    let mut out = b"%PDF-1.7\n".to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (place, object) in objects.iter().enumerate() {
        writeln!(table, "{:010} 00000 n ", out.len()).expect("it has room");
        out.extend(format!("{} 0 obj\n", place + 1).into_bytes());
        out.extend(object);
        out.extend(b"\nendobj\n");
    }
    let start = out.len();
    let size = objects.len() + 1;
    let end = format!("{table}trailer\n<< /Size {size} /Root 1 0 R {more} >>\nstartxref\n{start}\n%%EOF\n");
    out.extend(end.into_bytes());
    out
}

pub fn stream(head: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!("<< /Length {} {head} >>\nstream\n", bytes.len());
    [head.as_bytes(), bytes, b"\nendstream"].concat()
}

/// One page with these parts: what else its dictionary holds, and its content.
pub fn page(more: &str, content: Vec<u8>) -> Vec<Vec<u8>> {
    vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        b"<< /Type /Pages /Kids [5 0 R] /Count 1 >>".to_vec(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_vec(),
        b"<< /Title (High water) >>".to_vec(),
        format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> \
             /Contents 6 0 R {more} >>"
        )
        .into_bytes(),
        content,
    ]
}

/// A PDF with a title whose pages say these texts.
pub fn saying(pages: &[&str]) -> Vec<u8> {
    let mut objects = page("", Vec::new());
    objects.truncate(4);
    let kids: Vec<String> = (0..pages.len()).map(|place| format!("{} 0 R", 5 + 2 * place)).collect();
    objects[1] = format!("<< /Type /Pages /Kids [{}] /Count {} >>", kids.join(" "), pages.len()).into_bytes();
    for (place, text) in pages.iter().enumerate() {
        let content = format!("BT /F1 12 Tf 72 720 Td ({text}) Tj ET");
        objects.push(
            format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> \
                 /Contents {} 0 R >>",
                6 + 2 * place
            )
            .into_bytes(),
        );
        objects.push(stream("", content.as_bytes()));
    }
    of(&objects, "/Info 4 0 R")
}

/// So many bytes in few.
pub fn deflated(byte: u8, count: usize) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let piece = vec![byte; 1 << 16];
    for _ in 0..count.div_ceil(piece.len()) {
        encoder.write_all(&piece).expect("it has room");
    }
    encoder.finish().expect("it has room")
}
