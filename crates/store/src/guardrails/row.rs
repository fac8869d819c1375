//! Guardrails as they are read from their rows.

use serde::{Deserialize, Serialize};
use tidegate_core::{Money, OrganisationId, Timestamp, Window, WorkspaceId};

use crate::error::Unreadable;
use crate::{Result, StoreError};

#[derive(Clone, Debug, PartialEq)]
pub struct Guardrail {
    /// A UUID.
    pub id: String,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    /// Whether it covers all traffic of its workspace.
    pub is_default: bool,
    pub name: String,
    pub description: Option<String>,
    pub limit: Option<Money>,
    /// `None`: the limit is for all time.
    pub window: Option<Window>,
    /// Whether spending through credentials of the customer's own counts towards the limit.
    pub include_byok: bool,
    pub rules: GuardrailRules,
    pub created: Timestamp,
    pub updated: Option<Timestamp>,
}

/// What is neither name nor money. `None` leaves open what others decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuardrailRules {
    pub allowed_models: Option<Vec<String>>,
    pub ignored_models: Option<Vec<String>>,
    pub allowed_providers: Option<Vec<String>>,
    pub ignored_providers: Option<Vec<String>>,
    /// The old name for all five that follow; kept because it is shown.
    pub enforce_zdr: Option<bool>,
    pub enforce_zdr_anthropic: Option<bool>,
    pub enforce_zdr_google: Option<bool>,
    pub enforce_zdr_openai: Option<bool>,
    pub enforce_zdr_xai: Option<bool>,
    pub enforce_zdr_other: Option<bool>,
    pub enable_free_model_publication: Option<bool>,
    pub enable_free_model_training: Option<bool>,
    pub enable_paid_model_training: Option<bool>,
    pub content_filters: Option<Vec<PatternFilter>>,
    pub content_filter_builtins: Option<Vec<BuiltinFilter>>,
}

/// What is done where a filter finds something, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Flag,
    Redact,
    Block,
}

/// A pattern of the operator's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PatternFilter {
    pub pattern: String,
    pub action: Action,
    pub label: Option<String>,
}

/// A kind of content that the gateway knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Builtin {
    Email,
    Phone,
    Ssn,
    CreditCard,
    IpAddress,
    /// Keys and tokens of well-known services.
    Secret,
    RegexPromptInjection,
}

impl Builtin {
    pub const ALL: [(&'static str, Self); 7] = [
        ("email", Self::Email),
        ("phone", Self::Phone),
        ("ssn", Self::Ssn),
        ("credit-card", Self::CreditCard),
        ("ip-address", Self::IpAddress),
        ("secret", Self::Secret),
        ("regex-prompt-injection", Self::RegexPromptInjection),
    ];

    pub fn slug(self) -> &'static str {
        Self::ALL.iter().find(|(_, builtin)| *builtin == self).map_or("", |(slug, _)| slug)
    }

    /// What it is called where it blocks a request.
    pub fn name(self) -> &'static str {
        match self {
            Self::Email => "Email address",
            Self::Phone => "Phone number",
            Self::Ssn => "Social Security number",
            Self::CreditCard => "Credit card number",
            Self::IpAddress => "IP address",
            Self::Secret => "Secret",
            Self::RegexPromptInjection => "Prompt injection",
        }
    }

    /// What stands where something was taken out, without its brackets.
    pub fn label(self) -> &'static str {
        match self {
            Self::Email => "EMAIL",
            Self::Phone => "PHONE",
            Self::Ssn => "SSN",
            Self::CreditCard => "CREDIT_CARD",
            Self::IpAddress => "IP_ADDRESS",
            Self::Secret => "SECRET",
            Self::RegexPromptInjection => "PROMPT_INJECTION",
        }
    }
}

/// Whose words are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanScope {
    UserOnly,
    #[default]
    AllMessages,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BuiltinFilter {
    pub slug: Builtin,
    pub action: Action,
    pub scan_scope: Option<ScanScope>,
}

/// The columns of [`RawGuardrail`], in its order.
macro_rules! select_guardrails {
    () => {
        "SELECT id, organisation_id, workspace_id, is_default, name, description, limit_nanos, reset_interval, \
         include_byok, rules, created_at, updated_at FROM guardrails"
    };
}
pub(super) use select_guardrails;

#[derive(sqlx::FromRow)]
pub(super) struct RawGuardrail {
    id: String,
    organisation_id: String,
    workspace_id: String,
    is_default: bool,
    name: String,
    description: Option<String>,
    limit_nanos: Option<i64>,
    reset_interval: Option<String>,
    include_byok: bool,
    rules: String,
    created_at: i64,
    updated_at: Option<i64>,
}

impl TryFrom<RawGuardrail> for Guardrail {
    type Error = StoreError;

    fn try_from(raw: RawGuardrail) -> Result<Self> {
        let unreadable = |column| Unreadable { table: "guardrails", column };
        let window =
            raw.reset_interval.as_deref().map(|name| Window::parse(name).ok_or_else(|| unreadable("reset_interval")));
        Ok(Self {
            id: raw.id,
            organisation: OrganisationId(raw.organisation_id.into()),
            workspace: WorkspaceId(raw.workspace_id.into()),
            is_default: raw.is_default,
            name: raw.name,
            description: raw.description,
            limit: raw.limit_nanos.map(Money),
            window: window.transpose()?,
            include_byok: raw.include_byok,
            rules: serde_json::from_str(&raw.rules).map_err(|_| unreadable("rules"))?,
            created: Timestamp(raw.created_at),
            updated: raw.updated_at.map(Timestamp),
        })
    }
}
