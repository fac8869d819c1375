//! Options of the chat format that the Messages format has no word for. Who takes them is told, in the words of the
//! protocol; where nobody does, the caller is.

use serde_json::value::RawValue;
use tidegate_wire::chat;
use tidegate_wire::json::Members;
use tidegate_wire::messages::Request;

use super::card::{Card, ReasoningField, Sampling, StopSupport, Structured};
use super::conversation::Conversation;
use crate::Protocol;

/// How an upstream calls an option; nothing where the model does not take it there.
pub fn word(protocol: Protocol, card: &Card, option: &str) -> Option<&'static str> {
    let samples = card.sampling != Sampling::None;
    let (chat, gemini, cohere) =
        (protocol == Protocol::Chat, protocol == Protocol::Gemini, protocol == Protocol::Cohere);
    // Each of these is one vendor's, told by what else only it has: who takes no stop sequences takes no penalties, either,
    // and who writes thinking in pieces of its own has its own word for the seed.
    let (punishes, is_mistral) =
        (!chat || card.stop != StopSupport::None, card.reasoning_in == ReasoningField::ThinkChunk);
    match option {
        "seed" if samples && chat && is_mistral => Some("random_seed"),
        "seed" if samples && (chat || gemini || cohere) => Some("seed"),
        "frequency_penalty" if samples && punishes && (chat || cohere) => Some("frequency_penalty"),
        "frequency_penalty" if samples && gemini => Some("frequencyPenalty"),
        "presence_penalty" if samples && punishes && (chat || cohere) => Some("presence_penalty"),
        "presence_penalty" if samples && gemini => Some("presencePenalty"),
        "logit_bias" if samples && punishes && chat && !is_mistral => Some("logit_bias"),
        // Who serves open models takes what their engines take; the same hosts draw from the likeliest few.
        "min_p" if samples && chat && card.top_k => Some("min_p"),
        "top_a" if samples && chat && card.top_k => Some("top_a"),
        "repetition_penalty" if samples && chat && card.top_k => Some("repetition_penalty"),
        // One vendor's own, told by what else only it has.
        "verbosity" if chat && card.store_flag => Some("verbosity"),
        "response_format" if (chat || cohere) && card.structured != Structured::None => Some("response_format"),
        "verbosity" if protocol == Protocol::Responses => Some("verbosity"),
        "response_format" if protocol == Protocol::Responses && card.structured != Structured::None => Some("format"),
        "response_format" if gemini && card.structured != Structured::None => Some("responseMimeType"),
        _ => None,
    }
}

/// The options of a request under the names that the upstream has for them.
pub fn options<'a>(
    request: &'a Request,
    protocol: Protocol,
    card: &Card,
    conversation: &mut Conversation,
) -> Vec<(&'static str, &'a RawValue)> {
    let given = request.chat_options.as_ref().and_then(|options| Members::of(options.as_raw_value()));
    let mut taken = Vec::new();
    for (name, value) in given.unwrap_or_default().0 {
        // A schema says more.
        let is_said =
            name == "response_format" && request.answer_format().is_some() || chat::wish(&name, value).is_some();
        match word(protocol, card, &name) {
            _ if is_said => {}
            Some(word) => taken.push((word, value)),
            None => conversation.warn(format!("dropped:{name}")),
        }
    }
    taken
}

/// Whether the schema of the answer is to be followed to the letter, where the client says anything of that.
pub fn strict(request: &Request) -> Option<bool> {
    let options = Members::of(request.chat_options.as_ref()?.as_raw_value())?;
    chat::wish("response_format", options.get("response_format")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::card_for;

    #[test]
    fn each_vendor_is_told_in_its_own_words_or_not_at_all() {
        let said = |slug: &str, protocol: Protocol| {
            let card = card_for(slug, protocol);
            ["seed", "frequency_penalty", "presence_penalty", "logit_bias"].map(|option| word(protocol, &card, option))
        };
        let usual = ["seed", "frequency_penalty", "presence_penalty", "logit_bias"].map(Some);
        for slug in ["openai", "deepseek", "groq", "vllm", "in-house"] {
            assert_eq!(said(slug, Protocol::Chat), usual, "{slug}");
        }
        assert_eq!(said("xai", Protocol::Chat), [Some("seed"), None, None, None]);
        let of_mistral = [Some("random_seed"), Some("frequency_penalty"), Some("presence_penalty"), None];
        assert_eq!(said("mistral", Protocol::Chat), of_mistral);
        assert_eq!(
            said("google-vertex", Protocol::Gemini),
            [Some("seed"), Some("frequencyPenalty"), Some("presencePenalty"), None]
        );
        assert_eq!(
            said("cohere", Protocol::Cohere),
            [Some("seed"), Some("frequency_penalty"), Some("presence_penalty"), None]
        );
        assert_eq!(said("openai", Protocol::Responses), [None; 4]);
    }
}
