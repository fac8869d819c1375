//! Events of a stream as bytes, and where each one ends.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use crate::body::Part;

/// All events of an answer. Runs keep what many answers share apart from what is rendered for one.
pub(crate) struct Events {
    runs: Vec<Run>,
}

#[derive(Clone)]
pub(crate) struct Run {
    bytes: Bytes,
    ends: Arc<[usize]>,
}

#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// Events are gathered into writes of about this size when nothing asks for them one by one.
const WRITE: usize = 16 << 10;

impl Events {
    pub fn of(runs: impl Into<Vec<Run>>) -> Self {
        Self { runs: runs.into() }
    }

    /// Each event on its own.
    pub fn each(&self) -> Vec<Bytes> {
        self.runs.iter().flat_map(Run::each).collect()
    }

    /// All events in few writes, cut between events.
    pub fn writes(&self) -> Vec<Part> {
        let mut parts = Vec::with_capacity(self.runs.len() + 2);
        for Run { bytes, ends } in &self.runs {
            let mut start = 0;
            for pair in ends.windows(2) {
                if pair[1] - start > WRITE && pair[0] > start {
                    parts.push(Part::Bytes(bytes.slice(start..pair[0])));
                    start = pair[0];
                }
            }
            parts.push(Part::Bytes(bytes.slice(start..)));
        }
        parts
    }
}

impl Run {
    fn each(&self) -> impl Iterator<Item = Bytes> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends.iter()).map(|(start, end)| self.bytes.slice(start..*end))
    }
}

impl Writer {
    /// One event, framing included.
    pub fn write(&mut self, event: impl FnOnce(&mut Vec<u8>)) {
        event(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// An event without a name.
    pub fn data(&mut self, data: &impl Serialize) {
        self.write(|out| {
            out.extend_from_slice(b"data: ");
            json(out, data);
            out.extend_from_slice(b"\n\n");
        });
    }

    pub fn named(&mut self, name: &str, data: &impl Serialize) {
        self.write(|out| {
            for part in ["event: ", name, "\ndata: "] {
                out.extend_from_slice(part.as_bytes());
            }
            json(out, data);
            out.extend_from_slice(b"\n\n");
        });
    }

    pub fn done(self) -> Run {
        Run { bytes: self.bytes.into(), ends: self.ends.into() }
    }

    pub fn events(self) -> Events {
        Events::of([self.done()])
    }
}

fn json(out: &mut Vec<u8>, data: &impl Serialize) {
    serde_json::to_writer(out, data).expect("memory accepts every write and plain data always serializes");
}
