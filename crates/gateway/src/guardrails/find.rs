//! What the built-in filters find in a text. Pure functions; every pattern is matched in linear time.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Number;
use tidegate_store::guardrails::Builtin;

use super::injection;

/// Digits of a telephone number, by ITU-T E.164 and the shortest that are in use with an area code.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 8..=15;

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of our own")
}

static EMAIL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[A-Za-z0-9._%+'-]+@(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,}"));
static PHONE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?:\+\d{1,3}[ .\-/]?|\b00\d{1,3}[ .\-/])?(?:\(\d{1,5}\)[ .\-/]?|\b\d{2,5}[ .\-/])\d{2,5}(?:[ .\-/]\d{2,5}){0,4}|\+\d{8,15}",
    )
});
static SSN: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(\d{3})-(\d{2})-(\d{4})\b"));
static CARD: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b\d(?:[ -]?\d){12,18}\b"));
static IPV4: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"));
static IPV6: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[0-9A-Fa-f:]{2,}(?::[0-9A-Fa-f]{0,4}|\d{1,3}(?:\.\d{1,3}){3})"));
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        // Keys of model providers and payment services, of this gateway too.
        r"\b(?:sk|pk|rk)-(?:[A-Za-z0-9]+-)*[A-Za-z0-9_-]{20,}|\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",
        // AWS, Google, GitHub, GitLab, Slack, Hugging Face.
        r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}|\bgh[pousr]_[A-Za-z0-9]{36,}|\bgithub_pat_[A-Za-z0-9_]{40,}",
        r"|\bglpat-[A-Za-z0-9_-]{20,}|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bhf_[A-Za-z0-9]{30,}",
        // Signed tokens and private keys.
        r"|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
        r"|-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----(?s:.*?)(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----|$)",
    ))
});

/// Where a text holds something of a kind, in order and without overlaps.
pub fn find(builtin: Builtin, text: &str) -> Vec<Range<usize>> {
    match builtin {
        Builtin::Email => all(&EMAIL, text, |_| true),
        Builtin::Phone => all(&PHONE, text, |found| is_phone(text, found)),
        Builtin::Ssn => all(&SSN, text, |found| is_ssn(&text[found.clone()])),
        Builtin::CreditCard => all(&CARD, text, |found| is_card(&text[found.clone()]) && !is_fraction(text, found)),
        Builtin::IpAddress => {
            let mut found = all(&IPV4, text, |found| text[found.clone()].parse::<Ipv4Addr>().is_ok());
            found.extend(all(&IPV6, text, |found| text[found.clone()].parse::<Ipv6Addr>().is_ok()));
            found.sort_by_key(|found| found.start);
            found
        }
        Builtin::Secret => all(&SECRET, text, |_| true),
        Builtin::RegexPromptInjection => injection::find(text).into_iter().map(|(found, _)| found).collect(),
    }
}

fn all(pattern: &Regex, text: &str, is: impl Fn(&Range<usize>) -> bool) -> Vec<Range<usize>> {
    pattern.find_iter(text).map(|found| found.range()).filter(|found| is(found)).collect()
}

/// As many digits as a number has, and not part of a longer one.
fn is_phone(text: &str, found: &Range<usize>) -> bool {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let digits = bytes[found.clone()].iter().filter(|byte| byte.is_ascii_digit()).count();
    let before = found.start.checked_sub(1).and_then(|place| bytes.get(place));
    let said = &text[found.clone()];
    // A date is no number to call, and neither is an address.
    let is_date = said.len() == 10 && said.split(['-', '/', '.']).map(str::len).eq([4, 2, 2]);
    let is_address = said.split('.').count() == 4 && said.parse::<Ipv4Addr>().is_ok();
    PHONE_DIGITS.contains(&digits)
        && !is_digit(before)
        && !is_digit(bytes.get(found.end))
        && !is_date
        && !is_address
        && !is_decimal(said)
        && (said.starts_with('+') || !is_card(said))
        && !is_ssn(said)
}

/// Numbers that were never given out are none.
fn is_ssn(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [area, group, serial] = parts[..] else { return false };
    [area.len(), group.len(), serial.len()] == [3, 2, 4]
        && !matches!(area, "000" | "666")
        && !area.starts_with('9')
        && group != "00"
        && serial != "0000"
}

/// A number with a point in it; those to call have none, or several, or begin with a zero.
fn is_decimal(text: &str) -> bool {
    let is_whole = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    !text.starts_with('0') && text.split_once('.').is_some_and(|(whole, rest)| is_whole(whole) && is_whole(rest))
}

/// Whether digits in one row stand behind the point of a number.
fn is_fraction(text: &str, found: &Range<usize>) -> bool {
    let is_row = text.as_bytes()[found.clone()].iter().all(u8::is_ascii_digit);
    let before = text[..found.start].strip_suffix('.').and_then(|before| before.bytes().last());
    is_row && before.is_some_and(|byte| byte.is_ascii_digit())
}

/// Whether a number may be that of a card, which is found out in a moment: none with so many digits as the time in
/// milliseconds has is in use.
pub fn may_be_card(number: &Number) -> bool {
    const DIGITS: Range<u64> = 10_u64.pow(13)..10_u64.pow(19);
    // Up to here every number without a fraction is one of its own.
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 2_f64.powi(53));
    let integer = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
    integer.or_else(|| float().map(|float| float.abs() as u64)).is_some_and(|integer| DIGITS.contains(&integer))
}

/// Who gives out cards: those with these digits in front.
fn is_issued(digits: &[u32]) -> bool {
    let front = digits.iter().take(4).fold(0, |front, digit| front * 10 + digit);
    matches!(front, 2221..=2720 | 3000..=6999)
}

/// The check digit that all cards have, behind the digits of an issuer.
fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|each| each.to_digit(10)).collect();
    if !(13..=19).contains(&digits.len()) || !is_issued(&digits) {
        return false;
    }
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (place % 2, digit * 2) {
            (0, _) => *digit,
            (_, twice) if twice > 9 => twice - 9,
            (_, twice) => twice,
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(builtin: Builtin, text: &str) -> Vec<&str> {
        find(builtin, text).into_iter().map(|found| &text[found]).collect()
    }

    #[test]
    fn each_kind_is_found_and_what_only_looks_like_it_is_not() {
        use Builtin::{CreditCard, Email, IpAddress, Phone, Secret, Ssn};
        let table: &[(Builtin, &str, &[&str])] = &[
            (Email, "write to Ann.Lee+x@mail.example.org, please", &["Ann.Lee+x@mail.example.org"]),
            (Email, "a@b, @handle, me@localhost", &[]),
            (Phone, "call +1 (415) 555-2671 or 030 1234 5678.", &["+1 (415) 555-2671", "030 1234 5678"]),
            (Phone, "+4915112345678", &["+4915112345678"]),
            (Phone, "on 2026-11-16 we sold 1 234 567 of 10.0.0.1", &[]),
            (Phone, "order 12345678901234567890", &[]),
            (Ssn, "078-05-1120 and 000-12-3456, 666-12-3456, 912-34-5678, 123-00-4567", &["078-05-1120"]),
            (CreditCard, "4111 1111 1111 1111, 4111-1111-1111-1112", &["4111 1111 1111 1111"]),
            (CreditCard, "378282246310005", &["378282246310005"]),
            (CreditCard, "0000000000000000", &[]),
            (
                CreditCard,
                "2221000000000009, 2720990000000007, 2721000000000004",
                &["2221000000000009", "2720990000000007"],
            ),
            (CreditCard, "0.8474337369372327 and 0.4111111111111111, since 1700000000004", &[]),
            (
                CreditCard,
                "Card no.4111111111111111. Or 2.4111 1111 1111 1111",
                &["4111111111111111", "4111 1111 1111 1111"],
            ),
            (Phone, "at 37.77493,-122.41942 for 1234.5678", &[]),
            (Phone, "0341.12345 or 415.555.2671", &["0341.12345", "415.555.2671"]),
            (IpAddress, "from 10.1.2.3 and 2001:db8::1, not 300.1.2.3 or 12:30:45", &["10.1.2.3", "2001:db8::1"]),
            (Secret, "key sk-ant-api03-abcdefghijklmnopqrstuvwx done", &["sk-ant-api03-abcdefghijklmnopqrstuvwx"]),
            (Secret, "AKIAIOSFODNN7EXAMPLE", &["AKIAIOSFODNN7EXAMPLE"]),
            (Secret, "a sk-8 ski and task-oriented-programming", &[]),
        ];
        for (builtin, text, expected) in table {
            assert_eq!(found(*builtin, text), *expected, "{builtin:?} {text}");
        }
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----";
        assert_eq!(found(Secret, &format!("x {key} y")), [key]);
    }
}
