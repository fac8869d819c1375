//! Who is calling, and may they: everything that can be refused before the body is looked at.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName};
use tidegate_core::key::{self, KeyHash};
use tidegate_core::{KeyKind, Timestamp};
use tidegate_observe::metrics::{Reason, Rejection};

use crate::Gateway;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::limit::{self, Place, Rate};
use crate::rates::{self, Rates};
use crate::snapshot::Settings;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What a header said.
enum Presented<'a> {
    Nothing,
    Token(&'a [u8]),
    /// A credential that cannot be a key: another scheme, inner spaces.
    Unusable,
}

/// Places of a request in the node, its workspace and its key; given back when it ends.
pub(crate) struct Places {
    _node: Place,
    _workspace: Place,
    _key: Place,
}

/// The places of a request: its own, or those of the loop that it is a turn of.
pub(crate) enum Held {
    Own { _places: Places },
    Shared { _places: Arc<Places> },
}

impl From<Places> for Held {
    fn from(places: Places) -> Self {
        Self::Own { _places: places }
    }
}

impl From<Arc<Places>> for Held {
    fn from(places: Arc<Places>) -> Self {
        Self::Shared { _places: places }
    }
}

/// Requests a minute: of a key, of a workspace, from an address; 0 is no limit.
#[derive(Clone, Copy)]
struct Limits([u32; 3]);

/// A limit that is used up, and when it has something free again.
struct Over {
    free: Timestamp,
    kind: &'static str,
    limit: u32,
}

impl Limits {
    fn of(settings: &Settings) -> Self {
        Self([settings.key_per_minute, settings.workspace_per_minute, settings.address_per_minute])
    }

    /// The part of one of so many nodes; something is left for each.
    fn divided(self, nodes: u32) -> Self {
        Self(self.0.map(|limit| if limit == 0 { 0 } else { (limit / nodes.max(1)).max(1) }))
    }

    /// Of those that are used up, the one that must be waited for longest.
    fn over(self, free: [Option<Timestamp>; 3]) -> Option<Over> {
        let kinds = ["key_rate", "workspace_rate", "address_rate"];
        let over = free.into_iter().zip(kinds).zip(self.0);
        let over = over.filter_map(|((free, kind), limit)| Some(Over { free: free?, kind, limit }));
        over.max_by_key(|over| over.free)
    }
}

impl Gateway {
    /// The live key behind a request's headers. `x_api_key` says whether that header counts on this route.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        source: IpAddr,
        x_api_key: bool,
    ) -> Result<Arc<KeyEntry>, Failure> {
        let token = match presented(headers, x_api_key) {
            Presented::Nothing => return Err(self.refused("missing", Failure::missing_credential())),
            Presented::Token(token) => Some(token),
            Presented::Unusable => None,
        };
        let snapshot = self.snapshot();
        let now = self.clock.now();
        let limit = snapshot.settings.auth_failures_per_minute;
        let held_off = |free| self.refused("held_off", Failure::rate_limited(limit.into(), free, now));
        if let Some(token) = token {
            let hash = KeyHash::of(token);
            let entry = match self.keys.known(&hash) {
                Some(entry) => Some(entry),
                // Its form only spares the store: a key that was imported or made under another prefix is known above.
                None if key::is_malformed(token, &snapshot.settings.key_prefixes) => None,
                None => {
                    // Someone who guesses must not get a query of the store for every guess.
                    self.keys.failures.check(source, now, limit).map_err(held_off)?;
                    self.keys.look_up(&hash, now).await.map_err(|error| {
                        // A key we cannot look up is our fault, never an invalid key.
                        tracing::error!(%error, "a key could not be looked up");
                        Failure::unavailable()
                    })?
                }
            };
            if let Some(entry) = entry.filter(|entry| entry.is_usable(now)) {
                return Ok(entry);
            }
        }
        Err(match self.keys.failures.note(source, now, limit) {
            Ok(()) => self.refused("invalid", Failure::invalid_key()),
            Err(free) => held_off(free),
        })
    }

    /// As [`Gateway::authenticate`], for inference only.
    pub async fn authenticate_inference(&self, headers: &HeaderMap, source: IpAddr) -> Result<Arc<KeyEntry>, Failure> {
        let key = self.authenticate(headers, source, true).await?;
        match key.kind {
            KeyKind::Inference => Ok(key),
            KeyKind::Management => Err(self.refused("kind", Failure::not_for_inference())),
        }
    }

    /// Counts an inference request against the rates of its key, its workspace and its address; none of them counts what
    /// another one refuses.
    pub async fn admit_inference(&self, key: &KeyEntry, source: IpAddr) -> Result<(), Failure> {
        self.shed_greedy(key)?;
        let snapshot = self.snapshot();
        let limits = Limits::of(&snapshot.settings);
        if limits.0 == [0; 3] {
            return Ok(());
        }
        let now = self.clock.now();
        let over = match &self.rates {
            None => self.count_here(key, source, limits, now),
            Some(rates) => self.count_together(rates, &snapshot.settings.brand, key, source, limits, now).await,
        };
        match over {
            None => Ok(()),
            Some(Over { free, kind, limit }) => {
                self.metrics.limit_rejections.get_or_create(&Rejection { kind }).inc();
                Err(Failure::rate_limited(limit.into(), free, now))
            }
        }
    }

    /// Counts in the counters of this node.
    fn count_here(&self, key: &KeyEntry, source: IpAddr, limits: Limits, now: Timestamp) -> Option<Over> {
        let Limits([key_limit, workspace_limit, address_limit]) = limits;
        for counts in [false, true] {
            let asked = &self.keys.asked;
            let by_address = match (address_limit, counts) {
                (0, _) => Ok(()),
                (limit, true) => asked.note(source, now, limit),
                (limit, false) => asked.check(source, now, limit),
            };
            let looked = [
                key.live.asked.per_minute(now, key_limit, counts),
                key.workspace_live.asked.per_minute(now, workspace_limit, counts),
                by_address,
            ];
            let over = limits.over(looked.map(Result::err));
            if over.is_some() {
                return over;
            }
        }
        None
    }

    /// Counts in the counters of all gateways; where nobody answers in time, here, against this node's part of a limit.
    async fn count_together(
        &self,
        rates: &Rates,
        brand: &str,
        key: &KeyEntry,
        source: IpAddr,
        limits: Limits,
        now: Timestamp,
    ) -> Option<Over> {
        let part = limits.divided(self.ledger.share());
        let mut places = Vec::with_capacity(limits.0.len());
        let mut asked = Vec::with_capacity(limits.0.len());
        for (place, per_minute) in limits.0.into_iter().enumerate().filter(|(_, limit)| *limit > 0) {
            let name = match place {
                0 => format!("key:{}", key.hash.to_hex()),
                1 => format!("workspace:{}", key.workspace.0),
                _ => format!("address:{}", limit::counted_as(source)),
            };
            places.push(place);
            asked.push(rates::Limit { name, per_minute });
        }
        let Some(waits) = rates.count(brand, &asked).await else { return self.count_here(key, source, part, now) };
        let mut free = [None; 3];
        for (place, wait) in places.into_iter().zip(waits) {
            let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
            free[place] = (!wait.is_zero()).then(|| now.plus(wait));
        }
        let over = limits.over(free);
        if over.is_none() {
            // Known here too, so that nobody starts anew when the counters are lost.
            let _ = self.count_here(key, source, part, now);
        }
        over
    }

    /// Counts a request for a free variant against what its key may ask of them.
    pub(crate) fn admit_free(&self, key: &KeyEntry, settings: &Settings) -> Result<(), Failure> {
        let (now, live) = (self.clock.now(), &key.live);
        let refused = |limit: u32, span: &str, free: Timestamp| {
            self.metrics.limit_rejections.get_or_create(&Rejection { kind: "free" }).inc();
            let message = format!("Rate limit exceeded: free models, {limit} requests per {span}");
            Failure { message: message.into(), ..Failure::rate_limited(limit.into(), free, now) }
        };
        let (minute, day) = (settings.free_per_minute, settings.free_per_day);
        live.asked_free.per_minute(now, minute, false).map_err(|free| refused(minute, "minute", free))?;
        live.free_today.admit(now, day).map_err(|free| refused(day, "day", free))?;
        live.asked_free.per_minute(now, minute, true).map_err(|free| refused(minute, "minute", free))
    }

    /// Counts a management operation against the rate of its key, or of whoever is signed in.
    pub fn admit_management(&self, rate: &Rate) -> Result<(), Failure> {
        let (now, per_minute) = (self.clock.now(), self.snapshot().settings.management_per_minute);
        let (interval_ms, burst) = limit::pace(per_minute);
        rate.admit(now, interval_ms, burst).map_err(|free| {
            self.metrics.limit_rejections.get_or_create(&Rejection { kind: "management" }).inc();
            Failure::rate_limited(per_minute.into(), free, now)
        })
    }

    fn refused(&self, reason: &'static str, failure: Failure) -> Failure {
        self.metrics.auth_failures.get_or_create(&Reason { reason }).inc();
        failure
    }

    /// Takes a place in every limit of requests in flight, or none.
    pub(crate) fn enter(&self, key: &KeyEntry, settings: &Settings) -> Result<Places, Failure> {
        let rejected = |kind, failure| {
            self.metrics.limit_rejections.get_or_create(&Rejection { kind }).inc();
            failure
        };
        if self.is_draining() {
            return Err(rejected("draining", Failure::unavailable()));
        }
        let node = self.node.enter(settings.in_flight_node);
        let node = node.ok_or_else(|| rejected("in_flight_node", Failure::unavailable()))?;
        // Nobody knows when a place will be free; a second is the shortest wait that can be told.
        let full = |limit: usize| {
            let now = self.clock.now();
            Failure::rate_limited(limit as u64, now.plus(Duration::from_secs(1)), now)
        };
        let workspace = key.workspace_live.in_flight.enter(settings.in_flight_workspace);
        let workspace = workspace.ok_or_else(|| rejected("in_flight_workspace", full(settings.in_flight_workspace)))?;
        let place = key.live.in_flight.enter_among(settings.in_flight_key, &self.busy_keys);
        let place = place.ok_or_else(|| rejected("in_flight_key", full(settings.in_flight_key)))?;
        Ok(Places { _node: node, _workspace: workspace, _key: place })
    }
}

/// `Authorization: Bearer` first, `x-api-key` as its substitute; an empty header counts as absent, and another scheme
/// counts only when it stands alone.
fn presented(headers: &HeaderMap, x_api_key: bool) -> Presented<'_> {
    let authorization =
        headers.get(AUTHORIZATION).map(|value| value.as_bytes().trim_ascii()).filter(|value| !value.is_empty());
    let api_key = headers.get(X_API_KEY).filter(|_| x_api_key);
    let api_key = api_key.map(|value| value.as_bytes().trim_ascii()).filter(|value| !value.is_empty());
    let bearer = authorization.map(|value| match value.iter().position(u8::is_ascii_whitespace) {
        Some(space) if value[..space].eq_ignore_ascii_case(b"bearer") => Some(value[space..].trim_ascii()),
        None if value.eq_ignore_ascii_case(b"bearer") => Some(&b""[..]),
        _ => None,
    });
    let token = match (bearer, api_key) {
        (Some(Some(token)), _) if !token.is_empty() => token,
        (_, Some(token)) => token,
        (Some(None), None) => return Presented::Unusable,
        _ => return Presented::Nothing,
    };
    if token.iter().any(u8::is_ascii_whitespace) { Presented::Unusable } else { Presented::Token(token) }
}

/// Milliseconds between two instants of the wall clock, as records keep them.
pub(super) fn millis(from: Timestamp, to: Timestamp) -> u32 {
    u32::try_from(to.since(from).as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn read(pairs: &[(&'static str, &'static str)]) -> String {
        let headers = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        match presented(&headers, true) {
            Presented::Nothing => "nothing".to_owned(),
            Presented::Unusable => "unusable".to_owned(),
            Presented::Token(token) => String::from_utf8(token.to_vec()).unwrap(),
        }
    }

    #[test]
    fn led_25_a_node_alone_counts_its_part_of_a_limit_and_never_nothing() {
        let divided = |limits: [u32; 3], nodes| Limits(limits).divided(nodes).0;
        assert_eq!(divided([60, 7, 0], 1), [60, 7, 0]);
        assert_eq!(divided([60, 7, 0], 3), [20, 2, 0]);
        assert_eq!(divided([60, 7, 1], 10), [6, 1, 1]);
        assert_eq!(divided([60, 7, 1], 0), [60, 7, 1], "nobody knows of any node");
    }

    #[test]
    fn key_6_credentials_are_found_where_clients_put_them() {
        let cases: [(&[(&str, &str)], &str); 12] = [
            (&[], "nothing"),
            (&[("authorization", "")], "nothing"),
            (&[("authorization", "Bearer ")], "nothing"),
            (&[("authorization", "Bearer")], "nothing"),
            (&[("x-api-key", " ")], "nothing"),
            (&[("authorization", "bearer  k1")], "k1"),
            (&[("x-api-key", "k2")], "k2"),
            (&[("authorization", "Bearer k1"), ("x-api-key", "k2")], "k1"),
            (&[("authorization", "Basic abc"), ("x-api-key", "k2")], "k2"),
            (&[("authorization", ""), ("x-api-key", "k2")], "k2"),
            (&[("authorization", "Basic abc")], "unusable"),
            (&[("authorization", "Bearer a b")], "unusable"),
        ];
        for (headers, expected) in cases {
            assert_eq!(read(headers), expected, "{headers:?}");
        }
    }
}
