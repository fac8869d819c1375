//! The address of a gateway, as people give it.

use anyhow::{Context as _, bail};

/// The address without what programs add to it themselves. Who copied it from a client's settings has that behind it.
pub fn base(url: &str) -> anyhow::Result<&str> {
    let url = url.trim();
    let Some((_, host)) = url.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")) else {
        bail!("--url must begin with http:// or https://, such as http://127.0.0.1:8080")
    };
    let parsed = url::Url::parse(url).ok().filter(|_| !host.starts_with('/'));
    let parsed = parsed.context("--url is not an address such as http://127.0.0.1:8080")?;
    if parsed.query().is_some() || parsed.fragment().is_some() {
        bail!("--url must have no query and no fragment")
    }
    let url = url.trim_end_matches('/');
    Ok(["/api/v1", "/v1"].iter().find_map(|path| url.strip_suffix(path)).unwrap_or(url).trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_add_themselves_is_left_out() {
        for given in ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/api/v1/", " http://h:1/v1/ "] {
            assert_eq!(base(given).unwrap(), "http://h:1", "{given}");
        }
        assert_eq!(base("https://h/team/v1").unwrap(), "https://h/team");
    }

    #[test]
    fn what_is_no_address_is_told() {
        for given in ["", "h:1", "ftp://h", "file:///v1"] {
            assert!(base(given).unwrap_err().to_string().contains("must begin with http://"), "{given}");
        }
        for given in ["http://", "http:///v1", "http://h:port", "http://h h"] {
            assert!(base(given).unwrap_err().to_string().contains("is not an address"), "{given}");
        }
        assert!(base("http://h?key=k").unwrap_err().to_string().contains("no query"));
    }
}
