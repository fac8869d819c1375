//! Applications, known by where requests say they come from: each gets its number when the first of its requests is
//! forwarded. No request waits for it, and none is held up where it fails: the next one tries again.

use std::borrow::Borrow;

use tidegate_core::map::Set;
use tidegate_core::{Exchange, Timestamp};
use tidegate_store::Store;
use tidegate_store::auth_codes::Application;
use url::Url;

/// Origins that are remembered as stored. Callers choose them, so there is an end to it.
const MOST_SEEN: usize = 4_096;
const LONGEST: usize = 255;

/// What an application is known by: scheme, host and port of an address of its own.
pub fn origin(referer: &str) -> Option<String> {
    let url = Url::parse(referer).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let origin = url.origin();
    let text = origin.is_tuple().then(|| origin.ascii_serialization())?;
    (text.len() <= LONGEST).then_some(text)
}

/// Whoever holds a key can send any referer: it makes an application known, but gives it no title of the sender's choice,
/// which people would read when they are asked to trust it.
fn application(origin: String) -> Application {
    let host = origin.split_once("://").map_or(&*origin, |(_, host)| host);
    let title = host.strip_prefix("www.").unwrap_or(host).to_owned();
    Application { origin, title, new_title: None }
}

#[derive(Debug, Default)]
pub(super) struct Applications {
    seen: Set<String>,
}

impl Applications {
    /// Stores the applications of these requests that were not seen before.
    pub async fn see(&mut self, store: &Store, batch: &[impl Borrow<Exchange>], now: Timestamp) {
        let new = self.unseen(batch);
        if new.is_empty() {
            return;
        }
        let applications: Vec<Application> = new.iter().cloned().map(application).collect();
        match store.see_applications(&applications, now).await {
            Ok(()) => self.seen.extend(new),
            Err(error) => tracing::warn!(%error, "an application has no number yet"),
        }
    }

    fn unseen(&mut self, batch: &[impl Borrow<Exchange>]) -> Vec<String> {
        if self.seen.len() > MOST_SEEN {
            self.seen.clear();
        }
        let referers = batch.iter().filter_map(|exchange| exchange.borrow().referer.as_deref());
        // In an order of their own, so that two nodes that see the same ones wait for each other in the same order.
        let mut new: Vec<String> = referers.filter_map(origin).filter(|origin| !self.seen.contains(origin)).collect();
        new.sort_unstable();
        new.dedup();
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_is_known_by_its_origin() {
        for (referer, known) in [
            ("https://WWW.Shop.example:443/a?b#c", Some(("https://www.shop.example", "shop.example"))),
            ("http://localhost:3000/", Some(("http://localhost:3000", "localhost:3000"))),
            ("https://bücher.example", Some(("https://xn--bcher-kva.example", "xn--bcher-kva.example"))),
            ("android-app://com.example", None),
            ("file:///etc/hosts", None),
            ("shop", None),
            ("", None),
        ] {
            let found = origin(referer).map(application);
            let found = found.as_ref().map(|found| (found.origin.as_str(), found.title.as_str()));
            assert_eq!(found, known, "{referer}");
        }
        assert_eq!(origin(&format!("https://{}.example", "a.".repeat(200))), None);
    }
}
