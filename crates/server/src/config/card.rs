//! What a configuration says of a model's abilities, put over what is known of its provider.

use anyhow::Context as _;
use tidegate_providers::translate::Card;
use tidegate_providers::translate::card::{
    Level, Prefill, ReasoningField, Replay, Sampling, StopSupport, Structured, SystemRole,
};
use tidegate_providers::translate::tools::IdRule;

use super::raw;

/// The value that a word stands for, or the words there are.
fn word<T: Copy>(field: &str, given: Option<&str>, words: &[(&str, T)]) -> anyhow::Result<Option<T>> {
    let Some(given) = given else { return Ok(None) };
    let found = words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value);
    let list: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    found.map(Some).with_context(|| format!("{field}: {given:?} is none of {}", list.join(", ")))
}

impl raw::Card {
    /// `card` with everything that is said here.
    pub fn apply(&self, mut card: Card) -> anyhow::Result<Card> {
        if let Some(sampling) = word(
            "sampling",
            self.sampling.as_deref(),
            &[("ok", Sampling::All), ("none", Sampling::None), ("one_of", Sampling::OneOf)],
        )? {
            card.sampling = sampling;
        }
        if let Some(field) = word(
            "max_tokens_field",
            self.max_tokens_field.as_deref(),
            &[("max_tokens", false), ("max_completion_tokens", true)],
        )? {
            card.completion_limit = field;
        }
        let level = |text: &str| Level::parse(text).with_context(|| format!("{text:?} is no effort"));
        if let Some(efforts) = &self.efforts {
            let mut efforts = efforts.iter().map(|text| level(text)).collect::<anyhow::Result<Vec<_>>>()?;
            efforts.sort_unstable();
            card.efforts = efforts;
        }
        if let Some(effort) = &self.default_effort {
            card.default_effort = Some(level(effort)?);
        }
        let fields = [
            ("none", ReasoningField::None),
            ("reasoning_content", ReasoningField::ReasoningContent),
            ("reasoning", ReasoningField::Reasoning),
            ("reasoning_details", ReasoningField::ReasoningDetails),
        ];
        if let Some(field) = word("reasoning_field", self.reasoning_field.as_deref(), &fields)? {
            card.reasoning_in = field;
        }
        let replays = [("never", Replay::Never), ("tool_loop", Replay::ToolLoop), ("always", Replay::Always)];
        if let Some(replay) = word("replay_reasoning", self.replay_reasoning.as_deref(), &replays)? {
            card.replay = replay;
        }
        let roles = [("system", SystemRole::System), ("developer", SystemRole::Developer), ("user", SystemRole::User)];
        if let Some(role) = word("system_role", self.system_role.as_deref(), &roles)? {
            card.system_role = role;
        }
        let prefills = [
            ("native", Prefill::Native),
            ("prefix_flag", Prefill::PrefixFlag),
            ("continue_final", Prefill::ContinueFinal),
            ("none", Prefill::None),
        ];
        if let Some(prefill) = word("prefill", self.prefill.as_deref(), &prefills)? {
            card.prefill = prefill;
        }
        let rules = [("any", IdRule::Any), ("alnum9", IdRule::Alphanumeric9), ("re64", IdRule::Plain64)];
        if let Some(rule) = word("tool_id_rule", self.tool_id_rule.as_deref(), &rules)? {
            card.id_rule = rule;
        }
        let forms = [
            ("json_schema", Structured::JsonSchema),
            ("json_object", Structured::JsonObject),
            ("none", Structured::None),
        ];
        if let Some(form) = word("structured", self.structured.as_deref(), &forms)? {
            card.structured = form;
        }
        let stops = [("ok", StopSupport::All), ("max4", StopSupport::Four), ("none", StopSupport::None)];
        if let Some(stop) = word("stop", self.stop.as_deref(), &stops)? {
            card.stop = stop;
        }
        let flags = [
            (self.top_k, &mut card.top_k),
            (self.tools_without_reasoning, &mut card.tools_without_reasoning),
            (self.parallel_tools_param, &mut card.parallel_flag),
            (self.forced_tool_choice, &mut card.forced_choice),
            (self.image_url, &mut card.image_url),
            (self.images_in_tool_result, &mut card.images_in_results),
            (self.stream_options, &mut card.stream_options),
        ];
        for (given, flag) in flags {
            if let Some(given) = given {
                *flag = given;
            }
        }
        Ok(card)
    }
}
