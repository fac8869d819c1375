//! What is read once, at the start: a reload cannot change it, and says so.

use serde_json::Value;
use tidegate_core::KeyHash;

use super::raw;

/// Settings, and whole sections of them.
const AT_START: [&str; 28] = [
    "service.listen",
    "service.public_url",
    "service.trusted_proxies",
    "service.drain_delay",
    "service.drain_timeout",
    "storage",
    "secrets",
    "state",
    "keys.prefix",
    "oauth",
    "oidc",
    "limits.connections",
    "limits.body_idle_ms",
    "limits.body_total_ms",
    "limits.write_stall_ms",
    "limits.header_read_ms",
    "limits.keep_alive_idle_ms",
    "limits.tls_handshake_ms",
    // Connections and the ledger wait for calls as long as these said at the start.
    "upstream.total_streamed_ms",
    "upstream.total_whole_ms",
    "parser.parallel",
    "ledger.sync",
    "ledger.lease_hold",
    "ledger.retention_days",
    "log.format",
    "log.level",
    "metrics.listen",
    "sim.enabled",
];

/// The settings that were read, each with a hash of what was written there: some of it is secret.
#[derive(Clone, Debug, Default)]
pub struct AtStart(Vec<(String, KeyHash)>);

impl AtStart {
    pub(super) fn of(config: &raw::Config) -> Self {
        let config = serde_json::to_value(config).unwrap_or_default();
        let hash = |value: &Value| KeyHash::of(value.to_string().as_bytes());
        let mut read = Vec::with_capacity(AT_START.len() + 10);
        for name in AT_START {
            let value = name.split('.').try_fold(&config, |value, step| value.get(step)).unwrap_or(&Value::Null);
            match value {
                Value::Object(members) => {
                    read.extend(members.iter().map(|(member, value)| (format!("{name}.{member}"), hash(value))));
                }
                value => read.push((name.to_owned(), hash(value))),
            }
        }
        Self(read)
    }

    /// What reads otherwise now.
    pub fn changed(&self, now: &Self) -> Vec<String> {
        let is_other =
            |(name, hash): &&(String, KeyHash)| !self.0.iter().any(|(known, old)| known == name && old == hash);
        now.0.iter().filter(is_other).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reload_cannot_change_is_named() {
        let of = |text: &str| AtStart::of(&toml::from_str(text).unwrap());
        let start = of("[oauth]\ncode_ttl = 300\n");
        assert!(start.changed(&start).is_empty());
        assert!(start.changed(&of("[oauth]\ncode_ttl = 300\n[limits]\nkey_rpm = 7\n")).is_empty());
        let other =
            "[service]\nlisten = \"127.0.0.1:1\"\npublic_url = \"https://x.example\"\n[keys]\nprefix = \"sk-\"\n";
        let changed = start.changed(&of(other));
        assert_eq!(changed, ["service.listen", "service.public_url", "keys.prefix", "oauth.code_ttl"]);
    }

    #[test]
    fn all_names_are_settings() {
        let config = serde_json::to_value(raw::Config::default()).unwrap();
        for name in AT_START {
            let found = name.split('.').try_fold(&config, |value, step| value.get(step));
            assert!(found.is_some(), "{name}");
        }
    }
}
