//! A stream on its way out that is to be kept: its frames are copied as they leave, because they are slices of buffers
//! that are much larger than they are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{GenerationId, KeyHash, Timestamp};

use super::{Answers, Entry, LARGEST};

/// What was sent so far of an answer that may be kept when it is whole. Dropping it forgets all.
pub struct Recording {
    answers: Arc<Answers>,
    key: KeyHash,
    source: GenerationId,
    ttl: Duration,
    warnings: Vec<String>,
    sent: Vec<u8>,
    /// It grew too large, or all recordings together did.
    is_over: bool,
}

impl Recording {
    pub fn new(answers: &Arc<Answers>, key: KeyHash, source: GenerationId, ttl: Duration) -> Box<Self> {
        let (answers, warnings, sent) = (answers.clone(), Vec::new(), Vec::new());
        Box::new(Self { answers, key, source, ttl, warnings, sent, is_over: false })
    }

    /// What the head of the answer says was left out.
    pub fn warned(&mut self, warnings: &[String]) {
        self.warnings = warnings.to_vec();
    }

    /// Takes the next bytes that leave. Recordings together get as much room as what is kept.
    pub fn take(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        let all = self.answers.recording.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        self.sent.extend_from_slice(bytes);
        if self.sent.len() > LARGEST || all > self.answers.room() {
            self.is_over = true;
            self.free();
        }
    }

    /// The answer is whole and has left.
    pub fn keep(mut self, now: Timestamp) {
        if self.is_over {
            return;
        }
        // Not with the room that it grew into.
        let body = Bytes::from(self.sent.as_slice().to_vec());
        let (warnings, source, ttl) = (std::mem::take(&mut self.warnings), self.source, self.ttl);
        self.answers.keep(self.key, Entry { body, source, warnings, kept: now, ttl });
    }

    fn free(&mut self) {
        self.answers.recording.fetch_sub(self.sent.len(), Ordering::Relaxed);
        self.sent = Vec::new();
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    fn recording(answers: &Arc<Answers>, key: &KeyHash) -> Box<Recording> {
        Recording::new(answers, *key, GenerationId::new(NOW), Duration::from_secs(9))
    }

    fn recorded(answers: &Answers) -> usize {
        answers.recording.load(Ordering::Relaxed)
    }

    #[test]
    fn what_was_sent_is_kept_when_it_is_whole_and_forgotten_otherwise() {
        let (answers, key) = (Answers::new(1 << 20), KeyHash::of(b"r"));
        let mut given_up = recording(&answers, &key);
        given_up.take(b"event: a\n\n");
        assert_eq!(recorded(&answers), 10);
        drop(given_up);
        assert!(answers.find(&key, NOW).is_none() && recorded(&answers) == 0);
        let mut whole = recording(&answers, &key);
        whole.warned(&["dropped:top_k".to_owned()]);
        whole.take(b"event: a\n\n");
        whole.take(b"event: b\n\n");
        whole.keep(NOW);
        let entry = answers.find(&key, NOW).expect("it is kept");
        assert_eq!((&entry.body[..], entry.warnings.len()), (&b"event: a\n\nevent: b\n\n"[..], 1));
        assert_eq!(recorded(&answers), 0);
    }

    #[test]
    fn recordings_have_a_limit_each_and_one_together() {
        let (answers, key) = (Answers::new(64 << 20), KeyHash::of(b"r"));
        let mut large = recording(&answers, &key);
        large.take(&vec![b'x'; LARGEST]);
        large.take(b"x");
        large.take(b"x");
        assert_eq!(recorded(&answers), 0);
        large.keep(NOW);
        assert!(answers.find(&key, NOW).is_none());

        let answers = Answers::new(4_000);
        let (mut one, mut other) = (recording(&answers, &key), recording(&answers, &KeyHash::of(b"s")));
        one.take(&[b'x'; 1_000]);
        other.take(&[b'x'; 3_500]);
        assert_eq!(recorded(&answers), 1_000, "the one that took it beyond is given up");
        other.keep(NOW);
        one.keep(NOW);
        assert!(answers.find(&key, NOW).is_some());
    }
}
