"""Anthropic's own client in front of upstreams that speak other protocols: it must not notice."""

import re

import anthropic
import pytest
from conftest import INFERENCE_KEY, ROOT, start_gateway

SCENARIOS = ["sim", "sim-thinking", "sim-tools", "sim-parallel-tools", "sim-refusal", "sim-cached", "sim-close-mid", "sim-error-mid"]
# Scenarios that end well, by the reason, and those that do not.
ENDINGS = {"sim-tokens-50x10": "end_turn", "sim-stop-max_tokens": "max_tokens", "sim-stop-end_turn": "end_turn"}
BROKEN = ["sim-garbage", "sim-garbage-stream", "sim-empty", "sim-truncated", "sim-close-frame", "sim-status-429", "sim-status-500"]
SCENARIOS += [*ENDINGS, *BROKEN]
# By the simulator's name: ours, and where it is spoken.
PROTOCOLS = {
    "Chat": ("openai-chat", "/v1"),
    "Responses": ("openai-responses", "/v1"),
    "Gemini": ("gemini", "/v1beta"),
    "Converse": ("bedrock-converse", ""),
    "Cohere": ("cohere", ""),
    "Invoke": ("anthropic", ""),
}
# Where the protocol alone does not say how it is carried.
PLATFORMS = {"Invoke": "bedrock-invoke"}


def quirks():
    """What servers are known to do, and in which protocols; the simulator does it on demand."""
    source = (ROOT / "crates/sim/src/quirk.rs").read_text()
    rows = re.findall(r'^    \w+ "([a-z0-9-]+)" ([A-Za-z ]+);$', source, re.MULTILINE)
    return [(protocol, name) for name, where in rows for protocol in where.split() if protocol in PROTOCOLS]


QUIRKS = quirks()
TOOLS = [
    {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"name": "get_time", "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}}},
]


@pytest.fixture(scope="module")
def translated(upstream, tmp_path_factory):
    settings = ""
    for slug, (protocol, path) in PROTOCOLS.items():
        settings += f"""
[[providers]]
slug = "the-{slug.lower()}"
protocol = "{protocol}"
base_url = "{upstream.url}{path}"
api_key = "upstream-secret"
{f'platform = "{PLATFORMS[slug]}"' if slug in PLATFORMS else ""}
"""
    for slug, name in [(slug, name) for slug in PROTOCOLS for name in SCENARIOS] + [(slug, f"sim-quirk-{quirk}") for slug, quirk in QUIRKS]:
        card = 'card = { think_tags = true }' if name.endswith("think-tags") else ""
        settings += f"""
[[models]]
id = "{slug.lower()}/{name}"
context_length = 200000
max_output_tokens = 8192
input_modalities = ["text", "image"]
[[models.endpoints]]
provider = "the-{slug.lower()}"
model = "{name}"
pricing = {{ input = 3, output = 15 }}
{card}
"""
    process = start_gateway(upstream, tmp_path_factory.mktemp("translated"), settings)
    yield process
    process.stop()


@pytest.fixture
def client(translated):
    return anthropic.Anthropic(base_url=translated.url, api_key=INFERENCE_KEY, max_retries=0, timeout=20)


def ask(protocol, model, **more):
    return {"model": f"{protocol.lower()}/{model}", "max_tokens": 4096, "messages": [{"role": "user", "content": "hello"}], **more}


def streamed(client, request):
    """What the client's own accumulator makes of the stream."""
    with client.messages.stream(**request) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


def whole(client, request):
    return client.messages.create(**request)


calls = pytest.mark.parametrize("call", [whole, streamed])
protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


@calls
@protocols
def test_text_and_usage(client, call, protocol):
    message = call(client, ask(protocol, "sim"))
    assert message.content[0].text == "You said: hello"
    assert (message.stop_reason, message.model, message.role) == ("end_turn", f"{protocol.lower()}/sim", "assistant")
    assert message.usage.input_tokens > 0 and message.usage.output_tokens > 0


@calls
@protocols
def test_thinking_is_signed_and_goes_back(client, call, protocol):
    request = ask(protocol, "sim-thinking", thinking={"type": "adaptive"})
    message = call(client, request)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking and message.content[0].signature
    turns = request["messages"] + [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]},
        {"role": "user", "content": "and now?"},
    ]
    assert call(client, {**request, "messages": turns}).stop_reason == "end_turn"


@calls
@protocols
@pytest.mark.parametrize("model, count", [("sim-tools", 1), ("sim-parallel-tools", 2)])
def test_tools_are_called_and_answered(client, call, protocol, model, count):
    request = ask(protocol, model, tools=TOOLS)
    message = call(client, request)
    uses = [block for block in message.content if block.type == "tool_use"]
    assert (len(uses), message.stop_reason) == (count, "tool_use")
    assert all(isinstance(use.input, dict) for use in uses) and len({use.id for use in uses}) == count
    turns = request["messages"] + [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "12 °C"} for use in uses]},
    ]
    answer = call(client, {**request, "messages": turns})
    assert answer.content[-1].type == "text" and "12 °C" in answer.content[-1].text


@calls
@protocols
def test_a_refusal_is_an_answer(client, call, protocol):
    message = call(client, ask(protocol, "sim-refusal"))
    # Cohere has no word for it: what the model says is all there is.
    assert message.stop_reason == ("end_turn" if protocol == "Cohere" else "refusal")


@calls
@protocols
def test_what_was_cached_is_counted_apart(client, call, protocol):
    usage = call(client, ask(protocol, "sim-cached")).usage
    assert usage.cache_read_input_tokens > 0, usage


@protocols
@pytest.mark.parametrize("model", ["sim-close-mid", "sim-error-mid"])
def test_a_broken_stream_raises(client, protocol, model):
    with pytest.raises((anthropic.APIStatusError, anthropic.APIConnectionError, anthropic.APIError)):
        streamed(client, ask(protocol, model))


@calls
@protocols
@pytest.mark.parametrize("model, reason", ENDINGS.items())
def test_every_end_has_its_reason(client, call, protocol, model, reason):
    message = call(client, ask(protocol, model))
    assert message.stop_reason == reason and message.content[0].text, message


@calls
@protocols
@pytest.mark.parametrize("model", BROKEN)
def test_what_is_no_answer_raises(client, call, protocol, model):
    # Without a stream, a frame that was cut is a body that was cut.
    with pytest.raises(anthropic.APIError):
        call(client, ask(protocol, model))


# A server that says nothing of the end has not answered where the protocol has no other sign of it; a prompt that was
# blocked is refused.
FAILS = {
    ("Converse", "bad-checksum"): streamed,
    ("Invoke", "bad-checksum"): streamed,
    ("Gemini", "no-finish"): streamed,
    ("Gemini", "blocked-prompt"): None,
    ("Responses", "failed-event"): None,
}
# These think and call nothing.
THINKING = ("reasoning", "think", "mistral-thinking", "no-signature")


@calls
@pytest.mark.parametrize("protocol, quirk", QUIRKS)
@pytest.mark.parametrize("tools", [True, False])
def test_whatever_a_server_does_the_client_gets_an_answer(client, call, protocol, quirk, tools):
    """The text, or both calls with their inputs; or an error where the quirk is one."""
    request = ask(protocol, f"sim-quirk-{quirk}", stop_sequences=["<<END>>"], **({"tools": TOOLS} if tools else {}))
    fails = "error" in quirk or ((protocol, quirk) in FAILS and FAILS[protocol, quirk] in (None, call))
    if quirk == "tool-use-failed":
        # What it could not parse is a call all the same.
        fails = not tools
    if fails:
        with pytest.raises(anthropic.APIError):
            call(client, request)
        return
    message = call(client, request)
    uses = [block for block in message.content if block.type == "tool_use"]
    if tools and not quirk.startswith(THINKING):
        assert message.stop_reason == ("max_tokens" if quirk == "model-length" else "tool_use"), message
        assert len(uses) == (1 if quirk == "tool-use-failed" else 2), message
        assert all(isinstance(use.input, dict) for use in uses)
    else:
        assert "".join(block.text for block in message.content if block.type == "text"), message
    assert message.usage.output_tokens > 0
