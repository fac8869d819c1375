"""OpenAI's own client in front of `/responses`: it says what `/messages` says."""

import json

import openai
import pytest
from conftest import INFERENCE_KEY
from test_chat import BROKEN, NATIVE, SCENARIOS, THEIRS, chatting, expected, messages  # noqa: F401
from test_translated import PROTOCOLS

TOOLS = [{"type": "function", "name": tool["name"], "parameters": tool["input_schema"], "strict": False} for tool in THEIRS]


@pytest.fixture
def client(chatting):  # noqa: F811
    return openai.OpenAI(base_url=chatting.url + "/v1", api_key=INFERENCE_KEY, max_retries=0, timeout=20)


def ask(place, name, **more):
    return {"model": f"{place.lower()}/{name}", "max_output_tokens": 4096, "input": "hello", **more}


def told(response):
    """What a response says, in the words of the Messages format's test."""
    of = lambda kind: [item for item in response.output if item.type == kind]
    finish = {None: "stop", "max_output_tokens": "length", "content_filter": "content_filter"}
    reason = response.incomplete_details and response.incomplete_details.reason
    calls = [(item.name, json.loads(item.arguments)) for item in of("function_call")]
    parts = [part for item in of("message") for part in item.content]
    return {
        "text": response.output_text,
        "refusal": "".join(part.refusal for part in parts if part.type == "refusal"),
        "calls": calls,
        "thought": "".join(part.text for item in of("reasoning") for part in item.summary),
        "finish": "tool_calls" if calls else finish[reason],
    }


def used(usage):
    written, read = usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0
    return (usage.input_tokens + written + read, usage.output_tokens, read, usage.model_extra["cost"])


def said(usage):
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    return (usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens, usage.model_extra["cost"])


@pytest.mark.parametrize("place", [NATIVE, *PROTOCOLS])
@pytest.mark.parametrize("name", SCENARIOS)
def test_says_what_the_messages_format_says(client, messages, place, name):  # noqa: F811
    asks_tools, thinks = "tools" in name, name == "sim-thinking"
    theirs = {"tools": THEIRS} if asks_tools else {"thinking": {"type": "enabled", "budget_tokens": 1024}} if thinks else {}
    ours = {"tools": TOOLS} if asks_tools else {"extra_body": {"reasoning": {"max_tokens": 1024}}} if thinks else {}
    # The same text, as this format tells it.
    blocks = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    tools = [{**tool, "strict": False} for tool in THEIRS]
    answer, streamed, wanted = expected(messages, place, name, **{**theirs, **({"tools": tools} if asks_tools else {}), "messages": blocks})

    whole = client.responses.create(**ask(place, name, **ours))
    assert told(whole) == wanted
    assert (whole.status, whole.object) == ("incomplete" if wanted["finish"] in ("length", "content_filter") else "completed", "response")
    assert (whole.model, whole.id[:4]) == (answer.model, "gen-")
    assert said(whole.usage) == used(answer.usage)

    # The client's own accumulator checks that events fit together.
    with client.responses.stream(**ask(place, name, **ours)) as stream:
        events = list(stream)
    last = events[-1]
    assert last.type == f"response.{whole.status}"
    assert told(last.response) == wanted and said(last.response.usage) == used(streamed)
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == sorted(numbers) and events[0].type == "response.created"
    pieces = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert pieces == wanted["text"]
    pieces = "".join(event.delta for event in events if event.type == "response.refusal.delta")
    assert pieces == wanted["refusal"]


@pytest.mark.parametrize("place", [NATIVE, *PROTOCOLS])
def test_a_conversation_goes_on_with_the_items_of_its_answers(client, upstream, place):
    first = client.responses.create(**ask(place, "sim-parallel-tools", tools=TOOLS, instructions="Be brief."))
    calls = [item for item in first.output if item.type == "function_call"]
    history = [
        {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
        *[item.model_dump(exclude_none=True) for item in first.output],
        *[{"type": "function_call_output", "call_id": call.call_id, "output": f"result {index}"} for index, call in enumerate(calls)],
        {"role": "user", "content": "And now?"},
    ]
    answer = client.responses.create(**ask(place, "sim", tools=TOOLS, instructions="Be brief.", input=history))
    assert answer.output_text
    _, sent = upstream.last_request()
    text = json.dumps(sent)
    for part in ("Be brief.", "Look.", "And now?", *[f"result {index}" for index in range(len(calls))]):
        assert text.count(part) == 1, part
    assert len(calls) > 1


def test_thoughts_that_come_back_are_signed_as_they_were(client, upstream):
    request = ask(NATIVE, "sim-thinking", extra_body={"reasoning": {"max_tokens": 1024}})
    with client.responses.stream(**request) as stream:
        streamed = [event for event in stream][-1].response
    for answer in (client.responses.create(**request), streamed):
        thought = next(item for item in answer.output if item.type == "reasoning")
        history = [{"role": "user", "content": "hello"}, *[item.model_dump(exclude_none=True) for item in answer.output], {"role": "user", "content": "go on"}]
        client.responses.create(**ask(NATIVE, "sim", input=history))
        _, sent = upstream.last_request()
        block = sent["messages"][1]["content"][0]
        assert (block["type"], block["thinking"]) == ("thinking", thought.summary[0].text)
        assert block["signature"] and thought.encrypted_content.endswith(block["signature"])


def test_tools_that_take_a_text_are_called_with_one(client, upstream):
    custom = {"type": "custom", "name": "get_weather", "description": "Takes a line."}
    answer = client.responses.create(**ask(NATIVE, "sim-tools", tools=[custom]))
    call = next(item for item in answer.output if item.type == "custom_tool_call")
    assert call.name == "get_weather" and call.input
    _, sent = upstream.last_request()
    assert sent["tools"][0]["input_schema"]["required"] == ["input"]
    history = [{"role": "user", "content": "x"}, call.model_dump(exclude_none=True), {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "ok"}]
    client.responses.create(**ask(NATIVE, "sim", tools=[custom], input=history))
    _, sent = upstream.last_request()
    assert sent["messages"][1]["content"][0]["input"] == {"input": call.input}
    assert sent["messages"][2]["content"][0] == {"type": "tool_result", "tool_use_id": call.call_id, "content": "ok"}


@pytest.mark.parametrize("place", [NATIVE, *PROTOCOLS])
def test_tools_of_a_namespace_are_called_as_such(client, upstream, place):
    group = {"type": "namespace", "name": "mcp__home", "description": "The house.", "tools": [TOOLS[0]]}
    request = ask(place, "sim-tools", tools=[group])
    with client.responses.stream(**request) as stream:
        streamed = list(stream)[-1].response
    for answer in (client.responses.create(**request), streamed):
        call = next(item for item in answer.output if item.type == "function_call")
        assert (call.namespace, call.name) == ("mcp__home", TOOLS[0]["name"])
        _, sent = upstream.last_request()
        assert f"mcp__home__{call.name}" in json.dumps(sent)
        history = [{"role": "user", "content": "x"}, call.model_dump(exclude_none=True), {"type": "function_call_output", "call_id": call.call_id, "output": "ok"}]
        client.responses.create(**ask(place, "sim", tools=[group], input=history))
        _, sent = upstream.last_request()
        # Once as it is offered, and once as it was called.
        assert json.dumps(sent).count(f'"mcp__home__{call.name}"') >= 2


def test_forms_and_options_are_translated(client, upstream):
    schema = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"], "additionalProperties": False}
    picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    more = {
        "text": {"format": {"type": "json_schema", "name": "harbour", "schema": schema}},
        "tools": TOOLS,
        "tool_choice": {"type": "function", "name": "get_time"},
        "parallel_tool_calls": False,
        "temperature": 0.25,
        "metadata": {"a": "b"},
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": picture, "detail": "auto"}]}],
    }
    answer = client.responses.create(**ask(NATIVE, "sim", **more))
    _, sent = upstream.last_request()
    assert sent["output_config"]["format"] == {"type": "json_schema", "schema": schema}
    assert sent["tool_choice"] == {"type": "tool", "name": "get_time", "disable_parallel_tool_use": True}
    assert (sent["temperature"], sent["max_tokens"]) == (0.25, 4096)
    assert sent["messages"][0]["content"][1]["source"]["data"] == picture.split(",")[1]
    assert (answer.temperature, answer.metadata, answer.parallel_tool_calls) == (0.25, {"a": "b"}, False)
    assert answer.tool_choice.name == "get_time" and [tool.name for tool in answer.tools] == ["get_weather", "get_time"]


@pytest.mark.parametrize("place", [NATIVE, "Chat"])
def test_failures_are_those_that_the_client_knows(client, place):
    for name, kind in (("sim-status-429", openai.RateLimitError), ("sim-status-400", openai.BadRequestError)):
        with pytest.raises(kind):
            client.responses.create(**ask(place, name))
    for name in [name for name in BROKEN if name.endswith("-mid")]:
        last = list(client.responses.create(**ask(place, name), stream=True))[-1]
        assert (last.type, last.response.status) == ("response.failed", "failed")
        assert last.response.error.code == "server_error" and last.response.error.message


@pytest.mark.parametrize(
    "more, message",
    [
        ({"input": []}, "input must have at least 1 entries"),
        ({"input": 3}, "input must be a string or an array"),
        ({"input": [{"role": "narrator", "content": "x"}]}, "input[0].role must be one of user, assistant, system, developer"),
        ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input[0].content[0].type must be one of input_text, output_text, text, refusal, input_image, input_file"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id is required"),
        ({"previous_response_id": "resp_1"}, "previous_response_id is not supported: nothing is stored, send the conversation in input"),
        ({"background": True}, "background must be false"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema is required"),
        ({"tools": [{"type": "function"}]}, "tools[0].name is required"),
        ({"reasoning": {"effort": "some"}}, "reasoning.effort must be one of max, xhigh, high, medium, low, minimal, none"),
    ],
)
def test_what_is_wrong_is_named(client, more, message):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{**ask(NATIVE, "sim"), **more})
    assert caught.value.body["message"] == f"Invalid request: {message}"


@pytest.mark.parametrize("streamed", [False, True])
def test_what_a_tool_of_the_gateway_gave_goes_back_with_the_items(client, upstream, streamed):
    request = ask("Chat", "sim-tools", tools=[{"type": "tidegate:datetime"}], input=[{"role": "user", "content": "How late?"}])
    if streamed:
        with client.responses.stream(**request) as stream:
            response = [event for event in stream][-1].response
    else:
        response = client.responses.create(**request)
    clock, message = response.output
    assert (clock.type, clock.id[:9], message.type) == ("tidegate:datetime", "srvtoolu_", "message")
    request["input"] += [*response.output, {"role": "user", "content": "Sure?"}]
    client.responses.create(**request)
    assert clock.model_extra["datetime"] in json.dumps(upstream.last_request()[1])
