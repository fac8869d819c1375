//! Bodies that are still coming. Who sends one slowly holds memory for as long as that takes, so it counts among what is under
//! way before it is whole, and all of them together have a part of the memory. One that comes in a single piece, as nearly
//! all do, is none of this.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::KeyKind;
use tidegate_observe::metrics::Rejection;

use crate::Gateway;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::Places;

/// What part of the memory they may fill.
const SHARE: u64 = 4;
/// Of that, the bodies of one key, and of all who have none.
const OF_A_KEY: u64 = 2;
const OF_STRANGERS: u64 = 8;
/// So many of the largest bodies fit however little memory there is.
const LEAST: u64 = 2;

/// Bytes that came of bodies that are not whole.
#[derive(Debug, Default)]
pub struct Intake {
    held: AtomicU64,
    by_strangers: AtomicU64,
    /// What there is for them; 0 while nobody knows.
    room: AtomicU64,
}

impl Intake {
    /// Takes over how much memory there is.
    pub(crate) fn fits(&self, memory: u64, largest_body: usize) {
        let room = if memory == 0 { 0 } else { (memory / SHARE).max(largest_body as u64 * LEAST) };
        self.room.store(room, Ordering::Relaxed);
    }
}

/// A body of which more is to come.
pub struct Coming<'a> {
    gateway: &'a Gateway,
    key: Option<&'a KeyEntry>,
    bytes: u64,
    _places: Option<Places>,
}

impl Gateway {
    /// A body has begun that is not whole.
    pub fn receive<'a>(&'a self, key: Option<&'a KeyEntry>) -> Result<Coming<'a>, Failure> {
        let places = match key.filter(|key| key.kind == KeyKind::Inference) {
            Some(key) => Some(self.enter(key, &self.snapshot().settings)?),
            None => None,
        };
        Ok(Coming { gateway: self, key, bytes: 0, _places: places })
    }
}

impl Coming<'_> {
    fn own(&self) -> &AtomicU64 {
        self.key.map_or(&self.gateway.intake.by_strangers, |key| &key.live.sending)
    }

    /// So many bytes more came.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        let bytes = bytes as u64;
        let intake = &self.gateway.intake;
        self.bytes += bytes;
        let held = intake.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let own = self.own().fetch_add(bytes, Ordering::Relaxed) + bytes;
        let room = intake.room.load(Ordering::Relaxed);
        if room == 0 {
            return Ok(());
        }
        let share = room / if self.key.is_some() { OF_A_KEY } else { OF_STRANGERS };
        if held <= room && own <= share {
            return Ok(());
        }
        self.gateway.metrics.limit_rejections.get_or_create(&Rejection { kind: "in_flight_bytes" }).inc();
        if held > room || self.key.is_none() {
            return Err(Failure::unavailable());
        }
        let now = self.gateway.clock.now();
        Err(Failure::rate_limited(share, now.plus(Duration::from_secs(1)), now))
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.gateway.intake.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.own().fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
