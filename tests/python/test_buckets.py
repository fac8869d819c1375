"""What is put into a bucket is checked by a server that knows S3 and checks signatures, and read with Amazon's own client."""

import json
import time
import urllib.request

import anthropic
import boto3
import pytest
from conftest import INFERENCE_KEY, MANAGEMENT_KEY, start_gateway
from moto.server import ThreadedMotoServer

BUCKET = "traces"
TRACE = "0af7651916cd43dd8448eb211c80319c"
ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


class Store:
    """A server of objects, and a user who may put and read them."""

    def __init__(self):
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        first = {"aws_access_key_id": "nobody", "aws_secret_access_key": "nothing"}
        iam = self.client("iam", **first)
        iam.create_user(UserName="tidegate")
        iam.put_user_policy(UserName="tidegate", PolicyName="all", PolicyDocument=json.dumps(ALL))
        key = iam.create_access_key(UserName="tidegate")["AccessKey"]
        self.key, self.secret = key["AccessKeyId"], key["SecretAccessKey"]
        self.client("s3", **first).create_bucket(Bucket=BUCKET)
        # From here on nobody gets in without a signature that is right.
        plain = {"content-type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/moto-api/reset-auth", b"0", plain))

    def client(self, service, **keys):
        keys = keys or {"aws_access_key_id": self.key, "aws_secret_access_key": self.secret}
        return boto3.client(service, region_name="us-east-1", endpoint_url=self.url, **keys)

    def keys(self):
        return [each["Key"] for each in self.client("s3").list_objects_v2(Bucket=BUCKET).get("Contents", [])]

    def wait_for(self, count):
        end = time.monotonic() + 20
        while len(self.keys()) < count and time.monotonic() < end:
            time.sleep(0.05)
        assert len(self.keys()) == count, self.keys()
        return self.keys()


@pytest.fixture(scope="module")
def store():
    store = Store()
    yield store
    store.server.stop()


def destination(name, store, secret, more=""):
    return f"""
[[destinations]]
name = "{name}"
type = "s3"
config = {{ endpoint = "{store.url}", bucketName = "{BUCKET}", accessKeyId = "{store.key}", secretAccessKey = "{secret}"{more} }}
headers = {{ x-amz-storage-class = "STANDARD_IA" }}
"""


@pytest.fixture(scope="module")
def gateway(upstream, store, tmp_path_factory):
    folder = ', prefix = "a b+c", pathTemplate = "{prefix}/=$&/{apiKeyName}"'
    settings = destination("store", store, store.secret, folder) + destination("forged", store, "x" * 40)
    gateway = start_gateway(upstream, tmp_path_factory.mktemp("buckets"), settings)
    yield gateway
    gateway.stop()


def metric(gateway, name):
    request = urllib.request.Request(f"{gateway.url}/metrics", headers={"authorization": f"Bearer {MANAGEMENT_KEY}"})
    with urllib.request.urlopen(request) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def test_objects_are_signed_put_and_readable(gateway, store):
    client = anthropic.Anthropic(base_url=gateway.url, api_key=INFERENCE_KEY, max_retries=0, timeout=20)
    messages = [{"role": "user", "content": "hello"}]
    trace = {"trace_id": TRACE, "step": 3}
    whole = client.messages.create(
        model="test/sim", max_tokens=64, messages=messages, extra_body={"trace": trace, "user": "u"}
    )
    [key] = store.wait_for(1)
    folder, name = key.rsplit("/", 1)
    assert folder.startswith("a b+c/=$&/") and name.startswith(TRACE) and name.endswith(".json")
    found = store.client("s3").get_object(Bucket=BUCKET, Key=key)
    assert (found["ContentType"], found["StorageClass"]) == ("application/json", "STANDARD_IA")
    told = json.load(found["Body"])
    assert (told["id"], told["userId"], told["metadata"]) == (TRACE, "u", {"step": 3})
    [generation] = told["observations"]
    assert generation["usage"]["input"] == whole.usage.input_tokens
    assert generation["usage"]["output"] == whole.usage.output_tokens
    assert generation["cost"]["total"] == pytest.approx(whole.usage.cost)
    assert generation["output"][0]["parts"][0]["content"] == whole.content[0].text
    for _ in range(20):
        client.messages.create(model="test/sim", max_tokens=64, messages=messages)
    assert len(set(store.wait_for(21))) == 21


def test_a_wrong_secret_puts_nothing_and_is_counted(gateway, store):
    count = 'tidegate_broadcast_dropped_total{destination_type="s3",reason="given_up"}'
    end = time.monotonic() + 20
    while metric(gateway, count) < 21 and time.monotonic() < end:
        time.sleep(0.05)
    assert metric(gateway, count) == 21, "all of it was refused, for its signature alone"
    assert not [key for key in store.keys() if key.startswith("tidegate-traces")]
