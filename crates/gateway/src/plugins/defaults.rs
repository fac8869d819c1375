//! What the operator and workspaces set for plugins: it stands below what requests say, field by field, or above it where
//! it is frozen.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::options::Plugins;
use crate::snapshot::Settings;
use crate::{Snapshot, agent};

/// Plugins that are on where nobody mentions them: settings for them need no entry of the request.
const IMPLICIT: [&str; 4] = ["auto-router", "auto-beta-router", "pareto-router", "file-parser"];

/// By id.
pub type Defaults = BTreeMap<String, Setting>;

/// What is set for one plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting {
    /// As an entry of `plugins`, without its id.
    pub members: Map<String, Value>,
    /// Whether requests cannot change it.
    pub prevents_overrides: bool,
}

impl Setting {
    /// Whether it can be used for this plugin; the problem begins with the member's name.
    pub fn check(&self, id: &str) -> Result<(), String> {
        let checked = Plugins::of(&[entry(id, self.members.clone())]).and_then(|_| match id {
            "web" => agent::check_search(&self.members, 0),
            "web-fetch" => agent::check_fetch(&self.members),
            _ => Ok(()),
        });
        checked.map_err(|failure| problem(&failure))
    }

    /// Whether the engine that it names is there.
    pub fn check_engine(&self, id: &str, settings: &Settings) -> Result<(), String> {
        match self.members.get("engine").and_then(Value::as_str) {
            Some(engine) if id == "web" && engine != "native" => {
                agent::Search::of_plugin(&self.members, 0, settings).map(drop).map_err(|failure| problem(&failure))
            }
            _ => Ok(()),
        }
    }

    /// Whether a plugin that it switches on has what it works with: every call would be refused else.
    pub fn check_configured(&self, id: &str, snapshot: &Snapshot) -> Result<(), String> {
        if self.members.get("enabled") != Some(&Value::Bool(true)) {
            return Ok(());
        }
        let settings = &snapshot.settings;
        let needs = match id {
            "web" if settings.tools.search.default.is_none() => {
                let searches_itself = match self.members.get("engine").and_then(Value::as_str) {
                    None => agent::anybody_searches(&self.members, snapshot),
                    Some(engine) => engine != "auto",
                };
                (!searches_itself).then_some("a search engine: the operator sets one under tools.web_search.engines")
            }
            "moderation" if settings.moderation.is_none() => {
                Some("somebody who judges: the operator sets moderation.backend")
            }
            _ => None,
        };
        needs.map_or(Ok(()), |what| Err(format!("enabled needs {what}")))
    }
}

fn problem(failure: &crate::Failure) -> String {
    failure.message.replace("Invalid request: plugins[0].", "")
}

/// What both levels set together, and the plugins for which the upper one was not heard.
pub(super) fn over(lower: &Defaults, upper: &Defaults) -> (Defaults, Vec<String>) {
    let (mut made, mut unheard) = (lower.clone(), Vec::new());
    let has_router = upper.contains_key("auto-router") || lower.contains_key("auto-router");
    let both = has_router.then_some("auto-beta-router");
    let ids: BTreeSet<&str> = upper.keys().map(String::as_str).chain(both).collect();
    for id in ids {
        let below = of(lower, id).cloned().unwrap_or_default();
        let Some(above) = of(upper, id) else { continue };
        if below.prevents_overrides {
            unheard.push(id.to_owned());
            continue;
        }
        let members = below.members.into_iter().chain(above.members.clone()).collect();
        made.insert(id.to_owned(), Setting { members, prevents_overrides: above.prevents_overrides });
    }
    (made, unheard)
}

/// What a level sets for a plugin. What is saved for the one router serves the other, too.
fn of<'d>(defaults: &'d Defaults, id: &str) -> Option<&'d Setting> {
    let shared = || defaults.get("auto-router").filter(|_| id == "auto-beta-router");
    defaults.get(id).or_else(shared)
}

/// The entries that count, and the plugins for which the request was not heard.
pub(super) fn merged(given: Vec<Value>, defaults: &Defaults) -> (Vec<Value>, Vec<String>) {
    let (mut entries, mut unheard) = (given, Vec::new());
    if defaults.is_empty() {
        return (entries, unheard);
    }
    let name = |entry: &Value| entry.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut ids: Vec<&str> = defaults.keys().map(String::as_str).collect();
    if ids.contains(&"auto-router") && !ids.contains(&"auto-beta-router") {
        ids.push("auto-beta-router");
    }
    for id in ids {
        let Some(setting) = of(defaults, id) else { continue };
        let place = entries.iter().rposition(|entry| name(entry) == id);
        let own = place.and_then(|place| entries[place].as_object().cloned());
        let members = match own {
            Some(_) if setting.prevents_overrides => {
                unheard.push(id.to_owned());
                setting.members.clone()
            }
            Some(own) => setting.members.clone().into_iter().chain(own).collect(),
            None => setting.members.clone(),
        };
        let is_on = members.contains_key("enabled") || IMPLICIT.contains(&id);
        match place {
            // It keeps its place, which mistakes are named by.
            Some(place) if is_on || !setting.prevents_overrides => entries[place] = entry(id, members),
            Some(place) => entries[place] = json!({"id": id, "enabled": false}),
            None if is_on => entries.push(entry(id, members)),
            // It waits for the models that stand for a panel.
            None if id == "fusion" => {
                let mut members = members;
                members.insert("enabled".into(), Value::Null);
                entries.push(entry(id, members));
            }
            None => {}
        }
    }
    (entries, unheard)
}

fn entry(id: &str, mut members: Map<String, Value>) -> Value {
    members.insert("id".into(), json!(id));
    Value::Object(members)
}

/// An entry of the metadata; where the request was not heard for its plugin, it says so.
pub(crate) fn said(text: String, unheard: &[String]) -> String {
    if unheard.is_empty() {
        return text;
    }
    let Ok(mut told) = serde_json::from_str::<Value>(&text) else { return text };
    let name = told.get("name").and_then(Value::as_str).unwrap_or_default();
    let name = if name == "web-search" { "web" } else { name };
    if !unheard.iter().any(|id| id == name) {
        return text;
    }
    told["data"]["overrides_ignored"] = json!(true);
    told.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(value: Value) -> Defaults {
        let one = |(id, members): (&String, &Value)| {
            let mut members = members.as_object().unwrap().clone();
            let prevents_overrides = members.remove("prevent_overrides") == Some(json!(true));
            (id.clone(), Setting { members, prevents_overrides })
        };
        value.as_object().unwrap().iter().map(one).collect()
    }

    fn made(given: Value, defaults: Value) -> (Value, Vec<String>) {
        let (entries, unheard) = merged(given.as_array().unwrap().clone(), &settings(defaults));
        (Value::Array(entries), unheard)
    }

    #[test]
    fn a_field_of_the_request_counts_and_the_others_are_the_operators() {
        let web = json!({"web": {"enabled": true, "max_results": 3, "mode": "fast"}});
        let (entries, _) = made(json!([]), web.clone());
        assert_eq!(entries, json!([{"enabled": true, "max_results": 3, "mode": "fast", "id": "web"}]));
        let (entries, _) = made(json!([{"id": "moderation"}, {"id": "web", "max_results": 9}]), web.clone());
        assert_eq!(entries[1]["max_results"], 9);
        assert_eq!((&entries[1]["mode"], &entries[0]["id"]), (&json!("fast"), &json!("moderation")));
        let (entries, _) = made(json!([{"id": "web", "enabled": false}]), web);
        assert_eq!(entries[0]["enabled"], false);
    }

    #[test]
    fn settings_alone_switch_nothing_on() {
        assert_eq!(made(json!([]), json!({"web": {"max_results": 3}})).0, json!([]));
        let (entries, _) = made(json!([{"id": "web"}]), json!({"web": {"max_results": 3}}));
        assert_eq!(entries, json!([{"max_results": 3, "id": "web"}]));
    }

    #[test]
    fn what_is_frozen_is_not_changed_by_a_request() {
        let frozen = json!({"response-healing": {"enabled": true, "prevent_overrides": true}});
        let (entries, unheard) = made(json!([{"id": "response-healing", "enabled": false}]), frozen.clone());
        assert_eq!((&entries[0]["enabled"], unheard), (&json!(true), vec!["response-healing".to_owned()]));
        assert!(made(json!([]), frozen).1.is_empty(), "nothing was said");
        let off = json!({"web": {"prevent_overrides": true}});
        assert_eq!(made(json!([{"id": "web"}]), off).0[0]["enabled"], false);
    }

    #[test]
    fn what_is_saved_for_one_router_serves_the_other() {
        let (entries, _) = made(json!([]), json!({"auto-router": {"cost_tier": "max"}}));
        assert_eq!(
            entries,
            json!([{"cost_tier": "max", "id": "auto-router"}, {"cost_tier": "max", "id": "auto-beta-router"}])
        );
    }

    #[test]
    fn a_mistake_is_found_when_it_is_set() {
        let setting = |members: Value| Setting { members: members.as_object().unwrap().clone(), ..Setting::default() };
        assert_eq!(setting(json!({"cost_tier": "max"})).check("auto-router"), Ok(()));
        for (id, members, problem) in [
            ("file-parser", json!({"pdf": {"engine": "x"}}), "pdf.engine must be one of"),
            ("web", json!({"max_results": 26}), "max_results must be at most 25"),
            ("web", json!({"include_domains": "x.org"}), "include_domains must be"),
            ("web", json!({"search_prompt": 1}), "search_prompt must be a string"),
            ("web-fetch", json!({"max_uses": 0}), "max_uses must be at least 1"),
            ("web-fetch", json!({"blocked_domains": [1]}), "blocked_domains[0] must be a string"),
        ] {
            let told = setting(members).check(id).unwrap_err();
            assert!(told.starts_with(problem), "{told}");
        }
    }

    #[test]
    fn a_workspace_stands_over_the_operator_field_by_field() {
        let lower = settings(json!({
            "web": {"enabled": true, "max_results": 3, "mode": "fast"},
            "moderation": {"enabled": true, "prevent_overrides": true},
            "auto-router": {"cost_tier": "max", "pin_model": true},
        }));
        let upper = settings(json!({
            "web": {"max_results": 9, "prevent_overrides": true},
            "moderation": {"enabled": false},
            "auto-beta-router": {"cost_tier": "low"},
        }));
        let (made, unheard) = over(&lower, &upper);
        assert_eq!(unheard, ["moderation"], "the operator froze it");
        let expected = settings(json!({
            "web": {"enabled": true, "max_results": 9, "mode": "fast", "prevent_overrides": true},
            "moderation": {"enabled": true, "prevent_overrides": true},
            "auto-router": {"cost_tier": "max", "pin_model": true},
            "auto-beta-router": {"cost_tier": "low", "pin_model": true},
        }));
        assert_eq!(made, expected);
        // What the workspace saves for the one router serves the other, over what the operator says of that.
        let (made, _) = over(
            &settings(json!({"auto-beta-router": {"cost_tier": "low", "pin_model": true}})),
            &settings(json!({"auto-router": {"cost_tier": "high"}})),
        );
        assert_eq!(
            made["auto-beta-router"].members,
            *json!({"cost_tier": "high", "pin_model": true}).as_object().unwrap()
        );
    }
}
