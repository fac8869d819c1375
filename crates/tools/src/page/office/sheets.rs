//! Tables of numbers, sheet by sheet. Formulas are told as what they came to.

use jiff::civil::{Date, DateTime};
use jiff::{SignedDuration, Span};

use super::{Archive, Node, attribute, each, find, row};
use crate::page::Page;

/// Columns that are read; what stands further out is seldom meant to be.
const MOST_COLUMNS: usize = 256;

/// The text of all sheets.
pub fn sheets(bytes: &[u8], most: usize) -> Option<Page> {
    let mut archive = Archive::open(bytes)?;
    let book = archive.part("xl/workbook.xml")?;
    let targets = archive.targets("xl");
    let (mut found, mut first_day) = (Vec::new(), Date::constant(1899, 12, 30));
    each(&book, &mut |node| {
        match node {
            Node::Open("workbookPr", tag) => {
                if matches!(attribute(tag, "date1904", false).as_deref(), Some("1" | "true")) {
                    first_day = Date::constant(1904, 1, 1);
                }
            }
            Node::Open("sheet", tag) => {
                let target = attribute(tag, "id", true).and_then(|id| find(&targets, &id));
                found.extend(target.map(|target| (attribute(tag, "name", false).unwrap_or_default(), target)));
            }
            _ => {}
        }
        true
    });
    let texts = archive.part("xl/sharedStrings.xml").map(|part| shared(&part)).unwrap_or_default();
    let dates = archive.part("xl/styles.xml").map(|part| dates(&part)).unwrap_or_default();
    let book = Book { texts, dates, first_day };
    let mut text = String::new();
    for (name, target) in found {
        if text.len() > most {
            break;
        }
        let Some(part) = archive.part(&target) else { continue };
        text.push_str(&format!("\n\n## {name}\n\n"));
        book.sheet(&part, most, &mut text);
    }
    Some(Page { title: archive.title(), pages: None, text })
}

struct Book {
    texts: Vec<String>,
    /// Which styles show a number as a date.
    dates: Vec<bool>,
    /// Before the first day that is counted.
    first_day: Date,
}

impl Book {
    fn sheet(&self, xml: &str, most: usize, out: &mut String) {
        let (mut cells, mut cell): (Vec<String>, Option<Cell>) = (Vec::new(), None);
        let mut is_value = false;
        each(xml, &mut |node| {
            match node {
                Node::Open("row", _) => cells.clear(),
                Node::Close("row") if cells.iter().any(|cell| !cell.is_empty()) => row(&cells, out),
                Node::Open("c", tag) => {
                    let place = attribute(tag, "r", false).and_then(|place| column(&place)).unwrap_or(cells.len());
                    let style = attribute(tag, "s", false).and_then(|style| style.parse().ok()).unwrap_or(0);
                    let kind = attribute(tag, "t", false).unwrap_or_default();
                    cell = Some(Cell { place, style, kind, value: String::new() });
                }
                Node::Close("c") => {
                    if let Some(cell) = cell.take().filter(|cell| cell.place < MOST_COLUMNS) {
                        cells.resize(cells.len().max(cell.place + 1), String::new());
                        cells[cell.place] = self.shown(&cell);
                    }
                }
                Node::Open("v" | "t", _) => is_value = true,
                Node::Close("v" | "t") => is_value = false,
                Node::Text(text) if is_value => {
                    if let Some(cell) = &mut cell {
                        cell.value.push_str(text);
                    }
                }
                _ => {}
            }
            out.len() <= most
        });
    }

    fn shown(&self, cell: &Cell) -> String {
        let value = cell.value.trim();
        match cell.kind.as_str() {
            "s" => value.parse().ok().and_then(|place: usize| self.texts.get(place)).cloned().unwrap_or_default(),
            "b" => if value == "1" { "TRUE" } else { "FALSE" }.to_owned(),
            "" | "n" if self.dates.get(cell.style) == Some(&true) => {
                value.parse().ok().and_then(|days| self.date(days)).unwrap_or_else(|| value.to_owned())
            }
            _ => value.to_owned(),
        }
    }

    /// Days since the first, and a part of one.
    fn date(&self, days: f64) -> Option<String> {
        let whole = days.floor();
        let date = self.first_day.checked_add(Span::new().try_days(whole as i64).ok()?).ok()?;
        let seconds = ((days - whole) * 86_400.0).round() as i64;
        if seconds == 0 {
            return Some(date.to_string());
        }
        let at: DateTime = date.to_datetime(jiff::civil::Time::midnight());
        let at = at.checked_add(SignedDuration::from_secs(seconds)).ok()?;
        // Without a day it is a time of any.
        Some(if whole == 0.0 { at.time().to_string() } else { at.to_string().replace('T', " ") })
    }
}

struct Cell {
    place: usize,
    style: usize,
    kind: String,
    value: String,
}

/// Texts that stand in many cells stand in one place.
fn shared(xml: &str) -> Vec<String> {
    let (mut texts, mut is_text, mut is_sound) = (Vec::new(), false, false);
    each(xml, &mut |node| {
        match node {
            Node::Open("si", _) => texts.push(String::new()),
            // How it is pronounced.
            Node::Open("rPh", _) => is_sound = true,
            Node::Close("rPh") => is_sound = false,
            Node::Open("t", _) => is_text = !is_sound,
            Node::Close("t") => is_text = false,
            Node::Text(text) if is_text => {
                if let Some(last) = texts.last_mut() {
                    last.push_str(text);
                }
            }
            _ => {}
        }
        true
    });
    texts
}

/// For each style of cells, whether it shows a date.
fn dates(xml: &str) -> Vec<bool> {
    let (mut own, mut styles, mut is_cells) = (Vec::new(), Vec::new(), false);
    each(xml, &mut |node| {
        match node {
            Node::Open("numFmt", tag) => {
                let code = attribute(tag, "formatCode", false).unwrap_or_default();
                own.extend(attribute(tag, "numFmtId", false).filter(|_| is_date(&code)));
            }
            Node::Open("cellXfs", _) => is_cells = true,
            Node::Close("cellXfs") => is_cells = false,
            Node::Open("xf", tag) if is_cells => {
                let id = attribute(tag, "numFmtId", false).unwrap_or_default();
                let is_known = matches!(id.parse::<u32>(), Ok(14..=22 | 45..=47));
                styles.push(is_known || own.contains(&id));
            }
            _ => {}
        }
        true
    });
    styles
}

/// Whether a pattern shows parts of a date; what is quoted or in brackets is shown as it is.
fn is_date(code: &str) -> bool {
    let (mut is_quoted, mut depth) = (false, 0_u32);
    code.chars().any(|sign| {
        match sign {
            '"' => is_quoted = !is_quoted,
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        !is_quoted && depth == 0 && matches!(sign, 'y' | 'd' | 'h' | 'Y' | 'D' | 'H')
    })
}

/// The number of a column, from 0, of a name such as `AB12`.
fn column(place: &str) -> Option<usize> {
    let letters = place.bytes().take_while(u8::is_ascii_uppercase);
    let number = letters.take(4).fold(0, |number, letter| number * 26 + usize::from(letter - b'A') + 1);
    number.checked_sub(1)
}
