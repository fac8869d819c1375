//! What came: told from the first bytes, and taken only when the sender's own word does not contradict. Nothing is
//! decoded here; the size of an image is read from its head.

use super::{Reason, Wanted};

/// A page of text is not read beyond this.
const LONGEST_TEXT: usize = 5 << 20;
const MOST_PIXELS: u64 = 50_000_000;

const PNG: &str = "image/png";
const JPEG: &str = "image/jpeg";
const GIF: &str = "image/gif";
const WEBP: &str = "image/webp";
pub const PDF: &str = "application/pdf";
pub const TEXT: &str = "text/plain";
pub const HTML: &str = "text/html";

/// The type of a body that fits what is wanted.
pub fn fitting(wanted: Wanted, declared: Option<&str>, bytes: &[u8]) -> Result<&'static str, Reason> {
    if !is_declared(wanted, declared) {
        return Err(Reason::Type);
    }
    let kind = match (wanted, sniffed(bytes)) {
        (Wanted::Image, Some(kind @ (PNG | JPEG | GIF | WEBP))) => kind,
        (Wanted::Document, Some(PDF)) => return Ok(PDF),
        (Wanted::Document, None) if is_text(bytes) => return Ok(TEXT),
        (Wanted::Page, kind) => return page(declared, kind, bytes).ok_or(Reason::Type),
        _ => return Err(Reason::Type),
    };
    let (width, height) = size(kind, bytes).ok_or(Reason::Type)?;
    match u64::from(width) * u64::from(height) {
        0 => Err(Reason::Type),
        1..=MOST_PIXELS => Ok(kind),
        _ => Err(Reason::TooManyPixels),
    }
}

/// Whether the sender's word for it can be right; many say nothing of use.
pub fn is_declared(wanted: Wanted, declared: Option<&str>) -> bool {
    let Some(declared) = declared else { return true };
    let essence = essence(declared);
    if wanted == Wanted::Page {
        return is_silent(&essence) || is_page(&essence);
    }
    matches!(
        (essence.as_str(), wanted),
        ("" | "application/octet-stream" | "binary/octet-stream", _)
            | (PNG | JPEG | "image/jpg" | "image/pjpeg" | GIF | WEBP, Wanted::Image)
            | (PDF | "application/x-pdf" | TEXT, Wanted::Document)
    )
}

fn essence(declared: &str) -> String {
    declared.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The encoding that a sender names.
pub fn charset(declared: &str) -> Option<&str> {
    let parameters = declared.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let mut named = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    named.next().map(|(_, label)| label.trim().trim_matches('"'))
}

/// Whether the sender says that it is a PDF.
pub fn is_pdf(declared: Option<&str>) -> bool {
    declared.is_some_and(|declared| matches!(essence(declared).as_str(), PDF | "application/x-pdf"))
}

/// Many say nothing of use.
fn is_silent(essence: &str) -> bool {
    matches!(essence, "" | "application/octet-stream" | "binary/octet-stream")
}

fn is_markup(essence: &str) -> bool {
    matches!(essence, HTML | "application/xhtml+xml")
}

/// Whether it can be read as text: pages, text of any kind, JSON, XML and PDF.
fn is_page(essence: &str) -> bool {
    const DATA: [&str; 6] = [
        "application/json",
        "application/xml",
        "application/xhtml+xml",
        "application/x-ndjson",
        "application/rss+xml",
        "application/atom+xml",
    ];
    let is_data = DATA.contains(&essence)
        || essence.starts_with("application/") && (essence.ends_with("+json") || essence.ends_with("+xml"));
    essence.starts_with("text/") || is_data || is_pdf(Some(essence))
}

/// A page is taken for what its sender says if its bytes do not say otherwise: a PDF, HTML, or text as it is.
fn page(declared: Option<&str>, sniffed: Option<&'static str>, bytes: &[u8]) -> Option<&'static str> {
    let essence = declared.map(essence).unwrap_or_default();
    let silent = is_silent(&essence);
    match sniffed {
        Some(PDF) if silent || is_pdf(declared) => return Some(PDF),
        Some(_) => return None,
        None if is_pdf(declared) => return None,
        None => {}
    }
    if is_markup(&essence) {
        return Some(HTML);
    }
    // Text in two bytes a character is full of zeros, and says so.
    let is_wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    if bytes.contains(&0) && !is_wide {
        return None;
    }
    let looks_like_html = || {
        let start = bytes.trim_ascii_start();
        let start = start[..start.len().min(16)].to_ascii_lowercase();
        ["<!doctype html", "<html", "<head", "<body"].iter().any(|markup| start.starts_with(markup.as_bytes()))
    };
    if silent { if looks_like_html() { Some(HTML) } else { is_utf8(bytes).then_some(TEXT) } } else { Some(TEXT) }
}

/// What nobody says the type of is text only where it cannot be anything else.
fn is_utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

fn sniffed(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(PNG),
        [0xff, 0xd8, 0xff, ..] => Some(JPEG),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(GIF),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(WEBP),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some(PDF),
        _ => None,
    }
}

/// Plain text: UTF-8 without control characters, and no markup that a browser would run.
fn is_text(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let is_plain = |character: char| !character.is_control() || matches!(character, '\n' | '\r' | '\t' | '\x0c');
    let start = text.trim_start_matches('\u{feff}').trim_start();
    let start: String = start.chars().take(16).map(|character| character.to_ascii_lowercase()).collect();
    let is_markup = ["<!doctype", "<html", "<head", "<body", "<script", "<svg", "<?xml", "<!--"]
        .iter()
        .any(|markup| start.starts_with(markup));
    !bytes.is_empty() && bytes.len() <= LONGEST_TEXT && !is_markup && text.chars().all(is_plain)
}

/// Width and height from the head; none where there is no such head.
fn size(kind: &str, bytes: &[u8]) -> Option<(u32, u32)> {
    match kind {
        PNG if bytes.get(12..16)? == b"IHDR" => Some((big(bytes, 16, 4)?, big(bytes, 20, 4)?)),
        GIF => Some((little(bytes, 6, 2)?, little(bytes, 8, 2)?)),
        JPEG => jpeg(bytes),
        WEBP => webp(bytes),
        _ => None,
    }
}

fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        // Any number of fill bytes may stand before a marker.
        if *bytes.get(at)? != 0xff {
            return None;
        }
        while *bytes.get(at)? == 0xff {
            at += 1;
        }
        let marker = *bytes.get(at)?;
        at += 1;
        match marker {
            // The start of a frame, of whichever coding.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                return Some((big(bytes, at + 5, 2)?, big(bytes, at + 3, 2)?));
            }
            // Pixels, or the end, before any frame.
            0xd9 | 0xda | 0x00 => return None,
            // Markers without a segment.
            0x01 | 0xd0..=0xd8 => {}
            _ => {
                let length = usize::try_from(big(bytes, at, 2)?).ok().filter(|length| *length >= 2)?;
                at += length;
            }
        }
    }
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8X" => Some((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1)),
        b"VP8L" if *bytes.get(20)? == 0x2f => {
            let bits = little(bytes, 21, 4)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8 " if bytes.get(23..26)? == [0x9d, 0x01, 0x2a] => {
            Some((little(bytes, 26, 2)? & 0x3fff, little(bytes, 28, 2)? & 0x3fff))
        }
        _ => None,
    }
}

fn big(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    Some(bytes.get(at..at + length)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

fn little(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    Some(bytes.get(at..at + length)?.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn png(width: u32, height: u32) -> Vec<u8> {
        let head: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";
        [head, &width.to_be_bytes(), &height.to_be_bytes(), b"\x08\x06\0\0\0rest"].concat()
    }

    fn gif(width: u16, height: u16) -> Vec<u8> {
        [b"GIF89a" as &[u8], &width.to_le_bytes(), &height.to_le_bytes(), b"\0\0\0"].concat()
    }

    /// With a thumbnail's segment, fill bytes and a table before the frame.
    fn jpeg(marker: u8, width: u16, height: u16) -> Vec<u8> {
        let before: &[u8] = b"\xff\xd8\xff\xe1\0\x06\xff\xc0ab\xff\xff\xff\xc4\0\x03t\xff";
        [before, &[marker], b"\0\x11\x08", &height.to_be_bytes(), &width.to_be_bytes(), b"\x03"].concat()
    }

    fn webp(kind: &[u8; 4], rest: &[u8]) -> Vec<u8> {
        [b"RIFF\0\0\0\0WEBP", kind as &[u8], b"\0\0\0\0", rest].concat()
    }

    fn lossless(width: u32, height: u32) -> Vec<u8> {
        webp(b"VP8L", &[b"\x2f" as &[u8], &((width - 1) | (height - 1) << 14).to_le_bytes()].concat())
    }

    fn lossy(width: u16, height: u16) -> Vec<u8> {
        webp(b"VP8 ", &[b"\0\0\0\x9d\x01\x2a" as &[u8], &width.to_le_bytes(), &height.to_le_bytes()].concat())
    }

    fn extended(width: u32, height: u32) -> Vec<u8> {
        let (width, height) = ((width - 1).to_le_bytes(), (height - 1).to_le_bytes());
        webp(b"VP8X", &[b"\0\0\0\0" as &[u8], &width[..3], &height[..3]].concat())
    }

    #[test]
    fn egr_7_the_first_bytes_say_what_it_is() {
        let images = [
            (png(640, 480), PNG),
            (gif(640, 480), GIF),
            (jpeg(0xc0, 640, 480), JPEG),
            (jpeg(0xc2, 640, 480), JPEG),
            (lossless(640, 480), WEBP),
            (lossy(640, 480), WEBP),
            (extended(640, 480), WEBP),
        ];
        for (bytes, kind) in images {
            assert_eq!(size(kind, &bytes), Some((640, 480)), "{kind}");
            for declared in
                [None, Some("image/png"), Some("IMAGE/JPEG; q=1"), Some("application/octet-stream"), Some("")]
            {
                assert_eq!(fitting(Wanted::Image, declared, &bytes), Ok(kind), "{declared:?}");
            }
            assert_eq!(fitting(Wanted::Document, None, &bytes), Err(Reason::Type));
        }
        assert_eq!(fitting(Wanted::Document, Some("application/pdf"), b"%PDF-1.7\n"), Ok(PDF));
        assert_eq!(fitting(Wanted::Document, Some("text/plain; charset=utf-8"), "häl\tlo\r\n".as_bytes()), Ok(TEXT));
        assert_eq!(fitting(Wanted::Document, None, b"# notes"), Ok(TEXT));
    }

    #[test]
    fn egr_7_markup_and_everything_else_is_refused() {
        let svg = br#"<svg xmlns="http://www.w3.org/2000/svg"/>"#;
        let bodies: [&[u8]; 12] = [
            b"",
            b"hello",
            svg,
            b"<!DOCTYPE html><p>",
            b"BM\0\0",
            b"II*\0",
            b"\0\0\0\x20ftypavif",
            b"%PDF-1.7",
            b"PK\x03\x04",
            b"RIFF\0\0\0\0WAVEfmt ",
            b"GIF",
            b"\x89PNG\r\n\x1a\n",
        ];
        for body in bodies {
            assert_eq!(fitting(Wanted::Image, None, body), Err(Reason::Type), "{}", body.escape_ascii());
        }
        for declared in
            ["image/svg+xml", "text/html", "text/html; charset=utf-8", "application/json", "video/mp4", "image/*"]
        {
            assert_eq!(fitting(Wanted::Image, Some(declared), &png(1, 1)), Err(Reason::Type), "{declared}");
            assert_eq!(fitting(Wanted::Document, Some(declared), b"%PDF-1.7"), Err(Reason::Type), "{declared}");
        }
        let bodies: [&[u8]; 9] = [
            b"",
            b"\xff\xfe",
            b"a\0b",
            b"\x1b[2J",
            svg,
            b" \n<HTML>",
            b"\xef\xbb\xbf<?xml version='1.0'?>",
            b"<script>",
            b"PK\x03\x04",
        ];
        for body in bodies {
            assert_eq!(fitting(Wanted::Document, None, body), Err(Reason::Type), "{}", body.escape_ascii());
        }
        assert_eq!(fitting(Wanted::Document, None, &vec![b'a'; LONGEST_TEXT + 1]), Err(Reason::Type));
    }

    #[test]
    fn egr_6_too_many_pixels_are_told_from_the_head() {
        assert_eq!(fitting(Wanted::Image, None, &png(10_000, 5_000)), Ok(PNG));
        let bombs = [
            png(10_000, 5_001),
            png(u32::MAX, u32::MAX),
            gif(u16::MAX, u16::MAX),
            jpeg(0xc1, u16::MAX, u16::MAX),
            lossless(16_384, 16_384),
            lossy(16_383, 16_383),
            extended(1 << 24, 1 << 24),
        ];
        for bomb in bombs {
            assert_eq!(fitting(Wanted::Image, None, &bomb), Err(Reason::TooManyPixels));
        }
        assert_eq!(fitting(Wanted::Image, None, &png(0, 7)), Err(Reason::Type));
    }

    #[test]
    fn a_head_cut_short_anywhere_is_refused_and_nothing_panics() {
        let whole = [png(9, 9), gif(9, 9), jpeg(0xc0, 9, 9), lossless(9, 9), lossy(9, 9), extended(9, 9)];
        for bytes in whole {
            let kind = sniffed(&bytes).unwrap();
            let needed = (0..=bytes.len()).find(|end| size(kind, &bytes[..*end]).is_some()).unwrap();
            for end in 0..needed {
                assert_eq!(fitting(Wanted::Image, None, &bytes[..end]), Err(Reason::Type), "{kind} up to {end}");
            }
        }
        assert_eq!(super::jpeg(b"\xff\xd8\xff\xe0\0\0"), None, "a segment without a length does not go on for ever");
    }
}
