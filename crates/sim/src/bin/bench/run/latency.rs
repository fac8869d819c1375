//! What a gateway adds to the wait: at a moderate fixed rate, to the first byte of a stream, and at its worst.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Bench, gate, median};
use crate::client::Work;
use crate::drive::{Pool, Report, closed_loop, fixed_rate};
use crate::sample;
use crate::table::{Table, figure};
use crate::upstream::{self, Answers};

/// Not a divisor of a second: the upstream's timers have whole milliseconds, and requests must meet them at any phase.
pub(super) const RATE: f64 = 293.0;
pub(super) const ROUNDS: usize = 3;

/// In one round; enough for a p99 that is not the worst answer.
pub(super) const REQUESTS: usize = 1_500;
pub(super) const REQUESTS_QUICK: usize = 300;

/// Another gateway's answers took 42 ms longer without `TCP_NODELAY`; half of that cannot be noise.
const WORST_MS: f64 = 20.0;

/// What may be added, in terms of what the floor adds.
const TIMES_FLOOR: f64 = 3.0;

/// The floor may seem to add nothing, or less. What is below this is not told apart from noise, in milliseconds.
const NOISE_MS: f64 = 0.1;

/// A latency of a report, by the share of answers that stayed within it.
type Latency = fn(&Report, f64) -> f64;

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<Option<Value>> {
    if !bench.options.wants("latency") {
        return Ok(None);
    }
    let slow = Answers { tokens: (1, 20), first_byte_ms: 20, ..Answers::default() };
    let whole = at_fixed_rate(bench, "latency, 20 ms upstream", slow, false).await?;
    let stream =
        at_fixed_rate(bench, "stream, 20 ms upstream", Answers { tokens: (20, 20), flush: true, ..slow }, true).await?;
    let kinds: [(_, _, Latency); 2] =
        [("whole answer", &whole, Report::latency_ms), ("stream, first byte", &stream, Report::first_byte_ms)];
    let title = format!("Latency at {RATE} requests/s, 20 ms upstream (ms; floor and gate as added to direct)");
    let columns = ["what", "share", "direct", "floor +", "gate +", "gate/floor", "must", ""];
    let mut table = Table::new(&title, &columns);
    let mut results = Vec::new();
    for (what, reports, of) in kinds {
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let middle =
                |rounds: &Vec<Report>| median(&rounds.iter().map(|report| of(report, share)).collect::<Vec<_>>()).0;
            let direct = middle(&reports[0]);
            let added = |way: usize| reports.get(way).map(|rounds| middle(rounds) - direct);
            let times = added(2).zip(added(1)).map(|(gate, floor)| gate / floor.max(NOISE_MS));
            let standing = match (added(2), added(1)) {
                (Some(gate), Some(floor)) if gate > floor.max(NOISE_MS) * TIMES_FLOOR => "OVER",
                (Some(_), _) => "ok",
                _ => "-",
            };
            let [floor, gate] = [added(1), added(2)].map(precise);
            let must = TIMES_FLOOR.to_string();
            table.row(vec![
                what.into(),
                name.into(),
                precise(Some(direct)),
                floor,
                gate,
                figure(times),
                must,
                standing.into(),
            ]);
            results.push(json!({
                "what": what, "share": name, "direct_ms": direct, "floor_added_ms": added(1), "gate_added_ms": added(2),
            }));
        }
    }
    print!("{}", table.text());
    let worst = kept_alive(bench).await?;
    Ok(Some(json!({"fixed_rate": results, "kept_alive": worst})))
}

/// For each way to the upstream, a report per round.
async fn at_fixed_rate(
    bench: &mut Bench<'_>,
    what: &str,
    answers: Answers,
    stream: bool,
) -> anyhow::Result<Vec<Vec<Report>>> {
    eprintln!("measuring: {what}");
    upstream::set(bench.upstream.addr, answers).await?;
    let requests = if bench.options.quick { REQUESTS_QUICK } else { REQUESTS };
    let works = works(bench, stream);
    let mut reports: Vec<Vec<Report>> = works.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for ((way, work), reports) in works.iter().zip(&mut reports) {
            let mut pool = Pool::new();
            let warm_up = fixed_rate(work, requests / 10, RATE, &mut pool).await;
            bench.check(&format!("{what}, {way}, warm-up"), &warm_up);
            let report = fixed_rate(work, requests, RATE, &mut pool).await;
            bench.check(&format!("{what}, {way}"), &report);
            reports.push(report);
        }
    }
    Ok(reports)
}

/// Answers over one connection, one after the other: a delay that only sockets know shows here.
async fn kept_alive(bench: &mut Bench<'_>) -> anyhow::Result<Value> {
    upstream::set(bench.upstream.addr, Answers { tokens: (1, 20), ..Answers::default() }).await?;
    let mut table =
        Table::new("200 answers over one kept connection (ms)", &["way", "p50", "worst", "over direct", "must", ""]);
    let mut direct = f64::NAN;
    let mut results = Vec::new();
    for (way, work) in works(bench, false) {
        let mut pool = Pool::new();
        closed_loop(&work, 20, 1, &mut pool).await;
        let report = closed_loop(&work, 200, 1, &mut pool).await;
        bench.check(&format!("kept connection, {way}"), &report);
        let (middle, worst) = (report.latency_ms(0.5), report.latency_ms(1.0));
        if way == "direct" {
            direct = middle;
        }
        let over = worst - direct;
        let standing = if over <= WORST_MS { "ok" } else { "OVER" };
        let figures = [middle, worst, over].map(|value| precise(Some(value)));
        let mut cells = vec![way.to_owned()];
        cells.extend(figures);
        cells.extend([WORST_MS.to_string(), standing.to_owned()]);
        table.row(cells);
        results.push(json!({"way": way, "p50_ms": middle, "worst_ms": worst, "over_direct_ms": over}));
    }
    print!("{}", table.text());
    Ok(results.into())
}

fn works(bench: &Bench<'_>, stream: bool) -> Vec<(&'static str, Work)> {
    let body = sample::request(1 << 10, stream);
    let work = |addr| Work { addr, key: gate::KEY.to_owned(), body: body.clone(), stream, status: StatusCode::OK };
    bench.ways().into_iter().map(|(way, addr)| (way, work(addr))).collect()
}

/// Microseconds matter here.
pub(super) fn precise(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}
