//! What callers are held to: which models and providers they may use, what they may spend, what must not be in what they
//! send. Every node has all guardrails in memory; a request of somebody who is under none pays for one look.
//!
//! `find` and `injection` know what to look for in a text, `scan` looks through a request.

mod find;
mod injection;
mod scan;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use quick_cache::sync::Cache;
use regex::{Regex, RegexBuilder};
use smallvec::SmallVec;
use tidegate_core::{Account, Guarded, KeyHash, Money, OrganisationId, Slot, Timestamp, Window, WorkspaceId};
use tidegate_routing::{Guard, Zdr};
use tidegate_store::guardrails::{
    Action, Assigned, Builtin, Everything, Guardrail, GuardrailRules, PatternFilter, ScanScope,
};
use tidegate_store::{Store, StoreError};

use crate::keys::KeyEntry;
use crate::ledger::Ledger;
use crate::ledger::book::Rule;
use crate::ledger::rules::Rules;
use crate::tasks::at_length;

pub(crate) use scan::{Blocked, Judged, of_people};

/// What a pattern may take in memory when it is compiled, in bytes: `\w` alone has 700 ranges of characters, and sixty of them in
/// a row have room.
const MOST_COMPILED: usize = 4 << 20;
/// Combinations that are remembered.
const COMBINATIONS: usize = 1_024;

/// Why a guardrail holds for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    Workspace,
    Member,
    Key,
}

impl Scope {
    fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Member => "member",
            Self::Key => "api-key",
        }
    }
}

/// One guardrail as it is used.
#[derive(Debug)]
struct Ready {
    id: String,
    limit: Option<(Money, Option<Window>)>,
    include_byok: bool,
    rules: GuardrailRules,
    patterns: Vec<(Regex, PatternFilter)>,
}

/// A limit of a guardrail as it is shown.
#[derive(Clone, Debug)]
pub struct Budget {
    pub guardrail: String,
    /// Its name in the public vocabulary.
    pub scope: &'static str,
    pub limit: Money,
    pub window: Option<Window>,
    pub include_byok: bool,
}

/// What a filter looks for.
#[derive(Clone, Debug)]
enum Sought {
    Builtin(Builtin),
    Pattern(Regex, Option<String>),
}

/// A filter of one of the guardrails.
#[derive(Clone, Debug)]
struct Filter {
    sought: Sought,
    action: Action,
    user_only: bool,
    guardrail: String,
    scope: Scope,
}

/// Everything that a caller is held to.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub guard: Guard,
    filters: Vec<Filter>,
}

#[derive(Default)]
struct Index {
    seq: i64,
    all: Vec<Arc<Ready>>,
    by_key: HashMap<KeyHash, usize>,
    by_member: HashMap<(OrganisationId, Box<str>), usize>,
    by_workspace: HashMap<WorkspaceId, usize>,
}

type Places = [Option<usize>; 3];

/// All guardrails, fresh within a second of any change.
pub struct Guardrails {
    store: Arc<Store>,
    ledger: Arc<Ledger>,
    index: ArcSwap<Index>,
    /// By the change and the guardrails that come together.
    held: Cache<(i64, Places), Arc<Held>>,
}

impl Guardrails {
    pub fn new(store: Arc<Store>, ledger: Arc<Ledger>) -> Self {
        Self { store, ledger, index: ArcSwap::default(), held: Cache::new(COMBINATIONS) }
    }

    /// Takes over what changed in the store since the last call.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        if self.store.guardrails_seq().await? == self.index.load().seq {
            return Ok(());
        }
        let everything = self.store.all_guardrails().await?;
        // Whoever is held to a budget from now on, or was not for a while.
        self.ledger.doubt_guardrails();
        let known = self.index.load_full();
        self.index.store(Arc::new(at_length(|| Index::of(everything, &known))));
        self.ledger.note_change();
        Ok(())
    }

    /// What a key is held to; none for most.
    pub(crate) fn of(&self, key: &KeyEntry) -> Option<Arc<Held>> {
        let index = self.index.load();
        let places = index.places(key)?;
        let name = (index.seq, places);
        if let Some(known) = self.held.get(&name) {
            return Some(known);
        }
        let held = Arc::new(Held::of(index.scoped(places)));
        self.held.insert(name, held.clone());
        Some(held)
    }

    /// The last change of guardrails, for a key that has filters.
    pub(crate) fn change(&self, key: &KeyEntry) -> Option<i64> {
        // Read first: a change in between is one more to come.
        let seq = self.index.load().seq;
        self.of(key).filter(|held| held.has_filters()).map(|_| seq)
    }

    /// The budgets of a key's guardrails, for those who want to see them.
    pub fn budgets(&self, key: &KeyEntry) -> Vec<Budget> {
        let index = self.index.load();
        let scoped = index.places(key).map(|places| index.scoped(places)).unwrap_or_default();
        let budget = |(scope, ready): (Scope, Arc<Ready>)| {
            let (limit, window) = ready.limit?;
            let scope = match scope {
                Scope::Workspace => "workspace_default_key",
                Scope::Member => "member",
                Scope::Key => "api_key",
            };
            Some(Budget { guardrail: ready.id.clone(), scope, limit, window, include_byok: ready.include_byok })
        };
        scoped.into_iter().filter_map(budget).collect()
    }

    /// Adds the budgets of a key's guardrails. Each key, and each member, has the whole of a budget.
    pub(crate) fn add_rules(&self, key: &KeyEntry, now: Timestamp, rules: &mut Rules) {
        let index = self.index.load();
        let Some(places) = index.places(key) else { return };
        for (scope, ready) in index.scoped(places) {
            let Some((limit, window)) = ready.limit else { continue };
            let whom = match (scope, key.creator.as_deref()) {
                (Scope::Member, Some(member)) => Guarded::Member(member),
                _ => Guarded::Key(key.hash),
            };
            let slot = Slot::of(Account::guarded(&ready.id, whom), window, now);
            rules.push(Rule { slot, limit, counts_byok: ready.include_byok });
        }
    }
}

impl Index {
    /// Patterns that are known are not compiled again: large ones take a while, and most changes are of something else.
    fn of(everything: Everything, known: &Self) -> Self {
        let compiled = known.all.iter().flat_map(|ready| &ready.patterns);
        let compiled: HashMap<&str, &Regex> =
            compiled.map(|(pattern, filter)| (filter.pattern.as_str(), pattern)).collect();
        let mut index = Self { seq: everything.seq, ..Self::default() };
        let mut by_id = HashMap::new();
        let mut tenants = Vec::new();
        for guardrail in everything.guardrails {
            let place = index.all.len();
            by_id.insert(guardrail.id.clone(), place);
            if guardrail.is_default {
                index.by_workspace.insert(guardrail.workspace.clone(), place);
            }
            tenants.push(guardrail.organisation.clone());
            index.all.push(Arc::new(Ready::of(guardrail, &compiled)));
        }
        for (guardrail, kind, subject) in everything.assigned {
            let Some(place) = by_id.get(&guardrail).copied() else { continue };
            match kind {
                Assigned::Key => {
                    index.by_key.extend(KeyHash::parse(&subject).map(|hash| (hash, place)));
                }
                Assigned::Member => {
                    index.by_member.insert((tenants[place].clone(), subject.into()), place);
                }
            }
        }
        index
    }

    /// The guardrails of the workspace, the member and the key.
    fn places(&self, key: &KeyEntry) -> Option<Places> {
        if self.all.is_empty() {
            return None;
        }
        let member = || self.by_member.get(&(key.organisation.clone(), key.creator.clone()?)).copied();
        let places = [self.by_workspace.get(&key.workspace).copied(), member(), self.by_key.get(&key.hash).copied()];
        places.iter().any(Option::is_some).then_some(places)
    }

    fn scoped(&self, places: Places) -> SmallVec<[(Scope, Arc<Ready>); 3]> {
        let [workspace, member, own] = places;
        // Every key has the whole of its workspace's budget: one that is given the same guardrail once more has one, not two.
        let own = own.filter(|own| Some(*own) != workspace);
        let scopes = [(Scope::Workspace, workspace), (Scope::Member, member), (Scope::Key, own)];
        scopes.into_iter().filter_map(|(scope, place)| Some((scope, self.all.get(place?)?.clone()))).collect()
    }
}

impl Ready {
    fn of(guardrail: Guardrail, known: &HashMap<&str, &Regex>) -> Self {
        let Guardrail { id, limit, window, include_byok, rules, .. } = guardrail;
        let mut patterns = Vec::new();
        for filter in rules.content_filters.iter().flatten() {
            let pattern = match known.get(filter.pattern.as_str()) {
                Some(known) => Ok((*known).clone()),
                None => compiled(&filter.pattern),
            };
            match pattern {
                Ok(pattern) => patterns.push((pattern, filter.clone())),
                // It was checked when it was stored; an older engine may have taken more.
                Err(error) => tracing::error!(guardrail = %id, %error, "a content filter cannot be used"),
            }
        }
        Self { id, limit: limit.map(|limit| (limit, window)), include_byok, rules, patterns }
    }
}

/// A pattern that may be used as a filter, or why not.
pub fn compiled(pattern: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(pattern).size_limit(MOST_COMPILED).dfa_size_limit(MOST_COMPILED).build();
    built.map_err(|error| match error {
        regex::Error::Syntax(text) => {
            let line = text.lines().last().unwrap_or_default();
            format!("is not a pattern: {}", line.trim().trim_start_matches("error: "))
        }
        _ => {
            "is too large when it is compiled: repeat less of it (`\\w` is large, `[A-Za-z0-9_]` small), or spread its \
              words over several patterns"
                .to_owned()
        }
    })
}

impl Held {
    /// Allow lists must all hold, ignore lists and filters add up, and of policies the strictest counts.
    fn of(ready: SmallVec<[(Scope, Arc<Ready>); 3]>) -> Self {
        let mut held = Self::default();
        for (scope, ready) in ready {
            let rules = &ready.rules;
            let guard = &mut held.guard;
            guard.allowed_models.extend(rules.allowed_models.clone());
            guard.ignored_models.extend(rules.ignored_models.iter().flatten().cloned());
            guard.allowed_providers.extend(rules.allowed_providers.clone());
            guard.ignored_providers.extend(rules.ignored_providers.iter().flatten().cloned());
            let Zdr { anthropic, google, openai, xai, other } = &mut guard.zdr;
            for (strict, said) in [
                (anthropic, rules.enforce_zdr_anthropic),
                (google, rules.enforce_zdr_google),
                (openai, rules.enforce_zdr_openai),
                (xai, rules.enforce_zdr_xai),
                (other, rules.enforce_zdr_other),
            ] {
                *strict |= said == Some(true);
            }
            // Whoever publishes what it is sent also learns from it.
            guard.denies_free_training |=
                rules.enable_free_model_training == Some(false) || rules.enable_free_model_publication == Some(false);
            guard.denies_paid_training |= rules.enable_paid_model_training == Some(false);
            held.add_filters(scope, &ready);
        }
        held
    }

    fn add_filters(&mut self, scope: Scope, ready: &Ready) {
        for filter in ready.rules.content_filter_builtins.iter().flatten() {
            let new = Filter {
                sought: Sought::Builtin(filter.slug),
                action: filter.action,
                user_only: filter.scan_scope == Some(ScanScope::UserOnly),
                guardrail: ready.id.clone(),
                scope,
            };
            let same = |known: &&mut Filter| matches!(known.sought, Sought::Builtin(slug) if slug == filter.slug);
            match self.filters.iter_mut().find(same) {
                // The wider look and the stronger action count.
                Some(known) => {
                    let user_only = known.user_only && new.user_only;
                    if new.action > known.action {
                        *known = new;
                    }
                    known.user_only = user_only;
                }
                None => self.filters.push(new),
            }
        }
        for (pattern, filter) in &ready.patterns {
            self.filters.push(Filter {
                sought: Sought::Pattern(pattern.clone(), filter.label.clone()),
                action: filter.action,
                user_only: false,
                guardrail: ready.id.clone(),
                scope,
            });
        }
    }

    pub fn has_filters(&self) -> bool {
        !self.filters.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_people_write_have_room() {
        let words: Vec<String> = (0..2_000).map(|number| format!("secret-{number}")).collect();
        let listed = format!(r"(?i)\b(?:{})\b", words.join("|"));
        for pattern in [
            r"\w{20}",
            r"\b[A-Z]{2}\d{2}(?:\s?\w{4}){3,7}\b",
            r"(?i)\b\w{1,40}@corp\.example\b",
            ".{0,200}password.{0,200}",
            &"word ".repeat(10_000),
            &listed,
        ] {
            assert!(compiled(pattern).is_ok(), "{}", &pattern[..20]);
        }
        assert!(
            compiled(r"(\w{50}){50}").unwrap_err().starts_with("is too large when it is compiled: repeat less of it")
        );
        assert_eq!(compiled("a(").unwrap_err(), "is not a pattern: unclosed group");
    }

    #[test]
    fn what_is_known_is_not_compiled_again() {
        let with = |pattern: &str| Guardrail {
            rules: GuardrailRules {
                content_filters: Some(vec![PatternFilter {
                    pattern: pattern.to_owned(),
                    action: Action::Redact,
                    label: None,
                }]),
                ..GuardrailRules::default()
            },
            id: "g".to_owned(),
            organisation: OrganisationId("o".into()),
            workspace: WorkspaceId("w".into()),
            is_default: true,
            name: "g".to_owned(),
            description: None,
            limit: None,
            window: None,
            include_byok: false,
            created: Timestamp(0),
            updated: None,
        };
        let other = compiled("another").unwrap();
        let ready = Ready::of(with("this"), &HashMap::from([("this", &other)]));
        assert_eq!(ready.patterns[0].0.as_str(), "another", "the one that was there is taken as it is");
        assert_eq!(Ready::of(with("this"), &HashMap::new()).patterns[0].0.as_str(), "this");
    }
}
