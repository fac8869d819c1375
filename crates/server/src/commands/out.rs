//! What commands print. A name is somebody else's text, and nothing in it may act on the terminal; whoever reads may stop
//! at any line, as `head` does, and that is no failure.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write as _};

use anyhow::Context as _;

/// Nobody reads any more.
#[derive(Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the standard output is closed")
    }
}

impl std::error::Error for Closed {}

/// Prints a line, or fails: `println!` would panic.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::commands::out::text(format_args!("{}\n", format_args!($($text)*)))
    };
}
pub(crate) use say;

pub fn text(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    match io::stdout().lock().write_fmt(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        written => written.context("the standard output cannot be written to"),
    }
}

/// A name as it can be shown: characters that control a terminal, break a line or turn the direction of writing are
/// written out.
pub fn shown(name: &str) -> Cow<'_, str> {
    if !name.contains(acts) {
        return name.into();
    }
    let mut shown = String::with_capacity(name.len() + 8);
    for character in name.chars() {
        if acts(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown.into()
}

fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_act_on_a_terminal() {
        for plain in ["", "laptop", "Größe \"1\" \\n", "名前", "👩‍💻"] {
            assert!(matches!(shown(plain), Cow::Borrowed(text) if text == plain), "{plain}");
        }
        for (name, expected) in [
            ("a\u{1b}[2Jb", r"a\u{1b}[2Jb"),
            ("a\r\nb\t", r"a\r\nb\t"),
            ("\u{9b}31m\u{7f}\0", r"\u{9b}31m\u{7f}\u{0}"),
            ("\u{202e}txt\u{2069}", r"\u{202e}txt\u{2069}"),
        ] {
            assert_eq!(shown(name), expected);
        }
    }
}
