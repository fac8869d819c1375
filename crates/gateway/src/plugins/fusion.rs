//! `fusion`: gives the model a panel of others as a tool, and resolves the names that stand for a panel.

use serde_json::{Map, Value, json};

use super::Told;
use super::options::{Fusion, Plugins};
use super::route::Router;
use crate::failure::Failure;
use crate::request;
use crate::snapshot::{FusionPreset, Settings};

/// For requests that name no other.
pub const PRESET: &str = "general-high";
/// What the faster name stands for.
const FAST: &str = "general-fast";
/// All there can be.
pub const PRESETS: [&str; 3] = [PRESET, "general-budget", FAST];

/// A panel that a request asks for.
pub(super) struct Panel {
    preset: Option<String>,
    models: Vec<String>,
    /// Who answers, where the request names a panel instead of a model.
    pub answers: Option<String>,
    /// The parameters of the tool; none where it is switched off.
    parameters: Option<Map<String, Value>>,
}

/// What a request asks for, by its plugins or by the name of its model.
pub(super) fn wanted(plugins: &Plugins, name: &str, settings: &Settings) -> Result<Option<Panel>, Failure> {
    let router = Router::of(name, super::brand(settings)).map(|(router, _)| router);
    let named = match router {
        Some(Router::Fusion) => Some(PRESET),
        Some(Router::FusionFlash) => Some(FAST),
        _ => None,
    };
    let none = Fusion::default();
    let options = match &plugins.fusion {
        Some(options) if named.is_some() || options.enabled == Some(true) => options,
        None if named.is_some() => &none,
        _ => return Ok(None),
    };
    let slug = options.preset.as_deref().or(named);
    let preset = |slug: &str| -> Result<&FusionPreset, Failure> {
        settings.fusion.get(slug).ok_or_else(|| {
            let path = format!("Invalid request: plugins[{}].preset", options.index);
            Failure::invalid(format!("{path} '{slug}' is not configured on this deployment: name analysis_models"))
        })
    };
    let (preset, slug) = match (slug, &options.models) {
        // Whoever names a panel and a model needs none.
        (_, Some(_)) if options.preset.is_none() => (slug.and_then(|slug| settings.fusion.get(slug)), None),
        (Some(slug), _) => (Some(preset(slug)?), Some(slug)),
        (None, _) => (Some(preset(PRESET)?), Some(PRESET)),
    };
    let models = options.models.clone().or_else(|| preset.map(|preset| preset.analysis_models.clone()));
    let models = models.unwrap_or_default();
    let first = || preset.and_then(|preset| preset.model.clone()).or_else(|| models.first().cloned());
    let answers = named.and_then(|_| options.model.clone().or_else(first));
    let mut parameters = Map::new();
    parameters.insert("analysis_models".into(), json!(models));
    // Who answers also looks through what the panel said, unless somebody else is named.
    let analyst = options.model.clone().or_else(|| answers.clone());
    parameters.extend(analyst.map(|model| ("model".to_owned(), json!(model))));
    parameters.extend(options.calls.map(|calls| ("max_tool_calls".to_owned(), json!(calls))));
    parameters.extend(options.tools.clone().map(|tools| ("tools".to_owned(), tools)));
    let parameters = Some(parameters).filter(|_| options.enabled != Some(false));
    Ok(Some(Panel { preset: slug.map(str::to_owned), models, answers, parameters }))
}

impl Panel {
    pub fn adds_tool(&self) -> bool {
        self.parameters.is_some()
    }

    /// Gives the model the tool, unless it has it.
    pub fn add(&self, request: &mut Map<String, Value>, settings: &Settings, told: &mut Told) -> bool {
        let Some(parameters) = &self.parameters else { return false };
        let Some(tools) = request::tools(request) else { return false };
        let kind = |tool: &Value| tool.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if tools.iter().any(|tool| super::brand(settings).tool(&kind(tool)) == Some("fusion")) {
            return false;
        }
        tools.push(json!({"type": format!("{}:fusion", settings.brand), "parameters": parameters}));
        let model = parameters.get("model").cloned().or_else(|| request.get("model").cloned());
        let mut data = json!({"analysis_models": self.models, "model": model});
        if let Some(preset) = &self.preset {
            data["preset"] = json!(preset);
        }
        told.entries.push(json!({"type": "plugin", "name": "fusion", "data": data}).to_string());
        true
    }
}
