//! Whether a code becomes a key: one decision over what is stored and what was sent, in a fixed order.

use tidegate_core::Timestamp;
use tidegate_store::auth_codes::{Challenge, Known, Method};

use super::pkce;

/// What was sent besides the code.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent<'a> {
    pub verifier: Option<&'a str>,
    pub method: Option<Method>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Good,
    /// Not known, burned or revoked.
    Unknown,
    /// It was used before. `proven`: whoever sends it again holds all that the first one did.
    Replayed {
        proven: bool,
    },
    Expired,
    /// A method was given that is not the stored one.
    OtherMethod,
    /// A verifier came although the code has no challenge: somebody may have taken it out on the way (RFC 9700).
    Downgraded,
    /// The verifier is missing.
    Unproven,
    /// The verifier is wrong: this counts.
    Wrong,
}

/// The same work is done whether the code is known or not, so that the time an answer takes tells nothing.
pub fn judge(code: Option<&Known>, sent: Sent<'_>, now: Timestamp) -> Verdict {
    let nobody = Challenge { method: Method::S256, value: "A".repeat(43) };
    let challenge = code.and_then(|code| code.challenge.as_ref());
    let matches = pkce::matches(challenge.unwrap_or(&nobody), sent.verifier.unwrap_or_default());
    let Some(code) = code.filter(|code| !code.is_burned) else { return Verdict::Unknown };
    if code.used.is_some() {
        let proven = match challenge {
            Some(_) => matches && sent.verifier.is_some(),
            None => sent.verifier.is_none(),
        };
        return Verdict::Replayed { proven };
    }
    if code.expires <= now {
        return Verdict::Expired;
    }
    if sent.method.is_some_and(|method| challenge.is_none_or(|challenge| challenge.method != method)) {
        return Verdict::OtherMethod;
    }
    match (challenge, sent.verifier) {
        (None, Some(_)) => Verdict::Downgraded,
        (Some(_), None) => Verdict::Unproven,
        (Some(_), Some(_)) if !matches => Verdict::Wrong,
        _ if code.key_expires.is_some_and(|expires| expires <= now) => Verdict::Expired,
        _ => Verdict::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{KeyHash, OrganisationId, WorkspaceId};

    const NOW: Timestamp = Timestamp(1_790_000_000_000);
    const LATER: Timestamp = Timestamp(NOW.0 + 1);

    fn code(challenge: Option<(Method, &str)>) -> Known {
        Known {
            hash: KeyHash::of(b"code"),
            organisation: OrganisationId("o".into()),
            workspace: WorkspaceId("w".into()),
            app_id: 1,
            creator: None,
            challenge: challenge.map(|(method, value)| Challenge { method, value: value.to_owned() }),
            key_name: "k".to_owned(),
            limit: None,
            limit_reset: None,
            key_expires: None,
            spawn_agent: None,
            spawn_cloud: None,
            expires: LATER,
            used: None,
            is_burned: false,
            key: None,
        }
    }

    #[test]
    fn cod_4_checks_come_in_their_order() {
        use Method::{Plain, S256};
        let plain = code(Some((Plain, "v")));
        // SHA-256 of "v" in base64url.
        let s256 = code(Some((S256, "TJRIXgwhrmxBzh3-e2v6zupato5AokdvUCCOUm9QYIA")));
        let none = code(None);
        let sent = |verifier, method| Sent { verifier, method };
        let nothing = Sent::default();
        let cases = [
            (Some(&none), nothing, Verdict::Good),
            (Some(&none), sent(Some("v"), None), Verdict::Downgraded),
            (Some(&none), sent(None, Some(S256)), Verdict::OtherMethod),
            (Some(&none), sent(Some("v"), Some(Plain)), Verdict::OtherMethod),
            (Some(&plain), sent(Some("v"), None), Verdict::Good),
            (Some(&plain), sent(Some("v"), Some(Plain)), Verdict::Good),
            (Some(&plain), sent(Some("v"), Some(S256)), Verdict::OtherMethod),
            (Some(&plain), sent(Some("w"), None), Verdict::Wrong),
            (Some(&plain), nothing, Verdict::Unproven),
            (Some(&s256), sent(Some("v"), None), Verdict::Good),
            (Some(&s256), sent(Some("v"), Some(Plain)), Verdict::OtherMethod),
            (Some(&s256), sent(Some("TJRIXgwhrmxBzh3-e2v6zupato5AokdvUCCOUm9QYIA"), None), Verdict::Wrong),
            (Some(&s256), nothing, Verdict::Unproven),
            (None, nothing, Verdict::Unknown),
            (None, sent(Some("v"), Some(S256)), Verdict::Unknown),
        ];
        for (known, sent, expected) in cases {
            assert_eq!(judge(known, sent, NOW), expected, "{known:?} {sent:?}");
        }
    }

    #[test]
    fn cod_4_a_code_that_is_over_says_so_before_anything_else_is_looked_at() {
        let over = Known { expires: NOW, ..code(Some((Method::Plain, "v"))) };
        let wrong = Sent { verifier: Some("w"), method: Some(Method::S256) };
        assert_eq!(judge(Some(&over), wrong, NOW), Verdict::Expired);
        let key_over = Known { key_expires: Some(NOW), ..code(None) };
        assert_eq!(judge(Some(&key_over), Sent::default(), NOW), Verdict::Expired);
        let burned = Known { is_burned: true, ..over };
        assert_eq!(judge(Some(&burned), wrong, NOW), Verdict::Unknown);
    }

    #[test]
    fn cod_6_a_replay_is_proven_only_by_what_the_first_one_had() {
        let used = |challenge| Known { used: Some(NOW), ..code(challenge) };
        let plain = Some((Method::Plain, "v"));
        let sent = |verifier| Sent { verifier, method: None };
        assert_eq!(judge(Some(&used(plain)), sent(Some("v")), NOW), Verdict::Replayed { proven: true });
        assert_eq!(judge(Some(&used(plain)), sent(Some("w")), NOW), Verdict::Replayed { proven: false });
        assert_eq!(judge(Some(&used(plain)), sent(None), NOW), Verdict::Replayed { proven: false });
        assert_eq!(judge(Some(&used(None)), sent(None), NOW), Verdict::Replayed { proven: true });
        assert_eq!(judge(Some(&used(None)), sent(Some("v")), NOW), Verdict::Replayed { proven: false });
    }
}
