//! Limits hold, to the last nano-dollar, however many ask at once and however many gateways answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::Money;
use tidegate_sim::{Behaviour, Sim};
use tokio::task::JoinSet;

use crate::harness::books::{self, PRICES, audit, price, rows, store_of, verified};
use crate::harness::{
    Account, Buy, Database, Heard, INFERENCE_KEY, MANAGEMENT_KEY, Pace, Place, Reply, Tidegate, Till, eventually,
    hash_of, hello, on_both, with_postgres,
};

const MODEL: &str = "vendor/m";
/// One dollar per million tokens of output: 64 of them, which is all that a call may answer, are 64 000 nano-dollars.
const OUTPUT_ONLY: &str = "[models.endpoints.pricing]\ninput = 0\noutput = 1\n";
const CALL: i64 = 64_000;
const MANY: &str = "[limits]\nin_flight_key = 4000\nin_flight_workspace = 4000\n";

/// An inference key with these properties.
pub async fn key(account: &Account, mut properties: Value) -> String {
    properties["name"] = json!("limited");
    let reply = account.send("POST", "/keys", properties).await;
    assert_eq!(reply.status, 201, "{}", reply.body_text());
    reply.json()["key"].as_str().expect("a key").to_owned()
}

/// What `GET /key` says of a key's limit, to the nano-dollar.
async fn remaining(gate: &Tidegate, key: &str) -> Money {
    let reply = gate.ask("GET", "/api/v1/key").key(key).send().await;
    let text = reply.body_text();
    let (_, rest) = text.split_once("\"limit_remaining\":").expect("it is named");
    Money::parse(&rest[..rest.find(',').expect("more follows")]).expect("a number")
}

fn dollars(nanos: i64) -> Value {
    serde_json::from_str(&Money(nanos).to_string()).expect("a number")
}

/// All of these at once, and what each heard.
async fn all(calls: impl IntoIterator<Item = Buy>) -> Vec<Heard> {
    let running: JoinSet<Heard> = calls.into_iter().map(Buy::make).collect();
    running.join_all().await
}

fn statuses(heard: &[Heard], status: u16) -> usize {
    heard.iter().filter(|heard| heard.status == Some(status)).count()
}

on_both! {
    async fn led_8_of_a_thousand_at_once_a_hundred_are_served(database: &Database) {
        // Every answer uses 9 tokens of the 64 that are held for it; none comes before all have been let in or refused.
        let till = Till::start(Pace { usage: Some((14, 9)), ..Pace::default() }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY).config(MANY);
        let account = Account::start(database, builder).await;
        let key = key(&account, json!({"limit": dollars(100 * CALL + CALL - 1)})).await;
        till.open(false);
        let (address, refused) = (account.gate.address, Arc::new(AtomicUsize::new(0)));
        let mut running = JoinSet::new();
        for number in 0..1000 {
            let (buy, refused) = (Buy::new(address, &key, MODEL, number, number % 2 == 0), refused.clone());
            running.spawn(async move {
                let heard = buy.make().await;
                refused.fetch_add(usize::from(heard.status != Some(200)), Ordering::SeqCst);
                heard
            });
        }
        eventually("nine hundred are refused", Duration::from_secs(60), async || {
            refused.load(Ordering::SeqCst) >= 900
        })
        .await;
        till.open(true);
        let heard = running.join_all().await;
        assert_eq!((statuses(&heard, 200), statuses(&heard, 402)), (100, 900));
        let cut: Vec<&Heard> = heard.iter().filter(|heard| heard.status == Some(200) && !heard.is_complete).collect();
        assert!(cut.is_empty(), "{cut:?} {}", account.gate.stderr());
        assert_eq!(till.sales().len(), 100, "nobody else reached the upstream");
        assert_eq!(remaining(&account.gate, &key).await, Money(100 * CALL + CALL - 1 - 100 * 9_000));
        let rows = rows(&account.store).await;
        assert_eq!(rows.len(), 100, "those that were refused were never let in");
        assert!(rows.iter().all(|row| (row.cost_nanos, row.reserved_nanos) == (Some(9_000), CALL)), "{rows:?}");
        verified(&account.gate.place).await;
    }

    async fn led_3_a_limit_is_used_to_its_end_and_no_further(database: &Database) {
        let till = Till::start(Pace { usage: Some((14, 64)), first: Duration::ZERO, gap: Duration::ZERO }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY).config(MANY);
        let account = Account::start(database, builder).await;
        let key = key(&account, json!({"limit": dollars(20 * CALL)})).await;
        let address = account.gate.address;
        let heard = all((0..200).map(|number| Buy::new(address, &key, MODEL, number, number % 2 == 0))).await;
        assert_eq!((statuses(&heard, 200), statuses(&heard, 402)), (20, 180));
        assert_eq!(remaining(&account.gate, &key).await, Money::ZERO);
        let refused = heard.iter().find(|heard| heard.status == Some(402)).expect("there are such");
        let error: Value = serde_json::from_slice(&refused.body).expect("an error is JSON");
        assert_eq!((&error["error"]["type"], &error["error"]["error_type"]), (&json!("billing_error"), &json!("payment_required")));
        let message = error["error"]["message"].as_str().expect("a text");
        assert!(message.starts_with("API key spend limit reached"), "{message}");
        assert_eq!(refused.id, None, "it was no generation");

        // More is allowed: more is served, at once and after a restart.
        let hash = crate::harness::hash_of(&key);
        account.data("PATCH", &format!("/keys/{hash}"), Some(json!({"limit": dollars(22 * CALL)})), 200).await;
        eventually("the new limit holds", Duration::from_secs(10), async || {
            Buy::new(address, &key, MODEL, 1000, false).make().await.status == Some(200)
        })
        .await;
        let Account { gate, store, .. } = account;
        let (status, place) = gate.stop().await;
        assert!(status.success());
        let gate = place.serve().await;
        assert_eq!(remaining(&gate, &key).await, Money(CALL));
        let heard = [Buy::new(gate.address, &key, MODEL, 2001, false).make().await, Buy::new(gate.address, &key, MODEL, 2002, true).make().await];
        assert_eq!((statuses(&heard, 200), statuses(&heard, 402)), (1, 1));
        verified(&gate.place).await;
        eventually("all is forwarded", Duration::from_secs(10), async || books::total(&store).await == Money(22 * CALL)).await;
    }

    async fn complete_answers_cost_what_arithmetic_says(database: &Database) {
        let till = Till::start(Pace { gap: Duration::ZERO, ..Pace::default() }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), PRICES).config(MANY);
        let account = Account::start(database, builder).await;
        let key = key(&account, json!({"limit": 100, "limit_reset": "monthly"})).await;
        let address = account.gate.address;
        let heard = all((0..300).map(|number| Buy::new(address, &key, MODEL, number, number % 3 == 0))).await;
        assert!(heard.iter().all(|heard| heard.is_complete), "{heard:?}");
        let whole: i64 = (0..300).map(|number| price(number).0).sum();
        assert_eq!(remaining(&account.gate, &key).await, Money(100_000_000_000 - whole));
        audit(&account.store, &till, &heard).await;
        assert_eq!(books::total(&account.store).await, Money(whole));
        verified(&account.gate.place).await;
    }

    async fn every_limit_of_a_call_holds_all_or_none(database: &Database) {
        let till = Till::start(Pace { usage: Some((14, 64)), first: Duration::ZERO, gap: Duration::ZERO }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY).config(MANY);
        let account = Account::start(database, builder).await;
        let workspace = account.workspace.0.to_string();
        account.data("PUT", &format!("/workspaces/{workspace}/budgets/daily"), Some(json!({"limit_usd": dollars(10 * CALL)})), 200).await;
        let keys = [key(&account, json!({"limit": dollars(7 * CALL)})).await, key(&account, json!({"limit": dollars(7 * CALL)})).await];
        let address = account.gate.address;
        let mut number = 0;
        let mut heard = Vec::new();
        for key in &keys {
            for _ in 0..8 {
                number += 1;
                heard.push(Buy::new(address, key, MODEL, number, false).make().await);
            }
        }
        let served: Vec<bool> = heard.iter().map(|heard| heard.status == Some(200)).collect();
        assert_eq!((served[..8].iter().filter(|served| **served).count(), served[8..].iter().filter(|served| **served).count()), (7, 3), "seven by the key, ten by the budget");
        assert_eq!((heard[7].status, heard[15].status), (Some(402), Some(403)));
        let error: Value = serde_json::from_slice(&heard[15].body).expect("an error is JSON");
        assert_eq!(error["error"]["message"], "Workspace daily budget of $0.00064 exceeded");
        // What the budget refused was not held on the key.
        assert_eq!(remaining(&account.gate, &keys[1]).await, Money(4 * CALL));
        verified(&account.gate.place).await;
    }

    async fn led_8_a_call_without_a_cap_gets_the_one_that_can_be_paid(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, OUTPUT_ONLY)).await;
        // 1000 tokens of output; the model could answer 8192.
        let key = key(&account, json!({"limit": dollars(1_000_000)})).await;
        let ask = |body: Value| account.gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send();
        let open = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]});
        let reply = ask(open.clone()).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let sent: Value = serde_json::from_slice(&sim.requests().pop().expect("a call").body).expect("JSON");
        assert_eq!(sent["max_tokens"], 1000);
        // A cap that was asked for is not lowered, and the answer says what would do.
        let left = remaining(&account.gate, &key).await.0 / 1000;
        let mut capped = open.clone();
        capped["max_tokens"] = json!(2000);
        let (status, kind, _, message) = ask(capped).await.error();
        assert_eq!((status, &*kind), (402, "billing_error"));
        assert_eq!(message, format!("Insufficient credits: at most {left} output tokens are affordable"));
        // Below 256 tokens an answer is not worth beginning.
        let hash = crate::harness::hash_of(&key);
        let spent = 1_000_000 - remaining(&account.gate, &key).await.0;
        account.data("PATCH", &format!("/keys/{hash}"), Some(json!({"limit": dollars(spent + 255_000)})), 200).await;
        eventually("the new limit holds", Duration::from_secs(10), async || ask(open.clone()).await.status == 402).await;
        let (.., message) = ask(open).await.error();
        assert_eq!(message, "Insufficient credits: at most 255 output tokens are affordable", "with a cap of its own it can be");
    }

    async fn led_8_every_limit_of_a_first_call_is_asked_how_far_it_reaches(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, OUTPUT_ONLY)).await;
        let budget = async |interval: &str, nanos: i64| {
            let path = format!("/workspaces/{}/budgets/{interval}", account.workspace.0);
            account.data("PUT", &path, Some(json!({"limit_usd": dollars(nanos)})), 200).await;
        };
        budget("lifetime", 5_000_000).await;
        budget("daily", 4_000_000).await;
        let ask = async |limit: Option<i64>, max_tokens: Option<u64>| {
            let key = key(&account, limit.map_or(json!({}), |limit| json!({"limit": dollars(limit)}))).await;
            let body = json!({"model": MODEL, "max_tokens": max_tokens, "messages": [{"role": "user", "content": "hi"}]});
            account.gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send().await
        };
        // The model could answer 8192 tokens, which neither the key nor a budget can pay for, and nothing was asked before.
        let reply = ask(Some(1_000_000), None).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let sent: Value = serde_json::from_slice(&sim.requests().pop().expect("a call").body).expect("JSON");
        assert_eq!(sent["max_tokens"], 1000);
        assert_eq!(reply.header("x-tidegate-warnings"), Some("clamped:max_tokens"), "the answer may be cut");
        let (status, .., message) = ask(Some(1_000_000), Some(6_000)).await.error();
        assert_eq!((status, &*message), (402, "Insufficient credits: at most 1000 output tokens are affordable"));
        let plain = ask(Some(1_000_000), Some(10)).await;
        assert_eq!((plain.status, plain.header("x-tidegate-warnings")), (200, None));
        // What binds is named, and not what is only too small for the longest answer.
        budget("daily", 100_000).await;
        let base = "Workspace daily budget of $0.0001 exceeded";
        eventually("the budget holds", Duration::from_secs(10), async || {
            let left = (100_000 - books::total(&account.store).await.0) / 1_000;
            ask(None, None).await.error().3 == format!("{base}: at most {left} output tokens are affordable")
        })
        .await;
    }

    async fn who_is_refused_for_what_others_hold_is_told_to_try_again(database: &Database) {
        let till = Till::start(Pace { usage: Some((14, 9)), first: Duration::ZERO, gap: Duration::ZERO }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY).config(MANY);
        let account = Account::start(database, builder).await;
        // Nine tokens come of the 64 that are held: there is enough for two, and not for two at once.
        let key = key(&account, json!({"limit": dollars(CALL + 10_000)})).await;
        let ask = |max_tokens: u64| {
            let body = json!({"model": MODEL, "max_tokens": max_tokens, "messages": [{"role": "user", "content": "1"}]});
            account.gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send()
        };
        till.open(false);
        let first = Buy::new(account.gate.address, &key, MODEL, 1, false).make();
        let others = async {
            till.busy(1).await;
            let (held, dear) = (ask(64).await, ask(75).await);
            till.open(true);
            (held, dear)
        };
        let (first, (held, dear)) = tokio::join!(first, others);
        assert!(first.is_complete, "{first:?}");
        let ten = "Insufficient credits: at most 10 output tokens are affordable";
        assert_eq!(held.error().3, format!("{ten}; calls under way hold $0.000064, try again when they end"));
        assert_eq!((held.status, held.header("x-should-retry"), held.header("retry-after")), (402, Some("true"), Some("1")));
        // For this one all of the key is too little.
        assert_eq!(dear.error().3, ten);
        assert_eq!((dear.status, dear.header("x-should-retry"), dear.header("retry-after")), (402, Some("false"), None));
        let again = Buy::new(account.gate.address, &key, MODEL, 2, false).make().await;
        assert_eq!(again.status, Some(200), "what the first held has come back: {again:?}");
    }

    async fn led_8_the_endpoint_that_reaches_furthest_says_how_far(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let dear = "[models.endpoints.pricing]\ninput = 0\noutput = 4\n";
        let builder = Tidegate::start().endpoint_with(MODEL, &sim, dear).endpoint_with(MODEL, &sim, OUTPUT_ONLY);
        let account = Account::start(database, builder).await;
        let key = key(&account, json!({"limit": dollars(1_000_000)})).await;
        for order in [["p0", "p1"], ["p1", "p0"]] {
            let body = json!({"model": MODEL, "max_tokens": 2000, "provider": {"order": order},
                "messages": [{"role": "user", "content": "hi"}]});
            let reply = account.gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send().await;
            let (status, .., message) = reply.error();
            assert_eq!((status, &*message), (402, "Insufficient credits: at most 1000 output tokens are affordable"), "{order:?}");
        }
    }

    async fn led_8_who_cannot_pay_for_a_model_does_not_get_another_one(database: &Database) {
        let sims = [Sim::start(Behaviour::says("dear")).await, Sim::start(Behaviour::says("cheap")).await];
        let dear = "[models.endpoints.pricing]\ninput = 0\noutput = 100\n";
        let builder = Tidegate::start()
            .endpoint_with(MODEL, &sims[0], dear)
            .endpoint_with("vendor/small", &sims[1], OUTPUT_ONLY)
            .endpoint_with("vendor/both", &sims[0], dear)
            .endpoint_with("vendor/both", &sims[1], OUTPUT_ONLY);
        let account = Account::start(database, builder).await;
        // Enough for 64 tokens of the small model, or of the cheaper endpoint.
        let key = key(&account, json!({"limit": dollars(2 * CALL)})).await;
        let ask = |more: Value| {
            let mut body = json!({"max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]});
            body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            account.gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send()
        };
        for more in [json!({"model": MODEL, "fallbacks": [{"model": "vendor/small"}]}), json!({"models": [MODEL, "vendor/small"]})] {
            let (status, kind, ..) = ask(more.clone()).await.error();
            assert_eq!((status, &*kind), (402, "billing_error"), "{more}");
        }
        assert_eq!(sims.each_ref().map(Sim::calls), [0, 0]);
        assert_eq!(ask(json!({"model": "vendor/both"})).await.text(), "cheap", "the same model for less is what was asked for");
        // Where the dear one only comes first because of how it is sorted, the one that was named first is still wanted.
        let sorted = json!({"models": ["vendor/small", MODEL], "provider": {"order": ["p0", "p1"], "sort": {"by": "price", "partition": "none"}}});
        let mut rich = sorted.clone();
        rich.as_object_mut().expect("an object").extend([("max_tokens".to_owned(), json!(9)), ("messages".to_owned(), json!([{"role": "user", "content": "hi"}]))]);
        assert_eq!(account.gate.messages(rich).await.text(), "dear");
        assert_eq!(ask(sorted).await.text(), "cheap");
        // Somebody has failed, and his like cannot be paid for: then another model of the list may help.
        sims[1].set(Behaviour::status(500));
        let helper = Sim::start(Behaviour::says("help")).await;
        let text = Tidegate::start()
            .endpoint_with("vendor/a", &sims[1], OUTPUT_ONLY)
            .endpoint_with("vendor/a", &sims[0], dear)
            .endpoint_with("vendor/b", &helper, OUTPUT_ONLY);
        database.empty().await;
        let account = Account::start(database, text).await;
        let key = super::money::key(&account, json!({"limit": dollars(2 * CALL)})).await;
        let body = json!({"models": ["vendor/a", "vendor/b"], "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]});
        let reply = account.gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send().await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "help"), "{}", reply.body_text());
    }

    async fn led_10_nothing_is_free_for_who_owes(database: &Database) {
        // It answers more than it was allowed to.
        let till = Till::start(Pace { usage: Some((14, 100)), first: Duration::ZERO, gap: Duration::ZERO }).await;
        let free = "[models.endpoints.pricing]\ninput = 0\noutput = 0\n";
        let builder = Tidegate::start()
            .endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY)
            .endpoint_at("vendor/free", &till.base_url(), free);
        let account = Account::start(database, builder).await;
        let key = key(&account, json!({"limit": dollars(CALL)})).await;
        let address = account.gate.address;
        assert_eq!(Buy::new(address, &key, "vendor/free", 1, false).make().await.status, Some(200));
        assert_eq!(Buy::new(address, &key, MODEL, 2, false).make().await.status, Some(200));
        eventually("the store has it", Duration::from_secs(10), async || {
            books::total(&account.store).await == Money(100_000)
        })
        .await;
        // The book may hear of it a moment after the store has it.
        for number in 3..13 {
            let refused = Buy::new(address, &key, "vendor/free", number, false).make().await;
            let error: Value = serde_json::from_slice(&refused.body).expect("JSON");
            assert_eq!((refused.status, &error["error"]["message"]), (Some(402), &json!("API key spend limit reached")));
        }
        verified(&account.gate.place).await;
    }

    async fn credits_that_were_given_can_be_spent_and_no_more(database: &Database) {
        let till = Till::start(Pace { usage: Some((14, 64)), first: Duration::ZERO, gap: Duration::ZERO }).await;
        let billing = "[billing]\nenabled = true\n[service]\ncredits_url = \"https://pay.test/more\"\n";
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY).config(MANY).config(billing);
        let account = Account::start(database, builder).await;
        let address = account.gate.address;
        let refused = Buy::new(address, INFERENCE_KEY, MODEL, 1, false).make().await;
        let error: Value = serde_json::from_slice(&refused.body).expect("an error is JSON");
        assert_eq!((refused.status, &error["error"]["message"]), (Some(402), &json!("Insufficient credits. Add more using https://pay.test/more")));
        account.data("POST", "/credits/grants", Some(json!({"amount": dollars(5 * CALL), "note": "first"})), 201).await;
        assert_eq!(Buy::new(address, INFERENCE_KEY, MODEL, 2, false).make().await.status, Some(200));
        let heard = all((100..120).map(|number| Buy::new(address, INFERENCE_KEY, MODEL, number, number % 2 == 0))).await;
        assert_eq!((statuses(&heard, 200), statuses(&heard, 402)), (4, 16));
        let credits = account.data("GET", "/credits", None, 200).await;
        assert_eq!((&credits["total_credits"], &credits["total_usage"]), (&dollars(5 * CALL), &dollars(5 * CALL)));
        verified(&account.gate.place).await;
    }
}

/// Gateways on one database, each with a folder of its own; they must hold the same master key.
pub async fn replicas(database: &Database, text: &str, count: usize) -> Vec<Tidegate> {
    let first = Place::new(text).serve().await;
    let mut gates = vec![first];
    for _ in 1..count {
        let place = Place::new(text);
        std::fs::create_dir_all(place.data_dir()).expect("a folder");
        std::fs::copy(gates[0].place.data_dir().join("master.key"), place.data_dir().join("master.key"))
            .expect("a copy");
        gates.push(place.serve().await);
    }
    assert!(database.url().starts_with("postgres"));
    gates
}

#[test]
fn led_22_three_gateways_never_pass_a_limit_and_use_all_of_it() {
    with_postgres(async |database| {
        let till = Till::start(Pace { usage: Some((14, 64)), first: Duration::ZERO, gap: Duration::ZERO }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY).config(MANY);
        let builder = builder.config(&database.config());
        let gates = replicas(database, &builder.text(), 3).await;
        let made = gates[0]
            .place
            .run(&["keys", "create", "--name", "limited", "--limit", &Money(100 * CALL).to_string()])
            .await;
        assert!(made.status.success(), "{made:?}");
        let key = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
        for gate in &gates {
            eventually("every gateway knows the key", Duration::from_secs(10), async || {
                gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200
            })
            .await;
        }
        let addresses: Vec<_> = gates.iter().map(|gate| gate.address).collect();
        let heard = all((0..1000_u64).map(|number| {
            Buy::new(addresses[usize::try_from(number).expect("small") % 3], &key, MODEL, number, number % 2 == 0)
        }))
        .await;
        assert_eq!((statuses(&heard, 200), statuses(&heard, 402)), (100, 900), "never over, and all of it");
        let store = store_of(database, &gates[0].place).await;
        eventually("all is forwarded", Duration::from_secs(10), async || rows(&store).await.len() == 100).await;
        assert_eq!(books::total(&store).await, Money(100 * CALL));
        for gate in &gates {
            assert_eq!(remaining(gate, &key).await, Money::ZERO);
            verified(&gate.place).await;
        }
    });
}

#[test]
fn led_22_what_one_gateway_does_not_need_another_can_spend() {
    with_postgres(async |database| {
        let till = Till::start(Pace { usage: Some((14, 64)), first: Duration::ZERO, gap: Duration::ZERO }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY).config(MANY);
        let builder = builder.config(&database.config());
        let gates = replicas(database, &builder.text(), 2).await;
        let made = gates[0]
            .place
            .run(&["keys", "create", "--name", "limited", "--limit", &Money(40 * CALL).to_string()])
            .await;
        let key = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
        for gate in &gates {
            eventually("every gateway knows the key", Duration::from_secs(10), async || {
                gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200
            })
            .await;
        }
        // The first takes a lease for one call and then falls silent; the second wants everything that is left.
        assert_eq!(Buy::new(gates[0].address, &key, MODEL, 0, false).make().await.status, Some(200));
        let mut served = HashSet::new();
        for number in 1..41 {
            if Buy::new(gates[1].address, &key, MODEL, number, false).make().await.status == Some(200) {
                served.insert(number);
            }
        }
        assert_eq!(served.len(), 39);
        assert_eq!(remaining(&gates[1], &key).await, Money::ZERO);
        for gate in &gates {
            assert_eq!(Buy::new(gate.address, &key, MODEL, 100, false).make().await.status, Some(402));
        }
    });
}

/// Two gateways, and a key for each of these limits, which both of them know.
async fn pair(database: &Database, sim: &Sim, limits: &[i64]) -> (Vec<Tidegate>, Vec<String>) {
    let builder = Tidegate::start().endpoint_with(MODEL, sim, OUTPUT_ONLY).config(&database.config());
    let gates = replicas(database, &builder.text(), 2).await;
    let mut keys = Vec::new();
    for limit in limits {
        let limit = Money(*limit).to_string();
        let made = gates[0].place.run(&["keys", "create", "--name", "limited", "--limit", &limit]).await;
        keys.push(String::from_utf8(made.stdout).expect("a key is text").trim().to_owned());
    }
    for (gate, key) in gates.iter().flat_map(|gate| keys.iter().map(move |key| (gate, key))) {
        eventually("every gateway knows the key", Duration::from_secs(10), async || {
            gate.ask("GET", "/api/v1/key").key(key).send().await.status == 200
        })
        .await;
    }
    (gates, keys)
}

fn short(gate: &Tidegate, key: &str, max_tokens: Option<u64>) -> impl Future<Output = Reply> + Send + use<> {
    let body = json!({"model": MODEL, "max_tokens": max_tokens, "messages": [{"role": "user", "content": "hi"}]});
    gate.ask("POST", "/v1/messages").key(key).json(body.to_string()).send()
}

#[test]
fn led_22_gateways_that_each_want_all_of_a_limit_give_it_to_each_other() {
    with_postgres(async |database| {
        let sim = Sim::start(Behaviour::says("hello")).await;
        // The model could answer 8192 tokens; a limit is for a thousand.
        let (gates, keys) = pair(database, &sim, &[1_000_000; 5]).await;
        for (number, max_tokens) in [None, None, Some(10), None, None, Some(10), Some(10), None].into_iter().enumerate()
        {
            let reply = short(&gates[number % 2], &keys[0], max_tokens).await;
            assert_eq!(reply.status, 200, "{number}: {}", reply.body_text());
        }
        // Also when both meet it for the first time, in the same moment.
        for key in &keys[1..] {
            let both: JoinSet<Reply> = gates.iter().map(|gate| short(gate, key, None)).collect();
            for reply in both.join_all().await {
                assert_eq!(reply.status, 200, "{}", reply.body_text());
            }
        }
    });
}

#[test]
fn led_22_a_key_that_is_used_up_takes_nothing_from_others() {
    with_postgres(async |database| {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let (gates, keys) = pair(database, &sim, &[1_000, 3_000_000]).await;
        let budget = gates[0].ask("PUT", "/api/v1/workspaces/default/budgets/daily").key(MANAGEMENT_KEY);
        let set = budget.json(json!({"limit_usd": dollars(4_000_000)}).to_string()).send().await;
        assert_eq!(set.status, 200, "{}", set.body_text());
        // It has one token, and goes on calling.
        let is_over = Arc::new(AtomicUsize::new(0));
        let (first, dead, over) = (gates[0].address, keys[0].clone(), is_over.clone());
        let mut caller = JoinSet::new();
        caller.spawn(async move {
            let mut calls = 0;
            while over.load(Ordering::Relaxed) == 0 {
                let call = Buy { max_tokens: None, ..Buy::new(first, &dead, MODEL, calls, false) };
                let heard = call.make().await;
                assert_eq!(heard.status, Some(402));
                calls += 1;
            }
            calls
        });
        for number in 0..20 {
            let reply = short(&gates[1], &keys[1], Some(100)).await;
            assert_eq!(reply.status, 200, "{number}: {}", reply.body_text());
        }
        is_over.store(1, Ordering::Relaxed);
        let made = caller.join_next().await.expect("a caller").expect("every call was refused");
        assert!(made > 0);
        // What one of them holds of the budget, the other does not count as gone: the key binds.
        let (status, .., message) = short(&gates[0], &keys[1], Some(6_000)).await.error();
        assert_eq!(status, 402, "{message}");
    });
}

#[test]
fn led_22_a_limit_that_was_raised_can_be_spent_on_every_gateway() {
    with_postgres(async |database| {
        let till = Till::start(Pace { usage: Some((14, 64)), first: Duration::ZERO, gap: Duration::ZERO }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), OUTPUT_ONLY).config(MANY);
        let builder = builder.config(&database.config());
        let gates = replicas(database, &builder.text(), 2).await;
        let limit = Money(CALL).to_string();
        let made = gates[0].place.run(&["keys", "create", "--name", "limited", "--limit", &limit]).await;
        let key = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
        let limited_to = async |calls: i64| {
            for gate in &gates {
                eventually("every gateway knows the limit", Duration::from_secs(10), async || {
                    let reply = gate.ask("GET", "/api/v1/key").key(&key).send().await;
                    reply.status == 200 && reply.json()["data"]["limit"] == dollars(calls * CALL)
                })
                .await;
            }
        };
        let buy = async |gate: usize, number: u64| {
            Buy::new(gates[gate].address, &key, MODEL, number, false).make().await.status
        };
        limited_to(1).await;
        // Both learn that nothing is left.
        assert_eq!((buy(0, 0).await, buy(1, 1).await, buy(0, 2).await), (Some(200), Some(402), Some(402)));
        let patch = gates[1].ask("PATCH", &format!("/api/v1/keys/{}", hash_of(&key))).key(MANAGEMENT_KEY);
        let reply = patch.json(json!({"limit": dollars(10 * CALL)}).to_string()).send().await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        limited_to(10).await;
        // The first believes to be alone and takes all of it; the second gets what it needs, and so does the first again.
        eventually("the first lets calls in by it", Duration::from_secs(10), async || buy(0, 3).await == Some(200))
            .await;
        for (number, gate) in (4..).zip([1, 1, 0, 0, 1, 1, 1, 1]) {
            assert_eq!(buy(gate, number).await, Some(200), "{number} at {gate}");
        }
        assert_eq!((buy(0, 20).await, buy(1, 21).await), (Some(402), Some(402)));
        for gate in &gates {
            assert_eq!(remaining(gate, &key).await, Money::ZERO);
            verified(&gate.place).await;
        }
    });
}

#[tokio::test]
async fn an_unknown_price_is_told_and_binds_who_is_limited() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let free = gate.messages(hello(MODEL)).await;
    assert_eq!((free.status, &free.json()["usage"]["cost"]), (200, &Value::Null), "unknown is not zero");
    let made = gate.place.run(&["keys", "create", "--name", "limited", "--limit", "1"]).await;
    let key = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
    eventually("the key is known", Duration::from_secs(10), async || {
        gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200
    })
    .await;
    let refused = gate.ask("POST", "/v1/messages").key(&key).json(hello(MODEL).to_string()).send().await;
    let (status, _, kind, message) = refused.error();
    assert_eq!((status, &*kind), (402, "payment_required"), "{message}");
    assert!(message.contains("price") && message.contains("pricing.unknown"), "it says what to change: {message}");
}
