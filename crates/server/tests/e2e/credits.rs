//! `/credits` and its grants, over HTTP and at a shell.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};

use crate::harness::{
    Account, Ask, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, assert_refused, hash_of, on_both, ran, text, together,
};

fn grant(account: &Account, name: Option<&str>, body: &str) -> Ask {
    let ask = account.gate.ask("POST", "/api/v1/credits/grants").key(MANAGEMENT_KEY);
    let ask = match name {
        Some(name) => ask.header("idempotency-key", name),
        None => ask,
    };
    ask.json(body.to_owned())
}

on_both! {
    async fn credits_are_granted_to_the_last_digit_and_listed(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let bodies = [
            (r#"{"amount": 25}"#, "25", Value::Null),
            (r#"{"amount": "0.000000001", "note": "a nano-dollar"}"#, "0.000000001", json!("a nano-dollar")),
            (r#"{"amount": 12345678.123456789, "note": null}"#, "12345678.123456789", Value::Null),
            (r#"{"amount": 1e9}"#, "1000000000", Value::Null),
        ];
        for (body, amount, note) in &bodies {
            let reply = grant(&account, None, body).send().await;
            assert_eq!(reply.status, 201, "{body}: {}", reply.body_text());
            assert!(reply.body_text().contains(&format!(r#""amount":{amount},"#)), "{}", reply.body_text());
            let made = reply.json()["data"].clone();
            assert_eq!((&made["note"], &made["created_by"]), (note, &json!(hash_of(MANAGEMENT_KEY))));
        }
        let reply = account.ask("GET", "/credits/grants?limit=2&offset=1").await;
        let listed = reply.json();
        assert_eq!((&listed["total_count"], listed["data"].as_array().unwrap().len()), (&json!(4), 2));
        // In its text: a float would not hold it.
        assert!(reply.body_text().contains(r#""amount":12345678.123456789,"#), "{}", reply.body_text());
        assert_eq!(account.audited().await.iter().filter(|action| *action == "credits.granted").count(), 4);
        // Nothing is billed here, so nothing can run out, whatever was granted.
        let credits = account.data("GET", "/credits", None, 200).await;
        assert_eq!(credits, json!({"total_credits": 1000000, "total_usage": 0}));
        for (method, path) in [("GET", "/credits"), ("GET", "/credits/grants"), ("POST", "/credits/grants")] {
            let ask = account.gate.ask(method, &format!("/api/v1{path}")).key(INFERENCE_KEY);
            assert_eq!(ask.json(r#"{"amount": 1}"#).send().await.status, 403, "{method} {path}");
        }
    }

    async fn an_account_is_free_until_something_is_granted_where_that_counts(database: &Database) {
        let account = Account::start(database, Tidegate::start().config("[billing]\nenabled = true\n")).await;
        let is_free = async |key: &str| {
            account.gate.ask("GET", "/api/v1/key").key(key).send().await.json()["data"]["is_free_tier"].clone()
        };
        assert_eq!((is_free(INFERENCE_KEY).await, is_free(MANAGEMENT_KEY).await), (json!(true), json!(true)));
        assert_eq!(grant(&account, None, r#"{"amount": 1}"#).send().await.status, 201);
        assert_eq!((is_free(INFERENCE_KEY).await, is_free(MANAGEMENT_KEY).await), (json!(false), json!(false)));
    }

    async fn led_1_what_is_no_amount_is_refused(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        for (amount, message) in [
            ("-1", "must not be negative"), (r#""-0.5""#, "must not be negative"), ("0", "must be greater than 0"),
            ("0.0000000001", "must be greater than 0"), ("1000000000.000000001", "must be at most 1000000000 dollars"),
            ("1e300", "must be at most 1000000000 dollars"), (r#""NaN""#, "is not a decimal number"),
            (r#""Infinity""#, "is not a decimal number"), (r#""""#, "is not a decimal number"),
            (r#"" 5""#, "is not a decimal number"), ("true", "must be a number, or text that is one"),
            ("[5]", "must be a number, or text that is one"), ("null", "must not be null"),
        ] {
            let reply = grant(&account, None, &format!(r#"{{"amount": {amount}}}"#)).send().await;
            assert_refused(&reply, "amount");
            assert_eq!(reply.json()["error"]["metadata"]["issues"][0]["message"], message, "{amount}");
        }
        assert_refused(&grant(&account, None, "{}").send().await, "amount");
        assert_refused(&grant(&account, None, r#"{"amount": NaN}"#).send().await, "");
        assert_refused(&grant(&account, None, r#"{"amount": 1, "note": ""}"#).send().await, "note");
        let long = format!(r#"{{"amount": 1, "note": "{}"}}"#, "n".repeat(501));
        assert_refused(&grant(&account, None, &long).send().await, "note");
        assert_eq!(account.ask("GET", "/credits/grants").await.json(), json!({"data": [], "total_count": 0}));
    }

    async fn idm_1_a_grant_that_is_sent_again_gives_once(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let body = r#"{"amount": 5, "note": "once"}"#;
        let first = grant(&account, Some("g-1"), body).send().await;
        let again = grant(&account, Some("g-1"), body).send().await;
        assert_eq!((first.status, again.status, first.body_text()), (201, 201, again.body_text()));
        assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), (None, Some("true")));
        assert_refused(&grant(&account, Some("g-1"), r#"{"amount": 6}"#).send().await, "Idempotency-Key");
        // The name was used here; it is not free for another operation either.
        let code = account.gate.ask("POST", "/api/v1/auth/keys/code").key(MANAGEMENT_KEY).header("idempotency-key", "g-1");
        let code = code.json(r#"{"callback_url": "https://app.example/"}"#).send().await;
        assert_refused(&code, "Idempotency-Key");
        assert_refused(&grant(&account, Some(""), body).send().await, "Idempotency-Key");
        assert_refused(&grant(&account, Some(&"k".repeat(256)), body).send().await, "Idempotency-Key");
        let replies = together((0..8).map(|_| grant(&account, Some("g-2"), body))).await;
        let fresh = replies.iter().filter(|reply| reply.status == 201 && reply.header("idempotent-replayed").is_none());
        assert_eq!(fresh.count(), 1);
        assert!(replies.iter().all(|reply| matches!(reply.status, 201 | 409)), "{replies:?}");
        assert_eq!(account.ask("GET", "/credits/grants").await.json()["total_count"], 2);
    }

    async fn credits_are_granted_and_shown_at_a_shell(database: &Database) {
        let builder = Tidegate::start().config("[billing]\nenabled = true\n");
        let account = Account::start(database, builder).await;
        let place = &account.gate.place;
        assert_eq!(ran(place, &["credits", "show"]).await.0, "granted $0\nused    $0\nleft    $0\n");
        // Where nothing is limited, nothing is owed.
        let off = [("TIDEGATE__BILLING__ENABLED", "false")];
        let output = place.prepared(&["credits", "show"]).envs(off).output().await.unwrap();
        assert_eq!(text(&output.stdout), "granted $0\nused    $0\nbilling is off: credits limit nothing\n");
        let (id, said) = ran(place, &["credits", "grant", "12.50", "--note", "a\u{1b}[2J"]).await;
        assert_eq!(said, "Granted $12.5; that makes $12.5 in all.\n");
        let listed = account.data("GET", "/credits/grants", None, 200).await;
        assert_eq!((&listed[0]["id"], &listed[0]["amount"]), (&json!(id.trim()), &json!(12.5)));
        assert_eq!(listed[0]["created_by"], Value::Null);
        let (shown, _) = ran(place, &["credits", "show"]).await;
        assert!(shown.starts_with("granted $12.5\nused    $0\nleft    $12.5\n\n"), "{shown}");
        assert!(shown.contains(id.trim()) && shown.ends_with(" a\\u{1b}[2J\n"), "{shown}");
        for (amount, reason) in [
            ("-1", "the amount must not be negative"), ("x", "the amount is not a decimal number"),
            ("0", "the amount must be greater than 0"), ("1e10", "the amount must be at most 1000000000 dollars"),
        ] {
            let refused = place.run(&["credits", "grant", amount]).await;
            assert_eq!((refused.status.code(), text(&refused.stderr)), (Some(1), format!("tidegate: {reason}\n")));
        }
        assert_eq!(account.audited().await.last().map(String::as_str), Some("credits.granted"));
    }
}
