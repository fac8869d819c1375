//! The commands that care for stored secrets, beside a running server; and what a server does with the wrong ring.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tidegate_core::{Secret, Tenant, WorkspaceId, id};
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::Store;
use tidegate_store::credentials::{NewCredential, NewSecret, Settings};
use tidegate_store::vault::{MasterKeySource, MasterRing, Vault};
use tidegate_store::workspaces::{NewWorkspace, WorkspaceChange};
use tokio::io::AsyncWriteExt as _;

use crate::harness::{
    Account, Load, MANAGEMENT_KEY, Place, Recorder, Tidegate, eventually, fed, hello, on_both, ran, say, shell, soon,
    text,
};

const MODEL: &str = "vendor/m";
const KEY: &str = "own-key-0123456789";
/// The server looks every second whether somebody still reads.
const GONE_WITHIN: Duration = Duration::from_secs(3);

fn ring_file(place: &Place) -> PathBuf {
    place.data_dir().join("master.key")
}

/// The ids in the ring, the active one first.
fn ring(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("the ring is there");
    let ids = text.lines().filter_map(|line| line.split_whitespace().next());
    ids.filter(|id| !id.starts_with('#')).map(str::to_owned).collect()
}

/// Credentials straight into the store, as many as are needed.
async fn filled(store: &Store, tenant: &Tenant, ring: &Path, workspaces: &[(&WorkspaceId, usize)]) {
    let source = MasterKeySource::File(ring.to_owned());
    let vault = Vault::new(source.clone(), MasterRing::load(&source).await.expect("the ring is there"));
    for (workspace, count) in workspaces {
        for number in 0..*count {
            let secret = Secret::new(format!("secret {number}"));
            let secret = NewSecret { secret: &secret, vault: &vault, label: "***".to_owned(), destination: None };
            let new = NewCredential { workspace, provider: "ai21", secret, settings: Settings::default() };
            store.create_credential(tenant, &shell(), &new).await.expect("it is stored");
        }
    }
}

async fn second_workspace(account: &Account) -> WorkspaceId {
    let new = NewWorkspace {
        name: "B".to_owned(),
        slug: "b".to_owned(),
        created_by: None,
        settings: WorkspaceChange::default(),
    };
    account.store.create_workspace(&account.tenant, &shell(), new).await.expect("it is made").id
}

/// Waits for requests that began after this was called.
async fn goes_on(load: &Load) {
    let so_far = load.answered();
    eventually("traffic flows", Duration::from_secs(20), async || load.answered() > so_far + 20).await;
}

/// The files of the data folder in which the bytes are found.
fn holding(place: &Place, bytes: &[u8]) -> Vec<String> {
    let files = std::fs::read_dir(place.data_dir()).unwrap().map(|entry| entry.unwrap().path());
    let holds = |path: &PathBuf| std::fs::read(path).unwrap().windows(bytes.len()).any(|window| window == bytes);
    files.filter(holds).map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

on_both! {
    async fn sec_5_a_master_key_is_rotated_while_traffic_flows(database: &Database) {
        let upstream = Recorder::start().await;
        let builder = Tidegate::start().endpoint_at(MODEL, &upstream.base_url(), "");
        let account = Account::start(database, builder).await;
        let path = ring_file(&account.gate.place);
        let old = ring(&path);
        assert_eq!(old.len(), 1);
        let body = json!({"provider": "p0", "key": KEY, "is_byok_only": true});
        let first = account.data("POST", "/byok", Some(body), 201).await;
        let second = second_workspace(&account).await;
        filled(&account.store, &account.tenant, &path, &[(&account.workspace, 499), (&second, 3)]).await;

        let load = Load::start(account.gate.address, 2, MODEL, || "hi".to_owned());
        let (out, progress) = ran(&account.gate.place, &["secrets", "rotate"]).await;
        let new = ring(&path);
        assert_eq!(new[1..], old);
        assert!(progress.contains("rewrapped 500 of 503\n") && progress.contains("rewrapped 503 of 503\n"), "{progress}");
        assert!(out.contains(&old[0]) && out.contains("--remove-old"), "{out}");
        let (out, _) = ran(&account.gate.place, &["secrets", "verify"]).await;
        assert_eq!(out, "503 secrets open, 0 do not\n");
        // The server, which has the old ring, must take the records over and open them.
        let rewrapped = account.store.credentials_changed_after(0).await.unwrap();
        assert!(rewrapped.iter().all(|row| *row.sealed.as_ref().unwrap().master_key == *new[0]));
        // What is stored next is sealed under the new key by the server as well.
        let body = json!({"provider": "p0", "key": "own-key-second-0123", "workspace_id": &*second.0});
        let late = account.data("POST", "/byok", Some(body), 201).await;
        let late = account.store.find_credential(&account.tenant, late["id"].as_str().unwrap()).await.unwrap().unwrap();
        assert_eq!(*late.sealed.as_ref().unwrap().master_key, *new[0]);
        // With that, this node has taken over everything.
        goes_on(&load).await;

        // Again, and the old keys go.
        let (out, _) = ran(&account.gate.place, &["secrets", "rotate", "--remove-old"]).await;
        let last = ring(&path);
        assert!(last.len() == 1 && !new.contains(&last[0]), "{last:?}");
        assert!(new.iter().all(|id| out.contains(&format!("removed master key {id}\n"))), "{out}");
        ran(&account.gate.place, &["secrets", "verify"]).await;
        account.data("PATCH", &format!("/byok/{}", late.id), Some(json!({"name": "late"})), 200).await;
        goes_on(&load).await;
        let sent = load.stop().await;
        assert_eq!(upstream.seen().len(), sent);
        assert!(upstream.seen().iter().all(|(key, _)| key == KEY));
        // A rotation of the credential itself goes on as before.
        let path = format!("/byok/{}", first["id"].as_str().unwrap());
        account.data("PATCH", &path, Some(json!({"key": "own-key-rotated-0123"})), 200).await;

        let actions = account.audited().await;
        let rewraps = actions.iter().filter(|action| *action == "secrets.rewrapped").count();
        assert_eq!(rewraps, 12, "six batches each time");
        ran(&account.gate.place, &["audit", "verify"]).await;
        let Account { gate, store, .. } = account;
        store.close().await;
        let (status, place) = gate.stop().await;
        assert!(status.success());
        let gate = place.serve().await;
        assert_eq!(say(gate.address, MODEL, "hi").await.status, 200);
        assert_eq!(upstream.seen().last().unwrap().0, "own-key-rotated-0123");
    }

    async fn sec_3_another_ring_or_none_is_refused_at_start(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let Account { gate, store, .. } = account;
        let (_, place) = gate.stop().await;
        let path = ring_file(&place);
        let right = std::fs::read(&path).unwrap();
        let same_id = format!("{} r4LV7YAm/mFsr4FPvfHyEoIO1zKiIMAhVhTbxZJ5R3s=\n", ring(&path)[0]);
        for wrong in [&*same_id, "other r4LV7YAm/mFsr4FPvfHyEoIO1zKiIMAhVhTbxZJ5R3s=\n"] {
            std::fs::write(&path, wrong).unwrap();
            for words in [&["serve"][..], &["byok", "create", "--provider", "p0"], &["secrets", "rotate"]] {
                let refused = fed(&place, words, KEY).await;
                let said = text(&refused.stderr);
                assert!(!refused.status.success() && said.contains("another ring of master keys"), "{words:?}: {said}");
                assert_eq!(said.lines().count(), 1, "{said}");
            }
        }
        std::fs::remove_file(&path).unwrap();
        let refused = place.run(&["serve"]).await;
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains("secrets.master_key"), "{said}");
        assert!(said.contains("copy it from a backup or from another gateway"), "{said}");
        assert!(!path.exists(), "nothing is made where something may be sealed");
        // A store from before check records, without anything sealed: it gets one.
        let forget = "DELETE FROM meta WHERE name = 'vault_check'";
        match &store {
            Store::Sqlite { writer, .. } => drop(sqlx::query(forget).execute(writer).await.unwrap()),
            Store::Postgres(pool) => drop(sqlx::query(forget).execute(pool).await.unwrap()),
        }
        std::fs::write(&path, &right).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let gate = place.serve().await;
        assert!(store.vault_check().await.unwrap().is_some());
        assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
    }

    async fn sec_5_a_rotation_that_is_killed_harms_nothing(database: &Database) {
        const KILLS: usize = 24;
        let account = Account::start(database, Tidegate::start()).await;
        let path = ring_file(&account.gate.place);
        let second = second_workspace(&account).await;
        filled(&account.store, &account.tenant, &path, &[(&account.workspace, 500), (&second, 100)]).await;
        let place = &account.gate.place;
        // From the start of the process to its end, however long that takes here.
        let mut whole = Duration::from_secs(1);
        let mut killed = 0;
        while killed < KILLS {
            let part = f64::from(u16::from_be_bytes(id::random())) / 65_536.0;
            let remove: &[&str] = if killed % 2 == 0 { &[] } else { &["--remove-old"] };
            let words = [&["secrets", "rotate"], remove].concat();
            let mut child = place.prepared(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let started = tokio::time::Instant::now();
            match tokio::time::timeout(whole.mul_f64(part), child.wait()).await {
                Ok(status) => {
                    assert!(status.unwrap().success());
                    whole = whole.min(started.elapsed());
                }
                Err(_) => {
                    child.kill().await.unwrap();
                    killed += 1;
                }
            }
            let (out, _) = ran(place, &["secrets", "verify"]).await;
            assert_eq!(out, "600 secrets open, 0 do not\n");
            ran(place, &["audit", "verify"]).await;
        }
        // The last one finishes what is left, and then every old key can go.
        ran(place, &["secrets", "rotate", "--remove-old"]).await;
        let ids = ring(&path);
        assert_eq!(ids.len(), 1);
        let rows = account.store.credentials_changed_after(0).await.unwrap();
        assert!(rows.len() == 600 && rows.iter().all(|row| *row.sealed.as_ref().unwrap().master_key == *ids[0]));
        assert_eq!(account.store.vault_check().await.unwrap().unwrap().master_key, Box::<str>::from(ids[0].as_str()));
    }

    async fn verify_names_what_does_not_open(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let path = ring_file(&account.gate.place);
        filled(&account.store, &account.tenant, &path, &[(&account.workspace, 3)]).await;
        let bad = account.store.credentials_changed_after(1).await.unwrap()[0].id.to_string();
        let move_it = "UPDATE credentials SET provider = 'groq' WHERE id = $1";
        let rename = "UPDATE audit SET action = 'byok.updated' WHERE seq = $1";
        match &account.store {
            Store::Sqlite { writer, .. } => {
                sqlx::query(move_it).bind(&bad).execute(writer).await.unwrap();
                sqlx::query(rename).bind(2_i64).execute(writer).await.unwrap();
            }
            Store::Postgres(pool) => {
                sqlx::query(move_it).bind(&bad).execute(pool).await.unwrap();
                sqlx::query(rename).bind(2_i64).execute(pool).await.unwrap();
            }
        }
        let found = account.gate.place.run(&["secrets", "verify"]).await;
        let (out, error) = (text(&found.stdout), text(&found.stderr));
        assert!(!found.status.success() && error.contains(&bad), "{error}");
        assert_eq!(out, "2 secrets open, 1 do not\n");
        let rotated = account.gate.place.run(&["secrets", "rotate", "--remove-old"]).await;
        let error = text(&rotated.stderr);
        assert!(!rotated.status.success() && error.contains(&bad) && error.contains("is still in use"), "{error}");
        assert_eq!(ring(&path).len(), 2, "the key it is sealed under stays");
        let broken = account.gate.place.run(&["audit", "verify"]).await;
        let error = text(&broken.stderr);
        assert!(!broken.status.success() && error.contains("row 2 was changed after it was written"), "{error}");
    }
}

#[tokio::test]
async fn sec_5_a_ring_from_the_environment_is_rotated_by_its_owner() {
    const ONE: &str = "one zzbAgIeIRxobSdS1ItiXWxbzRHFRHyq4EXEqMSn7CUo=";
    const TWO: &str = "two r4LV7YAm/mFsr4FPvfHyEoIO1zKiIMAhVhTbxZJ5R3s=";
    let place = Tidegate::start().config("[secrets]\nmaster_key = \"env:E2E_RING\"\n").place();
    let run = async |words: &[&str], ring: &str, input: &str| {
        let mut command = place.prepared(words);
        command.env("E2E_RING", ring).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        // One that was refused before it read is gone by now.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes()).await;
        let output = soon("a command", child.wait_with_output()).await.expect("it ends");
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    // A first start, up to its first line.
    let mut server = place.prepared(&["serve"]).env("E2E_RING", ONE).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = tokio::io::BufReader::new(server.stdout.take().expect("piped"));
    let mut line = String::new();
    soon("it listens", tokio::io::AsyncBufReadExt::read_line(&mut out, &mut line)).await.unwrap();
    assert!(line.contains("listening"), "{line}");
    server.kill().await.unwrap();

    assert!(run(&["byok", "create", "--provider", "anthropic"], ONE, KEY).await.0);
    let (done, _, said) = run(&["secrets", "rotate"], ONE, "").await;
    assert!(done && said.contains("put a new key behind it"), "{said}");
    let both = format!("{TWO}\n{ONE}");
    let (done, out, said) = run(&["secrets", "rotate", "--remove-old"], &both, "").await;
    assert!(done && said.contains("rewrapped 1 of 1"), "{said}");
    assert!(out.contains("master key one is not used any more: remove it from env:E2E_RING"), "{out}");
    assert!(run(&["secrets", "verify"], TWO, "").await.0, "the old key is not needed");
    assert!(!run(&["secrets", "verify"], ONE, "").await.0, "the new one is");
}

#[tokio::test]
async fn sec_4_old_secrets_are_in_no_file_of_a_busy_server() {
    let upstream = Recorder::start().await;
    let place = Tidegate::start().endpoint_at(MODEL, &upstream.base_url(), "").place();
    let gate = place.serve().await;
    let ask = async |method: &str, path: &str, body: serde_json::Value| {
        let reply = gate.ask(method, &format!("/api/v1{path}")).key(MANAGEMENT_KEY).json(body.to_string()).send().await;
        assert!(reply.status < 300, "{}", reply.body_text());
        reply.json()["data"]["id"].as_str().unwrap_or_default().to_owned()
    };
    // Opened for a moment only: files of an open database must not be read by the process that has it open.
    let sealed = async |id: &str| {
        let store = Store::open("sqlite:tidegate.db", &gate.place.data_dir()).await.unwrap();
        let tenant = Tenant { organisation: store.sole_organisation().await.unwrap().unwrap().id };
        let row = store.find_credential(&tenant, id).await.unwrap().unwrap();
        store.close().await;
        row.sealed.unwrap()
    };
    // At once, or a moment later when somebody was reading.
    let goes = async |what: &str, bytes: &[u8]| {
        eventually(what, GONE_WITHIN, async || holding(&gate.place, bytes).is_empty()).await;
    };
    let load = Load::start(gate.address, 4, MODEL, || "hi".to_owned());
    let id = ask("POST", "/byok", json!({"provider": "p0", "key": KEY})).await;
    let path = format!("/byok/{id}");
    for round in 0..10 {
        let old = sealed(&id).await;
        assert!(!holding(&gate.place, &old.ciphertext).is_empty(), "it is there before");
        ask("PATCH", &path, json!({"key": format!("own-key-of-round-{round}")})).await;
        for bytes in [&old.ciphertext, &old.wrapped_key] {
            goes(&format!("gone in round {round}"), bytes).await;
        }
    }
    let old = sealed(&id).await;
    ran(&gate.place, &["secrets", "rotate", "--remove-old"]).await;
    goes("what the old master key opens is gone", &old.wrapped_key).await;
    assert!(!holding(&gate.place, &old.ciphertext).is_empty(), "the secret stays as it was sealed");
    assert!(fed(&gate.place, &["byok", "rotate", &id], "own-key-from-a-shell").await.status.success());
    goes("gone after a rotation from a shell", &old.ciphertext).await;
    let last = sealed(&id).await;
    ask("DELETE", &path, json!({})).await;
    for bytes in [&last.ciphertext, &last.wrapped_key] {
        goes("gone after the deletion", bytes).await;
    }
    load.stop().await;
}
