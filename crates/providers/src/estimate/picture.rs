//! What images and PDFs count, from their size on the screen.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use tidegate_wire::messages::Source;

use crate::translate::card::Tokenizer;

/// A picture whose size cannot be told.
const UNKNOWN: u64 = 1_568;
/// As much of a picture as its size is found in.
const HEAD: usize = 64 << 10;
const BYTES_OF_A_PAGE: usize = 40 << 10;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Width and height, from the first bytes of a PNG, JPEG, GIF or WebP.
pub fn dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    let big = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let big16 = |at: usize| Some(u32::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    let little16 = |at: usize| Some(u32::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    let little24 = |at: usize| {
        let three = bytes.get(at..at + 3)?;
        Some(u32::from(three[0]) | u32::from(three[1]) << 8 | u32::from(three[2]) << 16)
    };
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Some((big(16)?, big(20)?));
    }
    if bytes.starts_with(b"GIF8") {
        return Some((little16(6)?, little16(8)?));
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12)? == b"WEBP" {
        return match bytes.get(12..16)? {
            b"VP8X" => Some((little24(24)? + 1, little24(27)? + 1)),
            b"VP8L" => {
                let bits = u32::from_le_bytes(bytes.get(21..25)?.try_into().ok()?);
                Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
            }
            _ => Some((little16(26)? & 0x3fff, little16(28)? & 0x3fff)),
        };
    }
    if bytes.starts_with(b"\xff\xd8") {
        let mut at = 2;
        // Segments, until the one that says how large the frame is.
        while bytes.get(at)? == &0xff {
            let kind = *bytes.get(at + 1)?;
            let is_frame = (0xc0..=0xcf).contains(&kind) && !matches!(kind, 0xc4 | 0xc8 | 0xcc);
            if is_frame {
                return Some((big16(at + 7)?, big16(at + 5)?));
            }
            at += 2 + usize::try_from(big16(at + 2)?).ok()?;
        }
    }
    None
}

/// The tokens of a picture of this size.
pub fn tokens(size: Option<(u32, u32)>, tokenizer: Tokenizer) -> u64 {
    let Some((width, height)) = size.filter(|(width, height)| *width > 0 && *height > 0) else { return UNKNOWN };
    let (width, height) = (u64::from(width), u64::from(height));
    let patches = |side: u64| width.div_ceil(side).saturating_mul(height.div_ceil(side));
    match tokenizer {
        Tokenizer::Claude | Tokenizer::ClaudeNew => {
            let (edge, most) = if tokenizer == Tokenizer::Claude { (1_568, 1_568) } else { (2_576, 4_784) };
            fitted(width, height, edge, most)
        }
        // Patches of the recent models, with the factor of the larger ones.
        Tokenizer::Openai => (patches(32).min(1_536) * 12).div_ceil(10),
        Tokenizer::Gemini => 1_120,
        Tokenizer::Bytes | Tokenizer::Open => patches(28).min(4_096),
    }
}

/// Patches of a picture that is made smaller until it fits.
fn fitted(width: u64, height: u64, edge: u64, most: u64) -> u64 {
    let patches = |width: f64, height: f64| (width / 28.0).ceil() * (height / 28.0).ceil();
    let (mut wide, mut high) = (width as f64, height as f64);
    let longest = wide.max(high);
    if longest > edge as f64 {
        let factor = edge as f64 / longest;
        (wide, high) = (wide * factor, high * factor);
    }
    while patches(wide, high) > most as f64 {
        (wide, high) = (wide * 0.99, high * 0.99);
    }
    patches(wide, high) as u64
}

/// The tokens of an image block.
pub(super) fn of_source(source: &Source, tokenizer: Tokenizer) -> u64 {
    let Source::Base64(source) = source else { return tokens(None, tokenizer) };
    let head = source.data.len().min(HEAD) / 4 * 4;
    let bytes = source.data.get(..head).and_then(|head| LENIENT.decode(head).ok());
    tokens(bytes.as_deref().and_then(dimensions), tokenizer)
}

/// One page of a PDF: its picture and its text.
pub(super) fn page(tokenizer: Tokenizer) -> u64 {
    match tokenizer {
        Tokenizer::Gemini => 560,
        _ => 3_000,
    }
}

/// The tokens of a PDF, by its pages; where they cannot be told, by its weight.
pub(super) fn of_pdf(data: &str, tokenizer: Tokenizer) -> u64 {
    let bytes = LENIENT.decode(data.trim_end()).unwrap_or_default();
    let pages = pages(&bytes).unwrap_or_else(|| (bytes.len() as u64).div_ceil(BYTES_OF_A_PAGE as u64));
    pages.max(1).saturating_mul(page(tokenizer))
}

/// Page objects, or what the document says it has.
fn pages(bytes: &[u8]) -> Option<u64> {
    let is_page = |rest: &[u8]| {
        let rest = rest.trim_ascii_start();
        rest.starts_with(b"/Page") && !rest.starts_with(b"/Pages")
    };
    let objects = memchr_iter(bytes, b"/Type").filter(|at| is_page(&bytes[at + 5..])).count() as u64;
    if objects > 0 {
        return Some(objects);
    }
    let counts = memchr_iter(bytes, b"/Count").filter_map(|at| {
        let digits: Vec<u8> =
            bytes[at + 6..].trim_ascii_start().iter().copied().take_while(u8::is_ascii_digit).take(6).collect();
        std::str::from_utf8(&digits).ok()?.parse::<u64>().ok()
    });
    counts.max().filter(|count| *count > 0)
}

/// Where a word stands.
fn memchr_iter<'a>(bytes: &'a [u8], word: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes.windows(word.len()).enumerate().filter(move |(_, window)| *window == word).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice(), &width.to_be_bytes(), &height.to_be_bytes()].concat()
    }

    #[test]
    fn the_size_is_in_the_first_bytes() {
        assert_eq!(dimensions(&png(800, 600)), Some((800, 600)));
        assert_eq!(dimensions(b"GIF89a\x20\x03\x58\x02"), Some((800, 600)));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\x02\x58\x03\x20";
        assert_eq!(dimensions(jpeg), Some((800, 600)));
        let webp = b"RIFF....WEBPVP8X\0\0\0\0....\x1f\x03\0\x57\x02\0";
        assert_eq!(dimensions(webp), Some((800, 600)));
        for broken in
            [&b""[..], b"\xff\xd8", b"\xff\xd8\xff\xe0\xff", b"RIFF....WEBP", b"\x89PNG\r\n\x1a\n", b"%PDF-1.7"]
        {
            assert_eq!(dimensions(broken), None);
        }
    }

    #[test]
    fn a_square_of_1024_counts_what_was_observed() {
        let size = Some((1_024, 1_024));
        assert_eq!(tokens(size, Tokenizer::Claude), 1_369);
        assert_eq!(tokens(size, Tokenizer::Openai), 1_229);
        assert_eq!(tokens(Some((8_000, 8_000)), Tokenizer::Claude), 1_521, "made smaller until it fits");
        assert_eq!(tokens(None, Tokenizer::Claude), 1_568);
        assert!(tokens(Some((u32::MAX, u32::MAX)), Tokenizer::Bytes) == 4_096);
    }

    #[test]
    fn pages_are_counted_by_their_objects() {
        let two = b"%PDF /Type /Pages /Count 2 /Type /Page x /Type/Page y";
        assert_eq!(pages(two), Some(2));
        assert_eq!(pages(b"%PDF /Type /Pages /Count 7"), Some(7));
        assert_eq!(pages(b"%PDF"), None);
    }
}
