use tidegate_core::Timestamp;
use tidegate_store::learned::LearnedRow;

use crate::databases::NOW;
use crate::on_both;

on_both! {
    async fn what_an_upstream_refused_is_kept_until_it_makes_room(database: &Database) {
        database.bootstrap(vec![]).await;
        let store = &database.store;
        let row = |name: &str| LearnedRow {
            provider: "p".to_owned(),
            model: "m".to_owned(),
            kind: "member".to_owned(),
            name: name.to_owned(),
            learned: NOW,
        };
        for name in ["b", "a", "'; DROP TABLE meta"] {
            store.keep_learned(&row(name)).await.unwrap();
        }
        assert_eq!(store.learned().await.unwrap().len(), 3);
        store.forget_learned(&LearnedRow { learned: Timestamp(0), ..row("b") }).await.unwrap();
        store.forget_learned(&row("nobody knows it")).await.unwrap();
        assert_eq!(store.learned().await.unwrap(), [row("'; DROP TABLE meta"), row("a")]);
    }
}
