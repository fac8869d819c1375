//! `[oidc]`: the issuer that people may sign in with.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tidegate_core::Secret;
use url::{Host, Url};

use super::{Source, raw, secret};

/// Issuers with which everybody in the world can have an account.
const FOR_EVERYBODY: [&str; 4] = [
    "accounts.google.com",
    "login.microsoftonline.com/common",
    "login.microsoftonline.com/consumers",
    "appleid.apple.com",
];

/// Whom people may sign in with, and on which terms.
#[derive(Default)]
pub struct Oidc {
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Option<Secret>,
    /// What people are told that they sign in with.
    pub name: String,
    pub scopes: Vec<String>,
    pub trust_email: bool,
    auto_join: bool,
    join_domains: Vec<String>,
}

impl Oidc {
    /// Whether somebody whom nobody added becomes a member by signing in.
    pub fn may_join(&self, email: Option<&str>) -> bool {
        let domain = email.and_then(|email| email.rsplit_once('@')).map(|(_, domain)| domain);
        let is_ours = |domain: &str| self.join_domains.iter().any(|ours| ours.eq_ignore_ascii_case(domain));
        self.auto_join && (self.join_domains.is_empty() || domain.is_some_and(is_ours))
    }
}

pub(super) fn read(raw: &raw::Oidc, source: &Source) -> anyhow::Result<Option<Arc<Oidc>>> {
    let Some(issuer) = raw.issuer.clone() else {
        ensure!(raw.client_id.is_none(), "oidc.issuer: is missing; oidc.client_id is of no use without it");
        return Ok(None);
    };
    ensure!(
        is_private_address(&issuer),
        "oidc.issuer: must be an address such as https://login.example.com (http:// only on this machine)"
    );
    let client_id = raw.client_id.clone().filter(|id| !id.is_empty());
    let client_id = client_id.context("oidc.client_id: is missing: what this gateway is called at the issuer")?;
    let client_secret = raw.client_secret.as_deref().map(|text| secret::resolve(text, source)).transpose();
    let client_secret = client_secret.context("oidc.client_secret")?;
    ensure!(raw.scopes.iter().any(|scope| scope == "openid"), "oidc.scopes: must have \"openid\" among them");
    let is_scope = |scope: &String| !scope.is_empty() && scope.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    ensure!(raw.scopes.iter().all(is_scope), "oidc.scopes: must be words without spaces");
    let is_domain = |domain: &String| domain.contains('.') && !domain.contains(['@', '/', '*', ' ']);
    ensure!(
        raw.join_domains.iter().all(is_domain),
        "oidc.join_domains: must be what stands behind the @ of addresses, such as \"example.com\""
    );
    let is_for_everybody =
        FOR_EVERYBODY.iter().any(|known| issuer.strip_prefix("https://").is_some_and(|rest| rest.starts_with(known)));
    ensure!(
        !(raw.auto_join && raw.join_domains.is_empty() && is_for_everybody),
        "oidc.join_domains: is missing: with oidc.auto_join everybody who has an account at {issuer} would become a \
         member; name the domains of your addresses, such as [\"example.com\"]"
    );
    let host = || Url::parse(&issuer).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    Ok(Some(Arc::new(Oidc {
        name: raw.name.clone().unwrap_or_else(host),
        client_id,
        client_secret,
        scopes: raw.scopes.clone(),
        trust_email: raw.trust_email,
        auto_join: raw.auto_join,
        join_domains: raw.join_domains.clone(),
        issuer,
    })))
}

/// Whether what is sent to this address cannot be read on its way: over TLS, or on this machine.
pub fn is_private_address(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    match url.scheme() {
        "https" => url.has_host(),
        "http" => match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::problem;
    use super::*;

    #[test]
    fn an_issuer_is_named_as_a_whole() {
        for (text, said) in [
            ("issuer = \"https://login.example.com\"\nclient_id = \"gate\"", "ok"),
            ("issuer = \"http://127.0.0.1:9\"\nclient_id = \"gate\"", "ok"),
            ("issuer = \"http://login.example.com\"\nclient_id = \"gate\"", "oidc.issuer: must be an address"),
            ("issuer = \"https://login.example.com\"", "oidc.client_id: is missing"),
            ("client_id = \"gate\"", "oidc.issuer: is missing"),
            ("issuer = \"https://a.example\"\nclient_id = \"g\"\nscopes = [\"email\"]", "oidc.scopes: must have"),
            (
                "issuer = \"https://a.example\"\nclient_id = \"g\"\njoin_domains = [\"@x\"]",
                "oidc.join_domains: must be",
            ),
            (
                "issuer = \"https://accounts.google.com\"\nclient_id = \"g\"\nauto_join = true",
                "oidc.join_domains: is missing",
            ),
            (
                "issuer = \"https://accounts.google.com\"\nclient_id = \"g\"\nauto_join = true\n\
                 join_domains = [\"example.com\"]",
                "ok",
            ),
        ] {
            let found = problem(&format!("[oidc]\n{text}\n"));
            assert!(found == said || (said != "ok" && found.contains(said)), "{text}: {found}");
        }
    }

    #[test]
    fn who_may_join_is_told_by_the_domain() {
        let settings = |auto_join, domains: &[&str]| Oidc {
            issuer: "https://a.example".to_owned(),
            client_id: "g".to_owned(),
            client_secret: None,
            name: "a".to_owned(),
            scopes: vec![],
            trust_email: false,
            auto_join,
            join_domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
        };
        assert!(!settings(false, &[]).may_join(Some("a@example.com")));
        assert!(settings(true, &[]).may_join(Some("a@example.com")));
        assert!(settings(true, &["example.com"]).may_join(Some("a@Example.com")));
        for email in [Some("a@example.org"), Some("a@sub.example.com"), Some("example.com"), None] {
            assert!(!settings(true, &["example.com"]).may_join(email), "{email:?}");
        }
    }
}
