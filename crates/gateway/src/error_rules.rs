//! What an operator knows of a provider's errors, in place of what is known of them otherwise.

use regex::Regex;
use tidegate_core::Timestamp;
use tidegate_providers::fault::{self, Class, Fault};

use crate::snapshot::Upstream;

/// The types that an error can be said to be.
const TYPES: [(&str, Class); 13] = [
    ("context_length_exceeded", Class::ContextLength),
    ("authentication", Class::Credential),
    ("permission_denied", Class::Credential),
    ("payment_required", Class::Billing),
    ("rate_limit_exceeded", Class::RateLimit),
    ("provider_overloaded", Class::Overloaded),
    ("provider_unavailable", Class::Server),
    ("invalid_request", Class::InvalidRequest),
    ("not_found", Class::NotFound),
    ("payload_too_large", Class::TooLarge),
    ("content_policy_violation", Class::ContentFilter),
    ("timeout", Class::Timeout),
    ("server", Class::Server),
];

/// An answer with this status, with these words in it, is an error of this kind.
#[derive(Clone, Debug)]
pub struct ErrorRule {
    status: Option<u16>,
    pattern: Option<Regex>,
    class: Class,
}

impl ErrorRule {
    /// What is wrong with it comes with the name of its member.
    pub fn new(status: Option<u16>, pattern: Option<&str>, error_type: &str) -> Result<Self, (&'static str, String)> {
        if status.is_none() && pattern.is_none() {
            return Err(("status", "give a status, a pattern, or both".to_owned()));
        }
        if status.is_some_and(|status| !(201..=599).contains(&status)) {
            return Err(("status", "must be from 201 to 599".to_owned()));
        }
        let pattern = pattern.map(Regex::new).transpose().map_err(|error| ("pattern", error.to_string()))?;
        let found = TYPES.iter().find(|(name, _)| *name == error_type);
        let (_, class) = found.ok_or_else(|| {
            let names: Vec<&str> = Self::types().collect();
            ("error_type", format!("{error_type:?} is none of {}", names.join(", ")))
        })?;
        Ok(Self { status, pattern, class: *class })
    }

    pub fn types() -> impl Iterator<Item = &'static str> {
        TYPES.iter().map(|(name, _)| *name)
    }

    fn fits(&self, status: u16, body: &str) -> bool {
        self.status.is_none_or(|wanted| wanted == status)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(body))
    }
}

/// What an error answer of an upstream means: what the operator says of it, else what is known of such answers.
pub(crate) fn classify(upstream: &Upstream, head: &http::response::Parts, body: &[u8], now: Timestamp) -> Fault {
    let mut fault = fault::classify(head.status, &head.headers, body, now);
    if let Some(class) = ruled(&upstream.error_rules, fault.status, body) {
        fault.class = class;
    }
    fault
}

fn ruled(rules: &[ErrorRule], status: u16, body: &[u8]) -> Option<Class> {
    if rules.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(body);
    rules.iter().find(|rule| rule.fits(status, &text)).map(|rule| rule.class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rule = |status, pattern, kind| ErrorRule::new(status, pattern, kind).unwrap();
        let rules = [
            rule(Some(400), Some("(?i)quota"), "rate_limit_exceeded"),
            rule(Some(400), None, "context_length_exceeded"),
            rule(None, Some("maintenance"), "provider_overloaded"),
        ];
        for (status, body, class) in [
            (400, "Your Quota is used up", Some(Class::RateLimit)),
            (400, "maintenance", Some(Class::ContextLength)),
            (404, "down for maintenance", Some(Class::Overloaded)),
            (404, "quota", None),
        ] {
            assert_eq!(ruled(&rules, status, body.as_bytes()), class, "{status} {body}");
        }
        assert_eq!(ruled(&[], 400, b"quota"), None);
    }

    #[test]
    fn mistakes_are_named() {
        for (status, pattern, kind, member) in [
            (None, None, "timeout", "status"),
            (Some(200), None, "timeout", "status"),
            (None, Some("("), "timeout", "pattern"),
            (Some(400), None, "late", "error_type"),
        ] {
            assert_eq!(ErrorRule::new(status, pattern, kind).unwrap_err().0, member);
        }
    }
}
