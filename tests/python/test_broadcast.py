"""What destinations are told is read with OpenTelemetry's own types."""

import base64
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
                told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        """All spans so far. Ids are hex in OTLP's JSON and base64 in protobuf's own."""
        spans = []
        for told in list(self.told):
            told = json.loads(json.dumps(told))
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

    def wait_for(self, count):
        end = time.monotonic() + 20
        while len(self.spans()) < count and time.monotonic() < end:
            time.sleep(0.05)
        assert len(self.spans()) >= count
        return self.spans()


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
config = {{ endpoint = "{collector.url}" }}
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
