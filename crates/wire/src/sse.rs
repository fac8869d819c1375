//! Server-sent events: a splitter that hands out frames without copying, and the encoder.
//!
//! Existing crates own every event they read; on the pass-through path we need the untouched bytes of a frame and its
//! name, nothing more.

use std::borrow::Cow;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem::Finder;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Cuts a stream of chunks into frames. Any division into chunks gives the same frames, whether lines end in LF, CRLF
/// or CR. A frame that lies within one chunk shares that chunk's memory; only one that crosses a border or ends in CR is
/// copied.
pub struct Splitter {
    chunk: Bytes,
    carry: BytesMut,
    limit: usize,
    /// Nothing but a line ending since the last line ending: the next one closes the frame.
    line_is_empty: bool,
    /// The byte before was CR, so an LF that follows belongs to it.
    after_cr: bool,
    /// How much of a byte order mark has been seen; `None` once the stream is past its beginning.
    mark: Option<usize>,
    /// The chunk's lines end in LF alone, as nearly all streams' do.
    plain: bool,
}

/// An event larger than the splitter's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// One event's bytes, closing blank line included (but for the last one of a stream that lacks it). That line ends in LF.
#[derive(Clone, Debug)]
pub struct Frame(pub Bytes);

impl Splitter {
    pub fn new(limit: usize) -> Self {
        let (chunk, carry) = (Bytes::new(), BytesMut::new());
        Self { chunk, carry, limit, line_is_empty: true, after_cr: false, mark: Some(0), plain: false }
    }

    /// Takes the next bytes of the stream. Call [`Splitter::next`] until it gives `None` before feeding again.
    pub fn feed(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "the previous chunk has been read to its end");
        self.plain = memchr::memchr(b'\r', &chunk).is_none();
        self.chunk = chunk;
        self.skip_mark();
    }

    /// All whole frames of the chunk as one piece, when none of `words` occurs anywhere in them and none is a comment;
    /// `None` otherwise, or when the chunk does not begin with a frame. A few searches over the whole chunk, nothing per frame.
    pub fn calm(&mut self, words: &[Finder<'_>]) -> Option<Bytes> {
        if !self.is_at_plain_frame() {
            return None;
        }
        let end = memchr::memmem::rfind(&self.chunk, b"\n\n")? + 2;
        let whole = &self.chunk[..end];
        // A comment is no frame to hand on; data cannot hold a line that begins like one.
        let comments = whole.starts_with(b":") || memchr::memmem::find(whole, b"\n:").is_some();
        if end > self.limit || comments || words.iter().any(|word| word.find(whole).is_some()) {
            return None;
        }
        Some(self.chunk.split_to(end))
    }

    fn is_at_plain_frame(&self) -> bool {
        self.plain && self.carry.is_empty() && self.line_is_empty && !self.after_cr
    }

    /// The next frames of the chunk as one piece, as long as each is whole and satisfies `wanted`; `None` when the next
    /// one does not. It finds less than [`Splitter::next`] (nothing that crosses a border or has other line endings),
    /// but what it finds costs one search per line and no reference per frame.
    pub fn run(&mut self, wanted: impl Fn(&[u8]) -> bool) -> Option<Bytes> {
        if !self.is_at_plain_frame() {
            return None;
        }
        let mut end = 0;
        while let Some(length) = plain_frame(&self.chunk[end..]) {
            if length > self.limit || !wanted(&self.chunk[end..end + length]) {
                break;
            }
            end += length;
        }
        (end > 0).then(|| self.chunk.split_to(end))
    }

    /// The next whole frame of what was fed.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: it goes on after None, with the next chunk")]
    pub fn next(&mut self) -> Result<Option<Frame>, TooLarge> {
        // A frame that ended in CR at the very end of a chunk was handed out with an LF; the one that follows was its own.
        if self.after_cr && self.line_is_empty && self.carry.is_empty() && self.chunk.first() == Some(&b'\n') {
            self.chunk.advance(1);
            self.after_cr = false;
        }
        match self.find_end() {
            Some(end) => {
                if self.carry.len() + end > self.limit {
                    return Err(TooLarge(self.limit));
                }
                let head = self.chunk.split_to(end);
                // Its LF may be in the next chunk, for which no client is kept waiting. Readers that cut at LF would not see
                // the blank line without it.
                let lacks_lf = head.ends_with(b"\r");
                if self.carry.is_empty() && !lacks_lf {
                    return Ok(Some(Frame(head)));
                }
                self.carry.extend_from_slice(&head);
                if lacks_lf {
                    self.carry.extend_from_slice(b"\n");
                }
                Ok(Some(Frame(self.carry.split().freeze())))
            }
            None => {
                if self.carry.len() + self.chunk.len() > self.limit {
                    return Err(TooLarge(self.limit));
                }
                self.carry.extend_from_slice(&self.chunk);
                self.chunk = Bytes::new();
                Ok(None)
            }
        }
    }

    /// What is left when the stream has ended: a last frame without its blank line.
    pub fn finish(&mut self) -> Option<Frame> {
        self.not_a_mark();
        let rest = self.carry.split().freeze();
        let blank = rest.iter().all(|byte| matches!(byte, b'\n' | b'\r'));
        (!blank).then_some(Frame(rest))
    }

    /// Drops a byte order mark at the beginning of the stream, even one that comes in pieces.
    fn skip_mark(&mut self) {
        while let (Some(seen), Some(byte)) = (self.mark, self.chunk.first()) {
            if *byte == BOM[seen] {
                self.chunk.advance(1);
                self.mark = (seen + 1 < BOM.len()).then_some(seen + 1);
            } else {
                self.not_a_mark();
            }
        }
    }

    fn not_a_mark(&mut self) {
        if let Some(seen @ 1..) = self.mark.take() {
            self.carry.extend_from_slice(&BOM[..seen]);
            self.line_is_empty = false;
        }
    }

    /// Length of the rest of the current frame within the chunk, closing line ending included.
    fn find_end(&mut self) -> Option<usize> {
        let bytes = &self.chunk[..];
        let mut at = 0;
        while at < bytes.len() {
            if self.after_cr && bytes[at] == b'\n' {
                self.after_cr = false;
                at += 1;
                continue;
            }
            self.after_cr = false;
            match bytes[at] {
                ending @ (b'\n' | b'\r') => {
                    at += 1;
                    self.after_cr = ending == b'\r';
                    if std::mem::replace(&mut self.line_is_empty, true) {
                        // CRLF closes as one when both are here; an LF in the next chunk is dropped by `next`,
                        // which has added it already.
                        if self.after_cr && bytes.get(at) == Some(&b'\n') {
                            self.after_cr = false;
                            at += 1;
                        }
                        return Some(at);
                    }
                }
                _ => {
                    self.line_is_empty = false;
                    at += memchr::memchr2(b'\n', b'\r', &bytes[at..]).unwrap_or(bytes.len() - at);
                }
            }
        }
        None
    }
}

impl Frame {
    /// The event's name; empty when the frame names none.
    pub fn event(&self) -> &[u8] {
        let mut name: &[u8] = b"";
        for line in lines(&self.0) {
            if let (b"event", value) = field(line) {
                name = value;
            }
        }
        name
    }

    /// The event's data: its `data` lines joined by LF. Borrowed when there is one line, as there nearly always is.
    pub fn data(&self) -> Cow<'_, [u8]> {
        let mut data: Cow<'_, [u8]> = Cow::Borrowed(b"");
        let mut first = true;
        for line in lines(&self.0) {
            if let (b"data", value) = field(line) {
                if std::mem::take(&mut first) {
                    data = Cow::Borrowed(value);
                } else {
                    let joined = data.to_mut();
                    joined.push(b'\n');
                    joined.extend_from_slice(value);
                }
            }
        }
        data
    }

    /// Comments and blank lines only: a sign of life without an event.
    pub fn is_silent(&self) -> bool {
        lines(&self.0).all(|line| line.is_empty() || line.starts_with(b":"))
    }
}

/// Writes one event: its name and one line of data.
pub fn encode(out: &mut BytesMut, event: &str, data: &[u8]) {
    debug_assert!(!data.contains(&b'\n') && !data.contains(&b'\r'), "data is one line");
    out.reserve(event.len() + data.len() + 16);
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}

/// Length of the first frame of a text whose lines end in LF, if it is whole.
fn plain_frame(bytes: &[u8]) -> Option<usize> {
    if bytes.first() == Some(&b'\n') {
        return Some(1);
    }
    let mut at = 0;
    loop {
        at += memchr::memchr(b'\n', &bytes[at..])? + 1;
        if *bytes.get(at)? == b'\n' {
            return Some(at + 1);
        }
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let line = &rest[..end];
        let ending = if rest[end..].starts_with(b"\r\n") { 2 } else { usize::from(end < rest.len()) };
        rest = &rest[end + ending..];
        Some(line)
    })
}

/// A line's field name and value; one space after the colon belongs to neither.
fn field(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b':', line) {
        Some(colon) => {
            let value = &line[colon + 1..];
            (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
        }
        None => (line, b""),
    }
}

#[cfg(test)]
mod tests;
