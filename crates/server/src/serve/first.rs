//! The first start: what is made and said once.

use std::io::Write;
use std::net::SocketAddr;

use tidegate_core::clock::Clock;
use tidegate_core::key::{self, KeyHash};
use tidegate_core::{KeyKind, Money, Secret};
use tidegate_observe::logging::Format;
use tidegate_store::Store;
use tidegate_store::keys::{LimitReset, NewKey};
use tidegate_store::organisations::Bootstrap;

use crate::config::Checked;

/// What the first inference key may spend in a day.
const FIRST_LIMIT: &str = "10";

/// The keys of a first start, in clear until they are printed.
pub(super) struct First {
    management: Option<Secret>,
    inference: Option<Secret>,
}

/// Makes the account of an empty store.
pub(super) async fn bootstrap(store: &Store, config: &Checked, clock: &dyn Clock) -> anyhow::Result<Option<First>> {
    if store.sole_organisation().await?.is_none() {
        config.management_key.is_ready("keys.management_key")?;
        config.inference_key.is_ready("keys.inference_key")?;
    }
    let limit = Money::parse(FIRST_LIMIT).expect("a constant amount");
    let generate = |prefix: &str, given: bool| (!given).then(|| key::generate(prefix));
    let first = First {
        management: generate(&config.management_prefix, config.management_key.brought().is_some()),
        inference: generate(&config.key_prefix, config.inference_key.brought().is_some()),
    };
    let new = |kind, name: &str, raw: &Secret, prefix: &str, limit: Option<Money>| {
        raw.expose(|bytes| NewKey {
            hash: KeyHash::of(bytes),
            kind,
            name: name.to_owned(),
            label: key::label(&String::from_utf8_lossy(bytes), prefix),
            limit,
            limit_reset: limit.map(|_| LimitReset::Daily),
            include_byok_in_limit: false,
            expires: None,
            creator: None,
            external_user: None,
            app_id: None,
            spawn_agent: None,
            spawn_cloud: None,
        })
    };
    let management =
        first.management.as_ref().or_else(|| config.management_key.brought()).expect("one of the two is there");
    let inference =
        first.inference.as_ref().or_else(|| config.inference_key.brought()).expect("one of the two is there");
    let inference_limit = first.inference.as_ref().map(|_| limit);
    let keys = vec![
        new(KeyKind::Management, "First management key", management, &config.management_prefix, None),
        new(KeyKind::Inference, "First inference key", inference, &config.key_prefix, inference_limit),
    ];
    let contents =
        Bootstrap { organisation_name: "Organisation".to_owned(), workspace_name: "Default".to_owned(), keys };
    Ok(store.bootstrap(clock.now(), contents).await?.map(|_| first))
}

/// The first screen. Keys are printed here and nowhere else, once, and never to a log. It is text: where a log of JSON was
/// asked for, whoever reads standard output reads that alone, and the screen goes to standard error.
pub(super) fn announce(
    config: &Checked,
    address: SocketAddr,
    public_url: &str,
    first: Option<&First>,
) -> anyhow::Result<()> {
    let mut out: Box<dyn Write> = match config.log_format {
        Format::Json => Box::new(std::io::stderr().lock()),
        Format::Auto | Format::Text => Box::new(std::io::stdout().lock()),
    };
    writeln!(out, "Tidegate {} listening on {}://{address}", env!("CARGO_PKG_VERSION"), config.scheme())?;
    for found in &config.found {
        writeln!(out, "  {} found: {} is a provider", found.variable, found.provider)?;
    }
    for unused in &config.unused {
        writeln!(out, "  {unused}")?;
    }
    if let Some(first) = first {
        writeln!(out, "\nFirst start. These keys are shown only this once:\n")?;
        let mut show = |name: &str, key: &Option<Secret>, note: &str| match key {
            Some(key) => key.expose(|bytes| writeln!(out, "  {name}  {}{note}", String::from_utf8_lossy(bytes))),
            None => writeln!(out, "  {name}  as configured"),
        };
        show("management key", &first.management, "")?;
        show("inference key ", &first.inference, &format!("  (limit ${FIRST_LIMIT} a day)"))?;
        let key = match &first.inference {
            Some(key) => key.expose(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            None => "YOUR_INFERENCE_KEY".to_owned(),
        };
        let model = if config.sim_enabled { format!("{}/sim", config.settings.brand) } else { "YOUR_MODEL".to_owned() };
        writeln!(out, "\nTry it:\n")?;
        writeln!(
            out,
            "  curl {public_url}/v1/messages -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \
             -d '{{\"model\":\"{model}\",\"max_tokens\":64,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
        )?;
        writeln!(out, "  TIDEGATE_URL={public_url} TIDEGATE_API_KEY={key} tidegate run claude")?;
        writeln!(out, "  {public_url}/dashboard\n")?;
    }
    out.flush()?;
    Ok(())
}
