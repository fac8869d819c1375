//! Files of an office: archives of XML. What they say is told as Markdown; how it looks is not.

mod sheets;
mod words;

use std::io::{Cursor, Read as _};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use zip::ZipArchive;

use super::Page;

pub use sheets::sheets;

/// Bytes of XML that are read of one file: an archive may hold a thousand times of what it is long.
const MOST_BYTES: u64 = 64 << 20;
/// Slides that are read.
const MOST_SLIDES: usize = 500;

/// The text of a document.
pub fn document(bytes: &[u8], most: usize) -> Option<Page> {
    let mut archive = Archive::open(bytes)?;
    let mut text = String::new();
    words::read(&archive.part("word/document.xml")?, most, &mut text);
    for part in ["word/footnotes.xml", "word/endnotes.xml"] {
        if let Some(notes) = archive.part(part) {
            words::read(&notes, most, &mut text);
        }
    }
    Some(Page { title: archive.title(), pages: None, text })
}

/// The text of a presentation, slide by slide.
pub fn slides(bytes: &[u8], most: usize) -> Option<Page> {
    let mut archive = Archive::open(bytes)?;
    let list = archive.part("ppt/presentation.xml")?;
    let targets = archive.targets("ppt");
    let mut found = Vec::new();
    each(&list, &mut |node| {
        if let Node::Open("sldId", tag) = node {
            let target = attribute(tag, "id", true).and_then(|id| find(&targets, &id));
            found.extend(target);
        }
        true
    });
    let mut text = String::new();
    for (number, target) in (1..).zip(found.iter().take(MOST_SLIDES)) {
        if text.len() > most {
            break;
        }
        let Some(slide) = archive.part(target) else { continue };
        text.push_str(&format!("\n\n[slide {number}]\n\n"));
        words::read(&slide, most, &mut text);
    }
    Some(Page { title: archive.title(), pages: Some(found.len()), text })
}

struct Archive<'a> {
    files: ZipArchive<Cursor<&'a [u8]>>,
    left: u64,
}

impl<'a> Archive<'a> {
    fn open(bytes: &'a [u8]) -> Option<Self> {
        Some(Self { files: ZipArchive::new(Cursor::new(bytes)).ok()?, left: MOST_BYTES })
    }

    /// Nothing where it is missing, broken, or more than may be read.
    fn part(&mut self, name: &str) -> Option<String> {
        let file = self.files.by_name(name).ok()?;
        let mut bytes = Vec::new();
        file.take(self.left + 1).read_to_end(&mut bytes).ok()?;
        self.left = self.left.checked_sub(bytes.len() as u64)?;
        // All that are written today are UTF-8.
        Some(String::from_utf8(bytes).unwrap_or_else(|odd| String::from_utf8_lossy(odd.as_bytes()).into_owned()))
    }

    /// What the ids in the main part of a folder stand for.
    fn targets(&mut self, folder: &str) -> Vec<(String, String)> {
        let main = if folder == "xl" { "workbook" } else { "presentation" };
        let Some(part) = self.part(&format!("{folder}/_rels/{main}.xml.rels")) else { return Vec::new() };
        let mut targets = Vec::new();
        each(&part, &mut |node| {
            if let Node::Open("Relationship", tag) = node
                && let (Some(id), Some(target)) = (attribute(tag, "Id", false), attribute(tag, "Target", false))
            {
                let target = target.strip_prefix('/').map_or_else(|| format!("{folder}/{target}"), ToOwned::to_owned);
                targets.push((id, target));
            }
            true
        });
        targets
    }

    fn title(&mut self) -> Option<String> {
        let part = self.part("docProps/core.xml")?;
        let (mut title, mut is_title) = (String::new(), false);
        each(&part, &mut |node| {
            match node {
                Node::Open("title", _) => is_title = true,
                Node::Close("title") => is_title = false,
                Node::Text(text) if is_title => title.push_str(text),
                _ => {}
            }
            true
        });
        Some(title)
    }
}

fn find(targets: &[(String, String)], id: &str) -> Option<String> {
    targets.iter().find(|(known, _)| known == id).map(|(_, target)| target.clone())
}

/// A step through XML; names are without their prefixes, which everybody chooses for himself.
enum Node<'a> {
    /// Also of what is empty, which is closed at once.
    Open(&'a str, &'a BytesStart<'a>),
    Close(&'a str),
    Text(&'a str),
}

/// Goes through it until `step` has enough, or to where it is broken.
fn each(xml: &str, step: &mut dyn FnMut(Node<'_>) -> bool) {
    let mut reader = Reader::from_str(xml);
    reader.config_mut().check_end_names = false;
    loop {
        let goes_on = match reader.read_event() {
            Err(_) | Ok(Event::Eof) => false,
            Ok(Event::Start(tag)) => step(Node::Open(tag.local_name().as_ref(), &tag)),
            Ok(Event::Empty(tag)) => {
                let name = tag.local_name();
                step(Node::Open(name.as_ref(), &tag)) && step(Node::Close(name.as_ref()))
            }
            Ok(Event::End(tag)) => step(Node::Close(tag.local_name().as_ref())),
            Ok(Event::Text(text)) => step(Node::Text(&text)),
            Ok(Event::CData(text)) => step(Node::Text(&text)),
            Ok(Event::GeneralRef(named)) => {
                let known = named.resolve_char_ref().ok().flatten().map(String::from);
                let text = known.unwrap_or_else(|| entity(&named).to_owned());
                step(Node::Text(&text))
            }
            Ok(_) => true,
        };
        if !goes_on {
            return;
        }
    }
}

/// The five that there are; nobody may define others.
fn entity(name: &str) -> &'static str {
    match name {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        _ => "",
    }
}

/// The value of an attribute; one that `is_prefixed` is another than the one that is not.
fn attribute(tag: &BytesStart<'_>, name: &str, is_prefixed: bool) -> Option<String> {
    let found = tag.attributes().flatten().find(|attribute| {
        attribute.key.local_name().as_ref() == name && attribute.key.prefix().is_some() == is_prefixed
    })?;
    let mut value = String::new();
    let mut rest = &*found.value;
    while let Some((before, after)) = rest.split_once('&') {
        let (named, after) = after.split_once(';')?;
        value.push_str(before);
        value.push_str(entity(named));
        rest = after;
    }
    value.push_str(rest);
    Some(value)
}

/// A row of a table, as Markdown writes it.
fn row(cells: &[String], out: &mut String) {
    out.push('|');
    for cell in cells {
        let cell = cell.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        out.push(' ');
        out.push_str(&cell);
        out.push_str(" |");
    }
    out.push('\n');
}

#[cfg(test)]
mod tests;
