//! Clients that leave, streams that cost more than was held, and what is charged for them.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::{GenerationId, Money, Tenant, id};
use tidegate_sim::{Behaviour, End, Script, Sim};
use tidegate_store::Store;
use tokio::task::JoinSet;

use crate::harness::books::{PRICES, price, rows, verified};
use crate::harness::{
    Account, Buy, Heard, INFERENCE_KEY, MANAGEMENT_KEY, Pace, Tidegate, Till, eventually, frame, on_both, tale,
};
use crate::money::key;

const MODEL: &str = "vendor/m";
const TEN_SECONDS: Duration = Duration::from_secs(10);
const LEAVERS: u64 = 1000;
/// At a time: enough to be a crowd, and few enough that the time it takes is the gateway's.
const CROWD: u64 = 20;
/// The promise.
const CANCELLED: Duration = Duration::from_millis(250);

on_both! {
    async fn a_client_that_leaves_at_any_byte_is_settled_once(database: &Database) {
        let till = Till::start(Pace { first: Duration::from_millis(10), gap: Duration::from_millis(15), usage: None }).await;
        let account = Account::start(database, Tidegate::start().endpoint_at(MODEL, &till.base_url(), PRICES)).await;
        let mut heard: Vec<Heard> = Vec::new();
        for first in (0..LEAVERS).step_by(CROWD as usize) {
            let mut running = JoinSet::new();
            for number in first..first + CROWD {
                // A stream has some 1400 bytes: some leave before the first, some hear all of it.
                let at = usize::from(u16::from_le_bytes(id::random::<2>())) * 1500 / 65_536;
                let streamed = number % 10 != 0;
                let mut buy = Buy::new(account.gate.address, INFERENCE_KEY, MODEL, number, streamed);
                buy.leave_after = Some(at);
                if !streamed || number % 10 == 1 {
                    // These do not even wait for the head.
                    buy.patience = Duration::from_micros(u64::try_from(at).expect("small") * 20);
                }
                running.spawn(buy.make());
            }
            heard.extend(running.join_all().await);
        }
        eventually("nothing runs upstream any more", TEN_SECONDS, async || {
            till.sales().values().all(|sale| sale.is_complete || sale.left.is_some())
        })
        .await;
        let (mut cancelled, mut slowest) = (0, Duration::ZERO);
        for heard in &heard {
            let Some(left) = heard.left else { continue };
            let Some(sale) = till.sale(heard.number) else { continue };
            let Some(noticed) = sale.left.filter(|_| !sale.is_complete) else { continue };
            cancelled += 1;
            slowest = slowest.max(noticed.saturating_duration_since(left));
        }
        assert!(cancelled > 400, "most left in the middle: {cancelled}");
        assert!(slowest <= CANCELLED, "an upstream was cancelled {slowest:?} after its client left");
        eventually("all is forwarded", TEN_SECONDS, async || {
            let rows = rows(&account.store).await;
            till.sales().len() == rows.iter().filter(|row| till.sale(row.number()).is_some()).count()
        })
        .await;
        let rows = rows(&account.store).await;
        for heard in &heard {
            let mine: Vec<_> = rows.iter().filter(|row| row.number() == heard.number).collect();
            assert!(mine.len() <= 1, "{}: {mine:?}", heard.number);
            assert!(mine.len() == 1 || (heard.id.is_none() && till.sale(heard.number).is_none()), "{heard:?}");
            let Some(row) = mine.first() else { continue };
            let cost = Money(row.cost_nanos.expect("the price is known"));
            match row.outcome.as_str() {
                "complete" => assert_eq!(cost, price(heard.number)),
                // What was heard is counted from its bytes: a token more or less for each of the few pieces.
                "cancelled" => {
                    let most = Money(price(heard.number).0 + 10 * 15_000);
                    assert!(cost.0 >= 0 && cost <= most.max(Money(row.reserved_nanos)), "{row:?}");
                },
                other => panic!("{other}: {row:?}"),
            }
            if heard.is_complete {
                assert_eq!((row.outcome.as_str(), heard.cost()), ("complete", Some(price(heard.number))));
            }
        }
        verified(&account.gate.place).await;
        let metrics = account.gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).send().await;
        assert!(metrics.body_text().contains("tidegate_ledger_reaped_total 0\n"), "nobody had to look for lost calls");
    }

    async fn a_provider_that_bills_anyway_is_read_to_its_end(database: &Database) {
        let till = Till::start(Pace { first: Duration::from_millis(20), gap: Duration::from_millis(20), usage: None }).await;
        let builder = Tidegate::start().endpoint_of(MODEL, &till.base_url(), "supports_cancel = false", PRICES);
        let account = Account::start(database, builder).await;
        for (number, streamed, at) in [(1, true, 0), (2, true, 300), (3, true, 900), (4, false, 0), (5, true, 1_000_000)] {
            let mut buy = Buy::new(account.gate.address, INFERENCE_KEY, MODEL, number, streamed);
            buy.leave_after = Some(at);
            if !streamed {
                buy.patience = Duration::from_millis(10);
            }
            let heard = buy.make().await;
            assert_eq!(heard.is_complete, number == 5, "{heard:?}");
            eventually("it is recorded", TEN_SECONDS, async || {
                rows(&account.store).await.iter().any(|row| row.number() == number)
            })
            .await;
            let row = rows(&account.store).await.into_iter().find(|row| row.number() == number).expect("it was there");
            let outcome = if number == 5 { "complete" } else { "cancelled" };
            assert_eq!((row.outcome.as_str(), row.cost_nanos), (outcome, Some(price(number).0)), "{row:?}");
            assert!(till.sale(number).is_some_and(|sale| sale.is_complete && sale.left.is_none()));
        }
        verified(&account.gate.place).await;
    }

    async fn who_leaves_while_a_failed_attempt_is_to_be_repeated_pays_nothing(database: &Database) {
        let sim = Sim::start(Behaviour::Raw {
            status: 429,
            headers: vec![("retry-after".to_owned(), "9".to_owned())],
            body: r#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#.into(),
        })
        .await;
        // One that can be stopped, and one that charges for whatever it was asked.
        for (more, streamed) in [("", false), ("", true), ("supports_cancel = false", false), ("supports_cancel = false", true)] {
            let builder = Tidegate::start().endpoint_of(MODEL, &sim.base_url(), more, PRICES);
            let account = Account::start(database, builder.config("[log]\nlevel = \"debug\"\n[routing]\nrepeat = true\n")).await;
            let body = json!({"model": MODEL, "max_tokens": 64, "stream": streamed, "messages": [{"role": "user", "content": "hi"}]});
            let mut client = JoinSet::new();
            client.spawn(account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string()).send());
            account.gate.logs("an attempt failed").await;
            client.shutdown().await;
            eventually("it is recorded", TEN_SECONDS, async || !rows(&account.store).await.is_empty()).await;
            let rows = rows(&account.store).await;
            assert_eq!((rows.len(), rows[0].outcome.as_str(), rows[0].cost_nanos), (1, "cancelled", Some(0)), "{more}: {rows:?}");
            verified(&account.gate.place).await;
            account.store.close().await;
            drop(account.gate.stop().await);
            database.empty().await;
        }
    }

    async fn led_11_a_stream_that_costs_more_than_there_is(database: &Database) {
        // 4000 pieces of 8 bytes: far more than the 100 tokens that are held for it.
        let sim = Sim::start(Script::tokens(4000, 8).pace(Duration::from_millis(1))).await;
        let pricing = "[models.endpoints.pricing]\ninput = 0\noutput = 1\n";
        // A limit that pays for all of a stream cuts none, though it does not pay for as much as is held ahead.
        let short = Sim::start(Script::tokens(280, 8).pace(Duration::from_millis(10))).await;
        let ledger = "[ledger]\nreserve_output_tokens = 100\non_exhausted = \"cut\"\n";
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &short, pricing).config(ledger)).await;
        let rich = key(&account, json!({"limit": serde_json::Number::from_f64(0.001)})).await;
        let body = json!({"model": MODEL, "max_tokens": 8000, "stream": true, "messages": [{"role": "user", "content": "hi"}]});
        let reply = account.gate.ask("POST", "/v1/messages").key(&rich).json(body.to_string()).send().await;
        let events = reply.events();
        assert_eq!(events.last().expect("there are events").name, "message_stop", "{}", reply.body_text());
        account.store.close().await;
        drop(account.gate.stop().await);
        database.empty().await;
        for (policy, is_cut) in [("finish", false), ("cut", true)] {
            let ledger = format!("[ledger]\nreserve_output_tokens = 100\non_exhausted = \"{policy}\"\n");
            let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, pricing).config(&ledger)).await;
            // 200 tokens of output.
            let key = key(&account, json!({"limit": serde_json::Number::from_f64(0.0002)})).await;
            let body = json!({"model": MODEL, "max_tokens": 8000, "stream": true, "messages": [{"role": "user", "content": "hi"}]});
            let reply = account.gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send().await;
            let events = reply.events();
            let last = events.last().expect("there are events");
            if is_cut {
                let error = last.json();
                assert_eq!((last.name.as_str(), &error["error"]["type"], &error["error"]["error_type"]), ("error", &json!("billing_error"), &json!("payment_required")), "{error}");
            } else {
                assert_eq!(last.name, "message_stop");
            }
            let shown = account.gate.ask("GET", "/api/v1/key").key(&key).send().await.json()["data"].clone();
            assert!(shown["usage"].as_f64().is_some_and(|usage| usage > 0.0002), "what was heard is charged: {shown}");
            assert_eq!(shown["limit_remaining"], json!(0));
            let metrics = account.gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).send().await;
            let overshoot = metrics.body_text().lines().find_map(|line| line.strip_prefix("tidegate_ledger_overshoot_nanodollars_total ")?.parse::<f64>().ok());
            assert!(overshoot.is_some_and(|overshoot| overshoot > 0.0), "{overshoot:?}");
            let next = account.gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send().await;
            assert_eq!(next.status, 402, "nobody is let in after that");
            verified(&account.gate.place).await;
            account.store.close().await;
            drop(account.gate.stop().await);
            database.empty().await;
        }
    }
}

/// What is charged in each case.
#[tokio::test]
async fn what_is_charged_for_answers_that_do_not_end_well() {
    let pricing = "[models.endpoints.pricing]\ninput = 1\noutput = 1\n";
    let usage = |input: u64, output: Value| json!({"input_tokens": input, "output_tokens": output});
    let whole = |content: Value, stop: Value, usage: Value| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": stop, "stop_sequence": null, "usage": usage})
        .to_string()
    };
    let said = json!([{"type": "text", "text": "hello"}]);
    let raw = |body: String| Behaviour::Raw {
        status: 200,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.into(),
    };
    // What happens, what it costs in nano-dollars (none: some amount of our own counting), and whether that is flagged.
    let stream = |end: Vec<String>| {
        let mut events = tale("hello, this is an answer of some length");
        events.truncate(4);
        Behaviour::RawStream { chunks: events.into_iter().chain(end).map(Into::into).collect(), end: End::Close }
    };
    let stop = || frame("message_stop", r#"{"type":"message_stop"}"#);
    let ended = |delta: Value| frame("message_delta", &delta.to_string());
    let cases: [(&str, Behaviour, bool, Option<f64>, bool); 11] = [
        ("a stream without a word on its end", stream(vec![stop()]), true, None, true),
        (
            "a stream that says how but not what",
            stream(vec![ended(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})), stop()]),
            true,
            None,
            true,
        ),
        ("content without a finish or usage", raw(whole(said.clone(), Value::Null, json!({}))), false, None, true),
        (
            "usage reported",
            raw(whole(said.clone(), json!("end_turn"), usage(10, json!(5)))),
            false,
            Some(0.000015),
            false,
        ),
        (
            "explicit zero counts as zero",
            raw(whole(said.clone(), json!("end_turn"), usage(0, json!(0)))),
            false,
            Some(0.0),
            false,
        ),
        ("no usage: counted here", raw(whole(said.clone(), json!("end_turn"), json!({}))), false, None, true),
        (
            "negative usage is cut",
            raw(whole(said.clone(), json!("end_turn"), usage(10, json!(-5)))),
            false,
            Some(0.00001),
            false,
        ),
        (
            "an error after content",
            Behaviour::ErrorInStream { after: 5, error_type: "overloaded_error".into(), message: "m".into() },
            true,
            Some(0.0),
            true,
        ),
        ("a break after content", Behaviour::CloseMidStream { after: 5 }, true, Some(0.0), true),
        ("an error before content", Behaviour::status(500), false, Some(0.0), false),
        ("an error before the stream", Behaviour::status(529), true, Some(0.0), false),
    ];
    for (name, behaviour, streamed, cost, is_estimated) in cases {
        let sim = Sim::start(behaviour).await;
        let gate = Tidegate::start().endpoint_with(MODEL, &sim, pricing).run().await;
        let body = json!({"model": MODEL, "max_tokens": 64, "stream": streamed, "messages": [{"role": "user", "content": "hi"}]});
        let reply = gate.messages(body).await;
        let id = reply.header("x-generation-id").unwrap_or_else(|| panic!("{name}: it was a generation")).to_owned();
        let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await;
        assert_eq!(record.status, 200, "{name}: {}", record.body_text());
        let record = record.json()["data"].clone();
        match cost {
            Some(cost) => assert_eq!(record["total_cost"].as_f64(), Some(cost), "{name}: {record}"),
            // More than a token or two of output: what was heard.
            None => assert!(record["total_cost"].as_f64().is_some_and(|cost| cost > 0.000_01), "{name}: {record}"),
        }
        if is_estimated && !streamed {
            // Five bytes of text are two tokens, however much stands around them; and the caller is told the same.
            let told = &reply.json()["usage"];
            assert_eq!(
                (&told["output_tokens"], &record["tokens_completion"]),
                (&json!(2), &json!(2)),
                "{name}: {record}"
            );
            assert_eq!(told["input_tokens"], record["tokens_prompt"], "{name}");
        }
        let store = Store::open("sqlite:tidegate.db", &gate.place.data_dir()).await.expect("the store opens");
        let organisation = store.sole_organisation().await.expect("it answers").expect("there is one").id;
        let id = GenerationId::parse(&id).expect("an id");
        let stored = store.find_generation(&Tenant { organisation }, &id).await.expect("it answers");
        assert_eq!(stored.expect("it was shown").is_estimated, is_estimated, "{name}");
        store.close().await;
    }
}
