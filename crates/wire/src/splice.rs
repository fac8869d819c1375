//! Edits on bytes that otherwise stay as they came.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

/// As many bytes as most texts get in addition.
const USUAL: usize = 512;

/// A set of replacements on one text. Ranges must not overlap; they may be added in any order, and what is added first
/// at one place comes first.
#[derive(Default)]
pub struct Splice {
    edits: SmallVec<[Edit; 8]>,
    new: Vec<u8>,
}

struct Edit {
    old: Range<usize>,
    new: Range<usize>,
}

impl Splice {
    pub fn replace(&mut self, old: Range<usize>, with: &[u8]) {
        self.replace_by(old, |new| new.extend_from_slice(with));
    }

    /// As [`Splice::replace`], by what is written.
    pub fn replace_by(&mut self, old: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.start();
        write(&mut self.new);
        self.edits.push(Edit { old, new: start..self.new.len() });
    }

    /// As [`Splice::insert`], by what is written; what goes on where the last insertion ended becomes one with it.
    pub fn append_by(&mut self, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.edits.last().is_some_and(|last| last.old == (at..at)) {
            return self.replace_by(at..at, write);
        }
        write(&mut self.new);
        let end = self.new.len();
        if let Some(last) = self.edits.last_mut() {
            last.new.end = end;
        }
    }

    /// Where what comes next begins. There is room from the start on for what is usual.
    fn start(&mut self) -> usize {
        if self.new.capacity() == 0 {
            self.new = Vec::with_capacity(USUAL);
        }
        self.new.len()
    }

    pub fn insert(&mut self, at: usize, text: &[u8]) {
        self.replace(at..at, text);
    }

    pub fn cut(&mut self, old: Range<usize>) {
        self.replace(old, b"");
    }

    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The edited text as pieces of the source and of what is new: the source is not copied.
    pub fn pieces(mut self, source: &Bytes) -> SmallVec<[Bytes; 1]> {
        self.edits.sort_by_key(|edit| (edit.old.start, edit.old.end));
        let new = Bytes::from(self.new);
        let mut pieces = SmallVec::with_capacity(2 * self.edits.len() + 1);
        let mut push = |piece: Bytes| {
            if !piece.is_empty() {
                pieces.push(piece);
            }
        };
        let mut done = 0;
        for edit in &self.edits {
            push(source.slice(done..edit.old.start));
            push(new.slice(edit.new.clone()));
            done = edit.old.end;
        }
        push(source.slice(done..));
        pieces
    }

    /// The edited text: one allocation, one copy.
    #[inline]
    pub fn apply(mut self, source: &[u8]) -> Bytes {
        self.applied(source)
    }

    fn applied(&mut self, source: &[u8]) -> Bytes {
        self.edits.sort_by_key(|edit| (edit.old.start, edit.old.end));
        // To the byte: what has room to spare is moved once more when it becomes `Bytes`.
        let cut: usize = self.edits.iter().map(|edit| edit.old.len()).sum();
        let mut out = Vec::with_capacity((source.len() + self.new.len()).saturating_sub(cut));
        let mut done = 0;
        for edit in &self.edits {
            out.extend_from_slice(&source[done..edit.old.start]);
            out.extend_from_slice(&self.new[edit.new.clone()]);
            done = edit.old.end;
        }
        out.extend_from_slice(&source[done..]);
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_apply_in_place_whatever_their_order() {
        let mut splice = Splice::default();
        splice.replace(6..11, b"moon");
        splice.insert(0, b">");
        splice.cut(5..6);
        assert_eq!(splice.apply(b"hello world!"), ">hellomoon!");
    }

    #[test]
    fn pieces_are_the_same_text_and_do_not_copy_the_source() {
        let source = Bytes::from_static(b"hello world!");
        let mut splice = Splice::default();
        splice.replace(6..11, b"moon");
        splice.cut(0..1);
        let pieces = splice.pieces(&source);
        assert_eq!(pieces.concat(), b"ello moon!");
        assert_eq!(pieces[0].as_ptr(), source[1..].as_ptr());
    }

    #[test]
    fn insertions_at_one_place_keep_their_order() {
        let mut splice = Splice::default();
        splice.insert(1, b"x");
        splice.insert(1, b"y");
        assert_eq!(splice.apply(b"ab"), "axyb");
    }
}
