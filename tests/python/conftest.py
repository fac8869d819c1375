"""Starts a simulated upstream and a gateway in front of it, both the real binary, on loopback."""

import base64
import json
import os
import pathlib
import subprocess
import threading
import urllib.request

import anthropic
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TIDEGATE", str(ROOT / "target/debug/tidegate"))
INFERENCE_KEY = "sdk-tests-inference-key"
MANAGEMENT_KEY = "sdk-tests-management-key"

# Upstream names that the simulator gives a meaning to.
MODELS = ["sim", "sim-thinking", "sim-tools", "sim-refusal", "sim-cached", "sim-error-mid", "sim-close-mid"]
MODELS += [f"sim-status-{status}" for status in (400, 404, 413, 429, 500, 503, 529)]


class Process:
    """A child that says where it listens; ended when the session ends."""

    def __init__(self, arguments, environment):
        self.child = subprocess.Popen([BINARY, *arguments], stdout=subprocess.PIPE, text=True, env=environment)
        for line in self.child.stdout:
            if "listening on " in line:
                self.url = line.split("listening on ")[1].strip()
                # Its log goes there, too: nobody may wait for room in the pipe.
                threading.Thread(target=self.child.stdout.read, daemon=True).start()
                return
        raise RuntimeError(f"{arguments} ended with {self.child.wait()}")

    def stop(self):
        self.child.terminate()
        self.child.wait(timeout=20)


class Upstream(Process):
    def last_request(self):
        with urllib.request.urlopen(f"{self.url}/_sim/requests") as answer:
            last = json.load(answer)[-1]
        return last, json.loads(base64.b64decode(last["body_base64"]))


@pytest.fixture(scope="session")
def upstream():
    process = Upstream(["sim"], {})
    yield process
    process.stop()


def start_gateway(upstream, folder, settings=""):
    """A gateway in front of the upstream; `settings` come last in its configuration."""
    models = "".join(
        f"""
[[models]]
id = "test/{name}"
context_length = 200000
max_output_tokens = 8192
input_modalities = ["text", "image", "file"]
[[models.endpoints]]
provider = "upstream"
model = "{name}"
pricing = {{ input = 3, output = 15, cache_read = 0.3, cache_write = 3.75, cache_write_1h = 6 }}
"""
        for name in MODELS
    )
    config = folder / "tidegate.toml"
    config.write_text(
        f"""
[keys]
inference_key = "env:INFERENCE_KEY"
management_key = "env:MANAGEMENT_KEY"
[log]
level = "warn"
[[providers]]
slug = "upstream"
display_name = "Upstream"
protocol = "anthropic"
base_url = "{upstream.url}"
api_key = "upstream-secret"
{models}
[service]
listen = "127.0.0.1:0"
drain_delay = 0
{settings}
"""
    )
    environment = {"INFERENCE_KEY": INFERENCE_KEY, "MANAGEMENT_KEY": MANAGEMENT_KEY}
    arguments = ["--config", str(config), "--data-dir", str(folder / "data")]
    process = Process(["serve", *arguments], environment)

    def command(*words):
        """Another command of the binary on the same data."""
        whole = [BINARY, *words, *arguments]
        return subprocess.run(whole, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout

    process.command = command
    return process


@pytest.fixture(scope="session")
def gateway(upstream, tmp_path_factory):
    process = start_gateway(upstream, tmp_path_factory.mktemp("gateway"))
    yield process
    process.stop()


@pytest.fixture(scope="session")
def branded(upstream, tmp_path_factory):
    """A gateway under the name that OpenRouter's clients have in their headers, without limits that tests would meet."""
    settings = """name = "openrouter"
[limits]
auth_failures_per_minute = 600000
management_rpm = 600000
exchanges_per_minute = 600000
exchange_failures_per_minute = 600000
"""
    process = start_gateway(upstream, tmp_path_factory.mktemp("branded"), settings)
    yield process
    process.stop()


@pytest.fixture
def client(gateway):
    return anthropic.Anthropic(base_url=gateway.url, api_key=INFERENCE_KEY, max_retries=0, timeout=20)
