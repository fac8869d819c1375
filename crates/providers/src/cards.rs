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

/// What Converse takes of this model, by its name. `is_claude`: its own card says so, as the name of a profile does not.
/// A place to cache up to is refused by all models but those that know one, and Nova refuses it among tools.
pub fn bedrock(card: Card, model: &str, is_claude: bool) -> Card {
    if is_claude || model.contains("anthropic.claude") {
        return Card { cache: Cache::Points, ..card };
    }
    if model.contains("amazon.nova") {
        return Card { cache: Cache::PointsBesideTools, cache_ttl: false, top_k: true, ..card };
    }
    card
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_that_know_places_to_cache_up_to_are_sent_some() {
        let cache = |model: &str, is_claude| bedrock(converse(), model, is_claude).cache;
        assert_eq!(cache("us.anthropic.claude-sonnet-4-6", false), Cache::Points);
        let profile = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3";
        assert_eq!((cache(profile, true), cache(profile, false)), (Cache::Points, Cache::None));
        assert_eq!(cache("us.amazon.nova-pro-v1:0", false), Cache::PointsBesideTools);
        assert_eq!(cache("us.meta.llama3-3-70b-instruct-v1:0", false), Cache::None);
    }
}
