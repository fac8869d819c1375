//! Text in whichever encoding it came.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Where a page may say how it is encoded.
const HEAD: usize = 1024;

/// The text of bytes: by their mark, by what their sender says, by what they say themselves. What says nothing is UTF-8
/// if it can be, else what the web was written in before. What cannot be read is replaced, never refused.
pub fn decoded(bytes: &[u8], declared: Option<&str>) -> String {
    let named = |label: &str| Encoding::for_label(label.trim().trim_matches(['"', '\'']).as_bytes());
    let said = declared.and_then(named).or_else(|| own_word(bytes).and_then(|label| named(&label)));
    let encoding = said.unwrap_or_else(|| if std::str::from_utf8(bytes).is_ok() { UTF_8 } else { WINDOWS_1252 });
    let (text, _, _) = encoding.decode(bytes);
    text.into_owned()
}

/// The label in `<meta charset=…>`, `content="…; charset=…"` or `<?xml encoding="…"?>`.
fn own_word(bytes: &[u8]) -> Option<String> {
    let head: String = bytes.iter().take(HEAD).map(|byte| char::from(*byte).to_ascii_lowercase()).collect();
    let markup = head.trim_start();
    if !markup.starts_with('<') {
        return None;
    }
    let word = if markup.starts_with("<?xml") { "encoding" } else { "charset" };
    let (_, rest) = head.split_once(word)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:.".contains(c))).unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_in_the_encoding_that_it_has() {
        // "é" is E9 in Latin 1, C3 A9 in UTF-8; "あ" is 82 A0 in Shift_JIS.
        let table: [(&[u8], Option<&str>, &str); 11] = [
            ("é".as_bytes(), None, "é"),
            (b"\xe9", None, "é"),
            (b"\xe9", Some("ISO-8859-1"), "é"),
            (b"\xe9", Some("utf-8"), "\u{fffd}"),
            (b"\x82\xa0", Some("\"shift_jis\""), "あ"),
            (b"\xef\xbb\xbfa", Some("shift_jis"), "a"),
            (b"\xff\xfea\0", None, "a"),
            (b"<meta charset=shift_jis>\x82\xa0", None, "<meta charset=shift_jis>あ"),
            (
                b"<META content='x; Charset = \"shift_jis\"'>\x82\xa0",
                None,
                "<META content='x; Charset = \"shift_jis\"'>あ",
            ),
            (b"<?xml encoding='iso-8859-1'?>\xe9", None, "<?xml encoding='iso-8859-1'?>é"),
            (b"\xc3\xa9", Some("no such"), "é"),
        ];
        for (bytes, declared, text) in table {
            assert_eq!(decoded(bytes, declared), text, "{} {declared:?}", bytes.escape_ascii());
        }
    }
}
