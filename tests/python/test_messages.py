"""The official Anthropic client against the gateway: what an application does on its first day."""

import base64

import anthropic
import pytest

from conftest import MANAGEMENT_KEY

HELLO = [{"role": "user", "content": "Hello there"}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather at a place",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
# The smallest PNG and a minimal PDF: content that must arrive to the byte.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_message_is_answered(client):
    message = client.messages.create(model="test/sim", max_tokens=64, messages=HELLO)
    assert text_of(message) == "You said: Hello there"
    assert (message.model, message.role, message.stop_reason) == ("test/sim", "assistant", "end_turn")
    assert message._request_id.startswith("gen-")
    # The gateway's additions, which the client keeps as extra members.
    assert message.provider == "Upstream"
    expected = message.usage.input_tokens * 3 + message.usage.output_tokens * 15
    assert message.usage.cost == pytest.approx(expected / 1_000_000, abs=1e-12)


def test_a_message_is_streamed(client):
    with client.messages.stream(model="test/sim", max_tokens=64, messages=HELLO) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert len(pieces) > 1 and "".join(pieces) == text_of(message) == "You said: Hello there"
    assert message.model == "test/sim" and message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0


@pytest.mark.parametrize("model", ["test/sim", "test/sim-thinking", "test/sim-tools"])
def test_a_kept_stream_is_put_together_like_the_first(client, model):
    arguments = {"model": model, "max_tokens": 2048, "messages": [{"role": "user", "content": "Kept, please"}]}
    if model == "test/sim-tools":
        arguments["tools"] = [WEATHER]

    def ask():
        with client.messages.stream(extra_headers={"x-tidegate-cache": "true"}, **arguments) as stream:
            message = stream.get_final_message()
            return stream.response.headers, message

    (first, made), (again, given) = ask(), ask()
    assert (first["x-tidegate-cache-status"], again["x-tidegate-cache-status"]) == ("MISS", "HIT")
    assert again["x-tidegate-cache-source-id"] == first["x-generation-id"] != again["x-generation-id"]
    assert given.content == made.content and given.stop_reason == made.stop_reason and given.model == made.model
    assert given.id != made.id and made.usage.output_tokens > 0
    assert (given.usage.input_tokens, given.usage.output_tokens) == (0, 0)


def test_a_kept_message_costs_nothing(client):
    arguments = {"model": "test/sim-cached", "max_tokens": 64, "messages": [{"role": "user", "content": "Kept, please"}]}

    def ask():
        raw = client.messages.with_raw_response.create(extra_headers={"x-tidegate-cache": "true"}, **arguments)
        return raw.headers["x-tidegate-cache-status"], raw.parse()

    (first, made), (again, given) = ask(), ask()
    assert (first, again) == ("MISS", "HIT") and text_of(made) == text_of(given)
    usage = given.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens, usage.cost) == (0, 0, 0, 0)
    assert made.usage.cache_read_input_tokens > 0


def test_raw_events_come_in_their_order(client):
    events = [event.type for event in client.messages.create(model="test/sim", max_tokens=64, messages=HELLO, stream=True)]
    assert events[0] == "message_start" and events[-2:] == ["message_delta", "message_stop"]
    assert events.count("content_block_start") == events.count("content_block_stop") == 1


def test_a_tool_is_called_and_its_result_goes_back(client, upstream):
    arguments = {"model": "test/sim-tools", "max_tokens": 256, "tools": [WEATHER]}
    question = {"role": "user", "content": "How is the weather in Brest?"}
    first = client.messages.create(messages=[question], **arguments)
    assert first.stop_reason == "tool_use"
    call = next(block for block in first.content if block.type == "tool_use")
    assert call.name == "get_weather" and isinstance(call.input, dict)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "14 degrees"}
    turns = [question, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(messages=turns, **arguments)
    assert "14 degrees" in text_of(second)
    _, seen = upstream.last_request()
    assert seen["messages"][2]["content"][0] == result
    assert seen["tools"] == [WEATHER]


def test_a_tool_call_is_streamed(client):
    with client.messages.stream(
        model="test/sim-tools", max_tokens=256, tools=[WEATHER], messages=[{"role": "user", "content": "Weather?"}]
    ) as stream:
        message = stream.get_final_message()
    call = next(block for block in message.content if block.type == "tool_use")
    assert message.stop_reason == "tool_use" and isinstance(call.input, dict) and call.input


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_comes_with_its_signature_and_goes_back_unchanged(client, upstream, streamed):
    arguments = {"model": "test/sim-thinking", "max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    if streamed:
        with client.messages.stream(messages=HELLO, **arguments) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(messages=HELLO, **arguments)
    thinking = message.content[0]
    assert thinking.type == "thinking" and thinking.thinking and thinking.signature
    turns = HELLO + [{"role": "assistant", "content": message.content}, {"role": "user", "content": "Go on"}]
    client.messages.create(messages=turns, **arguments)
    _, seen = upstream.last_request()
    sent_back = seen["messages"][1]["content"][0]
    assert (sent_back["thinking"], sent_back["signature"]) == (thinking.thinking, thinking.signature)


def test_images_and_documents_arrive_to_the_byte(client, upstream):
    def source(media_type, data):
        return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}

    content = [
        {"type": "image", "source": source("image/png", PNG)},
        {"type": "document", "source": source("application/pdf", PDF), "title": "Charter", "citations": {"enabled": True}},
        {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]
    client.messages.create(model="test/sim", max_tokens=64, messages=[{"role": "user", "content": content}])
    _, seen = upstream.last_request()
    assert seen["messages"][0]["content"] == content
    assert base64.b64decode(seen["messages"][0]["content"][0]["source"]["data"]) == PNG


def test_cache_counts_reach_the_client_and_the_bill(client):
    usage = client.messages.create(model="test/sim-cached", max_tokens=64, messages=HELLO).usage
    assert usage.cache_read_input_tokens > 0 and usage.cache_creation.ephemeral_1h_input_tokens > 0
    expected = (
        usage.input_tokens * 3
        + usage.output_tokens * 15
        + usage.cache_read_input_tokens * 0.3
        + usage.cache_creation.ephemeral_5m_input_tokens * 3.75
        + usage.cache_creation.ephemeral_1h_input_tokens * 6
    )
    assert usage.cost == pytest.approx(expected / 1_000_000, abs=1e-9)


def test_a_refusal_is_an_answer(client):
    message = client.messages.create(model="test/sim-refusal", max_tokens=64, messages=HELLO)
    assert message.stop_reason == "refusal"
    assert message.stop_details.category and message.stop_details.explanation


def test_tokens_are_counted(client):
    counted = client.messages.count_tokens(model="test/sim", messages=HELLO, system="Be brief")
    assert counted.input_tokens > 0


def test_beta_calls_forward_their_headers(client, upstream):
    message = client.beta.messages.create(
        model="test/sim", max_tokens=64, messages=HELLO, betas=["context-1m-2025-08-07", "made-up-2099-01-01"]
    )
    assert message.model == "test/sim"
    seen, _ = upstream.last_request()
    headers = dict(map(tuple, seen["headers"]))
    assert headers["anthropic-beta"] == "context-1m-2025-08-07,made-up-2099-01-01"
    assert headers["x-api-key"] == "upstream-secret" and "authorization" not in headers


def test_unknown_members_pass(client, upstream):
    client.messages.create(
        model="test/sim", max_tokens=64, messages=HELLO, extra_body={"future_member": {"deep": [1, 2.5]}, "session_id": "s-1"}
    )
    _, seen = upstream.last_request()
    assert seen["future_member"] == {"deep": [1, 2.5]} and "session_id" not in seen


@pytest.mark.parametrize(
    "model, error, status",
    [
        ("test/sim-status-400", anthropic.BadRequestError, 400),
        ("test/sim-status-404", anthropic.NotFoundError, 404),
        ("test/sim-status-413", anthropic.RequestTooLargeError, 413),
        ("test/sim-status-429", anthropic.RateLimitError, 429),
        ("test/sim-status-500", anthropic.InternalServerError, 502),
        ("test/sim-status-503", anthropic.ServiceUnavailableError, 503),
        ("test/sim-status-529", anthropic.OverloadedError, 529),
        ("test/nowhere", anthropic.BadRequestError, 400),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_errors_raise_the_clients_own_exceptions(client, model, error, status, streamed):
    with pytest.raises(error) as raised:
        list(client.messages.create(model=model, max_tokens=64, messages=HELLO, stream=streamed))
    assert raised.value.status_code == status
    assert raised.value.request_id.startswith("gen-")
    assert raised.value.body["error"]["error_type"]


def test_a_wrong_key_is_an_authentication_error(client):
    with pytest.raises(anthropic.AuthenticationError, match="Invalid API key"):
        client.with_options(api_key="sk-tg-v1-wrong").messages.create(model="test/sim", max_tokens=8, messages=HELLO)


def test_a_management_key_may_not_generate(client):
    with pytest.raises(anthropic.PermissionDeniedError, match="Management keys cannot be used for inference"):
        client.with_options(api_key=MANAGEMENT_KEY).messages.create(model="test/sim", max_tokens=8, messages=HELLO)


def test_a_bad_request_names_the_field(client):
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].role must be one of user, assistant, system"):
        client.messages.create(model="test/sim", max_tokens=8, messages=[{"role": "tool", "content": "x"}])


def test_a_body_over_the_limit_is_too_large(client):
    with pytest.raises(anthropic.RequestTooLargeError):
        client.messages.create(
            model="test/sim", max_tokens=8, messages=[{"role": "user", "content": "x" * (33 << 20)}]
        )


@pytest.mark.parametrize("model", ["test/sim-error-mid", "test/sim-close-mid"])
def test_a_stream_that_breaks_raises_and_never_pretends_to_end(client, model):
    seen = []
    with pytest.raises(anthropic.APIStatusError):
        for event in client.messages.create(model=model, max_tokens=64, messages=HELLO, stream=True):
            seen.append(event.type)
    assert "content_block_delta" in seen and "message_stop" not in seen
