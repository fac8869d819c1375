//! What is set for plugins, from what was written about it.

use serde_json::Value;
use tidegate_gateway::plugins::defaults::{Defaults, Setting};
use tidegate_wire::envelope::PLUGINS;

use super::lines::Lines;
use super::{nearest, raw};

pub fn read(raw: &raw::Plugins, lines: &Lines) -> anyhow::Result<Defaults> {
    let mut defaults = Defaults::new();
    for (id, members) in &raw.defaults {
        let path = format!("plugins.defaults.{id}");
        let mistake = |problem: String| lines.named(&path, anyhow::anyhow!(problem).context(path.clone()));
        if !PLUGINS.contains(&id.as_str()) {
            let hint = nearest(id, &PLUGINS).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            return Err(mistake(format!("there is no such plugin{hint}")));
        }
        let mut members = members.clone();
        let prevents_overrides = match members.remove("prevent_overrides") {
            None => false,
            Some(Value::Bool(prevents)) => prevents,
            Some(_) => return Err(mistake("prevent_overrides must be a boolean".to_owned())),
        };
        let setting = Setting { members, prevents_overrides };
        setting.check(id).map_err(mistake)?;
        defaults.insert(id.clone(), setting);
    }
    Ok(defaults)
}

#[cfg(test)]
mod tests {
    use crate::config::tests::problem;

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let table = [
            (
                "[plugins.defaults.wep]\nenabled = true",
                "plugins.defaults.wep: there is no such plugin; did you mean web?",
            ),
            ("[plugins.defaults.web]\nenabled = 1", "plugins.defaults.web: enabled must be a boolean"),
            (
                "[plugins.defaults.web]\nprevent_overrides = 1",
                "plugins.defaults.web: prevent_overrides must be a boolean",
            ),
            (
                "[plugins.defaults.auto-router]\ncost_tier = \"x\"",
                "plugins.defaults.auto-router: cost_tier must be one of",
            ),
        ];
        for (text, wanted) in table {
            let told = problem(text);
            assert!(told.contains("line 1") && told.contains(wanted), "{told}\nnot\n{wanted}");
        }
        assert_eq!(problem("[plugins.defaults.file-parser]\npdf = { engine = \"pdf-text\" }"), "ok");
    }
}
