use tidegate_core::{Tenant, Timestamp};
use tidegate_store::StoreError;
use tidegate_store::feedback::Feedback;

use crate::databases::{NOW, by, hash};
use crate::generations::{exchange, tenant};
use crate::on_both;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

on_both! {
    async fn what_is_said_about_an_answer_is_kept_and_leaves_with_it(database: &Database) {
        database.bootstrap(vec![]).await;
        let (store, org) = (&database.store, tenant("org_1"));
        let (old, new) = (exchange(hash("k"), None, NOW), exchange(hash("k"), None, Timestamp(NOW.0 + 3 * DAY_MS)));
        store.insert_generations(&[old.clone(), new.clone()]).await.unwrap();
        let said = |category: &str, comment: Option<&str>| Feedback {
            category: category.to_owned(),
            comment: comment.map(ToOwned::to_owned),
            by: hash("m"),
            at: NOW,
        };
        let keep = async |tenant: &Tenant, id, feedback: &Feedback| store.keep_feedback(tenant, &by(NOW), id, feedback).await;
        for (id, feedback) in [
            (&old.id, said("latency", None)),
            (&old.id, said("latency", Some("it was '; DROP TABLE slow"))),
            (&old.id, said("other", Some("b"))),
            (&new.id, said("billing", None)),
        ] {
            keep(&org, id, &feedback).await.unwrap();
        }
        let expected = [said("latency", Some("it was '; DROP TABLE slow")), said("other", Some("b"))];
        assert_eq!(store.list_feedback(&org, &old.id).await.unwrap(), expected, "the latest of each kind");
        let stranger = tenant("org_2");
        assert!(store.list_feedback(&stranger, &old.id).await.unwrap().is_empty());
        assert!(matches!(keep(&stranger, &old.id, &expected[0]).await, Err(StoreError::Missing)));
        assert_eq!(store.retire_generations(new.started, 10).await.unwrap(), 1);
        assert!(store.list_feedback(&org, &old.id).await.unwrap().is_empty());
        assert_eq!(store.list_feedback(&org, &new.id).await.unwrap(), [said("billing", None)]);
    }
}
