"""A server made with the official package of the Model Context Protocol: its tools are called by the gateway."""

import socket
import threading
import time

import anthropic
import pytest
import uvicorn
from conftest import INFERENCE_KEY, start_gateway
from mcp.server.mcpserver import MCPServer


@pytest.fixture(scope="module", params=[False, True], ids=["events", "whole"])
def server(request):
    """Where it listens; it answers as events or whole."""
    made = MCPServer("tides")

    @made.tool()
    def high_water(query: str) -> str:
        """When high water is."""
        return f"High water in {query} is at six."

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    app = made.streamable_http_app(json_response=request.param)
    running = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield listener.getsockname()[1]
    running.should_exit = True
    thread.join(timeout=20)


@pytest.fixture(scope="module")
def calling(upstream, server, tmp_path_factory):
    settings = f"""
[egress]
allow = ["127.0.0.1/32"]
ports = [80, 443, {server}]
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
    process = start_gateway(upstream, tmp_path_factory.mktemp("calling"), settings)
    yield anthropic.Anthropic(base_url=process.url, api_key=INFERENCE_KEY, max_retries=0)
    process.stop()


def called(message):
    call, text = [block for block in message.content if block.type != "thinking"]
    assert (call.type, call.name) == ("server_tool_use", "mcp__tides__high_water")
    # The simulated model asks what it was asked, and quotes what it was told.
    assert "High water in Brest is at six." in text.text


@pytest.mark.parametrize("model", ["test/sim-tools", "translated/sim-tools"])
def test_a_tool_of_a_real_server_is_called(calling, server, model):
    url = f"http://127.0.0.1:{server}/mcp"
    tool = {"type": "tidegate:mcp", "parameters": {"server_label": "tides", "server_url": url}}
    question = [{"role": "user", "content": "Brest"}]
    called(calling.messages.create(model=model, max_tokens=1024, messages=question, tools=[tool]))


def test_the_vendors_own_field_is_called_for_who_has_no_word_for_it(calling, server):
    servers = [{"type": "url", "name": "tides", "url": f"http://127.0.0.1:{server}/mcp"}]
    question = [{"role": "user", "content": "Brest"}]
    called(
        calling.messages.create(
            model="translated/sim-tools", max_tokens=1024, messages=question, extra_body={"mcp_servers": servers}
        )
    )
