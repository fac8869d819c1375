//! Parts of the web that a search keeps to or stays away from.

use url::Url;

/// `x.org` and all below it, `*.x.org` for what is below it alone, `x.org/path` for a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    host: String,
    is_below: bool,
    /// Begins with a slash and does not end in one; empty for all of it.
    path: String,
}

impl Domain {
    /// Nothing when it is not a domain.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') || byte >= 0x80;
        if text.len() > 255 || host.is_empty() || !host.bytes().all(fits) || host.starts_with('.') {
            return None;
        }
        // As addresses write it: lower case, and other alphabets in their ASCII form.
        let host = Url::parse(&format!("http://{host}/")).ok()?.host_str()?.trim_end_matches('.').to_owned();
        let path = match path.trim_end_matches('/') {
            "" => String::new(),
            path => format!("/{path}"),
        };
        let is_plain = path.chars().all(|c| !c.is_whitespace() && !c.is_control() && !matches!(c, '?' | '#' | '"'));
        is_plain.then_some(Self { host, is_below, path })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether it is a host with everything on it and below it.
    pub fn is_whole(&self) -> bool {
        !self.is_below && self.path.is_empty()
    }

    /// Whether it is what is below a host alone.
    pub fn is_below(&self) -> bool {
        self.is_below
    }

    pub fn holds(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let host = host.trim_end_matches('.');
        let is_host = match host.strip_suffix(self.host.as_str()) {
            Some("") => !self.is_below,
            Some(above) => above.ends_with('.'),
            None => false,
        };
        let rest = url.path().strip_prefix(self.path.as_str());
        is_host && rest.is_some_and(|rest| self.path.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }
}

/// As it is written.
impl std::fmt::Display for Domain {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, is_below, path } = self;
        write!(out, "{}{host}{path}", if *is_below { "*." } else { "" })
    }
}

/// Whether an address may be shown.
pub(super) fn admits(url: &Url, allowed: &[Domain], excluded: &[Domain]) -> bool {
    (allowed.is_empty() || allowed.iter().any(|domain| domain.holds(url)))
        && !excluded.iter().any(|domain| domain.holds(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_holds_what_is_below_it() {
        let table = [
            ("x.org", "https://x.org/", true),
            ("x.org", "https://a.x.org/p?q", true),
            ("X.ORG", "http://x.org:8080/p", true),
            ("x.org", "https://notx.org/", false),
            ("x.org", "https://x.org.evil.com/", false),
            ("x.org", "https://evil.com/x.org", false),
            ("x.org", "https://x.org@evil.com/", false),
            ("*.x.org", "https://x.org/", false),
            ("*.x.org", "https://a.b.x.org/", true),
            ("x.org/docs", "https://x.org/docs", true),
            ("x.org/docs/", "https://x.org/docs/a", true),
            ("x.org/docs", "https://x.org/docsx", false),
            ("x.org/docs", "https://x.org/a/../docs/b", true),
            ("bücher.example", "https://xn--bcher-kva.example/", true),
        ];
        for (domain, url, holds) in table {
            let parsed = Domain::parse(domain).unwrap();
            assert_eq!(parsed.holds(&Url::parse(url).unwrap()), holds, "{domain} {url}");
        }
    }

    #[test]
    fn what_is_no_domain_is_none() {
        for text in
            ["", "*.", "*", "/p", "https://x.org", "x.org:80", "x org", "x.org/a b", "x.org/a?b", ".x.org", "a@b"]
        {
            assert_eq!(Domain::parse(text), None, "{text}");
        }
    }
}
