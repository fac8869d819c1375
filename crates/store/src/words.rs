//! Texts that stand in many rows of one statement: they are handed over once, and counted from then on.

use std::sync::Arc;

use tidegate_core::KeyHash;
use tidegate_core::map::Map;

use crate::generations::storable;

/// The texts of one statement.
#[derive(Default)]
pub(crate) struct Words<'a> {
    known: Map<&'a str, Arc<str>>,
    keys: Map<KeyHash, Arc<str>>,
}

impl<'a> Words<'a> {
    /// A text that others are likely to have, too, as it can be stored.
    pub fn shared(&mut self, text: &'a str) -> Arc<str> {
        self.known.entry(text).or_insert_with(|| own(text)).clone()
    }

    pub fn key(&mut self, key: KeyHash) -> Arc<str> {
        self.keys.entry(key).or_insert_with(|| key.to_hex().into()).clone()
    }
}

/// A text that no other row has, as it can be stored.
pub(crate) fn own(text: &str) -> Arc<str> {
    storable(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_and_without_what_cannot_be_stored() {
        let mut words = Words::default();
        let first = words.shared("end\0turn");
        assert_eq!(&*first, "end\u{FFFD}turn");
        assert!(Arc::ptr_eq(&first, &words.shared("end\0turn")));
        assert_eq!(&*words.shared("other"), "other");
        let key = KeyHash::of(b"a key");
        assert_eq!(&*words.key(key), key.to_hex());
        assert!(Arc::ptr_eq(&words.key(key), &words.key(key)));
    }
}
