//! What must change in a request before a Messages upstream takes it. Nearly no request needs any of it; what is not
//! named here goes out byte for byte.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_wire::envelope::Traits;
use tidegate_wire::json::{self, Kind, Members, quoted};

use super::beta::Withheld;
use super::marker::{LIFETIMES, marked_last, move_marker, unmarked};
use super::{gated, made, merge};
use crate::repair;
use crate::translate::Card;
use crate::translate::card::{Level, Sampling, ThinkingMode};
use crate::translate::carrier::Carrier;
use crate::translate::conversation::BEGINNING;
use crate::translate::intent::CLAMPED_EFFORT;
use crate::translate::tools::claudes_id;

/// What an edit makes of a body.
#[derive(Debug, Default)]
pub struct Edited {
    /// `None` when the body is right as it is.
    pub body: Option<Bytes>,
    pub warnings: Vec<String>,
}

/// What a body must fit.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    pub card: &'a Card,
    /// Whose signatures may go back.
    pub scope: &'a str,
    pub max_tokens: Option<u64>,
    /// The most that it may answer, and what it is told where the caller has set no limit.
    pub max_output_tokens: u64,
    /// The endpoint stands for a service tier of its own, so that one need not be asked for.
    pub is_tiered: bool,
    /// Members that the upstream has no word for.
    pub dropped: &'a [&'a str],
    /// What it has no word for deeper inside.
    pub withheld: Withheld,
    /// The upstream has said that it did not sign what it was shown: none of it goes along.
    pub without_reasoning: bool,
    /// A marker for the whole request is unknown there and goes to the last block that can carry one.
    pub marks_last: bool,
    /// The body was made here of another format, whose ids of calls may be any text.
    pub is_made: bool,
}

#[cfg(test)]
impl<'a> Rules<'a> {
    /// Those of an endpoint that takes the request as it came, as far as this card says nothing else.
    pub(super) fn plain(card: &'a Card, max_tokens: Option<u64>) -> Self {
        Self {
            card,
            scope: "ep-1",
            max_tokens,
            max_output_tokens: 64_000,
            is_tiered: false,
            dropped: &[],
            withheld: Withheld::default(),
            without_reasoning: false,
            marks_last: false,
            is_made: false,
        }
    }
}

impl Rules<'_> {
    /// Whether anything must be looked at; told from what the envelope saw, without another pass.
    fn apply_to(&self, traits: Traits) -> bool {
        let card = self.card;
        traits.foreign_thinking
            || traits.blank_text
            || traits.unclean_data
            || traits.own_citations
            || self.without_reasoning
            || !self.dropped.is_empty()
            || (traits.sampling && card.sampling != Sampling::All)
            || (traits.hot && card.max_temperature < 2.0)
            || (traits.forced_choice && !card.forced_choice)
            || traits.odd_tier
            || (traits.thinking && card.thinking_modes.is_some())
            || (traits.effort && !card.effort)
            || self.clamped(traits).is_some()
            || (traits.system_message && !card.mid_system)
            || (traits.cache_lifetime && !card.cache_ttl)
            || (traits.billing_line && card.foreign)
            || (traits.cache_for_all && self.marks_last)
            || self.max_tokens.is_some_and(|wanted| wanted > self.max_output_tokens)
    }

    /// The nearest effort that the model has, where it lists what it has and the one that is asked for is not among them.
    fn clamped(&self, traits: Traits) -> Option<Level> {
        let card = self.card;
        let wanted = traits.effort_level.filter(|_| card.effort && !card.efforts.is_empty()).and_then(Level::parse)?;
        card.clamp(wanted).filter(|level| *level != wanted)
    }
}

/// The body as the rules want it.
pub fn edited(body: &Bytes, traits: Traits, rules: &Rules<'_>) -> Edited {
    let mut changed: Option<Bytes> = None;
    let mut warnings: Vec<String> = Vec::new();
    for fitted in [gated::fitted, made::fitted] {
        if let Some((body, more)) = fitted(changed.as_ref().unwrap_or(body), traits, rules) {
            changed = Some(body);
            warnings.extend(more);
        }
    }
    let Edited { body, warnings: more } = fit(changed.as_ref().unwrap_or(body), traits, rules);
    let more: Vec<String> = more.into_iter().filter(|more| !warnings.contains(more)).collect();
    warnings.extend(more);
    Edited { body: body.or(changed), warnings }
}

fn fit(body: &Bytes, traits: Traits, rules: &Rules<'_>) -> Edited {
    let has_calls = || std::str::from_utf8(body).is_ok_and(|text| text.contains("\"tool_use\""));
    let thinks_freely = traits.thinking && rules.max_tokens.is_none();
    let is_concerned = rules.apply_to(traits)
        || (rules.card.needs_thinking_back && has_calls())
        || (rules.is_made && has_calls() && has_odd_ids(body))
        || (thinks_freely && budget(body).is_some_and(|budget| budget >= rules.max_output_tokens));
    if !is_concerned {
        return Edited::default();
    }
    let Some(members) = serde_json::from_slice::<&RawValue>(body).ok().and_then(Members::of) else {
        return Edited::default();
    };
    let mut edit = Edit {
        rules,
        warnings: Vec::new(),
        removed_thinking: Vec::new(),
        has_unthought_calls: false,
        is_budgeted: false,
    };
    let text = edit.body(&members, traits);
    Edited { body: Some(text.into()), warnings: edit.warnings }
}

/// Whether a call has an id that Claude refuses.
fn has_odd_ids(body: &Bytes) -> bool {
    let messages = serde_json::from_slice::<&RawValue>(body).ok().and_then(Members::of);
    let messages = messages.and_then(|members| json::elements(members.get("messages")?)).unwrap_or_default();
    let contents = messages.into_iter().filter_map(|message| json::elements(Members::of(message)?.get("content")?));
    contents.flatten().any(|block| identified(block).is_some())
}

/// A call or a result with an id that Claude takes; nothing where it has one.
fn identified(block: &RawValue) -> Option<String> {
    let named_by = match () {
        () if is_kind(block, "tool_use") => "id",
        () if is_kind(block, "tool_result") => "tool_use_id",
        () => return None,
    };
    let members = Members::of(block)?;
    let id = members.get(named_by).and_then(json::string)?;
    Some(with_text(&members, named_by, &claudes_id(&id)?))
}

/// The tokens that a request wants to think with.
fn budget(body: &Bytes) -> Option<u64> {
    let members = Members::of(serde_json::from_slice(body).ok()?)?;
    Members::of(members.get("thinking")?)?.get("budget_tokens")?.get().parse().ok()
}

struct Edit<'r> {
    rules: &'r Rules<'r>,
    warnings: Vec<String>,
    /// Places of messages that no longer begin with thinking.
    removed_thinking: Vec<usize>,
    /// A call stands in a message without the thinking that led to it.
    has_unthought_calls: bool,
    /// The effort has become a budget.
    is_budgeted: bool,
}

pub(super) type Raw<'a> = Cow<'a, str>;

impl Edit<'_> {
    fn warn(&mut self, warning: impl Into<String>) {
        let warning = warning.into();
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// A service tier in Anthropic's words, of which there are two; the endpoint was chosen by the others already.
    fn tier<'a>(&mut self, value: &RawValue) -> Option<Raw<'a>> {
        match json::string(value).as_deref() {
            Some("default" | "standard") => Some(Cow::Borrowed(r#""standard_only""#)),
            _ => {
                if !self.rules.is_tiered {
                    self.warn("dropped:service_tier");
                }
                None
            }
        }
    }

    fn body(&mut self, members: &Members<'_>, traits: Traits) -> String {
        let mut messages = members.get("messages").map(|messages| self.messages(messages, traits));
        let marker = members.get("cache_control").filter(|_| self.rules.marks_last);
        if let Some(marker) = marker.filter(|marker| json::kind(marker) == Kind::Object) {
            let marker = if self.rules.card.cache_ttl { marker.get().into() } else { unmarked(marker, 0, &LIFETIMES) };
            messages = messages.map(|messages| marked_last(&messages, &marker).unwrap_or(messages));
        }
        let thinking = self.thinking(members, traits);
        let clamped = self.rules.clamped(traits);
        if clamped.is_some() {
            self.warn(CLAMPED_EFFORT);
        }
        let effort = thinking.as_ref().and_then(|(_, effort)| *effort).or(clamped);
        let mut out = String::from("{");
        for (name, value) in &members.0 {
            let made: Option<Raw<'_>> = match name.as_ref() {
                name if self.rules.dropped.contains(&name) && !repair::is_needed(name, value) => {
                    self.warn(format!("dropped:{name}"));
                    None
                }
                "service_tier" if traits.odd_tier => self.tier(value),
                "messages" => messages.clone().map(Cow::Owned),
                "temperature" | "top_p" | "top_k" => self.sampling(name, value, members),
                "thinking" => match &thinking {
                    Some((made, _)) => made.clone().map(Cow::Owned),
                    None => Some(value.get().into()),
                },
                "output_config" => self.output_config(value, effort),
                "max_tokens" => Some(self.limit(value)),
                "tool_choice" if traits.forced_choice && !self.rules.card.forced_choice => Some(self.choice(value)),
                "system" => self.system(value),
                "tools" if traits.cache_lifetime && !self.rules.card.cache_ttl => {
                    Some(unmarked(value, 1, &LIFETIMES).into())
                }
                "cache_control" if self.rules.marks_last => None,
                "cache_control" if !self.rules.card.cache_ttl => Some(unmarked(value, 0, &LIFETIMES).into()),
                _ => Some(value.get().into()),
            };
            if let Some(made) = made {
                push_member(&mut out, name, &made);
            }
        }
        // Nothing said about thinking means that it thinks.
        if members.get("thinking").is_none() && self.must_not_think() {
            push_member(&mut out, "thinking", NO_THINKING);
        }
        if let (Some(effort), None) = (effort, members.get("output_config")) {
            push_member(&mut out, "output_config", &format!(r#"{{"effort":"{}"}}"#, effort.as_str()));
        }
        out.push('}');
        out
    }

    fn sampling<'a>(&mut self, name: &str, value: &'a RawValue, members: &Members<'_>) -> Option<Raw<'a>> {
        let is_null = |value: &RawValue| json::kind(value) == Kind::Null;
        let has_temperature = members.get("temperature").is_some_and(|value| !is_null(value));
        let taken = match self.rules.card.sampling {
            Sampling::All => true,
            Sampling::None => false,
            Sampling::OneOf => name != "top_p" || !has_temperature,
        };
        if !taken && !is_null(value) {
            self.warn(format!("dropped:{name}"));
        }
        let most = self.rules.card.max_temperature;
        if taken && name == "temperature" && value.get().parse::<f64>().is_ok_and(|wanted| wanted > most) {
            self.warn("clamped:temperature");
            return Some(most.to_string().into());
        }
        taken.then(|| value.get().into())
    }

    fn limit<'a>(&mut self, value: &'a RawValue) -> Raw<'a> {
        match self.rules.max_tokens {
            Some(wanted) if wanted > self.rules.max_output_tokens => {
                self.warn("clamped:max_tokens");
                self.rules.max_output_tokens.to_string().into()
            }
            _ => value.get().into(),
        }
    }

    /// The model may call a tool where it cannot be made to.
    fn choice<'a>(&mut self, value: &'a RawValue) -> Raw<'a> {
        let Some(made) = freed(value) else { return value.get().into() };
        self.warn("changed:tool_choice");
        made.into()
    }

    /// How the model is to think: in a way that it takes. What is given back is the member, if it is to stand at all,
    /// and an effort that a budget amounts to.
    fn thinking(&mut self, members: &Members<'_>, traits: Traits) -> Option<(Option<String>, Option<Level>)> {
        let value = members.get("thinking").filter(|value| json::kind(value) == Kind::Object)?;
        let inner = Members::of(value)?;
        let word = |name: &str| inner.get(name).and_then(json::string);
        let kind = word("type")?;
        let number = |value: Option<&RawValue>| value.and_then(|value| value.get().parse::<u64>().ok());
        let takes =
            |mode: ThinkingMode| self.rules.card.thinking_modes.as_ref().is_none_or(|modes| modes.contains(&mode));
        let is_lost = kind == "enabled" && self.lost_its_thinking(members);
        if is_lost || (kind != "disabled" && self.must_not_think()) {
            self.warn("disabled:thinking");
            return Some((Some(NO_THINKING.to_owned()), None));
        }
        if kind == "enabled"
            && let Some(budget) = number(inner.get("budget_tokens"))
            && let Some(made) = self.affordable(budget, &inner)
        {
            return Some((made, None));
        }
        let display = inner.get("display").map(|value| format!(r#","display":{}"#, value.get())).unwrap_or_default();
        match kind.as_ref() {
            "enabled" if !takes(ThinkingMode::Enabled) && takes(ThinkingMode::Adaptive) => {
                let has_effort = members.get("output_config").is_some_and(|value| value.get().contains("\"effort\""));
                let level = number(inner.get("budget_tokens")).map(Level::of_budget).filter(|_| !has_effort);
                self.warn("changed:thinking");
                Some((Some(format!(r#"{{"type":"adaptive"{display}}}"#)), level.and_then(|level| self.effort(level))))
            }
            "adaptive" if !takes(ThinkingMode::Adaptive) => {
                self.warn("changed:thinking");
                let limit = self.rules.max_tokens.unwrap_or(self.rules.max_output_tokens);
                let limit = limit.min(self.rules.max_output_tokens);
                // As much as the effort amounts to, else half; and never so much that nothing is left to answer with.
                let asked = traits.effort_level.and_then(Level::parse).and_then(|level| level.share(limit));
                let budget = asked.unwrap_or(limit / 2).clamp(1_024, limit.saturating_sub(1_024).max(1_024));
                let made =
                    (limit >= 2_048).then(|| format!(r#"{{"type":"enabled","budget_tokens":{budget}{display}}}"#));
                self.is_budgeted = asked.is_some() && made.is_some();
                Some((made, None))
            }
            "between_tools" if !takes(ThinkingMode::BetweenTools) => {
                self.warn("changed:thinking");
                Some((Some(NO_THINKING.to_owned()), None))
            }
            "disabled" if !takes(ThinkingMode::Disabled) => {
                self.warn("dropped:thinking");
                Some((None, None))
            }
            _ => None,
        }
    }

    /// Whether the upstream would refuse the conversation for thinking that is not in it any more.
    fn must_not_think(&self) -> bool {
        self.has_unthought_calls && self.rules.card.can_stop_thinking()
    }

    /// Where the limit of output was lowered or set here, a budget for thinking that still leaves room to answer; `None`
    /// inside when there is no such budget, and on the whole when the limit is the caller's or the budget fits.
    fn affordable(&mut self, budget: u64, thinking: &Members<'_>) -> Option<Option<String>> {
        let limit = self.rules.max_output_tokens;
        let room = limit.saturating_sub(1_024);
        let takes = |mode| self.rules.card.thinking_modes.as_ref().is_none_or(|modes| modes.contains(&mode));
        let fits = match self.rules.max_tokens {
            Some(wanted) => wanted <= limit || budget <= room,
            None => budget < limit,
        };
        if fits || !takes(ThinkingMode::Enabled) {
            return None;
        }
        if room < 1_024 {
            self.warn("dropped:thinking");
            return Some(None);
        }
        self.warn("clamped:budget_tokens");
        let mut out = String::from("{");
        for (name, value) in &thinking.0 {
            let room = room.to_string();
            push_member(&mut out, name, if name == "budget_tokens" { &room } else { value.get() });
        }
        out.push('}');
        Some(Some(out))
    }

    /// The effort that the model has for a level; none where it takes no efforts.
    fn effort(&self, level: Level) -> Option<Level> {
        let card = self.rules.card;
        match (card.effort, card.efforts.is_empty()) {
            (false, _) => None,
            (true, true) => Some(level),
            (true, false) => card.clamp(level),
        }
    }

    /// Whether the results at the end answer calls whose message began with thinking that had to be taken away: older
    /// models refuse such a message while they think.
    fn lost_its_thinking(&self, members: &Members<'_>) -> bool {
        let Some(messages) = members.get("messages").and_then(json::elements) else { return false };
        let ends_in_results = messages.last().is_some_and(|last| last.get().contains("\"tool_result\""));
        let caller = messages.iter().rposition(|message| is_role(message, "assistant"));
        ends_in_results && caller.is_some_and(|place| self.removed_thinking.contains(&place))
    }

    fn output_config<'a>(&mut self, value: &'a RawValue, effort: Option<Level>) -> Option<Raw<'a>> {
        let Some(inner) = Members::of(value) else { return Some(value.get().into()) };
        let drops = !self.rules.card.effort && inner.get("effort").is_some();
        if !drops && effort.is_none() {
            return Some(value.get().into());
        }
        let mut out = String::from("{");
        for (name, value) in &inner.0 {
            if name == "effort" && drops {
                if !self.is_budgeted {
                    self.warn("dropped:effort");
                }
                continue;
            }
            if name != "effort" || effort.is_none() {
                push_member(&mut out, name, value.get());
            }
        }
        if let Some(effort) = effort {
            push_member(&mut out, "effort", &quoted(effort.as_str()));
        }
        out.push('}');
        (out != "{}").then_some(out.into())
    }

    fn system<'a>(&mut self, value: &'a RawValue) -> Option<Raw<'a>> {
        let card = self.rules.card;
        match json::kind(value) {
            Kind::String if card.foreign => {
                let text = json::string(value)?;
                let bare = without_billing(&text);
                (!bare.trim().is_empty()).then(|| quoted(bare).into())
            }
            Kind::Array => {
                let blocks = json::elements(value)?;
                let mut made: Vec<Raw<'_>> = Vec::with_capacity(blocks.len());
                for (place, block) in blocks.into_iter().enumerate() {
                    let mut text: Raw<'_> = block.get().into();
                    if place == 0 && card.foreign && block.get().contains(BILLING_LINE) {
                        let Some(without) = block_without_billing(block) else { continue };
                        text = without.into();
                    }
                    if is_blank(block) {
                        move_marker(block, &mut made);
                        continue;
                    }
                    made.push(self.block_lifetimes(text));
                }
                (!made.is_empty()).then(|| format!("[{}]", made.join(",")).into())
            }
            _ => Some(value.get().into()),
        }
    }

    fn block_lifetimes<'a>(&self, text: Raw<'a>) -> Raw<'a> {
        if self.rules.card.cache_ttl || !text.contains("\"cache_control\"") {
            return text;
        }
        serde_json::from_str::<&RawValue>(&text)
            .map(|raw| unmarked(raw, 1, &LIFETIMES))
            .map_or_else(|_| text.clone(), Cow::Owned)
    }

    fn messages(&mut self, value: &RawValue, traits: Traits) -> String {
        let Some(messages) = json::elements(value) else { return value.get().to_owned() };
        let mut made: Vec<String> = Vec::with_capacity(messages.len());
        let touches_blocks = traits.foreign_thinking
            || self.rules.card.needs_thinking_back
            || self.rules.without_reasoning
            || self.rules.is_made
            || traits.blank_text
            || traits.unclean_data
            || traits.own_citations
            || (traits.cache_lifetime && !self.rules.card.cache_ttl);
        // Anthropic's own servers join what stands side by side; others refuse two turns of one role.
        let mut is_uneven = false;
        let last = messages.len().saturating_sub(1);
        for (place, message) in messages.into_iter().enumerate() {
            if !self.rules.card.mid_system && is_role(message, "system") {
                made.extend(self.note(message));
                is_uneven = true;
                continue;
            }
            if !touches_blocks {
                made.push(message.get().to_owned());
                continue;
            }
            match self.message(message, place) {
                Some(message) => made.push(message),
                // What was asked is not to go on with the answer before it.
                None if place == last && is_role(message, "user") && made.last().is_some_and(|made| answers(made)) => {
                    self.warn("changed:messages");
                    made.push(format!(r#"{{"role":"user","content":{}}}"#, quoted(BEGINNING)));
                }
                None => is_uneven |= self.rules.card.foreign,
            }
        }
        if is_uneven {
            made = merge::turns(made);
        }
        format!("[{}]", made.join(","))
    }

    /// An instruction between turns becomes a note of the user's, which is joined to the words next to it.
    fn note(&mut self, message: &RawValue) -> Option<String> {
        self.warn("changed:system_message");
        let content = Members::of(message).and_then(|members| members.get("content"));
        let text = content.map(plain_text).filter(|text| !text.trim().is_empty())?;
        let block = format!(r#"{{"type":"text","text":{}}}"#, quoted(&format!("[system note] {text}")));
        Some(format!(r#"{{"role":"user","content":[{block}]}}"#))
    }

    /// `None` when nothing is left of it.
    fn message(&mut self, message: &RawValue, place: usize) -> Option<String> {
        let members = Members::of(message)?;
        let content = members.get("content");
        let Some(blocks) = content.filter(|content| json::kind(content) == Kind::Array) else {
            // A text is one block of text.
            let is_silent = content.and_then(json::string).is_some_and(|text| text.trim().is_empty());
            return (!is_silent).then(|| message.get().to_owned());
        };
        let blocks = json::elements(blocks)?;
        let had_some = !blocks.is_empty();
        let is_wanted = self.rules.card.needs_thinking_back && blocks.iter().any(|block| is_kind(block, "tool_use"));
        let mut is_thought = false;
        let mut made: Vec<Raw<'_>> = Vec::with_capacity(blocks.len());
        for (at, block) in blocks.into_iter().enumerate() {
            if is_blank(block) {
                move_marker(block, &mut made);
                continue;
            }
            let text = self.thinking_block(block).or_else(|| self.unsigned(block).filter(|_| is_wanted));
            is_thought |= text.is_some() && is_kind(block, "thinking");
            let text = text.map(|text| match identified(block).filter(|_| self.rules.is_made) {
                Some(identified) => identified.into(),
                None => text,
            });
            match text {
                Some(text) => made.push(self.block_lifetimes(clean(nested(text)))),
                None if at == 0 => self.removed_thinking.push(place),
                None => {}
            }
        }
        self.has_unthought_calls |= is_wanted && !is_thought;
        if made.is_empty() && had_some {
            return None;
        }
        let mut out = String::from("{");
        for (name, value) in &members.0 {
            match name.as_ref() {
                "content" => push_member(&mut out, name, &format!("[{}]", made.join(","))),
                _ => push_member(&mut out, name, value.get()),
            }
        }
        out.push('}');
        Some(out)
    }

    /// A thinking block that this upstream cannot have signed is left out, without a word: it was none of its own.
    fn thinking_block<'a>(&self, block: &'a RawValue) -> Option<Raw<'a>> {
        if self.rules.without_reasoning && (is_kind(block, "thinking") || is_kind(block, "redacted_thinking")) {
            return None;
        }
        let signed_by = match () {
            () if is_kind(block, "thinking") => "signature",
            () if is_kind(block, "redacted_thinking") => "data",
            () => return Some(block.get().into()),
        };
        let members = Members::of(block)?;
        let signature = members.get(signed_by).and_then(json::string).unwrap_or_default();
        if signature.is_empty() && signed_by == "signature" {
            return None;
        }
        if !signature.starts_with("tgs1.") {
            return Some(block.get().into());
        }
        #[derive(serde::Deserialize)]
        struct Wrapped {
            signature: String,
        }
        let carrier = Carrier::read(&signature)?;
        let own = carrier.kind == "messages_sig" && carrier.is_from("messages", self.rules.scope);
        let inner: Wrapped = serde_json::from_str(carrier.data.get()).ok().filter(|_| own)?;
        Some(with_text(&members, signed_by, &inner.signature).into())
    }

    /// Thinking of another's as text alone, for an upstream that asks for the text and looks at no signature.
    fn unsigned<'a>(&self, block: &'a RawValue) -> Option<Raw<'a>> {
        let members = Members::of(block).filter(|_| is_kind(block, "thinking") && !self.rules.without_reasoning)?;
        let has_text = members.get("thinking").and_then(json::string).is_some_and(|text| !text.is_empty());
        has_text.then(|| with_text(&members, "signature", "").into())
    }
}

/// How a model is kept from thinking.
pub(super) const NO_THINKING: &str = r#"{"type":"disabled"}"#;
const BILLING_LINE: &str = "x-anthropic-billing-header:";

/// A choice of tools that leaves it to the model.
pub(super) fn freed(choice: &RawValue) -> Option<String> {
    let mut out = String::from("{");
    for (name, value) in Members::of(choice)?.0.iter().filter(|(name, _)| name != "name") {
        push_member(&mut out, name, if name == "type" { r#""auto""# } else { value.get() });
    }
    out.push('}');
    Some(out)
}

/// A block with another text in the member of this name: a signature or an id.
fn with_text(members: &Members<'_>, named: &str, text: &str) -> String {
    let mut out = String::from("{");
    for (name, value) in members.0.iter().filter(|(name, _)| name != named) {
        push_member(&mut out, name, value.get());
    }
    push_member(&mut out, named, &quoted(text));
    out.push('}');
    out
}

fn without_billing(text: &str) -> &str {
    if text.trim_start().starts_with(BILLING_LINE) { text.split_once('\n').map_or("", |(_, rest)| rest) } else { text }
}

fn block_without_billing(block: &RawValue) -> Option<String> {
    let members = Members::of(block)?;
    let text = members.get("text").and_then(json::string)?;
    let bare = without_billing(&text);
    if bare.trim().is_empty() {
        return None;
    }
    let mut out = String::from("{");
    for (name, value) in &members.0 {
        match name.as_ref() {
            "text" => push_member(&mut out, name, &quoted(bare)),
            _ => push_member(&mut out, name, value.get()),
        }
    }
    out.push('}');
    Some(out)
}

pub(super) fn push_member(out: &mut String, name: &str, value: &str) {
    if out.len() > 1 {
        out.push(',');
    }
    out.push_str(&quoted(name));
    out.push(':');
    out.push_str(value);
}

pub(super) fn is_kind(block: &RawValue, kind: &str) -> bool {
    Members::of(block).and_then(|members| members.get("type").and_then(json::string)).is_some_and(|found| found == kind)
}

pub(super) fn is_role(message: &RawValue, role: &str) -> bool {
    Members::of(message)
        .and_then(|members| members.get("role").and_then(json::string))
        .is_some_and(|found| found == role)
}

/// Whether a message is the model's.
fn answers(message: &str) -> bool {
    serde_json::from_str::<&RawValue>(message).is_ok_and(|message| is_role(message, "assistant"))
}

pub(super) fn is_blank(block: &RawValue) -> bool {
    let Some(members) = Members::of(block) else { return false };
    let word = |name: &str| members.get(name).and_then(json::string);
    word("type").is_some_and(|kind| kind == "text") && word("text").is_some_and(|text| text.trim().is_empty())
}

/// The texts of a content, one after the other.
fn plain_text(content: &RawValue) -> String {
    match json::kind(content) {
        Kind::String => json::string(content).unwrap_or_default().into_owned(),
        _ => {
            let blocks = json::elements(content).unwrap_or_default();
            let texts = blocks.into_iter().filter_map(|block| Members::of(block)?.get("text").and_then(json::string));
            texts.collect::<Vec<_>>().join("\n\n")
        }
    }
}

/// A tool's result with what stands in it cleaned like everything else.
fn nested(text: Raw<'_>) -> Raw<'_> {
    let cleaned = if text.contains("\"tool_result\"") { cleaned_result(&text) } else { None };
    cleaned.map_or(text, Cow::Owned)
}

fn cleaned_result(text: &str) -> Option<String> {
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    let members = Members::of(raw).filter(|_| is_kind(raw, "tool_result"))?;
    let blocks = json::elements(members.get("content")?)?;
    let kept = blocks.into_iter().filter(|block| !is_blank(block));
    let made: Vec<Raw<'_>> = kept.map(|block| clean(block.get().into())).collect();
    let mut out = String::from("{");
    for (name, value) in &members.0 {
        match name.as_ref() {
            "content" => push_member(&mut out, name, &format!("[{}]", made.join(","))),
            _ => push_member(&mut out, name, value.get()),
        }
    }
    out.push('}');
    Some(out)
}

/// A block with bare base64, and without citations that were made here.
fn clean(text: Raw<'_>) -> Raw<'_> {
    let unclean = text.contains("\"data:") || text.contains('\\');
    let cited = text.contains("\"tg1\"");
    if !unclean && !cited {
        return text;
    }
    let Ok(raw) = serde_json::from_str::<&RawValue>(&text) else { return text };
    let Some(members) = Members::of(raw) else { return text };
    let mut out = String::from("{");
    for (name, value) in &members.0 {
        match name.as_ref() {
            "source" if unclean => push_member(&mut out, name, &clean_source(value)),
            "citations" if value.get().contains("\"tg1\"") => {}
            _ => push_member(&mut out, name, value.get()),
        }
    }
    out.push('}');
    out.into()
}

fn clean_source(source: &RawValue) -> String {
    let Some(members) = Members::of(source) else { return source.get().to_owned() };
    if members.get("type").and_then(json::string).as_deref() != Some("base64") {
        return source.get().to_owned();
    }
    let mut out = String::from("{");
    for (name, value) in &members.0 {
        match (name.as_ref(), json::string(value)) {
            ("data", Some(data)) => {
                push_member(&mut out, name, &quoted(&crate::translate::conversation::bare(data.into_owned())));
            }
            _ => push_member(&mut out, name, value.get()),
        }
    }
    out.push('}');
    out
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
