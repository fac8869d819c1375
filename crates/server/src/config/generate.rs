//! The JSON Schema of the configuration and the commented example file, both made from the raw structs.

use std::fmt::Write as _;

use serde_json::Value;

use super::raw;

/// The JSON Schema of the configuration file.
pub fn schema() -> String {
    let schema = schemars::schema_for!(raw::Config);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    text.push('\n');
    text
}

/// A file that names every setting with its default and its meaning, everything commented out.
pub fn example() -> String {
    let schema: Value = serde_json::from_str(&schema()).expect("it was just written");
    let defaults = serde_json::to_value(raw::Config::default()).expect("the defaults are JSON");
    let mut out = String::from(
        "# Every setting of Tidegate with its default. Nothing here is needed: without a file all defaults hold.\n\
         # What is marked `not set` has none: whoever takes the mark away gives it a value.\n\
         # Order of precedence: this file, then environment variables TIDEGATE__SECTION__FIELD, then the command line.\n\
         # A variable holds a value as it is written here, but text needs no quotes: TIDEGATE__EGRESS__ALLOW='[\"10.0.0.0/8\"]'.\n",
    );
    let sections = [
        "service",
        "storage",
        "secrets",
        "state",
        "keys",
        "oauth",
        "oidc",
        "limits",
        "stream",
        "upstream",
        "cache",
        "egress",
        "parser",
        "moderation",
        "plugins",
        "fusion",
        "routing",
        "tools",
        "files",
        "ledger",
        "pricing",
        "billing",
        "log",
        "metrics",
        "observability",
        "io_logging",
        "sim",
    ];
    for section in sections {
        let definition = resolved(&schema, &schema["properties"][section]);
        let _ = write!(out, "\n{}[{section}]\n", comment(definition));
        for (name, property) in properties(definition).filter(|(name, _)| !defaults[section][name].is_object()) {
            out.push_str(&comment(property));
            let _ = writeln!(out, "# {name} = {}", shown(&defaults[section][name]));
        }
        if section == "parser" {
            out.push_str(&entry(&schema, "[parser.ocr]", "Ocr", OCR));
        }
        if section == "plugins" {
            let told = comment(&definition["properties"]["defaults"]);
            let sample = "# [plugins.defaults.response-healing]\n# enabled = true\n# prevent_overrides = false\n";
            let _ = write!(out, "\n{told}{sample}");
        }
        if section == "fusion" {
            let told = comment(&definition["properties"]["presets"]);
            let sample = "# [fusion.presets.general-high]\n\
                          # analysis_models = [\"anthropic/claude-sonnet-5\", \"openai/gpt-5-mini\"]\n\
                          # model = \"anthropic/claude-sonnet-5\"\n";
            let _ = write!(out, "\n{told}{sample}");
        }
        if section == "routing" {
            out.push_str(&entry(&schema, "[routing.auto]", "Auto", AUTO));
            out.push_str(&entry(&schema, "[routing.bodybuilder]", "Bodybuilder", BODYBUILDER));
        }
        if section == "tools" {
            out.push_str(&entry(&schema, "[tools.web_search]", "WebSearch", SEARCH));
            out.push_str(&entry(&schema, "[tools.web_search.engines.house]", "SearchEngine", ENGINE));
            out.push_str(&entry(&schema, "[tools.image_generation]", "ImageGeneration", IMAGE_GENERATION));
            out.push_str(&entry(&schema, "[tools.sandbox]", "Sandbox", SANDBOX));
        }
    }
    let _ = write!(
        out,
        "\n{}# [aliases]\n# house-model = \"anthropic/claude-sonnet-5\"\n",
        comment(&schema["properties"]["aliases"])
    );
    out.push_str(&entry(&schema, "[[providers]]", "Provider", PROVIDER));
    out.push_str(&entry(&schema, "[[models]]", "Model", MODEL));
    out.push_str(&entry(&schema, "[[models.endpoints]]", "Endpoint", ENDPOINT));
    out.push_str(&entry(&schema, "[[destinations]]", "Destination", DESTINATION));
    out
}

/// Members that are sections of their own, or for tests.
const APART: [&str; 3] = ["endpoints", "engines", "results"];
const OCR: &[(&str, &str)] = &[
    ("url", "\"https://api.mistral.ai/v1/ocr\""),
    ("api_key", "\"env:OCR_KEY\""),
    ("model", "\"mistral-ocr-latest\""),
    ("price_per_1000_pages", "0"),
];
const AUTO: &[(&str, &str)] = &[
    ("candidates", "[\"anthropic/*\", \"openai/*\"]"),
    ("ranking", "{ general = [\"anthropic/claude-sonnet-5\"], translation = [\"openai/*\"] }"),
];
const BODYBUILDER: &[(&str, &str)] = &[("model", "\"anthropic/claude-sonnet-5\"")];
const SEARCH: &[(&str, &str)] = &[("default_engine", "\"house\"")];
const ENGINE: &[(&str, &str)] = &[
    ("kind", "\"searxng\""),
    ("url", "\"http://searx.internal:8080\""),
    ("api_key", "\"env:SEARCH_KEY\""),
    ("price_per_call", "0.005"),
    ("included_results", "10"),
    ("price_per_extra_result", "0.001"),
];
const IMAGE_GENERATION: &[(&str, &str)] = &[("default_model", "\"openai/gpt-5-image\"")];
const SANDBOX: &[(&str, &str)] = &[
    ("backend", "\"podman\""),
    ("image", "\"docker.io/library/python:3-slim\""),
    ("socket", "\"/run/podman/podman.sock\""),
    ("runtime", "\"\"  # not set; for docker alone"),
    ("max_containers", "16"),
    ("url", "\"\"  # not set; for http alone, such as http://sandbox.internal:8700"),
    ("api_key", "\"\"  # not set; for http alone"),
    ("price_per_second", "0"),
    ("network", "\"off\""),
    ("allowed_hosts", "[]"),
];
const PROVIDER: &[(&str, &str)] = &[
    ("slug", "\"vllm\""),
    ("display_name", "\"Our vLLM\""),
    ("protocol", "\"anthropic\""),
    ("base_url", "\"http://10.0.0.7:8000\""),
    ("api_key", "\"env:VLLM_KEY\""),
    ("auth", "\"bearer\""),
    ("betas", "false"),
    ("supports_cancel", "true"),
    ("on_unsupported", "\"drop\""),
    ("timeouts", "{ first_content_ms = 60000 }"),
    ("data_policy", "{ retains = false, trains = false }"),
    ("error_rules", "[{ status = 400, pattern = \"quota\", error_type = \"rate_limit_exceeded\" }]"),
    ("platform", "\"vllm\""),
    ("region", "\"eu-west-1\""),
    ("project", "\"my-project\""),
    ("resource", "\"my-resource\""),
    ("account", "\"my-account\""),
];
const MODEL: &[(&str, &str)] = &[
    ("id", "\"ours/llama-70b\""),
    ("name", "\"Llama 70B\""),
    ("description", "\"The house model\""),
    ("context_length", "131072"),
    ("max_output_tokens", "8192"),
    ("input_modalities", "[\"text\", \"image\"]"),
    ("output_modalities", "[\"text\"]"),
    ("aliases", "[\"llama\"]"),
    ("family", "\"llama\""),
    ("released_at", "\"2026-05-31\""),
    ("hidden", "false"),
    ("distillable", "true"),
    ("benchmarks", "{ coding_percentile = 72 }"),
];
const ENDPOINT: &[(&str, &str)] = &[
    ("provider", "\"vllm\""),
    ("model", "\"meta-llama/Llama-3.3-70B-Instruct\""),
    ("platform", "\"vllm\""),
    ("protocol", "\"anthropic\""),
    (
        "pricing",
        "{ input = 0.60, output = 0.80, cache_read = 0.06, cache_write = 0.75, request = 0.0, above = { 200k = { input = 1.20 } }, tier = { flex = 0.5 } }",
    ),
    ("context_length", "131072"),
    ("max_output_tokens", "8192"),
    ("tag", "\"eu\""),
    ("tier", "\"default\""),
    ("quantization", "\"fp8\""),
    ("supported_parameters", "[\"max_tokens\", \"temperature\", \"tools\"]"),
    ("native_tools", "[]"),
    ("shadow_price", "0.40"),
    ("quality", "{ score = 0.87 }"),
    ("card", "{ efforts = [\"low\", \"medium\", \"high\"] }"),
];

const DESTINATION: &[(&str, &str)] = &[
    ("name", "\"collector\""),
    ("type", "\"otel-collector\""),
    ("config", "{ endpoint = \"http://otel.internal:4318/v1/traces\" }"),
    ("headers", "{ authorization = \"env:COLLECTOR_TOKEN\" }"),
    ("enabled", "true"),
    ("workspace", "\"01926a7c-0000-7000-8000-000000000000\""),
    ("api_key_hashes", "[]"),
    ("filter_rules", "{ groups = [{ rules = [{ field = \"total_cost\", operator = \"gt\", value = 0.01 }] }] }"),
    ("sampling_rate", "1.0"),
    ("privacy_mode", "false"),
    ("broadcast_generation_cost", "false"),
    ("broadcast_generation_identity", "false"),
    ("broadcast_generation_request_context", "false"),
];

/// A section or an entry of a list, commented out, with sample values. Panics when a sample names no member or a member has no
/// sample, so that the test that writes the file finds it.
fn entry(schema: &Value, head: &str, definition: &str, samples: &[(&str, &str)]) -> String {
    let definition = &schema["$defs"][definition];
    let mut out = format!("\n{}# {head}\n", comment(definition));
    for (name, property) in properties(definition) {
        if APART.contains(&name.as_str()) {
            continue;
        }
        let sample = samples.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let value = sample.unwrap_or_else(|| panic!("{head}.{name} needs a sample value"));
        let _ = writeln!(out, "{}# {name} = {value}", comment(property));
    }
    out
}

fn resolved<'a>(schema: &'a Value, value: &'a Value) -> &'a Value {
    let reference = value["$ref"].as_str().or_else(|| value["allOf"][0]["$ref"].as_str());
    match reference.and_then(|reference| reference.strip_prefix("#/$defs/")) {
        Some(name) => &schema["$defs"][name],
        None => value,
    }
}

fn properties(definition: &Value) -> impl Iterator<Item = (&String, &Value)> {
    definition["properties"].as_object().into_iter().flatten()
}

fn comment(value: &Value) -> String {
    let text = value["description"].as_str().unwrap_or_default();
    text.lines().map(|line| format!("# {line}\n")).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "\"\"  # not set".to_owned(),
        other => other.to_string(),
    }
}
