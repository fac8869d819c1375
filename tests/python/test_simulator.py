"""The official clients of the vendors against the simulated upstream: that it speaks as the vendors do.

The simulator stands in for these vendors in every other test, so its answers are held against clients we did not write.
"""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request

import anthropic
import botocore.config
import botocore.eventstream
import botocore.exceptions
import botocore.session
import cohere
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types
from google.oauth2.credentials import Credentials
from mistralai.client import Mistral

HELLO = [{"role": "user", "content": "Hello there"}]
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
CHAT_TOOLS = [{"type": "function", "function": {"name": "tide_at", "parameters": SCHEMA}}]
RESPONSES_TOOLS = [{"type": "function", "name": "tide_at", "parameters": SCHEMA, "strict": False}]
STATUSES = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    503: openai.InternalServerError,
}


@pytest.fixture(scope="session")
def oai(upstream):
    return openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0, timeout=20)


@pytest.fixture(scope="session")
def google(upstream):
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=upstream.url))


# Chat Completions


def chat(oai, model, **more):
    return oai.chat.completions.create(model=model, **{"messages": HELLO, **more})


def chat_stream(oai, model, **more):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return list(chat(oai, model, **options, **more))


def joined(chunks, member):
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    return "".join(getattr(delta, member, None) or "" for delta in deltas)


def chat_calls(chunks):
    """Calls put together from their fragments, as applications do it."""
    calls = {}
    for chunk in chunks:
        for entry in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
            call = calls.setdefault(entry.index, {"id": None, "name": None, "arguments": ""})
            call["id"] = entry.id or call["id"]
            call["name"] = entry.function.name or call["name"]
            call["arguments"] += entry.function.arguments or ""
    return [calls[index] for index in sorted(calls)]


def test_chat_text(oai):
    whole = chat(oai, "sim")
    assert whole.choices[0].message.content == "You said: Hello there"
    assert (whole.choices[0].finish_reason, whole.object, whole.model) == ("stop", "chat.completion", "sim")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = chat_stream(oai, "sim")
    assert joined(chunks, "content") == "You said: Hello there"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    cut = chat(oai, "sim", max_completion_tokens=2)
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("You said:", "length")


@pytest.mark.parametrize("model, count", [("sim-tools", 1), ("sim-parallel-tools", 2)])
def test_chat_tools(oai, model, count):
    whole = chat(oai, model, tools=CHAT_TOOLS)
    calls = whole.choices[0].message.tool_calls
    assert whole.choices[0].finish_reason == "tool_calls" and whole.choices[0].message.content is None
    assert [call.function.name for call in calls] == ["tide_at"] * count
    assert json.loads(calls[0].function.arguments) == {"query": "Hello there"}
    streamed = chat_calls(chat_stream(oai, model, tools=CHAT_TOOLS))
    assert [call["arguments"] for call in streamed] == [call.function.arguments for call in calls]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "4.2 m"} for call in calls]
    turn = [*HELLO, whole.choices[0].message.model_dump(exclude_none=True), *results]
    assert "4.2 m" in chat(oai, model, tools=CHAT_TOOLS, messages=turn).choices[0].message.content


def test_chat_helper_accumulates_the_stream(oai):
    with oai.chat.completions.stream(model="sim-parallel-tools", messages=HELLO, tools=CHAT_TOOLS) as stream:
        for _ in stream:
            pass
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert [json.loads(call.function.arguments)["query"] for call in calls] == ["Hello there", "Hello there (2)"]


def test_chat_reasoning_refusal_and_cache(oai):
    thought = chat(oai, "sim-thinking")
    assert thought.choices[0].message.reasoning_content == joined(chat_stream(oai, "sim-thinking"), "reasoning_content")
    assert thought.usage.completion_tokens_details.reasoning_tokens > 0
    refused = chat(oai, "sim-refusal").choices[0]
    assert refused.message.refusal == joined(chat_stream(oai, "sim-refusal"), "refusal") != ""
    assert refused.message.content is None
    assert chat(oai, "sim-cached").usage.prompt_tokens_details.cached_tokens == 2048
    assert chat_stream(oai, "sim-cached")[-1].usage.prompt_tokens_details.cached_tokens == 2048


@pytest.mark.parametrize("status, kind", STATUSES.items())
def test_errors_of_openai(oai, status, kind):
    for ask in (chat, chat_stream, respond, response_events):
        with pytest.raises(kind) as raised:
            ask(oai, f"sim-status-{status}")
        assert raised.value.status_code == status and raised.value.request_id.startswith("req_sim_")
        if status == 429:
            assert raised.value.code == "rate_limit_exceeded"
            assert raised.value.response.headers["retry-after-ms"] == "1000"


def test_chat_faults(oai):
    with pytest.raises(openai.APIError, match="Overloaded"):
        chat_stream(oai, "sim-error-mid")
    # A closed connection is the transport's error, which the client lets through.
    with pytest.raises(Exception, match="peer closed connection"):
        chat_stream(oai, "sim-close-mid")
    with pytest.raises(openai.BadRequestError) as raised:
        chat(oai, "sim", messages=[{"role": "tool", "tool_call_id": "x", "content": "y"}])
    assert (raised.value.type, raised.value.param) == ("invalid_request_error", "messages.[0].role")


@pytest.mark.parametrize("quirk", ["crlf", "comments", "multiline-data", "split-bytes", "no-final-newline"])
def test_odd_framing_is_still_an_event_stream(oai, quirk):
    text = chat(oai, f"sim-quirk-{quirk}").choices[0].message.content
    assert joined(chat_stream(oai, f"sim-quirk-{quirk}"), "content") == text
    assert "🌊" in text


# Responses


def respond(oai, model, **more):
    return oai.responses.create(model=model, **{"input": "Hello there", "store": False, **more})


def response_events(oai, model, **more):
    return list(respond(oai, model, stream=True, **more))


def final(events):
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events[-1].response


def test_responses_text(oai):
    whole = respond(oai, "sim")
    assert (whole.output_text, whole.status, whole.error) == ("You said: Hello there", "completed", None)
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    events = response_events(oai, "sim")
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == final(events).output_text == whole.output_text
    assert events[-1].type == "response.completed"
    assert final(events).usage.output_tokens == whole.usage.output_tokens
    cut = respond(oai, "sim", input="word " * 30, max_output_tokens=16)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.parametrize("model, count", [("sim-tools", 1), ("sim-parallel-tools", 2)])
def test_responses_tools(oai, model, count):
    whole = respond(oai, model, tools=RESPONSES_TOOLS)
    assert [(item.type, item.name) for item in whole.output] == [("function_call", "tide_at")] * count
    events = response_events(oai, model, tools=RESPONSES_TOOLS)
    streamed = [item.arguments for item in final(events).output]
    assert streamed == [item.arguments for item in whole.output]
    deltas = [event for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(event.delta for event in deltas if event.output_index == 0) == streamed[0]
    outputs = [{"type": "function_call_output", "call_id": item.call_id, "output": "4.2 m"} for item in whole.output]
    turn = [{"role": "user", "content": "Hello there"}, *[item.model_dump() for item in whole.output], *outputs]
    assert "4.2 m" in respond(oai, model, tools=RESPONSES_TOOLS, input=turn).output_text


def test_responses_helper_accumulates_the_stream(oai):
    with oai.responses.stream(model="sim", input="Hello there") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == "You said: Hello there"


def test_responses_reasoning_refusal_and_cache(oai):
    wants = {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
    whole = respond(oai, "sim-thinking", **wants)
    reasoning, message = whole.output
    assert reasoning.type == "reasoning" and reasoning.encrypted_content and reasoning.summary[0].text
    events = response_events(oai, "sim-thinking", **wants)
    deltas = [event.delta for event in events if event.type == "response.reasoning_summary_text.delta"]
    assert "".join(deltas) == reasoning.summary[0].text
    assert final(events).output[0].encrypted_content == reasoning.encrypted_content
    assert whole.usage.output_tokens_details.reasoning_tokens > 0
    # Without being asked for, neither is there.
    bare = respond(oai, "sim-thinking").output[0]
    assert (bare.summary, bare.encrypted_content) == ([], None)
    turn = [{"role": "user", "content": "hi"}, reasoning.model_dump(exclude_none=True), message.model_dump(exclude_none=True)]
    assert respond(oai, "sim", input=[*turn, {"role": "user", "content": "again"}]).output_text == "You said: again"
    refused = respond(oai, "sim-refusal").output[0].content[0]
    assert refused.type == "refusal" and refused.refusal
    deltas = [event.delta for event in response_events(oai, "sim-refusal") if event.type == "response.refusal.delta"]
    assert "".join(deltas) == refused.refusal
    assert respond(oai, "sim-cached").usage.input_tokens_details.cached_tokens == 2048


def test_responses_faults(oai):
    error = response_events(oai, "sim-error-mid")[-1]
    assert (error.type, error.code, error.message) == ("error", "server_is_overloaded", "Overloaded")
    failed = response_events(oai, "sim-quirk-failed-event")[-1]
    assert (failed.type, failed.response.error.code) == ("response.failed", "server_error")
    with pytest.raises(Exception, match="peer closed connection"):
        response_events(oai, "sim-close-mid")
    with pytest.raises(openai.BadRequestError) as raised:
        respond(oai, "sim", input=[{"type": "function_call_output", "call_id": "c", "output": "x"}])
    assert raised.value.param == "input"
    with pytest.raises(openai.BadRequestError) as raised:
        respond(oai, "sim", max_output_tokens=1)
    assert (raised.value.param, raised.value.code) == ("max_output_tokens", "integer_below_min_value")


def test_responses_tokens_are_counted(oai):
    assert oai.responses.input_tokens.count(model="sim", input="Hello there").input_tokens > 0


# Gemini

DECLARED = types.Tool(function_declarations=[types.FunctionDeclaration(name="tide_at", parameters_json_schema=SCHEMA)])
MANUAL = types.AutomaticFunctionCallingConfig(disable=True)


def generate(google, model, contents="Hello there", **config):
    config = types.GenerateContentConfig(automatic_function_calling=MANUAL, **config)
    return google.models.generate_content(model=model, contents=contents, config=config)


def generate_stream(google, model, contents="Hello there", **config):
    config = types.GenerateContentConfig(automatic_function_calling=MANUAL, **config)
    return list(google.models.generate_content_stream(model=model, contents=contents, config=config))


def parts(chunks):
    return [part for chunk in chunks for part in chunk.candidates[0].content.parts or []]


def test_gemini_text(google):
    whole = generate(google, "sim")
    assert whole.text == "You said: Hello there"
    assert (whole.candidates[0].finish_reason, whole.model_version) == (types.FinishReason.STOP, "sim")
    usage = whole.usage_metadata
    assert usage.total_token_count == usage.prompt_token_count + usage.candidates_token_count
    chunks = generate_stream(google, "sim")
    assert len(chunks) > 3 and "".join(part.text for part in parts(chunks)) == whole.text
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP
    assert all(chunk.candidates[0].finish_reason is None for chunk in chunks[:-1])
    assert chunks[-1].usage_metadata.candidates_token_count == usage.candidates_token_count
    cut = generate(google, "sim", max_output_tokens=2)
    assert (cut.text, cut.candidates[0].finish_reason) == ("You said:", types.FinishReason.MAX_TOKENS)


@pytest.mark.parametrize("model, count", [("sim-tools", 1), ("sim-parallel-tools", 2)])
def test_gemini_tools(google, model, count):
    whole = generate(google, model, tools=[DECLARED])
    calls = whole.function_calls
    assert [call.name for call in calls] == ["tide_at"] * count and calls[0].args == {"query": "Hello there"}
    found = whole.candidates[0].content.parts
    assert found[0].thought_signature and not any(part.thought_signature for part in found[1:])
    streamed = [part.function_call.args for part in parts(generate_stream(google, model, tools=[DECLARED])) if part.function_call]
    assert streamed == [call.args for call in calls]
    answers = [types.Part.from_function_response(name=call.name, response={"output": "4.2 m"}) for call in calls]
    turn = [
        types.Content(role="user", parts=[types.Part(text="Hello there")]),
        whole.candidates[0].content,
        types.Content(role="user", parts=answers),
    ]
    assert "4.2 m" in generate(google, model, turn, tools=[DECLARED]).text


def test_gemini_thinking_refusal_and_cache(google):
    shown = types.ThinkingConfig(include_thoughts=True, thinking_budget=1024)
    whole = generate(google, "sim-thinking", thinking_config=shown)
    thought, text = whole.candidates[0].content.parts
    assert thought.thought and thought.text and text.thought_signature and whole.text == "High water is at noon."
    streamed = parts(generate_stream(google, "sim-thinking", thinking_config=shown))
    assert "".join(part.text for part in streamed if part.thought) == thought.text
    assert whole.usage_metadata.thoughts_token_count > 0
    assert len(generate(google, "sim-thinking").candidates[0].content.parts) == 1
    assert generate(google, "sim-refusal").candidates[0].finish_reason == types.FinishReason.SAFETY
    assert generate_stream(google, "sim-refusal")[-1].candidates[0].finish_reason == types.FinishReason.SAFETY
    assert generate(google, "sim-cached").usage_metadata.cached_content_token_count == 2048
    blocked = generate(google, "sim-quirk-blocked-prompt")
    assert blocked.prompt_feedback.block_reason == types.BlockedReason.PROHIBITED_CONTENT and not blocked.candidates


@pytest.mark.parametrize("status, word", [(400, "INVALID_ARGUMENT"), (429, "RESOURCE_EXHAUSTED"), (503, "UNAVAILABLE")])
def test_errors_of_google(google, status, word):
    kind = google_errors.ClientError if status < 500 else google_errors.ServerError
    for ask in (generate, generate_stream):
        with pytest.raises(kind) as raised:
            ask(google, f"sim-status-{status}")
        assert (raised.value.code, raised.value.status) == (status, word)
        if status != 400:
            assert raised.value.details["error"]["details"][-1]["retryDelay"] == "1s"


def test_gemini_faults(google):
    with pytest.raises(google_errors.ServerError):
        generate_stream(google, "sim-error-mid")
    with pytest.raises(Exception, match="peer closed connection"):
        generate_stream(google, "sim-close-mid")
    orphan = types.Content(role="user", parts=[types.Part.from_function_response(name="f", response={"output": "x"})])
    with pytest.raises(google_errors.ClientError, match="immediately after a function call turn"):
        generate(google, "sim", [orphan])


def test_gemini_tokens_are_counted(google):
    assert google.models.count_tokens(model="sim", contents="Hello there").total_tokens > 0


# Amazon Bedrock

ASKED = [{"role": "user", "content": [{"text": "Hello there"}]}]
SPEC = {"toolSpec": {"name": "tide_at", "inputSchema": {"json": SCHEMA}}}


def bedrock_client(upstream, secret="simawssecret", key="SIMAWSKEY"):
    config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=20)
    session = botocore.session.Session()
    return session.create_client(
        "bedrock-runtime",
        region_name="eu-north-1",
        endpoint_url=upstream.url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=config,
    )


@pytest.fixture(scope="session")
def bedrock(upstream):
    return bedrock_client(upstream)


def converse(bedrock, model, **more):
    return bedrock.converse(modelId=model, **{"messages": ASKED, **more})


def converse_events(bedrock, model, **more):
    return list(bedrock.converse_stream(modelId=model, **{"messages": ASKED, **more})["stream"])


def named(events, name):
    return [event[name] for event in events if name in event]


def deltas(events, *names):
    found = []
    for delta in (event["delta"] for event in named(events, "contentBlockDelta")):
        for name in names:
            delta = delta.get(name, {})
        found.append(delta or "")
    return "".join(found)


def test_converse_text(bedrock):
    whole = converse(bedrock, "sim")
    assert whole["output"]["message"] == {"role": "assistant", "content": [{"text": "You said: Hello there"}]}
    assert whole["stopReason"] == "end_turn"
    assert whole["usage"]["totalTokens"] == whole["usage"]["inputTokens"] + whole["usage"]["outputTokens"]
    events = converse_events(bedrock, "sim")
    assert list(events[0]) == ["messageStart"] and list(events[-1]) == ["metadata"]
    assert deltas(events, "text") == "You said: Hello there"
    assert named(events, "messageStop")[0]["stopReason"] == "end_turn"
    assert events[-1]["metadata"]["usage"]["outputTokens"] == whole["usage"]["outputTokens"]
    cut = converse(bedrock, "sim", inferenceConfig={"maxTokens": 2})
    assert (cut["output"]["message"]["content"][0]["text"], cut["stopReason"]) == ("You said:", "max_tokens")
    asked = {"inferenceConfig": {"stopSequences": ["there"]}, "additionalModelResponseFieldPaths": ["/stop_sequence"]}
    stopped = converse(bedrock, "sim", **asked)
    assert (stopped["stopReason"], stopped["additionalModelResponseFields"]) == ("stop_sequence", {"stop_sequence": "there"})


@pytest.mark.parametrize("model, count", [("sim-tools", 1), ("sim-parallel-tools", 2)])
def test_converse_tools(bedrock, model, count):
    whole = converse(bedrock, model, toolConfig={"tools": [SPEC]})
    calls = [block["toolUse"] for block in whole["output"]["message"]["content"]]
    assert [call["name"] for call in calls] == ["tide_at"] * count and calls[0]["input"] == {"query": "Hello there"}
    events = converse_events(bedrock, model, toolConfig={"tools": [SPEC]})
    assert len(named(events, "contentBlockStart")) == count
    inputs = [event for event in named(events, "contentBlockDelta") if event["contentBlockIndex"] == 0]
    assert json.loads("".join(event["delta"]["toolUse"]["input"] for event in inputs)) == calls[0]["input"]
    results = [{"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": "4.2 m"}]}} for call in calls]
    turn = [*ASKED, whole["output"]["message"], {"role": "user", "content": results}]
    answer = converse(bedrock, model, messages=turn, toolConfig={"tools": [SPEC]})
    assert "4.2 m" in answer["output"]["message"]["content"][0]["text"]


def test_converse_thinking_refusal_and_cache(bedrock):
    reasoning, text = converse(bedrock, "sim-thinking")["output"]["message"]["content"]
    reasoning = reasoning["reasoningContent"]["reasoningText"]
    events = converse_events(bedrock, "sim-thinking")
    assert deltas(events, "reasoningContent", "text") == reasoning["text"]
    assert deltas(events, "reasoningContent", "signature") == reasoning["signature"]
    assert deltas(events, "text") == text["text"]
    redacted = converse(bedrock, "sim-redacted")["output"]["message"]["content"][0]["reasoningContent"]
    assert redacted["redactedContent"] == b"simulated secret"
    assert converse(bedrock, "sim-refusal")["stopReason"] == "content_filtered"
    usage = converse(bedrock, "sim-cached")["usage"]
    assert (usage["cacheReadInputTokens"], len(usage["cacheDetails"])) == (2048, 2)


def test_converse_faults(bedrock):
    for status, name in [(400, "ValidationException"), (403, "AccessDeniedException"), (429, "ThrottlingException")]:
        for ask in (converse, converse_events):
            with pytest.raises(botocore.exceptions.ClientError) as raised:
                ask(bedrock, f"sim-status-{status}")
            assert raised.value.response["Error"]["Code"] == name
            assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    with pytest.raises(botocore.exceptions.EventStreamError, match="serviceUnavailableException.*Overloaded"):
        converse_events(bedrock, "sim-error-mid")
    with pytest.raises(botocore.exceptions.EventStreamError, match="InternalError"):
        converse_events(bedrock, "sim-quirk-error-frame")
    with pytest.raises(botocore.eventstream.ChecksumMismatch):
        converse_events(bedrock, "sim-quirk-bad-checksum")
    with pytest.raises(botocore.exceptions.ClientError, match="must alternate"):
        converse(bedrock, "sim", messages=[*ASKED, *ASKED])
    assert deltas(converse_events(bedrock, "sim-quirk-split-bytes"), "text").startswith("Høyvann")


def test_bedrock_signatures(upstream, bedrock):
    for wrong in (bedrock_client(upstream, secret="other"), bedrock_client(upstream, secret="simawssecret ")):
        with pytest.raises(botocore.exceptions.ClientError) as raised:
            converse(wrong, "sim")
        assert raised.value.response["Error"]["Code"] == "InvalidSignatureException"
    # Characters that a path must not have are encoded once on the way and once more under the signature.
    profile = "arn:aws:bedrock:eu-north-1:111122223333:inference-profile/eu.example.model-v1:0"
    assert converse(bedrock, profile)["output"]["message"]["content"]
    assert "%2Feu.example" in upstream.last_request()[0]["path"]


INVOKED = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello there"}]}


def test_messages_over_bedrock(bedrock):
    whole = json.loads(bedrock.invoke_model(modelId="sim", body=json.dumps(INVOKED))["body"].read())
    assert whole["content"][0]["text"] == "You said: Hello there"
    stream = bedrock.invoke_model_with_response_stream(modelId="sim", body=json.dumps(INVOKED))["body"]
    events = [json.loads(event["chunk"]["bytes"]) for event in stream]
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    assert "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta") == whole["content"][0]["text"]
    assert events[-1]["amazon-bedrock-invocationMetrics"]["outputTokenCount"] == whole["usage"]["output_tokens"]
    with pytest.raises(botocore.exceptions.ClientError, match="invalid beta flag"):
        bedrock.invoke_model(modelId="sim", body=json.dumps({**INVOKED, "anthropic_beta": ["unheard-of"]}))


def test_bedrock_tokens_are_counted(bedrock):
    assert bedrock.count_tokens(modelId="sim", input={"converse": {"messages": ASKED}})["inputTokens"] > 0
    assert bedrock.count_tokens(modelId="sim", input={"invokeModel": {"body": json.dumps(INVOKED)}})["inputTokens"] > 0


def test_anthropics_client_for_bedrock(upstream):
    client = anthropic.AnthropicBedrock(
        base_url=upstream.url, aws_region="eu-north-1", aws_access_key="OTHER", aws_secret_key="s", max_retries=0
    )
    asked = {"model": "sim", "max_tokens": 50, "messages": HELLO}
    assert client.messages.create(**asked).content[0].text == "You said: Hello there"
    with client.messages.stream(**asked) as stream:
        assert stream.get_final_text() == "You said: Hello there"


# Vertex AI


def test_anthropics_client_for_vertex(upstream):
    client = anthropic.AnthropicVertex(
        base_url=f"{upstream.url}/v1", region="europe-north1", project_id="p", access_token="ya29.x", max_retries=0
    )
    asked = {"model": "sim", "max_tokens": 50, "messages": HELLO}
    assert client.messages.create(**asked).content[0].text == "You said: Hello there"
    with client.messages.stream(**asked) as stream:
        assert stream.get_final_text() == "You said: Hello there"
    assert client.messages.count_tokens(model="sim", messages=HELLO).input_tokens > 0
    with pytest.raises(anthropic.RateLimitError):
        client.messages.create(**{**asked, "model": "sim-status-429"})


def test_gemini_on_vertex(upstream):
    options = types.HttpOptions(base_url=upstream.url)
    token = Credentials("ya29.x")
    client = genai.Client(vertexai=True, project="p", location="global", credentials=token, http_options=options)
    assert generate(client, "sim").text == "You said: Hello there"
    assert "/publishers/google/models/sim:generateContent" in upstream.last_request()[0]["path"]
    assert "".join(part.text for part in parts(generate_stream(client, "sim"))) == "You said: Hello there"
    assert client.models.count_tokens(model="sim", contents="Hello there").total_tokens > 0
    bare = urllib.request.Request(f"{upstream.url}/v1/projects/p/locations/l/publishers/google/models/sim:generateContent", b"{}")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(bare)
    assert raised.value.code == 401


def test_a_service_account_gets_a_token(upstream):
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    def ask(**claims):
        claims = {"iss": "a@p.iam", "scope": "cloud", "aud": f"{upstream.url}/token", "iat": 1000, "exp": 4600, **claims}
        jwt = f"{part({'alg': 'RS256', 'typ': 'JWT'})}.{part(claims)}.c2ln"
        form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": jwt}
        return urllib.request.urlopen(f"{upstream.url}/token", urllib.parse.urlencode(form).encode())

    with ask() as answer:
        token = json.load(answer)
    assert token["access_token"].startswith("ya29.sim-") and token["expires_in"] == 3600
    with pytest.raises(urllib.error.HTTPError) as raised:
        ask(exp=4601)
    assert json.load(raised.value)["error"] == "invalid_grant"


# Cohere


@pytest.fixture(scope="session")
def co(upstream):
    return cohere.ClientV2(api_key="k", base_url=upstream.url, timeout=20)


def test_cohere_text(co):
    whole = co.chat(model="sim", messages=HELLO)
    assert (whole.message.content[0].text, whole.finish_reason) == ("You said: Hello there", "COMPLETE")
    assert isinstance(whole.usage.tokens.output_tokens, float)
    events = list(co.chat_stream(model="sim", messages=HELLO))
    assert (events[0].type, events[-1].type) == ("message-start", "message-end")
    text = "".join(event.delta.message.content.text for event in events if event.type == "content-delta")
    assert text == whole.message.content[0].text
    assert events[-1].delta.usage.tokens.output_tokens == whole.usage.tokens.output_tokens
    assert co.chat(model="sim", messages=HELLO, max_tokens=2).finish_reason == "MAX_TOKENS"
    assert co.chat(model="sim", messages=HELLO, stop_sequences=["there"]).finish_reason == "STOP_SEQUENCE"
    thought = co.chat(model="sim-thinking", messages=HELLO).message.content
    assert [item.type for item in thought] == ["thinking", "text"]


@pytest.mark.parametrize("model, count", [("sim-tools", 1), ("sim-parallel-tools", 2)])
def test_cohere_tools(co, model, count):
    whole = co.chat(model=model, messages=HELLO, tools=CHAT_TOOLS)
    calls = whole.message.tool_calls
    assert whole.finish_reason == "TOOL_CALL" and whole.message.tool_plan
    assert [call.function.name for call in calls] == ["tide_at"] * count
    events = list(co.chat_stream(model=model, messages=HELLO, tools=CHAT_TOOLS))
    plan = "".join(event.delta.message.tool_plan for event in events if event.type == "tool-plan-delta")
    assert plan == whole.message.tool_plan
    first = [event.delta.message.tool_calls.function.arguments for event in events if event.type == "tool-call-delta" and event.index == 0]
    assert json.loads("".join(first)) == json.loads(calls[0].function.arguments) == {"query": "Hello there"}
    results = [{"role": "tool", "tool_call_id": call.id, "content": "4.2 m"} for call in calls]
    assistant = {"role": "assistant", "tool_plan": plan, "tool_calls": [call.model_dump() for call in calls]}
    answer = co.chat(model=model, messages=[*HELLO, assistant, *results], tools=CHAT_TOOLS)
    assert "4.2 m" in answer.message.content[0].text


def test_cohere_citations_errors_and_models(co, upstream):
    documents = [{"id": "d", "data": {"title": "Tides", "text": "High water is at noon."}}]
    whole = co.chat(model="sim", messages=HELLO, documents=documents)
    assert (whole.message.citations[0].text, whole.message.citations[0].sources[0].id) == ("You", "d")
    events = list(co.chat_stream(model="sim", messages=HELLO, documents=documents))
    cited = [event.delta.message.citations for event in events if event.type == "citation-start"]
    assert cited[0].sources[0].id == "d"
    once = {"max_retries": 0}
    with pytest.raises(cohere.errors.TooManyRequestsError):
        co.chat(model="sim-status-429", messages=HELLO, request_options=once)
    strict = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}]
    with pytest.raises(cohere.errors.UnprocessableEntityError, match="'strict' is not a valid field"):
        co.chat(model="sim", messages=HELLO, tools=strict, request_options=once)
    broken = list(co.chat_stream(model="sim-error-mid", messages=HELLO))[-1]
    assert (broken.delta.finish_reason, broken.delta.error) == ("ERROR", "Overloaded")
    assert "sim" in [model.name for model in cohere.Client(api_key="k", base_url=upstream.url).models.list().models]


# Mistral


@pytest.fixture(scope="session")
def mistral(upstream):
    return Mistral(api_key="k", server_url=upstream.url, timeout_ms=20000)


def test_mistral(mistral):
    assert mistral.chat.complete(model="sim", messages=HELLO).choices[0].message.content == "You said: Hello there"
    chunks = [event.data for event in mistral.chat.stream(model="sim", messages=HELLO)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "You said: Hello there"
    thinking, text = mistral.chat.complete(model="sim-quirk-mistral-thinking", messages=HELLO).choices[0].message.content
    assert (thinking.type, thinking.thinking[0].type, text.text) == ("thinking", "text", "High water is at noon.")
    chunks = [event.data.choices[0].delta.content for event in mistral.chat.stream(model="sim-quirk-mistral-thinking", messages=HELLO)]
    assert any(isinstance(content, list) and content[0].type == "thinking" for content in chunks)
    calls = mistral.chat.complete(model="sim-quirk-ids-null", messages=HELLO, tools=CHAT_TOOLS).choices[0].message.tool_calls
    assert [call.id for call in calls] == ["null", "null"]
    calls = mistral.chat.complete(model="sim-quirk-arguments-object", messages=HELLO, tools=CHAT_TOOLS).choices[0].message.tool_calls
    assert calls[0].function.arguments == {"query": "Hello there"}
    assert mistral.chat.complete(model="sim-quirk-model-length", messages=HELLO).choices[0].finish_reason == "model_length"
    started = [*HELLO, {"role": "assistant", "content": "Well, ", "prefix": True}]
    assert mistral.chat.complete(model="sim-quirk-prefix-repeated", messages=started).choices[0].message.content.startswith("Well, ")
