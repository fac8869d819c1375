//! What the operator set for plugins: it stands below what requests say, field by field, or above it where it is frozen.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::options::Plugins;

/// Plugins that are on where nobody mentions them: settings for them need no entry of the request.
const IMPLICIT: [&str; 3] = ["auto-router", "auto-beta-router", "file-parser"];

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
        let checked = Plugins::of(&[entry(id, self.members.clone())]);
        let text = |failure: crate::Failure| failure.message.replace("Invalid request: plugins[0].", "");
        checked.map(drop).map_err(text)
    }
}

/// The entries that count, and the plugins for which the request was not heard.
pub(super) fn merged(given: Vec<Value>, defaults: &Defaults) -> (Vec<Value>, Vec<String>) {
    let (mut entries, mut unheard) = (given, Vec::new());
    if defaults.is_empty() {
        return (entries, unheard);
    }
    let name = |entry: &Value| entry.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut ids: Vec<&str> = defaults.keys().map(String::as_str).collect();
    // What is saved for the one router serves the other, too.
    if ids.contains(&"auto-router") && !ids.contains(&"auto-beta-router") {
        ids.push("auto-beta-router");
    }
    for id in ids {
        let Some(setting) = defaults.get(id).or_else(|| defaults.get("auto-router")) else { continue };
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
            None => {}
        }
    }
    (entries, unheard)
}

fn entry(id: &str, mut members: Map<String, Value>) -> Value {
    members.insert("id".into(), json!(id));
    Value::Object(members)
}

/// Says in the metadata of a plugin that the request was not heard.
pub(super) fn say(entries: &mut [String], unheard: &[String]) {
    for text in entries {
        let Ok(mut told) = serde_json::from_str::<Value>(text) else { continue };
        let name = told.get("name").and_then(Value::as_str).unwrap_or_default();
        let name = if name == "web-search" { "web" } else { name };
        if unheard.iter().any(|id| id == name) {
            told["data"]["overrides_ignored"] = json!(true);
            *text = told.to_string();
        }
    }
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
        let told = setting(json!({"pdf": {"engine": "x"}})).check("file-parser").unwrap_err();
        assert!(told.starts_with("pdf.engine must be one of"), "{told}");
    }
}
