use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_core::{Money, Secret};

use super::*;

const KINDS: [Kind; 5] = [Kind::Searxng, Kind::Brave, Kind::Tavily, Kind::Exa, Kind::Perplexity];

fn engine(kind: Kind) -> Engine {
    let url = kind.address().unwrap_or("http://searx.internal:8080").to_owned();
    let key = kind.needs_key().then(|| Secret::new("the-key"));
    Engine { name: "ours".to_owned(), kind, url, key, results: Vec::new(), fee: Fee::default() }
}

fn plain(text: &str) -> Query<'_> {
    Query { text, most: 5, characters: 1_000, ..Query::default() }
}

/// In the vendors' formats.
#[test]
fn each_engine_is_asked_in_its_own_format() {
    let domains = |names: &[&str]| -> Vec<Domain> { names.iter().map(|name| Domain::parse(name).unwrap()).collect() };
    let (allowed, excluded) = (domains(&["a.org", "b.org/docs"]), domains(&["c.org", "d.org/x"]));
    let narrow = Query { allowed: &allowed, excluded: &excluded, country: Some("FR"), ..plain("tide & time") };
    let bearer = ("authorization", "Bearer the-key");
    type Row<'a> = (Kind, &'a Query<'a>, &'a str, Option<(&'a str, &'a str)>, Option<Value>);
    let table: [Row<'_>; 8] = [
        (
            Kind::Searxng,
            &plain("tide & time"),
            "http://searx.internal:8080/search?q=tide+%26+time&format=json",
            None,
            None,
        ),
        (
            Kind::Searxng,
            &narrow,
            "http://searx.internal:8080/search?q=tide+%26+time+%28site%3Aa.org+OR+site%3Ab.org%29+-site%3Ac.org&format=json",
            None,
            None,
        ),
        (
            Kind::Brave,
            &Query { most: 25, country: Some("FR"), ..plain("tide") },
            "https://api.search.brave.com/res/v1/web/search?q=tide&count=20&text_decorations=false&extra_snippets=true&country=FR",
            Some(("x-subscription-token", "the-key")),
            None,
        ),
        (
            Kind::Tavily,
            &plain("tide"),
            "https://api.tavily.com/search",
            Some(bearer),
            Some(json!({"query": "tide", "max_results": 5})),
        ),
        (
            Kind::Tavily,
            &Query { mode: Some("advanced"), ..narrow.clone() },
            "https://api.tavily.com/search",
            Some(bearer),
            Some(json!({"query": "tide & time", "max_results": 5, "search_depth": "advanced",
                "include_domains": ["a.org", "b.org"], "exclude_domains": ["c.org"]})),
        ),
        (
            Kind::Exa,
            &Query { mode: Some("unheard-of"), ..narrow.clone() },
            "https://api.exa.ai/search",
            Some(("x-api-key", "the-key")),
            Some(
                json!({"query": "tide & time", "type": "auto", "numResults": 5, "contents": {"text": {"maxCharacters": 1000}},
                "includeDomains": ["a.org", "b.org"], "excludeDomains": ["c.org"], "userLocation": "FR"}),
            ),
        ),
        (
            Kind::Perplexity,
            &Query { most: 25, excluded: &excluded, ..plain("tide") },
            "https://api.perplexity.ai/search",
            Some(bearer),
            Some(json!({"query": "tide", "max_results": 20, "search_domain_filter": ["-c.org"]})),
        ),
        (
            Kind::Perplexity,
            &narrow,
            "https://api.perplexity.ai/search",
            Some(bearer),
            Some(
                json!({"query": "tide & time", "max_results": 5, "search_domain_filter": ["a.org", "b.org"], "country": "FR"}),
            ),
        ),
    ];
    for (kind, query, uri, key, body) in table {
        let call = engine(kind).call(query).unwrap();
        assert_eq!(call.uri, uri, "{kind:?}");
        assert_eq!(call.method, if body.is_some() { Method::POST } else { Method::GET }, "{kind:?}");
        assert_eq!(call.body.map(|body| serde_json::from_str::<Value>(&body).unwrap()), body, "{kind:?}");
        match key {
            Some((name, value)) => {
                assert_eq!(call.headers[name], value, "{kind:?}");
                assert!(call.headers[name].is_sensitive(), "{kind:?}: a key is not printed");
            }
            None => assert_eq!(call.headers.len(), 1, "{kind:?}"),
        }
    }
}

/// Answers in the vendors' formats.
#[test]
fn each_engines_answer_becomes_results() {
    let result = |url: &str, title: &str, content: &str, date: Option<&str>, score| Found {
        url: url.to_owned(),
        title: title.to_owned(),
        content: content.to_owned(),
        published_at: date.map(str::to_owned),
        score,
    };
    let table = [
        (
            Kind::Searxng,
            json!({"query": "tide", "number_of_results": 0, "results": [
                {"url": "https://a.org/1", "title": "One", "content": "first", "publishedDate": "2026-01-02T00:00:00", "engine": "brave", "score": 1.5},
                {"url": "https://a.org/2", "title": "Two", "content": "", "publishedDate": null}], "answers": [], "suggestions": []}),
            vec![
                result("https://a.org/1", "One", "first", Some("2026-01-02T00:00:00"), Some(1.5)),
                result("https://a.org/2", "Two", "", None, None),
            ],
        ),
        (
            Kind::Brave,
            json!({"type": "search", "query": {"original": "tide"}, "web": {"type": "search", "results": [
                {"title": "One", "url": "https://a.org/", "description": "first", "page_age": "2026-01-02T03:04:05", "age": "January 2, 2026", "extra_snippets": ["more", 7]}]}}),
            vec![result("https://a.org/", "One", "first\nmore", Some("2026-01-02T03:04:05"), None)],
        ),
        (Kind::Brave, json!({"type": "search", "query": {"original": "tide"}}), vec![]),
        (
            Kind::Tavily,
            json!({"query": "tide", "answer": null, "images": [], "results": [
                {"title": "One", "url": "https://a.org/", "content": "first", "score": 0.81025416, "raw_content": null}], "response_time": "1.67"}),
            vec![result("https://a.org/", "One", "first", None, Some(0.810_254_16))],
        ),
        (
            Kind::Exa,
            json!({"requestId": "r", "resolvedSearchType": "neural", "results": [
                {"title": "One", "url": "https://a.org/x", "publishedDate": "2023-11-16T01:36:32.547Z", "author": "A", "id": "https://a.org/x", "text": "first"}],
                "costDollars": {"total": 0.005}}),
            vec![result("https://a.org/x", "One", "first", Some("2023-11-16T01:36:32.547Z"), None)],
        ),
        (
            Kind::Perplexity,
            json!({"id": "i", "results": [{"title": "One", "url": "https://a.org/", "snippet": "first", "date": "2025-03-20", "last_updated": "2025-09-19"}]}),
            vec![result("https://a.org/", "One", "first", Some("2025-03-20"), None)],
        ),
    ];
    for (kind, answer, wanted) in table {
        assert_eq!(read(kind, answer.to_string().as_bytes(), &plain("tide")), Ok(wanted), "{kind:?}");
    }
}

#[test]
fn what_is_not_the_format_is_unreadable_and_what_is_odd_is_left_out() {
    for kind in KINDS {
        for answer in ["", "<html>", "null", "[]", "7", r#"{"results":7,"web":7}"#, r#"{"results":{},"web":{}}"#] {
            assert_eq!(read(kind, answer.as_bytes(), &plain("x")), Err(Unreadable), "{kind:?} {answer}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(read(kind, deep.as_bytes(), &plain("x")), Err(Unreadable), "{kind:?}");
    }
    let many = |count: usize| -> Vec<Value> {
        (0..count).map(|n| json!({"url": format!("https://a.org/{n}"), "title": "t", "content": "c"})).collect()
    };
    let odd = json!([
        {"url": "javascript:alert(1)", "title": "t"}, {"url": "file:///etc/passwd"}, {"url": 7}, {"title": "none"}, 7, null,
        {"url": format!("https://a.org/{}", "x".repeat(3_000))},
        {"url": "https://a.org", "title": "T\u{0}\u{1b}[1m".repeat(200), "content": "é".repeat(5_000), "publishedDate": 7, "score": "1"},
        {"url": "https://a.org/", "title": "again"}]);
    let answer = json!({"results": odd}).to_string();
    let found = read(Kind::Searxng, answer.as_bytes(), &plain("x")).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].url.as_str(), found[0].title.chars().count()), ("https://a.org/", 300));
    assert!(!found[0].title.contains(['\u{0}', '\u{1b}']));
    assert_eq!((found[0].content.chars().count(), found[0].published_at.as_deref()), (1_000, None));
    let answer = json!({"results": many(1_000)}).to_string();
    assert_eq!(read(Kind::Searxng, answer.as_bytes(), &plain("x")).unwrap().len(), 5);
}

#[test]
fn domains_are_kept_to_whatever_the_engine_does() {
    let list = ["https://a.org/1", "https://sub.a.org/2", "https://b.org/", "https://a.org/docs/3"];
    let results: Vec<Value> = list.iter().map(|url| json!({"url": url, "title": "t", "content": "c"})).collect();
    let answer = json!({"results": results}).to_string();
    let urls = |allowed: &[&str], excluded: &[&str]| -> Vec<String> {
        let parse = |names: &[&str]| -> Vec<Domain> { names.iter().map(|name| Domain::parse(name).unwrap()).collect() };
        let (allowed, excluded) = (parse(allowed), parse(excluded));
        let query = Query { allowed: &allowed, excluded: &excluded, ..plain("x") };
        read(Kind::Exa, answer.as_bytes(), &query).unwrap().into_iter().map(|found| found.url).collect()
    };
    assert_eq!(urls(&["a.org"], &[]), [list[0], list[1], list[3]]);
    assert_eq!(urls(&["*.a.org"], &[]), [list[1]]);
    assert_eq!(urls(&[], &["a.org/docs", "b.org"]), [list[0], list[1]]);
    assert_eq!(urls(&["a.org"], &["sub.a.org"]), [list[0], list[3]]);
}

#[test]
fn a_static_engine_finds_what_it_was_given() {
    let one = |url: &str| Found { url: url.to_owned(), title: "t".to_owned(), ..Found::default() };
    let engine = Engine { results: vec![one("https://a.org/"), one("nowhere")], ..engine(Kind::Static) };
    assert_eq!(engine.fixed(&plain("anything")), [one("https://a.org/")]);
}

#[test]
fn results_are_told_as_data_with_a_warning_before_and_a_request_behind() {
    let found = [Found {
        url: "https://a.org/".to_owned(),
        title: "One".to_owned(),
        content: "first".to_owned(),
        published_at: None,
        score: Some(1.0),
    }];
    let text = told(&found, Some("2026-08-24T10:30:00.000Z"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].contains("untrusted data"));
    assert_eq!(
        lines[1],
        r#"{"results":[{"index":1,"url":"https://a.org/","title":"One","content":"first","published_at":null}],"retrieved_at":"2026-08-24T10:30:00.000Z"}"#
    );
    assert!(lines[2].contains("Markdown links"));
    assert!(told(&[], None).contains("Nothing was found"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is tested")]
fn very_many_links_are_looked_through_in_a_moment() {
    let one = |url: String| Found { url, title: "T".into(), content: "A word. ".repeat(2_000), ..Found::default() };
    let found: Vec<Found> = (0..200).map(|place| one(format!("https://a{place}.org/x"))).collect();
    let odd = format!("https://b.org/{}", "x.".repeat(1_000));
    let began = std::time::Instant::now();
    for text in [odd.clone() + " ", "http".to_owned(), odd.replace("x.", "http://"), "https://a1.org/x ".to_owned()] {
        let text = text.repeat(2_000_000 / text.len());
        assert!(cited(&text, &found).len() <= 1);
    }
    // Each of them was looked through to the end of the text, and each of its forms among all results.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

#[test]
fn links_to_results_are_citations_and_others_are_not() {
    let found = |url: &str, content: &str| Found {
        url: url.to_owned(),
        title: "T".to_owned(),
        content: content.to_owned(),
        ..Found::default()
    };
    let found = [
        found("https://www.a.org/tides/", "Other things. High water in Brest is at six. More."),
        found("https://b.org/wiki/Tide_(sea)?x=1", ""),
        found("https://c.org/", &"long ".repeat(100)),
    ];
    let of = |text: &str| -> Vec<usize> { cited(text, &found).iter().map(|citation| citation.of).collect() };
    let table: [(&str, &[usize]); 12] = [
        ("High water is at six ([a.org](https://a.org/tides)).", &[0]),
        ("See https://www.a.org/tides/.", &[0]),
        ("See http://a.org/tides/#high, it says.", &[0]),
        ("<https://a.org/tides>", &[0]),
        ("**https://a.org/tides**", &[0]),
        ("[b](https://b.org/wiki/Tide_(sea)?x=1)", &[1]),
        ("https://b.org/wiki/Tide_(sea)?x=1 and https://a.org/tides and https://a.org/tides", &[1, 0]),
        ("https://c.org", &[2]),
        ("https://c.org/elsewhere", &[]),
        ("https://b.org/wiki/Tide", &[]),
        ("a.org/tides http:// https:// httpä", &[]),
        ("", &[]),
    ];
    for (text, wanted) in table {
        assert_eq!(of(text), wanted, "{text}");
    }
    let said = cited("High water is at six ([a.org](https://a.org/tides)).", &found);
    assert_eq!(said[0].quoted, "High water in Brest is at six.");
    assert_eq!(cited("https://b.org/wiki/Tide_(sea)?x=1", &found)[0].quoted, "T", "nothing else is known of it");
    assert_eq!(cited("https://c.org", &found)[0].quoted.chars().count(), 150);
}

proptest! {
    #[test]
    fn nothing_that_an_engine_sends_is_too_much(body in proptest::collection::vec(any::<u8>(), 0..300), kind in 0_usize..5) {
        let _ = read(KINDS[kind], &body, &plain("x"));
    }

    #[test]
    fn no_text_is_too_odd_to_be_scanned(text in "(\\PC|https?://|a\\.org|[)\\]. \n]){0,60}") {
        let found = [Found { url: "https://a.org/".to_owned(), content: text.clone(), ..Found::default() }];
        for citation in cited(&text, &found) {
            prop_assert!(citation.quoted.chars().count() <= 150);
        }
    }
}

#[test]
fn a_fee_is_for_the_call_and_for_what_it_found_beyond() {
    let fee = Fee { per_call: Money(5_000_000), included: 2, per_extra: Money(1_000_001) };
    for (results, nanos) in [(0, 5_000_000), (2, 5_000_000), (3, 6_000_001), (5, 8_000_003)] {
        assert_eq!(fee.of(results), Money(nanos), "{results}");
    }
    assert_eq!(Fee::default().of(9), Money::ZERO);
}
