//! The server tools of a request: which there are, what the model sees of them, and what their calls are called.

use serde_json::{Map, Value, json};
use tidegate_tools::datetime;
use tidegate_wire::envelope::Brand;

use super::fetch::{self, Fetch};
use super::search::{self, Before, Search};
use crate::failure::Failure;
use crate::snapshot::Settings;

/// Tools of the public interface that run on other surfaces only.
const ELSEWHERE: [&str; 3] = ["apply_patch", "local_shell", "code_interpreter"];
/// Those that need something that is not configured.
const UNCONFIGURED: [&str; 9] =
    ["bash", "image_generation", "shell", "tool_search", "fusion", "advisor", "subagent", "files", "mcp"];

/// What a tool does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Datetime { zone: String },
    SearchModels { most: usize },
    WebSearch(Search),
    WebFetch(Fetch),
}

/// A tool that the gateway runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tool {
    pub kind: Kind,
    /// Its type in the request.
    pub wire: String,
    /// As the model calls it.
    pub function: String,
    /// As its calls are called in the answer.
    pub block: String,
}

/// All of them, and the tools as the model gets to see them.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    pub tools: Vec<Tool>,
    pub upstream: Vec<Value>,
    /// Whether the client has tools of its own.
    pub has_others: bool,
    /// A search that was made before the first turn.
    pub before: Option<Before>,
}

impl Roster {
    /// Of the `tools` of a request.
    ///
    /// `emulates`: a vendor's own search is run here, because nobody who could serve has it.
    pub fn of(given: &[Value], settings: &Settings, emulates: bool) -> Result<Self, Failure> {
        let brand = Brand { name: &settings.brand, aliases: &settings.brand_aliases };
        let mut roster = Self::default();
        let mut names: Vec<&str> = Vec::new();
        for (place, entry) in given.iter().enumerate() {
            let wire = entry.get("type").and_then(Value::as_str).unwrap_or("custom");
            let is_emulated = emulates && search::is_vendors(wire);
            let Some(name) = brand.tool(wire).or_else(|| is_emulated.then_some(search::NAME)) else {
                roster.has_others = true;
                names.extend(entry.get("name").and_then(Value::as_str));
                roster.upstream.push(entry.clone());
                continue;
            };
            let none = Map::new();
            let parameters = match entry.get("parameters") {
                None | Some(Value::Null) => &none,
                Some(Value::Object(parameters)) => parameters,
                Some(_) => return Err(wrong(place, "parameters", "must be an object")),
            };
            if settings.tools.disabled.iter().any(|disabled| disabled == name) {
                return Err(Failure::invalid(format!("{wire} is not configured on this deployment")));
            }
            let kind = match is_emulated {
                true => Kind::WebSearch(Search::of_vendors(entry, wire, place, settings)?),
                false => kind(name, wire, parameters, place, settings)?,
            };
            if roster.tools.iter().any(|tool| std::mem::discriminant(&tool.kind) == std::mem::discriminant(&kind)) {
                return Err(wrong(place, "type", &format!("'{wire}' is used more than once")));
            }
            let function = kind.function(&settings.brand);
            roster.upstream.push(definition(&kind, &function, entry.get("cache_control")));
            let block = kind.block(&settings.brand);
            roster.tools.push(Tool { kind, wire: wire.to_owned(), function, block });
        }
        let clash = roster.tools.iter().find(|tool| names.contains(&tool.function.as_str()));
        match clash {
            Some(tool) => Err(Failure::invalid(format!("tool name conflict: {}", tool.function))),
            None => Ok(roster),
        }
    }

    /// The tool that the model calls so.
    pub fn called(&self, function: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.function == function)
    }

    /// The tool whose calls are called so in answers, by any of the deployment's names.
    pub fn told(&self, block: &str, brand: Brand<'_>) -> Option<&Tool> {
        let bare = brand.tool(block);
        self.tools.iter().find(|tool| tool.block == block || bare == Some(tool.kind.name()))
    }

    fn search(&self) -> Option<&Search> {
        self.tools.iter().find_map(|tool| match &tool.kind {
            Kind::WebSearch(search) => Some(search),
            _ => None,
        })
    }

    /// Searches that were answered.
    pub fn searches(&self) -> u64 {
        let before = self.before.as_ref().map_or(0, |before| before.search.searches());
        before + self.search().map_or(0, Search::searches)
    }

    /// The citations of a text, where anything was searched.
    pub fn citations(&self, text: &str) -> Option<Vec<Value>> {
        let before = self.before.as_ref().and_then(|before| before.search.citations(text));
        let now = self.search().and_then(|search| search.citations(text));
        match (before, now) {
            (Some(mut before), now) => {
                before.extend(now.into_iter().flatten());
                Some(before)
            }
            (None, now) => now,
        }
    }

    /// Who did the work of a tool.
    pub fn engines(&self) -> Value {
        let search = self.search().map(|search| (search::NAME.to_owned(), json!(search.terms.engine.name)));
        let fetches = self.tools.iter().any(|tool| matches!(tool.kind, Kind::WebFetch(_)));
        let fetch = fetches.then(|| (fetch::NAME.to_owned(), json!("tidegate")));
        Value::Object(search.into_iter().chain(fetch).collect())
    }

    /// Pages that were fetched for it.
    pub fn fetches(&self) -> u64 {
        let fetches = self.tools.iter().map(|tool| match &tool.kind {
            Kind::WebFetch(fetch) => fetch.fetches(),
            _ => 0,
        });
        fetches.sum()
    }

    /// The tool that a `tool_choice` names, by its type or by its function.
    pub fn chosen(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.wire == name || tool.block == name || tool.function == name)
    }
}

fn wrong(place: usize, member: &str, problem: &str) -> Failure {
    Failure::invalid(format!("Invalid request: tools[{place}].{member} {problem}"))
}

fn kind(
    name: &str,
    wire: &str,
    parameters: &Map<String, Value>,
    place: usize,
    settings: &Settings,
) -> Result<Kind, Failure> {
    let given = |member: &str| parameters.get(member).filter(|value| !value.is_null());
    match name {
        "datetime" => {
            let zone = match given("timezone") {
                None => "UTC",
                Some(Value::String(zone)) => zone,
                Some(_) => return Err(wrong(place, "parameters.timezone", "must be a string")),
            };
            if !datetime::is_zone(zone) {
                return Err(wrong(place, "parameters.timezone", "must be a name of the time zone database"));
            }
            Ok(Kind::Datetime { zone: zone.to_owned() })
        }
        "experimental__search_models" | "search_models" => {
            let path = "parameters.max_results";
            let most = match given("max_results") {
                None => 5,
                Some(value) => value.as_u64().ok_or_else(|| wrong(place, path, "must be an integer"))?,
            };
            if !(1..=20).contains(&most) {
                let problem = if most < 1 { "must be at least 1" } else { "must be at most 20" };
                return Err(wrong(place, path, problem));
            }
            Ok(Kind::SearchModels { most: most as usize })
        }
        search::NAME => Ok(Kind::WebSearch(Search::of(parameters, wire, place, settings)?)),
        "web_fetch" => {
            let brand = wire.split(':').next().unwrap_or_default();
            Ok(Kind::WebFetch(Fetch::of(parameters, brand, |member, problem| wrong(place, member, problem))?))
        }
        name if ELSEWHERE.contains(&name) => {
            Err(Failure::invalid(format!("{wire} is only available on the Responses API")))
        }
        name if UNCONFIGURED.contains(&name) => {
            Err(Failure::invalid(format!("{wire} is not configured on this deployment")))
        }
        _ => Err(Failure::invalid(format!("Unknown server tool: {wire}"))),
    }
}

impl Kind {
    /// Its name behind the brand.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Datetime { .. } => "datetime",
            Self::SearchModels { .. } => "experimental__search_models",
            Self::WebSearch(_) => search::NAME,
            Self::WebFetch(_) => fetch::NAME,
        }
    }

    /// As its calls are called in answers: tools that others have too are called as they call them.
    fn block(&self, brand: &str) -> String {
        match self {
            Self::Datetime { .. } | Self::SearchModels { .. } => format!("{brand}:{}", self.name()),
            Self::WebFetch(_) | Self::WebSearch(_) => self.name().to_owned(),
        }
    }

    /// As it is when a call of it begins.
    pub fn begun(&self) -> Self {
        match self {
            Self::WebSearch(search) => Self::WebSearch(search.begun()),
            other => other.clone(),
        }
    }

    /// The block of a call that failed, for those whose results have one.
    pub fn failed(&self, code: &str) -> Option<(&'static str, Value)> {
        match self {
            Self::WebSearch(_) => Some(search::failed(code)),
            Self::Datetime { .. } | Self::SearchModels { .. } | Self::WebFetch(_) => None,
        }
    }

    /// What a call must say.
    fn required(&self) -> &'static [&'static str] {
        match self {
            Self::WebSearch(_) => &["query"],
            Self::WebFetch(_) => &["url"],
            Self::Datetime { .. } | Self::SearchModels { .. } => &[],
        }
    }

    /// Notes that it is called once more.
    pub fn counted(&mut self) {
        match self {
            Self::Datetime { .. } | Self::SearchModels { .. } | Self::WebSearch(_) => {}
            Self::WebFetch(fetch) => fetch.counted(),
        }
    }

    fn function(&self, brand: &str) -> String {
        let plain: String =
            brand.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        let name = match self {
            Self::Datetime { .. } => "datetime",
            Self::SearchModels { .. } => "search_models",
            Self::WebSearch(_) => return search::NAME.to_owned(),
            Self::WebFetch(_) => return fetch::NAME.to_owned(),
        };
        let mut function = format!("{plain}_{name}");
        function.truncate(64);
        function
    }
}

/// The tool as a function that the model can call.
fn definition(kind: &Kind, function: &str, cache_control: Option<&Value>) -> Value {
    let texts = |description: &str| json!({"type": "array", "items": {"type": "string"}, "description": description});
    let text = |description: &str| json!({"type": "string", "description": description});
    let (description, properties) = match kind {
        Kind::Datetime { zone } => (
            format!(
                "Tells the current date and time. Call it whenever the answer depends on what day or time it is now; \
                 you cannot know it otherwise. Without a time zone it answers for {zone}."
            ),
            json!({"timezone": text("A name of the IANA time zone database, such as Europe/Paris")}),
        ),
        Kind::SearchModels { most } => (
            format!(
                "Searches the language models that can be used here, and tells their context length and what they take \
                 and give; at most {most} at a time. Call it when asked which models there are or which one fits. \
                 Without arguments it lists them."
            ),
            json!({
                "query": text("Words that the name or the description holds"),
                "input_modalities": texts("What it must take: text, image, file, audio, video"),
                "output_modalities": texts("What it must give: text, image, audio"),
                "min_context_length": {"type": "integer", "description": "Tokens that it must take at least"},
                "series": text("The author or family, such as anthropic"),
            }),
        ),
        Kind::WebSearch(search) => search.description(),
        Kind::WebFetch(_) => (Fetch::description().to_owned(), Fetch::properties()),
    };
    let mut definition = json!({
        "name": function,
        "description": description,
        "input_schema": {"type": "object", "properties": properties},
    });
    if !kind.required().is_empty() {
        definition["input_schema"]["required"] = json!(kind.required());
    }
    if let Some(marker) = cache_control.filter(|marker| !marker.is_null()) {
        definition["cache_control"] = marker.clone();
    }
    definition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(tools: Value) -> Result<Roster, String> {
        let settings = Settings { brand: "tidegate".into(), ..Settings::default() };
        Roster::of(tools.as_array().unwrap(), &settings, false).map_err(|failure| failure.message.into_owned())
    }

    #[test]
    fn server_tools_become_functions_where_they_stand() {
        let client = json!({"name": "get_price", "input_schema": {"type": "object"}});
        let marker = json!({"type": "ephemeral"});
        let clock = json!({"type": "tidegate:datetime", "parameters": {"timezone": "Europe/Paris", "x": 1}, "cache_control": marker});
        let made = roster(json!([clock, client])).unwrap();
        assert_eq!((made.tools.len(), made.has_others), (1, true));
        let tool = &made.tools[0];
        assert_eq!((&*tool.function, &*tool.block), ("tidegate_datetime", "tidegate:datetime"));
        assert_eq!(tool.kind, Kind::Datetime { zone: "Europe/Paris".into() });
        assert_eq!(made.upstream[1], client);
        assert_eq!(made.upstream[0]["name"], "tidegate_datetime");
        assert_eq!(made.upstream[0]["cache_control"], marker);
        assert!(made.upstream[0]["description"].as_str().unwrap().len() <= 600);
        assert!(made.called("tidegate_datetime").is_some() && made.called("get_price").is_none());
        let brand = Brand { name: "tidegate", aliases: &["older".to_owned()] };
        assert!(made.told("tidegate:datetime", brand).is_some() && made.told("older:datetime", brand).is_some());
        assert!(made.told("web_search", brand).is_none());
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_path() {
        let table = [
            (
                json!([{"type": "tidegate:datetime", "parameters": []}]),
                "Invalid request: tools[0].parameters must be an object",
            ),
            (
                json!([{"type": "tidegate:datetime", "parameters": {"timezone": "Mars/Olympus"}}]),
                "Invalid request: tools[0].parameters.timezone must be a name of the time zone database",
            ),
            (
                json!([{"type": "tidegate:datetime", "parameters": {"timezone": 1}}]),
                "Invalid request: tools[0].parameters.timezone must be a string",
            ),
            (
                json!([{"type": "tidegate:datetime"}, {"type": "tidegate:datetime"}]),
                "Invalid request: tools[1].type 'tidegate:datetime' is used more than once",
            ),
            (
                json!([{"type": "tidegate:search_models", "parameters": {"max_results": 21}}]),
                "Invalid request: tools[0].parameters.max_results must be at most 20",
            ),
            (
                json!([{"type": "tidegate:search_models", "parameters": {"max_results": 0}}]),
                "Invalid request: tools[0].parameters.max_results must be at least 1",
            ),
            (json!([{"type": "tidegate:bash"}]), "tidegate:bash is not configured on this deployment"),
            (json!([{"type": "tidegate:apply_patch"}]), "tidegate:apply_patch is only available on the Responses API"),
            (json!([{"type": "tidegate:nix"}]), "Unknown server tool: tidegate:nix"),
            (
                json!([{"type": "tidegate:datetime"}, {"name": "tidegate_datetime", "input_schema": {"type": "object"}}]),
                "tool name conflict: tidegate_datetime",
            ),
        ];
        for (tools, message) in table {
            assert_eq!(roster(tools.clone()).unwrap_err(), message, "{tools}");
        }
    }
}
