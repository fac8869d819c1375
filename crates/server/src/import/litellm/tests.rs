use super::*;

fn converted(yaml: &str) -> (toml::Table, Vec<String>) {
    let Imported { text, notes, .. } = convert(yaml).unwrap();
    (text.parse().unwrap(), notes)
}

fn model<'a>(table: &'a toml::Table, id: &str) -> &'a toml::Value {
    let models = table["models"].as_array().unwrap();
    models.iter().find(|model| model["id"].as_str() == Some(id)).unwrap_or_else(|| panic!("{id}: {models:?}"))
}

fn text<'a>(value: &'a toml::Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

#[test]
fn deployments_of_one_name_are_endpoints_of_one_model() {
    let (table, notes) = converted(
        r#"
model_list:
  - model_name: gpt-4o
    litellm_params: {model: azure/ours, api_base: "https://res.openai.azure.com/", api_key: os.environ/AZ, rpm: 60}
    model_info: {base_model: azure/gpt-4o}
  - model_name: gpt-4o
    litellm_params: {model: gpt-4o, api_key: os.environ/OPENAI_API_KEY}
router_settings: {model_group_alias: {gpt-4: gpt-4o}}
"#,
    );
    let model = model(&table, "openai/gpt-4o");
    assert_eq!(
        model["aliases"].as_array().unwrap().iter().filter_map(toml::Value::as_str).collect::<Vec<_>>(),
        ["gpt-4o", "gpt-4"]
    );
    let endpoints = model["endpoints"].as_array().unwrap();
    let named: Vec<_> = endpoints.iter().map(|one| (text(one, "provider"), text(one, "model"))).collect();
    assert_eq!(named, [(Some("azure"), Some("ours")), (Some("openai"), Some("gpt-4o"))]);
    // As the built-in catalogue has them, a deployment with a name of its own among them.
    assert!(endpoints.iter().all(|one| one["pricing"]["output"].as_integer() == Some(10)), "{endpoints:?}");
    let providers = table["providers"].as_array().unwrap();
    assert_eq!((text(&providers[0], "resource"), text(&providers[0], "api_key")), (Some("res"), Some("env:AZ")));
    assert_eq!(notes, ["gpt-4o: rpm is not taken over"]);
}

#[test]
fn prices_for_a_token_become_prices_for_a_million() {
    let (table, _) = converted(
        r#"
model_list:
  - model_name: house
    litellm_params:
      model: openai/meta/llama
      api_base: http://10.0.0.7:8000/v1
      api_key: none
      input_cost_per_token: 0.0000006
      output_cost_per_token: 8.5e-7
      cache_read_input_token_cost: "1.5e-9"
    model_info: {max_input_tokens: 131072, max_output_tokens: 4096}
"#,
    );
    let model = model(&table, "10-0-0-7-8000/house");
    let endpoint = &model["endpoints"][0];
    let price = |name: &str| endpoint["pricing"][name].as_float();
    assert_eq!((price("input"), price("output"), price("cache_read")), (Some(0.6), Some(0.85), Some(0.0015)));
    assert_eq!(
        (model["context_length"].as_integer(), model["max_output_tokens"].as_integer()),
        (Some(131_072), Some(4_096))
    );
    assert_eq!(text(endpoint, "model"), Some("meta/llama"));
    let provider = &table["providers"][0];
    assert_eq!((text(provider, "protocol"), text(provider, "api_key")), (Some("openai-chat"), None));
}

#[test]
fn keys_are_read_from_the_environment_and_never_copied() {
    let (table, notes) = converted(
        r#"
model_list:
  - model_name: a
    litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: sk-first-hush}
  - model_name: b
    litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: sk-second-hush}
  - model_name: c
    litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: sk-first-hush}
  - model_name: d
    litellm_params: {model: anthropic/claude-sonnet-4-5, api_key: os.environ/ANTHROPIC_API_KEY}
  - model_name: e
    litellm_params: {model: bedrock/m, aws_region_name: eu-west-1, aws_access_key_id: one-hush}
  - model_name: f
    litellm_params: {model: bedrock/m, aws_region_name: eu-west-1, aws_access_key_id: two-hush}
  - model_name: g
    litellm_params: {model: openai/m, api_base: "https://u:p-hush@a.example/v1?key=q-hush"}
general_settings: {master_key: sk-master-very-hush}
"#,
    );
    let providers = table["providers"].as_array().unwrap();
    let keys: Vec<_> = providers.iter().map(|one| (text(one, "slug"), text(one, "api_key"))).collect();
    assert_eq!(
        keys,
        [
            (Some("anthropic"), Some("env:ANTHROPIC_API_KEY_2")),
            (Some("anthropic-2"), Some("env:ANTHROPIC_API_KEY_3")),
            // It was another account's from the beginning.
            (Some("anthropic-3"), Some("env:ANTHROPIC_API_KEY")),
            (Some("amazon-bedrock"), Some("env:AMAZON_BEDROCK_API_KEY")),
            (Some("amazon-bedrock-2"), Some("env:AMAZON_BEDROCK_API_KEY_2")),
            (Some("a-example"), None),
        ]
    );
    assert_eq!(text(&providers[1], "base_url"), Some("https://api.anthropic.com"));
    assert_eq!(text(&model(&table, "anthropic/c")["endpoints"][0], "provider"), Some("anthropic"));
    assert_eq!(text(&table["keys"], "inference_key"), Some("env:LITELLM_MASTER_KEY"));
    assert!(!format!("{table}{notes:?}").contains("hush"));
    let broken = convert("model_list:\n  - api_key: sk-hush\n   x: [").unwrap_err();
    assert!(!format!("{broken:#}").contains("hush") && format!("{broken:#}").contains("line 3"), "{broken:#}");
}

#[test]
fn odd_names_and_prices_make_no_odd_configuration() {
    let (table, notes) = converted(
        r#"
model_list:
  - model_name: gpt-4o
    litellm_params: {model: gpt-4o}
  - model_name: openai/gpt-4o
    litellm_params: {model: azure/x, api_base: "https://res.openai.azure.com"}
  - model_name: "odd\r\"name"
    litellm_params: {model: groq/m, rpm: 5, input_cost_per_token: -1, output_cost_per_token: 1.0e-6}
router_settings: {model_group_alias: {gpt-4o: "odd\r\"name"}}
general_settings: {master_key: sk-1234}
"#,
    );
    assert_eq!(table["models"].as_array().unwrap().len(), 2);
    assert_eq!(model(&table, "openai/gpt-4o")["endpoints"].as_array().unwrap().len(), 2);
    let odd = model(&table, "groq/odd\r\"name");
    assert_eq!((odd["endpoints"][0].get("pricing"), table.get("keys")), (None, None));
    assert_eq!(notes.len(), 4, "{notes:?}");
}

#[test]
fn what_has_no_place_is_said() {
    let (table, notes) = converted(
        r#"
model_list:
  - model_name: anthropic/*
    litellm_params: {model: anthropic/*, api_key: os.environ/A}
  - model_name: voice
    litellm_params: {model: openai/film}
    model_info: {mode: video_generation}
  - model_name: odd
    litellm_params: {model: replicate/x}
  - model_name: vectors
    litellm_params: {model: text-embedding-3-small, api_key: os.environ/O}
    model_info: {mode: embedding}
  - model_name: small
    litellm_params: {model: openai/text-embedding-3-small}
  - model_name: foreign
    litellm_params: {model: mistral/house-embedder}
  - model_name: sorter
    litellm_params: {model: cohere/rerank-v3.5}
  - model_name: judge
    litellm_params: {model: together_ai/judge, input_cost_per_query: 0.004}
    model_info: {mode: rerank}
  - model_name: scribe
    litellm_params: {model: groq/whisper-large-v3}
  - model_name: timed
    litellm_params: {model: openai/gpt-4o, input_cost_per_second: 0.00042}
  - model_name: reader
    litellm_params: {model: openai/house-tts, input_cost_per_character: 0.000015}
    model_info: {mode: audio_speech}
  - model_name: ear
    litellm_params: {model: openai/house-ear, input_cost_per_second: 0.0001}
    model_info: {mode: audio_transcription}
litellm_settings: {fallbacks: [{a: [b]}], drop_params: true, callbacks: [langfuse]}
environment_variables: {A: b}
"#,
    );
    let names: Vec<_> = table["models"].as_array().unwrap().iter().filter_map(|model| text(model, "id")).collect();
    // Seconds of a call are not what we count of it.
    assert_eq!(model(&table, "openai/timed")["endpoints"][0]["pricing"]["input"].as_float(), Some(2.5));
    let names: Vec<_> = names.into_iter().filter(|name| *name != "openai/timed").collect();
    assert_eq!(
        names,
        [
            "openai/vectors",
            "openai/small",
            "mistral/foreign",
            "cohere/sorter",
            "together/judge",
            "groq/scribe",
            "openai/reader",
            "openai/ear"
        ]
    );
    let made =
        ["embeddings", "embeddings", "embeddings", "rerank", "rerank", "transcription", "speech", "transcription"];
    for (name, made) in names.into_iter().zip(made) {
        assert_eq!(model(&table, name)["output_modalities"][0].as_str(), Some(made), "{name}");
    }
    let price = |name: &str, unit: &str| model(&table, name)["endpoints"][0]["pricing"][unit].as_float();
    assert_eq!((price("cohere/sorter", "request"), price("together/judge", "request")), (Some(0.002), Some(0.004)));
    // What a second costs is an hour's price in 3 600 parts.
    assert_eq!((price("groq/scribe", "audio_hour"), price("openai/ear", "audio_hour")), (Some(0.111), Some(0.36)));
    assert_eq!(model(&table, "openai/reader")["endpoints"][0]["pricing"]["character"].as_integer(), Some(15));
    let starts = [
        "anthropic/*:",
        "voice:",
        "odd:",
        "timed: input_cost_per_second is not taken over",
        "litellm_settings.fallbacks",
        "litellm_settings.callbacks",
        "environment_variables",
    ];
    for start in starts {
        assert!(notes.iter().any(|note| note.starts_with(start)), "{start}: {notes:?}");
    }
    assert_eq!(notes.len(), starts.len(), "{notes:?}");
}

#[test]
fn a_variable_is_one_that_a_shell_can_set() {
    for (slug, expected) in [("10.0.0.7:8000", "KEY_10_0_0_7_8000_API_KEY"), ("together-2", "TOGETHER_2_API_KEY")] {
        assert_eq!(reach::variable(slug), expected);
    }
}

#[test]
fn what_is_no_such_file_is_told() {
    let said = |yaml: &str| format!("{:#}", convert(yaml).unwrap_err());
    assert!(said("a: [").starts_with("it is not YAML"));
    assert_eq!(said("models: []"), "it has no list named model_list, as a configuration of LiteLLM has");
    assert_eq!(said("model_list: [{model_name: a}]"), "model_list[0].litellm_params.model must be a text");
    assert_eq!(said("model_list: [{litellm_params: {model: a}}]"), "model_list[0].model_name must be a text");
}
