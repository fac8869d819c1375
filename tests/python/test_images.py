"""Pictures with the official clients: OpenAI's asks for one, Anthropic's gets one in a loop of tools."""

import base64
import json
import urllib.error
import urllib.request

import anthropic
import openai
import pytest
from conftest import INFERENCE_KEY, Upstream, start_gateway

PNG = b"\x89PNG\r\n\x1a\n"
QUESTION = [{"role": "user", "content": "Draw a boat."}]
SCRIPT = {"behaviour": {"calls": {"name": "tidegate_image_generation", "input": {"prompt": "a boat"}}}}
TOOL = {"type": "tidegate:image_generation", "parameters": {"model": "art/sim", "size": "1024x1024"}}


@pytest.fixture(scope="module")
def artist():
    """An upstream whose models have a boat drawn."""
    process = Upstream(["sim"], {})
    request = urllib.request.Request(f"{process.url}/_sim/script", json.dumps(SCRIPT).encode(), method="PUT")
    urllib.request.urlopen(request).close()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def drawing(artist, tmp_path_factory):
    models = "".join(
        f"""
[[models]]
id = "{provider}/writes"
context_length = 200000
max_output_tokens = 8192
[[models.endpoints]]
provider = "{provider}"
model = "m"
pricing = {{ input = 1, output = 2 }}
"""
        for provider in ("upstream", "translated")
    )
    settings = f"""
[[providers]]
slug = "translated"
protocol = "openai-chat"
base_url = "{artist.url}/v1"
api_key = "upstream-secret"
{models}
[[models]]
id = "art/sim"
context_length = 32000
max_output_tokens = 8192
output_modalities = ["image"]
[[models.endpoints]]
provider = "translated"
model = "m"
pricing = {{ input = 0, output = 0, image_out = 0.04 }}
"""
    process = start_gateway(artist, tmp_path_factory.mktemp("drawing"), settings)
    yield process
    process.stop()


def test_openais_client_asks_for_images(drawing, artist):
    client = openai.OpenAI(base_url=f"{drawing.url}/v1", api_key=INFERENCE_KEY, max_retries=0)
    made = client.images.generate(model="art/sim", prompt="a boat", n=2, size="1024x1024", quality="hd")
    assert len(made.data) == 2 and base64.b64decode(made.data[0].b64_json).startswith(PNG)
    assert made.created > 0 and made.usage.input_tokens == 0 and made.usage.cost == 0.08
    _, body = artist.last_request()
    assert body == {
        "model": "m",
        "prompt": "a boat",
        "n": 2,
        "response_format": "b64_json",
        "size": "1024x1024",
        "quality": "hd",
    }
    events = list(client.images.generate(model="art/sim", prompt="a boat", stream=True))
    assert [event.type for event in events] == ["image_generation.completed"]
    assert base64.b64decode(events[0].b64_json).startswith(PNG) and events[0].usage.cost == 0.04
    with pytest.raises(openai.BadRequestError, match="n must be at most 10"):
        client.images.generate(model="art/sim", prompt="a boat", n=11)
    with pytest.raises(openai.BadRequestError, match="does not make images"):
        client.images.generate(model="translated/writes", prompt="a boat")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", ["upstream/writes", "translated/writes"])
def test_a_loop_that_draws_is_one_message_to_anthropics_client(drawing, model, streamed):
    client = anthropic.Anthropic(base_url=drawing.url, api_key=INFERENCE_KEY, max_retries=0)
    arguments = {"model": model, "max_tokens": 1024, "tools": [TOOL], "messages": QUESTION}
    if streamed:
        with client.messages.stream(**arguments) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**arguments)
    call, text = [block for block in message.content if block.type != "thinking"]
    assert (call.type, call.name, call.input) == ("server_tool_use", "tidegate:image_generation", {"prompt": "a boat"})
    assert message.stop_reason == "end_turn"
    # The accumulator of streams keeps the counts that it knows and nothing else.
    assert streamed or message.usage.cost > 0.04
    # The simulated model quotes what it was told, the address with it.
    address = text.text[text.text.index("http") :].split('"')[0].split("\\")[0]
    with urllib.request.urlopen(address) as answer:
        assert answer.headers["content-type"] == "image/png" and answer.read().startswith(PNG)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address[:-2])
    turns = [*QUESTION, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Thanks."}]
    assert client.messages.create(**{**arguments, "messages": turns}).stop_reason == "end_turn"
