//! One place that knows which module speaks which protocol.

use tidegate_core::Timestamp;
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
