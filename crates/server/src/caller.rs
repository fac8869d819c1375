//! Whom a trusted proxy says it speaks for.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

/// Of the addresses in `X-Forwarded-For`, the last one that is not a trusted proxy: what stands before it anyone can have
/// written. So it is with what stands before an entry that cannot be read; then nobody is named.
pub fn named(headers: &HeaderMap, is_trusted: impl Fn(&IpAddr) -> bool) -> Option<IpAddr> {
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    // A line that is no text is an entry that cannot be read.
    let entries = lines.flat_map(|line| line.to_str().unwrap_or("?").rsplit(','));
    for entry in entries.map(str::trim).filter(|entry| !entry.is_empty()) {
        let address = address(entry)?.to_canonical();
        if !is_trusted(&address) {
            return Some(address);
        }
    }
    None
}

/// An address, with or without the port that some proxies add.
fn address(entry: &str) -> Option<IpAddr> {
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
    bare.parse().ok().or_else(|| entry.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(lines: &[&[u8]]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", HeaderValue::from_bytes(line).unwrap());
        }
        named(&headers, |address| address.to_string().starts_with("10.")).map(|address| address.to_string())
    }

    #[test]
    fn key_8_the_last_entry_that_is_no_proxy_of_ours_counts_in_whichever_form_it_is_written() {
        let cases: [(&[&[u8]], Option<&str>); 13] = [
            (&[], None),
            (&[b""], None),
            (&[b"1.2.3.4"], Some("1.2.3.4")),
            (&[b"9.9.9.9, 1.2.3.4"], Some("1.2.3.4")),
            (&[b"9.9.9.9, 1.2.3.4:5678"], Some("1.2.3.4")),
            (&[b"9.9.9.9, 1.2.3.4, 10.0.0.1:80,10.0.0.2"], Some("1.2.3.4")),
            (&[b"9.9.9.9", b"1.2.3.4,", b"10.0.0.1"], Some("1.2.3.4")),
            (&[b"9.9.9.9, [2001:db8::1]:443"], Some("2001:db8::1")),
            (&[b"9.9.9.9, [2001:db8::1]"], Some("2001:db8::1")),
            (&[b"9.9.9.9, 2001:db8::1"], Some("2001:db8::1")),
            (&[b"9.9.9.9, ::ffff:1.2.3.4"], Some("1.2.3.4")),
            (&[b"9.9.9.9, unknown, 10.0.0.1"], None),
            (&[b"9.9.9.9", b"1.2.3.4\xff"], None),
        ];
        for (lines, expected) in cases {
            assert_eq!(of(lines).as_deref(), expected, "{lines:?}");
        }
    }
}
