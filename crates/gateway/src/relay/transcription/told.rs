//! The answer to a request to write down what is said.

use bytes::Bytes;
use serde_json::json;
use tidegate_core::Usage;
use tidegate_providers::transcription::{Made, Recording};
use tidegate_wire::answer::Charge;
use tidegate_wire::envelope::transcription::Form;
use tidegate_wire::json::quote;

/// What is told in either form.
const LOGPROBS: &str = "logprobs";

/// The answer as the interface has it, and as OpenAI's clients read it.
pub(super) fn answer(made: &Made<'_>, form: Form, usage: &Usage, charge: &Charge<'_>) -> Bytes {
    if form == Form::Text {
        return format!("{}\n", made.text).into();
    }
    let mut out = Vec::with_capacity(512 + made.text.len());
    out.extend_from_slice(br#"{"text":"#);
    quote(&made.text, &mut out);
    for (name, value) in made.more.iter().filter(|(name, _)| form == Form::Verbose || name == LOGPROBS) {
        out.push(b',');
        quote(name, &mut out);
        out.push(b':');
        out.extend_from_slice(value.get().as_bytes());
    }
    let Usage { input, output, audio_ms, .. } = *usage;
    let is_timed = audio_ms > 0;
    let kind = if input + output > 0 { "tokens" } else { "duration" };
    out.extend_from_slice(format!(r#","usage":{{"type":"{kind}""#).as_bytes());
    if is_timed {
        out.extend_from_slice(format!(r#","seconds":{}"#, audio_ms as f64 / 1e3).as_bytes());
    }
    if input + output > 0 {
        let counts = format!(
            r#","input_tokens":{input},"output_tokens":{output},"total_tokens":{}"#,
            input.saturating_add(output)
        );
        out.extend_from_slice(counts.as_bytes());
    }
    let Charge { cost_json, details_json, is_byok } = charge;
    let rest = format!(r#","cost":{cost_json},"cost_details":{details_json},"is_byok":{is_byok}}}}}"#);
    out.extend_from_slice(rest.as_bytes());
    out.into()
}

/// What was asked for, as a conversation of one turn: destinations know no other form, and get no sound.
pub(super) fn asked(model: &str, recording: &Recording) -> Bytes {
    let text = format!("[audio {}, {} bytes]", recording.media_type, recording.bytes.len());
    let content = json!([{"type": "text", "text": text}]);
    json!({"model": model, "messages": [{"role": "user", "content": content}]}).to_string().into()
}

/// What came back, in the same form.
pub(super) fn overheard(made: &Made<'_>) -> Vec<u8> {
    json!({"content": [{"type": "text", "text": made.text}]}).to_string().into()
}
