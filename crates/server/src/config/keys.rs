//! What keys begin with, and the first ones where the operator brings them.

use anyhow::{Context as _, bail, ensure};
use tidegate_core::Secret;

use super::{Source, raw, secret};

/// Shorter ones are guessed, and their labels would show most of them.
const LEAST_CHARACTERS: usize = 16;

/// Both may begin alike: a key says nothing of its kind, the stored row does.
pub(super) fn prefixes(keys: &raw::Keys) -> anyhow::Result<()> {
    for (name, prefix) in [("keys.prefix", &keys.prefix), ("keys.management_prefix", &keys.management_prefix)] {
        ensure!(!prefix.is_empty(), "{name}: must not be empty");
        ensure!(is_visible(prefix.as_bytes()), "{name}: must be visible ASCII characters without spaces");
    }
    ensure!(keys.prefix != keys.management_prefix, "keys.prefix: must differ from keys.management_prefix");
    Ok(())
}

/// A key of the first start. Later starts do not ask for it: one that cannot be read then is not missed.
#[derive(Default)]
pub enum FirstKey {
    /// Made at random.
    #[default]
    Made,
    Brought(Secret),
    /// Why it cannot be read.
    Unread(String),
}

impl FirstKey {
    pub fn brought(&self) -> Option<&Secret> {
        match self {
            Self::Brought(key) => Some(key),
            Self::Made | Self::Unread(_) => None,
        }
    }

    /// Refuses what must not be stored: a key that is not there, and one that can be guessed.
    pub fn is_ready(&self, name: &str) -> anyhow::Result<()> {
        if let Self::Unread(problem) = self {
            bail!("{problem}");
        }
        let is_short = self.brought().is_some_and(|key| key.expose(|bytes| bytes.len() < LEAST_CHARACTERS));
        ensure!(
            !is_short,
            "{name}: must have at least {LEAST_CHARACTERS} characters; leave it out to have a random one printed at the \
             first start"
        );
        Ok(())
    }
}

/// A key that is brought for the first start: one that no header can carry would lock its owner out.
pub(super) fn brought(name: &'static str, text: Option<&str>, source: &Source) -> anyhow::Result<FirstKey> {
    let Some(text) = text else { return Ok(FirstKey::Made) };
    let key = match secret::resolve(text, source).context(name) {
        Ok(key) => key,
        Err(error) => return Ok(FirstKey::Unread(format!("{error:#}"))),
    };
    let visible = key.expose(is_visible);
    ensure!(visible, "{name}: must be visible ASCII characters without spaces: no header carries another key");
    Ok(FirstKey::Brought(key))
}

fn is_visible(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::super::tests::problem;

    #[test]
    fn a_prefix_is_visible_and_there() {
        for (line, expected) in [
            ("prefix = \"\"", "keys.prefix: must not be empty"),
            ("management_prefix = \"\"", "keys.management_prefix: must not be empty"),
            ("prefix = \"sk tg-\"", "keys.prefix: must be visible ASCII characters without spaces"),
            ("management_prefix = \"schlüssel-\"", "keys.management_prefix: must be visible ASCII"),
            ("prefix = \"a-\"\nmanagement_prefix = \"a-\"", "keys.prefix: must differ from keys.management_prefix"),
            ("prefix = \"sk-acme-\"\nmanagement_prefix = \"sk-acme-m-\"", "ok"),
        ] {
            let said = problem(&format!("[keys]\n{line}\n"));
            assert!(said.contains(expected), "{line}: {said}");
        }
    }

    #[test]
    fn a_key_that_is_brought_can_be_sent_and_not_be_guessed() {
        for (key, is_long) in [("abc", false), ("0123456789abcde", false), ("0123456789abcdef", true)] {
            let said = super::FirstKey::Brought(tidegate_core::Secret::new(key)).is_ready("keys.management_key");
            assert_eq!(said.is_ok(), is_long, "{key}");
        }
        for (key, expected) in [
            ("0123456789 abcdef", "must be visible ASCII characters without spaces"),
            ("0123456789\\u0007abcdef", "must be visible ASCII characters without spaces"),
            ("0123456789abcdef", "ok"),
            (" sk-tgm-v1-abcdefghijklmnopqrstuvwxyz ", "ok"),
        ] {
            for name in ["management_key", "inference_key"] {
                let said = problem(&format!("[keys]\n{name} = \"{key}\"\n"));
                assert!(said.contains(expected), "{name} = {key}: {said}");
                assert!(said == "ok" || said.contains(&format!("keys.{name}")) && !said.contains(key), "{said}");
            }
        }
    }
}
