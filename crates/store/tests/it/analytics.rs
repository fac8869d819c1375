use std::time::Duration;

use tidegate_core::exchange::AttemptRecord;
use tidegate_core::{Exchange, GenerationId, KeyHash, Money, Outcome, Tenant, Timestamp, Usage, WorkspaceId};
use tidegate_store::Store;
use tidegate_store::analytics::{Column, Dimension, Filter, Granularity, Line, Measure, Metric, Question, Sense, Side};

use crate::databases::{Database, NOW, hash, new_key};
use crate::on_both;

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
const LIMIT: Duration = Duration::from_secs(10);

fn asked(metrics: &[Metric], dimensions: &[Dimension]) -> Question {
    Question {
        metrics: metrics.to_vec(),
        dimensions: dimensions.to_vec(),
        filters: Vec::new(),
        granularity: None,
        range: (Timestamp(NOW.0 - 30 * DAY_MS), Timestamp(NOW.0 + 30 * DAY_MS)),
        order: None,
        limit: 1_000,
        group_limit: 1_000,
    }
}

fn attempt(status: u16) -> AttemptRecord {
    AttemptRecord { provider: "P".into(), model: "v/a".into(), status, duration_ms: 5, ..AttemptRecord::default() }
}

/// Ten requests: six for one model, four for another, at known times and with known figures.
async fn filled(database: &Database) -> (Tenant, WorkspaceId, Vec<Exchange>) {
    let (tenant, made) = database.bootstrap(vec![new_key("one"), new_key("two")]).await;
    let mut exchanges = Vec::new();
    for number in 0..10_u32 {
        // One a day, the later ones in the next month.
        let at = Timestamp(NOW.0 + i64::from(number) * DAY_MS);
        let is_first = number < 6;
        let (model, key) = if is_first { ("v/a", "one") } else { ("v/b", "two") };
        exchanges.push(Exchange {
            provider: "P".into(),
            outcome: if number % 5 == 4 { Outcome::Failed } else { Outcome::Complete },
            status: 200,
            streamed: true,
            usage_reported: true,
            usage: Usage { input: 100, cache_read: 300, output: 50, thinking: 5, web_searches: 1, ..Usage::default() },
            cost: Some(Money(i64::from(number) * 1_000)),
            is_byok: number == 9,
            list_cost: (number == 9).then_some(Money(77)),
            stop_reason: (number % 2 == 0).then(|| "end_turn".into()),
            session: (number == 3).then(|| "s'; DROP TABLE generations; --".into()),
            first_content_ms: Some(100 * (number + 1)),
            // A second of speaking: fifty tokens a second.
            duration_ms: 100 * (number + 1) + 1_000,
            attempts: if number == 2 { vec![attempt(500), attempt(200)] } else { vec![attempt(200)] },
            ..Exchange::new(
                GenerationId::new(at),
                tenant.organisation.clone(),
                made.workspace.clone(),
                hash(key),
                model.into(),
                at,
            )
        });
    }
    // A turn of a loop is no request of its own, but costs what it costs.
    exchanges[1].parent = Some(exchanges[0].id);
    database.store.insert_generations(&exchanges).await.unwrap();
    (tenant, made.workspace, exchanges)
}

async fn answered(store: &Store, tenant: &Tenant, question: &Question) -> Vec<Line> {
    store.analytics(tenant, question, LIMIT).await.unwrap().expect("it is quick")
}

fn ids(line: &Line) -> Vec<Option<&str>> {
    line.values.iter().map(|value| value.as_ref().map(|side| side.id.as_str())).collect()
}

on_both! {
    async fn a_request_falls_back_once_however_many_of_its_turns_do(database: &Database) {
        let (tenant, _, exchanges) = filled(database).await;
        let rate = async |dimensions: &[Dimension]| {
            let lines = answered(&database.store, &tenant, &asked(&[Metric::FallbackRate], dimensions)).await;
            lines.into_iter().map(|line| line.figures[0].unwrap()).collect::<Vec<_>>()
        };
        let turns: Vec<Exchange> = (0..20)
            .map(|number| Exchange {
                id: GenerationId::new(Timestamp(NOW.0 + number)),
                parent: Some(exchanges[0].id),
                provider: if number < 10 { "P".into() } else { "Q".into() },
                attempts: vec![attempt(500), attempt(200)],
                ..exchanges[0].clone()
            })
            .collect();
        database.store.insert_generations(&turns).await.unwrap();
        assert_eq!(rate(&[]).await, [2.0 / 9.0]);
        // Of those that came there, whoever was called first.
        assert_eq!(rate(&[Dimension::Provider]).await, [1.0, 2.0 / 9.0]);
    }

    async fn requests_are_told_apart_by_their_router(database: &Database) {
        let (tenant, _, exchanges) = filled(database).await;
        let (id, router) = (GenerationId::new(NOW), Some("tidegate/auto".into()));
        let routed = Exchange { id, router, ..exchanges[0].clone() };
        database.store.insert_generations(&[routed]).await.unwrap();
        let by_router = answered(&database.store, &tenant, &asked(&[Metric::RequestCount], &[Dimension::Router])).await;
        let told: Vec<_> = by_router.iter().map(|line| (ids(line)[0], line.figures[0])).collect();
        assert_eq!(told, [(None, Some(9.0)), (Some("tidegate/auto"), Some(1.0))]);
    }

    async fn figures_are_what_the_records_add_up_to(database: &Database) {
        let (tenant, workspace, _) = filled(database).await;
        let all = answered(&database.store, &tenant, &asked(&Metric::ALL, &[])).await;
        assert_eq!(all.len(), 1);
        let figure = |metric| all[0].figures[Metric::ALL.iter().position(|known| *known == metric).unwrap()].unwrap();
        for (metric, expected) in [
            (Metric::RequestCount, 9.0),
            (Metric::ErrorCount, 2.0),
            (Metric::ErrorRate, 2.0 / 9.0),
            (Metric::PromptTokens, 4_000.0),
            (Metric::CompletionTokens, 500.0),
            (Metric::ReasoningTokens, 50.0),
            (Metric::CachedTokens, 3_000.0),
            // 0 + 1 + … + 9 thousand nano-dollars.
            (Metric::TotalCost, 45_000.0),
            (Metric::ByokCost, 77.0),
            // Of 100, 200, … 1000 the fifth and the tenth.
            (Metric::LatencyP50, 500.0),
            (Metric::LatencyP95, 1_000.0),
            (Metric::GenerationTimeP50, 1_500.0),
            (Metric::ThroughputP50, 50.0),
            (Metric::CacheHitRate, 0.75),
            (Metric::ToolCalls, 10.0),
            (Metric::FallbackRate, 1.0 / 9.0),
        ] {
            assert!((figure(metric) - expected).abs() < 1e-9, "{metric:?} {}", figure(metric));
        }
        let stranger = Tenant { organisation: tidegate_core::OrganisationId("org_x".into()) };
        assert!(answered(&database.store, &stranger, &asked(&Metric::ALL, &[])).await.is_empty());

        // By model, and by two sides; the most first.
        let by_model = answered(&database.store, &tenant, &asked(&[Metric::RequestCount, Metric::LatencyP50], &[Dimension::Model])).await;
        let told: Vec<_> = by_model.iter().map(|line| (ids(line)[0].unwrap(), line.figures.clone())).collect();
        assert_eq!(told, [("v/a", vec![Some(5.0), Some(300.0)]), ("v/b", vec![Some(4.0), Some(800.0)])]);
        let sides = [Dimension::Model, Dimension::FinishReason];
        let by_both = answered(&database.store, &tenant, &asked(&[Metric::TotalCost], &sides)).await;
        let told: Vec<_> = by_both.iter().map(|line| (ids(line), line.figures[0].unwrap())).collect();
        assert_eq!(told, [
            (vec![Some("v/b"), None], 16_000.0),
            (vec![Some("v/b"), Some("end_turn")], 14_000.0),
            (vec![Some("v/a"), None], 9_000.0),
            (vec![Some("v/a"), Some("end_turn")], 6_000.0),
        ]);

        // Names where there are some.
        let label = async |dimension| {
            let lines = answered(&database.store, &tenant, &asked(&[Metric::RequestCount], &[dimension])).await;
            lines[0].values[0].clone()
        };
        let side = |id: String, label: Option<&str>| Some(Side { id, label: label.map(ToOwned::to_owned) });
        assert_eq!(label(Dimension::Key).await, side(hash("one").to_hex(), Some("one")));
        assert_eq!(label(Dimension::Workspace).await, side(workspace.0.to_string(), Some("Default")));
        assert_eq!(label(Dimension::IsByok).await, side("false".to_owned(), None));
        for dimension in [Dimension::User, Dimension::App, Dimension::Origin, Dimension::Router, Dimension::Country] {
            assert_eq!(label(dimension).await, None, "{dimension:?}");
        }
    }

    async fn time_is_cut_at_the_calendar(database: &Database) {
        let (tenant, _, exchanges) = filled(database).await;
        for granularity in [Granularity::Minute, Granularity::Hour, Granularity::Day, Granularity::Week, Granularity::Month] {
            let mut question = asked(&[Metric::RequestCount, Metric::TotalCost], &[]);
            question.granularity = Some(granularity);
            // Of each record's part of the time its sum, by another reckoning.
            let mut expected: Vec<(i64, f64)> = Vec::new();
            for exchange in &exchanges {
                let date = jiff::Timestamp::from_millisecond(exchange.started.0).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
                let day = |days: i64| date.date().checked_add(jiff::Span::new().days(days)).unwrap();
                let midnight = |date: jiff::civil::Date| date.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_millisecond();
                let at = match granularity {
                    Granularity::Minute => exchange.started.0 / 60_000 * 60_000,
                    Granularity::Hour => exchange.started.0 / HOUR_MS * HOUR_MS,
                    Granularity::Day => midnight(date.date()),
                    Granularity::Week => midnight(day(-i64::from(date.weekday().to_monday_zero_offset()))),
                    Granularity::Month => midnight(date.date().first_of_month()),
                };
                let cost = exchange.cost.unwrap().0 as f64;
                match expected.last_mut() {
                    Some((last, sum)) if *last == at => *sum += cost,
                    _ => expected.push((at, cost)),
                }
            }
            let lines = answered(&database.store, &tenant, &question).await;
            let told: Vec<(i64, f64)> = lines.iter().map(|line| (line.at.0, line.figures[1].unwrap())).collect();
            assert_eq!(told, expected, "{granularity:?}");
        }
        // The end is not in it.
        let mut question = asked(&[Metric::TotalCost], &[]);
        question.range = (exchanges[3].started, exchanges[5].started);
        assert_eq!(answered(&database.store, &tenant, &question).await[0].figures, [Some(7_000.0)]);
    }

    async fn filters_take_what_they_say(database: &Database) {
        let (tenant, _, _) = filled(database).await;
        let among = |dimension, values: &[&str], is_not, or_unset| Filter::Among {
            dimension,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            is_not,
            or_unset,
        };
        let compared = |measure, sense, value| Filter::Compared { measure, sense, value, or_unset: false };
        let count = async |filters: Vec<Filter>| {
            let question = Question { filters, ..asked(&[Metric::TotalCost], &[]) };
            answered(&database.store, &tenant, &question).await.first().map_or(0.0, |line| line.figures[0].unwrap())
        };
        let number = |key: &str| hash(key).to_hex()[..13].to_owned();
        for (filters, expected) in [
            (vec![among(Dimension::Model, &["v/a"], false, false)], 15_000.0),
            (vec![among(Dimension::Model, &["v/a"], true, false)], 30_000.0),
            (vec![among(Dimension::Model, &["v/a", "v/b"], true, false)], 0.0),
            (vec![among(Dimension::Key, &[&number("two")], false, false)], 30_000.0),
            (vec![among(Dimension::FinishReason, &["end_turn"], false, false)], 20_000.0),
            (vec![among(Dimension::FinishReason, &["other"], true, false)], 20_000.0),
            (vec![among(Dimension::FinishReason, &["other"], true, true)], 45_000.0),
            (vec![among(Dimension::Session, &["s'; DROP TABLE generations; --"], false, false)], 3_000.0),
            (vec![among(Dimension::IsByok, &["true"], false, false)], 9_000.0),
            (vec![compared(Measure::TotalCost, Sense::MoreOrEqual, 0.000_008)], 17_000.0),
            (vec![compared(Measure::TotalCost, Sense::Less, 0.000_002)], 1_000.0),
            (vec![compared(Measure::Latency, Sense::Equal, 300.0)], 2_000.0),
            (vec![compared(Measure::PromptTokens, Sense::Unequal, 400.0)], 0.0),
            (
                vec![compared(Measure::Latency, Sense::More, 300.0), compared(Measure::Latency, Sense::LessOrEqual, 500.0)],
                7_000.0,
            ),
        ] {
            assert_eq!(count(filters.clone()).await, expected, "{filters:?}");
        }
    }

    async fn order_and_limits_hold(database: &Database) {
        let (tenant, _, _) = filled(database).await;
        let mut question = asked(&[Metric::TotalCost], &[Dimension::FinishReason, Dimension::Model]);
        question.order = Some((Column::Dimension(1), true));
        let models = |lines: &[Line]| lines.iter().map(|line| ids(line)[1].unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(models(&answered(&database.store, &tenant, &question).await), ["v/b", "v/b", "v/a", "v/a"]);
        question.order = Some((Column::Metric(0), false));
        question.limit = 2;
        // One more than asked for says that there are more.
        let lines = answered(&database.store, &tenant, &question).await;
        assert_eq!(lines.iter().map(|line| line.figures[0].unwrap()).collect::<Vec<_>>(), [6_000.0, 9_000.0, 14_000.0]);

        // Of the course of time only the largest groups are told.
        let mut question = asked(&[Metric::TotalCost], &[Dimension::Model]);
        (question.granularity, question.group_limit) = (Some(Granularity::Day), 1);
        let lines = answered(&database.store, &tenant, &question).await;
        assert!(lines.len() == 4 && lines.iter().all(|line| ids(line) == [Some("v/b")]), "{lines:?}");
        // What takes too long has no answer.
        assert_eq!(database.store.analytics(&tenant, &question, Duration::ZERO).await.unwrap(), None);
        assert_eq!(answered(&database.store, &tenant, &question).await.len(), 4, "and harms nobody");
    }
}

#[test]
fn the_number_of_a_key_is_what_filters_compare() {
    let hash: KeyHash = hash("k");
    assert_eq!(format!("{:013x}", hash.number()), hash.to_hex()[..13]);
}
