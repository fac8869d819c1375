//! What is set for plugins, from what was written about it.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_gateway::plugins::FUSION_PRESETS;
use tidegate_gateway::plugins::defaults::{Defaults, Setting};
use tidegate_gateway::snapshot::FusionPreset;
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

pub fn panels(raw: &raw::Fusion, lines: &Lines) -> anyhow::Result<BTreeMap<String, FusionPreset>> {
    let mut panels = BTreeMap::new();
    for (name, panel) in &raw.presets {
        let path = format!("fusion.presets.{name}");
        let mistake = |problem: String| lines.named(&path, anyhow::anyhow!(problem).context(path.clone()));
        if !FUSION_PRESETS.contains(&name.as_str()) {
            return Err(mistake(format!("must be one of {}", FUSION_PRESETS.join(", "))));
        }
        if !(1..=8).contains(&panel.analysis_models.len()) {
            return Err(mistake("analysis_models must name one to eight models".to_owned()));
        }
        let raw::FusionPreset { analysis_models, model } = panel.clone();
        panels.insert(name.clone(), FusionPreset { analysis_models, model });
    }
    Ok(panels)
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
        let panels = [
            ("[fusion.presets.best]\nanalysis_models = [\"a/b\"]", "fusion.presets.best: must be one of general-high"),
            (
                "[fusion.presets.general-fast]",
                "fusion.presets.general-fast: analysis_models must name one to eight models",
            ),
        ];
        for (text, wanted) in table.into_iter().chain(panels) {
            let told = problem(text);
            assert!(told.contains("line 1") && told.contains(wanted), "{told}\nnot\n{wanted}");
        }
        assert_eq!(problem("[plugins.defaults.file-parser]\npdf = { engine = \"pdf-text\" }"), "ok");
    }
}
