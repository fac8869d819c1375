//! The interface as an OpenAPI document, made from the route table. Message bodies are Anthropic's published format and
//! are not derived again here.

use serde_json::{Map, Value, json};

use crate::routes::{Callers, Mount, ROUTES, Route, Surface};

/// The document as text; `public_url` is where the server is reached.
pub fn document(public_url: &str) -> String {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        if route.mount == Mount::Site {
            item["servers"] = json!([{"url": public_url}]);
        }
        item[route.method.as_str().to_lowercase()] = operation(route);
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A self-hosted gateway to language models.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": format!("{public_url}/api/v1")}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An inference or a management key."},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "An inference key."},
            },
            "schemas": schemas(),
        },
    });
    let mut text = serde_json::to_string_pretty(&document).expect("a document is JSON");
    text.push('\n');
    text
}

fn operation(route: &Route) -> Value {
    let error = match route.surface {
        Surface::Messages => "#/components/schemas/MessagesError",
        Surface::General => "#/components/schemas/Error",
    };
    let mut operation = json!({
        "summary": route.summary,
        "responses": {
            "200": {"description": "Success"},
            "default": {"description": "Error", "content": {"application/json": {"schema": {"$ref": error}}}},
        },
    });
    operation["x-callers"] = json!(match route.callers {
        Callers::Anyone => "anyone",
        Callers::Inference => "inference",
        Callers::Management => "management",
        Callers::Both => "both",
    });
    operation["security"] = match route.callers {
        Callers::Anyone => json!([]),
        Callers::Inference | Callers::Both => json!([{"bearer": []}, {"apiKey": []}]),
        Callers::Management => json!([{"bearer": []}]),
    };
    if route.surface == Surface::Messages {
        operation["requestBody"] = json!({
            "required": true,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/MessagesRequest"}}},
        });
    }
    operation
}

fn schemas() -> Value {
    json!({
        "MessagesRequest": {
            "type": "object",
            "required": ["model", "messages"],
            "description": "Anthropic's Messages request; members not listed there are forwarded.",
            "properties": {
                "model": {"type": "string", "minLength": 1, "maxLength": 256},
                "messages": {"type": "array", "minItems": 1, "maxItems": 10000, "items": {"type": "object"}},
                "max_tokens": {"type": "integer", "minimum": 0},
                "stream": {"type": "boolean", "default": false},
            },
            "additionalProperties": true,
        },
        "MessagesError": {
            "type": "object",
            "required": ["type", "error", "request_id"],
            "properties": {
                "type": {"const": "error"},
                "error": {
                    "type": "object",
                    "required": ["type", "message", "error_type"],
                    "properties": {"type": {"type": "string"}, "message": {"type": "string"}, "error_type": {"type": "string"}},
                },
                "request_id": {"type": ["string", "null"]},
                "metadata": {"type": "object"},
            },
        },
        "Error": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": ["code", "message"],
                    "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "metadata": {"type": "object"}},
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_in_the_document() {
        let document: Value = serde_json::from_str(&document("http://x")).unwrap();
        for route in ROUTES {
            let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
            assert_eq!(operation["summary"], route.summary, "{}", route.path);
        }
    }
}
