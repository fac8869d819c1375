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

/// How keys of common providers and services begin: what texts of others and lines of the log are searched for. Only a
/// guess; who knows the key itself looks for that.
pub const KEY_STARTS: [&str; 21] = [
    "sk-",
    "sk_",
    "key-",
    "AIza",
    "ya29.",
    "gsk_",
    "xai-",
    "r8_",
    "hf_",
    "fw_",
    "tgp_v1_",
    "pplx-",
    "nvapi-",
    "csk-",
    "jina_",
    "tvly-",
    "ghp_",
    "github_pat_",
    "glsa_",
    "lsv2_",
    "xoxb-",
];

/// How ids of Amazon's access keys begin; 16 capitals and digits follow.
pub const ACCESS_KEY_STARTS: [&str; 2] = ["AKIA", "ASIA"];

pub fn is_access_key_id(word: &str) -> bool {
    let rest = ACCESS_KEY_STARTS.iter().find_map(|start| word.strip_prefix(start));
    rest.is_some_and(|rest| {
        rest.len() == 16 && rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
    })
}
