//! The text layer of a PDF, page by page.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pdf_extract::{Dictionary, Document, Object, PlainTextOutput, output_doc_page};

use super::Page;

/// Pages that are read.
const MOST_PAGES: usize = 500;

pub fn page(bytes: &[u8], most: usize) -> Option<Page> {
    let mut document = Document::load_mem(bytes).ok()?;
    if document.is_encrypted() {
        // Many are locked against printing only, and open without a password.
        document.decrypt("").ok()?;
    }
    let numbers: Vec<u32> = document.get_pages().into_keys().collect();
    if numbers.is_empty() {
        return None;
    }
    let (mut text, mut said) = (String::new(), false);
    for number in numbers.iter().take(MOST_PAGES) {
        if text.len() > most {
            break;
        }
        // The library panics at a font that it does not know; the other pages may be fine.
        let read = catch_unwind(AssertUnwindSafe(|| text_of(&document, *number)));
        let Some(page) = read.ok().flatten().filter(|page| !page.trim().is_empty()) else { continue };
        said = true;
        text.push_str(&format!("\n\n[page {number}]\n\n{}", page.trim()));
    }
    let left = numbers.len().saturating_sub(MOST_PAGES);
    if left > 0 && said {
        text.push_str(&format!("\n\n[{left} more pages were not read]"));
    }
    Some(Page { title: title(&document), pages: Some(numbers.len()), text })
}

fn text_of(document: &Document, number: u32) -> Option<String> {
    let mut text = String::new();
    let mut output = PlainTextOutput::new(&mut text);
    output_doc_page(document, &mut output, number).ok()?;
    Some(text)
}

fn title(document: &Document) -> Option<String> {
    let info: &Dictionary = match document.trailer.get(b"Info").ok()? {
        Object::Reference(id) => document.get_dictionary(*id).ok()?,
        Object::Dictionary(info) => info,
        _ => return None,
    };
    let Object::String(bytes, _) = info.get(b"Title").ok()? else { return None };
    Some(match bytes.as_slice() {
        [0xfe, 0xff, rest @ ..] => {
            let units: Vec<u16> = rest.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16_lossy(&units)
        }
        // Nearly Latin 1, but for a few signs.
        bytes => bytes.iter().map(|byte| char::from(*byte)).collect(),
    })
}
