"""OpenAI's own client, and OpenRouter's, in front of the gateway: `/chat/completions` says what `/messages` says."""

import json

import anthropic
import openai
import openrouter
import pydantic
import pytest
from conftest import INFERENCE_KEY, start_gateway
from test_translated import PLATFORMS, PROTOCOLS

SCENARIOS = ["sim", "sim-thinking", "sim-tools", "sim-parallel-tools", "sim-refusal", "sim-cached", "sim-stop-max_tokens"]
BROKEN = ["sim-close-mid", "sim-error-mid", "sim-status-429", "sim-status-500", "sim-status-400"]
NATIVE = "native"
FINISHED = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}
# Protocols with a place for the words in which a model declines.
DECLINING = ["Chat", "Responses"]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {part: {"type": "string"}}}}}
    for name, part in (("get_weather", "city"), ("get_time", "zone"))
]
THEIRS = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in TOOLS]


@pytest.fixture(scope="module")
def chatting(upstream, tmp_path_factory):
    settings, every = "", {NATIVE: ("anthropic", ""), **PROTOCOLS}
    for slug, (protocol, path) in every.items():
        platform = f'platform = "{PLATFORMS[slug]}"' if slug in PLATFORMS else ""
        settings += f"""
[[providers]]
slug = "the-{slug.lower()}"
display_name = "{slug}"
protocol = "{protocol}"
base_url = "{upstream.url}{path}"
api_key = "upstream-secret"
{platform}
"""
        for name in SCENARIOS + BROKEN:
            settings += f"""
[[models]]
id = "{slug.lower()}/{name}"
context_length = 200000
max_output_tokens = 8192
input_modalities = ["text", "image", "file"]
[[models.endpoints]]
provider = "the-{slug.lower()}"
model = "{name}"
pricing = {{ input = 3, output = 15, cache_read = 0.3, cache_write = 3.75, cache_write_1h = 6 }}
"""
    process = start_gateway(upstream, tmp_path_factory.mktemp("chatting"), settings)
    yield process
    process.stop()


@pytest.fixture
def client(chatting):
    return openai.OpenAI(base_url=chatting.url + "/v1", api_key=INFERENCE_KEY, max_retries=0, timeout=20)


@pytest.fixture
def messages(chatting):
    return anthropic.Anthropic(base_url=chatting.url, api_key=INFERENCE_KEY, max_retries=0, timeout=20)


def ask(place, name, **more):
    return {"model": f"{place.lower()}/{name}", "max_tokens": 4096, "messages": [{"role": "user", "content": "hello"}], **more}


def joined(client, request):
    """A stream put together as its readers do, and its chunks."""
    chunks = list(client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}))
    text, refusal, calls, thought, finish = "", "", {}, "", None
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            refusal += choice.delta.refusal or ""
            thought += getattr(choice.delta, "reasoning", None) or ""
            for call in choice.delta.tool_calls or []:
                known = calls.setdefault(call.index, {"id": call.id, "name": call.function.name, "arguments": ""})
                known["arguments"] += call.function.arguments
            finish = choice.finish_reason or finish
    calls = [calls[index] for index in sorted(calls)]
    return {"text": text, "refusal": refusal, "calls": calls, "thought": thought, "finish": finish}, chunks


def expected(theirs, place, name, **more):
    """The same of the Messages format, and what it used in a stream, which is another request to the upstream."""
    answer = theirs.messages.create(**ask(place, name, **more))
    with theirs.messages.stream(**ask(place, name, **more)) as stream:
        streamed = [event.usage for event in stream if event.type == "message_delta"][-1]
    of = lambda kind: [block for block in answer.content if block.type == kind]
    text = "".join(block.text for block in of("text"))
    declines = answer.stop_reason == "refusal" and place in DECLINING
    return answer, streamed, {
        "text": "" if declines else text,
        "refusal": text if declines else "",
        "calls": [(block.name, block.input) for block in of("tool_use")],
        "thought": "".join(block.thinking for block in of("thinking")),
        "finish": "stop" if declines else FINISHED[answer.stop_reason],
    }


def used(usage):
    """Tokens and money of the Messages format in this one's words."""
    written, read = usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0
    return (usage.input_tokens + written + read, usage.output_tokens, read, usage.model_extra["cost"])


def said(usage):
    cached = usage.prompt_tokens_details.cached_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return (usage.prompt_tokens, usage.completion_tokens, cached, usage.model_extra["cost"])


@pytest.mark.parametrize("place", [NATIVE, *PROTOCOLS])
@pytest.mark.parametrize("name", SCENARIOS)
def test_says_what_the_messages_format_says(client, messages, place, name):
    asks_tools, thinks = "tools" in name, name == "sim-thinking"
    theirs = {"tools": THEIRS} if asks_tools else {"thinking": {"type": "enabled", "budget_tokens": 1024}} if thinks else {}
    ours = {"tools": TOOLS} if asks_tools else {"extra_body": {"reasoning": {"max_tokens": 1024}}} if thinks else {}
    answer, streamed, wanted = expected(messages, place, name, **theirs)

    whole = client.chat.completions.create(**ask(place, name, **ours))
    choice = whole.choices[0]
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or []]
    reasoning = getattr(choice.message, "reasoning", None) or ""
    said_so = (choice.message.content or "", choice.message.refusal or "")
    assert (*said_so, calls, reasoning, choice.finish_reason) == tuple(wanted.values())
    assert whole.object == "chat.completion" and whole.id.startswith("gen-")
    assert (whole.model, whole.model_extra["provider"]) == (answer.model, answer.model_extra["provider"])
    assert choice.model_extra["native_finish_reason"] == answer.stop_reason
    assert said(whole.usage) == used(answer.usage)

    told, chunks = joined(client, ask(place, name, **ours))
    told["calls"] = [(call["name"], json.loads(call["arguments"] or "{}")) for call in told["calls"]]
    assert told == wanted
    assert {chunk.id for chunk in chunks} == {chunks[0].id} and chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and said(chunks[-1].usage) == used(streamed)
    assert all(chunk.usage is None for chunk in chunks[:-1])


class Berth(pydantic.BaseModel):
    number: int


@pytest.mark.parametrize("place", DECLINING)
def test_a_model_that_declines_is_no_mistake_of_what_it_should_have_said(client, place):
    request = ask(place, "sim-refusal", response_format=Berth)
    message = client.chat.completions.parse(**request).choices[0].message
    assert message.refusal and message.parsed is None and message.content is None
    with client.chat.completions.stream(**request) as stream:
        events = list(stream)
        last = stream.get_final_completion().choices[0].message
    assert (last.refusal, last.parsed) == (message.refusal, None)
    assert {"refusal.delta", "refusal.done"} <= {event.type for event in events}
    assert not any(event.delta for event in events if event.type == "content.delta")


def test_usage_comes_with_the_last_choice_where_nobody_asked_for_a_chunk_of_its_own(client):
    chunks = list(client.chat.completions.create(**ask(NATIVE, "sim"), stream=True))
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("place", [NATIVE, *PROTOCOLS])
def test_a_conversation_with_calls_thoughts_and_pictures_arrives_as_it_is(client, upstream, place):
    picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    first = client.chat.completions.create(**ask(place, "sim-parallel-tools", tools=TOOLS)).choices[0].message
    calls = first.tool_calls
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": picture}}]},
        first.model_dump(exclude_none=True),
        *[{"role": "tool", "tool_call_id": call.id, "content": f"result {index}"} for index, call in enumerate(calls)],
        {"role": "user", "content": "And now?"},
    ]
    answer = client.chat.completions.create(**{**ask(place, "sim", tools=TOOLS), "messages": history, "stop": "END"})
    assert answer.choices[0].message.content
    _, sent = upstream.last_request()
    text = json.dumps(sent)
    for part in ("Be brief.", "Look.", "And now?", picture.split(",")[1], *[f"result {index}" for index in range(len(calls))]):
        assert text.count(part) == 1, part
    assert len(calls) > 1 and all(text.count(call.function.name) >= 2 for call in calls)


def test_thoughts_that_come_back_are_signed_as_they_were(client, upstream):
    request = ask(NATIVE, "sim-thinking", extra_body={"reasoning": {"max_tokens": 1024}})
    whole = client.chat.completions.create(**request).choices[0].message
    chunks = list(client.chat.completions.create(**request, stream=True))
    pieces = [piece for chunk in chunks for choice in chunk.choices for piece in getattr(choice.delta, "reasoning_details", None) or []]
    for details in (whole.model_extra["reasoning_details"], pieces):
        history = [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": whole.content, "reasoning_details": details},
            {"role": "user", "content": "go on"},
        ]
        client.chat.completions.create(**{**ask(NATIVE, "sim"), "messages": history})
        _, sent = upstream.last_request()
        thought = sent["messages"][1]["content"][0]
        assert thought["type"] == "thinking"
        assert (thought["thinking"], thought["signature"]) == tuple(
            "".join(piece.get(part) or "" for piece in whole.model_extra["reasoning_details"]) for part in ("text", "signature")
        )


def test_options_reach_who_takes_them_and_others_are_named(client, upstream):
    options = {"seed": 7, "frequency_penalty": 0.5, "presence_penalty": -0.5, "logit_bias": {"50256": -100}}
    raw = client.chat.completions.with_raw_response.create(**ask("Chat", "sim", **options, logprobs=True))
    _, sent = upstream.last_request()
    assert {name: sent[name] for name in options} == options and "logprobs" not in sent
    assert raw.headers["x-tidegate-warnings"] == "dropped:logprobs"
    raw = client.chat.completions.with_raw_response.create(**ask(NATIVE, "sim", **options, response_format={"type": "json_object"}))
    _, sent = upstream.last_request()
    assert not options.keys() & sent.keys() and "chat_options" not in sent
    dropped = raw.headers["x-tidegate-warnings"].split(",")
    assert sorted(dropped) == sorted(f"dropped:{name}" for name in [*options, "response_format"])
    client.chat.completions.create(**ask("Gemini", "sim", seed=7, frequency_penalty=0.5, response_format={"type": "json_object"}))
    _, sent = upstream.last_request()
    config = sent["generationConfig"]
    assert (config["seed"], config["frequencyPenalty"], config["responseMimeType"]) == (7, 0.5, "application/json")


def test_forms_and_choices_are_translated(client, upstream):
    schema = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"], "additionalProperties": False}
    more = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "harbour", "schema": schema}},
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "get_time"}},
        "parallel_tool_calls": False,
        "stop": ["END", "STOP"],
        "user": "u-1",
        "max_completion_tokens": 77,
        "temperature": 0.25,
        "top_p": 0.5,
    }
    client.chat.completions.create(**{**ask(NATIVE, "sim", **more), "max_tokens": 4096})
    _, sent = upstream.last_request()
    assert sent["output_config"]["format"] == {"type": "json_schema", "schema": schema}
    assert sent["tools"] == THEIRS
    assert sent["tool_choice"] == {"type": "tool", "name": "get_time", "disable_parallel_tool_use": True}
    assert (sent["stop_sequences"], sent["max_tokens"]) == (["END", "STOP"], 77)
    assert (sent["temperature"], sent["top_p"]) == (0.25, 0.5) and "user" not in sent


@pytest.mark.parametrize("place", [NATIVE, "Chat"])
def test_errors_are_those_that_the_client_knows(client, place):
    for name, kind, status in (
        ("sim-status-429", openai.RateLimitError, 429),
        ("sim-status-500", openai.InternalServerError, 502),
        ("sim-status-400", openai.BadRequestError, 400),
    ):
        with pytest.raises(kind) as caught:
            client.chat.completions.create(**ask(place, name))
        assert caught.value.status_code == status and caught.value.body["code"] == status
        assert caught.value.body["metadata"]["error_type"]
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").chat.completions.create(**ask(place, "sim"))


@pytest.mark.parametrize("place", [NATIVE, "Chat"])
@pytest.mark.parametrize("name", ["sim-close-mid", "sim-error-mid"])
def test_a_stream_that_breaks_says_so(client, place, name):
    with pytest.raises(openai.APIError) as caught:
        list(client.chat.completions.create(**ask(place, name), stream=True))
    assert caught.value.body["code"] in (502, 503, 500) and caught.value.body["metadata"]["error_type"]


@pytest.mark.parametrize(
    "more, message",
    [
        ({"messages": []}, "messages must have at least 1 entries"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "messages[0].role must be one of system, developer, user, assistant, tool"),
        ({"messages": [{"role": "user"}]}, "messages[0].content is required"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content must be a string or an array"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0].type must be one of text, image_url, file, refusal"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id is required"),
        ({"n": 2}, "n must be 1: ask once for each answer that is wanted"),
        ({"stop": [""]}, "stop[0] must be at least 1 characters"),
        ({"temperature": 3}, "temperature must be at most 2"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name is required"),
        ({"tool_choice": "always"}, "tool_choice must be one of none, auto, required"),
        ({"response_format": {"type": "xml"}}, "response_format.type must be one of text, json_object, json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "response_format.json_schema.schema is required"),
        ({"reasoning_effort": "some"}, "reasoning_effort must be one of max, xhigh, high, medium, low, minimal, none"),
        ({"extra_body": {"reasoning": {"max_tokens": 5000}}}, "max_tokens must be greater than reasoning.max_tokens"),
        ({"functions": []}, "functions is not supported: use tools and tool_choice"),
        ({"seed": 1.5}, "seed must be an integer"),
        ({"modalities": ["audio"]}, "modalities[0] must be one of text"),
    ],
)
def test_what_is_wrong_is_named(client, more, message):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**ask(NATIVE, "sim"), **more})
    assert caught.value.body["message"] == f"Invalid request: {message}"


def test_openrouters_client_reads_it(chatting):
    with openrouter.OpenRouter(api_key=INFERENCE_KEY, server_url=chatting.url + "/api/v1") as theirs:
        asked = {"model": "native/sim-tools", "max_tokens": 4096, "messages": [{"role": "user", "content": "hello"}], "tools": TOOLS}
        whole = theirs.chat.send(**asked)
        call = whole.choices[0].message.tool_calls[0]
        assert (whole.choices[0].finish_reason, call.function.name) == ("tool_calls", "get_weather")
        cost = 3 * whole.usage.prompt_tokens + 15 * whole.usage.completion_tokens
        assert whole.usage.cost == pytest.approx(cost / 1e6, rel=1e-9)
        with theirs.chat.send(**asked, stream=True) as stream:
            chunks = list(stream)
        assert chunks[-1].choices[0].finish_reason == "tool_calls" and chunks[-1].usage.cost >= whole.usage.cost


def test_the_record_is_that_of_every_message(chatting, client):
    import urllib.request

    answer = client.chat.completions.create(**ask(NATIVE, "sim"))
    request = urllib.request.Request(f"{chatting.url}/api/v1/generation?id={answer.id}", headers={"authorization": f"Bearer {INFERENCE_KEY}"})
    with urllib.request.urlopen(request) as response:
        record = json.load(response)["data"]
    assert (record["id"], record["total_cost"]) == (answer.id, answer.usage.model_extra["cost"])
    assert (record["api_type"], record["streamed"]) == ("completions", False)


def test_tools_that_take_a_text_are_called_with_one(client, upstream):
    custom = {"type": "custom", "custom": {"name": "get_weather", "description": "Takes a line."}}
    answer = client.chat.completions.create(**ask(NATIVE, "sim-tools", tools=[custom])).choices[0].message
    call = answer.tool_calls[0]
    assert (call.type, call.custom.name) == ("custom", "get_weather") and call.custom.input
    _, sent = upstream.last_request()
    assert sent["tools"][0]["input_schema"]["required"] == ["input"]
    chunks = client.chat.completions.create(**ask(NATIVE, "sim-tools", tools=[custom]), stream=True)
    pieces = [piece for chunk in chunks for choice in chunk.choices for piece in choice.delta.tool_calls or []]
    assert pieces[0].type == "custom" and "".join(piece.custom["input"] for piece in pieces) == call.custom.input
    history = [{"role": "user", "content": "x"}, answer.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "ok"}]
    client.chat.completions.create(**{**ask(NATIVE, "sim", tools=[custom]), "messages": history})
    _, sent = upstream.last_request()
    assert sent["messages"][1]["content"][-1]["input"] == {"input": call.custom.input}
