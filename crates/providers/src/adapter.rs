//! One place that knows which module speaks which protocol.

use tidegate_core::Timestamp;
use tidegate_wire::json::Joiner;
use tidegate_wire::messages::Request;

use crate::fault::{Class, Fault};
use crate::translate::offer::Offer;
use crate::translate::{Answered, Context, Decode, Outgoing, Target, Translator, Unsupported};
use crate::{Protocol, anthropic, chat, cohere, converse, gemini, responses};

/// The request as an upstream of the protocol takes it. Messages upstreams are not translated to.
pub fn request(protocol: Protocol, request: &Request, target: &Target<'_>) -> Result<Outgoing, Unsupported> {
    let Offer { request, warning } = Offer::of(request);
    let mut outgoing = translated(protocol, &request, target)?;
    outgoing.warnings.extend(warning.map(ToOwned::to_owned));
    Ok(outgoing)
}

fn translated(protocol: Protocol, request: &Request, target: &Target<'_>) -> Result<Outgoing, Unsupported> {
    match protocol {
        Protocol::Chat => chat::request(request, target),
        Protocol::Responses => responses::request(request, target),
        Protocol::Gemini => gemini::request(request, target),
        Protocol::Converse => converse::request(request, target),
        Protocol::Cohere => cohere::request(request, target),
        Protocol::Messages => Err(Unsupported::new("", "this protocol needs no translation")),
    }
}

/// A whole answer in the Messages format.
pub fn message(protocol: Protocol, body: &[u8], context: &Context, now: Timestamp) -> Result<Answered, Fault> {
    let body = &*Joiner::of_whole().joined(body);
    match protocol {
        Protocol::Chat => chat::message(body, context, now),
        Protocol::Responses => responses::message(body, context, now),
        Protocol::Gemini => gemini::message(body, context, now),
        Protocol::Converse => converse::message(body, context, now),
        Protocol::Cohere => cohere::message(body, context, now),
        Protocol::Messages => Err(Fault::in_answer(Class::BadResponse)),
    }
}

/// What reads a stream of the protocol.
pub fn translator(protocol: Protocol, context: &Context, now: Timestamp, max_event_bytes: usize) -> Option<Translator> {
    let context_of = context.clone();
    let decoder: Box<dyn Decode> = match protocol {
        Protocol::Chat => Box::new(chat::Decoder::new(context_of, now)),
        Protocol::Responses => Box::new(responses::Decoder::new(context_of, now)),
        Protocol::Gemini => Box::new(gemini::Decoder::new(context_of, now)),
        Protocol::Converse => {
            let decoder = Box::new(converse::Decoder::new(context_of, now));
            return Some(Translator::binary(decoder, context, max_event_bytes));
        }
        Protocol::Cohere => Box::new(cohere::Decoder::new(context_of, now)),
        Protocol::Messages => return None,
    };
    Some(Translator::new(decoder, context, max_event_bytes))
}

/// What reads a stream of a server that speaks the Messages format its own way.
pub fn mending_translator(signer: anthropic::Signer, max_event_bytes: usize) -> Translator {
    Translator::new(Box::new(anthropic::Mender::new(signer)), &Context::default(), max_event_bytes)
}

/// What reads a stream of Bedrock's invoke call: frames that hold events of the Messages format, which go on as they are.
pub fn invoke_translator(max_event_bytes: usize) -> Translator {
    Translator::binary(Box::new(anthropic::InvokeDecoder::default()), &Context::default(), max_event_bytes)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::eventstream;
    use crate::translate::Native;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    fn native(id: &str, reason: &str) -> Native {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        Native { id: some(id), reason: some(reason) }
    }

    fn of_stream(protocol: Protocol, stream: Bytes) -> Native {
        let mut translator = translator(protocol, &Context::default(), NOW, 1 << 16).unwrap();
        translator.feed(stream);
        translator.end();
        assert_eq!(translator.fault(), None, "{protocol:?}");
        translator.native().unwrap().clone()
    }

    #[test]
    fn an_answer_has_the_upstreams_own_id_and_word_for_its_end() {
        for (protocol, whole, events, expected) in [
            (
                Protocol::Chat,
                r#"{"id":"c1","choices":[{"message":{"content":"hi"},"finish_reason":"eos_token"}]}"#,
                &[
                    r#"{"id":"c1","choices":[{"delta":{"content":"hi"}}]}"#,
                    r#"{"id":"c2","choices":[{"delta":{},"finish_reason":"eos_token"}]}"#,
                ][..],
                native("c1", "eos_token"),
            ),
            // What is no id, or none that can be kept, spoils no answer.
            (
                Protocol::Chat,
                r#"{"id":{},"choices":[{"message":{"content":"hi"}}]}"#,
                &[r#"{"id":null,"choices":[{"delta":{"content":"hi"}}]}"#, "[DONE]"],
                native("", ""),
            ),
            (
                Protocol::Responses,
                r#"{"id":"r1","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}]}"#,
                &[
                    r#"{"type":"response.created","response":{"id":"r1","status":"in_progress"}}"#,
                    r#"{"type":"response.output_text.delta","output_index":0,"delta":"hi"}"#,
                    r#"{"type":"response.completed","response":{"id":"r1","status":"completed"}}"#,
                ],
                native("r1", "completed"),
            ),
            (
                Protocol::Responses,
                r#"{"id":"r2","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}"#,
                &[
                    r#"{"type":"response.incomplete","response":{"id":"r2","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
                ],
                native("r2", "max_output_tokens"),
            ),
            (
                Protocol::Gemini,
                r#"{"responseId":"g1","candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}"#,
                &[
                    r#"{"responseId":"g1","candidates":[{"content":{"parts":[{"text":"hi"}]}}]}"#,
                    r#"{"responseId":"g1","candidates":[{"finishReason":"STOP"}]}"#,
                ],
                native("g1", "STOP"),
            ),
            (
                Protocol::Cohere,
                r#"{"id":"h1","finish_reason":"COMPLETE","message":{"content":[{"type":"text","text":"hi"}]}}"#,
                &[
                    r#"{"type":"message-start","id":"h1","delta":{"message":{"role":"assistant"}}}"#,
                    r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"hi"}}}}"#,
                    r#"{"type":"message-end","delta":{"finish_reason":"COMPLETE"}}"#,
                ],
                native("h1", "COMPLETE"),
            ),
        ] {
            let answered = message(protocol, whole.as_bytes(), &Context::default(), NOW).unwrap();
            assert_eq!(answered.native, expected, "{whole}");
            let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
            assert_eq!(of_stream(protocol, stream.into()), expected, "{events:?}");
        }

        // Converse has no id, and frames of its own.
        let whole = br#"{"output":{"message":{"content":[{"text":"hi"}]}},"stopReason":"max_tokens"}"#;
        let answered = message(Protocol::Converse, whole, &Context::default(), NOW).unwrap();
        assert_eq!(answered.native, native("", "max_tokens"));
        let frames = [
            eventstream::encode("contentBlockDelta", br#"{"contentBlockIndex":0,"delta":{"text":"hi"}}"#),
            eventstream::encode("messageStop", br#"{"stopReason":"max_tokens"}"#),
        ];
        assert_eq!(of_stream(Protocol::Converse, frames.concat().into()), native("", "max_tokens"));
    }

    #[test]
    fn a_message_that_goes_on_as_it_came_has_no_other_name() {
        let mut translator = invoke_translator(1 << 16);
        let event = r#"{"bytes":"eyJ0eXBlIjoibWVzc2FnZV9zdG9wIn0="}"#;
        assert!(!translator.feed(eventstream::encode("chunk", event.as_bytes())).is_empty());
        assert_eq!(translator.native(), None);
    }
}
