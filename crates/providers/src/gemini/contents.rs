//! The conversation as Gemini's list `contents`, with the signatures of its calls in their places.

use serde::{Deserialize, Serialize};
use tidegate_wire::object::Raw;

use super::PROTOCOL;
use super::dummy::NO_SIGNATURE;
use crate::translate::carrier::Carrier;
use crate::translate::conversation::{BEGINNING, Conversation, Media, Outcome, Part as Shown, Said, Turn, image_type};
use crate::translate::results::ATTACHED;
use crate::translate::tools::upstream_name;
use crate::translate::{Target, Unsupported};

#[derive(Debug, Serialize)]
pub(super) struct Content {
    role: &'static str,
    parts: Vec<Part>,
}

/// A part: one of its members, and the signature and the mark of a thought beside it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<Blob>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_data: Option<FileData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<Response>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<String>,
}

impl Part {
    fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob {
    mime_type: String,
    data: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileData {
    file_uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Call {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: String,
    args: Raw,
}

#[derive(Debug, Serialize)]
struct Response {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    name: String,
    response: Outcomes,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcomes {
    Output(String),
    Error(String),
}

/// What a carrier of this protocol holds: the signature, and the call it stands on, or `thought`.
#[derive(Deserialize)]
struct Signed {
    sig: String,
    #[serde(rename = "for")]
    place: String,
}

/// The conversation on its way into a list.
pub(super) struct Contents<'a> {
    pub target: &'a Target<'a>,
    pub conversation: &'a Conversation,
}

impl Contents<'_> {
    pub fn list(&self) -> Result<Vec<Content>, Unsupported> {
        let mut contents: Vec<Content> = Vec::with_capacity(self.conversation.turns.len());
        let last_words = self.conversation.last_words();
        for (place, turn) in self.conversation.turns.iter().enumerate() {
            match turn {
                Turn::User(parts) => {
                    let parts = parts.iter().map(|part| self.shown(part)).collect::<Result<_, _>>()?;
                    append(&mut contents, "user", parts);
                }
                Turn::System(text) => append(&mut contents, "user", vec![Part::text(format!("[system note] {text}"))]),
                Turn::Results(outcomes) => append(&mut contents, "user", self.results(outcomes)?),
                Turn::Assistant(said) => {
                    let parts = self.said(said, place > last_words || self.target.unsigned);
                    append(&mut contents, "model", parts);
                }
            }
        }
        if contents.first().is_none_or(|first| first.role != "user") {
            contents.insert(0, Content { role: "user", parts: vec![Part::text(BEGINNING)] });
        }
        Ok(contents)
    }

    /// What the model said. `is_current`: since the last words of a person, where newer models look for signatures.
    fn said(&self, said: &[Said], is_current: bool) -> Vec<Part> {
        let card = self.target.card;
        let mut parts = Vec::with_capacity(said.len());
        let signed: Vec<(Signed, &str)> = said.iter().filter_map(|said| self.signed(said)).collect();
        let mut is_first = true;
        for said in said {
            match said {
                Said::Text(text) => parts.push(Part::text(&text.text)),
                Said::Call { id, name, input, .. } => {
                    let own = signed.iter().find(|(signed, _)| is_same_call(id, &signed.place));
                    let own = own.map(|(signed, _)| signed.sig.clone()).or_else(|| self.kept(id));
                    let dummy = (is_first && is_current && card.signed_reasoning).then(|| NO_SIGNATURE.to_owned());
                    is_first = false;
                    parts.push(Part {
                        function_call: Some(Call {
                            id: self.call_id(id),
                            name: upstream_name(name, card.name_rule).into_owned(),
                            args: input.clone(),
                        }),
                        thought_signature: own.or(dummy),
                        ..Part::default()
                    });
                }
                Said::Thinking { .. } => {
                    if let Some((signed, text)) = self.signed(said).filter(|(signed, _)| signed.place == "thought") {
                        parts.push(Part {
                            thought: Some(true),
                            thought_signature: Some(signed.sig),
                            ..Part::text(text)
                        });
                    }
                }
                Said::Redacted(_) => {}
            }
        }
        parts
    }

    /// A signature that this upstream has made, and the thought it came with. It is never decoded: both alphabets of
    /// base64 occur in the wild.
    fn signed<'s>(&self, said: &'s Said) -> Option<(Signed, &'s str)> {
        let Said::Thinking { text, signature: Some(signature) } = said else { return None };
        Some((self.opened(signature)?, text))
    }

    /// The signature of a call that the client has left out.
    fn kept(&self, id: &str) -> Option<String> {
        let (_, carrier) = self.target.kept.iter().find(|(known, _)| is_same_call(id, known))?;
        Some(self.opened(carrier)?.sig)
    }

    fn opened(&self, signature: &str) -> Option<Signed> {
        let carrier = Carrier::read(signature)?;
        let is_ours = carrier.fits(PROTOCOL, self.target) && carrier.kind == "gemini_sig";
        let signed: Signed = serde_json::from_str(carrier.data.get()).ok().filter(|_| is_ours)?;
        // No base64 has this length: it was cut on its way.
        let is_whole = !signed.sig.is_empty() && signed.sig.len() % 4 != 1;
        is_whole.then_some(signed)
    }

    /// Ids that we made up mean nothing to the upstream.
    fn call_id(&self, id: &str) -> Option<String> {
        (self.target.card.call_ids && !id.starts_with("toolu_")).then(|| id.to_owned())
    }

    /// All results of a turn, and after them what cannot stand inside of one.
    fn results(&self, outcomes: &[Outcome]) -> Result<Vec<Part>, Unsupported> {
        let card = self.target.card;
        let (mut parts, mut beside) = (Vec::with_capacity(outcomes.len()), Vec::new());
        for outcome in outcomes {
            let (mut texts, mut inside, mut media) = (Vec::new(), Vec::new(), 0);
            let is_mixed = is_mixed(&outcome.parts);
            for part in &outcome.parts {
                let kind = match part {
                    Shown::Text(text) => {
                        texts.push(text.text.clone());
                        continue;
                    }
                    Shown::Image { .. } => "image",
                    Shown::Document { .. } => "document",
                };
                media += 1;
                let mut shown = self.shown(part)?;
                if card.images_in_results {
                    let name = format!("{kind}_{media}");
                    if is_mixed {
                        texts.push(format!("[{name}]"));
                    }
                    if let Some(blob) = &mut shown.inline_data {
                        blob.display_name = Some(name);
                    }
                    inside.push(shown);
                } else {
                    let label = format!("[{kind} {media} of tool_result {}]", outcome.id);
                    texts.push(label.clone());
                    beside.push(Part::text(label));
                    beside.push(shown);
                }
            }
            let mut text = texts.join("\n");
            if text.is_empty() && outcome.is_error && !inside.is_empty() {
                text = ATTACHED.to_owned();
            }
            parts.push(Part {
                function_response: Some(Response {
                    id: self.call_id(&outcome.id),
                    name: upstream_name(outcome.name.as_deref().unwrap_or_default(), card.name_rule).into_owned(),
                    response: if outcome.is_error { Outcomes::Error(text) } else { Outcomes::Output(text) },
                    parts: inside,
                }),
                ..Part::default()
            });
        }
        parts.extend(beside);
        Ok(parts)
    }

    fn shown(&self, part: &Shown) -> Result<Part, Unsupported> {
        let card = self.target.card;
        let inline = |mime_type: &str, data: &str| {
            let blob = Blob { mime_type: mime_type.to_owned(), data: data.to_owned(), display_name: None };
            Ok(Part { inline_data: Some(blob), ..Part::default() })
        };
        match part {
            Shown::Text(text) => Ok(Part::text(&text.text)),
            Shown::Image { path, .. } if !card.images => {
                Err(Unsupported::new(path, "images are not supported by this model"))
            }
            Shown::Document { path, .. } if !card.pdf => {
                Err(Unsupported::new(path, "documents are not supported by this model"))
            }
            Shown::Image { source: Media::Base64 { media_type, data }, .. } => {
                inline(image_type(media_type, data), data)
            }
            Shown::Document { source: Media::Base64 { media_type, data }, .. } => inline(media_type, data),
            Shown::Image { source: Media::Url(url), .. } | Shown::Document { source: Media::Url(url), .. }
                if url.starts_with("gs://") =>
            {
                let file = FileData { file_uri: url.clone(), mime_type: type_of_name(url) };
                Ok(Part { file_data: Some(file), ..Part::default() })
            }
            Shown::Image { path, .. } => Err(Unsupported::new(path, "images by URL are not supported by this model")),
            Shown::Document { path, .. } => {
                Err(Unsupported::new(path, "documents by URL are not supported by this model"))
            }
        }
    }
}

/// Whether a text follows an image or a document. All texts of a result stand before all that it shows, so that only a
/// label in the text can tell what stood where.
fn is_mixed(parts: &[Shown]) -> bool {
    let is_text = |part: &Shown| matches!(part, Shown::Text(_));
    parts.iter().skip_while(|part| is_text(part)).any(is_text)
}

/// Neighbours of one role are one content: results and the words after them, too.
fn append(contents: &mut Vec<Content>, role: &'static str, parts: Vec<Part>) {
    if parts.is_empty() {
        return;
    }
    match contents.last_mut().filter(|last| last.role == role) {
        Some(last) => last.parts.extend(parts),
        None => contents.push(Content { role, parts }),
    }
}

/// A call that had to be renamed, because its id stands twice in the conversation, is still the one that was signed.
fn is_same_call(id: &str, signed: &str) -> bool {
    let number = |rest: &str| {
        rest.strip_prefix('_').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    id.strip_prefix(signed).is_some_and(|rest| rest.is_empty() || number(rest))
}

fn type_of_name(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "txt" => "text/plain",
        _ => return None,
    })
}
