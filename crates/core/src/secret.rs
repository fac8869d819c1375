//! A value that goes in and does not come out by accident.

use zeroize::Zeroizing;

/// A raw key or credential. It prints nothing, cannot be cloned or serialised, and is wiped when dropped; the only way
/// to its bytes is [`Secret::expose`], which is easy to search for.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    pub fn expose<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T {
        with(&self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
