//! CPU time per request of the gateway against the floor, for each kind of work.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Bench, gate, median};
use crate::client::Work;
use crate::drive::{Pool, closed_loop};
use crate::sample;
use crate::table::{Table, figure, verdict};
use crate::upstream::{self, Answers};

const ROUNDS: usize = 3;

/// One kind of work, and how many times the floor's CPU it may and should cost.
struct Row {
    name: &'static str,
    request_bytes: usize,
    stream: bool,
    answers: Answers,
    requests: usize,
    concurrency: usize,
    refused: Option<Refused>,
    /// The gateway calls an upstream of the chat protocol; the floor forwards the same request as it is.
    translated: bool,
    must: f64,
    goal: f64,
}

/// Work that ends in the gateway. The floor cannot refuse: what it costs to forward the same request is the measure.
#[derive(Clone, Copy)]
enum Refused {
    Key,
    Body,
}

const SMALL: Answers = Answers { tokens: (1, 20), pace_ms: 0, first_byte_ms: 0, flush: false };

const LONG: Answers = Answers { tokens: (500, 20), ..SMALL };

const WHOLE: Row = Row {
    name: "1 KB request, 0.5 KB answer",
    request_bytes: 1 << 10,
    stream: false,
    answers: SMALL,
    requests: 20_000,
    concurrency: 32,
    refused: None,
    translated: false,
    must: 2.2,
    goal: 1.5,
};

const STREAM: Row = Row {
    name: "stream, 100 events, shared writes",
    stream: true,
    answers: Answers { tokens: (100, 20), ..SMALL },
    requests: 2_000,
    must: 1.7,
    goal: 1.3,
    ..WHOLE
};

/// Streams come in three paces. Events that share writes are cheap for the floor, which never looks for their ends, and
/// so the hardest on whoever must.
const ROWS: [Row; 12] = [
    WHOLE,
    Row { name: "15 KB request", request_bytes: 15 << 10, ..WHOLE },
    Row { name: "1 MiB request", request_bytes: 1 << 20, requests: 500, concurrency: 8, must: 4.0, goal: 2.5, ..WHOLE },
    STREAM,
    Row { name: "stream, 100 events, a write each", answers: Answers { flush: true, ..STREAM.answers }, ..STREAM },
    Row {
        name: "stream, 100 events, 5 ms apart",
        answers: Answers { pace_ms: 5, ..STREAM.answers },
        concurrency: 100,
        ..STREAM
    },
    Row { name: "stream, 500 events, shared writes", answers: LONG, ..STREAM },
    Row { name: "stream, 500 events, a write each", answers: Answers { flush: true, ..LONG }, ..STREAM },
    Row { name: "translated, 15 KB request", request_bytes: 15 << 10, translated: true, must: 6.0, goal: 4.0, ..WHOLE },
    Row {
        name: "translated stream, 500 events, a write each",
        answers: Answers { flush: true, ..LONG },
        translated: true,
        must: 5.0,
        goal: 3.0,
        ..STREAM
    },
    Row { name: "refused: bad key", refused: Some(Refused::Key), must: 1.0, goal: 0.7, ..WHOLE },
    Row { name: "refused: invalid body", refused: Some(Refused::Body), must: 1.0, goal: 0.7, ..WHOLE },
];

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<Option<Value>> {
    let rows: Vec<&Row> =
        ROWS.iter().filter(|row| bench.options.wants("work") || bench.options.wants(row.name)).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let columns = [
        "work",
        "direct /s",
        "floor /s",
        "gate /s",
        "floor ms CPU",
        "spread",
        "gate ms CPU",
        "spread",
        "SQLite",
        "ratio",
        "must",
        "goal",
        "",
    ];
    let mut table = Table::new("CPU of the process per 1000 requests, on one core", &columns);
    let mut results = Vec::new();
    for row in rows {
        eprintln!("measuring: {}", row.name);
        upstream::set(bench.upstream.addr, row.answers).await?;
        let (cells, result) = one(bench, row).await?;
        table.row(cells);
        results.push(result);
    }
    print!("{}", table.text());
    Ok(Some(results.into()))
}

/// What one way to the upstream did, in every round.
#[derive(Default)]
struct Rounds {
    per_second: Vec<f64>,
    cpu_ms: Vec<f64>,
    /// The share of it that went into the files of the journal and the records.
    keeping: Vec<f64>,
}

async fn one(bench: &mut Bench<'_>, row: &Row) -> anyhow::Result<(Vec<String>, Value)> {
    let requests = bench.options.share(row.requests);
    let ways = bench.ways();
    let mut rounds: Vec<Rounds> = ways.iter().map(|_| Rounds::default()).collect();
    // Round by round rather than way by way: a machine that slows down slows all of them.
    for round in 0..ROUNDS {
        for ((way, addr), rounds) in ways.iter().zip(&mut rounds) {
            if *way == "direct" && round > 0 {
                // Only for orientation: nothing is divided by it.
                continue;
            }
            let work = Work { addr: *addr, ..work_of(bench, row, way) };
            let mut pool = Pool::new();
            // One alone: what is looked up on first sight may be refused to a crowd.
            let first = closed_loop(&work, 1, 1, &mut pool).await;
            bench.check(&format!("{}, {way}, first", row.name), &first);
            let warm_up = (requests / 10).max(2 * row.concurrency);
            let warm_up = closed_loop(&work, warm_up, row.concurrency, &mut pool).await;
            bench.check(&format!("{}, {way}, warm-up", row.name), &warm_up);
            let before = bench.cpu_of(way)?;
            let report = closed_loop(&work, requests, row.concurrency, &mut pool).await;
            if let (Some(before), Some(after)) = (before, bench.cpu_of(way)?) {
                let all = after.ms_since(&before);
                rounds.cpu_ms.push(all * 1e3 / requests as f64);
                rounds.keeping.push(after.keeping_ms_since(&before) / all);
            }
            bench.check(&format!("{}, {way}", row.name), &report);
            rounds.per_second.push(report.per_second());
        }
    }
    let rate = |index: usize| rounds.get(index).map(|rounds| median(&rounds.per_second).0);
    let cpu = |index: usize| rounds.get(index).map(|rounds| median(&rounds.cpu_ms));
    let ratio = cpu(2).zip(cpu(1)).map(|(gate, floor)| gate.0 / floor.0);
    let spread = |index| cpu(index).map_or_else(|| "-".to_owned(), |cpu| format!("{:.0} %", cpu.1 * 100.0));
    let standing = verdict(ratio, row.must, row.goal);
    let cells = vec![
        row.name.to_owned(),
        figure(rate(0)),
        figure(rate(1)),
        figure(rate(2)),
        figure(cpu(1).map(|cpu| cpu.0)),
        spread(1),
        figure(cpu(2).map(|cpu| cpu.0)),
        spread(2),
        rounds.get(2).map_or_else(|| "-".to_owned(), |gate| format!("{:.0} %", median(&gate.keeping).0 * 100.0)),
        figure(ratio),
        row.must.to_string(),
        row.goal.to_string(),
        standing.to_owned(),
    ];
    let result = json!({
        "name": row.name, "requests": requests,
        "per_second": {"direct": rate(0), "floor": rate(1), "gate": rate(2)},
        "cpu_ms_per_1000": {"floor": rounds.get(1).map(|r| &r.cpu_ms), "gate": rounds.get(2).map(|r| &r.cpu_ms)},
        "sqlite_share": rounds.get(2).map(|r| &r.keeping),
        "ratio": ratio, "must": row.must, "goal": row.goal, "standing": standing,
    });
    Ok((cells, result))
}

/// The request of a row, and the answer that this way must give; the address is the caller's.
fn work_of(bench: &Bench<'_>, row: &Row, way: &str) -> Work {
    let body = match row.refused {
        Some(Refused::Body) => sample::invalid_request(row.request_bytes),
        Some(Refused::Key) | None => sample::request(row.request_bytes, row.stream),
    };
    let body = if row.translated && way == "gate" { sample::translated(&body) } else { body };
    let key = match row.refused {
        Some(Refused::Key) => "not-a-key-of-this-gateway",
        Some(Refused::Body) | None => gate::KEY,
    };
    let refuses = way == "gate" && bench.gate.as_ref().is_some_and(|gate| !gate.is_stub);
    let status = match row.refused {
        Some(Refused::Key) if refuses => StatusCode::UNAUTHORIZED,
        Some(Refused::Body) if refuses => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    Work { addr: bench.upstream.addr, key: key.to_owned(), body, stream: row.stream, status }
}

impl Bench<'_> {
    /// Nothing for the direct way: the upstream is not what is measured.
    fn cpu_of(&self, way: &str) -> anyhow::Result<Option<crate::process::Cpu>> {
        match (way, &self.gate) {
            ("floor", _) => self.floor.cpu().map(Some),
            ("gate", Some(gate)) => gate.process.cpu().map(Some),
            _ => Ok(None),
        }
    }
}
