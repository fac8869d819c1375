//! What a change of a guardrail says. It is put on the row as it stands when it is written: of two changes at the same time
//! neither undoes what the other one set.

use tidegate_core::{Money, Window};

use super::row::{BuiltinFilter, GuardrailRules, PatternFilter};

/// What is to be different; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct GuardrailChange {
    pub name: Option<String>,
    pub description: Option<Option<String>>,
    pub limit: Option<Option<Money>>,
    pub window: Option<Option<Window>>,
    pub include_byok: Option<bool>,
    pub rules: RulesChange,
}

/// The same for the rules.
#[derive(Clone, Debug, Default)]
pub struct RulesChange {
    pub allowed_models: Option<Option<Vec<String>>>,
    pub ignored_models: Option<Option<Vec<String>>>,
    pub allowed_providers: Option<Option<Vec<String>>>,
    pub ignored_providers: Option<Option<Vec<String>>>,
    pub enforce_zdr: Option<Option<bool>>,
    pub enforce_zdr_anthropic: Option<Option<bool>>,
    pub enforce_zdr_google: Option<Option<bool>>,
    pub enforce_zdr_openai: Option<Option<bool>>,
    pub enforce_zdr_xai: Option<Option<bool>>,
    pub enforce_zdr_other: Option<Option<bool>>,
    pub enable_free_model_publication: Option<Option<bool>>,
    pub enable_free_model_training: Option<Option<bool>>,
    pub enable_paid_model_training: Option<Option<bool>>,
    pub content_filters: Option<Option<Vec<PatternFilter>>>,
    pub content_filter_builtins: Option<Option<Vec<BuiltinFilter>>>,
}

impl RulesChange {
    pub fn applied_to(self, known: GuardrailRules) -> GuardrailRules {
        GuardrailRules {
            allowed_models: self.allowed_models.unwrap_or(known.allowed_models),
            ignored_models: self.ignored_models.unwrap_or(known.ignored_models),
            allowed_providers: self.allowed_providers.unwrap_or(known.allowed_providers),
            ignored_providers: self.ignored_providers.unwrap_or(known.ignored_providers),
            enforce_zdr: self.enforce_zdr.unwrap_or(known.enforce_zdr),
            enforce_zdr_anthropic: self.enforce_zdr_anthropic.unwrap_or(known.enforce_zdr_anthropic),
            enforce_zdr_google: self.enforce_zdr_google.unwrap_or(known.enforce_zdr_google),
            enforce_zdr_openai: self.enforce_zdr_openai.unwrap_or(known.enforce_zdr_openai),
            enforce_zdr_xai: self.enforce_zdr_xai.unwrap_or(known.enforce_zdr_xai),
            enforce_zdr_other: self.enforce_zdr_other.unwrap_or(known.enforce_zdr_other),
            enable_free_model_publication: self
                .enable_free_model_publication
                .unwrap_or(known.enable_free_model_publication),
            enable_free_model_training: self.enable_free_model_training.unwrap_or(known.enable_free_model_training),
            enable_paid_model_training: self.enable_paid_model_training.unwrap_or(known.enable_paid_model_training),
            content_filters: self.content_filters.unwrap_or(known.content_filters),
            content_filter_builtins: self.content_filter_builtins.unwrap_or(known.content_filter_builtins),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_change_does_not_name_stays() {
        let models = |name: &str| Some(vec![name.to_owned()]);
        let known = GuardrailRules {
            allowed_models: models("a/b"),
            enforce_zdr_other: Some(true),
            ignored_providers: models("x"),
            ..GuardrailRules::default()
        };
        let change = RulesChange {
            allowed_models: Some(models("c/d")),
            enforce_zdr_other: Some(None),
            ..RulesChange::default()
        };
        let expected = GuardrailRules {
            allowed_models: models("c/d"),
            ignored_providers: models("x"),
            ..GuardrailRules::default()
        };
        assert_eq!(change.applied_to(known.clone()), expected);
        assert_eq!(RulesChange::default().applied_to(known.clone()), known);
    }
}
