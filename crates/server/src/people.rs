//! How people may be called.

/// The longest address there can be (RFC 5321).
const LONGEST_EMAIL: usize = 254;
pub const LONGEST_NAME: usize = 100;

/// Something before and something after one `@`; only a message sent there would tell more.
pub fn is_address(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c.is_control());
    text.len() <= LONGEST_EMAIL
        && text.split_once('@').is_some_and(|(local, domain)| {
            is_part(local) && is_part(domain) && !domain.contains('@') && domain.is_ascii()
        })
}

pub fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.chars().count()) && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_refused() {
        for good in ["a@b", "ada.lovelace+x@example.com", "ä@example.com"] {
            assert!(is_address(good), "{good}");
        }
        let long = format!("{}@example.com", "a".repeat(250));
        for bad in ["", "a", "@b", "a@", "a b@c", "a@b@c", "a@b\n", &long] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn a_name_is_short_and_has_no_controls() {
        assert!(is_name("Ada") && is_name(&"ä".repeat(100)));
        assert!(!is_name("") && !is_name(&"ä".repeat(101)) && !is_name("A\nB"));
    }
}
