//! Content blocks, of messages and of the system prompt: what they must hold, and what of them others have to know.

use std::borrow::Cow;

use serde::de::{IgnoredAny, MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::{State, shown};
use crate::envelope::check::{self, Place};
use crate::envelope::{Brand, Envelope, IMAGE_KINDS, Media, Traits, Violation};
use crate::json::{self, Kind, Node, Seen, Text, Walk};

const BILLING_LINE: &str = "x-anthropic-billing-header:";

/// What a block of a known kind must hold: nobody could tell a model what it says without it.
#[derive(Default)]
struct Held {
    text: Option<Kind>,
    id: Option<Kind>,
    name: Option<Kind>,
    call: Option<Kind>,
}

impl Held {
    fn check(&self, kind: &str, source: Option<Kind>, place: &dyn Fn() -> String) -> Result<(), Violation> {
        let must = |name: &str, given: Option<Kind>, wanted: Kind| match given {
            Some(given) if given == wanted => Ok(()),
            None | Some(Kind::Null) => Err(Violation::new(format!("{}.{name} is required", place()))),
            Some(_) => {
                let wanted = if wanted == Kind::String { "a string" } else { "an object" };
                Err(Violation::new(format!("{}.{name} must be {wanted}", place())))
            }
        };
        match kind {
            "text" => must("text", self.text, Kind::String),
            "image" | "document" => must("source", source, Kind::Object),
            "tool_use" => {
                must("id", self.id, Kind::String)?;
                must("name", self.name, Kind::String)
            }
            "tool_result" => must("tool_use_id", self.call, Kind::String),
            _ => Ok(()),
        }
    }
}

/// A content block, of a message or of the system prompt. Its kind must be named, and what it cannot be without must be there;
/// the rest is the provider's to judge, so that a kind we do not know gets through.
pub(super) struct Block<'s, 'a, 'b, P> {
    pub state: &'s mut State<'a, 'b>,
    pub place: P,
}

impl<'a, P: Fn() -> String> Node<'a> for Block<'_, 'a, '_, &P> {
    fn object<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { state, place } = self;
        let mut seen = Seen::default();
        let (mut named, mut is_image, mut is_document) = (false, false, false);
        let (mut is_text, mut is_blank, mut is_thinking, mut is_foreign) = (false, false, false, true);
        let mut is_signed = false;
        // What only its issuer reads, and whether it was put into a carrier here.
        let (mut is_redacted, mut is_carried) = (false, false);
        let mut source = Source::default();
        let (mut is_call, mut called) = (false, None);
        let (mut kind, mut held) = (Cow::Borrowed(""), Held::default());
        while let Some(Text(name)) = map.next_key()? {
            if !seen.add(&name) {
                state.note(Violation::new(format!("{}.{} appears more than once", place(), shown(&name))));
            }
            match name.as_ref() {
                "type" => {
                    let value: &RawValue = map.next_value()?;
                    named = json::kind(value) == Kind::String;
                    kind = json::string(value).unwrap_or_default();
                    is_image = kind == "image";
                    is_document = kind == "document";
                    is_text = kind == "text";
                    is_thinking = kind == "thinking";
                    is_redacted = kind == "redacted_thinking";
                    is_call = kind == "server_tool_use";
                    state.envelope.traits.sealed_results |= is_of_commands(value.get());
                    state.envelope.traits.own_calls |= is_shown_by(value.get(), state.brand);
                }
                "name" => {
                    let value: &RawValue = map.next_value()?;
                    (called, held.name) = (Some(value), Some(json::kind(value)));
                }
                "id" => held.id = Some(json::kind(map.next_value()?)),
                "tool_use_id" => held.call = Some(json::kind(map.next_value()?)),
                "text" => {
                    let value: &RawValue = map.next_value()?;
                    is_blank = is_blank_text(value.get());
                    held.text = Some(json::kind(value));
                    state.hear(value.get());
                    state.envelope.traits.billing_line |=
                        value.get().get(1..).is_some_and(|text| text.starts_with(BILLING_LINE));
                }
                "signature" => {
                    let value: &RawValue = map.next_value()?;
                    is_signed = !matches!(value.get(), "\"\"" | "null");
                    is_foreign = !is_signed || value.get().starts_with("\"tgs1.");
                }
                "data" => is_carried = map.next_value::<&RawValue>()?.get().starts_with("\"tgs1."),
                "citations" => {
                    let value: &RawValue = map.next_value()?;
                    state.envelope.traits.own_citations |= value.get().contains("\"tg1\"");
                }
                "source" => map.next_value_seed(Walk(SourceNode(&mut source)))?,
                // Of a tool's result: looked at for what some upstreams do not take, not judged.
                "content" => {
                    let Envelope { traits, media, .. } = &mut *state.envelope;
                    map.next_value_seed(Walk(Inner { traits, media }))?;
                }
                "cache_control" => {
                    let value: &RawValue = map.next_value()?;
                    if json::kind(value) != Kind::Null {
                        state.envelope.traits.cache_lifetime |= has_lifetime(value);
                        let result =
                            check::cache_control(&Place::Lazy(&|| format!("{}.cache_control", place())), value);
                        state.check(result);
                    }
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !named {
            state.note(Violation::prompt(format!("{}.type is required", place())));
        }
        let is_own = is_call && called.is_some_and(|name| is_run_here(name.get(), state.brand));
        state.silent += usize::from((is_text && is_blank) || (is_thinking && !is_signed));
        let traits = &mut state.envelope.traits;
        traits.own_calls |= is_own;
        traits.blank_text |= is_text && is_blank;
        traits.foreign_thinking |= (is_thinking && is_foreign) || (is_redacted && is_carried);
        traits.unclean_data |= source.unclean;
        traits.data_url |= source.is_data_url;
        traits.own_file |= source.is_own_file;
        traits.foreign_file |= source.is_foreign_file;
        source.count(is_image, is_document, &mut state.envelope.media);
        state.check(held.check(&kind, source.form, &place));
        state.check(source.check(is_image, is_document, &|| format!("{}.source", place())));
        Ok(())
    }

    fn other(self, _: Kind) {
        self.state.note(Violation::prompt(format!("{} must be an object", (self.place)())));
    }
}

/// The source of a block. Its `data` is skipped: whether it is base64, and an image of the stated kind, is told by the
/// provider that has to decode it; to look here would mean a second pass over the longest string of the body.
#[derive(Default)]
struct Source<'a> {
    /// What stands there at all.
    form: Option<Kind>,
    kind: Option<&'a RawValue>,
    media_type: Option<&'a RawValue>,
    /// What stands where it says what it holds.
    held: Option<Kind>,
    address: Option<Kind>,
    file: Option<Kind>,
    content: Option<Kind>,
    repeated: Option<String>,
    unclean: bool,
    is_data_url: bool,
    is_own_file: bool,
    is_foreign_file: bool,
    /// Bytes of what it holds itself.
    data: usize,
}

impl Source<'_> {
    fn count(&self, is_image: bool, is_document: bool, media: &mut Media) {
        let is_written = self.kind.is_some_and(|kind| equals(kind, "text") || equals(kind, "content"));
        match (is_image, is_document && !is_written) {
            (true, _) => media.images += 1,
            (false, true) => media.files += 1,
            (false, false) => return,
        }
        media.bytes += self.data;
    }

    /// Called when the block is over, since members come in any order.
    fn check(&self, is_image: bool, is_document: bool, place: &dyn Fn() -> String) -> Result<(), Violation> {
        let place = Place::Lazy(place);
        if let Some(name) = &self.repeated {
            return Err(place.member(name).is("appears more than once"));
        }
        if !is_image && !is_document {
            return Ok(());
        }
        let must = |name: &str, given: Option<Kind>| match given {
            Some(Kind::String) => Ok(()),
            None | Some(Kind::Null) => Err(place.member(name).required()),
            Some(_) => Err(place.member(name).is("must be a string")),
        };
        must("type", self.kind.map(json::kind))?;
        let is = |kind: &str| self.kind.is_some_and(|given| equals(given, kind));
        if is("base64") || is("text") {
            // What a document may be is for those to say who read it.
            let is_one_of_ours = |given| IMAGE_KINDS.iter().any(|kind| equals(given, kind));
            match self.media_type.filter(|media_type| json::kind(media_type) != Kind::Null) {
                Some(given) if is_image && is("base64") && !is_one_of_ours(given) => {
                    let place = place.member("media_type");
                    let text = format!("{place} must be one of {}", IMAGE_KINDS.join(", "));
                    return Err(Violation::image_format(text));
                }
                given => must("media_type", given.map(json::kind))?,
            }
            return must("data", self.held);
        }
        if is("url") {
            return must("url", self.address);
        }
        if is("file") {
            return must("file_id", self.file);
        }
        match self.content {
            Some(Kind::String | Kind::Array) => Ok(()),
            _ if !is("content") => Ok(()),
            None | Some(Kind::Null) => Err(place.member("content").required()),
            Some(_) => Err(place.member("content").is("must be a string or an array")),
        }
    }
}

/// Whether a value is this text, which has nothing in it that JSON would have to escape.
fn equals(value: &RawValue, text: &str) -> bool {
    let inner = value.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) if !inner.contains('\\') => inner == text,
        // Escapes are allowed everywhere, and nobody writes them here.
        Some(_) => json::string(value).is_some_and(|value| value == text),
        None => false,
    }
}

/// Whether a text has nothing in it but white space. Nearly every text shows with its first character that it has.
pub(super) fn is_blank_text(raw: &str) -> bool {
    let Some(inner) = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let may_be = |first: char| first.is_whitespace() || first == '\\';
    let is_blank = |raw: &str| serde_json::from_str(raw).is_ok_and(|Text(text)| text.trim().is_empty());
    inner.is_empty() || (inner.starts_with(may_be) && is_blank(raw))
}

/// Whether it is the kind of a block that shows what came of commands: `<brand>_bash_tool_result` or the like.
fn is_of_commands(kind: &str) -> bool {
    let of = kind.strip_suffix("_tool_result\"");
    of.is_some_and(|of| of.ends_with("_bash") || of.ends_with("_shell"))
}

/// Whether it is the kind of a block that shows what any tool of ours gave: `<brand>_tool_result`.
fn is_shown_by(kind: &str, brand: Brand<'_>) -> bool {
    let of = kind.strip_prefix('"').and_then(|kind| kind.strip_suffix("_tool_result\""));
    of.is_some_and(|of| of == brand.name || brand.aliases.iter().any(|alias| alias == of))
}

/// Whether a call of this name, in its quotes, is one that nobody but this gateway runs.
fn is_run_here(name: &str, brand: Brand<'_>) -> bool {
    let name = name.trim_matches('"');
    name.starts_with("mcp__") || brand.tool(name).is_some()
}

/// Whether it looks like the id of a file that is kept here. Vendors' own are shorter.
fn is_own_file(value: &str) -> bool {
    const LENGTH: usize = "\"file_00000000000000000000000000\"".len();
    value.len() == LENGTH && value.starts_with("\"file_")
}

/// Whether a cache marker says more than that it is one.
pub(super) fn has_lifetime(value: &RawValue) -> bool {
    value.get().contains("\"ttl\"") || value.get().contains("\"scope\"")
}

/// What stands in the result of a tool.
struct Inner<'s> {
    traits: &'s mut Traits,
    media: &'s mut Media,
}

impl<'a> Node<'a> for Inner<'_> {
    fn array<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { traits, media } = self;
        while seq.next_element_seed(Walk(InnerBlock(Inner { traits, media })))?.is_some() {}
        Ok(())
    }

    fn string(self, _: &'a str) {}

    fn other(self, _: Kind) {}
}

struct InnerBlock<'s>(Inner<'s>);

impl<'a> Node<'a> for InnerBlock<'_> {
    fn object<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Inner { traits, media } = self.0;
        let (mut is_text, mut is_blank, mut is_image, mut is_document) = (false, false, false, false);
        let mut source = Source::default();
        while let Some(Text(name)) = map.next_key()? {
            match name.as_ref() {
                "type" => {
                    let value: &RawValue = map.next_value()?;
                    is_text = equals(value, "text");
                    is_image = equals(value, "image");
                    is_document = equals(value, "document");
                }
                "text" => {
                    let value: &RawValue = map.next_value()?;
                    is_blank = is_blank_text(value.get());
                }
                "source" => map.next_value_seed(Walk(SourceNode(&mut source)))?,
                "encrypted_content" => {
                    let value: &RawValue = map.next_value()?;
                    traits.sealed_results |= value.get().starts_with("\"tg1.");
                }
                "cache_control" => {
                    let value: &RawValue = map.next_value()?;
                    traits.cache_lifetime |= has_lifetime(value);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        traits.blank_text |= is_text && is_blank;
        traits.unclean_data |= source.unclean;
        traits.data_url |= source.is_data_url;
        traits.own_file |= source.is_own_file;
        traits.foreign_file |= source.is_foreign_file;
        source.count(is_image, is_document, media);
        Ok(())
    }

    fn string(self, _: &'a str) {}

    fn other(self, _: Kind) {}
}

struct SourceNode<'s, 'a>(&'s mut Source<'a>);

impl<'a> Node<'a> for SourceNode<'_, 'a> {
    fn object<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let source = self.0;
        source.form = Some(Kind::Object);
        let mut seen = Seen::default();
        while let Some(Text(name)) = map.next_key()? {
            if !seen.add(&name) {
                source.repeated.get_or_insert_with(|| shown(&name).into_owned());
            }
            match name.as_ref() {
                "type" => source.kind = Some(map.next_value()?),
                "media_type" => source.media_type = Some(map.next_value()?),
                "url" => {
                    let value: &RawValue = map.next_value()?;
                    let head = value.get().get(1..6).unwrap_or_default();
                    source.is_data_url = head.eq_ignore_ascii_case("data:");
                    source.data = value.get().len();
                    source.address = Some(json::kind(value));
                }
                "file_id" => {
                    let value: &RawValue = map.next_value()?;
                    source.is_own_file = is_own_file(value.get());
                    source.is_foreign_file = json::kind(value) == Kind::String && !source.is_own_file;
                    source.file = Some(json::kind(value));
                }
                "data" => {
                    // A look at its head and for escapes: base64 has neither.
                    let value: &RawValue = map.next_value()?;
                    source.unclean = value.get().starts_with("\"data:") || value.get().contains('\\');
                    source.data = value.get().len();
                    source.held = Some(json::kind(value));
                }
                "content" => source.content = Some(json::kind(map.next_value()?)),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    // Some kinds of blocks name their source in a plain string.
    fn string(self, _: &'a str) {
        self.0.form = Some(Kind::String);
    }

    fn other(self, kind: Kind) {
        self.0.form = Some(kind);
    }
}
