//! Bodies that are still coming. Who sends one slowly holds memory for as long as that takes, so it counts among what is under
//! way before it is whole, and all of them together have a part of the memory. One that comes in a single piece is none of
//! this.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::KeyKind;
use tidegate_observe::metrics::Rejection;
use tidegate_wire::error::ErrorType;

use crate::Gateway;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::Places;

/// What part of the memory they may fill.
const SHARE: u64 = 4;
/// Of that, the bodies of one workspace, and of all who have no key.
const OF_A_WORKSPACE: u64 = 2;
const OF_STRANGERS: u64 = 8;
/// Beyond that, for workspaces that hold little: nobody who fills the room shuts out the ordinary requests of others.
const RESERVE: u64 = 2;
const LITTLE: u64 = 4 << 20;
/// So many of the largest bodies fit however little memory there is, so that a workspace can always send one.
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
        self.key.map_or(&self.gateway.intake.by_strangers, |key| &key.workspace_live.sending)
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
        let is_over = match self.key {
            Some(_) => own > room / OF_A_WORKSPACE,
            None => own > room / OF_STRANGERS,
        };
        let is_little = self.key.is_some() && own <= LITTLE;
        let is_full = held > if is_little { room + room / RESERVE } else { room };
        if !is_over && !is_full {
            return Ok(());
        }
        self.gateway.metrics.limit_rejections.get_or_create(&Rejection { kind: "in_flight_bytes" }).inc();
        if is_full || self.key.is_none() {
            return Err(Failure::unavailable());
        }
        Err(Failure {
            retry_after: Some(1),
            ..Failure::new(429, ErrorType::RateLimitExceeded, "Rate limit exceeded: request bodies under way")
        })
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.gateway.intake.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.own().fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
