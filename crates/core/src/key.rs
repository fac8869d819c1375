//! Keys we issue: their form, their hash and their label. The raw key exists once, in the answer that creates it.

use std::fmt;

use aws_lc_rs::digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id;
use crate::secret::Secret;

const RANDOM_CHARACTERS: usize = 43; // 32 bytes in base62
const CHECK_CHARACTERS: usize = 6; // a CRC-32 in base62

/// What a key may do. The stored row decides; the prefix of the key never grants anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    Inference,
    Management,
}

impl KeyKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Management => "management",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "inference" => Some(Self::Inference),
            "management" => Some(Self::Management),
            _ => None,
        }
    }
}

/// SHA-256 of the whole key string: how keys are stored, looked up and named in public.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    pub fn of(token: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, token).as_ref());
        Self(hash)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 lower-case hexadecimal characters, as in the public interface.
    pub fn to_hex(self) -> String {
        self.shown(str::to_owned)
    }

    /// The same as bytes, for those who write them into something.
    pub fn hex_digits(&self) -> [[u8; 2]; 32] {
        hex_digits(&self.0)
    }

    fn shown<T>(&self, to: impl FnOnce(&str) -> T) -> T {
        to(std::str::from_utf8(self.hex_digits().as_flattened()).expect("made of ASCII characters"))
    }

    /// Equality that takes the same time wherever the two differ.
    pub fn is(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }

    /// A number for those who know keys by numbers: the first 13 hexadecimal digits, which every JSON reader holds exactly.
    pub fn number(&self) -> i64 {
        self.0[..7].iter().fold(0, |number, byte| (number << 8) | i64::from(*byte)) >> 4
    }

    pub fn parse(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let value = |digit: u8| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            };
            *byte = (value(pair[0])? << 4) | value(pair[1])?;
        }
        Some(Self(hash))
    }
}

/// Two lower-case hexadecimal characters for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<[u8; 2]> = bytes.iter().copied().map(pair).collect();
    String::from_utf8(pairs.into_flattened()).expect("made of ASCII characters")
}

/// The same of as many bytes as are known beforehand, without a text of their own.
pub fn hex_digits<const N: usize>(bytes: &[u8; N]) -> [[u8; 2]; N] {
    bytes.map(pair)
}

/// Computed, not looked up: so many are made in one step.
fn pair(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| digit + if digit < 10 { b'0' } else { b'a' - 10 })
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shown(|text| serializer.serialize_str(text))
    }
}

impl<'de> Deserialize<'de> for KeyHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not the hash of a key"))
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown(|text| out.write_str(text))
    }
}

/// Only the first eight characters: enough to find a key in a log, too little to look one up.
impl fmt::Debug for KeyHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown(|text| write!(out, "{}…", &text[..8]))
    }
}

/// A new key: `prefix`, 43 base62 characters of 32 random bytes, 6 base62 characters of CRC-32 over all before them.
pub fn generate(prefix: &str) -> Secret {
    let mut text = unguessable(prefix);
    let check = check_characters(&text);
    text.extend_from_slice(&check);
    Secret::new(text)
}

/// A new authorization code: `auth_code_` and 43 base62 characters of 32 random bytes.
pub fn authorization_code() -> Secret {
    Secret::new(unguessable("auth_code_"))
}

/// With room for a checksum, so that growing leaves no copy behind.
fn unguessable(prefix: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(prefix.len() + RANDOM_CHARACTERS + CHECK_CHARACTERS);
    text.extend_from_slice(prefix.as_bytes());
    text.resize(prefix.len() + RANDOM_CHARACTERS, 0);
    id::base62(id::random::<32>().to_vec(), &mut text[prefix.len()..]);
    text
}

/// Whether `token` begins like a key of ours and yet cannot have been made under any of `prefixes`, so that the store
/// need not be asked. One prefix may begin another: what one of them explains is well formed.
/// Keys without our prefix (imported ones) are not judged by their form.
pub fn is_malformed<P: AsRef<str>>(token: &[u8], prefixes: &[P]) -> bool {
    let mut begins_like_ours = false;
    for prefix in prefixes {
        let Some(rest) = token.strip_prefix(prefix.as_ref().as_bytes()) else { continue };
        begins_like_ours = true;
        if rest.len() == RANDOM_CHARACTERS + CHECK_CHARACTERS && id::is_base62(rest) {
            let (body, check) = token.split_at(token.len() - CHECK_CHARACTERS);
            if check == check_characters(body) {
                return false;
            }
        }
    }
    begins_like_ours
}

/// What may be shown of a key: its prefix, the first three and the last four characters.
pub fn label(token: &str, prefix: &str) -> String {
    let rest = token.strip_prefix(prefix).unwrap_or(token);
    let shown = if rest.len() == token.len() { "" } else { prefix };
    if rest.len() < 16 || !rest.is_ascii() {
        return format!("{shown}***");
    }
    format!("{shown}{}...{}", &rest[..3], &rest[rest.len() - 4..])
}

fn check_characters(body: &[u8]) -> [u8; CHECK_CHARACTERS] {
    let mut out = [0; CHECK_CHARACTERS];
    id::base62(crc32fast::hash(body).to_be_bytes().to_vec(), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PREFIX: &str = "sk-tg-v1-";

    fn key() -> String {
        generate(PREFIX).expose(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn key_1_a_new_key_has_the_documented_form() {
        let key = key();
        assert_eq!(key.len(), PREFIX.len() + 43 + 6);
        assert!(!is_malformed(key.as_bytes(), &[PREFIX]));
    }

    #[test]
    fn key_2_the_hash_is_sha_256_in_lower_case_hex() {
        // The test vector of FIPS 180-2 for "abc".
        let hash = KeyHash::of(b"abc");
        assert_eq!(hash.to_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(KeyHash::parse(&hash.to_hex()), Some(hash));
        assert_eq!(KeyHash::parse(&hash.to_hex().to_uppercase()), None);
        assert_eq!((hash.to_string(), hex(&hash.0)), (hash.to_hex(), hash.to_hex()));
        assert_eq!(
            (hash.hex_digits().as_flattened(), format!("{hash:?}")),
            (hash.to_hex().as_bytes(), "ba7816bf…".into())
        );
    }

    #[test]
    fn the_number_of_a_key_is_the_beginning_of_its_hash() {
        assert_eq!(KeyHash::of(b"abc").number(), 0x000b_a781_6bf8_f01c);
        assert!(KeyHash([255; 32]).number() < 1 << 52);
    }

    #[test]
    fn a_key_of_another_form_is_left_to_the_look_up() {
        assert!(!is_malformed(b"imported-key", &[PREFIX]));
    }

    #[test]
    fn key_1_one_prefix_may_begin_another() {
        let prefixes = ["sk-acme-", "sk-acme-m-", "sk-acme"];
        for prefix in prefixes {
            let key = generate(prefix).expose(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
            assert!(!is_malformed(key.as_bytes(), &prefixes), "{prefix}");
            assert!(is_malformed(&key.as_bytes()[..key.len() - 1], &prefixes), "{prefix}");
        }
    }

    #[test]
    fn sec_7_a_label_shows_three_and_four_characters() {
        let key = key();
        let label = label(&key, PREFIX);
        assert_eq!(label, format!("{PREFIX}{}...{}", &key[9..12], &key[key.len() - 4..]));
        assert_eq!(super::label("short", PREFIX), "***");
        assert_eq!(super::label("0123456789abcdef", PREFIX), "012...cdef");
    }

    proptest! {
        #[test]
        fn key_1_a_changed_character_breaks_the_checksum(place in 0_usize..49, change in 1_u8..62) {
            let mut token = key().into_bytes();
            let at = PREFIX.len() + place;
            let alphabet = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
            let old = alphabet.iter().position(|c| *c == token[at]).unwrap();
            token[at] = alphabet[(old + usize::from(change)) % 62];
            prop_assert!(is_malformed(&token, &[PREFIX]));
        }
    }
}
