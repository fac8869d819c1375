"""What destinations are told is read with OpenTelemetry's own types."""

import base64
import gzip
import http.server
import json
import threading
import time

import anthropic
import pytest
from conftest import INFERENCE_KEY, start_gateway
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Keeps what it is sent."""

    def __init__(self):
        told = self.told = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                told.append((self.path, self.headers, body))
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self, path="/v1/traces"):
        """All spans so far that came there. Ids are hex in OTLP's JSON and base64 in protobuf's own."""
        spans = []
        for _, headers, body in [each for each in self.told if each[0] == path]:
            if headers["content-type"] == "application/x-protobuf":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    spans += [(resource.resource, span) for scope in resource.scope_spans for span in scope.spans]
                continue
            told = json.loads(body)
            for resource in told["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        for name in ("traceId", "spanId", "parentSpanId"):
                            if name in span:
                                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
            request = json_format.ParseDict(told, ExportTraceServiceRequest())
            for resource in request.resource_spans:
                spans += [(resource.resource, span) for scope in resource.scope_spans for span in scope.spans]
        return spans

    def wait_for(self, count, path="/v1/traces"):
        end = time.monotonic() + 20
        while len(self.spans(path)) < count and time.monotonic() < end:
            time.sleep(0.05)
        assert len(self.spans(path)) >= count
        return self.spans(path)

    def wait_for_name(self, name, path):
        end = time.monotonic() + 20
        while time.monotonic() < end and not any(span.name == name for _, span in self.spans(path)):
            time.sleep(0.05)


@pytest.fixture(scope="module")
def collector():
    collector = Collector()
    yield collector
    collector.server.shutdown()


@pytest.fixture(scope="module")
def client(upstream, collector, tmp_path_factory):
    settings = f"""
[[destinations]]
name = "collector"
type = "otel-collector"
config = {{ endpoint = "{collector.url}/v1/traces" }}
[[destinations]]
name = "binary"
type = "otel-collector"
config = {{ endpoint = "{collector.url}/binary", protocol = "http/protobuf", compression = "gzip" }}
[[destinations]]
name = "headers"
type = "otel-collector"
config = {{ endpoint = "{collector.url}/headers" }}
headers = {{ content-type = "application/x-protobuf" }}
[[destinations]]
name = "weave"
type = "weave"
config = {{ baseUrl = "{collector.url}", apiKey = "k", entity = "team", project = "tides" }}
"""
    gateway = start_gateway(upstream, tmp_path_factory.mktemp("broadcast"), settings)
    yield anthropic.Anthropic(base_url=gateway.url, api_key=INFERENCE_KEY, max_retries=0, timeout=20)
    gateway.stop()


def attributes(of):
    """Name to value, each in its own type."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


def test_every_type_is_what_the_official_types_say(client, collector):
    trace = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "trace_name": "Checkout", "step": 3, "share": 0.5}
    messages = [{"role": "user", "content": "hello"}]
    whole = client.messages.create(
        model="test/sim", max_tokens=64, messages=messages, extra_body={"trace": trace, "session_id": "s"}
    )
    with client.messages.stream(model="test/sim-tools", max_tokens=64, messages=messages) as stream:
        streamed = stream.get_final_message()
    spans = collector.wait_for(3)
    root, first, second = [span for _, span in spans]
    assert (root.name, first.trace_id.hex()) == ("Checkout", trace["trace_id"])
    assert first.parent_span_id == root.span_id and first.kind == first.SPAN_KIND_CLIENT
    said = attributes(first)
    assert said["gen_ai.usage.input_tokens"] == whole.usage.input_tokens
    assert said["gen_ai.usage.output_tokens"] == whole.usage.output_tokens
    assert said["gen_ai.usage.cost"] == pytest.approx(whole.usage.cost)
    assert said["trace.metadata.step"] == 3 and said["trace.metadata.share"] == 0.5
    assert said["session.id"] == "s"
    assert list(said["gen_ai.response.finish_reasons"].values)[0].string_value == whole.stop_reason
    answer = json.loads(said["gen_ai.output.messages"])[0]
    assert answer["parts"][0]["content"] == whole.content[0].text
    said = attributes(second)
    assert said["gen_ai.request.stream"] is True and said["gen_ai.response.time_to_first_chunk"] >= 0
    calls = [part for part in json.loads(said["gen_ai.output.messages"])[0]["parts"] if part["type"] == "tool_call"]
    expected = [block for block in streamed.content if block.type == "tool_use"]
    assert [(call["id"], call["name"], call["arguments"]) for call in calls] == [
        (block.id, block.name, block.input) for block in expected
    ]
    assert attributes(spans[0][0])["service.name"] == "tidegate"


def test_both_forms_say_the_same(client, collector):
    trace = {"trace_name": "Failing"}
    with pytest.raises(anthropic.APIStatusError):
        client.messages.create(
            model="test/sim-status-400",
            max_tokens=64,
            messages=[{"role": "user", "content": "x"}],
            extra_body={"trace": trace},
        )
    for path in ("/v1/traces", "/binary", "/headers", "/otel/v1/traces"):
        collector.wait_for_name("Failing", path)
        told = {span.span_id: span for _, span in collector.spans()}
        assert len(collector.spans(path)) == len(told)
        for resource, span in collector.spans(path):
            assert span == told[span.span_id], path
            own = attributes(resource)
            entity = own.get("wandb.entity"), own.get("wandb.project")
            assert entity == (("team", "tides") if path.startswith("/otel") else (None, None))
    kinds = {}
    for path, headers, _ in collector.told:
        kinds.setdefault(path, set()).add(headers["content-type"])
    assert kinds == {
        "/v1/traces": {"application/json"},
        "/binary": {"application/x-protobuf"},
        "/headers": {"application/x-protobuf"},
        "/otel/v1/traces": {"application/x-protobuf"},
    }
    assert all(headers["wandb-api-key"] == "k" for path, headers, _ in collector.told if path.startswith("/otel"))
    assert all(headers["content-encoding"] == "gzip" for path, headers, _ in collector.told if path == "/binary")
