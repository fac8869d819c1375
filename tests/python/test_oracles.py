"""The golden cases of the provider adapters, held to the vendors' own types: what we send is what their clients could
send, what our samples answer is what their clients could read, and what comes out is what Anthropic's client reads."""

import inspect
import json

import anthropic.types
import botocore.session
import cohere
import google.genai.types as genai
import mistralai.client.models as mistral
import openai.types.chat
import openai.types.responses
import pydantic
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from botocore.validate import ParamValidator
from conftest import ROOT
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming
from shapes import MISSING, UNKNOWN, Difference, differences, service_differences

CASES = ROOT / "crates/providers/tests/golden/cases"
BEDROCK = botocore.session.get_session().get_service_model("bedrock-runtime")


def cases(file):
    """The folders that hold such a file, by name."""
    found = sorted(path.parent for path in CASES.glob(f"*/*/{file}"))
    return [pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in found]


def said(path):
    """What a case says of itself."""
    file = path / "case.json"
    return json.loads(file.read_text()) if file.exists() else {}


def read(path, file):
    return json.loads((path / file).read_text())


def check(found, allowed=(), missing=()):
    """Fails with all differences but unknown members that are allowed and missing ones that may be."""
    left = [one for one in found if not (one.kind == UNKNOWN and one.name in allowed or one.kind == MISSING and one.name in missing)]
    assert not left, "\n".join(map(str, left))


def is_odd(path, found):
    """Whether a case is one that differs on purpose. One that does not differ is no exception."""
    reason = ODD.get(f"{path.parent.name}/{path.name}")
    assert reason is None or found, f"this is not odd: {reason}"
    return reason is not None


# Cases that are not what a vendor's client would send or read, and why. Members of a dialect are not in here but below.
ODD = {
    # Sent.
    "chat/p27-p28-images-in-results": "some chat servers take images in results, OpenAI's own does not",
    "chat/p28-result-keeps-its-order": "some chat servers take images in results, OpenAI's own does not",
    "chat/tier-at-groq": "Groq has tiers of its own",
    # Answers that are errors, or nothing.
    "chat/answer-without-choices": "an answer of nothing",
    "chat/p20-error-chunk": "an error in the middle of a stream",
    "chat/p82-error-in-a-200": "an error instead of an answer",
    "chat/p82-minimax-1000": "an error of MiniMax's beside an answer of nothing",
    "chat/p82-minimax-1002": "an error of MiniMax's beside an answer of nothing",
    "chat/p82-minimax-1004": "an error of MiniMax's beside an answer of nothing",
    "chat/p82-minimax-1008": "an error of MiniMax's beside an answer of nothing",
    "chat/p82-minimax-1026": "an error of MiniMax's beside an answer of nothing",
    "chat/p82-minimax-2013": "an error of MiniMax's beside an answer of nothing",
    "chat/p81-failed-call-in-a-stream": "an error of Groq's in place of a call",
    "chat/p81-failed-call-that-is-none": "an error of Groq's in place of a call",
    "cohere/p82-error-in-a-200": "an error instead of an answer",
    "converse/no_message": "an answer of nothing",
    "converse/p74_nothing_said": "an answer of nothing",
    "converse/p20_modeltimeout": "an exception that the service model lists for whole answers only",
    "gemini/p74_nulls": "an error instead of an answer",
    "gemini/p82_error_in_a_list": "an error instead of an answer, in a list",
    "gemini/p82_error_in_an_answer": "an error instead of an answer",
    "responses/p82-error-in-a-200": "an error instead of an answer",
    # Whole answers to a request for a stream.
    "chat/answered-whole": "a whole answer where a stream was asked for",
    "cohere/stream-answered-whole": "a whole answer where a stream was asked for",
    "responses/stream-answered-whole": "a whole answer where a stream was asked for",
    # Words and members that servers use and the clients do not know.
    "chat/e09-nothing-counts-after-the-usage": "a chunk without choices after the end",
    "gemini/answer_absurd_usage": "numbers of tokens that are none",
    "chat/finish-abort": "a reason to end of vLLM's",
    "chat/finish-network-error": "a reason to end of Z.AI's",
    "chat/p73-finish-sensitive": "a reason to end of Z.AI's",
    "chat/p82-minimax-0": "what MiniMax says beside every answer",
    "chat/perplexity-research": "counts of Perplexity's",
    "chat/finish-eos": "a reason to end of another server's",
    "chat/finish-eos-token": "a reason to end of another server's",
    "chat/finish-error": "a reason to end of OpenRouter's",
    "chat/finish-max-tokens": "a reason to end of another server's",
    "chat/finish-model-length": "a reason to end of Mistral's",
    "chat/finish-no-resources": "a reason to end of DeepSeek's",
    "chat/finish-none": "no reason to end",
    "chat/finish-unknown": "a reason to end that nobody knows",
    "chat/numbers-in-quotes-and-ids-that-are-numbers": "types that some servers confuse",
    "chat/p73-finish-guardrail-intervened": "a reason to end of another server's",
    "chat/p73-finish-refusal": "a reason to end of another server's",
    "converse/answer_unknown_stop": "a reason to end that nobody knows",
    "gemini/answer_unknown_reason": "a reason to end that nobody knows",
    "gemini/p74_missing_thought_signature": "a reason to end that the client does not know yet",
    "converse/answer_citations": "a place in a document of a kind that nobody knows",
    "converse/answer_omitted": "media without their bytes, and a block that nobody knows",
    "converse/stream_unknown_events": "events and members that nobody knows",
    "gemini/answer_other_parts": "a part that nobody knows",
    "responses/answer-unknown-item": "an item of a kind that is not read, with members that are",
    "responses/p85-stream-with-names-alone": "events that say what they are in their name only",
    # Values of another type than documented.
    "chat/numbers-as-floats": "numbers with a point",
    "chat/odd-members-spoil-nothing": "members of other types, and a chunk that is null",
    "chat/p10-p14-answer-arguments": "arguments that are null",
    "chat/p13-answer-arguments-object": "arguments that are an object",
    "chat/p13-arguments-as-object": "arguments that are an object",
    "converse/answer_p71_cache_usage": "numbers with a point",
    "gemini/answer_float_usage": "numbers with a point",
    "responses/answer-floats-and-nulls": "numbers with a point, and nulls",
}


# What we send.

# Members that a provider's dialect adds to OpenAI's chat protocol. Everybody else gets what OpenAI's client knows.
DIALECTS = {
    "alibaba": {"enable_thinking", "thinking_budget", "cache_control"},
    "deepseek": {"thinking", "reasoning_content"},
    "groq": {"reasoning_format"},
    "moonshotai": {"thinking", "reasoning_content"},
    "openrouter": {"reasoning", "reasoning_details"},
    "vllm": {
        "top_k",
        "chat_template_kwargs",
        "reasoning",
        "add_generation_prompt",
        "continue_final_message",
        "continuous_usage_stats",
    },
}


def dialect(case):
    """Unknown members that a case explains: by its provider, or by a card that asks for them."""
    card = case.get("card", {})
    allowed = set(DIALECTS.get(case.get("provider"), ())) | set(card.get("extra_allow", ()))
    if card.get("top_k"):
        allowed.add("top_k")
    return allowed


def sent_to_chat(body, case):
    if case.get("provider") == "mistral":
        kind = mistral.ChatCompletionStreamRequest if body.get("stream") else mistral.ChatCompletionRequest
        return differences(body, kind)
    kind = CompletionCreateParamsStreaming if body.get("stream") else CompletionCreateParamsNonStreaming
    return differences(body, kind)


def sent_to_responses(body, case):
    kind = ResponseCreateParamsStreaming if body.get("stream") else ResponseCreateParamsNonStreaming
    # An answer of the model goes back without the id and the state it had there: nothing is stored that they could
    # name. The client's type describes the item as it was given out.
    for item in body["input"]:
        if item.get("role") == "assistant":
            item.update(id="msg_1", status="completed")
    return differences(body, kind)


GEMINI = {
    "contents": list[genai.Content],
    "systemInstruction": genai.Content,
    "tools": list[genai.Tool],
    "toolConfig": genai.ToolConfig,
    "generationConfig": genai.GenerationConfig,
    "serviceTier": str,
}


def sent_to_gemini(body, case):
    # The client writes these members itself, from one flat configuration.
    found = [Difference("", UNKNOWN, f"{name} is unknown", name) for name in body if name not in GEMINI]
    return found + [one for name, kind in GEMINI.items() if name in body for one in differences(body[name], kind, f".{name}")]


def sent_to_converse(body, case):
    shape = BEDROCK.operation_model("Converse").input_shape
    whole = {"modelId": "m", **body}
    report = ParamValidator().validate(whole, shape)
    assert not report.has_errors(), report.generate_report()
    return service_differences(whole, shape)


def sent_to_cohere(body, case):
    from cohere.v2.client import V2Client

    call = V2Client.chat_stream if body.get("stream") else V2Client.chat
    known = inspect.signature(call, eval_str=True).parameters
    body = {name: value for name, value in body.items() if name != "stream"}
    found = [Difference("", UNKNOWN, f"{name} is unknown", name) for name in body if name not in known]
    found += [Difference("", MISSING, f"{name} is missing", name) for name in ("model", "messages") if name not in body]
    return found + [one for name in body if name in known for one in differences(body[name], known[name].annotation, f".{name}")]


SENT = {
    "chat": sent_to_chat,
    "responses": sent_to_responses,
    "gemini": sent_to_gemini,
    "converse": sent_to_converse,
    "cohere": sent_to_cohere,
}


@pytest.mark.parametrize("path", cases("upstream.json"))
def test_what_is_sent_is_what_the_vendors_client_could_send(path):
    case = said(path)
    found = SENT[path.parent.name](read(path, "upstream.json"), case)
    if not is_odd(path, found):
        check(found, dialect(case))


# What is answered.

# Members of an answer's envelope that a sample may leave out: nothing is read from them.
TRIMMED = {
    "chat": {"created", "id", "model", "object", "role", "total_tokens"},
    "responses": {
        "created_at", "id", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools",
        "input_tokens_details", "output_tokens_details", "total_tokens",
        "annotation_index", "content_index", "item_id", "logprobs", "name", "part", "sequence_number", "status", "role",
        "action",
    },
    "gemini": set(),
    "converse": {"metrics", "usage"},
    "cohere": {"id"},
}
# Members that servers add to OpenAI's answers.
ADDED = {
    "chat": {
        "annotations", "citations", "error", "matched_stop", "num_cached_tokens", "prompt_cache_hit_tokens",
        "prompt_filter_results", "reasoning", "reasoning_content", "reasoning_details", "search_results", "service_tier",
        "stop_reason", "x_groq",
    },
    # What the client reads of the first event is less than what the server sends in it.
    "cohere": {"citations", "content", "tool_calls", "tool_plan"},
}
# Where the member that is missing is what the case is about.
WITHOUT = {
    "chat/p08-one-call-per-chunk-without-index": {"index"},
    "responses/p09-calls-told-apart-by-item-id": {"output_index", "arguments"},
}


def check_sample(path, found):
    if not is_odd(path, found):
        protocol = path.parent.name
        without = WITHOUT.get(f"{protocol}/{path.name}", set())
        check(found, ADDED.get(protocol, ()), TRIMMED[protocol] | without)


def frames(text):
    """Name and data of every event of a stream of text."""
    name, data = "", []
    for line in [*text.splitlines(), ""]:
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line:
            if data:
                yield name, "\n".join(data)
            name, data = "", []


def is_mistrals(path):
    return said(path).get("provider") == "mistral" or "mistral" in path.name


def answered(path, body):
    match path.parent.name:
        case "chat" if is_mistrals(path):
            return differences(body, mistral.ChatCompletionResponse)
        case "chat":
            return differences(body, openai.types.chat.ChatCompletion)
        case "responses":
            return differences(body, openai.types.responses.Response)
        case "gemini":
            return differences(body, genai.GenerateContentResponse)
        case "converse":
            return service_differences(body, BEDROCK.operation_model("Converse").output_shape)
        case "cohere":
            return differences(body, cohere.V2ChatResponse)


def streamed(path, text):
    if path.parent.name == "converse":
        events = BEDROCK.operation_model("ConverseStream").get_event_stream_output()
        pairs = [line.partition(" ") for line in text.splitlines() if line.strip()]
        whole = [{name.removeprefix("!"): json.loads(data or "{}")} for name, _, data in pairs]
        return [found for event in whole for found in service_differences(event, events)]
    kind = {
        "chat": mistral.CompletionChunk if is_mistrals(path) else openai.types.chat.ChatCompletionChunk,
        "responses": openai.types.responses.ResponseStreamEvent,
        "gemini": genai.GenerateContentResponse,
        "cohere": cohere.V2ChatStreamResponse,
    }[path.parent.name]
    events = [json.loads(data) for _, data in frames(text) if data and data != "[DONE]"]
    return [found for place, event in enumerate(events) for found in differences(event, kind, f"event {place}")]


@pytest.mark.parametrize("path", cases("answer.json"))
def test_samples_of_answers_are_what_the_vendors_client_reads(path):
    if path.name == "answer-not-json":
        with pytest.raises(json.JSONDecodeError):
            read(path, "answer.json")
        return
    check_sample(path, answered(path, read(path, "answer.json")))


@pytest.mark.parametrize("path", cases("stream.txt"))
def test_samples_of_streams_are_what_the_vendors_client_reads(path):
    check_sample(path, streamed(path, (path / "stream.txt").read_text()))


# What the client gets.

@pytest.mark.parametrize("path", cases("message.json"))
def test_a_message_is_one_to_anthropics_client(path):
    body = read(path, "message.json")
    anthropic.types.Message.model_validate(body)
    check(differences(body, anthropic.types.Message), PRICED)


# What a price needs and Anthropic's own usage has no place for. Its client keeps unknown members and minds none.
PRICED = {
    "billed_units", "clamped", "cost", "input_tokens_details", "image_tokens", "audio_tokens", "output_tokens_details",
    "web_fetch_requests",
}
# The tier is known only at the end of a stream, where the client's type has no place for it.
TOLD_LATE = {"service_tier"} | PRICED


@pytest.mark.parametrize("path", cases("events.txt"))
def test_events_are_a_message_to_anthropics_client(path):
    adapter = pydantic.TypeAdapter(anthropic.types.RawMessageStreamEvent)
    message, inputs, found, last = None, {}, [], None
    for name, data in frames((path / "events.txt").read_text()):
        event = json.loads(data)
        assert name == event["type"]
        found += differences(event, anthropic.types.RawMessageStreamEvent)
        message = accumulate_event(event=adapter.validate_python(event), current_snapshot=message, json_bufs=inputs)
        last = name
    check(found, TOLD_LATE)
    if last != "message_stop":
        # It broke off; nobody may take it for a message.
        assert "fault" in said(path) and message.stop_reason is None
        return
    assert message.stop_reason is not None
    check(differences(message.to_dict(), anthropic.types.Message), TOLD_LATE)
    for index, text in inputs.items():
        # What came in the middle of a call that was cut stands behind it.
        calls = [place for place, other in enumerate(message.content) if other.type == "tool_use"]
        is_cut = message.stop_reason in ("max_tokens", "refusal") and index == calls[-1]
        assert is_cut or json.loads(text) == message.content[index].input
    assert all(block.type != "tool_use" or index in inputs for index, block in enumerate(message.content))


def spoilt(value, place=()):
    """The value with a member that nobody knows in each of its objects, one at a time."""
    if isinstance(value, dict):
        yield {**value, "nobodys": 1}, place
        for name, inner in value.items():
            for changed, where in spoilt(inner, (*place, name)):
                yield {**value, name: changed}, where
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for changed, where in spoilt(inner, (*place, index)):
                yield [*value[:index], changed, *value[index + 1:]], where


# Objects that may hold anything.
OPEN = {"parameters", "json", "args", "input", "parametersJsonSchema", "requestMetadata", "response", "additionalModelRequestFields"}


@pytest.mark.parametrize("protocol", SENT)
def test_a_member_that_nobody_knows_is_found_wherever_it_stands(protocol):
    path = CASES / protocol / "sample"
    for body, place in spoilt(read(path, "upstream.json")):
        if not OPEN & set(place):
            try:
                found = SENT[protocol](body, said(path))
            except AssertionError:
                continue
            assert any("nobodys" in str(one) for one in found), place
