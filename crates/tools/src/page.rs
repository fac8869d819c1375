//! The text of a page, a PDF or a file of an office. All are written by strangers and read by parsers that may crash, recurse or never end, so
//! nobody calls this but a child process with limits of its own.

mod html;
mod office;
mod pdf;

use serde::{Deserialize, Serialize};

/// What bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Html,
    Pdf,
    Word,
    Sheets,
    Slides,
}

impl Kind {
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "html" => Some(Self::Html),
            "pdf" => Some(Self::Pdf),
            "docx" => Some(Self::Word),
            "xlsx" => Some(Self::Sheets),
            "pptx" => Some(Self::Slides),
            _ => None,
        }
    }

    /// What an office calls its files.
    pub fn of_office(media_type: &str) -> Option<Self> {
        let name = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match name.strip_prefix("application/vnd.openxmlformats-officedocument.")? {
            "wordprocessingml.document" => Some(Self::Word),
            "spreadsheetml.sheet" => Some(Self::Sheets),
            "presentationml.presentation" => Some(Self::Slides),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Pdf => "pdf",
            Self::Word => "docx",
            Self::Sheets => "xlsx",
            Self::Slides => "pptx",
        }
    }
}

/// What they say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    pub title: Option<String>,
    /// How many pages a PDF has, or slides a presentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<usize>,
    pub text: String,
}

/// Longest title, in bytes.
const LONGEST_TITLE: usize = 512;

impl Page {
    /// Reads at most `most` bytes of text; `None` when there is nothing that could be read. HTML is UTF-8.
    pub fn of(kind: Kind, bytes: &[u8], most: usize) -> Option<Self> {
        let mut page = match kind {
            Kind::Html => html::page(&String::from_utf8_lossy(bytes)),
            Kind::Pdf => pdf::page(bytes, most)?,
            Kind::Word => office::document(bytes, most)?,
            Kind::Sheets => office::sheets(bytes, most)?,
            Kind::Slides => office::slides(bytes, most)?,
        };
        page.text = plain(&page.text);
        page.text.truncate(page.text.floor_char_boundary(most));
        page.title = page.title.map(|title| title.split_whitespace().collect::<Vec<_>>().join(" "));
        if let Some(title) = &mut page.title {
            *title = plain(title);
            title.truncate(title.floor_char_boundary(LONGEST_TITLE));
        }
        page.title = page.title.filter(|title| !title.is_empty());
        Some(page)
    }
}

/// Without control characters, without spaces at the end of lines, with at most one empty line at a time.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines() {
        let start = out.len();
        out.extend(line.trim_end().chars().filter(|character| !character.is_control() || *character == '\t'));
        if out.len() == start {
            empty += 1;
            continue;
        }
        if start > 0 {
            out.insert_str(start, if empty > 0 { "\n\n" } else { "\n" });
        }
        empty = 0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_tidied() {
        assert_eq!(plain("\n\n a \r\nb\0\x1b[2J\t\n\n\n\nc\n\n"), " a\nb[2J\n\nc");
        let page = Page::of(Kind::Html, "<title> a\n b </title>häuser".as_bytes(), 2).unwrap();
        assert_eq!((page.title.as_deref(), &*page.text), (Some("a b"), "h"), "never within a character");
        assert_eq!(Page::of(Kind::Pdf, b"no pdf", 10), None);
    }
}
