use std::io::{Cursor, Write as _};

use zip::write::{SimpleFileOptions, ZipWriter};

use super::super::{Kind, Page};

fn archive(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in parts {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn read(kind: Kind, parts: &[(&str, &str)]) -> Page {
    Page::of(kind, &archive(parts), 1 << 20).unwrap()
}

const CORE: (&str, &str) = ("docProps/core.xml", "<c:p xmlns:c='c'><dc:title>A &amp; B</dc:title></c:p>");

#[test]
fn a_document_is_told_with_headings_lists_and_tables() {
    let body = r#"<?xml version="1.0"?><w:document xmlns:w="w"><w:body>
        <w:p><w:pPr><w:pStyle w:val="Heading2"/><w:tabs><w:tab w:pos="1"/></w:tabs></w:pPr><w:r><w:t>Over</w:t></w:r><w:r><w:t>view</w:t></w:r></w:p>
        <w:p><w:r><w:t xml:space="preserve">Tom &amp; J&#233;r&#xF4;me</w:t><w:tab/><w:t>&lt;3</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>
        <w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>first</w:t></w:r></w:p>
        <w:p><w:pPr><w:pStyle w:val="ListBullet2"/></w:pPr><w:r><w:t>second</w:t></w:r></w:p>
        <w:tbl><w:tr><w:tc><w:p><w:r><w:t>a|b</w:t></w:r></w:p><w:p><w:r><w:t>c</w:t></w:r></w:p></w:tc><w:tc><w:p/></w:tc></w:tr></w:tbl>
        <mc:AlternateContent xmlns:mc="m"><mc:Choice><w:p><w:r><w:t>box</w:t></w:r></w:p></mc:Choice><mc:Fallback><w:p><w:r><w:t>box</w:t></w:r></w:p></mc:Fallback></mc:AlternateContent>
        </w:body></w:document>"#;
    let notes =
        r#"<w:footnotes xmlns:w="w"><w:footnote><w:p><w:r><w:t>see below</w:t></w:r></w:p></w:footnote></w:footnotes>"#;
    let page = read(Kind::Word, &[CORE, ("word/document.xml", body), ("word/footnotes.xml", notes)]);
    assert_eq!(page.title.as_deref(), Some("A & B"));
    assert_eq!(page.text, "## Overview\n\nTom & Jérôme\t<3\n- first\n- second\n| a\\|b c |  |\n\nbox\n\nsee below");
}

#[test]
fn sheets_are_told_as_tables_with_dates_and_shared_texts() {
    let book = r#"<workbook xmlns:r="r"><sheets><sheet name="Q1 &amp; Q2" sheetId="1" r:id="rId7"/><sheet name="gone" r:id="rId9"/></sheets></workbook>"#;
    let links = r#"<Relationships><Relationship Id="rId7" Target="worksheets/s.xml"/></Relationships>"#;
    let texts =
        r#"<sst><si><t>when</t></si><si><r><t>how </t></r><r><t>much</t></r><rPh><t>sound</t></rPh></si></sst>"#;
    let styles = r##"<styleSheet><numFmts><numFmt numFmtId="164" formatCode="dd/mm/yyyy"/><numFmt numFmtId="165" formatCode="[Red]0.0&quot; days&quot;"/></numFmts>
        <cellStyleXfs><xf numFmtId="14"/></cellStyleXfs><cellXfs><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="165"/><xf numFmtId="22"/><xf numFmtId="20"/></cellXfs></styleSheet>"##;
    // 45292 days after 30 December 1899 is 1 January 2024; half a day is noon.
    let sheet = r#"<worksheet><sheetData>
        <row r="1"><c r="A1" t="s"><v>0</v></c><c r="C1" t="s"><v>1</v></c></row>
        <row r="2"><c r="A2" s="1"><v>45292</v></c><c r="B2" s="2"><v>7</v></c><c r="C2"><f>SUM(A1)</f><v>1.5</v></c></row>
        <row r="3"><c r="A3" s="3"><v>45292.5</v></c><c r="B3" t="b"><v>1</v></c><c r="C3" t="inlineStr"><is><t>in line</t></is></c></row>
        <row r="4"><c r="A4" s="4"><v>0.25</v></c><c r="B4" t="e"><v>#DIV/0!</v></c></row>
        <row r="5"><c r="A5"/></row><row r="6"><c r="A6" s="1"><v>491701234567</v></c><c r="B6" s="1"><v>inf</v></c></row></sheetData></worksheet>"#;
    let parts = [
        ("xl/workbook.xml", book),
        ("xl/_rels/workbook.xml.rels", links),
        ("xl/sharedStrings.xml", texts),
        ("xl/styles.xml", styles),
        ("xl/worksheets/s.xml", sheet),
    ];
    let page = read(Kind::Sheets, &parts);
    let expected = "## Q1 & Q2\n\n| when |  | how much |\n| 2024-01-01 | 7 | 1.5 |\n| 2024-01-01 12:00:00 | TRUE | in line |\n\
                    | 06:00:00 | #DIV/0! |\n| 491701234567 | inf |";
    assert_eq!(page.text, expected);
    let old = book.replace("<sheets>", "<workbookPr date1904=\"1\"/><sheets>");
    let mut parts = parts;
    parts[0].1 = &old;
    // Days are counted from 1 January 1904 there, 1462 days later.
    assert!(read(Kind::Sheets, &parts).text.contains("| 2028-01-02 | 7 |"), "{}", read(Kind::Sheets, &parts).text);
}

#[test]
fn slides_come_in_their_order() {
    let list = r#"<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst><p:sldId id="256" r:id="b"/><p:sldId id="257" r:id="a"/></p:sldIdLst></p:presentation>"#;
    let links = r#"<Relationships><Relationship Id="a" Target="slides/slide1.xml"/><Relationship Id="b" Target="/ppt/slides/slide2.xml"/></Relationships>"#;
    let first = r#"<p:sld xmlns:p="p" xmlns:a="a"><p:sp><p:nvPr><p:ph type="title"/></p:nvPr><a:p><a:r><a:t>Plan</a:t></a:r></a:p></p:sp><p:sp><a:p><a:r><a:t>one</a:t></a:r><a:br/><a:r><a:t>two</a:t></a:r></a:p></p:sp></p:sld>"#;
    let second = r#"<p:sld xmlns:a="a"><a:tbl><a:tr><a:tc><a:p><a:r><a:t>x</a:t></a:r></a:p></a:tc><a:tc><a:p><a:r><a:t>y</a:t></a:r></a:p></a:tc></a:tr></a:tbl></p:sld>"#;
    let parts = [
        ("ppt/presentation.xml", list),
        ("ppt/_rels/presentation.xml.rels", links),
        ("ppt/slides/slide2.xml", first),
        ("ppt/slides/slide1.xml", second),
    ];
    let page = read(Kind::Slides, &parts);
    assert_eq!(page.pages, Some(2));
    assert_eq!(page.text, "[slide 1]\n\n## Plan\n\none\ntwo\n\n[slide 2]\n\n| x | y |");
}

#[test]
fn what_is_broken_or_no_such_file_is_nothing() {
    for kind in [Kind::Word, Kind::Sheets, Kind::Slides] {
        assert_eq!(Page::of(kind, b"PK\x03\x04", 100), None);
        assert_eq!(Page::of(kind, &archive(&[("a", "b")]), 100), None);
    }
    let whole = archive(&[("word/document.xml", "<w:p><w:t>words</w:t></w:p>")]);
    for end in 0..whole.len() {
        let _ = Page::of(Kind::Word, &whole[..end], 100);
    }
    // Cut off, or nested without end: what came before is told.
    let page = read(Kind::Word, &[("word/document.xml", "<p><t>said</t></p><p><t>cut")]);
    assert_eq!(page.text, "said");
    let deep = format!("<p><t>deep</t></p>{}", "<tbl><tr><tc>".repeat(200_000));
    assert_eq!(read(Kind::Word, &[("word/document.xml", &deep)]).text, "deep");
    let entities = r#"<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><p><t>x&b;y</t></p>"#;
    assert_eq!(read(Kind::Word, &[("word/document.xml", entities)]).text, "xy");
}

#[test]
fn an_archive_that_would_fill_the_memory_is_not_unpacked() {
    // 65 MiB of spaces are 64 KiB in the archive.
    let bomb = archive(&[("word/document.xml", &" ".repeat(65 << 20))]);
    assert!(bomb.len() < 1 << 20);
    assert_eq!(Page::of(Kind::Word, &bomb, 100), None);
}
