//! What Gemini takes as a schema: nearly all of JSON Schema in the newer members, a small part of it in the older ones.
//!
//! Both work on a tree that keeps the order of members and the digits of numbers, and go only where a schema may stand.
//! So data stays data, and a property named like a keyword stays a property.

use std::borrow::Cow;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind, Members, quoted};

/// Deeper schemas are carried as they are.
const DEEPEST: usize = 64;
/// How often a reference may stand inside of itself.
const LONGEST_CYCLE: usize = 3;
/// References are not followed any more when a schema has grown to so many parts.
const MOST_PARTS: usize = 20_000;

const NAMED: [&str; 5] = ["properties", "$defs", "definitions", "patternProperties", "dependentSchemas"];
const LISTED: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const SINGLE: [&str; 10] = [
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// JSON whose order and digits are kept.
#[derive(Clone, Debug)]
enum Node {
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
    Leaf(Box<RawValue>),
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
            Self::Array(list) => list.serialize(serializer),
            Self::Leaf(raw) => raw.serialize(serializer),
        }
    }
}

impl Node {
    fn of(raw: &RawValue, depth: usize) -> Self {
        let leaf = || Self::Leaf(raw.to_owned());
        if depth == 0 {
            return leaf();
        }
        match json::kind(raw) {
            Kind::Object => Members::of(raw).map_or_else(leaf, |members| {
                let members =
                    members.0.into_iter().map(|(name, value)| (name.into_owned(), Self::of(value, depth - 1)));
                Self::Object(members.collect())
            }),
            Kind::Array => json::elements(raw).map_or_else(leaf, |list| {
                Self::Array(list.into_iter().map(|value| Self::of(value, depth - 1)).collect())
            }),
            _ => leaf(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        serde_json::from_str::<&RawValue>(text).ok().map(|raw| Self::of(raw, DEEPEST))
    }

    /// JSON text that is known to be some.
    fn literal(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|| Self::Object(Vec::new()))
    }

    fn members(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            Self::Array(_) | Self::Leaf(_) => None,
        }
    }

    fn list(&self) -> Option<&[Self]> {
        match self {
            Self::Array(list) => Some(list),
            Self::Object(_) | Self::Leaf(_) => None,
        }
    }

    fn get(&self, name: &str) -> Option<&Self> {
        self.members().and_then(|members| find(members, name))
    }

    fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Leaf(raw) => json::string(raw),
            Self::Object(_) | Self::Array(_) => None,
        }
    }

    fn raw(&self) -> &str {
        match self {
            Self::Leaf(raw) => raw.get(),
            Self::Object(_) | Self::Array(_) => "",
        }
    }

    fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }
}

fn find<'a>(members: &'a [(String, Node)], name: &str) -> Option<&'a Node> {
    members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// A schema for the members that take JSON Schema: only what names or comments on a document is left out. One without
/// such words goes byte for byte.
pub fn gemini_json(schema: &str) -> Cow<'_, str> {
    let Some(mut node) = Node::parse(schema) else { return Cow::Borrowed(schema) };
    if strip(&mut node) { Cow::Owned(node.to_text()) } else { Cow::Borrowed(schema) }
}

/// Whether anything was taken away.
fn strip(schema: &mut Node) -> bool {
    let Node::Object(members) = schema else { return false };
    let before = members.len();
    members.retain(|(name, _)| !matches!(name.as_str(), "$schema" | "$id" | "$comment"));
    let mut changed = members.len() != before;
    for (name, value) in members {
        match (name.as_str(), value) {
            (name, Node::Object(inner)) if NAMED.contains(&name) => {
                for (_, schema) in inner {
                    changed |= strip(schema);
                }
            }
            (name, Node::Array(inner)) if LISTED.contains(&name) || name == "items" => {
                for schema in inner {
                    changed |= strip(schema);
                }
            }
            (name, value) if SINGLE.contains(&name) => changed |= strip(value),
            _ => {}
        }
    }
    changed
}

/// A schema for the members that take only a part of OpenAPI's: references are resolved, and what has another form
/// there is given it. What has none is left out.
pub fn gemini_subset(schema: &str) -> String {
    let root = Node::literal(schema);
    let mut subset = Subset { root: &root, open: Vec::new(), parts: 0 };
    subset.schema(&root, DEEPEST).to_text()
}

struct Subset<'a> {
    root: &'a Node,
    /// The references that are being followed.
    open: Vec<String>,
    parts: usize,
}

impl Subset<'_> {
    fn schema(&mut self, schema: &Node, depth: usize) -> Node {
        self.parts += 1;
        let (Some(members), true) = (schema.members(), depth > 0) else { return Node::Object(Vec::new()) };
        let mut out: Vec<(String, Node)> = Vec::with_capacity(members.len());
        for (name, value) in members {
            self.member(name, value, members, depth - 1, &mut out);
        }
        if is_split(find(members, "type")) && !members.iter().any(|(name, _)| name == "anyOf" || name == "oneOf") {
            share(&mut out);
        }
        list_something(&mut out);
        Node::Object(out)
    }

    fn member(
        &mut self,
        name: &str,
        value: &Node,
        members: &[(String, Node)],
        depth: usize,
        out: &mut Vec<(String, Node)>,
    ) {
        match name {
            "type" => kinds(value, out),
            "const" => choices(std::slice::from_ref(value), find(members, "type"), out),
            "enum" => choices(value.list().unwrap_or_default(), find(members, "type"), out),
            "anyOf" | "oneOf" => {
                let list = value.list().into_iter().flatten().map(|schema| self.schema(schema, depth)).collect();
                set(out, "anyOf", Node::Array(list));
            }
            "allOf" => {
                for part in value.list().unwrap_or_default() {
                    let part = self.schema(part, depth);
                    merge(out, part);
                }
            }
            "$ref" => {
                let found = self.referred(value, depth);
                merge(out, found);
            }
            "exclusiveMinimum" if is_number(value) => set(out, "minimum", value.clone()),
            "exclusiveMaximum" if is_number(value) => set(out, "maximum", value.clone()),
            "properties" => {
                let properties = value.members().unwrap_or_default().iter();
                let properties: Vec<_> =
                    properties.map(|(name, schema)| (name.clone(), self.schema(schema, depth))).collect();
                // Those of parts that were merged before stay.
                merge(out, Node::Object(vec![("properties".to_owned(), Node::Object(properties))]));
            }
            "items" => {
                // Of a list of schemas, one for each place, there is only the first.
                let schema = value.list().map_or(Some(value), <[Node]>::first);
                let items = schema.map_or_else(|| Node::Object(Vec::new()), |schema| self.schema(schema, depth));
                set(out, "items", items);
            }
            "format" => {
                let known = ["enum", "date-time", "int32", "int64", "float", "double"];
                if value.text().is_some_and(|format| known.contains(&format.as_ref())) {
                    set(out, "format", value.clone());
                }
            }
            "required" => merge(out, Node::Object(vec![("required".to_owned(), value.clone())])),
            "title" | "description" | "nullable" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
            | "minimum" | "maximum" | "minLength" | "maxLength" | "pattern" | "propertyOrdering" => {
                set(out, name, value.clone());
            }
            _ => {}
        }
    }

    /// What a reference inside the document points to. One that goes in circles ends in any object.
    fn referred(&mut self, reference: &Node, depth: usize) -> Node {
        let any = || Node::literal(r#"{"type":"object"}"#);
        let Some(reference) = reference.text() else { return any() };
        let Some(path) = reference.strip_prefix('#') else { return any() };
        let times = self.open.iter().filter(|open| **open == reference).count();
        if times >= LONGEST_CYCLE || self.parts > MOST_PARTS {
            return any();
        }
        let steps = path.split('/').filter(|step| !step.is_empty());
        let found = steps.map(|step| step.replace("~1", "/").replace("~0", "~")).try_fold(self.root, |node, step| {
            node.get(&step).or_else(|| node.list().and_then(|list| list.get(step.parse::<usize>().ok()?)))
        });
        let Some(found) = found else { return any() };
        self.open.push(reference.into_owned());
        let schema = self.schema(found, depth);
        self.open.pop();
        schema
    }
}

/// The schema's own words replace those that a reference brought.
fn set(out: &mut Vec<(String, Node)>, name: &str, value: Node) {
    match out.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => *known = value,
        None => out.push((name.to_owned(), value)),
    }
}

/// Adds what another schema demands as well.
fn merge(out: &mut Vec<(String, Node)>, other: Node) {
    let Node::Object(other) = other else { return };
    for (name, value) in other {
        let Some((_, known)) = out.iter_mut().find(|(known, _)| *known == name) else {
            out.push((name, value));
            continue;
        };
        match (name.as_str(), known, value) {
            ("properties", Node::Object(known), Node::Object(more)) => {
                for (name, schema) in more {
                    if find(known, &name).is_none() {
                        known.push((name, schema));
                    }
                }
            }
            ("required", Node::Array(known), Node::Array(more)) => {
                for name in more {
                    if !known.iter().any(|known| known.raw() == name.raw()) {
                        known.push(name);
                    }
                }
            }
            _ => {}
        }
    }
}

/// A list of anything is refused.
fn list_something(out: &mut Vec<(String, Node)>) {
    let is_list = find(out, "type").and_then(Node::text).is_some_and(|kind| kind == "array");
    if is_list && find(out, "items").is_none() {
        set(out, "items", Node::literal(r#"{"type":"string"}"#));
    }
}

/// Words that say something of values of these types alone.
const OF_TYPES: [(&[&str], &[&str]); 4] = [
    (&["array"], &["items", "minItems", "maxItems"]),
    (&["object"], &["properties", "required", "minProperties", "maxProperties", "propertyOrdering"]),
    (&["string"], &["enum", "format", "pattern", "minLength", "maxLength"]),
    (&["integer", "number"], &["format", "minimum", "maximum"]),
];

/// Gives every choice of a type the words that are about it: beside the choices they are not looked for.
fn share(out: &mut Vec<(String, Node)>) {
    let (about, rest): (Vec<_>, Vec<_>) = std::mem::take(out)
        .into_iter()
        .partition(|(name, _)| OF_TYPES.iter().any(|(_, words)| words.contains(&name.as_str())));
    *out = rest;
    let Some((_, Node::Array(choices))) = out.iter_mut().find(|(name, _)| name == "anyOf") else { return };
    for choice in choices {
        let Node::Object(choice) = choice else { continue };
        let kind = find(choice, "type").and_then(Node::text).map(Cow::into_owned).unwrap_or_default();
        let words = OF_TYPES.iter().filter(|(kinds, _)| kinds.contains(&kind.as_str())).flat_map(|(_, words)| *words);
        let words: Vec<&&str> = words.collect();
        choice.extend(about.iter().filter(|(name, _)| words.contains(&&name.as_str())).cloned());
        list_something(choice);
    }
}

/// Whether there is more than one type, beside null.
fn is_split(kind: Option<&Node>) -> bool {
    let list = kind.and_then(Node::list).unwrap_or_default();
    list.iter().filter(|kind| kind.raw() != "\"null\"").count() > 1
}

fn is_text(kind: &Node) -> bool {
    let is = |node: &Node| node.text().is_some_and(|kind| kind == "string");
    is(kind) || kind.list().is_some_and(|list| list.iter().any(is))
}

fn is_number(value: &Node) -> bool {
    value.raw().starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// An enumeration is one of texts: of other values there is none, and null is no value but a word for what may be null.
fn choices(values: &[Node], kind: Option<&Node>, out: &mut Vec<(String, Node)>) {
    let (null, mut rest): (Vec<&Node>, Vec<&Node>) = values.iter().partition(|value| value.raw() == "null");
    if is_split(kind) {
        // The others are of another type, which may be any of its values.
        rest.retain(|value| value.text().is_some());
    }
    let is_of_texts = kind.map_or_else(|| rest.iter().any(|value| value.text().is_some()), is_text);
    if rest.is_empty() || !is_of_texts {
        return;
    }
    let worded = |value: &&Node| match value {
        Node::Leaf(raw) if json::kind(raw) == Kind::String => (*value).clone(),
        other => Node::literal(&quoted(&other.to_text())),
    };
    set(out, "enum", Node::Array(rest.iter().map(worded).collect()));
    if !null.is_empty() {
        set(out, "nullable", Node::literal("true"));
    }
}

/// One type stays; with null among them the rest may be null, and of several each is a choice.
fn kinds(value: &Node, out: &mut Vec<(String, Node)>) {
    let Some(list) = value.list() else { return set(out, "type", value.clone()) };
    let (null, rest): (Vec<&Node>, Vec<&Node>) = list.iter().partition(|kind| kind.raw() == "\"null\"");
    match rest.as_slice() {
        [] => {}
        [one] => set(out, "type", (*one).clone()),
        several => {
            let choices = several.iter().map(|kind| Node::Object(vec![("type".to_owned(), (*kind).clone())]));
            set(out, "anyOf", Node::Array(choices.collect()));
        }
    }
    if !null.is_empty() {
        set(out, "nullable", Node::literal("true"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p45_words_about_the_document_are_left_out_and_nothing_else() {
        let schema = r#"{"$schema":"x","type":"object","properties":{"$id":{"type":"string","$comment":"c","const":{"$id":1}},"n":{"anyOf":[{"$id":"y","minimum":1.0}],"default":{"$schema":2},"uniqueItems":true}}}"#;
        let wanted = r#"{"type":"object","properties":{"$id":{"type":"string","const":{"$id":1}},"n":{"anyOf":[{"minimum":1.0}],"default":{"$schema":2},"uniqueItems":true}}}"#;
        assert_eq!(gemini_json(schema), wanted);
        let clean = r#"{"type":"object",  "properties":{"b":{},"a":{"exclusiveMinimum":0}}}"#;
        assert!(matches!(gemini_json(clean), Cow::Borrowed(same) if same == clean));
        assert_eq!(gemini_json("true"), "true");
    }

    #[test]
    fn p45_the_subset_has_its_own_words() {
        let cases = [
            (
                r#"{"$schema":"x","type":"object","properties":{"n":{"type":["integer","null"],"exclusiveMinimum":0}}}"#,
                r#"{"type":"object","properties":{"n":{"type":"integer","nullable":true,"minimum":0}}}"#,
            ),
            (r#"{"const":"a"}"#, r#"{"enum":["a"]}"#),
            (
                r#"{"oneOf":[{"type":"string"},{"type":"integer"}]}"#,
                r#"{"anyOf":[{"type":"string"},{"type":"integer"}]}"#,
            ),
            (r#"{"type":["string","integer"]}"#, r#"{"anyOf":[{"type":"string"},{"type":"integer"}]}"#),
            (r#"{"type":"string","enum":["a",1,true]}"#, r#"{"type":"string","enum":["a","1","true"]}"#),
            (r#"{"type":"integer","enum":[1,2]}"#, r#"{"type":"integer"}"#),
            (r#"{"const":5}"#, "{}"),
            (r#"{"enum":["a",null,1]}"#, r#"{"enum":["a","1"],"nullable":true}"#),
            (r#"{"type":["string","null"],"enum":["a",null]}"#, r#"{"type":"string","nullable":true,"enum":["a"]}"#),
            (r#"{"type":"array"}"#, r#"{"type":"array","items":{"type":"string"}}"#),
            (r#"{"type":"array","items":{"type":"integer"}}"#, r#"{"type":"array","items":{"type":"integer"}}"#),
            (
                r#"{"type":["array","string"]}"#,
                r#"{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"string"}]}"#,
            ),
            (
                r#"{"items":{"type":"integer"},"maxItems":3,"description":"d","type":["string","array","null"]}"#,
                r#"{"description":"d","anyOf":[{"type":"string"},{"type":"array","items":{"type":"integer"},"maxItems":3}],"nullable":true}"#,
            ),
            (
                r#"{"type":["string","integer"],"enum":["a",1],"minimum":0}"#,
                r#"{"anyOf":[{"type":"string","enum":["a"]},{"type":"integer","minimum":0}]}"#,
            ),
            (
                r#"{"type":["object","boolean"],"properties":{"a":{"type":"array"}},"required":["a"]}"#,
                r#"{"anyOf":[{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}},"required":["a"]},{"type":"boolean"}]}"#,
            ),
            (r#"{"type":["string","integer"],"enum":[1,2]}"#, r#"{"anyOf":[{"type":"string"},{"type":"integer"}]}"#),
            (r#"{"type":"string","enum":[]}"#, r#"{"type":"string"}"#),
            (r#"{"type":"string","format":"uri"}"#, r#"{"type":"string"}"#),
            (r#"{"type":"string","format":"date-time"}"#, r#"{"type":"string","format":"date-time"}"#),
            (
                r#"{"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"integer"}},"required":["b","a"]}]}"#,
                r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a","b"]}"#,
            ),
            (
                r##"{"$defs":{"P":{"type":"string","title":"T"}},"type":"object","properties":{"p":{"$ref":"#/$defs/P","description":"d"}}}"##,
                r#"{"type":"object","properties":{"p":{"type":"string","title":"T","description":"d"}}}"#,
            ),
            (
                r##"{"type":"object","properties":{"p":{"$ref":"other.json"},"q":{"$ref":"#/$defs/none"}}}"##,
                r#"{"type":"object","properties":{"p":{"type":"object"},"q":{"type":"object"}}}"#,
            ),
            (
                r#"{"type":"array","items":[{"type":"string"},{"type":"integer"}],"uniqueItems":true}"#,
                r#"{"type":"array","items":{"type":"string"}}"#,
            ),
        ];
        for (schema, wanted) in cases {
            assert_eq!(gemini_subset(schema), wanted, "{schema}");
        }
    }

    #[test]
    fn p45_every_word_the_subset_has_no_place_for_goes_but_a_property_of_that_name_stays() {
        let words = [
            "additionalProperties",
            "unevaluatedProperties",
            "unevaluatedItems",
            "patternProperties",
            "propertyNames",
            "dependentRequired",
            "dependentSchemas",
            "if",
            "then",
            "else",
            "not",
            "contains",
            "multipleOf",
            "uniqueItems",
            "contentEncoding",
            "examples",
            "default",
            "deprecated",
            "readOnly",
            "writeOnly",
            "$comment",
            "$id",
            "$defs",
        ];
        for word in words {
            let schema = format!(
                r#"{{"type":"object","{word}":{{"type":"string"}},"properties":{{"{word}":{{"type":"string"}}}}}}"#
            );
            let wanted = format!(r#"{{"type":"object","properties":{{"{word}":{{"type":"string"}}}}}}"#);
            assert_eq!(gemini_subset(&schema), wanted);
        }
    }

    #[test]
    fn p45_a_schema_that_refers_to_itself_ends_after_three_times() {
        let schema =
            r##"{"$defs":{"N":{"type":"object","properties":{"next":{"$ref":"#/$defs/N"}}}},"$ref":"#/$defs/N"}"##;
        let mut wanted = r#"{"type":"object"}"#.to_owned();
        for _ in 0..3 {
            wanted = format!(r#"{{"type":"object","properties":{{"next":{wanted}}}}}"#);
        }
        assert_eq!(gemini_subset(schema), wanted);
        // Many references in each other neither hang nor grow without end.
        let many: Vec<String> =
            (0..12).map(|n| format!(r##""p{n}":{{"$ref":"#/$defs/A"}},"q{n}":{{"$ref":"#"}}"##)).collect();
        let wide = format!(r##"{{"$defs":{{"A":{{"properties":{{{0}}}}}}},"properties":{{{0}}}}}"##, many.join(","));
        assert!(gemini_subset(&wide).len() < 4_000_000);
    }

    #[test]
    fn odd_schemas_do_no_harm() {
        for schema in [
            "",
            "null",
            "[]",
            "true",
            "{",
            r#"{"type":null,"enum":null,"items":null,"properties":[1],"anyOf":{},"$ref":7,"required":"x"}"#,
        ] {
            let made = gemini_subset(schema);
            assert!(serde_json::from_str::<serde_json::Value>(&made).is_ok(), "{schema}");
        }
        let deep = format!("{}1{}", r#"{"items":"#.repeat(100), "}".repeat(100));
        assert!(gemini_subset(&deep).starts_with(r#"{"items":{"items":"#));
        gemini_json(&deep);
    }
}
