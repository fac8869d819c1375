//! A stream in Gemini's protocol: each event is an answer whose parts go on where those before ended.

use tidegate_core::Timestamp;

use super::answer::{Reader, answers, counted};
use crate::fault::{Class, Fault};
use crate::translate::{Context, Decode, Stream};

/// Reads the pieces of an answer.
pub struct Decoder {
    context: Context,
    now: Timestamp,
    reader: Reader,
}

impl Decoder {
    pub fn new(context: Context, now: Timestamp) -> Self {
        Self { context, now, reader: Reader::default() }
    }

    fn finish(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        self.reader.end(&mut stream.encoder, &stream.counted, &self.context)?;
        stream.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
    }
}

impl Decode for Decoder {
    fn feed(&mut self, _name: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let data = data.trim_ascii();
        if data.is_empty() || stream.is_finished() {
            return Ok(());
        }
        for answer in answers(data)? {
            // Usage is told again with every piece: known in time for the first event, and whole with the last.
            if let Some(told) = answer.usage_metadata.and_then(counted) {
                stream.counted.update(told);
            }
            if answer.error.is_none() {
                stream.start();
            }
            self.reader.read(answer, &mut stream.encoder, &mut stream.counted, &self.context, self.now)?;
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.reader.finished
    }

    fn end(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        if stream.is_finished() {
            return Ok(());
        }
        if self.reader.finished {
            return self.finish(stream);
        }
        Err(Fault::without_answer(Class::Unreachable))
    }
}
