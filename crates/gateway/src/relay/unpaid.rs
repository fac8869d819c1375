//! What a caller hears who cannot pay: which limit does not reach, how far it does, and whether waiting helps.

use std::fmt::Write as _;

use tidegate_core::{Account, Money, Window};
use tidegate_observe::metrics::Rejection;
use tidegate_wire::error::ErrorType;
use tidegate_wire::json::quoted;

use super::reserve::{Ask, Binding};
use super::settle::Ticket;
use crate::failure::Failure;
use crate::{Gateway, Snapshot};

/// What a member that names a cap may count for.
const CAP_TOKENS: u64 = 8;

/// The answer to a caller who cannot pay. `enough`: the least output that the call would be let in with.
pub(super) fn refused(
    (gate, snapshot, ticket): (&Gateway, &Snapshot, &Ticket),
    ask: &Ask<'_>,
    enough: u64,
    binding: &Binding,
) -> Failure {
    let rule = &binding.short.demand.rule;
    let reach = Reach::of(ticket, ask, enough, binding);
    let (kind, status, error_type) = match &rule.slot.account {
        Account::Workspace(_) => ("budget", 403, ErrorType::PermissionDenied),
        Account::Guardrail(_) | Account::Member(_) => ("guardrail", 403, ErrorType::PermissionDenied),
        Account::Key(_) => ("key", 402, ErrorType::PaymentRequired),
        Account::Organisation(_) => ("credits", 402, ErrorType::PaymentRequired),
    };
    gate.metrics.limit_rejections.get_or_create(&Rejection { kind }).inc();
    let interval = rule.slot.window.map_or("lifetime", Window::as_str);
    let budget = |scope| reach.told(&format!("{scope} {interval} budget of ${} exceeded", dollars(rule.limit)));
    let text = match (&rule.slot.account, reach.tokens, &snapshot.settings.credits_url) {
        (Account::Workspace(_), ..) => budget("Workspace"),
        (Account::Guardrail(_) | Account::Member(_), ..) => budget("Guardrail"),
        (_, Some(_), _) => reach.told("Insufficient credits"),
        (Account::Key(_), None, _) => reach.told("API key spend limit reached"),
        (Account::Organisation(_), None, Some(url)) => {
            format!("{}. Add more using {url}", reach.told("Insufficient credits"))
        }
        (Account::Organisation(_), None, None) => reach.told("Insufficient credits"),
    };
    let mut failure = Failure::new(status, error_type, text);
    if matches!(rule.slot.account, Account::Key(_)) {
        let resets = rule.slot.window.map(|window| window.next(ticket.started()).to_string());
        let resets = resets.map_or_else(|| "null".to_owned(), |instant| quoted(&instant));
        failure.more_mut().metadata = Some(format!(r#"{{"resets_at":{resets}}}"#));
    }
    if reach.is_held {
        failure.retry_after = Some(1);
    }
    Failure { is_unpaid: true, is_held: reach.is_held, affordable: reach.tokens.unwrap_or(0), ..failure }
}

/// How far a limit reaches that does not reach far enough.
struct Reach {
    tokens: Option<u64>,
    /// What the call may cost.
    needed: Money,
    left: Money,
    /// What other calls hold, or other nodes.
    held: Money,
    /// Whether that would do.
    is_held: bool,
}

impl Reach {
    fn of(ticket: &Ticket, ask: &Ask<'_>, enough: u64, Binding { short, tokens }: &Binding) -> Self {
        let slot = &short.demand.rule.slot;
        // Who names a cap sends a few bytes more.
        let named = Ask { prompt: ask.prompt + CAP_TOKENS, ..*ask };
        let tokens = tokens.and_then(|known| if ask.is_capped { Some(known) } else { named.reach(ticket, short) });
        let own = ticket.held(slot);
        let demands = ticket.demands(ask.most(enough), ask.is_byok);
        let needed =
            demands.iter().find(|demand| demand.rule.slot == *slot).map_or(Money::ZERO, |demand| demand.amount);
        let (left, held) = (short.available.plus(own), short.held.minus(own).max(Money::ZERO));
        let is_held = held > Money::ZERO && left.plus(held) >= needed;
        Self { tokens: tokens.filter(|tokens| *tokens > 0), needed, left, held, is_held }
    }

    /// After what is said anyhow.
    fn told(&self, base: &str) -> String {
        let Self { needed, left, .. } = *self;
        let mut text = base.to_owned();
        match self.tokens {
            Some(tokens) => _ = write!(text, ": at most {tokens} output tokens are affordable"),
            None if left > Money::ZERO && left < needed => {
                _ = write!(text, ": this call may cost ${}, and ${} is left", dollars(needed), dollars(left));
            }
            None => {}
        }
        if self.is_held {
            _ = write!(text, "; calls under way hold ${}, try again when they end", dollars(self.held));
        }
        text
    }
}

/// Two places, or as many as it takes to say what was set.
fn dollars(amount: Money) -> String {
    let text = amount.to_string();
    match text.split_once('.') {
        None => format!("{text}.00"),
        Some((_, places)) if places.len() == 1 => format!("{text}0"),
        Some(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_told_in_dollars_and_cents() {
        for (nanos, text) in
            [(5_000_000_000, "5.00"), (500_000_000, "0.50"), (1_250_000_000, "1.25"), (1_000_000, "0.001")]
        {
            assert_eq!(dollars(Money(nanos)), text);
        }
    }
}
