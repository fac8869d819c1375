//! What commands print, and to whom it belongs what they make.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::process::{Output, Stdio};

use serde_json::json;
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::Store;
use tidegate_store::members::{NewMember, Role};
use tokio::process::Command;

use crate::harness::{Account, Tidegate, command, fed, on_both, ran, shell, soon, text};

const MODEL: &str = "vendor/m";
const KEY: &str = "own-key-0123456789";
/// Clears a screen, and makes a line of its own.
const NAME: &str = "a\u{1b}[2Jb\nc";
const SHOWN: &str = r"a\u{1b}[2Jb\nc";

/// A command whose reader is gone before the first line.
async fn unread(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    soon("a command", child.wait_with_output()).await.unwrap()
}

on_both! {
    async fn a_key_can_belong_to_a_member(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let place = &account.gate.place;
        let ada = ran(place, &["members", "add", "--email", "ada@example.com"]).await.0.trim().to_owned();
        account.data("POST", "/workspaces", Some(json!({"name": "Team", "slug": "team"})), 201).await;
        for who in ["ADA@example.com", ada.as_str()] {
            let (key, _) = ran(place, &["keys", "create", "--name", "ops", "--management", "--member", who]).await;
            let body = json!({"callback_url": "https://app.example/"}).to_string();
            let made = account.gate.ask("POST", "/api/v1/auth/keys/code").key(key.trim()).json(body).send().await;
            assert_eq!(made.status, 200, "{made:?}");
            let body = json!({"code": made.json()["data"]["id"]}).to_string();
            let exchanged = account.gate.ask("POST", "/api/v1/auth/keys").json(body).send().await;
            assert_eq!((exchanged.status, &exchanged.json()["user_id"]), (200, &json!(ada)), "{exchanged:?}");
        }
        ran(place, &["keys", "create", "--name", "hers", "--member", &ada]).await;
        let keys = account.ask("GET", "/keys").await.json();
        let hers = keys["data"].as_array().unwrap().iter().find(|key| key["name"] == "hers").unwrap();
        assert_eq!(hers["creator_user_id"], json!(ada));
        for (words, reason) in [
            (["--member", "bob@example.com", "--workspace", "default"], "\"bob@example.com\" is no member"),
            (["--member", "ada@example.com", "--workspace", "team"], "is not a member of the workspace"),
        ] {
            let refused = place.run(&[&["keys", "create", "--name", "no"][..], &words].concat()).await;
            let said = text(&refused.stderr);
            assert!(!refused.status.success() && said.contains(reason) && said.lines().count() == 1, "{said}");
        }
    }

    async fn names_cannot_act_on_the_terminal(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let place = &account.gate.place;
        let key = account.data("POST", "/keys", Some(json!({"name": "k"})), 201).await;
        let hash = key["hash"].as_str().unwrap();
        account.data("POST", "/byok", Some(json!({"provider": "p0", "key": KEY})), 201).await;
        // Whatever the API lets through today, names may have come before or from elsewhere.
        for sql in ["UPDATE api_keys SET name = $1", "UPDATE credentials SET name = $1"] {
            match &account.store {
                Store::Sqlite { writer, .. } => drop(sqlx::query(sql).bind(NAME).execute(writer).await.unwrap()),
                Store::Postgres(pool) => drop(sqlx::query(sql).bind(NAME).execute(pool).await.unwrap()),
            }
        }
        let (email, role) = ("ada@example.com".to_owned(), Role::Member);
        let member = NewMember { email, first_name: Some(NAME.to_owned()), last_name: None, role };
        account.store.add_member(&account.tenant, &shell(), member).await.unwrap();
        for words in [
            &["keys", "list"][..],
            &["byok", "list"],
            &["members", "list"],
            &["keys", "disable", hash],
            &["keys", "delete", hash],
        ] {
            let (said, _) = ran(place, words).await;
            assert!(said.contains(SHOWN) && !said.contains('\u{1b}'), "{words:?}: {said:?}");
        }
        let made = place.run(&["keys", "create", "--name", NAME]).await;
        assert!(text(&made.stderr).contains(SHOWN), "{made:?}");
    }

    async fn a_list_of_credentials_tells_where_they_are_and_whether_they_can_be_used(database: &Database) {
        let builder = Tidegate::start().endpoint_at(MODEL, "http://127.0.0.1:9", "");
        let account = Account::start(database, builder).await;
        let place = &account.gate.place;
        account.data("POST", "/workspaces", Some(json!({"name": "Team", "slug": "team"})), 201).await;
        let create = async |words: &[&str]| {
            let words = [&["byok", "create", "--provider", "p0"], words].concat();
            let made = fed(place, &words, KEY).await;
            assert!(made.status.success(), "{}", text(&made.stderr));
            text(&made.stdout).trim().to_owned()
        };
        let (first, second) = (create(&["--name", "one"]).await, create(&["--workspace", "team"]).await);
        let line = async |words: &[&str], id: &str| {
            let (list, _) = ran(place, &[&["byok", "list"], words].concat()).await;
            list.lines().find(|line| line.starts_with(id)).map(ToOwned::to_owned)
        };
        assert!(line(&[], &first).await.unwrap().contains(" default "));
        let found = line(&["--workspace", "team"], &second).await.unwrap();
        assert!(found.contains(" team ") && found.contains(" live "), "{found}");
        assert_eq!(line(&["--workspace", "team"], &first).await, None);
        let nowhere = place.run(&["byok", "list", "--workspace", "nowhere"]).await;
        assert!(!nowhere.status.success() && text(&nowhere.stderr).contains("nowhere"), "{nowhere:?}");

        let config = std::fs::read_to_string(place.config()).unwrap();
        place.write_config(&config.replace("http://127.0.0.1:9", "http://127.0.0.1:10"));
        assert!(line(&[], &first).await.unwrap().contains(" other address "));
        ran(place, &["byok", "disable", &first]).await;
        assert!(line(&[], &first).await.unwrap().contains(" disabled "));
        assert!(fed(place, &["byok", "rotate", &second], KEY).await.status.success());
        assert!(line(&[], &second).await.unwrap().contains(" live "), "its new key may go to the new address");
    }
}

#[tokio::test]
async fn a_reader_that_stops_is_no_failure() {
    let gate = Tidegate::start().run().await;
    for words in [
        &["keys", "list"][..],
        &["byok", "list"],
        &["members", "list"],
        &["members", "add", "--email", "ada@example.com"],
        &["audit", "verify"],
        &["secrets", "verify"],
    ] {
        let output = unread(gate.place.prepared(words)).await;
        let said = text(&output.stderr);
        assert!(output.status.success() && !said.contains("panicked"), "{words:?}: {said}");
    }
    for words in [&["openapi"][..], &["config"], &["config", "--schema"]] {
        let output = unread(command(words)).await;
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {}", text(&output.stderr));
    }
    // A key that nobody has seen is of no use to anybody.
    let made = unread(gate.place.prepared(&["keys", "create", "--name", "unseen"])).await;
    let said = text(&made.stderr);
    assert!(!made.status.success() && said.contains("tidegate keys delete ") && said.lines().count() == 1, "{said}");
}
