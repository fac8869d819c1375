use super::*;

const NOW: Timestamp = Timestamp(0);

fn wanted(
    format: Format,
    options: &str,
    is_counted: bool,
    protocol: Protocol,
) -> Result<(String, Vec<String>), String> {
    let raw: &RawValue = serde_json::from_str(options).unwrap();
    let options = tidegate_wire::json::Members::of(raw).unwrap().0;
    let wanted = Wanted { model: "m", input: "a \"b\"", voice: None, format, is_counted, options: &options };
    let sent = request(protocol, &wanted).map_err(|fault| fault.message.unwrap_or_default())?;
    Ok((String::from_utf8(sent.body.to_vec()).unwrap(), sent.warnings))
}

#[test]
fn openais_call_is_asked_with_all_options() {
    let (body, warnings) = wanted(Format::Mp3, r#"{"speed":1.50,"x":[1]}"#, false, Protocol::Chat).unwrap();
    assert_eq!(body, r#"{"model":"m","input":"a \"b\"","voice":"alloy","response_format":"mp3","speed":1.50,"x":[1]}"#);
    assert!(warnings.is_empty());
    let (body, _) = wanted(Format::Pcm, "{}", true, Protocol::Responses).unwrap();
    assert!(body.ends_with(r#""response_format":"pcm","stream_format":"sse"}"#), "{body}");
}

#[test]
fn googles_models_are_told_to_answer_with_sound() {
    let (body, warnings) =
        wanted(Format::Pcm, r#"{"speed":2,"tools":[],"labels":{"a":"b"}}"#, true, Protocol::Gemini).unwrap();
    let sent: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        sent,
        serde_json::json!({
            "contents": [{"role": "user", "parts": [{"text": "a \"b\""}]}],
            "generationConfig": {
                "responseModalities": ["AUDIO"],
                "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}},
            },
            "labels": {"a": "b"},
        })
    );
    assert_eq!(warnings, ["dropped:speed", "dropped:tools"]);
    let refused = wanted(Format::Mp3, "{}", false, Protocol::Gemini).unwrap_err();
    assert_eq!(refused, "response_format must be pcm or wav: this provider gives samples only");
}

#[test]
fn sound_comes_as_it_is_or_in_events() {
    let as_kind =
        |body: &'static [u8], kind| answer(Protocol::Chat, (&Bytes::from_static(body), kind), Format::Mp3, NOW);
    let of = |body: &'static [u8]| as_kind(body, None);
    // Samples may begin like anything else.
    for sound in [&b"{\x00\x10\x00"[..], b" \n{\x00", b"[1"] {
        assert_eq!(of(sound).unwrap().audio, sound);
        assert_eq!(as_kind(sound, Some("audio/pcm")).unwrap().audio, sound);
    }
    assert_eq!(as_kind(b"data: {}", Some("audio/mpeg")).unwrap().audio, &b"data: {}"[..]);
    assert_eq!(of(b"ID3\x04data:").unwrap(), Made { audio: Bytes::from_static(b"ID3\x04data:"), usage: None });
    // The form of OpenAI's events, with the counts in the last of them.
    let events = b"data: {\"type\":\"speech.audio.delta\",\"audio\":\"AAEC\"}\r\n\r\n: x\n\ndata: {\"type\":\"speech.audio.delta\",\"audio\":\"Aw==\"}\n\ndata: {\"type\":\"speech.audio.done\",\"usage\":{\"input_tokens\":14,\"output_tokens\":101,\"total_tokens\":115}}\n\n";
    let usage = Usage { input: 14, output: 101, output_audio: 101, ..Usage::default() };
    assert_eq!(of(events).unwrap(), Made { audio: Bytes::from_static(&[0, 1, 2, 3]), usage: Some(usage) });
    let commented = [b": hi\n\n", &events[..]].concat().leak();
    assert_eq!(as_kind(commented, Some("text/event-stream")).unwrap().usage, Some(usage));
    for (body, class) in [
        (&b""[..], Class::EmptyCompletion),
        (b"data: {\"type\":\"speech.audio.delta\",\"audio\":\"AAEC\"}\n\n", Class::BadResponse),
        (b"data: {\"type\":\"speech.audio.delta\",\"audio\":\"A\"}\n\n", Class::BadResponse),
        (b"{\"status\":\"busy\"}", Class::BadResponse),
        (b"{\"error\":{\"code\":429,\"message\":\"slow down\"}}", Class::RateLimit),
    ] {
        assert_eq!(of(body).unwrap_err().class, class, "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn samples_get_the_head_that_was_asked_for() {
    let body = Bytes::from_static(
        br#"{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"audio/L16;codec=pcm;rate=16000","data":"AQIDBA=="}}]},
        "finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":40,
        "candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":40}]}}"#,
    );
    let usage = Some(Usage { input: 5, output: 40, output_audio: 40, ..Usage::default() });
    let plain = answer(Protocol::Gemini, (&body, None), Format::Pcm, NOW).unwrap();
    assert_eq!(plain, Made { audio: Bytes::from_static(&[1, 2, 3, 4]), usage });
    let wav = answer(Protocol::Gemini, (&body, None), Format::Wav, NOW).unwrap().audio;
    // By the format's own description: 44 bytes, the rate at 24, bytes a second at 28, the data's size at 40.
    assert_eq!((&wav[..4], &wav[8..16], wav.len()), (&b"RIFF"[..], &b"WAVEfmt "[..], 48));
    let number = |at: usize| u32::from_le_bytes(wav[at..at + 4].try_into().unwrap());
    assert_eq!([number(4), number(24), number(28), number(40)], [40, 16_000, 32_000, 4]);
    let refused = Bytes::from_static(br#"{"candidates":[{"finishReason":"PROHIBITED_CONTENT"}]}"#);
    assert_eq!(answer(Protocol::Gemini, (&refused, None), Format::Pcm, NOW).unwrap_err().class, Class::ContentFilter);
}
