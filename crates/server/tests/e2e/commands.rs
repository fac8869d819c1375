//! The other commands, as a person at a shell meets them.

use std::process::Output;

use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::harness::{Place, Tidegate, command, soon};

const MODEL: &str = "vendor/m";

async fn run(words: &[&str]) -> Output {
    soon("a command", command(words).output()).await.expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn every_command_explains_itself_with_an_example() {
    let commands: [&[&str]; 23] = [
        &[],
        &["serve"],
        &["check"],
        &["explain"],
        &["sim"],
        &["keys"],
        &["members"],
        &["byok"],
        &["presets"],
        &["secrets"],
        &["credits"],
        &["ledger"],
        &["audit"],
        &["keys", "create"],
        &["keys", "list"],
        &["keys", "disable"],
        &["run"],
        &["openapi"],
        &["config"],
        &["import"],
        &["import", "litellm"],
        &["help", "serve"],
        &["keys", "help", "list"],
    ];
    for words in commands {
        let flag: &[&str] = if words.contains(&"help") { &[] } else { &["--help"] };
        let output = run(&[words, flag].concat()).await;
        let said = text(&output.stdout);
        assert!(output.status.success(), "{words:?}");
        assert!(said.contains("Example") && said.contains("\n  ") && said.contains("tidegate"), "{words:?}: {said}");
    }
    let top = text(&run(&["--help"]).await.stdout);
    for name in ["serve", "check", "explain", "sim", "keys", "run", "openapi", "config", "import"] {
        assert!(top.contains(&format!("\n  {name} ")), "{name} is in the list: {top}");
    }
    assert!(text(&run(&["--version"]).await.stdout).contains(env!("CARGO_PKG_VERSION")));
    assert!(!run(&["srve"]).await.status.success());
}

#[tokio::test]
async fn a_mistake_in_the_configuration_names_its_place_and_the_nearest_word() {
    let model = "[[models]]\nid = \"a/b\"\ncontext_length = 1\nmax_output_tokens = 1\n";
    let cases = [
        ("[service]\nlisen = \"x\"\n".to_owned(), "service.lisen is not a setting; did you mean listen?"),
        ("[servce]\nname = \"x\"\n".to_owned(), "servce is not a setting; did you mean service?"),
        ("[limits]\nmax_body_byte = 5\n".to_owned(), "did you mean max_body_bytes?"),
        ("[service]\nlisten = \"everywhere\"\n".to_owned(), "service.listen: \"everywhere\" is not an address"),
        ("[service]\nname = \"Tide Gate\"\n".to_owned(), "service.name"),
        ("[limits]\nin_flight_key = 0\n".to_owned(), "limits.in_flight_key: must be at least 1"),
        ("[limits]\nin_flight_key = \"many\"\n".to_owned(), "limits.in_flight_key"),
        ("[service]\npublic_url = \"ftp://x\"\n".to_owned(), "service.public_url: must be an address"),
        ("[log]\nformat = \"xml\"\n".to_owned(), "log.format"),
        ("[stream]\nkeep_alive_ms = -1\n".to_owned(), "stream.keep_alive_ms"),
        ("[[providers]]\nslug = \"anthropc\"\n".to_owned(), "did you mean the slug anthropic?"),
        ("[[providers]]\nslug = \"x\"\nprotocol = \"anthropik\"\n".to_owned(), "did you mean anthropic?"),
        ("[[providers]]\nslug = \"x\"\nprotocol = \"anthropic\"\n".to_owned(), "base_url: needed"),
        (
            "[[providers]]\nslug = \"x\"\nprotocol = \"anthropic\"\nbase_url = \"ftp://x\"\n".to_owned(),
            "must begin with http:// or https://",
        ),
        (
            "[[providers]]\nslug = \"x\"\nprotocol = \"anthropic\"\nbase_url = \"https://u:p@x\"\n".to_owned(),
            "must not hold a user name or password",
        ),
        (
            "[service]\ncors_origins = [\"https://a.example/x\"]\n".to_owned(),
            "is not an origin such as https://app.example.com; did you mean https://a.example?",
        ),
        (
            "[[providers]]\nslug = \"x\"\nprotocol = \"anthropic\"\nbase_url = \"https://x\"\ntimeouts = { idle_ms = 0 }\n"
                .to_owned(),
            "timeouts.idle_ms: must be at least 1",
        ),
        (
            "[[providers]]\nslug = \"anthropic\"\napi_key = \"env:E2E_NOT_SET\"\n".to_owned(),
            "environment variable E2E_NOT_SET is not set",
        ),
        (
            "[[providers]]\nslug = \"anthropic\"\napi_key = \"k\"\n[[providers]]\nslug = \"anthropic\"\napi_key = \"k\"\n"
                .to_owned(),
            "is used twice",
        ),
        ("[[models]]\nid = \"b\"\ncontext_length = 1\nmax_output_tokens = 1\n".to_owned(), "must look like author/slug"),
        (format!("{model}[[models.endpoints]]\nprovider = \"nobody\"\nmodel = \"m\"\n"), "there is no provider \"nobody\""),
        ("[aliases]\nmine = \"no/such\"\n".to_owned(), "aliases.mine: there is no model no/such"),
        ("[keys]\nprefix = \"\"\n".to_owned(), "keys.prefix: must not be empty"),
        ("[service\n".to_owned(), "tidegate.toml"),
    ];
    for (config, expected) in cases {
        let place = Place::new(&config);
        for words in [&["serve"][..], &["check", "--offline"]] {
            let output = place.run(words).await;
            let said = text(&output.stderr);
            assert!(!output.status.success(), "{config}");
            assert!(said.starts_with("tidegate: ") && said.contains(expected), "{config:?}: {said}");
        }
        assert!(!place.data_dir().exists(), "nothing is made before the configuration is right: {config}");
    }
    let missing = run(&["serve", "--config", "/nowhere/tidegate.toml"]).await;
    assert!(!missing.status.success() && text(&missing.stderr).contains("/nowhere/tidegate.toml"));
}

#[tokio::test]
async fn the_environment_wins_over_the_file_and_the_command_line_over_both() {
    let place = Place::new("[service]\nname = \"harbour\"\nlisten = \"127.0.0.1:1\"\n");
    let mut command = place.prepared(&["check", "--offline"]);
    let output = soon("a check", command.env("TIDEGATE__SERVICE__NAME", "Not Valid").output()).await.unwrap();
    assert!(text(&output.stderr).contains("service.name"), "{output:?}");
    let mut command = place.prepared(&["check", "--offline"]);
    let output = soon("a check", command.env("TIDEGATE__SERVICE__LISEN", "x").output()).await.unwrap();
    assert!(text(&output.stderr).contains("did you mean listen?"), "{output:?}");
}

#[tokio::test]
async fn what_is_imported_is_a_configuration_that_serves() {
    let sim = Sim::start(Script::says("ahoy")).await;
    let yaml = format!(
        r#"
model_list:
  - model_name: house
    litellm_params: {{model: openai/m, api_base: "{0}/v1", api_key: sk-in-the-file, input_cost_per_token: 1.0e-6}}
  - model_name: house
    litellm_params: {{model: gpt-4o, api_key: os.environ/OPENAI_API_KEY}}
  - model_name: far
    litellm_params: {{model: bedrock/eu.amazon.nova-pro-v1:0, aws_region_name: eu-west-1}}
general_settings: {{master_key: os.environ/LITELLM_MASTER_KEY}}
"#,
        sim.base_url()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, yaml).expect("it can be written");
    let output = run(&["import", "litellm", file.to_str().expect("a plain path")]).await;
    let (written, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("put it into KEY_127_0_0_1_") && !written.contains("sk-in-the-file"), "{said}");
    // The address is the name of the server, and the variable is named by it.
    let named = written.lines().find(|line| line.contains("env:KEY_127_0_0_1_")).expect("a variable");
    let variable = named.split('"').nth(1).and_then(|key| key.strip_prefix("env:")).expect("a name").to_owned();
    let place = Place::new(&format!("{written}\n[service]\nlisten = \"127.0.0.1:0\"\n"));
    let mut check = place.prepared(&["check", "--offline"]);
    check.env(&variable, "sk-in-the-file").env("OPENAI_API_KEY", "k").env("LITELLM_MASTER_KEY", "sk-master-0123456789");
    let output = soon("a check", check.output()).await.expect("the binary starts");
    assert!(output.status.success(), "{}{written}", text(&output.stderr));
    let missing = run(&["import", "litellm", "/nowhere/config.yaml"]).await;
    assert!(!missing.status.success() && text(&missing.stderr).contains("/nowhere/config.yaml cannot be read"));
}

#[tokio::test]
async fn check_says_whether_the_providers_answer() {
    let live = Sim::start(Script::says("x").require_key("provider-secret-0")).await;
    let place = Tidegate::start().endpoint(MODEL, &live).place();
    let output = place.run(&["check"]).await;
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("is valid") && said.contains("ok    p0: "), "{said}");
    assert_eq!((live.calls(), live.count_calls()), (0, 1), "a check costs nothing");
    assert!(!said.contains("provider-secret"));

    let offline = place.run(&["check", "--offline"]).await;
    assert!(offline.status.success() && text(&offline.stdout).contains("p0 is configured (not called)"));
    assert_eq!(live.count_calls(), 1);

    live.set(Script::says("x").require_key("another"));
    let refused = place.run(&["check"]).await;
    assert!(!refused.status.success());
    assert!(text(&refused.stdout).contains("FAIL  p0: ") && text(&refused.stdout).contains("check api_key"));

    live.stop().await;
    let dead = place.run(&["check"]).await;
    assert!(!dead.status.success());
    assert!(text(&dead.stdout).contains("FAIL  p0: ") && text(&dead.stdout).contains("could not be reached"));
    assert!(!place.data_dir().exists(), "a check leaves nothing behind");
}

#[tokio::test]
async fn an_alias_may_name_a_simulated_model() {
    let place = Place::new("[aliases]\nhouse = \"tidegate/sim\"\n");
    let output = place.run(&["check"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("no provider has a key"), "{}", text(&output.stdout));
}

#[tokio::test]
async fn a_provider_key_in_the_environment_is_found_and_never_shown() {
    let place = Place::new("");
    let mut command = place.prepared(&["check", "--offline"]);
    let output = soon("a check", command.env("ANTHROPIC_API_KEY", "sk-ant-not-a-real-key").output()).await.unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("ANTHROPIC_API_KEY found: Anthropic is a provider"), "{said}");
    assert!(!said.contains("not-a-real-key"));
    let output = place.run(&["check", "--offline"]).await;
    assert!(!text(&output.stdout).contains("ANTHROPIC_API_KEY"));
}

#[tokio::test]
async fn run_starts_a_program_with_address_and_key_and_hands_back_its_end() {
    let words = ["run", "--url", "http://127.0.0.1:9/api/v1/", "--key", "sk-tg-v1-x", "--", "env"];
    let output = run(&words).await;
    let said = text(&output.stdout);
    assert!(output.status.success());
    for line in [
        "ANTHROPIC_BASE_URL=http://127.0.0.1:9",
        "ANTHROPIC_AUTH_TOKEN=sk-tg-v1-x",
        "OPENAI_BASE_URL=http://127.0.0.1:9/v1",
        "OPENAI_API_KEY=sk-tg-v1-x",
    ] {
        assert!(said.lines().any(|found| found == line), "{line} is not in {said}");
    }
    let wrong = run(&["run", "--url", "127.0.0.1:9", "--key", "k", "env"]).await;
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("--url must begin with http://"));
    let mut named = command(&["run", "sh", "-c", "exit 7"]);
    let output = soon("a program", named.env("TIDEGATE_API_KEY", "k").output()).await.unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(!run(&["run", "env"]).await.status.success(), "a key is needed");
    let output = run(&["run", "--key", "k", "no-such-program-anywhere"]).await;
    assert!(!output.status.success() && text(&output.stderr).contains("no-such-program-anywhere could not be started"));
}

#[tokio::test]
async fn the_printed_configuration_is_one_that_can_be_used() {
    let example = run(&["config"]).await;
    assert!(example.status.success());
    let place = Place::new(&text(&example.stdout));
    assert!(place.run(&["check", "--offline"]).await.status.success());
    let schema: Value = serde_json::from_slice(&run(&["config", "--schema"]).await.stdout).unwrap();
    assert!(schema["properties"]["service"].is_object());
    let document: Value = serde_json::from_slice(&run(&["openapi"]).await.stdout).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
}

/// What `serve` would refuse is not called valid.
#[tokio::test]
async fn a_check_finds_what_a_start_would_refuse() {
    for (config, expected) in [
        ("[secrets]\nmaster_key = \"env:E2E_NOPE\"\n", "env:E2E_NOPE: the variable is not set"),
        ("[keys]\nmanagement_key = \"short\"\n", "keys.management_key: must have at least 16 characters"),
        ("[storage]\nurl = \"mysql://h/d\"\n", "storage.url: the store's URL must be"),
    ] {
        let place = Place::new(config);
        let output = place.run(&["check", "--offline"]).await;
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert!(!output.status.success() && said.contains(expected) && !out.contains("is valid"), "{out}{said}");
        assert!(!place.data_dir().exists(), "a check makes nothing");
    }
    let words = ["reload", "--url", "http://127.0.0.1:1", "--management-key", "k"];
    let output = run(&words).await;
    assert_eq!(
        text(&output.stderr),
        "tidegate: http://127.0.0.1:1 could not be reached: start the gateway or correct --url\n"
    );
}

#[tokio::test]
async fn trouble_with_tls_is_told_from_a_gateway_that_is_not_there() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    // It answers, but not so.
    let url = sim.base_url().replace("http:", "https:");
    for words in [&["reload"][..], &["explain", "a/b"]] {
        let output = run(&[words, &["--url", &url, "--management-key", "k"]].concat()).await;
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("does not speak TLS as it should"), "{said}");
    }
}

#[tokio::test]
async fn a_check_looks_at_the_store_and_leaves_it_as_it_is() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let (_, place) = Tidegate::start().endpoint(MODEL, &sim).run().await.stop().await;
    let file = place.data_dir().join("tidegate.db");
    let options = SqliteConnectOptions::new().filename(&file);
    let mut connection = options.connect().await.unwrap();
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version = 20").execute(&mut connection).await.unwrap();
    let output = place.run(&["check", "--offline"]).await;
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("note  the store is of an earlier release"), "{said}");
    let last: i64 =
        sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations").fetch_one(&mut connection).await.unwrap();
    assert_eq!(last, 19, "a check changes no tables");
    connection.close().await.unwrap();

    std::fs::write(&file, "no database".repeat(1000)).unwrap();
    let output = place.run(&["check", "--offline"]).await;
    let said = text(&output.stdout);
    assert!(said.contains("FAIL  cannot open the database file ") && said.contains("not a database"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn a_check_says_why_the_store_cannot_be_reached() {
    let place = Place::new("[storage]\nurl = \"postgres://user:hunter22@127.0.0.1:1/db\"\n");
    let output = place.run(&["check", "--offline"]).await;
    let said = text(&output.stdout);
    assert!(
        said.contains("FAIL  cannot connect to PostgreSQL at 127.0.0.1:1: ") && !said.contains("hunter22"),
        "{said}"
    );
    // The master key, which the first start makes, is not to blame.
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), String::new()));
    let empty = Place::new("").run(&["check", "--offline"]).await;
    assert!(empty.status.success() && text(&empty.stdout).contains("note  the store has no tables yet"));
}

#[tokio::test]
async fn keys_need_a_store_and_a_name_and_say_so() {
    let place = Place::new("");
    for words in [&["keys", "list"][..], &["keys", "create", "--name", "x"], &["keys", "disable", "abc"]] {
        let output = place.run(words).await;
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains("run `tidegate serve` first"), "{words:?}: {}", text(&output.stderr));
    }
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let cases: [(&[&str], &str); 7] = [
        (&["keys", "create", "--name", ""], "--name must have 1 to 255 characters"),
        (&["keys", "create", "--name", "x", "--limit", "lots"], "--limit"),
        (&["keys", "create", "--name", "x", "--limit", "-1"], "--limit must not be negative"),
        (&["keys", "create", "--name", "x", "--reset", "daily"], "--reset needs a --limit"),
        (&["keys", "create", "--name", "x", "--expires", "tomorrow"], "--expires must look like"),
        (&["keys", "create", "--name", "x", "--expires", "2020-01-01T00:00:00Z"], "--expires must lie in the future"),
        (&["keys", "disable", "ffffffffffff"], "no key's hash begins with"),
    ];
    for (words, expected) in cases {
        let output = gate.place.run(words).await;
        assert!(
            !output.status.success() && text(&output.stderr).contains(expected),
            "{words:?}: {}",
            text(&output.stderr)
        );
    }
    let made = gate.place.run(&["keys", "create", "--name", "laptop", "--limit", "25", "--reset", "weekly"]).await;
    assert!(made.status.success());
    let listed = text(&gate.place.run(&["keys", "list"]).await.stdout);
    assert!(
        listed.lines().any(|line| line.contains("laptop") && line.contains("$25/weekly") && line.contains("live")),
        "{listed}"
    );
}

#[tokio::test]
async fn the_simulated_upstream_runs_on_its_own_and_serves_a_gateway() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let mut child = command(&["sim", "--text", "from afar"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = soon("the simulator listens", async {
        loop {
            let line = lines.next_line().await.unwrap().expect("it says where it listens");
            if let Some((_, rest)) = line.split_once("http://") {
                return format!("http://{}", rest.split_whitespace().next().unwrap().trim_end_matches('/'));
            }
        }
    })
    .await;
    let gate = Tidegate::start().endpoint_at(MODEL, &address, "").run().await;
    assert_eq!(gate.messages(crate::harness::hello(MODEL)).await.text(), "from afar");
}
