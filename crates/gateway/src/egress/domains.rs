//! Where a caller wants pages from. This narrows what may be fetched; it never widens it.

use std::net::IpAddr;

use url::Host;

use super::name::Where;

/// Names whose subdomains are meant too, and addresses. Nothing in `allowed` allows everything; `blocked` wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains {
    pub allowed: Vec<Domain>,
    pub blocked: Vec<Domain>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// In lower case, as it is said to a name server.
    Name(String),
    Ip(IpAddr),
}

impl Domain {
    /// Reads `example.com`, `*.example.com` or an address; `None` when it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix("*.").or_else(|| text.strip_prefix('.')).unwrap_or(text);
        match Host::parse(text).or_else(|_| Host::parse(&format!("[{text}]"))).ok()? {
            Host::Domain(name) => {
                let name = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
                let is_name = !name.is_empty()
                    && name.split('.').all(|label| {
                        !label.is_empty()
                            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
                    });
                is_name.then_some(Self::Name(name))
            }
            Host::Ipv4(ip) => Some(Self::Ip(ip.into())),
            Host::Ipv6(ip) => Some(Self::Ip(IpAddr::V6(ip).to_canonical())),
        }
    }

    fn holds(&self, host: &Where) -> bool {
        match (self, host) {
            (Self::Ip(known), Where::Ip(ip)) => known == ip,
            // Whole labels: `example.com` is not the end of `notexample.com`.
            (Self::Name(known), Where::Name { name, .. }) => {
                name.strip_suffix(known.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            _ => false,
        }
    }
}

impl Domains {
    pub(super) fn permit(&self, host: &Where) -> bool {
        let holds = |list: &[Domain]| list.iter().any(|domain| domain.holds(host));
        (self.allowed.is_empty() || holds(&self.allowed)) && !holds(&self.blocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> Vec<Domain> {
        entries.iter().map(|entry| Domain::parse(entry).unwrap()).collect()
    }

    fn name(name: &str) -> Where {
        Where::Name { name: name.to_owned(), allowed: false }
    }

    #[test]
    fn egr_9_whole_labels_of_the_normalised_name_are_compared() {
        let domains = Domains {
            allowed: list(&["Example.COM.", "*.bücher.de", "8.8.8.8"]),
            blocked: list(&["bad.example.com"]),
        };
        for host in ["example.com", "a.example.com", "a.b.example.com", "xn--bcher-kva.de", "www.xn--bcher-kva.de"] {
            assert!(domains.permit(&name(host)), "{host}");
        }
        for host in ["notexample.com", "example.com.evil.org", "com", "bad.example.com", "x.bad.example.com", "8.8.8.8"]
        {
            assert!(!domains.permit(&name(host)), "{host}");
        }
        assert!(domains.permit(&Where::Ip("8.8.8.8".parse().unwrap())));
        assert!(!domains.permit(&Where::Ip("8.8.4.4".parse().unwrap())));
        assert!(Domains::default().permit(&name("a.b")));
        let only_blocked = Domains { allowed: Vec::new(), blocked: list(&["example.com", "::1"]) };
        assert!(only_blocked.permit(&name("example.org")) && !only_blocked.permit(&name("www.example.com")));
        assert!(!only_blocked.permit(&Where::Ip("::1".parse().unwrap())));
    }

    #[test]
    fn an_entry_is_a_name_or_an_address_and_nothing_else() {
        for text in
            ["", " ", "*", "*.", "https://example.com", "example.com/path", "a b", "a..b", "u@a", "a:80", "*.*.a"]
        {
            assert_eq!(Domain::parse(text), None, "{text}");
        }
    }
}
