//! Files: kept, listed, read and deleted over HTTP, by the keys of one workspace.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};

use crate::harness::{Account, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, assert_not_found, eventually, on_both};

const SOON: std::time::Duration = std::time::Duration::from_secs(10);
const BOUNDARY: &str = "tide";
const FORM: &str = "multipart/form-data; boundary=tide";

/// A part of a form.
pub fn part(head: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--{BOUNDARY}\r\ncontent-disposition: form-data; {head}\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat().as_slice(), format!("--{BOUNDARY}--\r\n").as_bytes()].concat()
}

async fn ask(gate: &Tidegate, key: &str, method: &str, path: &str) -> Reply {
    gate.ask(method, &format!("/api/v1/files{path}")).key(key).send().await
}

async fn post(gate: &Tidegate, query: &str, parts: &[Vec<u8>]) -> Reply {
    let ask = gate.ask("POST", &format!("/v1/files{query}")).key(INFERENCE_KEY).header("content-type", FORM);
    ask.body(form(parts)).send().await
}

/// Keeps a text and gives what was answered.
pub async fn kept(gate: &Tidegate, filename: &str, content: &[u8]) -> Value {
    kept_as(gate, filename, "text/plain", content).await
}

/// Keeps a file of this type.
pub async fn kept_as(gate: &Tidegate, filename: &str, mime_type: &str, content: &[u8]) -> Value {
    let head = format!("name=\"file\"; filename=\"{filename}\"\r\ncontent-type: {mime_type}");
    let reply = post(gate, "", &[part(&head, content)]).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    reply.json()
}

/// A key of another workspace.
pub async fn of_another_workspace(account: &Account) -> String {
    let team = account.data("POST", "/workspaces", Some(json!({"name": "Team", "slug": "team"})), 201).await;
    let body = json!({"name": "theirs", "workspace_id": team["id"]});
    let made = account.send("POST", "/keys", body).await.json();
    let key = made["key"].as_str().unwrap().to_owned();
    let is_known = async || account.gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
    eventually("the key is known", SOON, is_known).await;
    key
}

fn ids(list: &Value) -> Vec<String> {
    list["data"].as_array().unwrap().iter().map(|file| file["id"].as_str().unwrap().to_owned()).collect()
}

/// Status, place and text of one mistake.
fn issue(reply: &Reply) -> (u16, String, String) {
    let json = reply.json();
    let issues = json["error"]["metadata"]["issues"].as_array().unwrap_or_else(|| panic!("{json}"));
    assert_eq!(issues.len(), 1, "{json}");
    let member = |name: &str| issues[0][name].as_str().unwrap().to_owned();
    (reply.status, member("path"), member("message"))
}

on_both! {
    async fn a_file_comes_back_as_it_was_sent(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        // Bytes that are no text, and a boundary that is none.
        let content = [b"\0\xff\r\n--tid".as_slice(), b"\r\n--other--\r\n"].concat();
        let head = "name=\"file\"; filename=\"tides \u{00e9}.bin\"\r\ncontent-type: image/png";
        let reply = post(gate, "", &[part(head, &content)]).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let made = reply.json();
        let id = made["id"].as_str().unwrap();
        assert!(id.starts_with("file_"), "{made}");
        let mut expected = json!({"_shape": "tidegate", "id": id, "type": "file", "filename": "tides \u{00e9}.bin",
            "mime_type": "image/png", "size_bytes": content.len(), "created_at": made["created_at"], "downloadable": true});
        assert_eq!(made, expected);
        assert_eq!(ask(gate, INFERENCE_KEY, "GET", &format!("/{id}")).await.json(), expected);
        expected["_shape"] = json!("anthropic");
        assert_eq!(ask(gate, INFERENCE_KEY, "GET", &format!("/{id}?provider=anthropic")).await.json(), expected);
        let openai = ask(gate, INFERENCE_KEY, "GET", &format!("/{id}?provider=openai")).await.json();
        let seconds = openai["created_at"].as_i64().unwrap();
        assert!(seconds > 1_700_000_000, "{openai}");
        assert_eq!(openai, json!({"_shape": "openai", "id": id, "object": "file", "bytes": content.len(),
            "created_at": seconds, "filename": "tides \u{00e9}.bin", "purpose": "user_data", "status": "processed"}));

        let read = ask(gate, INFERENCE_KEY, "GET", &format!("/{id}/content")).await;
        assert_eq!((read.status, read.header("content-type")), (200, Some("application/octet-stream")));
        assert_eq!(read.header("content-disposition"), Some("attachment; filename*=UTF-8''tides%20%C3%A9.bin"));
        assert_eq!(read.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(read.body, content);

        let gone = ask(gate, INFERENCE_KEY, "DELETE", &format!("/{id}")).await;
        assert_eq!((gone.status, gone.json()), (200, json!({"_shape": "tidegate", "id": id, "type": "file_deleted"})));
        for (method, path) in [("GET", ""), ("GET", "/content"), ("DELETE", "")] {
            assert_not_found(&ask(gate, INFERENCE_KEY, method, &format!("/{id}{path}")).await);
        }
    }

    async fn files_belong_to_the_workspace_of_the_key(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        let id = kept(gate, "a.txt", b"ours").await["id"].as_str().unwrap().to_owned();
        let theirs = of_another_workspace(&account).await;
        assert_eq!(ids(&ask(gate, &theirs, "GET", "").await.json()), [""; 0]);
        for (method, path) in [("GET", ""), ("GET", "/content"), ("DELETE", "")] {
            assert_not_found(&ask(gate, &theirs, method, &format!("/{id}{path}")).await);
        }
        let ours = &account.workspace.0;
        for (key, status) in [(INFERENCE_KEY, 200), (theirs.as_str(), 403)] {
            let named = ask(gate, key, "GET", &format!("?workspace_id={ours}")).await;
            assert_eq!(named.status, status, "{}", named.body_text());
        }
        assert_eq!(ask(gate, MANAGEMENT_KEY, "GET", "").await.status, 403);
        assert_eq!(ids(&ask(gate, INFERENCE_KEY, "GET", "").await.json()), [id]);
    }

    async fn files_are_listed_page_by_page_in_every_clients_words(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        let empty = ask(gate, INFERENCE_KEY, "GET", "").await.json();
        assert_eq!(empty, json!({"_shape": "tidegate", "data": [], "has_more": false, "first_id": null, "last_id": null, "cursor": null, "next_page": null}));
        let mut made = Vec::new();
        for at in 0..3 {
            made.push(kept(gate, &format!("{at}.txt"), b"x").await["id"].as_str().unwrap().to_owned());
        }
        // Those of one millisecond stand in the order of their ids.
        made.sort();
        let list = async |query: &str| ask(gate, INFERENCE_KEY, "GET", query).await.json();
        assert_eq!(ids(&list("").await), made, "oldest first");
        let first = list("?limit=2&order=desc").await;
        assert_eq!((ids(&first), &first["has_more"]), (vec![made[2].clone(), made[1].clone()], &json!(true)));
        assert_eq!((&first["first_id"], &first["last_id"]), (&json!(made[2]), &json!(made[1])));
        assert_eq!((&first["cursor"], &first["next_page"]), (&json!(made[1]), &json!(made[1])));
        for name in ["cursor", "page"] {
            let rest = list(&format!("?limit=2&order=desc&{name}={}", made[1])).await;
            assert_eq!((ids(&rest), &rest["has_more"], &rest["cursor"]), (vec![made[0].clone()], &json!(false), &Value::Null));
        }

        let openai = list(&format!("?provider=openai&order=asc&after={}", made[0])).await;
        assert_eq!((ids(&openai), &openai["object"]), (made[1..].to_vec(), &json!("list")));
        assert_eq!(openai["data"][0]["object"], "file");
        let anthropic = list(&format!("?provider=anthropic&after_id={}", made[2])).await;
        assert_eq!(ids(&anthropic), [made[1].clone(), made[0].clone()]);
        assert_eq!((anthropic["data"][0]["_shape"].as_str(), anthropic.get("cursor")), (Some("anthropic"), None));
        assert_eq!(ids(&list(&format!("?limit=1&order=desc&before_id={}", made[0])).await), [made[1].clone()]);
    }

    async fn what_a_workspace_may_keep_is_limited(database: &Database) {
        let limits = "[files]\nmax_file_bytes = 1000\nmax_workspace_files = 3\nmax_workspace_bytes = 2500\n";
        let account = Account::start(database, Tidegate::start().config(limits)).await;
        let gate = &account.gate;
        let head = "name=\"file\"; filename=\"a\"";
        kept(gate, "a.txt", &[b'x'; 1000]).await;
        // By the limit of the part, and by that of the whole body.
        for size in [1001, 200_000] {
            let large = post(gate, "", &[part(head, &vec![b'x'; size])]).await;
            let message = large.json()["error"]["message"].clone();
            assert_eq!((large.status, message), (413, json!("Request payload too large: a file has at most 1000 bytes")));
        }
        kept(gate, "b.txt", &[b'x'; 1000]).await;
        let full = post(gate, "", &[part(head, &[b'x'; 501])]).await;
        let text = "cannot be kept: the workspace has no room for a file of this size; delete files that are not needed any more";
        assert_eq!(issue(&full), (400, "file".to_owned(), text.to_owned()));
        let last = kept(gate, "c.txt", &[b'x'; 500]).await;
        let many = post(gate, "", &[part(head, b"x")]).await;
        assert!(issue(&many).2.contains("as many files as a workspace may have"), "{}", many.body_text());
        // Room that was made is room.
        ask(gate, INFERENCE_KEY, "DELETE", &format!("/{}", last["id"].as_str().unwrap())).await;
        kept(gate, "d.txt", b"x").await;
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_form_is_named() {
    let gate = Tidegate::start().run().await;
    let file = |name: &str| part(&format!("name=\"file\"; filename=\"{name}\""), b"x");
    let long = "x".repeat(256);
    let cases = [
        (vec![], "file", "is required"),
        (vec![part("name=\"other\"", b"x")], "file", "is required"),
        (vec![part("name=\"file\"", b"x")], "file", "must be a file with a filename"),
        (vec![file("a"), file("b")], "file", "stands twice"),
        (vec![part("name=\"file\"; filename=\"a\"", b"")], "file", "must not be empty"),
        (vec![file("")], "file", "its filename must be 1 to 255 characters"),
        (vec![file("a/b")], "file", "its filename must be 1 to 255 characters"),
        (vec![file(&long)], "file", "its filename must be 1 to 255 characters"),
        (vec![file("a"), part("name=\"purpose\"", b"fun")], "purpose", "must be one of assistants, batch"),
    ];
    for (parts, path, message) in cases {
        let (status, place, text) = issue(&post(&gate, "", &parts).await);
        assert_eq!((status, place.as_str()), (400, path), "{text}");
        assert!(text.starts_with(message), "{text}");
    }
    let ask = || gate.ask("POST", "/v1/files").key(INFERENCE_KEY);
    for kind in ["application/json", "multipart/form-data", "text/plain"] {
        let (status, _, text) = issue(&ask().header("content-type", kind).body("{}").send().await);
        assert_eq!((status, &*text), (400, "Content-Type must be multipart/form-data with a boundary"), "{kind}");
    }
    let whole = form(&[file("a")]);
    let (status, _, text) =
        issue(&ask().header("content-type", FORM).body(whole[..whole.len() - 20].to_vec()).send().await);
    assert_eq!((status, &*text), (400, "the body must be a whole multipart/form-data form"));

    let kept = post(&gate, "?provider=openai", &[part("name=\"purpose\"", b"vision"), file("a.bin")]).await.json();
    assert_eq!((&kept["purpose"], &kept["filename"]), (&json!("vision"), &json!("a.bin")));
    let list =
        async |query: &str| issue(&gate.ask("GET", &format!("/v1/files?{query}")).key(INFERENCE_KEY).send().await);
    for (query, place, message) in [
        ("limit=0", "limit", "must be an integer from 1 to 1000"),
        ("limit=1001", "limit", "must be an integer from 1 to 1000"),
        ("order=up", "order", "must be one of asc, desc"),
        ("provider=google", "provider", "must be one of openai, anthropic"),
        ("after=x", "after", "must be the id of a file of an earlier page"),
        ("workspace_id=x", "workspace_id", "must be a UUID"),
    ] {
        assert_eq!(list(query).await, (400, place.to_owned(), message.to_owned()), "{query}");
    }
    let id = kept["id"].as_str().unwrap();
    let twice = list(&format!("after={id}&before_id={id}")).await;
    assert!(twice.2.starts_with("cannot be given together"), "{twice:?}");
}

#[tokio::test]
async fn what_files_hold_is_nowhere_in_the_clear_and_survives_a_restart_and_a_new_master_key() {
    let gate = Tidegate::start().run().await;
    let id = kept(&gate, "a.txt", b"high water at half past six").await["id"].as_str().unwrap().to_owned();
    let (status, place) = gate.stop().await;
    assert!(status.success());
    for entry in std::fs::read_dir(place.data_dir()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        assert!(!bytes.windows(16).any(|window| window == b"water at half pa"), "{}", path.display());
    }
    let rotated = place.run(&["secrets", "rotate", "--remove-old"]).await;
    assert!(rotated.status.success(), "{rotated:?}");
    let verified = place.run(&["secrets", "verify"]).await;
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(text.contains("1 files open, 0 do not"), "{text}");
    let gate = place.serve().await;
    let read = ask(&gate, INFERENCE_KEY, "GET", &format!("/{id}/content")).await;
    assert_eq!(read.body, b"high water at half past six".as_slice());
}
