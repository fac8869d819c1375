//! What is told about the way a request took, to those who ask for it.

use std::fmt::Write as _;
use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_core::exchange::AttemptRecord;
use tidegate_routing::{Attempt, Plan, Strategy};
use tidegate_wire::json::quoted;

use super::Ticket;
use crate::Snapshot;
use crate::relay::admit::millis;

impl Ticket {
    /// The routing metadata of this moment. `selected` is the attempt that answered.
    pub fn routing_json(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
        requested: &str,
        selected: Option<&Attempt>,
        sent_at: Timestamp,
    ) -> String {
        let exchange = self.open_exchange();
        let strategy = selected.or_else(|| plan.attempts.first()).map_or(plan.strategy, |attempt| attempt.strategy);
        // A model of a list that answered instead says more than how the first one was found.
        let found = self.told.as_ref().and_then(|told| told.strategy).filter(|_| strategy != Strategy::Fallback);
        let strategy = found.unwrap_or(strategy.as_str());
        let mut out = format!(
            r#"{{"requested":{},"strategy":"{strategy}","region":{},"summary":"#,
            quoted(requested),
            quoted(&snapshot.settings.region)
        );
        let available = plan.attempts.len();
        let summary = match selected {
            Some(attempt) => format!("available={available}, selected={}", attempt.endpoint.provider_name),
            None => format!("available={available}"),
        };
        // Mostly the last one; a refusal is given after others have failed behind it.
        let is_answer = |made: &AttemptRecord| {
            selected.is_some_and(|attempt| {
                let endpoint = &attempt.endpoint;
                made.status == 200 && (&made.provider, &made.model) == (&endpoint.provider_name, &endpoint.model)
            })
        };
        let answer = exchange.attempts.iter().rposition(is_answer).map(|place| place + 1);
        let number = answer.unwrap_or(exchange.attempts.len());
        let _ = write!(out, r#"{},"attempt":{number}"#, quoted(&summary));
        if selected.is_some() {
            let _ = write!(out, r#","generation_time":{}"#, millis(sent_at, self.gate.clock.now()));
        }
        let listed: Vec<String> = plan
            .attempts
            .iter()
            .map(|attempt| {
                let chosen = selected.is_some_and(|selected| {
                    let same = selected.credential.as_ref().map(|own| &own.id)
                        == attempt.credential.as_ref().map(|own| &own.id);
                    same && Arc::ptr_eq(&selected.endpoint, &attempt.endpoint)
                });
                let (provider, model) = (quoted(&attempt.endpoint.provider_name), quoted(&attempt.endpoint.model));
                format!(r#"{{"provider":{provider},"model":{model},"selected":{chosen}}}"#)
            })
            .collect();
        let _ = write!(
            out,
            r#","is_byok":{},"endpoints":{{"total":{},"available":[{}]}}"#,
            // Of an answer that another attempt went on with, either may have been.
            selected.is_some_and(|attempt| attempt.credential.is_some())
                || self.carried.as_deref().is_some_and(|carried| carried.is_byok),
            plan.total,
            listed.join(",")
        );
        if !exchange.attempts.is_empty() {
            let tried: Vec<String> = exchange
                .attempts
                .iter()
                .map(|attempt| {
                    let (provider, model) = (quoted(&attempt.provider), quoted(&attempt.model));
                    format!(r#"{{"provider":{provider},"model":{model},"status":{}}}"#, attempt.status)
                })
                .collect();
            let _ = write!(out, r#","attempts":[{}]"#, tried.join(","));
        }
        let told = self.told.iter().flat_map(|told| told.entries.iter().map(String::as_str));
        let entries: Vec<&str> = told.chain(self.compressed.as_deref()).collect();
        if !entries.is_empty() {
            let _ = write!(out, r#","pipeline":[{}]"#, entries.join(","));
        }
        out.push('}');
        out
    }
}
