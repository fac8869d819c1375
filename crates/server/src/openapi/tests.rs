use std::collections::BTreeSet;

use serde_json::Value;

use super::document;
use super::operations::{self, DESCRIPTIONS};
use crate::routes::{Mount, ROUTES};

fn parsed() -> Value {
    serde_json::from_str(&document("http://x")).expect("the document is JSON")
}

/// Every operation of the document with its path and method.
fn all_operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    paths
        .iter()
        .flat_map(|(path, item)| {
            let operations = item.as_object().into_iter().flatten().filter(|(name, _)| *name != "servers");
            operations.map(|(method, operation)| (path.as_str(), method.as_str(), operation))
        })
        .collect()
}

fn resolve<'d>(document: &'d Value, reference: &str) -> Option<&'d Value> {
    document.pointer(reference.strip_prefix('#')?)
}

#[test]
fn every_route_has_a_description_and_every_description_a_route() {
    for route in ROUTES {
        let found = operations::find(route.method.as_str(), route.path);
        assert!(found.is_some(), "{} {} has no description", route.method, route.path);
    }
    let mut seen = BTreeSet::new();
    for description in DESCRIPTIONS {
        let (method, path) = (description.method, description.path);
        assert!(ROUTES.iter().any(|route| route.method == method && route.path == path), "{method} {path} is no route");
        assert!(seen.insert((method, path)), "{method} {path} is described twice");
    }
}

#[test]
fn every_route_is_in_the_document() {
    let document = parsed();
    for route in ROUTES {
        let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
        assert_eq!(operation["summary"], route.summary, "{}", route.path);
        assert!(operation["x-callers"].is_string(), "{}", route.path);
        let is_of_site = document["paths"][route.path]["servers"].is_array();
        assert_eq!(is_of_site, route.mount == Mount::Site, "{}", route.path);
    }
    assert_eq!(all_operations(&document).len(), ROUTES.len());
}

#[test]
fn operations_have_names_of_their_own() {
    let document = parsed();
    let names: BTreeSet<&str> =
        all_operations(&document).iter().filter_map(|(_, _, operation)| operation["operationId"].as_str()).collect();
    assert_eq!(names.len(), ROUTES.len());
    let tags: BTreeSet<&str> =
        document["tags"].as_array().into_iter().flatten().filter_map(|tag| tag["name"].as_str()).collect();
    for description in DESCRIPTIONS {
        assert!(tags.contains(description.tag), "{}", description.id);
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_component_is_referred_to() {
    fn collect<'v>(value: &'v Value, into: &mut BTreeSet<&'v str>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, member)| match member.as_str() {
                Some(reference) if name == "$ref" => {
                    into.insert(reference);
                }
                _ => collect(member, into),
            }),
            Value::Array(elements) => elements.iter().for_each(|element| collect(element, into)),
            _ => {}
        }
    }
    let document = parsed();
    let mut references = BTreeSet::new();
    collect(&document, &mut references);
    for reference in &references {
        assert!(resolve(&document, reference).is_some(), "{reference}");
    }
    for kind in ["schemas", "parameters", "headers"] {
        for name in document["components"][kind].as_object().expect("components").keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(references.contains(reference.as_str()), "nothing refers to {reference}");
        }
    }
}

#[test]
fn the_variable_parts_of_a_path_are_declared_and_no_others() {
    let document = parsed();
    for (path, method, operation) in all_operations(&document) {
        let in_path: BTreeSet<&str> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let declared: BTreeSet<&str> = parameters
            .iter()
            .filter_map(|parameter| resolve(&document, parameter["$ref"].as_str()?))
            .filter(|parameter| parameter["in"] == "path")
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        assert_eq!(in_path, declared, "{method} {path}");
    }
}

#[test]
fn every_required_member_is_described() {
    fn check(place: &str, schema: &Value) {
        let properties = schema.get("properties").and_then(Value::as_object);
        if let (Some(required), Some(properties)) = (schema["required"].as_array(), properties) {
            for name in required.iter().filter_map(Value::as_str) {
                assert!(properties.contains_key(name), "{place}: {name}");
            }
        }
        for (name, property) in properties.into_iter().flatten() {
            check(&format!("{place}.{name}"), property);
        }
        if let Some(items) = schema.get("items") {
            check(&format!("{place}[]"), items);
        }
    }
    let document = parsed();
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        check(name, schema);
    }
}

#[test]
fn errors_follow_from_who_calls_and_what_is_sent() {
    let document = parsed();
    let statuses = |path: &str, method: &str| -> Vec<String> {
        let responses = document["paths"][path][method]["responses"].as_object();
        responses.into_iter().flat_map(|responses| responses.keys().cloned()).collect()
    };
    assert_eq!(statuses("/keys/{hash}", "delete"), ["200", "401", "403", "404", "429", "500", "503", "default"]);
    assert_eq!(
        statuses("/auth/keys", "post"),
        ["200", "400", "403", "408", "413", "415", "429", "500", "503", "default"]
    );
    assert_eq!(statuses("/key", "get"), ["200", "401", "429", "500", "503", "default"]);
    assert_eq!(statuses("/assets/page.css", "get"), ["200", "500", "default"]);
}
