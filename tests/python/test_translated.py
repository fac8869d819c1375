"""Anthropic's own client in front of upstreams that speak Chat Completions: it must not notice."""

import anthropic
import pytest
from conftest import INFERENCE_KEY, start_gateway

SCENARIOS = ["sim", "sim-thinking", "sim-tools", "sim-parallel-tools", "sim-refusal", "sim-cached", "sim-close-mid", "sim-error-mid"]
# What servers of this protocol are known to do; the simulator does it on demand.
QUIRKS = [
    "tool-call-first",
    "empty-text-first",
    "tools-finish-stop",
    "empty-content-between",
    "text-after-tools",
    "interleaved-calls",
    "all-index-zero",
    "no-index",
    "name-repeated",
    "ids-restart",
    "arguments-after-empty-object",
    "arguments-in-start",
    "arguments-object",
    "no-arguments",
    "usage-with-finish",
    "usage-late",
    "usage-twice",
    "usage-every-chunk",
    "usage-x-groq",
    "no-usage",
    "no-finish",
    "two-finishes",
    "no-done",
    "empty-choices-first",
    "matched-stop",
    "reasoning-field",
    "reasoning-both",
    "reasoning-details",
    "think-tags",
    "error-in-200",
    "error-finish",
    "error-string",
    "error-detail",
    "error-object",
    "whole-for-stream",
    "crlf",
    "cr",
    "comments",
    "multiline-data",
    "bom",
    "no-final-newline",
    "split-bytes",
]
TOOLS = [
    {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"name": "get_time", "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}}},
]


@pytest.fixture(scope="module")
def translated(upstream, tmp_path_factory):
    settings = f"""
[[providers]]
slug = "chatty"
protocol = "openai-chat"
base_url = "{upstream.url}/v1"
api_key = "chat-secret"
"""
    for name in SCENARIOS + [f"sim-quirk-{quirk}" for quirk in QUIRKS]:
        settings += f"""
[[models]]
id = "chat/{name}"
context_length = 200000
max_output_tokens = 8192
input_modalities = ["text", "image"]
[[models.endpoints]]
provider = "chatty"
model = "{name}"
pricing = {{ input = 3, output = 15 }}
card = {{ reasoning_field = "reasoning_content" }}
"""
    process = start_gateway(upstream, tmp_path_factory.mktemp("translated"), settings)
    yield process
    process.stop()


@pytest.fixture
def client(translated):
    return anthropic.Anthropic(base_url=translated.url, api_key=INFERENCE_KEY, max_retries=0, timeout=20)


def ask(model, **more):
    return {"model": f"chat/{model}", "max_tokens": 4096, "messages": [{"role": "user", "content": "hello"}], **more}


def streamed(client, request):
    """What the client's own accumulator makes of the stream."""
    with client.messages.stream(**request) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


def whole(client, request):
    return client.messages.create(**request)


@pytest.mark.parametrize("call", [whole, streamed])
def test_text_and_usage(client, call):
    message = call(client, ask("sim"))
    assert message.content[0].text == "You said: hello"
    assert (message.stop_reason, message.model, message.role) == ("end_turn", "chat/sim", "assistant")
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0


@pytest.mark.parametrize("call", [whole, streamed])
def test_thinking_is_signed_and_goes_back(client, call):
    request = ask("sim-thinking", thinking={"type": "adaptive"})
    message = call(client, request)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking and message.content[0].signature.startswith("tgs1.")
    turns = request["messages"] + [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]},
        {"role": "user", "content": "and now?"},
    ]
    assert call(client, {**request, "messages": turns}).stop_reason == "end_turn"


@pytest.mark.parametrize("call", [whole, streamed])
@pytest.mark.parametrize("model, calls", [("sim-tools", 1), ("sim-parallel-tools", 2)])
def test_tools_are_called_and_answered(client, call, model, calls):
    request = ask(model, tools=TOOLS)
    message = call(client, request)
    uses = [block for block in message.content if block.type == "tool_use"]
    assert (len(uses), message.stop_reason) == (calls, "tool_use")
    assert all(isinstance(use.input, dict) for use in uses) and len({use.id for use in uses}) == calls
    turns = request["messages"] + [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "12 °C"} for use in uses]},
    ]
    answer = call(client, {**request, "messages": turns})
    assert answer.content[-1].type == "text" and "12 °C" in answer.content[-1].text


@pytest.mark.parametrize("call", [whole, streamed])
def test_a_refusal_is_an_answer(client, call):
    assert call(client, ask("sim-refusal")).stop_reason == "refusal"


@pytest.mark.parametrize("model", ["sim-close-mid", "sim-error-mid"])
def test_a_broken_stream_raises(client, model):
    with pytest.raises((anthropic.APIStatusError, anthropic.APIConnectionError, anthropic.APIError)):
        streamed(client, ask(model))


@pytest.mark.parametrize("call", [whole, streamed])
@pytest.mark.parametrize("quirk", QUIRKS)
@pytest.mark.parametrize("tools", [True, False])
def test_whatever_a_server_does_the_client_gets_an_answer(client, call, quirk, tools):
    """The text, or both calls with their inputs; or an error where the quirk is one."""
    request = ask(f"sim-quirk-{quirk}", stop_sequences=["<<END>>"], **({"tools": TOOLS} if tools else {}))
    if "error" in quirk:
        with pytest.raises(anthropic.APIError):
            call(client, request)
        return
    message = call(client, request)
    uses = [block for block in message.content if block.type == "tool_use"]
    # These think and call nothing.
    if tools and not quirk.startswith(("reasoning", "think")):
        assert (len(uses), message.stop_reason) == (2, "tool_use"), message
        assert all(isinstance(use.input, dict) for use in uses)
    else:
        assert "".join(block.text for block in message.content if block.type == "text"), message
    assert message.usage.output_tokens > 0
