//! Addresses as callers write them: parsed once, and from then on only what was parsed is used. The parser follows the
//! WHATWG's rules, so every spelling of an IPv4 address that some library may accept is an address here, not a name.

use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

use super::{Reason, Rules};

/// Longest address, as it came and as it is written again.
const LONGEST: usize = 2 << 10;

/// Endings that mean this machine or this network.
const LOCAL: [&str; 5] = ["localhost", "local", "internal", "localdomain", "home.arpa"];

/// A place that may be asked, as far as can be told before its name is resolved.
#[derive(Clone, Debug)]
pub struct Place {
    pub url: Url,
    pub host: Where,
    pub port: u16,
}

/// Where a connection goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    Ip(IpAddr),
    /// In lower case, without a dot at the end.
    Name {
        name: String,
        /// The operator said that it may be called wherever it leads.
        allowed: bool,
    },
}

impl Place {
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// What may be logged: paths and queries hold tokens.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// `Host`, with the port where it is not the scheme's own.
    pub fn authority(&self) -> String {
        let host = match &self.host {
            Where::Ip(IpAddr::V6(ip)) => format!("[{ip}]"),
            Where::Ip(ip) => ip.to_string(),
            Where::Name { name, .. } => name.clone(),
        };
        self.url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
    }

    /// What is asked for there.
    pub fn target(&self) -> &str {
        &self.url[url::Position::BeforePath..url::Position::AfterQuery]
    }
}

/// Reads an address.
pub fn place(text: &str, rules: &Rules) -> Result<Place, Reason> {
    if text.len() > LONGEST {
        return Err(Reason::Url);
    }
    checked(Url::parse(text).map_err(|_| Reason::Url)?, rules)
}

/// Reads where an answer points to: relative to where it came from, at most as long, never from TLS to plain text.
pub fn redirected(from: &Place, location: &str, rules: &Rules) -> Result<Place, Reason> {
    if location.len() > LONGEST {
        return Err(Reason::Redirect);
    }
    let to = checked(from.url.join(location).map_err(|_| Reason::Redirect)?, rules)?;
    if from.is_tls() && !to.is_tls() {
        return Err(Reason::Redirect);
    }
    Ok(to)
}

fn checked(mut url: Url, rules: &Rules) -> Result<Place, Reason> {
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return Err(Reason::Url);
    }
    url.set_fragment(None);
    if url.as_str().len() > LONGEST {
        return Err(Reason::Url);
    }
    let port = url.port_or_known_default().ok_or(Reason::Url)?;
    let host = match url.host().ok_or(Reason::Url)? {
        Host::Ipv4(ip) => Where::Ip(ip.into()),
        // Mapped ones are what they stand for from here on.
        Host::Ipv6(ip) => Where::Ip(IpAddr::V6(ip).to_canonical()),
        Host::Domain(name) => named(name, rules)?,
    };
    let (is_allowed, is_ours) = match &host {
        Where::Ip(ip) => (rules.is_allowed(*ip), rules.is_ours(SocketAddr::new(*ip, port))),
        Where::Name { name, allowed } => (*allowed, rules.is_kept(|kept| kept == name, port, *allowed)),
    };
    if is_ours {
        return Err(match &host {
            // Elsewhere nobody is to learn where it is.
            _ if is_allowed => Reason::Own,
            Where::Ip(_) => Reason::Address,
            Where::Name { .. } => Reason::Name,
        });
    }
    if !rules.ports.contains(&port) {
        return Err(Reason::Port);
    }
    if let Where::Ip(ip) = host
        && !rules.permits(SocketAddr::new(ip, port), false)
    {
        return Err(Reason::Address);
    }
    Ok(Place { url, host, port })
}

fn named(name: &str, rules: &Rules) -> Result<Where, Reason> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_name = name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        });
    if !is_name {
        return Err(Reason::Name);
    }
    let allowed = rules.allowed_names.contains(&name);
    let is_local =
        LOCAL.iter().any(|end| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if !allowed && (is_local || !name.contains('.')) {
        return Err(Reason::Name);
    }
    Ok(Where::Name { name, allowed })
}

/// A name as the operator allows it, if it is one.
pub fn allowed_name(text: &str) -> Option<String> {
    let Ok(Host::Domain(name)) = Host::parse(text) else { return None };
    let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
    let rules = Rules { allowed_names: vec![name.clone()], ..Rules::default() };
    named(&name, &rules).is_ok().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::Kept;
    use super::*;

    fn refused(text: &str) -> Option<Reason> {
        place(text, &Rules::default()).err()
    }

    #[test]
    fn egr_3_every_spelling_of_a_forbidden_address_is_that_address() {
        let spellings = [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0x7f.0.0.0x1",
            "0177.0.0.1",
            "017700000001",
            "0",
            "0.0.0.0",
            "0x0",
            "127.0.0.0x1",
            "%31%32%37.0.0.1",
            "１２７.0.0.1",
            "127。0。0。1",
            "10.0.0.1",
            "0xa.1",
            "167772161",
            "169.254.169.254",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "169.254.43518",
            "[::1]",
            "[::]",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:7f00:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[fe80::1]",
            "[fd00:ec2::254]",
        ];
        for host in spellings {
            for url in [format!("http://{host}/a.png"), format!("https://{host}/a.png")] {
                assert_eq!(refused(&url), Some(Reason::Address), "{url}");
            }
        }
    }

    #[test]
    fn egr_3_names_of_this_machine_and_this_network_are_refused() {
        let names = [
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "a.b.LocalHost.",
            "printer.local",
            "printer.local.",
            "local",
            "metadata.google.internal",
            "metadata.google.internal.",
            "x.internal",
            "internal",
            "intranet",
            "db",
            "kubernetes",
            "redis.",
            "localhost.localdomain",
            "router.home.arpa",
            "ｌｏｃａｌｈｏｓｔ",
            "loc%61lhost",
        ];
        for name in names {
            assert_eq!(refused(&format!("http://{name}/a.png")), Some(Reason::Name), "{name}");
        }
        for name in [
            "example.com",
            "example.com.",
            "EXAMPLE.com",
            "local.example.com",
            "notlocal.host",
            "mylocal.example",
            "xn--bcher-kva.example",
            "bücher.example",
        ] {
            assert_eq!(refused(&format!("http://{name}/a.png")), None, "{name}");
        }
    }

    #[test]
    fn egr_4_only_plain_addresses_of_the_web_are_taken() {
        let long = format!("http://example.com/{}", "a".repeat(LONGEST));
        let grows = format!("http://example.com/{}", "é".repeat(LONGEST / 3));
        for url in [
            "",
            "x",
            "/a.png",
            "//example.com/a",
            "ftp://example.com/a",
            "file:///etc/passwd",
            "gopher://example.com/",
            "javascript:alert(1)",
            "data:image/png;base64,AAAA",
            "gs://bucket/a.png",
            "http://",
            "http:///",
            "http://user@example.com/",
            "http://user:pw@example.com/",
            "http://:pw@example.com/",
            "http://[::1/",
            "http://exa mple.com/",
            "http://1.2.3.4.5/",
            "http://256.1.1.1/",
            "http://foo.0x7f/",
            "http://[fe80::1%25eth0]/",
            "http://example.com:99999/",
            &long,
            &grows,
        ] {
            assert!(matches!(refused(url), Some(Reason::Url)), "{url}: {:?}", refused(url));
        }
        for url in ["http://a..b.com/", "http://.example.com/", "http://example.com../", "http://-/"] {
            assert!(refused(url).is_some(), "{url}");
        }
        for url in ["http://example.com:22/", "https://example.com:8443/", "http://example.com:0/"] {
            assert_eq!(refused(url), Some(Reason::Port), "{url}");
        }
        for url in
            ["http://example.com:443/", "https://example.com:80/", "https://example.com/a?b=c#d", "HTTPS://example.com"]
        {
            assert_eq!(refused(url), None, "{url}");
        }
        let read = place("https://example.com/a%20b?c=d e#f", &Rules::default()).unwrap();
        assert_eq!((read.target(), read.authority()), ("/a%20b?c=d%20e", "example.com".to_owned()));
        assert_eq!(place("http://Example.com.:443", &Rules::default()).unwrap().authority(), "example.com:443");
    }

    #[test]
    fn egr_5_a_redirect_is_checked_like_an_address_and_never_leaves_tls() {
        let rules = Rules::default();
        let plain = place("http://example.com/a/b", &rules).unwrap();
        let tls = place("https://example.com/a/b", &rules).unwrap();
        assert_eq!(redirected(&plain, "../c?d", &rules).unwrap().url.as_str(), "http://example.com/c?d");
        assert_eq!(redirected(&plain, "https://example.org/", &rules).unwrap().url.as_str(), "https://example.org/");
        assert_eq!(redirected(&tls, "//example.org/x", &rules).unwrap().url.as_str(), "https://example.org/x");
        assert_eq!(redirected(&tls, "http://example.com/a/b", &rules).err(), Some(Reason::Redirect));
        for (location, reason) in [
            ("http://127.0.0.1/", Reason::Address),
            ("//169.254.169.254/latest/meta-data/", Reason::Address),
            ("http://[::ffff:10.0.0.1]/", Reason::Address),
            ("http://localhost/", Reason::Name),
            ("http://example.com:6379/", Reason::Port),
            ("http://u:p@example.com/", Reason::Url),
            ("file:///etc/passwd", Reason::Url),
            ("http://", Reason::Redirect),
        ] {
            assert_eq!(redirected(&plain, location, &rules).err(), Some(reason), "{location}");
        }
    }

    #[test]
    fn egr_3_a_name_is_allowed_exactly() {
        let rules = Rules { allowed_names: vec!["minio".to_owned(), "files.internal".to_owned()], ..Rules::default() };
        for url in ["http://minio/a", "http://MINIO./a", "http://files.internal/a"] {
            let host = place(url, &rules).unwrap().host;
            assert!(matches!(host, Where::Name { allowed: true, .. }), "{url}");
        }
        for url in ["http://a.minio/a", "http://minio2/a", "http://x.files.internal/a", "http://internal/a"] {
            // A name with a dot that is nobody's ending is an ordinary one: its addresses decide.
            let refused = place(url, &rules).map(|place| place.host);
            assert!(!matches!(refused, Ok(Where::Name { allowed: true, .. })), "{url}");
        }
        let db = Kept { host: "db.example.com".to_owned(), port: Some(5432) };
        let mut kept = Rules { kept: vec![db], ports: vec![80, 5432], ..Rules::default() };
        for url in ["http://DB.example.com./", "http://db.example.com:5432/"] {
            assert_eq!(place(url, &kept).err(), Some(Reason::Name), "{url}");
        }
        kept.allowed_names.push("db.example.com".to_owned());
        assert!(place("http://db.example.com/", &kept).is_ok(), "the operator allows what else is there");
        assert_eq!(place("http://DB.example.com:5432/", &kept).err(), Some(Reason::Own));
        for (text, name) in
            [("minio", Some("minio")), ("Files.Internal", Some("files.internal")), ("a.b.", Some("a.b"))]
        {
            assert_eq!(allowed_name(text).as_deref(), name, "{text}");
        }
        for text in ["", "*", "*.example.com", "a/b", "a:80", "u@a", "10.0.0.1", "a b", "http://a", "a..b"] {
            assert_eq!(allowed_name(text), None, "{text}");
        }
    }
}
