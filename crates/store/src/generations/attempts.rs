//! The calls of upstreams that a request took, as they stand in one column of its record.

use std::borrow::Cow;

use serde::Deserialize;
use tidegate_core::exchange::AttemptRecord;
use tidegate_core::json;

#[derive(Deserialize)]
struct Attempt<'a> {
    provider: Cow<'a, str>,
    model: Cow<'a, str>,
    status: u16,
    duration_ms: u32,
    #[serde(default)]
    is_byok: bool,
}

/// As [`Attempt`]s are read.
pub(super) fn to_json(attempts: &[AttemptRecord]) -> String {
    let mut out = Vec::with_capacity(128 * attempts.len());
    for attempt in attempts {
        out.extend_from_slice(if out.is_empty() { br#"[{"provider":""# } else { br#",{"provider":""# });
        json::within(&mut out, &attempt.provider);
        out.extend_from_slice(br#"","model":""#);
        json::within(&mut out, &attempt.model);
        out.extend_from_slice(br#"","status":"#);
        json::count(&mut out, attempt.status.into());
        out.extend_from_slice(br#","duration_ms":"#);
        json::count(&mut out, attempt.duration_ms.into());
        out.extend_from_slice(if attempt.is_byok { br#","is_byok":true}"# } else { br#","is_byok":false}"# });
    }
    out.extend_from_slice(if out.is_empty() { b"[]" } else { b"]" });
    String::from_utf8(out).expect("made of texts")
}

pub(super) fn from_json(json: &str) -> Option<Vec<AttemptRecord>> {
    let attempts: Vec<Attempt<'_>> = serde_json::from_str(json).ok()?;
    let record = |attempt: Attempt<'_>| AttemptRecord {
        provider: attempt.provider.into(),
        model: attempt.model.into(),
        status: attempt.status,
        duration_ms: attempt.duration_ms,
        is_byok: attempt.is_byok,
        ..AttemptRecord::default()
    };
    Some(attempts.into_iter().map(record).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_written_as_they_are_read() {
        let attempt = |provider: &str, status, is_byok| AttemptRecord {
            provider: provider.into(),
            model: "a\\b/m\u{1}".into(),
            status,
            duration_ms: u32::from(status) * 1_000,
            is_byok,
            ..AttemptRecord::default()
        };
        let all = [attempt("P \"1\"", 0, false), attempt("P", 200, true), attempt("", 529, false)];
        for some in [&all[..0], &all[..1], &all] {
            let said: Vec<_> = some
                .iter()
                .map(|attempt| {
                    serde_json::json!({
                        "provider": *attempt.provider, "model": *attempt.model, "status": attempt.status,
                        "duration_ms": attempt.duration_ms, "is_byok": attempt.is_byok,
                    })
                })
                .collect();
            let written = to_json(some);
            assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&written).unwrap(), said);
            assert_eq!(from_json(&written).unwrap(), some);
        }
    }
}
