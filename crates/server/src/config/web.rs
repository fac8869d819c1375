//! Addresses that people are given.

use anyhow::ensure;

/// Refuses what no browser opens.
pub(super) fn address(name: &str, text: Option<&str>) -> anyhow::Result<()> {
    let Some(text) = text else { return Ok(()) };
    let is_web = |url: url::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    ensure!(
        url::Url::parse(text).is_ok_and(is_web),
        "{name}: must be an address such as https://gateway.example, with http:// or https:// in front"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::problem;

    #[test]
    fn an_address_is_one_of_the_web() {
        for (url, is_right) in [
            ("https://gateway.example", true),
            ("http://127.0.0.1:8080/", true),
            ("https://gateway.example/below", true),
            ("ftp://x", false),
            ("gateway.example", false),
            ("https://", false),
            ("", false),
        ] {
            for name in ["public_url", "docs_url", "credits_url"] {
                let said = problem(&format!("[service]\n{name} = \"{url}\"\n"));
                assert_eq!(said == "ok", is_right, "{name} = {url}: {said}");
                assert!(is_right || said.contains(&format!("service.{name}: must be an address")), "{said}");
            }
        }
    }
}
