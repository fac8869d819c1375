//! Paragraphs and tables, which documents and slides write nearly alike.

use super::{Node, attribute, each, row};

/// What is read of a part, in Markdown.
pub fn read(xml: &str, most: usize, out: &mut String) {
    let mut words = Words::new(out);
    each(xml, &mut |node| {
        words.take(node);
        words.out.len() <= most
    });
}

struct Words<'a> {
    out: &'a mut String,
    line: String,
    /// Depth in what is said once more for programs that do not know the first form.
    skips: u32,
    is_text: bool,
    is_run: bool,
    heading: usize,
    /// Of the box that a slide's words stand in.
    title: usize,
    is_item: bool,
    /// Tables within tables are part of the cell that they stand in.
    tables: u32,
    cells: Vec<String>,
}

impl<'a> Words<'a> {
    fn new(out: &'a mut String) -> Self {
        Self {
            out,
            line: String::new(),
            skips: 0,
            is_text: false,
            is_run: false,
            heading: 0,
            title: 0,
            is_item: false,
            tables: 0,
            cells: Vec::new(),
        }
    }

    fn take(&mut self, node: Node<'_>) {
        match node {
            Node::Open("Fallback", _) => self.skips += 1,
            Node::Close("Fallback") => self.skips = self.skips.saturating_sub(1),
            _ if self.skips > 0 => {}
            Node::Open("p", _) => {
                self.line.clear();
                (self.heading, self.is_item) = (self.title, false);
            }
            Node::Close("p") => self.paragraph(),
            Node::Open("pStyle", tag) => {
                let style = attribute(tag, "val", true).unwrap_or_default();
                self.is_item = ["ListBullet", "ListNumber"].iter().any(|list| style.starts_with(list));
                self.heading = match style.strip_prefix("Heading").and_then(|level| level.parse().ok()) {
                    Some(level @ 1..=6) => level,
                    _ if style == "Title" => 1,
                    _ => 0,
                };
            }
            Node::Open("numPr", _) => self.is_item = true,
            // Of slides: what stands in the box for the title.
            Node::Open("ph", tag) => {
                let kind = attribute(tag, "type", false).unwrap_or_default();
                self.title = if matches!(kind.as_str(), "title" | "ctrTitle") { 2 } else { 0 };
            }
            Node::Close("sp") => self.title = 0,
            Node::Open("r", _) => self.is_run = true,
            Node::Close("r") => self.is_run = false,
            Node::Open("t", _) => self.is_text = true,
            Node::Close("t") => self.is_text = false,
            Node::Text(text) if self.is_text => self.line.push_str(text),
            // Elsewhere it is where one could stand.
            Node::Open("tab", _) if self.is_run => self.line.push('\t'),
            Node::Open("br" | "cr", _) => self.line.push('\n'),
            Node::Open("tbl", _) => self.tables += 1,
            Node::Close("tbl") => {
                self.tables = self.tables.saturating_sub(1);
                self.out.push('\n');
            }
            Node::Open("tr", _) if self.tables == 1 => self.cells.clear(),
            Node::Open("tc", _) if self.tables == 1 => self.cells.push(String::new()),
            Node::Close("tr") if self.tables == 1 => row(&self.cells, self.out),
            _ => {}
        }
    }

    fn paragraph(&mut self) {
        let line = self.line.trim();
        if line.is_empty() {
            return;
        }
        if let (1.., Some(cell)) = (self.tables, self.cells.last_mut()) {
            cell.push(' ');
            cell.push_str(line);
            return;
        }
        match (self.heading, self.is_item) {
            (0, true) => self.out.push_str("- "),
            (0, false) => self.out.push('\n'),
            (level, _) => {
                self.out.push('\n');
                self.out.push_str(&"#".repeat(level));
                self.out.push(' ');
            }
        }
        self.out.push_str(line);
        self.out.push('\n');
    }
}
