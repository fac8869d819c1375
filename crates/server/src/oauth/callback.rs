//! Where a person is sent back to with their code. A code that reaches the wrong place is a stolen key, so an address
//! that two programs could read differently is refused.

use url::Url;

const LONGEST: usize = 2048;

/// An address that codes may be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    url: Url,
    is_local: bool,
}

impl Callback {
    /// `https` with any host, or `http` to this very machine. The reason of a refusal says what to change.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.chars().count() > LONGEST {
            return Err("must have at most 2048 characters");
        }
        // The parser would drop some of these without a word, and read a backslash as a slash.
        if text.chars().any(|character| character.is_control() || character.is_whitespace() || character == '\\') {
            return Err("must not contain white space, control characters or backslashes");
        }
        if text.contains('#') {
            return Err("must not have a fragment");
        }
        let (scheme, rest) = text.split_once("://").ok_or("must be an absolute URL")?;
        let is_https = scheme.eq_ignore_ascii_case("https");
        if !is_https && !scheme.eq_ignore_ascii_case("http") {
            return Err("must begin with https://, or with http://localhost, http://127.0.0.1 or http://[::1]");
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        // The parser skips further slashes and takes what follows for the host.
        if authority.is_empty() {
            return Err("must have a host");
        }
        if authority.contains('@') {
            return Err("must not have a user name or password");
        }
        if authority.contains('%') {
            return Err("must not have an encoded host");
        }
        let url = Url::parse(text).map_err(|_| "must be an absolute URL")?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err("must have a host");
        }
        // The parser lets more pass, some of which means something in a policy that names the host.
        let is_plain = |host: &str| {
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte))
        };
        if !url.host_str().is_some_and(is_plain) {
            return Err("must have a host of letters, digits, dots and dashes");
        }
        // As it was written: the parser makes 127.0.0.1 of 2130706433, 0x7f.1 and 127.1.
        let is_local = is_local(authority);
        if !is_https && !is_local {
            return Err("must use https, unless its host is exactly localhost, 127.0.0.1 or [::1]");
        }
        if url.query_pairs().any(|(name, _)| name == "code") {
            return Err("must not have a parameter named code");
        }
        Ok(Self { url, is_local })
    }

    /// Scheme, host in lower-case punycode, and port unless it is the scheme's own: what an application is known by.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Whether it leads to the person's own machine.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// The origin as a content security policy can name it: those know no IPv6 addresses, so the port has to do.
    pub fn policy_source(&self) -> String {
        match self.url.host() {
            Some(url::Host::Ipv6(_)) => {
                format!("{}://*:{}", self.url.scheme(), self.url.port_or_known_default().unwrap_or(80))
            }
            _ => self.origin(),
        }
    }

    /// Whether it leads to a page of the host that `host` names, below `path`: cookies ignore ports.
    pub fn is_below(&self, host: &str, path: &str) -> bool {
        let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
        let below = self.url.path() == path || self.url.path().starts_with(&format!("{path}/"));
        below && self.url.host_str().is_some_and(|own| own.eq_ignore_ascii_case(name))
    }

    /// What the application is called until somebody gives it a title.
    pub fn title(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        if self.is_local {
            return match self.url.port() {
                Some(port) => format!("{host}:{port}"),
                None => host.to_owned(),
            };
        }
        host.strip_prefix("www.").unwrap_or(host).to_owned()
    }

    /// The address with further parameters; those it has are kept.
    pub fn with(&self, parameters: &[(&str, &str)]) -> String {
        let mut url = self.url.clone();
        url.query_pairs_mut().extend_pairs(parameters);
        url.into()
    }
}

fn is_local(authority: &str) -> bool {
    let host = if authority.starts_with('[') {
        authority.split_inclusive(']').next().unwrap_or_default()
    } else {
        authority.split(':').next().unwrap_or_default()
    };
    host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cod_2_addresses_of_this_machine_and_https_are_accepted() {
        let cases = [
            ("https://app.example/cb", "https://app.example", "app.example"),
            ("https://www.app.example/cb?x=1", "https://www.app.example", "app.example"),
            ("https://APP.example:443/", "https://app.example", "app.example"),
            ("https://app.example:8443/a?b=c&codes=1", "https://app.example:8443", "app.example"),
            ("https://bücher.example/", "https://xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("https://127.0.0.1:9/cb", "https://127.0.0.1:9", "127.0.0.1:9"),
            ("http://localhost", "http://localhost", "localhost"),
            ("http://localhost:51423/cb", "http://localhost:51423", "localhost:51423"),
            ("HTTP://Localhost:3000", "http://localhost:3000", "localhost:3000"),
            ("http://127.0.0.1:8765/cb?next=%2F", "http://127.0.0.1:8765", "127.0.0.1:8765"),
            ("http://[::1]:4000/", "http://[::1]:4000", "[::1]:4000"),
        ];
        for (text, origin, title) in cases {
            let callback = Callback::parse(text).unwrap_or_else(|reason| panic!("{text}: {reason}"));
            assert_eq!((&*callback.origin(), &*callback.title()), (origin, title), "{text}");
        }
    }

    #[test]
    fn cod_2_hostile_addresses_are_refused() {
        let long = format!("https://app.example/{}", "a".repeat(2048));
        let cases = [
            "",
            "app.example/cb",
            "/cb",
            "//app.example/cb",
            "https:app.example",
            "https:/app.example",
            "https://",
            "https:///cb",
            "https://?x",
            "http://app.example/cb",
            "http://localhost.evil.example/cb",
            "http://localhost@evil.example/cb",
            "http://127.0.0.1.evil.example",
            "http://evil.example/localhost",
            "http://127.1:80/",
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://127.0.0.2/",
            "http://localhost./",
            "http://[::ffff:127.0.0.1]/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://ⓛocalhost/",
            "http://%6cocalhost/",
            "https://user@app.example/",
            "https://user:pass@app.example/",
            "https://app.example/#part",
            "https://app.example/#",
            "https://app.example\\@evil.example/",
            "https:\\\\app.example/",
            "https://app.example/a b",
            " https://app.example/",
            "https://app.example/\n",
            "https://app.exam\tple/",
            "https://app.example/\u{7f}",
            "https://app.example/cb?code=1",
            "https://app.example/cb?x=1&%63ode=",
            "javascript:alert(1)",
            "javascript://app.example/%0aalert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "ftp://app.example/",
            "myapp://callback",
            "vscode://anthropic.app/cb",
            "https://x;sandbox/",
            "https://x,y.example/",
            "https://*/",
            "https://'none'/",
            "https://app.example:99999/",
            "https://[::1/",
            long.as_str(),
        ];
        for text in cases {
            assert!(Callback::parse(text).is_err(), "{text:?} was accepted: {:?}", Callback::parse(text));
        }
        let longest = format!("https://app.example/{}", "a".repeat(2048 - 20));
        assert!(Callback::parse(&longest).is_ok());
    }

    #[test]
    fn a_page_of_our_own_is_recognised_whatever_the_port() {
        let is_ours = |text: &str, host: &str| Callback::parse(text).unwrap().is_below(host, "/auth");
        assert!(
            is_ours("http://127.0.0.1:9000/auth/x", "127.0.0.1:8080") && is_ours("http://localhost/auth", "localhost")
        );
        assert!(is_ours("http://[::1]:9000/auth", "[::1]:8080"));
        assert!(!is_ours("http://127.0.0.1:9000/authority", "127.0.0.1:8080"));
        assert!(
            !is_ours("http://localhost:9000/auth", "127.0.0.1:8080")
                && !is_ours("http://localhost:9000/cb", "localhost")
        );
        assert_eq!(Callback::parse("http://[::1]:4000/").unwrap().policy_source(), "http://*:4000");
        assert_eq!(Callback::parse("https://a.example/").unwrap().policy_source(), "https://a.example");
    }

    #[test]
    fn parameters_are_added_to_those_that_are_there() {
        let callback = Callback::parse("http://localhost:1/cb?next=%2Fa%20b&x=1").unwrap();
        assert_eq!(
            callback.with(&[("code", "auth_code_x"), ("state", "a&b=c d")]),
            "http://localhost:1/cb?next=%2Fa%20b&x=1&code=auth_code_x&state=a%26b%3Dc+d"
        );
        let plain = Callback::parse("https://app.example").unwrap();
        assert_eq!(plain.with(&[("error", "access_denied")]), "https://app.example/?error=access_denied");
    }
}
