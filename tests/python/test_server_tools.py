"""Tools that the gateway runs, with the official Anthropic client: blocks it knows, put together as it does it."""

import anthropic
import pytest
from conftest import INFERENCE_KEY, start_gateway

SETTINGS = """
[tools.web_search.engines.fixed]
kind = "static"
results = [{ url = "https://tides.example/brest", title = "Tides", content = "High water in Brest is at six." }]
"""
OURS = {"type": "tidegate:web_search"}
VENDORS = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
QUESTION = [{"role": "user", "content": "When is high water?"}]


@pytest.fixture(scope="module")
def searching(upstream, tmp_path_factory):
    settings = f"""{SETTINGS}
[[providers]]
slug = "translated"
protocol = "openai-chat"
base_url = "{upstream.url}/v1"
api_key = "upstream-secret"
[[models]]
id = "translated/sim-tools"
context_length = 200000
max_output_tokens = 8192
[[models.endpoints]]
provider = "translated"
model = "sim-tools"
pricing = {{ input = 1, output = 2 }}
"""
    process = start_gateway(upstream, tmp_path_factory.mktemp("searching"), settings)
    yield anthropic.Anthropic(base_url=process.url, api_key=INFERENCE_KEY, max_retries=0)
    process.stop()


def answer(client, streamed, **arguments):
    if not streamed:
        return client.messages.create(max_tokens=1024, **arguments)
    with client.messages.stream(max_tokens=1024, **arguments) as stream:
        return stream.get_final_message()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("model", "tool"), [("test/sim-tools", OURS), ("translated/sim-tools", OURS), ("translated/sim-tools", VENDORS)]
)
def test_a_search_is_a_search_to_the_client(searching, upstream, model, tool, streamed):
    arguments = {"model": model, "tools": [tool]}
    message = answer(searching, streamed, messages=QUESTION, **arguments)
    call, result, text = [block for block in message.content if block.type != "thinking"]
    assert (call.type, call.name, call.input) == ("server_tool_use", "web_search", {"query": "When is high water?"})
    assert (result.type, result.tool_use_id) == ("web_search_tool_result", call.id)
    assert isinstance(result.content[0], anthropic.types.WebSearchResultBlock)
    assert (result.content[0].url, result.content[0].title) == ("https://tides.example/brest", "Tides")
    assert result.content[0].encrypted_content.startswith("tg1.")
    # The simulated model quotes what it was told, the address with it.
    assert "High water in Brest is at six." in text.text
    [citation] = text.citations
    assert isinstance(citation, anthropic.types.CitationsWebSearchResultLocation)
    assert (citation.url, citation.cited_text) == ("https://tides.example/brest", "High water in Brest is at six.")
    assert message.stop_reason == "end_turn" and message.usage.server_tool_use.web_search_requests == 1

    turns = [*QUESTION, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Thanks."}]
    assert answer(searching, streamed, messages=turns, **arguments).stop_reason == "end_turn"
