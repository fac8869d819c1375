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
    let named = made.named(brand);
    assert!(named.told("tidegate:datetime").is_some() && named.told("older:datetime").is_some());
    assert!(named.told("web_search").is_none());
}

#[test]
fn what_was_found_is_shown_once_however_often_it_is_referred_to() {
    let tool = |name: &str| json!({"name": name, "input_schema": {}, "defer_loading": true});
    let made = roster(json!([{"type": "tidegate:tool_search"}, tool("a"), tool("b")])).unwrap();
    let found = ["b", "c", "b", "a", "b"].map(str::to_owned);
    let shown = made.upstream_with(&found);
    let names: Vec<&str> = shown.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["tool_search_tool_regex", "b", "a"]);
}

#[test]
fn a_strict_tool_is_one_that_vendors_can_be_strict_about() {
    let made = roster(json!([{"type": "tidegate:datetime"}, {"type": "tidegate:web_fetch", "strict": true}])).unwrap();
    assert_eq!((made.upstream[0].get("strict"), &made.upstream[1]["strict"]), (None, &json!(true)));
    let schema = &made.upstream[1]["input_schema"];
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(
        (&schema["properties"]["url"]["type"], schema["properties"]["url"].get("maxLength")),
        (&json!("string"), None)
    );
}

#[test]
fn what_a_request_may_use_is_shared_by_all_that_belong_to_it() {
    let shares = Shares::of(8);
    // Every model that is asked gets tools of its own.
    let made = || roster(json!([{"type": "tidegate:web_fetch"}, {"type": "tidegate:advisor"}])).unwrap();
    for (place, most) in [(0, 50), (1, 10)] {
        for number in 0..most + 2 {
            let is_over = match made().tools[place].kind.begun(&shares) {
                Kind::WebFetch(fetch) => fetch.is_over(),
                Kind::Advisor(advisor) => advisor.is_over(),
                other => unreachable!("{other:?}"),
            };
            assert_eq!(is_over, number >= most, "{place} {number}");
        }
    }
}

#[test]
fn the_engine_of_the_house_has_the_name_of_the_house() {
    let settings = Settings { brand: "acme".into(), ..Settings::default() };
    let tools = json!([{"type": "acme:web_fetch"}]);
    let made = Roster::of(tools.as_array().unwrap(), &settings, false).unwrap();
    assert_eq!(made.engines(), json!({"web_fetch": "acme"}));
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
        (
            json!([{"type": "tidegate:bash", "parameters": {"engine": "tidegate"}}]),
            "tidegate:bash is not configured on this deployment",
        ),
        (json!([{"type": "tidegate:shell"}]), "tidegate:shell is not configured on this deployment"),
        (
            json!([{"type": "tidegate:bash"}, {"type": "tidegate:bash"}]),
            "Invalid request: tools[1].type 'tidegate:bash' is used more than once",
        ),
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
