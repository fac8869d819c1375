//! People of a workspace change whom it tells of their requests, and lose neither their secrets nor their changes by that.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::Timestamp;
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::journal::JournalReader;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::harness::receiver::{ALLOWED, ELSEWHERE, Receiver};
use crate::harness::{Account, MANAGEMENT_KEY, Tidegate, assert_refused, eventually, hello, on_both, with_postgres};

const MODEL: &str = "vendor/m";
const PATIENCE: Duration = Duration::from_secs(30);
const DESTINATIONS: &str = "/observability/destinations";

fn webhook(url: &str) -> Value {
    json!({"type": "webhook", "name": "hook", "config": {"url": url, "headers": {"x-secret": "planted-header-secret"}}})
}

on_both! {
    async fn what_nobody_is_shown_does_not_go_to_another_address(database: &Database) {
        let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let thief = Receiver::at(ELSEWHERE).await;
        let allowed = format!("{}ports = [80, 443, {}, {}]\n", ALLOWED, hook.address.port(), thief.address.port());
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(&allowed)).await;
        let made = account.data("POST", DESTINATIONS, Some(webhook(&hook.url())), 201).await;
        let path = format!("{DESTINATIONS}/{}", made["id"].as_str().unwrap());
        let mask = made["config"]["headers"].clone();
        for config in [json!({"url": thief.url()}), json!({"url": thief.url(), "headers": mask})] {
            let refused = account.send("PATCH", &path, json!({"config": config})).await;
            assert_refused(&refused, "config.headers.x-secret");
        }
        assert!(thief.told().is_empty() && thief.refused().is_empty(), "it was not even tried");
        // Another path is the same place, and who knows the secret may take it along.
        let moved = format!("http://{}/other", hook.address);
        let changed = account.data("PATCH", &path, Some(json!({"config": {"url": moved}})), 200).await;
        assert_eq!(changed["config"], json!({"url": moved, "headers": mask}));
        let known = json!({"url": thief.url(), "headers": {"x-secret": "another-header-secret"}});
        account.data("PATCH", &path, Some(json!({"config": known})), 200).await;
        assert_eq!(thief.told()[0].headers["x-secret"], "another-header-secret");
        let changed = account.data("PATCH", &path, Some(json!({"config": {"url": hook.url(), "headers": null}})), 200).await;
        assert_eq!(changed["config"], json!({"url": hook.url()}), "what is taken away need not be given");
        let same = json!({"config": {"url": hook.url()}, "enabled": true});
        assert_eq!(account.data("PATCH", &path, Some(same), 200).await, changed, "nothing is another one by that");
        // The log says what changed, of a secret only that it did, and of an address where it leads.
        let logged = account.store.list_audit(&account.tenant, Timestamp(0), 0, 4).await.unwrap();
        let values = |text: &Option<String>| serde_json::from_str::<Value>(text.as_ref().unwrap()).unwrap()["config"].clone();
        let [here, there] = [&hook, &thief].map(|receiver| format!("http://{}", receiver.address));
        let (changed, secret) = ("[changed]", "headers.x-secret");
        for (entry, old, new) in [
            (2, json!({"url": here}), json!({"url": changed})),
            (1, json!({"url": here, secret: changed}), json!({"url": there, secret: changed})),
            (0, json!({"url": there, secret: changed}), json!({"url": here})),
        ] {
            assert_eq!((values(&logged[entry].old), values(&logged[entry].new)), (old, new));
        }
        let made: Value = serde_json::from_str(logged[3].new.as_ref().unwrap()).unwrap();
        assert_eq!(made["config"], json!({"url": here, secret: changed}));
        assert_eq!((&made["privacy_mode"], &made["type"]), (&json!(false), &json!("webhook")));

        let names = json!({"bucketName": "box", "accessKeyId": "AKIAEXAMPLE", "secretAccessKey": "s", "endpoint": hook.url()});
        let bucket = account.data("POST", DESTINATIONS, Some(json!({"type": "s3", "name": "box", "config": names})), 201).await;
        let path = format!("{DESTINATIONS}/{}", bucket["id"].as_str().unwrap());
        let refused = account.send("PATCH", &path, json!({"config": {"endpoint": thief.url(), "accessKeyId": "k"}})).await;
        assert_refused(&refused, "config.secretAccessKey");
    }

    async fn what_is_not_done_here_and_what_stands_twice_is_refused_by_name(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        for (more, path) in [
            (json!({"regions": ["eu"]}), "regions"),
            (json!({"regions": ["global", "eu"]}), "regions"),
            (json!({"regions": "global"}), "regions"),
            (json!({"broadcast_generation_cost_allocation": true}), "broadcast_generation_cost_allocation"),
        ] {
            let mut body = webhook("https://hook.example/");
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_refused(&account.send("POST", DESTINATIONS, body).await, path);
        }
        let head = r#""type":"webhook","name":"hook""#;
        let config = r#""config":{"url":"https://hook.example/"}"#;
        for (body, path) in [
            (format!(r#"{{{head},"config":{{"url":"https://a.example/","url":"https://b.example/"}}}}"#), "config"),
            (
                format!(r#"{{{head},"config":{{"url":"https://a.example/","headers":{{"a":"1","a":"2"}}}}}}"#),
                "config.headers",
            ),
            (format!(r#"{{{head},{config},"filter_rules":{{"groups":[],"groups":[]}}}}"#), "filter_rules"),
        ] {
            let ask = account.gate.ask("POST", &format!("/api/v1{DESTINATIONS}")).key(MANAGEMENT_KEY).json(body);
            assert_refused(&ask.send().await, path);
        }
        let mut body = webhook("https://hook.example/");
        body["regions"] = json!(["global"]);
        body["broadcast_generation_cost_allocation"] = json!(false);
        let made = account.data("POST", &format!("{DESTINATIONS}?skip_test=true"), Some(body), 201).await;
        let path = format!("{DESTINATIONS}/{}", made["id"].as_str().unwrap());
        assert_refused(&account.send("PATCH", &path, json!({"regions": []})).await, "regions");
    }

    async fn what_waits_goes_with_its_destination_and_stays_with_one_that_is_off(database: &Database) {
        let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(&hook.allowed())).await;
        let made = async |name: &str| {
            let body = json!({"type": "webhook", "name": name, "config": {"url": hook.url()}});
            account.data("POST", DESTINATIONS, Some(body), 201).await["id"].as_str().unwrap().to_owned()
        };
        let (off, gone, both) = (made("off").await, made("gone").await, made("both").await);
        hook.says(503);
        let reply = account.gate.messages(hello(MODEL)).await;
        let generation = reply.header("x-generation-id").unwrap().to_owned();
        let journal = JournalReader::open(&account.gate.place.data_dir()).unwrap();
        let waiting = async || {
            let waiting = async |id: &str| journal.outbox_standing(id).await.unwrap().0;
            [waiting(&off).await, waiting(&gone).await, waiting(&both).await]
        };
        assert_eq!(waiting().await, [1; 3]);
        let told = async || {
            let metrics = account.gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).send().await;
            let metrics = metrics.body_text().to_owned();
            let says = |id: &str| ["queue", "oldest_seconds"].map(|name| {
                let line = format!("tidegate_broadcast_{name}{{destination_type=\"webhook\",destination=\"{id}\"}}");
                metrics.contains(&line)
            });
            [says(&off), says(&gone), says(&both)]
        };
        eventually("all are measured", PATIENCE, async || told().await == [[true; 2]; 3]).await;
        let [off_path, gone_path, both_path] = [&off, &gone, &both].map(|id| format!("{DESTINATIONS}/{id}"));
        for path in [&off_path, &both_path] {
            account.data("PATCH", path, Some(json!({"enabled": false})), 200).await;
        }
        assert_eq!(account.ask("DELETE", &gone_path).await.status, 200);
        eventually("its letter goes with it", PATIENCE, async || waiting().await == [1, 0, 1]).await;
        eventually("none is measured", PATIENCE, async || told().await == [[false; 2]; 3]).await;
        assert_eq!(account.ask("DELETE", &both_path).await.status, 200);
        eventually("so does that of one that was off", PATIENCE, async || waiting().await == [1, 0, 0]).await;
        hook.says(200);
        account.data("PATCH", &off_path, Some(json!({"enabled": true})), 200).await;
        eventually("what waited is told", PATIENCE, async || hook.generations().contains(&generation)).await;
        journal.close().await;
    }

    async fn a_change_that_waits_for_its_test_takes_nothing_back(database: &Database) {
        let (sim, listener) = (Sim::start(Behaviour::Echo).await, TcpListener::bind(ELSEWHERE).await.unwrap());
        let address = listener.local_addr().unwrap();
        let allowed = format!("{ALLOWED}ports = [80, 443, {}]\n", address.port());
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(&allowed)).await;
        let config = json!({"endpoint": format!("http://{address}/v1/traces")});
        let new = json!({"type": "otel-collector", "name": "slow", "config": config});
        let made = account.data("POST", &format!("{DESTINATIONS}?skip_test=true"), Some(new), 201).await;
        let path = format!("{DESTINATIONS}/{}", made["id"].as_str().unwrap());
        let untested = format!("{path}?skip_test=true");
        let others = [json!({"privacy_mode": true, "name": "slower"}), json!({"config": {"protocol": "http/protobuf"}})];
        let collector = async {
            // Each time it is asked, somebody else changes the destination before it answers; at last nobody does.
            for other in others.into_iter().map(Some).chain([None]) {
                let (mut stream, _) = listener.accept().await.unwrap();
                if let Some(other) = other {
                    account.data("PATCH", &untested, Some(other), 200).await;
                }
                let mut head = Vec::new();
                while !head.windows(4).any(|four| four == b"\r\n\r\n") {
                    assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
        };
        let changes = async {
            let mut last = Value::Null;
            for change in [json!({"config": {"compression": "gzip"}}), json!({"config": {"compression": "none"}})] {
                last = account.data("PATCH", &path, Some(change), 200).await;
                assert_eq!((&last["privacy_mode"], &last["name"]), (&json!(true), &json!("slower")));
            }
            last
        };
        let both = async { tokio::join!(collector, changes) };
        let ((), last) = tokio::time::timeout(std::time::Duration::from_secs(30), both).await.expect("it is tested again after another change");
        assert_eq!((&last["config"]["compression"], &last["config"]["protocol"]), (&json!("none"), &json!("http/protobuf")));
        assert_eq!(account.data("GET", &path, None, 200).await, last);
    }
}

#[test]
fn egr_3_what_is_beside_the_database_may_be_told_and_the_database_may_not() {
    with_postgres(async |database| {
        let url = url::Url::parse(&database.url()).unwrap();
        let (host, port) = (url.host_str().unwrap(), url.port().unwrap_or(5432));
        let allowed = format!("[egress]\nallow = [\"{host}\"]\nports = [4318, {port}]\n");
        let account = Account::start(database, Tidegate::start().config(&allowed)).await;
        let untested = format!("{DESTINATIONS}?skip_test=true");
        account.data("POST", &untested, Some(webhook(&format!("http://{host}:4318/"))), 201).await;
        let refused = account.send("POST", &untested, webhook(&format!("http://{host}:{port}/"))).await;
        assert_refused(&refused, "config.url");
        let expected = "must not be the gateway itself or what it keeps its data in";
        assert!(refused.body_text().contains(expected), "{}", refused.body_text());
    });
}
