//! Google's models that speak: an ordinary call that is told so. What comes back is always samples.

use bytes::Bytes;
use tidegate_core::Timestamp;
use tidegate_wire::envelope::speech::Format;
use tidegate_wire::json::quoted;

use super::{Made, Sent, Wanted, decoded, unsupported};
use crate::fault::Fault;
use crate::gemini::inline::{self, Inline, Medium};

const USUAL_VOICE: &str = "Kore";
const USUAL_RATE: u32 = 24_000;
/// Options that are known and have no word here.
const WORDLESS: [&str; 3] = ["speed", "instructions", "input_references"];

pub(super) fn request(wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    if !matches!(wanted.format, Format::Pcm | Format::Wav) {
        return Err(unsupported("response_format must be pcm or wav: this provider gives samples only"));
    }
    let mut warnings = Vec::new();
    let mut top = String::new();
    for (name, value) in wanted.options {
        match name.as_ref() {
            name if WORDLESS.contains(&name) || inline::OURS.contains(&name) => {
                warnings.push(format!("dropped:{name}"))
            }
            name => top.push_str(&format!(",{}:{}", quoted(name), value.get())),
        }
    }
    let voice = quoted(wanted.voice.unwrap_or(USUAL_VOICE));
    let speech = format!(r#"{{"voiceConfig":{{"prebuiltVoiceConfig":{{"voiceName":{voice}}}}}}}"#);
    let body = format!(
        r#"{{"contents":[{{"role":"user","parts":[{{"text":{}}}]}}],"generationConfig":{{"responseModalities":["AUDIO"],"speechConfig":{speech}}}{top}}}"#,
        quoted(wanted.input)
    );
    Ok(Sent { body: body.into(), warnings })
}

pub(super) fn answer(body: &[u8], format: Format, now: Timestamp) -> Result<Made, Fault> {
    let Inline { parts, usage } = inline::read(body, Medium::Audio, now)?;
    let mut samples = Vec::with_capacity(body.len() / 4 * 3);
    let mut rate = None;
    for part in parts {
        rate = rate.or_else(|| part.mime_type.as_deref().and_then(sample_rate));
        decoded(&part.data, &mut samples)?;
    }
    let audio = match format {
        Format::Wav if !samples.is_empty() => wav(&samples, rate.unwrap_or(USUAL_RATE)),
        _ => samples.into(),
    };
    Ok(Made { audio, usage })
}

/// Of `audio/L16;codec=pcm;rate=24000`.
fn sample_rate(kind: &str) -> Option<u32> {
    kind.split(';').find_map(|part| part.trim().strip_prefix("rate=")?.parse().ok())
}

/// Samples with the head that says what they are: two bytes each, of one channel.
fn wav(samples: &[u8], rate: u32) -> Bytes {
    let size = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(44 + samples.len());
    out.extend_from_slice(b"RIFF");
    out.extend_from_slice(&size.saturating_add(36).to_le_bytes());
    out.extend_from_slice(b"WAVEfmt ");
    out.extend_from_slice(&16_u32.to_le_bytes());
    // Plain samples, one channel.
    out.extend_from_slice(&1_u16.to_le_bytes());
    out.extend_from_slice(&1_u16.to_le_bytes());
    out.extend_from_slice(&rate.to_le_bytes());
    out.extend_from_slice(&rate.saturating_mul(2).to_le_bytes());
    out.extend_from_slice(&2_u16.to_le_bytes());
    out.extend_from_slice(&16_u16.to_le_bytes());
    out.extend_from_slice(b"data");
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(samples);
    out.into()
}
