"""The interface as a document: it must be a right one, and what the gateway really answers must be what it says."""

import base64
import hashlib
import json
import secrets
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import jsonschema
import pytest
from conftest import BINARY, INFERENCE_KEY, MANAGEMENT_KEY
from openapi_spec_validator import OpenAPIV31SpecValidator

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def document(branded):
    with urllib.request.urlopen(branded.url + "/api/v1/openapi.json") as answer:
        return json.load(answer)


def closed(schema):
    """The same schema without room for members that it does not name: what we answer must all be described."""
    if isinstance(schema, list):
        return [closed(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: closed(member) for name, member in schema.items()}
    if "properties" in result and "type" in result:
        result.setdefault("additionalProperties", False)
    return result


def is_like(path, template):
    parts, wanted = path.split("/"), template.split("/")
    return len(parts) == len(wanted) and all(want.startswith("{") or want == part for part, want in zip(parts, wanted))


class Api:
    """Calls the gateway and holds each answer against the document."""

    def __init__(self, url, document):
        self.url, self.document = url, document
        self.components = {"components": closed(document["components"])}

    def call(self, method, path, body=None, key=MANAGEMENT_KEY, headers=None):
        request = urllib.request.Request(f"{self.url}/api/v1{path}", method=method, headers=headers or {})
        if key:
            request.add_header("authorization", f"Bearer {key}")
        if body is not None:
            request.data = body if isinstance(body, bytes) else json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, headers, text = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            status, headers, text = error.code, error.headers, error.read()
        value = json.loads(text)
        self.check(method, path.split("?")[0], status, headers, value)
        return status, headers, value

    def check(self, method, path, status, headers, value):
        template = next(known for known in sorted(self.document["paths"]) if is_like(path, known))
        operation = self.document["paths"][template][method.lower()]
        assert str(status) in operation["responses"], f"{method} {template} does not declare {status}"
        response = operation["responses"][str(status)]
        kind = headers["content-type"].split(";")[0]
        schema = response["content"][kind]["schema"]
        validator = jsonschema.Draft202012Validator(
            {**schema, **self.components}, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
        )
        errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
        assert not errors, f"{method} {path} {status}: {errors}"
        assert headers["x-request-id"]

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body, **more):
        return self.call("POST", path, body, **more)


@pytest.fixture(scope="module")
def api(branded, document):
    return Api(branded.url, document)


@pytest.fixture
def workspace(api):
    slug = f"w{secrets.token_hex(6)}"
    status, _, answer = api.post("/workspaces", {"name": slug, "slug": slug, "description": "x"})
    assert status == 201
    return answer["data"]["id"]


def test_the_document_is_valid(document):
    OpenAPIV31SpecValidator(document).validate()


def test_the_command_prints_the_same_document(document):
    printed = json.loads(subprocess.run([BINARY, "openapi"], check=True, capture_output=True, text=True).stdout)
    assert printed["components"] == document["components"]
    assert {path: set(item) for path, item in printed["paths"].items()} == {
        path: set(item) for path, item in document["paths"].items()
    }


def test_schemas_are_not_just_anything(api):
    """The check of this file would pass with empty schemas; these must fail."""
    good = api.get("/key")[2]
    for broken in ({}, {"data": {}}, {"data": {**good["data"], "limit": "1"}}, {"data": {**good["data"], "more": 1}}):
        with pytest.raises(AssertionError):
            api.check("GET", "/key", 200, {"content-type": "application/json", "x-request-id": "x"}, broken)


def test_codes(api, workspace):
    verifier = secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    body = {
        "callback_url": "https://described.example.com/cb",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "expires_at": "2099-01-01T00:00:00+02:00",
        "key_label": "described",
        "limit": 1,
        "usage_limit_type": "daily",
        "workspace_id": workspace,
        "spawn_agent": "a",
        "spawn_cloud": "c",
    }
    once = {"Idempotency-Key": secrets.token_hex(8)}
    status, headers, answer = api.post("/auth/keys/code", body, headers=once)
    assert (status, headers["idempotent-replayed"]) == (200, None)
    code = answer["data"]["id"]
    status, headers, answer = api.post("/auth/keys/code", body, headers=once)
    assert (status, headers["idempotent-replayed"], answer["data"]["id"]) == (200, "true", None)
    assert api.post("/auth/keys/code", {**body, "limit": 2}, headers=once)[0] == 400

    assert api.post("/auth/keys", {"code": code}, key=None)[0] == 403
    assert api.post("/auth/keys", {"code": code, "code_challenge_method": "plain"}, key=None)[0] == 400
    status, headers, answer = api.post("/auth/keys", {"code": code, "code_verifier": verifier}, key=None)
    assert (status, headers["cache-control"]) == (200, "no-store")
    status, _, shown = api.get("/key", key=answer["key"])
    assert status == 200 and shown["data"]["limit_reset"] == "daily"


def test_keys(api, workspace):
    full = {
        "name": "described",
        "limit": 2.5,
        "limit_reset": "weekly",
        "expires_at": "2099-01-01T00:00:00Z",
        "external": {"user": "u"},
        "workspace_id": workspace,
    }
    for body in (full, {"name": "short", "workspace_id": workspace}):
        status, _, answer = api.post("/keys", body)
        assert status == 201
    key_hash = answer["data"]["hash"]
    assert len(api.get(f"/keys?workspace_id={workspace}")[2]["data"]) == 2
    assert api.get(f"/keys/{key_hash}")[0] == 200
    assert api.call("PATCH", f"/keys/{key_hash}", {"disabled": True, "limit": 3})[0] == 200
    assert len(api.get(f"/keys?include_disabled=1&offset=1&workspace_id={workspace}")[2]["data"]) == 1
    assert api.call("DELETE", f"/keys/{key_hash}")[0] == 200
    assert api.get(f"/keys/{key_hash}")[0] == 404
    assert api.get("/credits")[0] == 200


def test_presets(api, workspace):
    key = api.post("/keys", {"name": "presets", "workspace_id": workspace})[2]["key"]
    slug = f"p{secrets.token_hex(6)}"
    full = {"model": "test/sim", "system": [{"type": "text", "text": "Be brief."}], "cache_enabled": True, "messages": []}
    for body in (full, {}):
        status, _, answer = api.post(f"/presets/{slug}/messages", body, key=key)
        assert status == 200
    assert answer["data"]["designated_version"]["version"] == 2
    assert api.get("/presets?limit=1", key=key)[2]["total_count"] == 1
    assert api.get(f"/presets/{slug}", key=key)[0] == 200
    assert api.get(f"/presets/{slug}/versions", key=key)[2]["total_count"] == 2
    assert api.get(f"/presets/{slug}/versions/1", key=key)[2]["data"]["system_prompt"] == "Be brief."
    assert api.get(f"/presets/{slug}", key=INFERENCE_KEY)[0] == 404
    assert api.post(f"/presets/{slug}/messages", {}, key=INFERENCE_KEY)[0] == 403


def test_credits(api):
    for body in ({"amount": 2.5, "note": "described"}, {"amount": "0.000000001"}):
        status, _, answer = api.post("/credits/grants", body, headers={"idempotency-key": secrets.token_hex(8)})
        assert (status, answer["data"]["amount"]) == (201, float(body["amount"]))
    assert api.get("/credits/grants?limit=1")[2]["total_count"] >= 2
    assert api.post("/credits/grants", {"amount": -1})[0] == 400


def test_a_used_key(branded, api, workspace):
    key = api.post("/keys", {"name": "used", "limit": 1, "workspace_id": workspace})[2]["key"]
    api.call("PUT", f"/workspaces/{workspace}/budgets/lifetime", {"limit_usd": 5})
    message = {"model": "test/sim", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
    status, headers, _ = api.post("/messages", message, key=key)
    assert status == 200
    generation = headers["x-generation-id"]
    status, _, answer = api.get(f"/generation?id={generation}", key=key)
    assert (status, answer["data"]["id"]) == (200, generation)
    assert api.get("/generation?id=gen-unknown", key=key)[0] == 404
    assert api.post("/messages/count_tokens", message, key=key)[0] == 200
    assert api.post("/chat/completions", message, key=key)[0] == 200
    assert api.post("/responses", {"model": "test/sim", "input": "hi"}, key=key)[0] == 200
    status, _, answer = api.get("/key", key=key)
    assert (status, len(answer["data"]["budgets"])) == (200, 2)
    assert api.get("/key")[2]["data"]["is_management_key"]


def test_credentials(api, workspace):
    key_hash = api.post("/keys", {"name": "x", "workspace_id": workspace})[2]["data"]["hash"]
    full = {
        "provider": "ai21",
        "key": "sk-0123456789abcdefgh",
        "name": "described",
        "disabled": True,
        "is_required": True,
        "declared_region": "us",
        "declared_zdr": False,
        "allowed_models": ["openai/gpt-5.2"],
        "allowed_user_ids": [],
        "allowed_api_key_hashes": [key_hash],
        "workspace_id": workspace,
    }
    for body in (full, {"provider": "upstream", "key": "x", "workspace_id": workspace}):
        status, _, answer = api.post("/byok", body)
        assert status == 201
    assert api.post("/byok", full)[1]["x-openrouter-warnings"] == "unroutable:provider"
    status, _, listed = api.get(f"/byok?workspace_id={workspace}&limit=2")
    assert (status, len(listed["data"]), listed["total_count"]) == (200, 2, 3)
    path = f"/byok/{answer['data']['id']}"
    assert api.get(path)[0] == 200
    assert api.call("PATCH", path, {"key": "another", "sort_order": 0, "name": None})[0] == 200
    assert api.call("DELETE", path)[0] == 200
    assert api.get(path)[0] == 404


def test_workspaces_budgets_and_members(branded, api, workspace):
    user = branded.command("members", "add", "--email", f"{secrets.token_hex(6)}@example.com").strip()
    assert api.get("/workspaces?limit=1")[0] == 200
    assert api.get(f"/workspaces/{workspace}")[0] == 200
    assert api.call("PATCH", f"/workspaces/{workspace}", {"default_provider_sort": "exacto"})[0] == 200
    assert api.get("/organization/members")[0] == 200
    assert api.post(f"/workspaces/{workspace}/members/add", {"user_ids": [user]})[2]["added_count"] == 1
    assert api.get(f"/workspaces/{workspace}/members")[2]["total_count"] == 1
    assert api.post(f"/workspaces/{workspace}/members/remove", {"user_ids": [user]})[2]["removed_count"] == 1
    for interval, limit in (("lifetime", 100), ("daily", 0.5)):
        assert api.call("PUT", f"/workspaces/{workspace}/budgets/{interval}", {"limit_usd": limit})[0] == 200
    assert api.get(f"/workspaces/{workspace}/budgets/daily")[0] == 200
    assert len(api.get(f"/workspaces/{workspace}/budgets")[2]["data"]) == 2
    assert api.call("DELETE", f"/workspaces/{workspace}/budgets/daily")[0] == 200
    assert api.call("DELETE", f"/workspaces/{workspace}")[0] == 200


@pytest.mark.parametrize(
    "method, path, body, key, expected",
    [
        ("GET", "/keys", None, None, 401),
        ("GET", "/keys", None, "nobody", 401),
        ("GET", "/key", None, None, 401),
        ("GET", "/workspaces", None, INFERENCE_KEY, 403),
        ("PATCH", f"/byok/{NOBODY}", {}, INFERENCE_KEY, 403),
        ("PATCH", f"/byok/{NOBODY}", {}, MANAGEMENT_KEY, 404),
        ("PATCH", "/byok/nobody", {}, MANAGEMENT_KEY, 400),
        ("POST", "/keys", {"name": 1, "limit": "x"}, MANAGEMENT_KEY, 400),
        ("POST", "/keys", b"{", MANAGEMENT_KEY, 400),
        ("POST", "/keys", b'"' + b"x" * 300_000 + b'"', MANAGEMENT_KEY, 413),
        ("POST", "/auth/keys/code", {}, MANAGEMENT_KEY, 400),
        ("POST", "/auth/keys", {}, None, 400),
        ("POST", "/auth/keys", {"code": "nobody"}, None, 403),
        ("GET", "/keys?offset=-1", None, MANAGEMENT_KEY, 400),
        ("GET", "/byok?provider=nobody", None, MANAGEMENT_KEY, 400),
        ("GET", "/workspaces/nobody", None, MANAGEMENT_KEY, 404),
        ("DELETE", "/workspaces/default", None, MANAGEMENT_KEY, 403),
        ("PUT", "/workspaces/default/budgets/hourly", {"limit_usd": 1}, MANAGEMENT_KEY, 400),
        ("GET", "/presets?limit=0", None, INFERENCE_KEY, 400),
        ("GET", "/presets/Nobody", None, INFERENCE_KEY, 400),
        ("GET", "/presets/nobody/versions/1", None, INFERENCE_KEY, 404),
        ("POST", "/presets/nobody/messages", {"model": 1}, INFERENCE_KEY, 400),
        ("POST", "/presets/nobody/messages", {}, MANAGEMENT_KEY, 403),
        ("POST", "/messages", {"model": "test/sim"}, INFERENCE_KEY, 400),
        ("POST", "/messages", {}, MANAGEMENT_KEY, 403),
        ("POST", "/chat/completions", {"model": "test/sim"}, INFERENCE_KEY, 400),
        ("POST", "/chat/completions", {}, MANAGEMENT_KEY, 403),
        ("POST", "/responses", {"model": "test/sim"}, INFERENCE_KEY, 400),
        ("POST", "/responses", {}, MANAGEMENT_KEY, 403),
        ("POST", "/messages", {}, "nobody", 401),
        ("POST", "/messages/count_tokens", {}, INFERENCE_KEY, 400),
    ],
)
def test_errors(api, method, path, body, key, expected):
    status, _, answer = api.call(method, path, body, key)
    assert status == expected
    if "code" in answer["error"]:
        assert answer["error"]["code"] == status


def test_pages_answer_what_the_document_says(branded, document):
    for path, item in document["paths"].items():
        if "servers" not in item or "get" not in item:
            continue
        query = "?callback_url=https%3A%2F%2Fa.example.com%2F" if path == "/auth" else ""
        request = urllib.request.Request(branded.url + path + query, headers={"authorization": f"Bearer {MANAGEMENT_KEY}"})
        try:
            answer = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as error:
            # There is no issuer here that people could sign in with.
            assert path.startswith("/dashboard/oidc"), path
            answer = error
        with answer:
            kind = answer.headers["content-type"].split(";")[0]
            assert kind in item["get"]["responses"][str(answer.status)]["content"], path


def test_who_may_call_is_what_happens(branded, document):
    """Without a key an operation answers 401 exactly when the document asks for one."""
    for path, item in document["paths"].items():
        base = branded.url if "servers" in item else branded.url + "/api/v1"
        for method, operation in item.items():
            if method == "servers":
                continue
            address = base + path.replace("{", "").replace("}", "")
            request = urllib.request.Request(address, b"{}" if "requestBody" in operation else None, method=method.upper())
            request.add_header("content-type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    status = answer.status
            except urllib.error.HTTPError as error:
                status = error.code
            assert (status == 401) == (operation["x-callers"] != "anyone"), (method, path, status)
            assert bool(operation["security"]) == (operation["x-callers"] != "anyone")
