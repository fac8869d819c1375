//! What people say about answers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_core::GenerationId;
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{Account, INFERENCE_KEY, Tidegate, assert_not_found, assert_refused, hello, on_both};

const MODEL: &str = "vendor/m";

on_both! {
    async fn feedback_is_kept_with_the_record_and_counted(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let reply = account.gate.messages(hello(MODEL)).await;
        let id = reply.header("x-generation-id").unwrap().to_owned();
        let message = reply.json()["id"].as_str().unwrap().to_owned();
        let say = async |body: Value| account.send("POST", "/generation/feedback", body).await;
        let comment = "x".repeat(1_000);
        for body in [
            json!({"generation_id": id, "category": "latency"}),
            json!({"generation_id": message, "category": "latency", "comment": comment}),
            json!({"generation_id": id, "category": "other", "comment": ""}),
        ] {
            let said = say(body).await;
            assert_eq!((said.status, said.json()), (200, json!({"data": {"success": true}})), "{said:?}");
        }
        let kept = account.store.list_feedback(&account.tenant, &GenerationId::parse(&id).unwrap()).await.unwrap();
        let kept: Vec<_> = kept.iter().map(|said| (said.category.as_str(), said.comment.as_deref())).collect();
        assert_eq!(kept, [("latency", Some(comment.as_str())), ("other", None)]);
        assert_eq!(account.audited().await.iter().filter(|action| *action == "generation.feedback").count(), 3);

        for (body, path) in [
            (json!({"category": "latency"}), "generation_id"),
            (json!({"generation_id": "", "category": "latency"}), "generation_id"),
            (json!({"generation_id": id}), "category"),
            (json!({"generation_id": id, "category": "rude"}), "category"),
            (json!({"generation_id": id, "category": "other", "comment": "x".repeat(1_001)}), "comment"),
            (json!({"generation_id": id, "category": "other", "comment": 5}), "comment"),
        ] {
            assert_refused(&say(body).await, path);
        }
        assert_not_found(&say(json!({"generation_id": "gen-01KBS35CG04TFF59TDWH9EDD1R", "category": "other"})).await);
        let body = json!({"generation_id": id, "category": "other"}).to_string();
        let refused = account.gate.ask("POST", "/api/v1/generation/feedback").key(INFERENCE_KEY).json(body).send().await;
        assert_eq!(refused.status, 403);
        let metrics = account.gate.managed("/metrics").await.body_text().to_owned();
        for line in [r#"tidegate_feedback_total{category="latency"} 2"#, r#"tidegate_feedback_total{category="other"} 1"#] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
    }
}
