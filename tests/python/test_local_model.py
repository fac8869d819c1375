"""A real model on an upstream that nobody here wrote: llama.cpp's own server, in each of the protocols it speaks."""

import subprocess

import anthropic
import pytest
from conftest import INFERENCE_KEY, ROOT, start_gateway

PROTOCOLS = {"anthropic": "", "openai-chat": "/v1", "openai-responses": "/v1"}


@pytest.fixture(scope="module")
def model():
    child = subprocess.Popen([ROOT / "script/local-model"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in child.stdout:
        if line.startswith("listening on "):
            break
    else:
        raise RuntimeError(f"the model did not start: {child.stderr.read()}")
    yield line.removeprefix("listening on ").strip()
    child.terminate()
    child.communicate(timeout=20)


@pytest.fixture(scope="module")
def gateway(model, upstream, tmp_path_factory):
    settings = ""
    for protocol, path in PROTOCOLS.items():
        settings += f"""
[[providers]]
slug = "local-{protocol}"
protocol = "{protocol}"
base_url = "{model}{path}"
[[models]]
id = "{protocol}/smollm2"
context_length = 4096
max_output_tokens = 1024
[[models.endpoints]]
provider = "local-{protocol}"
model = "smollm2"
pricing = {{ input = 0, output = 0 }}
"""
    process = start_gateway(upstream, tmp_path_factory.mktemp("local-model"), settings)
    yield process
    process.stop()


@pytest.fixture
def client(gateway):
    return anthropic.Anthropic(base_url=gateway.url, api_key=INFERENCE_KEY, max_retries=0, timeout=120)


def conversation(protocol):
    turns = [
        {"role": "user", "content": "The harbour is called Brest."},
        {"role": "assistant", "content": "Understood."},
        {"role": "user", "content": [{"type": "text", "text": "Count from one to ten, then say hello to the harbour."}]},
    ]
    # Without chance the model says the same every time.
    return {"model": f"{protocol}/smollm2", "max_tokens": 24, "extra_body": {"temperature": 0}, "system": "Be brief.", "messages": turns}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_conversation_whole(client, protocol):
    message = client.messages.create(**conversation(protocol))
    assert "".join(block.text for block in message.content if block.type == "text").strip(), message
    assert message.stop_reason in ("end_turn", "max_tokens")
    # The server counts with its own tokenizer; the same prompt has the same length in every protocol.
    assert 20 < message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) < 200, message.usage
    assert 0 < message.usage.output_tokens <= 24, message.usage


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_same_conversation_streamed(client, protocol):
    pieces = 0
    with client.messages.stream(**conversation(protocol)) as stream:
        for event in stream:
            pieces += event.type == "content_block_delta"
        message = stream.get_final_message()
    assert pieces > 1, "it comes piece by piece"
    assert message.content[0].type == "text" and message.usage.output_tokens > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_prompt_that_is_too_long_says_so(client, protocol):
    request = conversation(protocol)
    request["messages"] = [{"role": "user", "content": "word " * 6000}]
    with pytest.raises(anthropic.BadRequestError) as error:
        client.messages.create(**request)
    assert "prompt is too long" in str(error.value), error.value
