//! What is said in `deploy/` is true of this program.

use std::path::Path;

use crate::harness::Tidegate;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands behind the first of these words, up to the end of its line.
fn behind<'a>(text: &'a str, words: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.trim().strip_prefix(words));
    found.unwrap_or_else(|| panic!("no line begins with {words:?}")).trim().trim_matches('"')
}

#[test]
fn the_container_is_built_with_the_compiler_of_the_repository() {
    let toolchain = read("rust-toolchain.toml");
    let channel = behind(&toolchain, "channel =");
    let recipe = read("deploy/Dockerfile");
    assert_eq!(behind(&recipe, "ENV RUSTUP_TOOLCHAIN="), channel);
    assert_eq!(behind(&recipe, "FROM docker.io/library/rust:"), format!("{channel}-slim-trixie AS build"));
    assert_eq!(behind(&read("deploy/helm/tidegate/Chart.yaml"), "appVersion:"), env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_stop_takes_no_longer_than_it_is_given() {
    let settings = read("tidegate.example.toml");
    let seconds = |text: &str| text.trim_end_matches('s').parse::<u32>().unwrap();
    let draining: u32 =
        ["# drain_delay =", "# drain_timeout ="].map(|name| seconds(behind(&settings, name))).iter().sum();
    // Then destinations are told, and tasks get some time each to write what they have.
    let [serve, metering, deliver] =
        ["server/src/serve.rs", "server/src/metering.rs", "gateway/src/broadcast/deliver.rs"]
            .map(|name| read(&format!("crates/{name}")));
    let length = |text: &str, name: &str| {
        let said = behind(text, &format!("const {name}: Duration = Duration::from_secs("));
        seconds(said.trim_end_matches(");"))
    };
    let (_, stop) = metering.split_once("pub async fn stop(").unwrap();
    let (stop, _) = stop.split_once("\n    }\n").unwrap();
    let waits = |text: &str, words: [&str; 2]| words.map(|words| text.matches(words).count()).iter().sum::<usize>();
    let of_metering = waits(stop, ["+ patience", "timeout(patience,"]);
    let of_others = waits(&serve, ["(GOODBYE)", "timeout(GOODBYE,"]) - serve.matches("metering.stop(GOODBYE)").count();
    assert_eq!((of_metering, of_others), (3, 3), "waits that this test knows");
    let writing = length(&serve, "GOODBYE") * u32::try_from(of_metering + of_others).unwrap();
    let stopping = length(&deliver, "FAREWELL") + writing;
    let chart = read("deploy/helm/tidegate/values.yaml");
    assert!(chart.contains(&format!("the {stopping} seconds together")));
    assert!(seconds(behind(&chart, "terminationGracePeriodSeconds:")) > draining + stopping);
    assert!(seconds(behind(&read("deploy/compose.yaml"), "stop_grace_period:")) > draining + stopping);
}

#[tokio::test]
async fn what_they_ask_for_is_answered() {
    let (recipe, chart) = (read("deploy/Dockerfile"), read("deploy/helm/tidegate/templates/statefulset.yaml"));
    assert!(recipe.contains("GET /healthz HTTP/1.0"));
    let gate = Tidegate::start().run().await;
    let asked: Vec<&str> = chart.lines().filter_map(|line| line.trim().strip_prefix("path: /")).collect();
    // Who is ready without its store is not said by `/readyz`, and known keys are served without it.
    assert_eq!(asked, ["healthz"; 3]);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(gate.ask("GET", path).send().await.status, 200, "{path}");
    }
}
