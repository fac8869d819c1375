//! What real servers do and their documents do not say: oddities a gateway has to survive.
//!
//! A quirk is a [`Behaviour`](crate::Behaviour) (`{"quirk": "no-usage"}`) and a model name
//! (`sim-quirk-no-usage`). It calls two tools when the request offers some and has no result yet;
//! otherwise it says a text with characters of two to four bytes. On a protocol that it does not fit it is
//! refused, so that a test cannot pass by accident. M, C, R, G: Messages, Chat, Responses, Gemini; B, I: Bedrock's
//! Converse and its InvokeModel, which carries Messages; H: Cohere.
//!
//! | Name | On | What is odd |
//! |---|---|---|
//! | `tool-call-first` | C | the first chunk is a tool call: no role, no content before it |
//! | `empty-text-first` | C | empty `content` chunks before a tool call; whole: `content: ""` beside the calls |
//! | `tools-finish-stop` | C B H | a turn of tool calls finishes with `stop` |
//! | `empty-content-between` | C | `content: ""` in and between the chunks of a call |
//! | `text-after-tools` | C | text before the calls and after them |
//! | `interleaved-calls` | C R | fragments of parallel calls alternate |
//! | `all-index-zero` | C | every parallel call has index 0, with ids of their own |
//! | `no-index` | C | calls have no `index` |
//! | `name-repeated` | C | every chunk of a call repeats its id and name |
//! | `ids-restart` | C | ids are `functions.NAME:0`, `:1`, the same in every turn |
//! | `arguments-after-empty-object` | C | arguments start with `{}`, then the real object |
//! | `arguments-in-start` | C R | the chunk that starts a call holds the first characters of its arguments |
//! | `arguments-object` | C | arguments are an object, not a string |
//! | `arguments-only-done` | R | no deltas of arguments, only `done` |
//! | `no-arguments` | C R G B H | a call without arguments: no delta, `""`, or no `args` |
//! | `text-only-done` | R | no deltas of text, only the finished item |
//! | `calls-in-one-chunk` | G | parallel calls in one chunk, not one chunk each |
//! | `no-call-ids` | G | calls without `id` |
//! | `empty-text-signature` | G | the signature comes on an empty text part at the end |
//! | `no-parts` | G | the last chunk has a reason to finish and no content |
//! | `usage-with-finish` | C | usage in the chunk that finishes; none after it |
//! | `usage-late` | C | empty chunks between the finish and the usage |
//! | `usage-twice` | C | usage with the finish and again alone |
//! | `usage-every-chunk` | C | cumulative usage on every chunk |
//! | `usage-x-groq` | C | usage only in `x_groq.usage` of the last chunk |
//! | `no-usage` | C R G B H | no usage at all |
//! | `no-finish` | C G | no reason to finish; the stream still ends with its marker, where there is one |
//! | `two-finishes` | C | a second `finish_reason`, `stop`, after the first |
//! | `no-done` | C | no `[DONE]` after the last chunk |
//! | `empty-choices-first` | C | the first chunk has `choices: []` and the prompt's filter results |
//! | `matched-stop` | C | `choices[0].stop_reason` and `matched_stop` name the stop sequence |
//! | `reasoning-field` | C | thinking in `reasoning` |
//! | `reasoning-both` | C | thinking in `reasoning` and the same in `reasoning_content` |
//! | `reasoning-details` | C | thinking in `reasoning` with `reasoning_details` to be returned |
//! | `think-tags` | C | thinking in the text, between `<think>` and `</think>` |
//! | `checks-signatures` | R G | thinks and calls; refuses calls replayed without what it signed |
//! | `completed-without-output` | R | `response.completed` has an empty `output` |
//! | `failed-event` | R | fails with `response.failed` after some text; whole: `status: "failed"` |
//! | `error-in-200` | C R G B I H | status 200 and an error object as the body or the first event |
//! | `error-finish` | C H | a chunk with `error` and `finish_reason: "error"` after some text |
//! | `error-string` | C | status 500, `error` is a bare string |
//! | `error-detail` | C | status 422 with a list in `detail` |
//! | `error-object` | C | status 400 with the error's members at the top |
//! | `error-array` | G | status 429, the error in an array of one |
//! | `tool-use-failed` | C | status 400 with the call it could not parse in `failed_generation` |
//! | `blocked-prompt` | G | `promptFeedback.blockReason` and no candidates |
//! | `whole-for-stream` | C R G H | ignores `stream` and answers whole |
//! | `crlf` | M C R G H | lines end with CR LF, no space after the colon |
//! | `cr` | M C R G H | lines end with CR |
//! | `comments` | M C R G H | comments between events and within them |
//! | `multiline-data` | M C R G H | JSON over several `data` lines |
//! | `bom` | M C R G H | the stream starts with a byte order mark |
//! | `no-event-name` | M R H | no `event` lines |
//! | `no-final-newline` | M C R G H | the last event lacks the blank line |
//! | `split-bytes` | M C R G B I H | every byte in a write of its own |
//! | `mistral-thinking` | C | `content` is a list: a `thinking` chunk, then text; in deltas too |
//! | `ids-null` | C | the id of every call is the string `null`, and a call comes in one chunk |
//! | `model-length` | C | finishes with `model_length` |
//! | `prefix-repeated` | C | the answer starts with the last assistant message where that has `prefix: true` |
//! | `ids-nine` | C | ids of calls are nine letters or digits; others in the request are refused |
//! | `no-signature` | B | thinking without a signature |
//! | `index-gaps` | B | indexes of blocks start above 0 and skip numbers |
//! | `unknown-events` | M R B I H | an event of an unheard-of type before every other |
//! | `bad-checksum` | B I | the checksum of the third frame is wrong |
//! | `error-frame` | B I | a frame of type `error` after some text |
//! | `model-stream-error` | B I | `modelStreamErrorException` with the original status after some text; whole: 424 |
//! | `error-type-in-body` | B I | status 429, the type in `__type` and the text in `Message` |

use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// The protocols the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Messages,
    Chat,
    Responses,
    Gemini,
    /// Bedrock's own.
    Converse,
    /// Messages in Bedrock's envelope.
    Invoke,
    Cohere,
}

macro_rules! quirks {
    ($($variant:ident $name:literal $($protocol:ident)+;)+) => {
        /// An oddity of real servers; the table is in the documentation of the module.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Quirk {
            $(#[doc = concat!("`", $name, "`")] $variant,)+
        }

        impl Quirk {
            pub const ALL: &'static [Quirk] = &[$(Quirk::$variant,)+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Quirk::$variant => $name,)+
                }
            }

            /// The protocols on which it can happen.
            pub fn protocols(self) -> &'static [Protocol] {
                match self {
                    $(Quirk::$variant => &[$(Protocol::$protocol,)+],)+
                }
            }
        }
    };
}

quirks! {
    ToolCallFirst "tool-call-first" Chat;
    EmptyTextFirst "empty-text-first" Chat;
    ToolsFinishStop "tools-finish-stop" Chat Converse Cohere;
    EmptyContentBetween "empty-content-between" Chat;
    TextAfterTools "text-after-tools" Chat;
    InterleavedCalls "interleaved-calls" Chat Responses;
    AllIndexZero "all-index-zero" Chat;
    NoIndex "no-index" Chat;
    NameRepeated "name-repeated" Chat;
    IdsRestart "ids-restart" Chat;
    ArgumentsAfterEmptyObject "arguments-after-empty-object" Chat;
    ArgumentsInStart "arguments-in-start" Chat Responses;
    ArgumentsObject "arguments-object" Chat;
    ArgumentsOnlyDone "arguments-only-done" Responses;
    NoArguments "no-arguments" Chat Responses Gemini Converse Cohere;
    TextOnlyDone "text-only-done" Responses;
    CallsInOneChunk "calls-in-one-chunk" Gemini;
    NoCallIds "no-call-ids" Gemini;
    EmptyTextSignature "empty-text-signature" Gemini;
    NoParts "no-parts" Gemini;
    UsageWithFinish "usage-with-finish" Chat;
    UsageLate "usage-late" Chat;
    UsageTwice "usage-twice" Chat;
    UsageEveryChunk "usage-every-chunk" Chat;
    UsageXGroq "usage-x-groq" Chat;
    NoUsage "no-usage" Chat Responses Gemini Converse Cohere;
    NoFinish "no-finish" Chat Gemini;
    TwoFinishes "two-finishes" Chat;
    NoDone "no-done" Chat;
    EmptyChoicesFirst "empty-choices-first" Chat;
    MatchedStop "matched-stop" Chat;
    ReasoningField "reasoning-field" Chat;
    ReasoningBoth "reasoning-both" Chat;
    ReasoningDetails "reasoning-details" Chat;
    ThinkTags "think-tags" Chat;
    ChecksSignatures "checks-signatures" Responses Gemini;
    CompletedWithoutOutput "completed-without-output" Responses;
    FailedEvent "failed-event" Responses;
    ErrorIn200 "error-in-200" Chat Responses Gemini Converse Invoke Cohere;
    ErrorFinish "error-finish" Chat Cohere;
    ErrorString "error-string" Chat;
    ErrorDetail "error-detail" Chat;
    ErrorObject "error-object" Chat;
    ErrorArray "error-array" Gemini;
    ToolUseFailed "tool-use-failed" Chat;
    BlockedPrompt "blocked-prompt" Gemini;
    WholeForStream "whole-for-stream" Chat Responses Gemini Cohere;
    Crlf "crlf" Messages Chat Responses Gemini Cohere;
    Cr "cr" Messages Chat Responses Gemini Cohere;
    Comments "comments" Messages Chat Responses Gemini Cohere;
    MultilineData "multiline-data" Messages Chat Responses Gemini Cohere;
    Bom "bom" Messages Chat Responses Gemini Cohere;
    NoEventName "no-event-name" Messages Responses Cohere;
    NoFinalNewline "no-final-newline" Messages Chat Responses Gemini Cohere;
    SplitBytes "split-bytes" Messages Chat Responses Gemini Converse Invoke Cohere;
    MistralThinking "mistral-thinking" Chat;
    IdsNull "ids-null" Chat;
    ModelLength "model-length" Chat;
    PrefixRepeated "prefix-repeated" Chat;
    IdsNine "ids-nine" Chat;
    NoSignature "no-signature" Converse;
    IndexGaps "index-gaps" Converse;
    UnknownEvents "unknown-events" Messages Responses Converse Invoke Cohere;
    BadChecksum "bad-checksum" Converse Invoke;
    ErrorFrame "error-frame" Converse Invoke;
    ModelStreamError "model-stream-error" Converse Invoke;
    ErrorTypeInBody "error-type-in-body" Converse Invoke;
}

impl Quirk {
    /// It is about thinking, so the answer thinks.
    pub(crate) fn thinks(self) -> bool {
        use Quirk::{MistralThinking, NoSignature, ReasoningBoth, ReasoningDetails, ReasoningField, ThinkTags};
        matches!(self, ReasoningField | ReasoningBoth | ReasoningDetails | ThinkTags | MistralThinking | NoSignature)
    }
}

impl FromStr for Quirk {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Quirk::ALL.iter().find(|quirk| quirk.name() == name);
        found.copied().ok_or_else(|| format!("there is no quirk {name}"))
    }
}

impl<'de> Deserialize<'de> for Quirk {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table is what people read; it names every quirk and where it fits.
    #[test]
    fn the_table_is_complete() {
        let source = include_str!("quirk.rs");
        for quirk in Quirk::ALL {
            let letter = |protocol: &Protocol| match protocol {
                Protocol::Messages => "M",
                Protocol::Chat => "C",
                Protocol::Responses => "R",
                Protocol::Gemini => "G",
                Protocol::Converse => "B",
                Protocol::Invoke => "I",
                Protocol::Cohere => "H",
            };
            let letters: Vec<_> = quirk.protocols().iter().map(letter).collect();
            let row = format!("//! | `{}` | {} |", quirk.name(), letters.join(" "));
            assert!(source.contains(&row), "{row}");
            assert_eq!(quirk.name().parse(), Ok(*quirk));
        }
        assert_eq!(source.lines().filter(|line| line.starts_with("//! | `")).count(), Quirk::ALL.len());
        assert!("unheard-of".parse::<Quirk>().is_err());
    }
}
