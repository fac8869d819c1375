//! HTML as Markdown: headings, lists, links, code and tables, without what surrounds the text. It works on tokens and
//! builds no tree, so neither nesting nor what was never closed costs anything.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

use super::Page;

/// What is no part of the text.
const LEFT_OUT: [&str; 20] = [
    "aside", "audio", "button", "canvas", "datalist", "dialog", "footer", "iframe", "math", "nav", "noscript",
    "object", "script", "select", "style", "svg", "template", "textarea", "video", "noframes",
];
/// What stands on lines of its own.
const BLOCKS: [&str; 28] = [
    "address",
    "article",
    "blockquote",
    "body",
    "caption",
    "center",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "form",
    "header",
    "hgroup",
    "legend",
    "ol",
    "p",
    "search",
    "section",
    "summary",
    "table",
    "tbody",
    "tfoot",
    "thead",
    "ul",
];
/// Longest address of a link that is told.
const LONGEST_LINK: usize = 512;
/// Deepest list that is told as one.
const DEEPEST: usize = 16;

pub fn page(text: &str) -> Page {
    let input = BufferQueue::default();
    input.push_back(StrTendril::from_slice(text));
    let tokenizer = Tokenizer::new(Sink(RefCell::default()), TokenizerOpts::default());
    // It stops for scripts only, which nobody tells it of.
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner().page()
}

#[derive(Default)]
struct Sink(RefCell<Writer>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        let mut writer = self.0.borrow_mut();
        match token {
            Token::CharacterTokens(text) => writer.text(&text),
            Token::TagToken(tag) if tag.kind == TagKind::StartTag => {
                writer.start(&tag);
                return raw(&tag.name);
            }
            Token::TagToken(tag) => writer.end(&tag.name),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// What is not markup up to its end tag.
fn raw(name: &str) -> TokenSinkResult<()> {
    match name {
        "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
        "script" => TokenSinkResult::RawData(RawKind::ScriptData),
        "style" | "iframe" | "xmp" | "noembed" | "noframes" => TokenSinkResult::RawData(RawKind::Rawtext),
        "plaintext" => TokenSinkResult::Plaintext,
        _ => TokenSinkResult::Continue,
    }
}

/// A list that is open: the number of its next item where it is numbered.
type List = Option<u64>;

#[derive(Default)]
struct Writer {
    out: String,
    title: Option<String>,
    in_title: bool,
    /// What is being left out, and how often it was opened within itself.
    left_out: Option<(String, usize)>,
    lists: Vec<List>,
    /// Where the text of an open link begins, and where it leads.
    link: Option<(usize, String)>,
    in_pre: bool,
    /// A space is due before the next word.
    space: bool,
    /// What stood before the main part, for the case that there is nothing in it.
    before: Option<String>,
    is_over: bool,
}

impl Writer {
    fn page(mut self) -> Page {
        self.close_link();
        if self.out.trim().is_empty()
            && let Some(before) = self.before
        {
            self.out = before;
        }
        Page { title: self.title, pages: None, text: self.out }
    }

    fn text(&mut self, text: &str) {
        if self.in_title {
            self.title.get_or_insert_default().push_str(text);
            return;
        }
        if self.left_out.is_some() || self.is_over {
            return;
        }
        if self.in_pre {
            self.out.push_str(text);
            return;
        }
        for (place, word) in text.split(|c: char| c.is_whitespace() && c != '\u{a0}').enumerate() {
            self.space |= place > 0;
            if !word.is_empty() {
                self.word(word);
            }
        }
    }

    fn word(&mut self, word: &str) {
        if std::mem::take(&mut self.space) && !self.out.is_empty() && !self.out.ends_with(['\n', ' ', '[']) {
            self.out.push(' ');
        }
        self.out.push_str(word);
    }

    /// Ends the line, and leaves one empty where `empty`.
    fn line(&mut self, empty: bool) {
        self.space = false;
        if self.out.is_empty() {
            return;
        }
        let has = self.out.len() - self.out.trim_end_matches('\n').len();
        for _ in has..if empty { 2 } else { 1 } {
            self.out.push('\n');
        }
    }

    fn start(&mut self, tag: &Tag) {
        let name: &str = &tag.name;
        if let Some((left_out, depth)) = &mut self.left_out {
            *depth += usize::from(left_out == name && !tag.self_closing);
            return;
        }
        if self.is_over {
            return;
        }
        if LEFT_OUT.contains(&name) {
            if !tag.self_closing || matches!(name, "script" | "style" | "iframe" | "textarea" | "noframes") {
                self.left_out = Some((name.to_owned(), 1));
            }
            return;
        }
        let attribute = |wanted: &str| {
            let found = tag.attrs.iter().find(|attribute| &*attribute.name.local == wanted);
            found.map(|attribute| attribute.value.trim().to_owned())
        };
        match name {
            "title" if self.title.is_none() => self.in_title = true,
            // One of a drawing.
            "title" => self.left_out = Some((name.to_owned(), 1)),
            "main" if self.before.is_none() => {
                self.close_link();
                self.before = Some(std::mem::take(&mut self.out));
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.line(true);
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.out.extend(std::iter::repeat_n('#', level).chain([' ']));
            }
            "br" => self.out.push('\n'),
            "hr" => {
                self.line(true);
                self.out.push_str("---\n\n");
            }
            "li" => self.item(),
            "ul" | "ol" | "menu" if self.lists.len() < DEEPEST => {
                self.line(self.lists.is_empty());
                self.lists.push((name == "ol").then_some(1));
            }
            "tr" => self.line(false),
            "td" | "th" => {
                if !self.out.is_empty() && !self.out.ends_with('\n') {
                    self.out.push_str(" | ");
                }
                self.space = false;
            }
            "pre" if !self.in_pre => {
                self.line(true);
                self.out.push_str("```\n");
                self.in_pre = true;
            }
            "code" if !self.in_pre => self.mark(),
            "a" => {
                self.close_link();
                if let Some(to) = attribute("href").filter(|to| is_told(to)) {
                    self.mark_at("[");
                    self.link = Some((self.out.len(), to));
                }
            }
            "img" => {
                if let Some(text) = attribute("alt").filter(|text| !text.is_empty()) {
                    self.space = true;
                    self.word(&format!("[image: {text}]"));
                    self.space = true;
                }
            }
            name if BLOCKS.contains(&name) => self.line(self.lists.is_empty()),
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if let Some((left_out, depth)) = &mut self.left_out {
            if left_out == name {
                *depth -= 1;
                if *depth == 0 {
                    self.left_out = None;
                }
            }
            return;
        }
        if name == "title" {
            self.in_title = false;
        }
        if self.is_over {
            return;
        }
        match name {
            "main" => {
                self.close_link();
                self.is_over = self.before.is_some() && !self.out.trim().is_empty();
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.line(true),
            "ul" | "ol" | "menu" => {
                self.lists.pop();
                self.line(self.lists.is_empty());
            }
            "pre" if self.in_pre => {
                self.in_pre = false;
                self.line(false);
                self.out.push_str("```\n\n");
            }
            "code" if !self.in_pre => self.out.push('`'),
            "a" => self.close_link(),
            name if BLOCKS.contains(&name) => self.line(self.lists.is_empty()),
            _ => {}
        }
    }

    fn item(&mut self) {
        self.line(false);
        let depth = self.lists.len().saturating_sub(1);
        self.out.extend(std::iter::repeat_n("  ", depth));
        match self.lists.last_mut() {
            Some(Some(number)) => {
                self.out.push_str(&format!("{number}. "));
                *number += 1;
            }
            _ => self.out.push_str("- "),
        }
    }

    fn mark(&mut self) {
        self.mark_at("`");
    }

    fn mark_at(&mut self, mark: &str) {
        self.word("");
        self.out.push_str(mark);
    }

    /// A link without a text is none.
    fn close_link(&mut self) {
        let Some((start, to)) = self.link.take() else { return };
        match self.out.get(start..) {
            Some(text) if !text.trim().is_empty() => self.out.push_str(&format!("]({to})")),
            _ => self.out.truncate(start.saturating_sub(1)),
        }
    }
}

/// Whether a link leads to another page.
fn is_told(to: &str) -> bool {
    let elsewhere = |scheme: &str| to.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    !to.is_empty()
        && to.len() <= LONGEST_LINK
        && !to.starts_with('#')
        && !to.contains(|c: char| c.is_whitespace() || "()".contains(c))
        && !["javascript:", "data:", "vbscript:", "blob:"].iter().any(|scheme| elsewhere(scheme))
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Page};

    fn read(html: &str) -> Page {
        Page::of(Kind::Html, html.as_bytes(), usize::MAX).unwrap()
    }

    #[test]
    fn a_page_becomes_markdown_without_what_surrounds_it() {
        let html = "<!doctype html><html><head><title>The &amp; tide</title><style>p { color: red }</style>\
            <script>if (a < b) { document.write('<p>no</p>') }</script></head><body>\
            <nav><ul><li><a href=/>Home</a></ul></nav><header><h1>High   water</h1></header>\
            <p>At <code>six</code>,\n see <a href='/table?a=1'>the <b>table</b></a>.\
            <p>Then<br>it falls.<ul><li>one<li>two<ol><li>a</li><li>b</li></ol></ul>\
            <table><tr><th>Day<th>Time</tr><tr><td>Mon</td><td>06:00</td></tr></table>\
            <pre>  x = 1\n  y</pre><img src=x alt='A buoy'><a href='javascript:alert(1)'>press</a>\
            <a href='/empty'> </a><svg><text>drawn</text></svg><footer>Imprint</footer></body></html>";
        let wanted = "# High water\n\nAt `six`, see [the table](/table?a=1).\n\nThen\nit falls.\n\n- one\n- two\n\
            \x20 1. a\n  2. b\n\nDay | Time\nMon | 06:00\n\n```\n  x = 1\n  y\n```\n\n[image: A buoy] press";
        let page = read(html);
        assert_eq!((page.title.as_deref(), &*page.text), (Some("The & tide"), wanted));
    }

    #[test]
    fn the_main_part_is_all_that_counts_where_there_is_one() {
        assert_eq!(read("<p>before<main><p>this</main><p>after").text, "this");
        assert_eq!(read("<p>before<main> </main><p>after").text, "after");
        assert_eq!(read("<p>before<main>").text, "before");
    }

    #[test]
    fn what_is_broken_is_text_all_the_same() {
        let table = [
            ("", ""),
            ("plain", "plain"),
            ("<p>a</p></p></div></ul></a></li>b", "a\n\nb"),
            ("<a href=/x>one<a href=/y>two", "[one](/x)[two](/y)"),
            ("<li>a<li>b", "- a\n- b"),
            ("a\0b &lt;script&gt; &#x0; &nosuch;", "ab <script> \u{fffd} &nosuch;"),
            ("<script>x</script>a<style>y", "a"),
            ("<nav>a<nav>b</nav>c</nav>d", "d"),
            ("<title>t</title><title>u</title>x", "x"),
            ("<pre>a", "```\na"),
        ];
        for (html, text) in table {
            assert_eq!(read(html).text, text, "{html}");
        }
    }
}
