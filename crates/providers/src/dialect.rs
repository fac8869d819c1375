//! What each provider makes of a protocol that many speak: a row each. Anything not said is the careful default.

use crate::translate::Card;
use crate::translate::card::{
    Cache, Level, LimitField, PdfPart, Prefill, ReasoningField, ReasoningSwitch, Replay, StopSupport, Structured,
    SystemRole,
};
use crate::translate::tools::IdRule;

/// The card of a provider's models, before what is known of the model itself.
pub fn card(slug: &str) -> Card {
    let base = Card { parallel_flag: true, strict: true, cache: Cache::Implicit, ..Card::default() };
    let local = Card { top_k: true, image_url: false, ..Card::default() };
    match slug {
        "openai" => Card {
            max_tokens_field: LimitField::MaxCompletionTokens,
            system_role: SystemRole::Developer,
            reasoning: ReasoningSwitch::Effort,
            cache_key: true,
            store_flag: true,
            user_field: Some("safety_identifier".into()),
            tiers: Some(("default".into(), "priority".into())),
            ..base
        },
        "azure" => Card {
            max_tokens_field: LimitField::MaxCompletionTokens,
            reasoning: ReasoningSwitch::Effort,
            cache_key: true,
            ..base
        },
        "groq" => Card {
            max_tokens_field: LimitField::MaxCompletionTokens,
            reasoning: ReasoningSwitch::Effort,
            efforts: vec![Level::None, Level::Low, Level::Medium, Level::High],
            images_in_results: true,
            tiers: Some(("on_demand".into(), "priority".into())),
            ..base
        },
        "deepseek" => Card {
            reasoning: ReasoningSwitch::Thinking,
            reasoning_in: ReasoningField::ReasoningContent,
            replay: Replay::ToolLoop,
            structured: Structured::JsonObject,
            parallel_flag: false,
            strict: false,
            ..base
        },
        "moonshotai" | "z-ai" => Card {
            reasoning: ReasoningSwitch::Thinking,
            reasoning_in: ReasoningField::ReasoningContent,
            replay: Replay::ToolLoop,
            parallel_flag: false,
            ..base
        },
        "alibaba" => Card { reasoning: ReasoningSwitch::EnableThinking, cache: Cache::Markers, ..base },
        "mistral" => Card {
            id_rule: IdRule::Alphanumeric9,
            choice_any: true,
            empty_content: true,
            prefill: Prefill::PrefixFlag,
            reasoning: ReasoningSwitch::PromptMode,
            stream_options: false,
            name_in_result: true,
            pdf_part: PdfPart::DocumentUrl,
            cache_key: true,
            top_k: true,
            ..base
        },
        "openrouter" => Card {
            reasoning: ReasoningSwitch::Object,
            reasoning_in: ReasoningField::ReasoningDetails,
            replay: Replay::Always,
            ..base
        },
        "xai" => Card { reasoning: ReasoningSwitch::Effort, stop: StopSupport::None, ..base },
        "together" | "fireworks" => Card { top_k: true, reasoning: ReasoningSwitch::Effort, ..base },
        "cerebras" => {
            Card { max_tokens_field: LimitField::MaxCompletionTokens, reasoning: ReasoningSwitch::Effort, ..base }
        }
        "perplexity" => Card { parallel_flag: false, strict: false, ..base },
        "deepinfra" => Card { prefill: Prefill::Native, ..base },
        "vllm" | "sglang" => Card {
            reasoning: ReasoningSwitch::Template,
            reasoning_in: ReasoningField::Reasoning,
            prefill: Prefill::ContinueFinal,
            image_url: true,
            ..local
        },
        "llamacpp" | "ollama" | "lmstudio" => local,
        _ => Card::default(),
    }
}

/// The card of a provider's models in a protocol.
pub fn card_for(slug: &str, _: crate::Protocol) -> Card {
    card(slug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_provider_gets_the_careful_card() {
        assert_eq!(card("in-house"), Card::default());
        assert_eq!(card("mistral").id_rule, IdRule::Alphanumeric9);
        assert!(!card("ollama").image_url);
    }
}
