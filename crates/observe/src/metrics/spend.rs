//! Money in the unit that dashboards add up: counted in whole nano-dollars, so that nothing is rounded away, told in
//! dollars.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::{Atomic, Counter};

pub type Spend = Counter<f64, Nanodollars>;

#[derive(Debug, Default)]
pub struct Nanodollars(AtomicU64);

impl Nanodollars {
    pub fn add(&self, nanos: u64) {
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

fn dollars(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Atomic<f64> for Nanodollars {
    fn inc(&self) -> f64 {
        self.inc_by(1.0)
    }

    fn inc_by(&self, by: f64) -> f64 {
        dollars(self.0.fetch_add((by * 1e9).round() as u64, Ordering::Relaxed))
    }

    fn get(&self) -> f64 {
        dollars(self.0.load(Ordering::Relaxed))
    }
}
