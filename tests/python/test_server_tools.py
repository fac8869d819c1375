"""Tools that the gateway runs, with the official Anthropic client: blocks it knows, put together as it does it."""

import json
import urllib.request

import anthropic
import pytest
from conftest import INFERENCE_KEY, Upstream, start_gateway

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


PAGE = "https://tides.example/brest"
SEARCHES = {"query": "tides in Brest", "found": [[PAGE, "Tides"]], "text": "High water is at six."}
# Vendors who search for their own models, and what their addresses end in.
VENDORS_OWN = {"anthropic": "", "openai-responses": "/v1", "gemini": "/v1beta"}


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    vendors = Upstream(["sim"], {})
    script = json.dumps({"behaviour": {"searches": SEARCHES}}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{vendors.url}/_sim/script", script, method="PUT")):
        pass
    settings = "".join(
        f"""
[[providers]]
slug = "own-{protocol}"
protocol = "{protocol}"
base_url = "{vendors.url}{path}"
api_key = "upstream-secret"
[[models]]
id = "own/{protocol}"
context_length = 200000
max_output_tokens = 8192
[[models.endpoints]]
provider = "own-{protocol}"
model = "m"
native_tools = ["web_search"]
pricing = {{ input = 1, output = 2, web_search = 0.01 }}
"""
        for protocol, path in VENDORS_OWN.items()
    )
    process = start_gateway(vendors, tmp_path_factory.mktemp("native"), settings)
    yield anthropic.Anthropic(base_url=process.url, api_key=INFERENCE_KEY, max_retries=0)
    process.stop()
    vendors.stop()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("protocol", VENDORS_OWN)
def test_a_search_of_the_vendors_own_is_the_same_to_the_client(native, protocol, streamed):
    arguments = {"model": f"own/{protocol}", "tools": [OURS]}
    message = answer(native, streamed, messages=QUESTION, **arguments)
    blocks = {block.type: block for block in message.content}
    assert sorted(blocks) == ["server_tool_use", "text", "web_search_tool_result"]
    call, result, text = blocks["server_tool_use"], blocks["web_search_tool_result"], blocks["text"]
    assert (call.name, call.input) == ("web_search", {"query": "tides in Brest"})
    assert result.tool_use_id == call.id
    assert isinstance(result.content[0], anthropic.types.WebSearchResultBlock)
    assert result.content[0].url == PAGE
    [citation] = text.citations
    assert isinstance(citation, anthropic.types.CitationsWebSearchResultLocation)
    assert (citation.url, citation.title, text.text) == (PAGE, "Tides", SEARCHES["text"])
    assert message.usage.server_tool_use.web_search_requests == 1

    turns = [*QUESTION, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Thanks."}]
    assert answer(native, streamed, messages=turns, **arguments).stop_reason == "end_turn"
