//! `/audio`: texts that are spoken, and what is said written down.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyDataStream, Full};
use multer::Multipart;
use tidegate_gateway::Failure;
use tidegate_gateway::relay::transcription::Asked as Wanted;
use tidegate_providers::transcription::Recording;
use tidegate_wire::envelope::transcription::{self, Form, NO_STREAM};

use super::account::Answering;
use super::messages::{Asked, answered, limits};
use crate::body;
use crate::router::{Asking, Call};

/// Fields of a form beside the file.
const MOST_FIELDS: usize = 32;
const LONGEST_NAME: usize = 255;
const UNKNOWN_TYPE: &str = "application/octet-stream";

pub fn speech(call: Call) -> Answering {
    Box::pin(async move {
        let Asked { app, key, head, body } = Asked::of(call).await?;
        app.gateway.speech(&key, &head.headers, body).await.map(answered)
    })
}

pub fn transcriptions(call: Call) -> Answering {
    Box::pin(async move {
        let kind = call.head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match multer::parse_boundary(kind) {
            Ok(boundary) => of_form(call, boundary).await,
            Err(_) if kind.is_empty() || kind.to_ascii_lowercase().starts_with("application/json") => {
                of_json(call).await
            }
            Err(_) => Err(wrong("Content-Type must be multipart/form-data with a boundary, or application/json")),
        }
    })
}

async fn of_json(call: Call) -> Result<crate::router::Answer, Failure> {
    let Asked { app, key, head, body } = Asked::of(call).await?;
    let request = transcription::read(&body)?;
    let bytes = STANDARD.decode(request.data.as_bytes());
    let bytes = bytes.map_err(|_| wrong("input_audio.data must be Base64, without an address before it"))?;
    let wanted = Wanted {
        model: &request.model,
        recording: Recording {
            filename: format!("audio.{}", plain(&request.format)),
            media_type: media_type(&request.format).to_owned(),
            bytes: bytes.into(),
        },
        form: request.form,
        provider: request.provider.as_ref(),
        user: request.user.as_deref(),
        session: request.session_id.as_deref(),
        fields: request.fields,
    };
    app.gateway.transcriptions(&key, &head.headers, wanted).await.map(answered)
}

async fn of_form(call: Call, boundary: String) -> Result<crate::router::Answer, Failure> {
    let Asking { app, key, head, body, .. } = *call;
    let key = key.ok_or_else(Failure::missing_credential)?;
    let body = body::read_plain(&head.headers, body, limits(&app, &key)).await?;
    let sent = Sent::of(body, boundary).await?;
    let recording = sent.recording.ok_or_else(|| wrong("file is required"))?;
    if recording.bytes.is_empty() {
        return Err(wrong("file must not be empty"));
    }
    let model =
        sent.model.filter(|model| (1..=256).contains(&model.len())).ok_or_else(|| wrong("model is required"))?;
    let provider = sent.provider.as_deref().map(transcription::provider).transpose()?;
    let session = sent.session.as_deref().filter(|session| session.chars().count() <= LONGEST_NAME);
    let wanted = Wanted {
        model: &model,
        recording,
        form: sent.form,
        provider: provider.as_ref(),
        user: sent.user.as_deref(),
        session,
        fields: sent.fields,
    };
    app.gateway.transcriptions(&key, &head.headers, wanted).await.map(answered)
}

fn wrong(text: &str) -> Failure {
    Failure::invalid(format!("Invalid request: {text}"))
}

/// What a form holds.
#[derive(Default)]
struct Sent {
    model: Option<String>,
    recording: Option<Recording>,
    form: Form,
    provider: Option<String>,
    user: Option<String>,
    session: Option<String>,
    fields: transcription::Fields,
}

impl Sent {
    async fn of(body: Bytes, boundary: String) -> Result<Self, Failure> {
        let mut form = Multipart::new(BodyDataStream::new(Full::new(body)), boundary);
        let broken = |_: multer::Error| wrong("the body must be a whole multipart/form-data form");
        let mut sent = Self::default();
        while let Some(part) = form.next_field().await.map_err(broken)? {
            let name = part.name().unwrap_or_default().to_owned();
            if name == "file" {
                if sent.recording.is_some() {
                    return Err(wrong("file stands twice"));
                }
                let filename = part.file_name().filter(|name| name.len() <= LONGEST_NAME).unwrap_or("audio").to_owned();
                let told = part.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
                let media_type = told.unwrap_or(UNKNOWN_TYPE).to_owned();
                let bytes = part.bytes().await.map_err(broken)?;
                sent.recording = Some(Recording { filename, media_type, bytes });
                continue;
            }
            transcription::check_field(&name)?;
            let value = part.text().await.map_err(broken)?;
            match name.as_str() {
                "model" => sent.model = Some(value),
                "response_format" => sent.form = Form::parse(&value)?,
                "stream" if value == "true" => return Err(wrong(&format!("stream {NO_STREAM}"))),
                "provider" => sent.provider = Some(value),
                "user" => sent.user = Some(value),
                "session_id" => sent.session = Some(value),
                "stream" | "trace" => {}
                _ if sent.fields.len() == MOST_FIELDS || name.len() > LONGEST_NAME => {
                    return Err(wrong(&format!("a form has at most {MOST_FIELDS} fields, with names")));
                }
                _ => sent.fields.push((name, value)),
            }
        }
        Ok(sent)
    }
}

/// What can stand in a name of a file.
fn plain(format: &str) -> String {
    format.chars().filter(char::is_ascii_alphanumeric).collect()
}

fn media_type(format: &str) -> &'static str {
    match format {
        "wav" => "audio/wav",
        "mp3" | "mpga" | "mpeg" => "audio/mpeg",
        "m4a" | "mp4" => "audio/mp4",
        "ogg" | "oga" | "opus" => "audio/ogg",
        "flac" => "audio/flac",
        "aac" => "audio/aac",
        "webm" => "audio/webm",
        _ => UNKNOWN_TYPE,
    }
}
