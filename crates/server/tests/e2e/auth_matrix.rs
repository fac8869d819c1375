//! Every route of the table, with every kind of caller: who is let in, and what the others are told. The table is read
//! from the document that the server makes of it, so a new route is covered without a line here.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_core::key::{self, KeyHash};
use tidegate_core::{KeyKind, Secret, Tenant, Timestamp, WorkspaceId};
use tidegate_store::Store;
use tidegate_store::keys::NewKey;

use crate::harness::{Account, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, on_both, shell};

const MISSING: &str = "Missing Authentication header";
const INVALID: &str = "Invalid API key";

/// What a caller sends to say who they are.
type Header = Option<(&'static str, String)>;

struct Caller {
    name: &'static str,
    header: Header,
    /// The kind of a key that works.
    kind: Option<KeyKind>,
}

#[derive(Debug)]
struct Operation {
    method: String,
    path: String,
    callers: String,
    is_messages: bool,
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let prefixes: &[&str] = if item.get("servers").is_some() { &[""] } else { &["/v1", "/api/v1"] };
        let known = ["get", "post", "put", "patch", "delete"];
        for (method, operation) in
            item.as_object().expect("an item").iter().filter(|(name, _)| known.contains(&&***name))
        {
            let callers = operation["x-callers"].as_str().expect("who may call it").to_owned();
            for prefix in prefixes {
                operations.push(Operation {
                    method: method.to_uppercase(),
                    path: format!("{prefix}{}", filled(path)),
                    callers: callers.clone(),
                    is_messages: path.starts_with("/messages"),
                });
            }
        }
    }
    operations
}

/// The path with something in its variable parts that has the right form and is nobody's.
fn filled(path: &str) -> String {
    path.replace("{hash}", &"0".repeat(64))
        .replace("{interval}", "daily")
        .replace("{plugin_id}", "web")
        .replace("{file_id}", "file_00000000000000000000000000")
        .replace("{id}", "0198c8b0-0000-7000-8000-00000000dead")
}

async fn store_key(
    store: &Store,
    tenant: &Tenant,
    workspace: &WorkspaceId,
    kind: KeyKind,
    expires: Option<Timestamp>,
) -> String {
    let prefix = match kind {
        KeyKind::Inference => "sk-tg-v1-",
        KeyKind::Management => "sk-tgm-v1-",
    };
    let raw: Secret = key::generate(prefix);
    let token = raw.expose(|bytes| String::from_utf8(bytes.to_vec()).expect("plain"));
    let new = NewKey {
        hash: KeyHash::of(token.as_bytes()),
        kind,
        name: "matrix".to_owned(),
        label: key::label(&token, prefix),
        limit: None,
        limit_reset: None,
        include_byok_in_limit: false,
        expires,
        creator: None,
        external_user: None,
        app_id: None,
        spawn_agent: None,
        spawn_cloud: None,
    };
    store.create_key(tenant, &shell(), workspace, new).await.expect("it is stored");
    token
}

fn bearer(token: &str) -> Header {
    Some(("authorization", format!("Bearer {token}")))
}

/// Both kinds of every state a key can be in, ours and another organisation's.
async fn callers(account: &Account) -> Vec<Caller> {
    let (store, tenant, workspace) = (&account.store, &account.tenant, &account.workspace);
    let (other, other_workspace) = account.other_tenant().await;
    let past = Some(Timestamp(1));
    let mut callers = vec![
        Caller { name: "nobody", header: None, kind: None },
        Caller { name: "an empty header", header: Some(("authorization", String::new())), kind: None },
        Caller { name: "an empty bearer", header: Some(("authorization", "Bearer ".to_owned())), kind: None },
        Caller { name: "another scheme", header: Some(("authorization", "Basic eDp5".to_owned())), kind: None },
        Caller { name: "an unknown key", header: bearer("unknown"), kind: None },
        Caller { name: "inference", header: bearer(INFERENCE_KEY), kind: Some(KeyKind::Inference) },
        Caller { name: "management", header: bearer(MANAGEMENT_KEY), kind: Some(KeyKind::Management) },
    ];
    for kind in [KeyKind::Inference, KeyKind::Management] {
        let token = store_key(store, tenant, workspace, kind, None).await;
        let broken = format!("{}x", &token[..token.len() - 1]);
        let broken = if broken == token { format!("{}y", &token[..token.len() - 1]) } else { broken };
        callers.push(Caller { name: "malformed", header: bearer(&broken), kind: None });
        let expired = store_key(store, tenant, workspace, kind, past).await;
        callers.push(Caller { name: "expired", header: bearer(&expired), kind: None });
        let disabled = store_key(store, tenant, workspace, kind, None).await;
        let hash = KeyHash::of(disabled.as_bytes());
        assert!(store.set_key_disabled(tenant, &shell(), &hash, true).await.expect("it answers"));
        callers.push(Caller { name: "disabled", header: bearer(&disabled), kind: None });
        let deleted = store_key(store, tenant, workspace, kind, None).await;
        let hash = KeyHash::of(deleted.as_bytes());
        assert!(store.delete_key(tenant, &shell(), &hash, None).await.expect("it answers"));
        callers.push(Caller { name: "deleted", header: bearer(&deleted), kind: None });
        let foreign = store_key(store, &other, &other_workspace, kind, None).await;
        callers.push(Caller { name: "another organisation's", header: bearer(&foreign), kind: Some(kind) });
    }
    callers
}

async fn ask(gate: &Tidegate, operation: &Operation, header: &Header) -> Reply {
    let ask = gate.ask(&operation.method, &operation.path);
    let ask = match header {
        Some((name, value)) => ask.header(name, value),
        None => ask,
    };
    ask.send().await
}

fn message(reply: &Reply) -> String {
    reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
}

on_both! {
    async fn ten_1_every_route_admits_whom_it_declares_and_nobody_else(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        let operations = operations(&gate.get("/api/v1/openapi.json").await.json());
        assert!(operations.len() > 60, "the table is read: {}", operations.len());
        let callers = callers(&account).await;
        let mut cells = 0;
        let mut open = BTreeMap::new();
        for operation in &operations {
            let for_nobody = ask(gate, operation, &None).await.status;
            for caller in &callers {
                let reply = ask(gate, operation, &caller.header).await;
                let place = format!("{} {} as {}", operation.method, operation.path, caller.name);
                let is_empty = matches!(caller.name, "nobody" | "an empty header" | "an empty bearer");
                let wanted = match operation.callers.as_str() {
                    "anyone" => None,
                    "inference" => Some((vec![KeyKind::Inference], "Management keys cannot be used for inference")),
                    "management" => {
                        Some((vec![KeyKind::Management], "Only management keys can perform this operation"))
                    }
                    "both" => Some((vec![KeyKind::Inference, KeyKind::Management], "")),
                    other => panic!("{place}: {other} is no kind of caller"),
                };
                match wanted {
                    None => {
                        open.insert(operation.path.clone(), operation.method.clone());
                        assert_eq!(reply.status, for_nobody, "{place}: a key makes no difference");
                        assert!(!matches!(reply.status, 401 | 403), "{place}: {reply:?}");
                    }
                    Some(_) if is_empty => {
                        assert_eq!((reply.status, &*message(&reply)), (401, MISSING), "{place}");
                    }
                    Some((kinds, refusal)) => match caller.kind {
                        None => assert_eq!((reply.status, &*message(&reply)), (401, INVALID), "{place}"),
                        Some(kind) if kinds.contains(&kind) => {
                            assert!(matches!(reply.status, 200 | 400 | 404), "{place}: {reply:?}");
                        }
                        Some(_) => assert_eq!((reply.status, &*message(&reply)), (403, refusal), "{place}"),
                    },
                }
                if reply.status >= 400 && operation.callers != "anyone" {
                    let kind = &reply.json()["type"];
                    assert_eq!(kind == "error", operation.is_messages, "{place}: the form of its surface");
                }
                assert!(reply.header("x-request-id").is_some(), "{place}");
                cells += 1;
            }
        }
        assert!(cells >= 17 * 60, "{cells}");
        let mut open: Vec<String> = open.into_keys().collect();
        open.retain(|path| !path.starts_with("/api/v1"));
        let expected = [
            "/",
            "/assets/copy.js",
            "/assets/dashboard.css",
            "/assets/dashboard.js",
            "/assets/icon.svg",
            "/assets/page.css",
            "/assets/playground.js",
            "/auth",
            "/auth/authorize",
            "/auth/sign-in",
            "/auth/sign-out",
            // Each asks for a session by itself.
            "/dashboard",
            "/dashboard/budgets",
            "/dashboard/byok",
            "/dashboard/destinations",
            "/dashboard/keys",
            "/dashboard/members",
            "/dashboard/models",
            "/dashboard/oidc",
            "/dashboard/oidc/callback",
            "/dashboard/playground",
            "/dashboard/requests",
            "/dashboard/requests/0198c8b0-0000-7000-8000-00000000dead",
            "/dashboard/sign-in",
            "/dashboard/sign-out",
            "/docs/errors",
            "/healthz",
            "/readyz",
            "/v1/auth/keys",
            "/v1/files/file_00000000000000000000000000/signed",
            "/v1/openapi.json",
        ];
        assert_eq!(open, expected, "nothing else is open to everyone");
        // The other way a key can come is for what inference keys may call.
        assert_eq!(gate.ask("GET", "/v1/keys").header("x-api-key", MANAGEMENT_KEY).send().await.status, 401);
        assert_eq!(gate.ask("GET", "/v1/key").header("x-api-key", INFERENCE_KEY).send().await.status, 200);
        // Never in the address.
        let query = gate.get(&format!("/v1/key?api_key={INFERENCE_KEY}&key={INFERENCE_KEY}")).await;
        assert_eq!((query.status, &*message(&query)), (401, MISSING));
    }
}
