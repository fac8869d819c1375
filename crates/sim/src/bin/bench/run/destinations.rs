//! What requests notice of a destination that hangs: the same gateway twice, one that is heard and one that is not.

use std::net::TcpListener;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::gate::Gate;
use super::latency::{RATE, REQUESTS, REQUESTS_QUICK, ROUNDS, precise};
use super::{Bench, gate, median};
use crate::client::Work;
use crate::drive::{Pool, Report, fixed_rate};
use crate::process::Core;
use crate::sample;
use crate::table::Table;
use crate::upstream::{self, Answers};

/// What the one that hangs may add at p99, in milliseconds: more than noise, less than anything that waits.
const MOST_MS: f64 = 1.0;

/// A process that used less than this between two looks does nothing but wait.
const QUIET_MS: f64 = 4.0;
const LOOK: Duration = Duration::from_millis(200);
const MOST_LOOKS: usize = 100;

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<Option<Value>> {
    if !bench.options.wants("destinations") || bench.gate.as_ref().is_none_or(|gate| gate.is_stub) {
        return Ok(None);
    }
    eprintln!("measuring: destinations");
    // Connections are made and nobody ever takes one.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let hanging = bench.start_gate("hanging", Core::Measured, &format!("http://{}", silent.local_addr()?))?;
    let answering = bench.gate.as_ref().map(|gate| gate.process.addr);
    upstream::set(bench.upstream.addr, Answers { tokens: (1, 20), first_byte_ms: 20, ..Answers::default() }).await?;
    let requests = if bench.options.quick { REQUESTS_QUICK } else { REQUESTS };
    let body = sample::request(1 << 10, false);
    let work =
        |addr| Work { addr, key: gate::KEY.to_owned(), body: body.clone(), stream: false, status: StatusCode::OK };
    let ways: Vec<(&str, Work)> = answering
        .map(|addr| ("answers", work(addr)))
        .into_iter()
        .chain([("hangs", work(hanging.process.addr))])
        .collect();
    let mut reports: Vec<Vec<Report>> = ways.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for ((way, work), reports) in ways.iter().zip(&mut reports) {
            quiet(bench.gate.iter().chain([&hanging])).await?;
            let mut pool = Pool::new();
            let warm_up = fixed_rate(work, requests / 10, RATE, &mut pool).await;
            bench.check(&format!("a destination that {way}, warm-up"), &warm_up);
            let report = fixed_rate(work, requests, RATE, &mut pool).await;
            bench.check(&format!("a destination that {way}"), &report);
            reports.push(report);
        }
    }
    let title = format!("Latency at {RATE} requests/s, 20 ms upstream, by what the destination does (ms)");
    let mut table = Table::new(&title, &["share", "answers", "hangs", "added", "must", ""]);
    let mut results = Vec::new();
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let middle = |way: usize| median(&reports[way].iter().map(|one| one.latency_ms(share)).collect::<Vec<_>>()).0;
        let (answers, hangs) = (middle(0), middle(1));
        let added = hangs - answers;
        let standing = if added <= MOST_MS { "ok" } else { "OVER" };
        let figures = [answers, hangs, added].map(|value| precise(Some(value)));
        let mut cells = vec![name.to_owned()];
        cells.extend(figures);
        cells.extend([MOST_MS.to_string(), standing.to_owned()]);
        table.row(cells);
        results.push(json!({"share": name, "answers_ms": answers, "hangs_ms": hangs, "added_ms": added}));
    }
    print!("{}", table.text());
    Ok(Some(results.into()))
}

/// Waits until none of them has anything left to do: they share a core, and what one delivers late must not weigh on the
/// other.
async fn quiet(gates: impl Iterator<Item = &Gate>) -> anyhow::Result<()> {
    for gate in gates {
        for _ in 0..MOST_LOOKS {
            let before = gate.process.cpu()?;
            tokio::time::sleep(LOOK).await;
            if gate.process.cpu()?.ms_since(&before) < QUIET_MS {
                break;
            }
        }
    }
    Ok(())
}
