//! Sound. A spoken character is a sample and a token; of a recording its size is told.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use memchr::memmem;
use serde_json::{Value, json};

use crate::body::{Answer, ResetFlag};
use crate::failure::Failure;
use crate::images::{drawn, played};
use crate::speak::Speak;
use crate::state::State;
use crate::{chat, gemini};

/// Two bytes for each character.
fn samples(text: &str) -> Vec<u8> {
    text.chars().flat_map(|character| (character as u16).to_le_bytes()).collect()
}

/// `POST /audio/speech`.
pub(crate) async fn speech(state: &Arc<State>, head: &Parts, body: &Bytes, reset: ResetFlag) -> Response<Answer> {
    let read = |_: &Parts, body: &Bytes| {
        let body: Value = serde_json::from_slice(body)
            .map_err(|_| Failure::new(400, "We could not parse the JSON body of your request."))?;
        for name in ["model", "input", "voice"] {
            if body[name].as_str().is_none_or(str::is_empty) {
                let message = format!("Missing required parameter: '{name}'.");
                return Err(Failure::at(name, "missing_required_parameter", message));
            }
        }
        Ok(body)
    };
    played::<chat::Request, _>(state, head, body, reset, read, |body, _| {
        let text = body["input"].as_str().unwrap_or_default();
        let sound = samples(text);
        if body["stream_format"] != "sse" {
            let kind = if body["response_format"] == "mp3" { "audio/mpeg" } else { "audio/pcm" };
            return (HeaderValue::from_static(kind), sound.into());
        }
        let mut events: Vec<Value> = Vec::new();
        for piece in sound.chunks(8) {
            events.push(json!({"type": "speech.audio.delta", "audio": STANDARD.encode(piece)}));
        }
        let (input, output) = (text.split_whitespace().count(), text.chars().count());
        let usage = json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output});
        events.push(json!({"type": "speech.audio.done", "usage": usage}));
        let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        (HeaderValue::from_static("text/event-stream"), events.into())
    })
    .await
}

/// `generateContent` that asks for sound.
pub(crate) async fn google(state: &Arc<State>, head: &Parts, body: &Bytes, reset: ResetFlag) -> Response<Answer> {
    let read = |head: &Parts, body: &Bytes| {
        <gemini::Request as Speak<'_>>::read(head, body)?;
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        Ok(body["contents"][0]["parts"][0]["text"].as_str().unwrap_or_default().to_owned())
    };
    drawn::<gemini::Request, _>(state, head, body, reset, read, |text: String, _| {
        let data = STANDARD.encode(samples(&text));
        let part = json!({"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": data}});
        let (input, output) = (text.split_whitespace().count(), text.chars().count());
        json!({
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output,
                "totalTokenCount": input + output,
                "candidatesTokensDetails": [{"modality": "AUDIO", "tokenCount": output}]},
        })
    })
    .await
}

/// `POST /audio/transcriptions`: a byte of a recording is a millisecond; a hundred of them are a token.
pub(crate) async fn transcriptions(
    state: &Arc<State>,
    head: &Parts,
    body: &Bytes,
    reset: ResetFlag,
) -> Response<Answer> {
    let read = |head: &Parts, body: &Bytes| {
        let size = field(head, body, "file").map(<[u8]>::len);
        let size = size.ok_or_else(|| Failure::at("file", "missing_required_parameter", "file is required"))?;
        let is_long = field(head, body, "response_format") == Some(b"verbose_json");
        Ok((size, is_long))
    };
    drawn::<chat::Request, _>(state, head, body, reset, read, |(size, is_long), _| {
        let text = format!("The recording has {size} bytes.");
        if is_long {
            let segment = json!({"id": 0, "start": 0.0, "end": size as f64 / 1e3, "text": text});
            return json!({"task": "transcribe", "language": "english", "duration": size as f64 / 1e3, "text": text,
                "segments": [segment]});
        }
        let (heard, said) = (size.div_ceil(100), text.split_whitespace().count());
        json!({"text": text, "usage": {"type": "tokens", "input_tokens": heard, "output_tokens": said,
            "input_token_details": {"text_tokens": 0, "audio_tokens": heard}, "total_tokens": heard + said}})
    })
    .await
}

/// A field of a form, as it stands there.
fn field<'b>(head: &Parts, body: &'b [u8], name: &str) -> Option<&'b [u8]> {
    let kind = head.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let (_, boundary) = kind.split_once("boundary=")?;
    let start = memmem::find(body, format!("; name=\"{name}\"").as_bytes())?;
    let part = &body[start..];
    let part = &part[memmem::find(part, b"\r\n\r\n")? + 4..];
    Some(&part[..memmem::find(part, format!("\r\n--{boundary}").as_bytes())?])
}
