//! What a request wants of the model beyond its words, the same for every protocol: how hard it thinks, how long it
//! answers, where it stops.

use std::borrow::Cow;

use serde_json::Number;
use tidegate_wire::messages::{Request, ThinkingConfig};

use super::card::{Card, Level, Sampling};
use super::conversation::{Conversation, Text};
use super::{MODEL, Unsupported, beside, schema};

pub const NO_PREFILL: &str =
    "This model does not support assistant message prefill. The conversation must end with a user message.";

/// The warning that the model is told not to think.
pub const NOT_THINKING: &str = "disabled:thinking";

/// The warning that the model has no such level, and thinks at the nearest one.
pub const CLAMPED_EFFORT: &str = "clamped:effort";

/// The warning that a schema is a hint and no more.
const NOT_STRICT: &str = "dropped:strict";

/// Tokens that are left to answer with, where the limit allows for so many.
pub const ROOM: u64 = 1_024;

/// How hard the model is to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Nothing,
    Off,
    On,
    /// With the budget of tokens, where one was given.
    Level(Level, Option<u64>),
}

/// Thinking as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinking {
    pub wanted: Wanted,
    /// Whether its text may be shown.
    pub show: bool,
}

impl Thinking {
    pub fn of(request: &Request, card: &Card) -> Result<Self, Unsupported> {
        let effort = effort(request);
        let shown = |display: Option<&str>| display != Some("omitted");
        let (wanted, show) = match &request.thinking {
            Some(ThinkingConfig::Disabled(_) | ThinkingConfig::BetweenTools(_)) if card.always_thinks => {
                return Err(Unsupported::new(MODEL, "requires thinking"));
            }
            Some(ThinkingConfig::Disabled(_) | ThinkingConfig::BetweenTools(_)) => (Wanted::Off, false),
            Some(ThinkingConfig::Enabled(config)) => {
                // An effort outweighs a budget that came with it.
                let wanted = match effort {
                    Some(level) => Wanted::Level(level, None),
                    None => Wanted::Level(Level::of_budget(config.budget_tokens), Some(config.budget_tokens)),
                };
                (wanted, shown(config.display.as_deref()))
            }
            Some(ThinkingConfig::Adaptive(config)) => {
                let wanted = match effort {
                    Some(level) => Wanted::Level(level, None),
                    // A model that does not think unless told to is told to.
                    None if card.default_effort == Some(Level::None) => Wanted::Level(Level::Medium, None),
                    None => Wanted::On,
                };
                (wanted, shown(config.display.as_deref()))
            }
            Some(ThinkingConfig::Other(_)) | None => {
                (effort.map_or(Wanted::Nothing, |level| Wanted::Level(level, None)), false)
            }
        };
        Ok(Self { wanted, show })
    }

    /// The same, or none at all where the upstream would refuse the conversation: a call in it came from a model whose
    /// thinking nobody was shown, or the client has not kept it.
    pub fn unless_lost(self, card: &Card, conversation: &mut Conversation) -> Self {
        let is_refused = card.needs_thinking_back && !card.always_thinks && conversation.has_unthought_calls();
        if !is_refused || self.is_off() {
            return self;
        }
        // Also where nobody asked for it: such a model thinks unless it is told not to.
        conversation.warn(NOT_THINKING);
        Self { wanted: Wanted::Off, show: false }
    }

    /// The effort that the card has for it; to think as little as possible is an effort, too.
    pub fn level(&self, card: &Card) -> Option<Level> {
        match self.wanted {
            Wanted::Level(level, _) => card.clamp(level),
            Wanted::Off => card.efforts.iter().copied().find(|level| matches!(level, Level::None | Level::Minimal)),
            Wanted::On | Wanted::Nothing => None,
        }
    }

    /// The same, with a warning where the card has no word for what is wanted.
    pub fn effort(&self, card: &Card, conversation: &mut Conversation) -> Option<Level> {
        let level = self.level(card);
        match self.wanted {
            Wanted::Level(..) if level.is_none() => conversation.warn("dropped:effort"),
            // A budget asks for no level by its name.
            Wanted::Level(wanted, None) if level != Some(wanted) => conversation.warn(CLAMPED_EFFORT),
            // It thinks as hard as it does by itself, because nobody can keep it from that.
            Wanted::Off if level.is_none() && !card.efforts.is_empty() => conversation.warn("dropped:thinking"),
            _ => {}
        }
        level
    }

    pub fn is_off(&self) -> bool {
        self.wanted == Wanted::Off
    }

    /// A budget in tokens, for upstreams that want a number: the caller's own, or what the effort amounts to. Within the
    /// card's bounds.
    pub fn budget(&self, card: &Card) -> Option<u64> {
        let budget = match self.wanted {
            Wanted::Level(_, Some(budget)) => budget,
            Wanted::Level(level, None) => match level {
                Level::None | Level::Minimal => return None,
                Level::Low => 1_024,
                Level::Medium => 8_192,
                Level::High => 16_384,
                Level::XHigh | Level::Max => 24_576,
            },
            Wanted::Nothing | Wanted::Off | Wanted::On => return None,
        };
        let (least, most) = card.thinking_budget.unwrap_or((0, u64::MAX));
        Some(budget.clamp(least, most))
    }

    /// A budget in tokens where nothing is known of the model but how much it may write: a share of that, by the effort.
    pub fn share(&self, max_tokens: u64) -> Option<u64> {
        match self.wanted {
            Wanted::Level(_, Some(budget)) => Some(below(budget, max_tokens)),
            Wanted::Level(level, None) => level.share(max_tokens).map(|budget| below(budget, max_tokens)),
            Wanted::Nothing | Wanted::Off | Wanted::On => None,
        }
    }

    /// The same where thinking counts as output: below the limit of output, so that there is room to answer. The card's
    /// least stays the least, as less is refused: then the model may well think to the end, and the answer says so.
    pub fn budget_within(&self, card: &Card, max_tokens: u64) -> Option<u64> {
        let budget = self.budget(card)?;
        // A caller's own number stands as long as it is legal. An effort names none, and leaves half of a small limit.
        let room = match self.wanted {
            Wanted::Level(_, Some(_)) if budget < max_tokens => budget,
            _ => max_tokens.saturating_sub(ROOM).max(max_tokens / 2),
        };
        let least = card.thinking_budget.map_or(0, |(least, _)| least);
        Some(budget.min(room).max(least))
    }
}

fn effort(request: &Request) -> Option<Level> {
    request.output_config.as_ref().and_then(|config| config.effort.as_ref()).and_then(Level::of_effort)
}

/// Whether a request says anything of thinking.
pub fn is_asked(request: &Request) -> bool {
    effort(request).is_some() || matches!(&request.thinking, Some(asked) if !matches!(asked, ThinkingConfig::Other(_)))
}

/// A budget that leaves room to answer, also where the least would leave none.
fn below(budget: u64, max_tokens: u64) -> u64 {
    if budget < max_tokens { budget } else { max_tokens.saturating_sub(ROOM).max(max_tokens / 2) }
}

/// The limit of output tokens as the upstream takes it.
pub fn limit(request: &Request, card: &Card, conversation: &mut Conversation) -> Result<u64, Unsupported> {
    if request.max_tokens == Some(0) {
        return Err(Unsupported::new("max_tokens", "must be at least 1"));
    }
    let wanted = request.max_tokens.unwrap_or(card.max_output_tokens);
    let sent = wanted.min(card.max_output_tokens).max(card.min_output_tokens);
    if request.max_tokens.is_some_and(|wanted| wanted != sent) {
        conversation.warn("clamped:max_tokens");
    }
    Ok(sent)
}

/// The stop sequences that the upstream looks for, and those that are left to us.
pub fn stops(request: &Request, card: &Card) -> (Vec<String>, Vec<String>) {
    let mut sent = request.stop_sequences.clone().unwrap_or_default();
    let guarded = sent.split_off(sent.len().min(card.stop.most()));
    (sent, guarded)
}

/// Tells a model without a better way to follow a schema. Nothing makes it do so.
pub fn instruct(request: &Request, schema: &str, conversation: &mut Conversation) {
    if beside::strict(request) == Some(true) {
        conversation.warn(NOT_STRICT);
    }
    let words = format!("Answer with one JSON object that validates against this JSON Schema: {schema}");
    conversation.system.push(Text::plain(words));
}

/// Whether OpenAI's strict mode is asked to follow the schema of an answer: where the client wants it, or has said nothing,
/// and the schema allows it.
pub fn strictness(request: &Request, schema: &str, conversation: &mut Conversation) -> bool {
    let wanted = beside::strict(request);
    let is_possible =
        wanted != Some(false) && serde_json::from_str(schema).is_ok_and(|schema| schema::is_strict(&schema));
    if wanted == Some(true) && !is_possible {
        conversation.warn(NOT_STRICT);
    }
    is_possible
}

/// Options that no translated protocol has a word for. Those that the card lets through are given back.
pub fn unsent<'a>(request: &'a Request, card: &Card, conversation: &mut Conversation) -> Vec<(&'a str, &'a str)> {
    let options = [
        ("context_management", request.context_management.is_some()),
        ("diagnostics", request.diagnostics.as_ref().is_some_and(|raw| raw.get() != "null")),
        ("inference_geo", request.inference_geo.is_some()),
        ("task_budget", request.output_config.as_ref().is_some_and(|config| config.task_budget.is_some())),
    ];
    for (name, _) in options.into_iter().filter(|(_, present)| *present) {
        conversation.warn(format!("dropped:{name}"));
    }
    let mut allowed = Vec::new();
    // Null says the same as nothing.
    for (name, value) in request.extra.0.iter().filter(|(_, value)| value.get() != "null") {
        if card.extra_allow.iter().any(|known| known == name) {
            allowed.push((name.as_str(), value.get()));
        } else {
            conversation.warn(format!("dropped:{name}"));
        }
    }
    allowed
}

/// Sampling parameters, as far as the model takes them.
#[derive(Debug, Default)]
pub struct Sampled<'a> {
    pub temperature: Option<Cow<'a, Number>>,
    pub top_p: Option<&'a Number>,
    pub top_k: Option<u64>,
}

pub fn sampling<'a>(
    request: &'a Request,
    card: &Card,
    thinking: Thinking,
    conversation: &mut Conversation,
) -> Sampled<'a> {
    // A model that refuses them while it thinks takes them when it does not.
    let is_idle = thinking.is_off() && card.efforts.contains(&Level::None);
    let all = card.sampling != Sampling::None || is_idle;
    let both = card.sampling == Sampling::OneOf && request.temperature.is_some();
    let sampled = Sampled {
        temperature: request.temperature.as_ref().filter(|_| all).map(|wanted| cooled(wanted, card, conversation)),
        top_p: request.top_p.as_ref().filter(|_| all && !both),
        top_k: top_k(request).filter(|_| all && card.top_k),
    };
    let dropped = [
        ("temperature", request.temperature.is_some() && sampled.temperature.is_none()),
        ("top_p", request.top_p.is_some() && sampled.top_p.is_none()),
        ("top_k", top_k(request).is_some() && sampled.top_k.is_none()),
    ];
    for (name, _) in dropped.into_iter().filter(|(_, dropped)| *dropped) {
        conversation.warn(format!("dropped:{name}"));
    }
    sampled
}

/// Among how many a word is drawn. None means all of them, which is what others mean by leaving it out: they refuse it.
pub fn top_k(request: &Request) -> Option<u64> {
    request.top_k.filter(|most| *most > 0)
}

/// A temperature that the model takes.
pub fn cooled<'a>(wanted: &'a Number, card: &Card, conversation: &mut Conversation) -> Cow<'a, Number> {
    let most = card.hottest();
    match Number::from_f64(most).filter(|_| wanted.as_f64().is_some_and(|wanted| wanted > most)) {
        Some(most) => {
            conversation.warn("clamped:temperature");
            Cow::Owned(most)
        }
        None => Cow::Borrowed(wanted),
    }
}

/// The service tier in the upstream's words. `endpoint`: the one that the endpoint stands for, which is the one that is
/// paid for, whatever else the request says.
pub fn tier<'a>(
    request: &Request,
    card: &'a Card,
    endpoint: Option<&'a str>,
    conversation: &mut Conversation,
) -> Option<&'a str> {
    match (endpoint, &card.tiers) {
        (Some("priority"), Some((_, priority))) => return Some(priority),
        (Some(tier), _) => return Some(tier),
        (None, _) => {}
    }
    // Where only one of the two is given the other follows it.
    let fast = match (request.speed.as_deref(), request.service_tier.as_deref()) {
        (None, Some("priority" | "fast")) => card.tiers.is_some(),
        (speed, _) => speed == Some("fast"),
    };
    if fast && card.tiers.is_none() {
        conversation.warn("dropped:speed");
    }
    match (&card.tiers, request.service_tier.as_deref()) {
        (Some((_, priority)), _) if fast => Some(priority),
        (Some((standard, _)), Some("standard_only")) => Some(standard),
        (Some(_), Some("auto")) => Some("auto"),
        (None, Some("standard_only" | "auto")) | (_, None) => None,
        (_, Some(_)) => {
            conversation.warn("dropped:service_tier");
            None
        }
    }
}
