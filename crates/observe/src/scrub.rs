//! The last net under the logs: what looks like a key is replaced on its way out, and counted. Nothing that we write should
//! ever be caught here; a count above zero is a defect somewhere else.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;
use regex::bytes::Regex;
use tidegate_core::secret::{ACCESS_KEY_STARTS, KEY_STARTS};

const IN_PLACE: &[u8] = b"[redacted]";

/// How often something was caught; one for the process, as its log is.
pub static HITS: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Our own keys, those of common providers, tokens of their identity services, and whatever stands where credentials do.
static SECRETS: LazyLock<Regex> = LazyLock::new(|| {
    let starts = KEY_STARTS.map(regex::escape).join("|");
    let forms = [
        r"sk-[a-z0-9-]+-v1-[A-Za-z0-9]{8,}",
        &format!(r"\b(?:{starts})[A-Za-z0-9_-]{{16,}}"),
        &format!(r"\b(?:{})[0-9A-Z]{{16}}\b", ACCESS_KEY_STARTS.join("|")),
        r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
        r#"(?i-u)\b(?:proxy-authorization|authorization|x-api-key|x-goog-api-key|api-key)\b\\?["']?\s*[:=]\s*\\?["']?(?:[A-Za-z0-9-]{1,20}\s+)?[^\s"',}\\]{4,}"#,
        r#"(?i-u)\bbearer\s+[^\s"',}]{8,}"#,
    ];
    Regex::new(&forms.join("|")).expect("the forms are written here")
});

/// The text without what looks like a key; borrowed where there is none.
pub fn scrubbed(text: &[u8]) -> Cow<'_, [u8]> {
    SECRETS.replace_all(text, IN_PLACE)
}

/// Scrubs each piece that is written; a line of the log is one.
pub struct Scrubbed<W>(pub W);

impl<W: Write> Write for Scrubbed<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match scrubbed(piece) {
            Cow::Borrowed(clean) => self.0.write_all(clean)?,
            Cow::Owned(clean) => {
                HITS.inc();
                self.0.write_all(&clean)?;
            }
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> String {
        String::from_utf8(scrubbed(text.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn what_looks_like_a_key_does_not_come_through() {
        for (text, expected) in [
            ("key sk-tg-v1-0e6abcdefgh9c96 used", "key [redacted] used"),
            ("sk-tgm-v1-ABCDEFGH12345678", "[redacted]"),
            ("x=sk-ant-api03-abcdefghijklmnopqrst,y", "x=[redacted],y"),
            ("sk-proj-abcdefghijklmnopqrstuv", "[redacted]"),
            ("AKIAIOSFODNN7EXAMPLE.", "[redacted]."),
            ("fw_0123456789abcdefABCD, tgp_v1_0123456789abcdefABCD", "[redacted], [redacted]"),
            ("AIzaSyA-1234567890abcdefghijklmnopqrstuv", "[redacted]"),
            (r#"{"authorization":"Bearer abcd1234"}"#, r#"{"[redacted]"}"#),
            ("Authorization: Basic dXNlcjpwdw== end", "[redacted] end"),
            ("x-api-key=own-key-0123", "[redacted]"),
            (r#"{\"x-api-key\":\"own-key-0123\"}"#, r#"{\"[redacted]\"}"#),
            ("Authorization: Token abcdef123456 end", "[redacted] end"),
            ("got bearer 0123456789 there", "got [redacted] there"),
        ] {
            assert_eq!(clean(text), expected);
        }
    }

    #[test]
    fn what_is_no_key_stays() {
        for text in [
            "request finished generation_id=gen-01a1e2c2 key=63b2f0aa model=v/task-oriented",
            "a label sk-tg-v1-0e6...9c96",
            "refused: missing authorization header",
            "sk-short",
        ] {
            assert_eq!(clean(text), text);
        }
    }

    #[test]
    fn a_catch_is_counted_and_the_rest_of_the_line_is_written() {
        let (before, mut out) = (HITS.get(), Vec::new());
        let mut writer = Scrubbed(&mut out);
        writer.write_all(b"a plain line\n").unwrap();
        writer.write_all(b"a line with sk-tg-v1-ABCDEFGH1234 in it\n").unwrap();
        assert_eq!(out, b"a plain line\na line with [redacted] in it\n");
        assert_eq!(HITS.get() - before, 1);
    }
}
