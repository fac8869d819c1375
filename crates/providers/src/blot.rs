//! What an upstream says of a failure, without the credential that it was called with: some repeat it. The call knows its
//! credential, so nothing is guessed here; what only looks like a key is [`fault`](crate::fault)'s affair.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use zeroize::Zeroizing;

use crate::credential::Credential;
use crate::fault::{Fault, REMOVED};

/// Shorter ones are taken out only where they are words of their own: they are parts of others.
const LONG: usize = 8;
/// Even shorter ones protect nothing, and stand everywhere.
const SHORTEST: usize = 4;

/// What a call is authorised with.
pub struct Used {
    pub credential: Credential,
    /// What the credential was exchanged for.
    pub token: Option<HeaderValue>,
}

type Text = Zeroizing<String>;

impl Used {
    /// The failure as it may be told.
    pub fn blot(&self, fault: Fault) -> Fault {
        if fault.message.is_none() && fault.code.is_none() && fault.details.is_none() {
            return fault;
        }
        let secrets = self.secrets();
        let forms: Vec<Text> = secrets.iter().flat_map(|secret| forms(secret)).collect();
        let is_clean = |text: &str| forms.iter().all(|form| places(text, form).next().is_none());
        // Some of its characters may be written in other ways, those within others.
        let is_plain = |text: &str| {
            let once = unescaped(text);
            is_clean(&once) && is_clean(&unescaped(&once))
        };
        let told = |message| forms.iter().fold(message, |text, form| blotted(text, form));
        Fault {
            message: fault.message.map(told).filter(|message| is_plain(message)),
            code: fault.code.filter(|code| is_clean(code)),
            // In JSON a part cannot simply be blotted out.
            details: fault.details.filter(|details| is_clean(details) && is_plain(details)),
            ..fault
        }
    }

    fn secrets(&self) -> Vec<Text> {
        let mut found = Vec::new();
        let mut add = |bytes: &[u8]| {
            let text = Zeroizing::new(String::from_utf8_lossy(bytes).into_owned());
            // A key of several lines is repeated line by line, if at all.
            found.extend(text.lines().map(|line| Zeroizing::new(line.trim().to_owned())));
        };
        let carried = |value: &HeaderValue| {
            let bytes = value.as_bytes();
            bytes.strip_prefix(b"Bearer ").unwrap_or(bytes).to_vec()
        };
        match &self.credential {
            Credential::Key(_, value) => add(&carried(value)),
            Credential::Aws(keys) => {
                add(keys.id.as_bytes());
                keys.secret.expose(&mut add);
                if let Some(token) = &keys.token {
                    token.expose(&mut add);
                }
            }
            Credential::Google(account) => {
                add(account.key_id.as_bytes());
                account.private_key.expose(&mut add);
            }
            Credential::Azure(_, entries) => entries.iter().for_each(|entry| add(&carried(&entry.key))),
        }
        if let Some(token) = &self.token {
            add(&carried(token));
        }
        found.retain(|secret| secret.len() >= SHORTEST && !secret.starts_with("-----"));
        found
    }
}

/// The ways in which a secret is written: as it is, as part of an address, and in base64, alone or behind something.
fn forms(secret: &str) -> Vec<Text> {
    let mut forms = vec![secret.to_owned()];
    if secret.bytes().any(|byte| !is_unreserved(byte)) {
        forms.push(percent_encoded(secret));
    }
    if secret.len() >= LONG {
        for before in 0..3 {
            let padded = Zeroizing::new([&[0; 2][..before], secret.as_bytes()].concat());
            // Only the characters that depend on nothing else.
            let (first, last) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
            for encoded in [STANDARD_NO_PAD.encode(&*padded), URL_SAFE_NO_PAD.encode(&*padded)] {
                forms.push(encoded[first..last].to_owned());
            }
        }
    }
    forms.into_iter().map(Zeroizing::new).collect()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match is_unreserved(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// A text with the characters that addresses, JSON and HTML write in other ways: `%2b`, `\u002b`, `\/`, `&#43;`, `&#x2b;`.
fn unescaped(text: &str) -> Text {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let found = match first {
            '%' => hex(rest.get(1..3)).map(|code| (code, 3)),
            '\\' => match rest.strip_prefix("\\u") {
                Some(digits) => hex(digits.get(..4)).map(|code| (code, 6)),
                None => rest[1..].chars().next().map(|c| (c.into(), 1 + c.len_utf8())),
            },
            '&' => entity(rest),
            _ => None,
        };
        let (code, length) = found.unwrap_or_else(|| (first.into(), first.len_utf8()));
        // The bytes of an address are those of the text; halves of a pair stand for nothing that a secret has.
        match (first, u8::try_from(code)) {
            ('%', Ok(byte)) => out.push(byte),
            _ => {
                let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        rest = &rest[length..];
    }
    Zeroizing::new(String::from_utf8_lossy(&out).into_owned())
}

fn hex(digits: Option<&str>) -> Option<u32> {
    digits.and_then(|digits| u32::from_str_radix(digits, 16).ok())
}

/// A character that HTML writes by its number or by a name, and the length of that.
fn entity(text: &str) -> Option<(u32, usize)> {
    let (name, _) = text[1..].split_once(';').filter(|(name, _)| name.len() <= 8)?;
    let code = match name {
        "amp" => '&'.into(),
        "plus" => '+'.into(),
        "equals" => '='.into(),
        "sol" => '/'.into(),
        name => match name.strip_prefix("#x").or_else(|| name.strip_prefix("#X")) {
            Some(digits) => hex(Some(digits))?,
            None => name.strip_prefix('#')?.parse().ok()?,
        },
    };
    Some((code, name.len() + 2))
}

/// Where a secret stands in a text.
fn places<'a>(text: &'a str, secret: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_apart = move |place: usize| {
        let around = [text[..place].chars().next_back(), text[place + secret.len()..].chars().next()];
        around.into_iter().flatten().all(|c| !c.is_alphanumeric())
    };
    text.match_indices(secret).map(|(place, _)| place).filter(move |place| secret.len() >= LONG || is_apart(*place))
}

fn blotted(text: String, secret: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for place in places(&text, secret) {
        out.push_str(&text[from..place]);
        out.push_str(REMOVED);
        from = place + secret.len();
    }
    out.push_str(&text[from..]);
    // The text may have been cut in the middle of it.
    let begun = (SHORTEST..secret.len())
        .rev()
        .find(|length| secret.is_char_boundary(*length) && out.ends_with(&secret[..*length]));
    if let Some(length) = begun {
        out.truncate(out.len() - length);
        out.push_str(REMOVED);
    }
    out
}

#[cfg(test)]
mod tests {
    use tidegate_core::Secret;

    use super::*;
    use crate::fault::Class;
    use crate::platform::Auth;

    fn used(auth: Auth, secret: &str) -> Used {
        Used { credential: Credential::read(auth, &Secret::new(secret)).unwrap(), token: None }
    }

    fn told(used: &Used, message: &str) -> String {
        let fault = Fault { message: Some(message.to_owned()), ..Fault::in_answer(Class::Server) };
        used.blot(fault).message.unwrap()
    }

    #[test]
    fn a_key_is_taken_out_whatever_it_looks_like() {
        for key in [
            "plain-operators-own-key-42",
            "0123456789abcdef0123456789abcdef",
            "123e4567-e89b-12d3-a456-426614174000",
            "house/key+42=",
            "pa$s",
        ] {
            for auth in [Auth::ApiKey, Auth::Bearer] {
                let used = used(auth, key);
                assert_eq!(told(&used, &format!("bad key {key}, or '{key}'")), "bad key [removed], or '[removed]'");
                assert_eq!(told(&used, &format!("bad key {}", percent_encoded(key))), "bad key [removed]", "{key}");
            }
        }
        let key = used(Auth::ApiKey, "plain-operators-own-key-42");
        for encoded in [
            STANDARD_NO_PAD.encode("plain-operators-own-key-42"),
            STANDARD_NO_PAD.encode("u:plain-operators-own-key-42"),
        ] {
            let text = told(&key, &format!("Basic {encoded}"));
            assert!(text.contains(REMOVED) && text.len() < 24, "{text}");
        }
        assert_eq!(told(&key, "cut at plain-operators-o"), "cut at [removed]");
        assert_eq!(told(&used(Auth::ApiKey, "test"), "no test of the latest"), "no [removed] of the latest");
    }

    #[test]
    fn every_part_of_a_secret_is_taken_out() {
        let aws = used(
            Auth::Aws,
            r#"{"accessKeyId":"own-id-1234","secretAccessKey":"own-secret","sessionToken":"own-token"}"#,
        );
        assert_eq!(told(&aws, "own-id-1234 own-secret own-token"), "[removed] [removed] [removed]");
        let azure = r#"[{"api_key":"first-key","resource_name":"r"},{"api_key":"second-key","resource_name":"s"}]"#;
        assert_eq!(told(&used(Auth::AzureKey, azure), "first-key second-key"), "[removed] [removed]");
        let google = r#"{"project_id":"p","private_key_id":"own-key-id","client_email":"e",
            "private_key":"-----BEGIN PRIVATE KEY-----\nfirst+line\nlast/line\n-----END PRIVATE KEY-----\n"}"#;
        let token = crate::credential::bearer(&Secret::new("own-token"));
        let google = Used { token, ..used(Auth::Google, google) };
        assert_eq!(
            told(&google, "own-key-id first+line last/line own-token"),
            "[removed] [removed] [removed] [removed]"
        );
    }

    #[test]
    fn a_key_in_another_spelling_is_not_told_either() {
        let used = used(Auth::ApiKey, "aZ3k+Qw9/rT5y==");
        for text in [
            "bad key aZ3k%2bQw9%2frT5y%3d%3d",
            "bad key aZ3k&#43;Qw9/rT5y&#61;&#x3D;",
            "bad key aZ3k&plus;Qw9&sol;rT5y&equals;=",
            "bad key aZ3k\\u002BQw9\\/rT5y\\u003D\\u003d",
            "bad key aZ3k%252BQw9%252FrT5y%253D%253D",
        ] {
            let fault = Fault { message: Some(text.to_owned()), ..Fault::in_answer(Class::Server) };
            assert_eq!(used.blot(fault).message, None, "{text}");
            let details = Some(format!("{{\"key\":\"{text}\"}}"));
            let fault = Fault { details, ..Fault::in_answer(Class::Server) };
            assert_eq!(used.blot(fault).details, None, "{text}");
        }
        let harmless = "100% of it & more; \\u00zz \\ %zz &#; &nothing; é%c3%a9 \\";
        assert_eq!(told(&used, harmless), harmless);
        assert_eq!(&*unescaped("é%c3%a9 &#233; \\u00e9 &#xd800;"), "éé é é \u{fffd}");
    }

    #[test]
    fn codes_and_details_that_hold_it_are_left_out() {
        let used = used(Auth::ApiKey, "house/key-42");
        let fault = |code: &str, details: &str| Fault {
            code: Some(code.to_owned()),
            details: Some(details.to_owned()),
            ..Fault::in_answer(Class::Server)
        };
        let told = used.blot(fault("bad-house/key-42", r#"{"key":"house\/key-42"}"#));
        assert_eq!((told.code, told.details), (None, None));
        let harmless = fault("bad_key", r#"{"key":"another"}"#);
        assert_eq!(used.blot(harmless.clone()), harmless);
    }
}
