//! `tidegate byok` beside a running server, and the help of the commands around stored secrets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Account, MANAGEMENT_KEY, Recorder, Tidegate, command, eventually, fed, on_both, ran, say, soon, text,
};

const MODEL: &str = "vendor/m";
const KEY: &str = "own-key-0123456789";
const TWO_SECONDS: Duration = Duration::from_secs(2);

on_both! {
    async fn credentials_are_managed_from_a_shell_while_the_server_runs(database: &Database) {
        let upstream = Recorder::start().await;
        let builder = Tidegate::start().endpoint_at(MODEL, &upstream.base_url(), "");
        let account = Account::start(database, builder).await;
        let place = &account.gate.place;
        let uses = async |expected: &str| {
            eventually(expected, TWO_SECONDS, async || {
                assert_eq!(say(account.gate.address, MODEL, "hi").await.status, 200);
                upstream.seen().last().unwrap().0 == expected
            })
            .await;
        };
        let made = fed(place, &["byok", "create", "--provider", "p0", "--name", "prod"], &format!("{KEY}\n")).await;
        assert!(made.status.success(), "{}", text(&made.stderr));
        let id = text(&made.stdout).trim().to_owned();
        assert!(text(&made.stderr).contains("own...6789"), "{}", text(&made.stderr));
        uses(KEY).await;
        let shown = account.data("GET", &format!("/byok/{id}"), None, 200).await;
        assert_eq!((&shown["name"], &shown["provider"]), (&json!("prod"), &json!("p0")));
        let (list, _) = ran(place, &["byok", "list"]).await;
        assert!(list.contains(&id) && list.contains("live") && list.contains("own...6789") && !list.contains(KEY));
        assert!(ran(place, &["byok", "disable", &id]).await.0.contains("Disabled"));
        uses("provider-secret-0").await;
        assert!(ran(place, &["byok", "list"]).await.0.contains("disabled"));
        ran(place, &["byok", "enable", &id]).await;
        uses(KEY).await;
        let file = place.data_dir().join("key.txt");
        std::fs::write(&file, "own-key-of-a-file-3210\n").unwrap();
        ran(place, &["byok", "rotate", &id, "--key-file", file.to_str().unwrap()]).await;
        uses("own-key-of-a-file-3210").await;
        assert!(fed(place, &["byok", "rotate", &id], "own-key-of-a-pipe-4321").await.status.success());
        uses("own-key-of-a-pipe-4321").await;
        ran(place, &["byok", "delete", &id]).await;
        uses("provider-secret-0").await;

        for (words, input, reason) in [
            (&["byok", "create", "--provider", "nobody"][..], KEY, "nobody"),
            (&["byok", "create", "--provider", "p0"], " \n", "must not be empty"),
            (&["byok", "create", "--provider", "google-vertex"], "opaque-secret", "service account"),
            (&["byok", "create", "--provider", "p0", "--workspace", "nowhere"], KEY, "nowhere"),
            (&["byok", "create", "--provider", "p0", "--key-file", "/nonexistent/key"], "", "--key-file"),
            (&["byok", "rotate", "x"], KEY, "is not an id"),
            (&["byok", "rotate", &id], KEY, "there is no credential"),
            (&["byok", "delete", &id], "", "there is no credential"),
            (&["byok", "disable", &id], "", "there is no credential"),
        ] {
            let refused = fed(place, words, input).await;
            let said = text(&refused.stderr);
            assert!(!refused.status.success() && said.contains(reason), "{words:?}: {said}");
            assert!(said.lines().count() == 1 && !said.contains("opaque-secret"), "{said}");
        }
        let list = account.gate.ask("GET", "/api/v1/byok").key(MANAGEMENT_KEY).send().await;
        assert_eq!(list.json()["total_count"], 0);
        let actions = account.audited().await;
        let ours: Vec<_> = actions.iter().filter_map(|action| action.strip_prefix("byok.")).collect();
        assert_eq!(ours, ["created", "updated", "updated", "rotated", "rotated", "deleted"]);
    }
}

#[tokio::test]
async fn every_command_explains_itself_with_an_example() {
    let groups: [(&str, &[&str]); 3] = [
        ("byok", &["create", "list", "disable", "enable", "rotate", "delete"]),
        ("secrets", &["rotate", "verify"]),
        ("audit", &["verify"]),
    ];
    for (group, names) in groups {
        for name in names {
            let output = soon("help", command(&[group, name, "--help"]).output()).await.unwrap();
            let said = text(&output.stdout);
            assert!(output.status.success() && said.contains("Example") && said.contains("tidegate"), "{said}");
        }
    }
}
