//! The search that a vendor runs for its own models, in the place of ours: who can do it as a request wants it, what they
//! are told, and what becomes of what they find.

use serde_json::{Map, Value, json};
use tidegate_routing::{Searcher, Searchers};
use tidegate_store::vault::Vault;
use tidegate_tools::search::{Domain, Found};

use super::reader::Reader;
use super::roster::Roster;
use super::search::{self, BLOCK, NAME, SEALED};
use super::turn::is;
use crate::Snapshot;
use crate::failure::Failure;
use tidegate_core::WorkspaceId;

/// What the tool is called in Anthropic's interface; other vendors' are made of it.
const TYPE: &str = "web_search_20250305";
/// The types that a search of another vendor is made of.
const TRANSLATED: [&str; 2] = [TYPE, "web_search_20260209"];
/// What is said of who searched.
pub(super) const ENGINE: &str = "native";
/// Domains that can be named at most.
const MOST_AT_OPENAI: usize = 100;
const MOST_AT_XAI: usize = 5;

/// What a request leaves to vendors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Native {
    /// The tool as they get it.
    pub entry: Value,
    /// Who can keep to the domains.
    able: Searchers,
    /// Nobody searches in the place of one who could, but not so.
    is_strict: bool,
    /// The member with the domains, and its path.
    domains: String,
}

impl Native {
    /// Of a tool of ours with these parameters.
    pub fn of(
        reader: &Reader<'_>,
        is_strict: bool,
        (allowed, excluded): (&[Domain], &[Domain]),
    ) -> Result<Self, Failure> {
        let mut entry = json!({"type": TYPE, "name": NAME});
        if let Some(most) = reader.number("max_uses", u64::MAX)? {
            entry["max_uses"] = json!(most);
        }
        let texts = |domains: &[Domain]| domains.iter().map(|one| Value::String(one.to_string())).collect::<Vec<_>>();
        for (name, domains) in [("allowed_domains", allowed), ("blocked_domains", excluded)] {
            if !domains.is_empty() {
                entry[name] = Value::Array(texts(domains));
            }
        }
        if let Some(place) = reader.object("user_location")? {
            let mut told = Map::from_iter([("type".to_owned(), json!("approximate"))]);
            for name in ["city", "region", "country", "timezone"] {
                if let Some(text) = place.text(name)?.filter(|text| !text.is_empty()) {
                    told.insert(name.to_owned(), json!(text));
                }
            }
            entry["user_location"] = Value::Object(told);
        }
        let name = if allowed.is_empty() { "excluded_domains" } else { "allowed_domains" };
        let domains = format!("{}.{name}", reader.path);
        Ok(Self { entry, able: able(allowed, excluded), is_strict, domains })
    }

    /// Of a vendor's own tool: it stays as it is.
    pub fn of_vendors(reader: &Reader<'_>, wire: &str, (allowed, excluded): (&[Domain], &[Domain])) -> Self {
        let able = match TRANSLATED.contains(&wire) {
            true => able(allowed, excluded),
            false => Searchers::NONE,
        };
        let name = if allowed.is_empty() { "blocked_domains" } else { "allowed_domains" };
        Self {
            entry: Value::Object(reader.members.clone()),
            // Whose tool it is decides what can be asked of it.
            able: able.with(Searcher::Anthropic),
            is_strict: false,
            domains: format!("{}.{name}", reader.path),
        }
    }

    /// Who searches for a request whose search stands beside other tools, or alone.
    pub fn searchers(&self, is_alone: bool) -> Searchers {
        // Its search cannot stand beside functions.
        if is_alone { self.able } else { self.able.without(Searcher::Google) }
    }

    /// Who may serve; nothing where an engine of ours searches for all others.
    pub fn may_serve(&self, is_alone: bool, has_engine: bool) -> Option<Searchers> {
        match (has_engine, self.is_strict) {
            (true, false) => None,
            (true, true) => Some(self.able.with(Searcher::None)),
            (false, _) => Some(self.searchers(is_alone)),
        }
    }
}

/// Who can keep to the domains that the plugin names. What is no domain is refused elsewhere.
pub(super) fn able_to(plugin: &Map<String, Value>) -> Searchers {
    let named = |name: &str| {
        let list = plugin.get(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|one| one.as_str().and_then(Domain::parse)).collect::<Vec<_>>()
    };
    able(&named("include_domains"), &named("exclude_domains"))
}

/// Who can keep to these domains.
fn able(allowed: &[Domain], excluded: &[Domain]) -> Searchers {
    let (is_one, is_free) = (allowed.is_empty() || excluded.is_empty(), allowed.is_empty() && excluded.is_empty());
    let all = || allowed.iter().chain(excluded);
    let are_whole = all().all(Domain::is_whole);
    let able = [
        (Searcher::Anthropic, is_one && !all().any(Domain::is_below)),
        (Searcher::Openai, excluded.is_empty() && are_whole && allowed.len() <= MOST_AT_OPENAI),
        (Searcher::Xai, is_one && are_whole && all().count() <= MOST_AT_XAI),
        (Searcher::Google, is_free),
        (Searcher::Itself, is_free),
    ];
    able.into_iter().filter(|(_, can)| *can).map(|(searcher, _)| searcher).collect()
}

/// What a loop leaves to vendors: who searches, who may serve, and what the tool looks like there.
#[derive(Clone, Debug)]
pub(super) struct Left {
    pub entry: Value,
    pub searchers: Searchers,
    pub may_serve: Option<Searchers>,
    pub is_alone: bool,
}

impl Left {
    /// Of the tools of a request for these models; nothing where nobody of them searches himself. A search that nobody can
    /// make is refused.
    pub fn of<'n>(
        roster: &Roster,
        snapshot: &Snapshot,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Option<Self>, Failure> {
        let Some((native, has_engine, wire)) = roster.native() else { return Ok(None) };
        let is_alone = roster.shown() == 1;
        let searchers = native.searchers(is_alone);
        let may_serve = native.may_serve(is_alone, has_engine);
        let left = Self { entry: native.entry.clone(), searchers, may_serve, is_alone };
        let mut models =
            names.filter_map(|name| snapshot.catalogue.find(name).ok()).map(|named| named.model).peekable();
        // Nobody knows who `default` and the like are yet.
        let Some(first) = models.peek().map(|model| model.id.clone()) else { return Ok(Some(left)) };
        let found: Searchers = models.flat_map(|model| &model.endpoints).map(|endpoint| endpoint.searcher).collect();
        if may_serve.is_none_or(|may_serve| found.iter().any(|one| may_serve.contains(one))) {
            return Ok(found.iter().any(|one| searchers.contains(one)).then_some(left));
        }
        Err(if found.iter().any(|one| native.able.contains(one)) {
            Failure::invalid(format!("Invalid request: {wire} cannot stand beside other tools on {first}"))
        } else if found.iter().any(|one| one != Searcher::None) {
            let problem = "cannot be kept to by the native search there";
            Failure::invalid(format!("Invalid request: {} {problem}: {first}", native.domains))
        } else {
            search::unconfigured(wire)
        })
    }

    /// The tools as those who search themselves get them, after so many searches: what may be made is for the whole request.
    pub fn tools(&self, shown: &[Value], used: u64) -> Vec<Value> {
        let one = |tool: &Value| {
            if tool.get("name") != Some(&json!(NAME)) {
                return Some(tool.clone());
            }
            let mut entry = self.entry.clone();
            if let Some(most) = entry.get("max_uses").and_then(Value::as_u64) {
                let left = most.checked_sub(used).filter(|left| *left > 0)?;
                entry["max_uses"] = json!(left);
            }
            if let Some(marker) = tool.get("cache_control") {
                entry["cache_control"] = marker.clone();
            }
            Some(entry)
        };
        shown.iter().filter_map(one).collect()
    }
}

/// Seals what a vendor found, where the vendor has not done so itself.
pub(super) fn seal(block: &mut Value, vault: &Vault, workspace: &WorkspaceId, at: &str) {
    if !is(block, BLOCK) {
        return;
    }
    let Some(Value::Array(results)) = block.get_mut("content") else { return };
    for result in results {
        if result.get("encrypted_content") != Some(&json!("")) {
            continue;
        }
        let text = |name: &str| result.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let found = Found { url: text("url"), title: text("title"), ..Found::default() };
        *result = search::shown(vault, workspace, &found, ENGINE, at);
    }
}

/// Whether a result was sealed by a vendor, who alone can read it.
pub(super) fn is_sealed_elsewhere(block: &Value) -> bool {
    let results = block.get("content").and_then(Value::as_array).filter(|_| is(block, BLOCK));
    let mut sealed = results.into_iter().flatten().filter_map(|result| result.get("encrypted_content")?.as_str());
    sealed.any(|sealed| !sealed.is_empty() && !sealed.starts_with(SEALED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(domains: &[&str]) -> Vec<Domain> {
        domains.iter().map(|text| Domain::parse(text).unwrap()).collect()
    }

    fn who(allowed: &[&str], excluded: &[&str]) -> Vec<&'static str> {
        able(&named(allowed), &named(excluded)).iter().map(Searcher::as_str).collect()
    }

    #[test]
    fn who_can_keep_to_domains_is_as_the_vendors_say() {
        assert_eq!(who(&[], &[]), ["anthropic", "openai", "xai", "google", "itself"]);
        assert_eq!(who(&["a.example"], &[]), ["anthropic", "openai", "xai"]);
        assert_eq!(who(&[], &["a.example"]), ["anthropic", "xai"]);
        assert_eq!(who(&["a.example"], &["b.example"]), [""; 0]);
        assert_eq!(who(&["a.example/b"], &[]), ["anthropic"]);
        assert_eq!(who(&["*.a.example"], &[]), [""; 0]);
        assert_eq!(who(&["a.b", "b.b", "c.b", "d.b", "e.b", "f.b"], &[]), ["anthropic", "openai"]);
    }

    #[test]
    fn an_engine_of_ours_searches_for_those_who_cannot() {
        let of = |parameters: Value, is_strict: bool| {
            let members = parameters.as_object().unwrap();
            let excluded = parameters.get("excluded_domains").map(|_| named(&["a.example"])).unwrap_or_default();
            Native::of(&Reader::of(members, 0), is_strict, (&[], &excluded)).unwrap()
        };
        let told = |set: Option<Searchers>| set.map(|set| set.iter().map(Searcher::as_str).collect::<Vec<_>>());
        let plain = of(json!({}), false);
        assert_eq!(plain.entry, json!({"type": "web_search_20250305", "name": "web_search"}));
        assert_eq!(told(plain.may_serve(true, true)), None);
        let without_engine = told(plain.may_serve(false, false)).unwrap();
        assert_eq!(without_engine, ["anthropic", "openai", "xai", "itself"]);
        let strict = of(json!({"excluded_domains": ["a.example"], "max_uses": 2}), true);
        let told = told(strict.may_serve(true, true)).unwrap();
        assert_eq!(told, ["none", "anthropic", "xai"], "those who do not search at all have it done for them");
        assert_eq!(strict.entry["blocked_domains"], json!(["a.example"]));
        assert_eq!(strict.entry["max_uses"], 2);
        let left = Left { entry: strict.entry.clone(), searchers: strict.able, may_serve: None, is_alone: false };
        let shown = [json!({"name": "web_search"}), json!({"name": "get_price"})];
        let most = |used| left.tools(&shown, used).iter().map(|tool| tool["max_uses"].as_u64()).collect::<Vec<_>>();
        assert_eq!([most(0), most(1)], [vec![Some(2), None], vec![Some(1), None]]);
        assert_eq!([most(2), most(3)], [vec![None], vec![None]], "of those that are made there are none left");
    }
}
