//! The cards of models behind Google's and Amazon's own protocols, before what is known of the model itself.

use crate::translate::Card;
use crate::translate::card::{Cache, ReasoningSwitch, SchemaProfile, StopSupport, Structured};
use crate::translate::tools::{IdRule, NameRule};

/// Gemini, as it is since version 3; older models say in their own card how they differ.
pub fn gemini(slug: &str) -> Card {
    let tiers = (slug == "google-vertex").then(|| ("standard".into(), "priority".into()));
    Card {
        schema_profile: SchemaProfile::GeminiJson,
        name_rule: NameRule::Dotted128,
        stop: StopSupport::Five,
        reasoning: ReasoningSwitch::Level,
        signed_reasoning: true,
        call_ids: true,
        images_in_results: true,
        image_url: false,
        pdf: true,
        structured: Structured::JsonSchema,
        json_with_tools: true,
        parallel_flag: false,
        top_k: true,
        cache: Cache::Implicit,
        tiers,
        ..Card::default()
    }
}

/// Models behind Bedrock's Converse; what is known of Claude and Nova is in [`bedrock`], and others say in their own card
/// how they differ.
pub fn converse() -> Card {
    Card {
        id_rule: IdRule::Plain64,
        tool_status: true,
        images_in_results: true,
        image_url: false,
        pdf: true,
        stop: StopSupport::All,
        reasoning: ReasoningSwitch::None,
        user_field: Some("user_id".into()),
        max_temperature: 1.0,
        ..Card::default()
    }
}

/// What Converse takes of this model, by its name there. That of a profile does not say what is behind it: the id that
/// callers know it by does, or its own card (`is_claude`). A place to cache up to is refused by all models but those that
/// know one, and Nova refuses it among tools.
pub fn bedrock(card: Card, id: &str, model: &str, is_claude: bool) -> Card {
    let is_profile = model.starts_with("arn:");
    let is_of = |maker: &str, family: &str| {
        model.contains(&format!("{maker}.{family}")) || (is_profile && id.starts_with(&format!("{maker}/{family}")))
    };
    if is_claude || is_of("anthropic", "claude") {
        return Card { cache: Cache::Points, ..card };
    }
    if is_of("amazon", "nova") {
        return Card { cache: Cache::PointsBesideTools, cache_ttl: false, top_k: true, plain_schemas: true, ..card };
    }
    // These can be made to call a tool, and no others.
    if is_of("mistral", "mistral-large") {
        return card;
    }
    let is_known = !is_profile && model.contains('.');
    Card { forced_choice: card.forced_choice && !is_known, ..card }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_that_know_places_to_cache_up_to_are_sent_some() {
        let named = |id: &str, model: &str, is_claude| bedrock(converse(), id, model, is_claude).cache;
        let cache = |model: &str, is_claude| named("vendor/m", model, is_claude);
        assert_eq!(cache("us.anthropic.claude-sonnet-4-6", false), Cache::Points);
        let profile = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3";
        assert_eq!((cache(profile, true), cache(profile, false)), (Cache::Points, Cache::None));
        assert_eq!(cache("us.amazon.nova-pro-v1:0", false), Cache::PointsBesideTools);
        assert_eq!(cache("us.meta.llama3-3-70b-instruct-v1:0", false), Cache::None);
        for (model, can) in [
            ("us.meta.llama3-3-70b-instruct-v1:0", false),
            ("mistral.mistral-large-2407-v1:0", true),
            ("us.anthropic.claude-sonnet-4-6", true),
            ("us.amazon.nova-pro-v1:0", true),
            (profile, true),
        ] {
            assert_eq!(bedrock(converse(), "vendor/m", model, false).forced_choice, can, "{model}");
        }
        for (id, known) in [
            ("anthropic/claude-arn", Cache::Points),
            ("amazon/nova-pro-v1", Cache::PointsBesideTools),
            ("meta-llama/claude-like", Cache::None),
            ("anthropic", Cache::None),
        ] {
            assert_eq!(named(id, profile, false), known, "{id}");
        }
        // A name that says what it is outweighs what it is called.
        assert_eq!(named("anthropic/claude-like", "us.meta.llama3-3-70b-instruct-v1:0", false), Cache::None);
    }
}
