use tidegate_core::exchange::AttemptRecord;
use tidegate_core::{
    Api, Exchange, GenerationId, KeyHash, Money, OrganisationId, Outcome, Settlement, Tenant, Timestamp, Usage,
    WorkspaceId,
};

use tidegate_store::Store;
use tidegate_store::generations::Generation;

use crate::databases::{NOW, hash};
use crate::on_both;

pub fn tenant(name: &str) -> Tenant {
    Tenant { organisation: OrganisationId(name.into()) }
}

pub fn exchange(key: KeyHash, cost: Option<i64>, started: Timestamp) -> Exchange {
    let (organisation, workspace) = (OrganisationId("org_1".into()), WorkspaceId("w".into()));
    Exchange {
        provider: "Vendor".into(),
        outcome: Outcome::Complete,
        status: 200,
        cost: cost.map(Money),
        ..Exchange::new(GenerationId::new(started), organisation, workspace, key, "vendor/m".into(), started)
    }
}

fn assert_same(read: Generation, sent: &Exchange) {
    assert_eq!(
        (read.id, read.organisation, read.workspace),
        (sent.id, sent.organisation.clone(), sent.workspace.clone())
    );
    assert_eq!((read.key, &*read.model, &*read.provider), (sent.key, &*sent.model, &*sent.provider));
    assert_eq!((read.outcome, read.status, read.streamed), (sent.outcome, sent.status, sent.streamed));
    assert_eq!(read.stop_reason.as_deref(), sent.stop_reason.as_deref());
    assert_eq!(read.message_id.as_deref(), sent.message_id.as_deref());
    assert_eq!(read.native_id.as_deref(), sent.native_id.as_deref());
    assert_eq!(read.cache_source, sent.cache_source);
    assert_eq!((read.preset.as_deref(), read.parent), (sent.preset.as_deref(), sent.parent));
    assert_eq!((read.api, read.router.as_deref()), (sent.api, sent.router.as_deref()));
    assert_eq!(read.error_type.as_deref(), sent.error_type.as_deref());
    assert_eq!((read.usage, read.usage_reported, read.cost), (sent.usage, sent.usage_reported, sent.cost));
    assert_eq!((read.is_byok, read.list_cost), (sent.is_byok, sent.list_cost));
    assert_eq!(read.session.as_deref(), sent.session.as_deref());
    assert_eq!(read.user.as_deref(), sent.user.as_deref());
    let texts = [&read.native_stop_reason, &read.service_tier, &read.user_agent, &read.referer, &read.title];
    let sent_texts = [&sent.native_stop_reason, &sent.service_tier, &sent.user_agent, &sent.referer, &sent.title];
    assert_eq!(texts.map(Option::as_deref), sent_texts.map(Option::as_deref));
    assert_eq!((read.is_estimated, read.is_clamped), (sent.is_estimated, sent.is_clamped));
    assert_eq!((read.settlement, read.reserved), (sent.settlement, sent.reserved));
    assert_eq!(
        (read.upstream_cost, read.reported_cost, read.cache_discount),
        (sent.upstream_cost, sent.reported_cost, sent.cache_discount)
    );
    assert_eq!(read.attempts, sent.attempts);
    assert_eq!((read.started, read.first_content_ms), (sent.started, sent.first_content_ms));
    assert_eq!(
        (read.duration_ms, read.request_bytes, read.response_bytes),
        (sent.duration_ms, sent.request_bytes, sent.response_bytes)
    );
}

on_both! {
    async fn a_finished_request_is_read_back_as_it_was(database: &Database) {
        let attempt = |status| AttemptRecord { provider: "V\"1".into(), model: "m".into(), status, duration_ms: 9, ..AttemptRecord::default() };
        let usage = Usage {
            input: 1,
            output: 2,
            cache_read: 3,
            cache_write: 4,
            cache_write_1h: 5,
            thinking: 6,
            web_searches: 7,
            web_fetches: 8,
            input_image: 9,
            output_image: 10,
            images: 11,
            images_out: 12,
            billed_output: Some(13),
            containers: 14,
            ..Usage::default()
        };
        let full = Exchange {
            outcome: Outcome::Broken,
            status: 529,
            streamed: true,
            stop_reason: Some("end_turn".into()),
            message_id: Some("msg_1".into()),
            native_id: Some("chatcmpl-1".into()),
            native_stop_reason: Some("stop".into()),
            error_type: Some("overloaded_error".into()),
            usage,
            usage_reported: true,
            is_estimated: true,
            is_clamped: true,
            settlement: Settlement::Recovered,
            reserved: Money(3),
            is_byok: true,
            list_cost: Some(Money(9)),
            upstream_cost: Some(Money(10)),
            reported_cost: Some(Money(11)),
            cache_discount: Some(Money(-12)),
            service_tier: Some("priority".into()),
            session: Some("s".into()),
            user: Some("u".into()),
            user_agent: Some("agent/1".into()),
            referer: Some("https://app.example".into()),
            title: Some("App".into()),
            attempts: vec![attempt(0), attempt(200)],
            first_content_ms: Some(u32::MAX),
            duration_ms: 12,
            request_bytes: 13,
            response_bytes: 14,
            cache_source: Some(GenerationId::first_at(NOW)),
            preset: Some("p".into()),
            parent: Some(GenerationId::first_at(NOW)),
            ..exchange(hash("k"), Some(177_000), NOW)
        };
        let bare = exchange(hash("k"), None, NOW);
        database.store.insert_generations(&[full.clone(), bare.clone()]).await.unwrap();
        let check = async |store: &Store| {
            for sent in [&full, &bare] {
                let read = store.find_generation(&tenant("org_1"), &sent.id).await.unwrap().unwrap();
                assert_same(read, sent);
                assert!(store.find_generation(&tenant("org_2"), &sent.id).await.unwrap().is_none());
            }
        };
        check(&database.store).await;
        // Also by a release that lays the records out anew.
        database.execute("DELETE FROM _sqlx_migrations WHERE version = 20", &[]).await;
        let again = database.open_again().await;
        check(&again).await;
        again.insert_generations(std::slice::from_ref(&full)).await.unwrap();
        assert_eq!(database.number("SELECT COUNT(*) FROM generations").await, 2, "none is there twice");
        again.close().await;
    }

    async fn whatever_is_special_about_a_request_is_kept(database: &Database) {
        let plain = || Exchange {
            usage: Usage { input: 1, output: 2, cache_read: 3, cache_write: 4, thinking: 5, ..Usage::default() },
            usage_reported: true,
            stop_reason: Some("end_turn".into()),
            service_tier: Some("standard".into()),
            ..exchange(hash("k"), Some(177_000), NOW)
        };
        let changes: [fn(&mut Exchange); 24] = [
            |_| {},
            |call| call.outcome = Outcome::Cancelled,
            |call| call.status = 499,
            |call| call.usage_reported = false,
            |call| call.settlement = Settlement::Released,
            |call| call.error_type = Some("api_error".into()),
            |call| call.usage.cache_write_1h = 6,
            |call| call.usage.web_searches = 7,
            |call| call.usage.web_fetches = 8,
            |call| call.usage.images = 9,
            |call| call.usage.billed_input = Some(10),
            |call| call.is_estimated = true,
            |call| call.is_clamped = true,
            |call| call.reported_cost = Some(Money(11)),
            |call| call.cache_discount = Some(Money(-12)),
            |call| call.session = Some("s".into()),
            |call| call.user = Some("u".into()),
            |call| call.referer = Some("https://app.example".into()),
            |call| call.title = Some("App".into()),
            |call| call.cache_source = Some(GenerationId::first_at(NOW)),
            |call| call.preset = Some("p".into()),
            |call| call.parent = Some(GenerationId::first_at(NOW)),
            |call| call.api = Api::Images,
            |call| call.router = Some("tidegate/auto".into()),
        ];
        let mut batch: Vec<Exchange> = Vec::new();
        // As many plain ones as have a statement of their own, and some more.
        for change in changes.into_iter().chain([changes[0]; 20]) {
            batch.push(plain());
            change(batch.last_mut().unwrap());
        }
        database.store.insert_generations(&batch).await.unwrap();
        database.store.insert_generations(&batch).await.unwrap();
        for sent in &batch {
            assert_same(database.store.find_generation(&tenant("org_1"), &sent.id).await.unwrap().unwrap(), sent);
        }
    }

    async fn a_request_is_found_by_its_message(database: &Database) {
        let sent = |message: &str, later| Exchange {
            message_id: Some(message.into()),
            ..exchange(hash("k"), None, Timestamp(NOW.0 + later))
        };
        let batch = [sent("msg_1", 0), sent("msg_2", 1), sent("msg_1", 2), exchange(hash("k"), None, NOW)];
        database.store.insert_generations(&batch).await.unwrap();
        let found = database.store.find_generations_of_message(&tenant("org_1"), "msg_1").await.unwrap();
        assert_eq!(found.iter().map(|found| found.id).collect::<Vec<_>>(), [batch[2].id, batch[0].id]);
        for (organisation, message) in [("org_2", "msg_1"), ("org_1", "msg_3")] {
            let found = database.store.find_generations_of_message(&tenant(organisation), message).await.unwrap();
            assert!(found.is_empty());
        }
    }

    async fn a_record_with_anything_in_it_is_kept(database: &Database) {
        let odd = Exchange {
            usage: Usage { input: u64::MAX, ..Usage::default() },
            session: Some("a\0b".into()),
            stop_reason: Some("\0".into()),
            user: Some("'; DROP TABLE generations; --".into()),
            ..exchange(hash("k"), None, NOW)
        };
        database.store.insert_generations(std::slice::from_ref(&odd)).await.unwrap();
        let read = database.store.find_generation(&tenant("org_1"), &odd.id).await.unwrap().unwrap();
        assert_eq!(read.session.as_deref(), Some("a\u{FFFD}b"));
        assert_eq!(read.user.as_deref(), odd.user.as_deref());
        assert_eq!(read.usage.input, i64::MAX as u64);
    }
}
