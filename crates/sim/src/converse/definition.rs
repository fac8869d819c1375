//! The input of Converse and of its token count, member by member, as the service's public definition has it.

use super::shape::Shape::{Any, Bytes, Count, Flag, List, Map, Object, OneOf, Plain, Share, Text, Union};
use super::shape::{Shape, may, need};

const MANY: usize = usize::MAX;

pub(super) static INPUT: Shape = Object(&[
    may("messages", &MESSAGES),
    may("system", &SYSTEM),
    may("inferenceConfig", &INFERENCE),
    may("toolConfig", &TOOLS),
    may("guardrailConfig", &GUARDRAIL),
    may("additionalModelRequestFields", &Any),
    may("promptVariables", &Any),
    may("additionalModelResponseFieldPaths", &PATHS),
    may("requestMetadata", &METADATA),
    may("performanceConfig", &PERFORMANCE),
    may("serviceTier", &TIER),
    may("outputConfig", &OUTPUT),
]);

pub(super) static COUNTED: Shape = Object(&[need("input", &COUNTED_INPUT)]);
static COUNTED_INPUT: Shape = Union(&[may("converse", &COUNTED_CONVERSE), may("invokeModel", &COUNTED_INVOKE)]);
static COUNTED_INVOKE: Shape = Object(&[need("body", &Bytes)]);
static COUNTED_CONVERSE: Shape = Object(&[
    may("messages", &MESSAGES),
    may("system", &SYSTEM),
    may("toolConfig", &TOOLS),
    may("additionalModelRequestFields", &Any),
]);

static STRING: Shape = Text { min: 0, max: MANY };
static FILLED: Shape = Text { min: 1, max: MANY };
static FLAG: Shape = Flag;
static ANY: Shape = Any;
static BYTES: Shape = Bytes;

static MESSAGES: Shape = List { of: &MESSAGE, min: 0, max: MANY };
static MESSAGE: Shape = Object(&[need("role", &ROLE), need("content", &CONTENT)]);
static ROLE: Shape = OneOf("user assistant system");
static CONTENT: Shape = List { of: &BLOCK, min: 0, max: MANY };
static BLOCK: Shape = Union(&[
    may("text", &STRING),
    may("image", &IMAGE),
    may("document", &DOCUMENT),
    may("video", &VIDEO),
    may("audio", &AUDIO),
    may("toolUse", &TOOL_USE),
    may("toolResult", &TOOL_RESULT),
    may("guardContent", &GUARDED),
    may("cachePoint", &CACHE_POINT),
    may("reasoningContent", &REASONING),
    may("citationsContent", &CITATIONS_CONTENT),
    may("searchResult", &SEARCH_RESULT),
    may("toolAddition", &TOOL_CHANGE),
    may("toolRemoval", &TOOL_CHANGE),
]);

static IMAGE: Shape = Object(&[need("format", &IMAGE_FORMAT), need("source", &SOURCE), may("error", &ERROR)]);
static IMAGE_FORMAT: Shape = OneOf("png jpeg gif webp");
static VIDEO: Shape = Object(&[need("format", &VIDEO_FORMAT), need("source", &SOURCE)]);
static VIDEO_FORMAT: Shape = OneOf("mkv mov mp4 webm flv mpeg mpg wmv three_gp");
static AUDIO: Shape = Object(&[need("format", &AUDIO_FORMAT), need("source", &SOURCE), may("error", &ERROR)]);
static AUDIO_FORMAT: Shape = OneOf("mp3 opus wav aac flac mp4 ogg mkv mka x-aac m4a mpeg mpga pcm webm");
static ERROR: Shape = Object(&[may("message", &STRING)]);
static SOURCE: Shape = Union(&[may("bytes", &BYTES), may("s3Location", &S3)]);
static S3: Shape = Object(&[need("uri", &S3_URI), may("bucketOwner", &STRING)]);
static S3_URI: Shape = Text { min: 1, max: 1024 };

static DOCUMENT: Shape = Object(&[
    may("format", &DOCUMENT_FORMAT),
    need("name", &DOCUMENT_NAME),
    need("source", &DOCUMENT_SOURCE),
    may("context", &STRING),
    may("citations", &CITATIONS_CONFIG),
]);
static DOCUMENT_FORMAT: Shape = OneOf("pdf csv doc docx xls xlsx html txt md");
static DOCUMENT_NAME: Shape = Text { min: 1, max: 200 };
static DOCUMENT_SOURCE: Shape =
    Union(&[may("bytes", &BYTES), may("s3Location", &S3), may("text", &STRING), may("content", &DOCUMENT_CONTENT)]);
static DOCUMENT_CONTENT: Shape = List { of: &TEXT_BLOCK, min: 0, max: MANY };
static TEXT_BLOCK: Shape = Union(&[may("text", &STRING)]);
static CITATIONS_CONFIG: Shape = Object(&[need("enabled", &FLAG)]);

static TOOL_USE: Shape =
    Object(&[need("toolUseId", &TOOL_ID), need("name", &TOOL_NAME), need("input", &ANY), may("type", &TOOL_USE_TYPE)]);
static TOOL_USE_TYPE: Shape = OneOf("server_tool_use");
static TOOL_ID: Shape = Plain { max: 64, allowed: id, pattern: "[a-zA-Z0-9_.:-]+" };
static TOOL_NAME: Shape = Plain { max: 64, allowed: name, pattern: "[a-zA-Z0-9_-]+" };
static TOOL_RESULT: Shape =
    Object(&[need("toolUseId", &TOOL_ID), need("content", &RESULTS), may("status", &STATUS), may("type", &STRING)]);
static STATUS: Shape = OneOf("success error");
static RESULTS: Shape = List { of: &RESULT, min: 0, max: MANY };
static RESULT: Shape = Union(&[
    may("json", &ANY),
    may("text", &STRING),
    may("image", &IMAGE),
    may("document", &DOCUMENT),
    may("video", &VIDEO),
    may("searchResult", &SEARCH_RESULT),
]);
static SEARCH_RESULT: Shape = Object(&[
    need("source", &STRING),
    need("title", &STRING),
    need("content", &SEARCH_RESULT_CONTENT),
    may("citations", &CITATIONS_CONFIG),
]);
static SEARCH_RESULT_CONTENT: Shape = List { of: &SEARCH_RESULT_TEXT, min: 0, max: MANY };
static SEARCH_RESULT_TEXT: Shape = Object(&[need("text", &STRING)]);
static TOOL_CHANGE: Shape = Object(&[need("tool", &TOOL_REFERENCE)]);
static TOOL_REFERENCE: Shape = Object(&[may("type", &FILLED), may("name", &FILLED), may("serverName", &FILLED)]);

static GUARDED: Shape = Union(&[may("text", &GUARDED_TEXT), may("image", &GUARDED_IMAGE)]);
static GUARDED_TEXT: Shape = Object(&[need("text", &STRING), may("qualifiers", &QUALIFIERS)]);
static GUARDED_IMAGE: Shape = Object(&[need("format", &GUARDED_FORMAT), need("source", &GUARDED_SOURCE)]);
static GUARDED_FORMAT: Shape = OneOf("png jpeg");
static GUARDED_SOURCE: Shape = Union(&[may("bytes", &BYTES)]);
static QUALIFIERS: Shape = List { of: &QUALIFIER, min: 0, max: MANY };
static QUALIFIER: Shape = OneOf("grounding_source query guard_content");

static CACHE_POINT: Shape = Object(&[need("type", &CACHE_TYPE), may("ttl", &CACHE_TTL)]);
static CACHE_TYPE: Shape = OneOf("default");
static CACHE_TTL: Shape = OneOf("5m 1h");

static REASONING: Shape = Union(&[may("reasoningText", &REASONING_TEXT), may("redactedContent", &BYTES)]);
static REASONING_TEXT: Shape = Object(&[need("text", &STRING), may("signature", &STRING)]);
static CITATIONS_CONTENT: Shape = Object(&[may("content", &DOCUMENT_CONTENT), may("citations", &CITATIONS)]);
static CITATIONS: Shape = List { of: &CITATION, min: 0, max: MANY };
static CITATION: Shape = Object(&[
    may("title", &STRING),
    may("source", &STRING),
    may("sourceContent", &DOCUMENT_CONTENT),
    may("location", &ANY),
]);

static SYSTEM: Shape = List { of: &SYSTEM_BLOCK, min: 0, max: MANY };
static SYSTEM_BLOCK: Shape =
    Union(&[may("text", &FILLED), may("guardContent", &GUARDED), may("cachePoint", &CACHE_POINT)]);

static INFERENCE: Shape = Object(&[
    may("maxTokens", &Count { least: 1 }),
    may("temperature", &Share),
    may("topP", &Share),
    may("stopSequences", &STOPS),
]);
static STOPS: Shape = List { of: &FILLED, min: 0, max: 2500 };

static TOOLS: Shape = Object(&[need("tools", &TOOL_LIST), may("toolChoice", &TOOL_CHOICE)]);
static TOOL_LIST: Shape = List { of: &TOOL, min: 1, max: MANY };
static TOOL: Shape =
    Union(&[may("toolSpec", &TOOL_SPEC), may("systemTool", &SYSTEM_TOOL), may("cachePoint", &CACHE_POINT)]);
static TOOL_SPEC: Shape = Object(&[
    need("name", &TOOL_NAME),
    may("description", &FILLED),
    need("inputSchema", &INPUT_SCHEMA),
    may("strict", &FLAG),
]);
static INPUT_SCHEMA: Shape = Union(&[may("json", &ANY)]);
static SYSTEM_TOOL: Shape = Object(&[need("name", &TOOL_NAME)]);
static TOOL_CHOICE: Shape = Union(&[may("auto", &NOTHING), may("any", &NOTHING), may("tool", &SYSTEM_TOOL)]);
static NOTHING: Shape = Object(&[]);

static GUARDRAIL: Shape = Object(&[
    may("guardrailIdentifier", &STRING),
    may("guardrailVersion", &STRING),
    may("trace", &OneOf("enabled disabled enabled_full")),
    may("streamProcessingMode", &OneOf("sync async")),
]);
static PATHS: Shape = List { of: &Text { min: 1, max: 256 }, min: 0, max: 10 };
static METADATA: Shape = Map { key: &METADATA_TEXT, value: &METADATA_TEXT, max: 16 };
static METADATA_TEXT: Shape = Plain { max: 256, allowed: metadata, pattern: "[a-zA-Z0-9\\s:_@$#=/+,-.]{1,256}" };
static PERFORMANCE: Shape = Object(&[may("latency", &OneOf("standard optimized"))]);
static TIER: Shape = Object(&[need("type", &OneOf("priority default flex reserved"))]);
static OUTPUT: Shape = Object(&[may("textFormat", &TEXT_FORMAT), may("effort", &Text { min: 0, max: 16 })]);
static TEXT_FORMAT: Shape = Object(&[need("type", &OneOf("json_schema")), need("structure", &STRUCTURE)]);
static STRUCTURE: Shape = Union(&[may("jsonSchema", &JSON_SCHEMA)]);
static JSON_SCHEMA: Shape = Object(&[need("schema", &STRING), may("name", &STRING), may("description", &STRING)]);

fn id(letter: char) -> bool {
    name(letter) || letter == '.' || letter == ':'
}

fn name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

fn metadata(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter.is_whitespace() || ":_@$#=/+,-.".contains(letter)
}
