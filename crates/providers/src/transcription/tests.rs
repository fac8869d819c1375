use super::*;

#[test]
fn a_form_holds_the_options_and_the_file() {
    let recording = Recording {
        filename: "a \"b\"\r\n.wav".to_owned(),
        media_type: "audio/wav".to_owned(),
        bytes: Bytes::from_static(b"\x00\xff"),
    };
    let fields =
        [("language".to_owned(), "de".to_owned()), ("timestamp_granularities[]".to_owned(), "word".to_owned())];
    let wanted = Wanted { model: "whisper-1", recording: &recording, form: Form::Verbose, fields: &fields };
    let expected = b"--xyz\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n\
        --xyz\r\nContent-Disposition: form-data; name=\"response_format\"\r\n\r\nverbose_json\r\n\
        --xyz\r\nContent-Disposition: form-data; name=\"language\"\r\n\r\nde\r\n\
        --xyz\r\nContent-Disposition: form-data; name=\"timestamp_granularities[]\"\r\n\r\nword\r\n\
        --xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a %22b%22%0D%0A.wav\"\r\nContent-Type: audio/wav\r\n\r\n\
        \x00\xff\r\n--xyz--\r\n";
    assert_eq!(request(&wanted, "xyz"), &expected[..]);
}

#[test]
fn what_was_counted_is_read_as_each_vendor_writes_it() {
    let of = |body: &str| {
        let made = answer(body.as_bytes(), Timestamp(0)).unwrap();
        (made.text.into_owned(), made.audio_ms, made.tokens.map(|tokens| [tokens.input, tokens.audio, tokens.output]))
    };
    for (body, ms, tokens) in [
        // OpenAI: models that count tokens, and the one that counts seconds.
        (
            r#"{"text":"Hi","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":2,"audio_tokens":12},"output_tokens":45,"total_tokens":59}}"#,
            None,
            Some([14, 12, 45]),
        ),
        (r#"{"text":"Hi","usage":{"type":"duration","seconds":3}}"#, Some(3_000), None),
        (
            r#"{"task":"transcribe","language":"english","duration":8.470000267,"text":"Hi","segments":[]}"#,
            Some(8_471),
            None,
        ),
        (r#"{"text":"Hi","duration":"8.47"}"#, Some(8_470), None),
        // Mistral.
        (
            r#"{"model":"voxtral-mini-2507","text":"Hi","language":null,"segments":[],"usage":{"prompt_audio_seconds":203,"prompt_tokens":4,"total_tokens":3264,"completion_tokens":635}}"#,
            Some(203_000),
            Some([4, 0, 635]),
        ),
        // Groq.
        (r#"{"text":"Hi","x_groq":{"id":"req_1"}}"#, None, None),
        // What nobody can mean.
        (r#"{"text":"Hi","usage":{"type":"duration","seconds":-3},"duration":1e300}"#, None, None),
        (r#"{"text":"Hi","usage":"none"}"#, None, None),
    ] {
        assert_eq!(of(body), ("Hi".to_owned(), ms, tokens), "{body}");
    }
    let long =
        answer(br#"{"task":"transcribe","text":"Hi","words":[{"word":"Hi"}],"x_groq":{}}"#, Timestamp(0)).unwrap();
    let more: Vec<&str> = long.more.iter().map(|(name, _)| &**name).collect();
    assert_eq!(more, ["task", "words"]);
}

#[test]
fn what_is_no_answer_is_a_fault() {
    for (body, class) in [
        ("Hi", Class::BadResponse),
        (r#"{"language":"en"}"#, Class::BadResponse),
        (r#"{"text":5}"#, Class::BadResponse),
        (r#"{"error":{"code":429,"message":"slow down"}}"#, Class::RateLimit),
    ] {
        assert_eq!(answer(body.as_bytes(), Timestamp(0)).unwrap_err().class, class, "{body}");
    }
}
