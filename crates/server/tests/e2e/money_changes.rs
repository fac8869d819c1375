//! Limits that are changed: what was spent without them counts, and so do calls that were under way.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::Money;

use super::money::{key, replicas};
use crate::harness::books::{self, store_of};
use crate::harness::{Account, Buy, MANAGEMENT_KEY, Pace, Tidegate, Till, eventually, hash_of, on_both, with_postgres};

const MODEL: &str = "vendor/m";
const OTHER: &str = "vendor/other";
/// One dollar per million tokens of output: 64 of them, which is what each call answers, are 64 000 nano-dollars.
const OUTPUT_ONLY: &str = "[models.endpoints.pricing]\ninput = 0\noutput = 1\n";
const CALL: i64 = 64_000;
const WAIT: Duration = Duration::from_secs(10);

fn dollars(nanos: i64) -> Value {
    serde_json::from_str(&Money(nanos).to_string()).expect("a number")
}

/// A way to limit a key.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Key,
    Window,
    Budget,
    Guardrail,
}

/// That of the workspace first, while nothing was spent there.
const LIMITS: [Limit; 4] = [Limit::Budget, Limit::Key, Limit::Window, Limit::Guardrail];

/// A key of the account, and the guardrail that it may be held to.
struct Limited<'a> {
    account: &'a Account,
    key: String,
    guardrail: Value,
    limit: i64,
}

impl<'a> Limited<'a> {
    async fn of(account: &'a Account, limit: i64) -> Self {
        let rule = json!({"name": "rule", "limit_usd": dollars(limit), "reset_interval": "daily"});
        let guardrail = account.data("POST", "/guardrails", Some(rule), 201).await;
        Self { account, key: key(account, json!({})).await, guardrail, limit }
    }

    /// Limits the key, or no longer; a window is another one then.
    async fn set(&self, limit: Limit, is_on: bool) {
        let hash = hash_of(&self.key);
        let of_key = format!("/keys/{hash}");
        let of_workspace = format!("/workspaces/{}/budgets/daily", self.account.workspace.0);
        let amount = dollars(self.limit);
        let reply = match (limit, is_on) {
            (Limit::Key, true) => self.account.send("PATCH", &of_key, json!({"limit": amount})).await,
            (Limit::Key, false) => self.account.send("PATCH", &of_key, json!({"limit": null})).await,
            (Limit::Window, _) => {
                let reset = if is_on { "daily" } else { "monthly" };
                // What was spent in either is the same here: more is allowed by the month.
                let amount = dollars(if is_on { self.limit } else { 100 * CALL });
                self.account.send("PATCH", &of_key, json!({"limit": amount, "limit_reset": reset})).await
            }
            (Limit::Budget, true) => self.account.send("PUT", &of_workspace, json!({"limit_usd": amount})).await,
            (Limit::Budget, false) => self.account.send("DELETE", &of_workspace, json!({})).await,
            (Limit::Guardrail, is_on) => {
                let id = self.guardrail["id"].as_str().expect("an id");
                let path = format!("/guardrails/{id}/assignments/keys{}", if is_on { "" } else { "/remove" });
                self.account.send("POST", &path, json!({"key_hashes": [hash]})).await
            }
        };
        assert!((200..300).contains(&reply.status), "{limit:?} {is_on} {}", reply.body_text());
    }

    async fn buy(&self, model: &'static str, number: u64) -> bool {
        let heard = Buy::new(self.account.gate.address, &self.key, model, number, false).make().await;
        assert!(matches!(heard.status, Some(200 | 402 | 403)), "{heard:?}");
        heard.status == Some(200)
    }

    /// How many calls are served until one is not.
    async fn rest(&self, model: &'static str, first: u64) -> u64 {
        let mut served = 0;
        while served < 20 && self.buy(model, first + served).await {
            served += 1;
        }
        served
    }
}

on_both! {
    async fn what_was_spent_without_a_limit_counts_when_it_is_set_again(database: &Database) {
        let till = Till::start(Pace { usage: Some((14, 64)), first: Duration::ZERO, gap: Duration::ZERO }).await;
        let account = Account::start(database, Tidegate::start().endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY)).await;
        for limit in LIMITS {
            let limited = Limited::of(&account, 10 * CALL).await;
            limited.set(limit, true).await;
            for number in 0..3 {
                assert!(limited.buy(MODEL, number).await, "{limit:?}");
            }
            limited.set(limit, false).await;
            for number in 3..8 {
                assert!(limited.buy(MODEL, number).await, "{limit:?}");
            }
            limited.set(limit, true).await;
            assert_eq!(limited.rest(MODEL, 8).await, 2, "{limit:?}");
            limited.set(limit, false).await;
        }
        books::verified(&account.gate.place).await;
    }

    async fn a_call_under_way_counts_against_a_limit_that_came_after_it(database: &Database) {
        let pace = || Pace { usage: Some((14, 64)), first: Duration::ZERO, gap: Duration::ZERO };
        let (slow, quick) = (Till::start(pace()).await, Till::start(pace()).await);
        let builder = Tidegate::start()
            .endpoint_at(MODEL, &slow.base_url(), OUTPUT_ONLY)
            .endpoint_at(OTHER, &quick.base_url(), OUTPUT_ONLY);
        let account = Account::start(database, builder).await;
        for limit in LIMITS {
            let limited = Limited::of(&account, 5 * CALL).await;
            limited.set(limit, false).await;
            slow.open(false);
            let others = async {
                slow.busy(1).await;
                limited.set(limit, true).await;
                // All of the limit is taken for this one.
                assert!(limited.buy(OTHER, 1).await, "{limit:?}");
                slow.open(true);
            };
            let (long, ()) = tokio::join!(limited.buy(MODEL, 0), others);
            assert!(long);
            assert_eq!(limited.rest(OTHER, 2).await, 3, "{limit:?}");
            limited.set(limit, false).await;
        }
        eventually("all is forwarded", WAIT, async || books::total(&account.store).await == Money(4 * 5 * CALL)).await;
        books::verified(&account.gate.place).await;
    }
}

/// What was leased under another limit is no good although the store was asked about the new one meanwhile.
#[test]
fn a_lowered_limit_holds_at_a_gateway_that_recalled_money() {
    with_postgres(async |database| {
        let pace = || Pace { usage: Some((14, 64)), first: Duration::ZERO, gap: Duration::ZERO };
        let (slow, quick) = (Till::start(pace()).await, Till::start(pace()).await);
        let builder = Tidegate::start()
            .endpoint_at(MODEL, &slow.base_url(), OUTPUT_ONLY)
            .endpoint_at(OTHER, &quick.base_url(), OUTPUT_ONLY)
            .config(&database.config());
        let gates = replicas(database, &builder.text(), 2).await;
        // The second knows of the first from its start on.
        let gate = &gates[1];
        let managed = async |method: &str, path: &str, body: Value| {
            let reply =
                gate.ask(method, &format!("/api/v1{path}")).key(MANAGEMENT_KEY).json(body.to_string()).send().await;
            assert!((200..300).contains(&reply.status), "{}", reply.body_text());
            reply.json()
        };
        let made = managed("POST", "/keys", json!({"name": "k", "limit": dollars(100 * CALL)})).await;
        let key = made["key"].as_str().expect("a key").to_owned();
        let path = format!("/keys/{}", hash_of(&key));
        let buy = async |model: &'static str, number: u64| {
            Buy::new(gate.address, &key, model, number, false).make().await.status == Some(200)
        };
        assert!(buy(OTHER, 0).await);
        managed("PATCH", &path, json!({"limit": null})).await;
        slow.open(false);
        let lowered = async {
            slow.busy(1).await;
            managed("PATCH", &path, json!({"limit": dollars(3 * CALL)})).await;
            slow.open(true);
        };
        let (was_served, ()) = tokio::join!(buy(MODEL, 1), lowered);
        assert!(was_served);
        let store = store_of(database, &gate.place).await;
        eventually("the store has both", WAIT, async || books::total(&store).await == Money(2 * CALL)).await;
        let mut served = 0;
        while served < 20 && buy(OTHER, 2 + served).await {
            served += 1;
        }
        assert_eq!(served, 1);
    });
}
