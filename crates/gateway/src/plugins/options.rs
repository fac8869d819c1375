//! What the entries of `plugins` say. Unknown members are ignored; a wrong type or range is named by its path.

use serde_json::{Map, Value};
use tidegate_routing::Compression;

use crate::failure::Failure;

/// Parts of prices, a fifth each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl Tier {
    const NAMES: [(&str, Self); 5] = [
        ("low", Self::Low),
        ("medium", Self::Medium),
        ("high", Self::High),
        ("xhigh", Self::Xhigh),
        ("max", Self::Max),
    ];

    /// The part that a percentile falls into.
    pub fn at(percentile: f64) -> Self {
        match percentile {
            p if p < 20.0 => Self::Low,
            p if p < 40.0 => Self::Medium,
            p if p < 60.0 => Self::High,
            p if p < 80.0 => Self::Xhigh,
            _ => Self::Max,
        }
    }

    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(_, tier)| *tier == self).map_or("low", |(name, _)| name)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct AutoRouter {
    pub enabled: bool,
    pub allowed: Option<Vec<String>>,
    pub excluded: Vec<String>,
    pub tier: Option<Tier>,
    /// The older word for it: 0 to 10.
    pub tradeoff: Option<u8>,
    pub pin: bool,
}

impl Default for AutoRouter {
    fn default() -> Self {
        Self { enabled: true, allowed: None, excluded: Vec::new(), tier: None, tradeoff: None, pin: false }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pareto {
    pub enabled: bool,
    /// From 0 to 1.
    pub min_score: Option<f64>,
    /// Dollars for a million tokens of input.
    pub max_price: Option<f64>,
}

impl Default for Pareto {
    fn default() -> Self {
        Self { enabled: true, min_score: None, max_price: None }
    }
}

/// A panel of models.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fusion {
    /// Nothing where only models that stand for a panel have it.
    pub enabled: Option<bool>,
    pub preset: Option<String>,
    pub models: Option<Vec<String>>,
    pub model: Option<String>,
    pub calls: Option<u64>,
    pub tools: Option<Value>,
    /// Its place in the list.
    pub index: usize,
}

/// Who makes text of a PDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PdfEngine {
    /// The model reads it itself.
    Native,
    /// The reader that is built in.
    #[default]
    Embedded,
    /// The service that reads pictures of pages.
    Ocr,
}

impl PdfEngine {
    pub const NAMES: [&str; 4] = ["native", "cloudflare-ai", "pdf-text", "mistral-ocr"];

    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "native" => Some(Self::Native),
            "cloudflare-ai" | "pdf-text" => Some(Self::Embedded),
            "mistral-ocr" => Some(Self::Ocr),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Embedded => "cloudflare-ai",
            Self::Ocr => "mistral-ocr",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileParser {
    pub enabled: bool,
    pub engine: Option<PdfEngine>,
    /// Its place in the list.
    pub index: usize,
}

impl Default for FileParser {
    fn default() -> Self {
        Self { enabled: true, engine: None, index: 0 }
    }
}

impl FileParser {
    pub fn may_parse(&self) -> bool {
        self.enabled && self.engine != Some(PdfEngine::Native)
    }
}

/// What a request wants of plugins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plugins {
    pub auto: AutoRouter,
    pub auto_beta: AutoRouter,
    pub pareto: Pareto,
    pub moderation: bool,
    pub parser: FileParser,
    pub compression: Compression,
    /// The search before the first turn: its members and its place in the list; `Some(None)` when it is switched off.
    pub web: Option<Option<(Map<String, Value>, usize)>>,
    pub healing: bool,
    /// The parameters of the fetch tool that is to be added.
    pub fetch: Option<Map<String, Value>>,
    pub fusion: Option<Fusion>,
}

impl Default for Plugins {
    fn default() -> Self {
        Self {
            auto: AutoRouter::default(),
            auto_beta: AutoRouter::default(),
            pareto: Pareto::default(),
            moderation: false,
            parser: FileParser::default(),
            compression: Compression::Small,
            web: None,
            healing: false,
            fetch: None,
            fusion: None,
        }
    }
}

impl Plugins {
    /// The later of two entries with the same id counts.
    pub fn of(entries: &[Value]) -> Result<Self, Failure> {
        let mut plugins = Self::default();
        for (index, entry) in entries.iter().enumerate() {
            let Some(members) = entry.as_object() else { continue };
            let read = Read { members, index };
            let id = members.get("id").and_then(Value::as_str).unwrap_or_default();
            let enabled = read.truth("enabled")?.unwrap_or(true);
            match id {
                "auto-router" => plugins.auto = read.auto_router(true)?,
                "auto-beta-router" => plugins.auto_beta = read.auto_router(false)?,
                "moderation" => plugins.moderation = enabled,
                "file-parser" => plugins.parser = read.file_parser(enabled)?,
                "context-compression" => {
                    read.word("engine", &["middle-out"])?;
                    plugins.compression = if enabled { Compression::Always } else { Compression::Never };
                }
                "response-healing" => plugins.healing = enabled,
                "web" => plugins.web = Some(enabled.then(|| (read.parameters(), index))),
                "web-fetch" => plugins.fetch = enabled.then(|| read.parameters()),
                "pareto-router" => plugins.pareto = read.pareto_router(enabled)?,
                "fusion" => plugins.fusion = Some(read.fusion()?),
                // The envelope knows no others.
                _ => {}
            }
        }
        Ok(plugins)
    }
}

struct Read<'a> {
    members: &'a Map<String, Value>,
    index: usize,
}

impl Read<'_> {
    fn given(&self, name: &str) -> Option<&Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, problem: &str) -> Failure {
        Failure::invalid(format!("Invalid request: plugins[{}].{name} {problem}", self.index))
    }

    fn truth(&self, name: &str) -> Result<Option<bool>, Failure> {
        let read = |value: &Value| value.as_bool().ok_or_else(|| self.wrong(name, "must be a boolean"));
        self.given(name).map(read).transpose()
    }

    /// A text that must be one of these.
    fn word(&self, name: &str, words: &[&str]) -> Result<Option<&str>, Failure> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let known = value.as_str().filter(|text| words.contains(text));
        known.map(Some).ok_or_else(|| self.wrong(name, &format!("must be one of {}", words.join(", "))))
    }

    fn patterns(&self, name: &str) -> Result<Option<Vec<String>>, Failure> {
        const MOST: usize = 1_024;
        const TOGETHER: usize = 65_536;
        let Some(value) = self.given(name) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| self.wrong(name, "must be an array"))?;
        if list.len() > MOST {
            return Err(self.wrong(name, &format!("must have at most {MOST} entries")));
        }
        let mut patterns = Vec::with_capacity(list.len());
        for (place, pattern) in list.iter().enumerate() {
            let path = format!("{name}[{place}]");
            let pattern = pattern.as_str().ok_or_else(|| self.wrong(&path, "must be a string"))?;
            if pattern.chars().count() > MOST {
                return Err(self.wrong(&path, &format!("must be at most {MOST} characters")));
            }
            patterns.push(pattern.to_owned());
        }
        if patterns.iter().map(String::len).sum::<usize>() > TOGETHER {
            return Err(self.wrong(name, &format!("must be at most {TOGETHER} characters together")));
        }
        Ok(Some(patterns))
    }

    fn auto_router(&self, may_pin: bool) -> Result<AutoRouter, Failure> {
        let tier = match self.given("cost_tier") {
            None => None,
            Some(value) => {
                let known = value.as_str().and_then(|name| Tier::NAMES.iter().find(|(known, _)| *known == name));
                let names = Tier::NAMES.map(|(name, _)| name).join(", ");
                Some(known.ok_or_else(|| self.wrong("cost_tier", &format!("must be one of {names}")))?.1)
            }
        };
        let tradeoff = match self.given("cost_quality_tradeoff") {
            None => None,
            Some(value) => {
                let name = "cost_quality_tradeoff";
                let number = value.as_u64().ok_or_else(|| self.wrong(name, "must be an integer"))?;
                Some(
                    u8::try_from(number)
                        .ok()
                        .filter(|n| *n <= 10)
                        .ok_or_else(|| self.wrong(name, "must be at most 10"))?,
                )
            }
        };
        Ok(AutoRouter {
            enabled: self.truth("enabled")?.unwrap_or(true),
            allowed: self.patterns("allowed_models")?,
            excluded: self.patterns("excluded_models")?.unwrap_or_default(),
            tier,
            tradeoff,
            pin: may_pin && self.truth("pin_model")?.unwrap_or(false),
        })
    }

    fn pareto_router(&self, enabled: bool) -> Result<Pareto, Failure> {
        self.word("price_source", &["prompt", "weighted_avg"])?;
        let number = |name: &str, most: f64, problem: &str| match self.given(name) {
            None => Ok(None),
            Some(value) => {
                let number = value.as_f64().filter(|number| (0.0..=most).contains(number));
                number.map(Some).ok_or_else(|| self.wrong(name, problem))
            }
        };
        Ok(Pareto {
            enabled,
            min_score: number("min_coding_score", 1.0, "must be a number from 0 to 1")?,
            max_price: number("max_price", f64::MAX, "must be a number of at least 0")?,
        })
    }

    fn fusion(&self) -> Result<Fusion, Failure> {
        let enabled = match self.members.get("enabled") {
            Some(Value::Null) => None,
            _ => Some(self.truth("enabled")?.unwrap_or(true)),
        };
        self.word("preset", &super::FUSION_PRESETS)?;
        let models = match self.given("analysis_models") {
            None => None,
            Some(value) => {
                let list = value.as_array().filter(|list| (1..=8).contains(&list.len()));
                let list = list.ok_or_else(|| self.wrong("analysis_models", "must be an array of 1 to 8 models"))?;
                let texts: Option<Vec<String>> =
                    list.iter().map(|one| one.as_str().filter(|text| !text.is_empty()).map(str::to_owned)).collect();
                Some(texts.ok_or_else(|| self.wrong("analysis_models", "must be an array of 1 to 8 models"))?)
            }
        };
        let model = match self.given("model") {
            None => None,
            Some(Value::String(model)) if !model.is_empty() => Some(model.clone()),
            Some(_) => return Err(self.wrong("model", "must be the id of a model")),
        };
        let calls = match self.given("max_tool_calls") {
            None => None,
            Some(value) => {
                let number = value.as_u64().filter(|number| (1..=16).contains(number));
                Some(number.ok_or_else(|| self.wrong("max_tool_calls", "must be an integer from 1 to 16"))?)
            }
        };
        let tools = match self.given("tools") {
            None => None,
            Some(Value::Array(list)) if list.len() <= 8 => Some(Value::Array(list.clone())),
            Some(_) => return Err(self.wrong("tools", "must be an array of at most 8 tools")),
        };
        let preset = self.given("preset").and_then(Value::as_str).map(str::to_owned);
        Ok(Fusion { enabled, preset, models, model, calls, tools, index: self.index })
    }

    fn file_parser(&self, enabled: bool) -> Result<FileParser, Failure> {
        let pdf = match self.given("pdf") {
            None => None,
            Some(value) => Some(value.as_object().ok_or_else(|| self.wrong("pdf", "must be an object"))?),
        };
        let engine = match pdf.and_then(|pdf| pdf.get("engine")).filter(|engine| !engine.is_null()) {
            None => None,
            Some(engine) => {
                let problem = || format!("must be one of {}", PdfEngine::NAMES.join(", "));
                let known = engine.as_str().and_then(PdfEngine::parse);
                Some(known.ok_or_else(|| self.wrong("pdf.engine", &problem()))?)
            }
        };
        Ok(FileParser { enabled, engine, index: self.index })
    }

    /// Everything but what names the plugin.
    fn parameters(&self) -> Map<String, Value> {
        let own = self.members.iter().filter(|(name, _)| !matches!(name.as_str(), "id" | "enabled"));
        own.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(entries: Value) -> Result<Plugins, String> {
        Plugins::of(entries.as_array().unwrap()).map_err(|failure| failure.message.into_owned())
    }

    #[test]
    fn entries_are_read_and_the_later_one_counts() {
        let made = read(json!([
            {"id": "auto-router", "cost_tier": "max", "pin_model": true},
            {"id": "auto-router", "allowed_models": ["a/*"], "excluded_models": null, "x": 1},
            {"id": "response-healing"},
            {"id": "web-fetch", "max_uses": 2},
            {"id": "moderation"},
            {"id": "fusion"},
            {"id": "file-parser", "pdf": {"engine": "pdf-text"}},
        ]))
        .unwrap();
        assert_eq!(made.parser, FileParser { enabled: true, engine: Some(PdfEngine::Embedded), index: 6 });
        assert_eq!(made.auto, AutoRouter { allowed: Some(vec!["a/*".into()]), ..AutoRouter::default() });
        assert!(made.healing);
        assert_eq!(made.fetch.unwrap().get("max_uses"), Some(&json!(2)));
        assert!(made.moderation);
        assert_eq!(made.fusion, Some(Fusion { enabled: Some(true), index: 5, ..Fusion::default() }));
        assert!(!read(json!([{"id": "response-healing", "enabled": false}])).unwrap().healing);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        for (entry, message) in [
            (json!({"enabled": 1}), "plugins[0].enabled must be a boolean"),
            (json!({"cost_tier": "cheap"}), "plugins[0].cost_tier must be one of low, medium, high, xhigh, max"),
            (json!({"cost_quality_tradeoff": 11}), "plugins[0].cost_quality_tradeoff must be at most 10"),
            (json!({"cost_quality_tradeoff": "5"}), "plugins[0].cost_quality_tradeoff must be an integer"),
            (json!({"allowed_models": "a"}), "plugins[0].allowed_models must be an array"),
            (json!({"excluded_models": [1]}), "plugins[0].excluded_models[0] must be a string"),
            (json!({"allowed_models": vec!["a"; 1025]}), "plugins[0].allowed_models must have at most 1024 entries"),
        ] {
            let mut entry = entry;
            entry["id"] = json!("auto-router");
            assert_eq!(read(json!([entry])).unwrap_err(), format!("Invalid request: {message}"));
        }
        for (member, value, problem) in [
            ("min_coding_score", json!(1.1), "must be a number from 0 to 1"),
            ("max_price", json!(-1), "must be a number of at least 0"),
            ("max_price", json!("1"), "must be a number of at least 0"),
            ("price_source", json!("list"), "must be one of prompt, weighted_avg"),
        ] {
            let made = read(json!([{"id": "pareto-router", member: value}]));
            assert_eq!(made.unwrap_err(), format!("Invalid request: plugins[0].{member} {problem}"));
        }
        for (member, value, problem) in [
            ("preset", json!("best"), "must be one of general-high, general-budget, general-fast"),
            ("analysis_models", json!([]), "must be an array of 1 to 8 models"),
            ("analysis_models", json!([1]), "must be an array of 1 to 8 models"),
            ("model", json!(""), "must be the id of a model"),
            ("max_tool_calls", json!(17), "must be an integer from 1 to 16"),
            ("tools", json!({}), "must be an array of at most 8 tools"),
        ] {
            let made = read(json!([{"id": "fusion", member: value}]));
            assert_eq!(made.unwrap_err(), format!("Invalid request: plugins[0].{member} {problem}"));
        }
        let made = read(json!([{"id": "context-compression", "engine": "inside-out"}]));
        assert_eq!(made.unwrap_err(), "Invalid request: plugins[0].engine must be one of middle-out");
        for (pdf, message) in [
            (json!("native"), "plugins[0].pdf must be an object"),
            (
                json!({"engine": "tesseract"}),
                "plugins[0].pdf.engine must be one of native, cloudflare-ai, pdf-text, mistral-ocr",
            ),
        ] {
            let made = read(json!([{"id": "file-parser", "pdf": pdf}]));
            assert_eq!(made.unwrap_err(), format!("Invalid request: {message}"));
        }
    }
}
