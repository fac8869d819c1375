"""What outlives a failure, seen through Anthropic's own client: its stream accumulator must notice nothing."""

import anthropic
import pytest
from conftest import INFERENCE_KEY, start_gateway

WORDS = "one two three four five six seven eight nine ten"
# What the simulator says to these words.
TALE = f"You said: {WORDS}"
WAYS = {"native": ("anthropic", ""), "translated": ("openai-chat", "/v1")}


@pytest.fixture(scope="module")
def survivor(upstream, tmp_path_factory):
    """Models whose first endpoint breaks and whose second one is well, in every pair of protocols."""
    settings = '[routing]\ndefault_sort = "price"\nhealth = false\n'
    for way, (protocol, path) in WAYS.items():
        for name in ("first", "second"):
            settings += f"""
[[providers]]
slug = "{name}-{way}"
display_name = "{name} {way}"
protocol = "{protocol}"
base_url = "{upstream.url}{path}"
api_key = "upstream-secret"
"""
    for one in WAYS:
        for other in WAYS:
            for kind in ("close-mid", "error-mid"):
                settings += f"""
[[models]]
id = "{one}-{other}/{kind}"
context_length = 200000
max_output_tokens = 8192
[[models.endpoints]]
provider = "first-{one}"
model = "sim-{kind}"
shadow_price = 1
pricing = {{ input = 3, output = 15 }}
[[models.endpoints]]
provider = "second-{other}"
model = "sim"
shadow_price = 2
pricing = {{ input = 3, output = 15 }}
card = {{ prefill = "native" }}
"""
    process = start_gateway(upstream, tmp_path_factory.mktemp("survivor"), settings)
    yield anthropic.Anthropic(base_url=process.url, api_key=INFERENCE_KEY, max_retries=0, timeout=20)
    process.stop()


@pytest.mark.parametrize("kind", ["close-mid", "error-mid"])
@pytest.mark.parametrize("other", WAYS)
@pytest.mark.parametrize("one", WAYS)
def test_a_stream_that_breaks_is_one_message(survivor, one, other, kind):
    request = {"model": f"{one}-{other}/{kind}", "max_tokens": 200, "messages": [{"role": "user", "content": WORDS}]}
    with survivor.messages.stream(**request) as stream:
        heard = "".join(stream.text_stream)
        message = stream.get_final_message()
    # The simulator breaks off a tale of its own; what it says then depends on how it reads the conversation's end.
    assert heard.startswith("The tide")
    assert heard.endswith((TALE, "You said nothing."))
    assert "".join(block.text for block in message.content) == heard
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0


@pytest.mark.parametrize("call", ["create", "stream"])
def test_a_refusal_is_answered_by_the_next_model(client, call):
    request = {
        "model": "test/sim-refusal",
        "max_tokens": 200,
        "messages": [{"role": "user", "content": WORDS}],
        "extra_body": {"models": ["test/sim"]},
    }
    if call == "create":
        message = client.messages.create(**request)
        assert (message.model, message.content[0].text) == ("test/sim", TALE)
    else:
        # This one speaks before it refuses, and what was said cannot be taken back.
        with client.messages.stream(**request) as stream:
            message = stream.get_final_message()
        assert (message.model, message.stop_reason) == ("test/sim-refusal", "refusal")
