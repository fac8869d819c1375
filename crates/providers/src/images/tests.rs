use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidegate_core::{Timestamp, Usage};

use super::*;

/// A PNG of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn sent(protocol: Protocol, n: u64, references: &[&str], options: &str) -> Result<(Value, Vec<String>), String> {
    let options: Vec<(String, Box<RawValue>)> =
        serde_json::from_str::<Vec<(String, Box<RawValue>)>>(options).expect("pairs");
    let options: Vec<(Cow<'_, str>, &RawValue)> =
        options.iter().map(|(name, value)| (Cow::Borrowed(name.as_str()), &**value)).collect();
    let references: Vec<Cow<'_, str>> = references.iter().map(|text| Cow::Borrowed(*text)).collect();
    let wanted = Wanted { model: "m", prompt: "a \"boat\"", n, references: &references, options: &options };
    let sent = request(protocol, &wanted).map_err(|fault| fault.message.unwrap_or_default())?;
    Ok((serde_json::from_slice(&sent.body).expect("JSON"), sent.warnings))
}

#[test]
fn openai_gets_every_option_as_it_came() {
    let options = r#"[["size","1024x1024"],["x_new",{"a":1.50}],["partial_images",2]]"#;
    let (body, warnings) = sent(Protocol::Responses, 2, &[], options).unwrap();
    let wanted = json!({"model": "m", "prompt": "a \"boat\"", "n": 2, "response_format": "b64_json", "size": "1024x1024",
        "x_new": {"a": 1.5}});
    assert_eq!((body, warnings), (wanted, vec!["dropped:partial_images".to_owned()]));
    let (body, _) = sent(Protocol::Chat, 1, &[], "[]").unwrap();
    assert_eq!(body.get("n"), None);
    let refused = sent(Protocol::Chat, 1, &["https://a.example/x.png"], "[]").unwrap_err();
    assert_eq!(refused, "input_references must be empty: this provider makes images of words alone");
}

#[test]
fn google_is_told_in_its_own_words() {
    let options =
        r#"[["aspect_ratio","16:9"],["resolution","2K"],["seed",7],["quality","high"],["safetySettings",[]]]"#;
    let reference = format!("data:image/png;base64,{PNG}");
    let (body, warnings) = sent(Protocol::Gemini, 1, &[&reference], options).unwrap();
    let parts = json!([{"text": "a \"boat\""}, {"inlineData": {"mimeType": "image/png", "data": PNG}}]);
    let config = json!({"responseModalities": ["TEXT", "IMAGE"], "seed": 7,
        "imageConfig": {"aspectRatio": "16:9", "imageSize": "2K"}});
    let wanted =
        json!({"contents": [{"role": "user", "parts": parts}], "generationConfig": config, "safetySettings": []});
    assert_eq!((body, warnings), (wanted, vec!["dropped:quality".to_owned()]));
    let options = r#"[["contents",[]],["generation_config",{"candidateCount":8}],["systemInstruction",{}]]"#;
    let (body, warnings) = sent(Protocol::Gemini, 1, &[], options).unwrap();
    let plain = json!({"contents": [{"role": "user", "parts": [{"text": "a \"boat\""}]}],
        "generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}});
    let dropped = ["dropped:contents", "dropped:generation_config", "dropped:systemInstruction"];
    assert_eq!((body, warnings), (plain, dropped.map(str::to_owned).to_vec()), "what is drawn stays what it is");
    assert!(sent(Protocol::Gemini, 2, &[], "[]").unwrap_err().starts_with("n must be 1"));
    let problem = sent(Protocol::Gemini, 1, &["https://a.example/x.png"], "[]").unwrap_err();
    assert!(problem.starts_with("input_references[0].image_url.url must be"), "{problem}");
    assert!(sent(Protocol::Cohere, 1, &[], "[]").is_err());
}

#[test]
fn what_openai_made_is_counted() {
    let body = json!({"created": 12, "data": [{"b64_json": PNG, "revised_prompt": "a ship"}],
        "usage": {"input_tokens": 50, "output_tokens": 1056, "total_tokens": 1106,
            "input_tokens_details": {"text_tokens": 10, "image_tokens": 40}}});
    let body = body.to_string();
    let made = answer(Protocol::Chat, body.as_bytes(), Timestamp(0)).unwrap();
    let usage =
        Usage { input: 50, input_image: 40, output: 1056, output_image: 1056, images_out: 1, ..Usage::default() };
    assert_eq!((made.usage, made.is_counted, made.created), (usage, true, Some(12)));
    assert_eq!(
        (made.pictures[0].kind, made.pictures[0].revised_prompt.as_deref()),
        (Some("image/png"), Some("a ship"))
    );
    let body = json!({"data": [{"b64_json": PNG}, {"b64_json": PNG}]}).to_string();
    let made = answer(Protocol::Chat, body.as_bytes(), Timestamp(0)).unwrap();
    assert_eq!((made.usage, made.is_counted), (Usage { images_out: 2, ..Usage::default() }, false));
}

#[test]
fn what_google_made_is_counted() {
    let parts = json!([{"text": "Here."}, {"thought": true, "inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"inlineData": {"mimeType": "image/png", "data": PNG}}]);
    let body = json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 1300, "thoughtsTokenCount": 20,
            "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}]}});
    let body = body.to_string();
    let made = answer(Protocol::Gemini, body.as_bytes(), Timestamp(0)).unwrap();
    let usage = Usage { input: 9, output: 1320, thinking: 20, output_image: 1290, images_out: 1, ..Usage::default() };
    assert_eq!((made.usage, made.pictures.len(), &*made.pictures[0].data), (usage, 1, PNG));
}

#[test]
fn what_is_no_picture_is_a_fault() {
    let class = |protocol, body: Value| answer(protocol, body.to_string().as_bytes(), Timestamp(0)).unwrap_err().class;
    for (protocol, body, expected) in [
        (Protocol::Chat, json!({"data": []}), Class::EmptyCompletion),
        (Protocol::Chat, json!({"data": [{"url": "https://a.example/x.png"}]}), Class::Unmapped),
        (Protocol::Chat, json!({"data": [{"b64_json": "no \"base64\""}]}), Class::Unmapped),
        (Protocol::Chat, json!("a page"), Class::BadResponse),
        (Protocol::Chat, json!({"error": {"code": 429, "message": "slow"}}), Class::RateLimit),
        (Protocol::Gemini, json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}), Class::ContentFilter),
        (Protocol::Gemini, json!({"candidates": [{"finishReason": "IMAGE_SAFETY"}]}), Class::ContentFilter),
        (Protocol::Gemini, json!({"candidates": [{"finishReason": "NO_IMAGE"}]}), Class::EmptyCompletion),
    ] {
        assert_eq!(class(protocol, body.clone()), expected, "{body}");
    }
}

#[test]
fn a_picture_is_what_its_first_bytes_say() {
    let kind_of = |bytes: &[u8]| kind(&STANDARD.encode(bytes));
    assert_eq!(kind_of(b"\x89PNG\r\n\x1a\n"), Some("image/png"));
    assert_eq!(kind_of(b"\xff\xd8\xff\xe0abc"), Some("image/jpeg"));
    assert_eq!(kind_of(b"RIFF\x10\0\0\0WEBPVP8 "), Some("image/webp"));
    assert_eq!(kind_of(b"<svg xmlns='x'/>"), Some("image/svg+xml"));
    assert_eq!(kind_of(b"hello"), None);
}
