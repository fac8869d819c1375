//! What is sent in one call: letters are made when a request ends, calls when there is something to send.

use super::otlp;
use super::rows::MOST_ROWS;
use super::target::{Shape, Target};

const JSON: &str = "application/json";

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Which letters it carries, by their places.
    pub letters: Vec<usize>,
    pub url: String,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Target {
    /// The calls that carry these letters. A letter that is in none of them was made for somebody else: the destination has
    /// changed since.
    pub fn parcels(&self, letters: &[&[u8]]) -> Vec<Parcel> {
        match &self.shape {
            Shape::Otlp => {
                let places = fitting(letters, is_json);
                let elements = places.iter().filter_map(|place| std::str::from_utf8(letters[*place]).ok());
                let body = otlp::export(elements).into_bytes();
                self.parcel(places, String::new(), JSON, body).into_iter().collect()
            }
            Shape::Object(_) => {
                let parcel = |(place, letter): (usize, &&[u8])| {
                    let end = letter.iter().position(|byte| *byte == b'\n').filter(|_| !is_json(letter))?;
                    let key = std::str::from_utf8(&letter[..end]).ok()?;
                    self.parcel(vec![place], format!("/{key}"), JSON, letter[end + 1..].to_vec())
                };
                letters.iter().enumerate().filter_map(parcel).collect()
            }
            Shape::Rows(table) => {
                let mut parcels = Vec::new();
                let (mut carried, mut body, mut rows) = (Vec::new(), Vec::new(), 0);
                for place in fitting(letters, is_json) {
                    let letter = letters[place];
                    let more = letter.iter().filter(|byte| **byte == b'\n').count() + 1;
                    if rows + more > MOST_ROWS {
                        let (carried, body) = (std::mem::take(&mut carried), std::mem::take(&mut body));
                        parcels.extend(self.parcel(carried, table.insert(), JSON, body));
                        rows = 0;
                    }
                    rows += more;
                    carried.push(place);
                    body.extend_from_slice(letter);
                    body.push(b'\n');
                }
                parcels.extend(self.parcel(carried, table.insert(), JSON, body));
                parcels
            }
        }
    }

    /// Calls that tell nothing and show whether it is there and lets us in; one that it takes is enough.
    pub fn trials(&self) -> Vec<Parcel> {
        let trial = |more: String, body: Vec<u8>| Parcel {
            letters: Vec::new(),
            url: format!("{}{more}", self.url),
            content_type: JSON,
            body,
        };
        match &self.shape {
            Shape::Otlp => vec![trial(String::new(), otlp::export([]).into_bytes())],
            Shape::Object(bucket) => vec![trial(format!("/{}", bucket.test_key()), b"{}".to_vec())],
            Shape::Rows(table) => {
                let (query, statement) = table.create();
                // Who may not make tables may still write to one that is there.
                vec![trial(query, statement.into_bytes()), trial(table.insert(), Vec::new())]
            }
        }
    }

    /// Nothing where there is nothing to carry.
    fn parcel(&self, letters: Vec<usize>, more: String, content_type: &'static str, body: Vec<u8>) -> Option<Parcel> {
        let url = format!("{}{more}", self.url);
        (!letters.is_empty()).then_some(Parcel { letters, url, content_type, body })
    }
}

fn is_json(letter: &[u8]) -> bool {
    letter.first() == Some(&b'{')
}

fn fitting(letters: &[&[u8]], fits: fn(&[u8]) -> bool) -> Vec<usize> {
    letters.iter().enumerate().filter(|(_, letter)| fits(letter)).map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_core::Secret;

    use super::super::Kind;
    use super::super::target::Config;
    use super::*;

    fn target(kind: Kind, values: &[(&str, &str)]) -> Target {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
        Config { values, ..Config::default() }.target(kind).map_err(|wrong| wrong.member).unwrap()
    }

    #[test]
    fn letters_share_a_call_where_they_can() {
        let collector = target(Kind::OtelCollector, &[("endpoint", "http://c")]);
        let sent = collector.parcels(&[b"{}", b"a letter for a bucket", b"{\"a\":1}"]);
        let body = b"{\"resourceSpans\":[{},{\"a\":1}]}".to_vec();
        let content_type = "application/json";
        assert_eq!(sent, [Parcel { letters: vec![0, 2], url: "http://c".into(), content_type, body }]);
        assert_eq!(collector.parcels(&[b"x"]), []);

        let keys = [("bucketName", "box"), ("accessKeyId", "k"), ("secretAccessKey", "s"), ("endpoint", "http://s")];
        let sent = target(Kind::S3, &keys).parcels(&[b"a/b.json\n{\n}", b"{\"a\":1}\n", b"c.json\n{}"]);
        let parcel = |place: usize, url: &str, body: &[u8]| Parcel {
            letters: vec![place],
            url: url.to_owned(),
            content_type,
            body: body.to_vec(),
        };
        assert_eq!(sent, [parcel(0, "http://s/box/a/b.json", b"{\n}"), parcel(2, "http://s/box/c.json", b"{}")]);
    }

    #[test]
    fn an_insert_has_a_thousand_rows_at_most() {
        let values = [("host", "https://h:8443/"), ("database", "d"), ("username", "u"), ("password", "p")];
        let table = target(Kind::ClickHouse, &values);
        let letter = vec!["{}"; 300].join("\n").into_bytes();
        let sent = table.parcels(&[letter.as_slice(); 7]);
        let carried: Vec<&[usize]> = sent.iter().map(|parcel| parcel.letters.as_slice()).collect();
        assert_eq!(carried, [&[0, 1, 2][..], &[3, 4, 5], &[6]]);
        assert_eq!(sent[0].body.iter().filter(|byte| **byte == b'\n').count(), 900, "each row ends its line");
        assert!(sent[0].url.starts_with("https://h:8443/?database=d&"), "{}", sent[0].url);
    }
}
