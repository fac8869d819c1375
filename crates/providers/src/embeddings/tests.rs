//! Bodies and answers as the vendors document them.

use serde_json::{Value, json};
use tidegate_wire::envelope::embeddings as envelope;

use super::*;

/// What an upstream is sent for a request of ours.
fn sent(protocol: Protocol, body: &Value) -> Result<(Value, Vec<String>), String> {
    let body = body.to_string();
    let read = envelope::read(body.as_bytes()).map_err(|violation| violation.message).unwrap();
    let input = match &read.input.said {
        envelope::Said::Texts(texts) => Input::Texts(texts),
        _ => Input::Raw(read.input.raw),
    };
    let wanted = Wanted {
        model: "m",
        input,
        dimensions: read.dimensions,
        input_type: read.input_type.as_deref(),
        options: &read.options,
    };
    let sent = request(protocol, &wanted).map_err(|fault| fault.message.unwrap_or_default())?;
    Ok((serde_json::from_slice(&sent.body).unwrap(), sent.warnings))
}

#[test]
fn openais_call_takes_everything_as_it_came() {
    let body =
        json!({"model": "a/m", "input": ["a", "b"], "dimensions": 8, "encoding_format": "base64", "x": {"y": 1}});
    let expected =
        json!({"model": "m", "input": ["a", "b"], "dimensions": 8, "encoding_format": "base64", "x": {"y": 1}});
    assert_eq!(sent(Protocol::Chat, &body), Ok((expected, vec![])));
    let tokens = json!({"model": "a/m", "input": [[1, 2], [3]]});
    assert_eq!(sent(Protocol::Responses, &tokens), Ok((json!({"model": "m", "input": [[1, 2], [3]]}), vec![])));
    let one = sent(Protocol::Chat, &json!({"model": "a/m", "input": "a"}));
    assert_eq!(one, Ok((json!({"model": "m", "input": "a"}), vec![])));
}

#[test]
fn cohere_is_told_what_they_are_for() {
    let body =
        json!({"model": "a/m", "input": "a", "dimensions": 256, "encoding_format": "base64", "user": "u", "x": 1});
    let expected = json!({"model": "m", "texts": ["a"], "input_type": "search_document", "embedding_types": ["float"],
        "output_dimension": 256});
    assert_eq!(sent(Protocol::Cohere, &body), Ok((expected, vec!["dropped:x".to_owned()])));
    let (query, _) =
        sent(Protocol::Cohere, &json!({"model": "a/m", "input": ["a"], "input_type": "search_query"})).unwrap();
    assert_eq!(query["input_type"], "search_query");
    let tokens = sent(Protocol::Cohere, &json!({"model": "a/m", "input": [1, 2]}));
    assert_eq!(tokens, Err("this provider takes texts only: neither tokens nor images".to_owned()));
}

#[test]
fn google_takes_several_at_once() {
    let body = json!({"model": "a/m", "input": ["a", "b"], "dimensions": 768, "input_type": "search_query"});
    let one = |text: &str| {
        json!({"model": "models/m", "content": {"parts": [{"text": text}]}, "taskType": "RETRIEVAL_QUERY",
            "outputDimensionality": 768})
    };
    assert_eq!(sent(Protocol::Gemini, &body), Ok((json!({"requests": [one("a"), one("b")]}), vec![])));
}

#[test]
fn those_without_a_call_say_so() {
    let refused = sent(Protocol::Messages, &json!({"model": "a/m", "input": "a"}));
    assert_eq!(refused, Err("this provider has no call for embeddings".to_owned()));
}

fn vectors(
    protocol: Protocol,
    body: &Value,
    count: usize,
    encoding: Encoding,
) -> Result<(Vec<Value>, Option<u64>), Class> {
    let body = body.to_string();
    let made = answer(protocol, body.as_bytes(), count).map_err(|fault| fault.class)?;
    let written = made.vectors.iter().map(|vector| {
        let mut out = Vec::new();
        write(vector, encoding, &mut out).map_err(|fault| fault.class)?;
        Ok(serde_json::from_slice(&out).unwrap())
    });
    Ok((written.collect::<Result<_, Class>>()?, made.tokens))
}

#[test]
fn vectors_come_in_the_order_of_the_inputs() {
    let answer = json!({"object": "list", "model": "x", "data": [
        {"object": "embedding", "index": 1, "embedding": [3.0, -4.5]},
        {"object": "embedding", "index": 0, "embedding": [1.0, 2.0]},
    ], "usage": {"prompt_tokens": 7, "total_tokens": 7}});
    let expected = (vec![json!([1.0, 2.0]), json!([3.0, -4.5])], Some(7));
    assert_eq!(vectors(Protocol::Chat, &answer, 2, Encoding::Float), Ok(expected));
    assert_eq!(vectors(Protocol::Chat, &answer, 3, Encoding::Float), Err(Class::BadResponse), "one is missing");
    assert_eq!(vectors(Protocol::Chat, &json!({"data": []}), 1, Encoding::Float), Err(Class::EmptyCompletion));
    let cohere = json!({"id": "x", "embeddings": {"float": [[0.5]]}, "meta": {"billed_units": {"input_tokens": 3.0}}});
    assert_eq!(vectors(Protocol::Cohere, &cohere, 1, Encoding::Float), Ok((vec![json!([0.5])], Some(3))));
    let google = json!({"embeddings": [{"values": [0.25]}]});
    assert_eq!(vectors(Protocol::Gemini, &google, 1, Encoding::Float), Ok((vec![json!([0.25])], None)));
}

#[test]
fn vectors_are_written_as_the_caller_wants_them() {
    // 1.0 and -2.0 as numbers of four bytes, the lowest byte first: 00 00 80 3f, 00 00 00 c0.
    let coded = json!("AACAPwAAAMA=");
    let whole = |embedding: Value| json!({"data": [{"embedding": embedding}]});
    let read =
        |embedding, encoding| vectors(Protocol::Chat, &whole(embedding), 1, encoding).map(|(vectors, _)| vectors);
    assert_eq!(read(json!([1.0, -2.0]), Encoding::Base64), Ok(vec![coded.clone()]));
    assert_eq!(read(coded.clone(), Encoding::Float), Ok(vec![json!([1.0, -2.0])]));
    assert_eq!(read(coded.clone(), Encoding::Base64), Ok(vec![coded]));
    assert_eq!(read(json!("AACA"), Encoding::Float), Err(Class::BadResponse), "no whole number");
    assert_eq!(read(json!(["a"]), Encoding::Base64), Err(Class::BadResponse));
    for odd in [json!(5), json!([]), json!([[0.1]]), json!(["x"]), json!([null]), json!([{"a": 1}])] {
        assert_eq!(read(odd.clone(), Encoding::Float), Err(Class::BadResponse), "{odd}");
    }
    for odd in [json!(""), json!("not base64"), json!("AACA"), json!([1e39])] {
        assert_eq!(read(odd.clone(), Encoding::Base64), Err(Class::BadResponse), "{odd}");
    }
    // No number at all: 7f c0 00 00, the lowest byte first.
    assert_eq!(read(json!("AADAfw=="), Encoding::Float), Err(Class::BadResponse));
}

#[test]
fn vectors_that_may_belong_to_others_are_not_taken() {
    let numbered = |indexes: &[u64]| {
        let entry = |index: &u64| json!({"embedding": [0.5], "index": index});
        json!({"data": indexes.iter().map(entry).collect::<Vec<_>>()})
    };
    let taken = |indexes: &[u64]| vectors(Protocol::Chat, &numbered(indexes), indexes.len(), Encoding::Float).is_ok();
    assert!(taken(&[0]) && taken(&[1, 0]) && taken(&[0, 0]));
    assert!(!taken(&[0, 0, 1]) && !taken(&[5, 6]) && !taken(&[1, 2]));
}
