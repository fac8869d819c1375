//! What each provider makes of a protocol that many speak: a row each. Anything not said is the careful default.

use crate::translate::Card;
use crate::translate::card::{
    Cache, Level, LimitField, PdfPart, Prefill, ReasoningField, ReasoningSwitch, Replay, StopSupport, Structured,
    SystemRole, Tokenizer,
};
use crate::translate::tools::IdRule;
use crate::{Protocol, cards};

/// The card of a provider's models where it speaks this protocol, before what is known of the model itself.
pub fn card_for(slug: &str, protocol: Protocol) -> Card {
    let card = match protocol {
        Protocol::Chat | Protocol::Messages => card(slug),
        Protocol::Responses => responses(slug),
        Protocol::Cohere => cohere(),
        Protocol::Gemini => cards::gemini(slug),
        Protocol::Converse => cards::converse(),
    };
    Card { tokenizer: tokenizer(slug), truncates: slug == "ollama", ..card }
}

/// How a provider's models count, as far as the provider tells.
fn tokenizer(slug: &str) -> Tokenizer {
    match slug {
        "openai" | "azure" => Tokenizer::Openai,
        "google-ai-studio" | "google-vertex" => Tokenizer::Gemini,
        "anthropic" => Tokenizer::Claude,
        "deepseek" | "moonshotai" | "z-ai" | "minimax" | "groq" | "together" | "fireworks" | "cerebras" | "mistral"
        | "deepinfra" | "nebius" | "novita" | "sambanova" | "nvidia" | "alibaba" | "cohere" | "xai" | "ollama"
        | "vllm" | "sglang" | "llamacpp" | "lmstudio" | "amazon-bedrock" => Tokenizer::Open,
        _ => Tokenizer::Bytes,
    }
}

/// The card of a provider's models where it speaks the chat protocol.
pub fn card(slug: &str) -> Card {
    let base = Card { parallel_flag: true, strict: true, cache: Cache::Implicit, ..Card::default() };
    let local = Card { top_k: true, image_url: false, ..Card::default() };
    match slug {
        "openai" => Card {
            max_tokens_field: LimitField::MaxCompletionTokens,
            system_role: SystemRole::Developer,
            reasoning: ReasoningSwitch::Effort,
            id_rule: IdRule::Most40,
            cache_key: true,
            store_flag: true,
            user_field: Some("safety_identifier".into()),
            tiers: Some(("default".into(), "priority".into())),
            ..base
        },
        "azure" => Card {
            max_tokens_field: LimitField::MaxCompletionTokens,
            reasoning: ReasoningSwitch::Effort,
            id_rule: IdRule::Most40,
            cache_key: true,
            ..base
        },
        "groq" => Card {
            max_tokens_field: LimitField::MaxCompletionTokens,
            reasoning: ReasoningSwitch::Parsed,
            efforts: vec![Level::None, Level::Low, Level::Medium, Level::High],
            images_in_results: true,
            tiers: Some(("on_demand".into(), "priority".into())),
            ..base
        },
        "deepseek" => Card {
            reasoning: ReasoningSwitch::Thinking,
            efforts: vec![Level::High, Level::Max],
            reasoning_in: ReasoningField::ReasoningContent,
            replay: Replay::ToolLoop,
            needs_thinking_back: true,
            structured: Structured::JsonObject,
            parallel_flag: false,
            strict: false,
            ..base
        },
        "moonshotai" | "z-ai" => Card {
            reasoning: ReasoningSwitch::Thinking,
            reasoning_in: ReasoningField::ReasoningContent,
            replay: Replay::ToolLoop,
            needs_thinking_back: slug == "moonshotai",
            id_rule: if slug == "moonshotai" { IdRule::Counted } else { IdRule::Any },
            parallel_flag: false,
            ..base
        },
        "alibaba" => {
            Card { reasoning: ReasoningSwitch::EnableThinking, cache: Cache::Markers, stream_only: true, ..base }
        }
        "mistral" => Card {
            id_rule: IdRule::Alphanumeric9,
            choice_any: true,
            empty_content: true,
            prefill: Prefill::PrefixFlag,
            reasoning: ReasoningSwitch::Effort,
            reasoning_in: ReasoningField::ThinkChunk,
            stream_options: false,
            name_in_result: true,
            pdf_part: PdfPart::DocumentUrl,
            cache_key: true,
            top_k: true,
            max_temperature: 1.5,
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
        "perplexity" => Card { parallel_flag: false, strict: false, user_first: true, ..base },
        "deepinfra" => Card { prefill: Prefill::Native, ..base },
        "vllm" | "sglang" => Card {
            reasoning: ReasoningSwitch::Template,
            reasoning_in: ReasoningField::Reasoning,
            prefill: Prefill::ContinueFinal,
            continuous_usage: true,
            image_url: true,
            ..local
        },
        "llamacpp" | "ollama" | "lmstudio" => local,
        "github-models" => Card { id_rule: IdRule::Most40, ..Card::default() },
        _ => Card::default(),
    }
}

fn responses(slug: &str) -> Card {
    let base = Card {
        parallel_flag: true,
        strict: true,
        min_output_tokens: 16,
        stop: StopSupport::None,
        cache: Cache::Implicit,
        images_in_results: true,
        pdf_url: true,
        stream_options: false,
        reasoning: ReasoningSwitch::Effort,
        mid_system: true,
        system_role: SystemRole::Developer,
        id_rule: IdRule::Most64,
        ..Card::default()
    };
    match slug {
        "openai" => Card {
            signed_reasoning: true,
            cache_key: true,
            stream_options: true,
            user_field: Some("safety_identifier".into()),
            tiers: Some(("default".into(), "priority".into())),
            ..base
        },
        "azure" => Card { signed_reasoning: true, cache_key: true, stream_options: true, ..base },
        "xai" => Card { signed_reasoning: true, excluded_domains: true, ..base },
        "openrouter" => Card { signed_reasoning: true, ..base },
        _ => base,
    }
}

fn cohere() -> Card {
    Card {
        stop: StopSupport::Five,
        structured: Structured::JsonSchema,
        json_with_tools: false,
        reasoning: ReasoningSwitch::Budget,
        image_url: false,
        top_k: true,
        strict: true,
        ..Card::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_provider_gets_the_careful_card() {
        assert_eq!(card("in-house"), Card::default());
        assert_eq!(card("mistral").id_rule, IdRule::Alphanumeric9);
        assert_eq!((card("moonshotai").id_rule, card("z-ai").id_rule), (IdRule::Counted, IdRule::Any));
        assert!(!card("ollama").image_url);
    }

    #[test]
    fn a_provider_has_a_card_for_each_protocol() {
        assert_eq!(card_for("in-house", Protocol::Chat), card("in-house"));
        let (openai, other) = (card_for("openai", Protocol::Responses), card_for("in-house", Protocol::Responses));
        assert!(openai.signed_reasoning && openai.stream_options && openai.cache_key);
        assert!(!other.signed_reasoning && !other.stream_options && other.min_output_tokens == 16);
        assert!(!card_for("cohere", Protocol::Cohere).json_with_tools);
    }

    #[test]
    fn the_highest_temperature_is_the_protocols_or_the_providers() {
        let hottest = |slug, protocol| card_for(slug, protocol).hottest();
        assert_eq!(hottest("amazon-bedrock", Protocol::Converse), 1.0);
        assert_eq!(hottest("mistral", Protocol::Chat), 1.5);
        assert_eq!(hottest("openai", Protocol::Chat), 2.0);
    }
}
