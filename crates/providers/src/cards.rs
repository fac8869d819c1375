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

/// Models behind Bedrock's Converse, as Nova is; Claude and others say in their own card how they differ.
pub fn converse(_slug: &str) -> Card {
    Card {
        id_rule: IdRule::Plain64,
        tool_status: true,
        images_in_results: true,
        image_url: false,
        pdf: true,
        cache: Cache::Points,
        stop: StopSupport::All,
        reasoning: ReasoningSwitch::None,
        user_field: Some("user_id".into()),
        ..Card::default()
    }
}
