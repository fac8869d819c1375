//! What a conversation is made of.

use tidegate_wire::messages::CacheControl;
use tidegate_wire::object::Raw;

#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    User(Vec<Part>),
    Assistant(Vec<Said>),
    /// The results of the calls of the turn before, in the order of the calls.
    Results(Vec<Outcome>),
    /// An instruction in the middle of the conversation, for upstreams that know such a thing.
    System(String),
}

/// Whether a cache marker stands on something, and how long it is to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    #[default]
    None,
    /// Five minutes, or whatever the upstream takes for that.
    Short,
    /// An hour.
    Long,
}

impl Mark {
    pub fn of(control: Option<&CacheControl>) -> Self {
        match control {
            None => Self::None,
            Some(control) if control.ttl.as_deref() == Some("1h") => Self::Long,
            Some(_) => Self::Short,
        }
    }

    pub fn is_set(self) -> bool {
        self != Self::None
    }
}

/// A piece of text and the cache marker on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text {
    pub text: String,
    pub mark: Mark,
}

impl Text {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), mark: Mark::None }
    }
}

/// What a person or a tool shows the model.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(Text),
    /// `path`: where it stands in the request, for errors.
    Image {
        source: Media,
        mark: Mark,
        path: String,
    },
    Document {
        source: Media,
        title: Option<String>,
        context: Option<String>,
        cited: bool,
        mark: Mark,
        path: String,
    },
}

/// Bytes, or where they are.
#[derive(Clone, Debug, PartialEq)]
pub enum Media {
    Base64 {
        media_type: String,
        data: String,
    },
    Url(String),
    /// The text of a document, for upstreams that take it as one.
    Text(String),
}

/// The type of an image by its first bytes; clients often name a wrong one, and some upstreams refuse that.
pub fn image_type<'a>(declared: &'a str, data: &str) -> &'a str {
    const KNOWN: [(&str, &str); 4] =
        [("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];
    KNOWN.iter().find(|(start, _)| data.starts_with(start)).map_or(declared, |(_, kind)| kind)
}

/// What the model said.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Text(Text),
    Call {
        id: String,
        name: String,
        input: Raw,
        mark: Mark,
    },
    Thinking {
        text: String,
        signature: Option<String>,
    },
    /// Thinking that only its issuer can read.
    Redacted(String),
}

impl Said {
    /// The id of a call.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Call { id, .. } => Some(id),
            Self::Text(_) | Self::Thinking { .. } | Self::Redacted(_) => None,
        }
    }

    pub fn is_thought(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::Redacted(_))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub id: String,
    pub name: Option<String>,
    pub parts: Vec<Part>,
    pub is_error: bool,
    pub mark: Mark,
}
