//! The ring of master keys: what its lines look like and what is refused as a key.
//!
//! A source yields lines `id base64`, each a key of 32 bytes, the active one first. Old keys stay in the ring until
//! nothing is sealed under them any more.

use std::fmt;
use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_core::Secret;

use super::blob::Keys;
use super::file;
use super::source::MasterKeySource;

pub(super) const KEY_BYTES: usize = 32;
const ID_CHARACTERS: usize = 64;

/// Keys that documentation and tests are fond of; ascending and descending bytes are refused by rule.
const EXAMPLES: [&[u8; KEY_BYTES]; 4] = [
    b"0123456789abcdef0123456789abcdef",
    b"0123456789ABCDEF0123456789ABCDEF",
    b"01234567890123456789012345678901",
    b"abcdefghijklmnopqrstuvwxyz123456",
];

/// The master keys; the active one seals, the others only open.
pub struct MasterRing {
    keys: Vec<MasterKey>,
}

pub struct MasterKey {
    pub id: Box<str>,
    pub key: Secret,
    /// What was derived from it.
    pub blobs: Keys,
}

/// Why there is no ring: one line that says what to do, and never holds a key.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    #[error("secrets.master_key must be file:PATH, env:NAME or cmd:[\"PROGRAM\", \"ARGUMENT\", …]")]
    UnknownSource,
    #[error("secrets.master_key: {place}: {reason}")]
    Source { place: String, reason: String },
    #[error("secrets.master_key: {place}, line {line}: {reason}")]
    Line { place: String, line: usize, reason: &'static str },
}

impl MasterRing {
    /// Reads the ring. A missing source is an error: secrets may exist that only the missing keys can open.
    pub async fn load(source: &MasterKeySource) -> Result<Self, RingError> {
        let text = source.read().await?;
        Self::parse(&text, &source.to_string())
    }

    /// For the first start with an empty store: as [`MasterRing::load`], but a file that does not exist is created with
    /// one fresh key, readable by its owner alone. The other sources are never written to.
    pub async fn load_or_create(source: &MasterKeySource) -> Result<Self, RingError> {
        if let MasterKeySource::File(path) = source {
            match file::create(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let reason = format!("cannot create the file: {error}");
                    return Err(RingError::Source { place: source.to_string(), reason });
                }
            }
        }
        Self::load(source).await
    }

    /// The key that new secrets are sealed under.
    pub fn active(&self) -> &MasterKey {
        self.keys.first().expect("a ring without keys is not made")
    }

    pub fn get(&self, id: &str) -> Option<&MasterKey> {
        self.keys.iter().find(|key| &*key.id == id)
    }

    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| &*key.id)
    }

    /// Whether both hold the same keys under the same ids in the same order.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let same = |(one, two): (&MasterKey, &MasterKey)| {
            one.id == two.id && one.key.expose(|one| two.key.expose(|two| one == two))
        };
        self.keys.len() == other.keys.len() && self.keys.iter().zip(&other.keys).all(same)
    }

    pub(super) fn keys(&self) -> &[MasterKey] {
        &self.keys
    }

    pub(super) fn parse(text: &Secret, place: &str) -> Result<Self, RingError> {
        text.expose(|bytes| {
            let mut keys: Vec<MasterKey> = Vec::new();
            for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
                let line = line.trim_ascii();
                if line.is_empty() || line.starts_with(b"#") {
                    continue;
                }
                let refuse = |reason| RingError::Line { place: place.to_owned(), line: index + 1, reason };
                let key = parse_line(line).map_err(refuse)?;
                if keys.iter().any(|other| other.id == key.id) {
                    return Err(refuse("this id is in the ring already: give every key an id of its own"));
                }
                if keys.iter().any(|other| other.key.expose(|a| key.key.expose(|b| a == b))) {
                    return Err(refuse("this key is in the ring already under another id: remove one of the two"));
                }
                keys.push(key);
            }
            if keys.is_empty() {
                let reason = "holds no key: put one line there, an id and the output of `openssl rand -base64 32`";
                return Err(RingError::Source { place: place.to_owned(), reason: reason.to_owned() });
            }
            Ok(Self { keys })
        })
    }
}

/// Ids only.
impl fmt::Debug for MasterRing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.ids()).finish()
    }
}

fn parse_line(line: &[u8]) -> Result<MasterKey, &'static str> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (Some(id), Some(encoded), None) = (words.next(), words.next(), words.next()) else {
        return Err("is not an id and a key with a space between them");
    };
    let id = std::str::from_utf8(id).ok().filter(|id| is_id(id));
    let id = id.ok_or("the id must be 1 to 64 letters, digits, dots, dashes or underscores")?;
    let key = Secret::new(STANDARD.decode(encoded).map_err(|_| "the key is not base64")?);
    key.expose(judge)?;
    Ok(MasterKey { id: id.into(), key, blobs: Keys::default() })
}

fn is_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=ID_CHARACTERS).contains(&text.len()) && text.bytes().all(allowed)
}

/// Refuses what no random source gives: too short, nearly the same byte everywhere, counted up or down, or an example.
fn judge(key: &[u8]) -> Result<(), &'static str> {
    if key.len() != KEY_BYTES {
        return Err("the key is not 32 bytes long: make one with `openssl rand -base64 32`");
    }
    let mut distinct = key.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let few = distinct.len() < 8;
    drop(Secret::new(distinct));
    let counts = |step: u8| key.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(step));
    if few || counts(1) || counts(255) || EXAMPLES.iter().any(|example| *example == key) {
        return Err("the key is not random: make one with `openssl rand -base64 32`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_core::id;

    use super::*;

    fn ring(text: &str) -> Result<MasterRing, String> {
        MasterRing::parse(&Secret::new(text), "file:/ring").map_err(|error| error.to_string())
    }

    fn line(id: &str, key: &[u8]) -> String {
        format!("{id} {}\n", STANDARD.encode(key))
    }

    #[test]
    fn sec_3_the_first_key_is_active_and_the_others_are_found_by_id() {
        let (new, old) = (id::random::<32>(), id::random::<32>());
        let text = format!("# rotated in spring\r\n{}\n\t{}", line("2026", &new), line("2025-b", &old));
        let ring = ring(&text).unwrap();
        assert_eq!(&*ring.active().id, "2026");
        assert!(ring.active().key.expose(|key| key == new));
        assert!(ring.get("2025-b").unwrap().key.expose(|key| key == old));
        assert!(ring.get("2024").is_none());
        assert_eq!(format!("{ring:?}"), r#"["2026", "2025-b"]"#);
    }

    #[test]
    fn sec_3_weak_keys_are_refused() {
        let ascending: [u8; 32] = std::array::from_fn(|place| place as u8);
        let descending: [u8; 32] = std::array::from_fn(|place| 255 - place as u8);
        let repeated: [u8; 32] = std::array::from_fn(|place| [0xDE, 0xAD, 0xBE, 0xEF][place % 4]);
        let weak = [[0; 32], [0xA5; 32], ascending, descending, repeated, *b"0123456789abcdef0123456789abcdef"];
        for key in weak {
            let error = ring(&line("a", &key)).unwrap_err();
            assert!(error.contains("line 1: the key is not random"), "{error}");
        }
        for short in [&id::random::<31>()[..], &id::random::<33>(), &id::random::<16>(), &[]] {
            let error = ring(&line("a", short)).unwrap_err();
            assert!(error.starts_with("secrets.master_key: file:/ring, line 1: "), "{error}");
        }
    }

    #[test]
    fn sec_3_what_is_no_ring_is_refused_with_its_line() {
        let key = id::random::<32>();
        let good = line("a", &key);
        let cases = [
            (String::new(), "holds no key"),
            ("# only a remark\n\n".to_owned(), "holds no key"),
            (STANDARD.encode(key), "line 1: is not an id and a key"),
            (format!("{good}b c d"), "line 2: is not an id and a key"),
            (format!("{good}b !!!"), "line 2: the key is not base64"),
            (format!("{good}{}", line("a", &id::random::<32>())), "line 2: this id is in the ring already"),
            (format!("{good}{}", line("b", &key)), "line 2: this key is in the ring already"),
            (line("a/b", &key), "line 1: the id must be"),
            (line(&"x".repeat(65), &key), "line 1: the id must be"),
        ];
        for (text, expected) in cases {
            let error = ring(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains(&STANDARD.encode(key)) && !error.contains('\n'), "{error}");
        }
    }
}
