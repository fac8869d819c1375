//! What is sent in one call: letters are made when a request ends, calls when there is something to send.

use super::rows::MOST_ROWS;
use super::target::{Shape, Target};
use super::{datadog, events, otlp};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/x-protobuf";

/// How it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
}

/// A call.
#[derive(Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Which letters it carries, by their places.
    pub letters: Vec<usize>,
    pub verb: Verb,
    pub url: String,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Target {
    /// The calls that carry these letters. A letter that is in none of them was made for somebody else: the destination has
    /// changed since.
    pub fn parcels(&self, letters: &[&[u8]]) -> Vec<Parcel> {
        let told = Letters(letters);
        match &self.shape {
            // Letters of before a change of the form still wait in the other one.
            Shape::Otlp(otlp) => {
                let binary = told.fitting(is_protobuf);
                let bytes = binary.iter().flat_map(|place| letters[*place]).copied().collect();
                let binary = self.parcel(binary, "", PROTOBUF, bytes);
                let json = match otlp.most_spans {
                    Some(most) => told.by_count(most, spans),
                    None => vec![told.fitting(is_json)],
                };
                let parcel = |places: Vec<usize>| {
                    let text = otlp::export(places.iter().map(|place| letters[*place]));
                    self.parcel(places, "", JSON, text)
                };
                json.into_iter().filter_map(parcel).chain(binary).collect()
            }
            Shape::Object(_) => {
                let parcel = |(place, letter): (usize, &&[u8])| {
                    let end = letter.iter().position(|byte| *byte == b'\n').filter(|_| !is_json(letter))?;
                    let key = std::str::from_utf8(&letter[..end]).ok()?;
                    self.parcel(vec![place], &format!("/{key}"), JSON, letter[end + 1..].to_vec())
                };
                letters.iter().enumerate().filter_map(parcel).collect()
            }
            Shape::Rows(table) => {
                let parcel = |places: Vec<usize>| {
                    let body = places.iter().flat_map(|place| [letters[*place], b"\n"].concat()).collect();
                    self.parcel(places, &table.insert(), JSON, body)
                };
                told.by_count(MOST_ROWS, rows).into_iter().filter_map(parcel).collect()
            }
            Shape::Statement(warehouse) => {
                let parcel = |places: Vec<usize>| {
                    let rows: Vec<&str> = told.texts(&places).flat_map(str::lines).collect();
                    let (more, body) = warehouse.insert(&rows);
                    self.parcel(places, &more, JSON, body.into_bytes())
                };
                told.by_count(MOST_ROWS, rows).into_iter().filter_map(parcel).collect()
            }
            Shape::Datadog(app) => {
                let places = told.fitting(is_json);
                let body = datadog::body(app, &told.texts(&places).collect::<Vec<_>>()).into_bytes();
                self.parcel(places, "/api/intake/llm-obs/v1/trace/spans", JSON, body).into_iter().collect()
            }
            Shape::Events(key) => {
                let places = told.fitting(is_json);
                let body = events::body(key, &told.texts(&places).collect::<Vec<_>>());
                self.parcel(places, "/batch/", JSON, body).into_iter().collect()
            }
        }
    }

    /// Calls that tell nothing and show whether it is there and lets us in; one that it takes is enough.
    pub fn trials(&self) -> Vec<Parcel> {
        let verb = if self.is_put { Verb::Put } else { Verb::Post };
        let trial = |verb: Verb, more: &str, content_type: &'static str, body: Vec<u8>| Parcel {
            letters: Vec::new(),
            verb,
            url: format!("{}{more}", self.url),
            content_type,
            body,
        };
        match &self.shape {
            Shape::Otlp(otlp) if otlp.is_protobuf => vec![trial(verb, "", PROTOBUF, Vec::new())],
            Shape::Otlp(_) => vec![trial(verb, "", JSON, otlp::export([]))],
            Shape::Object(bucket) => vec![trial(verb, &format!("/{}", bucket.test_key()), JSON, b"{}".to_vec())],
            // Who may not make tables may still write to one that is there.
            Shape::Rows(table) => {
                let (query, statement) = table.create();
                vec![trial(verb, &query, JSON, statement.into_bytes()), trial(verb, &table.insert(), JSON, Vec::new())]
            }
            Shape::Statement(warehouse) => {
                let both = [warehouse.create(), warehouse.insert(&[])];
                both.into_iter().map(|(more, body)| trial(verb, &more, JSON, body.into_bytes())).collect()
            }
            Shape::Datadog(_) => vec![trial(Verb::Get, "/api/v1/validate", JSON, Vec::new())],
            Shape::Events(key) => vec![trial(verb, "/flags/?v=2", JSON, events::trial(key))],
        }
    }

    /// Nothing where there is nothing to carry.
    fn parcel(&self, letters: Vec<usize>, more: &str, content_type: &'static str, body: Vec<u8>) -> Option<Parcel> {
        let verb = if self.is_put { Verb::Put } else { Verb::Post };
        let url = format!("{}{more}", self.url);
        (!letters.is_empty()).then_some(Parcel { letters, verb, url, content_type, body })
    }
}

#[derive(Clone, Copy)]
struct Letters<'a>(&'a [&'a [u8]]);

impl<'a> Letters<'a> {
    fn fitting(self, fits: fn(&[u8]) -> bool) -> Vec<usize> {
        self.0.iter().enumerate().filter(|(_, letter)| fits(letter)).map(|(place, _)| place).collect()
    }

    fn texts(self, places: &[usize]) -> impl Iterator<Item = &'a str> {
        places.iter().filter_map(move |place| std::str::from_utf8(self.0[*place]).ok())
    }

    /// Those in JSON, so many together as one call takes of what they hold. One that holds more goes alone.
    fn by_count(self, most: usize, count: fn(&[u8]) -> usize) -> Vec<Vec<usize>> {
        let (mut parts, mut carried) = (vec![Vec::new()], 0);
        for place in self.fitting(is_json) {
            let more = count(self.0[place]);
            carried += more;
            if carried > most && carried > more {
                parts.push(Vec::new());
                carried = more;
            }
            parts.last_mut().expect("there is always one").push(place);
        }
        parts
    }
}

/// Each stands on a line of its own.
fn rows(letter: &[u8]) -> usize {
    letter.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Each has one such member, and in a text its quotes would be escaped.
fn spans(letter: &[u8]) -> usize {
    const MEMBER: &[u8] = br#""spanId":""#;
    letter.windows(MEMBER.len()).filter(|window| *window == MEMBER).count()
}

fn is_json(letter: &[u8]) -> bool {
    letter.first() == Some(&b'{')
}

/// The mark of the only list in a request of export.
fn is_protobuf(letter: &[u8]) -> bool {
    letter.first() == Some(&0x0a)
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
        assert_eq!(
            sent,
            [Parcel { letters: vec![0, 2], verb: Verb::Post, url: "http://c".into(), content_type, body }]
        );
        assert_eq!(collector.parcels(&[b"x"]), []);

        let keys = [("bucketName", "box"), ("accessKeyId", "k"), ("secretAccessKey", "s"), ("endpoint", "http://s")];
        let sent = target(Kind::S3, &keys).parcels(&[b"a/b.json\n{\n}", b"{\"a\":1}\n", b"c.json\n{}"]);
        let parcel = |place: usize, url: &str, body: &[u8]| Parcel {
            letters: vec![place],
            verb: Verb::Put,
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

    #[test]
    fn a_webhook_gets_a_hundred_spans_at_most_in_one_call() {
        let letter = |count: usize| {
            let said = r#"{"name":"\"spanId\":\"no span\"","spanId":"00"}"#;
            format!("{{\"spans\":[{}]}}", vec![said; count].join(",")).into_bytes()
        };
        let letters: Vec<Vec<u8>> = [3, 60, 37, 1, 250, 2].map(letter).into();
        let letters: Vec<&[u8]> = letters.iter().map(Vec::as_slice).collect();
        let carried =
            |target: Target| target.parcels(&letters).into_iter().map(|parcel| parcel.letters).collect::<Vec<_>>();
        let webhook = target(Kind::Webhook, &[("url", "http://h")]);
        assert_eq!(carried(webhook), [vec![0, 1, 2], vec![3], vec![4], vec![5]]);
        let collector = target(Kind::OtelCollector, &[("endpoint", "http://c")]);
        assert_eq!(carried(collector), [vec![0, 1, 2, 3, 4, 5]]);
    }

    #[test]
    fn both_forms_of_otlp_are_sent_apart() {
        let collector = target(Kind::OtelCollector, &[("endpoint", "http://c"), ("protocol", "http/protobuf")]);
        let sent = collector.parcels(&[b"{}", b"\x0a\x02ab", b"\x0a\x01c", b"?"]);
        let seen: Vec<_> = sent.iter().map(|one| (&one.letters[..], one.content_type, &one.body[..])).collect();
        let json: &[u8] = b"{\"resourceSpans\":[{}]}";
        let binary: &[u8] = b"\x0a\x02ab\x0a\x01c";
        assert_eq!(seen, [(&[0][..], JSON, json), (&[1, 2], PROTOBUF, binary)]);
    }

    #[test]
    fn a_statement_inserts_all_rows_and_only_once() {
        let warehouse = target(Kind::Snowflake, &[("account", "org-acct"), ("token", "t"), ("schema", "S")]);
        let first = warehouse.parcels(&[b"{\"MODEL\":\"a\"}\n{\"MODEL\":\"b\"}", b"{\"MODEL\":\"c\"}"]).remove(0);
        let body: serde_json::Value = serde_json::from_slice(&first.body).unwrap();
        for (member, value) in [("database", "SNOWFLAKE_LEARNING_DB"), ("schema", "S"), ("warehouse", "COMPUTE_WH")] {
            assert_eq!(body[member], value);
        }
        let bound = &body["bindings"]["1"];
        assert_eq!((&bound["type"], body["bindings"].as_object().unwrap().len()), (&"TEXT".into(), 1));
        assert_eq!(bound["value"], r#"[{"MODEL":"a"},{"MODEL":"b"},{"MODEL":"c"}]"#);
        let statement = body["statement"].as_str().unwrap();
        assert_eq!(statement.matches('?').count(), 1);
        assert!(statement.starts_with("INSERT INTO TIDEGATE_TRACES (TIMESTAMP, TRACE_ID, "), "{statement}");
        for part in [
            "value:TIMESTAMP::TIMESTAMP_NTZ(3)",
            "value:PROMPT_TOKENS::NUMBER(20,0)",
            "TRY_PARSE_JSON(value:INPUT::VARCHAR)",
        ] {
            assert!(statement.contains(part), "{part}: {statement}");
        }
        let (path, id) = first.url.split_once("?requestId=").unwrap();
        assert_eq!(path, "https://org-acct.snowflakecomputing.com/api/v2/statements");
        assert!(id.len() == 36 + "&retry=true".len() && id.ends_with("&retry=true"), "{id}");
        let again = warehouse.parcels(&[b"{\"MODEL\":\"a\"}\n{\"MODEL\":\"b\"}", b"{\"MODEL\":\"c\"}"]).remove(0);
        assert_eq!(again.url, first.url, "the same rows are the same request");
        let trials = warehouse.trials();
        let create: serde_json::Value = serde_json::from_slice(&trials[0].body).unwrap();
        let create = create["statement"].as_str().unwrap();
        assert!(
            create.starts_with("CREATE TABLE IF NOT EXISTS TIDEGATE_TRACES (TIMESTAMP TIMESTAMP_NTZ(3), "),
            "{create}"
        );
        assert!(create.contains("OUTPUT VARIANT") && create.contains("TOTAL_COST FLOAT"), "{create}");
    }
}
