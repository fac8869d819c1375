"""Server tools through Anthropic's own client: its types and its stream accumulator must take every loop."""

import json

import anthropic
import pytest
from conftest import INFERENCE_KEY, start_gateway

ASKED = [{"role": "user", "content": "What time is it?"}]
CLOCK = {"type": "tidegate:datetime", "parameters": {"timezone": "Europe/Paris"}}
PROTOCOLS = {
    "native": ("anthropic", ""),
    "chat": ("openai-chat", "/v1"),
    "responses": ("openai-responses", "/v1"),
    "gemini": ("gemini", "/v1beta"),
}


@pytest.fixture(scope="module")
def looped(upstream, tmp_path_factory):
    """Models that call the first tool they are offered and then quote its result, one for each protocol."""
    settings = ""
    for name, (protocol, path) in PROTOCOLS.items():
        settings += f"""
[[providers]]
slug = "loop-{name}"
protocol = "{protocol}"
base_url = "{upstream.url}{path}"
api_key = "upstream-secret"
[[models]]
id = "{name}/caller"
context_length = 200000
max_output_tokens = 8192
[[models.endpoints]]
provider = "loop-{name}"
model = "sim-tools"
pricing = {{ input = 3, output = 15 }}
"""
    process = start_gateway(upstream, tmp_path_factory.mktemp("looped"), settings)
    yield anthropic.Anthropic(base_url=process.url, api_key=INFERENCE_KEY, max_retries=0, timeout=20)
    process.stop()


def ask(client, call, **request):
    if call == "create":
        return client.messages.create(**request)
    with client.messages.stream(**request) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


@pytest.mark.parametrize("call", ["create", "stream"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_loop_is_one_message(looped, protocol, call):
    request = {"model": f"{protocol}/caller", "max_tokens": 500, "tools": [CLOCK]}
    message = ask(looped, call, **request, messages=ASKED)
    kinds = [block.type for block in message.content if block.type != "thinking"]
    assert kinds == ["server_tool_use", "text"]
    used = next(block for block in message.content if block.type == "server_tool_use")
    assert used.id.startswith("srvtoolu_") and used.name == "tidegate:datetime"
    assert "Europe/Paris" in message.content[-1].text
    assert message.stop_reason == "end_turn"
    assert message.usage.server_tool_use.web_search_requests == 0
    if call == "create":  # the client's accumulator takes over the members it knows
        turns = message.usage.iterations
        assert len(turns) == 2
        assert message.usage.output_tokens == sum(turn["output_tokens"] for turn in turns)

    # What came goes back as it is, and the conversation goes on.
    again = [*ASKED, {"role": "assistant", "content": message.content}, {"role": "user", "content": "And now?"}]
    later = ask(looped, call, **request, messages=again)
    assert later.content[-1].type == "text"


@pytest.mark.parametrize("call", ["create", "stream"])
def test_a_condition_leaves_an_answer(looped, call):
    message = ask(
        looped,
        call,
        model="native/caller",
        max_tokens=500,
        tools=[CLOCK],
        messages=ASKED,
        extra_body={"stop_server_tools_when": [{"type": "step_count_is", "step_count": 1}]},
    )
    assert message.content[-1].type == "text" and message.stop_reason == "end_turn"


def test_a_tool_that_is_unknown_is_refused(looped):
    with pytest.raises(anthropic.BadRequestError, match="Unknown server tool: tidegate:nix"):
        looped.messages.create(model="native/caller", max_tokens=8, messages=ASKED, tools=[{"type": "tidegate:nix"}])


@pytest.mark.parametrize("call", ["create", "stream"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_search_among_tools_is_one_to_the_client(looped, protocol, call):
    # The simulated model asks for what it was asked itself.
    asked = [{"role": "user", "content": "tide"}]
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    tide = {"name": "get_tide", "input_schema": {"type": "object"}, "defer_loading": True}
    request = {"model": f"{protocol}/caller", "max_tokens": 500, "tools": [search, tide]}
    message = ask(looped, call, **request, messages=asked)
    used, found, text = [block for block in message.content if block.type != "thinking"]
    assert (used.type, used.name, used.input["query"]) == ("server_tool_use", "tool_search_tool_bm25", "tide")
    assert (found.type, found.tool_use_id) == ("tool_search_tool_result", used.id)
    assert [reference.tool_name for reference in found.content.tool_references] == ["get_tide"]
    assert text.type == "text" and message.stop_reason == "end_turn"
    again = [*asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": "And now?"}]
    assert ask(looped, call, **request, messages=again).content


@pytest.mark.parametrize("call", ["create", "stream"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_advice_is_a_block_and_is_paid(looped, protocol, call):
    advisor = {"type": "advisor_20260301", "name": "advisor", "model": "test/sim"}
    message = ask(looped, call, model=f"{protocol}/caller", max_tokens=500, tools=[advisor], messages=ASKED)
    used, advice, text = [block for block in message.content if block.type != "thinking"]
    assert (used.type, used.name) == ("server_tool_use", "advisor")
    assert (advice.type, advice.tool_use_id) == ("advisor_tool_result", used.id)
    assert text.type == "text" and message.stop_reason == "end_turn"
    if call == "create":
        kinds = [turn["type"] for turn in message.usage.iterations]
        assert kinds == ["message", "advisor_message", "message"]


@pytest.mark.parametrize("protocol", ["chat", "responses", "gemini"])
def test_the_runner_of_tools_goes_on_without_a_thread_where_nobody_holds_one(looped, upstream, protocol):
    """It asks for one by default, and sends only what is new once it has one."""

    @anthropic.beta_tool
    def berth(query: str) -> str:
        """Says where a ship lies.

        Args:
            query: The name of the ship.
        """
        return "berth 7"

    runner = looped.beta.messages.tool_runner(
        model=f"{protocol}/caller",
        max_tokens=500,
        system="Be brief.",
        tools=[berth],
        messages=[{"role": "user", "content": "Where lies the Mary Rose?"}],
    )
    assert "berth 7" in runner.until_done().content[-1].text
    last = json.dumps(upstream.last_request()[1])
    assert all(said in last for said in ["Be brief.", "Where lies the Mary Rose?", "berth 7", "Says where a ship lies."])
    with pytest.raises(anthropic.BadRequestError) as refused:
        looped.beta.messages.thread(model=f"{protocol}/caller", max_tokens=500).send({"role": "user", "content": "hello"})
    assert type(refused.value).__name__ == "ThreadUnsupportedRequestError"
