//! The body of a request to rank documents, read and checked. What is not named here is the provider's to judge.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::check::{self, Place};
use super::provider::{self, Provider};
use super::{Violation, whole};
use crate::json::{self, Kind, Members};

/// Documents of one request.
const MOST_DOCUMENTS: usize = 10_000;

/// What is to be ranked.
#[derive(Debug)]
pub struct Documents<'a> {
    /// As they came: strings, or objects with `text` and `image`.
    pub each: Vec<&'a RawValue>,
    pub said: Said<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Said<'a> {
    Texts(Vec<Cow<'a, str>>),
    /// Some are more than text: the texts' lengths in bytes, and how many have a picture.
    Pictures {
        texts: Vec<usize>,
        images: u64,
    },
}

/// A request to rank documents by what they have to do with a query.
#[derive(Debug)]
pub struct Request<'a> {
    pub model: Cow<'a, str>,
    pub query: Cow<'a, str>,
    pub documents: Documents<'a>,
    /// How many are wanted, the best first.
    pub top_n: Option<u64>,
    pub user: Option<Cow<'a, str>>,
    pub provider: Option<Provider<'a>>,
    /// All members but the model, the query, the documents and what is said about providers, in their order and as they came.
    pub options: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// Reads a body; null is absent.
pub fn read(body: &[u8]) -> Result<Request<'_>, Violation> {
    let members = check::members(&Place::top("body"), whole(body)?)?;
    let (mut model, mut query, mut documents, mut provider) = (None, None, None, None);
    let (mut top_n, mut user) = (None, None);
    let mut options = Vec::new();
    for (name, value) in members.0 {
        let place = Place::top(&name);
        if json::kind(value) == Kind::Null {
            continue;
        }
        match name.as_ref() {
            "model" => model = Some(check::text_between(&place, value, 1, 256)?),
            "query" => query = Some(check::text_between(&place, value, 1, usize::MAX)?),
            "documents" => documents = Some(read_documents(&place, value)?),
            "provider" => provider = Some(provider::with_options(&place, value)?),
            other => {
                match other {
                    "top_n" => top_n = Some(check::integer(&place, value, 1)?),
                    "user" => user = Some(check::text(&place, value)?),
                    _ => {}
                }
                options.push((name, value));
            }
        }
    }
    Ok(Request {
        model: model.ok_or_else(|| Place::top("model").required())?,
        query: query.ok_or_else(|| Place::top("query").required())?,
        documents: documents.ok_or_else(|| Place::top("documents").required())?,
        top_n,
        user,
        provider,
        options,
    })
}

/// Texts, objects with a text or a picture, or both.
fn read_documents<'a>(place: &Place<'_>, raw: &'a RawValue) -> Result<Documents<'a>, Violation> {
    let each = check::entries(place, raw, 1, MOST_DOCUMENTS)?;
    let (mut texts, mut images) = (Vec::with_capacity(each.len()), 0);
    for (index, document) in each.iter().enumerate() {
        let (text, has_image) = read_document(&place.entry(index), document)?;
        texts.push(text);
        images += u64::from(has_image);
    }
    let said = match images {
        0 => Said::Texts(texts),
        images => Said::Pictures { texts: texts.iter().map(|text| text.len()).collect(), images },
    };
    Ok(Documents { each, said })
}

/// The text of a document, and whether it has a picture.
fn read_document<'a>(place: &Place<'_>, raw: &'a RawValue) -> Result<(Cow<'a, str>, bool), Violation> {
    match json::kind(raw) {
        Kind::String => return check::text(place, raw).map(|text| (text, false)),
        Kind::Object => {}
        _ => return Err(place.is("must be a string or an object with text or image")),
    }
    let Members(members) = check::members(place, raw)?;
    let (mut text, mut has_image) = (None, false);
    for (name, value) in members.into_iter().filter(|(_, value)| json::kind(value) != Kind::Null) {
        let inside = place.member(&name);
        match name.as_ref() {
            "text" => text = Some(check::text(&inside, value)?),
            "image" => has_image = !check::text_between(&inside, value, 1, usize::MAX)?.is_empty(),
            _ => {}
        }
    }
    match (text, has_image) {
        (None, false) => Err(place.is("must have text or image")),
        (text, has_image) => Ok((text.unwrap_or_default(), has_image)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(members: &str) -> String {
        match read(format!(r#"{{"model":"a/m",{members}}}"#).as_bytes()) {
            Ok(request) => format!("{} {} {:?}", request.query, request.documents.each.len(), request.documents.said),
            Err(violation) => violation.message,
        }
    }

    #[test]
    fn documents_of_every_kind_are_read() {
        for (documents, expected) in [
            (r#"["a \"boat\"",""]"#, r#"q 2 Texts(["a \"boat\"", ""])"#),
            (r#"["a",{"text":"b","image":null,"x":1}]"#, r#"q 2 Texts(["a", "b"])"#),
            (r#"["abc",{"image":"data:,"}]"#, "q 2 Pictures { texts: [3, 0], images: 1 }"),
        ] {
            assert_eq!(said(&format!(r#""query":"q","documents":{documents}"#)), expected, "{documents}");
        }
    }

    #[test]
    fn what_is_known_is_read_and_the_rest_stays_as_it_came() {
        let body = r#"{"model":"a/m","query":"q","documents":["x"],"top_n":3,"user":"u","x_new":{"a":1.50},
            "provider":{"only":["p"]}}"#;
        let read = read(body.as_bytes()).map_err(|violation| violation.message).unwrap();
        assert_eq!((read.top_n, read.user.as_deref()), (Some(3), Some("u")));
        let options: Vec<(&str, &str)> = read.options.iter().map(|(name, value)| (&**name, value.get())).collect();
        assert_eq!(options, [("top_n", "3"), ("user", "\"u\""), ("x_new", "{\"a\":1.50}")]);
        assert_eq!(read.provider.unwrap().only, ["p"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (members, message) in [
            (r#""documents":["a"]"#, "query is required"),
            (r#""query":"","documents":["a"]"#, "query must be at least 1 characters"),
            (r#""query":["q"],"documents":["a"]"#, "query must be a string"),
            (r#""query":"q""#, "documents is required"),
            (r#""query":"q","documents":[]"#, "documents must have at least 1 entries"),
            (r#""query":"q","documents":"a""#, "documents must be an array"),
            (r#""query":"q","documents":["a",5]"#, "documents[1] must be a string or an object with text or image"),
            (r#""query":"q","documents":[{"title":"a"}]"#, "documents[0] must have text or image"),
            (r#""query":"q","documents":[{"text":5}]"#, "documents[0].text must be a string"),
            (r#""query":"q","documents":["a"],"top_n":0"#, "top_n must be at least 1"),
            (r#""query":"q","documents":["a"],"top_n":1.5"#, "top_n must be an integer"),
        ] {
            assert!(said(members).ends_with(message), "{members}: {}", said(members));
        }
    }
}
