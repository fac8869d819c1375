"""Presets with the official Anthropic client: made once over HTTP, then named where a model would be."""

import json
import urllib.error
import urllib.request

import anthropic
import pytest

from conftest import INFERENCE_KEY

HELLO = [{"role": "user", "content": "Hello there"}]
WEATHER = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}}}


def call(gateway, method, path, body=None):
    request = urllib.request.Request(f"{gateway.url}/api/v1{path}", method=method)
    request.add_header("authorization", f"Bearer {INFERENCE_KEY}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)["data"]


@pytest.fixture(scope="module")
def preset(gateway):
    body = {"model": "test/sim", "system": "Be brief.", "temperature": 0.5, "tools": [WEATHER], "messages": HELLO}
    return call(gateway, "POST", "/presets/brief/messages", body)


def test_a_preset_stands_where_a_model_does(client, upstream, gateway, preset):
    message = client.messages.create(model="@preset/brief", max_tokens=64, messages=HELLO)
    assert (message.model, message.content[0].text) == ("test/sim", "You said: Hello there")
    _, sent = upstream.last_request()
    assert sent == {
        "model": "sim",
        "max_tokens": 64,
        "messages": HELLO,
        "system": "Be brief.",
        "temperature": 0.5,
        "tools": [WEATHER],
    }
    assert call(gateway, "GET", f"/generation?id={message._request_id}")["preset_id"] == preset["id"]


def test_a_preset_is_streamed_and_counted(client, upstream, preset):
    with client.messages.stream(model="@preset/brief", max_tokens=64, system="Be long.", messages=HELLO) as stream:
        assert stream.get_final_message().model == "test/sim"
    assert upstream.last_request()[1]["system"] == "Be long."
    assert client.messages.count_tokens(model="@preset/brief", messages=HELLO).input_tokens > 0
    assert upstream.last_request()[1]["system"] == "Be brief."


def test_the_member_of_the_body_does_the_same(client, upstream, preset):
    message = client.messages.create(
        model="test/sim", max_tokens=64, messages=HELLO, extra_body={"preset": "brief", "temperature": 1}
    )
    assert message.model == "test/sim"
    sent = upstream.last_request()[1]
    assert (sent["system"], sent["temperature"], "preset" in sent) == ("Be brief.", 1, False)


def test_a_preset_that_does_not_exist(client, gateway):
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="@preset/nobody", max_tokens=64, messages=HELLO)
    assert caught.value.body["error"]["message"] == "Preset not found: nobody"
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(gateway, "GET", "/presets/nobody")
    assert refused.value.code == 404
