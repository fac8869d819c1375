//! The chain of the audit log: every way of changing it behind the store's back is noticed, with its place.

use tidegate_core::{Tenant, Timestamp};
use tidegate_store::audit::{Break, Verdict};

use crate::databases::{Database, NOW, by, new_key};
use crate::on_both;

async fn with_entries(database: &Database, count: i64) -> Tenant {
    let (tenant, made) = database.bootstrap(vec![]).await;
    for number in 0..count {
        let at = Timestamp(NOW.0 + number);
        database.store.create_key(&tenant, &by(at), &made.workspace, new_key(format!("key {number}"))).await.unwrap();
    }
    tenant
}

async fn verdict(database: &Database) -> Verdict {
    database.store.verify_audit(|_| {}).await.unwrap()
}

on_both! {
    async fn aud_1_a_chain_is_sound_and_told_in_order(database: &Database) {
        let tenant = with_entries(database, 5).await;
        let Verdict::Sound(rows) = verdict(database).await else { panic!("a chain of our own is sound") };
        assert!(rows >= 5);
        let newest = database.store.list_audit(&tenant, NOW, 0, 2).await.unwrap();
        assert_eq!(newest.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [rows, rows - 1]);
        assert_eq!(newest[0].action, "key.created");
        assert_eq!(database.store.list_audit(&tenant, Timestamp(NOW.0 + 3), 0, 9).await.unwrap().len(), 2);
        assert_eq!(database.store.count_audit(&tenant, Timestamp(NOW.0 + 3)).await.unwrap(), 2);
        let (other, _) = database.other_tenant().await;
        assert_eq!(database.store.count_audit(&other, Timestamp(0)).await.unwrap(), 0);
        assert!(database.store.list_audit(&other, Timestamp(0), 0, 9).await.unwrap().is_empty());
    }

    async fn aud_1_what_is_changed_is_noticed(database: &Database) {
        with_entries(database, 6).await;
        let changes = [
            ("UPDATE audit SET action = action || 'x' WHERE seq = 3", "UPDATE audit SET action = replace(action, 'x', '') WHERE seq = 3"),
            ("UPDATE audit SET target = target || 'x' WHERE seq = 3", "UPDATE audit SET target = replace(target, 'x', '') WHERE seq = 3"),
            ("UPDATE audit SET at = at + 1 WHERE seq = 3", "UPDATE audit SET at = at - 1 WHERE seq = 3"),
            ("UPDATE audit SET actor_kind = 'key' WHERE seq = 3", "UPDATE audit SET actor_kind = 'shell' WHERE seq = 3"),
            ("UPDATE audit SET address = '' WHERE seq = 3", "UPDATE audit SET address = NULL WHERE seq = 3"),
            ("UPDATE audit SET new_values = new_values || ' ' WHERE seq = 3", "UPDATE audit SET new_values = rtrim(new_values) WHERE seq = 3"),
        ];
        for (change, back) in changes {
            database.execute(change, &[]).await;
            assert_eq!(verdict(database).await, Verdict::Broken { seq: 3, reason: Break::Changed }, "{change}");
            database.execute(back, &[]).await;
            assert!(matches!(verdict(database).await, Verdict::Sound(_)), "{back}");
        }
        // Nothing can move from one part to the next.
        database.execute("UPDATE audit SET request_id = address, address = 'x' WHERE seq = 3", &[]).await;
        assert_eq!(verdict(database).await, Verdict::Broken { seq: 3, reason: Break::Changed });
    }

    async fn aud_1_what_is_taken_out_is_noticed(database: &Database) {
        with_entries(database, 6).await;
        let Verdict::Sound(last) = verdict(database).await else { panic!("it is sound") };
        database.execute("UPDATE audit SET previous_hash = hash WHERE seq = 4", &[]).await;
        assert_eq!(verdict(database).await, Verdict::Broken { seq: 4, reason: Break::Unchained });
        database.execute("DELETE FROM audit WHERE seq = 2", &[]).await;
        assert_eq!(verdict(database).await, Verdict::Broken { seq: 2, reason: Break::Missing });
        // The end, too: the head remembers how far the log went.
        database.execute("DELETE FROM audit", &[]).await;
        assert_eq!(verdict(database).await, Verdict::Broken { seq: 1, reason: Break::Missing });
        assert!(last >= 6);
    }

    async fn aud_1_a_cut_end_is_noticed_even_when_the_count_is_put_back(database: &Database) {
        with_entries(database, 4).await;
        let Verdict::Sound(last) = verdict(database).await else { panic!("it is sound") };
        database.execute("DELETE FROM audit WHERE seq = (SELECT MAX(seq) FROM audit)", &[]).await;
        database.execute("UPDATE audit_head SET seq = seq - 1", &[]).await;
        assert_eq!(verdict(database).await, Verdict::Broken { seq: last - 1, reason: Break::Cut });
    }
}
