"""OpenRouter's own Python client against the account operations: it refuses answers that lack what its types require."""

import asyncio
import base64
import datetime
import hashlib
import json
import re
import secrets

import anthropic
import pytest
from conftest import INFERENCE_KEY, MANAGEMENT_KEY
from openrouter import OpenRouter, errors

# The client warns of members it calls deprecated and of providers that only the operator knows.
pytestmark = [
    pytest.mark.filterwarnings("ignore:warning. .. DEPRECATED:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
HASH = re.compile(r"[0-9a-f]{64}")
KEY = re.compile(r"sk-tg-v1-[0-9A-Za-z]+")
NEW_YEAR = datetime.datetime(2099, 1, 1, tzinfo=datetime.timezone.utc)
SPENT = [f"{kind}usage{window}" for kind in ("", "byok_") for window in ("", "_daily", "_weekly", "_monthly")]


def client_of(gateway, key=MANAGEMENT_KEY):
    return OpenRouter(api_key=key, server_url=gateway.url + "/api/v1", timeout_ms=30_000, x_open_router_title="SDK tests")


@pytest.fixture(scope="module")
def client(branded):
    with client_of(branded) as client:
        yield client


@pytest.fixture
def workspace(client):
    """One of its own for each test: what is in it is not seen by others."""
    name = f"w{secrets.token_hex(6)}"
    return client.workspaces.create(name=name, slug=name).data


@pytest.fixture(scope="module")
def members(branded):
    """Two people: an admin and a member."""
    add = lambda *words: branded.command("members", "add", *words).strip()
    mark = secrets.token_hex(4)
    ada = add("--email", f"ada-{mark}@example.com", "--role", "admin", "--first-name", "Ada", "--last-name", "Byron")
    bob = add("--email", f"bob-{mark}@example.com")
    return ada, bob


def fits(pattern, text):
    return pattern.fullmatch(text) is not None


def say_hello(gateway, key):
    client = anthropic.Anthropic(base_url=gateway.url, api_key=key, max_retries=0, timeout=20)
    return client.messages.create(model="test/sim", max_tokens=32, messages=[{"role": "user", "content": "hello"}])


def proof():
    verifier = secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    return verifier, challenge


# Authorization codes.


def test_a_code_becomes_a_key_that_works(branded, client, workspace):
    verifier, challenge = proof()
    code = client.o_auth.create_auth_code(
        callback_url="https://app.example.com/callback?kept=1",
        code_challenge=challenge,
        code_challenge_method="S256",
        expires_at=NEW_YEAR,
        key_label="a laptop",
        limit=12.5,
        usage_limit_type="weekly",
        workspace_id=workspace.id,
    ).data
    assert code.id.startswith("auth_code_") and len(code.id) == 53
    assert code.app_id > 0
    assert fits(INSTANT, code.created_at)

    # Whoever exchanges a code has no key yet.
    with client_of(branded, key=None) as nobody:
        exchange = nobody.o_auth.exchange_auth_code_for_api_key
        made = exchange(code=code.id, code_verifier=verifier, code_challenge_method="S256")
    assert fits(KEY, made.key)
    assert made.user_id is None

    message = say_hello(branded, made.key)
    assert message.content[0].text.startswith("You said")
    key = client.api_keys.get(hash=hashlib.sha256(made.key.encode()).hexdigest()).data
    assert (key.name, key.limit, key.limit_reset, key.expires_at) == ("a laptop", 12.5, "weekly", NEW_YEAR)
    assert (key.workspace_id, key.disabled, key.include_byok_in_limit) == (workspace.id, False, False)


def test_a_code_with_few_members(branded, client):
    first = client.o_auth.create_auth_code(callback_url="http://localhost:51423/cb").data
    again = client.o_auth.create_auth_code(callback_url="http://localhost:51423/other", expires_at=None).data
    assert first.app_id == again.app_id and first.id != again.id
    other = client.o_auth.create_auth_code(callback_url="http://localhost:51424/cb").data
    assert other.app_id != first.app_id
    made = client.o_auth.exchange_auth_code_for_api_key(code=first.id)
    key = client.api_keys.get(hash=hashlib.sha256(made.key.encode()).hexdigest()).data
    assert (key.name, key.limit, key.limit_reset, key.expires_at) == ("localhost:51423", None, None, None)


def test_the_header_of_the_client_names_the_application(client):
    code = client.o_auth.create_auth_code(callback_url=f"https://{secrets.token_hex(4)}.example.com/").data
    made = client.o_auth.exchange_auth_code_for_api_key(code=code.id)
    key = client.api_keys.get(hash=hashlib.sha256(made.key.encode()).hexdigest()).data
    assert key.name == "SDK tests"


def test_codes_that_are_not_exchanged(client):
    verifier, challenge = proof()
    create, exchange = client.o_auth.create_auth_code, client.o_auth.exchange_auth_code_for_api_key
    code = create(callback_url="https://x.example.com/", code_challenge=challenge, code_challenge_method="S256").data.id
    with pytest.raises(errors.ForbiddenResponseError) as caught:
        exchange(code=code, code_verifier="a" * 43)
    assert caught.value.data.error.message == "Invalid code or code_verifier"
    with pytest.raises(errors.BadRequestResponseError) as caught:
        exchange(code=code, code_verifier=verifier, code_challenge_method="plain")
    assert caught.value.data.error.message == "Invalid code_challenge_method"
    exchange(code=code, code_verifier=verifier)
    with pytest.raises(errors.ForbiddenResponseError):
        exchange(code=code, code_verifier=verifier)


def test_too_many_waiting_codes_are_a_conflict(client):
    create = lambda: client.o_auth.create_auth_code(callback_url="https://many.example.com/")
    for _ in range(100):
        create()
    with pytest.raises(errors.ConflictResponseError) as caught:
        create()
    assert caught.value.data.error.code == 409
    assert caught.value.data.error.message == "Resource conflict. Please try again later."
    assert caught.value.headers["retry-after"] == "1"


# Keys.


def test_the_life_of_a_key(branded, client, workspace, members):
    ada, _ = members
    client.workspaces.bulk_add_members(id=workspace.id, user_ids=[ada])
    made = client.api_keys.create(
        name="first",
        creator_user_id=ada,
        expires_at=NEW_YEAR,
        external={"user": "customer-7"},
        include_byok_in_limit=True,
        limit=3.25,
        limit_reset="monthly",
        workspace_id=workspace.id,
    )
    assert fits(KEY, made.key)
    key = made.data
    assert key.hash == hashlib.sha256(made.key.encode()).hexdigest()
    assert key.label == f"{made.key[:12]}...{made.key[-4:]}"
    assert (key.name, key.disabled, key.workspace_id, key.creator_user_id) == ("first", False, workspace.id, ada)
    assert (key.limit, key.limit_remaining, key.limit_reset) == (3.25, 3.25, "monthly")
    assert (key.include_byok_in_limit, key.expires_at, key.external_user) == (True, NEW_YEAR, "customer-7")
    assert all(getattr(key, member) == 0 for member in SPENT)
    assert fits(INSTANT, key.created_at)
    assert (key.updated_at, key.last_used_at) == (None, None)
    assert client.api_keys.get(hash=key.hash).data.model_dump() == key.model_dump()

    assert say_hello(branded, made.key).type == "message"
    changed = client.api_keys.update(
        hash=key.hash, name="second", limit=None, limit_reset=None, include_byok_in_limit=False
    ).data
    assert (changed.name, changed.limit, changed.limit_remaining, changed.limit_reset) == ("second", None, None, None)
    assert (changed.include_byok_in_limit, changed.disabled) == (False, False)
    assert fits(INSTANT, changed.updated_at)

    assert client.api_keys.update(hash=key.hash, disabled=True).data.disabled
    with pytest.raises(anthropic.AuthenticationError):
        say_hello(branded, made.key)
    listed = lambda **filters: [row.hash for row in client.api_keys.list(workspace_id=workspace.id, **filters).data]
    assert listed() == []
    assert listed(include_disabled=True) == [key.hash]
    assert not client.api_keys.update(hash=key.hash, disabled=False).data.disabled
    assert listed() == [key.hash]

    assert client.api_keys.delete(hash=key.hash).DELETED is True
    with pytest.raises(errors.NotFoundResponseError) as caught:
        client.api_keys.get(hash=key.hash)
    assert caught.value.data.error.message == "Resource not found"
    assert listed(include_disabled=True) == []


def test_a_key_of_the_clients_own_making_is_refused(client):
    """Better than a key that the caller thinks will work."""
    with pytest.raises(errors.BadRequestResponseError) as caught:
        client.api_keys.create(name="x", external={"user": "u", "api_key": "k" * 40})
    assert caught.value.data.error.metadata["issues"][0]["path"] == "external.api_key"


def test_keys_are_listed_in_pages_of_a_hundred(client, workspace):
    made = [client.api_keys.create(name=f"k{n}", workspace_id=workspace.id).data.hash for n in range(103)]
    pages = [client.api_keys.list(workspace_id=workspace.id, offset=offset).data for offset in (0, 100, 200)]
    assert [len(page) for page in pages] == [100, 3, 0]
    assert {row.hash for page in pages for row in page} == set(made)


@pytest.mark.parametrize("key, is_management", [(INFERENCE_KEY, False), (MANAGEMENT_KEY, True)])
def test_the_key_that_calls(branded, key, is_management):
    with client_of(branded, key) as caller:
        data = caller.api_keys.get_current_key_metadata().data
    assert (data.is_management_key, data.is_provisioning_key, data.is_free_tier) == (is_management, is_management, False)
    assert data.label
    assert all(getattr(data, member) >= 0 for member in SPENT)
    assert (data.rate_limit.requests, data.rate_limit.interval) == (-1, "1h")
    assert data.rate_limit.note
    assert data.allowed_data_regions == ["global"]
    free = data.free_model_daily_requests
    assert (free.limit, free.used, free.remaining) == (50, 0, 50)
    assert data.organization_id.startswith("org_") and fits(UUID, data.workspace_id)
    assert data.creator_user_id is None and data.expires_at is None


def test_every_limit_that_binds_a_key_is_told(branded, client, workspace):
    made = client.api_keys.create(name="bound", limit=50, limit_reset="daily", workspace_id=workspace.id)
    client.workspaces.set_budget(workspace_ref=workspace.id, interval="lifetime", limit_usd=20, include_byok_in_budgets=True)
    with client_of(branded, made.key) as caller:
        data = caller.api_keys.get_current_key_metadata().data
    by_scope = {budget.scope: budget for budget in data.budgets}
    assert set(by_scope) == {"key_limit", "workspace"}
    limit, budget = by_scope["key_limit"], by_scope["workspace"]
    assert (limit.limit_usd, limit.spend_usd, limit.remaining_usd, limit.reset_interval) == (50, 0, 50, "daily")
    assert limit.resets_at > datetime.datetime.now(datetime.timezone.utc)
    assert (limit.include_byok, limit.guardrail_id) == (False, None)
    assert (budget.limit_usd, budget.reset_interval, budget.resets_at, budget.include_byok) == (20, None, None, True)
    assert data.effective_budget == budget


def test_credits(client):
    data = client.credits.get_credits().data
    assert data.total_credits - data.total_usage == pytest.approx(1_000_000)


# Credentials for providers.


def test_the_life_of_a_credential(client, workspace, members):
    ada, _ = members
    key_hash = client.api_keys.create(name="allowed", workspace_id=workspace.id).data.hash
    made = client.byok.create(
        provider="anthropic",
        key="sk-ant-0123456789abcdefWXYZ",
        name="team a",
        workspace_id=workspace.id,
        disabled=False,
        is_fallback=False,
        is_required=True,
        is_byok_only=False,
        declared_region="europe",
        declared_zdr=True,
        allowed_models=["anthropic/claude-sonnet-4.5"],
        allowed_user_ids=[ada],
        allowed_api_key_hashes=[key_hash],
    ).data
    assert fits(UUID, made.id) and fits(INSTANT, made.created_at)
    assert (made.provider, made.name, made.label, made.sort_order) == ("anthropic", "team a", "sk-...WXYZ", 0)
    assert (made.disabled, made.is_fallback, made.is_required, made.is_byok_only) == (False, False, True, False)
    assert (made.declared_region, made.declared_zdr, made.workspace_id) == ("europe", True, workspace.id)
    assert made.allowed_models == ["anthropic/claude-sonnet-4.5"]
    assert (made.allowed_user_ids, made.allowed_api_key_hashes) == ([ada], [key_hash])
    assert client.byok.get(id=made.id).data == made

    update = lambda **change: client.byok.update(id=made.id, **change).data
    assert update() == made
    assert update(name="team b").name == "team b"
    assert update(name=None).name is None
    assert update(disabled=True).disabled
    assert not update(disabled=False).disabled
    freed = update(allowed_models=None, allowed_user_ids=None, allowed_api_key_hashes=None)
    assert (freed.allowed_models, freed.allowed_user_ids, freed.allowed_api_key_hashes) == (None, None, None)
    assert update(allowed_models=[]).allowed_models == []
    assert update(is_required=False, declared_region=None, declared_zdr=None).declared_zdr is None
    rotated = update(key="sk-ant-another-secret-9876")
    assert (rotated.label, rotated.id) == ("sk-...9876", made.id)
    fallback = update(is_fallback=True)
    assert fallback.is_fallback
    with pytest.raises(errors.BadRequestResponseError) as caught:
        update(is_byok_only=True)
    assert caught.value.data.error.metadata["issues"][0]["path"] == "is_byok_only"

    assert client.byok.delete(id=made.id).DELETED is True
    for gone in (client.byok.get, client.byok.update, client.byok.delete):
        with pytest.raises(errors.NotFoundResponseError):
            gone(id=made.id)


def test_a_credential_is_what_the_provider_gets(branded, client, workspace, upstream):
    key = client.api_keys.create(name="with its own", workspace_id=workspace.id).key
    secret = "own-secret-0123456789"
    made = client.byok.create(provider="upstream", key=secret, workspace_id=workspace.id).data
    assert say_hello(branded, key).type == "message"
    request, _ = upstream.last_request()
    assert secret in json.dumps(request["headers"])
    client.byok.update(id=made.id, key="rotated-secret-012345")
    assert say_hello(branded, key).type == "message"
    request, _ = upstream.last_request()
    assert "rotated-secret-012345" in json.dumps(request["headers"])
    client.byok.update(id=made.id, disabled=True)
    assert say_hello(branded, key).type == "message"
    request, _ = upstream.last_request()
    assert "upstream-secret" in json.dumps(request["headers"])


def test_credentials_are_listed_page_by_page(client, workspace):
    create = lambda **more: client.byok.create(key="secret", workspace_id=workspace.id, **more).data
    made = [create(provider="openai").id for _ in range(5)] + [create(provider="openai", is_fallback=True).id]
    other = create(provider="groq").id
    seen, totals = [], set()
    page = client.byok.list(workspace_id=workspace.id, provider="openai", limit=2)
    while page is not None:
        totals.add(page.result.total_count)
        seen += [credential.id for credential in page.result.data]
        page = page.next()
    assert seen == made and totals == {6}
    everything = client.byok.list(workspace_id=workspace.id).result
    assert [credential.id for credential in everything.data] == [other, *made]
    places = [(credential.sort_order, credential.is_fallback) for credential in everything.data]
    assert places == [(0, False)] + [(n, False) for n in range(5)] + [(0, True)]


def test_credentials_that_are_not_taken(client, workspace):
    cases = [
        ({"provider": "nobody", "key": "x"}, "provider"),
        ({"provider": "openai", "key": "   "}, "key"),
        ({"provider": "openai", "key": "x", "name": "n" * 256}, "name"),
        ({"provider": "openai", "key": "x", "allowed_api_key_hashes": []}, "allowed_api_key_hashes"),
        ({"provider": "openai", "key": "x", "allowed_api_key_hashes": ["0" * 64]}, "allowed_api_key_hashes"),
        ({"provider": "openai", "key": "x", "is_fallback": True, "is_byok_only": True}, "is_byok_only"),
        ({"provider": "google-vertex", "key": "no JSON"}, "key"),
    ]
    for body, path in cases:
        with pytest.raises(errors.BadRequestResponseError) as caught:
            client.byok.create(workspace_id=workspace.id, **body)
        error = caught.value.data.error
        assert (error.code, error.message) == (400, "Invalid request parameters"), body
        assert [issue["path"] for issue in error.metadata["issues"]] == [path], body


# Workspaces, their members and budgets.


def test_the_life_of_a_workspace(client):
    slug = f"s-{secrets.token_hex(6)}"
    made = client.workspaces.create(
        name="Team",
        slug=slug,
        description="Who builds",
        default_text_model="test/sim",
        default_image_model="test/picture",
        default_provider_sort="price",
        io_logging_api_key_ids=[1, 2],
        io_logging_sampling_rate=0.5,
        is_data_discount_logging_enabled=True,
        is_observability_broadcast_enabled=False,
        is_observability_io_logging_enabled=True,
    ).data
    assert fits(UUID, made.id) and fits(UUID, made.default_guardrail_id) and fits(INSTANT, made.created_at)
    assert (made.name, made.slug, made.description) == ("Team", slug, "Who builds")
    assert (made.default_text_model, made.default_image_model) == ("test/sim", "test/picture")
    assert (made.default_provider_sort, made.io_logging_api_key_ids) == ("price", [1, 2])
    assert (made.io_logging_sampling_rate, made.is_data_discount_logging_enabled) == (0.5, True)
    assert not made.is_observability_broadcast_enabled and made.is_observability_io_logging_enabled
    assert (made.updated_at, made.created_by, made.include_byok_in_budgets) == (None, None, False)
    assert client.workspaces.get(id=made.id).data == made
    assert client.workspaces.get(id=slug).data == made

    changed = client.workspaces.update(
        id=slug, name="Crew", slug=slug + "-2", description=None, default_text_model=None, io_logging_api_key_ids=None
    ).data
    assert (changed.id, changed.name, changed.slug, changed.description) == (made.id, "Crew", slug + "-2", None)
    assert (changed.default_text_model, changed.io_logging_api_key_ids) == (None, None)
    assert changed.default_image_model == "test/picture"
    assert fits(INSTANT, changed.updated_at)

    key = client.api_keys.create(name="inside", workspace_id=made.id).data.hash
    with pytest.raises(errors.BadRequestResponseError):
        client.workspaces.delete(id=made.id)
    client.api_keys.delete(hash=key)
    assert client.workspaces.delete(id=made.id).DELETED is True
    with pytest.raises(errors.NotFoundResponseError):
        client.workspaces.get(id=made.id)
    with pytest.raises(errors.ForbiddenResponseError) as caught:
        client.workspaces.delete(id="default")
    assert caught.value.data.error.message == "The default workspace cannot be deleted"


def test_workspaces_are_listed_page_by_page(client):
    made = {client.workspaces.create(name="n", slug=f"p{secrets.token_hex(6)}").data.id for _ in range(4)}
    seen, page = [], client.workspaces.list(limit=2)
    while page is not None:
        assert len(page.result.data) <= 2
        seen += [workspace.id for workspace in page.result.data]
        total, page = page.result.total_count, page.next()
    assert made < set(seen) and len(seen) == len(set(seen)) == total
    whole = client.workspaces.list(offset=0, limit=100).result
    assert "default" in [workspace.slug for workspace in whole.data]


def test_members_of_a_workspace(client, workspace, members):
    ada, bob = members
    added = client.workspaces.bulk_add_members(id=workspace.id, user_ids=[ada, bob])
    assert added.added_count == 2
    roles = {member.user_id: member.role for member in added.data}
    assert roles == {ada: "admin", bob: "member"}
    assert all(fits(UUID, member.id) and fits(INSTANT, member.created_at) for member in added.data)
    assert {member.workspace_id for member in added.data} == {workspace.id}
    assert client.workspaces.bulk_add_members(id=workspace.id, user_ids=[ada]).added_count == 0

    seen, page = [], client.workspaces.list_members(id=workspace.slug, limit=1)
    while page is not None:
        seen += [member.user_id for member in page.result.data]
        assert page.result.total_count == 2
        page = page.next()
    assert sorted(seen) == sorted(members)

    assert client.workspaces.bulk_remove_members(id=workspace.id, user_ids=[bob]).removed_count == 1
    assert [member.user_id for member in client.workspaces.list_members(id=workspace.id).result.data] == [ada]
    assert {ada, bob} <= {member.user_id for member in client.workspaces.list_members(id="default").result.data}
    with pytest.raises(errors.BadRequestResponseError) as caught:
        client.workspaces.bulk_add_members(id=workspace.id, user_ids=["user_nobody"])
    assert caught.value.data.error.metadata["issues"][0]["path"] == "user_ids"


def test_members_of_the_organisation(client, members):
    ada, bob = members
    seen, page = {}, client.organization.list_members(limit=1)
    while page is not None:
        seen |= {member.id: member for member in page.result.data}
        total, page = page.result.total_count, page.next()
    assert len(seen) == total
    assert (seen[ada].role, seen[ada].first_name, seen[ada].last_name) == ("org:admin", "Ada", "Byron")
    assert (seen[bob].role, seen[bob].first_name, seen[bob].last_name) == ("org:member", None, None)
    assert seen[bob].email.startswith("bob-")


def test_budgets(client, workspace):
    put = lambda interval, limit, **more: client.workspaces.set_budget(
        workspace_ref=workspace.id, interval=interval, limit_usd=limit, **more
    )
    made = put("monthly", 100.5, include_byok_in_budgets=True)
    budget = made.data
    assert made.include_byok_in_budgets is True
    assert fits(UUID, budget.id) and fits(INSTANT, budget.created_at) and fits(INSTANT, budget.updated_at)
    assert (budget.limit_usd, budget.reset_interval, budget.workspace_id) == (100.5, "monthly", workspace.id)
    assert put("lifetime", 1000).data.reset_interval is None
    assert put("daily", 10).data.limit_usd == 10
    with pytest.raises(errors.BadRequestResponseError) as caught:
        put("weekly", 200)
    assert "monthly" in caught.value.data.error.metadata["issues"][0]["message"]

    ref = {"workspace_ref": workspace.slug}
    assert client.workspaces.get_budget(interval="monthly", **ref).data == budget
    listed = client.workspaces.list_budgets(**ref)
    assert {row.reset_interval for row in listed.data} == {None, "monthly", "daily"}
    assert listed.include_byok_in_budgets is True
    assert client.workspaces.get(id=workspace.id).data.include_byok_in_budgets is True
    for _ in range(2):
        assert client.workspaces.delete_budget(interval="monthly", **ref).DELETED is True
    with pytest.raises(errors.NotFoundResponseError):
        client.workspaces.get_budget(interval="monthly", **ref)
    with pytest.raises(errors.BadRequestResponseError):
        client.workspaces.get_budget(interval="hourly", **ref)


# Errors.


OPERATIONS = {
    "a code": lambda client: client.o_auth.create_auth_code(callback_url="https://a.example.com/"),
    "a key": lambda client: client.api_keys.create(name="x"),
    "a new workspace": lambda client: client.workspaces.create(name="x", slug="x"),
    "a credential": lambda client: client.byok.create(provider="openai", key="x"),
    "credentials": lambda client: client.byok.list(),
    "a change of a credential": lambda client: client.byok.update(id="00000000-0000-7000-8000-000000000000"),
    "credits": lambda client: client.credits.get_credits(),
    "members": lambda client: client.workspaces.list_members(id="default"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_unknown_key_is_unauthorized(branded, name):
    with client_of(branded, "sk-tg-v1-nobody") as stranger, pytest.raises(errors.UnauthorizedResponseError) as caught:
        OPERATIONS[name](stranger)
    error = caught.value.data.error
    assert (caught.value.status_code, error.code, error.message) == (401, 401, "Invalid API key")
    assert caught.value.headers["x-request-id"]


def test_no_key_is_unauthorized(branded):
    with client_of(branded, None) as nobody, pytest.raises(errors.UnauthorizedResponseError) as caught:
        nobody.credits.get_credits()
    assert caught.value.data.error.message == "Missing Authentication header"


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_inference_key_is_forbidden(branded, name):
    with client_of(branded, INFERENCE_KEY) as caller, pytest.raises(errors.OpenRouterError) as caught:
        OPERATIONS[name](caller)
    # The client knows 403 only where the public service declares it; the answer is the same everywhere.
    assert caught.value.status_code == 403
    body = json.loads(caught.value.body)
    assert body["error"] == {"code": 403, "message": "Only management keys can perform this operation"}
    if name != "a change of a credential":
        assert isinstance(caught.value, errors.ForbiddenResponseError)
        assert caught.value.message == "Only management keys can perform this operation"


def test_what_is_wrong_is_told(client):
    with pytest.raises(errors.BadRequestResponseError) as caught:
        client.o_auth.create_auth_code(
            callback_url="http://evil.example.com/", code_challenge_method="S256", limit=-1, key_label="k" * 101
        )
    error = caught.value.data.error
    assert (error.code, error.message) == (400, "Invalid request parameters")
    paths = {issue["path"] for issue in error.metadata["issues"]}
    assert {"callback_url", "limit", "key_label"} <= paths


def test_what_is_not_there_is_not_found(client):
    nobody = "00000000-0000-7000-8000-000000000000"
    for call in (
        lambda: client.api_keys.get(hash="0" * 64),
        lambda: client.api_keys.update(hash="0" * 64, name="x"),
        lambda: client.api_keys.delete(hash="0" * 64),
        lambda: client.byok.get(id=nobody),
        lambda: client.byok.update(id=nobody, name="x"),
        lambda: client.byok.delete(id=nobody),
        lambda: client.workspaces.get(id=nobody),
        lambda: client.workspaces.update(id="no-such", name="x"),
        lambda: client.workspaces.list_members(id=nobody),
        lambda: client.workspaces.list_budgets(workspace_ref=nobody),
        lambda: client.workspaces.delete_budget(workspace_ref=nobody, interval="daily"),
    ):
        with pytest.raises(errors.NotFoundResponseError) as caught:
            call()
        assert (caught.value.data.error.code, caught.value.data.error.message) == (404, "Resource not found")


# The asynchronous client.


def test_the_asynchronous_client(branded):
    async def whole():
        async with client_of(branded) as client:
            verifier, challenge = proof()
            code = await client.o_auth.create_auth_code_async(
                callback_url="https://later.example.com/", code_challenge=challenge, code_challenge_method="S256"
            )
            made = await client.o_auth.exchange_auth_code_for_api_key_async(code=code.data.id, code_verifier=verifier)
            key_hash = hashlib.sha256(made.key.encode()).hexdigest()
            slug = f"a{secrets.token_hex(6)}"
            workspace = (await client.workspaces.create_async(name="later", slug=slug)).data
            credentials = [
                (await client.byok.create_async(provider="openai", key="x", workspace_id=workspace.id)).data.id
                for _ in range(3)
            ]
            seen, page = [], await client.byok.list_async(workspace_id=workspace.id, limit=2)
            while page is not None:
                seen += [credential.id for credential in page.result.data]
                page = await page.next()
            with pytest.raises(errors.NotFoundResponseError):
                await client.api_keys.get_async(hash="0" * 64)
            return made.key, (await client.api_keys.get_async(hash=key_hash)).data, credentials, seen

    key, data, made, seen = asyncio.run(whole())
    assert seen == made
    assert data.hash == hashlib.sha256(key.encode()).hexdigest()
    assert say_hello(branded, key).type == "message"


def test_models_are_listed(branded):
    with OpenRouter(api_key=INFERENCE_KEY, server_url=f"{branded.url}/api/v1") as client:
        models = client.models.list()
        listed = models.result.data if hasattr(models, "result") else models.data
        by_id = {model.id: model for model in listed}
        assert by_id["test/sim"].pricing.prompt == "0.000003"
        assert by_id["test/sim"].top_provider.max_completion_tokens == 8192
        assert client.models.count().data.count == len(by_id)
        providers = client.providers.list()
        assert "upstream" in [provider.slug for provider in providers.data]
        offered = client.endpoints.list(author="test", slug="sim").data
        [endpoint] = offered.endpoints
        assert (offered.id, endpoint.provider_name, endpoint.service_tier) == ("test/sim", "Upstream", None)
        assert (endpoint.native_tools, endpoint.supports_diarization) == ({}, False)
        choices = endpoint.supports_tool_choice
        assert choices.auto and choices.none and choices.required and choices.function


def test_presets(branded, client, workspace):
    key = client.api_keys.create(name="presets", workspace_id=workspace.id).key
    with client_of(branded, key) as own:
        settings = {"model": "test/sim", "system": "Be brief.", "temperature": 0.5}
        made = own.presets.create_presets_messages(slug="brief", messages=None, **settings).data
        assert fits(UUID, made.id) and (made.slug, made.status, made.workspace_id) == ("brief", "active", workspace.id)
        version = made.designated_version
        assert (version.version, version.system_prompt) == (1, "Be brief.")
        assert version.config == {"model": "test/sim", "temperature": 0.5}
        hello = [{"role": "user", "content": "hi"}]
        again = own.presets.create_presets_messages(slug="brief", messages=hello, model="test/sim", max_tokens=9).data
        assert (again.id, again.designated_version.version) == (made.id, 2)
        assert own.presets.get(slug="brief").data == again
        assert [one.id for one in own.presets.list().result.data] == [made.id]
        assert [one.version for one in own.presets.list_versions(slug="brief").result.data] == [1, 2]
        assert own.presets.get_version(slug="brief", version="1").data == version
        with pytest.raises(errors.NotFoundResponseError):
            own.presets.get(slug="nobody")
