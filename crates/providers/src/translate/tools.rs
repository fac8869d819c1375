//! Names and ids of tools, which every protocol limits in its own way. What goes up is made from what came by rule alone,
//! so that a call and its result agree without anything being remembered; what comes back is given its old name.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use aws_lc_rs::{digest, hmac};
use serde::{Deserialize, Serialize};
use tidegate_core::id;
use tidegate_core::key::hex;

/// What an upstream accepts as the id of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum IdRule {
    #[default]
    #[serde(rename = "any")]
    Any,
    /// At most 64 of letters, digits and `_.:-`.
    #[serde(rename = "re64")]
    Plain64,
    /// At most 40 characters (OpenAI's chat).
    #[serde(rename = "max40")]
    Most40,
    /// At most 64 characters (OpenAI's Responses).
    #[serde(rename = "max64")]
    Most64,
    /// Exactly nine letters and digits (Mistral).
    #[serde(rename = "alnum9")]
    Alphanumeric9,
    /// `functions.NAME:N`, N counting the calls of the whole conversation (Kimi).
    #[serde(rename = "kimi")]
    Counted,
}

/// What an upstream accepts as the name of a tool: letters, digits, `_` and `-`, and so many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum NameRule {
    #[serde(rename = "re64")]
    Plain64,
    #[serde(rename = "re128")]
    Plain128,
    /// Also `.` and `:`; the first is a letter or `_` (Gemini).
    #[serde(rename = "gemini")]
    Dotted128,
}

impl NameRule {
    fn longest(self) -> usize {
        match self {
            Self::Plain64 => 64,
            Self::Plain128 | Self::Dotted128 => 128,
        }
    }
}

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

fn sha256(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    hash
}

/// An end user's id as a provider may see it: the same for the same salt and id, and nothing can be read from it.
pub fn user_hash(salt: &str, user: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, salt.as_bytes());
    hex(hmac::sign(&key, user.as_bytes()).as_ref())
}

/// An id as the upstream takes it.
pub fn upstream_id(id: &str, rule: IdRule) -> Cow<'_, str> {
    match rule {
        // What Kimi wants depends on the place of a call; the conversation has it by then.
        IdRule::Any | IdRule::Counted => Cow::Borrowed(id),
        IdRule::Plain64 => {
            let fits = (1..=64).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte));
            if fits { Cow::Borrowed(id) } else { Cow::Owned(hashed(id)) }
        }
        IdRule::Most40 | IdRule::Most64 => {
            let most = if rule == IdRule::Most40 { 40 } else { 64 };
            if (1..=most).contains(&id.len()) { Cow::Borrowed(id) } else { Cow::Owned(hashed(id)) }
        }
        IdRule::Alphanumeric9 => {
            let fits = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if fits { Cow::Borrowed(id) } else { Cow::Owned(nine(&sha256(id))) }
        }
    }
}

/// An id as Claude takes it: letters, digits, `_` and `-`. Nothing where it is one already.
pub fn claudes_id(id: &str) -> Option<String> {
    let fits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    (!fits).then(|| hashed(id))
}

fn hashed(id: &str) -> String {
    format!("t_{}", &hex(&sha256(id))[..24])
}

/// The hash as a number, modulo 62⁹, in base 62 with leading zeros.
fn nine(hash: &[u8; 32]) -> String {
    let modulus: u128 = 62_u128.pow(9);
    let mut rest = hash.iter().fold(0_u128, |rest, byte| (rest * 256 + u128::from(*byte)) % modulus);
    let mut text = [b'0'; 9];
    for place in text.iter_mut().rev() {
        *place = ALPHABET[(rest % 62) as usize];
        rest /= 62;
    }
    String::from_utf8(text.to_vec()).expect("made of ASCII characters")
}

/// A tool's name as the upstream takes it.
pub fn upstream_name(name: &str, rule: NameRule) -> Cow<'_, str> {
    let is_dotted = rule == NameRule::Dotted128;
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (is_dotted && b".:".contains(&byte));
    let starts = |name: &str| !is_dotted || name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let fits = !name.is_empty() && name.bytes().all(is_plain) && starts(name);
    if fits && name.len() <= rule.longest() {
        return Cow::Borrowed(name);
    }
    let mut plain: String = name
        .chars()
        .map(|character| if character.is_ascii() && is_plain(character as u8) { character } else { '_' })
        .collect();
    if plain.is_empty() || !starts(&plain) {
        plain.insert(0, '_');
    }
    if plain.len() > rule.longest() {
        plain.truncate(rule.longest() - 9);
        plain.push('_');
        plain.push_str(&hex(&sha256(name))[..8]);
    }
    Cow::Owned(plain)
}

/// What an answer's calls are named and numbered by.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The client's names by ours, where they differ.
    originals: HashMap<String, String>,
    /// Ids that stand in the conversation or in this answer already.
    taken: HashSet<String>,
}

impl Names {
    pub fn new(originals: HashMap<String, String>, taken: HashSet<String>) -> Self {
        Self { originals, taken }
    }

    /// The name under which the client knows the tool. One that was never offered stays as it is.
    pub fn original<'a>(&'a self, name: &'a str) -> &'a str {
        self.originals.get(name).map_or(name, String::as_str)
    }

    /// The id of a new call: the upstream's, unless clients could not use it or it was used before.
    pub fn id(&mut self, given: Option<&str>) -> String {
        let fits = |id: &&str| {
            (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        let id = match given.filter(fits).filter(|id| !self.taken.contains(*id)) {
            Some(id) => id.to_owned(),
            None => minted(),
        };
        self.taken.insert(id.clone());
        id
    }
}

impl Names {
    /// The id of a call that the upstream ran itself.
    pub fn server_id(&mut self) -> String {
        self.id(None).replacen("toolu_", "srvtoolu_", 1)
    }
}

/// `toolu_` and 22 base62 characters of a random value.
fn minted() -> String {
    let mut rest = u128::from_be_bytes(id::random());
    let mut text = [b'0'; 22];
    for place in text.iter_mut().rev() {
        *place = ALPHABET[(rest % 62) as usize];
        rest /= 62;
    }
    format!("toolu_{}", std::str::from_utf8(&text).expect("made of ASCII characters"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p42_ids_follow_the_rule_of_the_upstream_and_the_published_vectors() {
        assert_eq!(upstream_id("toolu_a1", IdRule::Alphanumeric9), "IEGQnM3xR");
        assert_eq!(upstream_id("toolu_a1", IdRule::Any), "toolu_a1");
        assert_eq!(upstream_id("toolu_a1", IdRule::Plain64), "toolu_a1");
        assert_eq!(upstream_id("abcDEF123", IdRule::Alphanumeric9), "abcDEF123");
        let odd = "toolu a1";
        assert!(upstream_id(odd, IdRule::Plain64).starts_with("t_"));
        let of_vllm = "chatcmpl-tool-0123456789abcdef0123456789abcdef";
        assert_eq!(upstream_id(of_vllm, IdRule::Most40).len(), 26);
        assert_eq!(upstream_id(of_vllm, IdRule::Most64), of_vllm);
        assert_eq!(upstream_id("functions.f:0", IdRule::Most40), "functions.f:0");
        assert!(upstream_id(&"x".repeat(65), IdRule::Most64).starts_with("t_"));
        assert_eq!(claudes_id("toolu_a1"), None);
        assert!(claudes_id("functions.f:0").is_some_and(|id| claudes_id(&id).is_none()));
        assert_eq!(hex(&sha256("toolu_a1"))[..24], *"9e7d6ec4c9289913f4bccf37");
    }

    #[test]
    fn a_user_is_hashed_as_published() {
        let published = "b3ce8c8170450400f9b548abb4bc626557357a61286e93aaa5fa04e33613f06b";
        assert_eq!(user_hash("s-demo", "u-77"), published);
    }

    #[test]
    fn p44_long_names_are_shortened_by_rule_and_restored() {
        let long = "mcp__harbour_operations_and_planning__list_candidate_berths_for_vessel_v2";
        let short = "mcp__harbour_operations_and_planning__list_candidate_be_b2e89b3c";
        assert_eq!(upstream_name(long, NameRule::Plain64), short);
        assert_eq!(upstream_name(long, NameRule::Plain128), long);
        assert_eq!(upstream_name("a.b/c d", NameRule::Plain64), "a_b_c_d");
        let names = Names::new(HashMap::from([(short.to_owned(), long.to_owned())]), HashSet::new());
        assert_eq!((names.original(short), names.original("other")), (long, "other"));
    }

    #[test]
    fn p43_an_id_is_used_once() {
        let mut names = Names::new(HashMap::new(), HashSet::from(["tide_at:0".to_owned(), "call_1".to_owned()]));
        let first = names.id(Some("call_1"));
        assert!(first.starts_with("toolu_") && first.len() == 28, "{first}");
        assert_eq!(names.id(Some("call_2")), "call_2");
        assert!(names.id(Some("call_2")).starts_with("toolu_"), "not twice in one answer either");
        assert!(names.id(Some("tide_at:0")).starts_with("toolu_") && names.id(None).starts_with("toolu_"));
    }
}
