//! `/guardrails`: what keys, members and workspaces are held to. What they are assigned to has a module of its own.

use std::collections::HashSet;

use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_core::{Money, Window};
use tidegate_gateway::Failure;
use tidegate_gateway::guardrails::compiled;
use tidegate_gateway::snapshot::Snapshot;
use tidegate_gateway::tasks::at_length;
use tidegate_routing::guard;
use tidegate_store::guardrails::{
    Action, Builtin, BuiltinFilter, Guardrail, GuardrailChange, GuardrailRules, NewGuardrail, PatternFilter,
    RulesChange, ScanScope,
};
use tidegate_store::workspaces::Workspace;
use tidegate_store::{Refused, StoreError};

use super::account::{Answering, Dollars, Instant, Request, data, deleted, internal, not_found, page};
use super::form::{Form, Reader, parse_uuid, refused};
use crate::router::Call;

const LONGEST_NAME: usize = 200;
const LONGEST_DESCRIPTION: usize = 1_000;
const LONGEST_PATTERN: usize = 100_000;
const LONGEST_LABEL: usize = 100;
const LONGEST_ENTRY: usize = 256;
const MOST_ENTRIES: usize = 1_000;
const MOST_FILTERS: usize = 100;
const MOST_WORKSPACES: u32 = 500;

const INTERVALS: [(&str, Window); 3] =
    [("daily", Window::Daily), ("weekly", Window::Weekly), ("monthly", Window::Monthly)];
const ACTIONS: [(&str, Action); 3] = [("redact", Action::Redact), ("block", Action::Block), ("flag", Action::Flag)];
const SCOPES: [(&str, ScanScope); 2] = [("user_only", ScanScope::UserOnly), ("all_messages", ScanScope::AllMessages)];
/// They need somebody who recognises names, and there is nobody.
const UNBUILT: [&str; 2] = ["person-name", "address"];

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    name: &'a str,
    description: Option<&'a str>,
    workspace_id: &'a str,
    limit_usd: Option<Dollars>,
    reset_interval: Option<&'static str>,
    include_byok_in_budgets: bool,
    allowed_models: Option<&'a [String]>,
    ignored_models: Option<&'a [String]>,
    allowed_providers: Option<&'a [String]>,
    ignored_providers: Option<&'a [String]>,
    enforce_zdr: Option<bool>,
    enforce_zdr_anthropic: Option<bool>,
    enforce_zdr_google: Option<bool>,
    enforce_zdr_openai: Option<bool>,
    enforce_zdr_xai: Option<bool>,
    enforce_zdr_other: Option<bool>,
    enable_free_model_publication: Option<bool>,
    enable_free_model_training: Option<bool>,
    enable_paid_model_training: Option<bool>,
    content_filters: Option<&'a [PatternFilter]>,
    content_filter_builtins: Option<Vec<ShownBuiltin>>,
    created_at: Instant,
    updated_at: Option<Instant>,
}

#[derive(Serialize)]
struct ShownBuiltin {
    slug: &'static str,
    action: Action,
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    scan_scope: Option<ScanScope>,
}

impl From<&BuiltinFilter> for ShownBuiltin {
    fn from(filter: &BuiltinFilter) -> Self {
        let (slug, label) = (filter.slug.slug(), format!("[{}]", filter.slug.label()));
        Self { slug, action: filter.action, label, scan_scope: filter.scan_scope }
    }
}

impl<'a> From<&'a Guardrail> for Shown<'a> {
    fn from(guardrail: &'a Guardrail) -> Self {
        let rules = &guardrail.rules;
        let builtins = rules.content_filter_builtins.as_ref();
        Self {
            id: &guardrail.id,
            name: &guardrail.name,
            description: guardrail.description.as_deref(),
            workspace_id: &guardrail.workspace.0,
            limit_usd: guardrail.limit.map(Dollars),
            reset_interval: guardrail.window.map(Window::as_str),
            include_byok_in_budgets: guardrail.include_byok,
            allowed_models: rules.allowed_models.as_deref(),
            ignored_models: rules.ignored_models.as_deref(),
            allowed_providers: rules.allowed_providers.as_deref(),
            ignored_providers: rules.ignored_providers.as_deref(),
            enforce_zdr: rules.enforce_zdr,
            enforce_zdr_anthropic: rules.enforce_zdr_anthropic,
            enforce_zdr_google: rules.enforce_zdr_google,
            enforce_zdr_openai: rules.enforce_zdr_openai,
            enforce_zdr_xai: rules.enforce_zdr_xai,
            enforce_zdr_other: rules.enforce_zdr_other,
            enable_free_model_publication: rules.enable_free_model_publication,
            enable_free_model_training: rules.enable_free_model_training,
            enable_paid_model_training: rules.enable_paid_model_training,
            content_filters: rules.content_filters.as_deref(),
            content_filter_builtins: builtins.map(|filters| filters.iter().map(ShownBuiltin::from).collect()),
            created_at: Instant(guardrail.created),
            updated_at: guardrail.updated.map(Instant),
        }
    }
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let (offset, limit) = (request.query.offset(), request.query.limit());
        let workspace = request.query.uuid("workspace_id");
        request.query.check()?;
        let workspace = match workspace {
            Some(id) => Some(request.workspace("workspace_id", Some(id)).await?),
            None => None,
        };
        let listed = request.app.store.list_guardrails(&request.tenant, workspace.as_ref(), offset, limit).await;
        let (guardrails, total) = listed.map_err(internal)?;
        Ok(page(&guardrails.iter().map(Shown::from).collect::<Vec<_>>(), total))
    })
}

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let workspace = form.uuid("workspace_id");
        let change = canonical(&request.app.gateway.snapshot(), read(&mut form));
        let name = form.require("name", change.name);
        form.finish()?;
        let Some(name) = name else { return Err(Failure::internal()) };
        let workspace = request.workspace("workspace_id", workspace).await?;
        let new = NewGuardrail {
            workspace,
            name,
            description: change.description.flatten(),
            limit: change.limit.flatten(),
            window: change.window.flatten(),
            include_byok: change.include_byok.unwrap_or(false),
            rules: change.rules.applied_to(GuardrailRules::default()),
        };
        let made = request.app.store.create_guardrail(&request.tenant, &request.by, new).await.map_err(refusal)?;
        request.app.guardrails_changed().await;
        Ok(data(StatusCode::CREATED, &Shown::from(&made)))
    })
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let id = addressed(&request)?;
        let found = request.app.store.find_guardrail(&request.tenant, &id).await.map_err(internal)?;
        Ok(data(StatusCode::OK, &Shown::from(&found.ok_or_else(not_found)?)))
    })
}

pub fn update(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.body().await?;
        let id = addressed(&request)?;
        let store = &request.app.store;
        let own_of = match store.find_guardrail(&request.tenant, &id).await.map_err(internal)? {
            Some(_) => None,
            None => Some(whose(&request, &id).await?.ok_or_else(not_found)?.id),
        };
        let mut form = Form::read(&body)?;
        let change = canonical(&request.app.gateway.snapshot(), read(&mut form));
        form.finish()?;
        let changed = store.update_guardrail(&request.tenant, &request.by, &id, own_of.as_ref(), &change);
        let changed = Box::pin(changed).await;
        let guardrail = changed.map_err(refusal)?.ok_or_else(not_found)?;
        request.app.guardrails_changed().await;
        Ok(data(StatusCode::OK, &Shown::from(&guardrail)))
    })
}

pub fn delete(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let id = addressed(&request)?;
        let gone = request.app.store.delete_guardrail(&request.tenant, &request.by, &id).await.map_err(internal)?;
        request.app.guardrails_changed().await;
        if gone { Ok(deleted()) } else { Err(not_found()) }
    })
}

/// The id in the path.
pub fn addressed(request: &Request) -> Result<String, Failure> {
    parse_uuid(request.param(0)).ok_or_else(not_found)
}

/// The workspace whose own guardrail has this id.
async fn whose(request: &Request, id: &str) -> Result<Option<Workspace>, Failure> {
    let listed = request.app.store.list_workspaces(&request.tenant, 0, MOST_WORKSPACES).await;
    let (workspaces, _) = listed.map_err(internal)?;
    Ok(workspaces.into_iter().find(|workspace| workspace.default_guardrail_id() == id))
}

fn refusal(error: StoreError) -> Failure {
    match error {
        StoreError::Refused(rule @ Refused::NameOfDefault) => refused("name", rule.to_string()),
        StoreError::Refused(rule) => refused("workspace_id", rule.to_string()),
        StoreError::Missing => refused("workspace_id", "is not a workspace of this account"),
        error => internal(error),
    }
}

/// The members of a body that makes or changes a guardrail.
fn read(form: &mut Form<'_>) -> GuardrailChange {
    let limit = form.nullable_money("limit_usd");
    if limit == Some(Some(Money::ZERO)) {
        form.issues.add("limit_usd", "must be greater than 0");
    }
    GuardrailChange {
        name: form.text("name", 1..=LONGEST_NAME),
        description: form.nullable_text("description", 0..=LONGEST_DESCRIPTION),
        limit,
        window: form.nullable_word("reset_interval", &INTERVALS),
        include_byok: form.flag("include_byok_in_budgets"),
        rules: read_rules(form),
    }
}

fn read_rules(form: &mut Form<'_>) -> RulesChange {
    let mut rules = RulesChange::default();
    for (name, list) in [
        ("allowed_models", &mut rules.allowed_models),
        ("ignored_models", &mut rules.ignored_models),
        ("allowed_providers", &mut rules.allowed_providers),
        ("ignored_providers", &mut rules.ignored_providers),
    ] {
        *list = form.nullable(name, |reader, raw| {
            reader.list(raw, 1..=MOST_ENTRIES, |reader, raw| reader.text(raw, 1..=LONGEST_ENTRY))
        });
    }
    let all = form.nullable("enforce_zdr", |reader, raw| reader.flag(raw));
    rules.enforce_zdr = all;
    for (name, kept) in [
        ("enforce_zdr_anthropic", &mut rules.enforce_zdr_anthropic),
        ("enforce_zdr_google", &mut rules.enforce_zdr_google),
        ("enforce_zdr_openai", &mut rules.enforce_zdr_openai),
        ("enforce_zdr_xai", &mut rules.enforce_zdr_xai),
        ("enforce_zdr_other", &mut rules.enforce_zdr_other),
    ] {
        // The old member speaks for those that are not given.
        *kept = form.nullable(name, |reader, raw| reader.flag(raw)).or(all);
    }
    for (name, kept) in [
        ("enable_free_model_publication", &mut rules.enable_free_model_publication),
        ("enable_free_model_training", &mut rules.enable_free_model_training),
        ("enable_paid_model_training", &mut rules.enable_paid_model_training),
    ] {
        *kept = form.nullable(name, |reader, raw| reader.flag(raw));
    }
    rules.content_filters = form.nullable("content_filters", |reader, raw| reader.list(raw, 0..=MOST_FILTERS, filter));
    rules.content_filter_builtins =
        form.nullable("content_filter_builtins", |reader, raw| reader.list(raw, 0..=MOST_FILTERS, builtin));
    rules
}

fn filter(reader: &mut Reader<'_>, raw: &RawValue) -> Option<PatternFilter> {
    reader.form(raw, |form| {
        let pattern = form.value("pattern", |reader, raw| {
            let pattern = reader.text(raw, 1..=LONGEST_PATTERN)?;
            match at_length(|| compiled(&pattern)) {
                Ok(_) => Some(pattern),
                Err(text) => reader.refuse(format!("invalid_regex_pattern: {text}")),
            }
        });
        let action = form.word("action", &ACTIONS);
        let label = form.nullable_text("label", 1..=LONGEST_LABEL).flatten();
        Some(PatternFilter {
            pattern: form.require("pattern", pattern)?,
            action: form.require("action", action)?,
            label,
        })
    })
}

fn builtin(reader: &mut Reader<'_>, raw: &RawValue) -> Option<BuiltinFilter> {
    reader.form(raw, |form| {
        let slug = form.value("slug", |reader, raw| {
            let said: Option<String> = serde_json::from_str(raw.get()).ok();
            if said.as_deref().is_some_and(|said| UNBUILT.contains(&said)) {
                return reader.refuse("needs entity recognition, which is not supported by this build");
            }
            reader.word(raw, &Builtin::ALL)
        });
        let action = form.word("action", &ACTIONS);
        let scan_scope = form.word("scan_scope", &SCOPES);
        let slug = form.require("slug", slug)?;
        if scan_scope.is_some() && slug != Builtin::RegexPromptInjection {
            form.issues.add("scan_scope", "is for regex-prompt-injection only");
            return None;
        }
        Some(BuiltinFilter { slug, action: form.require("action", action)?, scan_scope })
    })
}

/// Models under the names that the catalogue has for them, where it knows them.
fn canonical(snapshot: &Snapshot, mut change: GuardrailChange) -> GuardrailChange {
    let rules = &mut change.rules;
    for list in [&mut rules.allowed_models, &mut rules.ignored_models].into_iter().flatten().flatten() {
        for name in list.iter_mut() {
            if let Ok(named) = snapshot.catalogue.find(name) {
                *name = guard::entry(&named);
            }
        }
        // Two names of one model are one entry.
        let mut seen = HashSet::new();
        list.retain(|name| seen.insert(name.clone()));
    }
    change
}
