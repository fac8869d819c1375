//! The interface as an OpenAPI document, made from the route table and a table of descriptions. Message bodies are
//! Anthropic's published format and are not derived again here.

use serde_json::{Map, Value, json};

use crate::routes::{Callers, Mount, ROUTES, Route, Surface};
use operations::{Content, Description, Success};
use parameters::header_name;

mod operations;
mod parameters;
mod schemas;

const TAGS: &[(&str, &str)] = &[
    ("Messages", "Generating, in Anthropic's format or in one of OpenAI's."),
    ("Images", "Making pictures."),
    ("Embeddings", "Making vectors of texts."),
    ("Audio", "Speaking texts, and writing down what is said."),
    ("Rerank", "Ranking documents by what they have to do with a query."),
    ("Authorization", "How an application gets a key from a person: a code, exchanged for a key."),
    ("Models", "What can be called."),
    ("Generations", "Records of finished requests."),
    ("Keys", "Keys for inference, and what they may spend."),
    ("Activity", "What was asked for and spent, by day."),
    ("Credits", "What the account was given and has used."),
    ("Credentials", "Keys of providers that the account brings."),
    ("Guardrails", "What keys, members and workspaces are held to."),
    ("Observability", "Who is told of requests."),
    ("Presets", "Settings of requests under a name."),
    ("Files", "What callers and models keep."),
    ("Workspaces", "Rooms for keys and credentials, their members and budgets."),
    ("Pages", "What a browser sees."),
    ("Operation", "Running the gateway."),
];

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
    let tags: Vec<Value> =
        TAGS.iter().map(|(name, description)| json!({"name": name, "description": description})).collect();
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A self-hosted gateway to language models.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": format!("{public_url}/api/v1")}, {"url": format!("{public_url}/v1")}],
        "tags": tags,
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An inference or a management key."},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "An inference key."},
            },
            "parameters": parameters::parameters(),
            "headers": parameters::headers(),
            "schemas": schemas::schemas(),
        },
    });
    let mut text = serde_json::to_string_pretty(&document).expect("a document is JSON");
    text.push('\n');
    text
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({"summary": route.summary, "x-callers": callers(route), "security": security(route)});
    // A test sees to it that there is one.
    let Some(description) = operations::find(route.method.as_str(), route.path) else { return operation };
    operation["operationId"] = json!(description.id);
    operation["tags"] = json!([description.tag]);
    if !description.parameters.is_empty() {
        let named =
            description.parameters.iter().map(|name| json!({"$ref": format!("#/components/parameters/{name}")}));
        operation["parameters"] = named.collect();
    }
    if let Some(body) = description.body {
        operation["requestBody"] = json!({"required": true, "content": content(body)});
    }
    operation["responses"] = responses(route, description);
    operation
}

fn callers(route: &Route) -> &'static str {
    match route.callers {
        Callers::Anyone => "anyone",
        Callers::Inference => "inference",
        Callers::Management => "management",
        Callers::Both => "both",
    }
}

fn security(route: &Route) -> Value {
    match route.callers {
        Callers::Anyone => json!([]),
        Callers::Inference | Callers::Both => json!([{"bearer": []}, {"apiKey": []}]),
        Callers::Management => json!([{"bearer": []}]),
    }
}

fn content(content: Content) -> Value {
    let schema = |name: &str| json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
    match content {
        Content::Json(name) => json!({"application/json": schema(name)}),
        Content::Form(name) => json!({"application/x-www-form-urlencoded": schema(name)}),
        Content::Multipart(name) => json!({"multipart/form-data": schema(name)}),
        Content::JsonOrMultipart(name, form) => {
            json!({"application/json": schema(name), "multipart/form-data": schema(form)})
        }
        Content::Bytes(media) => json!({media: {"schema": {"type": "string", "format": "binary"}}}),
        Content::JsonOrEvents(name) => {
            json!({"application/json": schema(name), "text/event-stream": {"schema": {"type": "string"}}})
        }
        Content::Text(media) => json!({media: {"schema": {"type": "string"}}}),
        Content::Nothing => json!({}),
    }
}

fn headers(names: &[&str]) -> Value {
    let all = names.iter().chain(&["RequestId"]);
    let named = all.map(|name| (header_name(name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")})));
    Value::Object(named.collect())
}

fn responses(route: &Route, description: &Description) -> Value {
    let mut all = Map::new();
    for Success { status, content: body, text, headers: names } in description.success {
        let mut response = json!({"description": text, "headers": headers(names)});
        if !matches!(body, Content::Nothing) {
            response["content"] = content(*body);
        }
        all.insert(status.to_string(), response);
    }
    let error = match route.surface {
        Surface::Messages => "MessagesError",
        Surface::Inference | Surface::General => "Error",
    };
    for status in errors(route, description) {
        let names: &[&str] = match status {
            409 | 503 => &["RetryAfter"],
            429 => &["RetryAfter", "RateLimitLimit", "RateLimitRemaining", "RateLimitReset"],
            _ => &[],
        };
        let mut body = content(Content::Json(error));
        if description.error_pages.contains(&status) {
            body["text/html"] = json!({"schema": {"type": "string"}});
        }
        let response = json!({"description": reason(status), "headers": headers(names), "content": body});
        all.entry(status.to_string()).or_insert(response);
    }
    let rest =
        json!({"description": "Another error", "headers": headers(&[]), "content": content(Content::Json(error))});
    all.insert("default".to_owned(), rest);
    Value::Object(all)
}

/// The statuses of an operation's errors: its own, and those of what it has to do with.
fn errors(route: &Route, description: &Description) -> Vec<u16> {
    let of_callers: &[u16] = match route.callers {
        Callers::Anyone => &[],
        Callers::Both => &[401, 429, 503],
        Callers::Inference | Callers::Management => &[401, 403, 429, 503],
    };
    let of_body: &[u16] = if description.body.is_some() { &[400, 408, 413, 415] } else { &[] };
    let own = description.errors.iter().chain(description.error_pages);
    let mut all: Vec<u16> = own.chain(of_callers).chain(of_body).chain(&[500]).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "Something is wrong with the request; for account operations, `metadata.issues` says what",
        401 => "No key, or not a live one",
        402 => "The key or the account has nothing left to spend",
        403 => "This caller may not do this",
        404 => "There is no such thing",
        408 => "The body came too slowly",
        409 => "A conflict; nothing has changed, and it can be tried again",
        413 => "The body is too large",
        415 => "The body is encoded in a way that is not supported",
        429 => "Too many requests",
        502 => "The provider failed",
        503 => "Not available at the moment",
        504 => "The provider took too long",
        529 => "The provider is overloaded",
        _ => "Our own fault",
    }
}

#[cfg(test)]
mod tests;
