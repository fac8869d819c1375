use tidegate_core::{Money, Timestamp};
use tidegate_store::budgets::Interval::{Daily, Lifetime, Monthly, Weekly};
use tidegate_store::{Refused, StoreError};

use crate::databases::{NOW, by};
use crate::on_both;

const LATER: Timestamp = Timestamp(NOW.0 + 1);

on_both! {
    async fn budgets_are_set_changed_and_deleted(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, workspace) = (&database.store, &made.workspace);
        let put = async |interval, limit, include_byok| {
            store.put_budget(&tenant, &by(NOW), workspace, interval, Money(limit), include_byok).await.map(Option::unwrap)
        };
        let (daily, includes) = put(Daily, 10, None).await.unwrap();
        assert_eq!((daily.limit, daily.created, daily.updated, includes), (Money(10), NOW, NOW, false));
        assert!(put(Lifetime, 1_000, Some(true)).await.unwrap().1);
        assert!(put(Weekly, 50, None).await.unwrap().1, "it holds for the whole workspace");

        let refused = put(Monthly, 1_000, Some(false)).await;
        let order = Refused::BudgetOrder { wide: "lifetime", narrow: "monthly" };
        assert!(matches!(refused, Err(StoreError::Refused(refused)) if refused == order), "{refused:?}");

        let changed = store.put_budget(&tenant, &by(LATER), workspace, Daily, Money(20), None).await.unwrap().unwrap().0;
        assert_eq!((&changed.id, changed.created, changed.updated), (&daily.id, NOW, LATER));
        let all = store.list_budgets(&tenant, workspace).await.unwrap().unwrap();
        let seen: Vec<_> = all.budgets.iter().map(|budget| (budget.interval, budget.limit.0)).collect();
        assert_eq!((seen, all.include_byok), (vec![(Lifetime, 1_000), (Weekly, 50), (Daily, 20)], true));
        assert_eq!(all.get(Daily), Some(&changed));
        assert!(store.find_workspace(&tenant, workspace).await.unwrap().unwrap().include_byok_in_budgets);

        assert_eq!(store.delete_budget(&tenant, &by(LATER), workspace, Lifetime).await.unwrap(), Some(true));
        assert_eq!(store.delete_budget(&tenant, &by(LATER), workspace, Lifetime).await.unwrap(), Some(false));
        put(Monthly, 1_000, None).await.unwrap();
        let audited = database.audited(&tenant).await;
        let actions: Vec<_> = audited[1..].iter().map(|(action, _)| action.as_str()).collect();
        let (set, gone) = ("budget.set", "budget.deleted");
        assert_eq!(actions, [set, set, set, set, gone, set]);
    }
}
